//! The observer: the state that the history has led to, and the checks at each change.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::fixtures::UserData;
use osm_testkit::provisioning;
use serde::Deserialize as _;
use serde_json::Value;

use super::credential_probe::{self, CredentialProbe, Purpose};
use super::{Change, Invariant, Violation, What};

const MACHINE_DEPLOYMENT: &str = "MachineDeployment";
const CONFIG: &str = "OperatingSystemConfig";
/// Kinds in `cloud-init-settings` that are made for pools.
const MADE: [&str; 4] = ["Secret", "ServiceAccount", "Role", "RoleBinding"];

/// Takes a bootstrap document apart.
pub type Parse = fn(String) -> Result<UserData>;

/// Watches a history; see [the module](super).
pub struct Observer {
    parse: Parse,
    authorizers_lag: SignedDuration,
    /// Kind, namespace and name → state.
    objects: BTreeMap<(String, String, String), Value>,
    /// MachineDeployments by the id of their pool; those that are gone stay in it.
    pools: BTreeMap<String, Pool>,
    probes: Vec<CredentialProbe>,
    /// Someone's interference that is still to be seen: kind, name and, where it is a deletion, uid.
    interfered: BTreeSet<(String, String, Option<String>)>,
    /// Pools that someone has damaged, and when that was seen, until they are good again.
    excused: BTreeMap<String, Timestamp>,
    last_write: Option<(Timestamp, String)>,
    violations: Vec<Violation>,
}

/// A MachineDeployment as far as the history tells.
struct Pool {
    namespace: String,
    name: String,
    uid: String,
    lives: bool,
    /// Someone had damaged an object of it when it went, or did so later.
    was_damaged: bool,
    /// Every revision that it has had, in order; empty text: none yet.
    revisions: Vec<String>,
    /// Where in `revisions` its bootstrap Secret and its config are.
    reached: BTreeMap<&'static str, usize>,
}

fn interference(kind: &str, name: &str, uid: &str, what: What) -> (String, String, Option<String>) {
    (
        kind.to_owned(),
        name.to_owned(),
        (what == What::Deleted).then(|| uid.to_owned()),
    )
}

impl Pool {
    /// Notes that `what` now is for `revision`; whether that is the last one or one after it.
    fn moves_forward(&mut self, what: &'static str, revision: &str) -> bool {
        let from = self.reached.get(what).copied().unwrap_or(0);
        let mut later = self.revisions.iter().enumerate().skip(from);
        let Some((at, _)) = later.find(|(_, had)| *had == revision) else {
            return false;
        };
        self.reached.insert(what, at);
        true
    }

    fn revision(&self) -> &str {
        self.revisions.last().map_or("", String::as_str)
    }

    fn bootstrap(&self) -> String {
        names::bootstrap_secret_name(&self.name, &self.namespace)
    }
}

impl Observer {
    /// An observer that has seen nothing. `parse` takes apart the bootstrap documents of the profiles in use.
    /// So long after a damage, the API server may still accept a token.
    #[must_use]
    pub fn new(parse: Parse, authorizers_lag: SignedDuration) -> Self {
        Self {
            parse,
            authorizers_lag,
            objects: BTreeMap::new(),
            pools: BTreeMap::new(),
            probes: Vec::new(),
            interfered: BTreeSet::new(),
            excused: BTreeMap::new(),
            last_write: None,
            violations: Vec::new(),
        }
    }

    /// Someone other than the services is about to do this to an object of `cloud-init-settings`: its
    /// deletion, or whatever else is next seen of it, is that.
    pub fn interferes(&mut self, kind: &str, name: &str, uid: &str, what: What) {
        self.interfered.insert(interference(kind, name, uid, what));
        let pool = self
            .made(kind, name)
            .map(|object| label(object, names::POOL).to_owned());
        // Once it is seen, it counts from then on.
        if let Some(pool) = pool.filter(|pool| !pool.is_empty()) {
            self.excuse(pool, Timestamp::MIN);
        }
    }

    fn excuse(&mut self, pool: String, since: Timestamp) {
        let known = self.excused.entry(pool).or_insert(since);
        *known = since.max(*known);
    }

    /// Takes the next change.
    pub fn observe(&mut self, change: &Change) {
        let Change { at, what, object } = change;
        let (kind, namespace, name) = (
            text(object, "/kind"),
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        let made = namespace == CLOUD_INIT_SETTINGS && MADE.contains(&kind);
        if !made && kind != CONFIG && kind != MACHINE_DEPLOYMENT {
            return;
        }
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let version = |object: &Value| text(object, "/metadata/resourceVersion").to_owned();
        let known = self
            .objects
            .get(&key)
            .is_some_and(|known| version(known) == version(object));
        if known && *what != What::Deleted {
            // A watch that was restarted shows it once more.
            return;
        }
        let before = match what {
            What::Deleted => self.objects.remove(&key),
            What::Added | What::Modified => self.objects.insert(key, object.clone()),
        };
        let interfered = made
            && self
                .interfered
                .remove(&interference(kind, name, text(object, "/metadata/uid"), *what));
        if kind != MACHINE_DEPLOYMENT && !interfered {
            self.last_write = Some((*at, format!("{kind} {name} {what:?}")));
        }
        match (kind, what) {
            (MACHINE_DEPLOYMENT, What::Deleted) => self.pool_is_gone(object),
            (MACHINE_DEPLOYMENT, _) => self.pool_is_there(object),
            (CONFIG, What::Added | What::Modified) => self.config_is_there(*at, before.as_ref(), object),
            (CONFIG, What::Deleted) => {}
            _ if interfered => self.interfered_with(*at, kind, *what, before.as_ref()),
            // A client that only marks a Secret does not answer for its content.
            ("Secret", _)
                if before
                    .as_ref()
                    .is_some_and(|before| is_same_document(before, object, *what)) => {}
            ("Secret", What::Added | What::Modified) if is_bootstrap(object) => self.published(*at, object),
            (_, What::Deleted) => self.deleted(*at, kind, object),
            _ => {}
        }
    }

    /// The credentials that the API server must accept now: none that has expired, and none of a deleted
    /// pool.
    pub fn probes(&mut self, now: Timestamp) -> &[CredentialProbe] {
        self.probes.retain(|probe| probe.current || now < probe.expires);
        &self.probes
    }

    /// Takes the answers of the API server to probes that were sent at this time, or just after.
    pub fn answer<'a>(
        &mut self,
        at: Timestamp,
        answers: impl IntoIterator<Item = (&'a CredentialProbe, bool)>,
    ) {
        let mut refused = Vec::new();
        let mut accepted = BTreeMap::<&str, usize>::new();
        for (probe, is_accepted) in answers {
            if !self.probes.contains(probe) {
                continue;
            }
            if !is_accepted {
                refused.push(probe);
            } else if probe.current && self.opens_something(probe) {
                *accepted.entry(probe.pool.as_str()).or_default() += 1;
            }
        }
        let good_again: Vec<String> = self
            .excused
            .iter()
            .filter(|(pool, since)| {
                let current = self
                    .probes
                    .iter()
                    .filter(|probe| probe.current && probe.pool == **pool)
                    .count();
                at >= since.saturating_add(self.authorizers_lag).unwrap_or(**since)
                    && current > 0
                    && accepted.get(pool.as_str()) == Some(&current)
            })
            .map(|(pool, _)| pool.clone())
            .collect();
        for probe in refused {
            if !self.opens_something(probe) {
                // That the object is gone was judged when it went.
                self.probes.retain(|known| known != probe);
                continue;
            }
            if !self.excused.contains_key(&probe.pool) {
                let (invariant, since) = if probe.current {
                    (Invariant::Reachable, "which it holds")
                } else {
                    (Invariant::Kept, "which it held before")
                };
                let what = format!(
                    "bootstrap Secret {}: the token {since}, good until {}, is refused for {:?}",
                    probe.bootstrap, probe.expires, probe.purpose
                );
                self.broken(at, invariant, what);
            }
            // Each refusal is reported once.
            if !probe.current || good_again.contains(&probe.pool) || !self.excused.contains_key(&probe.pool) {
                self.probes.retain(|known| known != probe);
            }
        }
        self.excused.retain(|pool, _| !good_again.contains(pool));
    }

    /// [`Self::probes`] and [`Self::answer`] in one, where the answer can be had at once.
    pub fn ask(&mut self, now: Timestamp, is_accepted: impl Fn(&CredentialProbe) -> bool) {
        let asked = self.probes(now).to_vec();
        self.answer(now, asked.iter().map(|probe| (probe, is_accepted(probe))));
    }

    /// (d), and the second half of (e): to be asked when faults have ended and there was time to mend
    /// everything. A pool counts as soon as machine-controller has stamped its revision.
    pub fn settled(&mut self, now: Timestamp) {
        let living: Vec<(String, String, String, String)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.lives && !pool.revision().is_empty())
            .map(|(id, pool)| {
                (
                    id.clone(),
                    pool.bootstrap(),
                    pool.uid.clone(),
                    pool.revision().to_owned(),
                )
            })
            .collect();
        let mut problems = Vec::new();
        for (id, bootstrap, uid, revision) in &living {
            match self.made("Secret", bootstrap) {
                None => problems.push(format!("there is no bootstrap Secret {bootstrap}")),
                Some(secret) => {
                    let has = annotation(secret, names::MACHINE_DEPLOYMENT_REVISION);
                    if has != revision || label(secret, names::POOL) != id {
                        problems.push(format!(
                            "bootstrap Secret {bootstrap} is for revision {has:?} of pool {}, not for revision {revision:?} of pool {id}",
                            label(secret, names::POOL)
                        ));
                    }
                }
            }
            let probes: Vec<&CredentialProbe> = self
                .probes
                .iter()
                .filter(|probe| probe.current && probe.bootstrap == *bootstrap)
                .collect();
            if probes.is_empty() || probes.iter().any(|probe| probe.expires <= now) {
                problems.push(format!("bootstrap Secret {bootstrap} has no token that is good"));
            }
            let config = self
                .objects
                .iter()
                .find(|((kind, ..), object)| kind == CONFIG && text(object, "/spec/poolRef/uid") == uid);
            match config {
                None => problems.push(format!("pool {id} has no OperatingSystemConfig")),
                Some(((_, _, name), config)) => {
                    problems
                        .extend(unsettled(config).map(|why| format!("OperatingSystemConfig {name}: {why}")));
                }
            }
            if self.excused.contains_key(id) {
                problems.push(format!("pool {id} was damaged and has not been put right"));
            }
        }
        for problem in problems {
            self.broken(now, Invariant::Converges, problem);
        }
        let lives = |id: &str| self.pools.get(id).is_some_and(|pool| pool.lives);
        let mut left = Vec::new();
        for ((kind, _, name), object) in &self.objects {
            let pool = label(object, names::POOL);
            if kind != MACHINE_DEPLOYMENT && !pool.is_empty() && !lives(pool) {
                left.push(format!(
                    "{kind} {name} is still there, and its pool {pool} is gone"
                ));
            }
        }
        for what in left {
            self.broken(now, Invariant::Kept, what);
        }
    }

    /// (f): nothing was written after `since`, though nothing has changed for long.
    pub fn quiet_since(&mut self, since: Timestamp) {
        if let Some((at, what)) = self.last_write.clone().filter(|(at, _)| *at > since) {
            self.broken(
                at,
                Invariant::Quiet,
                format!("{what}, though nothing has changed"),
            );
        }
    }

    /// Promises that were broken so far, in order.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The bootstrap document that stands for a MachineDeployment, and the provisioning document that it
    /// names.
    #[must_use]
    pub fn documents(&self, namespace: &str, machine_deployment: &str) -> Option<(UserData, Vec<u8>)> {
        let secret = self.made(
            "Secret",
            &names::bootstrap_secret_name(machine_deployment, namespace),
        )?;
        let user_data = (self.parse)(String::from_utf8(document(secret)?).ok()?).ok()?;
        let provisioning = fetched(self.made("Secret", &user_data.provisioning_secret)?)?;
        Some((user_data, provisioning))
    }

    /// Whether the object is there that this credential opens: its holder may be allowed to fetch what
    /// someone has deleted.
    fn opens_something(&self, probe: &CredentialProbe) -> bool {
        match &probe.purpose {
            Purpose::Fetch(secret) => self.made("Secret", secret).is_some(),
            Purpose::Join => true,
        }
    }

    fn made(&self, kind: &str, name: &str) -> Option<&Value> {
        self.objects
            .get(&(kind.to_owned(), CLOUD_INIT_SETTINGS.to_owned(), name.to_owned()))
    }

    fn broken(&mut self, at: Timestamp, invariant: Invariant, what: String) {
        self.violations.push(Violation { invariant, at, what });
    }

    fn pool_is_there(&mut self, object: &Value) {
        let revision = annotation(object, names::REVISION);
        let pool = self.pools.entry(pool_id(object)).or_insert_with(|| Pool {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            uid: text(object, "/metadata/uid").to_owned(),
            lives: true,
            was_damaged: false,
            revisions: vec![String::new()],
            reached: BTreeMap::new(),
        });
        if pool.revision() != revision {
            pool.revisions.push(revision.to_owned());
        }
    }

    fn pool_is_gone(&mut self, object: &Value) {
        let id = pool_id(object);
        let was_damaged = self.excused.remove(&id).is_some();
        if let Some(pool) = self.pools.get_mut(&id) {
            (pool.lives, pool.was_damaged) = (false, was_damaged);
        }
        self.probes.retain(|probe| probe.pool != id);
    }

    fn config_is_there(&mut self, at: Timestamp, before: Option<&Value>, object: &Value) {
        let uid = text(object, "/spec/poolRef/uid");
        let retired = text(object, "/status/retired/uid");
        let revision = text(object, "/status/rendered/revision");
        let name = text(object, "/metadata/name");
        let Some(pool) = self.pools.values_mut().find(|pool| pool.uid == uid) else {
            return;
        };
        let lives = pool.lives;
        // Revision and content are one: what was never rendered has none, and goes back to nothing when it is
        // recreated.
        let forward = revision.is_empty() || pool.moves_forward(CONFIG, revision);
        let is_rendered = |object: &Value| object.pointer("/status/rendered").is_some();
        if retired.is_empty() && before.is_some_and(is_rendered) && !is_rendered(object) {
            let what = format!("OperatingSystemConfig {name} has lost its documents");
            self.broken(at, Invariant::NotLost, what);
        }
        if lives && !retired.is_empty() && retired == uid {
            let what = format!("OperatingSystemConfig {name} says that its pool is retired, which it is not");
            self.broken(at, Invariant::NotLost, what);
        }
        if !forward {
            let what = format!("OperatingSystemConfig {name} went back to revision {revision:?}");
            self.broken(at, Invariant::Forward, what);
        }
    }

    /// Someone has changed or deleted an object: what hung on it is excused until the pool is good again.
    fn interfered_with(&mut self, at: Timestamp, kind: &str, what: What, before: Option<&Value>) {
        let Some(before) = before else { return };
        let pool = label(before, names::POOL).to_owned();
        let name = text(before, "/metadata/name");
        if kind == "Secret" && is_bootstrap(before) && what == What::Deleted {
            self.no_longer_current(name);
        }
        match self.pools.get_mut(&pool) {
            Some(known) if known.lives => self.excuse(pool, at),
            // secret-syncer repairs the object until it learns that the pool is gone.
            Some(known) => known.was_damaged = true,
            None => {}
        }
    }

    pub fn excuse_all(&mut self, since: Timestamp) {
        let living = self.pools.iter().filter(|(_, pool)| pool.lives);
        for pool in living.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.excuse(pool, since);
        }
    }

    fn no_longer_current(&mut self, bootstrap: &str) {
        for probe in self
            .probes
            .iter_mut()
            .filter(|probe| probe.bootstrap == bootstrap)
        {
            probe.current = false;
        }
    }

    /// A bootstrap Secret of ours was written.
    fn published(&mut self, at: Timestamp, secret: &Value) {
        let name = text(secret, "/metadata/name").to_owned();
        let id = label(secret, names::POOL).to_owned();
        self.no_longer_current(&name);
        let revision = annotation(secret, names::MACHINE_DEPLOYMENT_REVISION);
        let Some(pool) = self.pools.get_mut(&id).filter(|pool| pool.lives) else {
            return;
        };
        if !pool.moves_forward("Secret", revision) {
            let has = pool.revision().to_owned();
            let what =
                format!("bootstrap Secret {name} went back to revision {revision:?}; the pool is at {has:?}");
            self.broken(at, Invariant::Forward, what);
        }
        let text = document(secret).and_then(|document| String::from_utf8(document).ok());
        let user_data = match (self.parse)(text.unwrap_or_default()) {
            Ok(user_data) => user_data,
            Err(error) => {
                let what = format!("the document in bootstrap Secret {name} can't be taken apart: {error:#}");
                return self.broken(at, Invariant::Reachable, what);
            }
        };
        let named = user_data.provisioning_secret.clone();
        let provisioning = self.made("Secret", &named).and_then(document);
        let owner = self
            .made("Secret", &named)
            .map(|secret| label(secret, names::POOL));
        if owner.is_some_and(|owner| owner != id) {
            let what = format!("bootstrap Secret {name} names {named}, which is of another pool");
            self.broken(at, Invariant::Reachable, what);
        }
        let kubeconfig = names::kubeconfig_secret_name(&id);
        let fetches_kubeconfig = provisioning
            .as_ref()
            .is_some_and(|document| String::from_utf8_lossy(document).contains(&kubeconfig));
        match provisioning {
            None if self.excused.contains_key(&id) => {}
            None => {
                let what = format!("bootstrap Secret {name} names {named}, which is not there");
                self.broken(at, Invariant::Reachable, what);
            }
            Some(document) if osm_api::digest::sha256_hex(&document) != user_data.provisioning_digest => {
                let what =
                    format!("bootstrap Secret {name} has another SHA-256 than {named}, which it names");
                self.broken(at, Invariant::Digest, what);
            }
            Some(_) => {}
        }
        let mut tokens = vec![
            (user_data.api_token.clone(), Purpose::Fetch(named.clone()), &named),
            (user_data.kubelet_token, Purpose::Join, &named),
        ];
        if fetches_kubeconfig {
            let fetch = Purpose::Fetch(kubeconfig.clone());
            tokens.push((user_data.api_token, fetch, &kubeconfig));
        }
        for (token, purpose, needs) in tokens {
            match credential_probe::expiry(&token) {
                Ok(expires) => {
                    // The same token may have been written before: patched, or put back.
                    self.probes
                        .retain(|probe| probe.token != token || probe.purpose != purpose);
                    let (bootstrap, pool, needs) = (name.clone(), id.clone(), needs.clone());
                    self.probes.push(CredentialProbe {
                        bootstrap,
                        token,
                        purpose,
                        expires,
                        current: true,
                        pool,
                        needs,
                    });
                }
                Err(error) => {
                    let what = format!("bootstrap Secret {name} has no token for {purpose:?}: {error:#}");
                    self.broken(at, Invariant::Reachable, what);
                }
            }
        }
    }

    fn deleted(&mut self, at: Timestamp, kind: &str, object: &Value) {
        let name = text(object, "/metadata/name").to_owned();
        let id = label(object, names::POOL).to_owned();
        let Some(pool) = self.pools.get(&id) else { return };
        let bootstrap = kind == "Secret" && is_bootstrap(object);
        if !pool.lives {
            // Retired: whatever can be used as a credential goes first. A repair may still restore what
            // someone damaged before.
            let account = self.objects.iter().any(|((kind, namespace, _), object)| {
                kind == "ServiceAccount"
                    && namespace == CLOUD_INIT_SETTINGS
                    && label(object, names::POOL) == id
            });
            if kind != "ServiceAccount" && account && !pool.was_damaged {
                let what = format!("{kind} {name} of a retired pool was deleted before its ServiceAccount");
                self.broken(at, Invariant::Kept, what);
            }
            return;
        }
        if bootstrap {
            self.no_longer_current(&name);
            let immutable = object.pointer("/immutable") == Some(&Value::Bool(true));
            if !immutable {
                let what = format!("bootstrap Secret {name} is gone, and its pool lives");
                self.broken(at, Invariant::Reachable, what);
            }
        } else if self.excused.contains_key(&id) {
            // What someone has damaged may have to be restored.
        } else if kind == "Secret" {
            // What is refused by now has no probe any more: the token to fetch it with may be dead, and the
            // one to join with alive.
            let valid = self.probes.iter().find(|probe| {
                let fetches = matches!(probe.purpose, Purpose::Fetch(_));
                fetches && probe.needs == name && at < probe.expires
            });
            if let Some(expires) = valid.map(|probe| probe.expires) {
                let what = format!("Secret {name} was deleted, and a token may fetch it until {expires}");
                self.broken(at, Invariant::Kept, what);
                self.probes.retain(|probe| probe.needs != name);
            }
        } else {
            let what = format!("{kind} {name} of a pool that lives was deleted");
            self.broken(at, Invariant::NotLost, what);
            self.probes.retain(|probe| probe.pool != id);
        }
    }
}

/// What keeps a config of a living pool from being done, if anything does.
fn unsettled(config: &Value) -> Option<String> {
    let generation = config.pointer("/metadata/generation").and_then(Value::as_i64);
    let conditions = config.pointer("/status/conditions").and_then(Value::as_array);
    for type_ in ["Rendered", "Published", "Ready"] {
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|condition| text(condition, "/type") == type_);
        let Some(condition) = condition else {
            return Some(format!("there is no condition {type_}"));
        };
        if text(condition, "/status") != "True" {
            let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
            return Some(format!("{type_} is not True: {reason}: {message}"));
        }
        if condition.pointer("/observedGeneration").and_then(Value::as_i64) != generation {
            return Some(format!("{type_} is about another generation"));
        }
    }
    let is_refusal = |condition: &Value| text(condition, "/type") == "Current";
    if conditions.into_iter().flatten().any(is_refusal) {
        return Some("Current reports a refused edit".to_owned());
    }
    let wanted = text(config, "/status/rendered/revision");
    let published = text(config, "/status/published/revision");
    (wanted != published).then(|| format!("revision {published:?} is published, not {wanted:?}"))
}

fn is_bootstrap(secret: &Value) -> bool {
    text(secret, "/metadata/name").ends_with("-bootstrap-config") && !label(secret, names::POOL).is_empty()
}

/// Whether a change has left document, revision and pool as they were.
fn is_same_document(before: &Value, after: &Value, what: What) -> bool {
    let revision = |secret| annotation(secret, names::MACHINE_DEPLOYMENT_REVISION);
    what != What::Deleted
        && before.pointer("/data") == after.pointer("/data")
        && revision(before) == revision(after)
        && label(before, names::POOL) == label(after, names::POOL)
}

fn pool_id(machine_deployment: &Value) -> String {
    names::pool_id(
        text(machine_deployment, "/metadata/namespace"),
        text(machine_deployment, "/metadata/name"),
        text(machine_deployment, "/metadata/uid"),
    )
}

fn document(secret: &Value) -> Option<Vec<u8>> {
    let data = secret.pointer("/data")?.get(names::CLOUD_CONFIG_KEY)?.as_str()?;
    STANDARD.decode(data).ok()
}

/// As a machine reads it from its provisioning Secret.
fn fetched(secret: &Value) -> Option<Vec<u8>> {
    let secret = Secret::deserialize(secret).ok()?;
    provisioning::document(secret).ok().map(String::into_bytes)
}

/// The text at this JSON pointer; empty where there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    of_map(object, "/metadata/labels", key)
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    of_map(object, "/metadata/annotations", key)
}

fn of_map<'a>(object: &'a Value, map: &str, key: &str) -> &'a str {
    object
        .pointer(map)
        .and_then(|map| map.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}
