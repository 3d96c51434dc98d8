//! `osmctl`, run as people run it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod cluster;
mod command_line;
mod cookbook;
mod documents;
mod input;
mod lint;
mod mirror_settings;
mod page;
mod render;
mod template_pages;
mod trees;
mod upstream;
mod urls;

use std::io::Write;
use std::process::{Command, Output, Stdio};

const MACHINE_DEPLOYMENT: &str = r#"
apiVersion: cluster.k8s.io/v1alpha1
kind: MachineDeployment
metadata: {name: workers, namespace: kube-system}
spec:
  replicas: 3
  template:
    spec:
      versions: {kubelet: 1.34.2}
      providerSpec:
        value:
          cloudProvider: openstack
          cloudProviderSpec: {password: hunter2}
          operatingSystem: ubuntu
          operatingSystemSpec: {distUpgradeOnBoot: false}
          sshPublicKeys: ["ssh-ed25519 AAAA me"]
"#;

const PROFILE: &str = r#"
---
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: osp-ubuntu}
spec:
  osName: ubuntu
  osVersion: "24.04"
  version: v1.0.0
  templateEngine: Handlebars
  supportedCloudProviders: [{name: openstack}]
  bootstrapConfig:
    files:
      - path: /token
        permissions: 600
        content: {inline: {data: "{{late \"api/token\" as=\"raw\"}} for {{cluster.apiServer}}"}}
  provisioningConfig: {modules: {runcmd: ["echo {{shell kubelet.version}}"]}}
"#;

/// A MachineDeployment that names its profile.
fn naming_profile(name: &str) -> String {
    let annotation = format!("metadata: {{annotations: {{k8c.io/operating-system-profile: {name}}}, ");
    MACHINE_DEPLOYMENT.replace("metadata: {", &annotation)
}

fn osmctl(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_osmctl"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command line that is wrong is refused before anything is read.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Runs osmctl with the words of a line.
fn run(line: &str, input: &str) -> Output {
    osmctl(&line.split_whitespace().collect::<Vec<_>>(), input)
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}{}", out(output), err(output));
}

/// Standard output contains a text.
#[track_caller]
fn prints(output: &Output, text: &str) {
    assert!(
        out(output).contains(text),
        "{text}: {}{}",
        out(output),
        err(output)
    );
}

/// Standard error contains a text.
#[track_caller]
fn says(output: &Output, text: &str) {
    assert!(err(output).contains(text), "{text}: {}", err(output));
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}
