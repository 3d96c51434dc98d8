//! Faults around a machine. The console must name each fault, and once the fault has ended the machine must join without help.

use anyhow::{Context, Result, ensure};
use osm_lab::machines::{self, unchanged};
use osm_lab::serve::files::Fault;
use osm_lab::serve::programs::NameServer;
use osm_lab::serve::relay::Mode;
use serde_json::{Value, json};

use super::scenario_run::{BOOTSTRAPPED, READY, SAID, SET_UP, ScenarioRun};

/// The mirror's name, which no name server knows at first.
const MIRROR: &str = "mirror.example.com";

/// Machines find the mirror by its name.
pub fn mirror_by_name(settings: &mut Value) -> Result<()> {
    let (address, name) = (format!("//{}/", machines::HOST), format!("//{MIRROR}/"));
    let text = settings.to_string();
    ensure!(text.contains(&address), "no file comes from the mirror");
    *settings = serde_json::from_str(&text.replace(&address, &name))?;
    Ok(())
}

/// Without DNS, and then three files with another fault each. All are mended one after the other.
pub async fn mirror(run: &ScenarioRun<'_>) -> Result<()> {
    let (mirror, address) = (&run.environment.mirror, run.address());
    let faults = [
        ("/containerd-static", Fault::Status(404), "404"),
        ("/runc.", Fault::Half, "(18)"),
        ("/cni-plugins", Fault::FlippedBit, "checksum"),
    ];
    for (path, fault, _) in faults {
        mirror.fault(address, path, fault);
    }
    run.boot().await?;
    run.console_says(&["osm-setup: no kubelet yet", "(6)", MIRROR], SAID)
        .await?;
    run.has_not_joined(SET_UP).await?;
    let folder = run.environment.lab.directory();
    let _names = NameServer::start(folder, machines::HOST, MIRROR, machines::HOST)?;
    for (path, _, words) in faults {
        let name = path.trim_start_matches('/').split(['-', '.']).next();
        let complaint = format!("osm-setup: no {} yet", name.unwrap_or_default());
        run.console_says(&[&complaint, words], SAID).await?;
        run.has_not_joined(SET_UP).await?;
        mirror.mend(address, path);
    }
    run.ready(READY).await.map(drop)
}

/// The pool is rolled out before the machine has fetched what it was made for.
pub async fn rotated(run: &ScenarioRun<'_>) -> Result<()> {
    let max_pods =
        |pods: u32| json!({"v1.kubelet-config.machine-controller.kubermatic.io/MaxPods": pods.to_string()});
    let mut pool = run.pool(&max_pods(41)).await?;
    let first = pool.user_data(run.environment, run.name()).await?;
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot_with(&first, &unchanged)?;
    run.console_says(&["osm-bootstrap: can't reach the API server"], SAID)
        .await?;
    pool.roll(run.environment, &max_pods(42)).await?;
    let second = pool.user_data(run.environment, run.name()).await?;
    ensure!(first.text != second.text, "nothing was rotated");
    run.environment.relay.set(run.address(), Mode::Pass);
    let node = run.ready(READY).await?;
    let capacity = node.status.and_then(|status| status.capacity);
    let capacity = capacity.context("a node's capacity")?;
    let pods = capacity.get("pods").map(|quantity| quantity.0.as_str());
    ensure!(
        pods == Some("41"),
        "the machine has another revision's document: {pods:?} pods"
    );
    Ok(())
}

/// Leaves 16 MiB on the disk, which is enough for a document and not for programs.
const FILL: &str = "set -- $(stat --file-system --format='%f %S' /); fallocate --length $(($1 * $2 - (16 << 20))) /var/lib/full";

/// The downloads don't fit.
pub async fn disk_full(run: &ScenarioRun<'_>) -> Result<()> {
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot().await?;
    run.console_says(&["osm-bootstrap: can't reach the API server"], SAID)
        .await?;
    run.shell(FILL)?;
    run.environment.relay.set(run.address(), Mode::Pass);
    let line = run.console_says(&["osm-setup: no "], SAID).await?;
    run.has_not_joined(SET_UP).await?;
    ensure!(
        run.has(BOOTSTRAPPED)?,
        "the document did not fit either, so this shows something else"
    );
    let says = ["No space left", "(23)"].iter().any(|words| line.contains(words));
    ensure!(says, "the console does not say why: {line}");
    run.shell("rm /var/lib/full")?;
    run.ready(READY).await.map(drop)
}
