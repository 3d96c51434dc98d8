//! The chart on a real API server: installed, upgraded, rolled back and uninstalled, over existing objects.
//! The services run as the ServiceAccounts of the release, with the rights that it
//! gives them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use osm_api::MachineDeployment;
use osm_api::config::OperatingSystemConfig;
use osm_api::definitions;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Installation;
use osm_testkit::fixtures;
use osm_testkit::helm::{Helm, REGISTRY, chart};
use osm_testkit::installation::{self, Installed};
use osm_testkit::machine_controller;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::json;

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(180);

fn installation_in(namespace: &str) -> Installation {
    Installation {
        namespace: namespace.to_owned(),
        ..Installation::default()
    }
}

/// What every cluster of machine-controller has.
pub async fn furnish(control_plane: &ControlPlane) -> Result<()> {
    control_plane.install_machine_deployment_crd().await?;
    let info = installation::cluster_info(control_plane.ca_pem(), &control_plane.url());
    installation::apply(control_plane, &[info]).await
}

pub async fn namespace(control_plane: &ControlPlane, name: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    installation::apply(control_plane, &[object]).await
}

/// Runs helm with the chart: `install`, release and namespace, and what else there is to say.
pub async fn with_chart(
    helm: &Helm,
    verb: &str,
    release: &str,
    namespace: &str,
    more: &[&str],
) -> Result<String> {
    let chart = chart().display().to_string();
    let registry = format!("--set=image.registry={REGISTRY}");
    let arguments = [verb, release, &chart, "--namespace", namespace, &registry];
    helm.run([&arguments, more].concat()).await
}

/// A pool that uses one of the default profiles, at a revision, in the worker cluster.
pub async fn pool(worker: &ControlPlane, name: &str) -> Result<()> {
    let mut pool = fixtures::machine_deployment(name, "osp-ubuntu");
    pool["metadata"]["annotations"][names::REVISION] = json!("1");
    installation::apply(worker, &[pool]).await
}

/// Waits until machine-controller could make a machine; gives the bootstrap Secret.
pub async fn published(worker: &ControlPlane, installed: &Installed, pool: &str) -> Result<Secret> {
    let secrets: Api<Secret> = Api::namespaced(worker.admin()?, CLOUD_INIT_SETTINGS);
    let name = names::bootstrap_secret_name(pool, "kube-system");
    let what = format!("{pool} to be published");
    let found = wait_for(&what, DEADLINE, async || {
        let secret = secrets.get(&name).await?;
        machine_controller::user_data(&secret, "1", "machine")?;
        Ok(Some(secret))
    });
    found.await.map_err(|error| error.context(installed.logs()))
}

fn config(client: Client, namespace: &str) -> Api<OperatingSystemConfig> {
    Api::namespaced(client, namespace)
}

/// Waits until a pool's config speaks of this, or no longer does.
async fn config_says(client: &Client, place: (&str, &str), word: &str, says: bool) -> Result<()> {
    let (namespace, pool) = place;
    let configs = config(client.clone(), namespace);
    wait_for(
        &format!("{word} in the config of {pool}: {says}"),
        DEADLINE,
        async || {
            let found = configs.get(&names::config_name(pool, "kube-system")).await?;
            check(fixtures::with_documents(&found)?.contains(word) == says)
        },
    )
    .await
}

/// Names of all that a release has made, of kinds that hold rights or run.
async fn made_by(client: &Client, release: &str) -> Result<Vec<String>> {
    async fn of<K>(client: &Client, release: &str) -> Result<Vec<String>>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        let labels = ListParams::default().labels(&format!("app.kubernetes.io/instance={release}"));
        let found = Api::<K>::all(client.clone()).list(&labels).await?;
        let name = |object: &K| {
            format!(
                "{} {}/{}",
                K::kind(&()),
                object.namespace().unwrap_or_default(),
                object.name_any()
            )
        };
        Ok(found.items.iter().map(name).collect())
    }
    let mut all = of::<Role>(client, release).await?;
    all.extend(of::<RoleBinding>(client, release).await?);
    all.extend(of::<ClusterRole>(client, release).await?);
    all.extend(of::<ClusterRoleBinding>(client, release).await?);
    all.extend(of::<ServiceAccount>(client, release).await?);
    all.extend(of::<Namespace>(client, release).await?);
    all.extend(of::<CustomResourceDefinition>(client, release).await?);
    all.extend(of::<k8s_openapi::api::core::v1::ConfigMap>(client, release).await?);
    all.extend(of::<k8s_openapi::api::core::v1::Service>(client, release).await?);
    all.extend(of::<k8s_openapi::api::apps::v1::Deployment>(client, release).await?);
    all.extend(of::<ValidatingAdmissionPolicy>(client, release).await?);
    all.extend(of::<ValidatingAdmissionPolicyBinding>(client, release).await?);
    all.sort();
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_installed_changed_rolled_back_and_uninstalled() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let (client, helm) = (control_plane.admin()?, Helm::new(&control_plane).await?);
    furnish(&control_plane).await?;

    with_chart(&helm, "install", "osm", "osm", &["--create-namespace"]).await?;
    let notes = with_chart(&helm, "upgrade", "osm", "osm", &[]).await?;
    for word in [
        "NOTES:\n`osmctl status -n osm` shows",
        "kubectl -n osm get osp",
        "There is nothing to select",
        "The settings are the defaults",
        "helm uninstall osm -n osm",
    ] {
        ensure!(notes.contains(word), "{word:?} is not in {notes}");
    }
    let binaries = installation::binaries()?;
    let mut installed = Installed::by_chart(&control_plane, installation_in("osm"), "osm", &binaries).await?;
    installed.start_all().await?;
    // Which says that every right of the table is there.
    installed.ready(DEADLINE).await?;
    pool(&control_plane, "one").await?;
    published(&control_plane, &installed, "one").await?;

    // Settings reach configs without a restart, and go the same way back.
    let image = "registry.example.com/pause:9";
    let set = format!("--set=settings.pauseImage={image}");
    with_chart(
        &helm,
        "upgrade",
        "osm",
        "osm",
        &[&set, "--set=commonLabels.newer=yes"],
    )
    .await?;
    config_says(&client, ("osm", "one"), image, true).await?;
    let newer = ListParams::default().labels("newer=yes");
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    assert_eq!(definitions.list(&newer).await?.items.len(), 3);
    helm.run(["rollback", "osm", "2", "--namespace", "osm"]).await?;
    config_says(&client, ("osm", "one"), image, false).await?;
    // So do the definitions, as the pages say.
    ensure!(
        definitions.list(&newer).await?.items.is_empty(),
        "newer definitions"
    );
    let sentence = "If they become older later, as by `helm rollback` of their release";
    ensure!(crate::page::read("limits.md")?.contains(sentence), "{sentence}");

    drop(installed);
    let before: Vec<String> = secrets(&client).await?;
    let said = helm.run(["uninstall", "osm", "--namespace", "osm"]).await?;
    ensure!(said.contains("cloud-init-settings"), "{said}");
    let left = made_by(&client, "osm").await?;
    assert_eq!(
        left,
        [
            "CustomResourceDefinition /operatingsystemconfigs.operatingsystemmanager.k8c.io",
            "CustomResourceDefinition /operatingsystemprofiles.operatingsystemmanager.k8c.io",
            "CustomResourceDefinition /workerclusters.operatingsystemmanager.k8c.io",
            "Namespace /cloud-init-settings",
        ]
    );
    // What machines on their way read is there, and so is what is known of pools.
    assert_eq!(secrets(&client).await?, before);
    config(client.clone(), "osm")
        .get(&names::config_name("one", "kube-system"))
        .await?;

    // The same release takes up what it has left.
    with_chart(&helm, "install", "osm", "osm", &[]).await?;
    let mut installed = Installed::by_chart(&control_plane, installation_in("osm"), "osm", &binaries).await?;
    installed.start_all().await?;
    installed.ready(DEADLINE).await?;
    pool(&control_plane, "two").await?;
    published(&control_plane, &installed, "two").await?;
    Ok(())
}

async fn secrets(client: &Client) -> Result<Vec<String>> {
    let all = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS)
        .list(&ListParams::default())
        .await?;
    Ok(all
        .items
        .iter()
        .map(|secret| format!("{} {}", secret.name_any(), secret.uid().unwrap_or_default()))
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_installed_beside_the_upstream_osm() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let helm = Helm::new(&control_plane).await?;
    namespace(&control_plane, "osm").await?;
    let labels = json!({"app": "operating-system-manager"});
    let containers =
        json!([{"name": "osm", "image": "registry.example.com/operating-system-manager:v1.11.1"}]);
    let go = |replicas: u32| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "operating-system-manager", "namespace": "kube-system"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}})
    };
    installation::apply(&control_plane, &[go(1)]).await?;
    // Who is refused of those that ask the server.
    let refused = async |release: &str, namespace: &str, topology: &str| -> Result<Vec<&str>> {
        let topology = format!("--set=crds.enabled=false,topology={topology}");
        let mut refused = Vec::new();
        for (verb, install) in [
            ("install", None),
            ("upgrade", Some("--install")),
            ("template", None),
        ] {
            let mut words = vec!["--dry-run=server", &topology];
            words.extend(install);
            let Err(error) = with_chart(&helm, verb, release, namespace, &words).await else {
                continue;
            };
            let error = format!("{error:#}");
            ensure!(
                error.contains("Deployment kube-system/operating-system-manager")
                    && error.contains("osmctl migrate script"),
                "{error}"
            );
            refused.push(verb);
        }
        Ok(refused)
    };
    for topology in ["single", "worker"] {
        assert_eq!(
            refused("osm", "osm", topology).await?,
            ["install", "upgrade", "template"]
        );
    }
    with_chart(&helm, "install", "osm", "osm", &["--dry-run=client"]).await?;
    with_chart(&helm, "template", "osm", "osm", &[]).await?;
    // An installer may keep what it has stopped.
    installation::apply(&control_plane, &[go(0)]).await?;
    ensure!(refused("osm", "osm", "single").await?.is_empty());

    // A second release in the namespace would serve the same pools. What another chart has there is no
    // release of ours.
    let labels = json!({"app.kubernetes.io/name": "other", "app.kubernetes.io/instance": "other", "app.kubernetes.io/component": "osc-controller"});
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other", "namespace": "osm", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}});
    installation::apply(&control_plane, &[other]).await?;
    with_chart(&helm, "install", "one", "osm", &[]).await?;
    let second = ["--set=crds.enabled=false,settingsConfigMap.name=settings-of-two"];
    let refusal = with_chart(&helm, "install", "two", "osm", &second).await.err();
    let refusal = format!("{:#}", refusal.context("both are installed")?);
    ensure!(
        refusal
            .contains("namespace osm has release one, which serves the same MachineDeployments and profiles"),
        "{refusal}"
    );
    let second = [&["--create-namespace"], &second[..]].concat();
    with_chart(&helm, "install", "two", "another", &second).await?;

    // A release that exists is never refused: one without Deployments, one that is stopped, and one whose
    // installation broke off.
    let worker = ["--create-namespace", "--set=topology=worker"];
    with_chart(&helm, "install", "worker", "worker", &worker).await?;
    let stop = ["ospController", "oscController", "secretSyncer", "csrApprover"];
    let stop = stop.map(|key| format!("--set={key}.replicas=0"));
    with_chart(
        &helm,
        "upgrade",
        "one",
        "osm",
        &stop.each_ref().map(String::as_str),
    )
    .await?;
    let mistake = "--set=secretSyncer.resources.requests.cpu=2,secretSyncer.resources.limits.cpu=1";
    let third = [&second[..], &[mistake]].concat();
    ensure!(
        with_chart(&helm, "install", "three", "third", &third)
            .await
            .is_err()
    );
    installation::apply(&control_plane, &[go(1)]).await?;
    let existing = [
        ("worker", "worker", "worker"),
        ("one", "osm", "single"),
        ("three", "third", "single"),
    ];
    for (release, namespace, topology) in existing {
        assert_eq!(refused(release, namespace, topology).await?, [""; 0], "{release}");
    }
    // The history of one that is uninstalled may stay.
    helm.run(["uninstall", "worker", "--keep-history", "--namespace", "worker"])
        .await?;
    assert_eq!(
        refused("worker", "worker", "worker").await?,
        ["install", "upgrade", "template"]
    );
    Ok(())
}

/// Marks the definitions that exist as those of a release, as the script of `osmctl migrate` does.
async fn adopt(definitions: &Api<CustomResourceDefinition>, release: &str) -> Result<()> {
    let marks = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "osm"}}});
    for ours in definitions.list_metadata(&ListParams::default()).await? {
        let marks = Patch::Merge(&marks);
        definitions
            .patch(&ours.name_any(), &PatchParams::default(), &marks)
            .await?;
    }
    Ok(())
}

/// One release of a seed has the definitions, others use them. It adopts those of the upstream OSM, which
/// kubectl has applied.
#[tokio::test(flavor = "multi_thread")]
async fn one_release_has_the_definitions_with_either_version_of_helm() -> Result<()> {
    for is_helm_4 in [false, true] {
        let control_plane = ControlPlane::start(Options::default()).await?;
        let helm = if is_helm_4 {
            Helm::version_4(&control_plane).await?
        } else {
            Helm::new(&control_plane).await?
        };
        // Helm 4 applies on the server, where another client has the fields. So the script passes this.
        let client_side: &[&str] = if is_helm_4 { &["--server-side=false"] } else { &[] };
        let definitions = Api::<CustomResourceDefinition>::all(control_plane.admin()?);
        let theirs = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/go-shaped.yaml");
        control_plane
            .apply_yaml(&std::fs::read_to_string(theirs)?)
            .await?;
        let only = [&["--create-namespace", "--set=topology=crds"], client_side].concat();
        let Err(error) = with_chart(&helm, "install", "crds", "osm", &only).await else {
            anyhow::bail!("definitions of others are overwritten")
        };
        ensure!(
            format!("{error:#}").contains("invalid ownership metadata"),
            "{error:#}"
        );
        adopt(&definitions, "crds").await?;
        with_chart(
            &helm,
            "upgrade",
            "crds",
            "osm",
            &[&["--install"], &only[..]].concat(),
        )
        .await?;
        are_ours(&definitions).await?;

        let Err(error) = with_chart(&helm, "install", "one", "osm", &[]).await else {
            anyhow::bail!("two releases have the same definitions")
        };
        ensure!(
            format!("{error:#}").contains("invalid ownership metadata"),
            "{error:#}"
        );
        with_chart(&helm, "install", "one", "osm", &["--set=crds.enabled=false"]).await?;
        with_chart(
            &helm,
            "upgrade",
            "one",
            "osm",
            &["--set=crds.enabled=false,oscController.replicas=2"],
        )
        .await?;
        helm.run(["rollback", "one", "--namespace", "osm"]).await?;
        helm.run(["uninstall", "one", "--namespace", "osm"]).await?;
        with_chart(&helm, "upgrade", "crds", "osm", &["--set=topology=crds"]).await?;
        helm.run(["rollback", "crds", "--namespace", "osm"]).await?;
        are_ours(&definitions).await?;
        // They stay, and the same release takes them up again.
        helm.run(["uninstall", "crds", "--namespace", "osm"]).await?;
        are_ours(&definitions).await?;
        with_chart(&helm, "install", "crds", "osm", &["--set=topology=crds"]).await?;
        // Helm refuses a release above this size, as JSON in base64.
        let releases = Api::<Secret>::namespaced(control_plane.admin()?, "osm");
        for release in releases.list(&ListParams::default()).await? {
            let stored = release.data.iter().flatten().map(|(_, value)| value.0.len());
            let size: usize = stored.sum();
            ensure!(
                size < (1 << 20) / 4,
                "{} has {size} bytes",
                release.metadata.name.unwrap_or_default()
            );
        }
    }
    Ok(())
}

/// All definitions have what this version needs.
async fn are_ours(definitions: &Api<CustomResourceDefinition>) -> Result<()> {
    for ours in definitions::all() {
        let found = definitions.get(&ours.name_any()).await?;
        let needs = |definition: &CustomResourceDefinition| -> Vec<_> {
            let versions = definition.spec.versions.iter();
            versions
                .map(|version| (version.schema.clone(), version.subresources.clone()))
                .collect()
        };
        ensure!(needs(&found) == needs(&ours), "{}", ours.name_any());
    }
    Ok(())
}

/// In the worker cluster, as in a single one.
#[tokio::test(flavor = "multi_thread")]
async fn the_policy_refuses_new_machine_deployments_elsewhere_and_nothing_else() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let (client, helm) = (control_plane.admin()?, Helm::new(&control_plane).await?);
    furnish(&control_plane).await?;
    for name in ["machines", "b-machines", "b-kube-system"] {
        namespace(&control_plane, name).await?;
    }
    let of = |namespace: &str| Api::<MachineDeployment>::namespaced(client.clone(), namespace);
    let md = |name: &str| -> Result<MachineDeployment> {
        let mut md = fixtures::machine_deployment(name, "osp-ubuntu");
        md["metadata"]["namespace"].take();
        Ok(serde_json::from_value(md)?)
    };
    let (create, dry_run) = (
        PostParams::default(),
        PostParams {
            dry_run: true,
            ..PostParams::default()
        },
    );
    let elsewhere = of("b-kube-system");
    for name in ["existing", "second"] {
        elsewhere.create(&create, &md(name)?).await?;
    }

    let worker = ["--create-namespace", "--set=topology=worker"];
    let policy =
        "--set=admissionPolicy.enabled=true,machineDeploymentNamespaces={kube-system,machines,b-machines}";
    with_chart(&helm, "install", "osm", "osm", &[&worker[..], &[policy]].concat()).await?;
    let refused = wait_for("the policy to be in force", DEADLINE, async || {
        match elsewhere.create(&dry_run, &md("new")?).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(status)),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    assert_eq!(refused.code, 403, "{refused:?}");
    for words in [
        "only in these namespaces: kube-system, machines, b-machines;",
        "release osm in namespace osm",
    ] {
        ensure!(refused.message.contains(words), "{refused:?}");
    }
    for (served, name) in [
        ("kube-system", "new-b"),
        ("machines", "new"),
        ("b-machines", "new"),
    ] {
        of(served).create(&create, &md(name)?).await?;
    }
    // Which would find the user data of `new` in `b-machines`.
    let refused = of("machines").create(&create, &md("new-b")?).await;
    let refused = refused.err().context("names run together")?.to_string();
    ensure!(
        refused.contains("must not have names that end in -b,"),
        "{refused}"
    );
    // What is there can be changed, by apply as well, replaced and deleted.
    let revision = json!({"metadata": {"annotations": {names::REVISION: "7"}}});
    let patched = elsewhere
        .patch("existing", &PatchParams::default(), &Patch::Merge(&revision))
        .await?;
    elsewhere.replace("existing", &create, &patched).await?;
    let mut applied = fixtures::machine_deployment("existing", "osp-other");
    applied["metadata"]["namespace"] = json!("b-kube-system");
    installation::apply(&control_plane, &[applied]).await?;
    elsewhere.delete("existing", &DeleteParams::default()).await?;
    wait_for("the MachineDeployment to go", DEADLINE, async || {
        check(elsewhere.get_opt("existing").await?.is_none())
    })
    .await?;

    // The policy goes with the value that asks for it.
    with_chart(&helm, "upgrade", "osm", "osm", &["--set=topology=worker"]).await?;
    wait_for("the policy to go", DEADLINE, async || {
        check(elsewhere.create(&dry_run, &md("new")?).await.is_ok())
    })
    .await?;
    let left = made_by(&client, "osm").await?;
    // The policies about requests for certificates, bindings and Leases do not depend on the value.
    let kept = [".requests", ".bindings", ".leases"];
    let is_left = |name: &String| name.contains("Admission") && !kept.iter().any(|kept| name.ends_with(kept));
    ensure!(!left.iter().any(is_left), "{left:?}");
    Ok(())
}
