//! An administrator of a user cluster, whose services run in another cluster, writes OperatingSystemConfigs. They reach nothing of the home
//! cluster but what its settings name, and no other pool.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use osm_api::condition::{self, PUBLISHED};
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource, OperatingSystemConfig, Rendered};
use osm_api::content::{Content, ContentView, Unpacked, spec_for};
use osm_api::names::{self, SETTINGS_CONFIG_MAP, SETTINGS_KEY};
use osm_api::profile::MAX_CONTENT_BYTES;
use osm_api::rbac::Service;
use osm_api::{PoolRef, gzip};
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, HOME, NAMESPACE, World};

/// In Secrets at home that nothing names.
const CANARY: &str = "c4n4ry-0f-th3-h0m3-clust3r";

/// What the settings name.
const LISTED: &str = "hunter2";

/// Two pools that are published, `p` and `q`. secret-syncer may read every Secret at home, and in a namespace of that name in the user
/// cluster. osc-controller is away, so nothing corrects what is forged.
async fn attacked() -> Result<World> {
    let mut world = World::start_with_home(Options::default()).await?;
    let home = world.home.as_ref().context("a home cluster")?;
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "all-secrets", "namespace": HOME});
    let data = json!({"password": LISTED, "user": CANARY});
    let rights = [
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "all-secrets"},
            "subjects": [{"kind": "ServiceAccount", "name": Service::SecretSyncer.name(), "namespace": IDENTITIES}]}),
    ];
    let secrets = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "vpn", "namespace": HOME}, "stringData": data}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "other", "namespace": HOME},
            "stringData": {"token": CANARY}}),
    ];
    installation::apply(home, &rights).await?;
    installation::apply(home, &secrets).await?;
    // A namespace of the same name, in which there is no such Secret.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}});
    installation::apply(&world.plane, &[namespace]).await?;
    installation::apply(&world.plane, &rights).await?;
    let listed = json!([{"namespace": HOME, "name": "vpn", "key": "password"}]);
    // What pools may refer to is in the user cluster, even if the namespace has the same name.
    let allowed = json!([{"namespace": HOME, "secrets": ["other"]}]);
    let settings = json!({"credentials": {"profileSecrets": listed, "allowedSources": allowed}});
    world.set_settings(&settings.to_string()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in ["p", "q"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        world.machine(pool, 1).await?;
        world.says(pool, PUBLISHED, true, "Published").await?;
    }
    world
        .installed
        .terminate(Service::OscController, DEADLINE)
        .await?;
    Ok(world)
}

/// A content with one more file, as osc-controller would write it for revision 1.
fn forged(content: &Content, text: &str, late: Option<LateBound>) -> Result<Value> {
    let mut content = content.clone();
    let file = json!({"path": "/etc/forged", "permissions": 600, "content": {"inline": {"data": text}}});
    content
        .provisioning_config
        .files
        .push(serde_json::from_value(file)?);
    content.late_bound.extend(late);
    let described = Rendered {
        revision: Some("1".to_owned()),
        ..Rendered::default()
    };
    Ok(serde_json::to_value(
        Unpacked::new(&content, false, described).pack(),
    )?)
}

/// A marker, and what it refers to.
fn reference(id: &str, kind: LateBoundKind, name: &str, key: &str) -> (String, LateBound) {
    let source = LateBoundSource {
        namespace: HOME.to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    };
    let late = LateBound {
        id: id.to_owned(),
        kind,
        source: Some(source),
    };
    (format!("%%osm-late{{{id},json}}%%"), late)
}

async fn write(world: &World, config: &str, path: &str, value: &Value) -> Result<()> {
    let patch = json!([{"op": "add", "path": path, "value": value}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    world
        .configs()
        .patch_status(config, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn write_to_p(world: &World, field: &str, value: &Value) -> Result<()> {
    let path = format!("/status/{field}");
    write(world, &names::config_name("p", "kube-system"), &path, value).await
}

/// Waits until the condition `Published` of a config has this text.
async fn is_told(world: &World, config: &str, text: &str) -> Result<String> {
    wait_for(&format!("{config}: {text}"), DEADLINE, async || {
        let conditions = world
            .configs()
            .get(config)
            .await?
            .status
            .unwrap_or_default()
            .conditions;
        let told = condition::find(&conditions, PUBLISHED)
            .map(|found| format!("{}: {}", found.reason, found.message));
        let told = told.unwrap_or_default();
        ensure!(told.contains(text), "{told}");
        Ok(Some(told))
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

/// uid and version of everything of `q`, which must not change.
async fn untouched(world: &World) -> Result<BTreeMap<String, String>> {
    let config = names::config_name("q", "kube-system");
    let mut secrets = world.secrets().list(&ListParams::default()).await?.items;
    secrets.retain(|secret| secret.annotations().get(names::CONFIG) == Some(&config));
    ensure!(secrets.len() == 2, "q has a bootstrap and a provisioning Secret");
    let state = |secret: &Secret| format!("{:?} {:?}", secret.uid(), secret.resource_version());
    Ok(secrets
        .iter()
        .map(|secret| (secret.name_any(), state(secret)))
        .collect())
}

/// Nothing of the home cluster is in the user cluster or in a log, and `q` is as it was.
async fn nothing_leaked(world: &World, before: &BTreeMap<String, String>) -> Result<()> {
    ensure!(untouched(world).await? == *before, "something was changed");
    world.fetch(&world.machine("q", 1).await?).await?;
    let secrets = world.secrets().list(&ListParams::default()).await?.items;
    let entries = secrets
        .into_iter()
        .flat_map(|secret| secret.data.unwrap_or_default());
    // An entry may be compressed.
    let texts = entries.map(|(_, value)| {
        gzip::unpack(&value.0, 4 * MAX_CONTENT_BYTES)
            .unwrap_or_else(|_| String::from_utf8_lossy(&value.0).into_owned())
    });
    for text in texts.chain([world.installed.logs()]) {
        ensure!(!text.contains(CANARY), "{text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_configs_open_nothing_at_home_and_affect_no_other_pool() -> Result<()> {
    let mut world = attacked().await?;
    let content = ContentView::of(&world.config("p").await?).content()?;
    forged_references(&world, &content).await?;
    forged_states(&mut world, &content).await
}

/// The table of secret-syncer has every kind of late-bound value.
async fn forged_references(world: &World, content: &Content) -> Result<()> {
    let before = untouched(world).await?;
    let own = names::config_name("p", "kube-system");
    let first = world.machine("p", 1).await?;

    // Late-bound values that refer to the home cluster.
    use LateBoundKind::{ProfileSecretKey, SecretKey};
    for (id, kind, name, key, reason) in [
        ("a", SecretKey, "vpn", "password", "SourceNotAllowed"),
        ("b", SecretKey, "other", "token", "SourceMissing"),
        ("c", ProfileSecretKey, "vpn", "user", "SourceNotAllowed"),
    ] {
        let (marker, late) = reference(id, kind, name, key);
        let rendered = forged(content, &marker, Some(late))?;
        write_to_p(world, "rendered", &rendered).await?;
        is_told(world, &own, &format!("{reason}: {id}: ")).await?;
    }
    // What the settings name is placed, wherever the forger wants it on machines of this pool.
    let (marker, late) = reference("named", ProfileSecretKey, "vpn", "password");
    let good = forged(content, &marker, Some(late))?;
    write_to_p(world, "rendered", &good).await?;
    let named = world
        .machine_with("p", 1, |machine| {
            machine.provisioning_secret != first.provisioning_secret
        })
        .await?;
    ensure!(world.fetch(&named).await?.contains(LISTED));

    // A document that unpacks to more than is read. Under the digest that is published, nobody would look at it.
    let mut bomb = good;
    bomb["provisioning"] = json!(gzip::USUAL.base64(&" ".repeat(16 * MAX_CONTENT_BYTES)));
    bomb["digest"] = json!("1".repeat(64));
    write_to_p(world, "rendered", &bomb).await?;
    is_told(world, &own, "ContentModified: ").await?;

    // Settings in the user cluster.
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS_CONFIG_MAP, "namespace": NAMESPACE},
        "data": {SETTINGS_KEY: format!("credentials: {{profileSecrets: [{{namespace: {HOME}, name: other, key: token}}]}}")}});
    world.apply(&settings).await?;
    let (marker, late) = reference("i", ProfileSecretKey, "other", "token");
    let rendered = forged(content, &marker, Some(late))?;
    write_to_p(world, "rendered", &rendered).await?;
    is_told(world, &own, "SourceNotAllowed: i: ").await?;
    nothing_leaked(world, &before).await
}

async fn forged_states(world: &mut World, content: &Content) -> Result<()> {
    let before = untouched(world).await?;
    let (p, q) = (world.config("p").await?, world.config("q").await?);
    let pool = |config: &OperatingSystemConfig| -> Result<PoolRef> {
        ContentView::of(config).pool().context("a pool")
    };
    let (of_p, of_q) = (pool(&p)?, pool(&q)?);
    let published =
        |config: &OperatingSystemConfig| config.status.clone().and_then(|status| status.published);
    let of_other = published(&q).context("q is published")?;

    // New content is held back, the bootstrap Secret is altered, and the status names the documents of the other pool as published.
    let content = forged(content, "", None)?;
    let mut held = content.clone();
    held["digest"] = json!("0".repeat(64));
    write_to_p(world, "rendered", &held).await?;
    is_told(
        world,
        &names::config_name("p", "kube-system"),
        "ContentModified: ",
    )
    .await?;
    // Both alterations are there before secret-syncer looks again, because it corrects each of them alone.
    world.installed.terminate(Service::SecretSyncer, DEADLINE).await?;
    let mut lie = serde_json::to_value(&of_other)?;
    lie["credentialExpires"] = json!("2999-01-01T00:00:00Z");
    write_to_p(world, "published", &lie).await?;
    let altered =
        json!({"metadata": {"annotations": {names::PROVISIONING_SECRET: of_other.provisioning_secret}}});
    world
        .secrets()
        .patch(
            &names::bootstrap_secret_name("p", "kube-system"),
            &PatchParams::default(),
            &Patch::Merge(&altered),
        )
        .await?;
    world.installed.start(Service::SecretSyncer).await?;
    is_told(
        world,
        &names::config_name("p", "kube-system"),
        "2999-01-01T00:00:00Z",
    )
    .await?;
    nothing_leaked(world, &before).await?;
    write_to_p(world, "rendered", &content).await?;
    wait_for("p to be published again", DEADLINE, async || {
        let now = published(&world.config("p").await?).context("p is published")?;
        let machine = world.machine("p", 1).await?;
        check(
            now.bootstrap_secret != of_other.bootstrap_secret
                && machine.provisioning_secret != of_other.provisioning_secret,
        )
    })
    .await?;
    nothing_leaked(world, &before).await?;

    // A config that claims the pool of the other one, and declares it gone.
    let mut evil = OperatingSystemConfig::new("evil", spec_for((&of_q).into()));
    evil.metadata.annotations = q.metadata.annotations.clone();
    world.configs().create(&PostParams::default(), &evil).await?;
    write(
        world,
        "evil",
        "/status",
        &json!({"rendered": content, "published": lie}),
    )
    .await?;
    is_told(
        world,
        "evil",
        "spec.poolRef is the pool of the OperatingSystemConfig q-kube-system-config",
    )
    .await?;
    let end = |uid: &str| json!({"uid": uid, "generation": 1});
    write(world, "evil", "/status/retired", &end(&of_q.uid)).await?;

    // The end of one pool, with the uid of the other and with its own.
    write_to_p(world, "retired", &end(&of_q.uid)).await?;
    world.machine("p", 1).await?;
    write_to_p(world, "retired", &end(&of_p.uid)).await?;
    is_told(world, &names::config_name("p", "kube-system"), "Deleted: ").await?;
    ensure!(world.bootstrap("p").await.is_err(), "p is published");
    nothing_leaked(world, &before).await?;
    let told = world
        .configs()
        .get("evil")
        .await?
        .status
        .unwrap_or_default()
        .conditions;
    ensure!(
        condition::find(&told, PUBLISHED).is_some_and(|found| found.reason == "ObjectUnreadable"),
        "{told:?}"
    );

    // Its MachineDeployment exists, so that osc-controller creates the config again.
    world.installed.start(Service::OscController).await?;
    world.machine("p", 1).await?;
    nothing_leaked(world, &before).await?;
    Ok(())
}
