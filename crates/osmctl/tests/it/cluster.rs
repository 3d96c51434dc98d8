//! Commands that read a cluster, where there is none, or a fake one. The tests of the whole system run them
//! with clusters.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};

use super::{err, out, says};

/// A token in a kubeconfig that can't be read.
const TOKEN: &str = "t0ken-of-the-operator";

/// Commands, and their exit code if the cluster can't be read. Where 1 is a result, it is 2.
const COMMANDS: [(&[&str], i32); 6] = [
    (&["status"], 2),
    (&["status", "pool"], 2),
    (&["show", "pool"], 1),
    (&["diff", "--cluster"], 2),
    (&["migrate", "check"], 1),
    (&["fleet", "status"], 1),
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

/// Answers of an API server, by the end of the path of a request. It does not have anything else.
type Answers = Vec<(&'static str, u16, Value)>;

/// Starts an API server for one test. Returns its URL, and the paths that it is asked for.
fn serve(answers: Answers) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, paths) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = asked.send(answer(&stream.unwrap(), &answers));
        }
    });
    (format!("http://{address}"), paths)
}

/// Answers one request, and returns its path.
fn answer(mut stream: &TcpStream, answers: &Answers) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let request = lines.next().unwrap_or_default();
    // The client sends no body, and may close a connection whose headers nobody reads.
    let _headers = lines.take_while(|line| !line.is_empty()).count();
    let path = request.split([' ', '?']).nth(1).unwrap_or_default();
    let known = answers.iter().find(|(end, ..)| path.ends_with(end));
    let absent =
        json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
    let (code, body) = known.map_or((404, &absent), |(_, code, body)| (*code, body));
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
    path.to_owned()
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

/// A cluster of the upstream OSM that OSM has taken over, but for the pool `other` if it is not published.
fn taken_over(is_published: bool) -> Answers {
    let pool = |name: &str| {
        json!({"kind": "MachineDeployment", "apiVersion": "cluster.k8s.io/v1alpha1",
        "metadata": {"name": name, "namespace": "kube-system", "uid": name}, "spec": {}})
    };
    let config = |name: &str, is_published: bool| {
        let published = json!({"digest": "d", "revision": "1", "bootstrapSecret": "b", "provisioningSecret": "p",
            "credentialExpirationTime": "2026-03-01T00:00:00Z"});
        json!({"kind": "OperatingSystemConfig", "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
            "metadata": {"name": format!("{name}-kube-system-config"), "namespace": "kube-system"},
            "spec": {"poolRef": {"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                "namespace": "kube-system", "name": name, "uid": name}},
            "status": {"published": is_published.then_some(published)}})
    };
    let account = "cloud-init-getter";
    let token = json!({"metadata": {"name": "cloud-init-getter-token", "namespace": "cloud-init-settings",
        "annotations": {"kubernetes.io/service-account.name": account}}});
    vec![
        ("/machinedeployments", 200, list(&["workers", "other"].map(pool))),
        (
            "/operatingsystemconfigs",
            200,
            list(&[config("workers", true), config("other", is_published)]),
        ),
        ("/namespaces/cloud-init-settings/secrets", 200, list(&[token])),
        (
            "/namespaces/cloud-init-settings/serviceaccounts/cloud-init-getter",
            200,
            json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": account}}),
        ),
    ]
}

/// Runs osmctl with a cluster that answers so. Also returns the paths that it has asked for.
fn with_cluster(answers: Answers, arguments: &[&str]) -> (Output, Vec<String>) {
    let home = tempfile::tempdir().unwrap();
    let (url, paths) = serve(answers);
    let kubeconfig = CLOSED.replace("https://127.0.0.1:1", &url);
    let kubeconfig = written(home.path(), "kubeconfig", &kubeconfig);
    let output = osmctl(home.path(), &[arguments, &["--kubeconfig", &kubeconfig]].concat());
    (output, paths.try_iter().collect())
}

/// What `osmctl migrate check` prints.
fn check(answers: Answers) -> String {
    out(&with_cluster(answers, &["migrate", "check"]).0).to_owned()
}

const DELETE: &str = "kubectl delete secret/cloud-init-getter-token serviceaccount/cloud-init-getter";

#[test]
fn migrate_check_reports_whether_the_non_expiring_token_is_still_needed() {
    let text = check(taken_over(false));
    let needed = "Secret cloud-init-settings/cloud-init-getter-token contains a non-expiring token of ServiceAccount cloud-init-getter; \
                  do not delete it yet: machines of OperatingSystemConfigs that OSM has not published may still need it: other-kube-system-config";
    assert!(text.contains(needed) && !text.contains(DELETE), "{text}");

    let text = check(taken_over(true));
    assert!(
        text.contains("already migrated") && text.contains(DELETE),
        "{text}"
    );

    // While the upstream OSM runs, it writes the token into new user data.
    let mut before = taken_over(true);
    let deployment = json!({"metadata": {"name": "operating-system-manager", "namespace": "kube-system"}, "spec": {"replicas": 1}});
    before.push(("/deployments", 200, list(&[deployment])));
    let text = check(before);
    assert!(
        text.contains("do not delete it yet: the upstream OSM runs") && !text.contains(DELETE),
        "{text}"
    );

    // In a namespace with nothing of either OSM, nothing is known about the machines.
    let mut elsewhere = taken_over(true);
    elsewhere.retain(|(end, ..)| *end != "/operatingsystemconfigs");
    let text = check(elsewhere);
    assert!(
        text.contains("has no Deployment of the upstream OSM") && !text.contains("cloud-init-getter"),
        "{text}"
    );
}

#[test]
fn without_the_permission_to_list_secrets_migrate_check_reports_that_and_goes_on() {
    let forbidden =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "", "code": 403});
    let mut answers = taken_over(true);
    answers.insert(0, ("/secrets", 403, forbidden));
    let text = check(answers);
    let unknown = "it is unknown whether non-expiring tokens of the upstream OSM are left: cannot list secrets in namespace \
                   cloud-init-settings: forbidden;";
    assert!(
        text.contains("already migrated") && text.contains(unknown),
        "{text}"
    );
}

#[test]
fn status_reports_the_account_of_the_upstream_osm_and_reads_no_secret() {
    let hint = "ServiceAccount cloud-init-settings/cloud-init-getter of the upstream OSM still exists; `osmctl migrate check`";
    let mut answers = taken_over(true);
    let (output, asked) = with_cluster(answers.clone(), &["status"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains(hint), "{}", out(&output));
    assert!(!asked.iter().any(|path| path.contains("secrets")), "{asked:?}");

    answers.retain(|(end, ..)| !end.contains("/serviceaccounts/"));
    let (output, _) = with_cluster(answers, &["status"]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(!out(&output).contains("cloud-init-getter"), "{}", out(&output));
}

/// An API server that does not serve KKP's kind answers with 404, too, and names no Cluster.
#[test]
fn a_worker_cluster_stays_unless_its_very_cluster_is_gone() {
    let cluster = json!({"kind": "WorkerCluster", "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "spec": {},
        "metadata": {"name": "worker", "namespace": "cluster-x7k2", "labels": {"operatingsystemmanager.k8c.io/kkp-cluster": "x7k2"}}});
    let answers = vec![
        ("/clusters", 200, list(&[])),
        ("/workerclusters", 200, list(&[cluster])),
    ];
    let (output, asked) = with_cluster(answers, &["fleet", "sync-kkp"]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    says(
        &output,
        "Cluster x7k2: cannot get clusters.kubermatic.k8c.io x7k2",
    );
    assert!(asked.iter().all(|path| !path.ends_with("/worker")), "{asked:?}");
}
