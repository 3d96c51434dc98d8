//! Faults around a machine. The console must name each fault, and once the fault has ended the machine must
//! join without help.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use osm_lab::machines::{self, unchanged};
use osm_lab::serve::files::Fault;
use osm_lab::serve::programs::NameServer;
use osm_lab::serve::relay::Mode;
use serde_json::{Value, json};

use super::join::{nothing_failed, run_pod};
use super::kernel;
use super::scenario_run::{BOOTSTRAPPED, READY, SAID, SET_UP, ScenarioRun};

/// The mirror's name, which no name server knows at first.
const MIRROR: &str = "mirror.example.com";

/// Machines find the mirror by its name.
pub fn mirror_by_name(settings: &mut Value) -> Result<()> {
    let (address, name) = (format!("//{}/", machines::HOST), format!("//{MIRROR}/"));
    let text = settings.to_string();
    ensure!(text.contains(&address), "no file comes from the mirror");
    *settings = serde_json::from_str(&text.replace(&address, &name))?;
    Ok(())
}

/// Without DNS, and then three files with another fault each. All are mended one after the other.
pub async fn mirror(run: &ScenarioRun<'_>) -> Result<()> {
    let (mirror, address) = (&run.environment.mirror, run.address());
    let faults = [
        ("/containerd-static", Fault::Status(404), "404"),
        ("/runc.", Fault::Half, "(18)"),
        ("/cni-plugins", Fault::FlippedBit, "checksum"),
    ];
    for (path, fault, _) in faults {
        mirror.fault(address, path, fault);
    }
    run.boot().await?;
    run.console_says(&["osm-setup: no kubelet yet", "(6)", MIRROR], SAID)
        .await?;
    run.has_not_joined(SET_UP).await?;
    let folder = run.environment.lab.directory();
    let _names = NameServer::start(folder, machines::HOST, MIRROR, machines::HOST)?;
    for (path, _, words) in faults {
        let name = path.trim_start_matches('/').split(['-', '.']).next();
        let complaint = format!("osm-setup: no {} yet", name.unwrap_or_default());
        run.console_says(&[&complaint, words], SAID).await?;
        run.has_not_joined(SET_UP).await?;
        mirror.mend(address, path);
    }
    run.ready(READY).await.map(drop)
}

/// The pool is rolled out before the machine has fetched what it was made for.
pub async fn rotated(run: &ScenarioRun<'_>) -> Result<()> {
    let max_pods =
        |pods: u32| json!({"v1.kubelet-config.machine-controller.kubermatic.io/MaxPods": pods.to_string()});
    let mut pool = run.pool(&max_pods(41)).await?;
    let first = pool.user_data(run.environment, run.name()).await?;
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot_with(&first, &unchanged)?;
    run.console_says(&["osm-bootstrap: can't reach the API server"], SAID)
        .await?;
    pool.roll(run.environment, &max_pods(42)).await?;
    let second = pool.user_data(run.environment, run.name()).await?;
    ensure!(first.text != second.text, "nothing was rotated");
    run.environment.relay.set(run.address(), Mode::Pass);
    let node = run.ready(READY).await?;
    let capacity = node.status.and_then(|status| status.capacity);
    let capacity = capacity.context("a node's capacity")?;
    let pods = capacity.get("pods").map(|quantity| quantity.0.as_str());
    ensure!(
        pods == Some("41"),
        "the machine has another revision's document: {pods:?} pods"
    );
    Ok(())
}

/// Leaves 16 MiB on the disk, which is enough for a document and not for programs.
const FILL: &str = "set -- $(stat --file-system --format='%f %S' /); fallocate --length $(($1 * $2 - (16 << 20))) /var/lib/full";

/// The downloads don't fit.
pub async fn disk_full(run: &ScenarioRun<'_>) -> Result<()> {
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot().await?;
    run.console_says(&["osm-bootstrap: can't reach the API server"], SAID)
        .await?;
    run.shell(FILL)?;
    run.environment.relay.set(run.address(), Mode::Pass);
    let line = run.console_says(&["osm-setup: no "], SAID).await?;
    run.has_not_joined(SET_UP).await?;
    ensure!(
        run.has(BOOTSTRAPPED)?,
        "the document did not fit either, so this shows something else"
    );
    let says = ["No space left", "(23)"].iter().any(|words| line.contains(words));
    ensure!(says, "the console does not say why: {line}");
    run.shell("rm /var/lib/full")?;
    run.ready(READY).await.map(drop)
}

/// The settings of a graceful shutdown.
pub fn graceful_shutdown(settings: &mut Value) -> Result<()> {
    let settings = settings.as_object_mut().context("settings")?;
    let kubelet = settings.entry("kubelet").or_insert_with(|| json!({}));
    let kubelet = kubelet.as_object_mut().context("kubelet")?;
    kubelet.insert("configuration".to_owned(), json!({"shutdownGracePeriod": "1m"}));
    Ok(())
}

/// A file of the package unattended-upgrades, as Ubuntu's images have it.
const OF_UBUNTU: &str = "usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";

/// Moves what pods need of the kernel, and no image has loaded.
const HIDE_MODULES: &str = "cd /lib/modules/$(uname -r)/kernel/net && mkdir /var/lib/lab-modules && \
    mv netfilter bridge/br_netfilter.ko* /var/lib/lab-modules/ && depmod";

const SHOW_MODULES: &str = "cd /lib/modules/$(uname -r)/kernel/net && mv /var/lib/lab-modules/netfilter . && \
    mv /var/lib/lab-modules/br_netfilter.ko* bridge/ && depmod";

/// The kernel lacks modules for pods, as in images of version 10 of RHEL; and logind allows less of a delay
/// than the kubelet wants, as in those of Ubuntu.
pub async fn modules_missing(run: &ScenarioRun<'_>) -> Result<()> {
    let as_in_ubuntu = |root: &Path| {
        let file = root.join(OF_UBUNTU);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(file, "[Login]\nInhibitDelayMaxSec=30\n")?;
        Ok(())
    };
    // Nothing may load the modules before they are gone.
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot_changed(&as_in_ubuntu).await?;
    run.console_says(&["osm-bootstrap: can't reach the API server"], SAID)
        .await?;
    run.shell(HIDE_MODULES)?;
    run.environment.relay.set(run.address(), Mode::Pass);

    let line = run.console_says(&["osm-setup: no kernel module"], SAID).await?;
    for module in ["br_netfilter", "xt_comment", "nft_compat"] {
        ensure!(
            line.contains(module),
            "the console does not name {module}: {line}"
        );
    }
    run.has_not_joined(SET_UP).await?;
    let started =
        run.shell("systemctl show --property=ActiveEnterTimestampMonotonic --value kubelet.service")?;
    ensure!(
        started.trim() == "0",
        "the kubelet was started without the modules"
    );
    run.shell(SHOW_MODULES)?;
    run.ready(READY).await?;
    run_pod(run).await?;
    kernel::serves_pods(run)?;

    let files = run.shell("systemd-analyze cat-config systemd/logind.conf")?;
    let limits: Vec<&str> = files
        .lines()
        .filter_map(|line| line.strip_prefix("InhibitDelayMaxSec="))
        .collect();
    ensure!(
        limits == ["30", "60"],
        "logind reads these limits, in this order: {limits:?}"
    );
    let limit = run.shell(
        "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec",
    )?;
    ensure!(limit.trim() == "t 60000000", "logind's limit is {limit}");
    let inhibitors = run.shell("systemd-inhibit --list --no-legend --no-pager")?;
    ensure!(
        inhibitors
            .lines()
            .any(|line| line.contains("kubelet") && line.contains("shutdown")),
        "the kubelet does not delay a shutdown: {inhibitors}"
    );
    nothing_failed(run)
}
