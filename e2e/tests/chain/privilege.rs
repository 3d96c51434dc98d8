//! Least privilege. The services do everything they can do, in one cluster and in a fleet, with exactly the
//! rights of the table. The tests then compare the audit logs of the clusters with the table. A call without an entry
//! fails, and so does an entry that no call used and that [`BY_CHANCE`] does not explain.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::condition::{PUBLISHED, RENDERED};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::{Value, json};

use crate::approver;
use crate::fleet::{Fleet, pool, user_cluster_with};
use crate::world::{self, DEADLINE, NAMESPACE, TEAM, World, machine_deployment, profile};

/// Rights whose use a moment decides that this test can't bring about.
const BY_CHANCE: [(Service, &str, &str); 4] = [
    (
        Service::CsrApprover,
        "worker: approve signers kubernetes.io/kube-apiserver-client-kubelet",
        "no request has this verb: the API server asks for it when a request is approved",
    ),
    (
        Service::SecretSyncer,
        "worker: bind roles in cloud-init-settings",
        "no request has this verb: the API server asks for it when a RoleBinding is created",
    ),
    (
        Service::OspController,
        "management: get operatingsystemprofiles",
        "somebody else has created the default profile in the moment before the watch shows it",
    ),
    (
        Service::OscController,
        "management: get operatingsystemconfigs",
        "the config exists already in the moment before the watch shows it, as after a crash",
    ),
];

/// One thing that a service may do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Single {
    cluster: ClusterKind,
    verb: String,
    group: String,
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

impl std::fmt::Display for Single {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} {}", self.cluster.name(), self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        self.namespace
            .as_ref()
            .map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

/// Every single right of a service.
fn table(service: Service, installation: &Installation) -> Vec<Single> {
    let mut all = Vec::new();
    for grant in service.grants(installation) {
        for rule in grant.rights.into_iter().map(|right| right.rule) {
            let names = rule
                .resource_names
                .map_or(vec![None], |names| names.into_iter().map(Some).collect());
            for (resource, verb) in rule
                .resources
                .iter()
                .flatten()
                .flat_map(|r| rule.verbs.iter().map(move |verb| (r, verb)))
            {
                all.extend(names.iter().map(|name| {
                    Single {
                        cluster: grant.cluster,
                        verb: verb.clone(),
                        group: rule
                            .api_groups
                            .iter()
                            .flatten()
                            .next()
                            .cloned()
                            .unwrap_or_default(),
                        resource: resource.clone(),
                        namespace: grant.namespace.clone(),
                        name: name.clone(),
                    }
                }));
            }
        }
    }
    all
}

fn covers(right: &Single, parts: &[ClusterKind], event: &AuditEvent) -> bool {
    parts.contains(&right.cluster)
        && (&right.verb, &right.group, &right.resource) == (&event.verb, &event.group, &event.resource)
        && right
            .namespace
            .as_ref()
            .is_none_or(|namespace| *namespace == event.namespace)
        && right.name.as_ref().is_none_or(|name| *name == event.name)
}

fn user(service: Service) -> String {
    format!("system:serviceaccount:{IDENTITIES}:{}", service.name())
}

/// What was asked of a cluster, which plays these parts.
type Asked = (&'static [ClusterKind], Vec<AuditEvent>);

/// What is wrong between the table and what was asked for, one line each.
fn compare(service: Service, installation: &Installation, asked: &[Asked]) -> Vec<String> {
    let table = table(service, installation);
    let (mut wrong, mut used) = (BTreeSet::new(), BTreeSet::new());
    for (parts, events) in asked {
        for event in events.iter().filter(|event| event.user == user(service)) {
            // May everybody do who has an identity.
            let asks_itself = matches!(
                event.resource.as_str(),
                "selfsubjectaccessreviews" | "selfsubjectrulesreviews"
            );
            let by: Vec<&Single> = table.iter().filter(|right| covers(right, parts, event)).collect();
            let AuditEvent {
                verb,
                resource,
                namespace,
                name,
                code,
                user_agent,
                ..
            } = event;
            let call = format!(
                "{}: {parts:?}: {verb} {resource} {namespace} {name}",
                service.name()
            );
            if by.is_empty() && !asks_itself {
                wrong.insert(format!("{call}: is not in the table (answered with {code})"));
            } else if *code == 403 {
                wrong.insert(format!("{call}: was denied"));
            }
            if !user_agent.starts_with(&format!("{}/", service.name())) {
                wrong.insert(format!("{call}: asked as {user_agent:?}"));
            }
            used.extend(by);
        }
    }
    for right in table.iter().filter(|right| !used.contains(right)) {
        let text = right.to_string();
        if !BY_CHANCE
            .iter()
            .any(|(of, known, _)| *of == service && text.starts_with(known))
        {
            wrong.insert(format!("{}: {text}: was granted and never used", service.name()));
        }
    }
    for (_, known, why) in BY_CHANCE.iter().filter(|(of, ..)| *of == service) {
        if !table.iter().any(|right| right.to_string().starts_with(known)) {
            wrong.insert(format!(
                "{}: {known}: is not granted at all ({why})",
                service.name()
            ));
        }
    }
    wrong.into_iter().collect()
}

fn audited() -> Options {
    Options {
        audit: true,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_use_every_right_that_they_have_and_no_other() -> Result<()> {
    let world = World::start(audited()).await?;
    world.installed.ready(DEADLINE).await?;
    use_every_right_and_no_other(world, &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_a_fleet_use_every_right_that_they_have_and_no_other() -> Result<()> {
    let release = Installation {
        fleet: true,
        ..world::installation()
    };
    let (fleet, plane, other) = tokio::try_join!(
        Fleet::without_services(audited(), release.clone()),
        user_cluster_with(audited(), &release),
        user_cluster_with(audited(), &release)
    )?;
    let fleet = fleet.with_services().await?;
    for (namespace, plane) in [(NAMESPACE, &plane), ("other", &other)] {
        let spec = json!({"workerNamespace": NAMESPACE, "profileNamespaces": [TEAM]});
        fleet.register(namespace, plane, spec).await?;
        fleet.is_served(namespace).await?;
        pool(plane, "first").await?;
        fleet.boots(namespace, plane, "first").await?;
    }
    let world = World::of_fleet(fleet, plane)?;
    world.delete(&world.pools(), "first").await?;
    use_every_right_and_no_other(world, &[other]).await
}

/// `others`: further user clusters.
async fn use_every_right_and_no_other(mut world: World, others: &[ControlPlane]) -> Result<()> {
    let clusters = |world: &World| -> Result<Vec<Asked>> {
        let Some(seed) = &world.seed else {
            return Ok(vec![(&ClusterKind::ALL, world.plane.audit_log()?.read()?)]);
        };
        let mut asked: Vec<Asked> = vec![(&[ClusterKind::Management], seed.audit_log()?.read()?)];
        for plane in [&world.plane].into_iter().chain(others) {
            asked.push((&[ClusterKind::Worker], plane.audit_log()?.read()?));
        }
        Ok(asked)
    };
    // The API server learns of rights by watches of its own. What it refuses before does not count.
    let before = clusters(&world)?;
    everything(&world)
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
    // Who comes back after a crash finds its Lease.
    for service in Service::ALL {
        world.installed.kill9(service)?;
        world.installed.start(service).await?;
    }
    world.installed.ready(DEADLINE).await?;
    // What is at work is finished.
    for service in Service::ALL {
        world.installed.terminate(service, DEADLINE).await?;
    }
    let mut asked = clusters(&world)?;
    for ((_, events), (_, before)) in asked.iter_mut().zip(before) {
        let mut number = 0..;
        events.retain(|event| number.next() >= Some(before.len()) || event.code != 403);
    }
    let installation = world.installed.installation();
    let wrong: Vec<String> = Service::ALL
        .into_iter()
        .flat_map(|service| compare(service, installation, &asked))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    Ok(())
}

/// Everything that the services do.
async fn everything(world: &World) -> Result<()> {
    profiles(world).await?;
    pools(world).await?;
    sources(world).await?;
    takeover(world).await?;
    repairs(world).await?;
    approvals(world).await?;
    ends(world).await
}

/// Default profiles installed and put back; good and bad ones, in both namespaces, each bad one twice.
async fn profiles(world: &World) -> Result<()> {
    wait_for("the default profiles", DEADLINE, async || {
        check(world.profiles().get_opt("osp-ubuntu").await?.is_some())
    })
    .await?;
    let spoilt = json!({"spec": {"version": "v9.9.9", "osVersion": "1"}});
    world
        .profiles()
        .patch("osp-ubuntu", &PatchParams::default(), &Patch::Merge(&spoilt))
        .await?;
    world
        .event(NAMESPACE, "osp-ubuntu", "DefaultProfileRestored")
        .await?;
    for namespace in [NAMESPACE, TEAM] {
        let mut versions = 0..;
        for text in ["{{", "good\n", "{{", "good\n"] {
            let version = format!("v1.0.{}", versions.next().unwrap_or(0));
            let mut osp = profile("osp-tiny", &version, text);
            osp["metadata"]["namespace"] = json!(namespace);
            world.apply(&osp).await?;
            let profiles =
                Api::<osm_api::OperatingSystemProfile>::namespaced(world.managed.clone(), namespace);
            wait_for("the verdict", DEADLINE, async || {
                let profile = profiles.get("osp-tiny").await?;
                let status = profile.status.unwrap_or_default();
                let judged = status.observed_generation == profile.metadata.generation;
                let good = status
                    .accepted
                    .is_some_and(|accepted| accepted.version == version);
                check(judged && good == (text != "{{"))
            })
            .await?;
        }
    }
    Ok(())
}

/// Published, rotated, broken and mended twice; with a profile of another namespace and settings of its own.
async fn pools(world: &World) -> Result<()> {
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    for revision in [2, 3] {
        world
            .patch_pool(
                "p",
                json!({"metadata": {"annotations": {names::PROFILE: "osp-none"}}}),
            )
            .await?;
        world.says("p", RENDERED, false, "ProfileNotFound").await?;
        world
            .patch_pool(
                "p",
                json!({"metadata": {"annotations": {names::PROFILE: "osp-tiny"}}}),
            )
            .await?;
        let kubelet = format!("1.34.{revision}");
        world
            .patch_pool(
                "p",
                json!({"spec": {"template": {"spec": {"versions": {"kubelet": kubelet}}}}}),
            )
            .await?;
        world.stamp("p", revision).await?;
        world.machine("p", revision).await?;
    }
    let mut team = machine_deployment("team", "osp-tiny");
    team["metadata"]["annotations"][names::PROFILE_NAMESPACE] = json!(TEAM);
    team["metadata"]["annotations"][names::SETTINGS] = json!("{fromConfigMap: ours}");
    world.apply(&team).await?;
    world.stamp("team", 1).await?;
    world
        .says("team", RENDERED, false, "PoolSettingsNotFound")
        .await?;
    world
        .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": "kube-system"},
            "data": {names::SETTINGS_KEY: "proxy: {http: 'http://own:3128'}"}}))
        .await?;
    world.machine("team", 1).await.map(drop)
}

/// Registry credentials that come, go and come back; a subscription's password in the MachineDeployment; an
/// edge pool.
async fn sources(world: &World) -> Result<()> {
    let registries = json!({"containerd": {"registries": [{"host": "registry.example", "credentials": {"name": "login"}}]}});
    world.set_settings(&registries.to_string()).await?;
    for round in 0..2 {
        world.says("p", PUBLISHED, false, "SourceNotFound").await?;
        world
            .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": CLOUD_INIT_SETTINGS},
                "stringData": {"username": "user", "password": format!("word-{round}")}}))
            .await?;
        world.says("p", PUBLISHED, true, "Published").await?;
        world.delete(&world.secrets(), "login").await?;
    }
    world.set_settings("").await?;
    world.says("p", PUBLISHED, true, "Published").await?;

    let mut red = profile("osp-red", "v1.0.0", "one\n");
    red["spec"]["osName"] = json!("rhel");
    world.apply(&red).await?;
    let mut pool = machine_deployment("red", "osp-red");
    let provider = pool
        .pointer_mut("/spec/template/spec/providerSpec/value")
        .context("the provider")?;
    provider["operatingSystem"] = json!("rhel");
    provider["operatingSystemSpec"] =
        json!({"rhelSubscriptionManagerUser": "me", "rhelSubscriptionManagerPassword": "word"});
    world.apply(&pool).await?;
    world.stamp("red", 1).await?;
    world.machine("red", 1).await?;

    let mut edge = profile("osp-edge", "v1.0.0", "one\n");
    edge["spec"]["supportedCloudProviders"] = json!([{"name": "edge"}]);
    world.apply(&edge).await?;
    let mut pool = machine_deployment("edge", "osp-edge");
    pool["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProvider"] = json!("edge");
    world.apply(&pool).await?;
    let script = names::edge_script_secret_name("edge", "kube-system");
    wait_for("the script", DEADLINE, async || {
        check(world.secrets().get_opt(&script).await?.is_some())
    })
    .await
}

/// A bootstrap Secret of the upstream OSM.
async fn takeover(world: &World) -> Result<()> {
    let name = names::bootstrap_secret_name("migrated", "kube-system");
    let secret: Value = json!({"apiVersion": "v1", "kind": "Secret", "immutable": true,
        "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS, "annotations": {names::MACHINE_DEPLOYMENT_REVISION: "1"}},
        "stringData": {"cloud-config": "#cloud-config\n{}\n"}});
    world.apply(&secret).await?;
    world.pool("migrated", "osp-tiny").await?;
    world.stamp("migrated", 1).await?;
    world.machine("migrated", 1).await.map(drop)
}

/// What a pool's identity consists of, deleted or altered; its config, altered.
async fn repairs(world: &World) -> Result<()> {
    let config = names::config_name("p", "kube-system");
    let edits = [
        json!({"metadata": {"labels": {names::POOL: null}}}),
        json!({"spec": {"osVersion": "1"}}),
    ];
    for edit in edits {
        let merge = PatchParams::default();
        world
            .configs()
            .patch(&config, &merge, &Patch::Merge(&edit))
            .await?;
        wait_for("the config to be put right", DEADLINE, async || {
            let config = world.configs().get(&config).await?;
            check(config.has_bare_spec() && config.labels().contains_key(names::POOL))
        })
        .await?;
    }
    let of_p = |meta: &kube::core::ObjectMeta| {
        meta.annotations.as_ref().and_then(|all| all.get(names::CONFIG)) == Some(&config)
    };
    let accounts: Api<ServiceAccount> = world.api(CLOUD_INIT_SETTINGS);
    let found = accounts.list(&ListParams::default()).await?.items;
    let identity = found
        .iter()
        .find(|account| of_p(&account.metadata))
        .context("p's identity")?
        .name_any();
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {names::INSTALLATION: null}}}));
    let labelled = |meta: &kube::core::ObjectMeta| {
        meta.labels
            .as_ref()
            .is_some_and(|all| all.contains_key(names::INSTALLATION))
    };
    let params = PatchParams::default();
    let roles: Api<Role> = world.api(CLOUD_INIT_SETTINGS);
    let bindings: Api<RoleBinding> = world.api(CLOUD_INIT_SETTINGS);
    accounts.patch(&identity, &params, &unlabel).await?;
    wait_for("the account to be made anew", DEADLINE, async || {
        check(labelled(&accounts.get(&identity).await?.metadata))
    })
    .await?;
    roles.patch(&identity, &params, &unlabel).await?;
    wait_for("the Role to be made anew", DEADLINE, async || {
        check(labelled(&roles.get(&identity).await?.metadata))
    })
    .await?;
    bindings.patch(&identity, &params, &unlabel).await?;
    wait_for("the binding to be made anew", DEADLINE, async || {
        check(labelled(&bindings.get(&identity).await?.metadata))
    })
    .await?;
    world.machine("p", 3).await?;
    // A day later: old documents go.
    let past =
        Patch::Merge(json!({"metadata": {"annotations": {names::KEEP_UNTIL: "2026-01-01T00:00:00Z"}}}));
    for secret in world.secrets().list(&ListParams::default()).await? {
        if of_p(&secret.metadata) && secret.annotations().contains_key(names::KEEP_UNTIL) {
            world.secrets().patch(&secret.name_any(), &params, &past).await?;
        }
    }
    wait_for("old documents to go", DEADLINE, async || {
        let all = world.secrets().list(&ListParams::default()).await?.items;
        let left = all
            .iter()
            .filter(|s| of_p(&s.metadata) && s.annotations().contains_key(names::KEEP_UNTIL));
        check(left.count() == 1)
    })
    .await
}

/// A machine that joins, another one in its place after ten minutes, which goes, and a request that is denied.
async fn approvals(world: &World) -> Result<()> {
    approver::let_pools_ask(world).await?;
    let pool = world.pool_of("joining").await?;
    world.machine_of(&pool, "joining-1").await?;
    let approved = async |request: &str, wanted: &str| {
        wait_for(&format!("{request} to be approved"), DEADLINE, async || {
            let decision = world.decision(request).await?;
            check(
                decision
                    .is_some_and(|(type_, reason)| (type_.as_str(), reason.as_str()) == ("Approved", wanted)),
            )
        })
        .await
    };
    world.ask_as(&pool.token, "first", "joining-1").await?;
    approved("first", "AutoApproved").await?;
    world.ask_as(&pool.token, "second", "joining-1").await?;
    world.pending("AlreadyApproved", 1).await?;
    world.let_an_approval_expire("first", "joining-1").await?;
    approved("second", "ApprovedAgain").await?;
    let foreign = world.pool_of("foreign").await?;
    world.ask_as(&foreign.token, "third", "joining-1").await?;
    world.denied("third", "ForeignMachine").await?;
    world.event("kube-system", "foreign", "ForeignMachine").await?;
    world.delete_machine("joining-1").await?;
    world.let_an_approval_expire("second", "joining-1").await
}

/// Pools that are retired; one whose config and MachineDeployment are gone; a claim that nobody needs any more.
async fn ends(world: &World) -> Result<()> {
    for pool in ["team", "red", "edge", "migrated", "joining", "foreign"] {
        world.delete(&world.pools(), pool).await?;
    }
    wait_for("their configs to go", DEADLINE, async || {
        check(world.configs().list(&ListParams::default()).await?.items.len() == 1)
    })
    .await?;
    // Made for a pool that nobody knows any more, in the name of this installation. The first does not say
    // for which.
    let orphan = |pool: &str, annotations: Value| {
        let labels = json!({names::POOL: pool, names::INSTALLATION: NAMESPACE, names::ROLE: "bootstrap"});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": CLOUD_INIT_SETTINGS,
            "name": names::bootstrap_secret_name(pool, "kube-system"), "labels": labels, "annotations": annotations}})
    };
    let config = |pool| names::config_name(pool, "kube-system");
    world
        .apply(&orphan("unnamed", json!({names::CONFIG: config("unnamed")})))
        .await?;
    let owner = "kube-system/forgotten";
    world
        .apply(&orphan(
            "forgotten",
            json!({names::CONFIG: config("forgotten"), names::OWNER: owner}),
        ))
        .await?;
    let name = names::bootstrap_secret_name("forgotten", "kube-system");
    wait_for("the orphan to be collected", DEADLINE, async || {
        check(world.secrets().get_opt(&name).await?.is_none())
    })
    .await?;
    let unnamed = names::bootstrap_secret_name("unnamed", "kube-system");
    world.secrets().get(&unnamed).await?;
    wait_for("the claim of the machine to be deleted", DEADLINE, async || {
        check(world.claims().await?.is_empty())
    })
    .await
}
