//! The page on fleets: its commands install one, add and remove a cluster, and move a cluster there from a
//! release of its own and back. The CronJob of the chart renews the kubeconfigs with the permissions that the
//! chart gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS, KUBECONFIG_KEY, worker_kubeconfig};
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_api::worker_cluster::WorkerCluster;
use osm_testkit::helm::Helm;
use osm_testkit::installation::{self, Installed};
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::{Value, json};

use crate::installing::{furnish, pool, published};
use crate::page::{Person, read, section, section_blocks};

const DEADLINE: Duration = Duration::from_secs(180);

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

/// The services of a release, which don't run yet.
async fn services(clusters: &[(&ControlPlane, &[ClusterKind])], namespace: &str) -> Result<Installed> {
    let installation = Installation {
        namespace: namespace.to_owned(),
        fleet: namespace == NAMESPACE,
        ..Installation::default()
    };
    Installed::by_chart(clusters, installation, "osm", &installation::binaries()?).await
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

/// Both take the permissions from one table. The chart does not know whether a fleet serves the cluster, and so
/// has those of either case.
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
    for (name, applied) in applied {
        let mut rendered = rendered.remove(&name).context("an object")?;
        if let (Some(ours), Some(rules)) = (applied["rules"].as_array(), rendered["rules"].as_array()) {
            let unknown: Vec<_> = ours.iter().filter(|rule| !rules.contains(rule)).collect();
            ensure!(unknown.is_empty() && !ours.is_empty(), "{name}: {unknown:?}");
            rendered["rules"] = applied["rules"].clone();
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
    let mut installed = services(&[(&seed, &ClusterKind::ALL)], NAMESPACE).await?;
    installed.start_all().await?;
    let add = section(&page, "Add a cluster")?;
    let serves = |error: anyhow::Error| error.context(installed.logs());
    person.run(&add).await.map_err(serves)?;
    let b_as_well = add.replace("cluster-a", "cluster-b").replace("user-a", "user-b");
    let printed = person.run(&b_as_well).await.map_err(serves)?;
    let is_served = |line: &str| line.split_whitespace().skip(1).eq(["0/0", "-", "-", "-"]);
    ensure!(
        printed.lines().filter(|line| is_served(line)).count() == 2,
        "{printed}"
    );
    pool(&a, "one").await?;
    published(&a, &installed, "one").await?;
    osmctl_reads_a_cluster_of_a_fleet(&person).await?;

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
            a.contains(" 1/1 ") && a.split_whitespace().nth(2).is_some_and(|at| at.ends_with('Z'));
        check(is_published && b.contains(" Joining: Kubeconfig") && b.contains("worker-csr-approver"))
    })
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

    let before = versions(&a).await?;
    person.run(&section(&page, "Remove a cluster")?).await?;
    ends_to_serve(&installed, "cluster-a").await?;
    assert_eq!(versions(&a).await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_from_a_release_to_a_fleet_and_back_and_no_user_data_changes() -> Result<()> {
    const RELEASE: &str = "
        chart=./charts/operating-system-manager
        helm install osm-crds $chart --kube-context seed --namespace osm-crds --create-namespace --set topology=crds
        helm install osm $chart --kube-context user-a --namespace cluster-a --create-namespace --set topology=worker
        kubectl create namespace cluster-a --context seed
        osmctl kubeconfigs --context seed --namespace cluster-a --worker-context user-a
        helm install osm $chart --kube-context seed --namespace cluster-a --values - <<'EOT'
topology: management
crds: {enabled: false}
image: {registry: registry.example.com/osm}
settings:
  cluster: {dnsIPs: [10.20.0.10]}
  pauseImage: registry.example.com/pause:1
workerCluster:
  kubeconfigs:
    oscController: {secret: worker-osc-controller}
    secretSyncer: {secret: worker-secret-syncer}
    csrApprover: {secret: worker-csr-approver}
EOT";
    let (seed, a) = tokio::try_join!(ControlPlane::start(Options::default()), user_cluster())?;
    let person = Person::new(vec![("seed", &seed), ("user-a", &a)]).await?;
    let page = read("fleet.md")?;
    person.run(RELEASE).await?;
    let of_release = [
        (&seed, &[ClusterKind::Management][..]),
        (&a, &[ClusterKind::Worker][..]),
    ];
    let mut release = services(&of_release, "cluster-a").await?;
    release.start_all().await?;
    pool(&a, "one").await?;
    published(&a, &release, "one").await?;
    let (observer, before) = (SecretWatch::start(a.admin()?).await?, versions(&a).await?);

    let install = section(&page, "Install the release")?;
    let without_definitions =
        install.replacen("topology: fleet", "topology: fleet\ncrds: {enabled: false}", 1);
    person.run(&without_definitions).await?;
    let mut fleet = services(&[(&seed, &ClusterKind::ALL)], NAMESPACE).await?;
    fleet.start_all().await?;
    let there = section_blocks(&page, "From one release", "sh")?;
    let [stop, register, uninstall, back] = &*there else {
        anyhow::bail!("{there:?}")
    };
    person.run(stop).await?;
    for service in Service::ALL {
        release.terminate(service, DEADLINE).await?;
    }
    person.run(register).await?;
    let registered = in_seed::<WorkerCluster>(&seed, "cluster-a")?
        .get(names::WORKER_CLUSTER)
        .await?;
    assert_eq!(registered.spec.installation.as_deref(), Some("cluster-a"));
    let add = section_blocks(&page, "Add a cluster", "sh")?;
    let served = person.run(add.last().context("a block")?).await;
    served.map_err(|error| error.context(fleet.logs()))?;
    pool(&a, "two").await?;
    published(&a, &fleet, "two").await?;
    person.run(uninstall).await?;
    let unchanged = async |after: &str| -> Result<()> {
        let mut now = versions(&a).await?;
        now.retain(|name, _| before.contains_key(name));
        ensure!(now == before, "{after}: {before:?}, now {now:?}");
        Ok(())
    };
    unchanged("there").await?;

    person.run(back).await?;
    ends_to_serve(&fleet, "cluster-a").await?;
    let mut release = services(&of_release, "cluster-a").await?;
    release.start_all().await?;
    pool(&a, "three").await?;
    published(&a, &release, "three").await?;
    unchanged("back").await?;
    ensure!(observer.absent().is_empty(), "{:?}", observer.absent());
    for pool in ["one", "two"] {
        let name = names::bootstrap_secret_name(pool, "kube-system");
        assert_eq!(observer.history(&name).len(), 1, "{pool}");
    }
    Ok(())
}
