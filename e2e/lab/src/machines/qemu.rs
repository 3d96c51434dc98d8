//! QEMU on this host: whether it is there, whether KVM works, and what a machine's command line is.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::ignition::Supplies;
use super::image::Kernel;
use super::machine::DataSource;
use super::{program, seed};
use osm_judges::packages;

/// The program.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Programs that machines, and the servers beside them, need on their host, with the Debian packages that
/// have them.
const PROGRAMS: [(&str, &str); 11] = [
    (QEMU, "qemu-system-x86"),
    ("qemu-img", "qemu-utils"),
    ("xorriso", "xorriso"),
    ("mmdebstrap", "mmdebstrap"),
    ("mkfs.ext4", "e2fsprogs"),
    ("ip", "iproute2"),
    ("dnsmasq", "dnsmasq-base"),
    ("unshare", "util-linux"),
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("tinyproxy", "tinyproxy"),
];

/// Debian packages that tests with machines need on their host, besides those with its programs.
pub const PACKAGES: &[&str] = &["curl", "debian-archive-keyring", "python3"];

/// What a user who is not root needs besides, to own the files of an image.
const WITHOUT_ROOT: (&str, &str) = ("newuidmap", "uidmap");

/// What runs a machine's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU translates them, which takes ten times as long.
    Emulation,
}

/// Makes sure that all programs are there. As root on Debian, it installs what is missing.
///
/// # Errors
/// Names the missing programs and their packages.
pub fn require_programs() -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let needed = PROGRAMS.iter().chain((!is_root).then_some(&WITHOUT_ROOT));
    let missing: Vec<_> = needed
        .filter(|(name, _)| program(name).is_err())
        .copied()
        .collect();
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

/// Seconds that the trial may take. A processor needs a tenth of one. A host that itself emulates what its
/// processor lacks has `/dev/kvm`, too: it takes longer than QEMU without it, or stops at an instruction that
/// it doesn't know.
const TRIAL: &str = "5";

/// What a disk begins with that takes the processor from 16-bit to 64-bit mode, as a boot does, swaps 16
/// bytes, as a kernel does, and then writes 16 to port 0xf4. `trial.s` is its source.
const BOOT_SECTOR: &[u8] = include_bytes!("trial.bin");

/// QEMU's exit status when 16 is written to the port of its debug device.
const WROTE_16: i32 = 33;

impl Accelerator {
    /// KVM, if a trial machine runs with it within a few seconds; else emulation.
    ///
    /// # Errors
    /// When the trial can't be made.
    pub fn find() -> Result<Self> {
        Ok(if Self::Kvm.runs_a_program()? {
            Self::Kvm
        } else {
            Self::Emulation
        })
    }

    /// Whether a machine with this accelerator runs its boot sector in time.
    fn runs_a_program(self) -> Result<bool> {
        let mut disk = tempfile::NamedTempFile::new()?;
        disk.write_all(BOOT_SECTOR)?;
        let drive = format!("file={},format=raw,if=ide", disk.path().display());
        // `timeout` ends QEMU even if this process has ended before, for example by Ctrl-C.
        let status = Command::new("timeout")
            .args(["--signal=KILL", TRIAL, QEMU, "-machine", "pc", "-m", "16"])
            .args(self.arguments())
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-drive",
                &drive,
            ])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("timeout can't be run: it is in the package coreutils")?;
        Ok(status.code() == Some(WROTE_16))
    }

    /// How many times longer something may take than on the host itself.
    #[must_use]
    pub fn slowness(self) -> u32 {
        match self {
            Self::Kvm => 2,
            Self::Emulation => 10,
        }
    }

    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // All that QEMU 7.2 can emulate (`max`) includes what makes systemd fail to mount file systems.
            // Distributors ask for no more than this.
            Self::Emulation => ["-accel", "tcg,thread=multi", "-cpu", "Haswell-noTSX"],
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "virtual machines with KVM",
            Self::Emulation => {
                "emulated virtual machines, because KVM was not asked for or runs no trial machine"
            }
        })
    }
}

/// By what cloud-init knows the cloud of a machine.
fn system(source: DataSource) -> Option<&'static str> {
    match source {
        DataSource::NoCloud => None,
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
    pub(super) accelerator: Accelerator,
    pub(super) data_source: DataSource,
    /// The machine's own disk, in the format qcow2.
    pub(super) disk: PathBuf,
    pub(super) seed: PathBuf,
    /// The kernel, where QEMU loads it.
    pub(super) kernel: Option<&'a Kernel>,
    /// What Ignition needs, where it reads the user data.
    pub(super) ignition: Option<Supplies>,
    pub(super) console: PathBuf,
    /// The socket for the agent.
    pub(super) agent: PathBuf,
    pub(super) tap: &'a str,
    pub(super) mac: String,
}

impl Parts<'_> {
    /// QEMU's arguments.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = self.accelerator.arguments().map(str::to_owned).to_vec();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("-name", self.name.to_owned());
        option("-machine", "q35".to_owned());
        option("-smp", "2".to_owned());
        option("-m", "2048".to_owned());
        option("-display", "none".to_owned());
        if let Some(Kernel { kernel, initramfs }) = self.kernel {
            option("-kernel", kernel.display().to_string());
            if let Some(initramfs) = initramfs {
                option("-initrd", initramfs.display().to_string());
                option("-append", self.kernel_arguments());
            }
        }
        if let Some(system) = system(self.data_source) {
            option("-smbios", format!("type=1,{system}"));
        }
        // What the host loses in a power cut of its own is not tested, so flushes need not reach its disk.
        let drive = |path: &Path, more: &str| format!("file={},if=virtio,{more}", path.display());
        option(
            "-drive",
            drive(&self.disk, "format=qcow2,cache=unsafe,discard=unmap,media=disk"),
        );
        option("-drive", drive(&self.seed, "format=raw,readonly=on"));
        if let Some(Supplies { config, oem }) = &self.ignition {
            option("-drive", drive(oem, "format=raw,cache=unsafe"));
            option(
                "-fw_cfg",
                format!("name=opt/com.coreos/config,file={}", config.display()),
            );
        }
        option(
            "-chardev",
            format!("file,id=console,path={},append=on", self.console.display()),
        );
        option("-serial", "chardev:console".to_owned());
        option(
            "-chardev",
            format!("socket,id=agent,path={},server=on,wait=off", self.agent.display()),
        );
        option("-device", "virtio-serial-pci".to_owned());
        option("-device", "virtserialport,chardev=agent,name=lab".to_owned());
        option(
            "-netdev",
            format!("tap,id=net,ifname={},script=no,downscript=no", self.tap),
        );
        option("-device", format!("virtio-net-pci,netdev=net,mac={}", self.mac));
        option("-device", "virtio-rng-pci".to_owned());
        arguments.extend(["-nodefaults", "-no-user-config"].map(str::to_owned));
        arguments
    }

    fn kernel_arguments(&self) -> String {
        let mut arguments = "root=LABEL=root rw console=ttyS0".to_owned();
        if self.data_source == DataSource::Ec2 {
            arguments = format!("{arguments} {}", seed::kernel_argument());
        }
        if self.accelerator == Accelerator::Emulation {
            // Of a few dozen boots, one ends in a panic, as QEMU emulates processors that change their own
            // code. It boots again.
            arguments.push_str(" panic=1");
        }
        arguments
    }
}
