//! The relay in front of a real API server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use osm_lab::serve::relay::{Identities, Mode, Relay};
use osm_testkit::{ControlPlane, wait_for};

const DEADLINE: Duration = Duration::from_secs(30);
const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Large enough for the API server to send it in chunks.
fn document() -> Vec<u8> {
    "- a line of some document\n".repeat(10_000).into_bytes()
}

#[tokio::test]
async fn an_api_server_behind_a_relay_is_the_same_until_a_fault_is_set() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    let namespace = "relay";
    control_plane
        .apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: relay}}")
        .await?;
    let kubeconfig = control_plane.admin_kubeconfig_path();
    let identities = Identities::issue(control_plane.ca_pem(), &control_plane.ca_key_pem()?, &[US])?;
    let upstream: SocketAddr = control_plane
        .url()
        .strip_prefix("https://")
        .context("URL")?
        .parse()?;
    let relay = Relay::start((US, 0).into(), upstream, &identities)?;
    let options = KubeConfigOptions::default();
    let mut config =
        kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    config.cluster_url = relay.url().parse()?;
    // A client of its own for each mode: a change cuts the connections that one keeps.
    let secrets = || {
        anyhow::Ok(Api::<Secret>::namespaced(
            Client::try_from(config.clone())?,
            namespace,
        ))
    };

    let mut secret: Secret =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "document" } }))?;
    secret.data = Some([("cloud-config".to_owned(), ByteString(document()))].into());
    let passed = secrets()?;
    let secret = passed.create(&PostParams::default(), &secret).await?;
    assert_eq!(passed.get("document").await?, secret);
    assert!(relay.requests().is_empty(), "they pass through");

    relay.set(US, Mode::FlippedBit);
    let flipped = secrets()?;
    let got = flipped.get("document").await?;
    assert_eq!(got.metadata, secret.metadata);
    let got = got
        .data
        .and_then(|mut data| data.remove("cloud-config"))
        .context("cloud-config")?
        .0;
    let bits: u32 = got
        .iter()
        .zip(document())
        .map(|(got, right)| (got ^ right).count_ones())
        .sum();
    assert_eq!((got.len(), bits), (document().len(), 1));

    let config_maps = Api::<ConfigMap>::namespaced(flipped.into_client(), namespace);
    let mut events = config_maps.watch(&WatchParams::default(), "0").await?.boxed();
    let config_map =
        serde_json::from_value(serde_json::json!({ "metadata": { "name": "made-through-it" } }))?;
    config_maps.create(&PostParams::default(), &config_map).await?;
    wait_for("the event", DEADLINE, async || {
        let event = events.next().await.context("the watch ended")??;
        Ok(
            matches!(event, WatchEvent::Added(it) if it.metadata.name == config_map.metadata.name)
                .then_some(()),
        )
    })
    .await?;

    relay.set(US, Mode::Status(403));
    match secrets()?.get("document").await {
        Err(kube::Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"))
        }
        other => panic!("{other:?}"),
    }
    relay.set(US, Mode::Impostor);
    assert!(secrets()?.get("document").await.is_err());

    relay.set(US, Mode::Held);
    let holding = secrets()?;
    let held = tokio::spawn(async move { holding.get("document").await });
    let path = format!("/api/v1/namespaces/{namespace}/secrets/document");
    wait_for("the held request", DEADLINE, async || {
        Ok(relay
            .requests()
            .into_iter()
            .find(|request| request.mode == Mode::Held && request.path == path))
    })
    .await?;
    assert!(!held.is_finished());
    relay.set(US, Mode::Pass);
    assert_eq!(held.await??, secret);
    assert_eq!(secrets()?.list(&ListParams::default()).await?.items, [secret]);
    Ok(())
}
