//! Machines without a cloud provider.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use osm_api::names::{CLOUD_INIT_SETTINGS, EDGE_SCRIPT_KEY, edge_script_secret_name};
use osm_testkit::wait_for;

use super::join::{nothing_failed, run_pod};
use super::scenario_run::{READY, ScenarioRun};

/// What must be the same afterwards: names, users with their keys, and how the network is configured.
const OF_THE_OWNER: &str = "cat /etc/hostname /etc/passwd /etc/shadow; cat /root/.ssh/* 2>/dev/null; \
    find /etc/netplan /etc/network /etc/systemd/network -type f -exec sha256sum {} + 2>/dev/null; true";

/// A machine that somebody has set up becomes a node by a script, and stays somebody's.
pub async fn edge(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    wait_for("cloud-init to be done", run.patience(READY), async || {
        Ok(run
            .shell("systemctl is-active cloud-init.target cloud-final.service")
            .ok())
    })
    .await?;
    let before = run.shell(OF_THE_OWNER)?;
    let secrets = Api::<Secret>::namespaced(run.environment.control_plane.admin()?, CLOUD_INIT_SETTINGS);
    let secret = secrets
        .get(&edge_script_secret_name(run.name(), "kube-system"))
        .await?;
    let script = secret
        .data
        .and_then(|mut data| data.remove(EDGE_SCRIPT_KEY))
        .context("a script")?;
    run.machine(|machine| machine.write("/root/join.sh", &script.0))?;

    let refused = run.shell("sh /root/join.sh 'not a name' 2>&1 || true")?;
    ensure!(
        refused.contains("this machine was not changed"),
        "it takes any name: {refused}"
    );
    ensure!(
        !run.has("/opt/bin/osm-bootstrap")?,
        "the machine was changed all the same"
    );
    let said = run.shell("sh /root/join.sh && rm /root/join.sh")?;
    ensure!(said.contains(&format!("joins as {}", run.name())), "{said}");
    run.ready(READY).await?;
    run_pod(run).await?;
    let after = run.shell(OF_THE_OWNER)?;
    ensure!(
        before == after,
        "what was the owner's has changed:\n{before}\n{after}"
    );
    nothing_failed(run)
}
