//! Machines without IPv4.

use anyhow::{Context, Result, ensure};
use osm_lab::machines;
use serde_json::{Value, json};

use super::join::{has_the_address_of_the_machine, logs_can_be_read, nothing_failed, run_pod};
use super::scenario_run::{READY, ScenarioRun};
use crate::environment::API_IPV6;

/// All servers by their addresses of IPv6.
pub fn by_ipv6(settings: &mut Value) -> Result<()> {
    let (ipv4, ipv6) = (
        format!("//{}", machines::HOST),
        format!("//[{}]", machines::HOST_IPV6),
    );
    *settings = serde_json::from_str(&settings.to_string().replace(&ipv4, &ipv6))?;
    let document = settings.as_object_mut().context("a settings document")?;
    let cluster = json!({"apiServer": format!("https://{API_IPV6}"), "dnsIPs": ["fd00:10:96::a"]});
    document.insert("cluster".to_owned(), cluster);
    Ok(())
}

/// No IPv4 anywhere.
pub async fn ipv6(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let node = run.ready(READY).await?;
    let ipv4 = run.shell("ip -4 -oneline address show dev eth0")?;
    ensure!(
        ipv4.is_empty(),
        "the machine has IPv4, so this shows nothing: {ipv4}"
    );
    has_the_address_of_the_machine(run, &node)?;
    // osm-extras fetches crictl once the node is Ready.
    let mut archives = run.downloads();
    archives.retain(|path| !path.contains("crictl"));
    ensure!(
        archives.len() == 4,
        "by IPv6, these files are downloaded instead of 4: {archives:?}"
    );
    ensure!(
        run.environment.relay.connections(run.address()) > 0,
        "the machine has not come to the API server by IPv6"
    );
    run_pod(run).await?;
    logs_can_be_read(run).await?;
    nothing_failed(run)
}
