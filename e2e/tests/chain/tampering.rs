//! Others change our Secrets and their namespace: every Secret is repaired, whatever was done to it.

use std::borrow::Cow;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use osm_api::content::ContentView;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_api::{OperatingSystemConfig, gzip};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, NAMESPACE, World, machine_deployment, profile};

/// Names of the Secrets of the pool `p`, which is one of provider edge.
struct Names {
    bootstrap: String,
    provisioning: String,
    script: String,
    key: String,
}

impl Names {
    async fn now(world: &World) -> Result<Self> {
        let bootstrap = names::bootstrap_secret_name("p", "kube-system");
        let secret = world.secrets().get(&bootstrap).await?;
        let provisioning = secret
            .annotations()
            .get(names::PROVISIONING_SECRET)
            .context("its document")?;
        Ok(Self {
            provisioning: provisioning.clone(),
            bootstrap,
            script: names::edge_script_secret_name("p", "kube-system"),
            key: names::digest_key_secret_name(NAMESPACE),
        })
    }

    fn all(&self) -> [&String; 4] {
        [&self.bootstrap, &self.provisioning, &self.script, &self.key]
    }
}

/// What of a Secret is ours to decide: everything but what depends on the moment.
fn shape(secret: &Secret) -> Value {
    let moments = [
        names::EXPIRES,
        names::RENEW_AT,
        names::CONTENT_MAC,
        names::BOUND_TO,
        names::KEEP_UNTIL,
        names::PUBLISHED_FROM,
    ];
    let mut annotations = secret.annotations().clone();
    annotations.retain(|name, value| {
        if moments.contains(&name.as_str()) {
            "(some)".clone_into(value);
        }
        !name.starts_with("example.com/")
    });
    json!({
        "labels": secret.labels(), "annotations": annotations, "immutable": secret.immutable.unwrap_or(false),
        "type": secret.type_, "keys": secret.data.iter().flatten().map(|(key, _)| key).collect::<Vec<_>>(),
    })
}

async fn shapes(world: &World) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for name in Names::now(world).await?.all() {
        all.push(shape(&world.secrets().get(name).await?));
    }
    Ok(all)
}

/// The pool can be used: both documents hold the same living tokens, which open what they name, and all stands as it did.
async fn is_whole(world: &World, shapes_before: &[Value]) -> Result<Option<()>> {
    let names = Names::now(world).await?;
    let bootstrap = world.secrets().get(&names.bootstrap).await?;
    let text = |secret: &Secret, key: &str| {
        let data = secret
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .context("no document")?;
        anyhow::Ok(String::from_utf8(data.0.clone())?)
    };
    let machine = crate::world::parse(text(&bootstrap, names::CLOUD_CONFIG_KEY)?)?;
    world.fetch(&machine).await?;
    ensure!(
        world.is_alive(&machine.kubelet_token).await?,
        "the join token is dead"
    );
    let script = text(&world.secrets().get(&names.script).await?, names::EDGE_SCRIPT_KEY)?;
    ensure!(script.starts_with("#!/bin/sh\n"), "the script");
    let now = shapes(world).await?;
    ensure!(now == shapes_before, "{now:#?}\n{shapes_before:#?}");
    Ok(Some(()))
}

async fn edge_pool(world: &World) -> Result<Vec<Value>> {
    let mut tiny = profile("osp-tiny", "v1.0.0", "one\n");
    tiny["spec"]["supportedCloudProviders"] = json!([{"name": "edge"}, {"name": "aws"}]);
    world.apply(&tiny).await?;
    let mut pool = machine_deployment("p", "osp-tiny");
    pool["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProvider"] = json!("edge");
    world.apply(&pool).await?;
    world.stamp("p", 1).await?;
    // Another pool, into whose place things can be put.
    let mut other = machine_deployment("q", "osp-tiny");
    other["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProvider"] = json!("aws");
    world.apply(&other).await?;
    world.stamp("q", 1).await?;
    world.says("p", "Published", true, "Published").await?;
    world.says("q", "Published", true, "Published").await?;
    wait_for("the script", DEADLINE, async || Ok(Some(shapes(world).await?))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_annotations_of_every_secret_are_put_back() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    let before = edge_pool(&world).await?;
    let other = world.bootstrap("q").await?.labels()[names::POOL].clone();
    let labels = [
        (names::ROLE, json!("bootstrap")),
        (names::ROLE, json!("provisioning")),
        (names::ROLE, json!("digest-key")),
        (names::ROLE, json!("edge-script")),
        (names::ROLE, json!("identity")),
        (names::ROLE, json!(null)),
        (names::POOL, json!("0123456789abcdef0123")),
        (names::POOL, json!(other)),
        (names::POOL, json!(null)),
        (names::INSTALLATION, json!("another")),
        (names::INSTALLATION, json!(null)),
    ];
    let annotations = [
        (names::CONFIG, json!("no-such-config")),
        (names::CONFIG, json!(names::config_name("q", "kube-system"))),
        (names::CONFIG, json!(null)),
        (names::OWNER, json!("kube-system/other")),
        (names::ORPHANED_SINCE, json!("2020-01-01T00:00:00Z")),
    ];
    let labels = labels.map(|(name, value)| json!({"metadata": {"labels": {name: value}}}));
    let annotations = annotations.map(|(name, value)| json!({"metadata": {"annotations": {name: value}}}));
    for n in 0..3 {
        // Who repairs a pool as often as this, again and again, takes a pause by and by, and says so.
        world.installed.kill9(Service::SecretSyncer)?;
        world.installed.start(Service::SecretSyncer).await?;
        for patch in labels.iter().chain(&annotations) {
            let name = Names::now(&world).await?.all()[n].clone();
            world
                .secrets()
                .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
            wait_for(
                &format!("{name} to be put right after {patch}"),
                DEADLINE,
                async || is_whole(&world, &before).await,
            )
            .await
            .map_err(|error| error.context(world.installed.logs()))?;
        }
    }
    for pool in ["p", "q"] {
        world.says(pool, "Published", true, "Published").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_every_secret_are_put_back_mutable_or_not() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    let mut before = edge_pool(&world).await?;
    let whole = async |world: &World, before: &[Value], what: &str| {
        wait_for(
            &format!("everything to be put right: {what}"),
            DEADLINE,
            async || is_whole(world, before).await,
        )
        .await
        .map_err(|error| error.context(world.installed.logs()))
    };
    let names = Names::now(&world).await?;
    for (name, key) in [
        (&names.bootstrap, names::CLOUD_CONFIG_KEY),
        (&names.script, names::EDGE_SCRIPT_KEY),
        (&names.key, secret_syncer::model::hmac_key::DATA_KEY),
    ] {
        let emptied = json!({"data": null});
        let blank = json!({"data": {key: ""}});
        let another = json!({"stringData": {key: "0123456789abcdef0123456789abcdef"}});
        let more = json!({"stringData": {"more": "than there should be"}});
        let frozen = json!({"immutable": true});
        let frozen_wrong =
            json!({"immutable": true, "stringData": {key: "fedcba9876543210fedcba9876543210"}});
        for patch in [emptied, blank, another.clone(), more, frozen, frozen_wrong] {
            let is_key = *name == names.key;
            // One more entry in the key's Secret, or a lock on it, harms nobody.
            if is_key && (patch.get("immutable").is_some() || patch.to_string().contains("more")) {
                continue;
            }
            let document = Names::now(&world).await?.provisioning;
            world
                .secrets()
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
            if is_key && patch == another {
                // A key as good as the one before: everything is named and sealed with it from now on.
                before = wait_for(
                    "everything to be published with another key",
                    DEADLINE,
                    async || {
                        let now = shapes(&world).await?;
                        let [bootstrap, _, script, _] = now.as_slice() else {
                            anyhow::bail!("four Secrets")
                        };
                        let made_from = |shape: &Value| shape["annotations"][names::INPUTS_MAC].clone();
                        ensure!(
                            Names::now(&world).await?.provisioning != document,
                            "the old document"
                        );
                        ensure!(made_from(bootstrap) == made_from(script), "the old script");
                        is_whole(&world, &now).await?;
                        Ok(Some(now))
                    },
                )
                .await?;
            }
            whole(&world, &before, &format!("{name} {patch}")).await?;
        }
    }

    // Someone puts a Secret of their own in the place of the document: with the same content but mutable, with other content
    // and immutable.
    for (data, immutable) in [
        (None, false),
        (Some("#cloud-config\n{}\n"), true),
        (Some(""), false),
    ] {
        let name = Names::now(&world).await?.provisioning;
        let mut mine = world.secrets().get(&name).await?;
        world.installed.kill9(Service::SecretSyncer)?;
        world.secrets().delete(&name, &DeleteParams::default()).await?;
        mine.metadata = kube::core::ObjectMeta {
            name: mine.metadata.name,
            labels: mine.metadata.labels,
            annotations: mine.metadata.annotations,
            ..Default::default()
        };
        mine.immutable = Some(immutable);
        if let Some(data) = data {
            mine.data = Some(
                [(
                    names::CLOUD_CONFIG_KEY.to_owned(),
                    k8s_openapi::ByteString(data.into()),
                )]
                .into(),
            );
        }
        world.secrets().create(&PostParams::default(), &mine).await?;
        world.installed.start(Service::SecretSyncer).await?;
        whole(
            &world,
            &before,
            &format!("a document of somebody else, immutable: {immutable}"),
        )
        .await?;
    }

    // The key of a process that has just started: whatever stands there, pools are published with what it then is.
    for patch in [
        json!({"data": null}),
        json!({"immutable": true, "data": {secret_syncer::model::hmac_key::DATA_KEY: "c2hvcnQ="}}),
    ] {
        world.installed.kill9(Service::SecretSyncer)?;
        world
            .secrets()
            .patch(&names.key, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        world.installed.start(Service::SecretSyncer).await?;
        wait_for("a key of 32 bytes", DEADLINE, async || {
            let secret = world.secrets().get(&names.key).await?;
            let key = secret
                .data
                .and_then(|mut data| data.remove(secret_syncer::model::hmac_key::DATA_KEY));
            check(key.is_some_and(|key| key.0.len() == 32) && !secret.immutable.unwrap_or(false))
        })
        .await?;
        world.says("p", "Published", true, "Published").await?;
        world.says("q", "Published", true, "Published").await?;
    }
    Ok(())
}

/// Ten thousand Secrets of others in the namespace: none of them is read, nor kept.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_others_cost_nothing() -> Result<()> {
    const OTHERS: usize = 10_000;
    let mut world = World::start(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    let peak = |world: &World| anyhow::Ok(world.installed.process(Service::SecretSyncer)?.usage()?.peak_rss);
    let before = peak(&world)?;
    let create = |n: usize| {
        let secrets = world.secrets();
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("other-{n}"), "labels": {"app": "other"}},
            "stringData": {"text": "x".repeat(1000)},
        }))
        .unwrap();
        async move { secrets.create(&PostParams::default(), &secret).await.map(drop) }
    };
    futures::stream::iter((0..OTHERS).map(create))
        .buffer_unordered(32)
        .try_collect::<Vec<()>>()
        .await?;

    // Not by a process that sees them come, nor by one that starts among them.
    let running = peak(&world)?;
    let events = world.plane.audit_events()?.len();
    world.installed.kill9(Service::SecretSyncer)?;
    world.installed.start(Service::SecretSyncer).await?;
    let started = std::time::Instant::now();
    world.stamp("p", 2).await?;
    world.machine("p", 2).await?;
    let took = started.elapsed();
    world.pool("later", "osp-tiny").await?;
    world.stamp("later", 1).await?;
    world.machine("later", 1).await?;
    world.installed.ready(DEADLINE).await?;
    let lists = world
        .plane
        .audit_events()?
        .into_iter()
        .skip(events)
        .filter(|event| {
            event.user.ends_with(":secret-syncer") && event.resource == "secrets" && event.verb == "list"
        });
    assert_eq!(
        lists.count(),
        2,
        "one page of our own Secrets, and one of ServiceAccounts' tokens"
    );
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let restarted = peak(&world)?;
    eprintln!(
        "secret-syncer's peak: {:.1} MiB alone, {:.1} MiB while {OTHERS} Secrets came, {:.1} MiB started among them; \
         its first publish took {took:.1?} from its start",
        mib(before),
        mib(running),
        mib(restarted)
    );
    for after in [running, restarted] {
        assert!(
            after < before + (16 << 20),
            "{:.1} MiB, and {:.1} MiB without them",
            mib(after),
            mib(before)
        );
    }
    Ok(())
}

/// Names as long as they may be.
#[tokio::test(flavor = "multi_thread")]
async fn names_may_be_as_long_as_kubernetes_allows() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let mut tiny = profile(&"p".repeat(253), "v1.0.0", "one\n");
    tiny["spec"]["supportedCloudProviders"] = json!([{"name": "edge"}, {"name": "openstack"}]);
    let profile_name = "p".repeat(253);
    world.apply(&tiny).await?;
    let namespace = "n".repeat(63);
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
        .await?;

    // The bootstrap Secret's name is machine-controller's, and leaves so much room; that of an edge pool's script a little less.
    let room = 253 - "--bootstrap-config".len() - namespace.len();
    let edge_room = 253 - "edge-provider-script--".len() - namespace.len();
    let pool = |length: usize, cloud: &str| {
        // Parts of 63 between dots, which a name may have as well.
        let name: String = (0..length)
            .map(|n| if n % 64 == 63 && n + 1 < length { '.' } else { 'a' })
            .collect();
        let mut pool = machine_deployment(&name, &profile_name);
        pool["metadata"]["namespace"] = json!(namespace);
        pool["metadata"]["annotations"][names::REVISION] = json!("1");
        pool["spec"]["selector"] = json!({"matchLabels": {"pool": "long"}});
        pool["spec"]["template"]["metadata"] = json!({"labels": {"pool": "long"}});
        pool["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProvider"] = json!(cloud);
        (name, pool)
    };
    for (length, cloud, fits) in [
        (room, "openstack", true),
        (room + 1, "openstack", false),
        (edge_room, "edge", true),
        (edge_room + 1, "edge", false),
    ] {
        let (name, object) = pool(length, cloud);
        world.apply(&object).await?;
        if !fits {
            let message = world.event(&namespace, &name, "NameTooLong").await?;
            assert!(message.ends_with("is shortened by 1"), "{message}");
            continue;
        }
        let config = names::config_name(&name, &namespace);
        wait_for(
            &format!("a pool of {cloud} with a name of {length}"),
            DEADLINE,
            async || {
                let status = world.configs().get(&config).await?.status.unwrap_or_default();
                check(status.published.is_some())
            },
        )
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
        let secret = world
            .secrets()
            .get(&names::bootstrap_secret_name(&name, &namespace))
            .await?;
        let text = osm_testkit::machine_controller::user_data(&secret, "1", "machine")?;
        world.fetch(&crate::world::parse(text)?).await?;
        // Events about objects with such names.
        world
            .set_settings("cluster: {apiServer: 'https://192.0.2.10:6443'}")
            .await?;
        let alien = json!({"metadata": {"annotations": {names::PROFILE: "no-such-profile"}}});
        let api = world.api::<osm_api::MachineDeployment>(&namespace);
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&alien))
            .await?;
        world.event(&namespace, &name, "ProfileNotFound").await?;
        let uid = api.get(&name).await?.uid();
        let preconditions = Preconditions {
            uid,
            resource_version: None,
        };
        api.delete(&name, &DeleteParams::default().preconditions(preconditions))
            .await?;
        wait_for("it to be undone", DEADLINE, async || {
            check(world.configs().get_opt(&config).await?.is_none())
        })
        .await?;
    }
    assert_eq!(world.made().await?, Vec::<String>::new());
    let left = world.secrets().list(&Default::default()).await?.items;
    assert!(
        left.iter()
            .all(|secret| secret.name_any().starts_with("osm-digest-key")),
        "in {CLOUD_INIT_SETTINGS}"
    );
    Ok(())
}

/// Another client writes the status while all services run. Machines never get what it wrote.
#[tokio::test(flavor = "multi_thread")]
async fn an_altered_status_is_put_right_and_never_published() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    world.says("p", "Published", true, "Published").await?;
    let observer = world.observe().await?;
    let name = names::config_name("p", "kube-system");
    let content = |config: &OperatingSystemConfig| {
        let content = ContentView::of(config).content().map(Cow::into_owned);
        content.map(|content| (content.bootstrap_config, content.provisioning_config))
    };
    let original = content(&world.config("p").await?)?;
    let foreign = gzip::USUAL
        .base64(r#"{"files": [{"path": "/etc/text", "content": {"inline": {"data": "foreign"}}}]}"#);
    let digest = "0".repeat(64);
    for rendered in [
        json!({"digest": digest}),
        json!({"digest": digest, "bootstrap": foreign}),
        json!({"revision": "7"}),
        json!(null),
    ] {
        let patch = Patch::Merge(json!({"status": {"rendered": rendered}}));
        world
            .configs()
            .patch_status(&name, &PatchParams::default(), &patch)
            .await?;
        wait_for(
            &format!("the status to be put right after {rendered}"),
            DEADLINE,
            async || {
                let config = world.config("p").await?;
                let is_right = content(&config).is_ok_and(|content| content == original);
                check(is_right && ContentView::of(&config).is_published("1"))
            },
        )
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
    }
    // Under its own digest, nobody looks at a document before it is needed.
    let patch = Patch::Merge(json!({"status": {"rendered": {"bootstrap": foreign}}}));
    world
        .configs()
        .patch_status(&name, &PatchParams::default(), &patch)
        .await?;
    world.stamp("p", 2).await?;
    let machine = world.machine("p", 2).await?;
    ensure!(
        machine.text.contains("one") && !machine.text.contains("foreign"),
        "{}",
        machine.text
    );
    ensure!(observer.absences().is_empty(), "{:?}", observer.absences());
    let revisions = observer.history("p");
    ensure!(
        revisions
            .iter()
            .all(|(revision, _)| ["1", "2"].contains(&revision.as_str())),
        "{revisions:?}"
    );
    Ok(())
}
