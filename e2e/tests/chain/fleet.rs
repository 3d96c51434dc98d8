//! One release in a seed serves user clusters: each is registered, loses its API server, gets another
//! kubeconfig and is removed, and no other one notices.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::condition::{PUBLISHED, RENDERED};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBECONFIG_KEY, WORKER_CLUSTER as NAME, worker_kubeconfig};
use osm_api::profile::OperatingSystemProfile;
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_api::worker_cluster::{self, WorkerCluster};
use osm_api::{MachineDeployment, Reason, condition};
use osm_testkit::installation::{self, IDENTITIES, Installed};
use osm_testkit::{ControlPlane, Options, check, machine_controller, provisioning, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, NAMESPACE, World, machine_deployment, parse, profile};

/// Those that serve clusters.
pub const SERVICES: [Service; 3] = [
    Service::OscController,
    Service::SecretSyncer,
    Service::CsrApprover,
];

/// Namespace of the records of csr-approver in the user clusters.
pub const IN_WORKER: &str = "osm-worker";

pub fn release() -> Installation {
    Installation {
        id: NAMESPACE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        fleet: true,
        ..Installation::default()
    }
}

pub struct Fleet {
    pub seed: ControlPlane,
    pub installed: Installed,
}

impl Fleet {
    pub async fn start() -> Result<Self> {
        let fleet = Self::without_services(Options::default(), release()).await?;
        let settings = installation::settings(&release(), "defaultProfiles: {enabled: false}");
        installation::apply(&fleet.seed, &[settings]).await?;
        fleet.with_services().await
    }

    pub async fn without_services(options: Options, release: Installation) -> Result<Self> {
        let seed = ControlPlane::start(options).await?;
        let installed = Installed::install(&seed, release, &installation::binaries()?).await?;
        installation::apply(&seed, &[profile("osp-tiny", "v0.1.0", "one\n")]).await?;
        Ok(Self { seed, installed })
    }

    /// Starts the services, and waits until the profile is accepted.
    pub async fn with_services(mut self) -> Result<Self> {
        self.installed.start_all().await?;
        let profiles: Api<OperatingSystemProfile> = Api::namespaced(self.seed.admin()?, NAMESPACE);
        wait_for("the profile to be accepted", DEADLINE, async || {
            let status = profiles.get("osp-tiny").await?.status.unwrap_or_default();
            check(status.accepted.is_some())
        })
        .await?;
        Ok(self)
    }

    /// Writes the kubeconfigs of a cluster, and creates its WorkerCluster.
    pub async fn register(&self, namespace: &str, plane: &ControlPlane, spec: Value) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        installation::apply(&self.seed, &[object]).await?;
        for service in SERVICES {
            self.write_kubeconfig(namespace, service, &kubeconfig(plane, service).await?)
                .await?;
        }
        self.write_registration(namespace, spec).await
    }

    /// The same with one kubeconfig for all services.
    pub async fn register_by(&self, namespace: &str, kubeconfig: &str, spec: Value) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        installation::apply(&self.seed, &[object]).await?;
        for service in SERVICES {
            self.write_kubeconfig(namespace, service, kubeconfig).await?;
        }
        self.write_registration(namespace, spec).await
    }

    pub async fn write_registration(&self, namespace: &str, spec: Value) -> Result<()> {
        let object = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": {"name": NAME, "namespace": namespace}, "spec": spec});
        let text = object.to_string();
        installation::apply(&self.seed, &[object])
            .await
            .map_err(|e| e.context(text))
    }

    pub async fn write_kubeconfig(&self, namespace: &str, service: Service, text: &str) -> Result<()> {
        let metadata = json!({"name": worker_kubeconfig(service.name()), "namespace": namespace});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": {KUBECONFIG_KEY: text}});
        installation::apply(&self.seed, &[secret]).await
    }

    /// The kubeconfig that a service has of a cluster.
    pub async fn kubeconfig(&self, namespace: &str, service: Service) -> Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.seed.admin()?, namespace);
        let secret = secrets.get(&worker_kubeconfig(service.name())).await?;
        let text = secret.data.unwrap_or_default().remove(KUBECONFIG_KEY);
        Ok(String::from_utf8(text.context("a kubeconfig")?.0)?)
    }

    fn registrations(&self, namespace: &str) -> Result<Api<WorkerCluster>> {
        Ok(Api::namespaced(self.seed.admin()?, namespace))
    }

    fn configs(&self, namespace: &str) -> Result<Api<OperatingSystemConfig>> {
        Ok(Api::namespaced(self.seed.admin()?, namespace))
    }

    /// Waits until the condition of this service has this reason; gives its message.
    pub async fn says(&self, namespace: &str, service: Service, reason: Reason) -> Result<String> {
        self.says_that(namespace, service, reason, "").await
    }

    /// The same, with a message that contains this.
    pub async fn says_that(
        &self,
        namespace: &str,
        service: Service,
        reason: Reason,
        text: &str,
    ) -> Result<String> {
        says(&self.registrations(namespace)?, service, reason, text)
            .await
            .map_err(|error| error.context(self.installed.logs()))
    }

    pub async fn is_served(&self, namespace: &str) -> Result<()> {
        for service in SERVICES {
            self.says(namespace, service, Reason::Serving).await?;
        }
        Ok(())
    }

    /// Waits until a machine of this pool can boot, and fetch its document.
    pub async fn boots(&self, namespace: &str, plane: &ControlPlane, pool: &str) -> Result<Secret> {
        let secrets: Api<Secret> = Api::namespaced(plane.admin()?, CLOUD_INIT_SETTINGS);
        let what = format!("user data of {pool} in the cluster of {namespace}");
        let found = wait_for(&what, DEADLINE, async || {
            let secret = secrets
                .get(&names::bootstrap_secret_name(pool, "kube-system"))
                .await?;
            let text = machine_controller::user_data(&secret, "1", &format!("{pool}-machine"))?;
            provisioning::fetch(plane, &parse(text)?).await?;
            Ok(Some(secret))
        });
        found.await.map_err(|error| error.context(self.installed.logs()))
    }
}

impl World {
    /// The namespace of the release is that of the user cluster as well, so that everything has the same place as
    /// in one cluster.
    pub fn of_fleet(fleet: Fleet, plane: ControlPlane) -> Result<Self> {
        Ok(Self {
            client: plane.admin()?,
            managed: fleet.seed.admin()?,
            plane,
            seed: Some(fleet.seed),
            installed: fleet.installed,
        })
    }
}

/// As [`Fleet::says_that`], of the WorkerCluster in the namespace of this API.
pub async fn says(
    clusters: &Api<WorkerCluster>,
    service: Service,
    reason: Reason,
    text: &str,
) -> Result<String> {
    let type_ = worker_cluster::condition(service).expect("a service of clusters");
    wait_for(&format!("{type_} to be {reason}"), DEADLINE, async || {
        let status = clusters.get(NAME).await?.status.unwrap_or_default();
        let found = condition::find(&status.conditions, type_).cloned();
        ensure!(
            found
                .as_ref()
                .is_some_and(|found| reason == *found.reason && found.message.contains(text)),
            "{found:?}"
        );
        Ok(found.map(|found| found.message))
    })
    .await
}

/// A user cluster with what the chart installs there.
pub async fn user_cluster() -> Result<ControlPlane> {
    user_cluster_with(Options::default(), &in_worker()).await
}

pub async fn user_cluster_with(options: Options, installation: &Installation) -> Result<ControlPlane> {
    let plane = ControlPlane::start(options).await?;
    installation::prepare(&plane, installation, &[ClusterKind::Worker]).await?;
    Ok(plane)
}

/// The release as a user cluster has it.
pub fn in_worker() -> Installation {
    Installation {
        namespace: IN_WORKER.to_owned(),
        ..release()
    }
}

async fn kubeconfig(plane: &ControlPlane, service: Service) -> Result<String> {
    Ok(std::fs::read_to_string(
        plane.identity(IDENTITIES, service.name()).await?,
    )?)
}

/// A pool whose machines are to be made.
pub async fn pool(plane: &ControlPlane, name: &str) -> Result<()> {
    plane
        .apply_yaml(&machine_deployment(name, "osp-tiny").to_string())
        .await?;
    let pools: Api<MachineDeployment> = Api::namespaced(plane.admin()?, "kube-system");
    let patch = json!({"metadata": {"annotations": {names::REVISION: "1"}}});
    pools
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// What is published in a cluster, with the versions of the Secrets.
async fn published(plane: &ControlPlane) -> Result<Vec<String>> {
    let secrets: Api<Secret> = Api::namespaced(plane.admin()?, CLOUD_INIT_SETTINGS);
    let secrets = secrets.list(&ListParams::default()).await?;
    let line = |secret: &Secret| {
        let version = secret.resource_version().unwrap_or_default();
        format!("{} {version}", secret.name_any())
    };
    Ok(secrets.iter().map(line).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_added_replaced_and_removed_and_no_other_notices() -> Result<()> {
    let (mut fleet, a, b) = tokio::try_join!(Fleet::start(), user_cluster(), user_cluster())?;
    let spec = json!({"workerNamespace": IN_WORKER});
    fleet.register("cluster-a", &a, spec.clone()).await?;
    let own = json!({"workerNamespace": IN_WORKER, "settings": {"pauseImage": "registry.example/pause:1"}});
    fleet.register("cluster-b", &b, own).await?;
    // Both have a pool of this name.
    pool(&a, "p").await?;
    pool(&b, "p").await?;
    fleet.is_served("cluster-a").await?;
    fleet.is_served("cluster-b").await?;
    fleet.boots("cluster-a", &a, "p").await?;
    fleet.boots("cluster-b", &b, "p").await?;
    let config = names::config_name("p", "kube-system");
    let digest = async |configs: Api<OperatingSystemConfig>| -> Result<Option<String>> {
        let status = configs.get(&config).await?.status.unwrap_or_default();
        Ok(status.rendered.unwrap_or_default().settings_digest)
    };
    let [of_a, of_b] = [fleet.configs("cluster-a")?, fleet.configs("cluster-b")?];
    assert_ne!(digest(of_a).await?, digest(of_b).await?);

    // A cluster of which nobody knows a kubeconfig yet, and one that is registered twice.
    let empty = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster-c"}});
    installation::apply(&fleet.seed, &[empty]).await?;
    fleet.write_registration("cluster-c", spec.clone()).await?;
    let message = fleet
        .says("cluster-c", Service::OscController, Reason::KubeconfigMissing)
        .await?;
    assert!(message.contains("osmctl kubeconfigs -n cluster-c"), "{message}");
    for service in SERVICES {
        fleet
            .write_kubeconfig("cluster-c", service, &kubeconfig(&a, service).await?)
            .await?;
        let message = fleet.says("cluster-c", service, Reason::DuplicateCluster).await?;
        assert!(message.contains("namespace cluster-a is older"), "{message}");
    }

    // Another kubeconfig is used, and one that isn't valid is not.
    let service = Service::SecretSyncer;
    fleet.write_kubeconfig("cluster-a", service, "hunter2: [").await?;
    let message = fleet
        .says("cluster-a", service, Reason::KubeconfigInvalid)
        .await?;
    assert!(
        message.contains("stays in use") && !message.contains("hunter2"),
        "{message}"
    );
    pool(&a, "q").await?;
    fleet.boots("cluster-a", &a, "q").await?;
    leads_to_another_cluster(&mut fleet, &a, &b).await?;

    // Settings that are wrong hold up nothing that is published.
    let before = published(&a).await?;
    let wrong = json!({"workerNamespace": IN_WORKER, "settings": {"pauseimage": "x"}});
    fleet.write_registration("cluster-a", wrong).await?;
    let message = fleet
        .says("cluster-a", Service::OscController, Reason::SettingsInvalid)
        .await?;
    assert!(
        message.contains("cluster-a/worker, spec.settings: pauseimage: unknown field"),
        "{message}"
    );
    let right = json!({"workerNamespace": IN_WORKER, "settings": {}});
    fleet.write_registration("cluster-a", right).await?;
    fleet.is_served("cluster-a").await?;
    assert_eq!(published(&a).await?, before);

    a_profile_is_tried_in_one_cluster(&fleet).await?;

    // An API server is away. The other cluster does not notice, and it is served again once it is back.
    b.stop_apiserver().await?;
    pool(&a, "r").await?;
    fleet.boots("cluster-a", &a, "r").await?;
    for service in SERVICES {
        fleet.says("cluster-b", service, Reason::Unreachable).await?;
    }
    b.start_apiserver().await?;
    fleet.is_served("cluster-b").await?;
    pool(&b, "q").await?;
    fleet.boots("cluster-b", &b, "q").await?;

    // What is no longer registered is no longer served, and nothing of it is deleted.
    let before = published(&b).await?;
    fleet
        .registrations("cluster-b")?
        .delete(NAME, &DeleteParams::default())
        .await?;
    wait_for("cluster-b to be served no longer", DEADLINE, async || {
        check(fleet.installed.logs().contains("no longer served"))
    })
    .await?;
    pool(&b, "late").await?;
    pool(&a, "s").await?;
    fleet.boots("cluster-a", &a, "s").await?;
    assert_eq!(published(&b).await?, before);
    let configs = fleet.configs("cluster-b")?.list(&ListParams::default()).await?;
    assert_eq!(configs.items.len(), 2, "p and q");
    is_of_another_cluster_now(&fleet, &a, &b).await?;
    another_seed_takes_nothing_away(fleet, &a).await
}

/// A pool gets another profile than it asks for, and then its own again.
async fn a_profile_is_tried_in_one_cluster(fleet: &Fleet) -> Result<()> {
    let next = "osp-next";
    installation::apply(&fleet.seed, &[profile(next, "v0.2.0", "two\n")]).await?;
    let renders = async |namespace: &str, name: &str| -> Result<()> {
        let configs = fleet.configs(namespace)?;
        let what = format!("{name} to be rendered in {namespace}");
        wait_for(&what, DEADLINE, async || {
            let status = configs.get(&names::config_name("p", "kube-system")).await?.status;
            let rendered = status.and_then(|status| status.rendered?.profile);
            check(rendered.is_some_and(|profile| profile.name == name))
        })
        .await
    };
    let aliases = json!({"workerNamespace": IN_WORKER, "settings": {}, "profileAliases": {"osp-tiny": next}});
    fleet.write_registration("cluster-a", aliases).await?;
    renders("cluster-a", next).await?;
    renders("cluster-b", "osp-tiny").await?;
    let without = json!({"workerNamespace": IN_WORKER, "settings": {}});
    fleet.write_registration("cluster-a", without).await?;
    renders("cluster-a", "osp-tiny").await?;
    fleet.is_served("cluster-a").await
}

/// A service that runs, and one that is started so. Neither publishes or deletes anything, in either cluster. One
/// pool is really gone meanwhile.
async fn leads_to_another_cluster(fleet: &mut Fleet, a: &ControlPlane, b: &ControlPlane) -> Result<()> {
    let (runs, starts) = (Service::SecretSyncer, Service::OscController);
    let before = [published(a).await?, published(b).await?];
    fleet
        .write_kubeconfig("cluster-a", runs, &kubeconfig(b, runs).await?)
        .await?;
    fleet.says("cluster-a", runs, Reason::ClusterChanged).await?;
    fleet.installed.terminate(starts, DEADLINE).await?;
    fleet
        .write_kubeconfig("cluster-a", starts, &kubeconfig(b, starts).await?)
        .await?;
    let pools: Api<MachineDeployment> = Api::namespaced(a.admin()?, "kube-system");
    pools.delete("q", &DeleteParams::default()).await?;
    fleet.installed.start(starts).await?;
    let message = fleet.says("cluster-a", starts, Reason::ClusterChanged).await?;
    assert!(message.contains("delete the WorkerCluster"), "{message}");
    assert_eq!([published(a).await?, published(b).await?], before);
    let configs = fleet.configs("cluster-a")?;
    let all = configs.list_metadata(&ListParams::default()).await?;
    assert_eq!(all.items.len(), 2, "p and q");

    // Corrected: the pool that is gone is retired now.
    for service in [runs, starts] {
        fleet
            .write_kubeconfig("cluster-a", service, &kubeconfig(a, service).await?)
            .await?;
    }
    fleet.is_served("cluster-a").await?;
    wait_for("q to be undone", DEADLINE, async || {
        let config = configs.get_opt(&names::config_name("q", "kube-system")).await?;
        let left = published(a).await?;
        check(config.is_none() && !left.iter().any(|name| name.starts_with("q-")))
    })
    .await
}

/// The WorkerCluster is created again for another cluster, whose pools have the names of those before. The configs
/// are still those of the cluster before, so nothing is rendered, published or deleted.
async fn is_of_another_cluster_now(fleet: &Fleet, a: &ControlPlane, b: &ControlPlane) -> Result<()> {
    let before = [published(a).await?, published(b).await?];
    fleet
        .registrations("cluster-a")?
        .delete(NAME, &DeleteParams::default())
        .await?;
    fleet
        .register("cluster-a", b, json!({"workerNamespace": IN_WORKER}))
        .await?;
    for service in [Service::OscController, Service::SecretSyncer] {
        let message = fleet.says("cluster-a", service, Reason::ClusterChanged).await?;
        assert!(message.contains("another cluster: "), "{message}");
    }
    let configs = fleet.configs("cluster-a")?;
    for type_ in [RENDERED, PUBLISHED] {
        wait_for(&format!("{type_} of p to be false"), DEADLINE, async || {
            let status = configs.get(&names::config_name("p", "kube-system")).await?.status;
            let conditions = status.unwrap_or_default().conditions;
            let found = condition::find(&conditions, type_).context(type_)?;
            check(found.reason == "ClusterChanged" && found.message.contains("Correct the kubeconfig"))
        })
        .await?;
    }
    let late = configs
        .get_opt(&names::config_name("late", "kube-system"))
        .await?;
    assert!(late.is_none(), "rendered beside those of another cluster");
    assert_eq!([published(a).await?, published(b).await?], before);
    Ok(())
}

/// It has no configs, and what is published is not taken for orphaned.
async fn another_seed_takes_nothing_away(fleet: Fleet, a: &ControlPlane) -> Result<()> {
    drop(fleet);
    let before = published(a).await?;
    let mut other = Fleet::without_services(Options::default(), release()).await?;
    other
        .register("cluster-a", a, json!({"workerNamespace": IN_WORKER}))
        .await?;
    other.installed.start(Service::SecretSyncer).await?;
    let message = other
        .says("cluster-a", Service::SecretSyncer, Reason::ClusterChanged)
        .await?;
    assert!(
        message.contains("published through another management cluster"),
        "{message}"
    );
    assert_eq!(published(a).await?, before);
    Ok(())
}
