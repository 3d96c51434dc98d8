//! While the Go implementation renews its Lease, nothing new is started, and what is published is renewed.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use osm_api::names::{GO_LEASE, KUBE_SYSTEM};
use osm_api::rbac::Service;
use osm_testkit::Options;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::credentials::bring_renewal_near;
use crate::world::{DEADLINE, World};

/// Renews the Lease as client-go does, until it is stopped.
pub struct GoImplementation(JoinHandle<()>);

impl GoImplementation {
    pub async fn start(world: &World) -> Result<Self> {
        let leases: Api<Lease> = Api::namespaced(world.client.clone(), KUBE_SYSTEM);
        let renew = async move || {
            let spec = json!({"holderIdentity": "operating-system-manager-5f6d8_1", "leaseDurationSeconds": 15,
                "renewTime": format!("{:.6}", Timestamp::now())});
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": GO_LEASE}, "spec": spec});
            let params = PatchParams::apply("operating-system-manager").force();
            leases.patch(GO_LEASE, &params, &Patch::Apply(&lease)).await
        };
        renew().await?;
        Ok(Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(2)).await;
                if let Err(error) = renew().await {
                    eprintln!("the Lease of the Go implementation is not renewed: {error}");
                }
            }
        })))
    }

    pub fn stop(self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_new_is_started_while_the_go_implementation_runs() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    let go = GoImplementation::start(&world).await?;
    world.installed.start_all().await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    for service in [Service::OscController, Service::SecretSyncer] {
        let words = [
            "Go implementation: it renews the Lease kube-system/operating-system-manager",
            "`osmctl migrate script`",
        ];
        world.waits_for(service, &words).await?;
    }
    // It is ready for its part, which affects nothing of the Go implementation.
    assert!(world.installed.is_ready(Service::OspController).await);
    let configs = world.configs().list(&ListParams::default()).await?;
    assert!(configs.items.is_empty(), "{configs:?}");

    go.stop();
    let first = world.machine("p", 1).await?;
    world.installed.ready(DEADLINE).await?;

    let go = GoImplementation::start(&world).await?;
    let message = world
        .says("p", "Published", false, "GoImplementationRunning")
        .await?;
    assert!(
        message.contains("kept and its credentials are renewed"),
        "{message}"
    );
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

    go.stop();
    world
        .machine_with("p", 1, |machine| machine.text.contains("two"))
        .await?;
    world.machine("q", 1).await?;
    world.says("p", "Published", true, "Published").await.map(drop)
}
