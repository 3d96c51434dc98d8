//! Machines with other networks than one of IPv4 with a way out.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use osm_testkit::lab;
use serde_json::{Value, json};

use super::join::{logs_can_be_read, nothing_failed, run_pod};
use super::visit::{READY, Visit};
use crate::e2e::pool::Network;
use crate::e2e::site::API_IPV6;

/// Nothing says which of a machine's addresses leads to others.
pub async fn no_route(visit: &Visit<'_>) -> Result<()> {
    visit.boot().await?;
    let node = visit.ready(READY).await?;
    let default = visit.shell("ip route show default")?;
    ensure!(default.is_empty(), "there is a default route, so this shows nothing: {default}");
    has_addresses(&node, &[visit.address()])?;
    is_of_use(visit).await
}

/// IPv4 and IPv6 in the order of the pool.
pub async fn dual_stack(visit: &Visit<'_>) -> Result<()> {
    visit.boot().await?;
    let node = visit.ready(READY).await?;
    let mut addresses = [visit.address(), visit.ipv6().into()];
    if visit.network() == Network::DualStackIPv6First {
        addresses.reverse();
    }
    has_addresses(&node, &addresses)?;
    let networks = node.spec.and_then(|spec| spec.pod_cidrs).unwrap_or_default();
    let families: Vec<bool> = networks.iter().map(|network| network.contains(':')).collect();
    ensure!(families == [false, true], "the node's pod networks are {networks:?}");
    is_of_use(visit).await?;
    // A pod's addresses come in the order of its node's.
    let pod: Value =
        serde_json::from_str(&visit.site.kubectl(&["get", "pod", visit.name(), "--output=json"]).await?)?;
    let pods = pod.pointer("/status/podIPs").and_then(Value::as_array).cloned().unwrap_or_default();
    let pods = pods.iter().map(|pod| Ok(pod["ip"].as_str().unwrap_or_default().parse()?));
    let pods: Vec<IpAddr> = pods.collect::<Result<_>>()?;
    let same = pods.iter().map(IpAddr::is_ipv6).eq(addresses.iter().map(IpAddr::is_ipv6));
    ensure!(same, "on a node with {addresses:?} a pod has {pods:?}");
    Ok(())
}

/// All servers by their addresses of IPv6.
pub fn by_ipv6(settings: &mut Value) -> Result<()> {
    let (ipv4, ipv6) = (format!("//{}", lab::HOST), format!("//[{}]", lab::HOST_IPV6));
    *settings = serde_json::from_str(&settings.to_string().replace(&ipv4, &ipv6))?;
    let document = settings.as_object_mut().context("a settings document")?;
    let cluster = json!({"apiServer": format!("https://{API_IPV6}"), "dnsIPs": ["fd00:10:96::a"]});
    document.insert("cluster".to_owned(), cluster);
    Ok(())
}

/// No IPv4 anywhere.
pub async fn ipv6(visit: &Visit<'_>) -> Result<()> {
    visit.boot().await?;
    let node = visit.ready(READY).await?;
    let ipv4 = visit.shell("ip -4 -oneline address show dev eth0")?;
    ensure!(ipv4.is_empty(), "the machine has IPv4, so this shows nothing: {ipv4}");
    has_addresses(&node, &[visit.ipv6().into()])?;
    let archives = visit.downloads()?.len();
    ensure!(archives == 4, "by IPv6, {archives} files are downloaded instead of 4");
    let connected =
        visit.site.relay.connections().iter().any(|connection| connection.client == visit.address());
    ensure!(connected, "the machine has not come to the API server by IPv6");
    is_of_use(visit).await
}

/// Pods run, and the API server reaches the kubelet by the address that the node names first.
async fn is_of_use(visit: &Visit<'_>) -> Result<()> {
    run_pod(visit).await?;
    logs_can_be_read(visit).await?;
    nothing_failed(visit)
}

/// Exactly these, in this order.
fn has_addresses(node: &Node, expected: &[IpAddr]) -> Result<()> {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    let internal: Vec<IpAddr> =
        internal.map(|address| Ok(address.address.parse()?)).collect::<Result<_>>()?;
    ensure!(internal == expected, "the node's addresses are {internal:?}, not {expected:?}");
    Ok(())
}
