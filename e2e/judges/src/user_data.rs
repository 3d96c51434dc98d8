//! Judges whole cloud-config documents and Ignition configs, with everything that they put on a node.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::complaint::Complaints;
use crate::kubelet::KUBELET_MINORS;
use crate::systemd::{is_unit, judge_units};
use crate::{
    cloud_config, containerd_configs, coreos_cloud_configs, coreos_read, hosts_toml, ignition_configs,
    ignition_read, kubelet_configs, python_scripts, shell_scripts,
};

/// Where the kubelet looks for files that are merged into its configuration.
const KUBELET_DROP_INS: &str = "/etc/kubernetes/kubelet.conf.d/";

/// A file that a document writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where.
    pub path: String,
    /// Permission bits, such as `0o755`; cloud-init's default is `0o644`.
    pub mode: u32,
    /// What, decoded.
    pub content: String,
}

/// A document to judge.
#[derive(Debug, Clone, Copy)]
pub struct UserData<'a> {
    /// What complaints call it.
    pub name: &'a str,
    /// The cloud-config, or the Ignition config.
    pub text: &'a str,
    /// The Kubernetes version (`1.36`, `v1.36.3`) whose kubelet reads the configuration in it; `None` is all
    /// that there are judges for.
    pub kubelet: Option<&'a str>,
}

#[derive(Deserialize)]
struct CloudConfig {
    #[serde(default)]
    write_files: Vec<WriteFile>,
    #[serde(default)]
    bootcmd: Vec<Command>,
    #[serde(default)]
    runcmd: Vec<Command>,
}

#[derive(Deserialize)]
struct WriteFile {
    path: String,
    #[serde(default)]
    content: String,
    encoding: Option<String>,
    permissions: Option<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Shell(String),
    Program(Vec<serde_json::Value>),
}

/// The files that a cloud-config writes, decoded, in its order.
///
/// # Errors
/// What can't be read: the document, or a file's content.
pub fn user_data_files(cloud_config: &str) -> Result<Vec<File>, Complaints> {
    files("cloud-config", &parse("cloud-config", cloud_config)?)
}

fn parse(name: &str, text: &str) -> Result<CloudConfig, Complaints> {
    serde_saphyr::from_str(text).map_err(|error| Complaints::one(name, &error.to_string()))
}

fn files(name: &str, document: &CloudConfig) -> Result<Vec<File>, Complaints> {
    let read = |file: &WriteFile| {
        let content = decode(file)
            .map_err(|error| Complaints::one(&inside(name, &file.path), &format!("{error:#}")))?;
        let mode = file
            .permissions
            .as_ref()
            .and_then(|permissions| u32::from_str_radix(permissions.as_str()?, 8).ok());
        Ok(File {
            path: file.path.clone(),
            mode: mode.unwrap_or(0o644),
            content,
        })
    };
    document.write_files.iter().map(read).collect()
}

fn decode(file: &WriteFile) -> Result<String> {
    let encoding = file.encoding.as_deref().unwrap_or("text/plain");
    let mut bytes = file.content.clone().into_bytes();
    if encoding.ends_with("b64") || encoding.ends_with("base64") {
        bytes.retain(|byte| !byte.is_ascii_whitespace());
        bytes = STANDARD.decode(bytes).context("content is not base64")?;
    }
    if encoding.starts_with("gz") {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes.as_slice())
            .read_to_end(&mut plain)
            .context("content is not gzip")?;
        bytes = plain;
    }
    String::from_utf8(bytes).context("content is no text")
}

/// Judges a document and everything in it; see [`judge_user_data_batch`].
///
/// # Errors
/// What is wrong with it.
pub fn judge_user_data(name: &str, text: &str) -> Result<(), Complaints> {
    judge_user_data_batch(&[UserData {
        name,
        text,
        kubelet: None,
    }])
}

/// Judges cloud-config documents and Ignition configs, and everything in them: scripts by their `#!` line,
/// commands, systemd units and drop-ins, containerd's and the kubelet's configuration, and that TOML, YAML
/// and JSON files can be read.
///
/// A matrix of profiles is best given at once: each judge is then started once.
///
/// # Errors
/// What is wrong with them, complaints about a file under `<document>: <path>`.
pub fn judge_user_data_batch(documents: &[UserData<'_>]) -> Result<(), Complaints> {
    let (ignition, others): (Vec<UserData<'_>>, Vec<UserData<'_>>) = documents
        .iter()
        .copied()
        .partition(|document| document.text.starts_with('{'));
    let texts: Vec<(&str, &str)> = others
        .iter()
        .map(|document| (document.name, document.text))
        .collect();
    let mut results = vec![cloud_config(&texts)];
    let mut parts = Parts::default();
    for document in &others {
        match parse(document.name, document.text) {
            Ok(config) => results.push(parts.add(document, &config)),
            Err(complaints) => results.push(Err(complaints)),
        }
    }
    if !ignition.is_empty() {
        results.push(parts.add_ignition(&ignition));
    }
    results.push(parts.judge());
    Complaints::all(results)
}

/// Judges cloud-configs for coreos-cloudinit, and everything in them, as [`judge_user_data_batch`] does
/// others.
///
/// # Errors
/// What is wrong with them, complaints about a file under `<document>: <path>`.
pub fn judge_coreos_user_data_batch(documents: &[UserData<'_>]) -> Result<(), Complaints> {
    let texts: Vec<(&str, &str)> = documents
        .iter()
        .map(|document| (document.name, document.text))
        .collect();
    let mut results = vec![coreos_cloud_configs(&texts)];
    let mut parts = Parts::default();
    let read = coreos_read(&texts)
        .map_err(|error| Complaints::one("cloud-config", &format!("did not judge: {error:#}")))?;
    for (document, config) in documents.iter().zip(read) {
        results.push(config.and_then(|config| parts.add_files(document, config.into_files())));
    }
    results.push(parts.judge());
    Complaints::all(results)
}

type Named = Vec<(String, String)>;

/// What the documents consist of, by judge.
#[derive(Default)]
struct Parts {
    shell: Named,
    python: Named,
    containerd: Named,
    hosts: Named,
    kubelet: BTreeMap<String, Named>,
    /// The units of each document, by the document's name.
    units: Vec<(String, Named)>,
}

impl Parts {
    fn add(&mut self, document: &UserData<'_>, config: &CloudConfig) -> Result<(), Complaints> {
        self.add_commands(&inside(document.name, "bootcmd"), &config.bootcmd);
        self.add_commands(&inside(document.name, "runcmd"), &config.runcmd);
        self.add_files(document, files(document.name, config)?)
    }

    fn add_ignition(&mut self, documents: &[UserData<'_>]) -> Result<(), Complaints> {
        let texts: Vec<(&str, &str)> = documents
            .iter()
            .map(|document| (document.name, document.text))
            .collect();
        let mut results = vec![ignition_configs(&texts)];
        let read = ignition_read(&texts)
            .map_err(|error| Complaints::one("Ignition config", &format!("did not judge: {error:#}")))?;
        for (document, config) in documents.iter().zip(read) {
            results.push(config.and_then(|config| self.add_files(document, config.into_files())));
        }
        Complaints::all(results)
    }

    fn add_files(&mut self, document: &UserData<'_>, files: Vec<File>) -> Result<(), Complaints> {
        let mut units = Named::new();
        let mut results = Vec::new();
        for file in merge_kubelet_drop_ins(files) {
            if is_unit(&file.path) {
                units.push((file.path, file.content));
            } else {
                results.push(self.add_file(document, file));
            }
        }
        self.units.push((document.name.to_owned(), units));
        Complaints::all(results)
    }

    /// Strings are run by one shell, one after another; lists are programs with arguments.
    fn add_commands(&mut self, name: &str, commands: &[Command]) {
        let mut lines = vec!["#!/bin/sh"];
        for command in commands {
            match command {
                Command::Shell(line) => lines.push(line),
                Command::Program(words) => {
                    let words: Vec<&str> = words.iter().filter_map(|word| word.as_str()).collect();
                    if let ["sh" | "/bin/sh", "-c", script, ..] = words.as_slice() {
                        self.shell
                            .push((name.to_owned(), format!("#!/bin/sh\n{script}\n")));
                    }
                }
            }
        }
        if lines.len() > 1 {
            self.shell.push((name.to_owned(), lines.join("\n") + "\n"));
        }
    }

    fn add_file(
        &mut self,
        document: &UserData<'_>,
        File { path, content, mode }: File,
    ) -> Result<(), Complaints> {
        let name = inside(document.name, &path);
        let mut result = Ok(());
        if let Some(interpreter) = content.strip_prefix("#!").and_then(|rest| rest.lines().next()) {
            let words: Vec<&str> = interpreter.split_whitespace().collect();
            match words.as_slice() {
                ["/bin/sh", ..] | ["/usr/bin/env", "sh"] => self.shell.push((name, content)),
                [.., program] if program.contains("python") => self.python.push((name, content)),
                _ => {
                    result = Err(Complaints::one(
                        &name,
                        &format!("nobody judges {interpreter:?}: use /bin/sh"),
                    ));
                }
            }
        } else if content.starts_with("#cloud-config") && !path.starts_with("/etc/cloud/cloud.cfg.d/") {
            result = judge_user_data_batch(&[UserData {
                name: &name,
                text: &content,
                ..*document
            }]);
        } else if path.starts_with("/etc/containerd/") && path.ends_with("/hosts.toml") {
            self.hosts.push((name, content));
        } else if path.starts_with("/etc/containerd/") && path.ends_with(".toml") {
            self.containerd.push((name, content));
        } else if is_kubelet_config(&content) || path.starts_with(KUBELET_DROP_INS) {
            let versions = document
                .kubelet
                .map_or_else(|| KUBELET_MINORS.to_vec(), |version| vec![version]);
            for version in versions {
                self.kubelet
                    .entry(version.to_owned())
                    .or_default()
                    .push((name.clone(), content.clone()));
            }
        } else if let Err(error) = readable(&path, &content) {
            result = Err(Complaints::one(&name, &error));
        } else if mode & 0o111 != 0 {
            result = Err(Complaints::one(&name, "is executable, but has no #! line"));
        }
        result
    }

    fn judge(self) -> Result<(), Complaints> {
        let mut results = vec![
            shell_scripts(&borrow(&self.shell)),
            python_scripts(&borrow(&self.python)),
            containerd_configs(&borrow(&self.containerd)),
        ];
        results.extend(self.hosts.iter().map(|(name, text)| hosts_toml(name, text)));
        results.extend(
            self.kubelet
                .iter()
                .map(|(version, documents)| kubelet_configs(&borrow(documents), version)),
        );
        results.extend(
            self.units
                .iter()
                .map(|(name, units)| judge_units(name, &borrow(units))),
        );
        Complaints::all(results)
    }
}

/// Puts the kubelet's drop-ins behind its configuration, too, so that they are judged merged as well as each
/// alone.
fn merge_kubelet_drop_ins(mut files: Vec<File>) -> Vec<File> {
    let is_drop_in = |path: &str| path.starts_with(KUBELET_DROP_INS) && path.ends_with(".conf");
    let mut drop_ins: Vec<File> = files
        .iter()
        .filter(|file| is_drop_in(&file.path))
        .cloned()
        .collect();
    drop_ins.sort_by(|a, b| a.path.cmp(&b.path));
    let is_base = |file: &&mut File| !is_drop_in(&file.path) && is_kubelet_config(&file.content);
    if let Some(base) = files.iter_mut().find(is_base) {
        for drop_in in drop_ins {
            base.content = format!("{}\n---\n{}", base.content.trim_end(), drop_in.content);
        }
    }
    files
}

fn is_kubelet_config(content: &str) -> bool {
    content
        .lines()
        .any(|line| line.trim_end() == "kind: KubeletConfiguration")
}

/// Files that no other judge reads must at least parse as what their names say.
fn readable(path: &str, content: &str) -> Result<(), String> {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("toml") => content
            .parse::<toml::Table>()
            .map(drop)
            .map_err(|error| error.to_string()),
        Some("yaml" | "yml") => serde_saphyr::from_multiple::<serde_json::Value>(content)
            .map(drop)
            .map_err(|error| error.to_string()),
        Some("json" | "conflist") => serde_json::from_str::<IgnoredAny>(content)
            .map(drop)
            .map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

fn borrow(named: &Named) -> Vec<(&str, &str)> {
    named
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect()
}

fn inside(document: &str, path: &str) -> String {
    format!("{document}: {path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r##"#cloud-config
hostname: node-1
ssh_authorized_keys:
- ssh-ed25519 AAAA user
write_files:
- path: /opt/bin/setup.sh
  permissions: "0755"
  content: |
    #!/bin/sh
    set -eu
    echo "ready"
- path: /opt/bin/apply.py
  permissions: "0755"
  encoding: b64
  content: IyEvdXNyL2Jpbi9weXRob24zCmltcG9ydCBqc29uCnByaW50KGpzb24uZHVtcHMoW10pKQo=
- path: /etc/systemd/system/setup.service
  permissions: "0644"
  content: |
    [Unit]
    Description=Setup
    [Service]
    Type=oneshot
    ExecStart=/opt/bin/setup.sh
    [Install]
    WantedBy=multi-user.target
- path: /etc/containerd/config.toml
  content: |
    version = 3
- path: /etc/containerd/certs.d/docker.io/hosts.toml
  content: |
    server = "https://registry-1.docker.io"
- path: /etc/kubernetes/kubelet.yaml
  permissions: "0600"
  content: |
    apiVersion: kubelet.config.k8s.io/v1beta1
    kind: KubeletConfiguration
    rotateCertificates: true
- path: /etc/kubernetes/kubelet.conf.d/50-pods.conf
  permissions: "0600"
  content: |
    {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 50}
- path: /etc/cni/net.d/10-bridge.conflist
  content: |
    {"cniVersion": "1.0.0"}
runcmd:
- systemctl daemon-reload
- [systemctl, start, --no-block, setup.service]
- [sh, -c, 'exec true']
"##;

    #[test]
    fn every_part_has_its_judge() {
        let gzipped = GOOD.replace("encoding: b64", "encoding: gz+b64");
        let python2 = STANDARD.encode("#!/usr/bin/python3\nprint 1\n");
        let python_content = GOOD.lines().find(|line| line.contains("content: Iy")).unwrap();
        let cases = [
            (
                "top-level key",
                GOOD.replace("write_files:", "write_filez:"),
                "write_filez: cloud-init 22.4 knows no such",
            ),
            (
                "permissions",
                GOOD.replace("\"0600\"", "0600"),
                "are not an octal number in a string",
            ),
            (
                "path twice",
                GOOD.replace("/opt/bin/apply.py", "/opt/bin/setup.sh"),
                "path is written twice",
            ),
            (
                "relative path",
                GOOD.replace("path: /etc/cni", "path: etc/cni"),
                "is not absolute and plain",
            ),
            ("encoding", GOOD.replace("IyEv", "IyE%"), "content is not base64"),
            ("compression", gzipped, "content is not gzip"),
            (
                "header",
                GOOD.replace("#cloud-config", "#cloud"),
                "line 1: is not #cloud-config",
            ),
            ("key twice", format!("{GOOD}hostname: node-2\n"), "duplicate"),
            (
                "deprecated",
                format!("{GOOD}apt_update: true\n"),
                "apt_update: cloud-init 25.1",
            ),
            (
                "shell",
                GOOD.replace("echo \"ready\"", "[[ -n $X ]]"),
                "setup.sh: line 3, column 1: shellcheck SC3010",
            ),
            (
                "interpreter",
                GOOD.replace("#!/bin/sh", "#!/bin/bash"),
                "setup.sh: nobody judges \"/bin/bash\"",
            ),
            (
                "python",
                GOOD.replace(python_content, &format!("  content: {python2}")),
                "apply.py: line 2: Missing",
            ),
            (
                "unit",
                GOOD.replace("Type=", "Typo="),
                "setup.service:4: Unknown key 'Typo'",
            ),
            (
                "containerd",
                GOOD.replace("version = 3", "version = 3\n    stat = 1"),
                "config.toml: unknown key stat",
            ),
            (
                "hosts",
                GOOD.replace("server = \"", "sever = \""),
                "docker.io/hosts.toml: sever: unknown key",
            ),
            (
                "kubelet",
                GOOD.replace("rotateCert", "rotateCret"),
                "kubelet.yaml: unknown field \"rotateCretificates\"",
            ),
            (
                "drop-in",
                GOOD.replace("maxPods", "maxPod"),
                "kubelet.conf.d/50-pods.conf: unknown field \"maxPod\"",
            ),
            (
                "merged",
                GOOD.replace("\"maxPods\": 50", "\"featureGates\": {\"New\": true}"),
                "kubelet.yaml: failed to merge global and in-flight KubeletConfiguration while setting defaults, error: unrecognized feature gate: New",
            ),
            (
                "json",
                GOOD.replace("{\"cniVersion\":", "{cniVersion:"),
                "10-bridge.conflist: key must be a string",
            ),
            (
                "command",
                GOOD.replace("daemon-reload", "$1"),
                "runcmd: line 2, column 11: shellcheck SC2086",
            ),
            (
                "command in a list",
                GOOD.replace("exec true", "echo $1"),
                "runcmd: line 2, column 6: shellcheck SC2086",
            ),
        ];
        let names = cases.each_ref().map(|(name, ..)| *name);
        let batch = cases.each_ref().map(|(name, text, _)| UserData {
            name,
            text,
            kubelet: Some("v1.36.3"),
        });
        let complaints = judge_user_data_batch(&batch).unwrap_err();
        for (name, _, expected) in &cases {
            let of_case: Vec<String> = complaints
                .iter()
                .filter(|complaint| complaint.document.split(": ").next() == Some(name))
                .map(ToString::to_string)
                .collect();
            assert!(
                of_case.iter().any(|line| line.contains(expected)),
                "{name}: {expected} is not in {of_case:#?}"
            );
        }
        assert!(
            complaints
                .iter()
                .all(|complaint| names.iter().any(|name| complaint.document.starts_with(name)))
        );
    }
}
