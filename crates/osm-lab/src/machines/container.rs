//! A machine that is a container: namespaces and control groups of the host's kernel, with systemd as init.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use super::cgroups::Cgroups;
use super::folder::Folder;
use super::isolation;
use super::machine::{Hardware, Machine, Order, Tmpfs};
use super::network::Cable;
use super::rootfs::RootFs;
use super::{run, run_within};
use osm_testkit::process::Service;

/// How long a machine may take to shut down.
const SHUTDOWN: Duration = Duration::from_secs(100);

/// How long processes may take to be gone after SIGKILL.
const KILLED: Duration = Duration::from_secs(20);

/// Moves into control groups (all arguments before `--`), then becomes the rest.
const ENTER: &str = r#"
while [ "$1" != -- ]; do
    echo $$ >"$1" || exit
    shift
done
shift
exec "$@"
"#;

/// A container that boots. It is removed, with its disk, when it is dropped.
#[derive(Debug)]
pub struct Container {
    name: String,
    address: IpAddr,
    /// Arguments for systemd-nspawn.
    tmpfs: Vec<String>,
    powered_on: SystemTime,
    // In the order in which they are dropped.
    process: Option<Service>,
    root: Overlay,
    cgroups: Cgroups,
    cable: Cable,
    directory: Folder,
}

/// Where programs are in a machine.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Container {
    pub(super) fn boot(lab: &Path, order: &Order<'_>, image: &RootFs) -> Result<Self> {
        let clock_behind = order.hardware.clock_behind;
        ensure!(
            order.hardware
                == Hardware {
                    clock_behind,
                    ..Hardware::default()
                },
            "machine {} is a container, and has the hardware of its host",
            order.name
        );
        let Order {
            name,
            address,
            link,
            user_data,
            layer,
            tmpfs,
            image: _,
            hardware: _,
        } = *order;
        let directory = Folder::create(lab, name)?;
        for folder in ["containerd", "kubelet"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        let root = Overlay::mount(image.root(), &directory)?;
        lay_over(root.path(), &directory.join("layer"), layer)
            .with_context(|| format!("changes to the image of machine {name}"))?;
        if !clock_behind.is_zero() {
            set_back(root.path(), clock_behind)?;
        }
        seed(root.path(), name, &link.configuration(address, None), user_data)?;
        let mut machine = Self {
            name: name.to_owned(),
            address: link.seen_as(address),
            tmpfs: tmpfs
                .iter()
                .map(|Tmpfs { path, size }| format!("--tmpfs={path}:size={size},mode=755"))
                .collect(),
            powered_on: SystemTime::now(),
            process: None,
            root,
            cgroups: Cgroups::create(&isolation::cgroup_name(lab, name))?,
            cable: Cable::lay(name, address)?,
            directory,
        };
        machine.power_on()?;
        Ok(machine)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As whom servers see it.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// When it was last switched on.
    #[must_use]
    pub fn powered_on(&self) -> SystemTime {
        self.powered_on
    }

    /// Switches it on. Does nothing where it is.
    ///
    /// # Errors
    /// When systemd-nspawn can't be started.
    pub fn power_on(&mut self) -> Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let bind = |folder: &str| {
            format!(
                "--bind={}:/var/lib/{folder}",
                self.directory.join(folder).display()
            )
        };
        let mut arguments: Vec<String> = ["-c", ENTER, "machine"]
            .into_iter()
            .map(str::to_owned)
            .chain(self.cgroups.entrances())
            .collect();
        arguments.extend(["--", "systemd-nspawn", "--quiet"].map(str::to_owned));
        arguments.extend([
            format!("--directory={}", self.root.path().display()),
            format!("--machine={}", self.name),
            format!("--network-namespace-path={}", self.cable.namespace_path()),
            // runc joins session keyrings; device rules are programs of bpf.
            "--system-call-filter=@keyring bpf".to_owned(),
            // containerd's layers don't go on top of an overlay.
            bind("containerd"),
            bind("kubelet"),
        ]);
        arguments.extend(
            [
                "--boot",
                "--register=no",
                "--keep-unit",
                "--console=read-only",
                "--capability=all",
                // What is the host's and not in any namespace.
                "--drop-capability=CAP_SYS_TIME,CAP_SYS_MODULE,CAP_SYS_RAWIO",
                "--resolv-conf=off",
                "--timezone=off",
                "--link-journal=no",
                "--bind=/dev/kmsg",
            ]
            .map(str::to_owned),
        );
        arguments.extend(self.tmpfs.iter().cloned());
        let none: [(&str, &str); 0] = [];
        self.powered_on = SystemTime::now();
        self.process = Some(Service::spawn(
            Path::new("/bin/sh"),
            arguments,
            none,
            &self.console_file(),
        )?);
        Ok(())
    }

    /// Ends it at once, as its reset button does: what it has written, synced or not, is there at the next boot.
    ///
    /// # Errors
    /// When its processes can't be ended.
    pub async fn cut_power(&mut self) -> Result<()> {
        if let Some(leader) = self.kill()? {
            let proc = PathBuf::from(format!("/proc/{}/root", leader.as_raw_nonzero()));
            osm_testkit::wait_for("the machine's processes to be gone", KILLED, async || {
                osm_testkit::check(fs::read_link(&proc).is_err())
            })
            .await?;
        }
        Ok(())
    }

    /// Ends what makes it run, and gives what was its first process: the kernel ends the rest with that.
    fn kill(&mut self) -> Result<Option<Pid>> {
        let leader = self
            .leader()
            .ok()
            .and_then(|leader| Pid::from_raw(leader.try_into().ok()?));
        if let Some(mut process) = self.process.take() {
            process.kill9()?;
        }
        if let Some(leader) = leader {
            // It may have ended with its parent.
            let _ = rustix::process::kill_process(leader, Signal::KILL);
        }
        Ok(leader)
    }

    /// Shuts it down as its operator would.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn shut_down(&mut self) -> Result<()> {
        if let Some(process) = &mut self.process {
            process
                .terminate(SHUTDOWN)
                .await
                .with_context(|| format!("shutdown of {}", self.name))?;
        }
        self.process = None;
        Ok(())
    }

    /// Runs a command in the machine and gives its standard output.
    ///
    /// # Errors
    /// When the machine does not run, or the command fails or is not over after a minute.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        let leader = self.leader()?.to_string();
        let mut arguments = vec![
            "--target", &leader, "--mount", "--pid", "--uts", "--net", "--ipc", "--cgroup", "--",
        ];
        // The host's environment names what the machine does not have.
        arguments.extend(["env", "-i", "HOME=/root", PATH]);
        arguments.extend(command);
        run_within(Machine::COMMAND, "nsenter", &arguments)
            .with_context(|| format!("in machine {}", self.name))
    }

    /// The machine's first process.
    fn leader(&self) -> Result<u32> {
        let process = self
            .process
            .as_ref()
            .with_context(|| format!("machine {} is switched off", self.name))?;
        // systemd-nspawn's only child.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.pid()))?;
        for child in children.split_whitespace() {
            let command = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
            if command.trim() == "systemd" {
                return Ok(child.parse()?);
            }
        }
        bail!(
            "machine {} has no first process yet; its console:\n{}",
            self.name,
            process.log_tail(5)
        )
    }

    pub(super) fn console_file(&self) -> PathBuf {
        self.directory.join("console.log")
    }

    /// Where the host finds a file of the machine.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    pub(super) fn cable(&self) -> &Cable {
        &self.cable
    }

    pub(super) fn correct_clock(&self) -> Result<()> {
        fs::write(self.file(CLOCK), "+0d\n").context("the file with the time")
    }
}

/// The kernel's clock is the host's, so bootstrap and what it calls read this file instead.
const CLOCK: &str = "/etc/lab-clock";

fn set_back(root: &Path, behind: Duration) -> Result<()> {
    let library = format!(
        "/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1",
        std::env::consts::ARCH
    );
    let days = behind.as_secs() / (24 * 3600);
    fs::write(root.join(CLOCK.trim_start_matches('/')), format!("-{days}d\n"))?;
    let folder = root.join("etc/systemd/system/osm-bootstrap.service.d");
    fs::create_dir_all(&folder)?;
    let environment = format!(
        "[Service]\nEnvironment=LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={CLOCK} FAKETIME_NO_CACHE=1 \
         FAKETIME_DONT_FAKE_MONOTONIC=1\n"
    );
    fs::write(folder.join("lab.conf"), environment).context("the clock")
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Writes a layer into `folder`, and copies it over `root`. A link replaces a file of the same name.
fn lay_over(root: &Path, folder: &Path, write: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    fs::create_dir_all(folder)?;
    write(folder)?;
    let (from, to) = (folder.join("."), root.display().to_string());
    let from = from.display().to_string();
    run("cp", &["--archive", "--remove-destination", &from, &to]).map(drop)
}

/// cloud-init's data source NoCloud: what the cloud's metadata service is elsewhere.
fn seed(root: &Path, name: &str, network: &str, user_data: &[u8]) -> Result<()> {
    let seed = root.join("var/lib/cloud/seed/nocloud");
    fs::create_dir_all(&seed)?;
    // The same at every boot: a new id would be a new machine to cloud-init.
    fs::write(
        seed.join("meta-data"),
        format!("instance-id: i-{name}\nlocal-hostname: {name}\n"),
    )?;
    fs::write(seed.join("user-data"), user_data)?;
    fs::write(seed.join("network-config"), network)?;
    Ok(())
}

/// An image with a layer of changes on top.
#[derive(Debug)]
struct Overlay {
    path: PathBuf,
}

impl Overlay {
    fn mount(lower: &Path, directory: &Path) -> Result<Self> {
        let folder = |name: &str| -> Result<String> {
            let path = directory.join(name);
            fs::create_dir_all(&path)?;
            Ok(path.display().to_string())
        };
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            folder("upper")?,
            folder("work")?
        );
        let path = folder("root")?;
        run("mount", &["-t", "overlay", "overlay", "-o", &options, &path])?;
        Ok(Self { path: path.into() })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // Lazily: processes may still be on their way out.
        let _ = run("umount", &["--lazy", &self.path.display().to_string()]);
    }
}
