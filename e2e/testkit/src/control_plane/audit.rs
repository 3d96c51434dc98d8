//! Reads the audit log of the API server.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::{ControlPlane, private_file};

/// Nothing that the API server asks itself.
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ['system:apiserver']}
- {level: None, nonResourceURLs: ['/readyz', '/api*', '/openapi*', '/version']}
";

/// Nothing of request or response bodies.
const WITHOUT_BODIES: &str = "- {level: Metadata}\n";

/// The bodies of requests that change something, and of their answers.
const WITH_BODIES: &str = "- {level: Metadata, verbs: [get, list, watch]}\n- {level: RequestResponse}\n";

/// A request that the API server has answered; a watch counts as soon as it has begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditEvent {
    /// Who asked, e.g. `system:serviceaccount:kube-system:osc-controller`; empty where the token was
    /// nobody's.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` …
    pub verb: String,
    /// What asked: the header `User-Agent`.
    pub user_agent: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The plural, with its subresource: `secrets`, `serviceaccounts/token`.
    pub resource: String,
    /// The object's namespace; empty for requests over all namespaces and for cluster-wide kinds.
    pub namespace: String,
    /// The object's name; empty for collections.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// Path and query.
    pub uri: String,
    /// Body of the request, with [`super::Options::audit_bodies`]; `null` if there is none.
    pub request: Value,
    /// Body of the answer, with [`super::Options::audit_bodies`]; `null` if there is none.
    pub response: Value,
}

/// Reads the log from where it stopped reading before.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    /// Bytes that have been read.
    position: u64,
}

impl AuditLog {
    /// The requests that were logged since the last call, oldest first; at the first call, all.
    ///
    /// # Errors
    /// A log that can't be read.
    pub fn read(&mut self) -> Result<Vec<AuditEvent>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            // kube-apiserver creates the file with its first line.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("audit log {}", self.path.display())),
        };
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(self.position))?;
        let (mut events, mut line) = (Vec::new(), String::new());
        while let read @ 1.. = reader.read_line(&mut line)? {
            if !line.ends_with('\n') {
                break; // half written
            }
            self.position += read as u64;
            events.extend(parse(&line)?);
            line.clear();
        }
        Ok(events)
    }
}

impl ControlPlane {
    /// A reader of all requests to objects, but for the API server's own, from the first one on. It is
    /// complete up to the last request that was answered.
    ///
    /// # Errors
    /// When the control plane was started without [`super::Options::audit`].
    pub fn audit_log(&self) -> Result<AuditLog> {
        let kept = self.options.audit || self.options.audit_bodies;
        ensure!(kept, "no audit log: start the control plane with `audit`");
        Ok(AuditLog {
            path: log(self.directory.path()),
            position: 0,
        })
    }
}

/// Writes the policy and returns kube-apiserver's arguments.
pub(super) fn arguments(directory: &Path, bodies: bool) -> Result<[String; 3]> {
    let policy = directory.join("audit-policy.yaml");
    let level = if bodies { WITH_BODIES } else { WITHOUT_BODIES };
    private_file(&policy, &format!("{POLICY}{level}"))?;
    Ok([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log(directory).display()),
        // In megabytes. After the default of 100, events would go to another file.
        "--audit-log-maxsize=100000".to_owned(),
    ])
}

fn log(directory: &Path) -> PathBuf {
    directory.join("audit.log")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default, rename = "requestURI")]
    uri: String,
    #[serde(default)]
    request_object: Value,
    #[serde(default)]
    response_object: Value,
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct User {
    /// Empty for a client that was not authenticated.
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
#[serde(rename_all = "camelCase")]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    code: u16,
}

/// None for a line that is not about an object, or is not the one by which its request counts.
fn parse(line: &str) -> Result<Option<AuditEvent>> {
    let line: Line = serde_json::from_str(line).context("audit log")?;
    let counts = if line.verb == "watch" {
        "ResponseStarted"
    } else {
        "ResponseComplete"
    };
    let Some(object) = line.object_ref.filter(|_| line.stage == counts) else {
        return Ok(None);
    };
    let resource = match object.subresource.as_str() {
        "" => object.resource,
        subresource => format!("{}/{subresource}", object.resource),
    };
    Ok(Some(AuditEvent {
        user: line.user.username,
        user_agent: line.user_agent,
        verb: line.verb,
        group: object.api_group,
        resource,
        namespace: object.namespace,
        name: object.name,
        code: line.response_status.map(|status| status.code).unwrap_or_default(),
        uri: line.uri,
        request: line.request_object,
        response: line.response_object,
    }))
}
