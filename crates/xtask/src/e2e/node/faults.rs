//! Faults around a machine. The console must name each fault, and once the fault has ended the machine must join without help.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use osm_lab::machines::{self, Hardware, Tmpfs, unchanged};
use osm_lab::serve::files::Fault;
use osm_lab::serve::relay::Mode;
use serde_json::{Value, json};

use super::join::{nothing_failed, run_pod};
use super::scenario_run::{BOOTSTRAPPED, READY, SAID, SET_UP, ScenarioRun};
use super::secrets;

/// Four files, each with another fault, mended one after the other.
pub async fn mirror(run: &ScenarioRun<'_>) -> Result<()> {
    let faults = [
        ("/kubelet", Fault::Status(404), "404"),
        ("/containerd-static", Fault::Status(500), "500"),
        ("/runc.", Fault::Half, "(18)"),
        ("/cni-plugins", Fault::FlippedBit, "checksum"),
    ];
    for (path, fault, _) in faults {
        run.environment.mirror.fault(run.address(), path, fault);
    }
    run.boot().await?;
    for (path, _, words) in faults {
        let name = path
            .trim_start_matches('/')
            .split(['-', '.'])
            .next()
            .unwrap_or_default();
        let line = run
            .console_says(&format!("osm-setup: no {name} yet"), SAID)
            .await?;
        ensure!(line.contains(words), "the console does not say why: {line}");
        run.has_not_joined(SET_UP).await?;
        run.environment.mirror.mend_path(run.address(), path);
    }
    run.ready(READY).await.map(drop)
}

/// Packets of the API server don't arrive for two minutes.
pub async fn api_unreachable(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    run.machine(|machine| machine.cut(machines::API))?;
    run.console_says("osm-bootstrap: can't reach the API server", SAID)
        .await?;
    let two_minutes = Duration::from_secs(120);
    let so_far = run.machine(|machine| Ok(machine.powered_on().elapsed()?))?;
    tokio::time::sleep(two_minutes.saturating_sub(so_far)).await;
    run.has_not_joined(BOOTSTRAPPED).await?;
    run.machine(|machine| machine.mend(machines::API))?;
    run.ready(READY).await.map(drop)
}

/// csr-approver is down while two machines boot and their kubelets ask for their certificates.
pub async fn approver_away(run: &ScenarioRun<'_>) -> Result<()> {
    const AWAY: Duration = Duration::from_secs(300);
    run.environment.kill_csr_approver().await?;
    let other = run.another("second");
    let runs = [run, &other];
    let mut users = Vec::new();
    for run in runs {
        let pool = run.pool(&json!({})).await?;
        users.push(pool.user());
        let user_data = pool.user_data(run.environment, run.name()).await?;
        run.boot_with(&user_data, &unchanged, &[])?;
    }
    tokio::time::sleep(AWAY).await;
    let requests = run
        .environment
        .kubectl(&["get", "certificatesigningrequests", "--output=json"])
        .await?;
    let requests: Value = serde_json::from_str(&requests)?;
    for (run, user) in runs.into_iter().zip(users) {
        let node = run.node();
        ensure!(run.has(SET_UP)?, "{node} was not set up within {AWAY:?}");
        ensure!(
            run.environment.node(&node).await?.is_none(),
            "{node} has joined, although nobody approved its certificate"
        );
        let mut requests = requests
            .pointer("/items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        ensure!(
            requests.any(|request| waits(request, &user, &node)),
            "the kubelet of {node} has not asked"
        );
    }
    run.environment.start_csr_approver().await?;
    for run in runs {
        run.ready(READY).await?;
    }
    other.keeps_secrets()
}

/// Whether this is a pending request of this user for the client certificate of this node.
fn waits(request: &Value, user: &str, node: &str) -> bool {
    let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default();
    // PEM in base64. The encoding of a request contains the common name as it is.
    let pem = BASE64_STANDARD.decode(text("/spec/request")).unwrap_or_default();
    let pem = String::from_utf8(pem).unwrap_or_default();
    let lines: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let common_name = format!("system:node:{node}");
    let is_of_node = BASE64_STANDARD.decode(lines).is_ok_and(|der| {
        der.windows(common_name.len())
            .any(|part| part == common_name.as_bytes())
    });
    text("/spec/signerName") == "kubernetes.io/kube-apiserver-client-kubelet"
        && text("/spec/username") == user
        && request.pointer("/status/conditions").is_none()
        && is_of_node
}

/// The pool is rolled out anew before the machine has fetched what it was made for.
pub async fn rotated(run: &ScenarioRun<'_>) -> Result<()> {
    let max_pods =
        |pods: u32| json!({"v1.kubelet-config.machine-controller.kubermatic.io/MaxPods": pods.to_string()});
    let mut pool = run.pool(&max_pods(41)).await?;
    let first = pool.user_data(run.environment, run.name()).await?;
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot_with(&first, &unchanged, &[])?;
    run.console_says("osm-bootstrap: can't reach the API server", SAID)
        .await?;
    pool.roll(run.environment, &max_pods(42)).await?;
    let second = pool.user_data(run.environment, run.name()).await?;
    ensure!(first.text != second.text, "nothing was rotated");
    run.environment.relay.set(run.address(), Mode::Pass);
    let node = run.ready(READY).await?;
    let capacity = node
        .status
        .and_then(|status| status.capacity)
        .context("a node's capacity")?;
    let pods = capacity.get("pods").map(|quantity| quantity.0.as_str());
    ensure!(
        pods == Some("41"),
        "the machine has another revision's document: {pods:?} pods"
    );
    Ok(())
}

/// Until the mode changes, the machine must say `words`, and not join; then it joins.
async fn relayed(run: &ScenarioRun<'_>, mode: Mode, words: &str) -> Result<()> {
    run.environment.relay.set(run.address(), mode);
    run.boot().await?;
    run.console_says(words, SAID).await?;
    let asked = || {
        run.environment
            .relay
            .connections()
            .iter()
            .filter(|c| c.client == run.address())
            .count()
    };
    let before = asked();
    osm_testkit::wait_for("another attempt", run.patience(SAID), async || {
        osm_testkit::check(asked() > before)
    })
    .await?;
    run.has_not_joined(BOOTSTRAPPED).await?;
    run.environment.relay.set(run.address(), Mode::Pass);
    run.ready(READY).await.map(drop)
}

/// The document is not what the bootstrap document vouches for.
pub async fn flipped_bit(run: &ScenarioRun<'_>) -> Result<()> {
    relayed(
        run,
        Mode::FlippedBit,
        "is not the one that this machine was made for",
    )
    .await
}

/// Somebody without the cluster's CA answers.
pub async fn wrong_ca(run: &ScenarioRun<'_>) -> Result<()> {
    relayed(run, Mode::Impostor, "can't verify the API server").await?;
    let told = run.environment.relay.requests();
    let told = told
        .iter()
        .any(|request| request.client == run.address() && request.mode == Mode::Impostor);
    ensure!(
        !told,
        "the machine has sent a request, and with it its token, to somebody else"
    );
    Ok(())
}

/// In seconds; tokens live a day.
const TWO_DAYS: i64 = 2 * 24 * 60 * 60;

/// The machine's token has expired: nothing can mend that, so it must say so.
pub async fn expired_token(run: &ScenarioRun<'_>) -> Result<()> {
    let fresh = run
        .pool(&json!({}))
        .await?
        .user_data(run.environment, run.name())
        .await?;
    let key = run.environment.control_plane.service_account_key_pem()?;
    let mut late = fresh.text.clone();
    for token in BTreeSet::from_iter(secrets::tokens(&fresh.text)) {
        // Signed anew it is as good as before: what makes the other one useless is its age.
        let (again, expired) = (
            secrets::aged(&token, 0, &key)?,
            secrets::aged(&token, TWO_DAYS, &key)?,
        );
        ensure!(
            run.environment.is_valid(&again).await?,
            "a token that is signed by the test is worth nothing"
        );
        ensure!(
            !run.environment.is_valid(&expired).await?,
            "a token that has expired is valid"
        );
        late = secrets::with_other_token(&late, &token, &expired)?;
    }
    ensure!(late != fresh.text, "the user data holds no token");
    run.boot_with(&late.into(), &unchanged, &[])?;
    let line = run.console_says("(401)", SAID).await?;
    ensure!(
        line.contains("osm-bootstrap:") && line.contains("expired"),
        "the console does not say why: {line}"
    );
    run.has_not_joined(BOOTSTRAPPED).await?;
    Ok(())
}

/// Four years.
const BEHIND: Duration = Duration::from_secs(1500 * 24 * 3600);

/// The clock is years behind.
pub async fn clock(run: &ScenarioRun<'_>) -> Result<()> {
    run.equip(Hardware {
        clock_behind: BEHIND,
        ..Hardware::default()
    });
    run.boot().await?;
    run.console_says("osm-bootstrap: the clock is wrong", SAID)
        .await?;
    run.has_not_joined(BOOTSTRAPPED).await?;
    run.machine(|machine| machine.correct_clock())?;
    run.ready(READY).await.map(drop)
}

/// Where programs are downloaded to, without room for them.
const SMALL: Tmpfs = Tmpfs {
    path: "/var/lib/osm",
    size: "16M",
};

/// The downloads don't fit.
pub async fn disk_full(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot_changed(&unchanged, &[SMALL]).await?;
    let line = run.console_says("osm-setup: no ", SAID).await?;
    run.has_not_joined(SET_UP).await?;
    let says = ["No space left", "(23)"].iter().any(|words| line.contains(words));
    ensure!(says, "the console does not say why: {line}");
    run.shell("mount -o remount,size=1G /var/lib/osm")?;
    run.ready(READY).await.map(drop)
}

/// The settings of a graceful shutdown.
pub fn graceful_shutdown(settings: &mut Value) -> Result<()> {
    let settings = settings.as_object_mut().context("settings")?;
    let kubelet = settings.entry("kubelet").or_insert_with(|| json!({}));
    let kubelet = kubelet.as_object_mut().context("kubelet")?;
    kubelet.insert("configuration".to_owned(), json!({"shutdownGracePeriod": "1m"}));
    Ok(())
}

/// A file of the package unattended-upgrades, as Ubuntu's images have it.
const OF_UBUNTU: &str = "usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";

/// Moves what pods need of the kernel, and no image has loaded.
const HIDE_MODULES: &str = "cd /lib/modules/$(uname -r)/kernel/net && mkdir /var/lib/lab-modules && \
    mv netfilter bridge/br_netfilter.ko* /var/lib/lab-modules/ && depmod";

const SHOW_MODULES: &str = "cd /lib/modules/$(uname -r)/kernel/net && mv /var/lib/lab-modules/netfilter . && \
    mv /var/lib/lab-modules/br_netfilter.ko* bridge/ && depmod";

/// The kernel lacks modules for pods, as in images of version 10 of RHEL; and logind allows less of a delay than the kubelet wants, as in
/// those of Ubuntu.
pub async fn modules_missing(run: &ScenarioRun<'_>) -> Result<()> {
    let as_in_ubuntu = |root: &Path| {
        let file = root.join(OF_UBUNTU);
        fs::create_dir_all(file.parent().context("a folder")?)?;
        fs::write(file, "[Login]\nInhibitDelayMaxSec=30\n")?;
        Ok(())
    };
    // Nothing may load the modules before they are gone.
    run.environment.relay.set(run.address(), Mode::Refuse);
    run.boot_changed(&as_in_ubuntu, &[]).await?;
    run.console_says("osm-bootstrap: can't reach the API server", SAID)
        .await?;
    run.shell(HIDE_MODULES)?;
    run.environment.relay.set(run.address(), Mode::Pass);

    let line = run.console_says("osm-setup: no kernel module", SAID).await?;
    for module in ["br_netfilter", "xt_comment", "nft_compat"] {
        ensure!(
            line.contains(module),
            "the console does not name {module}: {line}"
        );
    }
    run.has_not_joined(SET_UP).await?;
    let started =
        run.shell("systemctl show --property=ActiveEnterTimestampMonotonic --value kubelet.service")?;
    ensure!(
        started.trim() == "0",
        "the kubelet was started without the modules"
    );
    run.shell(SHOW_MODULES)?;
    run.ready(READY).await?;
    run_pod(run).await?;

    let files = run.shell("systemd-analyze cat-config systemd/logind.conf")?;
    let limits: Vec<&str> = files
        .lines()
        .filter_map(|line| line.strip_prefix("InhibitDelayMaxSec="))
        .collect();
    ensure!(
        limits == ["30", "60"],
        "logind reads these limits, in this order: {limits:?}"
    );
    let limit = run.shell(
        "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec",
    )?;
    ensure!(limit.trim() == "t 60000000", "logind's limit is {limit}");
    let inhibitors = run.shell("systemd-inhibit --list --no-legend --no-pager")?;
    ensure!(
        inhibitors
            .lines()
            .any(|line| line.contains("kubelet") && line.contains("shutdown")),
        "the kubelet does not delay a shutdown: {inhibitors}"
    );
    nothing_failed(run)
}
