//! Pools, and how soon the user data of new machines contains a change.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::content::ContentView;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBE_SYSTEM};
use osm_testkit::{fixtures, machine_controller, wait_for};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long anything may take until it is published.
const PUBLISHED: Duration = Duration::from_secs(300);

/// Bootstrap Secrets of a cluster, as a watch shows them.
#[derive(Clone)]
pub struct Served {
    current: watch::Receiver<BTreeMap<String, Bootstrap>>,
}

/// Whom a bootstrap Secret is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bootstrap {
    pool: String,
    revision: String,
}

impl Served {
    /// Watches them in a task of `tasks`.
    pub fn watch(client: Client, tasks: &mut JoinSet<Result<()>>) -> Self {
        let (sender, current) = watch::channel(BTreeMap::new());
        let secrets = Api::<Secret>::namespaced(client, CLOUD_INIT_SETTINGS);
        tasks.spawn(async move {
            let events = watcher(secrets, watcher::Config::default());
            let mut events = std::pin::pin!(events.default_backoff());
            loop {
                match events.try_next().await {
                    Ok(Some(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret))) => {
                        let text =
                            |map: &BTreeMap<String, String>, key| map.get(key).cloned().unwrap_or_default();
                        let bootstrap = Bootstrap {
                            pool: text(secret.labels(), names::POOL),
                            revision: text(secret.annotations(), names::MACHINE_DEPLOYMENT_REVISION),
                        };
                        sender.send_modify(|current| drop(current.insert(secret.name_any(), bootstrap)));
                    }
                    Ok(Some(watcher::Event::Delete(secret))) => {
                        sender.send_modify(|current| drop(current.remove(&secret.name_any())));
                    }
                    Ok(None) => return Ok(()),
                    // After an error it begins anew, after a while.
                    Ok(Some(_)) | Err(_) => {}
                }
            }
        });
        Self { current }
    }

    /// Waits until machine-controller could make machines of a pool's revision.
    async fn wait(&mut self, secret: &str, wanted: &Bootstrap) -> Result<()> {
        let there = self
            .current
            .wait_for(|current| current.get(secret) == Some(wanted));
        let waited = tokio::time::timeout(PUBLISHED, there)
            .await
            .map(|there| there.map(drop));
        waited.with_context(|| format!("{secret} is not for {wanted:?} after {PUBLISHED:?}"))??;
        Ok(())
    }
}

/// A MachineDeployment with the revision that machine-controller has given it.
pub struct Pool {
    client: Client,
    machine_deployment: DynamicObject,
    revision: u64,
}

impl Pool {
    /// Creates it with its first revision.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn create(client: &Client, name: &str, profile: &str) -> Result<Self> {
        let mut manifest = fixtures::machine_deployment(name, profile);
        let annotations = manifest
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut);
        annotations
            .context("annotations")?
            .insert(names::REVISION.to_owned(), json!("1"));
        let manifest: DynamicObject = serde_json::from_value(manifest)?;
        let machine_deployment = api(client).create(&PostParams::default(), &manifest).await?;
        Ok(Self {
            client: client.clone(),
            machine_deployment,
            revision: 1,
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.machine_deployment.name_any()
    }

    /// Changes its template and gives it the next revision.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn change(&mut self) -> Result<()> {
        self.revision += 1;
        let labels = json!({"revision": self.revision.to_string()});
        let change = json!({"metadata": {"annotations": {names::REVISION: self.revision.to_string()}},
            "spec": {"template": {"metadata": {"labels": labels}}}});
        self.machine_deployment = api(&self.client)
            .patch(&self.name(), &PatchParams::default(), &Patch::Merge(change))
            .await?;
        Ok(())
    }

    /// Waits until machines of its revision can be made; how long that took.
    ///
    /// # Errors
    /// When that takes five minutes.
    pub async fn served(&self, served: &mut Served) -> Result<Duration> {
        let began = Instant::now();
        let uid = self.machine_deployment.uid().unwrap_or_default();
        let wanted = Bootstrap {
            pool: names::pool_id(KUBE_SYSTEM, &self.name(), &uid),
            revision: self.revision.to_string(),
        };
        served
            .wait(&names::bootstrap_secret_name(&self.name(), KUBE_SYSTEM), &wanted)
            .await?;
        Ok(began.elapsed())
    }

    /// Waits until its config, in this namespace of the cluster `management`, is published for its revision; gives that.
    ///
    /// # Errors
    /// When that takes five minutes, with the config's conditions.
    pub async fn published(&self, management: &Client, namespace: &str) -> Result<OperatingSystemConfig> {
        let configs = Api::<OperatingSystemConfig>::namespaced(management.clone(), namespace);
        let (name, revision) = (
            names::config_name(&self.name(), KUBE_SYSTEM),
            self.revision.to_string(),
        );
        wait_for(&format!("{name} to be published"), PUBLISHED, async || {
            let config = configs.get(&name).await?;
            let status = config.status.clone().unwrap_or_default();
            let content = ContentView::of(&config);
            let uid = self.machine_deployment.metadata.uid.as_deref();
            let of_this = uid.is_some_and(|uid| content.belongs_to(uid));
            ensure!(
                of_this && content.is_published(&revision),
                "its conditions: {:?}",
                status.conditions
            );
            Ok(Some(config))
        })
        .await
    }

    /// What a new machine of it boots with.
    ///
    /// # Errors
    /// Whatever keeps machine-controller from making the machine.
    pub async fn user_data(&self) -> Result<String> {
        let revision = self.revision.to_string();
        let text =
            machine_controller::fetch_user_data(&self.client, &self.machine_deployment, &revision, "machine");
        Ok(text.await?)
    }

    /// An error if another has the same user data.
    ///
    /// # Errors
    /// That, or what keeps machine-controller from making a machine of either.
    pub async fn differs_from(&self, other: &Self) -> Result<()> {
        ensure!(
            self.user_data().await? != other.user_data().await?,
            "two pools have the same user data"
        );
        Ok(())
    }

    /// Deletes it, and waits until nothing keeps it.
    ///
    /// # Errors
    /// When it is still there after five minutes.
    pub async fn delete(self) -> Result<()> {
        let api = api(&self.client);
        api.delete(&self.name(), &DeleteParams::default()).await?;
        wait_for(&format!("{} to be gone", self.name()), PUBLISHED, async || {
            let there = api.get_opt(&self.name()).await?;
            Ok(there
                .is_none_or(|there| there.uid() != self.machine_deployment.uid())
                .then_some(()))
        })
        .await
    }
}

fn api(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        KUBE_SYSTEM,
        &machine_controller::machine_deployment(),
    )
}
