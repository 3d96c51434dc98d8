//! Bootstrap tokens in `kube-system`, where the settings have kubelets join with them.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::names;
use osm_api::rbac::{Installation, Service};
use osm_testkit::{Options, check, installation, wait_for};
use serde_json::json;

use crate::joining::{CONTROLLERS, join};
use crate::world::{DEADLINE, NAMESPACE, World};

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

/// The Secret behind a token.
async fn secret_of(world: &World, token: &str) -> Result<Secret> {
    let (id, _) = token.split_once('.').context("id.secret")?;
    Ok(world
        .api::<Secret>("kube-system")
        .get(&format!("bootstrap-token-{id}"))
        .await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelets_join_with_a_bootstrap_token_where_the_settings_say_so() -> Result<()> {
    let controllers = CONTROLLERS.to_vec();
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
    world
        .says("p", "Published", false, "NodePermissionMissing")
        .await?;
    bind_the_group(&world).await?;
    let machine = world
        .machine_with("p", 1, |machine| is_bootstrap_token(&machine.kubelet_token))
        .await?;
    world.says("p", "Published", true, "Published").await?;
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

    assert!(observer.absent().is_empty());

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
