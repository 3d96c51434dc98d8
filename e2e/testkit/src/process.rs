//! Child processes and temporary directories that never outlive their owner, however it ends.
//!
//! A few lines of `/bin/sh` start each child. They leave a *watcher* in the process group of the child and
//! then `exec` the program itself. The watcher reads a pipe whose other end only the owner holds. When the
//! owner ends, even by SIGKILL, which runs no destructor, the watcher reads end-of-file and kills its group.
//! The watcher keeps the group alive, so no other process can take its id meanwhile. (`PR_SET_PDEATHSIG` does
//! not work here: it fires when the *thread* that forked ends.)

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

use crate::procfs::Usage;

/// `$0` names the process in error messages, `"$@"` is the program with its arguments.
const WATCHED: &str = r#"
exec 3<&0 </dev/null
( read -r _ <&3; kill -KILL 0 ) >/dev/null 2>&1 &
exec "$@" 3<&-
"#;

/// `$1` is a directory, removed as soon as standard input ends. Repeated, because children that are being
/// killed at the same moment may still write to it.
const JANITOR: &str = r#"
read -r _
tries=0
while [ -e "$1" ] && [ "$tries" -lt 100 ]; do
    rm -rf "$1"
    tries=$((tries + 1))
    [ -e "$1" ] && sleep 0.1
done
"#;

/// A running program: one of our services, or a component of the control plane.
///
/// Dropping it kills the program with everything that it started.
#[derive(Debug)]
pub struct Service {
    name: String,
    child: Child,
    group: Pid,
    log_file: PathBuf,
    exited: Option<ExitStatus>,
    /// The whole group has been killed, so that its id may belong to someone else by now.
    killed: bool,
    /// Its end is the watcher's signal; held, never written to.
    _watcher: ChildStdin,
}

impl Service {
    /// Starts `binary` with `args` and, added to our own environment, `env`. Standard output and error are
    /// appended to `log_file`.
    ///
    /// # Errors
    /// When the binary does not exist, the log can't be written, or no process can be made.
    pub fn spawn<A, E, K, V>(binary: &Path, args: A, env: E, log_file: &Path) -> Result<Self>
    where
        A: IntoIterator<Item: AsRef<OsStr>>,
        E: IntoIterator<Item = (K, V)>,
        K: AsRef<OsStr>,
        V: AsRef<OsStr>,
    {
        let name = binary
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !binary.is_file() {
            bail!("{name} can't be started: {} is not a file", binary.display());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(log_file)
            .with_context(|| format!("log file {}", log_file.display()))?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", WATCHED, &name])
            .arg(binary)
            .args(args)
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{name} can't be started"))?;
        let group = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("process id")?;
        let watcher = child.stdin.take().context("standard input of a new process")?;
        Ok(Self {
            name,
            child,
            group,
            log_file: log_file.to_owned(),
            exited: None,
            killed: false,
            _watcher: watcher,
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program's process id, which is its process group's id as well.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, once the program has ended.
    ///
    /// # Errors
    /// When the process can't be asked for it.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        if self.exited.is_none() {
            self.exited = self.child.try_wait()?;
        }
        Ok(self.exited)
    }

    /// Kills the program as a power cut would (SIGKILL) and waits for its end. One that has ended already is
    /// left as it is.
    ///
    /// # Errors
    /// When the process can't be waited for.
    pub fn kill9(&mut self) -> Result<()> {
        if self.exited()?.is_none() {
            self.kill_group()?;
            self.exited = Some(self.child.wait()?);
        }
        Ok(())
    }

    fn kill_group(&mut self) -> Result<()> {
        if !self.killed {
            match rustix::process::kill_process_group(self.group, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => self.killed = true,
                Err(error) => return Err(error).with_context(|| format!("kill {}", self.name)),
            }
        }
        Ok(())
    }

    /// Asks the program to end (SIGTERM).
    ///
    /// # Errors
    /// When it has ended.
    pub fn ask_to_end(&self) -> Result<()> {
        Ok(rustix::process::kill_process(self.group, Signal::TERM)?)
    }

    /// Asks the program to end (SIGTERM) and waits for it, at most `deadline`.
    ///
    /// # Errors
    /// When it has not ended by then; it goes on running.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        if self.exited()?.is_none() {
            self.ask_to_end()?;
        }
        self.wait(deadline).await
    }

    /// Waits for the program to end by itself, at most `deadline`.
    ///
    /// # Errors
    /// When it has not ended by then.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            if started.elapsed() > deadline {
                bail!(
                    "{} still runs after {deadline:?}; its last lines:\n{}",
                    self.name,
                    self.log_tail(10)
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything that the program has written so far.
    ///
    /// # Errors
    /// When its log can't be read.
    pub fn logs(&self) -> Result<String> {
        let bytes = fs::read(&self.log_file).with_context(|| self.log_file.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The last `lines` lines of the log, for error messages.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let logs = self.logs().unwrap_or_else(|error| format!("{error:#}"));
        let skipped = logs.lines().count().saturating_sub(lines);
        logs.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    }

    /// Processor time and memory of the program itself.
    ///
    /// # Errors
    /// When the program has ended.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid()).with_context(|| format!("{} does not run", self.name))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Also when the program has ended: what it started may still run, and the watcher does.
        if self.kill_group().is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// A temporary directory (mode 0700) that is removed when it is dropped, and also when its owner is killed.
///
/// Drop the [`Service`]s that write to it first.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
    janitor: Child,
}

impl ScratchDir {
    /// Makes a directory whose name begins with `prefix` under the system's temporary directory.
    ///
    /// # Errors
    /// When the directory or its janitor process can't be made.
    pub fn new(prefix: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir()?;
        let janitor = Command::new("/bin/sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(directory.path())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            path: directory.keep(),
            janitor,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "left to the janitor");
            }
            _ => {}
        }
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{self, wait_for};

    const DEADLINE: Duration = Duration::from_secs(180);

    fn sh(script: &str, directory: &ScratchDir) -> Service {
        let env = [("GREETING", "hello")];
        Service::spawn(
            Path::new("/bin/sh"),
            ["-c", script],
            env,
            &directory.path().join("log"),
        )
        .unwrap()
    }

    #[tokio::test]
    async fn dropping_kills_what_the_program_started_too() {
        let directory = ScratchDir::new("osm-process-").unwrap();
        let mut service = sh("sleep 600 & echo child=$!", &directory);
        service.wait(DEADLINE).await.unwrap();
        let logs = service.logs().unwrap();
        let child = PathBuf::from(format!("/proc/{}", logs.trim().trim_start_matches("child=")));
        assert!(child.exists());
        drop(service);
        wait_for("the child's end", DEADLINE, async || wait::check(ended(&child)))
            .await
            .unwrap();
    }

    #[test]
    fn a_scratch_directory_goes_with_its_owner() {
        let directory = ScratchDir::new("osm-process-").unwrap();
        let path = directory.path().to_owned();
        fs::create_dir(path.join("sub")).unwrap();
        fs::write(path.join("sub/file"), "x").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    /// A process whose new parent has not reaped it yet counts as ended.
    fn ended(proc: &Path) -> bool {
        fs::read_to_string(proc.join("stat")).map_or(true, |stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('Z'))
        })
    }
}
