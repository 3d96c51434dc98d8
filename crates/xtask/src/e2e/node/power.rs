//! Machines that are switched off and on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

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
const OURS: [&str; 3] = ["etc", "opt", "var/lib/osm"];

/// The last program that is installed.
const CRICTL: &str = "/opt/bin/crictl";

/// What a pod writes there at every boot.
const NOT_OURS: &str = "etc/cni/net.d/";

/// After a boot that has succeeded, the next one changes nothing.
pub async fn second_boot(run: &ScenarioRun<'_>) -> Result<()> {
    run.boot().await?;
    run.ready(READY).await?;
    // What comes after the node is Ready must be over: nothing may be in the middle of a change. crictl comes last.
    wait_for("everything to be applied", run.patience(READY), async || {
        check(
            run.has(CRICTL)?
                && !run.has("/var/lib/osm/downloads")?
                && run
                    .shell("systemctl is-active --quiet osm-setup.service || echo over")?
                    .contains("over"),
        )
    })
    .await?;
    let before = files(run)?;
    run.with_machine(async |machine| machine.shut_down().await)
        .await?;
    let downloads = run.downloads()?.len();

    run.machine(Machine::power_on)?;
    run_pod(run).await?; // on a node that has come back, whatever its conditions say
    wait_for("the boot to be over", run.patience(READY), async || {
        check(run.shell("systemctl is-system-running || true")?.trim() != "starting")
    })
    .await?;
    let fetched = run.downloads()?.split_off(downloads);
    ensure!(fetched.is_empty(), "the second boot downloads {fetched:?}");
    let since = run.machine(|machine| Ok(machine.powered_on().duration_since(UNIX_EPOCH)?.as_secs_f64()))?;
    let journal = run.machine(|machine| machine.journal())?;
    let again = journal.iter().find(|entry| {
        entry.time >= since
            && ["osm-bootstrap.service", "osm-setup.service"].contains(&entry.unit.as_str())
            && entry.message.starts_with("Started ")
    });
    ensure!(again.is_none(), "the second boot does it again: {again:?}");
    let after = files(run)?;
    let changed: Vec<&String> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path) && !path.starts_with(NOT_OURS))
        .collect();
    ensure!(changed.is_empty(), "the second boot changes {changed:?}");
    Ok(())
}

/// Inode and time of change of each file: a file that is written again is another one, even with the same content.
fn files(run: &ScenarioRun<'_>) -> Result<BTreeMap<String, String>> {
    let script = format!("cd / && find {} ! -type d -printf '%i %T@ %p\\n'", OURS.join(" "));
    let found = run.shell(&script)?;
    let files = found.lines().filter_map(|line| {
        let (inode, rest) = line.split_once(' ')?;
        let (changed, path) = rest.split_once(' ')?;
        Some((path.to_owned(), format!("{inode} {changed}")))
    });
    Ok(files.collect())
}

/// As long as this is there, the machine does not begin to apply its document.
const HOLD: &str = "etc/lab-hold";

/// What a power cut at the first boot leaves behind: cloud-init has written files and does not do it again, and what it wrote is not on the
/// disk.
const LOSE_WHAT_WAS_WRITTEN: &str = "systemctl stop osm-bootstrap.service && rm /var/lib/osm/begun && sync && \
    truncate -s 0 /opt/bin/osm-* /etc/osm/api-token /etc/systemd/system/osm-bootstrap.service && \
    rm /etc/systemd/system/multi-user.target.wants/osm-bootstrap.service && sync";

/// The machine is reset before the files of its bootstrap document are on the disk, while it waits for the other document, and when it has
/// that but has not applied it.
pub async fn in_bootstrap(run: &ScenarioRun<'_>) -> Result<()> {
    let address = run.address();
    run.environment.relay.set(address, Mode::Held);
    run.boot_changed(&hold_the_applier, &[]).await?;
    let asked = || {
        run.environment
            .relay
            .requests()
            .iter()
            .filter(|request| request.client == address)
            .count()
    };
    wait_for(
        "the machine to ask for its document",
        run.patience(ASKS),
        async || check(asked() > 0),
    )
    .await?;
    // The tokens' owner runs now: what looks at process lists must have seen it, or it would see no leak either.
    wait_for("the process list", run.patience(ASKS), async || {
        let calls = run.processes(|process| process.contains("-H @/etc/osm/api-token"))?;
        check(!calls.is_empty())
    })
    .await?;
    for lost in [LOSE_WHAT_WAS_WRITTEN, "true"] {
        run.shell(lost)?;
        reset(run, BOOTSTRAPPED).await?;
        let before = asked();
        wait_for("the machine to ask again", run.patience(ASKS), async || {
            check(asked() > before)
        })
        .await?;
    }
    run.environment.relay.set(address, Mode::Pass);
    wait_for("the document", run.patience(ASKS), async || {
        check(run.has("/var/lib/osm/provisioning.yaml")?)
    })
    .await?;
    run.environment.relay.set(address, Mode::Refuse);
    // A power cut forgets what is not on the disk yet.
    run.shell(&format!("rm /{HOLD} && sync"))?;
    reset(run, BOOTSTRAPPED).await?;
    // From its disk, as nobody answers.
    run.console_says("osm-bootstrap: the provisioning document is applied", READY)
        .await?;
    run.environment.relay.set(address, Mode::Pass);
    run.ready(READY).await.map(drop)
}

fn hold_the_applier(root: &Path) -> Result<()> {
    let tools = root.join("usr/local/lib/lab/hold");
    fs::create_dir_all(&tools)?;
    let python = format!(
        "#!/bin/sh\ncase $1 in */osm-apply) while [ -e /{HOLD} ]; do sleep 0.1; done ;; esac\nexec /usr/bin/python3 \"$@\"\n"
    );
    fs::write(tools.join("python3"), python)?;
    fs::set_permissions(tools.join("python3"), fs::Permissions::from_mode(0o755))?;
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join(HOLD), "")?;
    let folder = root.join("etc/systemd/system/osm-bootstrap.service.d");
    fs::create_dir_all(&folder)?;
    let path = "/usr/local/lib/lab/hold:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    Ok(fs::write(
        folder.join("lab.conf"),
        format!("[Service]\nEnvironment=PATH={path}\n"),
    )?)
}

/// Ends the machine at once, before there is what vouches for the step that is interrupted.
async fn switch_off(run: &ScenarioRun<'_>, mark: &str) -> Result<()> {
    run.with_machine(async |machine| machine.cut_power().await)
        .await?;
    ensure!(!run.has(mark)?, "it was too late: {mark} is there");
    Ok(())
}

/// And on again.
async fn reset(run: &ScenarioRun<'_>, mark: &str) -> Result<()> {
    switch_off(run, mark).await?;
    run.machine(Machine::power_on)
}

/// The machine is reset while programs are downloaded.
pub async fn in_provisioning(run: &ScenarioRun<'_>) -> Result<()> {
    let address = run.address();
    run.environment.mirror.fault(address, "/kubelet", Fault::Stalled);
    run.boot().await?;
    wait_for("the other downloads", run.patience(ASKS), async || {
        check(run.has("/var/lib/osm/downloads/containerd")?)
    })
    .await?;
    // A power cut forgets what is not on the disk yet, and then it is downloaded again.
    run.shell("sync")?;
    switch_off(run, SET_UP).await?;
    run.environment.mirror.mend(address);
    run.machine(Machine::power_on)?;
    run.ready(READY).await?;
    let again = run
        .downloads()?
        .iter()
        .filter(|path| path.contains("containerd-static"))
        .count();
    ensure!(again == 1, "what had arrived whole is downloaded again");
    Ok(())
}
