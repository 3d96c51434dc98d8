//! Reads everything that one reconcile needs.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use osm_api::config::MachineDeploymentRef;
use osm_api::profile::{AcceptedProfile, OperatingSystemProfile};
use osm_api::{MachineDeployment, pool};
use osm_render::{ClusterEndpoint, Profile, ProfileError};
use osm_runtime::cache::{Cache, Version};
use osm_runtime::request::failed;
use osm_runtime::settings::Current;
use osm_runtime::{RequestError, status, watch};
use tokio::time::Instant;

use crate::pool_settings;
use crate::state::State;
use crate::view::{self, ConfigView, ProfileView};

/// What a plan is made from.
#[derive(Clone)]
pub struct Gathered {
    /// The time that the plan goes by.
    pub now: Timestamp,
    /// Name of the OperatingSystemConfig.
    pub name: String,
    /// MachineDeployments whose OperatingSystemConfig has this name: one, unless two names run together.
    pub claimants: Vec<Arc<MachineDeployment>>,
    /// The OperatingSystemConfig, if it is there.
    pub config: Option<Arc<ConfigView>>,
    /// uid of the worker cluster's `kube-system` namespace: as it is now where `fate` was asked for, else as first met.
    pub cluster_uid: String,
    /// There is no `config` yet, and every other one was made for another cluster, with this uid.
    pub elsewhere: Option<String>,
    /// What became of the pool of `config`, asked for only where no claimant is that pool.
    pub fate: Fate,
    /// The profile that the owner asks for.
    pub profile: ProfileLookup,
    /// The settings for the owner's pool.
    pub settings: SettingsLookup,
    /// Why the newest edit of the installation's settings is not in force.
    pub settings_refused: Option<String>,
    /// Where nodes find the API server.
    pub endpoint: Option<ClusterEndpoint>,
    /// Since when the owner's new revision waits for the verdict on its profile.
    pub waiting_since: Timestamp,
    /// Whether finalizers of the Go implementation are to be removed.
    pub removes_finalizers: bool,
}

/// What became of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not asked: a claimant is that pool.
    Lives,
    /// The API server answered that it is gone, and the cluster is the one it was made in.
    Gone,
    /// The API server still has it: the watch has yet to show it.
    Unseen,
    /// The cluster is not the one that the OperatingSystemConfig was made for.
    OtherCluster,
}

/// The profile that a pool asks for.
#[derive(Clone)]
pub enum ProfileLookup {
    /// The pool names none, and its operating system can't be read.
    Unnamed,
    /// There is none of that name.
    Missing {
        /// Where it was looked for.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Its namespace is not read by this installation.
    Unread {
        /// The namespace.
        namespace: String,
    },
    /// There it is.
    Found(Box<FoundProfile>),
}

/// A profile that is there.
#[derive(Clone)]
pub struct FoundProfile {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Generation that is there.
    pub generation: i64,
    /// Generation that osp-controller has judged.
    pub judged: i64,
    /// Why the newest generation is not accepted.
    pub refusal: Option<String>,
    /// The last good one, with its templates compiled.
    pub accepted: Option<(AcceptedProfile, Result<Arc<Profile>, ProfileError>)>,
}

/// The settings of a pool.
#[derive(Clone)]
pub enum SettingsLookup {
    /// The installation has none.
    Missing,
    /// The pool wants others than the installation's, and they can't be used.
    Refused {
        /// Reason for the condition.
        reason: &'static str,
        /// What is wrong, where, and how to mend it.
        message: String,
    },
    /// These.
    Found(Arc<Current>),
}

/// Gathers; requests are made only to find out about a vanished pool, or about the profile of a new revision.
///
/// # Errors
/// Requests that failed.
pub async fn gather(state: &State, name: &str) -> Result<Gathered, RequestError> {
    let now = state.context.worker.server_time.now();
    let config = state.configs.get(&state.config_key(name));
    let mut claimants = state.machine_deployments.group(name);
    let since = Instant::now();
    sort_by_claim(&mut claimants, config.as_deref());
    if let Some(owner) = claimants.first_mut() {
        catch_up(state, owner, config.as_deref()).await?;
    }
    let mut cluster_uid =
        state.context.worker.uid().await.map_err(failed("reading namespace kube-system"))?;
    let fate = fate(state, config.as_deref(), &claimants, &mut cluster_uid).await?;
    let elsewhere =
        if config.is_none() && !claimants.is_empty() { elsewhere(state, &cluster_uid) } else { None };
    let installation = state.settings.borrow().clone();
    let settings_refused = installation.as_ref().and_then(|current| current.refused.clone());
    let settings = match (installation, claimants.first()) {
        (None, _) => SettingsLookup::Missing,
        (Some(installation), None) => SettingsLookup::Found(installation),
        (Some(installation), Some(owner)) => pool_settings::lookup(state, owner, installation).await?,
    };
    let (mut profile, mut waiting_since) = (ProfileLookup::Unnamed, now);
    if let Some(owner) = claimants.first() {
        profile = lookup(state, owner, config.as_deref(), since).await?;
        waiting_since = match &profile {
            ProfileLookup::Found(found) if found.judged < found.generation => {
                state.waiting_since(name, pool::revision(owner).unwrap_or_default(), now)
            }
            _ => {
                state.stop_waiting(name);
                now
            }
        };
    }
    Ok(Gathered {
        now,
        name: name.to_owned(),
        endpoint: match &settings {
            SettingsLookup::Found(current) => state.endpoint(&current.settings),
            _ => None,
        },
        claimants,
        config,
        cluster_uid,
        elsewhere,
        fate,
        profile,
        settings,
        settings_refused,
        waiting_since,
        removes_finalizers: state.context.installation.go_finalizers,
    })
}

/// The cluster that the configs were made for, if they were all made for another than this one.
fn elsewhere(state: &State, cluster_uid: &str) -> Option<String> {
    let mut other = None;
    for config in state.configs.select(|config| config.made_in().is_some()) {
        match config.made_in() {
            Some(uid) if uid == cluster_uid => return None,
            uid => other = uid.map(str::to_owned),
        }
    }
    other
}

/// The rightful owner first: the one that has the config, else the oldest, else by uid.
fn sort_by_claim(claimants: &mut [Arc<MachineDeployment>], config: Option<&ConfigView>) {
    let holder = config.and_then(ConfigView::pool_uid);
    claimants.sort_by_cached_key(|md| {
        let uid = md.uid().unwrap_or_default();
        (Some(uid.as_str()) != holder, view::created(&md.metadata), uid)
    });
}

/// Another replica may have seen more of the MachineDeployment than our watch has shown: its revision never goes back because of us.
async fn catch_up(
    state: &State,
    owner: &mut Arc<MachineDeployment>,
    config: Option<&ConfigView>,
) -> Result<(), RequestError> {
    let pool = config.and_then(|config| config.machine_deployment.as_ref());
    let Some(pool) = pool.filter(|pool| owner.uid().as_ref() == Some(&pool.uid)) else { return Ok(()) };
    let number = |revision: Option<&str>| revision.and_then(|text| text.parse::<u64>().ok());
    if number(pool.revision.as_deref()) <= number(pool::revision(owner)) {
        return Ok(());
    }
    let api: Api<MachineDeployment> = Api::namespaced(state.context.worker.client.clone(), &pool.namespace);
    let live = api.get_opt(&pool.name).await.map_err(failed("reading the MachineDeployment"))?;
    if let Some(live) = live.filter(|live| live.uid().as_ref() == Some(&pool.uid)) {
        *owner = Arc::new(live);
    }
    Ok(())
}

async fn fate(
    state: &State,
    config: Option<&ConfigView>,
    claimants: &[Arc<MachineDeployment>],
    cluster_uid: &mut String,
) -> Result<Fate, RequestError> {
    let Some(config) = config.filter(|config| !config.is_retired()) else { return Ok(Fate::Lives) };
    let Some(pool) = &config.machine_deployment else { return Ok(Fate::Lives) };
    if claimants.iter().any(|md| md.uid().as_deref() == Some(pool.uid.as_str())) {
        return Ok(Fate::Lives);
    }
    ask_fate(state, config, pool, cluster_uid).await
}

/// Asks the API server itself: an empty watch is also what a wrong kubeconfig looks like.
async fn ask_fate(
    state: &State,
    config: &ConfigView,
    pool: &MachineDeploymentRef,
    cluster_uid: &mut String,
) -> Result<Fate, RequestError> {
    *cluster_uid = state.context.worker.live_uid().await.map_err(failed("reading namespace kube-system"))?;
    if config.made_in().is_some_and(|made_in| made_in != cluster_uid.as_str()) {
        return Ok(Fate::OtherCluster);
    }
    let api: Api<MachineDeployment> = Api::namespaced(state.context.worker.client.clone(), &pool.namespace);
    match status::live(&api, &pool.name).await.map_err(failed("reading the MachineDeployment"))? {
        Some(live) if live.uid().as_deref() == Some(pool.uid.as_str()) => Ok(Fate::Unseen),
        _ => Ok(Fate::Gone),
    }
}

async fn lookup(
    state: &State,
    owner: &MachineDeployment,
    config: Option<&ConfigView>,
    since: Instant,
) -> Result<ProfileLookup, RequestError> {
    let Some((namespace, name)) = view::wanted_profile(owner, &state.context.args.namespace) else {
        return Ok(ProfileLookup::Unnamed);
    };
    let key = format!("{namespace}/{name}");
    let known =
        config.and_then(|config| config.machine_deployment.as_ref()).and_then(|md| md.revision.as_deref());
    let Some(profiles) = state.profiles.get(&namespace) else {
        return Ok(ProfileLookup::Unread { namespace });
    };
    // A new revision decides what machines boot with for a long time. The profile may have been changed just before
    // it, and its watch may lag behind that of MachineDeployments: so ask.
    if pool::revision(owner).is_some_and(|revision| known != Some(revision)) {
        refresh(state, profiles, (&namespace, &name), since).await?;
    }
    let Some(view) = profiles.get(&key) else { return Ok(ProfileLookup::Missing { namespace, name }) };
    let accepted = view.accepted.as_ref().map(|accepted| (accepted.clone(), state.compiled(accepted)));
    Ok(ProfileLookup::Found(Box::new(FoundProfile {
        namespace,
        name,
        generation: view.generation,
        judged: view.judged,
        refusal: view.refusal.clone(),
        accepted,
    })))
}

/// Reads the profile from the API server itself, unless somebody has begun to after `since`.
async fn refresh(
    state: &State,
    profiles: &Cache<ProfileView>,
    (namespace, name): (&str, &str),
    since: Instant,
) -> Result<(), RequestError> {
    let asked = state.last_asked(&format!("{namespace}/{name}"));
    let mut asked = asked.lock().await;
    if asked.is_some_and(|began| began >= since) {
        return Ok(());
    }
    let began = Instant::now();
    let api: Api<OperatingSystemProfile> =
        Api::namespaced(state.context.management.client.clone(), namespace);
    match api.get(name).await {
        Ok(profile) => {
            let (key, version) = (watch::key(&profile.metadata), Version::of(&profile.metadata));
            if profiles.wrote(&key, version, ProfileView::of(profile)).is_some() {
                state.wake_users_of(&key);
            }
        }
        // Whether it is gone is told by the watch.
        Err(error) if status::is_code(&error, 404) => {}
        Err(error) => return Err(failed("reading the profile")(error)),
    }
    *asked = Some(began);
    Ok(())
}
