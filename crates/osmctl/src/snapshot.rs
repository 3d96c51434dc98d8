//! The objects of a cluster, as plain data, and the pools in it. The module `cluster` reads them. Commands
//! are pure functions of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use osm_api::cluster_endpoint::{self, Discovered};
use osm_api::config::ProfileRef;
use osm_api::pool;
use osm_api::settings::SettingsError;
use osm_api::{
    ClusterEndpoint, MachineDeployment, OperatingSystemConfig, OperatingSystemProfile, PoolRef, Settings,
    names,
};

use serde_json::{Map, Value};

use crate::input::SettingsMap;
use crate::output;
use crate::pool_nodes::PoolNode;

/// Namespace of MachineDeployments whose namespace is not given.
const DEFAULT_NAMESPACE: &str = names::KUBE_SYSTEM;

/// What was read of a cluster, or of a management and a worker cluster.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Namespace of the installation, or of the configs of a cluster of a fleet.
    pub namespace: String,
    /// The cluster of a fleet that has this namespace.
    pub fleet: Option<FleetCluster>,
    pub machine_deployments: Vec<MachineDeployment>,
    pub configs: Vec<OperatingSystemConfig>,
    /// Those of the installation, and of the namespaces that MachineDeployments name.
    pub profiles: Vec<OperatingSystemProfile>,
    /// CustomOperatingSystemProfiles, which have the same schema.
    pub custom_profiles: Vec<OperatingSystemProfile>,
    /// Name of the ConfigMap with the settings of the installation.
    pub settings_config_map: String,
    /// The settings document of the installation.
    pub settings: Option<String>,
    /// ConfigMaps with the settings of pools.
    pub settings_maps: Vec<SettingsMap>,
    /// Where the API server's address and CA are found, the best first.
    pub endpoints: Vec<Discovered>,
    /// The CA with which osmctl itself verifies the worker cluster.
    pub own_ca: Option<String>,
    /// uid of the cluster with the MachineDeployments, if it was read.
    pub cluster_uid: Option<String>,
    /// Events about MachineDeployments, configs and profiles.
    pub events: Vec<Event>,
    /// The Nodes of MachineDeployments.
    pub nodes: Vec<PoolNode>,
    /// The Deployments of the services.
    pub services: Vec<Service>,
    /// Namespaces whose MachineDeployments the services serve; empty: all.
    pub served_namespaces: BTreeSet<String>,
    /// Whether the ServiceAccount of the upstream OSM exists, by which machines read its user data.
    pub has_go_account: bool,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

/// What a cluster of a fleet has of the release that serves it, and of its own.
#[derive(Clone, Debug, Default)]
pub struct FleetCluster {
    /// Namespace of the release, with its profiles and settings.
    pub release: String,
    /// `spec.settings` of the WorkerCluster.
    pub settings: Map<String, Value>,
    /// `spec.profileAliases` of the WorkerCluster.
    pub profile_aliases: BTreeMap<String, String>,
}

/// A Deployment of Operating System Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub name: String,
    /// Number of pods that are ready.
    pub ready: i32,
    /// Number of pods that there should be.
    pub wanted: i32,
    /// Image of the first container.
    pub image: String,
    /// Whether all pods are of the newest ReplicaSet, and ready.
    pub is_rolled_out: bool,
}

/// A kind of object, or a part of a cluster, that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    MachineDeployments,
    Configs,
    Profiles,
    CustomProfiles,
    Settings,
    PoolSettings,
    Endpoint,
    Events,
    /// Nodes, or the Machines that they belong to.
    Nodes,
    /// Deployments of the services.
    Services,
    /// Which release of a fleet serves the cluster, and so where its profiles and settings are.
    Release,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    pub part: Part,
    /// What, why, and the next step.
    pub message: String,
}

impl Snapshot {
    /// Whether something of this part could not be read, so that what is absent may exist.
    pub fn lacks(&self, part: Part) -> bool {
        let is_of_release = [Part::Profiles, Part::Settings].contains(&part);
        let mut unread = self.unread.iter().map(|unread| unread.part);
        unread.any(|unread| unread == part || unread == Part::Release && is_of_release)
    }

    /// Whether the namespace has nothing of an installation.
    pub fn lacks_installation(&self) -> bool {
        let is_empty = self.settings.is_none() && self.configs.is_empty() && self.profiles.is_empty();
        let parts = [Part::Settings, Part::Configs, Part::Profiles];
        is_empty && !parts.into_iter().any(|part| self.lacks(part))
    }

    /// Namespace of profiles, settings and services.
    pub fn release(&self) -> &str {
        self.fleet
            .as_ref()
            .map_or(&self.namespace, |fleet| &fleet.release)
    }

    /// Where the settings should be: `namespace/name`.
    pub fn settings_place(&self) -> String {
        format!("{}/{}", self.release(), self.settings_config_map)
    }

    /// The settings of the installation, or of the cluster of a fleet, or what is wrong with them; `None`: they
    /// were not read.
    pub fn installation_settings(&self) -> Option<Result<Settings, String>> {
        let settings = Settings::parse(self.settings.as_ref()?);
        let settings = settings.map_err(|SettingsError(mistakes)| mistakes.join("; "));
        Some(settings.and_then(|settings| self.settings_of_cluster(settings)))
    }

    /// `settings` of a release for the cluster of a fleet.
    ///
    /// # Errors
    /// What is wrong with those of the cluster.
    pub fn settings_of_cluster(&self, settings: Settings) -> Result<Settings, String> {
        match &self.fleet {
            None => Ok(settings),
            Some(fleet) => settings
                .of_cluster(&self.namespace, &fleet.settings)
                .map_err(|error| error.to_string()),
        }
    }

    /// Reports on standard error what could not be read.
    pub fn warn(&self) {
        output::warnings(self.unread.iter().map(|unread| &unread.message));
    }

    /// The pools, in order of their names: every MachineDeployment, and every config that has none.
    pub fn pools(&self) -> Vec<ClusterPool<'_>> {
        let mut pools: Vec<ClusterPool<'_>> = self
            .machine_deployments
            .iter()
            .map(|md| self.of_machine_deployment(md))
            .collect();
        let has_pool = |config: &&OperatingSystemConfig| {
            let known =
                |pool: &ClusterPool<'_>| pool.config.is_some_and(|known| std::ptr::eq(known, *config));
            pools.iter().any(known)
        };
        let others: Vec<ClusterPool<'_>> = self
            .configs
            .iter()
            .filter(|config| !has_pool(config))
            .map(|config| ClusterPool {
                other_cluster: self.other_cluster(config),
                ..ClusterPool::of_config(config)
            })
            .collect();
        pools.extend(others);
        pools.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        pools
    }

    /// The Nodes of a pool; `None` if they could not be read.
    pub fn nodes_of(&self, pool: &ClusterPool<'_>) -> Option<Vec<&PoolNode>> {
        let uid = pool.machine_deployment.and_then(ResourceExt::uid)?;
        let of_pool = self.nodes.iter().filter(|node| node.pool == uid);
        (!self.lacks(Part::Nodes)).then(|| of_pool.collect())
    }

    fn of_machine_deployment<'a>(&'a self, md: &'a MachineDeployment) -> ClusterPool<'a> {
        let pool = PoolRef::from(md);
        let named = self
            .configs
            .iter()
            .find(|config| config.name_any() == pool.config_name());
        let holder = named.and_then(|config| config.pool().cloned());
        let holder = holder.filter(|holder| holder.uid != pool.uid);
        ClusterPool {
            config: named.filter(|_| holder.is_none()),
            machine_deployment: Some(md),
            namespace: pool.namespace,
            name: pool.name,
            holder,
            other_cluster: named.and_then(|config| self.other_cluster(config)),
        }
    }

    /// uid of the cluster that a config was created for, if it is another one.
    fn other_cluster(&self, config: &OperatingSystemConfig) -> Option<String> {
        let made_in = config.annotations().get(names::CLUSTER_UID)?;
        let is_other = self.cluster_uid.as_ref().is_some_and(|uid| uid != made_in);
        is_other.then(|| made_in.clone())
    }

    /// Namespaces in which profiles are read.
    pub fn profile_namespaces(&self) -> BTreeSet<String> {
        let named = self.machine_deployments.iter();
        named
            .filter_map(|md| pool::annotation(md, names::PROFILE_NAMESPACE))
            .map(str::to_owned)
            .chain(
                self.configs
                    .iter()
                    .filter_map(rendered_from)
                    .map(|profile| profile.namespace.clone()),
            )
            .chain([self.release().to_owned()])
            .collect()
    }

    /// The profile of this namespace and name.
    pub fn profile(&self, (namespace, name): (&str, &str)) -> Option<&OperatingSystemProfile> {
        let is_it = |profile: &&OperatingSystemProfile| {
            profile.name_any() == name && profile.namespace().as_deref() == Some(namespace)
        };
        self.profiles.iter().find(is_it)
    }

    /// Namespace and name of the profile that a MachineDeployment asks for, as osc-controller finds it: if no
    /// annotation names the namespace, it may be one that many installations share, which the config shows.
    /// The profile is absent if no annotation names it and the operating system cannot be read.
    pub fn profile_name(&self, md: &MachineDeployment) -> Option<(String, String)> {
        let annotation = |key| pool::annotation(md, key).map(str::to_owned);
        let name = annotation(names::PROFILE).or_else(|| {
            let (system, utility) = pool::system(md)?;
            Some(osm_render::default_name(system.as_str(), utility))
        })?;
        let alias = self
            .fleet
            .as_ref()
            .and_then(|fleet| fleet.profile_aliases.get(&name));
        let name = alias.cloned().unwrap_or(name);
        let shared = || {
            let config = names::config_name(&md.name_any(), &md.namespace().unwrap_or_default());
            let config = self.configs.iter().find(|known| known.name_any() == config);
            let profile = config
                .and_then(rendered_from)
                .filter(|profile| profile.name == name)?;
            let is_own = self.profile((self.release(), &name)).is_some();
            (!is_own).then(|| profile.namespace.clone())
        };
        let namespace = annotation(names::PROFILE_NAMESPACE).or_else(shared);
        Some((namespace.unwrap_or_else(|| self.release().to_owned()), name))
    }

    /// How nodes reach the API server with these settings, as osc-controller finds it for most pools.
    pub fn endpoint(&self, settings: &Settings) -> Option<ClusterEndpoint> {
        let configs = self.configs.iter().filter_map(|config| config.status.as_ref());
        let records = configs.filter_map(|status| status.rendered.as_ref()?.api_server.as_deref());
        let in_use = cluster_endpoint::by_frequency(records);
        let choice = cluster_endpoint::choose(settings, &self.endpoints, &in_use, self.own_ca.as_deref());
        choice.map(|choice| choice.endpoint)
    }
}

/// The profile that the content of a config is rendered from.
fn rendered_from(config: &OperatingSystemConfig) -> Option<&ProfileRef> {
    config.status.as_ref()?.rendered.as_ref()?.profile.as_ref()
}

/// When an Event was last seen.
pub fn event_time(event: &Event) -> Option<Timestamp> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    series
        .map(|time| time.0)
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))
        .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// A pool of a cluster: a MachineDeployment, its config, or both.
#[derive(Clone, Debug)]
pub struct ClusterPool<'a> {
    /// Namespace of the MachineDeployment; empty for a config that does not name one.
    pub namespace: String,
    /// Name of the MachineDeployment, or else of the config.
    pub name: String,
    pub machine_deployment: Option<&'a MachineDeployment>,
    pub config: Option<&'a OperatingSystemConfig>,
    /// The other pool that has the config of this name.
    pub holder: Option<PoolRef>,
    /// uid of the cluster that the config was created for, if it is another one than that of the
    /// MachineDeployments.
    pub other_cluster: Option<String>,
}

impl<'a> ClusterPool<'a> {
    fn of_config(config: &'a OperatingSystemConfig) -> Self {
        let pool = config.pool().cloned();
        let (namespace, name) = match pool {
            Some(pool) => (pool.namespace, pool.name),
            None => (String::new(), config.name_any()),
        };
        Self {
            namespace,
            name,
            machine_deployment: None,
            config: Some(config),
            holder: None,
            other_cluster: None,
        }
    }

    /// Whether the upstream OSM created the config, and osc-controller has not rendered it.
    pub fn is_of_the_upstream_osm(&self) -> bool {
        self.config.is_some_and(|config| config.pool().is_none())
    }
}

/// `namespace/name`.
impl fmt::Display for ClusterPool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// The pool that a person means: `NAMESPACE/NAME`, or `NAME` in kube-system, or else the only one of this
/// name.
///
/// # Errors
/// No such pool, or several.
pub fn find<'p, 'a>(pools: &'p [ClusterPool<'a>], wanted: &str) -> Result<&'p ClusterPool<'a>> {
    if pools.is_empty() {
        bail!(
            "the cluster has no MachineDeployment; check --context, or --worker-context if the machines have another cluster"
        );
    }
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, wanted),
    };
    let is_in = |namespace: &str| {
        let is_it = |pool: &&ClusterPool<'_>| pool.name == name && pool.namespace == namespace;
        pools.iter().find(is_it)
    };
    if let Some(found) = is_in(namespace.unwrap_or(DEFAULT_NAMESPACE)) {
        return Ok(found);
    }
    let named: Vec<&ClusterPool<'_>> = pools
        .iter()
        .filter(|pool| namespace.is_none() && pool.name == name)
        .collect();
    match named.as_slice() {
        [one] => Ok(one),
        [] => bail!("MachineDeployment {wanted} does not exist; `osmctl status` lists all of them"),
        several => {
            let found: Vec<String> = several.iter().map(ToString::to_string).collect();
            bail!(
                "{} MachineDeployments are named {wanted}; select one of {}",
                several.len(),
                found.join(", ")
            )
        }
    }
}

#[cfg(test)]
pub mod fixtures {
    use serde_json::{Value, json};

    use super::*;

    pub fn machine_deployment(namespace: &str, name: &str) -> MachineDeployment {
        serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}"),
                "annotations": {names::PROFILE: "osp-tiny", names::REVISION: "3"}},
            "spec": {"template": {"spec": {
                "versions": {"kubelet": "1.34.2"},
                "providerSpec": {"value": {"cloudProvider": "openstack", "operatingSystem": "ubuntu",
                    "operatingSystemSpec": {"distUpgradeOnBoot": false}}},
            }}},
        }))
        .unwrap()
    }

    pub fn condition(type_: &str, status: bool, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 2})
    }

    /// The config of a pool that is rendered and published.
    pub fn config(md: &MachineDeployment) -> OperatingSystemConfig {
        let pool = PoolRef::from(md);
        serde_json::from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": pool.config_name(), "namespace": "osm", "generation": 2},
            "spec": {"poolRef": {"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                "namespace": pool.namespace, "name": pool.name, "uid": pool.uid}},
            "status": {
                "conditions": [condition("Rendered", true, "Rendered", "rendered from profile osp-tiny v1.0.0"),
                    condition("Published", true, "Published", "user data is published"),
                    condition("Ready", true, "Published", "user data is published")],
                "rendered": {"digest": "d", "revision": "3", "templateDigest": "t",
                    "profile": {"namespace": "osm", "name": "osp-tiny", "version": "v1.0.0", "digest": "p"}},
                "published": {"digest": "d", "revision": "3", "bootstrapSecret": "b", "provisioningSecret": "p",
                    "credentialExpirationTime": "2026-03-01T00:00:00Z"},
            },
        }))
        .unwrap()
    }

    pub fn profile() -> OperatingSystemProfile {
        serde_json::from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
            "metadata": {"name": "osp-tiny", "namespace": "osm", "generation": 2},
            "spec": {"osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
                "supportedCloudProviders": [{"name": "openstack"}],
                "provisioningConfig": {"files": [{"path": "/etc/kubelet-version", "permissions": 644,
                    "content": {"inline": {"data": "{{kubelet.version}}\n"}}}]}},
            "status": {"observedGeneration": 2, "conditions": [condition("Accepted", true, "Accepted", "accepted")]},
        }))
        .unwrap()
    }

    /// A cluster without any problem.
    pub fn snapshot() -> Snapshot {
        let md = machine_deployment("kube-system", "workers");
        Snapshot {
            namespace: "osm".to_owned(),
            configs: vec![config(&md)],
            machine_deployments: vec![md],
            profiles: vec![profile()],
            settings_config_map: names::SETTINGS_CONFIG_MAP.to_owned(),
            settings: Some(String::new()),
            ..Snapshot::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{config, machine_deployment, snapshot};
    use super::*;

    fn with(pools: &[(&str, &str)]) -> Snapshot {
        let machine_deployments = pools
            .iter()
            .map(|(namespace, name)| machine_deployment(namespace, name));
        Snapshot {
            machine_deployments: machine_deployments.collect(),
            ..Snapshot::default()
        }
    }

    /// The default namespace is often not that of the installation.
    #[test]
    fn a_namespace_without_anything_of_osm_lacks_it_unless_something_is_unread() {
        let mut elsewhere = snapshot();
        assert!(!elsewhere.lacks_installation());
        (elsewhere.configs, elsewhere.profiles, elsewhere.settings) = Default::default();
        assert!(elsewhere.lacks_installation());
        let (part, message) = (Part::Profiles, String::new());
        elsewhere.unread.push(Unread { part, message });
        assert!(!elsewhere.lacks_installation());
    }

    #[test]
    fn a_pool_is_found_by_what_people_write() {
        let snapshot = with(&[
            ("kube-system", "a"),
            ("team", "a"),
            ("team", "b"),
            ("x", "c"),
            ("y", "c"),
        ]);
        let pools = snapshot.pools();
        let cases = [
            ("a", Ok("kube-system/a")),
            ("team/a", Ok("team/a")),
            ("b", Ok("team/b")),
            (
                "c",
                Err("2 MachineDeployments are named c; select one of x/c, y/c"),
            ),
            (
                "team/bb",
                Err("MachineDeployment team/bb does not exist; `osmctl status`"),
            ),
        ];
        for (wanted, expected) in cases {
            match (find(&pools, wanted), expected) {
                (Ok(found), Ok(name)) => assert_eq!(found.to_string(), name),
                (Err(error), Err(text)) => assert!(error.to_string().starts_with(text), "{error}"),
                (found, _) => panic!("{wanted}: {found:?}"),
            }
        }
        assert!(find(&[], "a").is_err());
    }

    #[test]
    fn a_config_belongs_to_the_pool_whose_uid_it_has() {
        let mut snapshot = snapshot();
        let pools = snapshot.pools();
        assert!(pools[0].config.is_some() && pools.len() == 1);
        // Recreated under the same name: the config is that of the pool that is gone.
        let other = machine_deployment("elsewhere", "gone");
        let mut config = config(&other);
        config.metadata.name = snapshot.configs[0].metadata.name.clone();
        snapshot.configs = vec![config];
        let pools = snapshot.pools();
        let names: Vec<String> = pools.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["elsewhere/gone", "kube-system/workers"]);
        assert_eq!(pools[1].holder.as_ref().unwrap().name, "gone");
        assert!(pools[1].config.is_none() && pools[0].machine_deployment.is_none());
    }
}
