//! `osmctl support` with an API server that answers what a test wants, also for pods.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{err, out};

const PASSWORD: &str = "hunter2-of-the-site";

/// The status and the body of an answer.
type Answer = (u16, String);

/// A cluster with services in the namespace `osm`.
fn answer(path: &str) -> Answer {
    let list = |item: Value| {
        json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": [item]}).to_string()
    };
    let container = json!({"name": "x", "image": "registry.example/x:1", "ports": [{"name": "http", "containerPort": 9090}]});
    let pod =
        json!({"metadata": {"name": "osm-x-1", "namespace": "osm"}, "spec": {"containers": [container]}});
    let lease = json!({"metadata": {"name": "osm-x-1", "namespace": "osm",
        "labels": {"operatingsystemmanager.k8c.io/standby-of": "secret-syncer"}}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
    match path.split('?').next().unwrap_or_default() {
        "/version" => {
            let fields = [
                "major",
                "minor",
                "gitCommit",
                "gitTreeState",
                "buildDate",
                "goVersion",
                "compiler",
                "platform",
            ];
            let mut version: Value = fields
                .iter()
                .map(|field| ((*field).to_owned(), Value::from("")))
                .collect();
            version["gitVersion"] = "v1.34.2".into();
            (200, version.to_string())
        }
        "/apis/apps/v1/namespaces/osm/deployments" => (
            200,
            list(json!({"metadata": {"name": "osm-x", "namespace": "osm"}})),
        ),
        "/api/v1/namespaces/osm/pods" => (200, list(pod)),
        "/apis/coordination.k8s.io/v1/namespaces/osm/leases" => (200, list(lease)),
        "/api/v1/namespaces/osm/pods/osm-x-1:9090/proxy/readyz" => {
            (503, "waiting for the settings\n".to_owned())
        }
        "/api/v1/namespaces/osm/pods/osm-x-1:9090/proxy/metrics" => {
            (200, format!("osm_replicas 1\nurl http://user:{PASSWORD}@proxy\n"))
        }
        _ => forbidden(path),
    }
}

/// A cluster in which everything is forbidden.
fn forbidden(_: &str) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "no", "code": 403});
    (403, status.to_string())
}

fn serve(stream: TcpStream, answer: fn(&str) -> Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (status, body) = answer(first.split(' ').nth(1).unwrap_or_default());
    let kind = if body.starts_with('{') {
        "application/json"
    } else {
        "text/plain"
    };
    write!(
        reader.get_mut(),
        "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Serves until the test ends.
fn start(answer: fn(&str) -> Answer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that hangs up is no failure of the server.
            _ = stream.and_then(|stream| serve(stream, answer));
        }
    });
    address
}

fn file(archive: &Path, name: &str) -> String {
    let output = Command::new("tar")
        .args([
            "-xzOf",
            &archive.display().to_string(),
            &format!("osm-support/{name}"),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", err(&output));
    out(&output).to_owned()
}

/// Writes a kubeconfig into a folder.
fn kubeconfig(folder: &Path, name: &str, server: SocketAddr) -> PathBuf {
    let path = folder.join(name);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_pods_answer_is_collected_and_what_is_forbidden_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path(), "kubeconfig", start(answer));
    let output = Command::new(env!("CARGO_BIN_EXE_osmctl"))
        .args(["support", "-n", "osm", "--kubeconfig"])
        .arg(&kubeconfig)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    // The name is that of the time.
    let archive = out(&output).split(": ").next().unwrap();
    assert!(
        archive.starts_with("osm-support-20") && archive.ends_with("Z.tar.gz"),
        "{archive}"
    );
    let archive = folder.path().join(archive);

    assert_eq!(file(&archive, "readyz/osm-x-1.txt"), "waiting for the settings\n");
    let metrics = file(&archive, "metrics/osm-x-1.txt");
    assert!(
        metrics.starts_with("osm_replicas 1\n") && !metrics.contains(PASSWORD),
        "{metrics}"
    );
    assert!(file(&archive, "versions.json").contains("v1.34.2"));
    assert!(file(&archive, "services.json").contains("osm-x-1"));
    let left_out = file(&archive, "left-out.txt");
    for part in [
        "Secrets: ",
        "cannot list machinedeployments.cluster.k8s.io in all namespaces: forbidden",
        "cannot list operatingsystemconfigs.operatingsystemmanager.k8c.io in namespace osm: forbidden",
        "cannot list events in namespace osm: forbidden",
    ] {
        assert!(
            left_out.contains(part) && err(&output).contains(part),
            "{part}: {left_out}"
        );
    }
}

#[test]
fn the_services_of_a_home_cluster_are_those_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let user = kubeconfig(folder.path(), "user", start(forbidden));
    let home = kubeconfig(folder.path(), "home", start(answer));
    let archive = folder.path().join("a.tar.gz");
    let output = Command::new(env!("CARGO_BIN_EXE_osmctl"))
        .args(["support", "-n", "kube-system", "--home-namespace", "osm"])
        .args(["--kubeconfig".as_ref(), user.as_os_str()])
        .args(["--home-kubeconfig".as_ref(), home.as_os_str()])
        .args(["-o".as_ref(), archive.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let versions: Value = serde_json::from_str(&file(&archive, "versions.json")).unwrap();
    assert_eq!(versions["apiServers"], json!({"home": "v1.34.2"}));
    let services: Value = serde_json::from_str(&file(&archive, "services.json")).unwrap();
    assert_eq!(services["deployments"][0]["name"], "osm-x");
    assert_eq!(services["pods"][0]["name"], "osm-x-1");
    assert_eq!(
        services["leases"],
        json!([{"name": "osm-x-1", "service": "secret-syncer", "standby": true,
            "renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": null}])
    );
    assert_eq!(file(&archive, "readyz/osm-x-1.txt"), "waiting for the settings\n");
    let left_out = file(&archive, "left-out.txt");
    for part in [
        "cannot list operatingsystemconfigs.operatingsystemmanager.k8c.io in namespace kube-system: forbidden; ask",
        "cannot get configmaps osm-settings in namespace osm of the home cluster: forbidden; check --home-namespace",
        "cannot list events in namespace osm of the home cluster: forbidden; check --home-namespace",
    ] {
        assert!(left_out.contains(part), "{part}: {left_out}");
    }
}
