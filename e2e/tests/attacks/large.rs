//! Objects as large as an API server accepts them, in such a number that a service which kept them would end at every start.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::fake_server::{Call, FakeServer};
use crate::hostile::MEMORY;
use crate::world::{NAMESPACE, World, machine_deployment, profile};

/// 200 MiB of JSON, and a development build is slow.
const LISTED_WITHIN: Duration = Duration::from_secs(240);

/// The place of an object's number.
const NUMBER: &str = "@number@";

struct Objects {
    /// 1 MiB each.
    pool: String,
    /// 500 KiB each, half of them in the status.
    profile: String,
}

impl Objects {
    // All of them in memory are more than a service may take: a profile takes about 4 MiB once it is decoded.
    const POOLS: usize = 150;
    const PROFILES: usize = 100;

    fn new() -> Self {
        let with = |mut object: Value, namespace: &str| {
            object["metadata"]["namespace"] = json!(namespace);
            object["metadata"]["name"] = json!(format!("object-{NUMBER}"));
            object["metadata"]["uid"] = json!(format!("uid-{NUMBER}"));
            object["metadata"]["resourceVersion"] = json!("1");
            object["metadata"]["annotations"] =
                json!({names::REVISION: "1", names::SETTINGS: "#".repeat(200 * 1024)});
            object.to_string()
        };
        let mut pool = machine_deployment("pool", "osp-tiny");
        let provider = &mut pool["spec"]["template"]["spec"]["providerSpec"]["value"];
        provider["overwriteCloudConfig"] = json!("x".repeat(400 * 1024));
        provider["sshPublicKeys"] = json!(["x".repeat(400 * 1024)]);
        let mut profile = profile("profile", "v1.0.0", &"x".repeat(150 * 1024));
        // A value of two bytes takes many times that.
        profile["spec"]["provisioningConfig"]["modules"] = json!({"dense": vec![0; 50 * 1024]});
        let spec = profile["spec"].clone();
        profile["status"] = json!({"observedGeneration": 1, "accepted": {"version": "v1.0.0", "digest": "d",
            "templateEngine": "Handlebars", "spec": spec}});
        profile["metadata"]["generation"] = json!(1);
        Self {
            pool: with(pool, "kube-system"),
            profile: with(profile, NAMESPACE),
        }
    }

    fn page(&self, call: &Call) -> String {
        let path = call.target.split('?').next().unwrap_or_default();
        let (count, shape) = match path.rsplit('/').next() {
            Some("machinedeployments") => (Self::POOLS, self.pool.as_str()),
            Some("operatingsystemprofiles") if path.contains(NAMESPACE) => {
                (Self::PROFILES, self.profile.as_str())
            }
            _ => (0, ""),
        };
        let (from, limit) = (call.number("continue"), call.number("limit"));
        let end = (from + limit).min(count);
        let items: Vec<String> = (from..end)
            .map(|i| shape.replace(NUMBER, &i.to_string()))
            .collect();
        let token = match end < count {
            true => end.to_string(),
            false => String::new(),
        };
        format!(
            r#"{{"metadata": {{"resourceVersion": "1", "continue": "{token}"}}, "items": [{}]}}"#,
            items.join(",")
        )
    }
}

async fn respond(mut call: Call, objects: Arc<Objects>) -> Result<()> {
    call.head(http::Response::builder()).await?;
    if call.is_watch() {
        tokio::time::sleep(LISTED_WITHIN).await;
        return Ok(());
    }
    let answer = match call.method.as_str() {
        "GET" if call.target.contains("limit=") => objects.page(&call),
        "GET" => json!({"metadata": {"name": "kube-system", "uid": "u"}}).to_string(),
        _ => json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}).to_string(),
    };
    call.send(answer.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_the_largest_objects_fit_into_memory_at_a_start() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    let objects = Arc::new(Objects::new());
    let (pool, profile) = (objects.pool.len() >> 10, objects.profile.len() >> 10);
    ensure!(
        pool >= 1000 && profile >= 500,
        "pool {pool} KiB, profile {profile} KiB"
    );
    let server = FakeServer::start(move |call| respond(call, objects.clone())).await?;
    let of_profiles = ("operatingsystemprofiles", Objects::PROFILES);
    for (service, listed) in [
        (Service::OspController, &[of_profiles][..]),
        (
            Service::OscController,
            &[("machinedeployments", Objects::POOLS), of_profiles],
        ),
    ] {
        world
            .installed
            .replace_kubeconfig(service, ClusterKind::Management, &server.kubeconfig())?;
        world.installed.start(service).await?;
        let what = format!("{} to list all objects", service.name());
        wait_for(&what, LISTED_WITHIN, async || {
            let log = std::fs::read_to_string(world.installed.log_file(service))?;
            let is_listed = |(kind, objects): &(&str, usize)| {
                log.contains(&format!(r#""kind":"{kind}","objects":{objects},"#))
            };
            ensure!(listed.iter().all(is_listed), "not all are listed");
            Ok(Some(()))
        })
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
        let peak = world.installed.process(service)?.usage()?.peak_rss;
        println!("{}: {} MiB", service.name(), peak >> 20);
        ensure!(peak < MEMORY, "{}: {} MiB", service.name(), peak >> 20);
        world.installed.kill9(service)?;
    }
    Ok(())
}

/// Each config has about 400 KiB of late-bound values, so that the services keep only some of them.
#[tokio::test(flavor = "multi_thread")]
async fn pools_with_more_late_bound_values_than_are_kept_are_published_and_rotated() -> Result<()> {
    const POOLS: usize = 72;
    const REGISTRIES: usize = 650;
    let world = World::start(Options::default()).await?;
    let login = async |password: &str| {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": CLOUD_INIT_SETTINGS},
            "stringData": {"username": "user", "password": password}});
        world.apply(&secret).await
    };
    login("first-password").await?;
    let label = "a".repeat(60);
    let registries: Vec<Value> = (0..REGISTRIES)
        .map(|i| {
            let host = format!("r{i}.{label}.{label}.{label}.example");
            json!({"host": host, "credentials": {"name": "login"}})
        })
        .collect();
    let settings = json!({"containerd": {"registries": registries}});
    world.set_settings(&settings.to_string()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    let pools: Vec<String> = (0..POOLS).map(|i| format!("large-{i}")).collect();
    for pool in &pools {
        let mut object = machine_deployment(pool, "osp-tiny");
        object["metadata"]["annotations"][names::REVISION] = json!("1");
        world.apply(&object).await?;
    }
    let have = async |revision: u64, password: &str| {
        for pool in &pools {
            wait_for(
                &format!("{pool} with the {password}"),
                LISTED_WITHIN,
                async || {
                    let document = world.fetch(&world.machine(pool, revision).await?).await?;
                    check(document.contains(password))
                },
            )
            .await
            .map_err(|error| error.context(world.installed.logs()))?;
        }
        anyhow::Ok(())
    };
    have(1, "first-password").await?;
    for pool in &pools {
        world.stamp(pool, 2).await?;
    }
    // A change of the Secret concerns each pool, also if it is not known what it takes values from.
    login("second-password").await?;
    have(2, "second-password").await?;

    let (_, metrics) = world.installed.get(Service::OscController, "/metrics").await?;
    let reads = metrics.lines().find(|line| {
        let labels = [
            r#"verb="get""#,
            r#"resource="operatingsystemconfigs""#,
            r#"code="200""#,
        ];
        line.starts_with("osm_api_requests_total{") && labels.iter().all(|label| line.contains(label))
    });
    let reads = reads.context("configs that were read because they are not kept")?;
    println!("{reads}");
    for service in [Service::OscController, Service::SecretSyncer] {
        let peak = world.installed.process(service)?.usage()?.peak_rss;
        println!("{}: {} MiB", service.name(), peak >> 20);
        ensure!(peak < MEMORY, "{}: {} MiB", service.name(), peak >> 20);
    }
    Ok(())
}
