//! Judges cloud-config by cloud-init's own validation, and rejects what that only warns about.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use crate::complaint::{Complaints, Finding, judge_once};
use crate::packages;
use crate::program::{ask, cached, run};

/// The Debian releases whose cloud-init judges: 22.4 and 25.1.
const SUITES: [&str; 2] = ["bookworm", "trixie"];

/// What cloud-init imports. It is itself never installed: it is a service, and would configure this machine.
const PACKAGES: [&str; 7] = [
    "debian-archive-keyring",
    "python3",
    "python3-configobj",
    "python3-jinja2",
    "python3-jsonpatch",
    "python3-jsonschema",
    "python3-requests",
];

const SCRIPT: &str = include_str!("cloud_config.py");

/// Judges cloud-config documents (name, text) by the schemas of cloud-init 22.4 and 25.1.
///
/// Beyond the schemas: the header line is required, unknown top-level keys, duplicate keys and deprecated
/// ones are refused, and in `write_files` paths are absolute and stand once, permissions are octal strings,
/// encoded contents decode.
///
/// # Errors
/// What is wrong with them.
pub fn cloud_config(documents: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("cloud-config", documents, |texts| {
        packages::ensure(&PACKAGES)?;
        let [first, second] = SUITES.map(|suite| (suite, cloud_init(suite)));
        // Two processes, as two versions of a Python package can't live in one; at the same time.
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| judge(second.1, texts));
            (judge(first.1, texts), second.join())
        });
        let second = second.map_err(|_| anyhow!("the second judge panicked"))??;
        Ok(first?
            .into_iter()
            .zip(second)
            .map(|(first, second)| merge(first, second))
            .collect())
    })
}

/// cloud-init's loader, `Modules._fixup_modules` of cloudinit/config/modules.py, by which `cloud-init single`
/// finds a module.
const LOADER: &str = "\
import json, sys, warnings
warnings.simplefilter('ignore')
sys.path.insert(0, sys.argv[1])
from cloudinit.config.modules import Modules
loader = Modules(None, [])
print(json.dumps([name for name in json.load(sys.stdin) if not loader._fixup_modules([{'mod': name}])]))
";

/// Those of the names for which `cloud-init single --name` finds no module, with cloud-init 22.4 or 25.1.
///
/// # Errors
/// When it can't be asked.
pub fn cloud_init_modules_missing(names: &[&str]) -> Result<Vec<String>> {
    packages::ensure(&PACKAGES)?;
    let mut missing = Vec::new();
    for suite in SUITES {
        let mut python = Command::new("/usr/bin/python3");
        let answer: Vec<String> = ask(python.args(["-IB", "-c", LOADER]).arg(cloud_init(suite)?), &names)?;
        missing.extend(answer);
    }
    Ok(missing)
}

fn judge(cloud_init: Result<PathBuf>, texts: &[&str]) -> Result<Vec<Vec<Finding>>> {
    let answers: Vec<Vec<Finding>> = ask(
        Command::new("/usr/bin/python3")
            .args(["-IB", "-c", SCRIPT])
            .arg(cloud_init?),
        &texts,
    )?;
    ensure!(
        answers.len() == texts.len(),
        "{} answers for {} documents",
        answers.len(),
        texts.len()
    );
    Ok(answers)
}

fn merge(mut all: Vec<Finding>, more: Vec<Finding>) -> Vec<Finding> {
    all.extend(more);
    all.sort();
    all.dedup();
    all
}

/// The Python package directory of a Debian release's cloud-init, unpacked in the cache.
fn cloud_init(suite: &str) -> Result<PathBuf> {
    let directory = cached(&format!("cloud-init-{suite}"), |target| {
        let apt = tempfile::tempdir()?;
        fetch(suite, apt.path())?;
        let archive = fs::read_dir(apt.path())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get download left no package")?;
        run(Command::new("dpkg-deb").arg("-x").args([&archive, target]))
    })?;
    Ok(directory.join("usr/lib/python3/dist-packages"))
}

/// Downloads the package with lists and sources of its own: this machine's apt stays as it is.
fn fetch(suite: &str, apt: &Path) -> Result<()> {
    for directory in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(directory))?;
    }
    fs::write(
        apt.join("sources.list"),
        format!(
            "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {suite} main\n"
        ),
    )?;
    let option = |name: &str, value: &str| format!("-o{name}={value}");
    let path = |file: &str| apt.join(file).display().to_string();
    for operation in [&["update"][..], &["download", "cloud-init"]] {
        run(Command::new("apt-get")
            .arg("-q")
            .arg(option("Dir::Etc::sourcelist", &path("sources.list")))
            .arg(option("Dir::Etc::sourceparts", "/dev/null"))
            .arg(option("Dir::State::Lists", &path("lists")))
            .arg(option("Dir::Cache", &path("cache")))
            .arg(option("Acquire::Languages", "none"))
            .arg(option(
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
                "false",
            ))
            .arg(option("APT::Sandbox::User", "root"))
            .args(operation)
            .current_dir(apt))?;
    }
    Ok(())
}
