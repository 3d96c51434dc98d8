//! The user clusters, which one other process serves from memory, and their registrations in the seed.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use osm_api::names::{self, KUBECONFIG_KEY, WORKER_CLUSTER, worker_kubeconfig};
use osm_api::{MachineDeployment, WorkerCluster};
use osm_testkit::process::{ScratchDir, Service};
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::wait_for;
use serde::Deserialize;
use serde_json::{Value, json};

use super::profile::PROFILE;
use super::services::SERVICES;

/// Namespace in the user clusters of what csr-approver keeps there.
const IN_WORKER: &str = "osm-worker";

const STARTS_WITHIN: Duration = Duration::from_secs(180);

/// A change that takes longer has not arrived.
const ARRIVES_WITHIN: Duration = Duration::from_secs(180);

/// How often it is looked whether a change has arrived. The watch has noted the time.
const INTERVAL: Duration = Duration::from_millis(5);

/// Below the limit of 50 documents that valid tokens may fetch.
const CHANGES_PER_POOL: u32 = 40;

/// How many user clusters there are.
pub struct Wanted {
    pub healthy: u32,
    pub pools: u32,
    pub away: u32,
    pub hostile: u32,
}

/// Kubeconfigs.
#[derive(Deserialize)]
pub struct UserClusters {
    pub healthy: Vec<String>,
    pub away: Vec<String>,
    pub hostile: Vec<String>,
}

impl UserClusters {
    /// Starts the process. It ends when it is dropped, and has the directory until then.
    pub async fn start(binaries: &Path, wanted: &Wanted) -> Result<(Self, Service, ScratchDir)> {
        let directory = ScratchDir::new("osm-fleet-")?;
        let path = directory.path();
        let mut arguments = vec![path.display().to_string()];
        for (flag, value) in [
            ("healthy", wanted.healthy.to_string()),
            ("pools", wanted.pools.to_string()),
            ("away", wanted.away.to_string()),
            ("hostile", wanted.hostile.to_string()),
            ("profile", PROFILE.to_owned()),
            ("namespace", IN_WORKER.to_owned()),
        ] {
            arguments.push(format!("--{flag}={value}"));
        }
        let program = binaries.join("user-clusters");
        const NO_ENV: [(&str, &str); 0] = [];
        let mut process = Service::spawn(&program, arguments, NO_ENV, &path.join("log"))?;
        let clusters = wait_for("the user clusters to be served", STARTS_WITHIN, async || {
            if let Some(status) = process.exited()? {
                return Ok(Some(Err(anyhow::anyhow!("{status}: {}", process.log_tail(10)))));
            }
            let text = std::fs::read_to_string(path.join("clusters.json"))?;
            Ok(Some(Ok(serde_json::from_str(&text)?)))
        })
        .await??;
        Ok((clusters, process, directory))
    }
}

/// Creates what the registration of a cluster needs besides its WorkerCluster.
pub async fn prepare(seed: &Client, namespace: &str, kubeconfig: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
    let new = PostParams::default();
    Api::<Namespace>::all(seed.clone()).create(&new, &object).await?;
    let secrets = Api::<Secret>::namespaced(seed.clone(), namespace);
    for service in SERVICES {
        let secret = json!({"metadata": {"name": worker_kubeconfig(service.name())}, "stringData": {KUBECONFIG_KEY: kubeconfig}});
        secrets.create(&new, &serde_json::from_value(secret)?).await?;
    }
    Ok(())
}

/// Creates its WorkerCluster.
pub async fn register(seed: &Client, namespace: &str) -> Result<()> {
    let object = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": {"name": WORKER_CLUSTER}, "spec": {"workerNamespace": IN_WORKER}});
    let object: WorkerCluster = serde_json::from_value(object)?;
    let clusters = Api::<WorkerCluster>::namespaced(seed.clone(), namespace);
    clusters.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// The pools of one user cluster, which are changed one after the other.
pub struct Changed {
    pools: Api<MachineDeployment>,
    number: u32,
    secrets: SecretWatch,
    revision: u64,
}

impl Changed {
    /// Adds pools to the `number` that the cluster has, for `changes` of their content: secret-syncer publishes no more
    /// contents of a pool within the lifetime of a token than [`CHANGES_PER_POOL`].
    pub async fn new(kubeconfig: &str, number: u32, changes: u32) -> Result<Self> {
        let read = Kubeconfig::from_yaml(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let pools: Api<MachineDeployment> = Api::namespaced(client.clone(), "kube-system");
        let enough = number.max(changes.div_ceil(CHANGES_PER_POOL));
        for added in number..enough {
            let first = pools.get("pool-0").await?;
            let mut pool = MachineDeployment::new(&format!("pool-{added}"), first.spec);
            pool.metadata.annotations = first.metadata.annotations;
            pools.create(&PostParams::default(), &pool).await?;
        }
        Ok(Self {
            secrets: SecretWatch::start(client).await?,
            pools,
            number: enough,
            revision: 1,
        })
    }

    /// Changes a pool `times` times, each once the last change has arrived. Returns the seconds that each takes until
    /// its bootstrap Secret is written.
    pub async fn change(&mut self, times: u32) -> Result<Vec<f64>> {
        let mut took = Vec::new();
        for time in 0..times {
            self.revision += 1;
            let (name, revision) = (format!("pool-{}", time % self.number), self.revision.to_string());
            let patch: Value = json!({"metadata": {"annotations": {names::REVISION: revision}},
                "spec": {"template": {"spec": {"versions": {"kubelet": format!("1.34.{revision}")}}}}});
            self.pools
                .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
            let (since, secret) = (Instant::now(), names::bootstrap_secret_name(&name, "kube-system"));
            let written = loop {
                if let Some(written) = self.secrets.first(&secret, &revision) {
                    break written;
                }
                ensure!(
                    since.elapsed() < ARRIVES_WITHIN,
                    "{secret} is not written within {ARRIVES_WITHIN:?}"
                );
                tokio::time::sleep(INTERVAL).await;
            };
            took.push(written.saturating_duration_since(since).as_secs_f64());
        }
        self.secrets.forget();
        took.sort_unstable_by(f64::total_cmp);
        Ok(took)
    }
}
