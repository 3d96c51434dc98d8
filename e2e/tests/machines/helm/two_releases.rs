//! Two releases in two namespaces, each for a separate worker cluster.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::rbac::{ClusterKind, Service};
use serde_json::json;

use super::lifecycle::{Lifecycle, NAME, values};
use super::other_cluster::OtherCluster;
use super::pool::{Pool, Served};
use super::release::Release;

/// Namespaces of the releases, which have the same name.
const TENANTS: [&str; 2] = ["tenant-a", "tenant-b"];

const PROFILE: &str = "osp-ubuntu";

/// A release with its worker cluster.
struct Tenant {
    namespace: &'static str,
    worker: OtherCluster,
    management: Client,
    release: Release,
}

/// Both are installed, and neither notices what happens to the other.
pub async fn play(lifecycle: &Lifecycle<'_>) -> Result<()> {
    let [first, second] = TENANTS;
    let (first, second) = tokio::try_join!(
        Tenant::install(lifecycle, first),
        Tenant::install(lifecycle, second)
    )?;
    lifecycle
        .progress
        .step("two releases for two worker clusters: every pod is ready");

    // The same name: what is made of it differs in the cluster's uid alone.
    let mut tasks = tokio::task::JoinSet::new();
    let mut pools = Vec::new();
    for tenant in [&first, &second] {
        let client = tenant.worker.plane.admin()?;
        let pool = Pool::create(&client, "pool", PROFILE).await?;
        pool.served(&mut Served::watch(client.clone(), &mut tasks))
            .await?;
        pool.published(&tenant.management, tenant.namespace).await?;
        pools.push(pool);
    }
    let (mut second_pool, mut first_pool) = (pools.pop().context("pool")?, pools.pop().context("pool")?);
    first_pool.differs_from(&second_pool).await?;
    let (of_first, of_second) = (first.objects().await?, second.objects().await?);
    ensure!(
        of_first.keys().all(|uid| !of_second.contains_key(uid)),
        "they share objects"
    );
    lifecycle
        .progress
        .step("a MachineDeployment of the same name in each is published");

    first_pool.change().await?;
    first_pool.published(&first.management, first.namespace).await?;
    first_pool.delete().await?;
    first.release.uninstall().await?;
    let now = second.objects().await?;
    ensure!(
        now == of_second,
        "what happens to one release changes objects of the other: {of_second:?}, now {now:?}"
    );
    second_pool.change().await?;
    second_pool
        .published(&second.management, second.namespace)
        .await?;
    second.release.uninstall().await?;
    lifecycle
        .progress
        .step("one is changed, emptied and uninstalled; the other does not notice, and works on");
    Ok(())
}

impl Tenant {
    /// The worker cluster's side first, whose ServiceAccounts the services then come as.
    async fn install(lifecycle: &Lifecycle<'_>, namespace: &'static str) -> Result<Self> {
        let worker = OtherCluster::start().await?;
        let there = Release::new(&worker.plane, NAME, namespace).await?;
        there.install(&json!({"topology": "worker"})).await?;

        let management = lifecycle.cluster.control_plane.admin()?;
        let services = Service::ALL
            .into_iter()
            .filter(|service| service.clusters().contains(&ClusterKind::Worker));
        let kubeconfigs = worker
            .kubeconfigs(services, namespace, lifecycle, namespace)
            .await?;
        let mut values = values(&format!("registry.example.com/{namespace}/pause:1"), 1);
        let fields = values.as_object_mut().context("values")?;
        fields.insert("topology".to_owned(), json!("management"));
        // The release before has kept the definitions, which both use.
        fields.insert("crds".to_owned(), json!({"enabled": false}));
        fields.insert("workerCluster".to_owned(), json!({"kubeconfigs": kubeconfigs}));
        let release = Release::new(&lifecycle.cluster.control_plane, NAME, namespace).await?;
        release.install(&values).await?;
        Ok(Self {
            namespace,
            worker,
            management,
            release,
        })
    }

    /// uid → kind, name and resourceVersion of all that there is for its pools, in both clusters.
    async fn objects(&self) -> Result<BTreeMap<String, String>> {
        let client = self.worker.plane.admin()?;
        let mut all = BTreeMap::new();
        let mut add = |kind: &str, object: &dyn Fn() -> [Option<String>; 3]| {
            let [uid, name, version] = object().map(Option::unwrap_or_default);
            all.insert(uid, format!("{kind} {name} {version}"));
        };
        let every = ListParams::default();
        let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        for object in secrets.list(&every).await? {
            add("Secret", &|| {
                [object.uid(), Some(object.name_any()), object.resource_version()]
            });
        }
        let accounts = Api::<ServiceAccount>::namespaced(client, CLOUD_INIT_SETTINGS);
        for object in accounts.list(&every).await? {
            add("ServiceAccount", &|| {
                [object.uid(), Some(object.name_any()), object.resource_version()]
            });
        }
        let configs = Api::<OperatingSystemConfig>::namespaced(self.management.clone(), self.namespace);
        for object in configs.list(&every).await? {
            add("OperatingSystemConfig", &|| {
                [object.uid(), Some(object.name_any()), object.resource_version()]
            });
        }
        Ok(all)
    }
}
