//! `cargo xtask e2e helm`: the chart, installed into a whole cluster, whose node has booted from our user data.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBE_SYSTEM};
use osm_api::rbac::Service;
use osm_lab::machines::unchanged;
use osm_lab::serve::relay::Relay;
use osm_testkit::control_plane::SERVICE_ADDRESS;
use osm_testkit::helm::{self, Helm, REGISTRY};
use serde_json::json;

use crate::environment::Environment;
use crate::node::scenario_run::{READY, ScenarioRun};

const RELEASE: &str = "osm";

/// Addresses of pods, as the network plugin of the environment gives them.
const PODS: &str = "10.244.1.0/24";

/// The folder with the images' archives.
pub const IMAGES: &str = "OSM_IMAGE_DIR";

/// Selects the pods of the release.
const OURS: &str = "--selector=app.kubernetes.io/part-of=operating-system-manager";

/// The images under test, built by `cargo xtask image` unless the environment names them. Helm is built as well.
pub async fn prepare(progress: impl Fn(&str)) -> Result<PathBuf> {
    helm::program(&progress).await?;
    if let Some(folder) = std::env::var_os(IMAGES) {
        return Ok(folder.into());
    }
    crate::cargo(&["xtask", "image"]).await?;
    Ok(crate::root().join("target/images"))
}

/// The services leave the host, and those of the chart take over their pool, as pods on the pool's own machine. They publish a change, and
/// another one after all of them were replaced.
pub async fn release(run: &ScenarioRun<'_>) -> Result<()> {
    let environment = run.environment;
    let mut pool = run.pool(&json!({})).await?;
    let user_data = pool.user_data(environment, run.name()).await?;
    run.boot_with(&user_data, &unchanged)?;
    run.ready(READY).await?;
    let _service = serve_pods(run)?;
    let images = PathBuf::from(std::env::var_os(IMAGES).context(IMAGES)?);
    for service in Service::ALL.map(Service::name) {
        let name = format!("osm/{service}:{}", env!("CARGO_PKG_VERSION"));
        environment
            .registry
            .push_archive(&name, &images.join(format!("{service}.tar")))?;
    }

    environment.stop_services();
    let helm = Helm::new(&environment.control_plane).await?;
    apply(run, &helm, "install", "podAnnotations.version=one").await?;
    pool.roll(environment, &json!({})).await?;
    pool.user_data(environment, run.name()).await?;
    apply(run, &helm, "upgrade", "podAnnotations.version=two").await?;
    pool.roll(environment, &json!({})).await?;
    pool.user_data(environment, run.name()).await?;
    let restarts = pods(
        run,
        "--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}",
    )
    .await?;
    ensure!(
        restarts.split_whitespace().all(|count| count == "0") && !restarts.is_empty(),
        "containers were restarted: {restarts}"
    );

    let secrets = secrets(environment).await?;
    // In the foreground, so that pods go before their Deployments.
    let gone = ["--namespace", KUBE_SYSTEM, "--wait", "--cascade=foreground"];
    helm.run([&["uninstall", RELEASE][..], &gone].concat()).await?;
    ensure!(
        self::secrets(environment).await? == secrets && !secrets.is_empty(),
        "what machines read has changed"
    );
    let left = pods(run, "--output=name").await?;
    ensure!(left.is_empty(), "pods are left: {left}");
    Ok(())
}

/// Pods reach the API server at its service address, though the node has no kube-proxy: that is an address of the host.
fn serve_pods(run: &ScenarioRun<'_>) -> Result<Relay> {
    let IpAddr::V4(machine) = run.address() else {
        bail!("pods need IPv4")
    };
    let (lab, service) = (&run.environment.lab, SERVICE_ADDRESS.parse()?);
    lab.add_address(service)?;
    lab.route(PODS, machine)?;
    let upstream = (Ipv4Addr::LOCALHOST, run.environment.control_plane.port());
    Relay::start(&[(service, 443).into()], upstream.into())
}

/// Installs or upgrades the release with these values, and waits until its pods are ready.
async fn apply(run: &ScenarioRun<'_>, helm: &Helm, verb: &str, values: &str) -> Result<()> {
    let chart = helm::chart().display().to_string();
    let settings = &run.environment.installation.settings;
    // Where the services were before, the definitions and the settings are there.
    let existing =
        format!("--set=crds.enabled=false,settingsConfigMap.create=false,settingsConfigMap.name={settings}");
    let values = format!("--set=image.registry={REGISTRY},{values}");
    let timeout = format!("--timeout={}s", run.patience(READY).as_secs());
    let to = ["--namespace", KUBE_SYSTEM, "--wait", &timeout];
    let done = helm
        .run([&[verb, RELEASE, &*chart, &existing, &values][..], &to].concat())
        .await;
    match done {
        Ok(_) => Ok(()),
        Err(error) => Err(error.context(pods(run, "--output=wide").await.unwrap_or_default())),
    }
}

/// What kubectl says of the release's pods.
async fn pods(run: &ScenarioRun<'_>, output: &str) -> Result<String> {
    run.environment
        .kubectl(&["get", "pods", "--namespace", KUBE_SYSTEM, OURS, output])
        .await
}

/// Names and uids of all that pools have published.
async fn secrets(environment: &Environment) -> Result<Vec<String>> {
    let secrets = Api::<Secret>::namespaced(environment.control_plane.admin()?, CLOUD_INIT_SETTINGS);
    let of_pools = secrets.list(&ListParams::default().labels(names::POOL)).await?;
    let name = |secret: &Secret| format!("{} {:?}", secret.name_any(), secret.uid());
    Ok(of_pools.iter().map(name).collect())
}
