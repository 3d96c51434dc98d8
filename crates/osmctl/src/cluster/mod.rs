//! Reads a cluster into a [`Snapshot`]. This module alone does I/O with an API server. All of it only reads,
//! except `grant`.
//!
//! ```text
//! failure    what a failed request means, and the next step
//! connect    flags → clients
//! list       all objects of a kind, or one
//! grant      what `kubeconfigs` and `fleet` write, such as tokens and Secrets with kubeconfigs
//! objects    objects as the API server sent them, for `migrate` alone
//! ```

mod connect;
mod failure;
mod grant;
mod list;
mod objects;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Resource, ResourceExt};
use osm_api::cluster_endpoint::Discovered;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, GO_ACCOUNT, KUBE_SYSTEM, SETTINGS_CONFIG_MAP, SETTINGS_KEY};
use osm_api::pool_settings::PoolSettings;
use osm_api::worker_cluster::WorkerCluster;
use osm_api::{Machine, MachineDeployment, MachineSet, OperatingSystemProfile, pool};
use serde::de::DeserializeOwned;

pub use self::failure::Failure;
pub use self::grant::{Clusters, MANAGER, Seed};
use self::list::Listed;
pub use self::list::{List, Reader};
pub use self::objects::{Object, Target};
use crate::input::SettingsMap;
use crate::pool_nodes::{self, PoolNode};
use crate::snapshot::{FleetCluster, Part, Service, Snapshot, Unread};

/// Label of everything that belongs to the services, in the chart and in the manifests.
pub const PART_OF: &str = "app.kubernetes.io/part-of=operating-system-manager";

/// Clusters of a fleet that are worked on at the same time: one that does not answer takes as long as a time
/// limit.
pub const AT_ONCE: usize = 16;

/// Flags that select the cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct Flags {
    /// Kubeconfig file [default: $KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of the installation
    #[arg(short, long, env = "OSM_NAMESPACE", default_value = KUBE_SYSTEM)]
    namespace: String,
    /// ConfigMap with the settings of the installation
    #[arg(long, value_name = "NAME", default_value = SETTINGS_CONFIG_MAP)]
    settings_config_map: String,
    /// Kubeconfig file of the worker cluster, if the MachineDeployments have another cluster [default:
    /// --kubeconfig]
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: Option<PathBuf>,
    /// Context of the worker cluster
    #[arg(long, value_name = "NAME")]
    worker_context: Option<String>,
    /// Time limit of a request, such as 10s or 1m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = timeout)]
    request_timeout: Duration,
}

impl Flags {
    /// The same clusters, and another namespace.
    pub fn within(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// Namespace of the installation.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// ConfigMap with the settings of the installation.
    pub fn settings_config_map(&self) -> &str {
        &self.settings_config_map
    }

    /// Whether the MachineDeployments are in another cluster.
    pub fn has_worker_cluster(&self) -> bool {
        self.worker_kubeconfig.is_some() || self.worker_context.is_some()
    }
}

/// A duration of a flag, which is not zero.
pub fn timeout(text: &str) -> Result<Duration, String> {
    let wrong = || "is not a duration; use a form such as 10s or 1m".to_owned();
    let duration: SignedDuration = text.parse().map_err(|_| wrong())?;
    match Duration::try_from(duration) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(wrong()),
    }
}

/// What a command needs besides MachineDeployments and configs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    pub profiles: bool,
    pub custom_profiles: bool,
    /// Settings of the installation and of pools.
    pub settings: bool,
    /// Address and CA of the API server, as nodes find it.
    pub endpoint: bool,
    pub events: bool,
    /// Which cluster has the MachineDeployments.
    pub identity: bool,
    /// Nodes of MachineDeployments.
    pub nodes: bool,
    /// Deployments of the services, and the ServiceAccount that the upstream OSM leaves behind.
    pub services: bool,
}

impl Needs {
    /// What `osmctl status` shows.
    pub const STATUS: Self = Self {
        profiles: true,
        custom_profiles: false,
        settings: true,
        endpoint: false,
        events: true,
        identity: true,
        nodes: true,
        services: true,
    };
}

/// Reads the clusters that the flags select.
///
/// # Errors
/// A kubeconfig that is missing or invalid; MachineDeployments or configs that can't be listed. The snapshot
/// names everything else that can't be read.
pub fn read(flags: &Flags, needs: Needs) -> Result<Snapshot> {
    run(async { Readers::connect(flags).await?.read(flags, needs).await })
}

/// Runs what needs a cluster. Only such commands pay for a runtime.
///
/// # Errors
/// Those of `work`.
pub fn run<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client of the API server")?;
    runtime.block_on(work)
}

/// Connections to the clusters that the flags select.
pub struct Readers {
    pub management: Reader,
    pub worker: Reader,
    /// CA of the worker cluster in the kubeconfig.
    ca: Option<String>,
    /// The management cluster.
    pub target: Target,
}

impl Readers {
    /// # Errors
    /// A kubeconfig that is missing or invalid.
    pub async fn connect(flags: &Flags) -> Result<Self> {
        let management = connect::management(flags).await?;
        // `None`: it is the management cluster.
        let worker = connect::worker(flags).await?;
        let worker = worker.as_ref().unwrap_or(&management);
        let reader = |connection| Reader::new(connection, flags.request_timeout);
        Ok(Self {
            management: reader(&management),
            worker: reader(worker),
            ca: worker.ca.clone(),
            target: Target::new(&management, flags),
        })
    }

    /// The worker cluster alone.
    pub fn only_worker(self) -> Self {
        Self {
            management: self.worker.clone(),
            ..self
        }
    }

    /// # Errors
    /// MachineDeployments or configs that can't be listed. The snapshot names everything else that can't be
    /// read.
    pub async fn read(&self, flags: &Flags, needs: Needs) -> Result<Snapshot> {
        let mut gatherer = Gatherer {
            from: self,
            snapshot: Snapshot {
                namespace: flags.namespace.clone(),
                settings_config_map: flags.settings_config_map.clone(),
                own_ca: self.ca.clone(),
                ..Snapshot::default()
            },
        };
        gatherer.machine_deployments().await?;
        gatherer.configs().await?;
        gatherer.fleet().await;
        if needs.profiles {
            gatherer.profiles().await;
        }
        if needs.custom_profiles {
            gatherer.custom_profiles().await;
        }
        if needs.settings {
            gatherer.settings().await;
            gatherer.pool_settings().await;
        }
        if needs.endpoint {
            gatherer.endpoint().await;
        }
        if needs.events {
            gatherer.events().await;
        }
        if needs.identity {
            // Without this right, a person sees only that MachineDeployments have other uids.
            gatherer.snapshot.cluster_uid = self.worker.cluster_uid().await.ok().flatten();
        }
        if needs.nodes {
            let found = gatherer.nodes().await;
            match found {
                Ok(nodes) => gatherer.snapshot.nodes = nodes,
                Err(failure) => gatherer.note(Part::Nodes, failure.to_string()),
            }
        }
        if needs.services {
            gatherer.services().await;
            gatherer.go_account().await;
        }
        Ok(gatherer.snapshot)
    }
}

/// Reads one part after the other.
struct Gatherer<'r> {
    from: &'r Readers,
    snapshot: Snapshot,
}

impl Gatherer<'_> {
    async fn machine_deployments(&mut self) -> Result<()> {
        let kind = ApiResource::erase::<MachineDeployment>(&());
        let listed = match self.from.worker.list(&List::everywhere(&kind)).await {
            // A person may have rights in this namespace alone.
            Err(failure) if failure.is_forbidden() => {
                let here = self.from.worker.list(&List::within(&kind, KUBE_SYSTEM)).await;
                match here {
                    Ok(listed) => {
                        self.note(Part::MachineDeployments, failure.to_string());
                        listed
                    }
                    Err(_) => return Err(failure.into()),
                }
            }
            result => result?,
        };
        self.snapshot.machine_deployments = self.kept(Part::MachineDeployments, listed);
        Ok(())
    }

    async fn configs(&mut self) -> Result<()> {
        let kind = ApiResource::erase::<osm_api::OperatingSystemConfig>(&());
        let namespace = self.snapshot.namespace.clone();
        let listed = self
            .from
            .management
            .list(&List::within(&kind, &namespace))
            .await?;
        self.snapshot.configs = self.kept(Part::Configs, listed);
        Ok(())
    }

    /// The release that serves the WorkerCluster of the namespace, if there is one.
    async fn fleet(&mut self) {
        let namespace = self.snapshot.namespace.clone();
        let cluster = self
            .from
            .management
            .get::<WorkerCluster>(&namespace, names::WORKER_CLUSTER);
        let cluster = match cluster.await {
            Ok(Some(cluster)) => cluster,
            Ok(None) => return,
            // Someone who may not read it has an installation that serves one cluster.
            Err(failure) if failure.is_forbidden() || failure.is_not_found() => return,
            Err(failure) => return self.note(Part::Release, failure.to_string()),
        };
        match self.release(&namespace).await {
            Ok(Some(release)) => {
                self.snapshot.fleet = Some(FleetCluster {
                    release,
                    settings: cluster.spec.settings.unwrap_or_default(),
                    profile_aliases: cluster.spec.profile_aliases,
                });
            }
            Ok(None) => self.note(
                Part::Release,
                format!("no release serves WorkerCluster {namespace}/{}; compare its labels with fleet.clusterSelector of the releases", names::WORKER_CLUSTER),
            ),
            Err(failure) => self.note(Part::Release, failure.to_string()),
        }
    }

    /// Namespace of the release whose osc-controller serves the WorkerCluster of `namespace`.
    async fn release(&self, namespace: &str) -> Result<Option<String>, Failure> {
        for (release, selector) in fleets(&self.from.management).await? {
            let kind = ApiResource::erase::<WorkerCluster>(&());
            let served = List::within(&kind, namespace).labels(&selector);
            let served = self.from.management.list::<WorkerCluster>(&served).await?;
            if !served.objects.is_empty() {
                return Ok(Some(release));
            }
        }
        Ok(None)
    }

    /// Those of the installation, and of the namespaces that MachineDeployments name.
    async fn profiles(&mut self) {
        let kind = ApiResource::erase::<OperatingSystemProfile>(&());
        for namespace in self.snapshot.profile_namespaces() {
            match self.from.management.list(&List::within(&kind, &namespace)).await {
                Ok(listed) => {
                    let found = self.kept(Part::Profiles, listed);
                    self.snapshot.profiles.extend(found);
                }
                Err(failure) => self.note(Part::Profiles, failure.to_string()),
            }
        }
    }

    async fn custom_profiles(&mut self) {
        let kind = GroupVersionKind::gvk(names::GROUP, "v1alpha1", "CustomOperatingSystemProfile");
        let kind = ApiResource::from_gvk(&kind);
        let mut result = self.from.management.list(&List::everywhere(&kind)).await;
        if result.as_ref().is_err_and(Failure::is_forbidden) {
            let namespace = self.snapshot.namespace.clone();
            result = self.from.management.list(&List::within(&kind, &namespace)).await;
        }
        match result {
            Ok(listed) => self.snapshot.custom_profiles = self.kept(Part::CustomProfiles, listed),
            // Few clusters have this kind.
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => self.note(Part::CustomProfiles, failure.to_string()),
        }
    }

    async fn settings(&mut self) {
        let (namespace, name) = (self.snapshot.release(), &self.snapshot.settings_config_map);
        match self.from.management.get::<ConfigMap>(namespace, name).await {
            Ok(map) => self.snapshot.settings = map.and_then(document),
            Err(failure) => self.note(Part::Settings, failure.to_string()),
        }
    }

    async fn pool_settings(&mut self) {
        let wanted: BTreeSet<(String, String)> = self
            .snapshot
            .machine_deployments
            .iter()
            .filter_map(|md| {
                let settings = PoolSettings::parse(pool::annotation(md, names::SETTINGS)?).ok()?;
                Some((md.namespace()?, settings.config_map?))
            })
            .collect();
        for (namespace, name) in wanted {
            match self.from.worker.get::<ConfigMap>(&namespace, &name).await {
                Ok(map) => {
                    let map = map.and_then(document).map(|text| SettingsMap {
                        namespace,
                        name,
                        text,
                    });
                    self.snapshot.settings_maps.extend(map);
                }
                Err(failure) => self.note(Part::PoolSettings, failure.to_string()),
            }
        }
    }

    async fn endpoint(&mut self) {
        match self.cluster_info().await {
            Ok(map) => {
                let found = map.as_ref().map(Discovered::from_cluster_info);
                self.snapshot.endpoints.extend(found);
            }
            Err(failure) => self.note(Part::Endpoint, failure.to_string()),
        }
        let kind = ApiResource::erase::<EndpointSlice>(&());
        let slices = List::within(&kind, "default").labels("kubernetes.io/service-name=kubernetes");
        match self.from.worker.list::<EndpointSlice>(&slices).await {
            Ok(listed) => {
                let slices = self.kept(Part::Endpoint, listed);
                let mut found: Vec<Discovered> = slices.iter().map(Discovered::from_endpoint_slice).collect();
                found.sort_unstable();
                self.snapshot.endpoints.extend(found);
            }
            Err(failure) => self.note(Part::Endpoint, failure.to_string()),
        }
    }

    /// People often may get it, and the account of osc-controller may list it.
    async fn cluster_info(&self) -> Result<Option<ConfigMap>, Failure> {
        let (namespace, name) = ("kube-public", "cluster-info");
        match self.from.worker.get(namespace, name).await {
            Err(failure) if failure.is_forbidden() => {
                let kind = ApiResource::erase::<ConfigMap>(&());
                let list = List::within(&kind, namespace).fields(format!("metadata.name={name}"));
                let listed = self.from.worker.list(&list).await.map_err(|_| failure)?;
                Ok(listed.objects.into_iter().next())
            }
            result => result,
        }
    }

    async fn events(&mut self) {
        let kind = ApiResource::erase::<Event>(&());
        let of_pools: BTreeSet<String> = self
            .snapshot
            .machine_deployments
            .iter()
            .filter_map(ResourceExt::namespace)
            .collect();
        for namespace in of_pools {
            let list = List::within(&kind, &namespace).fields("involvedObject.kind=MachineDeployment");
            let result = self.from.worker.list(&list).await;
            self.keep_events(result);
        }
        let mut namespaces = self.snapshot.profile_namespaces();
        namespaces.insert(self.snapshot.namespace.clone());
        for namespace in namespaces {
            for about in [
                osm_api::OperatingSystemConfig::kind(&()),
                OperatingSystemProfile::kind(&()),
                osm_api::CustomOperatingSystemProfile::kind(&()),
            ] {
                let list = List::within(&kind, &namespace).fields(format!("involvedObject.kind={about}"));
                let result = self.from.management.list(&list).await;
                self.keep_events(result);
            }
        }
    }

    async fn nodes(&mut self) -> Result<Vec<PoolNode>, Failure> {
        let sets = self.all_in_worker::<MachineSet>().await?;
        let machines = self.all_in_worker::<Machine>().await?;
        let nodes = self.all_in_worker::<Node>().await?;
        Ok(pool_nodes::of_machines(&machines, &sets, &nodes))
    }

    async fn all_in_worker<K: Resource<DynamicType = ()> + DeserializeOwned>(
        &mut self,
    ) -> Result<Vec<K>, Failure> {
        let kind = ApiResource::erase::<K>(&());
        let listed = self.from.worker.list(&List::everywhere(&kind)).await?;
        Ok(self.kept(Part::Nodes, listed))
    }

    async fn services(&mut self) {
        let kind = ApiResource::erase::<Deployment>(&());
        let list = List::within(&kind, self.snapshot.release()).labels(PART_OF);
        match self.from.management.list::<Deployment>(&list).await {
            Ok(listed) => {
                let deployments = self.kept(Part::Services, listed);
                let arguments = deployments.iter().flat_map(arguments);
                let served = arguments.filter_map(|argument| {
                    let names = argument.strip_prefix("--machine-deployment-namespaces=")?;
                    Some(names.split(',').map(str::to_owned).collect::<Vec<String>>())
                });
                self.snapshot.served_namespaces = served.flatten().filter(|name| !name.is_empty()).collect();
                let mut found: Vec<Service> = deployments.iter().map(service).collect();
                found.sort_by(|a, b| a.name.cmp(&b.name));
                self.snapshot.services = found;
            }
            Err(failure) => self.note(Part::Services, failure.to_string()),
        }
    }

    async fn go_account(&mut self) {
        // Someone without this right sees no hint. They could not delete the account either, so a warning
        // would not help.
        let account = self
            .from
            .worker
            .get::<ServiceAccount>(CLOUD_INIT_SETTINGS, GO_ACCOUNT);
        self.snapshot.has_go_account = matches!(account.await, Ok(Some(_)));
    }

    fn keep_events(&mut self, result: Result<Listed<Event>, Failure>) {
        match result {
            Ok(listed) => {
                let found = self.kept(Part::Events, listed);
                self.snapshot.events.extend(found);
            }
            Err(failure) => self.note(Part::Events, failure.to_string()),
        }
    }

    /// The objects of a list that can be read. The snapshot names the others.
    fn kept<K>(&mut self, part: Part, listed: Listed<K>) -> Vec<K> {
        for problem in listed.problems {
            self.note(part, problem);
        }
        listed.objects
    }

    fn note(&mut self, part: Part, message: String) {
        let unread = Unread { part, message };
        if !self.snapshot.unread.contains(&unread) {
            self.snapshot.unread.push(unread);
        }
    }
}

/// Namespaces of the releases that serve fleets, with the label selector of their clusters.
async fn fleets(reader: &Reader) -> Result<Vec<(String, String)>, Failure> {
    let kind = ApiResource::erase::<Deployment>(&());
    let selector = format!("{PART_OF},app.kubernetes.io/component=osc-controller");
    let deployments = reader
        .list::<Deployment>(&List::everywhere(&kind).labels(&selector))
        .await?;
    let fleet = |deployment: &Deployment| {
        let arguments = arguments(deployment);
        let mut selectors = arguments
            .iter()
            .filter_map(|argument| argument.strip_prefix("--cluster-selector="));
        let selector = selectors.next().unwrap_or_default().to_owned();
        let is_fleet = arguments.iter().any(|argument| argument == "--fleet");
        is_fleet.then(|| (deployment.namespace().unwrap_or_default(), selector))
    };
    Ok(deployments.objects.iter().filter_map(fleet).collect())
}

/// Arguments of the first container.
fn arguments(deployment: &Deployment) -> Vec<String> {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let container = pod.and_then(|pod| pod.containers.first());
    container
        .and_then(|container| container.args.clone())
        .unwrap_or_default()
}

/// Pods of a Deployment: as many as it has, or as it is to have.
pub fn replicas(deployment: &Deployment) -> i32 {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let found = deployment.status.as_ref().and_then(|status| status.replicas);
    wanted.unwrap_or(1).max(found.unwrap_or(0))
}

fn service(deployment: &Deployment) -> Service {
    let spec = deployment.spec.as_ref();
    let containers = spec
        .and_then(|spec| spec.template.spec.as_ref())
        .map(|pod| pod.containers.as_slice());
    let image = containers
        .and_then(<[_]>::first)
        .and_then(|container| container.image.clone());
    let status = deployment.status.clone().unwrap_or_default();
    let (ready, wanted) = (
        status.ready_replicas.unwrap_or(0),
        spec.and_then(|spec| spec.replicas).unwrap_or(1),
    );
    // As `kubectl rollout status`.
    let is_observed = status.observed_generation >= deployment.metadata.generation;
    let pods = [
        status.updated_replicas,
        status.replicas,
        status.available_replicas,
    ];
    Service {
        name: deployment.name_any(),
        ready,
        wanted,
        image: image.unwrap_or_default(),
        // Without pods, nothing reaches the Secrets.
        is_rolled_out: wanted > 0 && is_observed && pods.iter().all(|pods| pods.unwrap_or(0) == wanted),
    }
}

fn document(map: ConfigMap) -> Option<String> {
    map.data.and_then(|mut data| data.remove(SETTINGS_KEY))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_rolled_out_once_all_pods_are_of_the_newest_replica_set_and_available() {
        let is_rolled_out = |observed: i64, pods: [i32; 3]| {
            let [updated, all, available] = pods;
            let deployment = json!({"metadata": {"name": "osc", "generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {"observedGeneration": observed, "updatedReplicas": updated, "replicas": all,
                    "availableReplicas": available}});
            service(&serde_json::from_value(deployment).unwrap()).is_rolled_out
        };
        assert!(is_rolled_out(2, [2, 2, 2]));
        for (observed, pods) in [(1, [2, 2, 2]), (2, [1, 2, 2]), (2, [2, 3, 2]), (2, [2, 2, 1])] {
            assert!(!is_rolled_out(observed, pods), "{observed} {pods:?}");
        }
    }
}
