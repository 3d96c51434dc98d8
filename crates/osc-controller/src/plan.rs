//! All decisions of osc-controller. They follow from what was gathered alone, without a client or a clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Preconditions;
use osm_api::cluster_endpoint::Choice;
use osm_api::condition::{CURRENT, RENDERED, Verdict};
use osm_api::config::{ProfileRef, RequestedProfile, Retired, Stored};
use osm_api::content::{Content, RenderedFor};
use osm_api::profile::AcceptedProfile;
use osm_api::{PoolRef, Reason, names, pool};
use osm_runtime::settings::Current;

use crate::compiled::CompiledProfiles;
use crate::finalizer::{self, Finalizer};
use crate::gather::{FoundProfile, Gathered, PoolPresence, ProfileLookup};
use crate::hold::{self, Hold};
use crate::pool_settings::SettingsLookup;
use crate::view::{ConfigView, PoolView};

/// A new revision waits this long after the edit of its profile for the validation. Without a limit, no
/// machine could get it while osp-controller is down.
const MAX_PROFILE_WAIT: Duration = Duration::from_secs(10);

/// Requeue interval while the cluster is another one: no watch reports when that ends.
const OTHER_CLUSTER_REQUEUE: Duration = Duration::from_secs(30);

/// Requeue interval while the watch has not shown a pool that the API server has, or may have.
const NOT_WATCHED_REQUEUE: Duration = Duration::from_secs(5);

/// Requeue interval while there is no thread to render a pool in: no watch reports when there is one.
const BUSY_REQUEUE: Duration = Duration::from_secs(1);

const CORRECT_KUBECONFIG: &str = "Correct the kubeconfig, or delete the OperatingSystemConfigs of the other cluster if it no longer exists";

/// What to do. The steps that follow have no rules of their own; they only handle the answers of the API
/// server.
#[derive(Debug, Default)]
pub struct Plan {
    pub object: ObjectPlan,
    /// `None` leaves the status as it is.
    pub status: Option<StatusPlan>,
    /// Pools that get no OperatingSystemConfig.
    pub rejected: Vec<Rejection>,
    /// The pool whose object gets Events about failure and recovery.
    pub subject: Option<PoolRef>,
    /// Finalizers of the upstream OSM to remove or to report.
    pub finalizers: Vec<Finalizer>,
    /// Reconcile again after this time, even if nothing changes.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    /// What is left of the plan while the upstream OSM runs or may run, as `problem` says: nothing new is
    /// started, and the pool says why. A config that has to be created or converted first gets no condition:
    /// the upstream OSM may own it. So its pool is rejected, with an Event. A config that had content is
    /// restored: the upstream OSM deletes those of all pools, also where it can render none.
    #[must_use]
    pub fn beside_the_upstream_osm(self, gathered: &Gathered, problem: &str) -> Self {
        if !self.starts_something(gathered.config.as_deref()) || gathered.lacks_content() {
            return self;
        }
        let message =
            format!("nothing new is rendered beside the upstream Operating System Manager: {problem}");
        let reason = Reason::UpstreamOSMRunning;
        let mut held = Self {
            rejected: self.rejected,
            subject: self.subject,
            ..Self::default()
        };
        match (self.object, &held.subject) {
            (ObjectPlan::Keep, _) => held.status = Some(status(false, reason, message, RenderedStatus::Last)),
            (_, Some(pool)) => held.rejected.push(Rejection {
                pool: pool.clone(),
                reason,
                message,
            }),
            _ => {}
        }
        held
    }

    /// Whether it creates or converts the config, or writes another content into it.
    fn starts_something(&self, config: Option<&ConfigView>) -> bool {
        let stored = config.and_then(|config| config.status.rendered.as_ref());
        let rendered = self.status.as_ref().and_then(|status| status.rendered.now());
        let is_new = |rendered: &Stored| stored.is_none_or(|stored| stored.digest != rendered.digest);
        let keeps_object = matches!(self.object, ObjectPlan::Keep | ObjectPlan::Delete(_));
        !keeps_object || rendered.is_some_and(is_new)
    }
}

/// What templates are compiled and rendered with.
pub struct Renderer<'a> {
    pub profiles: &'a CompiledProfiles,
    /// Set as soon as the caller no longer waits for the plan, which ends rendering.
    pub abandoned: &'a AtomicBool,
}

/// What to do with an OperatingSystemConfig.
#[derive(Debug, Default)]
pub enum ObjectPlan {
    #[default]
    Keep,
    Create(ObjectMeta, PoolRef),
    /// The spec then says whose it is and nothing else. The metadata carries the resourceVersion that was
    /// seen.
    Replace(ObjectMeta, PoolRef),
    /// As [`Self::Replace`], but the spec keeps what else it holds: machines boot with it until the content
    /// of this version is published.
    Claim(ObjectMeta, PoolRef),
    /// Only if it is still the object that was seen.
    Delete(Preconditions),
}

/// The fields of the status that osc-controller owns.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    pub verdict: Verdict,
    /// The condition `Current`. It exists only while an edit is refused: otherwise the first start of a
    /// version that knows it would write every object.
    pub refused: Option<Verdict>,
    pub rendered: RenderedStatus,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RenderedStatus {
    /// The last good result stays.
    Last,
    /// The pool is gone, and there is nothing to publish any more.
    Retired(Retired),
    /// What was rendered now, and its documents. `anyway`: it is written even if the object seems to have it
    /// already.
    New {
        stored: Box<Stored>,
        content: Box<Content>,
        anyway: bool,
    },
}

impl RenderedStatus {
    pub fn now(&self) -> Option<&Stored> {
        match self {
            Self::New { stored, .. } => Some(stored),
            Self::Last | Self::Retired(_) => None,
        }
    }
}

/// A pool that cannot have an OperatingSystemConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    pub pool: PoolRef,
    /// `NameCollision`, `NameTooLong`, `NamespaceNotServed`, `TooManyMachineDeployments`, `ClusterChanged` or
    /// `UpstreamOSMRunning`.
    pub reason: Reason,
    pub message: String,
}

/// Decides. Without a renderer, because the plans of other pools take too long, nothing is rendered.
pub fn plan(gathered: &Gathered, renderer: Option<&Renderer<'_>>) -> Plan {
    Plan {
        finalizers: finalizer::left_behind(gathered),
        ..for_config(gathered, renderer)
    }
}

fn for_config(gathered: &Gathered, renderer: Option<&Renderer<'_>>) -> Plan {
    if let Some(other) = &gathered.other_cluster {
        let message = format!(
            "cluster mismatch: the existing OperatingSystemConfigs belong to cluster {other}, but the kubeconfig leads to cluster {} \
             (uids of kube-system); this pool gets no user data. {CORRECT_KUBECONFIG}",
            gathered.cluster_uid
        );
        let reject = |pool: &Arc<PoolView>| reject(pool, Reason::ClusterChanged, message.clone());
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
        // An object without a pool, which names none: the upstream OSM or a user created it, and it is not
        // ours.
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
            ..for_owner(gathered, owner, renderer)
        },
    };
    if gathered.older_claimant_possible && matches!(plan.object, ObjectPlan::Create(..)) {
        // The config would give the name to a younger pool for good.
        plan = again_after(NOT_WATCHED_REQUEUE);
    }
    if let Some(status) = &mut plan.status {
        status.refused = refused_edit(gathered);
    }
    plan.rejected
        .extend(others.iter().map(|other| conflict(other, owner)));
    plan
}

/// The newest edit of the settings or of the accepted profile that has no effect because it is refused.
fn refused_edit(gathered: &Gathered) -> Option<Verdict> {
    let settings = match &gathered.settings {
        SettingsLookup::Found(settings) => settings.refused.as_deref(),
        SettingsLookup::Missing | SettingsLookup::Refused(_) => None,
    };
    let profile = match &gathered.profile {
        // One that was never accepted is reported by `Rendered`.
        ProfileLookup::Found(found) if found.view.accepted.is_some() => found.view.refusal.as_deref(),
        _ => None,
    };
    let edits = [
        (
            Reason::SettingsInvalid,
            "the newest edit of the settings is invalid, so the last valid settings are used",
            settings,
        ),
        (
            Reason::ProfileNotAccepted,
            "the newest edit of the profile is not accepted, so the last accepted version is used",
            profile,
        ),
    ];
    let refused = edits
        .into_iter()
        .filter_map(|(reason, what, why)| Some((reason, format!("{what}: {}", why?))));
    let (reasons, messages): (Vec<Reason>, Vec<String>) = refused.unzip();
    Some(Verdict {
        type_: CURRENT,
        status: false,
        reason: *reasons.first()?,
        message: messages.join("; "),
    })
}

/// The name is checked first: nothing else of such a pool matters, since machine-controller prescribes the
/// names.
fn too_long(claimant: &PoolView) -> Option<Rejection> {
    let PoolRef { namespace, name, .. } = &claimant.pool_ref;
    let error = pool::check_name(name, namespace, claimant.cloud_provider).err()?;
    Some(reject(claimant, error.reason(), error.to_string()))
}

fn no_room(claimant: &PoolView, most: u32) -> Rejection {
    let message = format!(
        "there are as many OperatingSystemConfigs as limits.machineDeployments in the settings allows ({most}); this pool gets no user \
         data until another MachineDeployment is deleted or the limit is raised"
    );
    reject(claimant, Reason::TooManyMachineDeployments, message)
}

/// machine-controller reads the Secret by its name, and compares nothing but the revision.
fn conflict(claimant: &PoolView, owner: &PoolView) -> Rejection {
    let PoolRef { namespace, name, .. } = &claimant.pool_ref;
    let secret = names::bootstrap_secret_name(name, namespace);
    let message = format!(
        "name collision: the bootstrap Secret {secret} belongs to the older MachineDeployment {owner}, and machines of this pool may boot \
         with its user data and credentials; delete one of the two MachineDeployments, and create no machines of this pool until then",
        owner = owner.pool_ref
    );
    reject(claimant, Reason::NameCollision, message)
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
        return Plan {
            object: ObjectPlan::Delete(Preconditions {
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
            }),
            ..Plan::default()
        };
    }
    if config.is_retired() {
        // secret-syncer has not deleted everything yet.
        return Plan::default();
    }
    let (reason, message, rendered) = match gathered.presence {
        PoolPresence::Gone => (
            Reason::Retired,
            "the MachineDeployment is gone; everything that was created for it is being deleted".to_owned(),
            RenderedStatus::Retired(Retired {
                uid: config.pool_uid().unwrap_or_default().to_owned(),
                generation: meta.generation.unwrap_or(0),
            }),
        ),
        PoolPresence::OtherCluster => (
            Reason::ClusterChanged,
            format!(
                "cluster mismatch: this OperatingSystemConfig belongs to cluster {}, but the kubeconfig leads to cluster {} (uids of \
                 kube-system); nothing is rendered, published or deleted. {CORRECT_KUBECONFIG}",
                config.made_in().unwrap_or_default(),
                gathered.cluster_uid
            ),
            RenderedStatus::Last,
        ),
        PoolPresence::NotWatchedYet | PoolPresence::Present => return again_after(NOT_WATCHED_REQUEUE),
    };
    let is_retired = matches!(rendered, RenderedStatus::Retired(_));
    Plan {
        status: Some(status(false, reason, message, rendered)),
        requeue_after: (!is_retired).then_some(OTHER_CLUSTER_REQUEUE),
        ..Plan::default()
    }
}

fn again_after(wait: Duration) -> Plan {
    Plan {
        requeue_after: Some(wait),
        ..Plan::default()
    }
}

fn status(is_rendered: bool, reason: Reason, message: String, rendered: RenderedStatus) -> StatusPlan {
    StatusPlan {
        verdict: Verdict {
            type_: RENDERED,
            status: is_rendered,
            reason,
            message,
        },
        refused: None,
        rendered,
    }
}

fn for_owner(gathered: &Gathered, owner: &PoolView, renderer: Option<&Renderer<'_>>) -> Plan {
    let config = gathered.config.as_deref();
    match render(gathered, owner, config, renderer) {
        Ok(new) => written(gathered, owner, config, new),
        Err(hold) => held(gathered, owner, config, &hold),
    }
}

fn held(gathered: &Gathered, owner: &PoolView, config: Option<&ConfigView>, hold: &Hold) -> Plan {
    let has_content = config.is_some_and(|config| config.status.rendered.is_some());
    // While a pool waits, its last good content stays published, so `Rendered` stays true.
    let is_rendered = match hold {
        Hold::WaitingForRevision => true,
        Hold::WaitingForProfile { .. } | Hold::WaitingForThread => has_content,
        _ => false,
    };
    let mut message = hold.to_string();
    if config.is_some_and(ConfigView::is_of_the_upstream_osm) {
        message.push_str(&inherited(&owner.pool_ref));
    }
    let object = match config {
        Some(_) => ObjectPlan::Keep,
        // So that `kubectl get osc` lists every pool, also one that cannot be rendered.
        None => ObjectPlan::Create(metadata(gathered, owner, None), owner.pool_ref.clone()),
    };
    let requeue_after = match hold {
        Hold::WaitingForProfile { left, .. } => Some(*left),
        Hold::WaitingForThread => Some(BUSY_REQUEUE),
        _ => None,
    };
    Plan {
        object,
        status: Some(status(is_rendered, hold.reason(), message, RenderedStatus::Last)),
        requeue_after,
        ..Plan::default()
    }
}

/// Explains what becomes of a pool whose objects the upstream OSM made, and which cannot be rendered.
fn inherited(pool: &PoolRef) -> String {
    let label = names::go_pool_label(&pool.name, &pool.namespace);
    format!(
        ". Until it is rendered, new machines boot with what the upstream OSM published, which stays unchanged. Its bootstrap \
         token lives for one hour at most, and is not renewed after the upstream OSM has stopped. osc-controller has no right \
         to read Secrets in kube-system; `kubectl get secrets -n kube-system -l {}={label} -o \
         'go-template={{{{range .items}}}}{{{{.data.expiration | base64decode}}}}{{{{end}}}}'` shows when the token expires",
        names::GO_BOOTSTRAP_TOKEN_LABEL
    )
}

struct New {
    stored: Stored,
    content: Content,
    message: String,
}

/// Renders the pool, or says why not. The order of the checks decides which of several problems is reported.
fn render(
    gathered: &Gathered,
    owner: &PoolView,
    config: Option<&ConfigView>,
    renderer: Option<&Renderer<'_>>,
) -> Result<New, Hold> {
    if !gathered.owner_is_served {
        return Err(Hold::NamespaceNotServed(owner.pool_ref.namespace.clone()));
    }
    let pool = owner.pool.as_ref().map_err(Clone::clone)?;
    let settings = match &gathered.settings {
        SettingsLookup::Found(settings) => settings,
        SettingsLookup::Refused(problem) => return Err(problem.clone().into()),
        SettingsLookup::Missing => return Err(Hold::SettingsInvalid),
    };
    let choice = gathered.endpoint.as_ref().ok_or(Hold::EndpointUnknown)?;
    let found = match &gathered.profile {
        ProfileLookup::Found(found) => found,
        ProfileLookup::Unnamed => return Err(Hold::ProfileUnnamed),
        ProfileLookup::Unread(namespace) => return Err(Hold::ProfileNamespaceNotRead(namespace.clone())),
        ProfileLookup::Forbidden(namespace) => {
            return Err(Hold::ProfileNamespaceForbidden(namespace.clone()));
        }
        ProfileLookup::Missing(requested) => {
            let is_alias = |one: &RequestedProfile| owner.wanted_profile.1.as_ref() != Some(&one.name);
            let hold = if requested.iter().any(is_alias) {
                Hold::AliasMissing
            } else {
                Hold::ProfileMissing
            };
            return Err(hold(hold::listed(requested)));
        }
    };
    let (view, profile) = (&found.view, found.key());
    let late = view.judged < view.generation && owner.has_new_revision(config);
    let left = MAX_PROFILE_WAIT.saturating_sub(found.edited_for);
    if late && !left.is_zero() {
        return Err(Hold::WaitingForProfile { profile, left });
    }
    let accepted = view.accepted.as_ref().ok_or_else(|| found.not_accepted())?;
    if waits_for_revision(owner, config) {
        return Err(Hold::WaitingForRevision);
    }
    let renderer = renderer.ok_or(Hold::WaitingForThread)?;
    let compiled = match renderer.profiles.get(accepted) {
        Ok(compiled) => compiled,
        Err(source) => return Err(Hold::Profile { profile, source }),
    };
    let rendered = compiled.render_unless(renderer.abandoned, pool, &settings.settings, &choice.endpoint);
    let rendered = rendered.map_err(|source| Hold::Render { profile, source })?;
    let rendered_for = owner.rendered_for(config);
    Ok(new(
        &rendered_for,
        rendered,
        settings,
        choice,
        found,
        accepted,
        late,
    ))
}

fn new(
    rendered_for: &RenderedFor,
    rendered: osm_render::Rendered,
    settings: &Current,
    choice: &Choice,
    found: &FoundProfile,
    accepted: &AcceptedProfile,
    late: bool,
) -> New {
    let RequestedProfile { namespace, name } = found.requested.clone();
    let mut message = format!("rendered from profile {name} {}", accepted.version);
    if late {
        message.push_str("; the newest edit of the profile was not validated in time, so the last accepted version is used");
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
        namespace,
        name,
        version: accepted.version.clone(),
        digest: accepted.digest.clone(),
        template_engine: accepted.template_engine,
    };
    New {
        stored: rendered.stored(rendered_for, profile, settings.digest.clone(), &choice.endpoint),
        content: rendered.spec,
        message,
    }
}

/// Whether the template was edited, but machine-controller has not stamped a revision for it yet. It still
/// replaces machines of the old revision, with the old content.
fn waits_for_revision(owner: &PoolView, config: Option<&ConfigView>) -> bool {
    let config = config.filter(|config| config.status.rendered.is_some());
    let known = config.and_then(|config| config.rendered_for.as_ref());
    known
        .filter(|known| known.revision.is_some())
        .is_some_and(|known| {
            // The content may have been rendered for an edit that was lost when etcd was restored. Nobody
            // stamps a revision for that edit.
            let is_edited = owner.generation > known.template_generation.unwrap_or(0);
            owner.revision == known.revision
                && pool::template_differs(&owner.template_digest, &known.template_digest)
                && is_edited
        })
}

fn written(gathered: &Gathered, owner: &PoolView, config: Option<&ConfigView>, new: New) -> Plan {
    let object = match config {
        None => ObjectPlan::Create(metadata(gathered, owner, None), owner.pool_ref.clone()),
        Some(config) => object_of(gathered, owner, config, &new.stored),
    };
    let anyway = config.is_some_and(|config| config.is_altered() || config.is_unreadable);
    let rendered = RenderedStatus::New {
        stored: Box::new(new.stored),
        content: Box::new(new.content),
        anyway,
    };
    Plan {
        object,
        status: Some(status(true, Reason::Rendered, new.message, rendered)),
        ..Plan::default()
    }
}

/// What is to be done with an object that exists. What the upstream OSM wrote into its spec goes once
/// `rendered` is published, so that it can take the pool back until then.
fn object_of(gathered: &Gathered, owner: &PoolView, config: &ConfigView, rendered: &Stored) -> ObjectPlan {
    let pool = owner.pool_ref.clone();
    let mut meta = metadata(gathered, owner, Some(&config.metadata));
    if !config.has_bare_spec && (config.is_published(rendered) || config.is_unreadable) {
        // With these, the upstream OSM would take the object for one of its own that is up to date.
        let annotations = meta.annotations.get_or_insert_default();
        annotations.retain(|name, _| !names::GO_CONFIG_ANNOTATIONS.contains(&name.as_str()));
        return ObjectPlan::Replace(meta, pool);
    }
    let has_marks = config.metadata.annotations == meta.annotations && config.metadata.labels == meta.labels;
    if has_marks && config.rendered_for.is_some() {
        ObjectPlan::Keep
    } else {
        ObjectPlan::Claim(meta, pool)
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
