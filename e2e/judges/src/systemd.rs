//! Judges systemd units and drop-ins.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::complaint::{Complaints, Finding, judge_once};
use crate::packages;

const UNITS: &str = "/usr/lib/systemd/system";

/// Judges units and drop-ins (absolute path, text) that live together on one node, by `systemd-analyze
/// verify` of systemd 252 or whatever this machine has: anything that it says is a complaint.
///
/// The node is otherwise empty but for systemd's own targets and what `Exec…=` lines name; the unit of a
/// drop-in is made up if it is not among them. A unit that `Requires=` one that the operating system brings
/// must thus say `Wants=`, or the other be given too.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn judge_units(document: &str, units: &[(&str, &str)]) -> Result<(), Complaints> {
    if units.is_empty() {
        return Ok(());
    }
    // Units are judged together, so they are one text.
    let together = serde_json::json!(units).to_string();
    judge_once("systemd units", &[(document, &together)], |_| {
        Ok(vec![verify(units)?])
    })
}

/// Whether systemd would read this file as a unit or drop-in.
pub(crate) fn is_unit(path: &str) -> bool {
    let path = Path::new(path);
    let parent = path.parent().unwrap_or(path);
    if parent.ends_with("systemd/system") {
        return matches!(
            extension(path),
            "service" | "socket" | "timer" | "path" | "mount" | "target" | "slice" | "swap"
        );
    }
    extension(path) == "conf" && base_unit(path).is_some()
}

/// The unit that a drop-in belongs to.
fn base_unit(drop_in: &Path) -> Option<&str> {
    let directory = drop_in.parent()?;
    if !directory.parent()?.ends_with("systemd/system") {
        return None;
    }
    directory
        .file_name()?
        .to_str()?
        .strip_suffix(".d")
        .filter(|unit| unit.contains('.'))
}

fn verify(units: &[(&str, &str)]) -> Result<Vec<Finding>> {
    packages::ensure(&["systemd"])?;
    let root = tempfile::tempdir()?;
    let root = root.path();
    copy_targets(root)?;
    let mut names = BTreeSet::new();
    for (path, text) in units {
        ensure!(is_unit(path), "{path} is no place for a unit");
        write(root, path, text, 0o644)?;
        for program in programs(text) {
            write(root, &program, "", 0o755)?;
        }
        let path = Path::new(path);
        names.extend(base_unit(path).or_else(|| path.file_name()?.to_str()));
    }
    for unit in &names {
        if !units
            .iter()
            .any(|(path, _)| Path::new(path).file_name().is_some_and(|name| name == *unit))
        {
            write(root, &format!("{UNITS}/{unit}"), made_up(unit), 0o644)?;
            write(root, "/bin/true", "", 0o755)?;
        }
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(format!("--root={}", root.display()))
        .args(names.iter().map(|unit| unit.replace("@.", "@instance.")))
        .env("SYSTEMD_LOG_COLOR", "0")
        .output()
        .context("systemd-analyze can't be run")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).replace(&*root.to_string_lossy(), "");
    let mut findings: Vec<Finding> = said
        .lines()
        .map(|line| (String::new(), line.to_owned()))
        .collect();
    if findings.is_empty() && !output.status.success() {
        findings.push((
            String::new(),
            format!("systemd-analyze verify: {}", output.status),
        ));
    }
    Ok(findings)
}

/// The targets that every systemd has, without what this machine wants of them.
fn copy_targets(root: &Path) -> Result<()> {
    for entry in fs::read_dir(UNITS).with_context(|| format!("{UNITS} can't be read"))? {
        let path = entry?.path();
        if extension(&path) == "target" && path.is_file() {
            write(root, &path.to_string_lossy(), &fs::read_to_string(&path)?, 0o644)?;
        }
    }
    Ok(())
}

fn made_up(unit: &str) -> &'static str {
    if unit.ends_with(".service") {
        "[Unit]\nDescription=Brought by the operating system\n[Service]\nExecStart=/bin/true\n"
    } else {
        "[Unit]\nDescription=Brought by the operating system\n"
    }
}

/// The programs that a unit runs, as paths in the root.
fn programs(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let program = key
            .trim()
            .strip_prefix("Exec")
            .and_then(|_| value.split_whitespace().next())?;
        let program = program
            .trim_start_matches(['@', '-', ':', '+', '!', '|'])
            .trim_matches(['"', '\'']);
        let usable = !program.is_empty() && !program.contains(['$', '%']);
        usable.then(|| {
            if program.starts_with('/') {
                program.to_owned()
            } else {
                format!("/usr/bin/{program}")
            }
        })
    })
}

/// Writes a file into the root, never beside it.
fn write(root: &Path, path: &str, text: &str, mode: u32) -> Result<()> {
    let inside = Path::new(path)
        .strip_prefix("/")
        .with_context(|| format!("{path} is not absolute"))?;
    ensure!(
        inside
            .components()
            .all(|component| matches!(component, Component::Normal(_))),
        "{path} is not plain"
    );
    let target = root.join(inside);
    fs::create_dir_all(target.parent().unwrap_or(root))?;
    fs::write(&target, text).with_context(|| target.display().to_string())?;
    Ok(fs::set_permissions(&target, fs::Permissions::from_mode(mode))?)
}

fn extension(path: &Path) -> &str {
    path.extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default()
}
