//! A machine of a Flatcar pool. Ignition applies its two documents, each in the initramfs of a boot.
//!
//! The machine is Debian with Ignition. What of Flatcar the profile relies on comes from the image, and
//! containerd from a layer over it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use osm_lab::machines::Machine;
use osm_lab::release;
use osm_lab::serve::relay::Mode;
use osm_testkit::{check, wait_for};
use serde_json::json;

use super::join;
use super::scenario_run::{BOOTSTRAPPED, READY, SAID, SET_UP, ScenarioRun};
use crate::pool::SSH_KEY;

/// The unit of Flatcar's containerd, as far as a node depends on it. The profile has a drop-in for it.
const CONTAINERD: &str = "[Unit]
Description=containerd container runtime
After=network.target

[Service]
Type=notify
ExecStart=/usr/bin/containerd --config /usr/share/containerd/config.toml
Delegate=yes
KillMode=process
Restart=always

[Install]
WantedBy=multi-user.target
";

/// Where the bootstrap leaves the provisioning document for Ignition.
const DOCUMENT: &str = "/oem/config.ign";

/// Where Ignition notes what it has done.
const RESULT: &str = "/etc/.ignition-result.json";

/// Both documents are applied, the node runs a pod, and later boots are without Ignition.
pub async fn ignition(run: &ScenarioRun<'_>) -> Result<()> {
    let pool = run.pool(&json!({})).await?;
    let user_data = pool.user_data(run.environment, run.name()).await?;
    let programs = release::programs(|_| ()).await?;
    let with_containerd = |root: &Path| {
        let folders = ["usr/bin", "usr/lib/systemd/system"].map(|folder| root.join(folder));
        for folder in &folders {
            fs::create_dir_all(folder)?;
        }
        let [bin, units] = folders;
        for program in programs.containerd.iter().chain([&programs.runc]) {
            fs::copy(
                program,
                bin.join(program.file_name().context("a program's name")?),
            )?;
        }
        Ok(fs::write(units.join("containerd.service"), CONTAINERD)?)
    };
    // Without the API server, the machine stays as the first document has made it.
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot_with(&user_data, &with_containerd)?;
    run.console_says(&["osm-bootstrap: can't reach the API server"], SAID)
        .await?;
    bootstrap_is_applied(run)?;
    run.has_not_joined(BOOTSTRAPPED).await?;
    // The machine reboots by itself, and then no longer knows what process lists have shown.
    run.keeps_secrets()?;
    let first = result(run)?;
    run.environment.relay.set(run.address(), Mode::Pass);
    run.console_says(
        &["osm-bootstrap: the provisioning document is applied at the next boot"],
        SAID,
    )
    .await?;

    let node = run.ready(READY).await?;
    join::run_pod(run).await?;
    join::logs_can_be_read(run).await?;
    let runtime = node.status.and_then(|status| status.node_info);
    let runtime = runtime.context("a node's versions")?.container_runtime_version;
    ensure!(runtime.starts_with("containerd://2."), "{runtime}");
    provisioning_is_applied(run)?;
    let second = result(run)?;
    ensure!(
        first != second,
        "Ignition has noted no second run in {RESULT}: {second}"
    );
    let downloads = run.downloads();
    ensure!(
        downloads.iter().any(|path| path.ends_with("/kubelet"))
            && !downloads.iter().any(|path| path.contains("containerd-static")),
        "Flatcar has containerd and lacks the kubelet, and the machine downloads {downloads:?}"
    );
    join::nothing_failed(run)?;

    run.with_machine(async |machine| machine.shut_down().await)
        .await?;
    run.machine(Machine::power_on)?;
    wait_for("the kubelet to run again", run.patience(READY), async || {
        check(run.shell("systemctl is-active kubelet.service || :")?.trim() == "active")
    })
    .await?;
    ensure!(!ran_ignition(run)?, "a later boot runs Ignition");
    ensure!(result(run)? == second, "a later boot changes {RESULT}");
    Ok(())
}

/// Whether Ignition was to run in this boot.
fn ran_ignition(run: &ScenarioRun<'_>) -> Result<bool> {
    Ok(run.shell("cat /proc/cmdline")?.contains("ignition.firstboot"))
}

fn result(run: &ScenarioRun<'_>) -> Result<String> {
    run.shell(&format!("cat {RESULT}"))
}

/// Users, files and units of the bootstrap document are there.
fn bootstrap_is_applied(run: &ScenarioRun<'_>) -> Result<()> {
    ensure!(ran_ignition(run)?, "the first boot does not run Ignition");
    let keys = run
        .shell("cat /home/core/.ssh/authorized_keys /home/core/.ssh/authorized_keys.d/* 2>/dev/null || :")?;
    ensure!(
        keys.lines().any(|key| key == SSH_KEY),
        "the user core does not have the pool's key:\n{keys}"
    );
    let name = run.shell("cat /etc/hostname /etc/machine-name")?;
    ensure!(
        name.trim_end()
            .replace('\n', "")
            .replace(run.name(), "")
            .is_empty()
            && name.contains(run.name()),
        "the machine's name: {name:?}"
    );
    for (path, expected) in [
        ("/etc/osm/api-token", "600 root"),
        ("/opt/bin/osm-bootstrap", "755 root"),
        ("/etc/kubernetes/pki/ca.crt", "644 root"),
    ] {
        let found = run.shell(&format!("stat --format='%a %U' {path}"))?;
        ensure!(
            found.trim() == expected,
            "{path} is {}, not {expected}",
            found.trim()
        );
    }
    let unit =
        run.shell("systemctl is-enabled osm-bootstrap.service; systemctl is-active osm-bootstrap.service")?;
    ensure!(
        unit.split_whitespace().eq(["enabled", "active"]),
        "osm-bootstrap.service is {unit:?}"
    );
    Ok(())
}

/// The bootstrap has verified the provisioning document, and Ignition has applied it.
fn provisioning_is_applied(run: &ScenarioRun<'_>) -> Result<()> {
    let console = run.machine(|machine| machine.console())?;
    ensure!(
        console.contains("Ignition gets the config of the file system OEM"),
        "no boot has taken {DOCUMENT}"
    );
    for there in [DOCUMENT, BOOTSTRAPPED, SET_UP] {
        ensure!(run.has(there)?, "{there} is missing");
    }
    let by = run.shell(&format!("cat {BOOTSTRAPPED}"))?;
    ensure!(by == "by Ignition\n", "{BOOTSTRAPPED}: {by:?}");
    for unit in ["containerd", "kubelet", "osm-setup"] {
        let enabled = run.shell(&format!("systemctl is-enabled {unit}.service || :"))?;
        ensure!(
            enabled.trim() == "enabled",
            "{unit}.service is {}",
            enabled.trim()
        );
    }
    Ok(())
}
