//! One machine: its boot, its power and its console.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};

use super::cgroups::Cgroups;
use super::image::Image;
use super::isolation;
use super::journal::{self, Entry};
use super::network::{Cable, Link};
use super::{run, run_within};
use osm_testkit::process::Service;

/// How long a machine may take to shut down.
const SHUTDOWN: Duration = Duration::from_secs(100);

/// How long processes may take to be gone after SIGKILL.
const KILLED: Duration = Duration::from_secs(20);

/// How long a command in a machine may take.
const COMMAND: Duration = Duration::from_secs(60);

/// Moves into control groups (all arguments before `--`), then becomes the rest.
const ENTER: &str = r#"
while [ "$1" != -- ]; do
    echo $$ >"$1" || exit
    shift
done
shift
exec "$@"
"#;

/// What a machine is made of.
pub struct Order<'a> {
    /// Its name in the cloud, which becomes its host name.
    pub name: &'a str,
    /// Its address, from [`super::Lab::reserve`].
    pub address: Ipv4Addr,
    /// Its network.
    pub link: Link,
    /// What it boots from.
    pub image: &'a Image,
    /// What the cloud hands to cloud-init.
    pub user_data: &'a [u8],
    /// What is different in this machine's image, done to its root file system.
    pub changes: &'a dyn Fn(&Path) -> Result<()>,
    /// Further arguments for systemd-nspawn, such as a small file system.
    pub options: &'a [&'a str],
}

/// A machine. It goes, with its disk, when it is dropped.
#[derive(Debug)]
pub struct Machine {
    name: String,
    address: IpAddr,
    directory: PathBuf,
    options: Vec<String>,
    powered_on: SystemTime,
    // In the order in which they are dropped.
    process: Option<Service>,
    root: Overlay,
    cgroups: Cgroups,
    cable: Cable,
}

/// Where programs are in a machine.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Machine {
    pub(super) fn boot(lab: &Path, order: Order<'_>) -> Result<Self> {
        let Order {
            name,
            address,
            link,
            image,
            user_data,
            changes,
            options,
        } = order;
        let directory = lab.join("machines").join(name);
        ensure!(!directory.exists(), "there is a machine {name} already");
        for folder in ["containerd", "kubelet"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        let root = Overlay::mount(image.root(), &directory)?;
        changes(root.path()).with_context(|| format!("changes to the image of machine {name}"))?;
        seed(root.path(), name, &link.configuration(address), user_data)?;
        let mut machine = Self {
            name: name.to_owned(),
            address: link.seen_as(address),
            options: options.iter().map(|&option| option.to_owned()).collect(),
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

    /// Its root file system, as it sees it but for what is mounted there.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
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
        arguments.extend(self.options.iter().cloned());
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
        run_within(COMMAND, "nsenter", &arguments).with_context(|| format!("in machine {}", self.name))
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

    /// All that it has written to its console, over all boots.
    ///
    /// # Errors
    /// When that can't be read.
    pub fn console(&self) -> Result<String> {
        let bytes = fs::read(self.console_file()).context("the console's file")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn console_file(&self) -> PathBuf {
        self.directory.join("console.log")
    }

    /// Its journal, of all boots.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn journal(&self) -> Result<Vec<Entry>> {
        journal::read(&self.root().join("var/log/journal"))
    }

    /// All that its journal knows, of all boots: a JSON object a line.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn raw_journal(&self) -> Result<String> {
        journal::raw(&self.root().join("var/log/journal"))
    }

    /// From now on, nothing that the host sends from the address `from` arrives: connections time out.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cut(&self, from: Ipv4Addr) -> Result<()> {
        self.cable.cut(from)
    }

    /// Takes back [`Self::cut`].
    ///
    /// # Errors
    /// When nothing was cut.
    pub fn mend(&self, from: Ipv4Addr) -> Result<()> {
        self.cable.mend(from)
    }

    /// Copies what tells what happened into a folder: console, journal, cloud-init's logs.
    ///
    /// # Errors
    /// When a file can't be written; logs that do not exist are passed over.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::copy(self.console_file(), folder.join("console.log"))?;
        let journal = self.root().join("var/log/journal").display().to_string();
        let text = run(
            "journalctl",
            &[
                "--directory",
                &journal,
                "--no-pager",
                "--quiet",
                "--output=short-precise",
            ],
        );
        fs::write(
            folder.join("journal.log"),
            text.unwrap_or_else(|error| format!("{error:#}\n")),
        )?;
        for name in ["cloud-init.log", "cloud-init-output.log"] {
            let log = self.root().join("var/log").join(name);
            if log.is_file() {
                fs::copy(&log, folder.join(name))?;
            }
        }
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.kill();
    }
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
