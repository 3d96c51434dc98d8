//! `--profile`: what one request of each kind costs kube-apiserver, and where its time goes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::client::Body;
use kube::core::DynamicObject;
use osm_api::names;
use osm_bare_client::pool::{self, Sender};
use osm_bare_client::writes::{Change, Step, Values};
use osm_testkit::installation;
use osm_testkit::procfs::Usage;
use osm_testkit::{ControlPlane, Options, machine_controller};
use tokio::process::Command;

use super::bare;
use super::pools::{NAMESPACE, Pools};
use crate::progress::Progress;

/// Seconds for which kube-apiserver takes samples of each kind of request.
const SECONDS: u32 = 2;

/// Functions that are printed of each profile.
const FUNCTIONS: &str = "-nodecount=12";

/// One kind of request.
struct Kind {
    name: String,
    cpu_ms: f64,
    etcd_ms: f64,
    bytes: usize,
    top: Option<String>,
}

/// Sends the writes of the services for `pools` pools, one kind of request after the other and one request at a time. Returns a table, and
/// writes the CPU profiles of kube-apiserver to a directory, whose name it prints.
///
/// # Errors
/// Requests that fail.
pub async fn profile(progress: Progress, binaries: &Path, pools: usize) -> Result<String> {
    progress.step("recording the writes of the services for one pool");
    let changes = [
        Change::Created,
        Change::Rotated,
        Change::Revision,
        Change::Deleted,
    ];
    let writes = bare::of_services(binaries, &changes).await?;
    progress.step("starting etcd and kube-apiserver");
    let plane = ControlPlane::start(Options::default()).await?;
    installation::prepare(
        &plane,
        &installation::as_by_the_chart(),
        &osm_api::rbac::ClusterKind::ALL,
    )
    .await?;
    let folder = tempfile::Builder::new()
        .prefix("osm-bench-profile-")
        .tempdir()?
        .keep();
    let bench = ApiServer {
        sender: Sender::new(config(&plane).await?)?,
        client: plane.admin()?,
        plane: &plane,
        folder: folder.clone(),
    };
    let mut pools = bench.pools(pools).await?;
    let mut kinds = vec![
        bench
            .reads(progress, "get version", "/version", pools.len())
            .await?,
    ];
    for change in changes {
        for (number, step) in writes.0.get(&change).into_iter().flatten().enumerate() {
            let name = format!("{change:?} {}: {}", number + 1, step.kind);
            kinds.push(bench.writes(progress, &name, step, &mut pools).await?);
            if step.kind == "create operatingsystemconfigs" {
                let values = pools.first().context("a pool")?;
                let name = values.get(pool::POOL_NAME).context("a name")?;
                let path = format!(
                    "/apis/{}/v1alpha1/namespaces/{NAMESPACE}/operatingsystemconfigs/{}",
                    names::GROUP,
                    names::config_name(name, NAMESPACE)
                );
                let reads = bench.reads(progress, "get operatingsystemconfigs", &path, pools.len());
                kinds.push(reads.await?);
            }
        }
    }
    let mut text = format!(
        "{} requests of each kind, one at a time.\n\n\
         | Request | bytes sent | CPU of kube-apiserver, ms | CPU of etcd, ms |\n|---|---|---|---|\n",
        pools.len()
    );
    for kind in &kinds {
        text.push_str(&format!(
            "| {} | {} | {:.1} | {:.1} |\n",
            kind.name, kind.bytes, kind.cpu_ms, kind.etcd_ms
        ));
    }
    for kind in &kinds {
        if let Some(top) = &kind.top {
            text.push_str(&format!("\n{}\n\n{top}", kind.name));
        }
    }
    Ok(format!(
        "{text}\nCPU profiles: {} (`go tool pprof FILE`)\n",
        folder.display()
    ))
}

async fn config(plane: &ControlPlane) -> Result<kube::Config> {
    let kubeconfig = kube::config::Kubeconfig::read_from(plane.admin_kubeconfig_path())?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)
}

struct ApiServer<'a> {
    sender: Sender,
    client: Client,
    plane: &'a ControlPlane,
    folder: PathBuf,
}

impl ApiServer<'_> {
    /// Creates MachineDeployments, and returns the values of each.
    async fn pools(&self, count: usize) -> Result<Vec<Values>> {
        Pools::new(self.client.clone(), count).create(1).await?;
        let kind = machine_controller::machine_deployment();
        let api = kube::Api::<DynamicObject>::namespaced_with(self.client.clone(), NAMESPACE, &kind);
        let pools = api.list(&Default::default()).await?.items;
        pools.iter().map(pool::values).collect()
    }

    async fn writes(
        &self,
        progress: Progress,
        name: &str,
        step: &Step,
        pools: &mut [Values],
    ) -> Result<Kind> {
        let bytes = match pools.first() {
            Some(values) => step.body.fill(values)?.len(),
            None => 0,
        };
        let count = pools.len();
        self.measure(progress, name, bytes, count, async {
            for values in pools {
                self.sender.send(step, values).await?;
            }
            Ok(())
        })
        .await
    }

    async fn reads(&self, progress: Progress, name: &str, path: &str, count: usize) -> Result<Kind> {
        self.measure(progress, name, 0, count, async {
            for _ in 0..count {
                let request = http::Request::get(path).body(Vec::new())?;
                self.client.request_text(request).await?;
            }
            Ok(())
        })
        .await
    }

    async fn measure(
        &self,
        progress: Progress,
        name: &str,
        bytes: usize,
        count: usize,
        requests: impl Future<Output = Result<()>>,
    ) -> Result<Kind> {
        progress.step(name);
        let file = self
            .folder
            .join(format!("{}.pb.gz", name.replace([' ', ':', '/'], "-")));
        let measured = async {
            let before = self.plane.usage().await?;
            requests.await?;
            anyhow::Ok((before, self.plane.usage().await?))
        };
        let (profile, measured) = tokio::join!(self.cpu_profile(), measured);
        std::fs::write(&file, profile?).with_context(|| file.display().to_string())?;
        let ((apiserver, etcd), (apiserver_after, etcd_after)) = measured?;
        #[allow(clippy::cast_precision_loss)]
        let each =
            |before: Usage, after: Usage| (after.cpu_seconds - before.cpu_seconds) * 1000.0 / count as f64;
        Ok(Kind {
            name: name.to_owned(),
            cpu_ms: each(apiserver, apiserver_after),
            etcd_ms: each(etcd, etcd_after),
            bytes,
            top: top(&file).await,
        })
    }

    async fn cpu_profile(&self) -> Result<Vec<u8>> {
        let path = format!("/debug/pprof/profile?seconds={SECONDS}");
        let answer = self
            .client
            .send(http::Request::get(path).body(Body::empty())?)
            .await?;
        let status = answer.status();
        let bytes = answer.into_body().collect_bytes().await?;
        ensure!(
            status.is_success(),
            "kube-apiserver gives no CPU profile ({status}): it needs --profiling=true, which is the default"
        );
        Ok(bytes.to_vec())
    }
}

/// The functions in which most time was spent, if Go is installed.
async fn top(file: &Path) -> Option<String> {
    let output = Command::new("go")
        .args(["tool", "pprof", "-top", FUNCTIONS])
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .await
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let lines = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("flat"));
    let table: String = lines.map(|line| format!("    {line}\n")).collect();
    (output.status.success() && !table.is_empty()).then_some(table)
}
