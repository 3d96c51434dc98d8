//! Machines whose kernel and kubelet matter.

use anyhow::{Context, Result, ensure};
use osm_lab::machines::unchanged;
use osm_lab::release::Kubelet;
use serde_json::json;

use super::join::{logs_can_be_read, nothing_failed, run_pod};
use super::scenario_run::{READY, ScenarioRun};

/// Modules that a node needs, and that no image loads by itself.
const MODULES: [&str; 2] = ["br_netfilter", "overlay"];

/// The machine has loaded the modules of its kernel, which enforces AppArmor, and its control groups are of
/// version 2.
pub fn serves_pods(run: &ScenarioRun<'_>) -> Result<()> {
    let at_first = run.shell("cat /var/lib/cloud/lab-modules")?;
    let now = run.shell("cat /proc/modules")?;
    for module in MODULES {
        ensure!(
            !has_module(&at_first, module),
            "the image has loaded {module}, so this shows nothing"
        );
        ensure!(has_module(&now, module), "{module} is not loaded");
    }
    has_control_groups_of_version_2(run)?;
    let bridge = run.shell("sysctl --values net.bridge.bridge-nf-call-iptables")?;
    ensure!(bridge.trim() == "1", "bridge-nf-call-iptables is {bridge}");
    // The network plugin's pod runs the same program.
    let confined =
        run.shell("for pid in $(pgrep --exact node-test); do cat /proc/$pid/attr/apparmor/current; done")?;
    let enforced = |line: &str| line == "cri-containerd.apparmor.d (enforce)";
    ensure!(
        !confined.is_empty() && confined.lines().all(enforced),
        "pods run as {confined}"
    );
    let denied = run.shell("journalctl --dmesg --grep='apparmor=\"DENIED\"' --quiet || true")?;
    ensure!(denied.trim().is_empty(), "AppArmor has denied: {denied}");
    Ok(())
}

fn has_module(modules: &str, name: &str) -> bool {
    modules
        .lines()
        .any(|line| line.split_whitespace().next() == Some(name))
}

fn has_control_groups_of_version_2(run: &ScenarioRun<'_>) -> Result<()> {
    let files = run.shell("stat --file-system --format=%T /sys/fs/cgroup")?;
    let files = files.trim();
    ensure!(files == "cgroup2fs", "the control groups are {files}");
    Ok(())
}

/// A machine with the oldest kubelet, and one with the newest.
pub async fn kubelets(run: &ScenarioRun<'_>) -> Result<()> {
    let [oldest, newest] = Kubelet::OTHERS;
    let other = run.another("newest");
    joins_with(&other, newest).await?;
    other.keeps_secrets()?;
    drop(other);
    joins_with(run, oldest).await
}

async fn joins_with(run: &ScenarioRun<'_>, minor: &str) -> Result<()> {
    let kubelet = Kubelet::ensure(minor, |_| ()).await?;
    kubelet.publish(run.environment.mirror.root())?;
    let pool = run.pool_of(&kubelet.version, &json!({})).await?;
    let user_data = pool.user_data(run.environment, run.name()).await?;
    run.boot_with(&user_data, &unchanged)?;
    let node = run.ready(READY).await?;
    let info = node.status.and_then(|status| status.node_info);
    let version = info.context("a node's versions")?.kubelet_version;
    ensure!(
        version == format!("v{}", kubelet.version),
        "the kubelet is {version}"
    );
    has_control_groups_of_version_2(run)?;
    run_pod(run).await?;
    logs_can_be_read(run).await?;
    nothing_failed(run)
}
