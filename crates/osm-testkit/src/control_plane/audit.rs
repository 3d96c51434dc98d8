//! Reads the audit log of the API server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{ControlPlane, private_file};

/// Nothing of request or response bodies; nothing that the API server asks itself.
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: ['system:apiserver']}
- {level: None, nonResourceURLs: ['/readyz', '/api*', '/openapi*', '/version']}
- {level: Metadata}
";

/// A request that the API server has answered; a watch counts as soon as it has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// Who asked, e.g. `system:serviceaccount:kube-system:osc-controller`; empty where the token was nobody's.
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
}

impl AuditEvent {
    /// Whether the request was to change something, with success or not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

impl ControlPlane {
    /// All requests to objects so far, oldest first, but for the API server's own. Complete up to the last request that was answered.
    ///
    /// # Errors
    /// When the control plane was started without [`super::Options::audit`].
    pub fn audit_events(&self) -> Result<Vec<AuditEvent>> {
        let path = log(self.directory.path());
        let text = fs::read_to_string(&path).with_context(|| format!("audit log {}", path.display()))?;
        // The last line may be half written.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.filter_map(|line| parse(line).transpose()).collect()
    }
}

/// Writes the policy and returns kube-apiserver's arguments.
pub(super) fn arguments(directory: &Path) -> Result<[String; 2]> {
    let policy = directory.join("audit-policy.yaml");
    private_file(&policy, POLICY)?;
    Ok([
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log(directory).display()),
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
    object_ref: Option<ObjectRef>,
    response_status: Option<ResponseStatus>,
}

#[derive(Deserialize)]
struct User {
    /// None of whoever could not say who it is.
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
    }))
}
