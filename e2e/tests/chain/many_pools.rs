//! A service that starts where there are many pools needs less memory than the chart grants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_api::gzip;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::{Options, installation, wait_for};
use serde_json::{Value, json};

use crate::fake_server::{Call, FakeServer};
use crate::world::{NAMESPACE, World, machine_deployment, profile};

/// The limit of the chart.
const MEMORY: u64 = 256 * 1024 * 1024;

/// 5,000 pools are 300 MiB of JSON, and a development build is slow.
const LISTED_WITHIN: Duration = Duration::from_secs(300);

/// Reconciles of a service that the test waits for. More of them need no more memory.
const RECONCILES: u64 = 100;

/// The place of an object's number.
const NUMBER: &str = "@number@";

/// Provisioning Secrets of earlier content, of all pools together.
const KEPT: usize = 100;

/// About as large as the documents of a default profile, and as compressible.
const TEXT: &str = include_str!("../../../profiles/osp-ubuntu.yaml");

/// Objects of one kind: how many there are, and what each looks like.
type Kind = (usize, String);

/// The objects of an installation with so many pools, each of the size that it usually has.
struct Objects {
    pools: usize,
    /// By the last segment of the path.
    kinds: BTreeMap<&'static str, Vec<Kind>>,
    settings: Value,
    leases: Mutex<Leases>,
}

#[derive(Default)]
struct Leases {
    version: u64,
    /// By name.
    all: BTreeMap<String, Value>,
}

/// What API servers add to each object.
fn stored(mut object: Value, (namespace, name): (&str, &str), annotations: Value) -> String {
    let fields = (0..60).map(|i| (format!("f:field-{i}"), json!({})));
    object["metadata"] = json!({
        "namespace": namespace, "name": name, "uid": format!("{}-{NUMBER}", "0".repeat(30)), "resourceVersion": "1",
        "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {names::INSTALLATION: NAMESPACE, names::POOL: format!("{}{NUMBER}", "0".repeat(16))},
        "annotations": annotations,
        "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields.collect::<serde_json::Map<_, _>>()}}],
    });
    object.to_string()
}

impl Objects {
    fn new(pools: usize, installation: &osm_api::rbac::Installation) -> Self {
        let pool = format!("pool-{NUMBER}");
        let config = format!("{pool}-kube-system-config");
        let mac = "0123456789abcdef".repeat(4);
        let rbac = "rbac.authorization.k8s.io";
        let of_pool = json!({names::CONFIG: config, names::OWNER: format!("kube-system/{pool}"),
            names::MANAGEMENT_CLUSTER_UID: mac});
        let with = |more: Value| {
            let mut annotations = of_pool.clone();
            let (into, more) = (annotations.as_object_mut(), more.as_object().cloned());
            if let (Some(into), Some(more)) = (into, more) {
                into.extend(more);
            }
            annotations
        };
        let document = |texts: usize| {
            let part = |i: usize| {
                TEXT.get(i * 1_000..)
                    .unwrap_or(TEXT)
                    .chars()
                    .take(8_000)
                    .collect::<String>()
            };
            let file = |i: usize| json!({"path": format!("/etc/file-{i}"), "permissions": 420, "content": {"inline": {"data": part(i)}}});
            json!({"files": (0..texts).map(file).collect::<Vec<_>>()}).to_string()
        };
        let (small, large) = (document(1), document(5));
        let data = |text: &str| gzip::USUAL.base64(text);
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "m".repeat(120),
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
        };
        let late = |id: &str, kind: &str| json!({"id": id, "kind": kind});
        let md =
            json!({"namespace": "kube-system", "name": pool, "uid": format!("{}-{NUMBER}", "0".repeat(30))});
        let rendered = json!({"generation": 0, "digest": mac, "revision": "1", "templateDigest": mac, "settingsDigest": mac,
            "profile": {"namespace": NAMESPACE, "name": "osp-tiny", "version": "v1.0.0", "digest": mac, "templateEngine": "Handlebars"},
            "apiServer": "https://api.example:6443", "osName": "ubuntu", "cloudProvider": "openstack", "provisioningUtility": "cloud-init",
            "bootstrap": data(&small), "provisioning": data(&large),
            "lateBound": [late("api/token", "ApiToken"), late("kubelet/token", "KubeletToken"),
                late("provisioning/secret-name", "ProvisioningSecretName"), late("provisioning/sha256", "ProvisioningDigest")]});
        let published = json!({"digest": mac, "revision": "1", "bootstrapSecret": format!("{pool}-kube-system-bootstrap-config"),
            "provisioningSecret": format!("osm-provisioning-{NUMBER}"), "credentialExpires": "2100-01-01T00:00:00Z"});
        let mut pool_ref = md;
        pool_ref["apiVersion"] = json!("cluster.k8s.io/v1alpha1");
        pool_ref["kind"] = json!("MachineDeployment");
        let bootstrap = with(
            json!({names::MACHINE_DEPLOYMENT_REVISION: "1", names::INPUTS_MAC: mac, names::DOCUMENT_MAC: mac,
            names::CONTENT_MAC: mac, names::PUBLISHED_FROM: mac, names::PROVISIONING_SECRET: format!("osm-provisioning-{NUMBER}"),
            names::BOUND_TO: mac, names::EXPIRES: "2100-01-01T00:00:00Z", names::RENEW_AT: "2090-01-01T00:00:00Z"}),
        );
        let kept = with(json!({names::KEEP_UNTIL: "2100-01-01T00:00:00Z"}));
        let secret = |name: &str, annotations: &Value, data: Value| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": false, "data": data});
            stored(secret, (CLOUD_INIT_SETTINGS, name), annotations.clone())
        };
        let object = |api: &str, kind: &str, more: Value| {
            let mut object = json!({"apiVersion": api, "kind": kind});
            if let (Some(object), Some(more)) = (object.as_object_mut(), more.as_object().cloned()) {
                object.extend(more);
            }
            object
        };
        let of_credentials = |object: Value| {
            stored(
                object,
                (CLOUD_INIT_SETTINGS, &format!("osm-{NUMBER}")),
                of_pool.clone(),
            )
        };
        let machine = |name: &str, api: &str, kind: &str, more: Value| {
            stored(object(api, kind, more), ("kube-system", name), json!({}))
        };
        let (osm, capi) = (
            "operatingsystemmanager.k8c.io/v1alpha1",
            "cluster.k8s.io/v1alpha1",
        );
        let deployment = machine_deployment("pool", "osp-tiny");
        let mut accepted = profile("osp-tiny", "v1.0.0", "one\n");
        accepted["status"] = json!({});
        let node = json!({"status": {"conditions": (0..6).map(|_| condition("Ready")).collect::<Vec<_>>(),
            "images": (0..30).map(|i| json!({"names": [format!("registry.example/{}-{i}", "image".repeat(10))], "sizeBytes": 1})).collect::<Vec<_>>()}});
        let kinds: [(&'static str, Vec<Kind>); 11] = [
            (
                "machinedeployments",
                vec![(
                    pools,
                    stored(
                        deployment.clone(),
                        ("kube-system", &pool),
                        deployment["metadata"]["annotations"].clone(),
                    ),
                )],
            ),
            (
                "operatingsystemprofiles",
                vec![(
                    20,
                    stored(accepted, (NAMESPACE, &format!("osp-{NUMBER}")), json!({})),
                )],
            ),
            (
                "operatingsystemconfigs",
                vec![(
                    pools,
                    stored(
                        object(
                            osm,
                            "OperatingSystemConfig",
                            json!({"spec": {"poolRef": pool_ref},
                    "status": {"conditions": [condition("Rendered"), condition("Published")], "rendered": rendered, "published": published}}),
                        ),
                        (NAMESPACE, &config),
                        of_pool.clone(),
                    ),
                )],
            ),
            (
                "secrets",
                vec![
                    (
                        pools,
                        secret(
                            &format!("{pool}-kube-system-bootstrap-config"),
                            &bootstrap,
                            json!({"cloud-config": data(&small)}),
                        ),
                    ),
                    (
                        pools + KEPT,
                        secret(
                            &format!("osm-provisioning-{NUMBER}"),
                            &kept,
                            json!({names::CLOUD_CONFIG_GZIP_KEY: data(&large), names::CONTENT_GZIP_KEY: data(&small)}),
                        ),
                    ),
                ],
            ),
            (
                "serviceaccounts",
                vec![(pools, of_credentials(object("v1", "ServiceAccount", json!({}))))],
            ),
            (
                "roles",
                vec![(
                    pools,
                    of_credentials(object(
                        &format!("{rbac}/v1"),
                        "Role",
                        json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"]}]}),
                    )),
                )],
            ),
            (
                "rolebindings",
                vec![(
                    pools,
                    of_credentials(object(
                        &format!("{rbac}/v1"),
                        "RoleBinding",
                        json!({"roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"}, "subjects": []}),
                    )),
                )],
            ),
            (
                "machines",
                vec![(
                    pools,
                    machine(
                        &format!("machine-{NUMBER}"),
                        capi,
                        "Machine",
                        json!({"spec": deployment["spec"]["template"]["spec"], "status": {"nodeRef": {"name": format!("machine-{NUMBER}")}}}),
                    ),
                )],
            ),
            (
                "machinesets",
                vec![(
                    pools,
                    machine(
                        &format!("set-{NUMBER}"),
                        capi,
                        "MachineSet",
                        json!({"spec": {"template": deployment["spec"]["template"]}}),
                    ),
                )],
            ),
            (
                "nodes",
                vec![(pools, machine(&format!("machine-{NUMBER}"), "v1", "Node", node))],
            ),
            (
                "certificatesigningrequests",
                vec![(
                    100,
                    machine(
                        &format!("csr-{NUMBER}"),
                        "certificates.k8s.io/v1",
                        "CertificateSigningRequest",
                        json!({"spec": {"request": "QUFB", "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"],
                    "username": format!("system:serviceaccount:{CLOUD_INIT_SETTINGS}:osm-{NUMBER}")}}),
                    ),
                )],
            ),
        ];
        let mut settings = installation::settings(installation, "");
        settings["metadata"]["uid"] = json!("settings");
        settings["metadata"]["resourceVersion"] = json!("1");
        Self {
            pools,
            kinds: kinds.into(),
            settings,
            leases: Mutex::default(),
        }
    }

    fn page(&self, call: &Call) -> String {
        let (from, limit) = (call.number("continue"), call.number("limit"));
        let path = call.target.split('?').next().unwrap_or_default();
        let kinds = path.rsplit('/').next().and_then(|plural| self.kinds.get(plural));
        let kinds = kinds.map(Vec::as_slice).unwrap_or_default();
        let all = kinds
            .iter()
            .flat_map(|(count, shape)| (0..*count).map(move |i| (i, shape)));
        let count: usize = kinds.iter().map(|(count, _)| count).sum();
        let items: Vec<String> = all
            .skip(from)
            .take(limit)
            .map(|(i, shape)| shape.replace(NUMBER, &i.to_string()))
            .collect();
        let end = from + items.len();
        let token = if end < count {
            end.to_string()
        } else {
            String::new()
        };
        list(&token, &items)
    }

    /// A request for one Lease, or for their list.
    fn lease(&self, call: &Call, name: &str) -> String {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        if call.method == "GET" && name == "leases" {
            return list("", &leases.all.values().map(Value::to_string).collect::<Vec<_>>());
        }
        if call.method == "GET" {
            return leases
                .all
                .get(name)
                .cloned()
                .unwrap_or_else(|| json!({"metadata": {}}))
                .to_string();
        }
        let mut lease: Value = serde_json::from_slice(&call.sent).unwrap_or_default();
        leases.version += 1;
        lease["metadata"]["uid"] = json!("lease");
        lease["metadata"]["resourceVersion"] = json!(leases.version.to_string());
        let name = lease["metadata"]["name"].as_str().unwrap_or(name).to_owned();
        leases.all.insert(name, lease.clone());
        lease.to_string()
    }

    /// The Leases that are newer than this, each as a line of a watch, and the newest version.
    fn newer(&self, than: u64) -> (u64, Vec<String>) {
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let version = |lease: &Value| {
            let version = lease["metadata"]["resourceVersion"].as_str();
            version
                .and_then(|version| version.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let newer = leases.all.values().filter(|lease| version(lease) > than);
        let lines = newer.map(|lease| format!("{}\n", json!({"type": "MODIFIED", "object": lease})));
        (leases.version, lines.collect())
    }
}

fn list(token: &str, items: &[String]) -> String {
    format!(
        r#"{{"metadata": {{"resourceVersion": "1", "continue": "{token}"}}, "items": [{}]}}"#,
        items.join(",")
    )
}

async fn respond(mut call: Call, objects: Arc<Objects>) -> Result<()> {
    call.head(http::Response::builder()).await?;
    let path = call.target.split('?').next().unwrap_or_default().to_owned();
    let of_leases = path.contains("/leases");
    if call.is_watch() {
        let mut shown = 0;
        // Until the service hangs up.
        loop {
            if of_leases {
                let (newest, lines) = objects.newer(shown);
                shown = newest;
                for line in lines {
                    call.send(line.as_bytes()).await?;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let answer = match call.method.as_str() {
        _ if of_leases => objects.lease(&call, name),
        "GET" if name == "configmaps" && call.target.contains("metadata.name") => {
            list("", &[objects.settings.to_string()])
        }
        "GET" if call.target.contains("limit=") => objects.page(&call),
        "GET" => json!({"metadata": {"name": "kube-system", "uid": "u"}}).to_string(),
        _ => json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}).to_string(),
    };
    call.send(answer.as_bytes()).await
}

/// The list that takes a service the longest, how many objects it has, and how many reconciles follow.
fn largest(service: Service, objects: &Objects) -> (&'static str, usize, u64) {
    match service {
        Service::OspController => ("operatingsystemprofiles", 20, 20),
        Service::OscController | Service::SecretSyncer => {
            ("operatingsystemconfigs", objects.pools, RECONCILES)
        }
        // It reconciles requesters, none of which belongs to these pools, and the Leases of approvals.
        Service::CsrApprover => ("machines", objects.pools, 1),
    }
}

/// How many reconciles a service has done.
fn reconciles(metrics: &str) -> u64 {
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("osm_reconciles_total{"));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    counts.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_5000_pools_fits_into_memory() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    for pools in [1000, 5000] {
        for service in Service::ALL {
            let objects = Arc::new(Objects::new(pools, world.installed.installation()));
            let shared = objects.clone();
            let server = FakeServer::start(move |call| respond(call, shared.clone())).await?;
            let cluster = match service.clusters().contains(&ClusterKind::Management) {
                true => ClusterKind::Management,
                false => ClusterKind::Worker,
            };
            world
                .installed
                .replace_kubeconfig(service, cluster, &server.kubeconfig())?;
            world.installed.start(service).await?;
            let (kind, count, wanted) = largest(service, &objects);
            let what = format!(
                "{} to list and reconcile the objects of {pools} pools",
                service.name()
            );
            wait_for(&what, LISTED_WITHIN, async || {
                let (_, ready) = world.installed.get(service, "/readyz").await?;
                let (_, metrics) = world.installed.get(service, "/metrics").await?;
                let log = std::fs::read_to_string(world.installed.log_file(service))?;
                let listed = format!(r#""kind":"{kind}","objects":{count},"#);
                ensure!(log.contains(&listed) && !ready.contains("watch of"), "{ready}");
                let done = reconciles(&metrics);
                ensure!(done >= wanted, "{done} reconciles: {ready}");
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
