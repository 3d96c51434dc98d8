//! A virtual machine of QEMU, with a kernel, disks, memory and a clock of its own. It needs no root: QEMU
//! runs as the user, and its network card is a tap device on the bridge of the lab.
//!
//! A machine boots from a layer on top of an [`Image`]. cloud-init finds its data on a second disk, or in a
//! metadata service (`seed`). Ignition gets the user data from QEMU (`ignition`). The serial console is a
//! file. A shell script in the machine (`agent`) runs commands of the host.

use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use osm_testkit::process::Service;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::agent::{Agent, Output};
use super::ignition::{self, Supplies};
use super::image::{Image, Reader};
use super::network::{Cable, Link};
use super::qemu::{self, Accelerator, Parts};
use super::{Lab, program, seed};

/// The disk with what a machine gets from its cloud.
const SEED: &str = "seed.iso";

/// How long QEMU may take until it listens on its sockets.
const QEMU_STARTS: Duration = Duration::from_secs(180);

/// How long a machine may take to shut down, on a host where it is as fast as the host.
const SHUTDOWN: Duration = Duration::from_secs(100);

/// How long a command in a machine may take, on such a host.
const COMMAND: Duration = Duration::from_secs(60);

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
    /// Where cloud-init finds its data.
    pub data_source: DataSource,
    /// What the cloud hands to cloud-init.
    pub user_data: &'a [u8],
    /// Writes what is different in this machine's image into an empty folder. That folder is laid over the
    /// root file system.
    pub layer: &'a dyn Fn(&Path) -> Result<()>,
}

/// Where cloud-init in a machine finds user data, instance id and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSource {
    /// On a disk, as it is not specific to a cloud.
    NoCloud,
    /// In EC2's metadata service. The machine gets its address by DHCP.
    Ec2,
    /// In OpenStack's metadata service. The machine gets its address by DHCP.
    OpenStack,
}

/// A layer without files: the machine boots from its image as it is.
pub fn unchanged(_: &Path) -> Result<()> {
    Ok(())
}

/// A machine. It is removed, with its disk, when it is dropped.
#[derive(Debug)]
pub struct Machine {
    name: String,
    image: Image,
    data_source: DataSource,
    accelerator: Accelerator,
    // In the order in which they are dropped.
    agent: Mutex<Option<Agent>>,
    process: Option<Service>,
    cable: Cable,
    directory: TempDir,
}

impl Machine {
    pub(super) fn boot(lab: &Lab, order: &Order<'_>) -> Result<Self> {
        let Order {
            name,
            address,
            image,
            data_source,
            ..
        } = *order;
        ensure!(
            data_source != DataSource::Ec2 || image.kernel.is_some(),
            "machine {name} has its data from EC2, which needs an image whose kernel QEMU loads: leave out --image"
        );
        // A short name: the path of a socket has at most 107 bytes.
        let directory = tempfile::Builder::new()
            .prefix("vm-")
            .tempdir_in(lab.directory())?;
        let cable = Cable::lay(address)?;
        let seed = directory.path().join(SEED);
        match image.reader {
            Reader::CloudInit => seed::write(lab, directory.path(), &seed, order, &cable.mac())?,
            Reader::Ignition => ignition::write(directory.path(), &seed, order)?,
        }
        let mut machine = Self {
            name: name.to_owned(),
            image: image.clone(),
            data_source,
            accelerator: lab.accelerator,
            agent: Mutex::new(None),
            process: None,
            cable,
            directory,
        };
        image.layer(&machine.file("disk.qcow2"))?;
        machine.power_on()?;
        Ok(machine)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Switches it on. A machine that is on stays as it is.
    ///
    /// # Errors
    /// When QEMU can't be started.
    pub fn power_on(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let ignition = self.image.reader == Reader::Ignition;
        let parts = Parts {
            name: &self.name,
            accelerator: self.accelerator,
            data_source: self.data_source,
            disk: self.file("disk.qcow2"),
            seed: self.file(SEED),
            kernel: self.image.kernel.as_ref(),
            ignition: ignition.then(|| Supplies::of(self.directory.path())),
            console: self.file("console.log"),
            agent: self.file("agent"),
            tap: self.cable.port(),
            mac: self.cable.mac(),
        };
        let none: [(&str, &str); 0] = [];
        let mut process = Service::spawn(
            &program(qemu::QEMU)?,
            parts.arguments(),
            none,
            &self.file("qemu.log"),
        )?;
        // From now on, so that the agent's first line is not missed.
        let agent = connect(&mut process, &parts.agent)?;
        self.process = Some(process);
        *self.agent.lock() = Some(agent);
        Ok(())
    }

    /// Ends it at once, as a power cut does: what the machine had not written to its disk is lost.
    ///
    /// # Errors
    /// When its process can't be ended.
    pub fn cut_power(&mut self) -> Result<()> {
        *self.agent.lock() = None;
        if let Some(mut process) = self.process.take() {
            process.kill9()?;
        }
        Ok(())
    }

    /// Shuts it down as its operator would.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn shut_down(&mut self) -> Result<()> {
        self.run(&["systemctl", "poweroff", "--no-block"])?;
        *self.agent.lock() = None;
        if let Some(mut process) = self.process.take() {
            let ended = process.wait(SHUTDOWN * self.accelerator.slowness()).await;
            ended.with_context(|| format!("shutdown of {}", self.name))?;
        }
        Ok(())
    }

    /// Whether more is to be expected of the machine.
    ///
    /// # Errors
    /// When it has ended by itself, with the end of the console.
    pub fn lives(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let Some(status) = process.exited()? else {
            return Ok(());
        };
        let console = self.console().unwrap_or_default();
        let lines = console.lines().skip(console.lines().count().saturating_sub(10));
        bail!(
            "machine {} has ended by itself ({status}). QEMU printed:\n{}\nIts console ended with:\n{}",
            self.name,
            fs::read_to_string(self.file("qemu.log")).unwrap_or_default(),
            lines.collect::<Vec<_>>().join("\n")
        );
    }

    fn script(&self, script: &str, input: &[u8]) -> Result<Output> {
        let mut agent = self.agent.lock();
        agent
            .as_mut()
            .with_context(|| format!("machine {} is switched off", self.name))?
            .run(script, input, COMMAND * self.accelerator.slowness())
            .with_context(|| format!("in machine {}", self.name))
    }

    /// Runs a script that must succeed, and gives its standard output.
    fn output(&self, script: &str, input: &[u8]) -> Result<Vec<u8>> {
        let Output {
            status,
            stdout,
            stderr,
        } = self.script(script, input)?;
        ensure!(
            status == 0,
            "in machine {}: {script:?} failed ({status}): {}",
            self.name,
            String::from_utf8_lossy(&stderr).trim_end()
        );
        Ok(stdout)
    }

    /// Runs a command in the machine and gives its standard output.
    ///
    /// # Errors
    /// When the machine does not run, or the command fails or does not end in time.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        let output = self.output(&format!("exec {}", words.join(" ")), &[])?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Whether its disk holds a file.
    ///
    /// # Errors
    /// When the machine can't be asked.
    pub fn has(&self, path: &str) -> Result<bool> {
        let path = quoted(path);
        // 1 means no; any other code means that the machine did not answer.
        let script = format!("test -e {path} || test -L {path}");
        match self.script(&script, &[])? {
            Output { status: 0, .. } => Ok(true),
            Output { status: 1, .. } => Ok(false),
            other => bail!("in machine {}: {script:?}: {other:?}", self.name),
        }
    }

    /// The content of a file; none if there is no such file.
    ///
    /// # Errors
    /// When the machine can't be asked.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        if !self.has(path)? {
            return Ok(None);
        }
        let packed = self.output(&format!("gzip -1 <{}", quoted(path)), &[])?;
        unpack(&packed).map(Some)
    }

    /// Writes a file, readable for root alone.
    ///
    /// # Errors
    /// When the machine does not take it.
    pub fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let to = quoted(path);
        self.output(&format!("umask 077; rm -f {to}; cat >{to}"), content)
            .map(drop)
    }

    /// All that it has written to its console, over all boots.
    ///
    /// # Errors
    /// When that can't be read.
    pub fn console(&self) -> Result<String> {
        let bytes = fs::read(self.file("console.log")).context("the console's file")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its journal, of all boots. `format` is one of `journalctl --output`.
    ///
    /// # Errors
    /// When the machine can't be asked.
    pub fn journal(&self, format: &str) -> Result<String> {
        let print = format!("journalctl --output={format} --all --quiet --no-pager");
        let packed = self.output(
            &format!("{print} >journal && gzip -1 <journal && rm journal"),
            &[],
        )?;
        Ok(String::from_utf8_lossy(&unpack(&packed)?).into_owned())
    }

    /// Command lines with their environments that the machine has seen since it was switched on: in each
    /// line, a tab is between both. A watcher in it looks a few times a second.
    ///
    /// # Errors
    /// When the machine can't be asked, or its watcher sees nothing.
    pub fn processes(&self) -> Result<Vec<String>> {
        let lines = self.read("/run/lab/processes")?.unwrap_or_default();
        let lines = String::from_utf8_lossy(&lines);
        let seen: Vec<String> = lines.lines().map(str::to_owned).collect();
        // Without this it would see no leak either.
        ensure!(
            seen.iter().any(|process| process.contains("/run/lab/agent")),
            "the watcher of processes in machine {} sees nothing",
            self.name
        );
        Ok(seen)
    }

    /// Copies what tells what happened into a folder: console, journal, cloud-init's logs, and what QEMU has
    /// printed.
    ///
    /// # Errors
    /// When a file can't be written. A log that can't be had is replaced by the reason, and one that does not
    /// exist is left out.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for name in ["console.log", "qemu.log"] {
            fs::copy(self.file(name), folder.join(name))?;
        }
        let journal = self.journal("short-precise");
        let journal = journal.unwrap_or_else(|error| format!("{error:#}\n"));
        fs::write(folder.join("journal.log"), journal)?;
        for name in ["cloud-init.log", "cloud-init-output.log"] {
            if let Ok(Some(log)) = self.read(&format!("/var/log/{name}")) {
                fs::write(folder.join(name), log)?;
            }
        }
        Ok(())
    }
}

/// Connects to the agent's channel as soon as QEMU listens there.
fn connect(process: &mut Service, socket: &Path) -> Result<Agent> {
    let started = Instant::now();
    loop {
        if let Some(status) = process.exited()? {
            bail!("QEMU ended at once ({status}): {}", process.log_tail(5));
        }
        match Agent::connect(socket) {
            Ok(agent) => return Ok(agent),
            Err(error) if started.elapsed() > QEMU_STARTS => {
                return Err(error.context(format!("QEMU does not listen: {}", process.log_tail(5))));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    GzDecoder::new(packed)
        .read_to_end(&mut content)
        .context("what the machine has compressed")?;
    Ok(content)
}

/// A word for the shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
