//! osp-controller on the API server in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use osm_api::rbac::Installation;
use osm_runtime::replicas::Replicas;
use osm_runtime::{AdmissionArgs, settings_watch};
use osm_sim::memory::{Call, Link, Network, Passage, Server, User};
use serde_json::{Value, json};

use crate::watches::cluster_by;

const PROFILES: &str = "operatingsystemprofiles";

/// Lists of profiles take their time: what has arrived is reconciled before the rest is there.
#[derive(Default)]
struct SlowLists {
    verdicts: AtomicUsize,
}

impl Network for SlowLists {
    fn passage(&self, call: &Call) -> Passage {
        if call.writes && call.resource == "operatingsystemprofiles/status" && call.name == EXTENSION {
            self.verdicts.fetch_add(1, Ordering::SeqCst);
        }
        let is_list = call.verb == "list" && call.resource == PROFILES;
        Passage {
            there: Duration::from_secs(if is_list { 5 } else { 0 }),
            ..Passage::default()
        }
    }

    fn lag(&self, _: &str, _: u64) -> Duration {
        Duration::ZERO
    }
}

const EXTENSION: &str = "a-extension";
const BASE: &str = "z-base";

fn profile(namespace: &str, name: &str, extends: Option<&str>) -> Value {
    let version = if namespace == "team" { "v1.0.0" } else { "v2.0.0" };
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": version, "templateEngine": "Handlebars", "extends": extends,
            "supportedCloudProviders": [{"name": "aws"}], "bootstrapConfig": {}, "provisioningConfig": {},
        },
    })
}

/// A base is looked for in the namespace of its extension first, and then in that of the installation.
#[tokio::test(start_paused = true)]
async fn an_extension_is_not_judged_before_all_profiles_of_its_namespace_are_known() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let mut profiles = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        profile("kube-system", BASE, None),
        profile("team", BASE, None),
        profile("team", EXTENSION, Some(BASE)),
    ];
    // They make the base come with the last of nine pages.
    profiles.extend((0..80).map(|i| profile("team", &format!("other-{i}"), None)));
    server.load(&profiles).unwrap();
    let network = Arc::new(SlowLists::default());
    let installation = Installation {
        profile_namespaces: vec!["team".to_owned()],
        ..Installation::default()
    };
    let link = Link::new(network.clone());
    let mut cluster = cluster_by(&server, &User::Admin, &link, installation);
    cluster.settings = settings_watch::spawn(&cluster, &cluster.management, &cluster.installation);
    let member = Replicas::watch(&cluster, &cluster.management, &cluster.installation);
    cluster.replicas = member.replicas().clone();
    tokio::spawn(osp_controller::run(cluster, AdmissionArgs::default()));
    tokio::time::sleep(Duration::from_secs(120)).await;

    let stored = server
        .with(|state| state.object(PROFILES, "team", EXTENSION).cloned())
        .unwrap();
    let accepted = &stored["status"]["accepted"]["version"];
    assert_eq!(accepted, "v1.0.0 on z-base v1.0.0", "{:#}", stored["status"]);
    assert_eq!(network.verdicts.load(Ordering::SeqCst), 1);
}
