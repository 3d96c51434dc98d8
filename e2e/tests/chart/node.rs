//! Plays the node and the controllers of a cluster, as far as Helm waits for them.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_testkit::{ControlPlane, installation};
use serde_json::json;

/// Runs the one container of every Job, with the rights of its ServiceAccount; ends by a problem alone.
pub async fn runs_jobs<T>(control_plane: &ControlPlane) -> Result<T> {
    match Box::pin(run_jobs(control_plane)).await {
        Ok(never) => match never {},
        Err(problem) => Err(problem),
    }
}

async fn run_jobs(control_plane: &ControlPlane) -> Result<Infallible> {
    let client = control_plane.admin()?;
    loop {
        for job in Api::<Job>::all(client.clone())
            .list(&ListParams::default())
            .await?
        {
            let done = job
                .status
                .as_ref()
                .is_some_and(|status| status.succeeded.is_some());
            if !done && job.metadata.deletion_timestamp.is_none() {
                let jobs = Api::<Job>::namespaced(client.clone(), &job.namespace().unwrap_or_default());
                run(control_plane, &jobs, job).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn run(control_plane: &ControlPlane, jobs: &Api<Job>, job: Job) -> Result<()> {
    let (name, namespace) = (job.name_any(), job.namespace().unwrap_or_default());
    let pod = job.spec.and_then(|spec| spec.template.spec).context("a pod")?;
    let account = pod.service_account_name.context("an account")?;
    let container = pod.containers.into_iter().next().context("a container")?;
    let image = container.image.context("an image")?;
    let (_, program) = image.rsplit_once('/').context("an image in a registry")?;
    let program = program.split([':', '@']).next().unwrap_or_default();
    let done = tokio::process::Command::new(installation::binaries()?.join(program))
        .arg("--kubeconfig")
        .arg(control_plane.identity(&namespace, &account).await?)
        .args(container.args.unwrap_or_default())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    ensure!(done.status.success(), "Job {namespace}/{name} fails: {said}");
    let now = jiff::Timestamp::now().to_string();
    let complete = json!({"status": {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": now},
        {"type": "Complete", "status": "True", "lastTransitionTime": now}]}});
    jobs.patch_status(&name, &PatchParams::default(), &Patch::Merge(&complete))
        .await?;
    Ok(())
}
