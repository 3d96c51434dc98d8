//! Situations that tests of the plan start from.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use osm_api::config::{OperatingSystemConfigStatus, Retired, Stored};
use osm_api::settings::Credentials;
use osm_api::{PoolRef, names};

use crate::model::existing::ExistingObjects;
use crate::model::gathered::{Clusters, Gathered};
use crate::model::memory::PoolMemory;
use crate::model::record::published_from;
use crate::model::source::Inputs;
use crate::model::view::{BindingView, ConfigView, Meta, RoleView, SecretView};
use crate::plan::plan;
use crate::plan::steps::{Publish, Step};

pub const MANAGEMENT: &str = "management-uid";
pub const WORKER: &str = "worker-uid";
/// Id of the pool of [`config`].
pub const POOL: &str = "6232cdf0403b00285c65";

pub fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub fn hours(hours: i64) -> Timestamp {
    now() + SignedDuration::from_hours(hours)
}

pub fn config() -> ConfigView {
    ConfigView {
        namespace: "kube-system".to_owned(),
        name: "pool-kube-system-config".into(),
        uid: "config-uid".into(),
        resource_version: "9".into(),
        generation: 3,
        made_in: Some(WORKER.into()),
        machine_deployment: Some(PoolRef::machine_deployment("kube-system", "pool", "md-uid")),
        pool_is_of: None,
        is_edge: false,
        needs_kubeconfig_secret: false,
        late_bound_values: vec![],
        status: OperatingSystemConfigStatus {
            rendered: Some(Stored {
                digest: "d".into(),
                revision: Some("1".into()),
                ..Stored::default()
            }),
            ..Default::default()
        },
        unreadable: None,
        is_claimed: false,
    }
}

/// That the pool with this uid is gone.
pub fn retired(uid: &str) -> Retired {
    Retired {
        uid: uid.into(),
        generation: 3,
    }
}

/// A pool of which nothing has been published.
pub fn fresh() -> Gathered {
    Gathered {
        now: now(),
        name: "pool-kube-system-config".into(),
        config: Some(Arc::new(config())),
        clusters: Clusters {
            management: MANAGEMENT.into(),
            worker: WORKER.into(),
        },
        existing: ExistingObjects::default(),
        orphans: vec![],
        are_secrets_crowded: false,
        inputs: Ok(Inputs::default()),
        token_lifetime: Credentials::default().token_lifetime(),
        memory: PoolMemory::default(),
        published: None,
        upstream_osm: None,
        outdated_definitions: None,
    }
}

pub fn meta(name: &str, annotations: &[(&'static str, &str)]) -> Meta {
    Meta {
        name: name.into(),
        uid: format!("{name}-uid"),
        resource_version: "5".into(),
        labels: [(names::POOL, POOL.to_owned())].into_iter().collect(),
        annotations: [
            (names::CONFIG, "pool-kube-system-config"),
            (names::MANAGEMENT_CLUSTER_UID, MANAGEMENT),
            (names::OWNER, "kube-system/pool"),
        ]
        .iter()
        .chain(annotations)
        .map(|(key, value)| (*key, (*value).to_owned()))
        .collect(),
    }
}

pub fn document(name: &str, keep_until: Timestamp) -> Arc<SecretView> {
    let annotations = [(names::KEEP_UNTIL, keep_until.to_string())];
    let annotations: Vec<_> = annotations
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    Arc::new(SecretView {
        meta: meta(name, &annotations),
        entries: name.into(),
        immutable: true,
        ..SecretView::default()
    })
}

/// A pool of which everything exists as it should.
pub fn published() -> Gathered {
    let mut gathered = fresh();
    let (expires, renew) = (hours(20).to_string(), hours(8).to_string());
    let published_from = published_from("d", &[].into());
    let annotations = [
        (names::MACHINE_DEPLOYMENT_REVISION, "1"),
        (names::PUBLISHED_FROM, &published_from),
        (names::PROVISIONING_SECRET, "document"),
        (names::PROVISIONING_SECRET_UID, "document-uid"),
        (names::BOUND_TO, "account-uid"),
        (names::EXPIRES, &expires),
        (names::RENEW_AT, &renew),
    ];
    gathered.existing = ExistingObjects {
        bootstrap: Some(Arc::new(SecretView {
            meta: meta("pool-kube-system-bootstrap-config", &annotations),
            is_intact: true,
            ..SecretView::default()
        })),
        edge_script: None,
        kubeconfig: None,
        token_binding: None,
        provisioning: vec![document("document", hours(21))],
        account: Some(Arc::new(meta("account", &[]))),
        role: Some(Arc::new(RoleView {
            meta: meta("role", &[]),
            secrets: Some(vec!["document".into()]),
        })),
        binding: Some(Arc::new(BindingView {
            meta: meta("binding", &[]),
            good: true,
        })),
    };
    gathered
}

/// What is published in a situation in which something is.
pub fn published_now(gathered: &Gathered) -> Publish {
    match plan(gathered).1.unwrap().step {
        Step::Publish(publish) => *publish,
        other => panic!("{other:?}"),
    }
}

pub fn edit_config(gathered: &mut Gathered, edit: impl FnOnce(&mut ConfigView)) {
    let mut config = (**gathered.config.as_ref().unwrap()).clone();
    edit(&mut config);
    gathered.config = Some(Arc::new(config));
}

pub fn edit_bootstrap(gathered: &mut Gathered, edit: impl FnOnce(&mut SecretView)) {
    let mut secret = (**gathered.existing.bootstrap.as_ref().unwrap()).clone();
    edit(&mut secret);
    gathered.existing.bootstrap = Some(Arc::new(secret));
}

pub fn edit_rendered(gathered: &mut Gathered, edit: impl FnOnce(&mut Stored)) {
    edit_config(gathered, |config| edit(config.status.rendered.as_mut().unwrap()));
}

pub fn edit_script(gathered: &mut Gathered, edit: impl FnOnce(&mut SecretView)) {
    edit(Arc::make_mut(gathered.existing.edge_script.as_mut().unwrap()));
}

pub fn edit_kubeconfig(gathered: &mut Gathered, edit: impl FnOnce(&mut SecretView)) {
    edit(Arc::make_mut(gathered.existing.kubeconfig.as_mut().unwrap()));
}

/// A pool with a kubeconfig Secret, of which everything exists as it should.
pub fn published_late() -> Gathered {
    let mut gathered = published();
    let name = names::kubeconfig_secret_name(POOL);
    edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = true);
    let mut kubeconfig = (**gathered.existing.bootstrap.as_ref().unwrap()).clone();
    kubeconfig.meta.name.clone_from(&name);
    kubeconfig.meta.uid = "kubeconfig-uid".into();
    let keep_until = hours(21).to_string();
    kubeconfig.meta.annotations.insert(names::KEEP_UNTIL, keep_until);
    gathered.existing.kubeconfig = Some(Arc::new(kubeconfig));
    gathered.existing.role = Some(Arc::new(RoleView {
        meta: meta("role", &[]),
        secrets: Some(vec!["document".into(), name]),
    }));
    gathered
}

/// An edge pool of which everything exists as it should.
pub fn published_edge() -> Gathered {
    let mut gathered = published();
    edit_config(&mut gathered, |config| config.is_edge = true);
    let mut script = (**gathered.existing.bootstrap.as_ref().unwrap()).clone();
    script.meta.name = "edge-provider-script-pool-kube-system".into();
    gathered.existing.edge_script = Some(Arc::new(script));
    gathered
}
