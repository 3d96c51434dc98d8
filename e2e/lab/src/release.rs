//! Releases of the software that nodes download, and programs for images. They are built from Go modules, and
//! laid out as their projects publish them.
//!
//! The first build takes minutes. Later runs find the programs in the cache (see [`osm_judges::go_module`]).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use osm_judges::go_module::{Flags, GoModule, cache_root, cached_directory, required_version, short};
use osm_judges::packages;
use osm_testkit::control_plane::assets;

/// Debian packages with which runc is built.
pub const PACKAGES: &[&str] = &["gcc", "libc6-dev", "libseccomp-dev", "pkgconf"];

/// Part of the cache's key: another number for another layout of the same programs.
const LAYOUT: u32 = 3;

/// When everything in an archive was last changed: the same programs give the same archive.
const CHANGED: &str = "@1700000000";

/// A project other than Kubernetes.
struct Project {
    /// Its directory in `e2e/node`, and its name in the cache.
    name: &'static str,
    /// Go's name of its module.
    module: &'static str,
    /// Variable that the linker sets to the version, with its `v`; runc knows its own.
    version_variable: Option<&'static str>,
    /// Import paths of its programs, below the module.
    programs: &'static [&'static str],
    tags: &'static str,
    cgo: bool,
}

const CONTAINERD: Project = Project {
    name: "containerd",
    module: "github.com/containerd/containerd/v2",
    version_variable: Some("github.com/containerd/containerd/v2/version.Version"),
    programs: &["cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"],
    tags: "",
    cgo: false,
};

/// Without cgo it would lack what enters namespaces.
const RUNC: Project = Project {
    name: "runc",
    module: "github.com/opencontainers/runc",
    version_variable: None,
    programs: &[""],
    tags: "netgo,osusergo,seccomp,urfave_cli_no_docs",
    cgo: true,
};

const CNI_PLUGINS: Project = Project {
    name: "cni-plugins",
    module: "github.com/containernetworking/plugins",
    version_variable: Some("github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion"),
    programs: &[
        "plugins/main/bridge",
        "plugins/ipam/host-local",
        "plugins/main/loopback",
        "plugins/meta/portmap",
    ],
    tags: "",
    cgo: false,
};

const CRICTL: Project = Project {
    name: "crictl",
    module: "sigs.k8s.io/cri-tools",
    version_variable: Some("sigs.k8s.io/cri-tools/pkg/version.Version"),
    programs: &["cmd/crictl"],
    tags: "",
    cgo: false,
};

impl Project {
    fn directory(&self) -> PathBuf {
        assets::go_module_directory().join("node").join(self.name)
    }

    /// The version in its go.mod, without `v`.
    fn version(&self) -> Result<String> {
        let version = required_version(&self.directory(), self.module)?;
        Ok(version.trim_start_matches('v').to_owned())
    }

    fn go_module(&self) -> Result<GoModule> {
        let version = match self.version_variable {
            Some(variable) => format!(" -X {variable}=v{}", self.version()?),
            None => String::new(),
        };
        let linking = if self.cgo {
            " -linkmode external -extldflags -static"
        } else {
            ""
        };
        let ldflags = format!("-s -w{version}{linking}");
        let flags = Flags {
            ldflags,
            tags: self.tags.to_owned(),
            cgo: self.cgo,
        };
        GoModule::new(&self.directory(), self.name, flags)
    }

    /// Its programs as files.
    async fn build(&self, progress: impl Fn(&str)) -> Result<Vec<PathBuf>> {
        let module = self.go_module()?;
        let mut built = Vec::new();
        for program in self.programs {
            let package = format!("{}/{program}", self.module);
            let name = program
                .rsplit('/')
                .next()
                .filter(|name| !name.is_empty())
                .unwrap_or(self.name);
            built.push(
                module
                    .build(name, package.trim_end_matches('/'), &progress)
                    .await?,
            );
        }
        Ok(built)
    }
}

/// The folder of a mirror of all release files that a node of this machine's architecture downloads, below
/// the hosts that publish them:
///
/// ```text
/// dl.k8s.io/v1.34.4/bin/linux/amd64/kubelet, kubelet.sha256
/// github.com/containerd/containerd/releases/download/v2.2.9/containerd-static-2.2.9-linux-amd64.tar.gz, ….sha256sum
/// github.com/opencontainers/runc/releases/download/v1.3.6/runc.amd64, runc.sha256sum
/// github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz, ….sha256
/// github.com/kubernetes-sigs/cri-tools/releases/download/v1.34.0/crictl-v1.34.0-linux-amd64.tar.gz, ….sha256
/// ```
///
/// Versions are the defaults of the settings, and `kubelet_version` (without `v`) the one that can be built.
/// The folder is shared and must not be changed. `progress` is told what is built, a line at a time.
///
/// # Errors
/// When the kubelet's version is another one, Go or a C compiler is missing, or a build fails.
pub async fn mirror(kubelet_version: &str, progress: impl Fn(&str)) -> Result<PathBuf> {
    let (kubelet, version) = Kubelet::module(Kubelet::USUAL)?;
    ensure!(
        version == kubelet_version,
        "kubelet {kubelet_version} can't be mirrored: its go.mod has {version}; ask for that one, or change it there"
    );
    let arch = architecture()?;
    let mut key = Sha256::new();
    key.update(format!("{LAYOUT} {arch} {}", kubelet.key()));
    for project in [CONTAINERD, RUNC, CNI_PLUGINS, CRICTL] {
        key.update(project.go_module()?.key());
    }
    let target = cache_root()?.join("release").join(short(key));
    cached_directory(&target, "release files", &progress, async |directory| {
        let programs = programs(&progress).await?;
        progress("packing kubelet, containerd, runc, CNI plugins and crictl");
        let directory = directory.to_owned();
        spawn_blocking(move || lay_out(&directory, arch, &programs)).await?
    })
    .await
    .context("mirror of release files")?;
    Ok(target)
}

/// The programs of a node, as [`mirror`] packs them.
///
/// # Errors
/// When Go or a C compiler is missing, or a build fails.
pub async fn programs(progress: impl Fn(&str)) -> Result<Programs> {
    spawn_blocking(|| packages::ensure(PACKAGES))
        .await?
        .context("for runc")?;
    Ok(Programs {
        kubelet: Kubelet::ensure(Kubelet::USUAL, &progress).await?,
        containerd: CONTAINERD.build(&progress).await?,
        runc: RUNC.build(&progress).await?.pop().context("runc")?,
        cni_plugins: CNI_PLUGINS.build(&progress).await?,
        crictl: CRICTL.build(&progress).await?.pop().context("crictl")?,
    })
}

/// A kubelet. Kubernetes supports none that is newer than the API server, so the newest is the control
/// plane's.
#[derive(Debug, Clone)]
pub struct Kubelet {
    /// Its version, without `v`.
    pub version: String,
    program: PathBuf,
}

impl Kubelet {
    /// Minor version of most machines, for which there is a crictl.
    const USUAL: &str = "1.34";
    /// Minor versions besides the usual one: the oldest and the newest.
    pub const OTHERS: [&str; 2] = ["1.33", "1.36"];

    /// The kubelet of a minor version, from the cache, else built.
    ///
    /// # Errors
    /// When there is no such module, Go is missing, or the build fails.
    pub async fn ensure(minor: &str, progress: impl Fn(&str)) -> Result<Self> {
        let (module, version) = Self::module(minor)?;
        let program = module
            .build("kubelet", "k8s.io/kubernetes/cmd/kubelet", progress)
            .await?;
        Ok(Self { version, program })
    }

    /// The control plane's module or `e2e/node/kubelet-MINOR`, and the version in it.
    fn module(minor: &str) -> Result<(GoModule, String)> {
        let name = format!("kubelet-{minor}");
        let newest = assets::kubernetes_version()?;
        let (module, version) = if newest.starts_with(&format!("v{minor}.")) {
            (assets::go_module()?, newest)
        } else {
            let directory = assets::go_module_directory().join("node").join(&name);
            let version = required_version(&directory, "k8s.io/kubernetes")?;
            let flags = assets::kubernetes_flags(&version);
            (GoModule::new(&directory, &name, flags)?, version)
        };
        Ok((module, version.trim_start_matches('v').to_owned()))
    }

    /// Adds it to a mirror.
    ///
    /// # Errors
    /// When the mirror can't be written.
    pub fn publish(&self, mirror: &Path) -> Result<()> {
        let folder = mirror.join(format!(
            "dl.k8s.io/v{}/bin/linux/{}",
            self.version,
            architecture()?
        ));
        fs::create_dir_all(&folder)?;
        let kubelet = folder.join("kubelet");
        fs::copy(&self.program, &kubelet)?;
        fs::write(folder.join("kubelet.sha256"), sha256(&kubelet)?)?;
        Ok(())
    }
}

/// Programs that images are made of, static.
#[derive(Debug, Clone)]
pub struct Images {
    /// Holds a pod's namespaces.
    pub pause: PathBuf,
    /// What pods of tests run; its commands are `serve`, `install-cni FILE` and `resolv`.
    pub node_test: PathBuf,
}

/// Builds the programs of `e2e/images`.
///
/// # Errors
/// When Go is missing, or a build fails.
pub async fn images(progress: impl Fn(&str)) -> Result<Images> {
    let flags = Flags {
        ldflags: "-s -w".to_owned(),
        ..Flags::default()
    };
    let module = GoModule::new(&assets::go_module_directory(), "image-programs", flags)?;
    Ok(Images {
        pause: module.build("pause", "./images/pause", &progress).await?,
        node_test: module.build("node-test", "./images/node-test", &progress).await?,
    })
}

/// This machine's architecture as Go, the image specification and the projects' releases name it.
///
/// # Errors
/// When it is neither amd64 nor arm64.
pub fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("nodes are amd64 or arm64, not {other}"),
    }
}

/// What a node runs, each program a file.
#[derive(Debug, Clone)]
pub struct Programs {
    pub kubelet: Kubelet,
    /// containerd, its shim and `ctr`.
    pub containerd: Vec<PathBuf>,
    pub runc: PathBuf,
    /// Plugins of the container network interface.
    pub cni_plugins: Vec<PathBuf>,
    pub crictl: PathBuf,
}

fn lay_out(directory: &Path, arch: &str, programs: &Programs) -> Result<()> {
    programs.kubelet.publish(directory)?;
    let folder = |project: &Project, path: &str| -> Result<(PathBuf, String)> {
        let version = project.version()?;
        let folder = directory.join(format!("github.com/{path}/releases/download/v{version}"));
        fs::create_dir_all(&folder)?;
        Ok((folder, version))
    };
    let (containerd, version) = folder(&CONTAINERD, "containerd/containerd")?;
    let archive = format!("containerd-static-{version}-linux-{arch}.tar.gz");
    pack(&containerd.join(&archive), "bin/", &programs.containerd)?;
    checksum_file(&containerd, &archive, &format!("{archive}.sha256sum"))?;

    let (runc, _) = folder(&RUNC, "opencontainers/runc")?;
    let file = format!("runc.{arch}");
    fs::copy(&programs.runc, runc.join(&file))?;
    checksum_file(&runc, &file, "runc.sha256sum")?;

    let (cni_plugins, version) = folder(&CNI_PLUGINS, "containernetworking/plugins")?;
    let archive = format!("cni-plugins-linux-{arch}-v{version}.tgz");
    pack(&cni_plugins.join(&archive), "./", &programs.cni_plugins)?;
    checksum_file(&cni_plugins, &archive, &format!("{archive}.sha256"))?;

    let (crictl, version) = folder(&CRICTL, "kubernetes-sigs/cri-tools")?;
    let archive = format!("crictl-v{version}-linux-{arch}.tar.gz");
    let path = crictl.join(&archive);
    pack(&path, "", std::slice::from_ref(&programs.crictl))?;
    fs::write(crictl.join(format!("{archive}.sha256")), sha256(&path)?)?;
    Ok(())
}

/// Writes a compressed archive of programs, which root owns. `prefix` comes before their names, such as the
/// `./` of some projects.
fn pack(archive: &Path, prefix: &str, programs: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("tar");
    command
        .args([
            "--create",
            "--numeric-owner",
            "--owner=0",
            "--group=0",
            "--mtime",
            CHANGED,
        ])
        // Neither the archive's name nor the time goes into it.
        .args(["--use-compress-program=gzip --fast --no-name", "--file"])
        .arg(archive)
        .arg(format!("--transform=s,^,{prefix},"));
    for program in programs {
        let folder = program.parent().context("a program's folder")?;
        let name = program.file_name().context("a program's name")?;
        command.arg("--directory").arg(folder).arg(name);
    }
    let output = command.output().context("tar can't be run")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {complaint}", archive.display());
    Ok(())
}

/// Writes what `sha256sum` prints for a file, run in its folder.
fn checksum_file(folder: &Path, file: &str, name: &str) -> Result<()> {
    let line = format!("{}  {file}\n", sha256(&folder.join(file))?);
    fs::write(folder.join(name), line).with_context(|| folder.join(name).display().to_string())
}

fn sha256(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    io::copy(&mut file, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use osm_api::settings::Downloads;

    use super::*;

    #[test]
    fn versions_are_the_defaults_of_the_settings() {
        let defaults = Downloads::default();
        assert_eq!(
            CRICTL.version().unwrap(),
            format!("{}.0", Kubelet::USUAL),
            "e2e/node/crictl/go.mod"
        );
        for (project, version) in [
            (CONTAINERD, defaults.containerd.version),
            (RUNC, defaults.runc.version),
            (CNI_PLUGINS, defaults.cni.version),
        ] {
            assert_eq!(
                Some(project.version().unwrap()),
                version,
                "e2e/node/{}/go.mod",
                project.name
            );
        }
    }
}
