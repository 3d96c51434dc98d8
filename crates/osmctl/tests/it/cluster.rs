//! Commands that read a cluster, where there is none. The tests of the whole system run them with clusters.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{err, out, says};

/// A token in a kubeconfig that can't be read.
const TOKEN: &str = "t0ken-of-the-operator";

/// Commands, and their exit code if the cluster can't be read. Where 1 is a result, it is 2.
const COMMANDS: [(&[&str], i32); 5] = [
    (&["status"], 2),
    (&["status", "pool"], 2),
    (&["show", "pool"], 1),
    (&["diff", "--cluster"], 2),
    (&["migrate", "check"], 1),
];

fn osmctl(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_osmctl"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .output()
        .unwrap()
}

/// A kubeconfig for a server that does not answer.
const CLOSED: &str = "apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
";

/// Writes a file, and returns its path.
fn written(home: &Path, name: &str, text: &str) -> String {
    let path = home.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn every_command_says_what_to_do_without_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = |name: &str, text: &str| written(home.path(), name, text);
    let broken = kubeconfig("broken", &format!("users:\n- name: [{TOKEN}\n"));
    let no_context = kubeconfig("no-context", "apiVersion: v1\nkind: Config\n");
    let closed = kubeconfig("closed", CLOSED);
    let cases: [(&[&str], &str); 6] = [
        (&[], "there is no kubeconfig: failed to read kubeconfig from "),
        (&["--kubeconfig", "/nowhere"], "cannot read /nowhere: "),
        (&["--kubeconfig", &broken], "is not valid: line "),
        (
            &["--kubeconfig", &no_context],
            "has no current context; set --context",
        ),
        (
            &["--kubeconfig", &closed, "--context", "d"],
            "has no context d; `kubectl config get-contexts` lists them",
        ),
        (
            &["--kubeconfig", &closed],
            "check the connection and the server in the kubeconfig",
        ),
    ];
    for (command, code) in COMMANDS {
        for (flags, expected) in &cases {
            let output = osmctl(home.path(), &[command, flags].concat());
            assert_eq!(output.status.code(), Some(code), "{command:?} {}", err(&output));
            says(&output, expected);
            assert!(!err(&output).contains(TOKEN), "{}", err(&output));
            assert_eq!(out(&output), "");
        }
    }
}
