//! All decisions of osc-controller. They follow from what was gathered alone, without a client or a clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::cluster_endpoint::Choice;
use osm_api::condition::{RENDERED, Verdict};
use osm_api::config::{ProfileRef, Rendered, RequestedProfile, Retired};
use osm_api::content::{RenderedFor, Unpacked};
use osm_api::profile::AcceptedProfile;
use osm_api::{PoolRef, Reason, names, pool};
use osm_runtime::foreign_cluster::CLUSTER_CHANGED;
use osm_runtime::settings::Current;

use crate::finalizer::{self, Finalizer};
use crate::gather::{FoundProfile, Gathered, PoolPresence, ProfileLookup};
use crate::hold::{self, Hold};
use crate::memory::Waiting;
use crate::pool_settings::SettingsLookup;
use crate::view::{ConfigView, PoolView};

/// The longest that a new revision waits until a profile that was just edited is validated.
const MAX_PROFILE_WAIT: SignedDuration = SignedDuration::from_secs(10);

/// Requeue interval while the cluster is another one: no watch reports when that ends.
const OTHER_CLUSTER_REQUEUE: Duration = Duration::from_secs(30);

/// Requeue interval while the watch has not shown a pool that the API server has, or may have.
const NOT_WATCHED_REQUEUE: Duration = Duration::from_secs(5);

/// Requeue interval while there is no thread to render a pool in: no watch reports when there is one.
pub(crate) const BUSY_REQUEUE: Duration = Duration::from_secs(1);

const CORRECT_KUBECONFIG: &str = "Correct the kubeconfig of that cluster and restart osc-controller and secret-syncer; or \
                                  delete those objects if the other cluster no longer exists.";

/// What to do. It leaves no choice to the steps that follow.
#[derive(Debug, Default)]
pub struct Plan {
    pub object: ObjectPlan,
    /// `None` leaves the status as it is.
    pub status: Option<StatusPlan>,
    /// Pools that get no OperatingSystemConfig.
    pub rejected: Vec<Rejection>,
    /// The pool whose object gets Events about failure and recovery.
    pub subject: Option<PoolRef>,
    /// Finalizers of the Go implementation to remove.
    pub remove_finalizers: Vec<Finalizer>,
    /// Finalizers of the Go implementation to report.
    pub report_finalizers: Vec<Finalizer>,
    /// What to remember about a revision that waits.
    pub waiting: Option<Waiting>,
    /// Reconcile again after this time, even if nothing changes.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    /// Whether it creates or converts the config, or writes another content into it.
    pub fn starts_something(&self, config: Option<&ConfigView>) -> bool {
        let stored = config.and_then(|config| config.status.rendered.as_ref());
        let is_new = |rendered: &Rendered| stored.is_none_or(|stored| stored.digest != rendered.digest);
        let keeps_object = matches!(self.object, ObjectPlan::Keep | ObjectPlan::Delete { .. });
        !keeps_object || self.rendered().is_some_and(is_new)
    }

    /// What was rendered for it, if anything was.
    pub fn rendered(&self) -> Option<&Rendered> {
        self.status.as_ref()?.rendered.now()
    }
}

/// What to do with an OperatingSystemConfig.
#[derive(Debug, Default)]
pub enum ObjectPlan {
    #[default]
    Keep,
    Create(ObjectMeta, PoolRef),
    /// The spec then says whose it is and nothing else. The metadata carries the resourceVersion that was seen.
    Replace(ObjectMeta, PoolRef),
    /// As [`Self::Replace`], but the spec keeps what else it holds: machines boot with it until the content of this version is published.
    Claim(ObjectMeta, PoolRef),
    /// Only if it is still the object that was seen.
    Delete {
        uid: String,
        resource_version: String,
    },
}

/// The fields of the status that osc-controller owns.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    pub verdict: Verdict,
    /// The profile that the pool asks for.
    pub profile: Option<RequestedProfile>,
    pub rendered: RenderedStatus,
    pub retired: Option<Retired>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RenderedStatus {
    /// The last good result stays.
    Last,
    /// There is nothing to publish any more.
    Nothing,
    /// What was rendered now, with its documents. `anyway`: it is written even if the object seems to have it already.
    New { rendered: Box<Unpacked>, anyway: bool },
}

impl RenderedStatus {
    pub fn now(&self) -> Option<&Rendered> {
        match self {
            Self::New { rendered, .. } => Some(rendered.rendered()),
            Self::Last | Self::Nothing => None,
        }
    }
}

/// A pool that cannot have an OperatingSystemConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    pub pool: PoolRef,
    /// `NameConflict`, `NameTooLong`, `NamespaceNotServed`, `TooManyMachineDeployments` or `ClusterChanged`.
    pub reason: Reason,
    pub message: String,
}

pub fn plan(gathered: &Gathered) -> Plan {
    let mut plan = for_config(gathered);
    let finalizers = finalizer::left_behind(gathered);
    plan.remove_finalizers = finalizers.remove;
    plan.report_finalizers = finalizers.report;
    plan.requeue_after = [plan.requeue_after, finalizers.requeue_after]
        .into_iter()
        .flatten()
        .min();
    plan.waiting = waiting(gathered);
    plan
}

fn for_config(gathered: &Gathered) -> Plan {
    if let Some(other) = &gathered.other_cluster {
        let message = format!(
            "cluster mismatch: the existing OperatingSystemConfigs belong to the cluster whose kube-system namespace has uid {other}, but \
             that of this cluster has {}; this pool gets no user data. {CORRECT_KUBECONFIG}",
            gathered.cluster_uid
        );
        let reject = |pool: &Arc<PoolView>| reject(pool, CLUSTER_CHANGED, message.clone());
        let rejected = gathered.claimants.iter().map(reject).collect();
        return Plan {
            rejected,
            requeue_after: Some(OTHER_CLUSTER_REQUEUE),
            ..Plan::default()
        };
    }
    if let Some(config) = &gathered.config
        && (config.is_retired() || gathered.presence != PoolPresence::Present)
    {
        return departed(gathered, config);
    }
    let Some((owner, others)) = gathered.claimants.split_first() else {
        // An object without a pool, which names none: the Go implementation or a user created it, and it is not ours.
        return Plan::default();
    };
    if gathered.config.is_none() && !gathered.owner_is_served {
        // The owner is served if any claimant is.
        return Plan {
            rejected: gathered.claimants.iter().map(not_served).collect(),
            ..Plan::default()
        };
    }
    let no_room = || gathered.full_at.map(|most| no_room(owner, most));
    let mut plan = match too_long(owner).or_else(no_room) {
        Some(rejection) => Plan {
            rejected: vec![rejection],
            ..Plan::default()
        },
        None => Plan {
            subject: Some(owner.pool_ref.clone()),
            ..for_owner(gathered, owner)
        },
    };
    if gathered.older_claimant_possible && matches!(plan.object, ObjectPlan::Create(..)) {
        // The config would give the name to a younger pool for good.
        plan = Plan {
            requeue_after: Some(NOT_WATCHED_REQUEUE),
            ..Plan::default()
        };
    }
    if let (Some(refused), Some(status)) = (&gathered.settings_refused, &mut plan.status) {
        let note = format!(
            "; the newest edit of the settings is invalid, so the last valid settings are used: {refused}"
        );
        status.verdict.message.push_str(&note);
    }
    plan.rejected
        .extend(others.iter().map(|other| conflict(other, owner)));
    plan
}

/// The name is checked first: nothing else of such a pool matters, since machine-controller prescribes the names.
pub(crate) fn too_long(claimant: &PoolView) -> Option<Rejection> {
    let PoolRef { namespace, name, .. } = &claimant.pool_ref;
    let error = pool::check_name(name, namespace, claimant.cloud_provider).err()?;
    Some(reject(claimant, error.reason(), error.to_string()))
}

pub(crate) fn no_room(claimant: &PoolView, most: u32) -> Rejection {
    let message = format!(
        "there are as many OperatingSystemConfigs as limits.machineDeployments in the settings allows ({most}); this pool gets no user \
         data until another MachineDeployment is deleted or the limit is raised"
    );
    reject(claimant, Reason::TooManyMachineDeployments, message)
}

/// machine-controller reads the Secret by its name, and compares nothing but the revision.
pub(crate) fn conflict(claimant: &PoolView, owner: &PoolView) -> Rejection {
    let PoolRef { namespace, name, .. } = &claimant.pool_ref;
    let secret = names::bootstrap_secret_name(name, namespace);
    let message = format!(
        "name collision: the bootstrap Secret {secret} belongs to the older MachineDeployment {owner}, and machines of this pool may boot \
         with its user data and credentials; delete one of the two MachineDeployments, and create no machines of this pool until then",
        owner = owner.pool_ref
    );
    reject(claimant, Reason::NameConflict, message)
}

fn not_served(claimant: &Arc<PoolView>) -> Rejection {
    let message = format!(
        "namespace {} is not in --machine-deployment-namespaces of osc-controller, so this pool gets no user data; add the namespace to \
         the list, or recreate the MachineDeployment in a listed namespace",
        claimant.pool_ref.namespace
    );
    reject(claimant, Reason::NamespaceNotServed, message)
}

fn reject(claimant: &PoolView, reason: Reason, message: String) -> Rejection {
    Rejection {
        pool: claimant.pool_ref.clone(),
        reason,
        message,
    }
}

/// The pool of this config is gone, or seems to be.
fn departed(gathered: &Gathered, config: &ConfigView) -> Plan {
    let meta = &config.metadata;
    if config.is_torn_down() {
        let (uid, resource_version) = (meta.uid.clone(), meta.resource_version.clone());
        let (uid, resource_version) = (uid.unwrap_or_default(), resource_version.unwrap_or_default());
        return Plan {
            object: ObjectPlan::Delete {
                uid,
                resource_version,
            },
            ..Plan::default()
        };
    }
    if config.is_retired() {
        // secret-syncer has not deleted everything yet.
        return Plan::default();
    }
    let (reason, message, retired) = match gathered.presence {
        PoolPresence::Gone => (
            Reason::Retired,
            "the MachineDeployment is gone; everything that was created for it is being deleted".to_owned(),
            Some(Retired {
                uid: config.pool_uid().unwrap_or_default().to_owned(),
                generation: meta.generation.unwrap_or(0),
            }),
        ),
        PoolPresence::OtherCluster => (
            CLUSTER_CHANGED,
            format!(
                "this object was created for another cluster (uid {} of its kube-system namespace, where this cluster has {}); \
                 nothing is rendered, published or deleted. {CORRECT_KUBECONFIG}",
                config.made_in().unwrap_or_default(),
                gathered.cluster_uid
            ),
            None,
        ),
        PoolPresence::NotWatchedYet | PoolPresence::Present => {
            return Plan {
                requeue_after: Some(NOT_WATCHED_REQUEUE),
                ..Plan::default()
            };
        }
    };
    let verdict = Verdict {
        type_: RENDERED,
        status: false,
        reason,
        message,
    };
    let requeue_after = retired.is_none().then_some(OTHER_CLUSTER_REQUEUE);
    let rendered = match retired {
        Some(_) => RenderedStatus::Nothing,
        None => RenderedStatus::Last,
    };
    Plan {
        status: Some(StatusPlan {
            verdict,
            profile: gathered.requested_profile.clone(),
            rendered,
            retired,
        }),
        requeue_after,
        ..Plan::default()
    }
}

fn for_owner(gathered: &Gathered, owner: &PoolView) -> Plan {
    let config = gathered.config.as_deref();
    match render(gathered, owner, config) {
        Ok(content) => written(gathered, owner, config, *content),
        Err(hold) => held(gathered, owner, config, &hold),
    }
}

fn held(gathered: &Gathered, owner: &PoolView, config: Option<&ConfigView>, hold: &Hold) -> Plan {
    let has_content = config.is_some_and(|config| config.status.rendered.is_some());
    // What waits is good: the last content was rendered, and is published.
    let status = match hold {
        Hold::WaitingForRevision => true,
        Hold::WaitingForProfile(_) | Hold::WaitingForThread => has_content,
        _ => false,
    };
    let mut message = hold.to_string();
    if config.is_some_and(ConfigView::is_of_the_go_implementation) {
        message.push_str(&inherited(&owner.pool_ref));
    }
    let object = match config {
        Some(_) => ObjectPlan::Keep,
        // So that `kubectl get osc` lists every pool, also one that cannot be rendered.
        None => ObjectPlan::Create(metadata(gathered, owner, None), owner.pool_ref.clone()),
    };
    let verdict = Verdict {
        type_: RENDERED,
        status,
        reason: hold.reason(),
        message,
    };
    let requeue_after = match hold {
        Hold::WaitingForProfile(_) => profile_wait_left(gathered),
        Hold::WaitingForThread => Some(BUSY_REQUEUE),
        _ => None,
    };
    Plan {
        object,
        status: Some(StatusPlan {
            verdict,
            profile: gathered.requested_profile.clone(),
            rendered: RenderedStatus::Last,
            retired: None,
        }),
        requeue_after,
        ..Plan::default()
    }
}

/// Explains what becomes of a pool whose objects the Go implementation made, and which cannot be rendered.
fn inherited(pool: &PoolRef) -> String {
    let label = names::go_pool_label(&pool.name, &pool.namespace);
    format!(
        ". Until it is rendered, new machines boot with what the Go implementation published, which stays unchanged. Its bootstrap \
         token lives for one hour at most, and is not renewed once that implementation no longer runs. osc-controller has no right \
         to read Secrets in kube-system; `kubectl get secrets -n kube-system -l {}={label} -o \
         'go-template={{{{range .items}}}}{{{{.data.expiration | base64decode}}}}{{{{end}}}}'` shows when the token expires",
        names::GO_BOOTSTRAP_TOKEN_LABEL
    )
}

struct Content {
    rendered: Unpacked,
    message: String,
}

/// Renders the pool, or says why not. The order of the checks decides which of several problems is reported.
fn render(gathered: &Gathered, owner: &PoolView, config: Option<&ConfigView>) -> Result<Box<Content>, Hold> {
    if !gathered.owner_is_served {
        return Err(Hold::NamespaceNotServed(owner.pool_ref.namespace.clone()));
    }
    let pool = owner.pool.as_ref().map_err(Clone::clone)?;
    let settings = match &gathered.settings {
        SettingsLookup::Found(settings) => settings,
        SettingsLookup::Refused(problem) => return Err(problem.clone().into()),
        SettingsLookup::Missing => return Err(Hold::SettingsMissing),
    };
    let choice = gathered.endpoint.as_ref().ok_or(Hold::EndpointUnknown)?;
    let found = match &gathered.profile {
        ProfileLookup::Found(found) => found,
        ProfileLookup::Unnamed => return Err(Hold::ProfileUnnamed),
        ProfileLookup::Busy => return Err(Hold::WaitingForThread),
        ProfileLookup::Unread { namespace } => {
            return Err(Hold::ProfileNamespaceNotRead(namespace.clone()));
        }
        ProfileLookup::Forbidden { namespace } => {
            return Err(Hold::ProfileNamespaceForbidden(namespace.clone()));
        }
        ProfileLookup::Missing(requested) => return Err(Hold::ProfileMissing(hold::listed(requested))),
    };
    let profile = format!("{}/{}", found.namespace, found.name);
    let late = found.judged < found.generation && owner.has_new_revision(config);
    if late && profile_wait_left(gathered).is_some() {
        return Err(Hold::WaitingForProfile(profile));
    }
    let (accepted, compiled) = match &found.accepted {
        Some((accepted, Ok(compiled))) => (accepted, compiled),
        Some((_, Err(source))) => {
            return Err(Hold::Profile {
                profile,
                source: source.clone(),
            });
        }
        None => {
            let why = found
                .refusal
                .as_deref()
                .unwrap_or("waiting for osp-controller to validate it")
                .to_owned();
            return Err(Hold::ProfileNotAccepted { profile, why });
        }
    };
    if waits_for_revision(owner, config) {
        return Err(Hold::WaitingForRevision);
    }
    let rendered = compiled.render_unless(&gathered.abandoned, pool, &settings.settings, &choice.endpoint);
    let rendered = rendered.map_err(|source| Hold::Render { profile, source })?;
    Ok(Box::new(content(
        owner, rendered, settings, choice, found, accepted, late,
    )))
}

fn content(
    owner: &PoolView,
    rendered: osm_render::Rendered,
    settings: &Current,
    choice: &Choice,
    found: &FoundProfile,
    accepted: &AcceptedProfile,
    late: bool,
) -> Content {
    let mut message = format!("rendered from profile {} {}", found.name, accepted.version);
    if late {
        message.push_str("; the newest edit of the profile was not validated in time, so the last accepted version is used");
    } else if let Some(refusal) = &found.refusal {
        message.push_str(&format!(
            "; the newest edit of the profile is not accepted, so the last accepted version is used: {refusal}"
        ));
    }
    if choice.is_one_of_several {
        let api_server = &choice.endpoint.api_server;
        message.push_str(&format!(
            "; all new nodes depend on {api_server}, which is one of several addresses in the EndpointSlice of default/kubernetes; set \
             cluster.apiServer in the settings to an address that leads to every API server"
        ));
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
    let rendered_for = RenderedFor {
        pool: owner.pool_ref.clone(),
        revision: owner.revision.clone(),
        template_digest: owner.template_digest.clone(),
    };
    let described = rendered.described(&rendered_for, profile, settings.digest.clone(), &choice.endpoint);
    Content {
        rendered: osm_render::content(&rendered.spec, described),
        message,
    }
}

/// Since when the owner's revision waits for its profile, given what was remembered.
fn waiting(gathered: &Gathered) -> Option<Waiting> {
    let owner = gathered.claimants.first()?;
    let ProfileLookup::Found(found) = &gathered.profile else {
        return None;
    };
    if found.judged >= found.generation {
        return None;
    }
    let revision = owner.revision.clone().unwrap_or_default();
    let known = gathered
        .waiting
        .clone()
        .filter(|known| known.revision == revision);
    Some(known.unwrap_or(Waiting {
        revision,
        since: gathered.now,
    }))
}

/// How long the owner's revision may still wait for its profile; `None` ends the wait.
fn profile_wait_left(gathered: &Gathered) -> Option<Duration> {
    let left = MAX_PROFILE_WAIT - gathered.now.duration_since(waiting(gathered)?.since);
    // The clock may have been set back since.
    Duration::try_from(left.min(MAX_PROFILE_WAIT))
        .ok()
        .filter(|left| !left.is_zero())
}

/// Whether the template was edited, but machine-controller has not stamped a revision for it yet. It still replaces
/// machines of the old revision, with the old content.
fn waits_for_revision(owner: &PoolView, config: Option<&ConfigView>) -> bool {
    let config = config.filter(|config| config.status.rendered.is_some());
    let known = config.and_then(|config| config.rendered_for.as_ref());
    known
        .filter(|known| known.revision.is_some())
        .is_some_and(|known| {
            owner.revision == known.revision
                && pool::template_differs(&owner.template_digest, &known.template_digest)
        })
}

fn written(gathered: &Gathered, owner: &PoolView, config: Option<&ConfigView>, content: Content) -> Plan {
    let Content { rendered, message } = content;
    let object = match config {
        None => ObjectPlan::Create(metadata(gathered, owner, None), owner.pool_ref.clone()),
        Some(config) => object_of(gathered, owner, config, rendered.rendered()),
    };
    let anyway = config.is_some_and(|config| config.is_altered() || config.is_unreadable);
    let rendered = RenderedStatus::New {
        rendered: Box::new(rendered),
        anyway,
    };
    let verdict = Verdict {
        type_: RENDERED,
        status: true,
        reason: Reason::Rendered,
        message,
    };
    Plan {
        object,
        status: Some(StatusPlan {
            verdict,
            profile: gathered.requested_profile.clone(),
            rendered,
            retired: None,
        }),
        ..Plan::default()
    }
}

/// What is to be done with an object that exists. What the Go implementation wrote into its spec goes once `rendered` is published, so that it
/// can take the pool back until then.
fn object_of(gathered: &Gathered, owner: &PoolView, config: &ConfigView, rendered: &Rendered) -> ObjectPlan {
    let pool = owner.pool_ref.clone();
    let mut meta = metadata(gathered, owner, Some(&config.metadata));
    if !config.has_bare_spec && (config.is_published(rendered) || config.is_unreadable) {
        // With these, the Go implementation would take the object for one of its own that is up to date.
        let annotations = meta.annotations.get_or_insert_default();
        annotations.retain(|name, _| !names::GO_CONFIG_ANNOTATIONS.contains(&name.as_str()));
        return ObjectPlan::Replace(meta, pool);
    }
    let has_marks = config.metadata.annotations == meta.annotations && config.metadata.labels == meta.labels;
    match has_marks && config.rendered_for.is_some() {
        true => ObjectPlan::Keep,
        false => ObjectPlan::Claim(meta, pool),
    }
}

fn metadata(gathered: &Gathered, owner: &PoolView, current: Option<&ObjectMeta>) -> ObjectMeta {
    let mut meta = current.cloned().unwrap_or_else(|| ObjectMeta {
        name: Some(gathered.name.clone()),
        ..ObjectMeta::default()
    });
    let annotations = meta.annotations.get_or_insert_with(BTreeMap::new);
    annotations.insert(names::OWNER.to_owned(), owner.pool_ref.to_string());
    annotations
        .entry(names::CLUSTER_UID.to_owned())
        .or_insert_with(|| gathered.cluster_uid.clone());
    meta.labels
        .get_or_insert_with(BTreeMap::new)
        .insert(names::POOL.to_owned(), owner.pool_ref.id());
    meta
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
