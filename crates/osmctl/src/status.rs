//! `osmctl status`: the pools of a cluster, and what each waits for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use osm_api::condition::{self, PUBLISHED, READY, RENDERED};
use osm_api::config::{OperatingSystemConfigStatus, ProfileRef, Published, RequestedProfile};
use osm_api::content::ContentView;
use osm_api::pool;
use serde_json::{Value, json};

use crate::chain::{self, Link, Problem};
use crate::output::{Color, Format};
use crate::snapshot::{ClusterPool, Snapshot};
use crate::{cluster, live, output, snapshot, why};

/// Stands for what does not exist.
const NONE: &str = "-";

/// List the pools of a cluster, and what each waits for
///
/// With POOL, the command prints everything about one pool.
/// With --watch, it keeps the table up to date until Ctrl-C: the pools, the time left of their credentials, and the latest Events.
/// If standard output is no terminal, it prints a line for each pool that changes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All pools
  osmctl status

  # One pool
  osmctl status kube-system/workers

  # A table that stays up to date
  osmctl status --watch

  # The machines have another cluster than the installation
  osmctl status --context seed -n cluster-x7k2 --worker-kubeconfig user-cluster.kubeconfig")]
pub struct Status {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment [default: all]
    pool: Option<String>,
    /// Keep the table up to date until Ctrl-C
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    cluster: cluster::Flags,
}

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
    links: Vec<Link>,
}

impl Status {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        if self.watch {
            return live::run(self.pool.as_deref(), self.color, &self.cluster);
        }
        let snapshot = cluster::read(&self.cluster, cluster::Needs::of_chains())?;
        let pools = snapshot.pools();
        let now = Timestamp::now();
        let row = |pool| Row::of(&snapshot, pool, now);
        snapshot.warn();
        let color = self.color.is_on();
        let text = match (&self.pool, self.output) {
            (Some(name), Format::Text) => row(snapshot::find(&pools, name)?).details(color),
            (Some(name), Format::Json) => output::json(&row(snapshot::find(&pools, name)?).json()),
            (None, Format::Text) => table(&pools.iter().map(row).collect::<Vec<_>>(), &snapshot, color),
            (None, Format::Json) => {
                let pools: Vec<Value> = pools.iter().map(|pool| row(pool).json()).collect();
                output::json(&json!({"pools": pools, "unread": snapshot.unread_json()}))
            }
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn table(rows: &[Row<'_>], snapshot: &Snapshot, with_color: bool) -> String {
    if rows.is_empty() {
        return nothing(snapshot);
    }
    let lines = rows.iter().map(|row| row.line(with_color, str::to_owned));
    let lines: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(lines).collect();
    output::table(&lines)
}

/// What is printed instead of a table without pools.
pub fn nothing(snapshot: &Snapshot) -> String {
    format!(
        "No MachineDeployments, and no OperatingSystemConfigs in namespace {}. If the installation has another namespace, set -n.\n",
        snapshot.namespace
    )
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
        ContentView::of(self.pool.config?).profile()
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

    /// The cells of the table. `expiry` shows when the credentials expire.
    pub fn line(&self, with_color: bool, expiry: impl Fn(&str) -> String) -> [String; 10] {
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
        let expires = self.published().map(|to| expiry(&to.credential_expires));
        [
            text(Some(self.pool.namespace.as_str()).filter(|name| !name.is_empty())),
            self.pool.name.clone(),
            output::paint(of_ready, &text(ready), with_color),
            text(self.profile_name()),
            text(self.profile().map(|profile| profile.version.as_str())),
            text(self.revision()),
            reason(RENDERED),
            reason(PUBLISHED),
            text(expires.as_deref()),
            waits_for,
        ]
    }

    fn details(&self, with_color: bool) -> String {
        let mut lines = vec![("Pool", self.pool.to_string())];
        if let Some(profile) = self.profile() {
            let ProfileRef {
                namespace,
                name,
                version,
                ..
            } = profile;
            lines.push(("Profile", format!("{namespace}/{name} {version}")));
        }
        lines.extend(self.revision().map(|revision| ("Revision", revision.to_owned())));
        for type_ in [READY, RENDERED, PUBLISHED] {
            if let Some(found) = self.condition(type_) {
                let since = output::timestamp(found.last_transition_time.0);
                let text = format!(
                    "{} since {since}: {}: {}",
                    found.status, found.reason, found.message
                );
                lines.push((type_, text));
            }
        }
        if let Some(rendered) = self.status().and_then(|status| status.rendered.as_ref()) {
            lines.push(("Digest", rendered.digest.clone()));
            lines.extend(
                rendered
                    .settings_digest
                    .clone()
                    .map(|digest| ("Settings", digest)),
            );
            lines.extend(rendered.user_data_bytes.map(|bytes| {
                let text = format!(
                    "bootstrap {} bytes, provisioning {} bytes",
                    bytes.bootstrap, bytes.provisioning
                );
                ("User data", text)
            }));
        }
        if let Some(published) = self.published() {
            lines.push((
                "Secrets",
                format!(
                    "{}, {}",
                    published.bootstrap_secret, published.provisioning_secret
                ),
            ));
            lines.push(("Published revision", published.revision.clone()));
            lines.push((
                "Credentials",
                format!("expire at {}", published.credential_expires),
            ));
        }
        let lines: Vec<[String; 2]> = lines
            .into_iter()
            .map(|(name, text)| [format!("{name}:"), output::visible(&output::one_line(&text))])
            .collect();
        let chain = why::text(&self.pool.to_string(), &self.links, with_color);
        format!("{}\n{chain}", output::table(&lines))
    }

    fn json(&self) -> Value {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::fixtures;

    fn at() -> Timestamp {
        "2026-02-01T00:00:00Z".parse().unwrap()
    }

    fn rows<'a>(snapshot: &Snapshot, pools: &'a [ClusterPool<'a>]) -> Vec<Row<'a>> {
        pools.iter().map(|pool| Row::of(snapshot, pool, at())).collect()
    }

    #[test]
    fn the_table_has_what_each_pool_waits_for() {
        let mut snapshot = fixtures::snapshot();
        snapshot
            .machine_deployments
            .push(fixtures::machine_deployment("team", "new"));
        let pools = snapshot.pools();
        let text = table(&rows(&snapshot, &pools), &snapshot, false);
        let words =
            |line: usize| -> Vec<&str> { text.lines().nth(line).unwrap().split_whitespace().collect() };
        assert_eq!(
            words(1),
            [
                "kube-system",
                "workers",
                "True",
                "osp-tiny",
                "v1.0.0",
                "3",
                "Rendered",
                "Published",
                "2026-03-01T00:00:00Z",
                "-"
            ]
        );
        assert_eq!(
            words(2),
            [
                "team",
                "new",
                "-",
                "osp-tiny",
                "-",
                "3",
                "-",
                "-",
                "-",
                "config:",
                "no-config"
            ]
        );
        assert!(table(&[], &snapshot, false).contains("No MachineDeployments"));
    }

    #[test]
    fn details_and_json_have_the_conditions() {
        let snapshot = fixtures::snapshot();
        let pools = snapshot.pools();
        let rows = rows(&snapshot, &pools);
        let text = rows[0].details(false);
        for part in [
            "Profile:              osm/osp-tiny v1.0.0\n",
            "True since 2026-01-01T00:00:00Z: Rendered: rendered from profile",
            "expire at 2026-03-01T00:00:00Z",
            "kube-system/workers is well.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = rows[0].json();
        assert_eq!(
            (&json["waitsFor"], &json["rendered"]["reason"]),
            (&Value::Null, &json!("Rendered"))
        );
    }
}
