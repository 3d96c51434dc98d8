//! What goes wrong around a machine. Each fault must be named on its console, and once it is gone the machine must join by itself.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osm_testkit::lab;
use osm_testkit::serve::files::Fault;
use osm_testkit::serve::relay::Mode;
use serde_json::json;

use super::secrets;
use super::visit::{BOOTSTRAPPED, READY, SAID, SET_UP, Visit};

/// Four files, each with another fault, mended one after the other.
pub async fn mirror(visit: &Visit<'_>) -> Result<()> {
    let faults = [
        ("/kubelet", Fault::Status(404), "404"),
        ("/containerd-static", Fault::Status(500), "500"),
        ("/runc.", Fault::Half, "(18)"),
        ("/cni-plugins", Fault::FlippedBit, "checksum"),
    ];
    for (path, fault, _) in faults {
        visit.site.mirror.fault(visit.address(), path, fault);
    }
    visit.boot().await?;
    for (path, _, words) in faults {
        let name = path.trim_start_matches('/').split(['-', '.']).next().unwrap_or_default();
        let line = visit.console_says(&format!("osm-setup: no {name} yet"), SAID).await?;
        ensure!(line.contains(words), "the console does not say why: {line}");
        visit.has_not_joined(SET_UP).await?;
        visit.site.mirror.mend_path(visit.address(), path);
    }
    visit.ready(READY).await.map(drop)
}

/// Packets of the API server don't arrive for two minutes.
pub async fn api_unreachable(visit: &Visit<'_>) -> Result<()> {
    visit.boot().await?;
    visit.machine(|machine| machine.cut(lab::API))?;
    visit.console_says("osm-bootstrap: can't reach the API server", SAID).await?;
    let two_minutes = Duration::from_secs(120);
    let so_far = visit.machine(|machine| Ok(machine.powered_on().elapsed()?))?;
    tokio::time::sleep(two_minutes.saturating_sub(so_far)).await;
    visit.has_not_joined(BOOTSTRAPPED).await?;
    visit.machine(|machine| machine.mend(lab::API))?;
    visit.ready(READY).await.map(drop)
}

/// The pool is rolled out anew before the machine has fetched what it was made for.
pub async fn rotated(visit: &Visit<'_>) -> Result<()> {
    let max_pods =
        |pods: u32| json!({"v1.kubelet-config.machine-controller.kubermatic.io/MaxPods": pods.to_string()});
    let mut pool = visit.pool(&max_pods(41)).await?;
    let first = pool.user_data(visit.site, visit.name()).await?;
    visit.site.relay.set(visit.address(), Mode::Refuse);
    visit.boot_with(&first, &|_| Ok(()), &[])?;
    visit.console_says("osm-bootstrap: can't reach the API server", SAID).await?;
    pool.roll(visit.site, &max_pods(42)).await?;
    let second = pool.user_data(visit.site, visit.name()).await?;
    ensure!(first.text != second.text, "nothing was rotated");
    visit.site.relay.set(visit.address(), Mode::Pass);
    let node = visit.ready(READY).await?;
    let capacity = node.status.and_then(|status| status.capacity).context("a node's capacity")?;
    let pods = capacity.get("pods").map(|quantity| quantity.0.as_str());
    ensure!(pods == Some("41"), "the machine has another revision's document: {pods:?} pods");
    Ok(())
}

/// Until the mode changes, the machine must say `words`, and not join; then it joins.
async fn relayed(visit: &Visit<'_>, mode: Mode, words: &str) -> Result<()> {
    visit.site.relay.set(visit.address(), mode);
    visit.boot().await?;
    visit.console_says(words, SAID).await?;
    let asked = || visit.site.relay.connections().iter().filter(|c| c.client == visit.address()).count();
    let before = asked();
    osm_testkit::wait_for("another attempt", SAID, async || osm_testkit::check(asked() > before)).await?;
    visit.has_not_joined(BOOTSTRAPPED).await?;
    visit.site.relay.set(visit.address(), Mode::Pass);
    visit.ready(READY).await.map(drop)
}

/// The document is not what the bootstrap document vouches for.
pub async fn flipped_bit(visit: &Visit<'_>) -> Result<()> {
    relayed(visit, Mode::FlippedBit, "is not the one that this machine was made for").await
}

/// Somebody without the cluster's CA answers.
pub async fn wrong_ca(visit: &Visit<'_>) -> Result<()> {
    relayed(visit, Mode::Impostor, "can't verify the API server").await?;
    let told = visit.site.relay.requests();
    let told = told.iter().any(|request| request.client == visit.address() && request.mode == Mode::Impostor);
    ensure!(!told, "the machine has sent a request, and with it its token, to somebody else");
    Ok(())
}

/// In seconds; tokens live a day.
const TWO_DAYS: i64 = 2 * 24 * 60 * 60;

/// The machine's token has expired: nothing can mend that, so it must say so.
pub async fn expired_token(visit: &Visit<'_>) -> Result<()> {
    let fresh = visit.pool(&json!({})).await?.user_data(visit.site, visit.name()).await?;
    let key = visit.site.control_plane.service_account_key_pem()?;
    let mut late = fresh.text.clone();
    for token in secrets::tokens(&fresh.text) {
        ensure!(late.contains(&token), "the user data hides a token in base64");
        // Signed anew it is as good as before: what makes the other one useless is its age.
        let (again, expired) = (secrets::aged(&token, 0, &key)?, secrets::aged(&token, TWO_DAYS, &key)?);
        ensure!(visit.site.is_valid(&again).await?, "a token that is signed by the test is worth nothing");
        ensure!(!visit.site.is_valid(&expired).await?, "a token that has expired is valid");
        late = late.replace(&token, &expired);
    }
    ensure!(late != fresh.text, "the user data holds no token");
    visit.boot_with(&late.into(), &|_| Ok(()), &[])?;
    let line = visit.console_says("(401)", SAID).await?;
    ensure!(
        line.contains("osm-bootstrap:") && line.contains("expired"),
        "the console does not say why: {line}"
    );
    visit.has_not_joined(BOOTSTRAPPED).await?;
    Ok(())
}

/// Where the machine's bootstrap reads what the time is.
const CLOCK: &str = "etc/lab-clock";

/// The clock is years behind. A kernel's clock can't be set for one machine alone, so bootstrap and what it calls are given another one.
pub async fn clock(visit: &Visit<'_>) -> Result<()> {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
    let change = |root: &Path| {
        std::fs::write(root.join(CLOCK), "-1500d\n")?;
        let folder = root.join("etc/systemd/system/osm-bootstrap.service.d");
        std::fs::create_dir_all(&folder)?;
        let environment = format!(
            "[Service]\nEnvironment=LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE=/{CLOCK} \
             FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1\n"
        );
        Ok(std::fs::write(folder.join("lab.conf"), environment)?)
    };
    visit.boot_changed(&change, &[]).await?;
    visit.console_says("osm-bootstrap: the clock is wrong", SAID).await?;
    visit.has_not_joined(BOOTSTRAPPED).await?;
    visit.shell(&format!("echo +0d >/{CLOCK}"))?;
    visit.ready(READY).await.map(drop)
}

/// The downloads don't fit.
pub async fn disk_full(visit: &Visit<'_>) -> Result<()> {
    visit.boot_changed(&|_| Ok(()), &["--tmpfs=/var/lib/osm:size=16M,mode=755"]).await?;
    let line = visit.console_says("osm-setup: no ", SAID).await?;
    visit.has_not_joined(SET_UP).await?;
    let says = ["No space left", "(23)"].iter().any(|words| line.contains(words));
    ensure!(says, "the console does not say why: {line}");
    visit.shell("mount -o remount,size=1G /var/lib/osm")?;
    visit.ready(READY).await.map(drop)
}
