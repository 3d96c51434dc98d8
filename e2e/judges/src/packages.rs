//! Installs or names the Debian packages that tests and judges need.

use std::fs::{self, File};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::go_module::cache_root;

/// What all tests and judges together need, so that `cargo xtask test` can install it in one go.
pub const FOR_TESTS: &[&str] = &[
    "busybox",
    "curl",
    "dash",
    "debian-archive-keyring",
    "dnsmasq-base",
    "docker-registry",
    "e2fsprogs",
    "ignition",
    "iproute2",
    "jq",
    "libfaketime",
    "lua5.4",
    "mmdebstrap",
    "passwd",
    "prometheus",
    "python3",
    "python3-configobj",
    "python3-jinja2",
    "python3-jsonpatch",
    "python3-jsonschema",
    "python3-requests",
    "python3-yaml",
    "qemu-system-x86",
    "qemu-utils",
    "shellcheck",
    "skopeo",
    "systemd",
    "tinyproxy",
    "tmux",
    "xorriso",
];

/// Makes sure that the Debian packages are installed.
///
/// Missing ones are installed by `apt-get` when the process runs as root (noninteractive, without
/// recommended packages, one `apt-get update` first). Safe to call from several processes at once.
///
/// # Errors
/// Names the missing packages where they can't be installed: not root, no `apt-get`, or `apt-get` failed.
pub fn ensure(packages: &[&str]) -> Result<()> {
    if missing(packages).is_empty() {
        return Ok(());
    }
    let cache = cache_root()?;
    fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
    let lock = File::create(cache.join(".packages.lock"))?;
    lock.lock()?;
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!(
            "needs the Debian packages: {list}\ninstall them: sudo apt-get install --no-install-recommends {list}"
        );
    }
    apt_get(&["update"]).with_context(|| format!("needs the Debian packages: {list}"))?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&missing);
    apt_get(&arguments).with_context(|| format!("needs the Debian packages: {list}"))
}

fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    packages
        .iter()
        .copied()
        .filter(|package| !installed(package))
        .collect()
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["--quiet", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .context("apt-get can't be run (not a Debian system?)")?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!(
            "apt-get {} failed ({}):\n{}",
            arguments.join(" "),
            output.status,
            stderr.trim_end()
        );
    }
    Ok(())
}
