//! All decisions of secret-syncer, from what was gathered alone: no client, no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::condition::{PUBLISHED, REASON_UNDONE, Verdict};
use osm_api::config::{MachineDeploymentRef, Rendered};
use osm_api::names;
use osm_api::settings::{Credentials, NodeBootstrap, NodeBootstrapKind};
use osm_runtime::strangers::CLUSTER_CHANGED;

use crate::gather::{Clusters, Gathered, Inherited, Made};
use crate::key::DigestKey;
use crate::view::{ConfigView, Meta, SecretView};

/// How long what belongs to no OperatingSystemConfig is left alone.
const ORPHAN_AGE: SignedDuration = SignedDuration::from_hours(24);
/// Waiting for others is not worth a word before.
const PATIENCE: SignedDuration = SignedDuration::from_secs(3);
/// osc-controller writes a config and vouches for it in two requests; longer than this means that it does not come to it.
const UNVOUCHED_PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// Everything is looked at again at least this often: timers don't count the time that a machine sleeps.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// A document is kept this much longer than the last token that may fetch it.
const KEEP_LONGER: SignedDuration = SignedDuration::from_hours(1);

/// What is to be done. It leaves no choice to whoever does it.
#[derive(Debug)]
pub struct Plan {
    /// For the pool of the config.
    pub step: Step,
    /// For pools whose config is not there.
    pub orphans: Vec<OrphanStep>,
    /// What is of another cluster, and so left alone.
    pub stranger: Option<String>,
    /// Look again after this time, though nothing changes.
    pub again: Option<Duration>,
}

/// What is to be done for the pool of the config.
#[derive(Debug)]
pub enum Step {
    /// Nothing: there is no config, or it is another controller's turn.
    None,
    /// The status says why nothing can be published; what was published stays.
    Say(Verdict),
    /// Everything stands; old documents may have to go, and the status to be put right.
    Keep(Keep),
    /// The content has to be looked at, and published if it is not what stands.
    Publish(Box<Publish>),
    /// The pool is gone: undo everything that was ever made for this config.
    Undo(Vec<Made>),
}

/// Everything stands.
#[derive(Debug, Default)]
pub struct Keep {
    /// Provisioning Secrets that no living token may fetch, and the script of a pool that has none any more: deleted.
    pub outdated: Vec<Arc<SecretView>>,
    /// What the Role is to open afterwards; `None`: it does.
    pub narrow: Option<Vec<String>>,
}

/// Why a pool is published (again).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Cause {
    /// The documents have not been compared since this process started; perhaps nothing is to be done.
    Unverified,
    Missing,
    NewContent,
    NewRevision,
    Altered,
    TokensDead,
    RenewalDue,
    RoleAltered,
}

/// How a pool is published.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Why.
    pub causes: Vec<Cause>,
    /// The generation to publish: of no other may the content be.
    pub generation: i64,
    /// Revision for machine-controller.
    pub revision: String,
    /// Digest of the content.
    pub digest: String,
    /// Name of the bootstrap Secret.
    pub bootstrap_name: String,
    /// Name of the Secret with the script of an edge pool.
    pub edge_script_name: Option<String>,
    /// Name of the pool's ServiceAccount, Role and RoleBinding.
    pub identity: String,
    /// Labels and annotations of everything of the pool.
    pub marks: Marks,
    /// With what its kubelets join.
    pub node_bootstrap: NodeBootstrap,
    /// `osm-node-bootstrap` is missing, and wanted.
    pub create_node_account: bool,
    /// Life to ask for.
    pub life: Duration,
    /// Until when the provisioning Secret is kept at least.
    pub keep_until: Timestamp,
    /// Provisioning Secrets that stay, by name: a token that is still alive may fetch them.
    pub kept: Vec<String>,
}

/// Labels and annotations that tell whose an object is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Marks {
    /// Those of a pool.
    pub fn new(gathered: &Gathered, md: &MachineDeploymentRef) -> Self {
        Self {
            labels: BTreeMap::from([(names::POOL.to_owned(), gathered.pool.clone())]),
            annotations: BTreeMap::from([
                (names::CONFIG.to_owned(), gathered.name.clone()),
                (names::MANAGEMENT_CLUSTER_UID.to_owned(), gathered.clusters.management.clone()),
                (names::OWNER.to_owned(), format!("{}/{}", md.namespace, md.name)),
            ]),
        }
    }

    /// Whether an object has them.
    fn are_on(&self, meta: &Meta) -> bool {
        let all = |wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>| {
            wanted.iter().all(|(name, value)| found.get(name) == Some(value))
        };
        all(&self.labels, &meta.labels) && all(&self.annotations, &meta.annotations)
    }

    /// Labels of an object for this purpose.
    pub fn labels(&self, installation: &str, role: &'static str) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(names::INSTALLATION.to_owned(), installation.to_owned());
        labels.insert(names::ROLE.to_owned(), role.to_owned());
        labels
    }
}

/// What is to be done for a pool whose config is not there.
#[derive(Debug)]
pub enum OrphanStep {
    /// Its Secrets are marked with the time.
    Mark(Vec<Arc<SecretView>>),
    /// It has been without a config for a day: undone, if the API server itself says that there is none, and that the
    /// pool's MachineDeployment is gone too.
    Collect(Box<Made>),
}

/// Decides.
pub fn plan(gathered: &Gathered) -> Plan {
    let (mut orphans, mut again) = orphans(gathered);
    let (step, step_again) = match &gathered.config {
        Some(config) => for_config(gathered, config),
        None => {
            // Without a config its pool is not known either: everything of that name is in the strays.
            (Step::None, None)
        }
    };
    again = [again, step_again].into_iter().flatten().min();
    // Undone already; or osc-controller has yet to say what the config is for.
    let unsure = gathered.config.as_ref().is_some_and(|config| config.vouched().is_none());
    if unsure || matches!(step, Step::Undo(_)) {
        orphans.clear();
    }
    let stranger = match &step {
        Step::Say(verdict) if verdict.reason == CLUSTER_CHANGED => Some(verdict.message.clone()),
        _ => foreign_strays(gathered),
    };
    Plan { step, orphans, stranger, again }
}

/// Only the management cluster by way of which something was published can tell that it is no longer wanted.
fn foreign_strays(gathered: &Gathered) -> Option<String> {
    let foreign = |(_, made): &&(String, Made)| made.is_of_another(&gathered.clusters.management);
    let (pool, _) = gathered.strays.iter().find(foreign)?;
    Some(format!(
        "what stands in cloud-init-settings for pool {pool} was published by way of another management cluster than the \
         one that --kubeconfig leads to, whose kube-system namespace has uid {}: it is left alone. Correct --kubeconfig \
         and restart the services; or, if that cluster is gone for good, delete the Secrets, ServiceAccounts, Roles and \
         RoleBindings with label {}={pool} there",
        gathered.clusters.management,
        names::POOL
    ))
}

/// What the API server of a cluster said is worth nothing once it is another.
pub fn cluster_changed(was: &str, is: &str) -> String {
    format!(
        "it was made for another cluster (its kube-system namespace has uid {was}, that of this one {is}): nothing is \
         published or undone. Correct the kubeconfig of that cluster and restart osc-controller and secret-syncer, or \
         delete this object if it is gone for good"
    )
}

fn for_config(gathered: &Gathered, config: &Arc<ConfigView>) -> (Step, Option<Duration>) {
    let Some(md) = &config.machine_deployment else { return not_taken_over(gathered, config) };
    let Clusters { management, worker } = &gathered.clusters;
    if let Some(was) = config.made_in.as_ref().filter(|made_in| *made_in != worker) {
        return (say(CLUSTER_CHANGED, &cluster_changed(was, worker)), Some(LOOK_AGAIN));
    }
    if config.is_retired() {
        let mut left = vec![gathered.made.clone()];
        let strays = gathered.strays.iter().map(|(_, made)| made);
        left.extend(strays.filter(|made| !made.is_of_another(management)).cloned());
        left.retain(|made| !made.is_nothing());
        let step = if config.is_undone() && left.is_empty() { Step::None } else { Step::Undo(left) };
        return (step, None);
    }
    let waited = gathered.now.duration_since(gathered.waiting_since);
    let patience = |patience: SignedDuration, step: Step| {
        if waited < patience {
            (Step::None, Some(until(gathered.now, gathered.waiting_since + patience)))
        } else {
            (step, None)
        }
    };
    let Some(vouched) = config.vouched() else {
        return match &config.status.rendered {
            None => {
                let message = "osc-controller has not rendered it; its condition Rendered says why";
                patience(PATIENCE, say("AwaitingRendering", message))
            }
            // osc-controller's turn: it puts right what somebody else wrote.
            Some(_) => patience(UNVOUCHED_PATIENCE, say("AwaitingRendering", &unvouched(config))),
        };
    };
    let without = config.is_edge.then(String::new);
    let Some(revision) = vouched.revision.as_ref().or(without.as_ref()) else {
        let message = "machine-controller has not stamped the MachineDeployment's revision yet; without it no machine could use the Secret";
        return patience(PATIENCE, say("AwaitingRevision", message));
    };
    if let Some(name) = &gathered.foreign {
        let error = crate::Error::ForeignSecret { name: name.clone() };
        let reason = osm_runtime::runner::Failure::reason(&error);
        return (say(reason, &error.to_string()), Some(Duration::from_secs(60)));
    }
    let causes = causes(gathered, config, revision);
    if causes.is_empty() {
        return keep(gathered, config);
    }
    (Step::Publish(Box::new(publish(gathered, config, md, vouched, revision, causes))), None)
}

/// What the Go implementation made, until osc-controller can render it. Nothing of it is touched.
fn not_taken_over(gathered: &Gathered, config: &ConfigView) -> (Step, Option<Duration>) {
    if !config.is_claimed() {
        return (Step::None, None);
    }
    let message = match &gathered.inherited {
        None => {
            "osc-controller has not rendered it; its condition Rendered says why. There is no bootstrap Secret: no machine \
             can be made"
                .to_owned()
        }
        Some(Inherited { name, revision }) => {
            let revision = revision.as_deref().map(|at| format!(" at revision {at}")).unwrap_or_default();
            format!(
                "osc-controller has not rendered it; its condition Rendered says why. Machines are made{revision} from Secret \
                 {name}, which another program made: it stays untouched, nobody here renews the credentials in it, and \
                 when they expire is not known here"
            )
        }
    };
    (say("NotTakenOver", &message), Some(LOOK_AGAIN))
}

fn unvouched(config: &ConfigView) -> String {
    let until = match &config.status.published {
        Some(published) => format!("; what was published is good until {}", published.credential_expires),
        None => String::new(),
    };
    format!(
        "osc-controller has not vouched for the newest generation; its condition Rendered says why{until}"
    )
}

fn say(reason: &'static str, message: &str) -> Step {
    Step::Say(Verdict { type_: PUBLISHED, status: false, reason, message: message.to_owned() })
}

fn causes(gathered: &Gathered, config: &ConfigView, revision: &str) -> Vec<Cause> {
    let Made { bootstrap, edge_script, provisioning, account, role, binding } = &gathered.made;
    let Some(bootstrap) = bootstrap else { return vec![Cause::Missing] };
    let meta = &bootstrap.meta;
    let marks = config.machine_deployment.as_ref().map(|md| Marks::new(gathered, md));
    let marked = |meta: &Meta| marks.as_ref().is_some_and(|marks| marks.are_on(meta));
    let is = |key: &str, wanted: &str| meta.annotation(key) == Some(wanted);
    let mut causes = Vec::new();
    let mut check = |good: bool, cause: Cause| {
        if !good {
            causes.push(cause);
        }
    };
    check(gathered.verified, Cause::Unverified);
    check(is(names::MACHINE_DEPLOYMENT_REVISION, revision), Cause::NewRevision);
    check(is(names::INPUTS_MAC, &gathered.inputs_mac), Cause::NewContent);
    check(is(names::PUBLISHED_FROM, &config.published_from()), Cause::NewContent);
    let sealed = bootstrap.content.as_deref().map(|content| seal(&gathered.key, content, &meta.annotations));
    let whole = sealed.is_some() && meta.annotation(names::CONTENT_MAC) == sealed.as_deref();
    check(whole && !bootstrap.immutable && marked(meta), Cause::Altered);
    if config.is_edge {
        let sealed = |secret: &SecretView| {
            let content = secret.content.as_deref();
            content.map(|content| seal(&gathered.key, content, &secret.meta.annotations))
        };
        let whole = |secret: &SecretView| {
            // The same annotations: both were written with the same tokens.
            sealed(secret).as_deref() == secret.meta.annotation(names::CONTENT_MAC)
                && SEALED.iter().all(|name| secret.meta.annotation(name) == meta.annotation(name))
                && !secret.immutable
                && marked(&secret.meta)
                && secret.meta.annotation(names::ORPHANED_SINCE).is_none()
        };
        check(edge_script.as_deref().is_some_and(whole), Cause::Altered);
    }
    let named = meta.annotation(names::PROVISIONING_SECRET).unwrap_or_default();
    let document = provisioning.iter().find(|secret| secret.meta.name == named);
    let binds = bound_to(
        account.as_deref().map(|a| a.uid.as_str()),
        joins_by(&gathered.credentials.node_bootstrap, gathered.node_account.as_deref()).as_deref(),
        document.map(|s| s.meta.uid.as_str()),
    );
    check(binds.is_some() && meta.annotation(names::BOUND_TO) == binds.as_deref(), Cause::TokensDead);
    let whole = |secret: &SecretView| {
        secret.immutable && marked(&secret.meta) && secret.meta.annotation(names::ORPHANED_SINCE).is_none()
    };
    check(document.is_none_or(|document| whole(document)), Cause::Altered);
    let renewal = meta.time(names::RENEW_AT);
    check(renewal.is_some_and(|at| gathered.now < at), Cause::RenewalDue);
    let opened = role.as_ref().and_then(|role| role.secrets.as_ref());
    let opens = opened.is_some_and(|opened| opened.iter().any(|name| name == named));
    check(opens && binding.as_ref().is_some_and(|binding| binding.good), Cause::RoleAltered);
    check(meta.annotation(names::ORPHANED_SINCE).is_none(), Cause::Altered);
    causes.sort_unstable();
    causes.dedup();
    causes
}

/// Value of [`names::BOUND_TO`]; `None` where one of the three is missing.
pub fn bound_to(account: Option<&str>, joins_by: Option<&str>, secret: Option<&str>) -> Option<String> {
    Some(format!("{}/{}/{}", account?, joins_by?, secret?))
}

/// Group of every bootstrap token.
const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// What the token of a pool's kubelets stands on: the uid of `osm-node-bootstrap`, or the groups of a bootstrap token.
pub fn joins_by(with: &NodeBootstrap, node_account: Option<&str>) -> Option<String> {
    match with.kind {
        NodeBootstrapKind::ServiceAccountToken => node_account.map(str::to_owned),
        NodeBootstrapKind::BootstrapToken => Some(
            std::iter::once(BOOTSTRAPPERS)
                .chain(with.groups.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join(","),
        ),
    }
}

/// While no valid settings are known, a pool's tokens stay of the kind that they are.
pub fn credentials_without_settings(bootstrap: Option<&SecretView>) -> Credentials {
    let bound = bootstrap.and_then(|secret| secret.meta.annotation(names::BOUND_TO));
    let joins_by = bound.and_then(|bound| bound.split('/').nth(1)).unwrap_or_default();
    let mut groups = joins_by.split(',').map(str::to_owned);
    let mut credentials = Credentials::default();
    if groups.next().as_deref() == Some(BOOTSTRAPPERS) {
        let kind = NodeBootstrapKind::BootstrapToken;
        credentials.node_bootstrap = NodeBootstrap { kind, groups: groups.collect() };
    }
    credentials
}

/// Annotations of a bootstrap Secret on which decisions rest.
const SEALED: [&str; 8] = [
    names::MACHINE_DEPLOYMENT_REVISION,
    names::PUBLISHED_FROM,
    names::INPUTS_MAC,
    names::DOCUMENT_MAC,
    names::PROVISIONING_SECRET,
    names::BOUND_TO,
    names::EXPIRES,
    names::RENEW_AT,
];

/// Value of [`names::CONTENT_MAC`] for a document with this SHA-256 and these annotations: nobody changes either
/// without being noticed.
pub fn seal(key: &DigestKey, content_digest: &str, annotations: &BTreeMap<String, String>) -> String {
    let mut parts: Vec<&[u8]> = vec![b"content", content_digest.as_bytes()];
    parts.extend(SEALED.iter().map(|name| annotations.get(*name).map_or(b"".as_slice(), String::as_bytes)));
    key.mac(&parts)
}

fn publish(
    gathered: &Gathered,
    config: &ConfigView,
    md: &MachineDeploymentRef,
    vouched: &Rendered,
    revision: &str,
    causes: Vec<Cause>,
) -> Publish {
    let life = gathered.credentials.token_lifetime();
    let keep = SignedDuration::try_from(life).unwrap_or(SignedDuration::from_hours(24)) + KEEP_LONGER;
    Publish {
        causes,
        generation: config.generation,
        revision: revision.to_owned(),
        digest: vouched.digest.clone(),
        bootstrap_name: names::bootstrap_secret_name(&md.name, &md.namespace),
        edge_script_name: config.is_edge.then(|| names::edge_script_secret_name(&md.name, &md.namespace)),
        identity: names::pool_object("node", &gathered.pool),
        marks: Marks::new(gathered, md),
        create_node_account: gathered.node_account.is_none()
            && gathered.credentials.node_bootstrap.kind == NodeBootstrapKind::ServiceAccountToken,
        node_bootstrap: gathered.credentials.node_bootstrap.clone(),
        life,
        keep_until: gathered.now.saturating_add(keep).unwrap_or(Timestamp::MAX),
        kept: kept(gathered).into_iter().map(|secret| secret.meta.name.clone()).collect(),
    }
}

/// Provisioning Secrets that the live bootstrap Secret names, or that a living token may fetch.
fn kept(gathered: &Gathered) -> Vec<&Arc<SecretView>> {
    let named = gathered
        .made
        .bootstrap
        .as_ref()
        .and_then(|secret| secret.meta.annotation(names::PROVISIONING_SECRET));
    let stays = |secret: &&Arc<SecretView>| {
        // Without a readable date it was altered; it stays, for its tokens may be alive.
        named == Some(secret.meta.name.as_str())
            || secret.meta.time(names::KEEP_UNTIL).is_none_or(|until| gathered.now < until)
    };
    gathered.made.provisioning.iter().filter(stays).collect()
}

fn keep(gathered: &Gathered, config: &ConfigView) -> (Step, Option<Duration>) {
    let kept = kept(gathered);
    let names: Vec<String> = kept.iter().map(|secret| secret.meta.name.clone()).collect();
    let outdated = gathered
        .made
        .provisioning
        .iter()
        .filter(|secret| !names.contains(&secret.meta.name))
        .chain(gathered.made.edge_script.iter().filter(|_| !config.is_edge))
        .cloned()
        .collect();
    let opened = gathered.made.role.as_ref().and_then(|role| role.secrets.clone());
    let narrow = (opened.as_ref() != Some(&names)).then(|| names.clone());
    let named = gathered.made.bootstrap.as_ref();
    let renewal = named.and_then(|secret| secret.meta.time(names::RENEW_AT));
    let next = kept
        .iter()
        .filter(|secret| {
            named.and_then(|named| named.meta.annotation(names::PROVISIONING_SECRET))
                != Some(secret.meta.name.as_str())
        })
        .filter_map(|secret| secret.meta.time(names::KEEP_UNTIL))
        .chain(renewal)
        .min();
    let again = next.map_or(LOOK_AGAIN, |at| until(gathered.now, at).min(LOOK_AGAIN));
    (Step::Keep(Keep { outdated, narrow }), Some(again))
}

/// Time from `now` to `at`, at least a second.
fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default().max(Duration::from_secs(1))
}

fn orphans(gathered: &Gathered) -> (Vec<OrphanStep>, Option<Duration>) {
    let (mut steps, mut again) = (Vec::new(), None);
    let mut may_collect = gathered.may_collect;
    let ours = |(_, stray): &&(String, Made)| !stray.is_of_another(&gathered.clusters.management);
    for (_, stray) in gathered.strays.iter().filter(ours) {
        let secrets: Vec<_> = stray.secrets().cloned().collect();
        let since =
            secrets.iter().map(|secret| secret.meta.time(names::ORPHANED_SINCE)).collect::<Option<Vec<_>>>();
        let since = since.and_then(|times| times.into_iter().max());
        match since {
            Some(since) if gathered.now.duration_since(since) >= ORPHAN_AGE => {
                if may_collect > 0 {
                    may_collect -= 1;
                    steps.push(OrphanStep::Collect(Box::new(stray.clone())));
                }
                again = Some(LOOK_AGAIN);
            }
            Some(_) => again = Some(LOOK_AGAIN),
            // No Secret of it is left: its identity opens nothing, and goes with the next successor or by hand.
            None if secrets.is_empty() => steps.push(OrphanStep::Collect(Box::new(stray.clone()))),
            None => {
                let unmarked =
                    secrets.into_iter().filter(|secret| secret.meta.time(names::ORPHANED_SINCE).is_none());
                steps.push(OrphanStep::Mark(unmarked.collect()));
                again = Some(LOOK_AGAIN);
            }
        }
    }
    (steps, again)
}

/// Verdict once a retired pool is undone.
pub fn undone() -> Verdict {
    let message = "its pool is gone, and everything made for it is undone".to_owned();
    Verdict { type_: PUBLISHED, status: false, reason: REASON_UNDONE, message }
}

/// Verdict while everything stands.
pub fn published(expires: Timestamp) -> Verdict {
    let message =
        format!("machines can be made; its credentials are good until {expires} and renewed before");
    Verdict { type_: PUBLISHED, status: true, reason: "Published", message }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
