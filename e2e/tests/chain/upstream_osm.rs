//! While the upstream OSM renews one of its Leases, nothing new is started, and what is published is renewed.
//! `each_lease_alone_holds_up_what_is_new_while_it_is_renewed` in osm-runtime has each of the Leases.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::names::GO_LEASE;
use osm_api::rbac::Service;
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::upstream_osm::UpstreamOsm;
use osm_testkit::{check, wait_for};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::credentials::bring_renewal_near;
use crate::takeover::{REVISION, published};
use crate::world::{DEADLINE, NAMESPACE, World};

/// Someone who renews the Lease of the upstream OSM, where that can't run itself, since KKP's definitions in
/// the user cluster are stand-ins, or must not delete anything. Dropping it ends it, and its Lease stays.
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
    /// Ends it, and its Lease at once. `a_lease_is_renewed_if_it_is_held_and_was_renewed_lately` in
    /// osm-runtime is about one that expires.
    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.renewals.await?;
        self.leases.delete(GO_LEASE, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// The pools of the test, in an order.
const POOLS: [&str; 4] = ["default", "tiny", "existing", "custom"];

/// The Deployment of the upstream OSM is started in the namespace of OSM after a migration, and its pod is
/// restarted. Each time, it deletes the config and the Secrets of every pool. It can render none, since the
/// token that it looks for is gone: so it tries again and again, and deletes again what ours has restored,
/// unless it finds that before it has failed.
pub async fn is_forgotten(world: &World, observer: &SecretWatch) -> Result<()> {
    let before = configs(world).await?;
    let go = UpstreamOsm::start(&world.plane, NAMESPACE, &[]).await?;
    // Each service may notice it before that, afterwards or in between.
    are_restored(world, &go, &before).await?;
    let message = world
        .says("tiny", "Published", false, "UpstreamOSMRunning")
        .await?;
    assert!(
        message.contains("kept and its credentials are renewed"),
        "{message}"
    );
    // Each service has a watch of its own, so osc-controller may notice later than secret-syncer.
    let log = world.installed.log_file(Service::OscController);
    wait_for("osc-controller to notice", DEADLINE, async || {
        let lines = std::fs::read_to_string(&log)?;
        check(lines.matches("upstream OSM: it renews").count() == 2)
    })
    .await?;

    // What is published is renewed, and nothing new is. What the upstream OSM deletes is rendered again, at
    // an unknown time: so a stand-in takes over from its pod.
    drop(go);
    let holder = start(world, NAMESPACE).await?;
    published(world, &POOLS, true).await?;
    let first = world.machine("tiny", REVISION + 1).await?;
    world.accepted_profile("osp-tiny", "v1.0.1", "two\n").await?;
    world.pool("new", "osp-tiny").await?;
    world.stamp("new", 1).await?;
    // secret-syncer may write it at the same time.
    wait_for("the renewal to be near", DEADLINE, async || {
        bring_renewal_near(world, "tiny").await.map(Some)
    })
    .await?;
    let renewed = world
        .machine_with("tiny", REVISION + 1, |machine| {
            machine.api_token != first.api_token
        })
        .await?;
    assert!(renewed.text.contains("one") && !renewed.text.contains("two"));

    // The next pod waits for the Lease of the one before. Now both services know of it when it deletes
    // everything.
    drop(holder);
    let before = configs(world).await?;
    let mut go = UpstreamOsm::start(&world.plane, NAMESPACE, &[]).await?;
    go.leads().await?;
    are_restored(world, &go, &before).await?;
    // Its config is rendered as it is now. That is published, unless secret-syncer has noted in the new
    // config what was published before that Secret was deleted as well.
    world.machine("tiny", REVISION + 1).await?;
    world
        .says("tiny", "Published", false, "UpstreamOSMRunning")
        .await?;
    assert!(world.config("new").await.is_err(), "a new pool is rendered");

    // Its Lease stays until it counts as unused.
    go.stop().await?;
    let stopped = Instant::now();
    world.machine("new", 1).await?;
    world
        .machine_with("tiny", REVISION + 1, |machine| machine.text.contains("two"))
        .await?;
    let held = stopped.elapsed().as_secs();
    assert!((45..120).contains(&held), "about 80 seconds: {held}");
    published(world, &POOLS, true).await?;
    for pool in POOLS {
        world.says(pool, "Published", true, "Published").await?;
    }
    world.installed.ready(DEADLINE).await?;
    let longest = observer.longest_absence()?;
    assert!(
        longest < Duration::from_secs(30),
        "{longest:?}: {:?}",
        observer.absences()
    );
    Ok(())
}

/// uids of the configs.
async fn configs(world: &World) -> Result<Vec<Option<String>>> {
    let mut uids = Vec::new();
    for pool in POOLS {
        uids.push(world.config(pool).await?.uid());
    }
    Ok(uids)
}

/// Waits until the upstream OSM has deleted these configs, and all is published again, while it runs.
async fn are_restored(world: &World, go: &UpstreamOsm, before: &[Option<String>]) -> Result<()> {
    let restored = async {
        wait_for("configs to be restored", DEADLINE, async || {
            let now = configs(world).await?;
            check(now.iter().zip(before).all(|(now, before)| now != before))
        })
        .await?;
        published(world, &POOLS, true).await
    };
    restored.await.map_err(|error| {
        error.context(format!(
            "{}\n{}",
            world.installed.logs(),
            go.logs().unwrap_or_default()
        ))
    })
}
