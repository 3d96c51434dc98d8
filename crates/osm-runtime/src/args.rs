//! Flags that every service has. Each can be given as an environment variable instead.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use osm_api::rbac::Installation;

#[derive(clap::Parser, Clone, Debug)]
pub struct CommonArgs {
    /// Namespace of the installation. It has the profiles, the configs and the settings ConfigMap.
    #[arg(long, env = "OSM_NAMESPACE", default_value = "kube-system")]
    pub namespace: String,
    /// Kubeconfig file of the cluster; for a fleet, of the seed. The default is $KUBECONFIG, ~/.kube/config, or
    /// the pod's ServiceAccount.
    #[arg(long, env = "OSM_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the settings ConfigMap. Its key settings.yaml holds the settings document.
    #[arg(long, env = "OSM_SETTINGS_CONFIG_MAP", value_name = "NAME", default_value = osm_api::names::SETTINGS_CONFIG_MAP)]
    pub settings_config_map: String,
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
    #[arg(long, env = "OSM_LOG_FILTER", value_name = "FILTER", default_value = "info")]
    pub log_filter: String,
    /// Number of objects that are reconciled at the same time.
    #[arg(long, env = "OSM_CONCURRENCY", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Time limit of an API request: 1s to 10m.
    #[arg(long, env = "OSM_REQUEST_TIMEOUT", value_name = "DURATION", default_value = "10s",
          value_parser = |text: &str| duration(text, Duration::from_mins(10)))]
    pub request_timeout: Duration,
    /// Time limit of a reconcile: 1s to 1h.
    #[arg(long, env = "OSM_RECONCILE_TIMEOUT", value_name = "DURATION", default_value = "60s",
          value_parser = |text: &str| duration(text, Duration::from_hours(1)))]
    pub reconcile_timeout: Duration,
    /// Name of the pod. It names the replica, so it must be unique among the replicas, and survive a restart.
    /// The default is the host name with a random suffix.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// uid of the pod of that name, which owns the replica's Lease.
    #[arg(long, env = "POD_UID", value_name = "UID", requires = "pod_name")]
    pub pod_uid: Option<String>,
}

impl Default for CommonArgs {
    /// Without any flag; environment variables count.
    fn default() -> Self {
        <Self as clap::Parser>::parse_from(["osm"])
    }
}

impl CommonArgs {
    /// The installation without further namespaces.
    pub fn installation(&self) -> Installation {
        Installation {
            id: self.namespace.clone(),
            namespace: self.namespace.clone(),
            settings: self.settings_config_map.clone(),
            pool_settings_namespaces: Vec::new(),
            ..Installation::default()
        }
    }
}

fn duration(text: &str, longest: Duration) -> Result<Duration, String> {
    let duration = text.parse::<SignedDuration>().ok();
    duration
        .and_then(|duration| Duration::try_from(duration).ok())
        .filter(|duration| (Duration::from_secs(1)..=longest).contains(duration))
        .ok_or_else(|| format!("is not a duration between 1s and {longest:?}; use a form such as 10s or 1m"))
}

/// Flags of the services that read profiles.
#[derive(clap::Args, Clone, Debug)]
pub struct ProfileArgs {
    /// Further namespaces of profiles, comma-separated. A MachineDeployment selects one of them in its
    /// annotation k8c.io/operating-system-profile-namespace.
    #[arg(
        long,
        env = "OSM_PROFILE_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ','
    )]
    pub profile_namespaces: Vec<String>,
}

/// Format of log lines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people; colored on a terminal.
    Text,
}
