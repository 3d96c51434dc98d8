//! Judges, reads and applies cloud-configs for coreos-cloudinit, the cloud-init of Flatcar, by its own code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::complaint::{Complaints, judge_once};
use crate::machine_config::{self, Answer, MachineConfig, answers};
use crate::program::go_program;

/// Judges cloud-configs (name, text) by coreos-cloudinit 1.14.0's own validation, whose warnings are
/// complaints. So are a path that stands twice, permissions that it would not set, and a unit that is enabled
/// in vain.
///
/// # Errors
/// What is wrong with them.
pub fn coreos_cloud_configs(documents: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("cloud-config for coreos-cloudinit", documents, |texts| {
        let answers = answers(Command::new(judge()?), texts)?;
        let findings = |answer: Answer| {
            answer
                .complaints
                .into_iter()
                .map(|complaint| (String::new(), complaint))
                .collect()
        };
        Ok(answers.into_iter().map(findings).collect())
    })
}

/// What machines make of cloud-configs (name, text), in order, as coreos-cloudinit reads them. Words that it
/// replaces come out as `replaced`.
///
/// # Errors
/// What it can't take, or complains of.
pub fn coreos_read(documents: &[(&str, &str)]) -> Result<Vec<Result<MachineConfig, Complaints>>> {
    machine_config::read(Command::new(judge()?), documents)
}

/// Applies a cloud-config without users to the folder `root`, as at boot. What it would have systemd and
/// programs of the machine do is the answer, a line each: `systemd start a.service`, `hostnamectl
/// set-hostname a`, `update-ssh-keys -u core -a coreos-cloudinit` with a line for each key.
///
/// # Errors
/// What it says when it fails.
pub fn coreos_apply(document: &str, root: &Path) -> Result<Vec<String>> {
    let work = tempfile::tempdir()?;
    let calls = work.path().join("calls");
    fs::write(&calls, "")?;
    for (name, script) in [
        ("hostnamectl", "echo hostnamectl \"$@\" >>\"$CALLS\""),
        (
            "update-ssh-keys",
            "{ echo update-ssh-keys \"$@\"; /bin/cat; } >>\"$CALLS\"",
        ),
    ] {
        let path = work.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new(judge()?);
    command
        .arg(root)
        .env_clear()
        .env("PATH", work.path())
        .env("CALLS", &calls);
    let answer = answers(command, &[document])?.pop().context("no answer")?;
    ensure!(answer.complaints.is_empty(), "{}", answer.complaints.join("\n"));
    Ok(fs::read_to_string(&calls)?.lines().map(str::to_owned).collect())
}

fn judge() -> Result<std::path::PathBuf> {
    go_program("coreos-cloudinit", "go.mod")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r##"#cloud-config
hostname: a
ssh_authorized_keys: ["ssh-ed25519 AAAA a"]
write_files:
- {path: /opt/a, permissions: "0755", encoding: gzip+base64, content: "H4sIAAAAAAACA0tUSAIA01xsgAMAAAA="}
- {path: /opt/b, permissions: "0644", content: "\x24private_ipv4"}
coreos:
  units:
  - name: a.service
    enable: true
    command: start
    content: "[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n"
  - {name: b.service, mask: true, command: stop}
  - {name: c.service, drop-ins: [{name: a.conf, content: "[Service]\n"}]}
  - {name: d.network, content: "[Match]\n"}
"##;

    #[test]
    fn what_a_machine_would_refuse_or_lose_is_a_complaint() {
        let cases = [
            ("header", GOOD.replace("#cloud-config", "#cloud"), "must be"),
            (
                "unknown key",
                GOOD.replace("hostname:", "runcmd: [a]\nhostname:"),
                "unrecognized key \"runcmd\"",
            ),
            (
                "type",
                GOOD.replace("hostname: a", "hostname: [a]"),
                "incorrect type for \"hostname\"",
            ),
            (
                "strategy",
                format!("{GOOD}  update: {{reboot-strategy: maybe}}\n"),
                "invalid value maybe",
            ),
            (
                "encoding",
                GOOD.replace("H4sI", "AAAA"),
                "content cannot be decoded",
            ),
            ("read-only", GOOD.replace("/opt/a", "/usr/a"), "read-only"),
            (
                "special bits",
                GOOD.replace("\"0755\"", "\"4755\""),
                "of at most 0777",
            ),
            ("path twice", GOOD.replace("/opt/b", "/opt/a"), "written twice"),
            (
                "no section",
                GOOD.replace("[Install]", "[Instal]"),
                "no section [Install]",
            ),
            (
                "word",
                GOOD.replace("command: stop", "command: halt"),
                "invalid value halt",
            ),
            ("YAML", GOOD.replace("write_files:", "write_files: ["), "line"),
        ];
        for (name, text, expected) in cases {
            let complaints = coreos_cloud_configs(&[(name, &text)])
                .expect_err(name)
                .to_string();
            assert!(complaints.contains(expected), "{name}: {complaints}");
        }
    }
}
