//! Mode `approved`: a pool has one token, which may ask for a kubelet's certificate and nothing else. Only csr-approver approves that.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use osm_api::condition::PUBLISHED;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_api::{Joining, PoolRef};
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::joining::{CONTROLLERS, KUBELET_SIGNER, join, node_wish, rights, wish};
use crate::rights::{getter_token, is_forbidden, more_than_anybody};
use crate::world::{DEADLINE, UserData, World};

async fn start(joining: Joining, options: Options) -> Result<World> {
    let installation = Installation {
        joining,
        ..crate::world::installation()
    };
    let mut world = World::start_as_without_services(options, installation).await?;
    // Nobody approves.
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

/// Asks as a kubelet does; gives the name of the request.
async fn ask(world: &World, token: &str, node: &str) -> Result<String> {
    let request = node_wish(node)?.request;
    requests(world, token)?
        .create(&PostParams::default(), &request)
        .await?;
    Ok(node.to_owned())
}

/// Waits until the controllers have dealt with all requests so far, by one that they approve: it is the administrator's.
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
    let controllers = [&CONTROLLERS[..], &["serviceaccount-token"]].concat();
    let options = Options {
        controllers,
        ..Options::default()
    };
    let mut world = start(Joining::Approved, options).await?;
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

    // Whoever has a token of this namespace may ask, and gets nothing.
    let mut pending = vec![];
    for (node, token) in [("n1", &machine.kubelet_token), ("n2", &getter)] {
        pending.push(ask(&world, token, node).await?);
    }
    let of_node_account = world
        .plane
        .token(CLOUD_INIT_SETTINGS, names::NODE_BOOTSTRAP_ACCOUNT)
        .await?;
    pending.push(ask(&world, &of_node_account, "n3").await?);
    controllers_have_seen_all(&world, "of-the-administrator").await?;
    for request in pending {
        assert!(is_pending(&world, &request).await?, "{request}");
    }

    // With its Machine, and csr-approver, the pool's machine joins.
    let pool = world.with_set("p", machine.kubelet_token.clone()).await?;
    world.machine_of(&pool, "p-1").await?;
    world.installed.start(Service::CsrApprover).await?;
    let who = join(&world, &machine.kubelet_token, "p-1").await;
    assert_eq!(
        who.map_err(|error| error.context(world.installed.logs()))?,
        "system:node:p-1 of system:nodes"
    );
    an_open_binding_is_reported(&world).await
}

/// A binding of someone else, with which kube-controller-manager approves whatever the pools' tokens ask for.
async fn an_open_binding_is_reported(world: &World) -> Result<()> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient";
    let subject = format!("system:serviceaccounts:{CLOUD_INIT_SETTINGS}");
    world
        .apply(&json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "opens-joining"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "apiGroup": GROUP, "name": subject}]}))
        .await?;
    world.says("p", PUBLISHED, true, "NodeclientBindingFound").await?;
    let account = names::pool_account(&PoolRef::from(&world.pools().get("p").await?).id());
    world
        .event(CLOUD_INIT_SETTINGS, &account, "NodeclientBindingFound")
        .await
        .map(drop)
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
            match created {
                Ok(_) => ensure!(*allowed, "{who} asks {signer} for {usages:?}"),
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
        let is_as_wanted = match allowed {
            true => created.is_ok(),
            false => is_forbidden(created),
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
