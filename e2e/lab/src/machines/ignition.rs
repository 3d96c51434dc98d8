//! What a virtual machine gets whose user data Ignition reads: the document, as QEMU hands it to Ignition,
//! and two disks.
//!
//! On the disk LAB, `ignition.sh` finds arguments of the kernel, the agent and the layer of the machine. The
//! disk OEM is empty, and the machine keeps it: it takes the place of Flatcar's partition of this name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::machine::{DataSource, Order};
use super::network::{Link, NETMASK};
use super::seed::{AGENT, AGENT_UNIT, WATCHER, WATCHER_UNIT, iso, pack_layer};
use super::{HOST, run};

/// Size of the disk OEM.
const OEM: u64 = 32 << 20;

/// Files of a machine that only Ignition needs.
#[derive(Debug, Clone)]
pub(super) struct Supplies {
    /// The user data.
    pub(super) config: PathBuf,
    /// The disk OEM, in the format raw.
    pub(super) oem: PathBuf,
}

impl Supplies {
    /// In the folder of a machine.
    pub(super) fn of(directory: &Path) -> Self {
        Self {
            config: directory.join("config.ign"),
            oem: directory.join("oem.raw"),
        }
    }
}

/// Writes the parts of an order into `directory`, and the disk LAB as `seed`.
pub(super) fn write(directory: &Path, seed: &Path, order: &Order<'_>) -> Result<()> {
    let Order {
        name,
        address,
        link,
        data_source,
        user_data,
        ..
    } = *order;
    ensure!(
        link == Link::IPv4 && data_source == DataSource::NoCloud,
        "machine {name} boots with Ignition, and can have only IPv4 and no data source of cloud-init"
    );
    let Supplies { config, oem } = Supplies::of(directory);
    fs::write(config, user_data)?;
    fs::File::create(&oem)?.set_len(OEM)?;
    run(
        "mkfs.ext4",
        &["-q", "-F", "-L", "OEM", &oem.display().to_string()],
    )?;
    let folder = directory.join("lab");
    // systemd's generator of networks reads this, and the only card is `eth0`.
    fill(&folder, &format!("ip={address}::{HOST}:{NETMASK}::eth0:none"))?;
    pack_layer(directory, &folder, order)?;
    iso("LAB", &folder, seed)
}

/// What `ignition.sh` expects on the disk LAB.
fn fill(folder: &Path, arguments: &str) -> Result<()> {
    let [lab, units] = ["run/lab", "run/systemd/system"].map(|name| folder.join(name));
    let wanted = units.join("multi-user.target.wants");
    for folder in [&lab, &wanted] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(
        folder.join("boot.cfg"),
        format!("set arguments=\"{arguments}\"\n"),
    )?;
    fs::write(lab.join("agent"), AGENT)?;
    fs::write(lab.join("watcher.py"), WATCHER)?;
    for (name, unit) in [
        ("lab-agent.service", AGENT_UNIT),
        ("lab-watcher.service", WATCHER_UNIT),
    ] {
        fs::write(units.join(name), unit)?;
        symlink(format!("../{name}"), wanted.join(name))?;
    }
    Ok(())
}
