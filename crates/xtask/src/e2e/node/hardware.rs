//! Machines with other hardware, which only virtual machines can have.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use osm_lab::machines::{DataSource, Hardware};

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
    data_from(run, DataSource::ConfigDrive, "configdrive config-disk (/dev/vdb)").await
}

/// The data comes by HTTP as in EC2, and so does the node's name.
pub async fn ec2(run: &ScenarioRun<'_>) -> Result<()> {
    data_from(run, DataSource::Ec2, "ec2 metadata (http://169.254.169.254)").await?;
    came_by_http(run, "/2021-03-23/user-data")
}

/// The data comes by HTTP as in OpenStack.
pub async fn openstack(run: &ScenarioRun<'_>) -> Result<()> {
    data_from(
        run,
        DataSource::OpenStack,
        "openstack metadata (http://169.254.169.254)",
    )
    .await?;
    came_by_http(run, "/openstack/latest/user_data")
}

/// The machine joins with data from there. `found` is what cloud-init says of the data source.
async fn data_from(run: &ScenarioRun<'_>, data_source: DataSource, found: &str) -> Result<()> {
    run.equip(Hardware {
        data_source,
        ..Hardware::default()
    });
    run.boot().await?;
    let node = run.ready(READY).await?;
    let said =
        run.shell("cloud-init query --format '{{v1.platform}} {{v1.subplatform}} {{v1.instance_id}}'")?;
    ensure!(
        said.trim() == format!("{found} i-{}", run.name()),
        "cloud-init has its data from {said}"
    );
    has_the_address_of_the_machine(run, &node)?;
    run_pod(run).await?;
    nothing_failed(run)
}

/// The machine has read its user data there in the metadata service, and has its address by DHCP.
fn came_by_http(run: &ScenarioRun<'_>, user_data: &str) -> Result<()> {
    let requests = run.environment.lab.metadata()?.requests();
    let read = requests
        .iter()
        .filter(|request| request.client == run.address() && request.status == 200);
    let read: Vec<&str> = read.map(|request| request.path.as_str()).collect();
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
    has_the_address_of_the_machine(run, &node)?;
    run_pod(run).await?;
    nothing_failed(run)
}

fn has_the_address_of_the_machine(run: &ScenarioRun<'_>, node: &Node) -> Result<()> {
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
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
