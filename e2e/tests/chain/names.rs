//! Two MachineDeployments whose names run together: machine-controller finds both at one bootstrap Secret. It is always that of the older one.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::content::ContentView;
use osm_api::rbac::Service;
use osm_api::{MachineDeployment, names};
use osm_testkit::{check, machine_controller, wait_for};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{self, DEADLINE, World};

/// `a` in here is `a-b` in `kube-system`. A list shows it first.
const ELSEWHERE: &str = "b-kube-system";

const OLDER: (&str, &str) = ("a-b", "kube-system");
const YOUNGER: (&str, &str) = ("a", ELSEWHERE);

#[test]
fn the_older_pool_stays_published_whatever_the_younger_one_does() -> Result<()> {
    in_shared_world(async |world| {
        for service in [Service::OscController, Service::SecretSyncer] {
            world.installed.terminate(service, DEADLINE).await?;
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}});
        world.apply(&namespace).await?;
        let older = world.create(OLDER).await?;
        let younger = world.create_after(&older, YOUNGER).await?;

        // Both are there when the services start, at the same revision.
        for service in [Service::OscController, Service::SecretSyncer] {
            world.installed.start(service).await?;
        }
        world
            .accepted_profile("osp-tiny", "v1.0.0", "pool {{pool.name}}.\n")
            .await?;
        let observer = world.observe().await?;
        world.boots(OLDER).await?;
        world.conflicts(YOUNGER, OLDER).await?;
        // Which is what the Event says: this is what its machines boot with.
        let secret = world.bootstrap(OLDER.0).await?;
        let booted = world::parse(machine_controller::user_data(&secret, "1", "a-machine")?)?;
        ensure!(booted.text.contains("pool a-b."), "{}", booted.text);
        world.fetch(&booted).await?;

        // Neither a restart nor the loss of the config gives the name away.
        world
            .installed
            .terminate(Service::OscController, DEADLINE)
            .await?;
        world.installed.start(Service::OscController).await?;
        let before = world.config(OLDER.0).await?.uid();
        let config = names::config_name(OLDER.0, OLDER.1);
        world.delete(&world.configs(), &config).await?;
        wait_for("another config", DEADLINE, async || {
            let found = world.configs().get_opt(&config).await?;
            check(found.is_some_and(|found| found.uid() != before && found.status.is_some()))
        })
        .await?;
        world.touch(YOUNGER, "2").await?;
        world.touch(YOUNGER, "1").await?;
        world.touch(OLDER, "2").await?;
        world.touch(OLDER, "1").await?;
        world.boots(OLDER).await?;
        ensure!(world.holder().await? == older.uid());
        for (_, text) in observer.history(OLDER.0) {
            ensure!(
                world::parse(text)?.text.contains("pool a-b."),
                "it was that of the younger one"
            );
        }
        ensure!(observer.absences().is_empty(), "{:?}", observer.absences());

        // Once it is gone, the younger one is published, and who comes back with its name is the younger one now.
        world.remove(OLDER).await?;
        world.boots(YOUNGER).await?;
        ensure!(world.holder().await? == younger.uid());
        world.create_after(&younger, OLDER).await?;
        world.conflicts(OLDER, YOUNGER).await?;
        world.touch(OLDER, "2").await?;
        world.boots(YOUNGER).await?;
        ensure!(world.holder().await? == younger.uid());
        Ok(())
    })
}

impl World {
    /// Creates a pool at revision 1.
    async fn create(&self, (name, namespace): (&str, &str)) -> Result<MachineDeployment> {
        let mut pool = world::machine_deployment(name, "osp-tiny");
        pool["metadata"]["namespace"] = json!(namespace);
        pool["metadata"]["annotations"][names::REVISION] = json!("1");
        self.apply(&pool).await?;
        Ok(self.api(namespace).get(name).await?)
    }

    /// As [`Self::create`], until it is younger by the API server's clock, which counts seconds.
    async fn create_after(&self, other: &MachineDeployment, pool: (&str, &str)) -> Result<MachineDeployment> {
        let time = |md: &MachineDeployment| md.metadata.creation_timestamp.as_ref().map(|time| time.0);
        wait_for("the next second", DEADLINE, async || {
            check(Some(Timestamp::now()) > time(other).map(|time| time + jiff::SignedDuration::from_secs(1)))
        })
        .await?;
        let created = self.create(pool).await?;
        ensure!(time(&created) > time(other), "it is not younger");
        Ok(created)
    }

    async fn remove(&self, (name, namespace): (&str, &str)) -> Result<()> {
        let pools: Api<MachineDeployment> = self.api(namespace);
        pools.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn touch(&self, (name, namespace): (&str, &str), revision: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {names::REVISION: revision}}});
        let pools: Api<MachineDeployment> = self.api(namespace);
        pools
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Waits until the one bootstrap Secret is that of this pool, at revision 1.
    async fn boots(&self, (name, _): (&str, &str)) -> Result<()> {
        let text = format!("pool {name}.");
        let what = format!("user data of {name}");
        let found = wait_for(&what, DEADLINE, async || {
            // Both pools have this Secret.
            let secret = self.bootstrap(OLDER.0).await?;
            let user_data = world::parse(machine_controller::user_data(&secret, "1", "machine")?)?;
            ensure!(user_data.text.contains(&text), "{}", user_data.text);
            self.fetch(&user_data).await?;
            Ok(Some(()))
        });
        found.await.map_err(|error| error.context(self.installed.logs()))
    }

    /// uid of the pool that has the config.
    async fn holder(&self) -> Result<Option<String>> {
        let config = self.config(OLDER.0).await?;
        Ok(Some(ContentView::of(&config).pool().context("a pool")?.uid))
    }

    /// Waits for the Event that says what machines of the younger pool would boot with.
    async fn conflicts(&self, younger: (&str, &str), older: (&str, &str)) -> Result<()> {
        let event = self.event(younger.1, younger.0, "NameConflict").await?;
        let truth = format!(
            "machines of this pool boot with the user data of {}/{}, including its credentials",
            older.1, older.0
        );
        ensure!(event.contains(&truth), "{event}");
        Ok(())
    }
}
