//! Who approves what machines request with the token of their pool: csr-approver, or with the chart's value
//! `joining: static` kube-controller-manager.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::{Options, check, installation, wait_for};
use serde_json::{Value, json};

use crate::joining::{CONTROLLERS, KUBELET_SIGNER, join, node_wish, rights, wish};
use crate::rights::{getter_token, is_dead, is_forbidden, more_than_anybody};
use crate::world::{DEADLINE, UserData, World};

const RBAC: &str = "rbac.authorization.k8s.io";

/// All services but csr-approver run.
async fn start() -> Result<World> {
    let controllers = [&CONTROLLERS[..], &["serviceaccount-token"]].concat();
    let mut world = World::start_without_services(Options {
        controllers,
        ..Options::default()
    })
    .await?;
    for service in [
        Service::OspController,
        Service::OscController,
        Service::SecretSyncer,
    ] {
        world.installed.start(service).await?;
    }
    Ok(world)
}

async fn with_pool(world: &World, pool: &str) -> Result<UserData> {
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool(pool, "osp-tiny").await?;
    world.stamp(pool, 1).await?;
    world.machine(pool, 1).await
}

fn requests(world: &World, token: &str) -> Result<Api<CertificateSigningRequest>> {
    Ok(Api::all(world.plane.client(token)?))
}

/// Asks as a kubelet does, in a request of this name.
async fn ask(world: &World, token: &str, node: &str) -> Result<Result<(), kube::Error>> {
    let request = node_wish(node)?.request;
    let requests = requests(world, token)?;
    let created = requests.create(&PostParams::default(), &request).await;
    Ok(created.map(drop))
}

/// Waits until the controllers have dealt with all requests so far, by one that they approve: it is the
/// administrator's.
async fn controllers_have_seen_all(world: &World, request: &str) -> Result<()> {
    let all = Api::<CertificateSigningRequest>::all(world.client.clone());
    all.create(&PostParams::default(), &node_wish(request)?.request)
        .await?;
    wait_for("the administrator's certificate", DEADLINE, async || {
        let status = all.get(request).await?.status;
        Ok(status.and_then(|status| status.certificate).map(drop))
    })
    .await
}

async fn is_pending(world: &World, request: &str) -> Result<bool> {
    let all = Api::<CertificateSigningRequest>::all(world.client.clone());
    let status = all.get(request).await?.status.unwrap_or_default();
    Ok(status.certificate.is_none() && status.conditions.is_none_or(|conditions| conditions.is_empty()))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_token_opens_the_documents_and_asks_and_only_csr_approver_approves() -> Result<()> {
    let mut world = start().await?;
    let getter = getter_token(&world).await?;
    let machine = with_pool(&world, "p").await?;
    only_client_certificates_of_kubelets(&world, &machine, &getter).await?;
    assert!(machine.api_token == machine.kubelet_token, "one token");
    let expected = BTreeSet::from([format!("get /secrets {}", machine.provisioning_secret)]);
    world
        .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "anybody", "namespace": CLOUD_INIT_SETTINGS}}))
        .await?;
    let own = more_than_anybody(&world, &machine.api_token, CLOUD_INIT_SETTINGS).await?;
    assert_eq!(own, expected);
    let mut asking = rights(world.plane.client(&machine.api_token)?, "default").await?;
    asking.retain(|right| right.contains("certificates.k8s.io"));
    let verbs = ["create", "get", "list", "watch"];
    let may_ask = verbs.map(|verb| format!("{verb} certificates.k8s.io/certificatesigningrequests (any)"));
    assert_eq!(asking, BTreeSet::from(may_ask), "and nothing is approved");

    ask(&world, &machine.kubelet_token, "n1").await??;
    controllers_have_seen_all(&world, "of-the-administrator").await?;
    assert!(is_pending(&world, "n1").await?);

    // With its Machine, and csr-approver, the pool's machine joins.
    let pool = world.with_set("p", machine.kubelet_token.clone()).await?;
    world.machine_of(&pool, "p-1").await?;
    world.installed.start(Service::CsrApprover).await?;
    let who = join(&world, &machine.kubelet_token, "p-1").await;
    assert_eq!(
        who.map_err(|error| error.context(world.installed.logs()))?,
        "system:node:p-1 of system:nodes"
    );
    Ok(())
}

/// The chart's value `joining: static`: no approver runs, and what an older version published with it stays
/// valid.
#[tokio::test(flavor = "multi_thread")]
async fn kube_controller_manager_approves_the_token_of_a_pool_and_no_other() -> Result<()> {
    let mut world = start().await?;
    world.apply(&installation::node_client()).await?;
    let getter = getter_token(&world).await?;
    let machine = with_pool(&world, "p").await?;
    wait_for("the policy", DEADLINE, async || {
        check(is_forbidden(ask(&world, &getter, "of-the-getter").await?))
    })
    .await?;
    let who = join(&world, &machine.kubelet_token, "p-1").await?;
    assert_eq!(who, "system:node:p-1 of system:nodes");

    let earlier = with_pool(&world, "upgraded").await?;
    world.installed.kill9(Service::SecretSyncer)?;
    let old = as_before(&world, "upgraded").await?;
    world.installed.start(Service::SecretSyncer).await?;
    let upgraded = world.machine_with("upgraded", 1, |new| new.api_token != earlier.api_token);
    let upgraded = upgraded.await?;
    // A machine that booted before the upgrade, and one that boots after it.
    world.fetch(&earlier).await?;
    for (token, node) in [
        (&old.token, "upgraded-1"),
        (&upgraded.kubelet_token, "upgraded-2"),
    ] {
        let who = join(&world, token, node).await?;
        assert_eq!(who, format!("system:node:{node} of system:nodes"));
    }
    // What is left of it goes with the pool.
    world.delete(&world.pools(), "upgraded").await?;
    wait_for(
        "the Secret that a token is bound to goes with its pool",
        DEADLINE,
        async || check(world.secrets().get_opt(&old.binding).await?.is_none()),
    )
    .await?;
    wait_for("the old token to die", DEADLINE, async || {
        check(is_dead(world.plane.client(&old.token)?).await?)
    })
    .await
}

/// What a version before 0.1.0 published with the value `static`.
struct Old {
    /// Of an account that all pools shared.
    token: String,
    /// Name of the Secret that it is bound to.
    binding: String,
}

/// Makes a published pool look as that version left it.
async fn as_before(world: &World, pool: &str) -> Result<Old> {
    const ACCOUNT: &str = "osm-node-bootstrap";
    let bootstrap = world.bootstrap(pool).await?;
    let id = bootstrap.labels()[names::POOL].clone();
    let binding = names::token_binding_secret_name(&id);
    let mut labels = bootstrap.labels().clone();
    labels.insert(names::ROLE.to_owned(), "token-binding".to_owned());
    let owned = [names::CONFIG, names::MANAGEMENT_CLUSTER_UID, names::OWNER];
    let annotations: serde_json::Map<String, Value> = owned
        .map(|name| (name.to_owned(), json!(bootstrap.annotations()[name])))
        .into_iter()
        .collect();
    let metadata = json!({"name": binding, "namespace": CLOUD_INIT_SETTINGS, "labels": labels, "annotations": annotations});
    world
        .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": CLOUD_INIT_SETTINGS}}))
        .await?;
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}))
        .await?;
    let accounts: Api<ServiceAccount> = world.api(CLOUD_INIT_SETTINGS);
    let secrets: Api<Secret> = world.secrets();
    let of_account = accounts.get(ACCOUNT).await?.metadata.uid.context("a uid")?;
    let of_binding = secrets.get(&binding).await?.metadata.uid.context("a uid")?;
    let bound = json!({"apiVersion": "v1", "kind": "Secret", "name": binding, "uid": of_binding});
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [], "boundObjectRef": bound}}))?;
    let answer = accounts
        .create_token_request(ACCOUNT, &PostParams::default(), &request)
        .await?;
    let own = &bootstrap.annotations()[names::BOUND_TO];
    let bound_to = format!("{own}/{of_account}/{of_binding}");
    let patch = json!({"metadata": {"annotations": {names::BOUND_TO: bound_to}}});
    secrets
        .patch(
            &bootstrap.name_any(),
            &PatchParams::default(),
            &Patch::Merge(patch),
        )
        .await?;
    Ok(Old {
        token: answer.status.context("a token")?.token,
        binding,
    })
}

/// With such a binding of someone else, kube-controller-manager approves whatever the tokens of pools ask
/// for.
#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_opens_joining_is_found() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    let reviews = Api::<SubjectAccessReview>::all(world.client.clone());
    let is_found = async || {
        let answer = reviews
            .create(
                &PostParams::default(),
                &csr_approver::nodeclient_binding::review(),
            )
            .await?;
        anyhow::Ok(answer.status.is_some_and(|status| status.allowed))
    };
    let role = |name: &str, rule: &Value| json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
    let requests = "certificates.k8s.io";
    for role in [
        role(
            "by-name",
            &json!({"apiGroups": [requests], "resources": ["certificatesigningrequests/nodeclient"], "verbs": ["create"]}),
        ),
        role(
            "of-all-subresources",
            &json!({"apiGroups": ["*"], "resources": ["*/nodeclient"], "verbs": ["*"]}),
        ),
        role(
            "of-requests",
            &json!({"apiGroups": [requests], "resources": ["certificatesigningrequests", "certificatesigningrequests/*"], "verbs": ["*"]}),
        ),
    ] {
        world.apply(&role).await?;
    }
    let own = format!("system:serviceaccounts:{CLOUD_INIT_SETTINGS}");
    let bindings = Api::<ClusterRoleBinding>::all(world.client.clone());
    for (role, group, opens) in [
        (
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            own.as_str(),
            true,
        ),
        ("by-name", "system:serviceaccounts", true),
        ("by-name", "system:authenticated", true),
        ("of-all-subresources", &own, true),
        ("cluster-admin", "system:serviceaccounts", true),
        ("cluster-admin", "system:authenticated", true),
        // Kubernetes knows no such wildcard.
        ("of-requests", &own, false),
        ("by-name", "system:bootstrappers", false),
    ] {
        world.apply(&opening(role, group)).await?;
        if opens {
            wait_for(&format!("{role} of {group} to be found"), DEADLINE, async || {
                check(is_found().await?)
            })
            .await?;
        } else {
            ensure!(!is_found().await?, "{role} of {group} opens nothing");
        }
        world.delete(&bindings, OPENING).await?;
        wait_for("the binding to be gone", DEADLINE, async || {
            check(!is_found().await?)
        })
        .await?;
    }

    world
        .apply(&opening("cluster-admin", "system:authenticated"))
        .await?;
    world.installed.start(Service::CsrApprover).await?;
    wait_for("the metric", DEADLINE, async || {
        let (_, metrics) = world.installed.get(Service::CsrApprover, "/metrics").await?;
        check(metrics.contains("\nosm_nodeclient_binding_found 1\n"))
    })
    .await?;
    let note = world
        .event("default", CLOUD_INIT_SETTINGS, "NodeclientBindingFound")
        .await?;
    assert!(note.contains("kubectl get clusterrolebindings"), "{note}");
    let logs = world.installed.logs();
    assert!(logs.contains("insecure binding"), "{logs}");
    Ok(())
}

const OPENING: &str = "opens-joining";

fn opening(role: &str, group: &str) -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": OPENING},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": RBAC, "name": group}]})
}

/// Kubernetes' role lets its owner ask any signer. The policy leaves the certificates of kubelets.
async fn only_client_certificates_of_kubelets(world: &World, machine: &UserData, getter: &str) -> Result<()> {
    let node = |object: &str, signer: &str, usages: &[&str]| {
        let mut request = wish(object, signer, "system:node:n", "system:nodes", &[])?.request;
        request.spec.usages = Some(usages.iter().map(|usage| (*usage).to_owned()).collect());
        anyhow::Ok(request)
    };
    let client = "kubernetes.io/kube-apiserver-client";
    let wanted = [
        (KUBELET_SIGNER, vec!["client auth"], true),
        (KUBELET_SIGNER, vec!["digital signature", "client auth"], true),
        (
            KUBELET_SIGNER,
            vec!["key encipherment", "digital signature", "client auth"],
            true,
        ),
        (KUBELET_SIGNER, vec!["digital signature"], false),
        (KUBELET_SIGNER, vec!["client auth", "server auth"], false),
        (KUBELET_SIGNER, vec!["client auth", "cert sign"], false),
        (client, vec!["client auth"], false),
        (
            "kubernetes.io/kubelet-serving",
            vec!["digital signature", "server auth"],
            false,
        ),
        ("example.com/signer", vec!["client auth"], false),
    ];
    // A policy takes effect a moment after it was created.
    let first = node("first", client, &["client auth"])?;
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait_for("the policy", DEADLINE, async || {
        check(is_forbidden(
            requests(world, &machine.kubelet_token)?
                .create(&dry_run, &first)
                .await,
        ))
    })
    .await?;
    for (who, token) in [
        ("the pool", machine.kubelet_token.as_str()),
        ("a stranger", getter),
    ] {
        for (n, (signer, usages, allowed)) in wanted.iter().enumerate() {
            let object = format!("{}-{n}", who.replace(' ', "-"));
            let request = node(&object, signer, usages)?;
            let created = requests(world, token)?
                .create(&PostParams::default(), &request)
                .await;
            let allowed = *allowed && who == "the pool";
            match created {
                Ok(_) => ensure!(allowed, "{who} asks {signer} for {usages:?}"),
                Err(kube::Error::Api(status)) => {
                    ensure!(
                        !allowed && status.code == 403,
                        "{who}, {signer}, {usages:?}: {status:?}"
                    );
                    ensure!(
                        status
                            .message
                            .contains("ServiceAccounts of cloud-init-settings may only"),
                        "{status:?}"
                    );
                }
                Err(other) => return Err(other.into()),
            }
        }
    }
    // The API server takes every text as a name.
    let longest = "n".repeat(253);
    for (name, generated, allowed) in [
        (Some("node-csr-Ab_9-"), None, true),
        (Some(longest.as_str()), None, true),
        (None, Some("csr-"), true),
        (Some(&*format!("{longest}n")), None, false),
        (Some("x y"), None, false),
        (Some("x?y"), None, false),
        (None, Some(&*format!("{longest}n")), false),
        (None, Some("<"), false),
    ] {
        let mut request = node("named", KUBELET_SIGNER, &["client auth"])?;
        (request.metadata.name, request.metadata.generate_name) =
            (name.map(str::to_owned), generated.map(str::to_owned));
        let created = requests(world, &machine.kubelet_token)?
            .create(&PostParams::default(), &request)
            .await;
        let is_as_wanted = if allowed {
            created.is_ok()
        } else {
            is_forbidden(created)
        };
        ensure!(is_as_wanted, "{name:?} {generated:?}");
    }
    // The policy does not concern others.
    let request = node("of-an-administrator", "example.com/signer", &["client auth"])?;
    Api::<CertificateSigningRequest>::all(world.client.clone())
        .create(&dry_run, &request)
        .await?;
    Ok(())
}
