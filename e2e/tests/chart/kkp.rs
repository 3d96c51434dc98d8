//! Runs the commands of the page on KKP, on a seed and a user cluster, with the services and the command of the
//! CronJob. Only KKP's part is played here, by the code of kubermatic/kubermatic 2.31 (2974df5). What the
//! services do beside the objects that KKP restores is in the chain's test `kkp`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use osm_api::names::{CLOUD_INIT_SETTINGS, WORKER_CLUSTER, worker_kubeconfig};
use osm_api::rbac::{Installation, Service};
use osm_api::worker_cluster::WorkerCluster;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::{Value, json};

use crate::fleet::run_as;
use crate::installing::{furnish, pool, published};
use crate::page::{DEADLINE, FIXTURES, Person, read, section_blocks};

/// The fleet's.
const NAMESPACE: &str = "kubermatic";

const LABEL: &str = "operatingsystemmanager.k8c.io/fleet";

/// What a Cluster object and the kubeconfig of an administrator contain, and nothing may repeat.
const ADMIN_TOKEN: &str = "hunter2-of-the-administrator";

/// Clusters that can't be served: their names, what differs, and what is said about each.
const SKIPPED: [(&str, &str, &str); 6] = [
    ("paused", r#"{"spec": {"pause": true}}"#, "it is paused"),
    (
        "unhealthy",
        r#"{"status": {"extendedHealth": {"apiserver": "HealthStatusDown"}}}"#,
        "its API server is not healthy",
    ),
    (
        "old",
        r#"{"spec": {"version": "1.32.9"}}"#,
        "it has version 1.32.9",
    ),
    (
        "oldnode",
        r#"{"status": {"versions": {"oldestNodeVersion": "1.32.4"}}}"#,
        "the kubelet of a node has version 1.32.4",
    ),
    (
        "deleting",
        r#"{"metadata": {"finalizers": ["kubermatic.k8c.io/cleanup-namespace"]}}"#,
        "KKP is deleting it",
    ),
    (
        "nosecret",
        "{}",
        "Secret cluster-nosecret/internal-admin-kubeconfig does not exist",
    ),
];

/// What the Deployment runs: `getFlags` in pkg/resources/operatingsystemmanager/deployment.go, wrapped by
/// `IsRunningWrapper` in pkg/resources/apiserver/is-running.go.
fn container(more: &[&str]) -> Value {
    let mut flags = vec![
        "-kubeconfig",
        "/etc/kubernetes/kubeconfig/kubeconfig",
        "-health-probe-address",
        "0.0.0.0:8085",
        "-metrics-address",
        "0.0.0.0:8080",
        "-namespace",
        "kube-system",
        "-cluster-dns",
        "169.254.20.10",
        "-container-runtime",
        "containerd",
    ];
    flags.extend(more);
    let command = json!({"command": "/usr/local/bin/osm-controller", "args": flags}).to_string();
    json!({"name": "operating-system-manager", "image": "registry.example/operating-system-manager:v1.11.3",
        "command": ["/http-prober-bin/http-prober"],
        "args": ["-endpoint", "https://apiserver/healthz", "-insecure", "-retries", "100", "-retry-wait", "2",
            "-timeout", "1", "-command", command]})
}

/// KKP's definition of user clusters, cut down (pkg/crd/k8c.io/kubermatic.k8c.io_clusters.yaml).
fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "clusters.kubermatic.k8c.io"},
        "spec": {"group": "kubermatic.k8c.io", "scope": "Cluster",
            "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// A user cluster with the Deployment of its upstream OSM. `Cluster` is in sdk/apis/kubermatic/v1/cluster.go,
/// its namespace is named by `NamespaceName` in pkg/provider/kubernetes/util.go.
async fn create(seed: &ControlPlane, name: &str, replicas: u32, differs: &str) -> Result<()> {
    let namespace = format!("cluster-{name}");
    let labels = json!({"app": "operating-system-manager"});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "operating-system-manager", "namespace": namespace},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container(&[])]}}}}),
    ];
    installation::apply(seed, &objects).await?;
    let cluster = json!({"apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster", "metadata": {"name": name},
        "spec": {"version": "1.36.3"},
        "status": {"namespaceName": namespace, "versions": {"oldestNodeVersion": "1.36.3"},
            "extendedHealth": {"apiserver": "HealthStatusUp"}, "address": {"adminToken": ADMIN_TOKEN}}});
    let api = clusters(&seed.admin()?);
    let (status, params) = (json!({"status": cluster["status"]}), PatchParams::default());
    api.create(&PostParams::default(), &serde_json::from_value(cluster)?)
        .await?;
    let differs: Value = serde_json::from_str(differs)?;
    api.patch(name, &params, &Patch::Merge(&differs)).await?;
    for status in [status, differs] {
        api.patch_status(name, &params, &Patch::Merge(status)).await?;
    }
    Ok(())
}

/// `GetInternalKubeconfigReconciler` in pkg/resources/kubeconfig.go: a client certificate of system:masters.
async fn create_admin_kubeconfig(seed: &ControlPlane, user: &ControlPlane) -> Result<()> {
    let admin = user.admin_kubeconfig_path();
    let file = |name: &str| std::fs::read_to_string(admin.with_file_name(name)).context(name.to_owned());
    let data = |text: String| json!(k8s_openapi::ByteString(text.into_bytes()));
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x7k2",
        "contexts": [{"name": "x7k2", "context": {"cluster": "x7k2", "user": "default"}}],
        "clusters": [{"name": "x7k2", "cluster": {"server": user.url(), "certificate-authority-data": data(user.ca_pem().to_owned())}}],
        "users": [{"name": "default", "user": {"client-certificate-data": data(file("kubelet-client.crt")?),
            "client-key-data": data(file("kubelet-client.key")?)}}]});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"kubeconfig": kubeconfig.to_string()},
        "metadata": {"name": "internal-admin-kubeconfig", "namespace": "cluster-x7k2"}});
    installation::apply(seed, &[secret]).await
}

/// What KKP's webhook does on create and update if the Seed's `defaultComponentSettings` or default cluster
/// template has two replicas of the upstream OSM. It merges with mergo, which takes 0 for empty
/// (`DefaultClusterSpec` in pkg/defaulting/cluster.go, called by pkg/webhook/cluster/mutation/mutator.go;
/// dario.cat/mergo 1.0.2). No other field of `componentsOverride` is in use here.
const DEFAULTS_OF_THE_SEED: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: defaults-of-the-seed}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [kubermatic.k8c.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [clusters]}]
  matchConditions:
    - name: is-empty
      expression: object.spec.?componentsOverride.?operatingSystemManager.?replicas.orValue(0) == 0
  reinvocationPolicy: Never
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: "[JSONPatch{op: 'add', path: '/spec/componentsOverride', value: {'operatingSystemManager': {'replicas': 2}}}]"
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: defaults-of-the-seed}
spec: {policyName: defaults-of-the-seed}
"#;

/// Waits until KKP makes this of 0 replicas.
async fn wait_for_default(clusters: &Api<DynamicObject>, wanted: u64) -> Result<()> {
    let none = json!({"spec": {"componentsOverride": {"operatingSystemManager": {"replicas": 0}}}});
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    wait_for("the defaults of the Seed", DEADLINE, async || {
        let cluster = clusters.patch("x7k2", &dry_run, &Patch::Merge(&none)).await?;
        check(replicas(&cluster) == Some(wanted))
    })
    .await
}

/// The replicas of the upstream OSM that a user cluster asks for.
fn replicas(cluster: &DynamicObject) -> Option<u64> {
    let found = cluster
        .data
        .pointer("/spec/componentsOverride/operatingSystemManager/replicas");
    found.and_then(Value::as_u64)
}

fn clusters(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubermatic.k8c.io", "v1", "Cluster"));
    Api::all_with(client.clone(), &kind)
}

fn in_cluster<K>(client: &Client) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), "cluster-x7k2")
}

/// KKP's controller of the seed: the Deployment has the replicas that the user cluster asks for, or else one
/// (`DeploymentReconcilerWithoutInitWrapper` in pkg/resources/operatingsystemmanager/deployment.go).
async fn reconcile(client: Client) -> Result<()> {
    let deployments: Api<Deployment> = in_cluster(&client);
    loop {
        let cluster = clusters(&client).get("x7k2").await?;
        if cluster.data.pointer("/spec/pause") != Some(&json!(true)) {
            let patch = json!({"spec": {"replicas": replicas(&cluster).unwrap_or(1)}});
            deployments
                .patch(
                    "operating-system-manager",
                    &PatchParams::default(),
                    &Patch::Merge(&patch),
                )
                .await?;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Changes the Cluster, or its Deployment, as KKP or an operator does.
async fn change(client: &Client, patch: Value) -> Result<()> {
    let patch = Patch::Merge(patch);
    clusters(client)
        .patch("x7k2", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

async fn change_flags(client: &Client, more: &[&str]) -> Result<()> {
    let deployments: Api<Deployment> = in_cluster(client);
    let patch = json!({"spec": {"template": {"spec": {"containers": [container(more)]}}}});
    let patch = Patch::Strategic(patch);
    deployments
        .patch("operating-system-manager", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// Runs the command of the CronJob as its ServiceAccount. Returns whether it succeeds, and what it prints.
async fn sync(seed: &ControlPlane) -> Result<(bool, String)> {
    let jobs: Api<CronJob> = Api::namespaced(seed.admin()?, NAMESPACE);
    let (succeeds, printed) = run_as(seed, &jobs.get("osm-kkp").await?).await?;
    ensure!(
        !printed.contains(ADMIN_TOKEN) && !printed.contains("PRIVATE KEY"),
        "{printed}"
    );
    Ok((succeeds, printed))
}

/// Runs it, and fails unless it succeeds and prints this.
async fn syncs(seed: &ControlPlane, expected: &str) -> Result<String> {
    let (succeeds, printed) = sync(seed).await?;
    ensure!(succeeds && printed.contains(expected), "{expected}: {printed}");
    Ok(printed)
}

async fn registered(client: &Client) -> Result<Option<WorkerCluster>> {
    Ok(in_cluster::<WorkerCluster>(client)
        .get_opt(WORKER_CLUSTER)
        .await?)
}

/// KKP's Cluster objects contain a token of an administrator.
async fn only_the_cron_job_reads_clusters(client: &Client) -> Result<()> {
    let mut readers = Vec::new();
    let accounts = Service::ALL.map(Service::name);
    for account in accounts.into_iter().chain(["renewal", "kkp"]) {
        for verb in ["get", "list", "watch"] {
            let review = json!({"spec": {"user": format!("system:serviceaccount:{NAMESPACE}:osm-{account}"),
                "resourceAttributes": {"group": "kubermatic.k8c.io", "resource": "clusters", "verb": verb}}});
            let review: SubjectAccessReview = serde_json::from_value(review)?;
            let answer = Api::all(client.clone())
                .create(&PostParams::default(), &review)
                .await?;
            readers.extend(
                answer
                    .status
                    .is_some_and(|status| status.allowed)
                    .then(|| format!("{account} {verb}")),
            );
        }
    }
    assert_eq!(readers, ["kkp get", "kkp list"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_on_kkp_does_what_it_says() -> Result<()> {
    let page = read("kkp.md")?;
    let (seed, user) = tokio::try_join!(
        ControlPlane::start(Options::default()),
        ControlPlane::start(Options::default())
    )?;
    let theirs = std::fs::read_to_string(format!("{FIXTURES}/go-shaped.yaml"))?;
    user.apply_yaml(&theirs).await?;
    furnish(&user).await?;
    let client = seed.admin()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    installation::apply(&seed, &[namespace, definition()]).await?;
    wait_for("KKP's definition to be served", DEADLINE, async || {
        check(clusters(&client).list(&ListParams::default()).await.is_ok())
    })
    .await?;
    create(&seed, "x7k2", 1, "{}").await?;
    create_admin_kubeconfig(&seed, &user).await?;
    let person = Person::new(vec![("seed", &seed), ("user", &user)]).await?;
    let blocks = section_blocks(&page, "Serve user clusters", "sh")?;
    let [install, check_pools, hand_over, at_once, wait, clean_up, back] = &blocks[..] else {
        anyhow::bail!("other commands")
    };

    person.run(install).await?;
    let checked = person.run(check_pools).await?;
    ensure!(
        checked.contains("169.254.20.10") && checked.contains("defaultComponentSettings"),
        "{checked}"
    );
    only_the_cron_job_reads_clusters(&client).await?;
    let installation = Installation {
        namespace: NAMESPACE.to_owned(),
        fleet: true,
        go_finalizers: true,
        ..Installation::default()
    };
    let mut installed = Installed::by_chart(&seed, installation, "osm", &installation::binaries()?).await?;
    installed.start_all().await?;
    let kkp = tokio::spawn(reconcile(client.clone()));

    // No list is a reason to do something.
    syncs(
        &seed,
        "No Cluster has the label operatingsystemmanager.k8c.io/fleet=true",
    )
    .await?;
    seed.apply_yaml(DEFAULTS_OF_THE_SEED).await?;
    wait_for_default(&clusters(&client), 2).await?;
    let refused = person.run(hand_over).await.err();
    let refused = refused
        .context("the cluster is handed over while KKP restores its replicas")?
        .to_string();
    let advice = "Remove operatingSystemManager.replicas from the Seed's defaults";
    ensure!(refused.contains(advice), "{refused}");
    // Someone who hands it over nevertheless.
    change(&client, json!({"metadata": {"labels": {LABEL: "true"}}})).await?;
    let runs = "Cluster x7k2 is skipped: its upstream OSM has 2 replicas; set spec.componentsOverride.operatingSystemManager.replicas";
    wait_for("KKP to follow its webhook", DEADLINE, async || {
        check(sync(&seed).await?.1.contains(runs))
    })
    .await?;
    person
        .run("kubectl delete mutatingadmissionpolicies --all --context seed")
        .await?;
    wait_for_default(&clusters(&client), 0).await?;
    person.run(hand_over).await?;
    ensure!(registered(&client).await?.is_none(), "it is registered");

    for (name, differs, _) in SKIPPED {
        create(&seed, name, 0, differs).await?;
    }
    clusters(&client)
        .delete("deleting", &DeleteParams::default())
        .await?;
    let all =
        format!("kubectl label clusters.kubermatic.k8c.io --all --overwrite --context seed {LABEL}=true");
    person.run(&all).await?;
    person.run(at_once).await?;
    let created = "WorkerCluster cluster-x7k2/worker created";
    let mut printed = String::new();
    wait_for("KKP to stop the upstream OSM", DEADLINE, async || {
        let succeeds;
        (succeeds, printed) = sync(&seed).await?;
        ensure!(succeeds, "{printed}");
        check(printed.contains(created))
    })
    .await?;
    for (name, _, why) in SKIPPED {
        let expected = format!("Cluster {name} is skipped: {why}");
        ensure!(printed.contains(&expected), "{expected}: {printed}");
    }
    person
        .run(wait)
        .await
        .map_err(|error| error.context(installed.logs()))?;
    pool(&user, "one").await?;
    published(&user, &installed, "one").await?;

    it_follows_kkp_and_keeps_what_others_write(&seed, &client).await?;
    it_removes_nothing_but_what_is_gone(&person, &seed, &client).await?;
    published(&user, &installed, "one").await?;
    ensure!(!installed.logs().contains(ADMIN_TOKEN), "a credential is logged");

    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS}});
    installation::apply(&user, &[secret("cloud-init-getter-token")]).await?;
    person.run(clean_up).await?;
    person.run(back).await?;
    let left = Api::<Secret>::namespaced(user.admin()?, CLOUD_INIT_SETTINGS)
        .list(&ListParams::default())
        .await?;
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    ensure!(!left.iter().any(|name| name.ends_with("-config")), "{left:?}");
    wait_for("KKP to start the upstream OSM", DEADLINE, async || {
        let go = in_cluster::<Deployment>(&client)
            .get("operating-system-manager")
            .await?;
        check(go.spec.and_then(|spec| spec.replicas) == Some(1))
    })
    .await?;
    kkp.abort();

    the_end_of_a_cluster_is_not_the_end_of_its_kind(&seed, &client).await
}

async fn it_follows_kkp_and_keeps_what_others_write(seed: &ControlPlane, client: &Client) -> Result<()> {
    let unchanged = "WorkerCluster cluster-x7k2/worker unchanged";
    let secrets: Api<Secret> = in_cluster(client);
    let version = async || -> Result<_> {
        Ok(secrets
            .get(&worker_kubeconfig("osc-controller"))
            .await?
            .resource_version())
    };
    let before = version().await?;
    syncs(seed, unchanged).await?;
    ensure!(
        before == version().await?,
        "a kubeconfig is replaced, which interrupts the service"
    );

    let own = json!({"metadata": {"labels": {"ring": "canary"}}, "spec": {"settings": {"limits": {"machineDeployments": 300}}}});
    in_cluster::<WorkerCluster>(client)
        .patch(WORKER_CLUSTER, &PatchParams::default(), &Patch::Merge(own))
        .await?;
    change_flags(
        client,
        &[
            "-node-http-proxy",
            "http://proxy.example:3128",
            "-disable-default-osps",
        ],
    )
    .await?;
    syncs(seed, "WorkerCluster cluster-x7k2/worker configured").await?;
    let cluster = registered(client).await?.context("a WorkerCluster")?;
    let expected = json!({"cluster": {"dnsIPs": ["169.254.20.10"]}, "limits": {"machineDeployments": 300},
        "proxy": {"http": "http://proxy.example:3128", "noProxy": ".svc,.cluster.local,localhost,127.0.0.1"}});
    assert_eq!(serde_json::to_value(&cluster.spec.settings)?, expected);
    assert_eq!(cluster.labels().get("ring").map(String::as_str), Some("canary"));

    // It goes back as well, but not while KKP is paused.
    change(client, json!({"spec": {"pause": true}})).await?;
    change_flags(client, &[]).await?;
    syncs(seed, "Cluster x7k2 is skipped: it is paused").await?;
    assert_eq!(
        registered(client).await?.map(|found| found.spec),
        Some(cluster.spec)
    );
    change(client, json!({"spec": {"pause": false}})).await?;
    syncs(seed, "WorkerCluster cluster-x7k2/worker configured").await?;
    let settings = registered(client).await?.and_then(|found| found.spec.settings);
    let proxy = settings.and_then(|settings| Some(settings.get("proxy")?.get("http").is_some()));
    assert_eq!(proxy, Some(false));

    change_flags(client, &["-initial-taints", "hunter2-without-effect"]).await?;
    let printed = syncs(seed, "Add the cluster with `osmctl fleet add --settings` instead").await?;
    ensure!(!printed.contains("hunter2"), "{printed}");
    change_flags(client, &[]).await?;
    syncs(seed, unchanged).await.map(drop)
}

async fn it_removes_nothing_but_what_is_gone(
    person: &Person<'_>,
    seed: &ControlPlane,
    client: &Client,
) -> Result<()> {
    let label = async |which: &str, change: &str| {
        let command = format!(
            "kubectl label clusters.kubermatic.k8c.io {which} --overwrite --context seed {LABEL}{change}"
        );
        person.run(&command).await
    };
    label("x7k2", "-").await?;
    let stays = "WorkerCluster cluster-x7k2/worker stays, because Cluster x7k2 exists without the label";
    let printed = syncs(seed, stays).await?;
    ensure!(printed.contains("Cluster old is skipped"), "{printed}");
    label("--all", "-").await?;
    let printed = syncs(seed, stays).await?;
    ensure!(printed.contains("No Cluster has the label"), "{printed}");

    // Another one than KKP's.
    label("x7k2 nosecret", "=true").await?;
    let registration = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": {"name": WORKER_CLUSTER, "namespace": "cluster-nosecret"}, "spec": {}});
    installation::apply(seed, &[registration]).await?;
    let printed = syncs(seed, "WorkerCluster cluster-x7k2/worker unchanged").await?;
    let other = "Cluster nosecret is skipped: someone else created WorkerCluster cluster-nosecret/worker";
    ensure!(printed.contains(other), "{printed}");
    ensure!(registered(client).await?.is_some(), "it is removed");
    Ok(())
}

/// An API server that has lost the kind of KKP's Clusters says 404 about each of them.
async fn the_end_of_a_cluster_is_not_the_end_of_its_kind(seed: &ControlPlane, client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let free = json!({"metadata": {"finalizers": null}});
    clusters(client)
        .patch("deleting", &PatchParams::default(), &Patch::Merge(free))
        .await?;
    definitions
        .delete("clusters.kubermatic.k8c.io", &DeleteParams::default())
        .await?;
    let is_unknown = async || {
        let (succeeds, printed) = sync(seed).await?;
        check(!succeeds && printed.contains("the cluster does not have this kind"))
    };
    wait_for("the kind to go", DEADLINE, is_unknown).await?;
    // Not earlier: the API server deletes the objects while it still serves the kind.
    let registration = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": {"name": WORKER_CLUSTER, "namespace": "cluster-x7k2",
            "labels": {"operatingsystemmanager.k8c.io/kkp-cluster": "x7k2"}}, "spec": {}});
    installation::apply(seed, &[registration]).await?;
    ensure!(is_unknown().await?.is_some(), "the kind is known again");
    ensure!(registered(client).await?.is_some(), "it is removed with the kind");
    installation::apply(seed, &[definition()]).await?;
    wait_for("the WorkerCluster to go", DEADLINE, async || {
        let (_, printed) = sync(seed).await?;
        check(printed.contains("WorkerCluster cluster-x7k2/worker deleted, because Cluster x7k2 is gone"))
    })
    .await?;
    ensure!(registered(client).await?.is_none(), "it stays");
    Ok(())
}
