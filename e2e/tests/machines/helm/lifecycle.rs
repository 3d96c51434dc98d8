//! The lifecycle of a release of the chart: install, change, scale, roll back, uninstall.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, Client};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_lab::cluster::Cluster;
use osm_testkit::{check, fixtures, installation, provisioning, wait_for};
use serde_json::{Value, json};

use super::pods::{self, OURS};
use super::pool::Pool;
use super::release::Release;
use super::{images, objects};
use osm_testkit::progress::Progress;

/// The release and its namespace.
const NAME: &str = "osm";

/// A default profile.
const PROFILE: &str = "osp-ubuntu";

/// The profile of a pool whose documents can be taken apart.
const TINY: &str = "osp-tiny";

/// How long things may take that nobody waits for.
const DEADLINE: Duration = Duration::from_secs(300);

/// A setting that shows in what nodes read.
const BEFORE: &str = "registry.example.com/pause:before";
const AFTER: &str = "registry.example.com/pause:after";

/// A cluster, and what is needed to install into it.
pub struct Lifecycle<'a> {
    pub cluster: &'a Cluster,
    /// The folder of the images' archives.
    pub images: &'a Path,
    pub progress: Progress,
}

impl Lifecycle<'_> {
    /// Plays it.
    ///
    /// # Errors
    /// What is not as it should be.
    pub async fn play(&self) -> Result<()> {
        images::import(self.images, self.cluster).await?;
        self.progress.step("the node has our images");
        let client = self.cluster.control_plane.admin()?;
        self.cluster
            .control_plane
            .install_machine_deployment_crd()
            .await?;
        let before = objects::all(self.cluster).await?;
        let release = Release::new(&self.cluster.control_plane, NAME, NAME).await?;

        let notes = release.install(&values(BEFORE, 1)).await?;
        ensure!(
            !notes.trim().is_empty(),
            "the chart says nothing to who has installed it"
        );
        self.progress.step("installed: every pod is ready");

        let pool = Pool::create(&client, "pool", PROFILE).await?;
        self.has(&client, &pool, BEFORE).await?;
        ensure!(
            pool.user_data().await?.starts_with("#cloud-config"),
            "a machine would not boot with this"
        );
        self.progress.step("a MachineDeployment is published");

        let same = pods::alive(&client, NAME).await?;
        release.upgrade(&values(AFTER, 1)).await?;
        self.has(&client, &pool, AFTER).await?;
        self.progress
            .step("settings changed by helm upgrade are in new machines' data");
        release.rollback(1).await?;
        self.has(&client, &pool, BEFORE).await?;
        let now = pods::alive(&client, NAME).await?;
        ensure!(now == same, "pods were restarted: {same:?}, now {now:?}");
        self.progress
            .step("helm rollback takes them back; no pod was restarted for either");
        pool.delete().await?;
        self.nothing_of_pools(&client).await?;

        self.scale(&client, &release).await?;
        self.uninstall(&client, &release, &before).await
    }

    /// Waits until the node that a pool's new machine becomes has read `text`.
    async fn has(&self, client: &Client, pool: &Pool, text: &str) -> Result<()> {
        let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        wait_for(
            &format!("{text} in the provisioning document"),
            DEADLINE,
            async || {
                let published = pool
                    .published(client, NAME)
                    .await?
                    .status
                    .and_then(|status| status.published);
                let secret = secrets
                    .get(&published.context("published")?.provisioning_secret)
                    .await?;
                check(provisioning::document(secret)?.contains(text))
            },
        )
        .await
    }

    /// Everything of pools that are deleted goes.
    async fn nothing_of_pools(&self, client: &Client) -> Result<()> {
        let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        wait_for("what was made for pools to go", DEADLINE, async || {
            let left = secrets
                .list(&kube::api::ListParams::default().labels(names::POOL))
                .await?;
            check(left.items.is_empty())
        })
        .await
    }

    /// Each Deployment gets three replicas, all of which are replaced, and then one. Pools are published meanwhile.
    async fn scale(&self, client: &Client, release: &Release) -> Result<()> {
        let profile = fixtures::profile(NAME, TINY, "v1.0.0", "text\n");
        installation::apply(&self.cluster.control_plane, &[profile]).await?;
        let mut pool = Pool::create(client, "scaled", TINY).await?;
        for service in Service::ALL {
            let mut three = values(BEFORE, 1);
            replicas(&mut three, service, 3)?;
            release.upgrade(&three).await?;
            pool.change().await?;
            self.restart(service).await?;
            pool.published(client, NAME).await?;
            release.upgrade(&values(BEFORE, 1)).await?;
            pool.change().await?;
            pool.published(client, NAME).await?;
            self.progress.step(&format!(
                "{}: three replicas, all of them restarted, one replica again",
                service.name()
            ));
        }
        let pods = pods::alive(client, NAME).await?;
        ensure!(
            pods.values().all(|restarts| *restarts == 0),
            "containers ended by themselves: {pods:?}"
        );
        pool.delete().await?;
        self.nothing_of_pools(client).await
    }

    async fn restart(&self, service: Service) -> Result<()> {
        let deployment = format!("deployment/{NAME}-{}", service.name());
        self.cluster
            .kubectl(&["rollout", "restart", "--namespace", NAME, &deployment])
            .await?;
        let status = [
            "rollout",
            "status",
            "--namespace",
            NAME,
            &deployment,
            "--timeout=600s",
        ];
        self.cluster.kubectl(&status).await.map(drop)
    }

    /// It hangs on nothing, takes away what it should, and leaves what existing machines need.
    async fn uninstall(
        &self,
        client: &Client,
        release: &Release,
        before: &BTreeSet<objects::Object>,
    ) -> Result<()> {
        let pool = Pool::create(client, "survivor", TINY).await?;
        pool.published(client, NAME).await?;
        let machine = fixtures::parse(pool.user_data().await?)?;
        release.uninstall().await?;
        wait_for(
            "what the release has to take with it to be gone",
            DEADLINE,
            async || {
                let now = objects::all(self.cluster).await?;
                let left: Vec<_> = now
                    .difference(before)
                    .filter(|(kind, _, name)| !(kind == "MachineDeployment" && *name == pool.name()))
                    .filter(|object| !objects::may_stay(object, NAME))
                    .collect();
                ensure!(left.is_empty(), "still there: {left:?}");
                Ok(Some(()))
            },
        )
        .await?;
        // A machine that boots now finds what its bootstrap was made for.
        let as_machine = self.cluster.control_plane.client(&machine.api_token)?;
        let secrets = Api::<Secret>::namespaced(as_machine, CLOUD_INIT_SETTINGS);
        let document = secrets
            .get(&machine.provisioning_secret)
            .await
            .context("as a booting machine")?;
        let document = provisioning::document(document)?;
        ensure!(
            osm_api::digest::sha256_hex(document.as_bytes()) == machine.provisioning_digest,
            "it is another document"
        );
        self.progress
            .step("helm uninstall leaves definitions, and what existing machines need");
        pool.delete().await?;
        let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
        namespaces.delete(NAME, &DeleteParams::default()).await?;
        wait_for("the namespace to be gone", DEADLINE, async || {
            check(namespaces.get_opt(NAME).await?.is_none())
        })
        .await?;
        self.progress
            .step("nothing hangs: MachineDeployment and namespace are deleted");
        Ok(())
    }

    /// What pods and events tell, for who has to find out what went wrong.
    pub async fn explain(&self) -> String {
        let pods = ["get", "pods", "--all-namespaces", "--output=wide"];
        let events = [
            "get",
            "events",
            "--all-namespaces",
            "--sort-by=.lastTimestamp",
            "--field-selector=type=Warning",
        ];
        let mut text = String::new();
        for (title, arguments) in [("pods", &pods[..]), ("events", &events[..])] {
            let said = self
                .cluster
                .kubectl(arguments)
                .await
                .unwrap_or_else(|error| format!("{error:#}\n"));
            let lines: Vec<&str> = said.lines().collect();
            let last = lines.get(lines.len().saturating_sub(30)..).unwrap_or_default();
            text += &format!("== {title}\n{}\n", last.join("\n"));
        }
        let namespaces = self.cluster.kubectl(&[
            "get",
            "pods",
            "--all-namespaces",
            "--selector",
            OURS,
            "--no-headers",
            "--output=custom-columns=N:.metadata.namespace,P:.metadata.name",
        ]);
        for line in namespaces.await.unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            let (Some(namespace), Some(pod)) = (words.next(), words.next()) else {
                continue;
            };
            for previous in ["--previous=true", "--previous=false"] {
                if let Ok(log) = self
                    .cluster
                    .kubectl(&["logs", "--namespace", namespace, pod, previous, "--tail=15"])
                    .await
                {
                    text += &format!("== log of {pod}, {previous}\n{log}\n");
                }
            }
        }
        text
    }
}

/// The chart's values, with a setting to be seen on nodes, and replicas.
fn values(pause_image: &str, replicas: u32) -> Value {
    let replicas = json!({"replicas": replicas});
    let mut values = json!({"settings": {"pauseImage": pause_image}});
    if let Some(fields) = values.as_object_mut() {
        fields.extend(Service::ALL.map(|service| (service.values_key().to_owned(), replicas.clone())));
    }
    values
}

fn replicas(values: &mut Value, service: Service, replicas: u32) -> Result<()> {
    *values
        .get_mut(service.values_key())
        .and_then(|values| values.get_mut("replicas"))
        .context("replicas")? = json!(replicas);
    Ok(())
}
