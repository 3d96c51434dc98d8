//! A user cluster of KKP is served from its namespace in the seed. KKP restores its own objects in the user
//! cluster, and none of them is needed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{self, KUBE_SYSTEM};
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_api::worker_cluster::WorkerCluster;
use osm_api::{OperatingSystemProfile, Reason};
use osm_testkit::installation::Installed;
use osm_testkit::{Options, check, installation, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::custom_profiles::{custom, definition};
use crate::fleet::{self, Fleet, user_cluster_with};
use crate::takeover::{REVISION, go_pool, go_profile};
use crate::upstream_osm;
use crate::webhook_server::WebhookServer;
use crate::world::{self, DEADLINE, GETTER_TOKEN, NAMESPACE, TEAM, World};

const POOLS: [(&str, &str); 2] = [("tiny", "osp-tiny"), ("existing", "osp-existing")];

/// Those that publish.
const PUBLISHERS: [Service; 2] = [Service::OscController, Service::SecretSyncer];

/// KKP's controller of the user cluster, which restores its objects when they differ, until the result is
/// dropped; and the webhooks of the upstream OSM, which KKP keeps although the controller has no replicas.
async fn kkp(world: &World) -> Result<JoinSet<()>> {
    let server = WebhookServer::start("127.0.0.1", || std::future::ready(true)).await?;
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/go-shaped.yaml");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(definitions)?)?;
    objects.extend(webhooks(&server));
    objects.extend(world::getter());
    objects.extend(rights());
    installation::apply(&world.plane, &objects).await?;
    let objects = objects
        .into_iter()
        .map(serde_json::from_value)
        .collect::<Result<_, _>>()?;
    let mut tasks = JoinSet::new();
    tasks.spawn(restore(world.client.clone(), objects));
    Ok(tasks)
}

async fn restore(client: Client, objects: Vec<DynamicObject>) {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        for object in objects.clone() {
            let kind = object.types.as_ref().and_then(|types| types.try_into().ok());
            let resource = ApiResource::from_gvk(&kind.expect("a kind"));
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let kkp = PatchParams::apply("kkp").force();
            // It tries again, as KKP does.
            let _ = api.patch(&object.name_any(), &kkp, &Patch::Apply(&object)).await;
        }
    }
}

/// The API server of the user cluster calls them by the URL of a Service in the seed.
fn webhooks(server: &WebhookServer) -> [Value; 2] {
    let configuration = |kind: &str, path: &str, group: &str, resources: &[&str]| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "operating-system-manager"},
            "webhooks": [{"name": "kkp.operating-system-manager.k8c.io", "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://127.0.0.1:{}{path}", server.port()), "caBundle": server.ca_bundle()},
                "rules": [{"apiGroups": [group], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": resources}]}]})
    };
    [
        configuration(
            "MutatingWebhookConfiguration",
            "/mutate-v1alpha1-machinedeployment",
            "cluster.k8s.io",
            &["machinedeployments"],
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "/operatingsystemconfig",
            names::GROUP,
            &["operatingsystemconfigs", "operatingsystemprofiles"],
        ),
    ]
}

/// Of the upstream OSM's user, and for bootstrap tokens, with which any node is approved.
fn rights() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    let binding = |name: &str, role: &str, subject: Value| {
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role}, "subjects": [subject]})
    };
    let user = json!({"kind": "User", "name": "operating-system-manager", "apiGroup": rbac});
    let group = json!({"kind": "Group", "name": "system:bootstrappers:machine-controller:default-node-token", "apiGroup": rbac});
    vec![
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "operating-system-manager"},
            "rules": [{"apiGroups": [names::GROUP], "resources": ["operatingsystemprofiles", "operatingsystemconfigs"], "verbs": ["*"]},
                {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]}]}),
        binding("operating-system-manager", "operating-system-manager", user),
        binding(
            "machine-controller:kubelet-bootstrap",
            "system:node-bootstrapper",
            group.clone(),
        ),
        binding(
            "machine-controller:node-signer",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            group,
        ),
    ]
}

/// The configs of the upstream OSM in the user cluster.
fn theirs(world: &World) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<osm_api::OperatingSystemConfig>(&());
    Api::namespaced_with(world.client.clone(), KUBE_SYSTEM, &kind)
}

async fn versions(configs: &Api<DynamicObject>) -> Result<Vec<(String, Option<String>)>> {
    let all = configs.list(&ListParams::default()).await?;
    Ok(all
        .iter()
        .map(|config| (config.name_any(), config.resource_version()))
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_cluster_of_kkp_is_served_from_the_seed_and_handed_back() -> Result<()> {
    let release = Installation {
        profile_namespaces: Vec::new(),
        fallback_profile_namespace: Some(TEAM.to_owned()),
        go_finalizers: true,
        fleet: true,
        ..world::installation()
    };
    let (fleet, plane) = tokio::try_join!(
        Fleet::without_services(Options::default(), release.clone()),
        user_cluster_with(Options::default(), &release)
    )?;
    fleet.register(NAMESPACE, &plane, json!({})).await?;
    let mut world = World::of_fleet(fleet, plane)?;
    world.set_settings("").await?;
    let _kkp = kkp(&world).await?;
    let go = upstream_osm::start(&world, KUBE_SYSTEM).await?;
    world
        .apply(&world::profile("osp-tiny", "v1.0.0", "one\n"))
        .await?;
    world
        .apply(&go_profile("osp-existing", "{{ .KubeVersion }}"))
        .await?;
    wait_for("KKP's webhooks to answer", DEADLINE, async || {
        check(go_pool(&world, "tiny", "osp-tiny", KUBE_SYSTEM).await.is_ok())
    })
    .await?;
    go_pool(&world, "existing", "osp-existing", KUBE_SYSTEM).await?;
    let before = versions(&theirs(&world)).await?;
    let observer = world.observe().await?;

    let shared = shared_profiles(&world).await?;
    world.installed.start_all().await?;
    let registered: Api<WorkerCluster> = Api::namespaced(world.managed.clone(), NAMESPACE);
    for service in PUBLISHERS {
        let waits = fleet::says(&registered, service, Reason::UpstreamOSMRunning, "").await;
        waits.map_err(|error| error.context(world.installed.logs()))?;
    }
    let configs = world.configs().list(&ListParams::default()).await?;
    assert!(configs.items.is_empty(), "{configs:?}");

    // `replicas: 0`. Each immutable Secret is replaced once, and that is the only moment without user data.
    go.stop().await?;
    for (pool, _) in POOLS {
        world.says(pool, "Published", true, "Published").await?;
        assert!(
            world
                .bootstrap(pool)
                .await?
                .labels()
                .contains_key(names::INSTALLATION)
        );
    }
    world.machine("tiny", REVISION).await?;
    let replaced = || {
        let mut absent = observer.absent();
        absent.sort_unstable();
        absent
    };
    let once = ["existing", "tiny"].map(|pool| names::bootstrap_secret_name(pool, KUBE_SYSTEM));
    assert_eq!(replaced(), once);
    // What KKP and the upstream OSM have in the user cluster stays as it is.
    assert_eq!(versions(&theirs(&world)).await?, before);
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let crd = crds
        .get("operatingsystemconfigs.operatingsystemmanager.k8c.io")
        .await?;
    assert!(crd.spec.versions[0].subresources.is_none(), "it has no status");

    // A pool of a cluster that has no node yet is served by services that run elsewhere.
    world.pool("new", "osp-tiny").await?;
    world.stamp("new", 1).await?;
    world.machine("new", 1).await?;

    custom_profiles_of_the_seed_are_found(&world, shared).await?;

    // The Secrets with tokens are deleted. KKP recreates the token of the getter, and nothing needs it.
    for (name, _) in &before {
        theirs(&world).delete(name, &DeleteParams::default()).await?;
    }
    let old = world.secrets().get(GETTER_TOKEN).await?.uid();
    world.delete(&world.secrets(), GETTER_TOKEN).await?;
    wait_for("KKP to make another token", DEADLINE, async || {
        let new = world.secrets().get_opt(GETTER_TOKEN).await?.context("none")?;
        check(new.uid() != old)
    })
    .await?;
    world.stamp("tiny", REVISION + 1).await?;
    world.machine("tiny", REVISION + 1).await?;
    assert_eq!(replaced(), once);

    // Before KKP deletes anything else of a user cluster, it deletes the MachineDeployments and waits until
    // they are gone (kubermatic/kubermatic 2.31, pkg/clusterdeletion/node.go). They have the finalizer of the
    // upstream OSM.
    go_pool(&world, "deleted", "osp-tiny", KUBE_SYSTEM).await?;
    world.delete(&world.pools(), "deleted").await?;
    wait_for("the MachineDeployment to go", DEADLINE, async || {
        check(world.pools().get_opt("deleted").await?.is_none())
    })
    .await?;

    hand_back(world).await
}

/// The installation in the namespace of KKP in the seed, whose osp-controller copies and validates custom
/// profiles for all user clusters.
async fn shared_profiles(world: &World) -> Result<Installed> {
    let seed = world.seed.as_ref().context("a seed")?;
    let of_kkp = Installation {
        namespace: TEAM.to_owned(),
        custom_profiles: true,
        ..Installation::default()
    };
    let shared = Installed::install(seed, of_kkp, &world.installed.binaries).await?;
    // The right of osc-controller in that namespace is that of its own installation.
    let parts = [ClusterKind::Management];
    installation::prepare(seed, world.installed.installation(), &parts).await?;
    installation::apply(seed, &[definition()?]).await?;
    Ok(shared)
}

async fn custom_profiles_of_the_seed_are_found(world: &World, mut shared: Installed) -> Result<()> {
    shared.start(Service::OspController).await?;

    world.pool("custom", "mine").await?;
    world.stamp("custom", 1).await?;
    let missing = world.says("custom", "Rendered", false, "ProfileNotFound").await?;
    ensure!(missing.contains("osm/mine or team/mine"), "{missing}");
    wait_for("the definition to be served", DEADLINE, async || {
        check(
            world
                .apply(&custom(TEAM, "mine", "v1.0.0", "one\n"))
                .await
                .is_ok(),
        )
    })
    .await?;
    let renders = async |version: &str, namespace: &str| {
        let what = format!("mine {version} of {namespace} to be rendered");
        wait_for(&what, DEADLINE, async || {
            let rendered = world.config("custom").await?.status.unwrap_or_default().rendered;
            let profile = rendered.context("nothing is rendered")?.profile.context("none")?;
            check((profile.version.as_str(), profile.namespace.as_str()) == (version, namespace))
        })
        .await
        .map_err(|error| error.context(world.installed.logs() + &shared.logs()))
    };
    renders("v1.0.0", TEAM).await?;
    world.machine("custom", 1).await?;

    // A mistake in it costs nothing, and its correction is followed.
    world
        .apply(&custom(TEAM, "mine", "v2.0.0", "{{nothing.here}}\n"))
        .await?;
    world.event(TEAM, "mine", "TemplateFailed").await?;
    renders("v1.0.0", TEAM).await?;
    world.apply(&custom(TEAM, "mine", "v3.0.0", "three\n")).await?;
    renders("v3.0.0", TEAM).await?;

    // One of the release's own namespace takes precedence, even while it is not accepted.
    world
        .apply(&world::profile("mine", "v0.0.1", "{{nothing.here}}\n"))
        .await?;
    world
        .says("custom", "Rendered", false, "ProfileNotAccepted")
        .await?;
    world.accepted_profile("mine", "v0.1.0", "own\n").await?;
    renders("v0.1.0", NAMESPACE).await?;
    world.delete(&world.profiles(), "mine").await?;
    renders("v3.0.0", TEAM).await?;

    // What is published outlives them.
    let custom_kind = ApiResource::erase::<osm_api::CustomOperatingSystemProfile>(&());
    let sources: Api<DynamicObject> = Api::namespaced_with(world.managed.clone(), TEAM, &custom_kind);
    sources.delete("mine", &DeleteParams::default()).await?;
    let copies: Api<OperatingSystemProfile> = Api::namespaced(world.managed.clone(), TEAM);
    copies.delete("mine", &DeleteParams::default()).await?;
    world.says("custom", "Rendered", false, "ProfileNotFound").await?;
    world.machine("custom", 1).await.map(drop)
}

/// The commands of the page: stop ours, delete what has its names, and let KKP start the upstream OSM again.
async fn hand_back(mut world: World) -> Result<()> {
    for service in Service::ALL {
        world.installed.terminate(service, DEADLINE).await?;
    }
    for (pool, profile) in POOLS {
        for name in [
            names::bootstrap_secret_name(pool, KUBE_SYSTEM),
            format!("{pool}-kube-system-provisioning-config"),
            format!("kube-system-{pool}-kubelet-bootstrap-config"),
        ] {
            world.delete(&world.secrets(), &name).await?;
        }
        go_pool(&world, pool, profile, KUBE_SYSTEM).await?;
        let bootstrap = world.bootstrap(pool).await?;
        assert_eq!((bootstrap.immutable, bootstrap.labels().len()), (Some(true), 0));
    }
    Ok(())
}
