//! A release that serves clusters: whatever happens to one of them, or to a process, what is published there is
//! renewed.

use std::time::Duration;

use futures::FutureExt as _;
use http::Uri;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Config;
use osc_controller::OscController;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBECONFIG_KEY, WORKER_CLUSTER, worker_kubeconfig};
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_api::{Reason, condition, definitions};
use osm_runtime::Controller;
use osm_runtime::fleet::{self, Connect, FleetArgs};
use osm_runtime::replicas::Replicas;
use osm_runtime::transport::Clients;
use osm_runtime::{Cluster, CommonArgs, Connection, Environment, Process, Scope, settings_watch};
use osm_sim::invariants::Purpose;
use osm_sim::memory::{Link, Server, User};
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{fixtures, installation, machine_controller};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use secret_syncer::SecretSyncer;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::model::world::{self, NAMESPACE, PROFILE, is_accepted};

const POOL: &str = "pool";
const MINUTE: Duration = Duration::from_secs(60);
const WORKERCLUSTERS: &str = "workerclusters";

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
            let namespace = namespace(number);
            let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
            let mut objects =
                vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
            for service in [Service::OscController, Service::SecretSyncer] {
                let mut secret = object("Secret", &worker_kubeconfig(service.name()));
                secret["stringData"] = json!({KUBECONFIG_KEY: number.to_string()});
                objects.push(secret);
            }
            let mut registered = object("WorkerCluster", WORKER_CLUSTER);
            registered["apiVersion"] = json!("operatingsystemmanager.k8c.io/v1alpha1");
            registered["metadata"]["labels"] = json!({"ring": "a"});
            registered["spec"] = json!({});
            objects.push(registered);
            fleet.seed.load(&objects).unwrap();
        }
        fleet
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
        let connect: Connect = Box::new(move |text| {
            let found = text
                .parse()
                .ok()
                .and_then(|number: usize| servers.get(number))
                .cloned();
            let opened = found.map(|[own, anonymous]| {
                let config = Config::new(Uri::from_static("https://in.memory"));
                (config, Clients { own, anonymous })
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
        let shutdown = process.shutdown.clone();
        tokio::spawn(async move {
            let settings = settings_watch::spawn(&scope, &seed, &release);
            let member = Replicas::watch(&scope, &seed, &release);
            let replicas = member.replicas().clone();
            let of = Cluster::new(scope, release, [seed.clone(), seed], settings, replicas);
            fleet::run_by::<C>(of, &args, connect).await.unwrap();
            member.leave().await;
        });
        Running { link, shutdown }
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
            let text =
                machine_controller::user_data(&secret, "1", "machine").map_err(|error| error.to_string())?;
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
                self.says(number)
            );
        }
    }

    fn says(&self, number: usize) -> Value {
        let found = self.seed.with(|state| {
            state
                .object(WORKERCLUSTERS, &namespace(number), WORKER_CLUSTER)
                .cloned()
        });
        found.unwrap_or_default()
    }

    fn reason(&self, number: usize, type_: &str) -> String {
        let conditions = serde_json::from_value(self.says(number)["status"]["conditions"].clone());
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

    fn edit(&self, number: usize, patch: &Value) {
        let edited = self.seed.with(|state| {
            state
                .patch(WORKERCLUSTERS, &namespace(number), WORKER_CLUSTER, patch)
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
                    self.says(number)
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
        assert_eq!(fleet.reason(0, type_), Reason::Serving.as_str());
    }
    let restart = |fleet: &mut Fleet, running: &mut [Running; 2]| {
        running.iter().for_each(Running::kill);
        *running = fleet.start_both();
    };
    restart(&mut fleet, &mut running);
    fleet.renews("processes were killed").await;

    fleet.edit(0, &json!({"spec": {"settings": {"pauseimage": "x"}}}));
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
        fleet.reason(0, condition::PUBLISHING),
        Reason::SettingsInvalid.as_str()
    );
    fleet
        .renews("the settings of a cluster were not valid at a restart")
        .await;
    fleet.edit(0, &json!({"spec": {"settings": null}}));

    fleet.write_kubeconfig(1, Service::SecretSyncer, "rubbish");
    sleep(MINUTE).await;
    assert_eq!(
        fleet.reason(1, condition::PUBLISHING),
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
    fleet.edit(0, &json!({"metadata": {"labels": {"ring": "b"}}}));
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
