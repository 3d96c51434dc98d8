//! The pages on fleets: their commands install one, and add and remove a cluster that osmctl or the chart has
//! prepared. The CronJob of the chart renews the kubeconfigs with the permissions that the chart gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBECONFIG_KEY, worker_kubeconfig};
use osm_api::rbac::{Installation, Service};
use osm_api::worker_cluster::WorkerCluster;
use osm_testkit::helm::Helm;
use osm_testkit::installation::{self, Installed};
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::{Value, json};

use crate::installing::{furnish, pool, published};
use crate::page::{Person, read, section, section_blocks};
use crate::prometheus::Prometheus;

pub const DEADLINE: Duration = Duration::from_secs(180);

/// Namespace of the fleet.
const NAMESPACE: &str = "osm";

/// Whose kubeconfigs each namespace of a cluster has.
const RENEWED: [&str; 4] = ["osc-controller", "secret-syncer", "csr-approver", "renewal"];

fn audited() -> Options {
    Options {
        audit: true,
        ..Options::default()
    }
}

/// A user cluster as it is before something of the chart is there.
async fn user_cluster() -> Result<ControlPlane> {
    let plane = ControlPlane::start(audited()).await?;
    furnish(&plane).await?;
    Ok(plane)
}

/// The services of a release, as the chart has installed them.
async fn start(plane: &ControlPlane, release: &str, installation: Installation) -> Result<Installed> {
    let binaries = installation::binaries()?;
    let mut installed = Installed::by_chart(plane, installation, release, &binaries).await?;
    installed.start_all().await?;
    Ok(installed)
}

async fn start_fleet(seed: &ControlPlane) -> Result<Installed> {
    let installation = Installation {
        namespace: NAMESPACE.to_owned(),
        fleet: true,
        ..Installation::default()
    };
    start(seed, "osm", installation).await
}

fn in_seed<K>(seed: &ControlPlane, namespace: &str) -> Result<Api<K>>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Ok(Api::namespaced(seed.admin()?, namespace))
}

/// The kubeconfigs of a cluster.
async fn kubeconfigs(seed: &ControlPlane, namespace: &str) -> Result<Vec<String>> {
    let secrets: Api<Secret> = in_seed(seed, namespace)?;
    let mut found = Vec::new();
    for of in RENEWED {
        if let Some(secret) = secrets.get_opt(&worker_kubeconfig(of)).await? {
            let text = secret.data.unwrap_or_default().remove(KUBECONFIG_KEY);
            found.push(String::from_utf8(text.context("a kubeconfig")?.0)?);
        }
    }
    Ok(found)
}

/// Runs the command of the CronJob that renews.
async fn renew(seed: &ControlPlane) -> Result<(bool, String)> {
    let jobs: Api<CronJob> = in_seed(seed, NAMESPACE)?;
    run_as(seed, &jobs.get("osm-renewal").await?).await
}

/// Runs the command of a CronJob as its ServiceAccount, which has its name, with the shortest tokens that there
/// are. Returns whether it succeeds, and what it prints.
pub async fn run_as(seed: &ControlPlane, job: &CronJob) -> Result<(bool, String)> {
    let (name, namespace) = (job.name_any(), job.namespace().context("a namespace")?);
    let job = serde_json::to_value(job)?;
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], *name);
    let arguments = pod["containers"][0]["args"].as_array().context("args")?;
    let arguments = arguments.iter().filter_map(Value::as_str).map(|argument| {
        let argument = argument.replace("--duration=720h", "--duration=10m");
        argument.replace("--spread=300m", "--spread=1s")
    });
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", seed.identity(&namespace, &name).await?)
        .output()
        .await?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Ok((output.status.success(), out + &err))
}

/// Whether the ServiceAccount of the renewal in this namespace of a cluster has used each right of these rules
/// there, and no other.
async fn uses_its_rights(
    plane: &ControlPlane,
    namespace: &str,
    rules: Option<Vec<PolicyRule>>,
) -> Result<()> {
    let (mut granted, mut used) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules.context("rules")? {
        let names = rule.resource_names.unwrap_or_else(|| vec![String::new()]);
        for resource in rule.resources.context("resources")? {
            let each = rule
                .verbs
                .iter()
                .flat_map(|verb| names.iter().map(move |name| (verb, name)));
            granted.extend(each.map(|(verb, name)| format!("{verb} {resource} {name}")));
        }
    }
    for event in plane.audit_log()?.read()? {
        if event.user == format!("system:serviceaccount:{namespace}:osm-renewal") {
            let asked = format!("{} {} {}", event.verb, event.resource, event.name);
            ensure!(event.code != 403, "{asked} was denied");
            used.insert(asked);
        }
    }
    assert_eq!(used, granted);
    Ok(())
}

/// Lines of the metrics about reconciles that failed.
async fn failures(installed: &Installed) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for service in Service::ALL {
        let (_, text) = installed.get(service, "/metrics").await?;
        let failed = |line: &&str| {
            let results = ["failure", "timeout", "panic"].map(|result| format!("result=\"{result}\""));
            line.starts_with("osm_reconciles_total{")
                && results.iter().any(|result| line.contains(result))
                && !line.ends_with(" 0")
        };
        found.extend(text.lines().filter(failed).map(str::to_owned));
    }
    Ok(found)
}

/// Every Secret that is published in a user cluster, with its version.
async fn versions(plane: &ControlPlane) -> Result<BTreeMap<String, String>> {
    let secrets: Api<Secret> = Api::namespaced(plane.admin()?, CLOUD_INIT_SETTINGS);
    let secrets = secrets.list(&ListParams::default()).await?;
    let version = |secret: &Secret| secret.resource_version().unwrap_or_default();
    Ok(secrets
        .iter()
        .map(|secret| (secret.name_any(), version(secret)))
        .collect())
}

/// Waits until the three services have ended their connections to a cluster.
async fn ends_to_serve(installed: &Installed, namespace: &str) -> Result<()> {
    let cluster = format!("\"cluster\":\"{namespace}\"");
    wait_for("the cluster to be served no longer", DEADLINE, async || {
        let logs = installed.logs();
        let ends = |line: &&str| line.contains("no longer served") && line.contains(&cluster);
        check(logs.lines().filter(ends).count() == 3)
    })
    .await
}

/// Both take the permissions from one table.
async fn the_chart_has_what_osmctl_applies(person: &Person<'_>, joining: &str) -> Result<()> {
    let command = format!(
        "osmctl fleet add --context seed -n osm --worker-context user-a --joining {joining} --remove-upstream-finalizers --dry-run"
    );
    let printed = person.run(&command).await?;
    let (of_cluster, of_seed) = printed.split_once("# In the seed").context("two places")?;
    ensure!(
        of_seed.contains(r#"kind: "WorkerCluster""#) && !printed.contains(r#"kind: "Secret""#),
        "{printed}"
    );
    let values = format!(
        "--set=joining={joining},topology=worker,workerCluster.renewal.enabled=true,removeUpstreamFinalizers=true"
    );
    let chart = Helm::without_cluster()
        .await?
        .template("osm", "osm", &[&values])
        .await?;
    let by_name = |objects: Vec<Value>| -> BTreeMap<String, Value> {
        let named = objects.into_iter().map(|mut object| {
            let metadata = object["metadata"].take();
            (
                format!(
                    "{} {} {}",
                    object["kind"], metadata["namespace"], metadata["name"]
                ),
                object,
            )
        });
        named.collect()
    };
    let mut applied = by_name(serde_saphyr::from_multiple(of_cluster)?);
    let mut rendered = by_name(chart);
    // Helm creates it by a flag.
    ensure!(
        applied.remove("\"Namespace\" null \"osm\"").is_some(),
        "{applied:#?}"
    );
    ensure!(
        applied.keys().eq(rendered.keys()),
        "{:?}\n{:?}",
        applied.keys(),
        rendered.keys()
    );
    for (name, mut applied) in applied {
        let mut rendered = rendered.remove(&name).context("an object")?;
        for object in [&mut applied, &mut rendered] {
            if let Some(rules) = object["rules"].as_array_mut() {
                rules.sort_by_key(Value::to_string);
            }
        }
        assert_eq!(applied, rendered, "{name}");
    }
    Ok(())
}

/// Its settings are those of the release with its own, and its profiles those of the release. Otherwise, the
/// pool would be rendered to something else than what it has.
async fn osmctl_reads_a_cluster_of_a_fleet(person: &Person<'_>) -> Result<()> {
    const FLAGS: &str = "--context seed -n cluster-a --worker-context user-a";
    let printed = person
        .run(&format!(
            "osmctl diff --cluster {FLAGS}; osmctl status kube-system/one {FLAGS}; osmctl status {FLAGS}; osmctl show one {FLAGS}"
        ))
        .await?;
    for expected in [
        "osm/osm-settings",
        "osm/osp-ubuntu",
        "osm-osc-controller",
        "/etc/kubernetes",
    ] {
        ensure!(printed.contains(expected), "{expected}: {printed}");
    }
    ensure!(!printed.contains("warning"), "{printed}");
    // What others have written stays, and so do the settings that the first command has applied.
    let limits = json!({"spec": {"settings": {"limits": {"machineDeployments": 300}}}});
    let printed = person
        .run(&format!(
            "kubectl patch wc worker --context seed -n cluster-a --type merge -p '{limits}'
             osmctl fleet add {FLAGS}
             kubectl get wc worker --context seed -n cluster-a -o 'jsonpath={{.spec.settings}}'"
        ))
        .await?;
    for expected in [
        "WorkerCluster cluster-a/worker unchanged",
        r#""externalCloudProvider":true"#,
        r#""machineDeployments":300"#,
    ] {
        ensure!(printed.contains(expected), "{expected}: {printed}");
    }
    Ok(())
}

async fn osmctl_finds_the_clusters_that_change(person: &Person<'_>) -> Result<()> {
    let changes = async |input: &str| {
        let printed = person
            .run(&format!(
                "osmctl diff --cluster --all {input} --context seed || echo \"code $?\""
            ))
            .await?;
        let lines = printed
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        anyhow::Ok(lines.collect::<Vec<String>>())
    };
    let title = "NAMESPACE POOLS CHANGED PROBLEMS";
    let none = [title, "cluster-a 1 0 0", "cluster-b 0 0 0"];
    ensure!(changes("").await? == none, "{:?}", changes("").await?);
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "osm-settings", "namespace": NAMESPACE},
        "data": {names::SETTINGS_KEY: "pauseImage: registry.example.com/pause:9"}});
    person.run(&format!("echo '{settings}' >new.yaml")).await?;
    let found = changes("new.yaml").await?;
    ensure!(
        found == [title, "cluster-a 1 1 0", "cluster-b 0 0 0", "code 1"],
        "{found:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_are_added_as_the_page_says_and_their_kubeconfigs_are_renewed() -> Result<()> {
    let start = ControlPlane::start(audited());
    let (seed, a, b) = tokio::try_join!(start, user_cluster(), user_cluster())?;
    let person = Person::new(vec![("seed", &seed), ("user-a", &a), ("user-b", &b)]).await?;
    let page = read("fleet.md")?;
    person.run(&section(&page, "Install the release")?).await?;
    for joining in ["approved", "static"] {
        the_chart_has_what_osmctl_applies(&person, joining).await?;
    }
    let installed = start_fleet(&seed).await?;
    let prometheus =
        Prometheus::start(&installed, &["OSMClusterNotServed", "OSMNamespaceNotRegistered"]).await?;
    let add = section(&page, "Add a cluster")?;
    let serves = |error: anyhow::Error| error.context(installed.logs());
    person.run(&add).await.map_err(serves)?;
    let b_as_well = add.replace("cluster-a", "cluster-b").replace("user-a", "user-b");
    let printed = person.run(&b_as_well).await.map_err(serves)?;
    let is_served = |line: &str| line.split_whitespace().skip(1).eq(["osm", "0/0", "-", "-", "-"]);
    ensure!(
        printed.lines().filter(|line| is_served(line)).count() == 2,
        "{printed}"
    );
    pool(&a, "one").await?;
    published(&a, &installed, "one").await?;
    prometheus.is_silent().await?;
    osmctl_reads_a_cluster_of_a_fleet(&person).await?;
    osmctl_finds_the_clusters_that_change(&person).await?;

    // A service that was taken away from a cluster, a cluster without the Secret, and one whose kubeconfig
    // would run a program.
    let secrets: Api<Secret> = in_seed(&seed, "cluster-b")?;
    let approver_of_b = worker_kubeconfig("csr-approver");
    secrets.delete(&approver_of_b, &DeleteParams::default()).await?;
    wait_for("one line per cluster", DEADLINE, async || {
        let printed = person.run("osmctl fleet status --context seed").await?;
        let line = |namespace: &str| printed.lines().find(|line| line.starts_with(namespace));
        let (a, b) = (
            line("cluster-a").unwrap_or_default(),
            line("cluster-b").unwrap_or_default(),
        );
        let is_published =
            a.contains(" 1/1 ") && a.split_whitespace().nth(3).is_some_and(|at| at.ends_with('Z'));
        check(is_published && b.contains(" Joining: Kubeconfig") && b.contains("worker-csr-approver"))
    })
    .await?;
    prometheus
        .fires("OSMClusterNotServed", &[("condition", "Joining")])
        .await?;
    let registration = |namespace: &str| {
        json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
        "kind": "WorkerCluster", "metadata": {"name": names::WORKER_CLUSTER, "namespace": namespace}, "spec": {}})
    };
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let given: Value = serde_json::from_str(kubeconfigs(&seed, "cluster-a").await?.last().context("one")?)?;
    let mut runs = given.clone();
    runs["users"][0]["user"] =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "hunter2"}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {KUBECONFIG_KEY: runs.to_string()},
        "metadata": {"name": worker_kubeconfig("renewal"), "namespace": "cluster-d"}});
    let objects = [
        namespace("cluster-c"),
        namespace("cluster-d"),
        registration("cluster-c"),
        registration("cluster-d"),
        secret,
    ];
    installation::apply(&seed, &objects).await?;

    let before = kubeconfigs(&seed, "cluster-a").await?;
    let failed = failures(&installed).await?;
    let (succeeds, printed) = renew(&seed).await?;
    for expected in [
        "Cluster cluster-c is skipped, because it has no Secret worker-renewal",
        "osmctl: cluster-d: the kubeconfig in Secret worker-renewal: has no token; write it with",
        "Secret cluster-b/worker-csr-approver does not exist, and is not created",
    ] {
        ensure!(printed.contains(expected), "{expected}: {printed}");
    }
    ensure!(!succeeds && !printed.contains("hunter2"), "{printed}");
    assert_eq!(printed.matches("which expires at").count(), 7, "{printed}");
    // The second time, with what was renewed.
    in_seed::<WorkerCluster>(&seed, "cluster-d")?
        .delete(names::WORKER_CLUSTER, &DeleteParams::default())
        .await?;
    let between = kubeconfigs(&seed, "cluster-a").await?;
    let (succeeds, printed) = renew(&seed).await?;
    ensure!(succeeds, "{printed}");
    let after = kubeconfigs(&seed, "cluster-a").await?;
    assert_eq!([&before, &between, &after].map(Vec::len), [4; 3]);
    for (first, (second, third)) in before.iter().zip(between.iter().zip(&after)) {
        ensure!(first != second && second != third, "a token is the same");
    }
    pool(&a, "two").await?;
    published(&a, &installed, "two").await?;
    assert_eq!(failures(&installed).await?, failed);

    // One that is away holds up no other.
    b.stop_apiserver().await?;
    let (succeeds, printed) = renew(&seed).await?;
    ensure!(!succeeds, "{printed}");
    assert_eq!(
        printed
            .matches("osmctl: cluster-b: cannot create a token")
            .count(),
        1,
        "{printed}"
    );
    ensure!(kubeconfigs(&seed, "cluster-a").await? != after, "{printed}");
    b.start_apiserver().await?;
    let printed = person.run(&section(&page, "Renew the kubeconfigs")?).await?;
    ensure!(
        printed.contains("Secret cluster-b/worker-renewal has"),
        "{printed}"
    );
    // An administrator may create it, and the command does not.
    ensure!(secrets.get_opt(&approver_of_b).await?.is_none(), "it is back");

    let role = Api::<ClusterRole>::all(seed.admin()?)
        .get("osm:osm:osm:renewal")
        .await?;
    uses_its_rights(&seed, NAMESPACE, role.rules).await?;
    let role = Api::<Role>::namespaced(a.admin()?, "cluster-a")
        .get("osm-renewal")
        .await?;
    uses_its_rights(&a, "cluster-a", role.rules).await?;

    let (observer, before) = (SecretWatch::start(a.admin()?).await?, versions(&a).await?);
    person.run(&section(&page, "Remove a cluster")?).await?;
    ends_to_serve(&installed, "cluster-a").await?;
    prometheus
        .fires("OSMNamespaceNotRegistered", &[("namespace", "osm")])
        .await?;
    assert_eq!(versions(&a).await?, before);

    // Added again, it is taken over as it is.
    person.run(&add).await.map_err(serves)?;
    pool(&a, "three").await?;
    published(&a, &installed, "three").await?;
    let mut now = versions(&a).await?;
    now.retain(|name, _| before.contains_key(name));
    assert_eq!(now, before);
    ensure!(observer.absent().is_empty(), "{:?}", observer.absent());
    Ok(())
}

/// The seed has machines of its own as well, which a release with `topology: single` serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_a_release_of_its_own_is_served_as_the_page_says_and_the_seed_is_not_affected()
-> Result<()> {
    const SINGLE: &str = "helm install own ./charts/operating-system-manager --kube-context seed --namespace own \
        --create-namespace --set image.registry=registry.example.com/osm";
    let (seed, a) = tokio::try_join!(user_cluster(), user_cluster())?;
    let person = Person::new(vec![("seed", &seed), ("user-a", &a)]).await?;
    let (of_fleet, page) = (read("fleet.md")?, read("two-clusters.md")?);
    person.run(SINGLE).await?;
    let installation = Installation {
        namespace: "own".to_owned(),
        ..Installation::default()
    };
    let own = start(&seed, "own", installation).await?;
    pool(&seed, "one").await?;
    published(&seed, &own, "one").await?;
    let of_seed = versions(&seed).await?;

    let install = section(&of_fleet, "Install the release")?;
    let without_definitions =
        install.replacen("topology: fleet", "topology: fleet\ncrds: {enabled: false}", 1);
    person.run(&without_definitions).await?;
    let fleet = start_fleet(&seed).await?;
    let printed = person.run(&section(&page, "Kubeconfigs of your own")?).await?;
    assert_eq!(printed.matches("which expires at 2").count(), 4, "{printed}");
    let before = kubeconfigs(&seed, "cluster-a").await?;
    for text in &before {
        let config: Value = serde_json::from_str(text)?;
        let token = config["users"][0]["user"]["token"].as_str().context("a token")?;
        ensure!(!printed.contains(token), "a credential is printed");
    }
    let dry_run = "osmctl kubeconfigs --context seed -n cluster-a --worker-context user-a --worker-namespace osm --renewal --dry-run";
    let printed = person.run(dry_run).await?;
    assert_eq!(printed.matches("would get a kubeconfig").count(), 4, "{printed}");
    assert_eq!(kubeconfigs(&seed, "cluster-a").await?, before);
    let add = section_blocks(&of_fleet, "Add a cluster", "sh")?;
    let served = person.run(add.last().context("a block")?).await;
    served.map_err(|error| error.context(fleet.logs()))?;
    pool(&a, "one").await?;
    published(&a, &fleet, "one").await?;
    let (succeeds, printed) = renew(&seed).await?;
    ensure!(succeeds, "{printed}");
    assert_eq!(printed.matches("which expires at").count(), 4, "{printed}");

    person.run(&section(&page, "Upgrade")?).await?;
    let of_cluster = versions(&a).await?;
    person.run(&section(&page, "Uninstall")?).await?;
    let left: Api<Deployment> = in_seed(&seed, NAMESPACE)?;
    ensure!(left.list(&ListParams::default()).await?.items.is_empty());
    assert_eq!(versions(&a).await?, of_cluster);
    assert_eq!(versions(&seed).await?, of_seed);
    pool(&seed, "two").await?;
    published(&seed, &own, "two").await?;
    Ok(())
}
