//! `cargo xtask image`: the images of the services and of osmctl, built without a daemon.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use osm_judges::packages;
use tokio::process::Command;

use crate::build::{self, Profile};
use crate::revision;
use osm_testkit::helm::REGISTRY;
use osm_testkit::progress::Progress;

/// Build the images of the services and of osmctl: a static program and its licence in each
#[derive(clap::Args)]
pub struct Image {
    /// Directory for the archives `<program>.tar`, which `ctr images import`, `podman load` and `skopeo copy
    /// docker-archive:` read
    #[arg(long, value_name = "DIRECTORY", default_value = "target/images")]
    out: PathBuf,
    /// Write only the files of the images to this directory, and build no image. The programs name the crates
    /// in them, for scanners, which needs cargo-auditable. The Dockerfile uses this
    #[arg(long, value_name = "DIRECTORY")]
    contents: Option<PathBuf>,
    /// Push the images to this registry as well, such as `registry.example.com/osm`, with the credentials of
    /// `skopeo login` or `docker login`. The chart's value `image.registry` names it
    #[arg(long, value_name = "REGISTRY", conflicts_with = "contents")]
    push: Option<String>,
    /// Push without TLS, or with a certificate that is not trusted
    #[arg(long, requires = "push")]
    insecure: bool,
}

impl Image {
    /// Builds the images.
    ///
    /// # Errors
    /// A build that fails, or buildah if it is missing and can't be installed.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        progress.step("building static programs with link-time optimization, which takes minutes");
        let profile = match self.contents {
            Some(_) => Profile::Auditable,
            None => Profile::Release,
        };
        let binaries = build::programs(profile).await?;
        let out = crate::root().join(&self.out);
        let contents = self.contents.clone().unwrap_or_else(|| out.join("contents"));
        for program in build::programs_of_images() {
            let directory = contents.join(program);
            fill(&directory, program, &binaries)?;
        }
        if self.contents.is_some() {
            return Ok(());
        }
        let revision = revision::read().await?;
        progress.step("buildah");
        tokio::task::spawn_blocking(|| packages::ensure(&["buildah"])).await??;
        // The archives hold the same layers, so the store is temporary.
        let store = tempfile::tempdir_in(&out)?;
        for program in build::programs_of_images() {
            progress.step(program);
            let registry = self.push.as_deref().unwrap_or(REGISTRY).trim_end_matches('/');
            let name = format!("{registry}/{program}:{}", env!("CARGO_PKG_VERSION"));
            let archive = out.join(format!("{program}.tar"));
            buildah(program, &name, &archive, &contents, store.path(), &revision).await?;
            if self.push.is_some() {
                progress.step(&format!("pushing {name}"));
                push(&archive, &name, self.insecure).await?;
            }
        }
        progress.step(&format!("written to {}", out.display()));
        Ok(())
    }
}

/// Writes the files of an image to `<directory>/root`.
fn fill(directory: &Path, name: &str, binaries: &Path) -> Result<()> {
    let root = directory.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let licences = root.join("licenses");
    fs::create_dir_all(&licences).with_context(|| licences.display().to_string())?;
    let program = root.join("service");
    fs::copy(binaries.join(name), &program).context("the built program")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    fs::copy(crate::root().join("LICENSE"), licences.join("LICENSE"))?;
    Ok(())
}

/// Builds the last stage of the Dockerfile.
async fn buildah(
    program: &str,
    name: &str,
    archive: &Path,
    contents: &Path,
    store: &Path,
    revision: &str,
) -> Result<()> {
    if archive.exists() {
        fs::remove_file(archive)?; // buildah would add to it
    }
    let output = Command::new("buildah")
        .env("STORAGE_DRIVER", "vfs") // needs no permission to mount
        .arg("--root")
        .arg(store.join("root"))
        .arg("--runroot")
        .arg(store.join("run"))
        .args([
            "bud",
            "--quiet",
            "--isolation",
            "chroot",
            "--format",
            "docker",
            "--timestamp",
            "0",
        ])
        .args(["--file", "Dockerfile"])
        .arg(format!("--build-context=contents={}", contents.display()))
        .arg(format!("--build-arg=SERVICE={program}"))
        .arg(format!("--build-arg=VERSION={}", env!("CARGO_PKG_VERSION")))
        .arg(format!("--build-arg=REVISION={revision}"))
        .arg(concat!("--build-arg=SOURCE=", env!("CARGO_PKG_REPOSITORY")))
        .arg(format!("--tag=docker-archive:{}:{name}", archive.display()))
        .arg(contents)
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("buildah can't be run")?;
    ensure!(
        output.status.success(),
        "buildah: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

/// Copies the image of an archive to a registry, under a name with the registry in it.
async fn push(archive: &Path, name: &str, insecure: bool) -> Result<()> {
    tokio::task::spawn_blocking(|| packages::ensure(&["skopeo"])).await??;
    let output = Command::new("skopeo")
        .args(["copy", "--quiet", "--retry-times=2"])
        .arg(format!("--dest-tls-verify={}", !insecure))
        .arg(format!("docker-archive:{}", archive.display()))
        .arg(format!("docker://{name}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("skopeo can't be run")?;
    ensure!(
        output.status.success(),
        "{name} can't be pushed: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}
