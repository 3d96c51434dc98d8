//! All decisions of osc-controller, from what was gathered alone: no client, no clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use osm_api::condition::{RENDERED, Verdict};
use osm_api::config::{MachineDeploymentRef, OperatingSystemConfigSpec, ProfileRef, Rendered, Retired};
use osm_api::profile::AcceptedProfile;
use osm_api::{MachineDeployment, Pool, names, pool};
use osm_render::Profile;
use osm_runtime::strangers::CLUSTER_CHANGED;

use crate::finalizer::{self, Finalizer};
use crate::gather::{Fate, FoundProfile, Gathered, ProfileLookup, SettingsLookup};
use crate::view::{self, ConfigView};

/// How long a new revision waits for the verdict on a profile that has just been changed.
const VERDICT_WAIT: SignedDuration = SignedDuration::from_secs(10);

const CORRECT_KUBECONFIG: &str = "Correct the kubeconfig of that cluster and restart osc-controller and secret-syncer, or \
                                  delete those objects if it is gone for good.";
/// What nothing tells of is looked at again after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// What is to be done. It leaves no choice to whoever does it.
#[derive(Debug, Default)]
pub struct Plan {
    /// What becomes of the object.
    pub object: ObjectPlan,
    /// What is to stand in the status; `None`: leave it.
    pub status: Option<StatusPlan>,
    /// MachineDeployments that get no OperatingSystemConfig, and why.
    pub rejected: Vec<Rejection>,
    /// The MachineDeployment to tell about failure and recovery.
    pub about: Option<ObjectReference>,
    /// Finalizers of the Go implementation on MachineDeployments that are being deleted.
    pub finalizers: Vec<Finalizer>,
    /// Look again after this time, though nothing changes.
    pub again: Option<Duration>,
}

/// What becomes of an OperatingSystemConfig.
#[derive(Debug, Default)]
pub enum ObjectPlan {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is created.
    Create(ObjectMeta, Box<OperatingSystemConfigSpec>),
    /// It is replaced; the metadata carries the resourceVersion that was seen.
    Replace(ObjectMeta, Box<OperatingSystemConfigSpec>),
    /// It is deleted, if it still is the one that was seen.
    Delete {
        /// uid that was seen.
        uid: String,
        /// resourceVersion that was seen.
        resource_version: String,
    },
}

/// The fields of the status that osc-controller owns.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    /// The condition `Rendered`.
    pub verdict: Verdict,
    /// What is vouched for.
    pub rendered: Vouched,
    /// The pool is gone.
    pub retired: Option<Retired>,
}

/// What `status.rendered` is to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Vouched {
    /// The last good result stays.
    Last(Option<Rendered>),
    /// The content that is being written; its generation is what the server answers.
    Written(Rendered),
}

/// A MachineDeployment that can't have an OperatingSystemConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The MachineDeployment.
    pub about: ObjectReference,
    /// Its uid.
    pub uid: String,
    /// `NameConflict`, `NameTooLong` or `ClusterChanged`.
    pub reason: &'static str,
    /// What and how to mend it.
    pub message: String,
}

/// Decides.
pub fn plan(gathered: &Gathered) -> Plan {
    let mut plan = for_config(gathered);
    let (finalizers, again) = finalizer::left_behind(gathered);
    plan.finalizers = finalizers;
    plan.again = [plan.again, again].into_iter().flatten().min();
    plan
}

fn for_config(gathered: &Gathered) -> Plan {
    if let Some(rejected) = too_long(gathered) {
        return Plan { rejected, ..Plan::default() };
    }
    if let Some(other) = &gathered.elsewhere {
        let message = format!(
            "every OperatingSystemConfig here was made for another cluster, whose kube-system namespace has uid {other}; \
             that of this one has uid {}. No machine of this pool can get user data. {CORRECT_KUBECONFIG}",
            gathered.cluster_uid
        );
        let rejected =
            gathered.claimants.iter().map(|md| reject(md, CLUSTER_CHANGED, message.clone())).collect();
        return Plan { rejected, again: Some(LOOK_AGAIN), ..Plan::default() };
    }
    if let Some(config) = &gathered.config
        && (config.is_retired() || gathered.fate != Fate::Lives)
    {
        return departed(gathered, config);
    }
    let Some((owner, others)) = gathered.claimants.split_first() else {
        // No pool, and an object that names none: it is the Go implementation's, or somebody's. Not ours to judge.
        return Plan::default();
    };
    let mut plan = for_owner(gathered, owner);
    if let (Some(refused), Some(status)) = (&gathered.settings_refused, &mut plan.status) {
        let message = format!("; the settings' newest edit is not accepted and not in it: {refused}");
        status.verdict.message.push_str(&message);
    }
    plan.rejected = others.iter().map(|other| conflict(other, owner, &gathered.name)).collect();
    plan.about = Some(view::reference(owner));
    plan
}

fn too_long(gathered: &Gathered) -> Option<Vec<Rejection>> {
    let rejections: Vec<_> = gathered
        .claimants
        .iter()
        .filter_map(|md| {
            let (name, namespace) = (md.name_any(), md.namespace().unwrap_or_default());
            let cloud = md.spec.template.pointer("/spec/providerSpec/value/cloudProvider");
            let (what, secret) = if cloud.and_then(serde_json::Value::as_str) == Some("edge") {
                ("the Secret with its script", names::edge_script_secret_name(&name, &namespace))
            } else {
                (
                    "its bootstrap Secret, which machine-controller prescribes,",
                    names::bootstrap_secret_name(&name, &namespace),
                )
            };
            let excess = secret.len().checked_sub(names::MAX_NAME).filter(|excess| *excess > 0)?;
            let message = format!(
                "the name of {what} would be {} characters long and may be {}: no machine of this pool can get user data. \
                 Shorten the MachineDeployment's name by {excess}.",
                secret.len(),
                names::MAX_NAME
            );
            Some(reject(md, "NameTooLong", message))
        })
        .collect();
    (!rejections.is_empty()).then_some(rejections)
}

fn conflict(md: &Arc<MachineDeployment>, owner: &Arc<MachineDeployment>, name: &str) -> Rejection {
    let message = format!(
        "its OperatingSystemConfig and Secrets would have the same names ({name}) as those of MachineDeployment {}/{}, \
         which is older: no machine of this pool can get user data. Rename one of the two.",
        owner.namespace().unwrap_or_default(),
        owner.name_any()
    );
    reject(md, "NameConflict", message)
}

fn reject(md: &Arc<MachineDeployment>, reason: &'static str, message: String) -> Rejection {
    Rejection { about: view::reference(md), uid: md.uid().unwrap_or_default(), reason, message }
}

/// The pool of this config is gone, or so it seems.
fn departed(gathered: &Gathered, config: &ConfigView) -> Plan {
    let meta = &config.metadata;
    if config.is_undone() {
        let (uid, resource_version) = (meta.uid.clone(), meta.resource_version.clone());
        let (uid, resource_version) = (uid.unwrap_or_default(), resource_version.unwrap_or_default());
        return Plan { object: ObjectPlan::Delete { uid, resource_version }, ..Plan::default() };
    }
    let last = Vouched::Last(config.status.rendered.clone());
    if config.is_retired() {
        // secret-syncer's turn.
        return Plan::default();
    }
    let (reason, message, retired) = match gathered.fate {
        Fate::Gone => (
            "Retired",
            "its MachineDeployment is gone; everything made for it is being undone".to_owned(),
            Some(Retired {
                uid: config.pool_uid().unwrap_or_default().to_owned(),
                generation: meta.generation.unwrap_or(0),
            }),
        ),
        Fate::OtherCluster => (
            CLUSTER_CHANGED,
            format!(
                "it was made for another cluster (its kube-system namespace has uid {}, that of this one {}): nothing is \
                 rendered, published or undone. {CORRECT_KUBECONFIG}",
                config.made_in().unwrap_or_default(),
                gathered.cluster_uid
            ),
            None,
        ),
        Fate::Unseen | Fate::Lives => return Plan { again: Some(Duration::from_secs(5)), ..Plan::default() },
    };
    let verdict = Verdict { type_: RENDERED, status: false, reason, message };
    let again = retired.is_none().then_some(LOOK_AGAIN);
    Plan { status: Some(StatusPlan { verdict, rendered: last, retired }), again, ..Plan::default() }
}

fn for_owner(gathered: &Gathered, owner: &Arc<MachineDeployment>) -> Plan {
    let config = gathered.config.as_deref();
    match decide(gathered, owner, config) {
        Decision::Render(rendered) => written(gathered, owner, config, *rendered),
        Decision::Hold { mut verdict, again } => {
            if config.is_some_and(is_edited) {
                verdict.status = false;
                verdict.message.push_str(
                    "; somebody has edited this object, and nothing of it is published until it can be rendered again",
                );
            }
            if config.is_some_and(ConfigView::is_of_the_go_implementation) {
                verdict.message.push_str(&inherited(owner));
            }
            let object = match config {
                Some(_) => ObjectPlan::Keep,
                // The table of pools shows every pool, also one that can't be rendered.
                None => ObjectPlan::Create(metadata(gathered, owner, None), Box::new(empty(owner))),
            };
            let last = config.and_then(|config| config.status.rendered.clone());
            let status = StatusPlan { verdict, rendered: Vouched::Last(last), retired: None };
            Plan { object, status: Some(status), again, ..Plan::default() }
        }
    }
}

/// What an operator has to know of a pool whose objects another program made, and nobody keeps current.
fn inherited(owner: &MachineDeployment) -> String {
    let label = names::go_pool_label(&owner.name_any(), &owner.namespace().unwrap_or_default());
    format!(
        ". Until it is rendered, machines go on booting with what the Go implementation made, which stays untouched. The \
         bootstrap token in it is renewed by nobody once that no longer runs, and lives for an hour at most; its end is \
         not known here (no right to read Secrets in kube-system), but `kubectl get secrets -n kube-system -l {}={label} -o \
         'go-template={{{{range .items}}}}{{{{.data.expiration | base64decode}}}}{{{{end}}}}'` tells it",
        names::GO_BOOTSTRAP_TOKEN_LABEL
    )
}

enum Decision {
    Render(Box<RenderedContent>),
    Hold { verdict: Verdict, again: Option<Duration> },
}

struct RenderedContent {
    rendered: osm_render::Rendered,
    profile: ProfileRef,
    settings_digest: String,
    message: String,
}

fn hold(status: bool, reason: &'static str, message: impl Into<String>) -> Decision {
    Decision::Hold {
        verdict: Verdict { type_: RENDERED, status, reason, message: message.into() },
        again: None,
    }
}

fn decide(gathered: &Gathered, owner: &Arc<MachineDeployment>, config: Option<&ConfigView>) -> Decision {
    let pool = match Pool::read(owner) {
        Ok(pool) => pool,
        Err(error) => return hold(false, error.reason(), error.to_string()),
    };
    let settings = match &gathered.settings {
        SettingsLookup::Found(settings) => settings,
        SettingsLookup::Refused { reason, message } => return hold(false, reason, message.clone()),
        SettingsLookup::Missing => {
            return hold(
                false,
                "SettingsMissing",
                "there is no valid settings document; osc-controller's log and /readyz say why",
            );
        }
    };
    let Some(endpoint) = &gathered.endpoint else {
        return hold(
            false,
            "EndpointUnknown",
            "neither the settings (cluster.apiServer, cluster.caBundle) nor kube-public/cluster-info nor the EndpointSlice \
             of default/kubernetes tell the API server's address and CA: set both in the settings",
        );
    };
    let found = match &gathered.profile {
        ProfileLookup::Found(found) => found,
        ProfileLookup::Unnamed => {
            return hold(false, "ProfileNotFound", "the MachineDeployment names no profile");
        }
        ProfileLookup::Unread { namespace } => {
            let annotation = names::PROFILE_NAMESPACE;
            let message = format!(
                "profiles are not read from namespace {namespace}, which the annotation {annotation} names: add it to \
                 --profile-namespaces of osp-controller and osc-controller, with their rights there"
            );
            return hold(false, "ProfileNotFound", message);
        }
        ProfileLookup::Missing { namespace, name } => {
            return hold(
                false,
                "ProfileNotFound",
                format!(
                    "there is no OperatingSystemProfile {namespace}/{name}: create it, or name another in the \
                     MachineDeployment's annotation {}",
                    names::PROFILE
                ),
            );
        }
    };
    if let Some(waiting) = waits_for_verdict(gathered, owner, config, found) {
        return waiting;
    }
    let (accepted, profile) = match &found.accepted {
        Some((accepted, Ok(profile))) => (accepted, profile),
        Some((_, Err(error))) => {
            return hold(false, error.reason(), format!("{}/{}: {error}", found.namespace, found.name));
        }
        None => {
            let why = found.refusal.as_deref().unwrap_or("osp-controller has not judged it yet");
            let message =
                format!("OperatingSystemProfile {}/{} is not accepted: {why}", found.namespace, found.name);
            return hold(false, "ProfileNotAccepted", message);
        }
    };
    if let Some(waiting) = waits_for_revision(owner, config) {
        return waiting;
    }
    let late = found.judged < found.generation && is_new_revision(owner, config);
    render(&pool, settings, endpoint, found, (accepted, profile), late)
}

fn is_new_revision(owner: &MachineDeployment, config: Option<&ConfigView>) -> bool {
    let known =
        config.and_then(|config| config.machine_deployment.as_ref()).and_then(|md| md.revision.as_deref());
    pool::revision(owner).is_some_and(|revision| known != Some(revision))
}

fn render(
    pool: &Pool,
    settings: &osm_runtime::settings::Current,
    endpoint: &osm_render::ClusterEndpoint,
    found: &FoundProfile,
    (accepted, profile): (&AcceptedProfile, &Profile),
    late: bool,
) -> Decision {
    let rendered = match profile.render(pool, &settings.settings, endpoint) {
        Ok(rendered) => rendered,
        Err(error) => {
            return hold(
                false,
                error.reason(),
                format!("profile {}/{}: {error}", found.namespace, found.name),
            );
        }
    };
    let mut message = format!("from profile {} {}", found.name, accepted.version);
    if late {
        message.push_str("; its newest edit has not been judged in time and is not in it");
    } else if let Some(refusal) = &found.refusal {
        message.push_str(&format!("; its newest edit is not accepted and not in it: {refusal}"));
    }
    for warning in &rendered.warnings {
        message.push_str(&format!("; {warning}"));
    }
    let profile = ProfileRef {
        namespace: found.namespace.clone(),
        name: found.name.clone(),
        version: accepted.version.clone(),
        digest: accepted.digest.clone(),
        template_engine: accepted.template_engine,
    };
    Decision::Render(Box::new(RenderedContent {
        rendered,
        profile,
        settings_digest: settings.digest.clone(),
        message,
    }))
}

/// A revision that is not in the config yet, while the profile's newest edit has not been judged.
fn waits_for_verdict(
    gathered: &Gathered,
    owner: &MachineDeployment,
    config: Option<&ConfigView>,
    found: &FoundProfile,
) -> Option<Decision> {
    if !is_new_revision(owner, config) || found.judged >= found.generation {
        return None;
    }
    let left = VERDICT_WAIT - gathered.now.duration_since(gathered.waiting_since);
    // The clock may have been put back meanwhile.
    let again = Duration::try_from(left.min(VERDICT_WAIT)).ok().filter(|left| !left.is_zero())?;
    let message = format!(
        "waits for osp-controller's verdict on the newest edit of {}/{}",
        found.namespace, found.name
    );
    let rendered = config.is_some_and(|config| config.status.rendered.is_some());
    let verdict = Verdict { type_: RENDERED, status: rendered, reason: "WaitingForProfile", message };
    Some(Decision::Hold { verdict, again: Some(again) })
}

/// The template was edited, but machine-controller has not stamped a revision for it yet: machines of the old
/// revision are still replaced with the old content.
fn waits_for_revision(owner: &MachineDeployment, config: Option<&ConfigView>) -> Option<Decision> {
    // Of one that somebody has edited, the old content is lost anyway.
    let config = config.filter(|config| config.status.rendered.is_some() && !is_edited(config))?;
    let known = config.machine_deployment.as_ref().filter(|known| known.revision.is_some())?;
    let same_revision = pool::revision(owner) == known.revision.as_deref();
    if !same_revision || pool::template_digest(owner) == known.template_digest {
        return None;
    }
    Some(hold(
        true,
        "WaitingForRevision",
        "the MachineDeployment's template was edited; its content follows when machine-controller stamps the new revision",
    ))
}

fn written(
    gathered: &Gathered,
    owner: &Arc<MachineDeployment>,
    config: Option<&ConfigView>,
    content: RenderedContent,
) -> Plan {
    let RenderedContent { rendered, profile, settings_digest, message } = content;
    let mut spec = rendered.spec;
    spec.machine_deployment = Some(pool_reference(owner));
    spec.profile = Some(profile);
    let vouched = Rendered {
        generation: 0,
        digest: spec.digest.clone().unwrap_or_default(),
        revision: pool::revision(owner).map(str::to_owned),
        settings_digest: Some(settings_digest),
        user_data_bytes: Some(rendered.user_data_bytes),
    };
    let meta = metadata(gathered, owner, config.map(|config| &config.metadata));
    let (object, vouched) = match config {
        None => (ObjectPlan::Create(meta, Box::new(spec)), Vouched::Written(vouched)),
        Some(config) if stands(config, &meta, &spec) => {
            let generation = config.metadata.generation.unwrap_or(0);
            (ObjectPlan::Keep, Vouched::Last(Some(Rendered { generation, ..vouched })))
        }
        Some(_) => (ObjectPlan::Replace(meta, Box::new(spec)), Vouched::Written(vouched)),
    };
    let verdict = Verdict { type_: RENDERED, status: true, reason: "Rendered", message };
    let status = Some(StatusPlan { verdict, rendered: vouched, retired: None });
    Plan { object, status, ..Plan::default() }
}

/// Whether the generation that stands there is one that nobody vouches for, after one that was good.
fn is_edited(config: &ConfigView) -> bool {
    let vouched = config.status.rendered.as_ref().map(|rendered| rendered.generation);
    vouched.is_some() && vouched != config.metadata.generation
}

/// Whether the object already is what it should be. Digests are compared as they were written; a generation that
/// nobody vouches for means that somebody else has written.
fn stands(config: &ConfigView, meta: &ObjectMeta, spec: &OperatingSystemConfigSpec) -> bool {
    config.digest == spec.digest
        && config.machine_deployment == spec.machine_deployment
        && config.profile == spec.profile
        && config.status.rendered.as_ref().map(|rendered| rendered.generation) == config.metadata.generation
        && config.metadata.annotations == meta.annotations
        && config.metadata.labels == meta.labels
}

fn metadata(gathered: &Gathered, owner: &MachineDeployment, current: Option<&ObjectMeta>) -> ObjectMeta {
    let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
    let mut meta = current
        .cloned()
        .unwrap_or_else(|| ObjectMeta { name: Some(gathered.name.clone()), ..ObjectMeta::default() });
    let annotations = meta.annotations.get_or_insert_with(BTreeMap::new);
    // They say that it is as the Go implementation made it.
    annotations.retain(|name, _| !names::GO_CONFIG_ANNOTATIONS.contains(&name.as_str()));
    annotations.insert(names::OWNER.to_owned(), format!("{namespace}/{name}"));
    annotations.entry(names::CLUSTER_UID.to_owned()).or_insert_with(|| gathered.cluster_uid.clone());
    let id = names::pool_id(&namespace, &name, &owner.uid().unwrap_or_default());
    meta.labels.get_or_insert_with(BTreeMap::new).insert(names::POOL.to_owned(), id);
    meta
}

fn pool_reference(owner: &MachineDeployment) -> MachineDeploymentRef {
    MachineDeploymentRef {
        namespace: owner.namespace().unwrap_or_default(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        revision: pool::revision(owner).map(str::to_owned),
        template_digest: pool::template_digest(owner),
    }
}

/// The object of a pool that has never been rendered. It names no revision: nothing of it is good for one.
fn empty(owner: &MachineDeployment) -> OperatingSystemConfigSpec {
    let machine_deployment = MachineDeploymentRef { revision: None, ..pool_reference(owner) };
    OperatingSystemConfigSpec {
        machine_deployment: Some(machine_deployment),
        ..OperatingSystemConfigSpec::default()
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
