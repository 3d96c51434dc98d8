//! A service that starts where there are many pools needs less memory than the chart grants.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::{Options, wait_for};
use serde_json::{Value, json};

use crate::fake_server::{Call, FakeServer};
use crate::world::{NAMESPACE, World, machine_deployment};

/// The limit of the chart.
const MEMORY: u64 = 256 * 1024 * 1024;

/// 5,000 pools are 300 MiB of JSON, and a development build is slow.
const LISTED_WITHIN: Duration = Duration::from_secs(300);

/// The place of an object's number.
const NUMBER: &str = "@number@";

/// The objects of an installation with so many pools, each of the size that it usually has.
struct Objects {
    pools: usize,
    pool: String,
    config: String,
    secret: String,
    account: String,
    role: String,
    binding: String,
}

impl Objects {
    fn new(pools: usize) -> Self {
        let managed = json!([{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": (0..60).map(|i| (format!("f:field-{i}"), json!({}))).collect::<serde_json::Map<_, _>>()}}]);
        let with = |mut object: Value, namespace: &str| {
            object["metadata"]["namespace"] = json!(namespace);
            object["metadata"]["managedFields"] = managed.clone();
            object["metadata"]["labels"] = json!({names::INSTALLATION: NAMESPACE});
            object["metadata"]["name"] = json!(format!("object-{NUMBER}"));
            object["metadata"]["uid"] = json!(format!("uid-{NUMBER}"));
            object["metadata"]["resourceVersion"] = json!("1");
            object["metadata"]["annotations"] =
                json!({names::CONFIG: format!("config-{NUMBER}"), names::REVISION: "1"});
            object.to_string()
        };
        let file = |i: usize| json!({"path": format!("/etc/file-{i}"), "permissions": 420, "content": {"inline": {"encoding": "b64", "data": "x".repeat(1800)}}});
        let files = |count: usize| json!({"files": (0..count).map(file).collect::<Vec<_>>()});
        let rbac = "rbac.authorization.k8s.io";
        Self {
            pools,
            pool: with(machine_deployment("pool", "osp-tiny"), "kube-system"),
            config: with(
                json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
                    "spec": {"bootstrapConfig": files(3), "provisioningConfig": files(20)}}),
                NAMESPACE,
            ),
            secret: with(
                json!({"apiVersion": "v1", "kind": "Secret", "data": {"cloud-config": "QUFB".repeat(6000)}}),
                CLOUD_INIT_SETTINGS,
            ),
            account: with(
                json!({"apiVersion": "v1", "kind": "ServiceAccount"}),
                CLOUD_INIT_SETTINGS,
            ),
            role: with(
                json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role",
                    "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}]}),
                CLOUD_INIT_SETTINGS,
            ),
            binding: with(
                json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
                    "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"}, "subjects": []}),
                CLOUD_INIT_SETTINGS,
            ),
        }
    }

    /// How many objects a list has, and what they look like.
    fn of(&self, target: &str) -> Option<(usize, &str)> {
        let path = target.split('?').next().unwrap_or_default();
        Some(match path.rsplit('/').next()? {
            "machinedeployments" => (self.pools, &self.pool),
            "operatingsystemconfigs" => (self.pools, &self.config),
            "secrets" if target.contains("labelSelector") => (3 * self.pools, &self.secret),
            "serviceaccounts" => (self.pools, &self.account),
            "roles" => (self.pools, &self.role),
            "rolebindings" => (self.pools, &self.binding),
            _ => return None,
        })
    }

    fn page(&self, call: &Call) -> String {
        let (from, limit) = (call.number("continue"), call.number("limit"));
        let (count, shape) = self.of(&call.target).unwrap_or((0, ""));
        let end = (from + limit).min(count);
        let items: Vec<String> = (from..end)
            .map(|i| shape.replace(NUMBER, &i.to_string()))
            .collect();
        let token = if end < count {
            end.to_string()
        } else {
            String::new()
        };
        format!(
            r#"{{"metadata": {{"resourceVersion": "1", "continue": "{token}"}}, "items": [{}]}}"#,
            items.join(",")
        )
    }
}

async fn respond(mut call: Call, objects: Arc<Objects>) -> Result<()> {
    call.head(http::Response::builder()).await?;
    if call.is_watch() {
        tokio::time::sleep(LISTED_WITHIN).await;
        return Ok(());
    }
    let answer = match call.method.as_str() {
        "GET" if call.target.contains("limit=") => objects.page(&call),
        "GET" => json!({"metadata": {"name": "kube-system", "uid": "u"}}).to_string(),
        _ => json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}).to_string(),
    };
    call.send(answer.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_5000_pools_fits_into_memory() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    for pools in [1000, 5000] {
        let objects = Arc::new(Objects::new(pools));
        let server = FakeServer::start(move |call| respond(call, objects.clone())).await?;
        for service in [Service::OscController, Service::SecretSyncer] {
            world
                .installed
                .replace_kubeconfig(service, ClusterKind::Management, &server.kubeconfig())?;
            world.installed.start(service).await?;
            let what = format!("{} to list the objects of {pools} pools", service.name());
            wait_for(&what, LISTED_WITHIN, async || {
                let (_, ready) = world.installed.get(service, "/readyz").await?;
                let log = std::fs::read_to_string(world.installed.log_file(service))?;
                let listed = format!(r#""kind":"operatingsystemconfigs","objects":{pools},"#);
                // The fake server has no valid settings and no Leases.
                ensure!(log.contains(&listed) && !ready.contains("watch of"), "{ready}");
                Ok(Some(()))
            })
            .await?;
            let peak = world.installed.process(service)?.usage()?.peak_rss >> 20;
            println!("{}, {pools} pools: {peak} MiB", service.name());
            ensure!(
                peak < MEMORY >> 20,
                "{}, {pools} pools: {peak} MiB",
                service.name()
            );
            world.installed.kill9(service)?;
        }
    }
    Ok(())
}
