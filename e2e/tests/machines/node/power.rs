//! Machines that are switched off and on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_lab::machines::Machine;
use osm_lab::serve::files::Fault;
use osm_lab::serve::relay::Mode;
use osm_testkit::{check, wait_for};

use super::join::run_pod;
use super::scenario_run::{BOOTSTRAPPED, READY, SET_UP, ScenarioRun};

/// How long a machine may take until it asks for the first thing.
const ASKS: Duration = Duration::from_secs(60);

/// Where our documents write.
const OURS: &str = "etc opt var/lib/osm";

/// The last program that is installed.
const CRICTL: &str = "/opt/bin/crictl";

/// What a pod writes there at every boot.
const NOT_OURS: &str = "etc/cni/net.d/";

/// What a power cut at the first boot leaves behind: cloud-init has written files and does not do it again,
/// and what it wrote is not on the disk.
const LOSE_WHAT_WAS_WRITTEN: &str = "systemctl stop osm-bootstrap.service && rm /var/lib/osm/begun && sync && \
    truncate -s 0 /opt/bin/osm-* /etc/osm/api-token /etc/systemd/system/osm-bootstrap.service && \
    rm /etc/systemd/system/multi-user.target.wants/osm-bootstrap.service && sync";

/// The power is cut before the files of the bootstrap document are on the disk.
pub async fn power_cut(run: &ScenarioRun<'_>) -> Result<()> {
    let (relay, address) = (&run.environment.relay, run.address());
    relay.set(address, Mode::Silent);
    run.boot().await?;
    let asks = async |before: usize| {
        wait_for(
            "the machine to ask for its document",
            run.patience(ASKS),
            async || check(relay.connections(address) > before),
        )
        .await
    };
    asks(0).await?;
    // The tokens' owner runs now: what looks at process lists must have seen it, or it would see no leak
    // either.
    wait_for("the process list", run.patience(ASKS), async || {
        let seen = run.machine(|machine| machine.processes())?;
        check(
            seen.iter()
                .any(|process| process.contains("-H @/etc/osm/api-token")),
        )
    })
    .await?;
    run.shell(LOSE_WHAT_WAS_WRITTEN)?;
    let before = relay.connections(address);
    reset(run, BOOTSTRAPPED)?;
    asks(before).await?;
    relay.set(address, Mode::Pass);
    run.ready(READY).await.map(drop)
}

/// As long as this is there, the machine does not begin to apply its document. A reset takes it away.
const HOLD: &str = "run/lab-hold";

/// The machine is reset when it has its document but has not applied it, and while programs are downloaded.
/// Once it is a node, a boot changes nothing.
pub async fn restart(run: &ScenarioRun<'_>) -> Result<()> {
    let (mirror, relay, address) = (&run.environment.mirror, &run.environment.relay, run.address());
    mirror.fault(address, "/kubelet", Fault::Stalled);
    run.boot_changed(&hold_the_applier).await?;
    wait_for("the document", run.patience(READY), async || {
        check(run.has("/var/lib/osm/provisioning.yaml")?)
    })
    .await?;
    relay.set(address, Mode::Refuse);
    // A power cut forgets what is not on the disk yet.
    run.shell("sync")?;
    reset(run, BOOTSTRAPPED)?;
    // From its disk, as nobody answers.
    run.console_says(&["osm-bootstrap: the provisioning document is applied"], READY)
        .await?;
    relay.set(address, Mode::Pass);

    wait_for("the other downloads", run.patience(READY), async || {
        check(run.has("/var/lib/osm/downloads/containerd")?)
    })
    .await?;
    // What had arrived is downloaded again only if it was lost.
    run.shell("sync")?;
    mirror.mend(address, "/kubelet");
    reset(run, SET_UP)?;
    run.ready(READY).await?;
    let downloads = run.downloads();
    let again = downloads.iter().filter(|path| path.contains("containerd-static"));
    ensure!(
        again.count() == 1,
        "what had arrived whole is downloaded again: {downloads:?}"
    );
    a_boot_changes_nothing(run).await
}

/// Ends the machine at once, before there is what vouches for the step that is interrupted, and switches it
/// on again.
fn reset(run: &ScenarioRun<'_>, mark: &str) -> Result<()> {
    ensure!(!run.has(mark)?, "it is too late: {mark} is there");
    run.machine(Machine::cut_power)?;
    run.machine(Machine::power_on)
}

fn hold_the_applier(root: &Path) -> Result<()> {
    let tools = root.join("usr/local/lib/lab/hold");
    let drop_in = root.join("etc/systemd/system/osm-bootstrap.service.d");
    for folder in [&tools, &drop_in, &root.join("run")] {
        fs::create_dir_all(folder)?;
    }
    let python = format!(
        "#!/bin/sh\ncase $1 in */osm-apply) while [ -e /{HOLD} ]; do sleep 0.1; done ;; esac\nexec /usr/bin/python3 \"$@\"\n"
    );
    fs::write(tools.join("python3"), python)?;
    fs::set_permissions(tools.join("python3"), fs::Permissions::from_mode(0o755))?;
    fs::write(root.join(HOLD), "")?;
    let path = "/usr/local/lib/lab/hold:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    Ok(fs::write(
        drop_in.join("lab.conf"),
        format!("[Service]\nEnvironment=PATH={path}\n"),
    )?)
}

/// The next boot of a node downloads, starts and writes nothing again.
async fn a_boot_changes_nothing(run: &ScenarioRun<'_>) -> Result<()> {
    // What comes after the node is Ready must be over: nothing may be in the middle of a change. crictl comes
    // last.
    wait_for("everything to be applied", run.patience(READY), async || {
        let state = run.shell("systemctl is-active osm-setup.service || true")?;
        let is_over = !["active", "activating"].contains(&state.trim());
        check(is_over && run.has(CRICTL)? && !run.has("/var/lib/osm/downloads")?)
    })
    .await?;
    let before = files(run)?;
    run.with_machine(async |machine| machine.shut_down().await)
        .await?;
    let downloads = run.downloads().len();
    run.machine(Machine::power_on)?;
    run_pod(run).await?; // on a node that has come back, whatever its conditions say
    wait_for("the boot to be over", run.patience(READY), async || {
        check(run.shell("systemctl is-system-running || true")?.trim() != "starting")
    })
    .await?;
    let fetched = run.downloads().split_off(downloads);
    ensure!(fetched.is_empty(), "the boot downloads {fetched:?}");
    let units = "--unit=osm-bootstrap.service --unit=osm-setup.service";
    let again = run.shell(&format!(
        "journalctl --boot --quiet {units} --grep='^Start(ed|ing) ' || true"
    ))?;
    ensure!(again.is_empty(), "the boot does it again: {again}");
    let after = files(run)?;
    let changed: Vec<&String> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path) && !path.starts_with(NOT_OURS))
        .collect();
    ensure!(changed.is_empty(), "the boot changes {changed:?}");
    Ok(())
}

/// Inode and time of change of each file: a file that is written again is another one, even with the same
/// content.
fn files(run: &ScenarioRun<'_>) -> Result<BTreeMap<String, String>> {
    let found = run.shell(&format!("cd / && find {OURS} ! -type d -printf '%i %T@ %p\\n'"))?;
    let files = found.lines().filter_map(|line| {
        let (inode, rest) = line.split_once(' ')?;
        let (changed, path) = rest.split_once(' ')?;
        Some((path.to_owned(), format!("{inode} {changed}")))
    });
    Ok(files.collect())
}
