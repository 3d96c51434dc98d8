//! Objects of the installers of the Go implementation.

use serde_json::json;

use super::super::kinds;
use super::seen::Seen;
use crate::cluster::{Kind, Object};

/// The kind of a manifest in the fixtures.
fn kind(name: &str) -> Kind {
    let mut read = [
        kinds::DAEMON_SET,
        kinds::STATEFUL_SET,
        kinds::CRON_JOB,
        kinds::JOB,
    ]
    .into_iter();
    let found = kinds::find(name).or_else(|| read.find(|kind| kind.kind == name));
    found.unwrap_or_else(|| panic!("{name}"))
}

/// Objects of a stream of manifests.
pub fn objects(text: &str) -> Vec<Object> {
    let documents = osm_render::yaml::read(text).unwrap();
    let objects = documents.into_iter().enumerate().map(|(i, mut value)| {
        value["metadata"]["uid"] = json!(format!("uid-{i}"));
        let kind = kind(value["kind"].as_str().unwrap());
        Object::new(kind, value)
    });
    objects.collect()
}

/// What a cluster with these objects in `kube-system` and others holds.
pub fn seen(objects: Vec<Object>) -> Seen {
    let mut seen = Seen {
        namespace: "kube-system".to_owned(),
        ..Seen::default()
    };
    for object in objects {
        let list = match object.kind {
            kinds::DEPLOYMENT => &mut seen.deployments,
            kinds::DAEMON_SET | kinds::STATEFUL_SET | kinds::CRON_JOB | kinds::JOB => &mut seen.workloads,
            kinds::VALIDATING | kinds::MUTATING => &mut seen.webhooks,
            kinds::SERVICE => &mut seen.services,
            kinds::BUDGET => &mut seen.budgets,
            kinds::ACCOUNT => &mut seen.accounts,
            kinds::CERTIFICATE | kinds::ISSUER => &mut seen.certificates,
            kinds::ROLE | kinds::CLUSTER_ROLE => &mut seen.roles,
            kinds::ROLE_BINDING | kinds::CLUSTER_ROLE_BINDING => &mut seen.bindings,
            _ => &mut seen.secrets,
        };
        list.push(object);
    }
    seen
}

pub const INSTALLERS: [(&str, &str); 3] = [
    (
        "deploy",
        include_str!("../../../../../e2e/tests/fixtures/takeover/deploy.yaml"),
    ),
    (
        "kubeone",
        include_str!("../../../../../e2e/tests/fixtures/takeover/kubeone.yaml"),
    ),
    (
        "machine-controller",
        include_str!("../../../../../e2e/tests/fixtures/takeover/machine-controller.yaml"),
    ),
];
