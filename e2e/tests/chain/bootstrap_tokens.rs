//! Bootstrap tokens in `kube-system`, where the settings have kubelets join with them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use osm_api::names;
use osm_api::rbac::{Installation, Service};
use osm_testkit::{Options, check, installation, wait_for};
use serde_json::json;

use crate::joining::{CONTROLLERS, join, node_wish};
use crate::world::{DEADLINE, NAMESPACE, UserData, World};

const GROUP: &str = "system:bootstrappers:machine-controller:default-node-token";
const WANTED: &str = "credentials: {nodeBootstrap: {kind: bootstrapToken}}";

/// What machine-controller's manifests, KKP and KubeOne bring along for the group.
async fn bind_the_group(world: &World) -> Result<()> {
    for (name, role) in [
        ("tokens:bootstrap", "system:node-bootstrapper"),
        (
            "tokens:approve",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        ),
    ] {
        let rbac = "rbac.authorization.k8s.io";
        world
            .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": rbac, "kind": "Group", "name": GROUP}]}))
            .await?;
    }
    Ok(())
}

/// The one right more.
async fn grant(world: &World) -> Result<()> {
    let with = Installation {
        bootstrap_tokens: true,
        ..world.installed.installation().clone()
    };
    installation::apply(&world.plane, &installation::manifests(&with)).await
}

fn is_bootstrap_token(token: &str) -> bool {
    token
        .split_once('.')
        .is_some_and(|(id, word)| id.len() == 6 && word.len() == 16)
}

async fn by_bootstrap_token(world: &World, revision: u64, not: &str) -> Result<UserData> {
    let other =
        |machine: &UserData| is_bootstrap_token(&machine.kubelet_token) && machine.kubelet_token != not;
    world.machine_with("p", revision, other).await
}

/// The Secret behind a token.
async fn secret_of(world: &World, token: &str) -> Result<Secret> {
    let (id, _) = token.split_once('.').context("id.secret")?;
    Ok(world
        .api::<Secret>("kube-system")
        .get(&format!("bootstrap-token-{id}"))
        .await?)
}

fn text_of(secret: &Secret) -> BTreeMap<String, String> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).into_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_join_with_a_bootstrap_token_where_the_settings_say_so() -> Result<()> {
    let controllers = [&CONTROLLERS[..], &["tokencleaner"]].concat();
    let world = World::start(Options {
        controllers,
        audit: true,
        ..Options::default()
    })
    .await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let before = world.machine("p", 1).await?;
    let observer = world.observe().await?;

    // The setting alone gives nobody a right; it is said which is missing, and what was published stays.
    world.set_settings(WANTED).await?;
    let message = world
        .says("p", "Published", false, "BootstrapTokenForbidden")
        .await?;
    assert!(
        message.contains("Secrets in kube-system") && message.contains("nodeBootstrap"),
        "{message}"
    );
    wait_for("the missing right on /readyz", DEADLINE, async || {
        let (code, waits) = world.installed.get(Service::SecretSyncer, "/readyz").await?;
        check(code == 503 && waits.contains("create secrets in kube-system"))
    })
    .await?;
    assert_eq!(world.machine("p", 1).await?.text, before.text);
    assert!(
        world.installed.is_ready(Service::OscController).await,
        "it is not its business"
    );
    grant(&world).await?;
    world.says("p", "Published", false, "NodeRightMissing").await?;
    bind_the_group(&world).await?;
    let machine = by_bootstrap_token(&world, 1, "").await?;
    world.says("p", "Published", true, "Published").await?;
    wait_for("secret-syncer to be ready", DEADLINE, async || {
        check(world.installed.is_ready(Service::SecretSyncer).await)
    })
    .await?;
    // One token, though it took several attempts; and the documents are those that they were.
    let tokens = world
        .api::<Secret>("kube-system")
        .list(&ListParams::default())
        .await?
        .items;
    assert_eq!(
        tokens.len(),
        1,
        "{:?}",
        tokens.iter().map(Secret::name_any).collect::<Vec<_>>()
    );
    assert_eq!(machine.provisioning_secret, before.provisioning_secret);

    let secret = secret_of(&world, &machine.kubelet_token).await?;
    assert_eq!(secret.type_.as_deref(), Some("bootstrap.kubernetes.io/token"));
    assert_eq!(secret.labels()[names::INSTALLATION], NAMESPACE);
    assert!(!secret.labels().contains_key("machinedeployment.k8s.io/name"));
    let text = text_of(&secret);
    assert_eq!(
        text["description"],
        "for new nodes of MachineDeployment kube-system/p"
    );
    assert_eq!(text["auth-extra-groups"], GROUP);
    assert_eq!(text["usage-bootstrap-authentication"], "true");
    assert!(!text.contains_key("usage-bootstrap-signing"), "{:?}", text.keys());
    let expires: Timestamp = text["expiration"].parse()?;
    let said: Timestamp = world.bootstrap("p").await?.annotations()[names::EXPIRES].parse()?;
    assert!(
        expires.duration_since(said).abs() <= SignedDuration::from_secs(1),
        "{expires} {said}"
    );
    assert!(
        expires.duration_since(Timestamp::now()) > SignedDuration::from_hours(23),
        "{expires}"
    );

    // It makes a node, and opens nothing.
    assert_eq!(
        join(&world, &machine.kubelet_token, "n1").await?,
        "system:node:n1 of system:nodes"
    );
    for namespace in [names::CLOUD_INIT_SETTINGS, "kube-system"] {
        let secrets: Api<Secret> = Api::namespaced(world.plane.client(&machine.kubelet_token)?, namespace);
        let error = secrets.list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 403));
    }

    // Another revision has another token; the first one, in the hands of a machine that boots slowly, is still good. A third of the
    // Go implementation's for the same pool does not matter either.
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system",
                "labels": {"machinedeployment.k8s.io/name": "kube-system-p"}},
            "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}}))
        .await?;
    world.stamp("p", 2).await?;
    let second = by_bootstrap_token(&world, 2, &machine.kubelet_token).await?;
    assert_eq!(
        join(&world, &second.kubelet_token, "n2").await?,
        "system:node:n2 of system:nodes"
    );
    assert_eq!(
        join(&world, &machine.kubelet_token, "n3").await?,
        "system:node:n3 of system:nodes"
    );

    // Other groups are another token. What they may not, is said.
    world
        .set_settings("credentials: {nodeBootstrap: {kind: bootstrapToken, groups: []}}")
        .await?;
    let message = world.says("p", "Published", false, "NodeRightMissing").await?;
    assert!(message.contains("certificatesigningrequests"), "{message}");
    assert_eq!(world.machine("p", 2).await?.text, second.text);

    // And back: a ServiceAccount's token again, and what is left of the other kind goes by itself.
    world.set_settings("").await?;
    let back = world
        .machine_with("p", 2, |machine| !is_bootstrap_token(&machine.kubelet_token))
        .await?;
    assert_eq!(
        join(&world, &back.kubelet_token, "n4").await?,
        "system:node:n4 of system:nodes"
    );
    assert_eq!(
        join(&world, &second.kubelet_token, "n5").await?,
        "system:node:n5 of system:nodes"
    );
    let over =
        json!({"stringData": {"expiration": (Timestamp::now() + SignedDuration::from_secs(2)).to_string()}});
    let name = secret_of(&world, &second.kubelet_token).await?.name_any();
    let tokens = world.api::<Secret>("kube-system");
    tokens
        .patch(&name, &PatchParams::default(), &Patch::Merge(&over))
        .await?;
    let requests = Api::<CertificateSigningRequest>::all(world.plane.client(&second.kubelet_token)?);
    let late = node_wish("late")?.request;
    wait_for("the token to expire", DEADLINE, async || {
        let refused = requests
            .create(
                &PostParams {
                    dry_run: true,
                    ..PostParams::default()
                },
                &late,
            )
            .await;
        check(matches!(refused, Err(kube::Error::Api(status)) if status.code == 401))
    })
    .await?;
    wait_for("tokencleaner", DEADLINE, async || {
        check(tokens.get_opt(&name).await?.is_none())
    })
    .await?;
    assert!(observer.absences().is_empty());

    // All that secret-syncer ever did there.
    let events = world.plane.audit_events()?;
    let there = events.iter().filter(|event| {
        event.user.ends_with(":secret-syncer")
            && event.namespace == "kube-system"
            && event.resource == "secrets"
    });
    let verbs: std::collections::BTreeSet<&str> = there.map(|event| event.verb.as_str()).collect();
    assert_eq!(verbs, ["create"].into());
    Ok(())
}

/// Nothing tells what the kind is to be: it stays what it is.
#[tokio::test(flavor = "multi_thread")]
async fn without_valid_settings_the_kind_of_token_stays() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    grant(&world).await?;
    bind_the_group(&world).await?;
    world.set_settings(WANTED).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let first = by_bootstrap_token(&world, 1, "").await?;
    world.installed.kill9(Service::SecretSyncer)?;
    world
        .set_settings("credentials: {nodeBootstrap: nonsense}")
        .await?;
    world.installed.start(Service::SecretSyncer).await?;
    // New tokens are issued all the same.
    let altered = json!({"metadata": {"annotations": {names::PUBLISHED_FROM: "x/9"}}});
    let name = names::bootstrap_secret_name("p", "kube-system");
    world
        .secrets()
        .patch(&name, &PatchParams::default(), &Patch::Merge(&altered))
        .await?;
    let again = by_bootstrap_token(&world, 1, &first.kubelet_token).await?;
    assert!(world.is_alive(&again.kubelet_token).await?);
    let (code, waits) = world.installed.get(Service::SecretSyncer, "/readyz").await?;
    assert!(
        code == 503 && waits.contains("credentials.nodeBootstrap"),
        "{waits}"
    );
    Ok(())
}
