//! Reads everything that one reconcile needs.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use osm_api::names::{self, NODE_BOOTSTRAP_ACCOUNT};
use osm_api::settings::Credentials;
use osm_render::LateValues;
use osm_runtime::request::failed;
use osm_runtime::status;

use crate::key::{self, DigestKey};
use crate::sources::{self, SourceError};
use crate::state::{State, lock};
use crate::view::{
    BindingView, ConfigView, Meta, ROLE_BOOTSTRAP, ROLE_EDGE_SCRIPT, ROLE_PROVISIONING, RoleView, SecretView,
};
use crate::{Error, collected, document, plan};

/// What a plan is made from.
#[derive(Clone)]
pub struct Gathered {
    /// The time that the plan goes by: the API server's.
    pub now: Timestamp,
    /// Name of the OperatingSystemConfig.
    pub name: String,
    /// The OperatingSystemConfig, if it is there.
    pub config: Option<Arc<ConfigView>>,
    /// Id of its pool; empty without one.
    pub pool: String,
    /// Which clusters these are.
    pub clusters: Clusters,
    /// What exists for its pool.
    pub made: Made,
    /// What exists for other pools under the same config name.
    pub strays: Vec<(String, Made)>,
    /// uid of `osm-node-bootstrap`.
    pub node_account: Option<String>,
    /// MAC of everything that the documents are made from.
    pub inputs_mac: String,
    /// The values themselves.
    pub values: LateValues,
    /// Why not all of them could be had: those that were used last are taken, so that credentials go on being renewed.
    pub source_problem: Option<Arc<SourceError>>,
    /// Since when there is nothing that could be published: nobody vouches for it, or it has no revision.
    pub waiting_since: Timestamp,
    /// Whether this process has compared the documents themselves for these inputs.
    pub verified: bool,
    /// What machines of a pool boot with that we have never been able to publish; of another program.
    pub inherited: Option<Inherited>,
    /// The Secret that has the name of one of ours, and is somebody else's.
    pub foreign: Option<String>,
    /// Credential settings.
    pub credentials: Credentials,
    /// The HMAC key.
    pub key: DigestKey,
    /// How many orphaned pools may be collected now, by all replicas together.
    pub may_collect: usize,
}

/// A bootstrap Secret of another program.
#[derive(Clone, Debug, PartialEq)]
pub struct Inherited {
    /// Its name.
    pub name: String,
    /// The revision that it is for, if it says so.
    pub revision: Option<String>,
}

/// uids of the `kube-system` namespaces, as this process first met them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// Of the cluster of OperatingSystemConfigs.
    pub management: String,
    /// Of the cluster that is published in.
    pub worker: String,
}

/// What exists for one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Made {
    /// The bootstrap Secret.
    pub bootstrap: Option<Arc<SecretView>>,
    /// The Secret with the script of an edge pool.
    pub edge_script: Option<Arc<SecretView>>,
    /// Provisioning Secrets.
    pub provisioning: Vec<Arc<SecretView>>,
    /// The pool's ServiceAccount.
    pub account: Option<Arc<Meta>>,
    /// Its Role.
    pub role: Option<Arc<RoleView>>,
    /// Its RoleBinding.
    pub binding: Option<Arc<BindingView>>,
}

impl Made {
    /// Every Secret.
    pub fn secrets(&self) -> impl Iterator<Item = &Arc<SecretView>> {
        self.provisioning.iter().chain(&self.edge_script).chain(&self.bootstrap)
    }

    /// Whether it was published by way of another management cluster than this one.
    pub fn is_of_another(&self, management: &str) -> bool {
        let mut uids = self.metas().map(|meta| meta.annotation(names::MANAGEMENT_CLUSTER_UID));
        uids.any(|uid| uid.is_some_and(|uid| uid != management))
    }

    /// Metadata of everything.
    pub fn metas(&self) -> impl Iterator<Item = &Meta> {
        let identity = self.account.as_deref().into_iter();
        let identity = identity.chain(self.role.as_deref().map(|role| &role.meta));
        let identity = identity.chain(self.binding.as_deref().map(|binding| &binding.meta));
        self.secrets().map(|secret| &secret.meta).chain(identity)
    }

    /// Whether nothing exists.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Gathers; requests are made only for the key, and for values that stand elsewhere.
///
/// # Errors
/// Requests that failed; values that can't be had.
pub async fn gather(state: &State, name: &str) -> Result<Gathered, Error> {
    let now = state.context.worker.server_time.now();
    let config = state.configs.get(&format!("{}/{name}", state.context.args.namespace));
    let pool_ref = config.as_ref().and_then(|config| config.machine_deployment.clone());
    let pool =
        pool_ref.as_ref().map(|md| names::pool_id(&md.namespace, &md.name, &md.uid)).unwrap_or_default();
    let fixed_names = pool_ref.as_ref().map(|md| {
        [
            names::bootstrap_secret_name(&md.name, &md.namespace),
            names::edge_script_secret_name(&md.name, &md.namespace),
        ]
    });
    let (made, strays) = made(state, name, &pool);
    let settings = state.settings.borrow().clone();
    let (management, worker) = tokio::try_join!(state.context.management.uid(), state.context.worker.uid())
        .map_err(failed("reading namespace kube-system"))?;
    let key = key::get(state).await?;
    let retired = config.as_ref().is_some_and(|config| config.is_retired());
    let vouched = config.as_ref().filter(|_| !retired).and_then(|config| config.vouched().cloned());
    let (mut inputs_mac, mut values, mut foreign) = (String::new(), LateValues::new(), None);
    let mut source_problem = None;
    if let (Some(config), Some(vouched)) = (&config, &vouched) {
        let allowed = sources::Allowed {
            settings: settings.as_ref().map(|current| &current.settings),
            machine_deployment: config.machine_deployment.as_ref(),
        };
        match sources::values(state, &config.late_bound, allowed).await {
            Ok(found) => {
                if !found.is_empty() {
                    lock(&state.last_values).insert(name.to_owned(), found.clone());
                }
                values = found;
            }
            Err(problem) => {
                let mut sourced = config.late_bound.iter().filter(|late| late.source.is_some());
                let last = lock(&state.last_values).get(name).cloned();
                // Those of other content are no help.
                match last.filter(|last| sourced.all(|late| last.contains_key(&late.id))) {
                    Some(last) => (values, source_problem) = (last, Some(Arc::new(problem))),
                    None => return Err(problem.into()),
                }
            }
        }
        inputs_mac = document::inputs_mac(&key, &vouched.digest, &config.late_bound, &values);
    }
    let ready = vouched.as_ref().is_some_and(|vouched| vouched.revision.is_some());
    let waiting_since = waiting_since(state, name, ready, now);
    let inherited = match &config {
        Some(config) if config.is_claimed() && config.machine_deployment.is_none() => {
            inherited(state, name).await?
        }
        _ => None,
    };
    let taken = fixed_names.into_iter().flatten().find(|name| lock(&state.foreign).contains(name));
    if let Some(name) = taken
        && is_still_foreign(state, &name).await?
    {
        foreign = Some(name);
    }
    Ok(Gathered {
        now,
        name: name.to_owned(),
        clusters: Clusters { management, worker },
        pool,
        node_account: state
            .accounts
            .get(&state.key_in_namespace(NODE_BOOTSTRAP_ACCOUNT))
            .map(|meta| meta.uid.clone()),
        verified: lock(&state.verified).get(name) == Some(&inputs_mac),
        config,
        inputs_mac,
        values,
        foreign,
        credentials: settings.map_or_else(
            || plan::credentials_without_settings(made.bootstrap.as_deref()),
            |current| current.settings.credentials.clone(),
        ),
        made,
        inherited,
        source_problem,
        waiting_since,
        key,
        may_collect: if strays.is_empty() { 0 } else { collected::may_be(state, now) },
        strays,
    })
}

/// Everything that was made for this config name, by pool.
fn made(state: &State, name: &str, pool: &str) -> (Made, Vec<(String, Made)>) {
    let mut by_pool: std::collections::BTreeMap<String, Made> = std::collections::BTreeMap::new();
    fn of<'a>(by_pool: &'a mut std::collections::BTreeMap<String, Made>, meta: &Meta) -> &'a mut Made {
        by_pool.entry(meta.pool().unwrap_or_default().to_owned()).or_default()
    }
    for secret in state.secrets.group(name) {
        let made = of(&mut by_pool, &secret.meta);
        // A label is easily changed, a name is not: one that does not fit its label is nothing of ours until it does.
        let named =
            |start: &str, end: &str| secret.meta.name.starts_with(start) && secret.meta.name.ends_with(end);
        if secret.is(ROLE_BOOTSTRAP) && named("", "-bootstrap-config") {
            made.bootstrap = Some(secret);
        } else if secret.is(ROLE_EDGE_SCRIPT) && named("edge-provider-script-", "") {
            made.edge_script = Some(secret);
        } else if secret.is(ROLE_PROVISIONING) && named("osm-provisioning-", "") {
            made.provisioning.push(secret);
        }
    }
    for account in state.accounts.group(name) {
        of(&mut by_pool, &account).account = Some(account.clone());
    }
    for role in state.roles.group(name) {
        of(&mut by_pool, &role.meta).role = Some(role.clone());
    }
    for binding in state.bindings.group(name) {
        of(&mut by_pool, &binding.meta).binding = Some(binding.clone());
    }
    for made in by_pool.values_mut() {
        made.provisioning.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    }
    let mut own = by_pool.remove(pool).unwrap_or_default();
    // The bootstrap Secret's name is the pool's whoever it was made for: a successor takes it over.
    if own.bootstrap.is_none() && !pool.is_empty() {
        own.bootstrap = by_pool.values_mut().find_map(|stray| stray.bootstrap.take());
    }
    if own.edge_script.is_none() && !pool.is_empty() {
        own.edge_script = by_pool.values_mut().find_map(|stray| stray.edge_script.take());
    }
    (own, by_pool.into_iter().filter(|(_, made)| !made.is_nothing()).collect())
}

async fn inherited(state: &State, config: &str) -> Result<Option<Inherited>, Error> {
    let Some(name) = names::bootstrap_secret_of(config) else { return Ok(None) };
    let found =
        status::live(&state.secret_api(), &name).await.map_err(failed("reading somebody's Secret"))?;
    Ok(found.map(|found| Inherited {
        revision: found.annotations().get(names::MACHINE_DEPLOYMENT_REVISION).cloned(),
        name,
    }))
}

async fn is_still_foreign(state: &State, name: &str) -> Result<bool, Error> {
    let found = status::live(&state.secret_api(), name).await.map_err(failed("reading somebody's Secret"))?;
    let ours = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(names::INSTALLATION) == Some(&state.installation)
    };
    let foreign = found.is_some_and(|found| !found.metadata.labels.as_ref().is_some_and(ours));
    if !foreign {
        lock(&state.foreign).remove(name);
    }
    Ok(foreign)
}

fn waiting_since(state: &State, name: &str, ready: bool, now: Timestamp) -> Timestamp {
    let mut waiting = lock(&state.waiting);
    if ready {
        waiting.remove(name);
        return now;
    }
    *waiting.entry(name.to_owned()).or_insert(now)
}
