//! The properties of an installation that its rights depend on.

use std::collections::BTreeMap;

use crate::names::{KUBE_SYSTEM, SETTINGS_CONFIG_MAP};

/// What the rights of one installation depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Value of the label [`INSTALLATION`](crate::names::INSTALLATION) on the replicas' Leases and on everything
    /// that secret-syncer creates. The rights do not depend on it.
    pub id: String,
    /// Namespace of profiles, configs, settings and Leases. Those configs that a fleet has are in the
    /// namespaces of its [clusters](crate::worker_cluster).
    pub namespace: String,
    /// Namespace of profiles where it is another one, as for the clusters of a fleet, which use those of the
    /// release.
    pub profiles_in: Option<String>,
    /// Namespace in the worker cluster with the records of approved machines, where it is another one.
    pub worker_namespace: Option<String>,
    /// Name of the settings ConfigMap.
    pub settings: String,
    /// Further namespaces of profiles, for MachineDeployments with the annotation
    /// [`PROFILE_NAMESPACE`](crate::names::PROFILE_NAMESPACE).
    pub profile_namespaces: Vec<String>,
    /// Namespace of profiles for MachineDeployments that name no namespace, and whose profile isn't in the
    /// installation's own. Another installation validates its profiles.
    pub fallback_profile_namespace: Option<String>,
    /// Profiles that MachineDeployments get in place of those that they ask for, by the name of the latter. The
    /// rights do not depend on it.
    pub profile_aliases: BTreeMap<String, String>,
    /// Namespaces of MachineDeployments whose ConfigMaps may hold a pool's settings, for the annotation
    /// [`SETTINGS`](crate::names::SETTINGS).
    pub pool_settings_namespaces: Vec<String>,
    /// Namespaces whose MachineDeployments are served. If the list is empty, all are. The rights do not
    /// depend on it: a pool that was published before is renewed in any namespace.
    pub machine_deployment_namespaces: Vec<String>,
    /// Whether osc-controller removes the [finalizer](crate::names::GO_FINALIZER) of the upstream OSM from
    /// MachineDeployments that are being deleted, where that no longer runs.
    pub go_finalizers: bool,
    /// Whether osp-controller copies the CustomOperatingSystemProfiles of its namespaces into
    /// OperatingSystemProfiles.
    pub custom_profiles: bool,
    /// Whether it serves all user clusters of a seed.
    pub fleet: bool,
}

impl Installation {
    /// Namespaces of profiles besides the installation's own.
    pub(super) fn extra_namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces_of_profiles().into_iter().skip(1)
    }

    /// Namespace of the profiles that MachineDeployments use without naming one.
    pub fn profiles_namespace(&self) -> &str {
        self.profiles_in.as_ref().unwrap_or(&self.namespace)
    }

    /// Namespace in the worker cluster with the records of approved machines.
    pub fn worker_namespace(&self) -> &str {
        self.worker_namespace.as_ref().unwrap_or(&self.namespace)
    }

    /// Every namespace whose profiles are validated, each once; the installation's own comes first.
    pub fn namespaces_of_profiles(&self) -> Vec<&str> {
        let mut all = vec![self.profiles_namespace()];
        for namespace in &self.profile_namespaces {
            if !all.contains(&namespace.as_str()) {
                all.push(namespace);
            }
        }
        all
    }

    /// Every namespace whose profiles are rendered, each once; the installation's own comes first.
    pub fn namespaces_to_render_from(&self) -> Vec<&str> {
        let mut all = self.namespaces_of_profiles();
        let fallback = self.fallback_profile_namespace.as_deref();
        all.extend(fallback.filter(|fallback| !all.contains(fallback)));
        all
    }

    /// Whether MachineDeployments in this namespace are served.
    pub fn serves(&self, namespace: &str) -> bool {
        let served = &self.machine_deployment_namespaces;
        served.is_empty() || served.iter().any(|name| name == namespace)
    }
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            id: KUBE_SYSTEM.to_owned(),
            namespace: KUBE_SYSTEM.to_owned(),
            profiles_in: None,
            worker_namespace: None,
            settings: SETTINGS_CONFIG_MAP.to_owned(),
            profile_namespaces: Vec::new(),
            profile_aliases: BTreeMap::new(),
            fallback_profile_namespace: None,
            pool_settings_namespaces: vec![KUBE_SYSTEM.to_owned()],
            machine_deployment_namespaces: Vec::new(),
            go_finalizers: false,
            custom_profiles: false,
            fleet: false,
        }
    }
}
