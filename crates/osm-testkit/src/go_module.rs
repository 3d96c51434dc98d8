//! Programs built from a Go module of this repository, cached outside the tree.
//!
//! The cache is `${XDG_CACHE_HOME:-$HOME/.cache}/osm/<name>/<key>/`, where the key is a hash of go.mod, go.sum and the build's
//! flags: whoever changes a version builds anew, and everybody else finds the binary.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::{MissedTickBehavior, interval};

/// How often the progress of a build is told.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// A Go module whose commands we build.
#[derive(Debug, Clone)]
pub struct GoModule {
    directory: PathBuf,
    cache: PathBuf,
    ldflags: String,
}

impl GoModule {
    /// The module in `directory`, its binaries cached under `name`; `ldflags` are the linker flags of every build.
    ///
    /// # Errors
    /// When go.mod or go.sum can't be read, or there is no home directory.
    pub fn new(directory: &Path, name: &str, ldflags: &str) -> Result<Self> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let path = directory.join(file);
            hash.update(fs::read(&path).with_context(|| path.display().to_string())?);
        }
        hash.update(ldflags);
        let key: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let cache = cache_root()?.join(name).join(key);
        Ok(Self { directory: directory.to_owned(), cache, ldflags: ldflags.to_owned() })
    }

    /// The command `package` (an import path, or a path within the module such as `./cmd`) as a binary called `name`: from the cache, else
    /// built. `progress` is told what a build does, a line at a time. Several processes may ask at once; one builds.
    ///
    /// # Errors
    /// When Go is missing, or the build fails (with the compiler's words).
    pub async fn build(&self, name: &str, package: &str, progress: impl Fn(&str)) -> Result<PathBuf> {
        let binary = self.cache.join(name);
        if binary.is_file() {
            return Ok(binary);
        }
        fs::create_dir_all(&self.cache).with_context(|| self.cache.display().to_string())?;
        let _lock = self.lock(name, &progress).await?;
        if !binary.is_file() {
            let scratch = self.cache.join(".building");
            if scratch.exists() {
                fs::remove_dir_all(&scratch)?; // left by a build that was killed: we hold the lock
            }
            fs::create_dir(&scratch)?;
            let built = self.compile(name, package, &scratch, &progress).await;
            let moved = built.and_then(|output| Ok(fs::rename(output, &binary)?));
            fs::remove_dir_all(&scratch)?;
            moved.with_context(|| format!("build of {name}"))?;
        }
        Ok(binary)
    }

    /// Held until dropped, and let go by the kernel if we are killed.
    async fn lock(&self, name: &str, progress: &impl Fn(&str)) -> Result<File> {
        let path = self.cache.join(".lock");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let started = Instant::now();
        let mut ticks = reports();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error).context("lock of the cache"),
            }
            tokio::select! {
                _ = ticks.tick() => progress(&format!("{name}: another process builds, waiting {} s", started.elapsed().as_secs())),
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
        }
    }

    /// Builds the command into `scratch`.
    async fn compile(
        &self,
        name: &str,
        package: &str,
        scratch: &Path,
        progress: &impl Fn(&str),
    ) -> Result<PathBuf> {
        let started = Instant::now();
        progress(&format!("{name}: building from source with Go"));
        let tell = |report: &BuildReport, packages: usize| {
            progress(&format!("{name}: {} ({} s)", report.progress(packages), started.elapsed().as_secs()));
        };
        // The first call downloads the modules.
        let list = ["list".into(), "-deps".into(), package.into()];
        let packages = self.go(&list, scratch, |report| tell(report, 0)).await?.lines().count();
        let output = scratch.join(name);
        let mut build: Vec<OsString> =
            ["build", "-v", "-buildvcs=false", "-trimpath", "-ldflags"].map(Into::into).to_vec();
        build.extend([(&self.ldflags).into(), "-o".into(), output.clone().into(), package.into()]);
        self.go(&build, scratch, |report| tell(report, packages)).await?;
        progress(&format!("{name}: built in {} s", started.elapsed().as_secs()));
        Ok(output)
    }

    /// Runs `go` in the module and returns its output; every few seconds `tell` gets what has happened so far.
    async fn go(
        &self,
        arguments: &[OsString],
        scratch: &Path,
        tell: impl Fn(&BuildReport),
    ) -> Result<String> {
        let child = Command::new("go")
            .args(arguments)
            .current_dir(&self.directory)
            .envs([("CGO_ENABLED", "0"), ("GOWORK", "off")])
            .env("GOTMPDIR", scratch)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = match child {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "Go is not installed (no `go` in PATH).\n\
                 Install Go {} or newer (https://go.dev/dl). For the control plane, KUBEBUILDER_ASSETS may instead name a \
                 directory with etcd and kube-apiserver.",
                self.go_version()
            ),
            child => child.context("go can't be run")?,
        };
        let mut lines = BufReader::new(child.stderr.take().context("standard error of go")?).lines();
        let mut stdout = child.stdout.take().context("standard output of go")?;
        let output = tokio::spawn(async move {
            let mut text = String::new();
            stdout.read_to_string(&mut text).await.map(|_| text)
        });
        let mut report = BuildReport::default();
        let mut ticks = reports();
        loop {
            tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => report.add(line),
                    None => break,
                },
                _ = ticks.tick() => tell(&report),
            }
        }
        let status = child.wait().await?;
        if !status.success() {
            let command = arguments.first().map(|command| command.display().to_string()).unwrap_or_default();
            bail!("go {command} failed ({status}):\n{}", report.other.join("\n"));
        }
        Ok(output.await??)
    }

    fn go_version(&self) -> String {
        let go_mod = fs::read_to_string(self.directory.join("go.mod")).unwrap_or_default();
        go_mod.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("1.26").trim().to_owned()
    }
}

/// What `go build -v` has written to standard error so far.
#[derive(Debug, Default)]
struct BuildReport {
    compiled: usize,
    downloaded: usize,
    /// All other lines: the compiler's complaints.
    other: Vec<String>,
}

impl BuildReport {
    fn add(&mut self, line: String) {
        if line.starts_with("go: downloading ") {
            self.downloaded += 1;
        } else if line.starts_with('#') || line.contains(' ') {
            self.other.push(line);
        } else {
            self.compiled += 1;
        }
    }

    /// Packages that Go's own cache has are not counted, hence "of at most".
    fn progress(&self, packages: usize) -> String {
        if self.compiled == 0 {
            return format!("{} modules downloaded", self.downloaded);
        }
        format!("{} of at most {packages} packages compiled", self.compiled)
    }
}

fn reports() -> tokio::time::Interval {
    let mut ticks = interval(REPORT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    ticks
}

pub(crate) fn cache_root() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => std::env::home_dir().context("no home directory: set XDG_CACHE_HOME")?.join(".cache"),
    };
    Ok(base.join("osm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(directory: &Path, main: &str) -> GoModule {
        fs::write(directory.join("go.mod"), "module example.org/hello\n\ngo 1.24\n").unwrap();
        fs::write(directory.join("go.sum"), "").unwrap();
        fs::write(directory.join("main.go"), main).unwrap();
        let mut module = GoModule::new(directory, "test", "-s -w").unwrap();
        module.cache = directory.join("cache");
        module
    }

    const HELLO: &str = "package main\n\nfunc main() { println(\"hello\") }\n";

    #[tokio::test]
    async fn two_at_once_get_one_binary_that_works() {
        let directory = tempfile::tempdir().unwrap();
        let module = module(directory.path(), HELLO);
        let (first, second) =
            tokio::join!(module.build("hello", ".", |_| ()), module.build("hello", ".", |_| ()));
        assert_eq!(first.unwrap(), second.unwrap());
        let output = std::process::Command::new(module.cache.join("hello")).output().unwrap();
        assert_eq!(output.stderr, b"hello\n");
        fs::write(directory.path().join("main.go"), "not Go").unwrap();
        module.build("hello", ".", |line| panic!("nothing is built again: {line}")).await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_build_tells_what_the_compiler_said_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let module = module(directory.path(), "package main\n\nfunc main() { undefinedFunction() }\n");
        let error = format!("{:#}", module.build("hello", ".", |_| ()).await.unwrap_err());
        assert!(error.contains("undefinedFunction"), "{error}");
        let left: Vec<_> =
            fs::read_dir(&module.cache).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [".lock"]);
        fs::write(directory.path().join("main.go"), HELLO).unwrap();
        module.build("hello", ".", |_| ()).await.unwrap();
    }

    #[test]
    fn another_version_or_flag_is_another_key() {
        let directory = tempfile::tempdir().unwrap();
        module(directory.path(), HELLO);
        let key = |flags| GoModule::new(directory.path(), "test", flags).unwrap().cache;
        let before = key("");
        assert_eq!(before, key(""));
        assert_ne!(before, key("-s"));
        fs::write(directory.path().join("go.sum"), "changed").unwrap();
        assert_ne!(before, key(""));
    }

    #[test]
    fn progress_counts_packages_and_keeps_complaints() {
        let mut report = BuildReport::default();
        report.add("go: downloading k8s.io/api v0.34.4".to_owned());
        assert_eq!(report.progress(10), "1 modules downloaded");
        for line in ["internal/abi", "k8s.io/api/core/v1", "# k8s.io/api/core/v1", "x.go:1:2: undefined: y"] {
            report.add(line.to_owned());
        }
        assert_eq!(report.progress(10), "2 of at most 10 packages compiled");
        assert_eq!(report.other, ["# k8s.io/api/core/v1", "x.go:1:2: undefined: y"]);
    }
}
