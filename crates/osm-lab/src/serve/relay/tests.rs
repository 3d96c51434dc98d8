use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream as BlockingStream};
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http_body_util::{BodyExt, StreamBody};
use hyper::StatusCode;
use hyper::body::{Bytes, Frame};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::serve::{Answer, Asked, Log, answer, curl, serve_http};
use osm_testkit::{check, wait_for};

const DEADLINE: Duration = Duration::from_secs(10);
const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Loopback has many addresses, so that we can be two clients.
const NEIGHBOUR: &str = "127.0.0.2";
const SECRET: &str = "/api/v1/namespaces/cloud-init-settings/secrets/doc";
const TOKEN: &str = "let-me-in";
const DOCUMENT: &str = "#cloud-config\nwrite_files: []\n";

/// An API server of a kind, with one Secret, whose annotation counts how often it was read.
struct Lab {
    relay: Relay,
    ca: PathBuf,
    /// How often the Secret was read.
    reads: Arc<AtomicUsize>,
    _upstream: Server,
    _directory: TempDir,
}

impl Lab {
    fn start() -> Self {
        let ca = Ca::new();
        Self::with(&ca, ca.identities().server)
    }

    fn with(ca: &Ca, upstream_identity: Identity) -> Self {
        let directory = TempDir::new().unwrap();
        let reads = Arc::default();
        let upstream = upstream(&upstream_identity, &reads);
        let relay = Relay::start((US, 0).into(), upstream.address, &ca.identities()).unwrap();
        let path = directory.path().join("ca.crt");
        fs::write(&path, &ca.certificate).unwrap();
        Self {
            relay,
            ca: path,
            reads,
            _upstream: upstream,
            _directory: directory,
        }
    }

    fn start_curl(&self, path: &str, arguments: &[&str]) -> Child {
        let url = format!("{}{path}", self.relay.url());
        let mut all = vec![
            "--cacert",
            self.ca.to_str().unwrap(),
            "--oauth2-bearer",
            TOKEN,
            url.as_str(),
        ];
        all.extend(arguments);
        curl::start(&all)
    }

    /// Exit code and body.
    fn curl(&self, path: &str, arguments: &[&str]) -> (i32, Vec<u8>) {
        let output = self.start_curl(path, arguments).wait_with_output().unwrap();
        (output.status.code().unwrap(), output.stdout)
    }

    fn secret(&self, arguments: &[&str]) -> Value {
        let (code, body) = self.curl(SECRET, arguments);
        assert_eq!(code, 0);
        serde_json::from_slice(&body).unwrap()
    }
}

async fn wait_for_connections(relay: &Relay, mode: Mode, count: usize) {
    let there = async || {
        check(
            relay
                .connections()
                .iter()
                .filter(|connection| connection.mode == mode)
                .count()
                == count,
        )
    };
    wait_for("the connection", DEADLINE, there).await.unwrap();
}

struct Ca {
    certificate: String,
    key: String,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self {
            certificate: ca.pem(),
            key: ca.key().serialize_pem(),
        }
    }

    fn identities(&self) -> Identities {
        Identities::issue(&self.certificate, &self.key, &[US]).unwrap()
    }
}

fn upstream(identity: &Identity, reads: &Arc<AtomicUsize>) -> Server {
    let (acceptor, log, reads) = (identity.acceptor().unwrap(), Log::default(), reads.clone());
    Server::start(&[(US, 0).into()], move |stream, client| {
        let (acceptor, log, reads) = (acceptor.clone(), log.clone(), reads.clone());
        async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve_http(stream, client, &log, |request| api(request, reads.clone())).await;
            }
        }
    })
    .unwrap()
}

async fn api(request: Asked, reads: Arc<AtomicUsize>) -> Answer {
    if request
        .headers()
        .get(AUTHORIZATION)
        .is_none_or(|value| value != format!("Bearer {TOKEN}").as_str())
    {
        return answer(
            StatusCode::UNAUTHORIZED,
            "application/json",
            json!({ "code": 401 }).to_string(),
        );
    }
    if request.uri().path() == SECRET {
        let read = reads.fetch_add(1, Ordering::Relaxed) + 1;
        // Indented, as an API server answers a person.
        return answer(
            StatusCode::OK,
            "application/json",
            serde_json::to_vec_pretty(&secret(read)).unwrap(),
        );
    }
    if request.uri().query() == Some("watch=true") {
        let event = Frame::data(Bytes::from_static(b"{\"type\":\"ADDED\"}\n"));
        let endless = stream::iter([Ok(event)]).chain(stream::pending());
        let mut answer = answer(StatusCode::OK, "application/json", "");
        answer.headers_mut().remove(CONTENT_LENGTH);
        return answer.map(|_| StreamBody::new(endless).boxed_unsync());
    }
    let question = format!("{} {}: ", request.method(), request.uri());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    answer(
        StatusCode::CREATED,
        "text/plain",
        [question.as_bytes(), &body].concat(),
    )
}

fn secret(read: usize) -> Value {
    json!({
        "kind": "Secret",
        "metadata": { "annotations": { "read": read.to_string() } },
        "data": { "cloud-config": STANDARD.encode(DOCUMENT), "other": "b3RoZXI=" },
    })
}

/// A relay before a server that sends back whatever it gets.
fn before_an_echo() -> (Relay, Server) {
    let echo = Server::start(&[(US, 0).into()], async |mut stream: TcpStream, _| {
        let (mut read, mut write) = stream.split();
        let _ = copy(&mut read, &mut write).await;
    })
    .unwrap();
    let relay = Relay::start((US, 0).into(), echo.address, &Ca::new().identities()).unwrap();
    (relay, echo)
}

fn connect(relay: &Relay) -> BlockingStream {
    let stream = BlockingStream::connect(relay.address()).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

fn sends_back(stream: &mut BlockingStream, bytes: &[u8]) -> bool {
    let mut got = vec![0; bytes.len()];
    stream.write_all(bytes).is_ok() && stream.read_exact(&mut got).is_ok() && got == bytes
}

/// Whether the other side has closed it, or does within a while.
fn is_cut(stream: &mut BlockingStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted].contains(&error.kind()),
    }
}

#[test]
fn pass_copies_bytes_whatever_they_mean() {
    let (relay, _echo) = before_an_echo();
    let mut stream = connect(&relay);
    assert!(sends_back(&mut stream, b"neither TLS\0nor HTTP\xff"));
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(is_cut(&mut stream), "the end is passed on as well");
    let connections = relay.connections();
    assert_eq!(
        (connections.len(), connections[0].client, connections[0].mode),
        (1, US, Mode::Pass)
    );
    assert!(connections[0].started.elapsed().unwrap() < DEADLINE);

    let lab = Lab::start();
    assert_eq!(lab.secret(&[]), secret(1));
    assert!(lab.relay.requests().is_empty(), "they can't be read");
}

#[tokio::test]
async fn a_change_cuts_the_connections_of_that_client_only() {
    let (relay, _echo) = before_an_echo();
    let neighbour: IpAddr = NEIGHBOUR.parse().unwrap();
    let mut stream = connect(&relay);
    assert!(sends_back(&mut stream, b"one"));
    relay.set(neighbour, Mode::Refuse);
    relay.set(US, Mode::Pass);
    assert!(sends_back(&mut stream, b"two"), "nothing changed for us");
    relay.set(US, Mode::Silent);
    assert!(is_cut(&mut stream));

    let mut stream = connect(&relay);
    stream.write_all(b"three").unwrap();
    wait_for_connections(&relay, Mode::Silent, 1).await;
    relay.set(US, Mode::Pass);
    assert!(is_cut(&mut stream), "and no answer before");
    assert!(sends_back(&mut connect(&relay), b"four"));

    let mut stream = connect(&relay);
    assert!(sends_back(&mut stream, b"five"));
    drop(relay);
    assert!(is_cut(&mut stream), "dropping ends connections");
}

#[tokio::test]
async fn refuse_resets_and_silent_says_nothing() {
    let lab = Lab::start();
    lab.relay.set(US, Mode::Refuse);
    let reached = BlockingStream::connect(lab.relay.address());
    assert_eq!(
        reached
            .and_then(|mut stream| stream.read(&mut [0]))
            .unwrap_err()
            .kind(),
        ErrorKind::ConnectionReset
    );
    let code = lab.curl(SECRET, &[]).0;
    assert!(code == curl::NOT_CONNECTED || curl::CUT.contains(&code), "{code}");

    lab.relay.set(US, Mode::Silent);
    let mut waiting = lab.start_curl(SECRET, &[]);
    wait_for_connections(&lab.relay, Mode::Silent, 1).await;
    assert_eq!(lab.secret(&["--interface", NEIGHBOUR]), secret(1));
    assert!(waiting.try_wait().unwrap().is_none(), "it waits on");
    lab.relay.set(US, Mode::Pass);
    assert!(curl::CUT.contains(&waiting.wait().unwrap().code().unwrap()));
    assert_eq!(lab.secret(&[]), secret(2));
}

#[test]
fn an_impostor_is_known_by_its_certificate_only() {
    let lab = Lab::start();
    lab.relay.set(US, Mode::Impostor);
    assert_eq!(lab.curl(SECRET, &[]).0, curl::NOT_TRUSTED);
    assert!(lab.relay.requests().is_empty(), "nobody told it anything");
    let (code, body) = lab.curl(SECRET, &["--insecure"]);
    assert_eq!(code, 0);
    assert!(serde_json::from_slice::<Value>(&body).is_err(), "garbage");
    let requests = lab.relay.requests();
    assert_eq!(
        (requests[0].mode, requests[0].path.as_str(), requests[0].status),
        (Mode::Impostor, SECRET, Some(200))
    );
    assert_eq!(lab.relay.connections().len(), 2);
    assert_eq!(
        lab.reads.load(Ordering::Relaxed),
        0,
        "nothing reached the API server"
    );
}

#[test]
fn a_status_comes_as_from_an_api_server() {
    let lab = Lab::start();
    for (code, reason) in [
        (401, "Unauthorized"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (504, "Timeout"),
    ] {
        lab.relay.set(US, Mode::Status(code));
        assert_eq!(lab.curl(SECRET, &[]).0, curl::HTTP_ERROR);
        let (_, body) = lab.curl(SECRET, &["--no-fail"]);
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&status["kind"], &status["code"], &status["reason"]),
            (&json!("Status"), &json!(code), &json!(reason))
        );
        assert_eq!(lab.relay.requests().last().unwrap().status, Some(code));
    }
    assert_eq!(
        lab.reads.load(Ordering::Relaxed),
        0,
        "nothing reached the API server"
    );
}

#[tokio::test]
async fn one_bit_of_a_cloud_config_is_flipped_and_nothing_else() {
    let lab = Lab::start();
    lab.relay.set(US, Mode::FlippedBit);
    let (code, got) = lab.curl(SECRET, &["--compressed"]);
    assert_eq!(code, 0);
    let right = serde_json::to_vec_pretty(&secret(1)).unwrap();
    assert_eq!(got.len(), right.len());
    let mut got: Value = serde_json::from_slice(&got).unwrap();
    let flipped = STANDARD
        .decode(got["data"]["cloud-config"].as_str().unwrap())
        .unwrap();
    let bits: u32 = flipped
        .iter()
        .zip(DOCUMENT.as_bytes())
        .map(|(got, right)| (got ^ right).count_ones())
        .sum();
    assert_eq!((bits, flipped.len()), (1, DOCUMENT.len()));
    got["data"]["cloud-config"] = STANDARD.encode(DOCUMENT).into();
    assert_eq!(got, secret(1), "all else is as it was");

    let (code, body) = lab.curl("/api/v1/x?y=z", &["--data", "a body"]);
    assert_eq!(
        (code, String::from_utf8(body).unwrap().as_str()),
        (0, "POST /api/v1/x?y=z: a body")
    );
    let (_, body) = lab.curl(SECRET, &["--no-fail", "--oauth2-bearer", "wrong"]);
    assert_eq!(body, br#"{"code":401}"#);

    let events = lab.ca.with_file_name("events");
    let mut watch = lab.start_curl(
        "/api/v1/x?watch=true",
        &["--no-buffer", "--output", events.to_str().unwrap()],
    );
    wait_for("an event", DEADLINE, async || {
        check(fs::read(&events)? == b"{\"type\":\"ADDED\"}\n")
    })
    .await
    .unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();

    let requests = lab.relay.requests();
    let all: Vec<_> = requests
        .iter()
        .map(|request| (request.path.as_str(), request.status))
        .collect();
    assert_eq!(
        all,
        [
            (SECRET, Some(200)),
            ("/api/v1/x", Some(201)),
            (SECRET, Some(401)),
            ("/api/v1/x", Some(200))
        ]
    );
    assert!(requests.iter().all(|request| request.mode == Mode::FlippedBit));
    assert!(!format!("{requests:?}").contains(TOKEN), "no credentials");
}

#[tokio::test]
async fn a_held_answer_is_delivered_when_the_mode_changes() {
    let lab = Lab::start();
    for (round, next) in [Mode::Pass, Mode::Refuse, Mode::Status(503)]
        .into_iter()
        .enumerate()
    {
        let read = lab.reads.load(Ordering::Relaxed) + 1;
        lab.relay.set(US, Mode::Held);
        let mut waiting = lab.start_curl(SECRET, &[]);
        let forwarded = async || check(lab.reads.load(Ordering::Relaxed) == read);
        wait_for("the forwarded request", DEADLINE, forwarded)
            .await
            .unwrap();
        assert_eq!(
            lab.secret(&["--interface", NEIGHBOUR]),
            secret(read + 1),
            "what is read now differs"
        );
        assert!(waiting.try_wait().unwrap().is_none(), "it waits on");
        let held: Vec<_> = lab
            .relay
            .requests()
            .into_iter()
            .filter(|request| request.mode == Mode::Held)
            .collect();
        assert_eq!((held.len(), held[round].status), (round + 1, None));

        lab.relay.set(US, next);
        let output = waiting.wait_with_output().unwrap();
        assert!(output.status.success(), "{next:?}: {}", output.status);
        assert_eq!(
            serde_json::from_slice::<Value>(&output.stdout).unwrap(),
            secret(read),
            "{next:?}"
        );
    }
    assert_eq!(
        lab.curl(SECRET, &[]).0,
        curl::HTTP_ERROR,
        "the last mode is in force"
    );
}

#[test]
fn only_the_right_api_server_is_forwarded_to() {
    let ca = Ca::new();
    let lab = Lab::with(&ca, ca.identities().impostor);
    lab.relay.set(US, Mode::FlippedBit);
    let (code, body) = lab.curl(SECRET, &["--no-fail"]);
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, &status["code"]), (0, &json!(502)));
    assert!(status["message"].as_str().unwrap().contains("TLS"), "{status}");
    assert_eq!(lab.reads.load(Ordering::Relaxed), 0);

    let (relay, echo) = before_an_echo();
    drop(echo);
    assert!(is_cut(&mut connect(&relay)), "nobody is there");
}

#[test]
fn identities_that_do_not_fit_are_refused_at_the_start() {
    let ca = Ca::new();
    let error = Identities::issue(&ca.certificate, "no key", &[US]).err().unwrap();
    assert!(format!("{error:#}").contains("the CA's key"), "{error:#}");
    let error = Identities::issue("no certificate", &ca.key, &[US]).err().unwrap();
    assert!(format!("{error:#}").contains("the CA's certificate"), "{error:#}");
    let mut identities = ca.identities();
    identities.server.key = identities.impostor.key.clone();
    let error = Relay::start((US, 0).into(), (US, 1).into(), &identities).unwrap_err();
    assert!(
        format!("{error:#}").contains("certificate and key of the relay"),
        "{error:#}"
    );
}
