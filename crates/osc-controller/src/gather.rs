//! Reads everything that one reconcile needs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use osm_api::cluster_endpoint::Choice;
use osm_api::config::RequestedProfile;
use osm_api::profile::OperatingSystemProfile;
use osm_api::{MachineDeployment, PoolRef, Reason};
use osm_runtime::Api;
use osm_runtime::cache::{Cache, Version};
use osm_runtime::error::Failure as _;
use osm_runtime::request::failed;
use osm_runtime::{Error, read};
use tokio::time::Instant;

use crate::context::Context;
use crate::hold::{self, Hold};
use crate::pool_settings::{self, SettingsLookup};
use crate::view::{ConfigView, PoolView, ProfileView};
use crate::watches;

/// The input of a plan.
#[derive(Clone)]
pub struct Gathered {
    /// The time by which the plan decides.
    pub now: Timestamp,
    pub name: String,
    /// Pools whose OperatingSystemConfig has this name, the owner first. More than one only if the names of
    /// two pools map to the same name of a config.
    pub claimants: Vec<Arc<PoolView>>,
    /// Set while a claimant that is older than these may not be known yet.
    pub older_claimant_possible: bool,
    /// Whether this installation serves the namespace of the owner.
    pub owner_is_served: bool,
    pub config: Option<Arc<ConfigView>>,
    /// Whether a config of the owner was deleted while it had content, as far as this replica knows.
    pub lost_content: bool,
    /// uid of the worker cluster's `kube-system` namespace. It is read again where `presence` was asked for.
    pub cluster_uid: String,
    /// Set while `config` does not exist and every other one was created for another cluster, to the uid of
    /// that.
    pub other_cluster: Option<String>,
    /// Set while `config` does not exist and the settings allow no further one, to the number that they
    /// allow.
    pub full_at: Option<u32>,
    /// Whether the pool of `config` still exists.
    pub presence: PoolPresence,
    /// Name of the profile that the owner gets, or asks for; if it names none, of the last one. It is never
    /// removed: two field managers write it, and would both have to leave it out.
    pub requested_profile: Option<RequestedProfile>,
    /// The profile that the owner asks for.
    pub profile: ProfileLookup,
    /// The settings for the owner's pool.
    pub settings: SettingsLookup,
    pub endpoint: Option<Choice>,
    /// Whether only this controller removes the finalizers of the upstream OSM.
    pub finalizers_are_left: bool,
}

impl Gathered {
    /// Whether the owner lacks the content that it had: its config was deleted, and nobody else has created
    /// another one.
    pub fn lacks_content(&self) -> bool {
        let is_new = |config: &Arc<ConfigView>| {
            let owner = self.claimants.first().map(|owner| owner.pool_ref.uid.as_str());
            config.status.rendered.is_none() && config.pool_uid() == owner
        };
        self.lost_content && self.config.as_ref().is_none_or(is_new)
    }
}

/// Whether the pool of a config still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPresence {
    /// A claimant is that pool, or there is no pool to ask about.
    Present,
    /// The API server answered that it is gone, and the cluster is the one that the config was created for.
    Gone,
    /// The API server has it, but the watch has not shown it yet.
    NotWatchedYet,
    /// The cluster is another one than the config was created for.
    OtherCluster,
}

/// The profile that a pool asks for.
#[derive(Clone)]
pub enum ProfileLookup {
    /// No annotation names it, and the operating system of the pool cannot be read.
    Unnamed,
    /// None of these exists.
    Missing(Vec<RequestedProfile>),
    /// This installation does not read profiles in the namespace.
    Unread(String),
    /// It may not read them.
    Forbidden(String),
    Found(FoundProfile),
}

#[derive(Clone)]
pub struct FoundProfile {
    pub requested: RequestedProfile,
    pub view: Arc<ProfileView>,
    /// How long an edit of it has waited to be validated, if one does.
    pub edited_for: Duration,
}

impl FoundProfile {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        hold::listed(std::slice::from_ref(&self.requested))
    }

    /// Why a pool is not rendered while nothing is accepted.
    pub fn not_accepted(&self) -> Hold {
        let refusal = self.view.refusal.as_deref();
        Hold::ProfileNotAccepted {
            profile: self.key(),
            why: refusal
                .unwrap_or("waiting for osp-controller to validate it")
                .to_owned(),
        }
    }
}

/// The profile as its watch has shown it.
fn shown(context: &Context, requested: &RequestedProfile) -> ProfileLookup {
    let RequestedProfile { namespace, name } = requested;
    let Some(profiles) = context.profiles_in(namespace) else {
        return ProfileLookup::Unread(namespace.clone());
    };
    match profiles.get(&format!("{namespace}/{name}")) {
        None => ProfileLookup::Missing(vec![requested.clone()]),
        Some(view) => ProfileLookup::Found(FoundProfile {
            requested: requested.clone(),
            edited_for: view.since.elapsed(),
            view,
        }),
    }
}

/// Gathers. It sends requests only for a pool that has vanished, for the profile of a new revision, and for
/// the ConfigMap that a pool's settings name.
///
/// # Errors
/// Requests that failed.
pub async fn gather(context: &Context, name: &str) -> Result<Gathered, Error> {
    let cluster = &context.cluster;
    let (now, since) = (cluster.worker.server_time.now(), Instant::now());
    let config = context.shared.configs.get(&context.config_key(name));
    let (mut claimants, complete) = context.caches.pools.group_by_age(name);
    let serves = |pool: &PoolView| cluster.installation.serves(&pool.pool_ref.namespace);
    sort_by_claim(&mut claimants, config.as_deref(), serves);
    if let Some(owner) = claimants.first_mut() {
        catch_up(context, owner, config.as_deref()).await?;
    }
    let cluster_uid = cluster
        .worker
        .uid()
        .await
        .map_err(failed("reading namespace kube-system"))?;
    let presence = presence(context, config.as_deref(), &claimants, &cluster_uid).await?;
    let other_cluster = if config.is_none() && !claimants.is_empty() {
        other_cluster(context, &cluster_uid)
    } else {
        None
    };
    let installation = cluster.settings.borrow().clone();
    let full_at = match config {
        Some(_) => None,
        None => context.full_at(),
    };
    // Nothing is rendered for a pool that is not served, so nothing is read for it.
    let rendered = claimants.first().filter(|owner| serves(owner));
    let settings = match (installation, rendered) {
        (None, _) => SettingsLookup::Missing,
        (Some(installation), None) => SettingsLookup::Found(installation),
        (Some(installation), Some(owner)) => pool_settings::lookup(context, owner, installation).await?,
    };
    let profile = match rendered {
        Some(owner) if full_at.is_none() => profile(context, owner, config.as_deref(), since).await?,
        _ => ProfileLookup::Unnamed,
    };
    let requested_profile = match (&profile, claimants.first()) {
        (ProfileLookup::Found(found), _) => Some(found.requested.clone()),
        (_, Some(owner)) => owner.requested_profiles(&cluster.installation).into_iter().next(),
        (_, None) => None,
    };
    let requested_profile = requested_profile.or_else(|| config.as_ref()?.status.profile.clone());
    let lost_content = claimants
        .first()
        .is_some_and(|owner| context.memory.has_lost_content(&owner.pool_ref.uid));
    let endpoint = match &settings {
        SettingsLookup::Found(current) => {
            watches::discover(context, &current.settings).await?;
            context.endpoint(&current.settings, config.as_deref())
        }
        _ => None,
    };
    Ok(Gathered {
        now,
        name: name.to_owned(),
        older_claimant_possible: !complete,
        owner_is_served: rendered.is_some(),
        claimants,
        config,
        lost_content,
        cluster_uid,
        other_cluster,
        full_at,
        presence,
        requested_profile,
        profile,
        settings,
        endpoint,
        finalizers_are_left: cluster.installation.go_finalizers || cluster.upstream_osm.problem().is_none(),
    })
}

/// The cluster that all configs were created for, if it is another than this one.
fn other_cluster(context: &Context, cluster_uid: &str) -> Option<String> {
    let mut other = None;
    for config in context.configs() {
        match config.made_in() {
            None => {}
            Some(uid) if uid == cluster_uid => return None,
            uid => other = uid.map(str::to_owned),
        }
    }
    other
}

/// Puts the owner first: the pool that has the config, else the oldest of a namespace that is served, else
/// the oldest. Of the same second, the first by uid.
fn sort_by_claim(
    claimants: &mut [Arc<PoolView>],
    config: Option<&ConfigView>,
    serves: impl Fn(&PoolView) -> bool,
) {
    let holder = config.and_then(ConfigView::pool_uid);
    claimants.sort_by_cached_key(|pool| {
        let uid = pool.pool_ref.uid.clone();
        (Some(uid.as_str()) != holder, !serves(pool), pool.created, uid)
    });
}

/// Reads the owner from the API server where its config has a newer revision than the watch has shown:
/// another replica has seen more. A revision must never go back.
async fn catch_up(
    context: &Context,
    owner: &mut Arc<PoolView>,
    config: Option<&ConfigView>,
) -> Result<(), Error> {
    let rendered_for = config.and_then(|config| config.rendered_for.as_ref());
    let Some(known) = rendered_for.filter(|known| owner.pool_ref.uid == known.pool.uid) else {
        return Ok(());
    };
    let number = |revision: &Option<String>| revision.as_ref().and_then(|text| text.parse::<u64>().ok());
    if number(&known.revision) <= number(&owner.revision) {
        return Ok(());
    }
    if let Some((_, live)) = live(context, &known.pool).await? {
        *owner = Arc::new(live);
    }
    Ok(())
}

/// The MachineDeployment as it is now. `None`: it is gone.
async fn live(context: &Context, pool: &PoolRef) -> Result<Option<(Version, PoolView)>, Error> {
    let pools: Api<MachineDeployment> =
        Api::namespaced(context.cluster.worker.client.clone(), &pool.namespace);
    let found = read::get(
        &pools,
        &pool.name,
        |md| (Version::of(&md.metadata), PoolView::of(&md)),
        |md| (Version::of(&md.metadata), PoolView::unreadable(md)),
    );
    let found = found.await.map_err(failed("reading the MachineDeployment"))?;
    Ok(found.filter(|(_, live)| live.pool_ref.uid == pool.uid))
}

async fn presence(
    context: &Context,
    config: Option<&ConfigView>,
    claimants: &[Arc<PoolView>],
    cluster_uid: &str,
) -> Result<PoolPresence, Error> {
    let config = config.filter(|config| !config.is_retired());
    let rendered_for = config.and_then(|config| config.rendered_for.as_ref());
    let (Some(config), Some(pool)) = (config, rendered_for.map(|known| &known.pool)) else {
        return Ok(PoolPresence::Present);
    };
    if claimants.iter().any(|claimant| claimant.pool_ref.uid == pool.uid) {
        return Ok(PoolPresence::Present);
    }
    // A wrong kubeconfig looks like an empty watch, too.
    if config.made_in().is_some_and(|made_in| made_in != cluster_uid) {
        return Ok(PoolPresence::OtherCluster);
    }
    // Ask the API server itself.
    let Some((version, live)) = live(context, pool).await? else {
        return Ok(PoolPresence::Gone);
    };
    // The watch may have had no room for it before it knew that the pool has a config. From now on it is
    // known.
    let key = format!("{}/{}", pool.namespace, pool.name);
    if context.caches.pools.wrote(&key, version, live).is_some() {
        context.queue.add(pool.config_name());
    }
    Ok(PoolPresence::NotWatchedYet)
}

/// The first of the requested profiles that exists. One that is not accepted exists, so that a mistake in it
/// selects no other.
async fn profile(
    context: &Context,
    owner: &PoolView,
    config: Option<&ConfigView>,
    since: Instant,
) -> Result<ProfileLookup, Error> {
    let requested = owner.requested_profiles(&context.cluster.installation);
    for one in &requested {
        match lookup(context, owner, config, since, one).await? {
            ProfileLookup::Missing(_) => {}
            other => return Ok(other),
        }
    }
    Ok(if requested.is_empty() {
        ProfileLookup::Unnamed
    } else {
        ProfileLookup::Missing(requested)
    })
}

async fn lookup(
    context: &Context,
    owner: &PoolView,
    config: Option<&ConfigView>,
    since: Instant,
    requested: &RequestedProfile,
) -> Result<ProfileLookup, Error> {
    let RequestedProfile { namespace, .. } = requested;
    if let Some(profiles) = context.profiles_in(namespace) {
        // Machines boot with what a new revision is rendered from for a long time. If its profile was edited
        // just before, the watch of profiles can lag behind that of MachineDeployments.
        let is_listed = profiles.is_listed();
        if owner.has_new_revision(config) || !is_listed {
            match refresh(context, profiles, requested, since).await {
                Err(error) if !is_listed && error.reason() == Reason::Forbidden => {
                    return Ok(ProfileLookup::Forbidden(namespace.clone()));
                }
                refreshed => refreshed?,
            }
        }
    }
    Ok(shown(context, requested))
}

/// Reads the profile from the API server, unless another reconcile has begun to read it after `since`: pools
/// that get a new revision together share a read.
async fn refresh(
    context: &Context,
    profiles: &Cache<ProfileView>,
    RequestedProfile { namespace, name }: &RequestedProfile,
    since: Instant,
) -> Result<(), Error> {
    let key = format!("{namespace}/{name}");
    let last_read = context.memory.last_read(&key);
    let mut last_read = last_read.lock().await;
    if last_read.is_some_and(|began| began >= since) {
        return Ok(());
    }
    let began = Instant::now();
    let api: Api<OperatingSystemProfile> =
        Api::namespaced(context.cluster.management.client.clone(), namespace);
    let live = read::get(
        &api,
        name,
        |profile| (Version::of(&profile.metadata), ProfileView::of(profile, profiles)),
        |profile| {
            (
                Version::of(&profile.metadata),
                ProfileView::unreadable(profile, profiles),
            )
        },
    );
    // The watch reports deletions.
    if let Some((version, view)) = live.await.map_err(failed("reading the profile"))?
        && profiles.wrote(&key, version, view).is_some()
    {
        context.wake_users_of(&key);
    }
    *last_read = Some(began);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(namespace: &str, uid: &str, created: &str) -> Arc<PoolView> {
        let md = json!({"metadata": {"name": "p", "namespace": namespace, "uid": uid, "creationTimestamp": created}, "spec": {}});
        Arc::new(PoolView::of(&serde_json::from_value(md).unwrap()))
    }

    /// The config of a pool that is published.
    fn held_by(uid: &str) -> ConfigView {
        ConfigView {
            rendered_for: Some(pool("any", uid, "2026-01-01T00:00:00Z").rendered_for(None)),
            ..ConfigView::default()
        }
    }

    #[test]
    fn the_owner_is_who_holds_the_config_then_who_is_served_then_the_oldest() {
        let older = pool("served", "z", "2026-01-01T00:00:00Z");
        let twin = pool("served", "y", "2026-01-02T00:00:00Z");
        let younger = pool("served", "a", "2026-01-02T00:00:00Z");
        let oldest_elsewhere = pool("elsewhere", "b", "2025-01-01T00:00:00Z");
        let all = [&twin, &younger, &oldest_elsewhere, &older];
        let cases: &[(Option<&str>, &[&str])] = &[
            (None, &["z", "a", "y", "b"]),
            // Where a younger one has the config, the older one came back with an older time, such as from a
            // backup.
            (Some("y"), &["y", "z", "a", "b"]),
            // It is published, so it stays.
            (Some("b"), &["b", "z", "a", "y"]),
            (Some("of-a-pool-that-is-gone"), &["z", "a", "y", "b"]),
        ];
        for (holder, wanted) in cases {
            let config = holder.map(held_by);
            for rotation in 0..all.len() {
                let mut claimants: Vec<_> = all.into_iter().cloned().collect();
                claimants.rotate_left(rotation);
                sort_by_claim(&mut claimants, config.as_ref(), |pool| {
                    pool.pool_ref.namespace == "served"
                });
                let order: Vec<_> = claimants.iter().map(|pool| pool.pool_ref.uid.as_str()).collect();
                assert_eq!(order, *wanted, "{holder:?}");
            }
        }
    }
}
