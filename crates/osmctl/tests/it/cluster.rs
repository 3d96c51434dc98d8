//! Commands that read a cluster, where there is none. The tests of the whole system run them with clusters.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{err, out};

/// A token in a kubeconfig that can't be read.
const TOKEN: &str = "t0ken-of-the-operator";

const COMMANDS: [&[&str]; 5] = [
    &["status"],
    &["status", "pool"],
    &["show", "pool"],
    &["diff", "--cluster"],
    &["migrate", "check"],
];

fn osmctl(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_osmctl"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .output()
        .unwrap()
}

/// The exit code of a cluster that can't be read. Where 1 is a result, it is 2.
fn failure(command: &[&str]) -> i32 {
    if matches!(command[0], "status" | "diff") {
        2
    } else {
        1
    }
}

#[test]
fn every_command_says_what_to_do_without_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let broken = kubeconfig("broken", &format!("users:\n- name: [{TOKEN}\n"));
    let no_context = kubeconfig("no-context", "apiVersion: v1\nkind: Config\n");
    let closed = kubeconfig(
        "closed",
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n",
    );
    let cases: [(&[&str], &str); 6] = [
        (
            &[],
            "there is no kubeconfig; set --kubeconfig or the variable KUBECONFIG",
        ),
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
    for command in COMMANDS {
        for (flags, expected) in &cases {
            let output = osmctl(home.path(), &[command, flags].concat());
            assert_eq!(
                output.status.code(),
                Some(failure(command)),
                "{command:?} {}",
                err(&output)
            );
            assert!(err(&output).contains(expected), "{command:?}: {}", err(&output));
            assert!(
                !err(&output).contains(TOKEN) && out(&output).is_empty(),
                "{}",
                err(&output)
            );
        }
    }
}

#[test]
fn a_home_cluster_that_cannot_be_selected_is_named_with_its_flags() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: t}}]\n";
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let empty = home.path().join("empty");
    fs::write(&empty, "apiVersion: v1\nkind: Config\n").unwrap();
    let empty = empty.display().to_string();
    for (flags, expected) in [
        (
            ["--home-kubeconfig", "/nowhere"],
            "cannot read /nowhere: No such file or directory (os error 2); check --home-kubeconfig",
        ),
        (
            ["--home-kubeconfig", &empty],
            "has no current context; set --home-context",
        ),
        // The file is that of --kubeconfig.
        (
            ["--home-context", "d"],
            "has no context d; `kubectl config get-contexts` lists them, or name another file with --home-kubeconfig",
        ),
    ] {
        for command in COMMANDS.iter().filter(|command| command[0] != "migrate") {
            let all = [
                command,
                &["--kubeconfig", &file, "--home-namespace", "a"][..],
                &flags,
            ];
            let output = osmctl(home.path(), &all.concat());
            assert_eq!(output.status.code(), Some(failure(command)), "{command:?}");
            assert!(err(&output).contains(expected), "{command:?}: {}", err(&output));
        }
    }
    let migrate = [
        "migrate",
        "check",
        "--kubeconfig",
        &file,
        "--home-context",
        "c",
        "--home-namespace",
        "a",
    ];
    let output = osmctl(home.path(), &migrate);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("supports no home cluster"),
        "{}",
        err(&output)
    );
}
