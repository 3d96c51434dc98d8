//! While the upstream OSM renews one of its Leases, nothing new is started, and what is published is renewed.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use osm_api::names::{GO_LEASE, KUBE_SYSTEM};
use osm_api::rbac::Service;
use osm_testkit::{Options, wait_for};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::credentials::bring_renewal_near;
use crate::world::{DEADLINE, NAMESPACE, World};

/// Somebody who renews the Lease of the upstream OSM.
pub struct UpstreamOsm {
    leases: Api<Lease>,
    stop: oneshot::Sender<()>,
    renewals: JoinHandle<()>,
}

/// Renews the Lease of the upstream OSM in a namespace, as client-go does.
pub async fn start(world: &World, namespace: &str) -> Result<UpstreamOsm> {
    let leases = world.api::<Lease>(namespace);
    let renewed = leases.clone();
    let renew = async move || {
        let spec = json!({"holderIdentity": "operating-system-manager-5f6d8_1", "leaseDurationSeconds": 15,
            "renewTime": format!("{:.6}", Timestamp::now())});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": GO_LEASE}, "spec": spec});
        let params = PatchParams::apply("operating-system-manager").force();
        renewed.patch(GO_LEASE, &params, &Patch::Apply(&lease)).await
    };
    renew().await?;
    let (stop, mut stopped) = oneshot::channel();
    let renewals = tokio::spawn(async move {
        let pause = Duration::from_secs(2);
        while tokio::time::timeout(pause, &mut stopped).await.is_err() {
            if let Err(error) = renew().await {
                eprintln!("the Lease of the upstream OSM is not renewed: {error}");
            }
        }
    });
    Ok(UpstreamOsm {
        leases,
        stop,
        renewals,
    })
}

impl UpstreamOsm {
    /// Ends it, and its Lease at once. `a_lease_is_renewed_if_it_is_held_and_was_renewed_lately` in osm-runtime is about one that expires.
    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.renewals.await?;
        self.leases.delete(GO_LEASE, &DeleteParams::default()).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_started_while_the_upstream_osm_runs() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    // The one that all three look at. `each_lease_alone_holds_up_what_is_new_while_it_is_renewed` in osm-runtime has each of them.
    let go = start(&world, NAMESPACE).await?;
    world.installed.start_all().await?;
    let renews = format!("upstream OSM: it renews the Lease {NAMESPACE}/{GO_LEASE};");
    for service in [Service::OscController, Service::SecretSyncer] {
        world
            .waits_for(service, &[&*renews, "`osmctl migrate script`"])
            .await?;
    }
    // osp-controller is ready, and validates.
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    assert!(world.installed.is_ready(Service::OspController).await);
    let profiles = world.profiles().list(&ListParams::default()).await?;
    assert_eq!(profiles.items.len(), 1, "no default profile is installed");
    let configs = world.configs().list(&ListParams::default()).await?;
    assert!(configs.items.is_empty(), "{configs:?}");

    go.stop().await?;
    let first = world.machine("p", 1).await?;
    world.installed.ready(DEADLINE).await?;
    wait_for("the default profiles", DEADLINE, async || {
        Ok(world.profiles().get_opt("osp-ubuntu").await?.map(drop))
    })
    .await?;

    let go = start(&world, KUBE_SYSTEM).await?;
    let message = world.says("p", "Published", false, "UpstreamOSMRunning").await?;
    assert!(
        message.contains("kept and its credentials are renewed"),
        "{message}"
    );
    // Each service looks every 15 seconds, so osc-controller may notice later than secret-syncer.
    let log = world.installed.log_file(Service::OscController);
    wait_for("osc-controller to notice", DEADLINE, async || {
        let lines = std::fs::read_to_string(&log)?;
        Ok((lines.matches("upstream OSM: it renews").count() == 2).then_some(()))
    })
    .await?;
    world.accepted_profile("osp-tiny", "v1.0.1", "two\n").await?;
    world.pool("q", "osp-tiny").await?;
    world.stamp("q", 1).await?;
    bring_renewal_near(&world, "p").await?;
    let renewed = world
        .machine_with("p", 1, |machine| machine.api_token != first.api_token)
        .await?;
    assert!(
        renewed.text.contains("one") && !renewed.text.contains("two"),
        "{}",
        renewed.text
    );
    assert!(world.config("q").await.is_err(), "a new pool is rendered");
    for service in [Service::OscController, Service::SecretSyncer] {
        assert!(world.installed.is_ready(service).await, "{}", service.name());
    }

    go.stop().await?;
    world
        .machine_with("p", 1, |machine| machine.text.contains("two"))
        .await?;
    world.machine("q", 1).await?;
    world.says("p", "Published", true, "Published").await.map(drop)
}
