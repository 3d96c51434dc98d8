//! A pool as `osmctl status` shows it: in a table, and as JSON.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use osm_api::condition::{self, PUBLISHED, READY, RENDERED};
use osm_api::config::{OperatingSystemConfigStatus, ProfileRef, Published, RequestedProfile};
use osm_api::content::ContentView;
use osm_api::pool;
use serde_json::{Value, json};

use crate::chain::{self, Link, Problem};
use crate::output;
use crate::snapshot::{ClusterPool, Snapshot};

/// Stands for what does not exist.
const NONE: &str = "-";

/// Names of the columns.
pub const COLUMNS: [&str; 10] = [
    "NAMESPACE",
    "POOL",
    "READY",
    "PROFILE",
    "VERSION",
    "REVISION",
    "RENDERED",
    "PUBLISHED",
    "EXPIRES",
    "WAITS FOR",
];

/// A pool with its chain.
pub struct Row<'a> {
    pool: &'a ClusterPool<'a>,
    requested: Option<RequestedProfile>,
    /// The chain from its MachineDeployment to its Secrets.
    pub links: Vec<Link>,
}

impl<'a> Row<'a> {
    /// The row of a pool at the time `now`.
    pub fn of(snapshot: &Snapshot, pool: &'a ClusterPool<'a>, now: Timestamp) -> Self {
        let named = pool.machine_deployment.and_then(|md| snapshot.profile_name(md));
        let recorded = || pool.config?.status.as_ref()?.profile.clone();
        let of_md = named.map(|(namespace, name)| RequestedProfile { namespace, name });
        Self {
            pool,
            requested: of_md.or_else(recorded),
            links: chain::chain(snapshot, pool, now),
        }
    }
}

impl Row<'_> {
    /// Namespace and name.
    pub fn name(&self) -> String {
        self.pool.to_string()
    }

    /// Whether the pool waits for something.
    pub fn waits(&self) -> bool {
        self.problem().is_some()
    }

    /// Name of the profile that the pool asks for, or else of the one that it was rendered from.
    fn profile_name(&self) -> Option<&str> {
        let requested = self.requested.as_ref().map(|profile| profile.name.as_str());
        requested.or_else(|| self.profile().map(|profile| profile.name.as_str()))
    }

    fn status(&self) -> Option<&OperatingSystemConfigStatus> {
        self.pool.config?.status.as_ref()
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        condition::find(&self.status()?.conditions, type_)
    }

    fn profile(&self) -> Option<&ProfileRef> {
        ContentView::of(self.pool.config?).rendered()?.profile.as_ref()
    }

    fn revision(&self) -> Option<&str> {
        self.pool.machine_deployment.and_then(pool::revision)
    }

    fn published(&self) -> Option<&Published> {
        self.status()?.published.as_ref()
    }

    fn problem(&self) -> Option<(&Link, &Problem)> {
        chain::first_problem(&self.links)
    }

    /// The cells of the table.
    pub fn line(&self, with_color: bool) -> [String; 10] {
        let text = |text: Option<&str>| output::visible(&output::one_line(text.unwrap_or(NONE)));
        let reason = |type_| text(self.condition(type_).map(|found| found.reason.as_str()));
        let waits_for = match self.problem() {
            None => output::paint(output::GREEN, NONE, with_color),
            Some((link, problem)) => {
                let text = text(Some(&format!("{}: {}", link.name, problem.reason)));
                output::paint(output::RED, &text, with_color)
            }
        };
        let ready = self.condition(READY).map(|ready| ready.status.as_str());
        let of_ready = match ready {
            Some("True") => output::GREEN,
            Some(_) => output::RED,
            None => "",
        };
        let expires = self.published().map(|to| to.credential_expires.as_str());
        [
            text(Some(self.pool.namespace.as_str()).filter(|name| !name.is_empty())),
            self.pool.name.clone(),
            output::paint(of_ready, &text(ready), with_color),
            text(self.profile_name()),
            text(self.profile().map(|profile| profile.version.as_str())),
            text(self.revision()),
            reason(RENDERED),
            reason(PUBLISHED),
            text(expires),
            waits_for,
        ]
    }

    /// Everything about the pool.
    pub fn json(&self) -> Value {
        let condition = |type_| {
            self.condition(type_).map(|found| {
                json!({
                    "status": found.status, "reason": found.reason, "message": found.message,
                    "since": found.last_transition_time.0.to_string(),
                })
            })
        };
        let waits_for = self.problem().map(|(link, problem)| {
            let mut value = problem.json();
            if let Some(fields) = value.as_object_mut() {
                fields.insert("link".to_owned(), link.name.into());
            }
            value
        });
        json!({
            "namespace": self.pool.namespace,
            "name": self.pool.name,
            "requestedProfile": self.requested,
            "profile": self.profile(),
            "revision": self.revision(),
            "ready": condition(READY),
            "rendered": condition(RENDERED),
            "published": condition(PUBLISHED),
            "credentialExpires": self.published().map(|to| &to.credential_expires),
            "secrets": self.published().map(|to| [&to.bootstrap_secret, &to.provisioning_secret]),
            "waitsFor": waits_for,
        })
    }

    /// Everything about the pool and the links of its chain.
    pub fn json_with_chain(&self, snapshot: &Snapshot) -> Value {
        let mut value = self.json();
        if let Some(fields) = value.as_object_mut() {
            fields.insert("well".to_owned(), json!(!self.waits()));
            let links: Vec<Value> = self.links.iter().map(Link::json).collect();
            fields.insert("links".to_owned(), json!(links));
            fields.insert("unread".to_owned(), json!(snapshot.unread_json()));
        }
        value
    }
}
