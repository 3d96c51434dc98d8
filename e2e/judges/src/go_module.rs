//! Programs built from a Go module of this repository, cached outside the tree.
//!
//! The cache is `${XDG_CACHE_HOME:-$HOME/.cache}/osm/<name>/<key>/`. The key is a hash of go.mod, go.sum and
//! the flags of the build. A new version therefore means a new build, and everything else finds the binary.
//! Packages of the module itself have a directory below that for each state of their source.

mod cache;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use tokio::process::Command;

pub use self::cache::{cache_root, cached_directory, short};
use self::cache::{lock, scratch};

/// How a module's commands are compiled and linked. Without cgo they are static.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Linker flags (`-ldflags`), separated by spaces.
    pub ldflags: String,
    /// Build tags, separated by commas.
    pub tags: String,
    /// Compile C sources too, which needs a C compiler.
    pub cgo: bool,
}

/// A Go module whose commands we build.
#[derive(Debug, Clone)]
pub struct GoModule {
    directory: PathBuf,
    cache: PathBuf,
    key: String,
    flags: Flags,
}

impl GoModule {
    /// The module in `directory`, its binaries cached under `name`.
    ///
    /// # Errors
    /// When go.mod or go.sum can't be read, or there is no home directory.
    pub fn new(directory: &Path, name: &str, flags: Flags) -> Result<Self> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let path = directory.join(file);
            hash.update(fs::read(&path).with_context(|| path.display().to_string())?);
        }
        let Flags { ldflags, tags, cgo } = &flags;
        hash.update(format!("{ldflags}\0{tags}\0{cgo}"));
        let key = short(hash);
        let cache = cache_root()?.join(name).join(&key);
        Ok(Self {
            directory: directory.to_owned(),
            cache,
            key,
            flags,
        })
    }

    /// A hash of everything that decides how commands of other modules come out: versions and flags.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The command `package` (an import path, or a path within the module such as `./cmd`) as a binary called
    /// `name`: from the cache, else built. `progress` is told what a build does, a line at a time. Several
    /// processes may ask at once; one builds.
    ///
    /// # Errors
    /// When Go is missing, or the build fails (with the compiler's words).
    pub async fn build(&self, name: &str, package: &str, progress: impl Fn(&str)) -> Result<PathBuf> {
        let cache = if package.starts_with('.') {
            self.cache.join(source_key(&self.directory.join(package))?)
        } else {
            self.cache.clone()
        };
        let binary = cache.join(name);
        if binary.is_file() {
            return Ok(binary);
        }
        let _lock = lock(&cache, name, &progress).await?;
        if !binary.is_file() {
            let scratch = scratch(&cache)?;
            let built = self.compile(name, package, &scratch, &progress).await;
            let moved = built.and_then(|output| Ok(fs::rename(output, &binary)?));
            fs::remove_dir_all(&scratch)?;
            moved.with_context(|| format!("build of {name}"))?;
        }
        Ok(binary)
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
        let output = scratch.join(name);
        let mut command = Command::new("go");
        command
            .args(["build", "-buildvcs=false", "-trimpath"])
            .args(["-ldflags", &self.flags.ldflags, "-tags", &self.flags.tags, "-o"])
            .arg(&output)
            .arg(package)
            .current_dir(&self.directory)
            .env("CGO_ENABLED", if self.flags.cgo { "1" } else { "0" })
            .env("GOWORK", "off")
            .env("GOTMPDIR", scratch)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        progress(&format!("{name}: building from source with Go, perhaps minutes"));
        let built = command.output().await;
        let built = match built {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "Go is not installed (no `go` in PATH).\n\
                 Install Go {} or newer (https://go.dev/dl). For the control plane, KUBEBUILDER_ASSETS may instead name a \
                 directory with etcd and kube-apiserver.",
                self.go_version()
            ),
            built => built.context("go can't be run")?,
        };
        if !built.status.success() {
            let stderr = String::from_utf8_lossy(&built.stderr);
            bail!("go build failed ({}):\n{}", built.status, stderr.trim_end());
        }
        progress(&format!("{name}: built in {} s", started.elapsed().as_secs()));
        Ok(output)
    }

    fn go_version(&self) -> String {
        let go_mod = fs::read_to_string(self.directory.join("go.mod")).unwrap_or_default();
        go_mod
            .lines()
            .find_map(|line| line.strip_prefix("go "))
            .unwrap_or("1.26")
            .trim()
            .to_owned()
    }
}

/// The version that the go.mod in `directory` requires of a module, such as `v1.34.4`.
///
/// # Errors
/// When go.mod can't be read, or does not require the module.
pub fn required_version(directory: &Path, module: &str) -> Result<String> {
    let path = directory.join("go.mod");
    let go_mod = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let version = go_mod.lines().find_map(|line| {
        let line = line.trim();
        let required = line
            .strip_prefix("require ")
            .unwrap_or(line)
            .strip_prefix(module)?;
        required.strip_prefix(' ')?.split_whitespace().next()
    });
    Ok(version
        .with_context(|| format!("no {module} in {}", path.display()))?
        .to_owned())
}

/// A hash of a package's files.
fn source_key(package: &Path) -> Result<String> {
    let mut files = fs::read_dir(package)
        .and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.path()))
                .collect::<std::io::Result<Vec<_>>>()
        })
        .with_context(|| package.display().to_string())?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "go"));
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update(Sha256::digest(
            fs::read(&file).with_context(|| file.display().to_string())?,
        ));
    }
    Ok(short(hash))
}
