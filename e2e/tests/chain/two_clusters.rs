//! Profiles, configs and settings in one cluster, MachineDeployments and Secrets in another. A cluster is away, slow, replaced or swapped, and
//! credentials are revoked.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use osm_api::condition::{PUBLISHED, RENDERED};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::{ControlPlane, Options, check, wait_for};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{self, DEADLINE, NAMESPACE, World, authority, machine_deployment};

/// Both that have a kubeconfig of the worker cluster.
const BOTH: [Service; 2] = [Service::OscController, Service::SecretSyncer];

/// A connection that carries nothing is given up after 20 seconds.
const SILENCE_NOTICED: Duration = Duration::from_secs(60);

impl World {
    /// Waits until a service answers `/readyz` with this code and every text; gives the answer.
    pub async fn readiness(&self, service: Service, code: u16, texts: &[&str]) -> Result<String> {
        let what = format!("/readyz of {} to be {code} and to say {texts:?}", service.name());
        let found = wait_for(&what, DEADLINE, async || {
            let (now, body) = self.installed.get(service, "/readyz").await?;
            ensure!(
                now == code && texts.iter().all(|text| body.contains(text)),
                "{now}: {body}"
            );
            Ok(Some(body))
        });
        found.await.map_err(|error| error.context(self.installed.logs()))
    }

    pub async fn all_ready(&self) -> Result<()> {
        for service in Service::ALL {
            self.readiness(service, 200, &[]).await?;
        }
        Ok(())
    }

    async fn restart(&mut self, services: &[Service]) -> Result<()> {
        for service in services {
            self.installed.terminate(*service, DEADLINE).await?;
            self.installed.start(*service).await?;
        }
        Ok(())
    }

    pub fn management(&self) -> &ControlPlane {
        self.management.as_ref().expect("two clusters")
    }
}

/// uid and resourceVersion of everything that pools have in a cluster, and of their configs.
async fn everything(world: &World) -> Result<Vec<String>> {
    let line =
        |kind: &str, name: String, uid: Option<String>| format!("{kind} {name} {}", uid.unwrap_or_default());
    let mut all = Vec::new();
    for config in world.configs().list(&ListParams::default()).await? {
        ensure!(
            config.metadata.deletion_timestamp.is_none(),
            "{} is being deleted",
            config.name_any()
        );
        let retired = config
            .status
            .as_ref()
            .is_some_and(|status| status.retired.is_some());
        all.push(line(
            if retired { "retired" } else { "config" },
            config.name_any(),
            config.uid(),
        ));
    }
    for secret in world.secrets().list(&ListParams::default()).await? {
        all.push(line("secret", secret.name_any(), secret.uid()));
    }
    let accounts: Api<ServiceAccount> = world.api(CLOUD_INIT_SETTINGS);
    for account in accounts.list(&ListParams::default()).await? {
        all.push(line("account", account.name_any(), account.uid()));
    }
    Ok(all)
}

/// A kubeconfig of another cluster for the same service.
async fn kubeconfig(plane: &ControlPlane, service: Service) -> Result<String> {
    Ok(std::fs::read_to_string(
        plane.identity(IDENTITIES, service.name()).await?,
    )?)
}

async fn has_metric(world: &World, service: Service, parts: &[&str]) -> Result<bool> {
    let (_, text) = world.installed.get(service, "/metrics").await?;
    let found = text.lines().any(|line| {
        line.starts_with("osm_api_requests_total{") && parts.iter().all(|part| line.contains(part))
    });
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cluster_may_be_away_at_start_and_in_the_middle() -> Result<()> {
    let mut world = World::start_in_two_without_services(Options::default()).await?;
    world.plane.stop_apiserver().await?;
    world.installed.start_all().await?;
    world.readiness(Service::OspController, 200, &[]).await?;
    for service in BOTH {
        let parts = [
            "in the worker cluster: not yet: ",
            "rights in the worker cluster: can't be checked yet",
        ];
        let said = world.readiness(service, 503, &parts).await?;
        assert!(!said.contains("in the management cluster: not yet: "), "{said}");
        assert!(world.installed.is_alive(service).await);
    }
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.plane.start_apiserver().await?;
    world.all_ready().await?;

    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let first = world.machine("p", 1).await?;
    world.says("p", PUBLISHED, true, "Published").await?;
    // Each thing in its own cluster: the other does not even know its kind, or has no such namespace.
    let there: Api<Secret> = Api::namespaced(world.managed.clone(), CLOUD_INIT_SETTINGS);
    assert!(there.list(&ListParams::default()).await?.items.is_empty());
    let there: Api<OperatingSystemConfig> = Api::namespaced(world.client.clone(), NAMESPACE);
    assert!(there.list(&ListParams::default()).await.is_err());
    // Events are where what they are about is.
    world.apply(&machine_deployment("lost", "osp-none")).await?;
    world.event("kube-system", "lost", "ProfileNotFound").await?;
    world.delete(&world.pools(), "lost").await?;

    world.plane.stop_apiserver().await?;
    // A profile's edit can be judged, but not reach the pool.
    world.accepted_profile("osp-tiny", "v1.0.1", "two\n").await?;
    let config = world.config("p").await?;
    let status = config.status.context("a status")?;
    assert!(status.rendered.is_some() && status.published.is_some());
    for service in BOTH {
        assert!(world.installed.is_alive(service).await);
    }
    wait_for("a failed request to be counted", DEADLINE, async || {
        check(
            has_metric(
                &world,
                Service::OscController,
                &["cluster=\"worker\"", "code=\"0\""],
            )
            .await?,
        )
    })
    .await?;
    assert!(!has_metric(&world, Service::OspController, &["cluster=\"worker\""]).await?);
    world.plane.start_apiserver().await?;
    world
        .machine_with("p", 1, |machine| {
            machine.text.contains("two") && machine.text != first.text
        })
        .await?;
    world.stamp("p", 2).await?;
    world.machine("p", 2).await?;

    // The management cluster away: what is published stays, and rotates afterwards.
    world.management().stop_apiserver().await?;
    world.stamp("p", 3).await?;
    world.machine("p", 2).await?;
    world.management().start_apiserver().await?;
    world.machine("p", 3).await?;
    world.delete(&world.pools(), "p").await?;
    wait_for("everything to be undone", DEADLINE, async || {
        check(
            world.made().await?.is_empty()
                && world
                    .configs()
                    .list(&ListParams::default())
                    .await?
                    .items
                    .is_empty(),
        )
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_in_the_place_of_one_of_the_two() -> Result<()> {
    let mut world = World::start_in_two(Options::default()).await?;
    let other = ControlPlane::start(Options::default()).await?;
    installation::prepare(&other, &world::installation(), &ClusterKind::ALL).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in ["p", "q"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        world.machine(pool, 1).await?;
        world.says(pool, PUBLISHED, true, "Published").await?;
    }
    world.all_ready().await?;
    let observer = world.observe().await?;
    let replace = async |world: &World, cluster: ClusterKind, plane: &ControlPlane| -> Result<()> {
        for service in BOTH {
            world
                .installed
                .replace_kubeconfig(service, cluster, &kubeconfig(plane, service).await?)?;
        }
        Ok(())
    };

    // While services run, such a kubeconfig is not used at all.
    let before = everything(&world).await?;
    for cluster in ClusterKind::BUT_HOME {
        replace(&world, cluster, &other).await?;
        for service in BOTH {
            world
                .readiness(
                    service,
                    503,
                    &["leads to another cluster", "The previous kubeconfig stays in use"],
                )
                .await?;
        }
        let right = if cluster == ClusterKind::Worker {
            &world.plane
        } else {
            world.management()
        };
        replace(&world, cluster, right).await?;
        world.all_ready().await?;
    }
    assert_eq!(everything(&world).await?, before);
    world.stamp("q", 2).await?;
    world.machine("q", 2).await?;
    world.says("q", PUBLISHED, true, "Published").await?;

    // Started with it, they see no pool and no Secret. One pool is really gone meanwhile; nobody may act on that.
    let before = everything(&world).await?;
    replace(&world, ClusterKind::Worker, &other).await?;
    for service in BOTH {
        world.installed.terminate(service, DEADLINE).await?;
    }
    world.delete(&world.pools(), "q").await?;
    // The other cluster has a pool of its own, and one of the same name.
    for pool in ["p", "own"] {
        other
            .apply_yaml(&machine_deployment(pool, "osp-tiny").to_string())
            .await?;
    }
    for service in BOTH {
        world.installed.start(service).await?;
    }
    for pool in ["p", "q"] {
        let message = world.says(pool, RENDERED, false, "ClusterChanged").await?;
        assert!(message.contains("Correct the kubeconfig"), "{message}");
        world.says(pool, PUBLISHED, false, "ClusterChanged").await?;
    }
    world
        .readiness(
            Service::OscController,
            503,
            &["another cluster: own-kube-system-config (and 2 more): every"],
        )
        .await?;
    let said = world
        .readiness(
            Service::SecretSyncer,
            503,
            &["another cluster: p-kube-system-config"],
        )
        .await?;
    assert!(said.contains("nothing is published or deleted"), "{said}");
    assert_eq!(everything(&world).await?, before);
    let there: Api<Secret> = Api::namespaced(other.admin()?, CLOUD_INIT_SETTINGS);
    let wrong = there
        .list(&ListParams::default().labels(names::POOL))
        .await?
        .items;
    assert!(wrong.is_empty(), "published in the wrong cluster: {wrong:#?}");
    assert!(world.config("own").await.is_err());

    // Corrected: the pool that is gone is retired now.
    replace(&world, ClusterKind::Worker, &world.plane).await?;
    world.restart(&BOTH).await?;
    world.says("p", PUBLISHED, true, "Published").await?;
    wait_for("q to be undone", DEADLINE, async || {
        check(
            world.config("q").await.is_err()
                && !format!("{:?}", everything(&world).await?).contains("q-kube-system"),
        )
    })
    .await?;
    world.all_ready().await?;
    assert_eq!(
        observer.absences(),
        [names::bootstrap_secret_name("q", "kube-system")]
    );

    // Another management cluster, without any config: what is published is not taken for orphaned.
    let before = everything(&world).await?;
    world
        .installed
        .terminate(Service::OscController, DEADLINE)
        .await?;
    let foreign = kubeconfig(&other, Service::SecretSyncer).await?;
    world
        .installed
        .replace_kubeconfig(Service::SecretSyncer, ClusterKind::Management, &foreign)?;
    world.restart(&[Service::SecretSyncer]).await?;
    let said = world
        .readiness(
            Service::SecretSyncer,
            503,
            &["another cluster: p-kube-system-config"],
        )
        .await?;
    assert!(said.contains("Correct --kubeconfig"), "{said}");
    let bootstrap = world.bootstrap("p").await?;
    assert!(!bootstrap.annotations().contains_key(names::ORPHANED_SINCE));
    assert_eq!(everything(&world).await?, before);
    let right = kubeconfig(world.management(), Service::SecretSyncer).await?;
    world
        .installed
        .replace_kubeconfig(Service::SecretSyncer, ClusterKind::Management, &right)?;
    world.restart(&[Service::SecretSyncer]).await?;
    world.installed.start(Service::OscController).await?;
    world.all_ready().await?;

    // Swapped.
    for service in BOTH {
        let (management, worker) = (
            kubeconfig(world.management(), service).await?,
            kubeconfig(&world.plane, service).await?,
        );
        world.installed.terminate(service, DEADLINE).await?;
        world
            .installed
            .replace_kubeconfig(service, ClusterKind::Management, &worker)?;
        world
            .installed
            .replace_kubeconfig(service, ClusterKind::Worker, &management)?;
        world.installed.start(service).await?;
        let missing = match service {
            Service::OscController => "missing: get operatingsystemprofiles in osm",
            _ => "missing: get operatingsystemconfigs in osm",
        };
        world
            .readiness(
                service,
                503,
                &[
                    "rights in the management cluster: ",
                    missing,
                    "--worker-cluster-kubeconfig swapped?",
                ],
            )
            .await?;
        world
            .readiness(service, 503, &["rights in the worker cluster: missing: "])
            .await?;
    }
    assert_eq!(everything(&world).await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfigs_are_replaced_without_a_restart() -> Result<()> {
    let world = World::start_in_two(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    world.all_ready().await?;
    let (syncer, controller) = (Service::SecretSyncer, Service::OscController);
    let processes = BOTH.map(|service| {
        world
            .installed
            .process(service)
            .map(osm_testkit::Service::pid)
            .unwrap_or_default()
    });

    // Revoked: as soon as a request is refused, the service says whose credentials, and from which file.
    for (service, cluster) in [
        (syncer, ClusterKind::Worker),
        (controller, ClusterKind::Management),
    ] {
        let plane = if cluster == ClusterKind::Worker {
            &world.plane
        } else {
            world.management()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(plane.admin()?, IDENTITIES);
        let account = accounts.get(service.name()).await?;
        accounts.delete(service.name(), &DeleteParams::default()).await?;
        let anew = ServiceAccount {
            metadata: Default::default(),
            ..account
        };
        let metadata = kube::core::ObjectMeta {
            name: Some(service.name().to_owned()),
            ..Default::default()
        };
        accounts
            .create(&Default::default(), &ServiceAccount { metadata, ..anew })
            .await?;
        let (flag, file) = match cluster {
            ClusterKind::Worker => (
                "--worker-cluster-kubeconfig",
                world.installed.kubeconfig(service, cluster)?,
            ),
            ClusterKind::Management | ClusterKind::Home => {
                ("--kubeconfig", world.installed.kubeconfig(service, cluster)?)
            }
        };
        let origin = format!("{flag} {} (401)", file.display());
        let gate = format!("credentials in the {} cluster: ", cluster.name());
        let mut revision = 100;
        // The API server believes a token for some seconds after it was revoked.
        wait_for("the refusal to be told", DEADLINE, async || {
            revision += 1;
            world.stamp("p", revision).await?;
            let (code, body) = world.installed.get(service, "/readyz").await?;
            check(code == 503 && body.contains(&gate) && body.contains(&origin))
        })
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
        let kubeconfig = kubeconfig(plane, service).await?;
        world
            .installed
            .replace_kubeconfig(service, cluster, &kubeconfig)?;
        world.readiness(service, 200, &[]).await?;
        world.machine("p", revision).await?;
    }

    // What can't be used is not.
    let good = kubeconfig(&world.plane, syncer).await?;
    let token = good
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "))
        .context("a token")?;
    for (bad, why) in [
        ("nothing: [".to_owned(), "is not a valid kubeconfig"),
        (good.replace(token, "not-a-token"), "it does not work: "),
        (
            good.replace(&world.plane.url(), "https://127.0.0.1:1"),
            "it does not work: ",
        ),
    ] {
        world
            .installed
            .replace_kubeconfig(syncer, ClusterKind::Worker, &bad)?;
        let said = world
            .readiness(syncer, 503, &[why, "--worker-cluster-kubeconfig "])
            .await?;
        assert!(
            said.contains("The previous kubeconfig stays in use") && !said.contains("not-a-token"),
            "{said}"
        );
        assert!(world.installed.logs().contains(why));
    }
    world.stamp("p", 200).await?;
    world.machine("p", 200).await?;

    // The same cluster at another address, and slow; then that address is gone.
    let slow = Slow::start(world.plane.port()).await?;
    let by_way_of = async |address: &str| -> Result<()> {
        for service in BOTH {
            let text = kubeconfig(&world.plane, service)
                .await?
                .replace(&world.plane.url(), address);
            world
                .installed
                .replace_kubeconfig(service, ClusterKind::Worker, &text)?;
        }
        Ok(())
    };
    by_way_of(&slow.url()).await?;
    wait_for("the slow way to be taken", DEADLINE, async || {
        check(slow.connections() >= 2)
    })
    .await?;
    world.all_ready().await?;
    world.stamp("p", 201).await?;
    world.machine("p", 201).await?;
    world.says("p", PUBLISHED, true, "Published").await?;
    // Nothing ends the connections, and nobody answers.
    slow.silence();
    let before = slow.connections();
    wait_for("new connections", SILENCE_NOTICED, async || {
        check(slow.connections() >= before + 2)
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))?;
    world.stamp("p", 202).await?;
    world.machine("p", 202).await?;
    drop(slow);
    by_way_of(&world.plane.url()).await?;
    world.stamp("p", 203).await?;
    world.machine("p", 203).await?;
    world.all_ready().await?;
    let still = BOTH.map(|service| {
        world
            .installed
            .process(service)
            .map(osm_testkit::Service::pid)
            .unwrap_or_default()
    });
    assert_eq!(still, processes, "restarted");
    assert!(!world.installed.logs().contains(token));

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfigs_that_are_no_good_at_start_are_waited_for() -> Result<()> {
    let mut world = World::start_in_two_without_services(Options::default()).await?;
    let (syncer, controller) = (Service::SecretSyncer, Service::OscController);
    let right = std::fs::read_to_string(world.installed.kubeconfig(syncer, ClusterKind::Worker)?)?;
    let other = std::fs::read_to_string(world.management().admin_kubeconfig_path())?;
    let wrong_authority = kubeconfig(&world.plane, controller)
        .await?
        .replace(authority(&right)?, authority(&other)?);
    // One in which no certificate is.
    const DAMAGED: &str = "    certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCmFIVnVkR1Z5TWc9PQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==";
    let damaged_authority = right.replace(authority(&right)?, DAMAGED);
    ensure!(wrong_authority != right && damaged_authority != right);

    world
        .installed
        .replace_kubeconfig(controller, ClusterKind::Worker, &wrong_authority)?;
    let worker = world
        .installed
        .kubeconfig(syncer, ClusterKind::Worker)?
        .to_owned();
    let management = world
        .installed
        .kubeconfig(syncer, ClusterKind::Management)?
        .to_owned();
    std::fs::remove_file(&worker)?;
    let of_management = std::fs::read_to_string(&management)?;
    std::fs::write(&management, "users: hunter2")?;
    world.installed.start_all().await?;
    let started = world.installed.process(controller)?.pid();
    world
        .readiness(
            controller,
            503,
            &["in the worker cluster: not yet: ", "certificate"],
        )
        .await?;
    // Of both files at once.
    let missing = format!(
        "--worker-cluster-kubeconfig {}: can't be read: No such file",
        worker.display()
    );
    let nonsense = format!(
        "--kubeconfig {}: is not a valid kubeconfig: line 1, column ",
        management.display()
    );
    world
        .readiness(
            syncer,
            503,
            &[&missing, &nonsense, "Correct it; no restart is needed"],
        )
        .await?;
    let (code, metrics) = world.installed.get(syncer, "/metrics").await?;
    assert!(
        code == 200 && metrics.contains("osm_settings_valid 0"),
        "{code} {metrics}"
    );
    world
        .installed
        .replace_kubeconfig(syncer, ClusterKind::Worker, &damaged_authority)?;
    let damaged = format!(
        "--worker-cluster-kubeconfig {}: the connection to the API server can't be set up: ",
        worker.display()
    );
    let said = world
        .readiness(syncer, 503, &[&damaged, "Correct it; no restart is needed"])
        .await?;
    assert!(!said.contains(&missing) && !said.contains("hunter2"), "{said}");
    let log = std::fs::read_to_string(world.installed.log_file(syncer))?;
    assert_eq!(log.matches(&missing).count(), 1, "{log}");
    assert!(!log.contains("hunter2"), "{log}");
    for service in BOTH {
        assert!(world.installed.is_alive(service).await);
    }

    // It ends when it is told to, and is no wiser afterwards.
    assert!(world.installed.terminate(syncer, DEADLINE).await?.success());
    world.installed.start(syncer).await?;
    let said = world.readiness(syncer, 503, &[&damaged, &nonsense]).await?;
    assert!(said.contains("start: "), "{said}");
    let restarted = world.installed.process(syncer)?.pid();

    world
        .installed
        .replace_kubeconfig(syncer, ClusterKind::Worker, &right)?;
    world
        .installed
        .replace_kubeconfig(syncer, ClusterKind::Management, &of_management)?;
    let right = kubeconfig(&world.plane, controller).await?;
    world
        .installed
        .replace_kubeconfig(controller, ClusterKind::Worker, &right)?;
    world.all_ready().await?;
    assert_eq!(world.installed.process(syncer)?.pid(), restarted);
    assert_eq!(world.installed.process(controller)?.pid(), started);
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_takes_effect_when_it_is_granted() -> Result<()> {
    let mut world = World::start_in_two_without_services(Options::default()).await?;
    let cases = [
        (
            Service::OspController,
            ClusterKind::Management,
            "operatingsystemprofiles",
            "update",
            "rights: missing: update operatingsystemprofiles in osm; apply the RBAC of this version\n",
        ),
        (
            Service::OscController,
            ClusterKind::Worker,
            "machinedeployments",
            "watch",
            "rights in the worker cluster: missing: watch machinedeployments; apply the RBAC of this version\n",
        ),
        (
            Service::SecretSyncer,
            ClusterKind::Worker,
            "serviceaccounts/token",
            "create",
            "rights in the worker cluster: missing: create serviceaccounts/token in cloud-init-settings; apply the RBAC of this version\n",
        ),
    ];
    let installation = world::installation();
    let roles = |service: Service, cluster: ClusterKind| {
        let mut objects = installation::manifests_in(&installation, &[cluster]);
        objects.retain(|object| {
            object.get("rules").is_some() && object["metadata"]["name"] == format!("osm:{}", service.name())
        });
        objects
    };
    for (service, cluster, resource, verb, _) in cases {
        let mut objects = roles(service, cluster);
        for rule in objects
            .iter_mut()
            .flat_map(|object| object["rules"].as_array_mut().expect("rules"))
        {
            if rule["resources"]
                .as_array()
                .is_some_and(|all| all.iter().any(|r| r == resource))
            {
                rule["verbs"]
                    .as_array_mut()
                    .expect("verbs")
                    .retain(|other| other != verb);
            }
        }
        // A rule without any verb is none.
        for object in &mut objects {
            object["rules"]
                .as_array_mut()
                .expect("rules")
                .retain(|rule| rule["verbs"] != serde_json::json!([]));
        }
        let plane = if cluster == ClusterKind::Worker {
            &world.plane
        } else {
            world.management()
        };
        installation::apply(plane, &objects).await?;
    }
    world.installed.start_all().await?;
    for (service, cluster, _, _, said) in cases {
        let body = world.readiness(service, 503, &[said]).await?;
        assert_eq!(body.matches("missing: ").count(), 1, "{body}");
        let log = std::fs::read_to_string(world.installed.log_file(service))?;
        let right = said.trim_end().rsplit_once("missing: ").context("a right")?.1;
        let label = if service == Service::OspController {
            "only"
        } else {
            cluster.name()
        };
        assert!(
            log.lines()
                .any(|line| line.contains(&format!("\"cluster\":\"{label}\""))
                    && line.contains(&format!("missing: {right}"))),
            "{log}"
        );
        let plane = if cluster == ClusterKind::Worker {
            &world.plane
        } else {
            world.management()
        };
        installation::apply(plane, &roles(service, cluster)).await?;
        world.readiness(service, 200, &[]).await?;
    }
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await.map(drop)
}

/// A way to an API server on which everything takes a quarter of a second longer, each way.
struct Slow {
    address: SocketAddr,
    /// Connections of an earlier number stay open, and carry nothing any more.
    number: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    connections: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    tasks: std::sync::Arc<std::sync::Mutex<tokio::task::JoinSet<()>>>,
    accept: tokio::task::JoinHandle<()>,
}

impl Slow {
    async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connections = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        let tasks = std::sync::Arc::<std::sync::Mutex<tokio::task::JoinSet<()>>>::default();
        let (count, running) = (connections.clone(), tasks.clone());
        let number = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
        let of_all = number.clone();
        let accept = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let number = of_all.clone();
                running.lock().unwrap().spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    let own = number.load(std::sync::atomic::Ordering::SeqCst);
                    let goes_on = || number.load(std::sync::atomic::Ordering::SeqCst) == own;
                    tokio::join!(
                        delayed(from_client, to_server, goes_on),
                        delayed(from_server, to_client, goes_on)
                    );
                });
            }
        });
        Ok(Self {
            address,
            number,
            connections,
            tasks,
            accept,
        })
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Lets everything that is connected wait for ever.
    fn silence(&self) {
        self.number.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }

    fn connections(&self) -> usize {
        self.connections.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.accept.abort();
        self.tasks.lock().unwrap().abort_all();
    }
}

async fn delayed(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    goes_on: impl Fn() -> bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(Duration::from_millis(250)).await;
        if !goes_on() {
            std::future::pending::<()>().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
