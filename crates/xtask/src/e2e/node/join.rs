//! Machines that join, and what must work on their nodes.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use osm_testkit::{check, wait_for};
use serde_json::{Value, json};

use super::scenario_run::{BOOTSTRAPPED, READY, SET_UP, ScenarioRun};
use super::waterfall::{Seen, Waterfall};
use crate::e2e::environment::{Environment, TEST_IMAGE};

/// How long a pod on a Ready node may take until it answers.
const POD: Duration = Duration::from_secs(60);

/// A machine boots, joins, and does what nodes are for.
pub async fn join(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let registered = run.registered(READY).await?;
    let node = run.ready(READY).await?;
    let ready = SystemTime::now();
    let pod = run_pod(run).await?;
    let seen = Seen {
        registered,
        ready,
        pod,
    };

    let info = node
        .status
        .and_then(|status| status.node_info)
        .context("a node's versions")?;
    ensure!(
        info.kubelet_version == format!("v{}", Environment::KUBELET_VERSION),
        "kubelet {}",
        info.kubelet_version
    );
    ensure!(
        info.container_runtime_version.starts_with("containerd://2."),
        "{}",
        info.container_runtime_version
    );
    logs_can_be_read(run).await?;
    images_come_from_the_registry(run)?;
    downloads_are_those_that_osmctl_lists(run)?;
    is_configured_as_we_say(run).await?;
    nothing_failed(run)?;
    let waterfall = run.machine(|machine| Waterfall::of(machine, &run.environment.mirror, &seen))?;
    println!("\n{}, {}:\n{waterfall}", run.name(), run.target);
    run.draws(waterfall);
    Ok(())
}

/// On AWS a node is called as the instance is in the private DNS, which only the metadata service knows.
pub async fn aws(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    logs_can_be_read(run).await?;
    let asked = run
        .environment
        .lab
        .metadata()?
        .requests()
        .iter()
        .filter(|request| request.client == run.address())
        .count();
    ensure!(asked > 0, "the machine did not ask the metadata service");
    nothing_failed(run)
}

/// With systemd-resolved as Ubuntu's images have it.
pub async fn resolved(run: &ScenarioRun<'_>) -> Result<()> {
    let enable = |root: &std::path::Path| {
        let wanted = root.join("etc/systemd/system/multi-user.target.wants");
        std::fs::create_dir_all(&wanted)?;
        std::os::unix::fs::symlink(
            "/lib/systemd/system/systemd-resolved.service",
            wanted.join("systemd-resolved.service"),
        )?;
        let configuration = root.join("etc/systemd/resolved.conf.d");
        std::fs::create_dir_all(&configuration)?;
        std::fs::write(configuration.join("image.conf"), "[Resolve]\nDNS=10.217.0.1\n")?;
        std::os::unix::fs::symlink(
            "/run/systemd/resolve/stub-resolv.conf",
            root.join("etc/resolv.conf"),
        )?;
        Ok(())
    };
    run.boot_changed(&enable, &[]).await?;
    run.ready(READY).await?;
    let own = run.shell("cat /etc/resolv.conf")?;
    ensure!(
        own.contains("127.0.0.53"),
        "systemd-resolved does not run, so this shows nothing:\n{own}"
    );
    run_pod(run).await?;
    let pods = run.shell("cat /run/osm/resolv.conf")?;
    ensure!(
        pods.contains("10.217.0.1") && !pods.contains("127.0.0.53"),
        "pods would get:\n{pods}"
    );
    let inside = run
        .environment
        .kubectl(&["exec", run.name(), "--", "/bin/node-test", "resolv"])
        .await?;
    ensure!(
        inside.contains("10.217.0.1") && !inside.contains("127.0.0.53"),
        "a pod gets:\n{inside}"
    );
    Ok(())
}

/// A pod that the scheduler puts on the node answers its readiness probe.
pub async fn run_pod(run: &ScenarioRun<'_>) -> Result<SystemTime> {
    run_pod_of(run, TEST_IMAGE).await
}

/// The same with another image of the same program.
pub async fn run_pod_of(run: &ScenarioRun<'_>, image: &str) -> Result<SystemTime> {
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
                "image": image,
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
    .await?;
    Ok(SystemTime::now())
}

/// The API server verifies the kubelet's certificate, so it is one that the cluster has signed.
pub async fn logs_can_be_read(run: &ScenarioRun<'_>) -> Result<()> {
    let logs = run.environment.kubectl(&["logs", run.name()]).await?;
    ensure!(
        logs.contains("GET /"),
        "kubectl logs shows no request of the probe:\n{logs}"
    );
    Ok(())
}

/// Whatever registry an image names.
fn images_come_from_the_registry(run: &ScenarioRun<'_>) -> Result<()> {
    let requests = run.environment.registry.requests();
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
    let downloads = run.downloads()?;
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
