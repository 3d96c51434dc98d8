//! A machine of either kind: its boot, its power and its console. Scenarios use this, and do not know which kind they run on.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::Lab;
use super::container::Container;
use super::image::{Content, Image};
use super::journal::{self, Entry};
use super::network::Link;
use super::vm::VirtualMachine;

/// What a machine is made of.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Its name in the cloud, which becomes its host name.
    pub name: &'a str,
    /// Its address, from [`super::Lab::reserve`].
    pub address: Ipv4Addr,
    /// Its network.
    pub link: Link,
    /// What it boots from, which also decides how it is made.
    pub image: &'a Image,
    /// What the cloud hands to cloud-init.
    pub user_data: &'a [u8],
    /// Writes what is different in this machine's image into an empty folder. That folder is laid over the root file system.
    pub layer: &'a dyn Fn(&Path) -> Result<()>,
    /// Small file systems in memory.
    pub tmpfs: &'a [Tmpfs],
    /// What it has beside a network and a disk. A container can only have another clock.
    pub hardware: Hardware,
}

/// What a virtual machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hardware {
    /// Memory.
    pub memory_mib: u64,
    /// Swap that is in use at every boot, as some images have it.
    pub swap_mib: Option<u64>,
    /// A second network card, `eth1`, with the address [`Hardware::SECOND_ADDRESS`] in a network in which there is nobody else.
    pub second_card: bool,
    /// The most that its disk reads and writes in a second.
    pub disk_mib_per_second: Option<u64>,
    /// Where it has its data from.
    pub data_source: DataSource,
    /// How far its clock is behind when it is switched on. In a container, only bootstrap sees that clock, in whole days.
    pub clock_behind: Duration,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            memory_mib: 2048,
            swap_mib: None,
            second_card: false,
            disk_mib_per_second: None,
            data_source: DataSource::NoCloud,
            clock_behind: Duration::ZERO,
        }
    }
}

impl Hardware {
    /// The address of the second network card.
    pub const SECOND_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 2);
}

/// Where cloud-init in a virtual machine finds user data, instance id and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSource {
    /// On a disk, as it is not specific to a cloud.
    NoCloud,
    /// On a disk as OpenStack makes it.
    ConfigDrive,
    /// In EC2's metadata service. The machine gets its address by DHCP.
    Ec2,
    /// In OpenStack's metadata service. The machine gets its address by DHCP.
    OpenStack,
}

/// A file system in memory. A command in the machine can change its size later.
#[derive(Debug, Clone, Copy)]
pub struct Tmpfs {
    /// Where it is mounted.
    pub path: &'static str,
    /// Its size, as `mount` takes it (`16M`).
    pub size: &'static str,
}

/// A layer without files: the machine boots from its image as it is.
///
/// # Errors
/// None; the type is that of every layer.
pub fn unchanged(_: &Path) -> Result<()> {
    Ok(())
}

/// A machine. It is removed, with its disk, when it is dropped.
#[derive(Debug)]
pub enum Machine {
    /// A container.
    Container(Container),
    /// A virtual machine.
    Virtual(VirtualMachine),
}

impl Machine {
    pub(super) fn boot(lab: &Lab, order: &Order<'_>) -> Result<Self> {
        Ok(match &order.image.0 {
            Content::Container(image) => Self::Container(Container::boot(lab.directory(), order, image)?),
            Content::Virtual(disk, accelerator) => {
                Self::Virtual(VirtualMachine::boot(lab, order, disk, accelerator)?)
            }
        })
    }

    /// Sets a clock that was behind.
    ///
    /// # Errors
    /// When the machine does not run.
    pub fn correct_clock(&self) -> Result<()> {
        match self {
            Self::Container(machine) => machine.correct_clock(),
            Self::Virtual(machine) => machine.correct_clock(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Container(machine) => machine.name(),
            Self::Virtual(machine) => machine.name(),
        }
    }

    /// As whom servers see it.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        match self {
            Self::Container(machine) => machine.address(),
            Self::Virtual(machine) => machine.address(),
        }
    }

    /// When it was last switched on.
    #[must_use]
    pub fn powered_on(&self) -> SystemTime {
        match self {
            Self::Container(machine) => machine.powered_on(),
            Self::Virtual(machine) => machine.powered_on(),
        }
    }

    /// Switches it on. A machine that is on stays as it is.
    ///
    /// # Errors
    /// When its program can't be started.
    pub fn power_on(&mut self) -> Result<()> {
        match self {
            Self::Container(machine) => machine.power_on(),
            Self::Virtual(machine) => machine.power_on(),
        }
    }

    /// Ends it at once, as a power cut does.
    ///
    /// # Errors
    /// When its processes can't be ended.
    pub async fn cut_power(&mut self) -> Result<()> {
        match self {
            Self::Container(machine) => machine.cut_power().await,
            Self::Virtual(machine) => machine.cut_power(),
        }
    }

    /// Shuts it down as its operator would.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn shut_down(&mut self) -> Result<()> {
        match self {
            Self::Container(machine) => machine.shut_down().await,
            Self::Virtual(machine) => machine.shut_down().await,
        }
    }

    /// Why nothing more is to be expected of the machine: it has ended by itself, or its console is silent although it has not booted.
    ///
    /// # Errors
    /// That reason, with the end of the console.
    pub fn lives(&mut self) -> Result<()> {
        match self {
            // The console of a container is systemd's: a container that ends has printed why.
            Self::Container(_) => Ok(()),
            Self::Virtual(machine) => machine.lives(),
        }
    }

    /// Runs a command in the machine and gives its standard output.
    ///
    /// # Errors
    /// When the machine does not run, or the command fails or does not end in time.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        match self {
            Self::Container(machine) => machine.run(command),
            Self::Virtual(machine) => machine.run(command),
        }
    }

    /// Whether its disk holds a file. The machine may be off.
    ///
    /// # Errors
    /// When the machine can't be asked.
    pub fn has(&self, path: &str) -> Result<bool> {
        match self {
            Self::Container(machine) => Ok(machine.file(path).symlink_metadata().is_ok()),
            Self::Virtual(machine) => machine.has(path),
        }
    }

    /// The content of a file; none if there is no such file.
    ///
    /// # Errors
    /// When the machine can't be asked.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Container(machine) => Ok(fs::read(machine.file(path)).ok()),
            Self::Virtual(machine) => machine.read(path),
        }
    }

    /// Writes a file, readable for root alone.
    ///
    /// # Errors
    /// When the machine does not take it.
    pub fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        match self {
            Self::Container(machine) => fs::write(machine.file(path), content).context(path.to_owned()),
            Self::Virtual(machine) => machine.write(path, content),
        }
    }

    /// All that it has written to its console, over all boots.
    ///
    /// # Errors
    /// When that can't be read.
    pub fn console(&self) -> Result<String> {
        let file = match self {
            Self::Container(machine) => machine.console_file(),
            Self::Virtual(machine) => machine.console_file(),
        };
        let bytes = fs::read(file).context("the console's file")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its journal, of all boots.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn journal(&self) -> Result<Vec<Entry>> {
        journal::entries(&self.raw_journal()?)
    }

    /// All that its journal knows, of all boots: a JSON object a line.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn raw_journal(&self) -> Result<String> {
        match self {
            Self::Container(machine) => journal::raw(&machine.file("var/log/journal")),
            Self::Virtual(machine) => machine.raw_journal(),
        }
    }

    /// From now on, nothing that the host sends from the address `from` arrives: connections time out.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut(&self, from: Ipv4Addr) -> Result<()> {
        match self {
            Self::Container(machine) => machine.cable().cut(from),
            Self::Virtual(machine) => machine.cable().cut(from),
        }
    }

    /// Takes back [`Self::cut`].
    ///
    /// # Errors
    /// When nothing was cut.
    pub fn mend(&self, from: Ipv4Addr) -> Result<()> {
        match self {
            Self::Container(machine) => machine.cable().mend(from),
            Self::Virtual(machine) => machine.cable().mend(from),
        }
    }

    /// Command lines with their environments that a virtual machine has seen since it was switched on. What runs in a container is a process
    /// of the host, which [`super::processes::Watcher`] sees.
    ///
    /// # Errors
    /// When the machine can't be asked.
    pub fn processes(&self) -> Result<Vec<String>> {
        match self {
            Self::Container(_) => Ok(Vec::new()),
            Self::Virtual(machine) => machine.processes(),
        }
    }

    /// Copies what tells what happened into a folder: console, journal, cloud-init's logs.
    ///
    /// # Errors
    /// When a file can't be written. A log that can't be had is replaced by the reason, and one that does not exist is left out.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(folder.join("console.log"), self.console()?)?;
        let journal = self.journal().map(|entries| journal::readable(&entries));
        let journal = journal.unwrap_or_else(|error| format!("{error:#}\n"));
        fs::write(folder.join("journal.log"), journal)?;
        if let Self::Virtual(machine) = self {
            fs::write(folder.join("qemu.log"), machine.qemu_log())?;
        }
        for name in ["cloud-init.log", "cloud-init-output.log"] {
            if let Ok(Some(log)) = self.read(&format!("/var/log/{name}")) {
                fs::write(folder.join(name), log)?;
            }
        }
        Ok(())
    }

    /// How long a command in a machine may take, on a host where a machine is as fast as the host.
    pub(super) const COMMAND: Duration = Duration::from_secs(60);
}
