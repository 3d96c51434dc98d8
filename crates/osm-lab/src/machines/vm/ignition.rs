//! What a virtual machine gets whose user data Ignition reads: the document, as QEMU hands it to Ignition, and two disks.
//!
//! On the disk LAB, `ignition.sh` finds arguments of the kernel, the agent and the layer of the machine. The disk OEM is empty, and the
//! machine keeps it: it takes the place of Flatcar's partition of this name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::machine::{DataSource, Order};
use super::disk;
use super::seed::{AGENT, AGENT_UNIT, WATCHER, WATCHER_UNIT, iso, pack_layer};

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
        user_data,
        tmpfs,
        hardware,
        layer: _,
        image: _,
    } = *order;
    ensure!(
        tmpfs.is_empty(),
        "machine {name} boots with Ignition, and can't have small file systems in memory"
    );
    ensure!(
        hardware.swap_mib.is_none() && !hardware.second_card && hardware.data_source == DataSource::NoCloud,
        "machine {name} boots with Ignition, and can't have swap, a second network card or a data source of cloud-init"
    );
    let supplies = Supplies::of(directory);
    fs::write(&supplies.config, user_data)?;
    disk::format(&supplies.oem, OEM, "mkfs.ext4", &["-q", "-F", "-L", "OEM"])?;
    let folder = directory.join("lab");
    let arguments = link
        .kernel_arguments(address)
        .with_context(|| format!("machine {name} boots with Ignition"))?;
    fill(&folder, &arguments)?;
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::super::image::{Content, Image};
    use super::super::super::machine::{Hardware, Tmpfs, unchanged};
    use super::super::super::network::Link;
    use super::super::disk::{Disk, Reader};
    use super::super::qemu::Accelerator;
    use super::*;

    fn image() -> Image {
        let disk = Disk {
            path: PathBuf::new(),
            format: "raw",
            kernel: None,
            reader: Reader::Ignition,
        };
        Image(Content::Virtual(disk, Accelerator::Kvm))
    }

    #[test]
    fn the_machine_finds_its_network_and_the_agent() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("lab");
        fill(&folder, "ip=a console=b").unwrap();
        let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap();
        assert_eq!(read("boot.cfg"), "set arguments=\"ip=a console=b\"\n");
        // Each unit is started, and what it starts is there.
        for (unit, program) in [
            ("lab-agent", "/run/lab/agent"),
            ("lab-watcher", "/run/lab/watcher.py"),
        ] {
            let text = read(&format!(
                "run/systemd/system/multi-user.target.wants/{unit}.service"
            ));
            assert!(text.contains(program), "{text}");
            assert!(folder.join(program.trim_start_matches('/')).is_file());
        }
    }

    #[test]
    fn an_order_becomes_a_document_and_two_disks() {
        super::super::require_programs().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let (image, seed) = (image(), scratch.path().join("seed.iso"));
        let mut order = Order {
            name: "one",
            address: Ipv4Addr::new(10, 217, 0, 17),
            link: Link::default(),
            image: &image,
            user_data: b"{}",
            layer: &unchanged,
            tmpfs: &[],
            hardware: Hardware::default(),
        };
        write(scratch.path(), &seed, &order).unwrap();
        let supplies = Supplies::of(scratch.path());
        assert_eq!(fs::read(supplies.config).unwrap(), b"{}");
        // Labels, where the formats have them.
        let label = |path: &Path, at: usize| fs::read(path).unwrap()[at..at + 3].to_vec();
        assert_eq!(label(&supplies.oem, 1024 + 120), b"OEM");
        assert_eq!(label(&seed, 0x8000 + 40), b"LAB");

        order.tmpfs = &[Tmpfs {
            path: "/some",
            size: "1M",
        }];
        let error = write(scratch.path(), &seed, &order).unwrap_err().to_string();
        assert!(
            error.contains("machine one") && error.contains("in memory"),
            "{error}"
        );
    }
}
