//! QEMU on this host: whether it is there, which accelerator works, and what a machine's command line is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Zoned;
use jiff::tz::TimeZone;

use super::super::machine::{DataSource, Hardware};
use super::super::{ENDS, NOT_OVER, run_within};
use super::disk::{Kernel, path_with_sbin};
use super::ignition::Supplies;
use super::seed::{self, SECOND_MAC};
use osm_judges::packages;

/// The program.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Programs that virtual machines need on their host, with the Debian packages that have them.
const PROGRAMS: [(&str, &str); 10] = [
    (QEMU, "qemu-system-x86"),
    ("qemu-img", "qemu-utils"),
    ("xorriso", "xorriso"),
    ("mmdebstrap", "mmdebstrap"),
    ("mkfs.ext4", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("sfdisk", "fdisk"),
    ("ip", "iproute2"),
    ("dnsmasq", "dnsmasq-base"),
    ("unshare", "util-linux"),
];

/// Debian packages that tests with virtual machines need on their host, besides those with its programs.
pub const PACKAGES: &[&str] = &["curl", "debian-archive-keyring", "python3"];

/// What a user who is not root needs besides, to own the files of an image.
const WITHOUT_ROOT: (&str, &str) = ("newuidmap", "uidmap");

/// What runs a guest's instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU translates them, which takes ten times as long.
    Emulation {
        /// Why KVM can't be used.
        reason: String,
    },
}

/// Makes sure that all programs for virtual machines are there. As root on Debian, it installs what is missing.
///
/// # Errors
/// Names the missing programs and their packages.
pub fn require_programs() -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let needed = PROGRAMS.iter().chain((!root).then_some(&WITHOUT_ROOT));
    let missing = missing(needed.copied(), &path_with_sbin());
    if missing.is_empty() {
        return Ok(());
    }
    let (programs, names): (Vec<&str>, Vec<&str>) = missing.into_iter().unzip();
    packages::ensure(&names).with_context(|| {
        format!(
            "virtual machines need {}, of the Debian packages {}",
            programs.join(", "),
            names.join(" ")
        )
    })
}

fn missing(
    needed: impl Iterator<Item = (&'static str, &'static str)>,
    path: &str,
) -> Vec<(&'static str, &'static str)> {
    let there = |program: &str| {
        path.split(':')
            .any(|folder| Path::new(folder).join(program).is_file())
    };
    needed.filter(|(program, _)| !there(program)).collect()
}

impl Accelerator {
    /// KVM, if a trial machine runs with it within a few seconds; else emulation.
    #[must_use]
    pub fn find() -> Self {
        Self::try_kvm(Path::new("/dev/kvm"))
    }

    fn try_kvm(device: &Path) -> Self {
        match permitted(device).and_then(|()| runs_a_program(&Self::Kvm, TRIAL)) {
            Ok(()) => Self::Kvm,
            Err(error) => Self::Emulation {
                reason: format!("{error:#}"),
            },
        }
    }

    /// How many times longer a machine may take than a container on the same host.
    pub(crate) fn slowness(&self) -> u32 {
        match self {
            Self::Kvm => 2,
            Self::Emulation { .. } => 10,
        }
    }

    pub(super) fn arguments(&self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // All that QEMU 7.2 can emulate (`max`) includes what makes systemd fail to mount file systems. Distributors ask for no more than this.
            Self::Emulation { .. } => ["-accel", "tcg,thread=multi", "-cpu", "Haswell-noTSX"],
        }
    }
}

fn permitted(device: &Path) -> Result<()> {
    ensure!(
        device.exists(),
        "there is no {}: the host's processor or its firmware offers no virtualisation",
        device.display()
    );
    File::options()
        .read(true)
        .write(true)
        .open(device)
        .with_context(|| {
            format!(
                "{} can't be opened: add yourself to its group, usually kvm, and log in again",
                device.display()
            )
        })
        .map(drop)
}

/// How long the trial may take. A processor needs a tenth of a second. A host that emulates what its processor lacks takes longer.
const TRIAL: Duration = Duration::from_secs(5);

/// What a disk begins with that takes the processor from 16-bit to 64-bit mode, as a boot does, and then writes 16 to port 0xf4.
/// `trial.s` is its source.
const BOOT_SECTOR: &[u8] = include_bytes!("trial.bin");

/// QEMU's exit status when 16 is written to the port of its debug device.
const WROTE_16: &str = "exit status: 33";

/// Whether a machine with this accelerator runs its boot sector within `deadline`.
fn runs_a_program(accelerator: &Accelerator, deadline: Duration) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let disk = scratch.path().join("disk");
    fs::write(&disk, BOOT_SECTOR)?;
    let drive = format!("file={},format=raw,if=ide", disk.display());
    let [accel, kind, cpu, model] = accelerator.arguments();
    // `timeout` ends QEMU even if this process has ended before, for example by Ctrl-C.
    let latest = (deadline + ENDS).as_secs().to_string();
    let arguments = [
        "--signal=KILL",
        &latest,
        QEMU,
        accel,
        kind,
        cpu,
        model,
        "-machine",
        "pc",
        "-m",
        "16",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-drive",
        &drive,
        "-device",
        "isa-debug-exit,iobase=0xf4,iosize=4",
    ];
    match run_within(deadline, "timeout", &arguments) {
        Ok(_) => bail!("QEMU has ended, although the machine did nothing"),
        Err(error) => {
            let words = error.to_string();
            if words.contains(WROTE_16) {
                return Ok(());
            }
            if words.contains(NOT_OVER) {
                bail!("a trial machine with {kind} ran no program within {deadline:?}");
            }
            let words = words.rsplit_once("): ").map_or(words.as_str(), |(_, said)| said);
            bail!("a trial machine with {kind} ran no program: {words}")
        }
    }
}

/// Where a program is that [`require_programs`] has found.
pub(in crate::machines) fn program(name: &str) -> Result<PathBuf> {
    path_with_sbin()
        .split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed any more"))
}

/// How long QEMU may take to answer on its monitor.
const MONITOR: Duration = Duration::from_secs(20);

/// What a short press of the power button does: the guest shuts down.
pub(super) fn press_power_button(monitor: &Path) -> Result<()> {
    let mut stream = UnixStream::connect(monitor).context("QEMU's monitor")?;
    stream.set_read_timeout(Some(MONITOR))?;
    stream.write_all(br#"{"execute": "qmp_capabilities"} {"execute": "system_powerdown"}"#)?;
    // A greeting, and an answer to each command, in lines. Events may come between them.
    let mut answers = 0;
    for line in BufReader::new(stream).lines() {
        let line = line.context("QEMU's monitor")?;
        ensure!(!line.contains("\"error\""), "QEMU's monitor: {line}");
        answers += u32::from(line.contains("\"return\""));
        if answers == 2 {
            return Ok(());
        }
    }
    bail!("QEMU's monitor was closed")
}

/// By what cloud-init knows the cloud of a machine.
fn system(source: DataSource) -> Option<&'static str> {
    match source {
        DataSource::NoCloud | DataSource::ConfigDrive => None,
        DataSource::Ec2 => Some(
            "manufacturer=Amazon EC2,serial=ec2d9000-0000-4000-8000-000000000000,uuid=ec2d9000-0000-4000-8000-000000000000",
        ),
        DataSource::OpenStack => Some("manufacturer=OpenStack Foundation,product=OpenStack Nova"),
    }
}

/// What the command line of a machine depends on.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) name: &'a str,
    pub(super) accelerator: &'a Accelerator,
    pub(super) hardware: Hardware,
    /// A disk with swap, if the hardware has one.
    pub(super) swap: PathBuf,
    pub(super) processors: u32,
    /// The machine's own disk, in the format qcow2.
    pub(super) disk: PathBuf,
    pub(super) seed: PathBuf,
    /// The kernel, where QEMU loads it.
    pub(super) kernel: Option<Kernel>,
    /// What Ignition needs, where it reads the user data.
    pub(super) ignition: Option<Supplies>,
    pub(super) console: PathBuf,
    /// Sockets for the agent, and for QEMU's monitor.
    pub(super) agent: PathBuf,
    pub(super) monitor: PathBuf,
    pub(super) tap: &'a str,
    pub(super) mac: String,
}

impl Parts<'_> {
    /// QEMU's arguments.
    pub(super) fn arguments(&self) -> Vec<String> {
        let Self {
            name,
            accelerator,
            hardware,
            swap,
            processors,
            disk,
            seed,
            kernel,
            ignition,
            console,
            agent,
            monitor,
            tap,
            mac,
        } = self;
        let mut arguments: Vec<String> = accelerator.arguments().map(str::to_owned).to_vec();
        // QEMU takes the memory before it listens, so that what the next machine sees is what is left.
        arguments.push("-mem-prealloc".to_owned());
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("-name", (*name).to_owned());
        option("-machine", "q35".to_owned());
        option("-smp", processors.to_string());
        option("-m", hardware.memory_mib.to_string());
        option("-display", "none".to_owned());
        let clock = Zoned::now().with_time_zone(TimeZone::UTC) - hardware.clock_behind;
        option("-rtc", format!("base={}", clock.strftime("%Y-%m-%dT%H:%M:%S")));
        if let Some(Kernel { kernel, initramfs }) = kernel {
            option("-kernel", kernel.display().to_string());
            if let Some(initramfs) = initramfs {
                option("-initrd", initramfs.display().to_string());
                let mut append = "root=LABEL=root rw console=ttyS0".to_owned();
                if hardware.data_source == DataSource::Ec2 {
                    append = format!("{append} {}", seed::kernel_argument());
                }
                if matches!(accelerator, Accelerator::Emulation { .. }) {
                    // Of a few dozen boots, one ends in a panic, as QEMU emulates processors that change their own code. It boots again.
                    append.push_str(" panic=1");
                }
                option("-append", append);
            }
        }
        if let Some(system) = system(hardware.data_source) {
            option("-smbios", format!("type=1,{system}"));
        }
        // What the host loses in a power cut of its own is not tested, so flushes need not reach its disk.
        let drive = |path: &Path, more: &str| format!("file={},if=virtio,{more}", path.display());
        let limit = hardware
            .disk_mib_per_second
            .map_or_else(String::new, |mebibytes| {
                format!(",throttling.bps-total={}", mebibytes << 20)
            });
        option(
            "-drive",
            drive(
                disk,
                &format!("format=qcow2,cache=unsafe,discard=unmap,media=disk{limit}"),
            ),
        );
        option("-drive", drive(seed, "format=raw,readonly=on"));
        if let Some(Supplies { config, oem }) = ignition {
            option("-drive", drive(oem, "format=raw,cache=unsafe"));
            option(
                "-fw_cfg",
                format!("name=opt/com.coreos/config,file={}", config.display()),
            );
        }
        if hardware.swap_mib.is_some() {
            option("-drive", drive(swap, "format=raw,cache=unsafe"));
        }
        option(
            "-chardev",
            format!("file,id=console,path={},append=on", console.display()),
        );
        option("-serial", "chardev:console".to_owned());
        let socket =
            |id: &str, path: &Path| format!("socket,id={id},path={},server=on,wait=off", path.display());
        option("-chardev", socket("agent", agent));
        option("-device", "virtio-serial-pci".to_owned());
        option("-device", "virtserialport,chardev=agent,name=lab".to_owned());
        option("-chardev", socket("monitor", monitor));
        option("-mon", "chardev=monitor,mode=control".to_owned());
        option(
            "-netdev",
            format!("tap,id=net,ifname={tap},script=no,downscript=no"),
        );
        option("-device", format!("virtio-net-pci,netdev=net,mac={mac}"));
        if hardware.second_card {
            option(
                "-netdev",
                "user,id=second,restrict=on,net=192.168.77.0/24".to_owned(),
            );
            option(
                "-device",
                format!("virtio-net-pci,netdev=second,mac={SECOND_MAC}"),
            );
        }
        option("-device", "virtio-rng-pci".to_owned());
        arguments.extend(["-nodefaults", "-no-user-config"].map(str::to_owned));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_come_with_their_packages() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("qemu-img"), "").unwrap();
        let path = format!("/nonexistent:{}", scratch.path().display());
        let found = missing(PROGRAMS.into_iter(), &path);
        assert_eq!(found.len(), PROGRAMS.len() - 1);
        assert!(found.contains(&(QEMU, "qemu-system-x86")));
        assert!(!found.iter().any(|(program, _)| *program == "qemu-img"));
    }

    #[test]
    fn a_trial_shows_whether_a_machine_runs() {
        require_programs().unwrap();
        // Emulation works on every host, and so shows that the trial itself does.
        let emulation = Accelerator::Emulation {
            reason: String::new(),
        };
        runs_a_program(&emulation, Duration::from_secs(60)).unwrap();
        // A machine that has done nothing in time.
        let error = runs_a_program(&emulation, Duration::ZERO)
            .unwrap_err()
            .to_string();
        assert!(error.ends_with("ran no program within 0ns"), "{error}");
    }

    #[test]
    fn why_kvm_is_not_used_is_said() {
        let Accelerator::Emulation { reason } = Accelerator::try_kvm(Path::new("/nonexistent/kvm")) else {
            panic!("there is no such device");
        };
        assert!(reason.contains("there is no /nonexistent/kvm"), "{reason}");
        let scratch = tempfile::tempdir().unwrap();
        // A folder can't be opened for writing, whoever tries.
        let Accelerator::Emulation { reason } = Accelerator::try_kvm(scratch.path()) else {
            panic!("a folder is no device");
        };
        assert!(reason.contains("add yourself to its group"), "{reason}");
    }
}
