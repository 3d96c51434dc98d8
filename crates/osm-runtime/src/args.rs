//! Flags that every service has. Each can be given as an environment variable instead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use osm_api::rbac::Installation;

/// Flags of every service.
#[derive(clap::Args, Clone, Debug)]
pub struct CommonArgs {
    /// Namespace of the installation: profiles, configs and the settings ConfigMap live there.
    #[arg(long, env = "OSM_NAMESPACE", default_value = "kube-system")]
    pub namespace: String,
    /// Kubeconfig file of the cluster of profiles, configs and settings. It may be replaced while the service runs.
    /// Without it: $KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long, env = "OSM_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// ConfigMap in that namespace whose key settings.yaml is the settings document.
    #[arg(long, env = "OSM_SETTINGS", value_name = "NAME", default_value = osm_api::names::SETTINGS_CONFIG_MAP)]
    pub settings: String,
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "OSM_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    pub listen: SocketAddr,
    /// Format of log lines.
    #[arg(long, env = "OSM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// What is logged: a level, or directives such as info,kube=debug.
    #[arg(long, env = "OSM_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Objects that are worked on at the same time.
    #[arg(long, env = "OSM_CONCURRENCY", value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Longest time that one API request may take, in seconds.
    #[arg(long, env = "OSM_REQUEST_TIMEOUT", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=600))]
    pub request_timeout: u16,
    /// Longest time that one reconcile may take, in seconds.
    #[arg(long, env = "OSM_RECONCILE_TIMEOUT", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub reconcile_timeout: u16,
    /// Name of this replica among those of the service: the pod's. It is the same after a restart, and no other's.
    /// Without it: the name of the host, with something random.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub replica: Option<String>,
    /// uid of the pod of that name, with which this replica's Lease goes.
    #[arg(long, env = "POD_UID", value_name = "UID", requires = "replica")]
    pub pod_uid: Option<String>,
}

impl CommonArgs {
    /// This installation, without any further namespaces.
    pub fn installation(&self) -> Installation {
        Installation {
            namespace: self.namespace.clone(),
            settings: self.settings.clone(),
            profile_namespaces: Vec::new(),
            pool_settings_namespaces: Vec::new(),
            bootstrap_tokens: false,
            go_finalizers: false,
        }
    }

    /// Longest time that one API request may take.
    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout.into())
    }

    /// Longest time that one reconcile may take.
    pub fn reconcile_timeout(&self) -> Duration {
        Duration::from_secs(self.reconcile_timeout.into())
    }
}

/// Flags of the services that read profiles.
#[derive(clap::Args, Clone, Debug)]
pub struct ProfileArgs {
    /// Further namespaces of profiles, comma-separated. A MachineDeployment names one of them in its annotation
    /// k8c.io/operating-system-profile-namespace.
    #[arg(long, env = "OSM_PROFILE_NAMESPACES", value_name = "NAMESPACES", value_delimiter = ',')]
    pub profile_namespaces: Vec<String>,
}

/// Flags of the services that work for another cluster than that of the profiles, too.
#[derive(clap::Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Kubeconfig file of the worker cluster, that of MachineDeployments and of the namespace cloud-init-settings. It may
    /// be replaced while the service runs. Without it, they are in the same cluster as the profiles.
    #[arg(long, env = "OSM_WORKER_CLUSTER_KUBECONFIG", value_name = "FILE")]
    pub worker_cluster_kubeconfig: Option<PathBuf>,
}

/// Format of log lines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people; coloured on a terminal.
    Text,
}
