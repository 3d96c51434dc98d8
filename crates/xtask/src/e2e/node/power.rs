//! Machines that are switched off and on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_testkit::lab::Machine;
use osm_testkit::serve::files::Fault;
use osm_testkit::serve::relay::Mode;
use osm_testkit::{check, wait_for};

use super::exists;
use super::visit::{READY, Visit};

/// How long a machine may take until it asks for the first thing.
const ASKS: Duration = Duration::from_secs(60);

/// What our documents write.
const OURS: [&str; 6] =
    ["etc/kubernetes", "etc/containerd", "etc/osm", "etc/systemd/system", "opt", "var/lib/osm"];

/// After a boot that has succeeded, the next one changes nothing.
pub async fn second_boot(visit: &Visit<'_>) -> Result<()> {
    visit.boot().await?;
    visit.ready(READY).await?;
    // What comes after the node is Ready must be over: nothing may be in the middle of a change.
    wait_for("everything to be applied", READY, async || {
        check(visit.shell("systemctl is-active --quiet osm-setup.service || echo over")?.contains("over"))
    })
    .await?;
    wait_for("the node's Lease", READY, async || Ok(Some(lease(visit).await?))).await?;
    visit.with_machine(async |machine| machine.shut_down().await).await?;
    let lease = lease(visit).await?;
    let before = visit.machine(|machine| files(machine.root()))?;
    let downloads = visit.downloads()?.len();

    visit.machine(Machine::power_on)?;
    wait_for("the node to report again", READY, async || check(self::lease(visit).await? > lease)).await?;
    visit.ready(READY).await?;
    let fetched = visit.downloads()?.split_off(downloads);
    ensure!(fetched.is_empty(), "the second boot downloads {fetched:?}");
    let after = visit.machine(|machine| files(machine.root()))?;
    let changed: Vec<&String> =
        before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
    ensure!(changed.is_empty(), "the second boot changes {changed:?}");
    Ok(())
}

/// When the node last reported, as its Lease has it.
async fn lease(visit: &Visit<'_>) -> Result<String> {
    let arguments =
        ["get", "lease", "--namespace=kube-node-lease", &visit.node(), "--output=jsonpath={.spec.renewTime}"];
    visit.site.kubectl(&arguments).await
}

/// Inode and time of change of each file: a file that is written again is another one, even with the same content.
fn files(root: &Path) -> Result<BTreeMap<String, (u64, i64)>> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<_> = OURS.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let (path, metadata) =
                (entry.as_ref().map(fs::DirEntry::path), entry.as_ref().map(fs::DirEntry::metadata));
            let (Ok(path), Ok(metadata)) = (path, metadata) else { continue };
            let metadata = metadata?;
            if metadata.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                found.insert(name, (metadata.ino(), metadata.mtime()));
            }
        }
    }
    Ok(found)
}

/// The power fails while the machine waits for its document.
pub async fn in_bootstrap(visit: &Visit<'_>) -> Result<()> {
    let address = visit.address();
    visit.site.relay.set(address, Mode::Held);
    visit.boot().await?;
    let asked = || visit.site.relay.requests().iter().filter(|request| request.client == address).count();
    wait_for("the machine to ask for its document", ASKS, async || check(asked() > 0)).await?;
    visit.with_machine(async |machine| machine.cut_power().await).await?;
    visit.machine(|machine| {
        ensure!(!exists(machine.root(), "/var/lib/osm/bootstrapped"), "it was too late: bootstrap is done");
        machine.power_on()
    })?;
    let before = asked();
    wait_for("the machine to ask again", ASKS, async || check(asked() > before)).await?;
    visit.site.relay.set(address, Mode::Pass);
    visit.ready(READY).await.map(drop)
}

/// The power fails while programs are downloaded.
pub async fn in_provisioning(visit: &Visit<'_>) -> Result<()> {
    let address = visit.address();
    visit.site.mirror.fault(address, "/kubelet", Fault::Stalled);
    visit.boot().await?;
    wait_for("the other downloads", ASKS, async || {
        check(visit.machine(|machine| Ok(exists(machine.root(), "/var/lib/osm/downloads/containerd")))?)
    })
    .await?;
    visit.with_machine(async |machine| machine.cut_power().await).await?;
    visit.site.mirror.mend(address);
    visit.machine(|machine| {
        ensure!(!exists(machine.root(), "/var/lib/osm/set-up"), "it was too late: the machine is set up");
        machine.power_on()
    })?;
    visit.ready(READY).await?;
    let again = visit.downloads()?.iter().filter(|path| path.contains("containerd-static")).count();
    ensure!(again == 1, "what had arrived whole is downloaded again");
    Ok(())
}
