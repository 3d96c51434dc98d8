//! Machines that no cloud knows.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use osm_api::names::{CLOUD_INIT_SETTINGS, EDGE_SCRIPT_KEY, edge_script_secret_name};
use osm_testkit::wait_for;

use super::join::{nothing_failed, run_pod};
use super::visit::{READY, Visit};

/// What must be the same afterwards: names, users with their keys, and how the network is configured.
const OF_THE_OWNER: &str = "cat /etc/hostname /etc/passwd /etc/shadow; cat /root/.ssh/* 2>/dev/null; \
    find /etc/netplan /etc/network /etc/systemd/network -type f -exec sha256sum {} + 2>/dev/null; true";

/// A machine that somebody has set up becomes a node by a script, and stays somebody's.
pub async fn edge(visit: &Visit<'_>) -> Result<()> {
    visit.boot().await?;
    wait_for("cloud-init to be done", READY, async || {
        Ok(visit.shell("systemctl is-active cloud-init.target cloud-final.service").ok())
    })
    .await?;
    let before = visit.shell(OF_THE_OWNER)?;
    let secrets = Api::<Secret>::namespaced(visit.site.control_plane.admin()?, CLOUD_INIT_SETTINGS);
    let secret = secrets.get(&edge_script_secret_name(visit.name(), "kube-system")).await?;
    let script = secret.data.and_then(|mut data| data.remove(EDGE_SCRIPT_KEY)).context("a script")?;
    visit.machine(|machine| Ok(std::fs::write(machine.root().join("root/join.sh"), &script.0)?))?;

    let refused = visit.shell("sh /root/join.sh 'not a name' 2>&1 || true")?;
    ensure!(refused.contains("this machine was not changed"), "it takes any name: {refused}");
    ensure!(!visit.has("/opt/bin/osm-bootstrap")?, "the machine was changed all the same");
    let said = visit.shell("sh /root/join.sh && rm /root/join.sh")?;
    ensure!(said.contains(&format!("joins as {}", visit.name())), "{said}");
    visit.ready(READY).await?;
    run_pod(visit).await?;
    let after = visit.shell(OF_THE_OWNER)?;
    ensure!(before == after, "what was the owner's has changed:\n{before}\n{after}");
    nothing_failed(visit)
}
