//! Mode `approved`: a pool has one token, which may ask for a kubelet's certificate and nothing else, and nothing approves that but an
//! approver. None runs here, so every request stays pending. And the ways into this mode and out of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, PostParams};
use kube::config::AuthInfo;
use kube::{Api, ResourceExt};
use osm_api::Joining;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_testkit::installation::{self, NODE_CLIENT_BINDING};
use osm_testkit::{Options, check, machine_controller, wait_for};
use serde_json::json;

use crate::joining::{CONTROLLERS, KUBELET_SIGNER, join, node_wish, rights, wish};
use crate::rights::{getter_token, is_forbidden, more_than_anybody};
use crate::world::{DEADLINE, UserData, World, parse};

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
async fn one_token_opens_the_documents_and_asks_and_nobody_approves() -> Result<()> {
    let controllers = [&CONTROLLERS[..], &["serviceaccount-token"]].concat();
    let options = Options {
        controllers,
        audit: true,
        ..Options::default()
    };
    let world = start(Joining::Approved, options).await?;
    let getter = getter_token(&world).await?;
    let machine = with_pool(&world, "p").await?;
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

    // The account that the other mode uses has had no token from us, and each document cost one.
    let events = world.plane.audit_events()?;
    let issued: Vec<&str> = events
        .iter()
        .filter(|event| event.resource == "serviceaccounts/token" && event.user.ends_with(":secret-syncer"))
        .map(|event| event.name.as_str())
        .collect();
    let pool = names::pool_object("node", world.bootstrap("p").await?.labels()[names::POOL].as_str());
    assert!(issued.iter().all(|account| *account == pool), "{issued:?}");
    // One for the machine, and one for the question what it may do.
    assert_eq!(issued.len(), 2, "{issued:?}");
    Ok(())
}

/// Kubernetes' role lets its owner ask any signer. The policy leaves the certificates of kubelets.
#[tokio::test(flavor = "multi_thread")]
async fn accounts_of_the_namespace_ask_for_client_certificates_of_kubelets_only() -> Result<()> {
    let controllers = vec!["serviceaccount-token"];
    let options = Options {
        controllers,
        ..Options::default()
    };
    let world = start(Joining::Approved, options).await?;
    let getter = getter_token(&world).await?;
    let machine = with_pool(&world, "p").await?;
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
            requests(&world, &machine.kubelet_token)?
                .create(&dry_run, &first)
                .await,
        ))
    })
    .await?;
    for (who, token) in [("the pool", &machine.kubelet_token), ("a stranger", &getter)] {
        for (n, (signer, usages, allowed)) in wanted.iter().enumerate() {
            let object = format!("{}-{n}", who.replace(' ', "-"));
            let request = node(&object, signer, usages)?;
            let created = requests(&world, token)?
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
        let created = requests(&world, &machine.kubelet_token)?
            .create(&PostParams::default(), &request)
            .await;
        let is_as_wanted = match allowed {
            true => created.is_ok(),
            false => is_forbidden(created),
        };
        ensure!(is_as_wanted, "{name:?} {generated:?}");
    }
    // Others are none of its business.
    let all = Api::<CertificateSigningRequest>::all(world.client.clone());
    for (n, (signer, usages, _)) in wanted.iter().enumerate() {
        let request = node(&format!("administrator-{n}"), signer, usages)?;
        all.create(&PostParams::default(), &request)
            .await
            .with_context(|| format!("{signer} {usages:?}"))?;
    }
    Ok(())
}

/// Asks in vain from time to time with whatever a machine would boot with, and remembers what went wrong.
struct Booting {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Result<u32>>,
}

impl Booting {
    fn start(world: &World, pool: &str) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (secrets, name) = (world.secrets(), names::bootstrap_secret_name(pool, "kube-system"));
        let (base, told) = (world.plane.client_with(AuthInfo::default())?, stop.clone());
        let request = serde_json::to_vec(&node_wish("booting")?.request)?;
        let task = tokio::spawn(async move {
            let mut asked = 0;
            while !told.load(Ordering::SeqCst) {
                let secret = secrets.get(&name).await.context("the bootstrap Secret")?;
                let machine = parse(machine_controller::user_data(&secret, "1", "machine")?)?;
                let request =
                    http::Request::post("/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All")
                        .header(http::header::CONTENT_TYPE, "application/json")
                        .header(
                            http::header::AUTHORIZATION,
                            format!("Bearer {}", machine.kubelet_token),
                        )
                        .body(request.clone())?;
                base.request::<CertificateSigningRequest>(request)
                    .await
                    .context("a booting machine asks")?;
                asked += 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(asked)
        });
        Ok(Self { stop, task })
    }

    async fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        let asked = self.task.await??;
        ensure!(asked > 5, "{asked} times");
        Ok(())
    }
}

/// What an upgrade of the chart does to bindings. It deletes last.
async fn bind(world: &World, mode: Joining, anybody_asks: bool) -> Result<()> {
    let of_mode = Installation {
        joining: mode,
        ..world.installed.installation().clone()
    };
    let mut roles = installation::manifests(&of_mode);
    roles.retain(|object| object["kind"] == "ClusterRole");
    installation::apply(&world.plane, &roles).await?;
    installation::apply(&world.plane, &installation::joining(mode, anybody_asks)).await?;
    if mode == Joining::Approved {
        let bindings = Api::<ClusterRoleBinding>::all(world.client.clone());
        bindings
            .delete(NODE_CLIENT_BINDING, &DeleteParams::default())
            .await?;
    }
    Ok(())
}

/// What a rollout does: the new replica is ready before the old one ends.
async fn roll_out(world: &mut World, old: usize, mode: Joining) -> Result<()> {
    world.installed.set_joining(mode);
    let (old, new) = ((Service::SecretSyncer, old), (Service::SecretSyncer, old + 1));
    world.installed.start(new).await?;
    wait_for("the new replica to be ready", DEADLINE, async || {
        check(world.installed.is_ready(new).await)
    })
    .await?;
    world.installed.terminate(old, DEADLINE).await?;
    Ok(())
}

const POOLS: [&str; 3] = ["p", "q", "r"];

/// Waits until every pool is published in this mode.
async fn republished(world: &World, mode: Joining) -> Result<Vec<UserData>> {
    let mut machines = vec![];
    for pool in POOLS {
        let in_mode =
            |machine: &UserData| (machine.api_token == machine.kubelet_token) == (mode == Joining::Approved);
        machines.push(world.machine_with(pool, 1, in_mode).await?);
        world.says(pool, "Published", true, "Published").await?;
    }
    Ok(machines)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mode_changes_and_changes_back_and_no_machine_is_lost() -> Result<()> {
    let options = Options {
        controllers: CONTROLLERS.to_vec(),
        ..Options::default()
    };
    let mut world = start(Joining::Static, options).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in POOLS {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
    }
    let before = republished(&world, Joining::Static).await?;
    assert_eq!(
        join(&world, &before[0].kubelet_token, "n1").await?,
        "system:node:n1 of system:nodes"
    );
    let observer = world.observe().await?;

    // There.
    let booting = Booting::start(&world, "p")?;
    bind(&world, Joining::Approved, true).await?;
    roll_out(&mut world, 0, Joining::Approved).await?;
    let approved = republished(&world, Joining::Approved).await?;
    // A machine that booted right before still asks. So does a new one, and both wait for the approver. Their Machines exist before they ask.
    let of_pool = world.with_set(POOLS[0], String::new()).await?;
    for machine in ["late", "new"] {
        world.machine_of(&of_pool, machine).await?;
    }
    let late = [
        ask(&world, &before[0].kubelet_token, "late").await?,
        ask(&world, &approved[0].kubelet_token, "new").await?,
    ];
    controllers_have_seen_all(&world, "in-mode-approved").await?;
    for request in &late {
        assert!(is_pending(&world, request).await?, "{request}");
    }
    // It approves both: the account of all pools, too, if a pool has such a machine.
    world.installed.start(Service::CsrApprover).await?;
    for request in &late {
        world.certified(request).await?;
    }

    // And back, first step: kube-controller-manager approves again, and machines with the token of a pool still join where an
    // approver runs.
    bind(&world, Joining::Static, true).await?;
    roll_out(&mut world, 1, Joining::Static).await?;
    let after = republished(&world, Joining::Static).await?;
    booting.end().await?;
    assert_eq!(
        join(&world, &after[0].kubelet_token, "n2").await?,
        "system:node:n2 of system:nodes"
    );
    let of_pool = world.with_set(POOLS[1], String::new()).await?;
    world.machine_of(&of_pool, "later").await?;
    ask(&world, &approved[1].kubelet_token, "later").await?;
    world.certified("later").await?;

    // No Secret was ever absent, and each pool was written once for each way, and at most once more around a takeover.
    assert!(observer.absences().is_empty(), "{:?}", observer.absences());
    for pool in POOLS {
        let written: BTreeSet<(String, String)> = observer.history(pool).into_iter().collect();
        assert!(
            (3..=5).contains(&written.len()),
            "{pool}: {} times",
            written.len()
        );
    }

    // The second step, an older chart without the group: a machine that still has a pool's token can't join any more. This is why the
    // first step has to be waited for.
    bind(&world, Joining::Static, false).await?;
    let refused = requests(&world, &approved[1].kubelet_token)?;
    let request = node_wish("too-late")?.request;
    wait_for("the group to be unbound", DEADLINE, async || {
        check(is_forbidden(
            refused
                .create(
                    &PostParams {
                        dry_run: true,
                        ..PostParams::default()
                    },
                    &request,
                )
                .await,
        ))
    })
    .await?;
    assert_eq!(
        join(&world, &after[2].kubelet_token, "n3").await?,
        "system:node:n3 of system:nodes"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_by_which_everything_is_approved_is_reported_and_costs_nothing() -> Result<()> {
    let options = Options {
        controllers: CONTROLLERS.to_vec(),
        ..Options::default()
    };
    let world = start(Joining::Approved, options).await?;
    let machine = with_pool(&world, "p").await?;
    world.says("p", "Published", true, "Published").await?;
    let open = async |world: &World, wanted: &str| {
        wait_for(&format!("osm_joining_open {wanted}"), DEADLINE, async || {
            let (_, text) = world.installed.get(Service::SecretSyncer, "/metrics").await?;
            check(
                text.lines()
                    .any(|line| line == format!("osm_joining_open {wanted}")),
            )
        })
        .await
    };
    open(&world, "0").await?;

    let rbac = "rbac.authorization.k8s.io";
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "generous"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts"}]}))
        .await?;
    assert_eq!(
        join(&world, &machine.kubelet_token, "any").await?,
        "system:node:any of system:nodes",
        "which is what is reported"
    );
    // It asks at each change of rights, without a restart.
    let message = world.says("p", "Published", true, "JoiningIsOpen").await?;
    for word in [
        "user data is published",
        "kubectl get clusterrolebindings -o wide",
    ] {
        assert!(message.contains(word), "{message}");
    }
    open(&world, "1").await?;
    let pool = names::pool_object("node", world.bootstrap("p").await?.labels()[names::POOL].as_str());
    let note = world.event(CLOUD_INIT_SETTINGS, &pool, "JoiningIsOpen").await?;
    assert!(note.contains("certificatesigningrequests/nodeclient"), "{note}");
    // Pools are published all the same.
    world.stamp("p", 2).await?;
    world.machine("p", 2).await?;
    world.says("p", "Published", true, "JoiningIsOpen").await?;

    let bindings = Api::<ClusterRoleBinding>::all(world.client.clone());
    bindings.delete("generous", &DeleteParams::default()).await?;
    world.says("p", "Published", true, "Published").await?;
    open(&world, "0").await?;

    // A binding for one pool shows with the token of that pool only, and all have their turn.
    for pool in ["q", "r"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        world.machine(pool, 1).await?;
    }
    let mut accounts = Vec::new();
    for pool in POOLS {
        let id = world.bootstrap(pool).await?.labels()[names::POOL].clone();
        accounts.push(names::pool_account(&id));
    }
    let last = accounts.iter().max().context("the last in turn")?;
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "generous"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
            "subjects": [{"kind": "ServiceAccount", "name": last, "namespace": CLOUD_INIT_SETTINGS}]}))
        .await?;
    world.says("p", "Published", true, "JoiningIsOpen").await?;
    bindings.delete("generous", &DeleteParams::default()).await?;
    world.says("p", "Published", true, "Published").await?;
    for pool in ["q", "r"] {
        world.delete(&world.pools(), pool).await?;
    }

    // A role that is bound already may get the rule later. And once no pool is left, nobody can join at all.
    let rbac_of_all = |rules: serde_json::Value| {
        [
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "growing"}, "rules": rules}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "growing"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "growing"},
                "subjects": [{"kind": "Group", "apiGroup": rbac, "name": "system:authenticated"}]}),
        ]
    };
    for object in rbac_of_all(json!([])) {
        world.apply(&object).await?;
    }
    let everything = json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["create"]}]);
    for object in rbac_of_all(everything) {
        world.apply(&object).await?;
    }
    world.says("p", "Published", true, "JoiningIsOpen").await?;
    open(&world, "1").await?;
    world.delete(&world.pools(), "p").await?;
    open(&world, "0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_contradict_the_mode_hold_new_content_back_and_nothing_else() -> Result<()> {
    let mut world = start(Joining::Approved, Options::default()).await?;
    let machine = with_pool(&world, "p").await?;
    world
        .set_settings("credentials: {nodeBootstrap: {kind: bootstrapToken}}")
        .await?;
    let message = world.says("p", "Published", false, "JoiningConflict").await?;
    for word in ["bootstrapToken", "--joining=approved", "is kept"] {
        assert!(message.contains(word), "{message}");
    }
    // What is published is restored, of the same kind.
    let pool = names::pool_object("node", world.bootstrap("p").await?.labels()[names::POOL].as_str());
    let accounts = world.api::<ServiceAccount>(CLOUD_INIT_SETTINGS);
    world.delete(&accounts, &pool).await?;
    let other = |restored: &UserData| restored.kubelet_token != machine.kubelet_token;
    let restored = world.machine_with("p", 1, other).await?;
    assert!(restored.api_token == restored.kubelet_token);
    ask(&world, &restored.kubelet_token, "n").await?;
    // A new pod says so, and leaves the pools to the old one.
    world.installed.start((Service::SecretSyncer, 1)).await?;
    wait_for("the contradiction on /readyz", DEADLINE, async || {
        let (code, waits) = world.installed.get((Service::SecretSyncer, 1), "/readyz").await?;
        check(code == 503 && waits.contains("settings for --joining") && waits.contains("joining=static"))
    })
    .await?;
    world.set_settings("").await?;
    world.says("p", "Published", true, "Published").await?;
    wait_for("the new pod to be ready", DEADLINE, async || {
        check(world.installed.is_ready((Service::SecretSyncer, 1)).await)
    })
    .await?;
    let secrets: Api<Secret> = world.api("kube-system");
    let tokens = secrets.list(&kube::api::ListParams::default()).await?;
    assert!(tokens.items.is_empty(), "no bootstrap token was ever created");
    Ok(())
}
