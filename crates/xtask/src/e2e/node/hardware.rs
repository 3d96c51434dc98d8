//! Machines with other hardware, which only virtual machines can have.

use anyhow::{Context, Result, ensure};
use osm_lab::machines::Hardware;

use super::join::{logs_can_be_read, nothing_failed, run_pod};
use super::scenario_run::{READY, ScenarioRun};

/// Modules that a node needs, and that no image loads by itself.
const MODULES: [&str; 2] = ["br_netfilter", "overlay"];

/// The machine loads the modules of its kernel, and its control groups are of version 2.
pub async fn kernel(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
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
    nothing_failed(run)
}

fn has_control_groups_of_version_2(run: &ScenarioRun<'_>) -> Result<()> {
    let files = run.shell("stat --file-system --format=%T /sys/fs/cgroup")?;
    ensure!(
        files.trim() == "cgroup2fs",
        "the control groups are {}",
        files.trim()
    );
    Ok(())
}

/// A kubelet of another minor version than the control plane's.
pub async fn other_kubelet(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let node = run.ready(READY).await?;
    let info = node.status.and_then(|status| status.node_info);
    let version = info.context("a node's versions")?.kubelet_version;
    let expected = run.kubelet().await?;
    ensure!(version == format!("v{expected}"), "the kubelet is {version}");
    has_control_groups_of_version_2(run)?;
    run_pod(run).await?;
    logs_can_be_read(run).await?;
    nothing_failed(run)
}

fn has_module(modules: &str, name: &str) -> bool {
    modules
        .lines()
        .any(|line| line.split_whitespace().next() == Some(name))
}

/// The kernel enforces AppArmor, as Ubuntu's does: containerd confines the pod, and nothing of the node is denied.
pub async fn apparmor(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    logs_can_be_read(run).await?;
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
    nothing_failed(run)
}

/// The image uses swap, and the settings do not allow it.
pub async fn swap(run: &ScenarioRun<'_>) -> Result<()> {
    run.equip(Hardware {
        swap_mib: Some(256),
        ..Hardware::default()
    });
    run.boot().await?;
    let said = run
        .console_says("Adding 262140k swap", READY)
        .await
        .context("the image has no swap, so this shows nothing")?;
    ensure!(said.contains("/dev/vd"), "{said}");
    run.ready(READY).await?;
    let used = run.shell("tail -n +2 /proc/swaps")?;
    ensure!(used.trim().is_empty(), "swap is still in use: {used}");
    nothing_failed(run)
}

/// The data comes as OpenStack hands it over, and the kernel names the network card.
pub async fn config_drive(run: &ScenarioRun<'_>) -> Result<()> {
    run.equip(Hardware {
        config_drive: true,
        ..Hardware::default()
    });
    run.boot().await?;
    run.ready(READY).await?;
    let source = run.shell("cloud-init query platform")?;
    ensure!(
        source.trim() == "configdrive",
        "cloud-init has its data from {source}"
    );
    run_pod(run).await?;
    nothing_failed(run)
}

/// The least memory that a cloud offers.
pub async fn little_memory(run: &ScenarioRun<'_>) -> Result<()> {
    run.equip(Hardware {
        memory_mib: 1024,
        ..Hardware::default()
    });
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    let killed = run.shell("journalctl --dmesg --grep='Out of memory' --quiet || true")?;
    ensure!(killed.trim().is_empty(), "the kernel has killed: {killed}");
    nothing_failed(run)
}

/// A second card, in a network that is nobody's business.
pub async fn two_cards(run: &ScenarioRun<'_>) -> Result<()> {
    run.equip(Hardware {
        second_card: true,
        ..Hardware::default()
    });
    run.boot().await?;
    let node = run.ready(READY).await?;
    let second = Hardware::SECOND_ADDRESS.to_string();
    let own = run.shell("ip -brief address show dev eth1")?;
    ensure!(
        own.contains(&second),
        "the second card has no address, so this shows nothing: {own}"
    );
    let addresses = node
        .status
        .and_then(|status| status.addresses)
        .unwrap_or_default();
    let internal: Vec<&str> = addresses
        .iter()
        .filter(|address| address.type_ == "InternalIP")
        .map(|address| address.address.as_str())
        .collect();
    ensure!(
        internal == [run.address().to_string()],
        "the node's addresses are {internal:?}"
    );
    run_pod(run).await?;
    nothing_failed(run)
}

/// A disk as slow as the slowest that clouds sell.
pub async fn slow_disk(run: &ScenarioRun<'_>) -> Result<()> {
    run.equip(Hardware {
        disk_mib_per_second: Some(10),
        ..Hardware::default()
    });
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    nothing_failed(run)
}
