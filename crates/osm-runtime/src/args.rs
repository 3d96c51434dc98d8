//! Flags that every service has. Each can be given as an environment variable instead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use osm_api::rbac::Installation;

#[derive(clap::Parser, Clone, Debug)]
pub struct CommonArgs {
    /// Namespace of the installation. It has the profiles, the configs and the settings ConfigMap.
    #[arg(long, env = "OSM_NAMESPACE", default_value = "kube-system")]
    pub namespace: String,
    /// Kubeconfig file of the management cluster, which has the profiles, configs and settings. The service restarts when
    /// the file changes. The default is $KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long, env = "OSM_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the settings ConfigMap. Its key settings.yaml holds the settings document.
    #[arg(long, env = "OSM_SETTINGS", value_name = "NAME", default_value = osm_api::names::SETTINGS_CONFIG_MAP)]
    pub settings: String,
    /// Address that serves /livez, /readyz and /metrics.
    #[arg(
        long,
        env = "OSM_LISTEN",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub listen: SocketAddr,
    /// Format of log lines.
    #[arg(long, env = "OSM_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
    /// Log filter: a level, or directives such as info,kube=debug.
    #[arg(long, env = "OSM_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Number of objects that are reconciled at the same time.
    #[arg(long, env = "OSM_CONCURRENCY", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Time limit of an API request, in seconds.
    #[arg(long, env = "OSM_REQUEST_TIMEOUT", value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=600))]
    pub request_timeout: u16,
    /// Time limit of a reconcile, in seconds.
    #[arg(long, env = "OSM_RECONCILE_TIMEOUT", value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub reconcile_timeout: u16,
    /// Name of this replica, normally the name of the pod. It must be unique among the replicas, and survive a restart. The
    /// default is the host name with a random suffix.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub replica: Option<String>,
    /// uid of the pod of that name, which owns the replica's Lease.
    #[arg(long, env = "POD_UID", value_name = "UID", requires = "replica")]
    pub pod_uid: Option<String>,
}

impl CommonArgs {
    /// The installation without further namespaces.
    pub fn installation(&self) -> Installation {
        Installation {
            namespace: self.namespace.clone(),
            settings: self.settings.clone(),
            pool_settings_namespaces: Vec::new(),
            ..Installation::default()
        }
    }

    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout.into())
    }

    pub fn reconcile_timeout(&self) -> Duration {
        Duration::from_secs(self.reconcile_timeout.into())
    }
}

/// Flags of the services that read profiles.
#[derive(clap::Args, Clone, Debug)]
pub struct ProfileArgs {
    /// Further namespaces of profiles, comma-separated. A MachineDeployment selects one of them in its annotation
    /// k8c.io/operating-system-profile-namespace.
    #[arg(
        long,
        env = "OSM_PROFILE_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ','
    )]
    pub profile_namespaces: Vec<String>,
}

/// Flags of the services that also need the worker cluster.
#[derive(clap::Args, Clone, Debug)]
pub struct WorkerArgs {
    /// Kubeconfig file of the worker cluster, which has the MachineDeployments and the namespace cloud-init-settings. The service
    /// restarts when the file changes. The default is the management cluster.
    #[arg(long, env = "OSM_WORKER_CLUSTER_KUBECONFIG", value_name = "FILE")]
    pub worker_cluster_kubeconfig: Option<PathBuf>,
}

/// Format of log lines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people; colored on a terminal.
    Text,
}
