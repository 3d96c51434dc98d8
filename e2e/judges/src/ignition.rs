//! Judges Ignition configs by Ignition's own parsers, and applies them with Ignition itself.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::complaint::{Complaints, Finding, judge_once};
use crate::machine_config::{self, Answer, MachineConfig};
use crate::packages;
use crate::program::{go_program, run};

/// As Debian installs it: never to be run without `--root`.
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// The user and group `core`, as on Flatcar.
const CORE: u32 = 500;

/// Judges Ignition configs (name, text) by the parser of Ignition 2.24 for spec 3.3 and by Debian's
/// `ignition-validate` 2.14: warnings are complaints, and so are a file that Ignition would not write twice
/// or would fetch from elsewhere.
///
/// # Errors
/// What is wrong with them.
pub fn ignition_configs(documents: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("Ignition config", documents, |texts| {
        packages::ensure(&["ignition"])?;
        let answers = machine_config::answers(parser()?, texts)?;
        texts
            .iter()
            .zip(answers)
            .map(|(text, answer)| findings(text, answer))
            .collect()
    })
}

fn findings(text: &str, answer: Answer) -> Result<Vec<Finding>> {
    let mut findings = answer.complaints;
    for file in answer.files {
        if !file.overwrite {
            findings.push(format!(
                "{}: without overwrite it can't be written twice",
                file.path
            ));
        }
    }
    findings.extend(validate(text)?);
    Ok(findings
        .into_iter()
        .map(|message| (String::new(), message))
        .collect())
}

/// What `ignition-validate` says.
fn validate(text: &str) -> Result<Option<String>> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, text)?;
    let output = Command::new("ignition-validate")
        .arg(file.path())
        .output()
        .context("ignition-validate")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    Ok(match (output.status.success(), said.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("ignition-validate: {}", output.status)),
        (_, false) => Some(said),
    })
}

fn parser() -> Result<Command> {
    Ok(Command::new(go_program("ignition", "go.mod")?))
}

/// What machines make of Ignition configs (name, text), in order, as Ignition's own parser reads them.
///
/// # Errors
/// What it can't take; here, warnings are none.
pub fn ignition_read(documents: &[(&str, &str)]) -> Result<Vec<Result<MachineConfig, Complaints>>> {
    machine_config::read(parser()?, documents)
}

/// Applies an Ignition config to the folder `root`, as a machine's first boot would: Ignition 2.14 writes
/// files, units and users (`core` is there already), then systemd's presets enable units. May be repeated.
/// Only root can do this, as files get their owners.
///
/// # Errors
/// What Ignition or `systemctl` say when they fail.
pub fn ignition_apply(config: &str, root: &Path) -> Result<()> {
    packages::ensure(&["ignition", "passwd", "systemd"])?;
    prepare(root)?;
    let work = tempfile::tempdir()?;
    let path = |name: &str| work.path().join(name);
    fs::write(path("config.ign"), config)?;
    // It wants a policy to label by, which is not what is tested here.
    fs::create_dir(path("bin"))?;
    write(&path("bin/setfiles"), "#!/bin/sh\ncat >/dev/null\n", 0o755)?;
    for stage in ["fetch", "files"] {
        run(Command::new(IGNITION)
            .args(["--platform=file", "--log-to-stdout", "--stage", stage, "--root"])
            .arg(root)
            .arg("--config-cache")
            .arg(path("cache"))
            .arg("--state-file")
            .arg(path("state"))
            .arg("--neednet")
            .arg(path("neednet"))
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", path("bin").display()),
            )
            .env("IGNITION_CONFIG_FILE", path("config.ign")))
        .with_context(|| format!("Ignition's stage {stage}"))?;
    }
    run(Command::new("systemctl")
        .arg(format!("--root={}", root.display()))
        .arg("preset-all"))
}

/// What Ignition finds on a machine.
fn prepare(root: &Path) -> Result<()> {
    if root.join("etc/passwd").exists() {
        return Ok(());
    }
    for folder in ["etc/selinux", "home/core", "root", "usr/lib/systemd/system"] {
        fs::create_dir_all(root.join(folder))?;
    }
    // It writes keys as the user that they are for.
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    chown(root.join("home/core"), Some(CORE), Some(CORE))
        .context("only root can write the files of a machine: run this test as root")?;
    let files = [
        (
            "passwd",
            format!("root:x:0:0:root:/root:/bin/sh\ncore:x:{CORE}:{CORE}::/home/core:/bin/sh\n"),
            0o644,
        ),
        ("group", format!("root:x:0:\ncore:x:{CORE}:\n"), 0o644),
        ("shadow", "root:*:1::::::\ncore:*:1::::::\n".to_owned(), 0o600),
        ("gshadow", "root:*::\ncore:!::\n".to_owned(), 0o600),
        (
            "selinux/config",
            "SELINUX=disabled\nSELINUXTYPE=targeted\n".to_owned(),
            0o644,
        ),
    ];
    for (name, text, mode) in files {
        write(&root.join("etc").join(name), &text, mode)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"ignition":{"version":"3.3.0"},
      "passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA a"]}]},
      "storage":{"files":[{"path":"/opt/a","mode":493,"overwrite":true,"contents":{"source":"data:,a%20b"}}]},
      "systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n"}]}}"#;

    #[test]
    fn what_ignition_refuses_or_warns_of_is_a_complaint() {
        let key = "\"ssh-ed25519 AAAA a\"";
        let cases = [
            (
                "spec 2",
                GOOD.replace("3.3.0", "2.3.0"),
                "unsupported config version",
            ),
            (
                "unknown key",
                GOOD.replace("\"mode\"", "\"modes\""),
                "Unused key modes",
            ),
            (
                "key twice",
                GOOD.replace(key, &format!("{key},{key}")),
                "duplicate",
            ),
            (
                "no section",
                GOOD.replace("[Install]", "[Instal]"),
                "has no install section",
            ),
            ("special bits", GOOD.replace("493", "2541"), "setuid"),
            (
                "elsewhere",
                GOOD.replace("data:,a%20b", "https://a.example/b"),
                "fetched from elsewhere",
            ),
            (
                "once",
                GOOD.replace("\"overwrite\":true,", ""),
                "can't be written twice",
            ),
            ("unit", GOOD.replace("ExecStart=/a", "ExecStart"), "unit content"),
            (
                "JSON",
                GOOD.replace("{\"users\"", "\"users\""),
                "invalid character",
            ),
        ];
        for (name, text, expected) in cases {
            let complaints = ignition_configs(&[(name, &text)]).expect_err(name).to_string();
            assert!(complaints.contains(expected), "{name}: {complaints}");
        }
    }
}
