//! Separate namespaces for network, mounts and processes, so that a test reaches neither the host nor the
//! Internet, and leaves nothing behind.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

use super::run;
use osm_testkit::process::ScratchDir;

/// Set in the isolated process: the folder for its files.
const DIRECTORY: &str = "OSM_LAB_DIRECTORY";

/// How the names of folders begin.
const PREFIX: &str = "osm-lab-";

/// The folder for the isolated process' files; none if this process is not isolated.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    // The first process of its namespace: a variable alone proves nothing.
    std::env::var_os(DIRECTORY)
        .filter(|_| std::process::id() == 1)
        .map(PathBuf::from)
}

/// Tries what [`enter`] and the network need.
///
/// # Errors
/// When the kernel gives this user no namespaces or no network cards.
pub fn require_host() -> Result<()> {
    let mut arguments = NAMESPACES.to_vec();
    if !rustix::process::geteuid().is_root() {
        arguments.extend(AS_ROOT);
    }
    arguments.extend(["--", "true"]);
    run("unshare", &arguments).context(
        "the kernel gives this user no namespaces: run as root, or set the sysctls kernel.unprivileged_userns_clone=1, \
         user.max_user_namespaces=10000 and kernel.apparmor_restrict_unprivileged_userns=0 as far as the kernel has them",
    )?;
    let device = "/dev/net/tun";
    File::options().read(true).write(true).open(device).with_context(|| {
        format!("{device} can't be opened: load the module tun, and let everybody use it as udev does (chmod 666 {device})")
    })?;
    Ok(())
}

/// The namespaces of [`enter`], for `unshare`.
const NAMESPACES: [&str; 5] = ["--net", "--mount", "--pid", "--fork", "--mount-proc"];

/// A namespace of users, in which the user is root.
const AS_ROOT: [&str; 2] = ["--user", "--map-root-user"];

/// Runs this program again, with the same arguments and `environment` added, in namespaces of its own, and
/// waits for it. Everything that it has started is gone then. The new process must call [`end_with_parent`].
/// A user who is not root is root in a further namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(environment: &[(&str, &str)]) -> Result<ExitStatus> {
    let scratch = ScratchDir::new(PREFIX)?;
    // Whatever the child makes is in this folder, which goes even if both of us are killed.
    let temporary = scratch.path().join("tmp");
    std::fs::create_dir(&temporary)?;
    let program = std::env::current_exe().context("path of this program")?;
    let program = program.to_string_lossy();
    let root = rustix::process::geteuid().is_root();
    let mut child = Command::new("unshare")
        .args(NAMESPACES)
        .args(AS_ROOT.iter().filter(|_| !root))
        .args(["--kill-child", "--"])
        // It may have been built again since it was started.
        .arg(program.trim_end_matches(" (deleted)"))
        .args(std::env::args_os().skip(1))
        .env(DIRECTORY, scratch.path())
        .env("TMPDIR", &temporary)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .spawn()
        .context("unshare can't be run: it is in the package util-linux")?;
    // Held open, and not before `wait` closes it, until the child ends.
    let lifeline = child.stdin.take();
    let status = child.wait();
    drop(lifeline);
    Ok(status?)
}

/// Lets all of this process' namespaces find `content` where `path` is.
///
/// # Errors
/// When this process is not isolated, or the kernel refuses.
pub fn replace(path: &Path, content: &Path) -> Result<()> {
    directory().context("only an isolated process may replace files of its host")?;
    run(
        "mount",
        &[
            "--bind",
            &content.display().to_string(),
            &path.display().to_string(),
        ],
    )
    .map(drop)
}

/// Ends this process, and with it all of its namespaces, as soon as the process that called [`enter`] ends.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().read(&mut [0]);
        std::process::exit(130);
    });
}
