//! `cargo xtask e2e helm`: the chart, installed into a whole cluster, whose node has booted from our user
//! data.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use osm_api::names::KUBE_SYSTEM;
use osm_lab::machines::unchanged;
use osm_lab::serve::relay::Relay;
use osm_testkit::control_plane::SERVICE_ADDRESS;
use osm_testkit::helm::{self, Helm};
use serde_json::json;

use crate::environment::REGISTRY;
use crate::node::scenario_run::{READY, ScenarioRun};

/// As the README names it.
const RELEASE: &str = "osm";

/// The namespace, as the README names it.
const IN_NAMESPACE: &str = "--namespace osm --create-namespace";

/// Addresses of pods, as the network plugin of the environment gives them.
const PODS: &str = "10.244.1.0/24";

/// Selects the objects of the release.
const OURS: &str = "--selector=app.kubernetes.io/part-of=operating-system-manager";

/// Builds Helm and the images, while there is a network. The README's command then has only to push them.
pub async fn prepare(progress: impl Fn(&str)) -> Result<()> {
    helm::program(&progress).await?;
    crate::cargo(&["xtask", "image"]).await
}

/// The services leave the host with all that they had installed. The README's commands install those of the
/// chart, which run as pods on the pool's own machine. They publish a change, and another one after all of
/// them were replaced.
pub async fn release(run: &ScenarioRun<'_>) -> Result<()> {
    let environment = run.environment;
    let mut pool = run.pool(&json!({})).await?;
    let user_data = pool.user_data(environment, run.name()).await?;
    run.boot_with(&user_data, &unchanged)?;
    run.ready(READY).await?;
    let _service = serve_pods(run)?;

    environment.stop_services();
    environment.uninstall().await?;
    let helm = Helm::new(&environment.control_plane).await?;
    let folder = tempfile::tempdir()?;
    install(run, &helm, folder.path()).await?;
    environment.read_settings().await?;
    pool.roll(environment, &json!({})).await?;
    pool.user_data(environment, run.name()).await?;
    let chart = helm::chart().display().to_string();
    let values = format!("--values={}", folder.path().join("values.yaml").display());
    let change = "--set=podAnnotations.version=two";
    let to = ["--namespace", KUBE_SYSTEM, "--wait", &timeout(run)];
    helm.run([&["upgrade", RELEASE, &*chart, &*values, change][..], &to].concat())
        .await?;
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

    // In the foreground, so that pods go before their Deployments.
    let uninstall = ["uninstall", RELEASE, "--cascade=foreground"];
    helm.run([&uninstall[..], &to].concat()).await?;
    let left = pods(run, "--output=name").await?;
    ensure!(left.is_empty(), "pods are left: {left}");
    Ok(())
}

/// Runs the commands of the README's section on installing in a folder, where they leave their values, and
/// waits until the pods are ready.
async fn install(run: &ScenarioRun<'_>, helm: &Helm, folder: &Path) -> Result<()> {
    // The registry has no TLS, and the README speaks of one that has.
    const CARGO: &str = r#"cargo() { (cd "$CHECKOUT" && command cargo "$@" --insecure); }"#;
    let root = crate::root().canonicalize()?;
    std::os::unix::fs::symlink(root.join("charts"), folder.join("charts"))?;
    let readme = std::fs::read_to_string(root.join("README.md"))?;
    let commands = commands(&readme, "Install")?.replace("REGISTRY", &format!("{REGISTRY}/osm"));
    ensure!(commands.contains(IN_NAMESPACE), "the README lacks {IN_NAMESPACE}");
    // The environment looks for settings and configs there.
    let commands = commands.replace(IN_NAMESPACE, &format!("--namespace {KUBE_SYSTEM}"));
    let output = helm
        .shell(&format!("{CARGO}\n{commands}"))
        .current_dir(folder)
        .env("CHECKOUT", &root)
        .output()
        .await?;
    ensure!(
        output.status.success(),
        "the README does not work ({}):\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    are_available(run).await
}

/// The first `sh` block of a section.
fn commands<'a>(page: &'a str, heading: &str) -> Result<&'a str> {
    let (_, section) = page
        .split_once(&format!("\n## {heading}\n"))
        .context(heading.to_owned())?;
    let (_, block) = section.split_once("\n```sh\n").context("commands")?;
    Ok(block.split("\n```").next().unwrap_or_default())
}

/// Waits until the release's Deployments are available. `kubectl rollout status` would give up at their
/// progress deadline, which says nothing of an emulated machine.
async fn are_available(run: &ScenarioRun<'_>) -> Result<()> {
    let condition = ["wait", "deployment", "--for=condition=Available"];
    let ours = ["--namespace", KUBE_SYSTEM, OURS, &timeout(run)];
    match run.environment.kubectl(&[&condition[..], &ours].concat()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.context(pods(run, "--output=wide").await.unwrap_or_default())),
    }
}

fn timeout(run: &ScenarioRun<'_>) -> String {
    format!("--timeout={}s", run.patience(READY).as_secs())
}

/// Pods reach the API server at its service address, though the node has no kube-proxy: that is an address of
/// the host.
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

/// What kubectl says of the release's pods.
async fn pods(run: &ScenarioRun<'_>, output: &str) -> Result<String> {
    run.environment
        .kubectl(&["get", "pods", "--namespace", KUBE_SYSTEM, OURS, output])
        .await
}
