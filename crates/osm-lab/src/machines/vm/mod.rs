//! Machines that are virtual machines of QEMU, with a kernel, disks, memory and a clock of their own. They need no root: QEMU runs as the
//! user, and its network card is a tap device on the bridge of the lab.
//!
//! A machine boots from a layer on top of an image ([`Disk`]). cloud-init finds its data on a second disk, or in a metadata service (`seed`).
//! Ignition gets the user data from QEMU (`ignition`). The serial console is a file. A shell script in the machine (`agent`) runs commands of
//! the host.

mod agent;
mod disk;
pub mod download;
mod given;
mod ignition;
mod offline;
mod openstack;
mod qemu;
mod resources;
mod seed;

use std::fs;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use parking_lot::Mutex;

pub use self::disk::Disk;
pub use self::given::{Checksum, Given};
pub use self::qemu::{Accelerator, PACKAGES, require_programs};

pub(super) use self::qemu::program;

use self::agent::{Agent, Output};
use self::disk::Reader;
use self::ignition::Supplies;
use self::offline::Layout;
use self::qemu::Parts;
use super::Lab;
use super::folder::Folder;
use super::machine::{DataSource, Hardware, Machine, Order};
use super::network::Cable;
use osm_testkit::process::Service;

/// The disk with what a machine gets from its cloud.
const SEED: &str = "seed.iso";

/// Processors of a machine.
const PROCESSORS: u32 = 2;

/// How long QEMU may take until it listens on its sockets.
const QEMU_STARTS: Duration = Duration::from_secs(20);

/// How long a machine may take to shut down, on a host where it is as fast as the host.
const SHUTDOWN: Duration = Duration::from_secs(100);

/// How long the console may be silent before the agent has announced itself.
const SILENCE: Duration = Duration::from_secs(60);

/// The same by emulation.
const SILENCE_EMULATED: Duration = Duration::from_secs(300);

/// A virtual machine. It is removed, with its disk, when it is dropped.
#[derive(Debug)]
pub struct VirtualMachine {
    name: String,
    address: IpAddr,
    disk: Disk,
    hardware: Hardware,
    accelerator: Accelerator,
    powered_on: SystemTime,
    heard: Heard,
    // In the order in which they are dropped.
    agent: Mutex<Option<Agent>>,
    process: Option<Service>,
    cable: Cable,
    directory: Folder,
}

/// When the console last said something.
#[derive(Debug)]
struct Heard {
    length: u64,
    at: Instant,
}

impl VirtualMachine {
    pub(super) fn boot(lab: &Lab, order: &Order<'_>, disk: &Disk, accelerator: &Accelerator) -> Result<Self> {
        let name = order.name;
        ensure!(
            order.hardware.data_source != DataSource::Ec2 || disk.kernel.is_some(),
            "machine {name} has its data from EC2, which needs an image whose kernel QEMU loads: leave out --image"
        );
        let directory = Folder::create(lab.directory(), name)?;
        resources::require_disk(&directory)?;
        let cable = Cable::tap(order.address)?;
        let seed = directory.join(SEED);
        match disk.reader {
            Reader::CloudInit => seed::write(lab, &directory, &seed, order, &cable.mac())?,
            Reader::Ignition => ignition::write(&directory, &seed, order)?,
        }
        let mut machine = Self {
            name: name.to_owned(),
            address: order.link.seen_as(order.address),
            disk: disk.clone(),
            hardware: order.hardware,
            accelerator: accelerator.clone(),
            powered_on: SystemTime::now(),
            heard: Heard {
                length: 0,
                at: Instant::now(),
            },
            agent: Mutex::new(None),
            process: None,
            cable,
            directory,
        };
        disk.layer(&machine.file("disk.qcow2"))?;
        if let Some(mebibytes) = order.hardware.swap_mib {
            disk::format(
                &machine.file("swap.raw"),
                mebibytes << 20,
                "mkswap",
                &["-L", "swap"],
            )?;
        }
        machine.power_on()?;
        Ok(machine)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    pub(super) fn powered_on(&self) -> SystemTime {
        self.powered_on
    }

    pub(super) fn cable(&self) -> &Cable {
        &self.cable
    }

    pub(super) fn console_file(&self) -> PathBuf {
        self.file("console.log")
    }

    /// What QEMU itself has printed.
    pub(super) fn qemu_log(&self) -> String {
        fs::read_to_string(self.file("qemu.log")).unwrap_or_default()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn power_on(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let ignition = self.disk.reader == Reader::Ignition;
        let parts = Parts {
            name: &self.name,
            accelerator: &self.accelerator,
            hardware: self.hardware,
            swap: self.file("swap.raw"),
            processors: PROCESSORS,
            disk: self.file("disk.qcow2"),
            seed: self.file(SEED),
            kernel: self.disk.kernel.clone(),
            ignition: ignition.then(|| Supplies::of(&self.directory)),
            console: self.console_file(),
            agent: self.file("agent"),
            monitor: self.file("monitor"),
            tap: self.cable.port(),
            mac: self.cable.mac(),
        };
        let none: [(&str, &str); 0] = [];
        let starting = resources::STARTING.lock();
        resources::require_memory(self.hardware.memory_mib)?;
        self.powered_on = SystemTime::now();
        let mut process = Service::spawn(
            &program(qemu::QEMU)?,
            parts.arguments(),
            none,
            &self.file("qemu.log"),
        )?;
        // From now on, so that the agent's first line is not missed.
        let agent = connect(&mut process, &parts.agent)?;
        drop(starting);
        self.process = Some(process);
        *self.agent.lock() = Some(agent);
        self.heard = Heard {
            length: self.console_length(),
            at: Instant::now(),
        };
        Ok(())
    }

    /// SIGKILL: what the guest had not written to its disk is lost.
    pub(super) fn cut_power(&mut self) -> Result<()> {
        *self.agent.lock() = None;
        if let Some(mut process) = self.process.take() {
            process.kill9()?;
        }
        Ok(())
    }

    pub(super) async fn shut_down(&mut self) -> Result<()> {
        if let Some(process) = &mut self.process {
            qemu::press_power_button(&self.directory.join("monitor"))?;
            process
                .wait(SHUTDOWN * self.accelerator.slowness())
                .await
                .with_context(|| format!("shutdown of {}", self.name))?;
        }
        *self.agent.lock() = None;
        self.process = None;
        Ok(())
    }

    fn console_length(&self) -> u64 {
        fs::metadata(self.console_file()).map_or(0, |file| file.len())
    }

    pub(super) fn lives(&mut self) -> Result<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        if let Some(status) = process.exited()? {
            bail!(
                "machine {} has ended by itself ({status}). QEMU printed:\n{}\nIts console ended with:\n{}",
                self.name,
                process.log_tail(5),
                self.console_tail()
            );
        }
        let length = self.console_length();
        if length != self.heard.length {
            self.heard = Heard {
                length,
                at: Instant::now(),
            };
        }
        let allowed = match self.accelerator {
            Accelerator::Kvm => SILENCE,
            Accelerator::Emulation { .. } => SILENCE_EMULATED,
        };
        if self.heard.at.elapsed() < allowed || self.agent_is_ready() {
            return Ok(());
        }
        bail!(
            "the console of machine {} has been silent for {} s, and {} has not started the agent. The image may not boot with this \
             hardware, or may not use the serial console ttyS0{}. It ended with:\n{}",
            self.name,
            allowed.as_secs(),
            match self.disk.reader {
                Reader::CloudInit => "cloud-init",
                Reader::Ignition => "the initramfs",
            },
            match &self.accelerator {
                Accelerator::Kvm => "; or KVM hangs, which --accelerator emulation avoids",
                Accelerator::Emulation { .. } => "",
            },
            self.console_tail()
        );
    }

    fn agent_is_ready(&self) -> bool {
        let mut agent = self.agent.lock();
        agent
            .as_mut()
            .is_some_and(|agent| agent.ready().unwrap_or_default())
    }

    fn console_tail(&self) -> String {
        let bytes = fs::read(self.console_file()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines
            .iter()
            .skip(lines.len().saturating_sub(10))
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn script(&self, script: &str, input: &[u8]) -> Result<Output> {
        let deadline = Machine::COMMAND * self.accelerator.slowness();
        let mut agent = self.agent.lock();
        agent
            .as_mut()
            .with_context(|| format!("machine {} is switched off", self.name))?
            .run(script, input, deadline)
            .with_context(|| format!("in machine {}", self.name))
    }

    /// Runs a script that must succeed, and gives its standard output.
    fn output(&self, script: &str) -> Result<Vec<u8>> {
        let Output {
            status,
            stdout,
            stderr,
        } = self.script(script, &[])?;
        ensure!(
            status == 0,
            "in machine {}: {script:?} failed ({status}): {}",
            self.name,
            String::from_utf8_lossy(&stderr).trim_end()
        );
        Ok(stdout)
    }

    pub(super) fn run(&self, command: &[&str]) -> Result<String> {
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        let output = self.output(&format!("exec {}", words.join(" ")))?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    pub(super) fn has(&self, path: &str) -> Result<bool> {
        if self.process.is_none() {
            return self.offline(|disk| disk.has(path));
        }
        let path = quoted(path);
        // 1 means no, and all else is no answer.
        let script = format!("test -e {path} || test -L {path}");
        match self.script(&script, &[])? {
            Output { status: 0, .. } => Ok(true),
            Output { status: 1, .. } => Ok(false),
            other => bail!("in machine {}: {script:?}: {other:?}", self.name),
        }
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        if self.process.is_none() {
            return self.offline(|disk| disk.read(path));
        }
        if !self.has(path)? {
            return Ok(None);
        }
        let packed = self.output(&format!("gzip -1 <{}", quoted(path)))?;
        unpack(&packed).map(Some)
    }

    pub(super) fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let to = quoted(path);
        let written = self.script(&format!("umask 077; rm -f {to}; cat >{to}"), content)?;
        ensure!(
            written.status == 0,
            "in machine {}: {path} can't be written: {}",
            self.name,
            String::from_utf8_lossy(&written.stderr).trim_end()
        );
        Ok(())
    }

    pub(super) fn correct_clock(&self) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        self.run(&["date", &format!("--set=@{now}")]).map(drop)
    }

    pub(super) fn raw_journal(&self) -> Result<String> {
        if self.process.is_none() {
            return self.offline(offline::Copy::journal);
        }
        let packed = self.output(
            "journalctl --output=json --all --quiet --no-pager >journal && gzip -1 <journal && rm journal",
        )?;
        Ok(String::from_utf8_lossy(&unpack(&packed)?).into_owned())
    }

    /// Command lines with their environments that the machine has seen since it was switched on. A watcher in it looks a few times a second.
    pub(super) fn processes(&self) -> Result<Vec<String>> {
        ensure!(
            self.agent_is_ready(),
            "machine {} does not run its watcher of processes",
            self.name
        );
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

    fn offline<T>(&self, look: impl FnOnce(&offline::Copy) -> Result<T>) -> Result<T> {
        let layout = match self.disk.kernel {
            Some(_) => Layout::FileSystem,
            None => Layout::Partitions,
        };
        let copy = offline::Copy::of(&self.file("disk.qcow2"), layout);
        look(&copy.with_context(|| format!("machine {} is off", self.name))?)
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
