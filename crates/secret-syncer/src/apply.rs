//! Does what the plan says, in the order in which nothing is ever promised before it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::MachineDeployment;
use osm_api::condition::Verdict;
use osm_api::config::Published;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, NODE_BOOTSTRAP_ACCOUNT};
use osm_api::settings::NodeBootstrapKind;
use osm_runtime::cache::Version;
use osm_runtime::request::failed;
use osm_runtime::{Connection, RequestError};
use osm_runtime::{status, watch};
use serde_json::json;

use crate::document::Documents;
use crate::gather::{Gathered, Made};
use crate::plan::{self, Cause, Keep, OrphanStep, Plan, Publish, Step};
use crate::state::{Key, State, lock};
use crate::tokens::{self, Tokens};
use crate::view::{
    self, BindingView, Meta, ROLE_BOOTSTRAP, ROLE_EDGE_SCRIPT, ROLE_IDENTITY, ROLE_PROVISIONING, RoleView,
    SecretView,
};
use crate::{Error, collected, undo};

/// What was done, for the report.
#[derive(Debug)]
pub struct Applied {
    /// uid and generation of the config that this is about.
    pub about: Option<(String, i64)>,
    /// What the status is to say; `None`: it stays.
    pub status: Option<(Verdict, PublishedPlan)>,
    /// Why the pool was published, if it was.
    pub published_for: Vec<Cause>,
    /// What is of another cluster, and so left alone.
    pub stranger: Option<String>,
    /// When to look again.
    pub again: Option<Duration>,
}

/// What `status.published` is to say.
#[derive(Debug)]
pub enum PublishedPlan {
    /// The last good result stays.
    Last,
    /// This.
    Now(Published),
    /// Nothing is published any more.
    Nothing,
}

/// Applies a plan.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`] where what was seen no longer is.
pub async fn apply(state: &State, gathered: &Gathered, plan: Plan) -> Result<Applied, Error> {
    let Plan { step, orphans, stranger, again } = plan;
    let about = gathered.config.as_ref().map(|config| (config.uid.clone(), config.generation));
    let mut applied = Applied { about, status: None, published_for: Vec::new(), stranger, again };
    match step {
        Step::None => {}
        Step::Say(verdict) => applied.status = Some((verdict, PublishedPlan::Last)),
        Step::Keep(keep) => {
            tidy(state, gathered, keep).await?;
            applied.status = standing(gathered);
        }
        Step::Publish(publish) => {
            not_too_often(state, gathered, &publish)?;
            // Nothing is there: so it is in a new cluster, too.
            if publish.causes.contains(&Cause::Missing) {
                is_the_same_worker(state, gathered).await?;
            }
            applied.status = publish_step(state, gathered, &publish).await?;
            if applied.status.is_some() {
                applied.published_for = publish.causes;
            }
            // The plan for what then stands sets the timers.
            state.queue.add(Key::Config(gathered.name.clone()));
        }
        Step::Undo(all) => {
            is_the_same(&state.context.worker, &gathered.clusters.worker).await?;
            undo::undo_pool(state, &gathered.pool, &all).await?;
            lock(&state.verified).remove(&gathered.name);
            applied.status = Some((plan::undone(), PublishedPlan::Nothing));
        }
    }
    if let (Some(problem), Some((verdict, _))) = (&gathered.source_problem, &mut applied.status) {
        let message = format!("{problem}; the values that were used last stay in use");
        *verdict = Verdict { status: false, reason: problem.reason(), message, ..verdict.clone() };
    }
    // Last: what belongs to nobody must not hold up what belongs to somebody.
    for orphan in orphans {
        if let Err(error) = apply_orphan(state, gathered, orphan).await {
            tracing::warn!(config = gathered.name, %error, "what has no OperatingSystemConfig can't be dealt with yet");
        }
    }
    Ok(applied)
}

/// Asks the cluster itself whether it still is the one that the watches showed.
async fn is_the_same(connection: &Connection, uid: &str) -> Result<(), Error> {
    let live = connection.live_uid().await.map_err(failed("reading namespace kube-system"))?;
    if live == uid {
        return Ok(());
    }
    Err(Error::ClusterChanged(plan::cluster_changed(uid, &live)))
}

/// The same of the worker cluster, where a "yes" is believed for some seconds: many pools may be new at once.
async fn is_the_same_worker(state: &State, gathered: &Gathered) -> Result<(), Error> {
    if lock(&state.met).is_some_and(|met| met.elapsed() < BELIEVED) {
        return Ok(());
    }
    is_the_same(&state.context.worker, &gathered.clusters.worker).await?;
    *lock(&state.met) = Some(tokio::time::Instant::now());
    Ok(())
}

/// No cluster takes the place of another within this time.
const BELIEVED: Duration = Duration::from_secs(5);

/// So often in a row a pool is put right before it is suspected that somebody undoes it each time.
const REPAIRS: u32 = 20;
/// Repairs further apart than this are not in a row.
const IN_A_ROW: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

/// Something that alters each write at once, such as a mutating webhook, must not make us write without end.
fn not_too_often(state: &State, gathered: &Gathered, publish: &Publish) -> Result<(), Error> {
    let repairs = [Cause::Altered, Cause::TokensDead, Cause::RenewalDue, Cause::RoleAltered, Cause::Missing];
    let Some(cause) = publish.causes.iter().find(|cause| repairs.contains(cause)) else { return Ok(()) };
    let mut repaired = lock(&state.repaired);
    let (last, count) = repaired.get(&gathered.name).copied().unwrap_or((gathered.now, 0));
    let count = if gathered.now.duration_since(last) < IN_A_ROW { count + 1 } else { 1 };
    if count > REPAIRS {
        return Err(Error::AlteredAgain { cause: *cause });
    }
    repaired.insert(gathered.name.clone(), (gathered.now, count));
    Ok(())
}

/// Publishes; `None`: on a closer look everything stood already.
async fn publish_step(
    state: &State,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<(Verdict, PublishedPlan)>, Error> {
    let spec = content(state, gathered, publish).await?;
    let documents = Documents::make(&spec, gathered.values.clone(), &gathered.pool, &gathered.key)?;
    if publish.causes == [Cause::Unverified] && stands(gathered, &documents) {
        lock(&state.verified).insert(gathered.name.clone(), gathered.inputs_mac.clone());
        return Ok(None);
    }
    find_again(state, gathered).await?;
    let joins_by = match publish.node_bootstrap.kind {
        NodeBootstrapKind::ServiceAccountToken => Some(node_account(state, gathered, publish).await?),
        NodeBootstrapKind::BootstrapToken => plan::joins_by(&publish.node_bootstrap, None),
    };
    let account = account(state, gathered, publish).await?;
    let document = provisioning(state, gathered, publish, &documents).await?;
    role(state, gathered, publish, &document.meta.name).await?;
    // After its Role: the API server looks whether we hold the rights that we bind.
    binding(state, gathered, publish).await?;
    let tokens =
        tokens::issue(state, &gathered.name, publish, (&document.meta.name, &document.meta.uid)).await?;
    let bound =
        plan::bound_to(Some(&account), joins_by.as_deref(), Some(&document.meta.uid)).unwrap_or_default();
    let annotations = annotations(gathered, publish, &documents, &tokens, bound);
    let sealed = |name: &str, role, key, text: &str| {
        let mut metadata = metadata(state, publish, name, role);
        let all = metadata.annotations.get_or_insert_default();
        all.extend(annotations.clone());
        let seal = plan::seal(&gathered.key, &osm_api::digest::sha256_hex(text.as_bytes()), all);
        all.insert(names::CONTENT_MAC.to_owned(), seal);
        secret(metadata, key, text, false)
    };
    let bootstrap = sealed(
        &publish.bootstrap_name,
        ROLE_BOOTSTRAP,
        names::CLOUD_CONFIG_KEY,
        &documents.bootstrap(&tokens)?,
    );
    let script = documents.edge_script(&tokens)?;
    put(state, gathered, &BOOTSTRAP, gathered.made.bootstrap.as_deref(), bootstrap).await?;
    lock(&state.unpublished).remove(&gathered.name);
    if let (Some(name), Some(script)) = (&publish.edge_script_name, script) {
        let secret = sealed(name, ROLE_EDGE_SCRIPT, names::EDGE_SCRIPT_KEY, &script);
        put(state, gathered, &EDGE_SCRIPT, gathered.made.edge_script.as_deref(), secret).await?;
    }
    lock(&state.verified).insert(gathered.name.clone(), gathered.inputs_mac.clone());
    let published = Published {
        digest: publish.digest.clone(),
        revision: publish.revision.clone(),
        bootstrap_secret: publish.bootstrap_name.clone(),
        provisioning_secret: document.meta.name.clone(),
        credential_expires: tokens.expires.to_string(),
    };
    Ok(Some((plan::published(tokens.expires), PublishedPlan::Now(published))))
}

/// The content, of exactly the generation that osc-controller vouches for.
async fn content(
    state: &State,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<osm_api::OperatingSystemConfigSpec, Error> {
    const WHAT: &str = "the OperatingSystemConfig";
    let config = state.config_api().get(&gathered.name).await.map_err(failed(WHAT))?;
    let seen = gathered.config.as_ref().map(|config| config.uid.as_str());
    let same =
        config.metadata.generation == Some(publish.generation) && config.metadata.uid.as_deref() == seen;
    state.wrote_config(&config);
    if same { Ok(config.spec) } else { Err(RequestError::Conflict { what: WHAT }.into()) }
}

fn stands(gathered: &Gathered, documents: &Documents) -> bool {
    gathered.made.bootstrap.as_ref().is_some_and(|secret| {
        secret.meta.annotation(names::DOCUMENT_MAC) == Some(documents.document_mac.as_str())
            && secret.meta.annotation(names::PROVISIONING_SECRET)
                == Some(documents.provisioning_secret.as_str())
    })
}

fn standing(gathered: &Gathered) -> Option<(Verdict, PublishedPlan)> {
    let meta = &gathered.made.bootstrap.as_ref()?.meta;
    let expires = meta.time(names::EXPIRES)?;
    let published = Published {
        digest: gathered.config.as_ref()?.vouched()?.digest.clone(),
        revision: meta.annotation(names::MACHINE_DEPLOYMENT_REVISION)?.to_owned(),
        bootstrap_secret: meta.name.clone(),
        provisioning_secret: meta.annotation(names::PROVISIONING_SECRET)?.to_owned(),
        credential_expires: expires.to_string(),
    };
    Some((plan::published(expires), PublishedPlan::Now(published)))
}

async fn node_account(state: &State, gathered: &Gathered, publish: &Publish) -> Result<String, Error> {
    if let Some(uid) = gathered.node_account.clone().filter(|_| !publish.create_node_account) {
        return Ok(uid);
    }
    let metadata = ObjectMeta { name: Some(NODE_BOOTSTRAP_ACCOUNT.to_owned()), ..ObjectMeta::default() };
    let api: Api<ServiceAccount> = namespaced(state);
    let created = match api.create(&PostParams::default(), &without_mount(metadata)).await {
        Err(error) if status::already_exists(&error) => api.get(NODE_BOOTSTRAP_ACCOUNT).await,
        outcome => outcome,
    };
    Ok(wrote_account(state, &created.map_err(failed("ServiceAccount osm-node-bootstrap"))?))
}

async fn account(state: &State, gathered: &Gathered, publish: &Publish) -> Result<String, Error> {
    if let Some(account) = &gathered.made.account {
        return Ok(account.uid.clone());
    }
    let account = without_mount(metadata(state, publish, &publish.identity, ROLE_IDENTITY));
    let created =
        create(state, &namespaced::<ServiceAccount>(state), &account, "a pool's ServiceAccount").await;
    Ok(wrote_account(state, &created?))
}

/// Pods that borrow the account get no token.
fn without_mount(metadata: ObjectMeta) -> ServiceAccount {
    ServiceAccount { metadata, automount_service_account_token: Some(false), ..ServiceAccount::default() }
}

fn wrote_account(state: &State, account: &ServiceAccount) -> String {
    let meta = view::account(account);
    let uid = meta.uid.clone();
    let _ = state.accounts.wrote(&watch::key(&account.metadata), Version::of(&account.metadata), meta);
    uid
}

/// Creates an object of a pool's identity. One of its name that has lost the label or annotation by which we find it
/// gets them again and stays, so that the tokens that hang on it live on; one of another installation is left alone.
async fn create<K>(state: &State, api: &Api<K>, object: &K, what: &'static str) -> Result<K, Error>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::Serialize
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let refused = match api.create(&PostParams::default(), object).await {
        Err(error) if status::already_exists(&error) => error,
        outcome => return Ok(outcome.map_err(failed(what))?),
    };
    let name = object.meta().name.clone().unwrap_or_default();
    let standing = api.get_metadata(&name).await.map_err(failed(what))?.metadata;
    let same = |part: fn(&ObjectMeta) -> &Option<BTreeMap<String, String>>| {
        let wanted = part(object.meta()).iter().flatten();
        let standing = part(&standing).as_ref();
        wanted
            .into_iter()
            .all(|(key, value)| standing.is_some_and(|standing| standing.get(key) == Some(value)))
    };
    match installation_of(&standing) {
        // As we make it: the watch has yet to show it.
        Some(owner)
            if owner == state.installation && same(|meta| &meta.labels) && same(|meta| &meta.annotations) =>
        {
            Err(RequestError::Conflict { what }.into())
        }
        Some(owner) if owner != state.installation => Err(failed(what)(refused).into()),
        _ => {
            let mut fenced = object.clone();
            fenced.meta_mut().resource_version = standing.resource_version;
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&fenced)).await {
                // What a RoleBinding refers to can't be changed.
                Err(error) if status::is_code(&error, 422) => {
                    undo::delete(api, &name, standing.uid.as_deref().unwrap_or_default(), None, what).await?;
                    Ok(api.create(&PostParams::default(), object).await.map_err(failed(what))?)
                }
                patched => Ok(patched.map_err(failed(what))?),
            }
        }
    }
}

fn installation_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(names::INSTALLATION).map(String::as_str)
}

async fn binding(state: &State, gathered: &Gathered, publish: &Publish) -> Result<(), Error> {
    const WHAT: &str = "a pool's RoleBinding";
    let api: Api<RoleBinding> = namespaced(state);
    let name = &publish.identity;
    if let Some(binding) = &gathered.made.binding {
        if binding.good {
            return Ok(());
        }
        // What it refers to can't be changed.
        undo::delete(&api, name, &binding.meta.uid, None, WHAT).await?;
        state.bindings.deleted(&state.key_in_namespace(name), &binding.meta.uid);
    }
    let binding = RoleBinding {
        metadata: metadata(state, publish, name, ROLE_IDENTITY),
        role_ref: role_ref(name),
        subjects: Some(vec![subject(name)]),
    };
    let created = create(state, &api, &binding, WHAT).await?;
    let _ = state.bindings.wrote(
        &watch::key(&created.metadata),
        Version::of(&created.metadata),
        BindingView::of(&created),
    );
    Ok(())
}

/// What a pool's RoleBinding refers to: the Role of the same name.
pub fn role_ref(name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: "Role".to_owned(),
        name: name.to_owned(),
    }
}

/// Whom a pool's RoleBinding binds: the ServiceAccount of the same name.
pub fn subject(name: &str) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
    }
}

/// What a pool's Role allows: to get exactly these Secrets.
pub fn rule(secrets: &[String]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(secrets.to_vec()),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }
}

async fn role(state: &State, gathered: &Gathered, publish: &Publish, document: &str) -> Result<(), Error> {
    let mut secrets = publish.kept.clone();
    if !secrets.iter().any(|name| name == document) {
        secrets.push(document.to_owned());
        secrets.sort_unstable();
    }
    let metadata = metadata(state, publish, &publish.identity, ROLE_IDENTITY);
    put_role(state, gathered.made.role.as_deref(), metadata, secrets).await
}

async fn put_role(
    state: &State,
    current: Option<&RoleView>,
    mut metadata: ObjectMeta,
    secrets: Vec<String>,
) -> Result<(), Error> {
    const WHAT: &str = "a pool's Role";
    if current.is_some_and(|role| role.secrets.as_ref() == Some(&secrets)) {
        return Ok(());
    }
    let api: Api<Role> = namespaced(state);
    let name = metadata.name.clone().unwrap_or_default();
    metadata.resource_version = current.map(|role| role.meta.resource_version.clone());
    let role = Role { metadata, rules: Some(vec![rule(&secrets)]) };
    let written = match current {
        Some(_) => api.replace(&name, &PostParams::default(), &role).await.map_err(failed(WHAT))?,
        None => create(state, &api, &role, WHAT).await?,
    };
    let _ = state.roles.wrote(
        &watch::key(&written.metadata),
        Version::of(&written.metadata),
        RoleView::of(&written),
    );
    Ok(())
}

/// Documents that the bootstrap Secret names or the Role opens, and that are out of sight though they are there: somebody
/// has taken their label off, or the watch lags. They are labelled again, for a token that is alive may fetch them, and a
/// Role that is made from what is seen would refuse it.
async fn find_again(state: &State, gathered: &Gathered) -> Result<(), Error> {
    const WHAT: &str = "a document out of sight";
    let Made { bootstrap, role, provisioning, .. } = &gathered.made;
    let Some(md) = gathered.config.as_ref().and_then(|config| config.machine_deployment.as_ref()) else {
        return Ok(());
    };
    let named = bootstrap.as_ref().and_then(|secret| secret.meta.annotation(names::PROVISIONING_SECRET));
    let opened = role.iter().filter_map(|role| role.secrets.as_ref()).flatten().map(String::as_str);
    let seen = |name: &str| provisioning.iter().any(|secret| secret.meta.name == name);
    let of_pool = names::provisioning_secret_name(&gathered.pool, "");
    let lost: BTreeSet<&str> =
        named.into_iter().chain(opened).filter(|name| !seen(name) && name.starts_with(&of_pool)).collect();
    let marks = plan::Marks::new(gathered, md);
    let labels = marks.labels(&state.installation, ROLE_PROVISIONING);
    let mut found = false;
    for name in lost {
        let Some(secret) = state.secret_api().get_opt(name).await.map_err(failed(WHAT))? else { continue };
        let patch = json!({"metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "labels": labels, "annotations": marks.annotations,
        }});
        let patched = state.secret_api().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        state.wrote_secret(&patched.map_err(failed(WHAT))?);
        found = true;
    }
    if found { Err(RequestError::Conflict { what: WHAT }.into()) } else { Ok(()) }
}

/// The provisioning Secret stands, and is kept longer than any token that is about to be issued.
async fn provisioning(
    state: &State,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<SecretView, Error> {
    const WHAT: &str = "the provisioning Secret";
    let (api, name) = (state.secret_api(), &documents.provisioning_secret);
    let keep_until = publish.keep_until.to_string();
    let good = |secret: &SecretView| {
        secret.immutable && secret.content.as_deref() == Some(documents.provisioning_digest.as_str())
    };
    let keep = async |standing: &SecretView| {
        // Never earlier than it was promised to a token before.
        let keep_until =
            standing.meta.time(names::KEEP_UNTIL).map_or(publish.keep_until, |at| at.max(publish.keep_until));
        let keep_until = keep_until.to_string();
        let marks = publish.marks.annotations.iter().map(|(name, value)| (name.as_str(), Some(value)));
        let annotations: BTreeMap<&str, Option<&String>> =
            marks.chain([(names::KEEP_UNTIL, Some(&keep_until)), (names::ORPHANED_SINCE, None)]).collect();
        let patch = json!({"metadata": {
            "resourceVersion": standing.meta.resource_version,
            "labels": publish.marks.labels(&state.installation, ROLE_PROVISIONING),
            "annotations": annotations,
        }});
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        Ok(state.wrote_secret(&patched.map_err(failed(WHAT))?))
    };
    if let Some(standing) = gathered.made.provisioning.iter().find(|secret| secret.meta.name == *name) {
        if good(standing) {
            return keep(standing).await;
        }
        undo::delete_secret(state, standing).await?;
    }
    let mut metadata = metadata(state, publish, name, ROLE_PROVISIONING);
    metadata.annotations.get_or_insert_default().insert(names::KEEP_UNTIL.to_owned(), keep_until.clone());
    match api
        .create(
            &PostParams::default(),
            &secret(metadata, names::CLOUD_CONFIG_KEY, &documents.provisioning, true),
        )
        .await
    {
        Ok(created) => Ok(state.wrote_secret(&created)),
        Err(error) if status::already_exists(&error) => {
            // Its name holds the MAC of its content: with that content it is ours, whatever became of its labels.
            let standing = SecretView::of(&api.get(name).await.map_err(failed(WHAT))?);
            if good(&standing) {
                keep(&standing).await
            } else {
                Err(Error::ForeignSecret { name: name.clone() })
            }
        }
        Err(error) => Err(failed(WHAT)(error).into()),
    }
}

/// What is recorded on a bootstrap Secret.
fn annotations(
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
    tokens: &Tokens,
    bound: String,
) -> BTreeMap<String, String> {
    let renew_at =
        tokens.issued.saturating_add(renewal(tokens.life, &gathered.pool)).unwrap_or(Timestamp::MAX);
    let from = gathered.config.as_ref().map(|config| config.published_from()).unwrap_or_default();
    BTreeMap::from([
        (names::MACHINE_DEPLOYMENT_REVISION.to_owned(), publish.revision.clone()),
        (names::PUBLISHED_FROM.to_owned(), from),
        (names::INPUTS_MAC.to_owned(), gathered.inputs_mac.clone()),
        (names::DOCUMENT_MAC.to_owned(), documents.document_mac.clone()),
        (names::PROVISIONING_SECRET.to_owned(), documents.provisioning_secret.clone()),
        (names::BOUND_TO.to_owned(), bound),
        (names::EXPIRES.to_owned(), tokens.expires.to_string()),
        (names::RENEW_AT.to_owned(), renew_at.to_string()),
    ])
}

/// After how long tokens are renewed: at half of the life that was granted, which may be less than what was asked for,
/// or a little earlier, so that pools that were published together are not renewed together for ever.
fn renewal(life: Duration, pool: &str) -> jiff::SignedDuration {
    let spread =
        pool.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))) % 100;
    let half = life.as_secs() / 2;
    let seconds = half.saturating_sub(half * spread / 1000).max(60);
    jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
}

/// A Secret whose name others know.
struct WellKnown {
    what: &'static str,
    role: &'static str,
    is_of_the_go_implementation: fn(&Secret) -> bool,
}

const BOOTSTRAP: WellKnown = WellKnown {
    what: "the bootstrap Secret",
    role: ROLE_BOOTSTRAP,
    is_of_the_go_implementation: is_bootstrap_of_the_go_implementation,
};

const EDGE_SCRIPT: WellKnown = WellKnown {
    what: "the Secret with the edge script",
    role: ROLE_EDGE_SCRIPT,
    is_of_the_go_implementation: is_edge_script_of_the_go_implementation,
};

/// One write, so that its readers see the old document or the new one and nothing else.
async fn put(
    state: &State,
    gathered: &Gathered,
    known: &WellKnown,
    standing: Option<&SecretView>,
    mut secret: Secret,
) -> Result<(), Error> {
    let what = known.what;
    let api = state.secret_api();
    let name = secret.metadata.name.clone().unwrap_or_default();
    if let Some(standing) = standing {
        if !standing.immutable {
            secret.metadata.resource_version = Some(standing.meta.resource_version.clone());
            let replaced = api.replace(&name, &PostParams::default(), &secret).await;
            state.wrote_secret(&replaced.map_err(failed(what))?);
            return Ok(());
        }
        undo::delete_secret(state, standing).await?;
    }
    match api.create(&PostParams::default(), &secret).await {
        Ok(created) => state.wrote_secret(&created),
        Err(error) if status::already_exists(&error) => {
            let standing = api.get(&name).await.map_err(failed(what))?;
            let view = SecretView::of(&standing);
            let labelled = installation_of(&standing.metadata) == Some(&state.installation);
            if labelled && view.meta.config() == Some(gathered.name.as_str()) && view.is(known.role) {
                // The watch has yet to show it.
                state.wrote_secret(&standing);
                return Err(RequestError::Conflict { what }.into());
            }
            if labelled || lost_its_label(gathered, &view) || is_ours_by_mac(gathered, &view) {
                if standing.immutable == Some(true) {
                    undo::delete_secret(state, &view).await?;
                    let created = api.create(&PostParams::default(), &secret).await.map_err(failed(what))?;
                    state.wrote_secret(&created);
                    return Ok(());
                }
                secret.metadata.resource_version = standing.metadata.resource_version;
                let replaced = api.replace(&name, &PostParams::default(), &secret).await;
                state.wrote_secret(&replaced.map_err(failed(what))?);
                return Ok(());
            }
            if !(known.is_of_the_go_implementation)(&standing) {
                lock(&state.foreign).insert(name.clone());
                return Err(Error::ForeignSecret { name });
            }
            // It can't be changed: the only absence that is permitted, as short as can be.
            undo::delete(&api, &name, standing.metadata.uid.as_deref().unwrap_or_default(), None, what)
                .await?;
            state.wrote_secret(&api.create(&PostParams::default(), &secret).await.map_err(failed(what))?)
        }
        Err(error) => return Err(failed(what)(error).into()),
    };
    Ok(())
}

/// Whether a Secret is of the pool, as far as that is still written on it: nobody else comes by the pool's id.
fn lost_its_label(gathered: &Gathered, secret: &SecretView) -> bool {
    let labels = &secret.meta.labels;
    !labels.contains_key(names::INSTALLATION) && labels.get(names::POOL) == Some(&gathered.pool)
}

/// Whether a Secret without our labels, or with another's, carries what only we could have written. Whoever took it over
/// would have put a seal of its own on it.
fn is_ours_by_mac(gathered: &Gathered, secret: &SecretView) -> bool {
    let sealed =
        secret.content.as_deref().map(|content| plan::seal(&gathered.key, content, &secret.meta.annotations));
    sealed.is_some() && secret.meta.annotation(names::CONTENT_MAC) == sealed.as_deref()
}

/// Its bootstrap Secrets are immutable and carry nothing but the document and annotations of this form.
fn is_bootstrap_of_the_go_implementation(secret: &Secret) -> bool {
    let annotated = secret
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|a| a.contains_key(names::MACHINE_DEPLOYMENT_REVISION));
    let labelled =
        secret.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::INSTALLATION));
    let document = secret.data.as_ref().is_some_and(|data| data.contains_key(names::CLOUD_CONFIG_KEY));
    secret.immutable == Some(true) && annotated && document && !labelled
}

/// Its scripts stand alone, without labels or annotations.
fn is_edge_script_of_the_go_implementation(secret: &Secret) -> bool {
    let script = secret.data.as_ref().is_some_and(|data| data.keys().eq([names::EDGE_SCRIPT_KEY]));
    let bare = |map: &Option<BTreeMap<String, String>>| map.as_ref().is_none_or(BTreeMap::is_empty);
    script && bare(&secret.metadata.labels) && bare(&secret.metadata.annotations)
}

async fn tidy(state: &State, gathered: &Gathered, keep: Keep) -> Result<(), Error> {
    for secret in &keep.outdated {
        undo::delete_secret(state, secret).await?;
        tracing::info!(
            config = gathered.name,
            secret = secret.meta.name,
            "no token that may fetch it is alive: deleted"
        );
    }
    if let (Some(secrets), Some(role)) = (keep.narrow, gathered.made.role.as_deref()) {
        find_again(state, gathered).await?;
        let metadata = ObjectMeta {
            name: Some(role.meta.name.clone()),
            labels: Some(role.meta.labels.clone()),
            annotations: Some(role.meta.annotations.clone()),
            ..ObjectMeta::default()
        };
        put_role(state, Some(role), metadata, secrets).await?;
    }
    Ok(())
}

async fn apply_orphan(state: &State, gathered: &Gathered, step: OrphanStep) -> Result<(), Error> {
    match step {
        OrphanStep::Mark(secrets) => {
            tracing::warn!(
                config = gathered.name,
                secrets = secrets.len(),
                "has no OperatingSystemConfig any more; kept for a day at least"
            );
            let since = gathered.now.to_string();
            for secret in secrets {
                let patch = json!({"metadata": {
                    "resourceVersion": secret.meta.resource_version,
                    "annotations": {names::ORPHANED_SINCE: since},
                }});
                let patched = state
                    .secret_api()
                    .patch(&secret.meta.name, &PatchParams::default(), &Patch::Merge(&patch))
                    .await;
                state.wrote_secret(&patched.map_err(failed("marking an orphaned Secret"))?);
            }
        }
        OrphanStep::Collect(made) => {
            is_the_same(&state.context.worker, &gathered.clusters.worker).await?;
            is_the_same(&state.context.management, &gathered.clusters.management).await?;
            let config = status::live(&state.config_api(), &gathered.name).await;
            let config = config.map_err(failed("reading the OperatingSystemConfig"))?;
            if gathered.config.is_none() && config.is_some() {
                return Err(RequestError::Conflict { what: "the OperatingSystemConfig" }.into());
            }
            if let Some(owner) = living_owner(state, &made).await? {
                tracing::warn!(
                    config = gathered.name,
                    machine_deployment = owner,
                    "has had no OperatingSystemConfig for a day, but its MachineDeployment is there: kept. Look whether osc-controller runs, and whether --namespace is the same for both"
                );
                return Ok(());
            }
            // Without a Secret it opens nothing, and there is nothing to lose.
            if made.secrets().next().is_some() && !collected::record(state, gathered.now).await? {
                return Ok(());
            }
            tracing::warn!(
                config = gathered.name,
                "has had no OperatingSystemConfig for a day: what was made for it is undone"
            );
            let pool = made.metas().find_map(Meta::pool).unwrap_or_default().to_owned();
            undo::undo_pool(state, &pool, &[*made]).await?;
        }
    }
    Ok(())
}

/// The MachineDeployment that something was made for, if it is still there: asked of the API server itself, in the
/// cluster that the Secrets are in, since configs are also missing where they are looked for in the wrong place.
async fn living_owner(state: &State, made: &Made) -> Result<Option<String>, Error> {
    let owners: BTreeSet<(&str, &str)> =
        made.metas().filter_map(|meta| Some((meta.annotation(names::OWNER)?, meta.pool()?))).collect();
    for (owner, pool) in owners {
        let Some((namespace, name)) = owner.split_once('/') else { continue };
        let api: Api<MachineDeployment> = Api::namespaced(state.context.worker.client.clone(), namespace);
        let live = status::live(&api, name).await.map_err(failed("reading the MachineDeployment"))?;
        let uid = live.and_then(|live| live.metadata.uid);
        if uid.is_some_and(|uid| names::pool_id(namespace, name, &uid) == pool) {
            return Ok(Some(owner.to_owned()));
        }
    }
    Ok(None)
}

fn metadata(state: &State, publish: &Publish, name: &str, role: &'static str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(publish.marks.labels(&state.installation, role)),
        annotations: Some(publish.marks.annotations.clone()),
        ..ObjectMeta::default()
    }
}

fn secret(metadata: ObjectMeta, key: &str, document: &str, immutable: bool) -> Secret {
    let data = BTreeMap::from([(key.to_owned(), ByteString(document.as_bytes().to_vec()))]);
    Secret {
        metadata,
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        immutable: immutable.then_some(true),
        ..Secret::default()
    }
}

fn namespaced<K>(state: &State) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(state.context.worker.client.clone(), CLOUD_INIT_SETTINGS)
}
