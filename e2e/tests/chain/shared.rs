//! Worlds that tests use one after the other, because starting one takes longer than most tests.
//!
//! A test takes a world that is idle, or starts one. It gives the world back only if it passes: a world in
//! which a test failed is dropped. Tests that stop an API server, restore etcd, or need other flags or
//! permissions have a world of their own.

use std::sync::{LazyLock, Mutex};

use anyhow::Result;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource, ResourceExt};
use osm_api::names::{CLOUD_INIT_SETTINGS, DEFAULT_PROFILE};
use osm_api::rbac::Service;
use osm_api::{MachineDeployment, OperatingSystemProfile};
use osm_testkit::{Options, check, installation, wait_for};
use serde::de::DeserializeOwned;

use crate::joining::CONTROLLERS;
use crate::world::{DEADLINE, NAMESPACE, TEAM, World};

/// The connections of a world live as long as the runtime that they were opened in.
static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Runtime::new().expect("a runtime"));

static IDLE: Mutex<Vec<World>> = Mutex::new(Vec::new());

/// Plays a test in a world in which all services run, with the controllers that sign certificates of nodes.
pub fn in_shared_world(play: impl AsyncFnOnce(&mut World) -> Result<()>) -> Result<()> {
    RUNTIME.block_on(async {
        let idle = IDLE.lock().unwrap().pop();
        let mut world = match idle {
            Some(world) => world,
            None => start().await?,
        };
        play(&mut world).await?;
        world.tidy_up().await?;
        IDLE.lock().unwrap().push(world);
        Ok(())
    })
}

async fn start() -> Result<World> {
    let controllers = [&CONTROLLERS[..], &["serviceaccount-token"]].concat();
    let world = World::start(Options {
        controllers,
        ..Options::default()
    });
    let world = world.await?;
    // Machines of a test need no Machine to join.
    world.apply(&installation::node_client()).await?;
    Ok(world)
}

impl World {
    /// Removes what a test has made, and waits until the services have undone what they made for it.
    async fn tidy_up(&mut self) -> Result<()> {
        for service in Service::ALL {
            if self.installed.process(service).is_err() {
                self.installed.start(service).await?;
            }
        }
        // An object may be too deep to be decoded. Its metadata never is.
        let pools = Api::<MachineDeployment>::all(self.client.clone());
        for pool in pools.list_metadata(&ListParams::default()).await? {
            let namespace = pool.namespace().unwrap_or_default();
            let pools = self.api::<MachineDeployment>(&namespace);
            pools.delete(&pool.name_any(), &DeleteParams::default()).await?;
        }
        self.set_settings("").await?;
        wait_for("all pools to be undone", DEADLINE, async || {
            let configs = self.configs().list_metadata(&ListParams::default()).await?;
            check(configs.items.is_empty() && self.made().await?.is_empty())
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))?;
        for namespace in [NAMESPACE, TEAM] {
            let profiles = Api::<OperatingSystemProfile>::namespaced(self.managed.clone(), namespace);
            let of_tests = ListParams::default().labels(&format!("!{DEFAULT_PROFILE}"));
            for profile in profiles.list_metadata(&of_tests).await? {
                profiles
                    .delete(&profile.name_any(), &DeleteParams::default())
                    .await?;
            }
        }
        let in_settings = CLOUD_INIT_SETTINGS;
        delete_others(&self.api::<Secret>(in_settings), &[]).await?;
        delete_others(&self.api::<ConfigMap>(in_settings), &["kube-root-ca.crt"]).await?;
        delete_others(&self.api::<ServiceAccount>(in_settings), &[]).await?;
        delete_others(&self.api::<RoleBinding>(in_settings), &["osm:"]).await?;
        delete_others(&self.api::<Role>(in_settings), &["osm:"]).await?;
        let requests = Api::<CertificateSigningRequest>::all(self.client.clone());
        delete_others(&requests, &[]).await?;
        self.installed.ready(DEADLINE).await
    }
}

/// Deletes all objects whose names begin with none of these texts.
async fn delete_others<K>(api: &Api<K>, installed: &[&str]) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    for object in api.list_metadata(&ListParams::default()).await? {
        let name = object.name_any();
        if !installed.iter().any(|installed| name.starts_with(installed)) {
            api.delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}
