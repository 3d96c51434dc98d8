//! A release that serves clusters: whatever happens to one of them, or to a process, what is published there is
//! renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use csr_approver::CsrApprover;
use futures::FutureExt as _;
use http::Uri;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Config;
use osc_controller::OscController;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBECONFIG_KEY, WORKER_CLUSTER, worker_kubeconfig};
use osm_api::rbac::{CLIENT_SIGNER, ClusterKind, Installation, Service};
use osm_api::{MachineDeployment, PoolRef, Reason, condition, definitions};
use osm_runtime::Controller;
use osm_runtime::fleet::{self, Connect, FleetArgs};
use osm_runtime::replicas::Replicas;
use osm_runtime::transport::Transports;
use osm_runtime::{
    Cluster, CommonArgs, Connection, Environment, Metrics, Process, Scope, settings, settings_watch,
};
use osm_sim::invariants::Purpose;
use osm_sim::memory::{Link, Server, User};
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{fixtures, installation, machine_controller};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use secret_syncer::SecretSyncer;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::ill_cluster::{Ill, Read};
use crate::model::world::{self, NAMESPACE, PROFILE, is_accepted};

const POOL: &str = "pool";
const MINUTE: Duration = Duration::from_secs(60);
const WORKERCLUSTERS: &str = "workerclusters";
const SERVICES: [Service; 3] = [
    Service::OscController,
    Service::SecretSyncer,
    Service::CsrApprover,
];

/// Tokens live shorter than by default, which they have while the settings are not known.
const SETTINGS: &str = "credentials: {tokenLifetimeHours: 2}";

fn release() -> Installation {
    Installation {
        id: NAMESPACE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        fleet: true,
        ..Installation::default()
    }
}

fn namespace(number: usize) -> String {
    format!("cluster-{number}")
}

/// A seed with a release, and user clusters that are registered in it.
struct Fleet {
    seed: Server,
    clusters: Vec<Server>,
    processes: u64,
}

/// A process of a service, until it is killed.
struct Running {
    link: Link,
    shutdown: CancellationToken,
    /// Clusters that it connected to.
    connected: Arc<AtomicUsize>,
    read: Read,
    metrics: Metrics,
}

impl Running {
    fn kill(&self) {
        self.link.kill();
        self.shutdown.cancel();
    }
}

impl Fleet {
    fn new(clusters: usize) -> Self {
        let start = Timestamp::from_second(1_790_000_000).unwrap();
        let seed = Server::new(start);
        let definitions = [
            definitions::PROFILES,
            definitions::CONFIGS,
            definitions::WORKER_CLUSTERS,
        ];
        seed.load(&definitions.map(definitions::parse)).unwrap();
        seed.load(&installation::manifests_in(
            &release(),
            &[ClusterKind::Management],
        ))
        .unwrap();
        let profile = fixtures::profile(NAMESPACE, PROFILE, "v1.0.0", "text");
        seed.load(&[installation::settings(&release(), SETTINGS), profile])
            .unwrap();
        seed.with(world::judge);
        let fleet = Self {
            clusters: (0..clusters).map(|number| user_cluster(start, number)).collect(),
            seed,
            processes: 0,
        };
        for number in 0..clusters {
            fleet.register(&namespace(number), &number.to_string());
        }
        fleet
    }

    /// With the same kubeconfig for all services.
    fn register(&self, namespace: &str, kubeconfig: &str) {
        let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
        let mut objects =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
        for service in SERVICES {
            let mut secret = object("Secret", &worker_kubeconfig(service.name()));
            secret["stringData"] = json!({KUBECONFIG_KEY: kubeconfig});
            objects.push(secret);
        }
        let mut registered = object("WorkerCluster", WORKER_CLUSTER);
        registered["apiVersion"] = json!("operatingsystemmanager.k8c.io/v1alpha1");
        registered["metadata"]["labels"] = json!({"ring": "a"});
        registered["spec"] = json!({});
        objects.push(registered);
        self.seed.load(&objects).unwrap();
    }

    fn start<C: Controller>(&mut self, service: Service, selector: Option<&str>) -> Running {
        self.processes += 1;
        let (link, processes) = (Link::default(), self.processes);
        let user = || User::ServiceAccount {
            namespace: IDENTITIES.to_owned(),
            name: service.name().to_owned(),
        };
        let clients = |server: &Server, link: &Link| {
            [user(), User::Nobody].map(|user| server.client_builder(user, link).build())
        };
        let clock = self.seed.clone();
        let random = parking_lot::Mutex::new(StdRng::seed_from_u64(processes));
        let environment = Environment::new(move || clock.now(), move |bytes| random.lock().fill_bytes(bytes));
        let args = CommonArgs {
            namespace: NAMESPACE.to_owned(),
            pod_name: Some(format!("pod-{processes}")),
            ..CommonArgs::default()
        };
        let process = Process::new(service, args, environment).unwrap();
        let scope = Scope::of(&process);
        let seed = Connection::by(&process, clients(&self.seed, &link));
        let servers: Vec<[kube::Client; 2]> = self
            .clusters
            .iter()
            .map(|server| clients(server, &link))
            .collect();
        let (connected, read) = (Arc::<AtomicUsize>::default(), Read::default());
        let (counted, of_ill) = (connected.clone(), read.clone());
        let connect: Connect = Box::new(move |text| {
            counted.fetch_add(1, Ordering::Relaxed);
            let found = match text.parse::<usize>() {
                Ok(number) => servers.get(number).cloned(),
                Err(_) => Ill::client(&text, &of_ill).map(|client| [client.clone(), client]),
            };
            let opened = found.map(|clients| {
                let config = Config::new(Uri::from_static("https://in.memory"));
                (config, Transports::by(clients))
            });
            let opened = opened.ok_or_else(|| anyhow::anyhow!("is not a valid kubeconfig"));
            std::future::ready(opened).boxed()
        });
        let args = FleetArgs {
            fleet: true,
            cluster_selector: selector.map(str::to_owned),
        };
        // Cells are releases of their own, which don't share their work.
        let release = Installation {
            id: format!("{NAMESPACE}-{}", selector.unwrap_or_default().replace('=', "-")),
            ..release()
        };
        let (shutdown, metrics) = (process.shutdown.clone(), process.metrics.clone());
        tokio::spawn(async move {
            let settings = if service.reads_settings() {
                settings_watch::spawn(&scope, &seed, &release)
            } else {
                settings::none()
            };
            let member = Replicas::watch(&scope, &seed, &release);
            let replicas = member.replicas().clone();
            let of = Cluster::new(scope, release, [seed.clone(), seed], settings, replicas);
            fleet::run_by::<C>(of, &args, connect).await.unwrap();
            member.leave().await;
        });
        Running {
            link,
            shutdown,
            connected,
            read,
            metrics,
        }
    }

    fn start_both(&mut self) -> [Running; 2] {
        [
            self.start::<OscController>(Service::OscController, None),
            self.start::<SecretSyncer>(Service::SecretSyncer, None),
        ]
    }

    /// The tokens that the bootstrap Secret of the pool in this cluster holds, if both are accepted.
    fn tokens(&self, number: usize) -> Result<String, String> {
        self.clusters[number].with(|state| {
            let name = names::bootstrap_secret_name(POOL, "kube-system");
            let secret = state.object("secrets", CLOUD_INIT_SETTINGS, &name);
            let secret: Secret = serde_json::from_value(secret.ok_or("no bootstrap Secret")?.clone())
                .map_err(|error| error.to_string())?;
            let pool = state.object("machinedeployments", "kube-system", POOL);
            let revision = &pool.ok_or("no pool")?["metadata"]["annotations"][names::REVISION];
            let text =
                machine_controller::user_data(&secret, revision.as_str().unwrap_or_default(), "machine")
                    .map_err(|error| error.to_string())?;
            let data = fixtures::parse(text).map_err(|error| error.to_string())?;
            let can_fetch = is_accepted(state, &data.api_token, &Purpose::Fetch(data.provisioning_secret));
            let can_join = is_accepted(state, &data.kubelet_token, &Purpose::Join);
            (can_fetch && can_join)
                .then_some(data.api_token)
                .ok_or_else(|| "its tokens are not accepted".to_owned())
        })
    }

    async fn published(&self) {
        for number in 0..self.clusters.len() {
            let mut found = self.tokens(number);
            for _ in 0..600 {
                if found.is_ok() {
                    break;
                }
                sleep(Duration::from_millis(100)).await;
                found = self.tokens(number);
            }
            assert!(
                found.is_ok(),
                "cluster {number}: {found:?} {:#}",
                self.says(&namespace(number))
            );
        }
    }

    fn says(&self, namespace: &str) -> Value {
        let found = self
            .seed
            .with(|state| state.object(WORKERCLUSTERS, namespace, WORKER_CLUSTER).cloned());
        found.unwrap_or_default()
    }

    fn reason(&self, namespace: &str, type_: &str) -> String {
        let conditions = serde_json::from_value(self.says(namespace)["status"]["conditions"].clone());
        let conditions: Vec<_> = conditions.unwrap_or_default();
        condition::find(&conditions, type_)
            .map(|found| found.reason.clone())
            .unwrap_or_default()
    }

    fn is_rendered(&self, number: usize) -> bool {
        let name = names::config_name(POOL, "kube-system");
        let config = self.seed.with(|state| {
            let config = state.object("operatingsystemconfigs", &namespace(number), &name);
            config.cloned().unwrap_or_default()
        });
        let conditions: Vec<_> =
            serde_json::from_value(config["status"]["conditions"].clone()).unwrap_or_default();
        condition::find(&conditions, condition::RENDERED).is_some_and(|found| found.status == "True")
    }

    fn edit(&self, namespace: &str, patch: &Value) {
        let edited = self.seed.with(|state| {
            state
                .patch(WORKERCLUSTERS, namespace, WORKER_CLUSTER, patch)
                .map(drop)
        });
        edited.unwrap();
    }

    fn write_kubeconfig(&self, number: usize, service: Service, text: &str) {
        let patch = json!({"stringData": {KUBECONFIG_KEY: text}});
        let name = worker_kubeconfig(service.name());
        let written = self.seed.with(|state| {
            state
                .patch("secrets", &namespace(number), &name, &patch)
                .map(drop)
        });
        written.unwrap();
    }

    /// Returns once each pool has other tokens, within a day. At no time is one refused.
    async fn renews(&self, what: &str) {
        let numbers = 0..self.clusters.len();
        let mut old: Vec<Option<String>> = numbers.map(|number| self.tokens(number).ok()).collect();
        for _ in 0..24 * 12 {
            sleep(5 * MINUTE).await;
            for (number, old) in old.iter_mut().enumerate() {
                let now = self.tokens(number);
                assert!(
                    now.is_ok(),
                    "{what}: cluster {number}: {now:?} {:#}",
                    self.says(&namespace(number))
                );
                // It is renewed.
                *old = old.take().filter(|old| now.as_ref() == Ok(old));
            }
            if old.iter().all(Option::is_none) {
                return;
            }
        }
        panic!("{what}: nothing is renewed");
    }

    /// Edits the pool of a cluster, and returns how long it takes until the edit is published.
    async fn change(&self, number: usize, kubelet: &str) -> Duration {
        let began = Instant::now();
        let revision = self.clusters[number].with(|state| {
            let patch = json!({"spec": {"template": {"spec": {"versions": {"kubelet": kubelet}}}}});
            state
                .patch("machinedeployments", "kube-system", POOL, &patch)
                .unwrap();
            world::stamp(state, POOL);
            let pool = state.object("machinedeployments", "kube-system", POOL).unwrap();
            pool["metadata"]["annotations"][names::REVISION].clone()
        });
        let name = names::bootstrap_secret_name(POOL, "kube-system");
        let is_published = || {
            self.clusters[number].with(|state| {
                let secret = state.object("secrets", CLOUD_INIT_SETTINGS, &name);
                secret.is_some_and(|secret| {
                    secret["metadata"]["annotations"][names::MACHINE_DEPLOYMENT_REVISION] == revision
                })
            })
        };
        while !is_published() {
            assert!(
                began.elapsed() < 5 * MINUTE,
                "cluster {number}: {:#}",
                self.says(&namespace(number))
            );
            sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }
}

/// A user cluster with a pool, whose `kube-system` has a uid of its own.
fn user_cluster(start: Timestamp, number: usize) -> Server {
    let server = Server::new(start);
    let own = Installation {
        namespace: namespace(number),
        ..release()
    };
    server.with(|state| {
        state.delete("namespaces", "", "kube-system").unwrap();
        for other in 0..number {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("other-{other}")}});
            state.create(object).unwrap();
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
        state.create(object).unwrap();
    });
    server
        .load(&installation::manifests_in(&own, &[ClusterKind::Worker]))
        .unwrap();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "",
        "cluster": {"server": format!("https://{number}.example:6443"), "certificate-authority-data": "Q0E="}}]});
    server
        .load(&[
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
                "data": {"kubeconfig": kubeconfig.to_string()}}),
            fixtures::machine_deployment(POOL, PROFILE),
        ])
        .unwrap();
    server.with(|state| world::stamp(state, POOL));
    server
}

#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_whatever_happens_to_a_cluster_or_a_process() {
    let mut fleet = Fleet::new(2);
    let mut running = fleet.start_both();
    fleet.published().await;
    sleep(MINUTE).await;
    for type_ in [condition::RENDERING, condition::PUBLISHING] {
        assert_eq!(fleet.reason(&namespace(0), type_), Reason::Serving.as_str());
    }
    let restart = |fleet: &mut Fleet, running: &mut [Running; 2]| {
        running.iter().for_each(Running::kill);
        *running = fleet.start_both();
    };
    restart(&mut fleet, &mut running);
    fleet.renews("processes were killed").await;

    // Another kubeconfig is taken up, which the conditions don't show.
    let connected = |running: &[Running; 2]| -> Vec<usize> {
        let counts = running.iter().map(|one| one.connected.load(Ordering::Relaxed));
        counts.collect()
    };
    let (before, connections) = (fleet.says(&namespace(1)), connected(&running));
    for service in [Service::OscController, Service::SecretSyncer] {
        fleet.write_kubeconfig(1, service, "01");
    }
    sleep(MINUTE).await;
    let all = connected(&running).into_iter().zip(connections);
    assert!(all.into_iter().all(|(after, before)| after > before));
    assert_eq!(fleet.says(&namespace(1)), before);

    fleet.edit(&namespace(0), &json!({"spec": {"settings": {"pauseimage": "x"}}}));
    for service in [Service::OscController, Service::SecretSyncer] {
        fleet.write_kubeconfig(0, service, "00");
    }
    sleep(MINUTE).await;
    assert!(
        fleet.is_rendered(0),
        "the last valid settings stay in force with another kubeconfig"
    );
    restart(&mut fleet, &mut running);
    sleep(MINUTE).await;
    assert_eq!(
        fleet.reason(&namespace(0), condition::PUBLISHING),
        Reason::SettingsInvalid.as_str()
    );
    fleet
        .renews("the settings of a cluster were not valid at a restart")
        .await;
    fleet.edit(&namespace(0), &json!({"spec": {"settings": null}}));

    fleet.write_kubeconfig(1, Service::SecretSyncer, "rubbish");
    sleep(MINUTE).await;
    assert_eq!(
        fleet.reason(&namespace(1), condition::PUBLISHING),
        Reason::KubeconfigInvalid.as_str()
    );
    fleet.renews("a kubeconfig was replaced by rubbish").await;
    fleet.write_kubeconfig(1, Service::SecretSyncer, "1");

    running.iter().for_each(Running::kill);
    let cells = ["ring=a", "ring=b"].map(|selector| {
        [
            fleet.start::<OscController>(Service::OscController, Some(selector)),
            fleet.start::<SecretSyncer>(Service::SecretSyncer, Some(selector)),
        ]
    });
    sleep(MINUTE).await;
    fleet.edit(&namespace(0), &json!({"metadata": {"labels": {"ring": "b"}}}));
    fleet.renews("a cluster moved to another cell").await;
    cells.iter().flatten().for_each(Running::kill);

    let wrong = |text: &str| json!({"data": {"settings.yaml": text}});
    let settings = |fleet: &Fleet, text: &str| {
        let settings = release().settings;
        let written = fleet.seed.with(|state| {
            state
                .patch("configmaps", NAMESPACE, &settings, &wrong(text))
                .map(drop)
        });
        written.unwrap();
    };
    settings(&fleet, "wrong: [");
    restart(&mut fleet, &mut running);
    fleet
        .renews("the settings of the release were not valid at a restart")
        .await;
}

/// What is wrong with how many of a hundred clusters, and what is said of it. More are silent than connections may
/// be opened at the same time.
const ILL: [(Ill, usize, Reason); 7] = [
    (Ill::Silent, 66, Reason::Unreachable),
    (Ill::Mute, 6, Reason::Slow),
    (Ill::Dripping, 4, Reason::Slow),
    (Ill::Endless, 14, Reason::TooLarge),
    (Ill::Refusing, 2, Reason::Unauthorized),
    (Ill::Failing, 2, Reason::Unreachable),
    (Ill::Another, 2, Reason::ClusterChanged),
];

/// How long it takes beside these until one is served that is registered late, and until a change of each of three
/// others is published.
async fn healthy_beside(ill: &[(Ill, usize, Reason)]) -> Vec<Duration> {
    let mut fleet = Fleet::new(4);
    let late = namespace(3);
    fleet
        .seed
        .with(|state| state.delete(WORKERCLUSTERS, &late, WORKER_CLUSTER))
        .unwrap();
    let mut registered = Vec::new();
    for (kind, count, reason) in ill {
        for number in 0..*count {
            let kubeconfig = format!("{kind:?}-{number}");
            let namespace = kubeconfig.to_lowercase();
            fleet.register(&namespace, &kubeconfig);
            if *kind == Ill::Another {
                fleet.edit(
                    &namespace,
                    &json!({"status": {"clusterUID": format!("before-{number}")}}),
                );
            }
            registered.push((namespace, *reason));
        }
    }
    let running = [
        fleet.start::<OscController>(Service::OscController, None),
        fleet.start::<SecretSyncer>(Service::SecretSyncer, None),
        fleet.start::<CsrApprover>(Service::CsrApprover, None),
    ];
    // By now, as many as may be are connected to for the second time.
    sleep(Duration::from_secs(15)).await;
    let (mut times, began) = (Vec::new(), Instant::now());
    fleet.register(&late, "3");
    while fleet.tokens(3).is_err() {
        assert!(began.elapsed() < MINUTE, "{:#}", fleet.says(&late));
        sleep(Duration::from_millis(10)).await;
    }
    times.push(began.elapsed());
    sleep(Duration::from_secs(75)).await;
    for (namespace, reason) in &registered {
        for type_ in [condition::RENDERING, condition::PUBLISHING, condition::JOINING] {
            let found = fleet.reason(namespace, type_);
            assert_eq!(found, reason.as_str(), "{type_} of {namespace}");
        }
    }
    for number in 0..3 {
        times.push(fleet.change(number, "1.35.1").await);
    }
    for one in &running {
        assert!(!one.shutdown.is_cancelled(), "nothing ends a process");
        // Four have as much as an answer may have. Each of the fourteen has what any answer may have, and a part.
        let most = one.read.most();
        println!("{} KiB of endless answers at most", most >> 10);
        assert!(most <= (4 << 23) + 14 * (320 << 10), "{most} bytes");
        one.kill();
    }
    times
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_clusters_most_are_ill_and_the_others_are_served_as_if_they_were_alone() {
    assert_eq!(ILL.iter().map(|(_, count, _)| count).sum::<usize>() + 4, 100);
    let alone = healthy_beside(&[]).await;
    let beside = healthy_beside(&ILL).await;
    println!("alone {alone:?}, beside the others {beside:?}");
    for (alone, beside) in alone.iter().zip(&beside) {
        assert!(
            *beside <= *alone + Duration::from_millis(500),
            "{alone:?} {beside:?}"
        );
    }
}

/// Each attempt would take processor time, because most of a cluster with very many objects is listed each time.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_never_listed_in_time_is_seldom_tried() {
    let mut fleet = Fleet::new(0);
    fleet.register("dripping", "Dripping-0");
    let running = [
        fleet.start::<OscController>(Service::OscController, None),
        fleet.start::<CsrApprover>(Service::CsrApprover, None),
    ];
    sleep(60 * MINUTE).await;
    let before = running
        .each_ref()
        .map(|one| one.connected.load(Ordering::Relaxed));
    sleep(60 * MINUTE).await;
    for (one, before) in running.iter().zip(before) {
        let times = one.connected.load(Ordering::Relaxed) - before;
        assert!((4..=7).contains(&times), "{times} times in an hour");
        one.kill();
    }
}

/// The configs of the seed's own machines are those of another release.
#[tokio::test(start_paused = true)]
async fn namespaces_of_clusters_that_are_no_longer_registered_are_counted() {
    let mut fleet = Fleet::new(2);
    let running = fleet.start_both();
    fleet.published().await;
    let counts = async |number: usize| {
        sleep(2 * MINUTE).await;
        let text = String::from_utf8(running[0].metrics.encode()).unwrap();
        let expected = format!("osm_unregistered_namespaces {number}");
        assert!(text.lines().any(|line| line == expected), "{expected}: {text}");
    };
    counts(0).await;
    for number in [0, 1] {
        let deleted = fleet
            .seed
            .with(|state| state.delete(WORKERCLUSTERS, &namespace(number), WORKER_CLUSTER));
        deleted.unwrap();
    }
    counts(2).await;
    let of_seed = fleet.seed.with(|state| {
        let uid = &state.object("namespaces", "", "kube-system").unwrap()["metadata"]["uid"];
        let patch = json!({"metadata": {"annotations": {names::CLUSTER_UID: uid}}});
        let name = names::config_name(POOL, "kube-system");
        state
            .patch("operatingsystemconfigs", &namespace(1), &name, &patch)
            .map(drop)
    });
    of_seed.unwrap();
    counts(1).await;
    running.iter().for_each(Running::kill);
}

/// Each service has three replicas, of which one after the other is killed.
#[tokio::test(start_paused = true)]
async fn tokens_are_renewed_and_changes_published_though_replicas_are_killed() {
    let mut fleet = Fleet::new(6);
    let replicas = [(); 3].map(|()| fleet.start_both());
    fleet.published().await;
    sleep(2 * MINUTE).await;
    for (number, killed) in replicas[..2].iter().enumerate() {
        assert!(killed.iter().all(|one| one.connected.load(Ordering::Relaxed) > 0));
        killed.iter().for_each(Running::kill);
        for cluster in 0..6 {
            let took = fleet.change(cluster, &format!("1.35.{number}")).await;
            assert!(took < Duration::from_secs(90), "cluster {cluster}: {took:?}");
        }
        fleet.renews("a replica was killed").await;
    }
    replicas.iter().flatten().for_each(Running::kill);
}

/// A machine of the pool in this cluster, and what its kubelet asks for.
fn request(fleet: &Fleet, number: usize, node: &str) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    let subject = &mut params.distinguished_name;
    subject.push(rcgen::DnType::OrganizationName, "system:nodes");
    subject.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    let signed = params.serialize_request(&rcgen::KeyPair::generate().unwrap());
    let text = ByteString(signed.unwrap().pem().unwrap().into_bytes());
    fleet.clusters[number].with(|state| {
        let pool = state.object("machinedeployments", "kube-system", POOL);
        let pool: MachineDeployment = serde_json::from_value(pool.unwrap().clone()).unwrap();
        let account = names::pool_account(&PoolRef::from(&pool).id());
        let mut owner = json!({"kind": "MachineDeployment", "name": POOL, "uid": pool.metadata.uid});
        let set = format!("set-of-{node}");
        for (kind, name) in [("MachineSet", set.as_str()), ("Machine", node)] {
            owner["apiVersion"] = json!("cluster.k8s.io/v1alpha1");
            owner["controller"] = json!(true);
            let metadata = json!({"name": name, "namespace": "kube-system", "ownerReferences": [owner]});
            let spec = json!({"metadata": {"name": name}, "providerSpec": {"value": {"cloudProvider": "openstack"}}});
            let object = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
            let created = state.create(object).unwrap();
            owner = json!({"kind": kind, "name": name, "uid": created["metadata"]["uid"]});
        }
        let spec = json!({"signerName": CLIENT_SIGNER, "usages": ["digital signature", "client auth"],
            "username": format!("system:serviceaccount:{CLOUD_INIT_SETTINGS}:{account}"), "request": text});
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": node}, "spec": spec});
        state.create(request).unwrap();
    });
}

/// Returns how long it takes until the request for this node is approved.
async fn approved(fleet: &Fleet, number: usize, node: &str) -> Duration {
    let began = Instant::now();
    loop {
        let request = fleet.clusters[number]
            .with(|state| state.object("certificatesigningrequests", "", node).cloned());
        match request.unwrap()["status"]["conditions"]
            .as_array()
            .map(Vec::as_slice)
        {
            Some([one]) if one["type"] == "Approved" => return began.elapsed(),
            None | Some([]) => {}
            other => panic!("{other:?}"),
        }
        assert!(
            began.elapsed() < 5 * MINUTE,
            "{:#}",
            fleet.says(&namespace(number))
        );
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn machines_join_while_their_cluster_moves_to_another_cell() {
    let mut fleet = Fleet::new(2);
    let cells = ["ring=a", "ring=b"].map(|cell| fleet.start::<CsrApprover>(Service::CsrApprover, Some(cell)));
    request(&fleet, 0, "before");
    approved(&fleet, 0, "before").await;
    // At the same moment, so that none or both may serve it.
    request(&fleet, 0, "meanwhile");
    fleet.edit(&namespace(0), &json!({"metadata": {"labels": {"ring": "b"}}}));
    let took = approved(&fleet, 0, "meanwhile").await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    sleep(MINUTE).await;
    cells[0].kill();
    request(&fleet, 0, "after");
    approved(&fleet, 0, "after").await;
    cells[1].kill();
}
