//! The kubeconfigs of two clusters: `osmctl kubeconfigs` creates them, the services of the chart work with
//! them, and the chart's CronJob renews them with the permissions that the chart gives it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_testkit::helm::Helm;
use osm_testkit::installation::{self, Installed};
use osm_testkit::process::ScratchDir;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::Value;

use crate::installing::{furnish, namespace, pool, published, with_chart};

const DEADLINE: Duration = Duration::from_secs(180);

/// Namespace of both releases.
const NAMESPACE: &str = "osm";

/// All that have a Secret.
const OF_WORKER: [Service; 3] = [
    Service::OscController,
    Service::SecretSyncer,
    Service::CsrApprover,
];

const MANAGEMENT: &str = "topology=management,crds.enabled=false,workerCluster.renewal.enabled=true,\
    workerCluster.kubeconfigs.oscController.secret=worker-osc-controller,\
    workerCluster.kubeconfigs.secretSyncer.secret=worker-secret-syncer,\
    workerCluster.kubeconfigs.csrApprover.secret=worker-csr-approver";

#[tokio::test(flavor = "multi_thread")]
async fn services_work_with_the_kubeconfigs_of_osmctl_and_a_cron_job_renews_them() -> Result<()> {
    let (management, worker) = tokio::try_join!(
        ControlPlane::start(Options::default()),
        ControlPlane::start(Options::default())
    )?;
    furnish(&worker).await?;
    namespace(&management, NAMESPACE).await?;
    install(&worker, "topology=worker,workerCluster.renewal.enabled=true").await?;

    // An administrator of both clusters creates them.
    let secrets = Api::<Secret>::namespaced(management.admin()?, NAMESPACE);
    let there = worker.admin_kubeconfig_path();
    let there = format!("--worker-kubeconfig={}", there.display());
    let arguments = ["kubeconfigs", "--namespace=osm", &*there, "--renewal"];
    let admin = management.admin_kubeconfig_path();
    let printed = osmctl(&admin, &[&arguments[..], &["--dry-run"]].concat()).await?;
    assert_eq!(printed.matches("would get a kubeconfig").count(), 4, "{printed}");
    ensure!(
        secrets.get_opt("worker-secret-syncer").await?.is_none(),
        "it is written"
    );
    let printed = osmctl(&admin, &arguments).await?;
    assert_eq!(printed.matches("which expires at 2").count(), 4, "{printed}");
    let before = token(&secrets, "worker-secret-syncer").await?;
    let of_renewal = token(&secrets, "worker-renewal").await?;
    ensure!(!printed.contains(&before), "a credential is printed");

    install(&management, MANAGEMENT).await?;
    management.install_crds(&installation::crds()).await?;
    let installation = Installation {
        namespace: NAMESPACE.to_owned(),
        ..Installation::default()
    };
    let clusters = [
        (&management, &[ClusterKind::Management][..]),
        (&worker, &[ClusterKind::Worker][..]),
    ];
    let binaries = installation::binaries()?;
    let mut installed = Installed::by_chart(&clusters, installation, "osm", &binaries).await?;
    let mount = async |installed: &Installed| -> Result<()> {
        for service in OF_WORKER {
            let text = kubeconfig(&secrets, &format!("worker-{}", service.name())).await?;
            installed.replace_kubeconfig(service, ClusterKind::Worker, &text)?;
        }
        Ok(())
    };
    mount(&installed).await?;
    installed.start_all().await?;
    installed.ready(DEADLINE).await?;
    pool(&worker, "one").await?;
    published(&worker, &installed, "one").await?;

    // The pod of the CronJob renews them, itself included.
    renew(&management, &secrets).await?;
    ensure!(
        token(&secrets, "worker-secret-syncer").await? != before,
        "the token is the same"
    );
    ensure!(
        token(&secrets, "worker-renewal").await? != of_renewal,
        "the token is the same"
    );
    renew(&management, &secrets).await?;
    mount(&installed).await?;
    // Each service ends because of that, and Kubernetes starts it again.
    for service in OF_WORKER {
        wait_for("a service to end", DEADLINE, async || {
            check(!installed.is_alive(service).await)
        })
        .await?;
        installed.start(service).await?;
    }
    pool(&worker, "two").await?;
    published(&worker, &installed, "two").await?;
    Ok(())
}

/// Installs release `osm`. Nothing runs its pods.
async fn install(control_plane: &ControlPlane, values: &str) -> Result<()> {
    let helm = Helm::new(control_plane).await?;
    let more = ["--create-namespace", "--set", values];
    with_chart(&helm, "install", "osm", NAMESPACE, &more)
        .await
        .map(drop)
}

/// What osmctl prints.
async fn osmctl(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    ensure!(output.status.success(), "{out}{err}");
    Ok(out)
}

/// Runs the command of the CronJob as its pod: with the kubeconfig of the worker cluster as a file, and as
/// its ServiceAccount.
async fn renew(management: &ControlPlane, secrets: &Api<Secret>) -> Result<()> {
    let jobs = Api::<CronJob>::namespaced(management.admin()?, NAMESPACE);
    let job = serde_json::to_value(jobs.get("osm-renewal").await?)?;
    let pod_spec = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod_spec["serviceAccountName"], "osm-renewal");
    assert_eq!(pod_spec["volumes"][0]["secret"]["secretName"], "worker-renewal");
    let folder = ScratchDir::new("osm-renewal-")?;
    let mounted = folder.path().join("worker");
    std::fs::write(&mounted, kubeconfig(secrets, "worker-renewal").await?)?;
    let (mounted, identity) = (
        mounted.display().to_string(),
        management.identity(NAMESPACE, "osm-renewal").await?,
    );
    let arguments = pod_spec["containers"][0]["args"].as_array().context("args")?;
    let arguments = arguments.iter().filter_map(Value::as_str);
    let arguments: Vec<String> = arguments
        .map(|argument| argument.replace("/etc/osm/worker-cluster/kubeconfig", &mounted))
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let printed = osmctl(&identity, &arguments).await?;
    assert_eq!(printed.matches("which expires at").count(), 4, "{printed}");
    Ok(())
}

async fn kubeconfig(secrets: &Api<Secret>, name: &str) -> Result<String> {
    let data = secrets.get(name).await?.data.context("data")?;
    let text = &data.get("kubeconfig").context("a kubeconfig")?.0;
    Ok(String::from_utf8(text.clone())?)
}

async fn token(secrets: &Api<Secret>, name: &str) -> Result<String> {
    let config: Value = serde_json::from_str(&kubeconfig(secrets, name).await?)?;
    let token = config["users"][0]["user"]["token"].as_str();
    Ok(token.context("a token")?.to_owned())
}
