//! `cargo xtask image`: the images of the three services, without a daemon.

mod dependencies;
mod licences;
mod sbom;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use osm_api::rbac::Service;
use osm_testkit::packages;
use tokio::process::Command;

use self::dependencies::Dependencies;
use crate::build;
use crate::progress::Progress;

/// Where the chart looks for images.
const REPOSITORY: &str = "ghcr.io/kubermatic/operating-system-manager";

/// What an image may weigh at the most, compressed as registries keep it.
const MOST_BYTES: u64 = 25_000_000;

/// Build the images of the services: static programs, their licences, and an SBOM beside each
#[derive(clap::Args)]
pub struct Image {
    /// Where the archives go, `<service>.tar` for `ctr images import`, `podman load` or `skopeo copy docker-archive:`, and the SBOMs
    #[arg(long, value_name = "DIRECTORY", default_value = "target/images")]
    out: PathBuf,
    /// First part of the images' names
    #[arg(long, value_name = "NAME", default_value = REPOSITORY)]
    repository: String,
    /// Only write what the images hold, into this directory, and build none: for the Dockerfile
    #[arg(long, value_name = "DIRECTORY")]
    contents: Option<PathBuf>,
}

impl Image {
    /// Builds; prints what each image weighs.
    ///
    /// # Errors
    /// A build that fails, an image that is too large, or a machine without buildah where it can't be installed.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        progress.step("static programs, linked as a whole: some minutes, if they are new");
        let binaries = build::static_services().await?;
        progress.step("licences and SBOMs");
        let dependencies = Dependencies::read().await?;
        let revision = revision().await?;
        let out = crate::root().join(&self.out);
        let contents = self.contents.clone().unwrap_or_else(|| out.join("contents"));
        for service in Service::ALL {
            let directory = contents.join(service.name());
            fill(&directory, service, &binaries, &dependencies, &revision)?;
            starts_alone(&directory.join("root"), service).await?;
        }
        if self.contents.is_some() {
            return Ok(());
        }
        progress.step("buildah");
        tokio::task::spawn_blocking(|| packages::ensure(&["buildah"])).await??;
        // Not in a folder that survives: its layers are copies of what is in the archive.
        let store = tempfile::tempdir_in(&out)?;
        for service in Service::ALL {
            progress.step(service.name());
            let name = format!("{}/{}:{}", self.repository, service.name(), env!("CARGO_PKG_VERSION"));
            let archive = out.join(format!("{}.tar", service.name()));
            buildah(service, &name, &archive, &contents, store.path(), &revision).await?;
            let sbom = format!("{}.cdx.json", service.name());
            fs::copy(contents.join(service.name()).join(&sbom), out.join(&sbom))?;
            let bytes = tokio::task::spawn_blocking(move || compressed(&archive)).await??;
            println!("{name}: {:.1} MB compressed", bytes as f64 / 1e6);
            ensure!(bytes <= MOST_BYTES, "{name} has {bytes} bytes, compressed; {MOST_BYTES} are allowed");
        }
        progress.step(&format!("in {}", out.display()));
        Ok(())
    }
}

/// Writes what an image holds to `<directory>/root`, and its SBOM beside that.
fn fill(
    directory: &Path,
    service: Service,
    binaries: &Path,
    dependencies: &Dependencies,
    revision: &str,
) -> Result<()> {
    let root = directory.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let licences = root.join("licenses");
    fs::create_dir_all(&licences).with_context(|| licences.display().to_string())?;
    let program = root.join("service");
    fs::copy(binaries.join(service.name()), &program).context("the built program")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let parts = dependencies.of(service.name())?;
    fs::copy(crate::root().join("LICENSE"), licences.join("LICENSE"))?;
    fs::write(licences.join("THIRD-PARTY.txt"), licences::text(&parts)?)?;
    let sbom = serde_json::to_string_pretty(&sbom::document(service.name(), revision, &parts))? + "\n";
    fs::write(directory.join(format!("{}.cdx.json", service.name())), sbom)?;
    Ok(())
}

/// Whether the program starts where there is nothing but what the image holds. Only root can try.
async fn starts_alone(root: &Path, service: Service) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mut command = Command::new("chroot");
    command
        .arg(root)
        .args(["/service", "--version"])
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.context("chroot")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let wanted = format!("{} {}", service.name(), env!("CARGO_PKG_VERSION"));
    ensure!(
        output.status.success() && said.trim() == wanted,
        "{} does not start in its image: {said}{}",
        service.name(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Builds the last stage of the Dockerfile.
async fn buildah(
    service: Service,
    name: &str,
    archive: &Path,
    contents: &Path,
    store: &Path,
    revision: &str,
) -> Result<()> {
    if archive.exists() {
        fs::remove_file(archive)?; // buildah adds to one that is there
    }
    let output = Command::new("buildah")
        .env("STORAGE_DRIVER", "vfs") // needs no right to mount
        .arg("--root")
        .arg(store.join("root"))
        .arg("--runroot")
        .arg(store.join("run"))
        .args(["bud", "--quiet", "--isolation", "chroot", "--format", "docker", "--timestamp", "0"])
        .args(["--file", "Dockerfile"])
        .arg(format!("--build-context=contents={}", contents.display()))
        .arg(format!("--build-arg=SERVICE={}", service.name()))
        .arg(format!("--build-arg=VERSION={}", env!("CARGO_PKG_VERSION")))
        .arg(format!("--build-arg=REVISION={revision}"))
        .arg(format!("--tag=docker-archive:{}:{name}", archive.display()))
        .arg(contents)
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .context("buildah can't be run")?;
    ensure!(output.status.success(), "buildah: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(())
}

/// Builds all images as `cargo xtask image` does, and gives the folder with their archives.
///
/// # Errors
/// As [`Image::run`].
pub async fn build_all() -> Result<PathBuf> {
    let (out, repository) = (crate::root().join("target/images"), REPOSITORY.to_owned());
    Image { out: out.clone(), repository, contents: None }.run().await?;
    Ok(out)
}

/// The size of a file, compressed as registries keep layers.
fn compressed(file: &Path) -> Result<u64> {
    let mut encoder = GzEncoder::new(Count(0), Compression::default());
    io::copy(&mut fs::File::open(file)?, &mut encoder)?;
    Ok(encoder.finish()?.0)
}

struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The commit: `REVISION`, else what git says, with `-dirty` where files differ from it.
async fn revision() -> Result<String> {
    if let Some(given) = std::env::var("REVISION").ok().filter(|given| !given.is_empty()) {
        return Ok(given);
    }
    let git = Command::new("git")
        .args(["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"])
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .output()
        .await;
    let output = git.context("git can't be run: set REVISION")?;
    ensure!(output.status.success(), "git knows no commit: set REVISION");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
