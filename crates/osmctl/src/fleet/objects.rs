//! What the services need in a user cluster. The chart has the same with the topology `worker`, which a test
//! compares.

use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::rbac::{self, ClusterKind, Installation, Names, Service};
use osm_api::worker_cluster::Joining;
use serde_json::{Value, json};

/// The services that connect to a user cluster, in the order of the chart.
pub fn services(joining: Joining) -> &'static [Service] {
    const ALL: [Service; 3] = [
        Service::CsrApprover,
        Service::OscController,
        Service::SecretSyncer,
    ];
    let [_, others @ ..] = &ALL;
    match joining {
        Joining::Approved => &ALL,
        Joining::Static => others,
    }
}

/// The objects in the user cluster, in order. The namespaces outlive them, because they may have more.
pub fn of_cluster(installation: &Installation, release: &str, joining: Joining) -> Vec<Value> {
    let names = Names::of_release(&installation.namespace, release);
    let services = services(joining);
    let mut objects = rbac::objects(&names, installation, &[ClusterKind::Worker], services);
    if joining == Joining::Static {
        objects.push(rbac::node_client(&names));
    }
    objects.extend(rbac::renewal(&names, services));
    for object in &mut objects {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let labels = json!({"app.kubernetes.io/part-of": "operating-system-manager",
                "app.kubernetes.io/instance": release, "app.kubernetes.io/managed-by": "osmctl"});
            metadata.insert("labels".to_owned(), labels);
        }
    }
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut all = vec![namespace(&installation.namespace), namespace(CLOUD_INIT_SETTINGS)];
    all.append(&mut objects);
    all
}
