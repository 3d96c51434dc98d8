//! The demo's program, and what it says about mistakes.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn demo() -> Command {
    Command::new(env!("CARGO_BIN_EXE_demo"))
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    text.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_port_in_use_is_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = complaint(&demo().args(["--once", "--port", &port]).output().unwrap());
    assert!(
        said.starts_with(&format!("demo: port {port} of 127.0.0.1 is in use; ")),
        "{said}"
    );
}

#[test]
fn a_manifest_that_is_none_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.yaml");
    fs::write(&file, "apiVersion: v1\nkind: ConfigMap\n").unwrap();
    let mut command = demo();
    command.arg("--once").arg("--machine-deployment").arg(&file);
    let said = complaint(&command.output().unwrap());
    let expected = format!(
        "demo: {}, line 1: kind is not MachineDeployment; expected",
        file.display()
    );
    assert!(said.starts_with(&expected), "{said}");
}

/// There is no home directory either.
#[test]
fn ctrl_c_while_it_starts_leaves_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let mut child = demo()
        .env_remove("HOME")
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("starting csr-approver") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    assert_ne!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    assert!(child.wait().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains("stopping everything and deleting its files"),
        "{rest}"
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "files are left");
}
