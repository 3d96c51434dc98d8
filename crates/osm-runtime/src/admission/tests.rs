//! The server as an API server calls it: over TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use osm_api::rbac::Service;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::certificate::Certificate;
use super::server::MAX_BODY_BYTES;
use super::*;
use crate::args::CommonArgs;
use crate::environment::Environment;
use crate::metrics::Metrics;
use crate::process::Process;
use crate::readiness::Readiness;

const PATIENCE: Duration = Duration::from_secs(60);

/// Does with an object what its field `do` says.
struct Obedient {
    /// Whether an object is to wait.
    waits: watch::Sender<bool>,
}

impl Judge for Obedient {
    const DEADLINE: Duration = Duration::from_millis(300);

    async fn judge(&self, request: Request) -> Verdict {
        let object: Value = serde_json::from_str(request.object.get()).unwrap();
        match object["do"].as_str().unwrap_or_default() {
            "deny" => Verdict::denied(format!("{}/{} is wrong", request.namespace, request.name)),
            "warn" => Verdict::warned(format!("a\nb {}", "x".repeat(300))),
            "panic" => panic!("on purpose"),
            "wait" => {
                self.waits.send_replace(true);
                std::future::pending().await
            }
            _ => Verdict::allowed(),
        }
    }
}

struct Server {
    folder: TempDir,
    address: SocketAddr,
    process: Arc<Process>,
    webhook: Option<Webhook>,
    waits: watch::Receiver<bool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.shutdown.cancel();
    }
}

impl Server {
    fn metrics(&self) -> String {
        String::from_utf8(self.process.metrics.encode()).unwrap()
    }
}

/// Starts a server, and returns it with the certificate to trust.
fn start() -> (Server, CertificateDer<'static>) {
    let folder = TempDir::new().unwrap();
    let trusted = new_certificate(folder.path());
    (start_in(folder), trusted)
}

fn start_in(folder: TempDir) -> Server {
    let args = AdmissionArgs {
        admission_listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        admission_certificate: Some(folder.path().to_owned()),
    };
    let common = CommonArgs::default();
    let process = Process::new(Service::OspController, common, Environment::default()).unwrap();
    let (waits, waiting) = watch::channel(false);
    let webhook = spawn(&args, || Obedient { waits }, "the object", &process);
    let webhook = webhook.unwrap().unwrap();
    Server {
        folder,
        address: webhook.address,
        process,
        webhook: Some(webhook),
        waits: waiting,
    }
}

fn new_certificate(folder: &Path) -> CertificateDer<'static> {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("tls.crt"), pair.cert.pem()).unwrap();
    fs::write(folder.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    pair.cert.der().clone()
}

/// Trusts these certificates and no others.
fn client(trusted: &[&CertificateDer<'static>]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add((*certificate).clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connect(address: SocketAddr, client: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    client
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

/// Sends a request on a connection of its own; returns status and body.
async fn send(
    address: SocketAddr,
    client: &TlsConnector,
    head: &str,
    body: &[u8],
) -> std::io::Result<(u16, String)> {
    let mut stream = connect(address, client).await?;
    let length = body.len();
    let head = format!(
        "{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    // A server that refuses a body need not read it.
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
    let _ = stream.flush().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.unwrap_or_default(), body.to_owned()))
}

/// Waits until the server has a certificate that `client` trusts.
async fn until_trusted(address: SocketAddr, client: &TlsConnector) {
    tokio::time::timeout(PATIENCE, async {
        while send(address, client, "POST /validate", b"").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
}

fn review(operation: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": {"group": "g", "version": "v", "kind": "K"}, "operation": operation,
            "namespace": "n", "name": "a", "userInfo": {}, "object": object, "oldObject": null, "dryRun": false,
        },
    })
}

async fn post(address: SocketAddr, client: &TlsConnector, body: &Value) -> (u16, Value) {
    let (status, body) = send(address, client, "POST /validate", body.to_string().as_bytes())
        .await
        .unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

#[tokio::test]
async fn objects_are_judged_and_what_fails_is_admitted_with_a_warning() {
    let (server, trusted) = start();
    let client = client(&[&trusted]);
    until_trusted(server.address, &client).await;
    let response = async |operation: &str, object: Value| {
        let (status, answer) = post(server.address, &client, &review(operation, &object)).await;
        assert_eq!(
            (status, &answer["apiVersion"]),
            (200, &json!("admission.k8s.io/v1"))
        );
        assert_eq!(answer["response"]["uid"], "u");
        answer["response"].clone()
    };
    let allowed = response("CREATE", json!({})).await;
    assert_eq!(
        (&allowed["allowed"], &allowed["warnings"]),
        (&json!(true), &json!([]))
    );
    let denied = response("UPDATE", json!({"do": "deny"})).await;
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["status"]["message"], "n/a is wrong");
    assert_eq!(denied["status"]["code"], 422);
    let warned = response("CREATE", json!({"do": "warn"})).await;
    let warning = warned["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("a b ") && warning.ends_with('…'), "{warning}");
    assert!(warning.len() <= 256, "{warning}");
    for (what, why) in [("panic", "failed"), ("wait", "took too long")] {
        let admitted = response("CREATE", json!({"do": what})).await;
        assert_eq!(admitted["allowed"], true);
        let warning = admitted["warnings"][0].as_str().unwrap();
        assert!(warning.contains(why), "{warning}");
    }
    for (operation, object) in [
        ("DELETE", Value::Null),
        ("DELETE", json!({"do": "deny"})),
        (
            "UPDATE",
            json!({"do": "deny", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ),
        ("CONNECT", json!({"do": "deny"})),
    ] {
        assert_eq!(response(operation, object).await["allowed"], true, "{operation}");
    }
    let text = server.metrics();
    for line in [
        r#"osm_admission_reviews_total{result="allowed"} 6"#,
        r#"osm_admission_reviews_total{result="denied"} 1"#,
        r#"osm_admission_reviews_total{result="unchecked"} 2"#,
        "osm_admission_duration_seconds_count 10",
        // rcgen's certificates end in the year 4096.
        "osm_admission_certificate_expiry_timestamp_seconds 67090118400",
    ] {
        assert!(
            text.lines().any(|other| other == line),
            "{line} missing in\n{text}"
        );
    }
}

#[tokio::test]
async fn garbage_and_other_versions_are_no_verdict() {
    let (server, trusted) = start();
    let client = client(&[&trusted]);
    until_trusted(server.address, &client).await;
    let mut old = review("CREATE", &json!({}));
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let (status, answer) = post(server.address, &client, &old).await;
    assert!(
        status == 400
            && answer
                .to_string()
                .contains("not an AdmissionReview of admission.k8s.io/v1"),
        "{status} {answer}"
    );

    let deep = "[".repeat(1_000_000);
    let too_large = "x".repeat(MAX_BODY_BYTES + 1);
    let three_megabytes = "x".repeat(3 * 1024 * 1024);
    let no_request = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string();
    for (head, body, expected) in [
        ("POST /validate", "", 400),
        ("POST /validate", "{}", 400),
        ("POST /validate", "null", 400),
        ("POST /validate", "\u{0}\u{1}", 400),
        ("POST /validate", &no_request, 400),
        ("POST /validate", &deep, 400),
        ("POST /validate", &three_megabytes, 400),
        ("POST /validate", &too_large, 413),
        ("POST /other", "", 404),
        ("GET /validate", "", 405),
    ] {
        let (status, _) = send(server.address, &client, head, body.as_bytes())
            .await
            .unwrap();
        assert_eq!(status, expected, "{head} {}", body.len());
    }
    let (status, _) = post(server.address, &client, &review("CREATE", &json!({}))).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn handshakes_and_bodies_that_do_not_arrive_end() {
    let (server, trusted) = start();
    let client = client(&[&trusted]);
    until_trusted(server.address, &client).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut half = connect(server.address, &client).await.unwrap();
    half.write_all(b"POST /validate HTTP/1.1\r\nHo").await.unwrap();
    let head =
        format!("POST /validate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_BODY_BYTES}\r\n\r\n");
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = connect(server.address, &client).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    // A handshake may take one second, and a body five.
    let end = tokio::time::timeout(Duration::from_secs(2), silent.read(&mut [0])).await;
    assert_eq!(end.unwrap().unwrap_or_default(), 0);
    slow.push(half);
    for stream in &mut slow {
        let end = tokio::time::timeout(PATIENCE, stream.read(&mut [0])).await;
        assert_eq!(end.unwrap().unwrap_or_default(), 0);
    }
    let (status, _) = post(server.address, &client, &review("CREATE", &json!({}))).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_certificate_that_appears_or_changes_is_used_without_a_restart() {
    let server = start_in(TempDir::new().unwrap());
    let folder = server.folder.path();
    let expiry = || {
        let text = server.metrics();
        let line = text
            .lines()
            .find(|line| line.starts_with("osm_admission_certificate_expiry"));
        line.unwrap()
            .split(' ')
            .next_back()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    // Without a certificate, the service is not ready.
    let absent = || {
        server.process.readiness.waiting().iter().any(|line| {
            line.starts_with("admission certificate: ") && line.contains("tls.crt: No such file or directory")
        })
    };
    until(absent).await;
    let first = new_certificate(&TempDir::new().unwrap().keep());
    let answer = send(server.address, &client(&[&first]), "POST /validate", b"").await;
    assert!(answer.is_err());
    assert_eq!(expiry(), 0.0);
    fs::write(folder.join("tls.crt"), "garbage").unwrap();
    fs::write(folder.join("tls.key"), "garbage").unwrap();
    let invalid = || {
        let waiting = server.process.readiness.waiting();
        waiting
            .iter()
            .any(|line| line.contains("tls.key has no private key"))
    };
    until(invalid).await;

    let first = new_certificate(folder);
    until_trusted(server.address, &client(&[&first])).await;
    assert_eq!(server.process.readiness.waiting(), [""; 0]);
    assert!(expiry() > 0.0);

    let second = new_certificate(folder);
    until_trusted(server.address, &client(&[&second])).await;
    let answer = send(server.address, &client(&[&first]), "POST /validate", b"").await;
    assert!(answer.is_err());
}

#[test]
fn a_certificate_that_can_not_be_used_leaves_the_one_before_it_in_use() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    new_certificate(folder.path());
    new_certificate(other.path());
    let (metrics, readiness) = (Metrics::of(Service::OspController).unwrap(), Readiness::default());
    let mut certificate = Certificate::new(
        folder.path().to_owned(),
        AdmissionMetrics::new(&metrics).unwrap(),
        readiness.gate("admission certificate"),
    )
    .unwrap();
    certificate.refresh().unwrap();
    let first = certificate.in_use.borrow().clone();
    let refused = |file: &str, wanted: &str, certificate: &mut Certificate| {
        let problem = certificate.refresh().unwrap_err();
        certificate.report(&format!("{problem:#}"));
        assert!(format!("{problem:#}").contains(wanted), "{file}: {problem:#}");
        assert!(
            Arc::ptr_eq(&first, &certificate.in_use.borrow().clone()),
            "{file}"
        );
        assert_eq!(readiness.waiting(), [""; 0]);
    };
    fs::copy(other.path().join("tls.crt"), folder.path().join("tls.crt")).unwrap();
    refused("half", "do not belong together", &mut certificate);
    fs::write(folder.path().join("tls.crt"), "garbage").unwrap();
    refused("garbage", "tls.crt", &mut certificate);
    fs::remove_file(folder.path().join("tls.crt")).unwrap();
    refused("nothing", "No such file", &mut certificate);
    new_certificate(folder.path());
    certificate.refresh().unwrap();
    assert!(!Arc::ptr_eq(&first, &certificate.in_use.borrow().clone()));
}

/// Waits until this is so.
async fn until(is_so: impl Fn() -> bool) {
    tokio::time::timeout(PATIENCE, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_server_ends_after_its_last_review() {
    let (mut server, trusted) = start();
    let (client, address) = (client(&[&trusted]), server.address);
    until_trusted(address, &client).await;
    // It is shut down while an object is judged.
    let busy = async {
        let (_, answer) = post(address, &client, &review("CREATE", &json!({"do": "wait"}))).await;
        let warning = answer["response"]["warnings"][0].as_str().unwrap();
        assert!(warning.contains("took too long"), "{warning}");
    };
    let webhook = server.webhook.take().unwrap();
    let ends = async {
        server.waits.wait_for(|waits| *waits).await.unwrap();
        server.process.shutdown.cancel();
        webhook.ended().await;
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(busy, ends) })
        .await
        .unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[test]
fn both_flags_are_given_or_none() {
    use clap::Parser;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        admission: AdmissionArgs,
    }
    let parse = |line: &str| Args::try_parse_from(line.split(' ')).map(|args| args.admission);
    assert!(parse("x").unwrap().admission_listen.is_none());
    assert!(parse("x --admission-listen 127.0.0.1:1 --admission-certificate /a").is_ok());
    assert!(parse("x --admission-listen 127.0.0.1:1").is_err());
    assert!(parse("x --admission-certificate /a").is_err());
}
