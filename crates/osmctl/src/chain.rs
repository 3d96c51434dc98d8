//! Explains what a pool waits for: the chain from its MachineDeployment to its Secrets, in which each link
//! follows from those before it.
//!
//! A pool is up to date if its Secrets hold what the newest MachineDeployment, profile and settings ask for.
//! So a refused edit of a profile is a problem, although machines boot with the previous version.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use osm_api::condition::{self, ACCEPTED, CURRENT, PUBLISHED, RENDERED};
use osm_api::names::SETTINGS;
use osm_api::pool::{self, Pool};
use osm_api::pool_settings::PoolSettings;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile, PoolRef, Reason, Settings};

use crate::output;
use crate::snapshot::{ClusterPool, Part, Snapshot, event_time};

const REASONS: &str = include_str!("../../../docs/reasons.md");

const CHECK_OSP: &str = "Check whether osp-controller runs.";
const CHECK_OSC: &str = "Check whether osc-controller runs.";
const CHECK_SYNCER: &str = "Check whether secret-syncer runs.";
const CHECK_MACHINE_CONTROLLER: &str = "Check whether machine-controller runs.";

/// Reason of osmctl for a config that osc-controller has yet to retire.
pub const MACHINE_DEPLOYMENT_NOT_FOUND: &str = "MachineDeploymentNotFound";

/// Reasons with which osc-controller refuses a pool that gets no config. Only Events have them.
const REJECTIONS: [Reason; 6] = [
    Reason::NameCollision,
    Reason::NameTooLong,
    Reason::NamespaceNotServed,
    Reason::ClusterChanged,
    Reason::TooManyMachineDeployments,
    Reason::UpstreamOSMRunning,
];

/// A link of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// What it is: `MachineDeployment`, `profile`, `settings`, `config`, `Secrets`.
    pub name: &'static str,
    /// The object behind it, as far as it is known.
    pub object: String,
    pub state: State,
}

/// How a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Holds what a person may want to know about it.
    UpToDate(String),
    Problem(Problem),
    /// It could not be read.
    Unknown,
}

/// Why a link is not up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason of a condition, or a name of the same form for what only osmctl finds.
    pub reason: String,
    pub message: String,
    pub next_step: String,
}

impl Problem {
    fn new(reason: impl Into<String>, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: output::one_line(&message.into()),
            next_step: next_step.into(),
        }
    }

    /// With the next step of the table of reasons.
    fn of(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(reason.as_str(), message, next_step(reason.as_str()))
    }

    /// Whether it only says that a program has not done something, and not why.
    pub fn is_guess(&self) -> bool {
        [CHECK_OSP, CHECK_OSC, CHECK_SYNCER, CHECK_MACHINE_CONTROLLER].contains(&&*self.next_step)
    }

    /// What a condition reports.
    fn reported(condition: &Condition) -> Self {
        let (reason, message) = (&condition.reason, &condition.message);
        Self::new(reason, message, next_step(reason))
    }
}

impl Link {
    fn line(&self) -> [String; 4] {
        let (state, detail) = match &self.state {
            State::UpToDate(detail) => ("ok", detail.as_str()),
            State::Problem(problem) => ("problem", problem.reason.as_str()),
            State::Unknown => ("unknown", "it could not be read"),
        };
        [
            state.to_owned(),
            self.name.to_owned(),
            output::one_line(&self.object),
            output::one_line(detail),
        ]
    }
}

/// The links up to the one with the first problem, and the next step.
pub fn text(pool: &str, links: &[Link]) -> String {
    let found = first_problem(links);
    let is_it = |link: &Link| found.is_some_and(|(found, _)| found == link);
    let shown = links.iter().position(is_it).map_or(links.len(), |at| at + 1);
    let lines: Vec<[String; 4]> = links.iter().take(shown).map(Link::line).collect();
    let mut text = output::table(&lines);
    match found {
        None if links.iter().any(|link| link.state == State::Unknown) => {
            text.push_str(&format!("\n{pool} is up to date, as far as it could be read.\n"));
        }
        None => text.push_str(&format!("\n{pool} is up to date.\n")),
        Some((link, problem)) => {
            let (name, reason) = (link.name, &problem.reason);
            text.push_str(&format!(
                "\n{pool} waits for its {name}: {reason}\n  {}\nNext step: {}\n",
                problem.message, problem.next_step
            ));
        }
    }
    text
}

pub type Outcome = Result<String, Problem>;

/// The next step for a reason, in plain text.
fn next_step(reason: &str) -> String {
    match remedy(reason) {
        None => "Wait a minute, and look again.".to_owned(),
        Some(remedy) => without_links(remedy),
    }
}

/// What to do about a reason, in Markdown: the last column of docs/reasons.md.
pub fn remedy(reason: &str) -> Option<&'static str> {
    let start = format!("| [`{reason}`](");
    let row = REASONS.lines().find(|line| line.starts_with(&start))?;
    let remedy = row.strip_suffix(" |")?.rsplit(" | ").next();
    remedy.filter(|remedy| *remedy != "–")
}

/// Markdown with the texts of its links alone.
fn without_links(markdown: &str) -> String {
    let (mut text, mut rest) = (String::new(), markdown);
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let link = after
            .split_once("](")
            .and_then(|(shown, target)| Some((shown, target.split_once(')')?.1)));
        match link {
            Some((shown, after)) => {
                text.push_str(shown);
                rest = after;
            }
            None => {
                text.push('[');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// The chain of a pool at the time `now`.
pub fn chain(snapshot: &Snapshot, pool: &ClusterPool<'_>, now: Timestamp) -> Vec<Link> {
    let mut links = Vec::new();
    let mut add = |name, object: String, outcome: Option<Outcome>| {
        let state = match outcome {
            Some(Ok(detail)) => State::UpToDate(detail),
            Some(Err(problem)) => State::Problem(problem),
            None => State::Unknown,
        };
        links.push(Link { name, object, state });
    };
    let outcome = match (&pool.other_cluster, pool.machine_deployment) {
        // In another cluster, no MachineDeployment is the one of the config, whatever its name and uid.
        (Some(other), _) => Some(Err(other_cluster(snapshot, other))),
        (None, Some(md)) => Some(machine_deployment(md)),
        (None, None) => absent(snapshot, Part::MachineDeployments, || gone(pool)),
    };
    add("MachineDeployment", pool.to_string(), outcome);
    if let Some(md) = pool.machine_deployment {
        let name = snapshot.profile_name(md);
        let object = name
            .as_ref()
            .map(|(namespace, name)| format!("{namespace}/{name}"));
        let outcome = name.and_then(|(namespace, name)| profile(snapshot, &namespace, &name));
        add("profile", object.unwrap_or_default(), outcome);
        add("settings", snapshot.settings_place(), settings(snapshot, md));
        let object = PoolRef::from(md).config_name();
        add("config", object, config(snapshot, pool, md));
    }
    let outcome = pool.config.map(|config| secrets(config, pool, now));
    let bootstrap = pool
        .config
        .and_then(published)
        .map(|to| to.bootstrap_secret.clone());
    add("Secrets", bootstrap.unwrap_or_default(), outcome);
    links
}

/// What the absence of an object means; `None` if objects of this part could not be read, so that it may
/// exist.
fn absent(snapshot: &Snapshot, part: Part, problem: impl FnOnce() -> Problem) -> Option<Outcome> {
    (!snapshot.lacks(part)).then(|| Err(problem()))
}

/// The first link with a problem. If all that is known about it is that a program has not done something, a
/// later one may report why.
pub fn first_problem(links: &[Link]) -> Option<(&Link, &Problem)> {
    let problems = || {
        links.iter().filter_map(|link| match &link.state {
            State::Problem(problem) => Some((link, problem)),
            _ => None,
        })
    };
    problems()
        .find(|(_, problem)| !problem.is_guess())
        .or_else(|| problems().next())
}

fn other_cluster(snapshot: &Snapshot, made_in: &str) -> Problem {
    let found = snapshot.cluster_uid.as_deref().unwrap_or_default();
    let message = format!(
        "the config belongs to cluster {made_in}, but these MachineDeployments are in cluster {found} (uids of kube-system)"
    );
    let mut problem = Problem::of(Reason::ClusterChanged, message);
    let hint = " If only osmctl has the wrong one, set --worker-kubeconfig or --worker-context.";
    problem.next_step.push_str(hint);
    problem
}

fn gone(pool: &ClusterPool<'_>) -> Problem {
    let is_retired = pool
        .config
        .and_then(|config| config.status.as_ref())
        .is_some_and(|status| status.retired.is_some());
    if is_retired {
        Problem::of(
            Reason::Retired,
            "the MachineDeployment is gone; secret-syncer deletes everything that was published for it",
        )
    } else {
        Problem::new(
            MACHINE_DEPLOYMENT_NOT_FOUND,
            "the MachineDeployment does not exist, and its config was not retired yet",
            "If it lasts longer than a minute, check --worker-context, and whether osc-controller runs.",
        )
    }
}

fn machine_deployment(md: &MachineDeployment) -> Outcome {
    if let Err(error) = Pool::read(md) {
        return Err(Problem::of(error.reason(), error.to_string()));
    }
    match pool::revision(md) {
        Some(revision) => Ok(format!("revision {revision}")),
        None => Err(Problem::new(
            Reason::WaitingForRevision.as_str(),
            "machine-controller has not set a revision yet",
            CHECK_MACHINE_CONTROLLER,
        )),
    }
}

fn profile(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<Outcome> {
    match snapshot.profile((namespace, name)) {
        Some(profile) => Some(accepted(profile)),
        None => absent(snapshot, Part::Profiles, || {
            let message = format!("profile {namespace}/{name} does not exist");
            Problem::of(Reason::ProfileNotFound, message)
        }),
    }
}

/// Whether a profile was validated, and with which result.
pub fn accepted(profile: &OperatingSystemProfile) -> Outcome {
    let status = profile.status.clone().unwrap_or_default();
    let generation = profile.metadata.generation.unwrap_or(0);
    let accepted = condition::find(&status.conditions, ACCEPTED);
    match accepted.filter(|_| status.observed_generation.unwrap_or(0) >= generation) {
        None => {
            let version = &profile.spec.version;
            let message = format!("osp-controller has not validated version {version} of the profile yet");
            Err(Problem::new(
                Reason::WaitingForProfile.as_str(),
                message,
                CHECK_OSP,
            ))
        }
        Some(accepted) if accepted.status == "True" => Ok(profile.spec.version.clone()),
        Some(refused) => Err(Problem::reported(refused)),
    }
}

fn settings(snapshot: &Snapshot, md: &MachineDeployment) -> Option<Outcome> {
    match snapshot.installation_settings() {
        Some(settings) => {
            let is_patched = pool::annotation(md, SETTINGS).is_some();
            let detail = if is_patched {
                "with settings of the pool"
            } else {
                ""
            };
            Some(settings_of_pool(snapshot, settings, md).map(|_| detail.to_owned()))
        }
        None => absent(snapshot, Part::Settings, || {
            let place = snapshot.settings_place();
            let message = format!("ConfigMap {place} does not exist, or has no settings document");
            let mut problem = Problem::of(Reason::SettingsInvalid, message);
            let hint = " If they are in another place, set -n or --settings-config-map.";
            problem.next_step.push_str(hint);
            problem
        }),
    }
}

fn settings_of_pool(
    snapshot: &Snapshot,
    installation: Result<Settings, String>,
    md: &MachineDeployment,
) -> Result<Settings, Problem> {
    let installation = installation.map_err(|mistakes| {
        Problem::new(
            Reason::SettingsInvalid.as_str(),
            mistakes,
            "Correct the settings; `osmctl lint` checks them.",
        )
    })?;
    let Some(text) = pool::annotation(md, SETTINGS) else {
        return Ok(installation);
    };
    let invalid = |error: osm_api::settings_patch::PatchError| {
        Problem::of(Reason::PoolSettingsInvalid, error.to_string())
    };
    let settings = PoolSettings::parse(text).map_err(invalid)?;
    let namespace = md.namespace().unwrap_or_default();
    let map = match &settings.config_map {
        None => None,
        Some(name) => {
            let mut maps = snapshot.settings_maps.iter();
            let found = maps.find(|map| map.namespace == namespace && map.name == *name);
            if found.is_none() && !snapshot.lacks(Part::PoolSettings) {
                let message =
                    format!("ConfigMap {namespace}/{name} does not exist, or has no settings document");
                return Err(Problem::of(Reason::PoolSettingsNotFound, message));
            }
            found
        }
    };
    settings
        .merge(&installation, map.map(|map| map.text.as_str()))
        .map_err(invalid)
}

/// The settings of a pool; `None`: they were not read.
pub fn newest_settings(snapshot: &Snapshot, md: &MachineDeployment) -> Option<Result<Settings, Problem>> {
    let installation = snapshot.installation_settings()?;
    (!snapshot.lacks(Part::PoolSettings)).then(|| settings_of_pool(snapshot, installation, md))
}

fn config(snapshot: &Snapshot, pool: &ClusterPool<'_>, md: &MachineDeployment) -> Option<Outcome> {
    if let Some(holder) = &pool.holder {
        let message = format!(
            "its config and bootstrap Secret belong to MachineDeployment {holder} with uid {}",
            holder.uid
        );
        return Some(Err(Problem::of(Reason::NameCollision, message)));
    }
    match pool.config {
        Some(config) => Some(rendered(snapshot, config, pool, md)),
        None => absent(snapshot, Part::Configs, || {
            rejection(snapshot, md).unwrap_or_else(|| {
                Problem::new(
                    "ConfigNotFound",
                    "osc-controller has not created the config of the pool yet",
                    CHECK_OSC,
                )
            })
        }),
    }
}

fn rendered(
    snapshot: &Snapshot,
    config: &OperatingSystemConfig,
    pool: &ClusterPool<'_>,
    md: &MachineDeployment,
) -> Outcome {
    let status = config.status.clone().unwrap_or_default();
    let Some(rendered) = condition::find(&status.conditions, RENDERED) else {
        let (reason, message) = if pool.is_of_the_upstream_osm() {
            (
                Reason::NotAdopted,
                "the upstream OSM created the config, and osc-controller has not rendered it",
            )
        } else {
            (
                Reason::WaitingForRendering,
                "osc-controller has not rendered the config yet",
            )
        };
        let missing = || Problem::new(reason.as_str(), message, CHECK_OSC);
        return Err(rejection(snapshot, md).unwrap_or_else(missing));
    };
    if rendered.status != "True" || rendered.reason != Reason::Rendered.as_str() {
        return Err(Problem::reported(rendered));
    }
    let content = config.stored();
    if content.and_then(|content| content.revision.as_deref()) != pool::revision(md) {
        return Err(Problem::new(
            Reason::WaitingForRendering.as_str(),
            "osc-controller has not rendered the newest revision of the MachineDeployment yet",
            CHECK_OSC,
        ));
    }
    // Where the settings and the profile could not be read, only this shows that an edit of them is refused.
    match condition::find(&status.conditions, CURRENT) {
        Some(refused) if refused.status == "False" => Err(Problem::reported(refused)),
        _ => Ok(rendered.message.clone()),
    }
}

/// Why osc-controller refuses the pool, as its newest Event reports.
fn rejection(snapshot: &Snapshot, md: &MachineDeployment) -> Option<Problem> {
    let uid = md.uid();
    let about = |event: &&k8s_openapi::api::core::v1::Event| event.involved_object.uid == uid;
    let of_kind = |event: &k8s_openapi::api::core::v1::Event| {
        REJECTIONS
            .into_iter()
            .find(|reason| event.reason.as_deref() == Some(reason.as_str()))
    };
    let events = snapshot.events.iter().filter(about);
    let rejections = events.filter_map(|event| Some((event_time(event), of_kind(event)?, event)));
    let (_, reason, event) = rejections.max_by_key(|(time, ..)| *time)?;
    Some(Problem::of(reason, event.message.clone().unwrap_or_default()))
}

fn published(config: &OperatingSystemConfig) -> Option<&osm_api::config::Published> {
    config.status.as_ref()?.published.as_ref()
}

fn secrets(config: &OperatingSystemConfig, pool: &ClusterPool<'_>, now: Timestamp) -> Outcome {
    let status = config.status.clone().unwrap_or_default();
    let Some(condition) = condition::find(&status.conditions, PUBLISHED) else {
        return Err(Problem::new(
            "NotPublished",
            "secret-syncer has not published the config yet",
            CHECK_SYNCER,
        ));
    };
    if condition.status != "True" {
        return Err(Problem::reported(condition));
    }
    let revision = pool
        .machine_deployment
        .and_then(pool::revision)
        .unwrap_or_default();
    if !config.is_published(revision) {
        return Err(Problem::new(
            "NotPublished",
            "secret-syncer has not published the newest content yet",
            CHECK_SYNCER,
        ));
    }
    let expires = published(config)
        .map(|published| published.credential_expiration_time.clone())
        .unwrap_or_default();
    match expires.parse::<Timestamp>() {
        Ok(time) if time <= now => Err(Problem::new(
            "CredentialsExpired",
            format!("the credentials expired at {expires}, and secret-syncer has not renewed them"),
            CHECK_SYNCER,
        )),
        _ => Ok(format!("credentials expire at {expires}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::snapshot::Unread;
    use crate::snapshot::fixtures::{condition, machine_deployment as deployment, snapshot};

    type Break = fn(&mut Snapshot);

    fn now() -> Timestamp {
        "2026-02-01T00:00:00Z".parse().unwrap()
    }

    fn status(snapshot: &mut Snapshot) -> &mut osm_api::OperatingSystemConfigStatus {
        snapshot.configs[0].status.as_mut().unwrap()
    }

    fn annotations(snapshot: &mut Snapshot) -> &mut std::collections::BTreeMap<String, String> {
        snapshot.machine_deployments[0]
            .metadata
            .annotations
            .as_mut()
            .unwrap()
    }

    fn set(snapshot: &mut Snapshot, value: Value) {
        let new: Condition = from_value(value).unwrap();
        let conditions = &mut status(snapshot).conditions;
        conditions.retain(|known| known.type_ != new.type_);
        conditions.push(new);
    }

    #[test]
    fn the_first_link_that_is_not_well_is_found() {
        // The config was made for a cluster, and the MachineDeployment is in another one.
        fn swap(s: &mut Snapshot) {
            let made_in = (osm_api::names::CLUSTER_UID.to_owned(), "one".to_owned());
            s.configs[0].metadata.annotations = Some([made_in].into());
            s.cluster_uid = Some("other".to_owned());
        }
        let cases: [(Break, &str, &str); 23] = [
            (
                |s| drop(annotations(s).remove(osm_api::names::REVISION)),
                "MachineDeployment",
                "WaitingForRevision",
            ),
            (
                |s| s.machine_deployments[0].spec.template = json!({}),
                "MachineDeployment",
                "ProviderSpecInvalid",
            ),
            (swap, "MachineDeployment", "ClusterChanged"),
            (
                |s| {
                    swap(s);
                    s.machine_deployments[0].metadata.uid = Some("other".to_owned());
                },
                "MachineDeployment",
                "ClusterChanged",
            ),
            (
                |s| {
                    swap(s);
                    s.machine_deployments.clear();
                },
                "MachineDeployment",
                "ClusterChanged",
            ),
            (|s| s.profiles.clear(), "profile", "ProfileNotFound"),
            (
                |s| s.profiles[0].metadata.generation = Some(3),
                "profile",
                "WaitingForProfile",
            ),
            (
                |s| {
                    let refused = condition("Accepted", false, "TemplateInvalid", "no such field");
                    s.profiles[0].status.as_mut().unwrap().conditions = vec![from_value(refused).unwrap()];
                },
                "profile",
                "TemplateInvalid",
            ),
            (|s| s.settings = None, "settings", "SettingsInvalid"),
            (
                |s| s.settings = Some("pauseImag: x".to_owned()),
                "settings",
                "SettingsInvalid",
            ),
            (
                |s| drop(annotations(s).insert(SETTINGS.to_owned(), "fromConfigMap: mine".to_owned())),
                "settings",
                "PoolSettingsNotFound",
            ),
            (
                |s| drop(annotations(s).insert(SETTINGS.to_owned(), "pauseImag: x".to_owned())),
                "settings",
                "PoolSettingsInvalid",
            ),
            (|s| s.configs.clear(), "config", "ConfigNotFound"),
            (
                |s| {
                    s.configs.clear();
                    let event = json!({"metadata": {}, "reason": "NameTooLong", "message": "shorten it",
                        "involvedObject": {"uid": s.machine_deployments[0].metadata.uid}});
                    s.events = vec![from_value(event).unwrap()];
                },
                "config",
                "NameTooLong",
            ),
            (
                |s| set(s, condition("Rendered", false, "TemplateFailed", "line 3")),
                "config",
                "TemplateFailed",
            ),
            (|s| status(s).rendered = None, "config", "WaitingForRendering"),
            (
                |s| status(s).rendered.as_mut().unwrap().revision = Some("2".to_owned()),
                "config",
                "WaitingForRendering",
            ),
            (
                |s| {
                    s.configs[0].spec.pool_ref = None;
                    s.configs[0].status = None;
                },
                "config",
                "NotAdopted",
            ),
            (
                |s| {
                    s.configs[0].spec.pool_ref = None;
                    s.configs[0].status = None;
                    let event = json!({"metadata": {}, "reason": "UpstreamOSMRunning", "message": "it renews its Lease",
                        "involvedObject": {"uid": s.machine_deployments[0].metadata.uid}});
                    s.events = vec![from_value(event).unwrap()];
                },
                "config",
                "UpstreamOSMRunning",
            ),
            (
                // secret-syncer says why, where of osc-controller nothing is known.
                |s| {
                    status(s).rendered.as_mut().unwrap().revision = Some("2".to_owned());
                    set(s, condition("Published", false, "UpstreamOSMRunning", "stop it"));
                },
                "Secrets",
                "UpstreamOSMRunning",
            ),
            (
                |s| set(s, condition("Published", false, "ForeignSecret", "delete it")),
                "Secrets",
                "ForeignSecret",
            ),
            (
                |s| status(s).published.as_mut().unwrap().digest = "before".to_owned(),
                "Secrets",
                "NotPublished",
            ),
            (
                |s| {
                    status(s).published.as_mut().unwrap().credential_expiration_time =
                        "2026-01-31T00:00:00Z".to_owned()
                },
                "Secrets",
                "CredentialsExpired",
            ),
        ];
        assert_eq!(
            first_problem(&chain(&snapshot(), &snapshot().pools()[0], now())),
            None
        );
        for (break_it, link, reason) in cases {
            let mut snapshot = snapshot();
            break_it(&mut snapshot);
            let links = chain(&snapshot, &snapshot.pools()[0], now());
            let (found, problem) = first_problem(&links).expect(reason);
            assert_eq!(
                (found.name, problem.reason.as_str()),
                (link, reason),
                "{links:#?}"
            );
            let next = &problem.next_step;
            assert!(!problem.message.is_empty(), "{problem:?}");
            assert!(next.ends_with('.') && !next.contains("]("), "{problem:?}");
        }
    }

    #[test]
    fn what_could_not_be_read_is_not_called_missing() {
        let mut snapshot = snapshot();
        snapshot.profiles.clear();
        snapshot.settings = None;
        snapshot.unread = [Part::Profiles, Part::Settings]
            .map(|part| Unread {
                part,
                message: String::new(),
            })
            .to_vec();
        let links = chain(&snapshot, &snapshot.pools()[0], now());
        assert_eq!(first_problem(&links), None);
        let unknown = links
            .iter()
            .filter(|link| link.state == State::Unknown)
            .map(|link| link.name);
        assert_eq!(unknown.collect::<Vec<_>>(), ["profile", "settings"]);

        // osc-controller has read them.
        let mut refused = snapshot.clone();
        set(
            &mut refused,
            condition("Current", false, "SettingsInvalid", "pauseImag"),
        );
        let links = chain(&refused, &refused.pools()[0], now());
        assert_eq!(first_problem(&links).unwrap().1.reason, "SettingsInvalid");

        // The objects that were read are judged anyway.
        snapshot.profiles = vec![crate::snapshot::fixtures::profile()];
        snapshot.profiles[0].metadata.generation = Some(3);
        let links = chain(&snapshot, &snapshot.pools()[0], now());
        assert_eq!(first_problem(&links).unwrap().0.name, "profile");
    }

    #[test]
    fn a_pool_that_is_gone_is_being_retired() {
        let mut snapshot = snapshot();
        snapshot.machine_deployments = vec![deployment("kube-system", "other")];
        let reason = |snapshot: &Snapshot| {
            let pools = snapshot.pools();
            let gone = pools.iter().find(|pool| pool.name == "workers").unwrap();
            first_problem(&chain(snapshot, gone, now()))
                .unwrap()
                .1
                .reason
                .clone()
        };
        assert_eq!(reason(&snapshot), "MachineDeploymentNotFound");
        status(&mut snapshot).retired = Some(osm_api::config::Retired {
            uid: "uid-kube-system-workers".to_owned(),
            generation: 2,
        });
        assert_eq!(reason(&snapshot), "Retired");
    }
}
