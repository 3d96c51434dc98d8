//! While the upstream OSM renews one of its Leases, nothing new is started, and what is published is renewed.
//! `each_lease_alone_holds_up_what_is_new_while_it_is_renewed` in osm-runtime has each of the Leases.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use osm_api::names::GO_LEASE;
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::upstream_osm::UpstreamOsm;
use osm_testkit::wait_for;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::credentials::bring_renewal_near;
use crate::takeover::{REVISION, published};
use crate::world::{DEADLINE, NAMESPACE, World};

/// Somebody who renews the Lease of the upstream OSM, where that can't run itself: KKP's definitions in the user cluster are stand-ins.
pub struct LeaseHolder {
    leases: Api<Lease>,
    stop: oneshot::Sender<()>,
    renewals: JoinHandle<()>,
}

/// Renews the Lease of the upstream OSM in a namespace, as client-go does.
pub async fn start(world: &World, namespace: &str) -> Result<LeaseHolder> {
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
    Ok(LeaseHolder {
        leases,
        stop,
        renewals,
    })
}

impl LeaseHolder {
    /// Ends it, and its Lease at once. `a_lease_is_renewed_if_it_is_held_and_was_renewed_lately` in osm-runtime is about one that expires.
    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.renewals.await?;
        self.leases.delete(GO_LEASE, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// The Deployment of the upstream OSM is started in the namespace of OSM after a migration, and its pod is restarted. It can render the profiles
/// of the pools `default` and `existing`, whose user data it replaces, unless the services have not noticed it yet and replace that again.
pub async fn is_forgotten(world: &World, observer: &SecretWatch) -> Result<()> {
    let first = world.machine("tiny", REVISION + 1).await?;
    let go = UpstreamOsm::start(&world.plane, NAMESPACE, &[]).await?;
    let message = world
        .says("tiny", "Published", false, "UpstreamOSMRunning")
        .await?;
    assert!(
        message.contains("kept and its credentials are renewed"),
        "{message}"
    );

    // What it can't render is renewed, and nothing new is published.
    world.accepted_profile("osp-tiny", "v1.0.1", "two\n").await?;
    world.pool("new", "osp-tiny").await?;
    world.stamp("new", 1).await?;
    // The upstream OSM deletes the Secrets of a pool before it fails to render it, and ours create them again.
    wait_for("the Secret to exist", DEADLINE, async || {
        bring_renewal_near(world, "tiny").await.map(Some)
    })
    .await?;
    let renewed = world
        .machine_with("tiny", REVISION + 1, |machine| {
            machine.api_token != first.api_token
        })
        .await?;
    assert!(renewed.text.contains("one") && !renewed.text.contains("two"));

    // The next pod waits for the Lease of the one before.
    drop(go);
    let mut go = UpstreamOsm::start(&world.plane, NAMESPACE, &[]).await?;
    go.leads().await?;
    assert!(world.config("new").await.is_err(), "a new pool is rendered");

    // Its Lease stays until it counts as unused.
    go.stop().await?;
    let stopped = Instant::now();
    world
        .machine_with("tiny", REVISION + 1, |machine| machine.text.contains("two"))
        .await?;
    let held = stopped.elapsed().as_secs();
    assert!((45..120).contains(&held), "about 80 seconds: {held}");
    published(world, &["default", "existing", "custom"], true).await?;
    world.machine("new", 1).await?;
    world.installed.ready(DEADLINE).await?;
    assert!(observer.longest_absence()? < Duration::from_secs(30));
    Ok(())
}
