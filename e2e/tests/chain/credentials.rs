//! Tokens: what they permit, how long they live, and their renewal without any event.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use secret_syncer::model::hmac_key::HmacKey;
use secret_syncer::model::pairs::Pairs;
use serde_json::json;

use crate::world::{DEADLINE, NAMESPACE, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_token_reads_its_own_documents_and_nothing_else() -> Result<()> {
    // The server grants less than is asked for.
    let hour = Some(Duration::from_secs(3600));
    let world = World::start(Options {
        service_account_max_token_expiration: hour,
        ..Options::default()
    })
    .await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in ["a", "b"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
    }
    let (a, b) = (world.machine("a", 1).await?, world.machine("b", 1).await?);
    let node: Api<Secret> = Api::namespaced(world.plane.client(&a.api_token)?, CLOUD_INIT_SETTINGS);
    let forbidden = |error: kube::Error| assert!(osm_code(&error) == 403, "{error}");
    forbidden(node.get(&b.provisioning_secret).await.unwrap_err());
    forbidden(
        node.get(&names::bootstrap_secret_name("a", "kube-system"))
            .await
            .unwrap_err(),
    );
    forbidden(node.list(&ListParams::default()).await.unwrap_err());
    let maps: Api<ConfigMap> = Api::namespaced(world.plane.client(&a.api_token)?, NAMESPACE);
    forbidden(maps.list(&ListParams::default()).await.unwrap_err());
    let node: Api<Secret> = Api::namespaced(world.plane.client(&a.kubelet_token)?, CLOUD_INIT_SETTINGS);
    forbidden(node.get(&a.provisioning_secret).await.unwrap_err());

    // Renewed at half of what was granted.
    let secret = world.bootstrap("a").await?;
    let time = |key: &str| secret.annotations()[key].parse::<Timestamp>().unwrap();
    let left = time(names::EXPIRES).duration_since(Timestamp::now());
    assert!(
        left > SignedDuration::from_mins(50) && left <= SignedDuration::from_mins(61),
        "{left:?}"
    );
    let until_renewal = time(names::EXPIRES).duration_since(time(names::RENEW_AT));
    let half = SignedDuration::from_mins(29)..SignedDuration::from_mins(35);
    assert!(half.contains(&until_renewal), "{until_renewal:?}");
    Ok(())
}

/// From "issued at" to "expires" in a ServiceAccount's token.
pub fn life(token: &str) -> Result<Duration> {
    let payload = token.split('.').nth(1).context("a JWT")?;
    let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload)?)?;
    let time = |name| {
        claims
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .context("a time")
    };
    Ok(Duration::from_secs(time("exp")? - time("iat")?))
}

fn osm_code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

/// The date of the renewal is brought near, as if hours had passed: sealed, so that nobody takes it for altered.
pub async fn bring_renewal_near(world: &World, pool: &str) -> Result<Timestamp> {
    let soon = Timestamp::now() + SignedDuration::from_secs(3);
    let name = names::bootstrap_secret_name(pool, "kube-system");
    let mut secret = world.bootstrap(pool).await?;
    let key = world
        .secrets()
        .get(&names::digest_key_secret_name(NAMESPACE))
        .await?;
    let key = HmacKey::of(&key.data.unwrap()[secret_syncer::model::hmac_key::DATA_KEY].0).unwrap();
    let document = secret.data.as_ref().unwrap()[names::CLOUD_CONFIG_KEY].0.clone();
    let annotations = secret.annotations_mut();
    annotations.insert(names::RENEW_AT.to_owned(), soon.to_string());
    let seal = secret_syncer::model::seal::seal(
        &key,
        &osm_api::digest::sha256_hex(&document),
        &Pairs::from(&*annotations),
    );
    annotations.insert(names::CONTENT_MAC.to_owned(), seal);
    world
        .secrets()
        .replace(&name, &PostParams::default(), &secret)
        .await?;
    Ok(soon)
}

/// The timer is no memory of a process: who starts in the meantime has it, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_survives_a_restart() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let first = world.machine("p", 1).await?;
    world.installed.kill9(Service::SecretSyncer)?;
    let soon = bring_renewal_near(&world, "p").await?;
    world.installed.start(Service::SecretSyncer).await?;
    let second = world
        .machine_with("p", 1, |machine| machine.api_token != first.api_token)
        .await?;
    assert!(Timestamp::now() >= soon, "renewed before its time");
    assert_eq!(first.provisioning_secret, second.provisioning_secret);

    // While nobody was there it came due: renewed at once.
    world.installed.kill9(Service::SecretSyncer)?;
    let soon = bring_renewal_near(&world, "p").await?;
    wait_for("the time to come", DEADLINE, async || {
        check(Timestamp::now() > soon)
    })
    .await?;
    world.installed.start(Service::SecretSyncer).await?;
    let third = world
        .machine_with("p", 1, |machine| machine.api_token != second.api_token)
        .await?;
    assert!(world.is_alive(&third.kubelet_token).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_renewed_by_the_clock_alone() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let first = world.machine("p", 1).await?;
    let observer = world.observe().await?;
    let soon = bring_renewal_near(&world, "p").await?;
    let second = world
        .machine_with("p", 1, |machine| machine.api_token != first.api_token)
        .await?;
    assert!(Timestamp::now() >= soon, "renewed before its time");
    // The same document, and both tokens good.
    assert_eq!(first.provisioning_secret, second.provisioning_secret);
    world.fetch(&first).await?;
    assert!(observer.absences().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_credentials_are_bound_late_encoded_and_followed() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let settings = json!({"containerd": {"registries": [{"host": "registry.example", "credentials": {"name": "login"}}]}});
    world.set_settings(&settings.to_string()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let message = world.says("p", "Published", false, "SourceMissing").await?;
    assert!(message.contains("cloud-init-settings/login"), "{message}");
    world
        .event(NAMESPACE, "p-kube-system-config", "SourceMissing")
        .await?;

    for password in ["pa\"ss'w\\ord\nwith\ttwo lines $(reboot) {{late}}", "rotated"] {
        world
            .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": CLOUD_INIT_SETTINGS},
                "stringData": {"username": "user", "password": password}}))
            .await?;
        wait_for("the password on the node", DEADLINE, async || {
            let machine = world.machine("p", 1).await?;
            let document = world.fetch(&machine).await?;
            let files =
                osm_judges::user_data_files(&document).map_err(|verdict| anyhow::anyhow!("{verdict}"))?;
            let text = files
                .iter()
                .find(|file| file.path == "/etc/registries")
                .map(|file| file.content.clone())
                .unwrap_or_default();
            let read: toml::Table = text.parse()?;
            check(read.get("password").and_then(|value| value.as_str()) == Some(password))
        })
        .await?;
        // No trace of it where it does not belong.
        let config = serde_json::to_string(&world.config("p").await?)?;
        let logs = world.installed.logs();
        for trace in ["pa\\\"ss", "two lines", "rotated"] {
            assert!(!config.contains(trace) && !logs.contains(trace), "{trace}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_no_living_token_may_fetch_go_and_the_role_narrows() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world
        .accepted_profile("osp-tiny", "v1.0.0", "kubelet {{kubelet.version}}\n")
        .await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let first = world.machine("p", 1).await?;
    world
        .patch_pool(
            "p",
            json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.35.0"}}}}}),
        )
        .await?;
    world.stamp("p", 2).await?;
    let second = world.machine("p", 2).await?;
    world.fetch(&first).await?;
    // A day later.
    let past = json!({"metadata": {"annotations": {names::KEEP_UNTIL: "2026-01-01T00:00:00Z"}}});
    for document in [&first.provisioning_secret, &second.provisioning_secret] {
        world
            .secrets()
            .patch(document, &PatchParams::default(), &Patch::Merge(&past))
            .await?;
    }
    wait_for("the first document to go", DEADLINE, async || {
        check(
            world
                .secrets()
                .get_opt(&first.provisioning_secret)
                .await?
                .is_none(),
        )
    })
    .await?;
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = world.api(CLOUD_INIT_SETTINGS);
    wait_for("the Role to narrow", DEADLINE, async || {
        let role = roles
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .find(|role| role.name_any().starts_with("osm-node-"));
        let names = role
            .and_then(|role| role.rules)
            .and_then(|rules| rules.first()?.resource_names.clone());
        check(names == Some(vec![second.provisioning_secret.clone()]))
    })
    .await?;
    // The one that the live bootstrap Secret names stays, whatever its date says.
    world.machine("p", 2).await?;
    Ok(())
}
