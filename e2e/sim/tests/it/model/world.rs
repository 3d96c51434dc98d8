//! Plays a case, from its first step to its outcome, in an installation in memory with its users.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use osc_controller::OscController;
use osm_api::condition::{self, Verdict};
use osm_api::config::{LateBound, LateBoundKind, OperatingSystemConfig, Stored};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::profile::{File, FileContent, OperatingSystemProfile};
use osm_api::rbac::{Installation, Service};
use osm_api::{Reason, definitions};
use osm_runtime::replicas::Replicas;
use osm_runtime::service::serve_only;
use osm_runtime::{Cluster, CommonArgs, Connection, Environment, Process, Scope, settings_watch, status};
use osm_sim::invariants::{Change, Observer, Purpose, What};
use osm_sim::memory::{Backup, Link, Server, State, User};
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::{fixtures, machine_controller, provisioning};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use secret_syncer::SecretSyncer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::case::{Act, Case, Damaged, How, POOLS, Which};
use super::fault_schedule::{FaultSchedule, Place, mix};

pub const NAMESPACE: &str = "osm";
pub const PROFILE: &str = "osp-tiny";
/// Where the registry's password is.
const REGISTRY: &str = "registry";
/// Longer waits have no more than one replica of each service.
const MINUTES_TOGETHER: u32 = 5;
const KUBELETS: [&str; 4] = ["1.33.7", "1.34.2", "1.34.3", "1.35.1"];

/// File of a document whose machines fetch a kubeconfig Secret.
const JOIN: &str = "/etc/join";

/// An installation, and what the people around it want.
pub struct World {
    pub server: Server,
    pub observer: Arc<Mutex<Observer>>,
    pub schedule: Arc<FaultSchedule>,
    services: Vec<Arc<Running>>,
    /// Things that are still to be done by others than the services.
    pending: Mutex<Vec<JoinHandle<()>>>,
    wanted: Mutex<Wanted>,
    /// Before each step, with the mode that it had.
    backups: Mutex<Vec<Backup>>,
    /// Whether other controllers rewrite the sources.
    rewrites: Arc<AtomicBool>,
    /// Pools whose record was forged, and of which pool it then was.
    forged: Mutex<Vec<(usize, usize)>>,
    kubeconfigs: Arc<Mutex<Kubeconfigs>>,
}

/// Whether a document that names a kubeconfig Secret was published before that Secret.
#[derive(Default)]
struct Kubeconfigs {
    /// Names of all kubeconfig Secrets that ever were.
    made: BTreeSet<String>,
    /// The bootstrap Secrets that came before theirs.
    missed: BTreeSet<String>,
}

impl Kubeconfigs {
    fn observe(&mut self, state: &State, change: &Change) {
        let label = |label: &str| {
            change.object["metadata"]["labels"][label]
                .as_str()
                .unwrap_or_default()
        };
        let name = change.object["metadata"]["name"].as_str().unwrap_or_default();
        if change.object["kind"] != "Secret" || change.what == What::Deleted {
            return;
        }
        let wanted = names::kubeconfig_secret_name(label(names::POOL));
        if name == wanted {
            self.made.insert(wanted);
        } else if name.ends_with("-bootstrap-config")
            && names_kubeconfig(state, &change.object)
            && !self.made.contains(&wanted)
        {
            let missed = format!("{name} was published before {wanted}");
            self.missed.insert(missed);
        }
    }
}

/// Whether the document that this bootstrap Secret names has a file with the name of a kubeconfig Secret.
fn names_kubeconfig(state: &State, bootstrap: &Value) -> bool {
    let document = || {
        let bootstrap: Secret = serde_json::from_value(bootstrap.clone()).ok()?;
        let revision = bootstrap
            .annotations()
            .get(names::MACHINE_DEPLOYMENT_REVISION)?
            .clone();
        let data = machine_controller::user_data(&bootstrap, &revision, "machine").ok()?;
        let name = fixtures::parse(data).ok()?.provisioning_secret;
        let document = state.object("secrets", CLOUD_INIT_SETTINGS, &name)?;
        provisioning::document(serde_json::from_value(document.clone()).ok()?).ok()
    };
    document().is_some_and(|document| document.contains(JOIN))
}

/// What machines are to boot with.
#[derive(Clone, Default)]
struct Wanted {
    profile: u64,
    text: String,
    password: u64,
    registry: bool,
    /// The settings are broken or gone, until they are set again.
    broken_settings: bool,
    /// Counts templates, for every pool.
    templates: u64,
}

/// A service.
struct Running {
    service: Service,
    server: Server,
    schedule: Arc<FaultSchedule>,
    replicas: Mutex<Vec<Arc<Replica>>>,
    /// Started with a namespace in which there is nothing.
    lost: AtomicBool,
    /// Pods so far.
    pods: AtomicU64,
    processes: AtomicU64,
}

/// One of its replicas, one process after another.
#[derive(Default)]
struct Replica {
    link: Mutex<Link>,
    /// How long it stays away the next time.
    away: AtomicU64,
    /// It has been asked to end.
    leaves: CancellationToken,
}

fn installation() -> Installation {
    Installation {
        namespace: NAMESPACE.to_owned(),
        ..Installation::default()
    }
}

pub fn pool(number: usize) -> String {
    format!("pool-{number}")
}

impl World {
    /// An installation without pools, before its services have started.
    pub fn new(seed: u64, schedule: FaultSchedule) -> Self {
        let server = Server::new(Timestamp::from_second(1_790_000_000).unwrap());
        let observer = Arc::new(Mutex::new(Observer::new(fixtures::parse, SignedDuration::ZERO)));
        let watching = observer.clone();
        let kubeconfigs = Arc::<Mutex<Kubeconfigs>>::default();
        let seen = kubeconfigs.clone();
        server.on_change(move |state, change| {
            // They open nothing, and are many.
            if change.object["kind"] == "Lease" {
                return;
            }
            seen.lock().unwrap().observe(state, change);
            let mut observer = watching.lock().unwrap();
            observer.observe(change);
            observer.ask(state.now(), |probe| {
                is_accepted(state, &probe.token, &probe.purpose)
            });
        });
        server.with(|state| state.set_admission(needs_tokens_later));
        server
            .load(&[definitions::PROFILES, definitions::CONFIGS].map(definitions::parse))
            .unwrap();
        server.load(&installation::manifests(&installation())).unwrap();
        server.load(&objects()).unwrap();
        let schedule = Arc::new(schedule);
        let services = [Service::OscController, Service::SecretSyncer].map(|service| {
            Arc::new(Running {
                service,
                server: server.clone(),
                schedule: schedule.clone(),
                replicas: Mutex::default(),
                lost: AtomicBool::new(false),
                pods: AtomicU64::new(0),
                processes: AtomicU64::new(seed),
            })
        });
        let wanted = Wanted {
            registry: true,
            ..Wanted::default()
        };
        let world = Self {
            server,
            observer,
            schedule,
            services: services.to_vec(),
            pending: Mutex::default(),
            wanted: Mutex::new(wanted),
            backups: Mutex::default(),
            rewrites: Arc::default(),
            forged: Mutex::default(),
            kubeconfigs,
        };
        world.set_settings(24);
        world.edit_profile();
        world.server.with(judge);
        world
    }

    /// Keeps so many replicas of both services running, and sends the probes every minute.
    pub fn start(&self, replicas: [usize; 2]) {
        for (running, count) in self.services.iter().zip(replicas) {
            running.scale(count);
        }
        let (server, observer) = (self.server.clone(), self.observer.clone());
        let rewrites = self.rewrites.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(60)).await;
                server.with(|state| {
                    if rewrites.load(Ordering::SeqCst) {
                        rewrite_sources(state);
                    }
                    let now = state.now();
                    observer
                        .lock()
                        .unwrap()
                        .ask(now, |probe| is_accepted(state, &probe.token, &probe.purpose));
                });
            }
        });
    }

    fn service(&self, which: Which) -> &Arc<Running> {
        &self.services[which as usize]
    }

    fn replica(&self, which: Which, one: usize) -> Arc<Replica> {
        let replicas = self.service(which).replicas.lock().unwrap();
        replicas[one % replicas.len()].clone()
    }

    pub fn kill(&self, which: Which, one: usize, away: Duration) {
        self.replica(which, one).kill(away);
    }

    /// From its next start on secret-syncer looks into another namespace, or into its own again.
    pub fn lose(&self, lost: bool) {
        let running = self.service(Which::SecretSyncer);
        running.lost.store(lost, Ordering::SeqCst);
        for replica in running.replicas.lock().unwrap().iter() {
            replica.kill(Duration::from_millis(500));
        }
    }

    fn freeze(&self, which: Which, one: usize, millis: u32) {
        let link = self.replica(which, one).link.lock().unwrap().clone();
        link.freeze();
        self.later(millis, move |state| {
            state.remark("what was stopped goes on");
            link.thaw();
        });
    }

    /// Gives the number of replicas before.
    pub fn scale(&self, replicas: [usize; 2]) -> [usize; 2] {
        let mut before = [0; 2];
        for ((running, count), before) in self.services.iter().zip(replicas).zip(&mut before) {
            *before = running.replicas.lock().unwrap().len();
            running.scale(count);
        }
        before
    }

    pub fn scale_one(&self, which: Which, count: usize) {
        self.service(which).scale(count);
    }

    fn later(&self, millis: u32, act: impl FnOnce(&mut State) + Send + 'static) {
        let server = self.server.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(millis.into())).await;
            server.with(act);
        });
        self.pending.lock().unwrap().push(task);
    }

    pub fn create_pool(&self, number: usize) {
        let name = pool(number);
        let mut md = fixtures::machine_deployment(&name, PROFILE);
        md["spec"]["template"]["spec"]["versions"]["kubelet"] = json!(KUBELETS[0]);
        if self.server.with(|state| state.create(md)).is_ok() {
            self.later(700, move |state| stamp(state, &name));
        }
    }

    pub fn delete_pool(&self, number: usize) {
        let _ = self
            .server
            .with(|state| state.delete("machinedeployments", "kube-system", &pool(number)));
    }

    pub fn edit_template(&self, number: usize, later: u32) {
        let count = {
            let mut wanted = self.wanted.lock().unwrap();
            wanted.templates += 1;
            wanted.templates
        };
        let name = pool(number);
        let template = json!({"spec": {"template": {
            "metadata": {"annotations": {"forceRestart": count.to_string()}},
            "spec": {"versions": {"kubelet": KUBELETS[count as usize % KUBELETS.len()]}}}}});
        let edited = self
            .server
            .with(|state| state.patch("machinedeployments", "kube-system", &name, &template));
        if edited.is_ok() {
            self.later(later, move |state| stamp(state, &name));
        }
    }

    pub fn edit_profile(&self) {
        let mut wanted = self.wanted.lock().unwrap();
        wanted.profile += 1;
        wanted.text = format!("profile of {}.", wanted.profile);
        let profile = fixtures::profile(
            NAMESPACE,
            PROFILE,
            &format!("v{}.0.0", wanted.profile),
            &wanted.text,
        );
        self.server
            .with(|state| put(state, "operatingsystemprofiles", NAMESPACE, profile));
    }

    pub fn break_profile(&self) {
        let mut wanted = self.wanted.lock().unwrap();
        wanted.profile += 1;
        let profile = fixtures::profile(NAMESPACE, PROFILE, &format!("v{}.0.0", wanted.profile), "{{#if}}");
        self.server
            .with(|state| put(state, "operatingsystemprofiles", NAMESPACE, profile));
    }

    pub fn set_settings(&self, hours: u16) {
        let registry = {
            let mut wanted = self.wanted.lock().unwrap();
            wanted.broken_settings = false;
            wanted.registry
        };
        let mut document = json!({"credentials": {"tokenLifetimeHours": hours}});
        if registry {
            let credentials = json!({"namespace": REGISTRY, "name": "login"});
            document["containerd"] =
                json!({"registries": [{"host": "registry.example", "credentials": credentials}]});
        }
        let map = installation::settings(&installation(), &document.to_string());
        self.server.with(|state| put(state, "configmaps", NAMESPACE, map));
    }

    pub fn set_password(&self) {
        let mut wanted = self.wanted.lock().unwrap();
        wanted.password += 1;
        let secret = password(wanted.password);
        self.server.with(|state| put(state, "secrets", REGISTRY, secret));
    }

    pub fn delete_password(&self) {
        let _ = self
            .server
            .with(|state| state.delete("secrets", REGISTRY, "login"));
    }

    pub fn delete_config(&self, number: usize) {
        let name = self.config(number);
        let _ = self
            .server
            .with(|state| state.delete("operatingsystemconfigs", NAMESPACE, &name));
    }

    pub fn edit_config(&self, number: usize) {
        let edit = match number % 2 {
            0 => json!({"spec": {"osVersion": "by hand", "bootstrapConfig": {"files": []}}}),
            _ => json!({"status": {"rendered": {"provisioning": "by hand"}}}),
        };
        let name = self.config(number);
        let _ = self
            .server
            .with(|state| state.patch("operatingsystemconfigs", NAMESPACE, &name, &edit));
    }

    pub fn delete_settings(&self) {
        let _ = self
            .server
            .with(|state| state.delete("configmaps", NAMESPACE, &installation().settings));
    }

    /// A Secret of `cloud-init-settings`.
    pub fn secret(&self, name: &str) -> Option<Value> {
        self.server
            .with(|state| state.object("secrets", CLOUD_INIT_SETTINGS, name).cloned())
    }

    fn config(&self, number: usize) -> String {
        names::config_name(&pool(number), "kube-system")
    }

    /// Damages an object of a pool, if it has one.
    pub fn damage(&self, number: usize, what: Damaged, how: How) {
        let bootstrap = names::bootstrap_secret_name(&pool(number), "kube-system");
        let found = self.server.with(|state| {
            let named = |plural: &'static str, name: &str| {
                state
                    .object(plural, CLOUD_INIT_SETTINGS, name)
                    .map(|_| (plural, name.to_owned()))
            };
            let bootstrap_secret = state.object("secrets", CLOUD_INIT_SETTINGS, &bootstrap)?;
            let id = bootstrap_secret["metadata"]["labels"][names::POOL]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let identity = names::pool_object("node", &id);
            let annotations = &bootstrap_secret["metadata"]["annotations"];
            match what {
                Damaged::Bootstrap => named("secrets", &bootstrap),
                Damaged::Provisioning => named("secrets", annotations[names::PROVISIONING_SECRET].as_str()?),
                Damaged::Kubeconfig => named("secrets", &names::kubeconfig_secret_name(&id)),
                Damaged::Account => named("serviceaccounts", &identity),
                Damaged::Role => named("roles", &identity),
                Damaged::Binding => named("rolebindings", &identity),
            }
        });
        let Some((plural, name)) = found else { return };
        let kind = match plural {
            "secrets" => "Secret",
            "serviceaccounts" => "ServiceAccount",
            "roles" => "Role",
            _ => "RoleBinding",
        };
        let content = match what {
            Damaged::Bootstrap => json!({"data": {"cloud-config": "Z2FyYmFnZQ=="}}),
            Damaged::Kubeconfig => json!({"data": {"kubeconfig": "Z2FyYmFnZQ=="}}),
            Damaged::Role => {
                json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]})
            }
            Damaged::Binding => json!({"subjects": null}),
            Damaged::Provisioning | Damaged::Account => {
                json!({"metadata": {"annotations": {"somebody": "was here"}}})
            }
        };
        let patch = match how {
            How::Delete => None,
            How::Unlabel => Some(json!({"metadata": {"labels": {names::INSTALLATION: null}}})),
            How::Unannotate => Some(json!({"metadata": {"annotations": {names::CONFIG: null}}})),
            How::Content => Some(content),
        };
        let before = self
            .server
            .with(|state| state.object(plural, CLOUD_INIT_SETTINGS, &name).cloned());
        let changes = patch
            .as_ref()
            .is_none_or(|patch| would_change(before.as_ref(), patch));
        if !changes {
            return;
        }
        let what = if patch.is_none() {
            What::Deleted
        } else {
            What::Modified
        };
        let uid = before
            .as_ref()
            .and_then(|before| before["metadata"]["uid"].as_str())
            .unwrap_or_default();
        self.observer.lock().unwrap().interferes(kind, &name, uid, what);
        self.server.with(|state| {
            state.remark(&format!("somebody damages {kind} {name}: {how:?}"));
            match patch {
                None => state.delete(plural, CLOUD_INIT_SETTINGS, &name).unwrap(),
                Some(patch) => drop(state.patch(plural, CLOUD_INIT_SETTINGS, &name, &patch).unwrap()),
            }
        });
    }

    /// Lets time pass. Requests without end, which would keep it from passing, are a failure.
    pub async fn pass(&self, time: Duration) {
        const STEP: Duration = Duration::from_secs(600);
        let mut left = time;
        while !left.is_zero() {
            let before = self.schedule.requests();
            tokio::select! {
                biased;
                () = tokio::time::sleep(left.min(STEP)) => {}
                () = self.schedule.more_than(before + 20_000) => panic!("requests without end\n\n{}", self.story()),
            }
            left = left.saturating_sub(STEP);
        }
    }

    /// Someone writes what is published for `of` into the status of a pool.
    fn forge(&self, number: usize, of: usize) {
        const CONFIGS: &str = "operatingsystemconfigs";
        let [forged, of] = [number, of].map(|number| self.config(number));
        self.server.with(|state| {
            let published =
                |name| Some(state.object(CONFIGS, NAMESPACE, name)?["status"]["published"].clone());
            let mut published = published(&of).unwrap_or_default();
            if of == forged && published.is_object() {
                published["provisioningSecret"] = json!("osm-provisioning-none");
                published["digest"] = json!("none");
            }
            let _ = state.patch(
                CONFIGS,
                NAMESPACE,
                &forged,
                &json!({"status": {"published": published}}),
            );
        });
    }

    /// etcd is restored as it was before the step so many steps ago.
    async fn restore(&self, steps: usize, away: Duration) {
        let backup = self.backups.lock().unwrap().iter().rev().nth(steps).cloned();
        self.finish_pending().await;
        let Some(backup) = backup.filter(|_| self.broken().is_ok()) else {
            return;
        };
        self.server.restore(backup, away);
        self.pass(away).await;
        self.wanted.lock().unwrap().broken_settings = true;
        self.server.with(|state| {
            judge(state);
            (0..POOLS).for_each(|number| stamp(state, &pool(number)));
        });
        // Until then, what was on its way arrives, and what has expired since the backup is renewed.
        self.pass(Duration::from_secs(120)).await;
        let watching = self.observer.clone();
        self.server.with(|state| {
            let kinds = [
                "machinedeployments",
                "operatingsystemconfigs",
                "serviceaccounts",
                "roles",
                "rolebindings",
                "secrets",
            ];
            let is_bootstrap = |object: &&Value| {
                let name = object["metadata"]["name"].as_str();
                name.unwrap().ends_with("-bootstrap-config")
            };
            let objects = kinds.iter().flat_map(|kind| state.all(kind));
            let (bootstraps, others): (Vec<&Value>, Vec<&Value>) = objects.partition(is_bootstrap);
            let mut observer = Observer::new(fixtures::parse, SignedDuration::ZERO);
            let observe = |observer: &mut Observer, object: Value| {
                observer.observe(&Change {
                    at: state.now(),
                    what: What::Added,
                    object,
                });
            };
            for object in others {
                // An earlier revision may still be what is published.
                let revision = object["metadata"]["annotations"][names::REVISION].as_str();
                for earlier in 1..revision.map_or(0, |revision| revision.parse().unwrap()) {
                    let mut before = object.clone();
                    before["metadata"]["annotations"][names::REVISION] = json!(earlier.to_string());
                    before["metadata"]["resourceVersion"] = json!(format!("before {earlier}"));
                    observe(&mut observer, before);
                }
                observe(&mut observer, object.clone());
            }
            // The backup may hold what someone had damaged, and then it takes the settings to put it right.
            observer.excuse_all(Timestamp::MIN);
            for object in bootstraps {
                observe(&mut observer, object.clone());
            }
            *watching.lock().unwrap() = observer;
        });
    }

    async fn act(&self, act: Act) {
        self.server.with(|state| {
            self.backups.lock().unwrap().push(state.backup());
            state.remark(&format!("{act:?}"));
        });
        match act {
            Act::Wait(minutes) => {
                let time = Duration::from_secs(60 * u64::from(minutes));
                if minutes <= MINUTES_TOGETHER {
                    self.pass(time).await;
                } else {
                    // Who is alone hardly renews its Lease.
                    let before = self.scale([1, 1]);
                    self.pass(time).await;
                    self.scale(before);
                }
            }
            Act::CreatePool(number) => self.create_pool(number),
            Act::DeletePool(number) => self.delete_pool(number),
            Act::ReplacePool(number) => {
                self.delete_pool(number);
                self.create_pool(number);
            }
            Act::Template(number, later) => self.edit_template(number, later),
            Act::Profile(later) => {
                self.edit_profile();
                self.later(later, judge);
            }
            Act::BrokenProfile(later) => {
                self.break_profile();
                self.later(later, judge);
            }
            Act::Settings(hours, registry) => {
                self.wanted.lock().unwrap().registry = registry;
                self.set_settings(hours);
            }
            // Nobody could put right what a config said before: it is nowhere, and can't be rendered.
            Act::BrokenSettings | Act::NoSettings if self.is_edited() => {}
            Act::EditConfig(_) if self.wanted.lock().unwrap().broken_settings => {}
            Act::BrokenSettings => {
                self.wanted.lock().unwrap().broken_settings = true;
                let map = installation::settings(&installation(), "credentials: {tokenLifetimeHours: 0}");
                self.server.with(|state| put(state, "configmaps", NAMESPACE, map));
            }
            Act::NoSettings => {
                self.wanted.lock().unwrap().broken_settings = true;
                self.delete_settings();
            }
            Act::Password => self.set_password(),
            Act::NoPassword => self.delete_password(),
            Act::NoOscController(minutes) => {
                let away = Duration::from_secs(60 * u64::from(minutes));
                self.scale_one(Which::OscController, 1);
                self.kill(Which::OscController, 0, away);
            }
            Act::ShortenTokens(hours) => self.server.with(|state| {
                state.shorten_tokens(jiff::SignedDuration::from_hours(hours.into()));
            }),
            Act::Damage(number, what, how) => self.damage(number, what, how),
            Act::DeleteConfig(number) => self.delete_config(number),
            Act::EditConfig(number) => self.edit_config(number),
            Act::Kill(which, one, away) => self.kill(which, one, Duration::from_millis(away.into())),
            Act::Freeze(which, one, millis) => self.freeze(which, one, millis),
            Act::Scale(which, count) => self.scale_one(which, count),
            Act::RewriteSources => self.rewrites.store(true, Ordering::SeqCst),
            Act::Rollout(number, times) => (1..=times).for_each(|time| {
                let status = json!({"status": {"updatedReplicas": time}});
                self.later(500 * time, move |state| {
                    let _ = state.patch("machinedeployments", "kube-system", &pool(number), &status);
                });
            }),
            Act::Forge(number, of) => {
                self.forged.lock().unwrap().push((number, of));
                self.forge(number, of);
            }
            Act::Restore(steps, away) => self.restore(steps, Duration::from_secs(away.into())).await,
            Act::OlderVersion(refuses) => self.older_version(refuses).await,
            Act::Lost(seconds) => {
                self.lose(true);
                tokio::time::sleep(Duration::from_secs(seconds.into())).await;
                self.lose(false);
            }
        }
    }

    /// Writes as `crates/osc-controller/src/report.rs` of commit ce96c02c does: one manager sends documents
    /// and conditions, and the last documents as they are stored.
    async fn older_version(&self, refuses: bool) {
        let count = self.service(Which::OscController).replicas.lock().unwrap().len();
        self.scale_one(Which::OscController, 0);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let configs = osm_runtime::Api::<OperatingSystemConfig>::namespaced(self.server.admin(), NAMESPACE);
        let stored: Vec<Value> = self
            .server
            .with(|state| state.all("operatingsystemconfigs").cloned().collect());
        let now = self.server.now();
        for stored in stored {
            let Ok(config) = serde_json::from_value::<OperatingSystemConfig>(stored.clone()) else {
                continue;
            };
            let (status, meta) = (config.status.unwrap_or_default(), config.metadata);
            if status.retired.is_some() {
                continue;
            }
            let verdict = |type_, reason| Verdict {
                type_,
                status: false,
                reason,
                message: format!("older version, {now}"),
            };
            let failed = verdict(condition::RENDERED, Reason::ProfileNotFound);
            let refused = refuses.then(|| verdict(condition::CURRENT, Reason::SettingsInvalid));
            let verdicts = std::iter::once(failed).chain(refused);
            let conditions: Vec<_> = verdicts
                .map(|verdict| verdict.condition(&status.conditions, meta.generation, now))
                .collect();
            let own = json!({"conditions": conditions, "profile": status.profile,
                "rendered": stored["status"]["rendered"]});
            let (name, version) = (meta.name.unwrap(), meta.resource_version.unwrap());
            let manager = osc_controller::report::FIELD_MANAGER;
            // Refused while the newer version owns a part of a condition that is no longer sent, and if
            // secret-syncer wrote meanwhile.
            match status::apply(&configs, manager, &name, &version, &own).await {
                Ok(_) | Err(kube::Error::Api(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.scale_one(Which::OscController, count);
    }

    async fn finish_pending(&self) {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap());
        for task in pending {
            task.await.unwrap();
        }
    }

    /// Everybody finishes what was begun, what is missing for rendering is there again, and nothing goes
    /// wrong any more.
    pub async fn end_of_faults(&self) {
        self.finish_pending().await;
        self.set_settings(24);
        self.set_password();
        self.edit_profile();
        self.server.with(judge);
        self.schedule.calm_down();
        // One that is away for hours comes back.
        self.scale_one(Which::OscController, 0);
        self.scale_one(Which::OscController, 1);
        self.server.with(|state| state.remark("the end of faults"));
        // Two crashes in a row, and everything that follows.
        self.pass(Duration::from_secs(60)).await;
        self.scale([1, 1]);
        // Nothing else is a reason to write it again.
        for (number, of) in self.forged.lock().unwrap().iter() {
            self.forge(*number, *of);
        }
    }

    /// Whether what some config says is not what osc-controller vouches for.
    fn is_edited(&self) -> bool {
        self.server.with(|state| {
            let mut configs = state.all("operatingsystemconfigs");
            configs.any(|config| {
                let typed = serde_json::from_value::<OperatingSystemConfig>(config.clone());
                typed.is_ok_and(|config| config.content().is_err())
            })
        })
    }

    /// Judges a world that had time to mend everything; gives what was broken.
    pub async fn verdict(&self) -> Result<(), String> {
        if self.left_of_others() {
            // What has lost its config is looked at every ten minutes.
            self.pass(Duration::from_secs(660)).await;
        }
        self.settled();
        self.broken()?;
        let since = self.calm_stretch().await;
        self.observer.lock().unwrap().quiet_since(since);
        self.broken()
    }

    /// (d): what stands is what is wanted.
    fn settled(&self) {
        let now = self.server.now();
        self.observer.lock().unwrap().settled(now);
    }

    /// What was made for pools that are gone, and is still there.
    fn left_of_others(&self) -> bool {
        self.server.with(|state| {
            let living: Vec<String> = state
                .all("machinedeployments")
                .map(|md| {
                    let of = |key: &str| md["metadata"][key].as_str().unwrap_or_default();
                    names::pool_id(of("namespace"), of("name"), of("uid"))
                })
                .collect();
            ["secrets", "serviceaccounts", "roles", "rolebindings"]
                .iter()
                .any(|plural| {
                    state.all(plural).any(|object| {
                        let pool = object["metadata"]["labels"][names::POOL].as_str();
                        pool.is_some_and(|pool| !living.iter().any(|living| living == pool))
                    })
                })
        })
    }

    /// Waits for nine minutes in which nothing is due; gives their beginning.
    async fn calm_stretch(&self) -> Timestamp {
        let stretch = jiff::SignedDuration::from_mins(9);
        for _ in 0..50 {
            let since = self.server.now();
            let due = self.server.with(|state| {
                let times = state.all("secrets").flat_map(|secret| {
                    [names::RENEW_AT, names::KEEP_UNTIL].map(|key| {
                        secret["metadata"]["annotations"][key]
                            .as_str()?
                            .parse::<Timestamp>()
                            .ok()
                    })
                });
                times
                    .flatten()
                    .filter(|at| *at > since && *at < since + stretch)
                    .max()
            });
            let Some(due) = due else {
                tokio::time::sleep(Duration::from_secs(9 * 60)).await;
                return since;
            };
            let left = Duration::try_from(due.duration_since(since)).unwrap();
            // A document that is kept no longer is noticed at the latest when everything is looked at.
            tokio::time::sleep(left + Duration::from_secs(660)).await;
        }
        panic!("something is due at all times");
    }

    /// What machines of every pool would boot with is what people want.
    pub fn wanted(&self) -> Result<(), String> {
        let wanted = self.wanted.lock().unwrap().clone();
        let pools: Vec<Value> = self
            .server
            .with(|state| state.all("machinedeployments").cloned().collect());
        let observer = self.observer.lock().unwrap();
        for md in pools {
            let name = md["metadata"]["name"].as_str().unwrap();
            let kubelet = md["spec"]["template"]["spec"]["versions"]["kubelet"]
                .as_str()
                .unwrap();
            let (bootstrap, provisioning) = observer
                .documents("kube-system", name)
                .ok_or(format!("{name} has no documents"))?;
            let provisioning = String::from_utf8(provisioning).unwrap();
            self.kubeconfig_is_good(md["metadata"]["uid"].as_str().unwrap(), name, &provisioning)?;
            let config = names::config_name(name, "kube-system");
            let record = self.server.with(|state| {
                let config = state.object("operatingsystemconfigs", NAMESPACE, &config);
                config.map(|config| config["status"]["published"]["provisioningSecret"].clone())
            });
            if record != Some(json!(bootstrap.provisioning_secret)) {
                return Err(format!("{name} has {record:?} in its status"));
            }
            let password = format!("password {}", wanted.password);
            if !bootstrap.text.contains(&wanted.text) {
                return Err(format!("{name} has not {}: {}", wanted.text, bootstrap.text));
            }
            if !provisioning.contains(kubelet) || provisioning.contains(&password) != wanted.registry {
                return Err(format!(
                    "{name} has not kubelet {kubelet} and {password}: {provisioning}"
                ));
            }
        }
        Ok(())
    }

    /// A machine that needs its tokens later finds a living one in its document, and another one in its
    /// kubeconfig.
    fn kubeconfig_is_good(&self, uid: &str, name: &str, provisioning: &str) -> Result<(), String> {
        let secret = names::kubeconfig_secret_name(&names::pool_id("kube-system", name, uid));
        let token = osm_judges::user_data_files(provisioning)
            .map_err(|complaints| complaints.to_string())?
            .into_iter()
            .find(|file| file.path == JOIN)
            .and_then(|file| Some(file.content.split_once(' ')?.0.to_owned()));
        let Some(token) = token else {
            return if name == pool(1) {
                Err(format!("{name} has no token in its provisioning document"))
            } else {
                Ok(())
            };
        };
        self.server.with(|state| {
            let text = state
                .object("secrets", CLOUD_INIT_SETTINGS, &secret)
                .and_then(|secret| {
                    let data = secret["data"]["kubeconfig"].as_str()?;
                    String::from_utf8(STANDARD.decode(data).ok()?).ok()
                });
            let kubelet = text.ok_or(format!("{name} has no kubeconfig"))?;
            let good = is_accepted(state, &token, &Purpose::Fetch(secret))
                && is_accepted(state, &kubelet, &Purpose::Join);
            good.then_some(()).ok_or(format!("{name} has dead tokens"))
        })
    }

    /// Promises that were broken so far.
    pub fn broken(&self) -> Result<(), String> {
        let mut broken: Vec<String> = self
            .observer
            .lock()
            .unwrap()
            .violations()
            .iter()
            .map(ToString::to_string)
            .collect();
        broken.extend(self.kubeconfigs.lock().unwrap().missed.iter().cloned());
        broken.extend(self.server.unsupported());
        if broken.is_empty() {
            Ok(())
        } else {
            Err(broken.join("\n"))
        }
    }

    /// What has happened, for people.
    pub fn story(&self) -> String {
        self.server
            .with(|state| state.trace().collect::<Vec<_>>().join("\n"))
    }
}

impl Replica {
    fn kill(&self, away: Duration) {
        self.away
            .store(u64::try_from(away.as_millis()).unwrap(), Ordering::SeqCst);
        self.link.lock().unwrap().kill();
    }
}

impl Running {
    /// Starts replicas, or has the last ones end, until there are so many.
    fn scale(self: &Arc<Self>, count: usize) {
        let mut replicas = self.replicas.lock().unwrap();
        while replicas.len() > count {
            replicas.pop().unwrap().leaves.cancel();
        }
        while replicas.len() < count {
            let replica = Arc::<Replica>::default();
            replicas.push(replica.clone());
            tokio::spawn(self.clone().live(replica));
        }
    }

    fn pod(&self) -> String {
        self.pods.fetch_add(1, Ordering::SeqCst).to_string()
    }

    async fn live(self: Arc<Self>, replica: Arc<Replica>) {
        let mut pod = self.pod();
        while !replica.leaves.is_cancelled() {
            let link = Link::new(Arc::new(Place::new(&self.schedule, &pod)));
            *replica.link.lock().unwrap() = link.clone();
            let (shutdown, process) = self.start(&pod, &link);
            tokio::select! {
                biased;
                () = link.died() => {}
                () = replica.leaves.cancelled() => {
                    shutdown.cancel();
                    // Kubernetes does not wait any longer.
                    let _ = tokio::time::timeout(Duration::from_secs(30), process).await;
                    link.kill();
                }
            }
            shutdown.cancel();
            let away = replica.away.swap(1_000, Ordering::SeqCst);
            if away % 2 == 1 {
                pod = self.pod();
            }
            let _ = tokio::time::timeout(Duration::from_millis(away), replica.leaves.cancelled()).await;
        }
    }

    /// Starts a process of this service.
    fn start(&self, pod: &str, link: &Link) -> (CancellationToken, JoinHandle<()>) {
        let server = &self.server;
        let user = User::ServiceAccount {
            namespace: IDENTITIES.to_owned(),
            name: self.service.name().to_owned(),
        };
        let connect = |user| server.client_builder(user, link).build();
        let lost = self.lost.load(Ordering::SeqCst);
        let namespace = if lost { "default" } else { NAMESPACE };
        let process = self.processes.fetch_add(1, Ordering::SeqCst);
        let random = Mutex::new(StdRng::seed_from_u64(mix(&[process, self.service as u64])));
        let clock = server.clone();
        let environment = Environment::new(
            move || clock.now(),
            move |bytes| random.lock().unwrap().fill_bytes(bytes),
        );
        let clients = [connect(user), connect(User::Nobody)];
        let args = CommonArgs {
            namespace: namespace.to_owned(),
            pod_name: Some(pod.to_owned()),
            ..CommonArgs::default()
        };
        let process = Process::new(self.service, args, environment).unwrap();
        let (connection, scope) = (Connection::by(&process, clients), Scope::of(&process));
        let id = match self.service {
            Service::SecretSyncer => NAMESPACE,
            _ => namespace,
        };
        let installation = Installation {
            id: id.to_owned(),
            namespace: namespace.to_owned(),
            ..installation()
        };
        let service = self.service;
        server.with(|state| state.remark(&format!("{}-{pod} starts", service.name())));
        let shutdown = process.shutdown.clone();
        let process = tokio::spawn(async move {
            let settings = settings_watch::spawn(&scope, &connection, &installation);
            let member = Replicas::watch(&scope, &connection, &installation);
            let (connections, replicas) = ([connection.clone(), connection], member.replicas().clone());
            let cluster = Cluster::new(scope, installation, connections, settings, replicas);
            match service {
                Service::OscController => serve_only::<OscController>(cluster).await.unwrap(),
                _ => serve_only::<SecretSyncer>(cluster).await.unwrap(),
            }
            member.leave().await;
        });
        (shutdown, process)
    }
}

/// What there is besides the manifests.
fn objects() -> Vec<Value> {
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "",
        "cluster": {"server": "https://api.example:6443", "certificate-authority-data": "Q0E="}}]});
    let bind = |namespace: &str, rules: Value| {
        let metadata = json!({"name": "osm:test", "namespace": namespace});
        let group = "rbac.authorization.k8s.io";
        let api = format!("{group}/v1");
        let subject = json!({"kind": "ServiceAccount", "name": "secret-syncer", "namespace": IDENTITIES});
        [
            json!({"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": rules}),
            json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject],
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "osm:test"}}),
        ]
    };
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": kubeconfig.to_string()}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REGISTRY}}),
        password(0),
        // Where a lost secret-syncer looks.
        installation::settings(
            &Installation {
                namespace: "default".to_owned(),
                ..installation()
            },
            "",
        ),
    ];
    objects.extend(bind(
        REGISTRY,
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}]),
    ));
    objects.extend(bind(
        "default",
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    ));
    objects
}

fn password(number: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": REGISTRY},
        "stringData": {"username": "user", "password": format!("password {number}")}})
}

/// Other controllers write what they have written before, and when; machine-controller counts machines.
fn rewrite_sources(state: &mut State) {
    let status = json!({"status": {"readyReplicas": state.now().as_second()}});
    for number in 0..POOLS {
        let _ = state.patch("machinedeployments", "kube-system", &pool(number), &status);
    }
    let annotations = json!({"metadata": {"annotations": {"test/written": state.now()}}});
    for (plural, namespace, name) in [
        ("secrets", REGISTRY, "login"),
        ("configmaps", "kube-public", "cluster-info"),
        ("configmaps", NAMESPACE, &installation().settings),
        ("operatingsystemprofiles", NAMESPACE, PROFILE),
    ] {
        // What is not there is not written.
        let _ = state.patch(plural, namespace, name, &annotations);
    }
}

fn put(state: &mut State, plural: &str, namespace: &str, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    if state.object(plural, namespace, &name).is_some() {
        state.patch(plural, namespace, &name, &object).unwrap();
    } else {
        state.create(object).unwrap();
    }
}

fn would_change(before: Option<&Value>, patch: &Value) -> bool {
    let Some(before) = before else { return false };
    fn differs(object: &Value, patch: &Value) -> bool {
        match patch {
            Value::Object(fields) => fields.iter().any(|(key, patch)| match (object.get(key), patch) {
                (None, Value::Null) => false,
                (None, _) | (Some(_), Value::Null) => true,
                (Some(object), patch) => differs(object, patch),
            }),
            other => object != other,
        }
    }
    differs(before, patch)
}

/// What the templates of the profile have no words for: the provisioning stage of some pools needs the pool's
/// tokens. Of pool 1 it always does, of pool 2 with every other profile.
fn needs_tokens_later(object: &mut Value) {
    if object["kind"] != "OperatingSystemConfig" || object["status"]["rendered"]["bootstrap"].is_null() {
        return;
    }
    let Ok(stored) = serde_json::from_value::<OperatingSystemConfig>(object.clone()) else {
        return;
    };
    // What was altered stays as it is.
    let Ok(mut content) = stored.content() else {
        return;
    };
    let text = |file: &File| match &file.content {
        FileContent {
            inline: Some(inline), ..
        } => inline.data.clone(),
        _ => String::new(),
    };
    let bootstrap = &content.bootstrap_config.files;
    let profile = bootstrap
        .iter()
        .find(|file| file.path == "/etc/text")
        .and_then(|file| {
            let text = text(file);
            let number = text.trim_start_matches("profile of ").trim_end_matches('.');
            number.parse::<u64>().ok()
        });
    let name = stored.name_any();
    let config = |number| names::config_name(&pool(number), "kube-system");
    let is_needed =
        name == config(1) || (name == config(2) && profile.is_some_and(|profile| profile % 2 == 0));
    let files = &mut content.provisioning_config.files;
    if !is_needed || files.iter().any(|file| file.path == JOIN) {
        return;
    }
    let join = "%%osm-late{api/token,raw}%% %%osm-late{kubelet/kubeconfig-secret-name,raw}%%";
    let join = json!({"path": JOIN, "permissions": 600, "content": {"inline": {"data": join}}});
    files.push(serde_json::from_value(join).unwrap());
    content.late_bound_values.push(LateBound {
        id: "kubelet/kubeconfig-secret-name".to_owned(),
        kind: LateBoundKind::KubeconfigSecretName,
        source: None,
    });
    content.kubelet_kubeconfig = Some("%%osm-late{kubelet/token,raw}%%".to_owned());
    let rendered = stored.status.and_then(|status| status.rendered).unwrap();
    object["status"]["rendered"] = json!(Stored::new(&content, true, rendered).with_documents(&content));
}

/// machine-controller has made the MachineSet of the template that stands: it counts.
pub fn stamp(state: &mut State, name: &str) {
    let Some(md) = state.object("machinedeployments", "kube-system", name) else {
        return;
    };
    let template = md["spec"]["template"].to_string();
    let annotations = &md["metadata"]["annotations"];
    if annotations["test/stamped"] == json!(template) {
        return;
    }
    let last: u64 = annotations[names::REVISION]
        .as_str()
        .and_then(|last| last.parse().ok())
        .unwrap_or(0);
    let stamped = json!({"metadata": {"annotations": {names::REVISION: (last + 1).to_string(), "test/stamped": template}}});
    state
        .patch("machinedeployments", "kube-system", name, &stamped)
        .unwrap();
}

/// osp-controller's part: it accepts the profile, or leaves the last good one and says why.
pub fn judge(state: &mut State) {
    let Some(stored) = state.object("operatingsystemprofiles", NAMESPACE, PROFILE) else {
        return;
    };
    let profile: OperatingSystemProfile = serde_json::from_value(stored.clone()).unwrap();
    let generation = profile.metadata.generation;
    let resolved = osm_render::resolve(&profile.spec).ok();
    let good = resolved.filter(|accepted| osm_render::compile(accepted).is_ok());
    let condition = |status: &str| json!([{"type": "Accepted", "status": status, "reason": "Judged", "message": "judged", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let status = match good {
        Some(accepted) => {
            json!({"observedGeneration": generation, "conditions": condition("True"), "accepted": accepted})
        }
        None => json!({"observedGeneration": generation, "conditions": condition("False")}),
    };
    state
        .patch(
            "operatingsystemprofiles",
            NAMESPACE,
            PROFILE,
            &json!({"status": status}),
        )
        .unwrap();
}

pub fn is_accepted(state: &State, token: &str, purpose: &Purpose) -> bool {
    const CSR: &str = "certificatesigningrequests";
    let group = "certificates.k8s.io";
    match purpose {
        Purpose::Fetch(secret) => state.allows(token, "get", "", "secrets", CLOUD_INIT_SETTINGS, secret),
        Purpose::Join => state.allows(token, "create", group, CSR, "", ""),
    }
}

/// Plays a case; gives the number of its requests, or what was broken and how it came about.
pub fn live_through(case: &Case) -> Result<u32, String> {
    let (judged, story) = play(case);
    judged.map_err(|broken| format!("{broken}\n\n{story}"))
}

/// Plays a case; gives the verdict and the story.
pub fn play(case: &Case) -> (Result<u32, String>, String) {
    assert!(
        case.acts
            .iter()
            .all(|(_, act)| !matches!(act, Act::CreatePool(number) if *number >= POOLS))
    );
    alone(async {
        let world = World::new(case.seed, FaultSchedule::new(case));
        world.start(case.replicas);
        for (gap, act) in &case.acts {
            tokio::time::sleep(Duration::from_millis((*gap).into())).await;
            world.act(*act).await;
        }
        // Faults that are left strike those who come to rest.
        tokio::time::sleep(Duration::from_secs(30)).await;
        world.end_of_faults().await;
        tokio::time::sleep(Duration::from_secs(300)).await;
        let judged = match world.verdict().await {
            Ok(()) => world.wanted(),
            broken => broken,
        };
        (judged.map(|()| world.schedule.requests()), world.story())
    })
}

/// Runs in one thread, in time of its own.
pub fn alone<T>(play: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(play)
}
