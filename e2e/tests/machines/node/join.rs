//! Machines that join, and what must work on their nodes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::core::ObjectList;
use osm_api::{OperatingSystemConfig, names};
use osm_testkit::{check, wait_for};
use serde_json::{Value, json};

use super::scenario_run::{BOOTSTRAPPED, READY, SET_UP, ScenarioRun};
use crate::environment::{Environment, TEST_IMAGE};

/// How long a pod on a Ready node may take until it answers.
const POD: Duration = Duration::from_secs(60);

/// A machine with its data from OpenStack's metadata service boots, joins, and does what nodes are for.
pub async fn join(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let node = run.ready(READY).await?;
    run_pod(run).await?;
    came_by_http(run, "openstack", "/openstack/latest/user_data")?;
    has_the_address_of_the_machine(run, &node)?;
    has_the_labels_of_its_content(run, &node).await?;
    let info = node.status.and_then(|status| status.node_info);
    let info = info.context("a node's versions")?;
    let (kubelet, runtime) = (info.kubelet_version, info.container_runtime_version);
    ensure!(
        kubelet == format!("v{}", Environment::KUBELET_VERSION),
        "kubelet {kubelet}"
    );
    ensure!(runtime.starts_with("containerd://2."), "{runtime}");
    logs_can_be_read(run).await?;
    images_come_from_the_registry(run)?;
    downloads_are_those_that_osmctl_lists(run)?;
    is_configured_as_we_say(run).await?;
    nothing_failed(run)
}

/// The same with EC2's metadata service. On AWS a node is called as the instance is in the private DNS, which
/// only that service knows.
pub async fn aws(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let node = run.ready(READY).await?;
    run_pod(run).await?;
    came_by_http(run, "ec2", "/2021-03-23/user-data")?;
    has_the_address_of_the_machine(run, &node)?;
    logs_can_be_read(run).await?;
    nothing_failed(run)
}

/// The same without csr-approver.
pub async fn without_approver(run: &ScenarioRun<'_>) -> Result<()> {
    run.environment.join_without_approver().await?;
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    nothing_failed(run)
}

/// The machine has read its user data there in the metadata service of a platform, and has its address by
/// DHCP.
fn came_by_http(run: &ScenarioRun<'_>, platform: &str, user_data: &str) -> Result<()> {
    let query = "cloud-init query --format '{{v1.platform}} {{v1.subplatform}} {{v1.instance_id}}'";
    let said = run.shell(query)?;
    let expected = format!("{platform} metadata (http://169.254.169.254) i-{}", run.name());
    ensure!(said.trim() == expected, "cloud-init has its data from {said}");
    let requests = run.environment.lab.metadata()?.requests();
    let own = requests.iter().filter(|request| request.client == run.address());
    let read: Vec<&str> = own
        .filter(|request| request.status == 200)
        .map(|request| request.path.as_str())
        .collect();
    ensure!(
        read.contains(&user_data),
        "the machine has read not {user_data}, but {read:?}"
    );
    let addresses = run.shell("ip -4 -oneline address show scope global dynamic")?;
    ensure!(
        addresses.contains(&format!(" {}/24 ", run.address())),
        "the machine has not got its address by DHCP: {addresses}"
    );
    Ok(())
}

/// And no other one.
pub fn has_the_address_of_the_machine(run: &ScenarioRun<'_>, node: &Node) -> Result<()> {
    let status = node.status.iter();
    let addresses = status.flat_map(|status| status.addresses.iter().flatten());
    let internal: Vec<&str> = addresses
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.as_str())
        .collect();
    ensure!(
        internal == [run.address().to_string()],
        "the node's addresses are {internal:?}"
    );
    Ok(())
}

/// Those of the pool whose content the machine booted with.
async fn has_the_labels_of_its_content(run: &ScenarioRun<'_>, node: &Node) -> Result<()> {
    let configs = run
        .environment
        .kubectl(&["get", "osc", "--all-namespaces", "--output=json"])
        .await?;
    let configs: ObjectList<OperatingSystemConfig> = serde_json::from_str(&configs)?;
    let labels = configs.items.iter().filter_map(|config| {
        let content = config.stored()?.content_id.clone()?;
        Some([(names::POOL, config.pool()?.id()), (names::CONTENT, content)])
    });
    let is_of_node = |labels: &[(&str, String); 2]| {
        labels
            .iter()
            .all(|(key, value)| node.labels().get(*key) == Some(value))
    };
    ensure!(
        labels.into_iter().any(|labels| is_of_node(&labels)),
        "the node's labels are {:?}",
        node.labels()
    );
    Ok(())
}

/// A pod that the scheduler puts on the node answers its readiness probe.
pub async fn run_pod(run: &ScenarioRun<'_>) -> Result<()> {
    let name = run.name();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": run.node()},
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main",
                "image": TEST_IMAGE,
                "args": ["serve"],
                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
            }],
        },
    });
    run.environment.control_plane.apply_yaml(&pod.to_string()).await?;
    wait_for("the pod to be Ready", run.patience(POD), async || {
        let status = run
            .environment
            .kubectl(&["get", "pod", name, "--output=json"])
            .await?;
        let status: Value = serde_json::from_str(&status)?;
        let conditions = status
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        check(
            conditions
                .iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
        )
    })
    .await
}

/// The kubelet asks for the certificate that it serves with, and the API server verifies it.
/// machine-controller would approve it.
pub async fn logs_can_be_read(run: &ScenarioRun<'_>) -> Result<()> {
    let of_kubelets = "--field-selector=spec.signerName=kubernetes.io/kubelet-serving";
    wait_for(
        "logs with a request of the probe",
        run.patience(POD),
        async || {
            let requests = ["get", "certificatesigningrequests", of_kubelets, "--output=name"];
            for request in run.environment.kubectl(&requests).await?.lines() {
                run.environment
                    .kubectl(&["certificate", "approve", request])
                    .await?;
            }
            let logs = run.environment.kubectl(&["logs", run.name()]).await?;
            check(logs.contains("GET /"))
        },
    )
    .await
}

/// Whatever registry an image names.
fn images_come_from_the_registry(run: &ScenarioRun<'_>) -> Result<()> {
    let requests = run.environment.registry.requests()?;
    let own: Vec<_> = requests
        .iter()
        .filter(|request| request.client == run.address())
        .collect();
    for image in ["/v2/pause/", "/v2/osm/node-test/"] {
        let pulled = own
            .iter()
            .any(|request| request.path.starts_with(image) && request.status == 200);
        ensure!(pulled, "{image} was not pulled: {own:?}");
    }
    Ok(())
}

fn downloads_are_those_that_osmctl_lists(run: &ScenarioRun<'_>) -> Result<()> {
    let downloads = run.downloads();
    let listed: Vec<&str> = run
        .environment
        .urls
        .iter()
        .filter_map(|url| url.split_once("://")?.1.split_once('/'))
        .map(|(_, path)| path)
        .collect();
    for path in &downloads {
        let path = path.trim_start_matches('/');
        ensure!(
            listed.contains(&path),
            "the node downloads {path}, which osmctl urls does not list: {listed:?}"
        );
    }
    for archive in ["kubelet", "containerd-static", "runc.", "cni-plugins"] {
        let fetched = downloads.iter().filter(|path| {
            path.rsplit('/')
                .next()
                .is_some_and(|file| file.starts_with(archive))
        });
        ensure!(
            fetched.count() == 1,
            "{archive} is not downloaded once: {downloads:?}"
        );
    }
    Ok(())
}

async fn is_configured_as_we_say(run: &ScenarioRun<'_>) -> Result<()> {
    let commands = run.shell("ps -e -o args=")?;
    for command in ["/opt/bin/containerd", "/opt/bin/kubelet --bootstrap-kubeconfig"] {
        ensure!(
            commands.lines().any(|line| line.starts_with(command)),
            "{command} does not run:\n{commands}"
        );
    }
    let settings = run.shell("sysctl -n vm.overcommit_memory net.ipv4.ip_forward kernel.panic")?;
    ensure!(
        settings.split_whitespace().eq(["1", "1", "10"]),
        "kernel settings: {settings}"
    );
    for made in [BOOTSTRAPPED, SET_UP] {
        ensure!(run.has(made)?, "{made} is missing");
    }
    ensure!(!run.has("/etc/osm/api-token")?, "the machine still has its token");
    // What is not urgent may still be downloaded.
    wait_for("the downloads to be removed", run.patience(POD), async || {
        check(!run.has("/var/lib/osm/downloads")?)
    })
    .await
}

pub fn nothing_failed(run: &ScenarioRun<'_>) -> Result<()> {
    let failed = run.shell("systemctl list-units --state=failed --plain --no-legend")?;
    ensure!(failed.trim().is_empty(), "units failed:\n{failed}");
    Ok(())
}
