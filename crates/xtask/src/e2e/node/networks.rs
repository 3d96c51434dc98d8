//! Machines on other networks than IPv4 with a default route.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use osm_lab::machines;
use serde_json::{Value, json};

use super::join::{logs_can_be_read, nothing_failed, run_pod};
use super::scenario_run::{READY, ScenarioRun};
use crate::e2e::environment::API_IPV6;
use crate::e2e::pool::Network;

/// Nothing says which of a machine's addresses leads to others.
pub async fn no_route(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let node = run.ready(READY).await?;
    let default = run.shell("ip route show default")?;
    ensure!(
        default.is_empty(),
        "there is a default route, so this shows nothing: {default}"
    );
    has_addresses(&node, &[run.address()])?;
    is_of_use(run).await
}

/// IPv4 and IPv6 in the order of the pool.
pub async fn dual_stack(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    let node = run.ready(READY).await?;
    let mut addresses = [run.address(), run.ipv6().into()];
    if run.network() == Network::DualStackIPv6First {
        addresses.reverse();
    }
    has_addresses(&node, &addresses)?;
    let networks = node.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default();
    let families: Vec<bool> = networks.iter().map(|network| network.contains(':')).collect();
    ensure!(
        families == [false, true],
        "the node's pod networks are {networks:?}"
    );
    is_of_use(run).await?;
    // A pod's addresses come in the order of its node's.
    let pod: Value = serde_json::from_str(
        &run.environment
            .kubectl(&["get", "pod", run.name(), "--output=json"])
            .await?,
    )?;
    let pods = pod
        .pointer("/status/podIPs")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let pods = pods
        .iter()
        .map(|pod| Ok(pod["ip"].as_str().unwrap_or_default().parse()?));
    let pods: Vec<IpAddr> = pods.collect::<Result<_>>()?;
    let same = pods
        .iter()
        .map(IpAddr::is_ipv6)
        .eq(addresses.iter().map(IpAddr::is_ipv6));
    ensure!(same, "on a node with {addresses:?} a pod has {pods:?}");
    Ok(())
}

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
    has_addresses(&node, &[run.ipv6().into()])?;
    // osm-extras fetches crictl once the node is Ready.
    let mut archives = run.downloads()?;
    archives.retain(|path| !path.contains("crictl"));
    let archives = archives.len();
    ensure!(
        archives == 4,
        "by IPv6, {archives} files are downloaded instead of 4"
    );
    let connected = run
        .environment
        .relay
        .connections()
        .iter()
        .any(|connection| connection.client == run.address());
    ensure!(connected, "the machine has not come to the API server by IPv6");
    is_of_use(run).await
}

/// Pods run, and the API server reaches the kubelet by the address that the node names first.
async fn is_of_use(run: &ScenarioRun<'_>) -> Result<()> {
    run_pod(run).await?;
    logs_can_be_read(run).await?;
    nothing_failed(run)
}

/// Exactly these, in this order.
fn has_addresses(node: &Node, expected: &[IpAddr]) -> Result<()> {
    let addresses = node
        .status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    let internal: Vec<IpAddr> = internal
        .map(|address| Ok(address.address.parse()?))
        .collect::<Result<_>>()?;
    ensure!(
        internal == expected,
        "the node's addresses are {internal:?}, not {expected:?}"
    );
    Ok(())
}
