//! The page on KubeOne: its commands, and what `kubeone apply` does with the release of its manifest.
//!
//! The newest KubeOne is its own code, see `e2e/helm/kubeone`. Of older releases, which call Helm in other
//! ways, the calls are repeated. All of them are in pkg/localhelm/helm3.go of github.com/kubermatic/kubeone.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_judges::packages;
use osm_testkit::helm::{self, Helm, chart};
use osm_testkit::rollout::roll_out;
use osm_testkit::upstream_osm::UpstreamOsm;
use osm_testkit::{ControlPlane, Options, check, fixtures, installation, wait_for};
use serde_json::{Value, json};

use crate::page::{DEADLINE, FIXTURES, Person, blocks, read, section_blocks};

/// The chart's address on the page.
const CHART: &str = "oci://registry.example.com/osm/charts/operating-system-manager";

/// How the page has a release removed.
const UNINSTALL: &str = "helm uninstall osm -n kube-system";

/// What every manifest needs besides, for a cluster without machines.
const MACHINES: &str = "
name: test
versions: {kubernetes: 1.36.0}
cloudProvider: {none: {}}
apiEndpoint: {host: 127.0.0.1}
controlPlane:
  hosts: [{publicAddress: 127.0.0.1, privateAddress: 127.0.0.1, sshUsername: nobody, sshAgentSocket: /dev/null}]
";

/// Releases of KubeOne that treat a release of Helm alike.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Family {
    /// 1.13.6, 1.14.1 and newer. `upgradeRelease` in v1.13.6 and v1.14.2 compares the manifest with that of
    /// an installation with `DryRunServer`, and upgrades with `ResetThenReuseValues`. Helm 4 is in the
    /// program, and calls itself `kubeone`.
    Newest,
    /// 1.12.4 to 1.13.5 contain Helm 3. In v1.12.4 and v1.13.5, `helmReleasesEqual` also compares values,
    /// with an installation with `DryRun` alone, which asks no server. Upgrades are with `ResetValues`.
    Helm3,
    /// 1.14.0, with Helm 4: v1.14.0 compares the manifest with that of an installation with `DryRunClient`.
    /// This replaces the storage in the configuration that the upgrade uses next (`RunWithContext` in
    /// pkg/action/install.go of Helm 4.2.2), so that it finds no release.
    ClientDryRun,
}

/// What `kubeone apply` has done with the release.
#[derive(Debug, PartialEq)]
enum Done {
    Installed,
    Skipped,
    Upgraded,
    /// It is not in the manifest.
    Nothing,
}

/// `kubeone apply` in the folder of the manifest, which also has the values.
struct KubeOne<'a> {
    plane: &'a ControlPlane,
    folder: PathBuf,
    program: PathBuf,
    family: Family,
    helm: Helm,
}

impl<'a> KubeOne<'a> {
    /// Writes the manifest of the page, with the chart of this tree.
    async fn new(plane: &'a ControlPlane, folder: &Path, family: Family) -> Result<Self> {
        let manifests = blocks(&read("kubeone.md")?, "yaml");
        let manifest = manifests
            .iter()
            .find(|block| block.contains("kind: KubeOneCluster"));
        // KubeOne finds the name of a chart in a folder by `chart`, that of one in a registry is `chart`
        // itself.
        let name = "chart: operating-system-manager ";
        let manifest = manifest.context("a manifest")?;
        ensure!(manifest.contains(name) && manifest.contains(CHART), "{manifest}");
        let here = chart().display().to_string();
        let manifest = manifest
            .replace(name, &format!("chart: {here} "))
            .replace(CHART, &here);
        std::fs::write(folder.join("kubeone.yaml"), manifest + MACHINES)?;
        Ok(Self {
            plane,
            folder: folder.to_owned(),
            program: helm::kubeone(|line| eprintln!("{line}")).await?,
            family,
            helm: match family {
                Family::Helm3 => Helm::new(plane).await?,
                _ => Helm::version_4(plane).await?.named("kubeone")?,
            },
        })
    }

    async fn apply(&self) -> Result<Done> {
        tokio::select! {
            done = self.apply_with(self.family != Family::Helm3) => done,
            problem = roll_out(self.plane.admin()?) => bail!("no node any more: {problem:?}"),
        }
    }

    /// Helm 3 waits for ReplicaSets, which nothing creates here. So it has to wait only where that is
    /// interrupted.
    async fn apply_with(&self, wait: bool) -> Result<Done> {
        if self.family != Family::Newest {
            return self.call_helm(wait).await;
        }
        let mut command = tokio::process::Command::new(&self.program);
        command
            .arg("kubeone.yaml")
            .current_dir(&self.folder)
            .env("KUBECONFIG", self.plane.admin_kubeconfig_path())
            .env("HOME", &self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        let says = |words: &str| said.contains(words);
        Ok(match () {
            () if says("Skip upgrading helm chart") => Done::Skipped,
            () if says("Upgrading helm chart") => Done::Upgraded,
            () if says("Deploying helm chart") => Done::Installed,
            () => Done::Nothing,
        })
    }

    /// What the older releases do.
    async fn call_helm(&self, wait: bool) -> Result<Done> {
        let wait = format!("--wait={wait}");
        let (chart, values) = (chart(), self.folder.join("osm-values.yaml"));
        let (chart, values) = (chart.display().to_string(), values.display().to_string());
        let release = ["osm", &chart, "--namespace=kube-system", "--values", &values];
        let call = async |words: &[&str]| self.helm.run([words, &release[..]].concat()).await;
        let get = async |words: &[&str]| {
            let place = ["osm", "--namespace=kube-system"];
            self.helm.run([&["get"], words, &place[..]].concat()).await
        };
        if get(&["metadata"]).await.is_err() {
            call(&["install", "--create-namespace", &wait, "--timeout=10m"]).await?;
            return Ok(Done::Installed);
        }
        let planned = call(&["install", "--dry-run=client", "--output=json"]).await?;
        let planned: Value = serde_json::from_str(&planned)?;
        let values: Value = serde_json::from_str(&get(&["values", "--output=json"]).await?)?;
        // `cleanManifest`
        let clean = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.collect::<Vec<_>>().join("\n").trim().to_owned()
        };
        let manifest = planned["manifest"].as_str().context("a manifest")?;
        let has_values = self.family != Family::Helm3 || planned["config"] == values;
        if has_values && clean(manifest) == clean(&get(&["manifest"]).await?) {
            return Ok(Done::Skipped);
        }
        ensure!(
            self.family != Family::ClientDryRun,
            "\"osm\" has no deployed releases"
        );
        call(&[
            "upgrade",
            "--install",
            "--reset-values",
            "--history-max=5",
            &wait,
            "--timeout=10m",
        ])
        .await?;
        Ok(Done::Upgraded)
    }

    /// Writes the values of the page, and more.
    fn values(&self, more: &str) -> Result<()> {
        let values = section_blocks(&read("kubeone.md")?, "A new cluster", "yaml")?;
        let values = values.first().context("values")?;
        Ok(std::fs::write(
            self.folder.join("osm-values.yaml"),
            format!("{values}\n{more}\n"),
        )?)
    }
}

/// More values, within the `settings` of the page.
const PAUSE_IMAGE: &str = "  pauseImage: registry.example.com/pause:9";

async fn deployments(plane: &ControlPlane) -> Result<Vec<Deployment>> {
    let deployments = Api::<Deployment>::namespaced(plane.admin()?, "kube-system");
    Ok(deployments.list(&ListParams::default()).await?.items)
}

/// The settings that are installed.
async fn settings(plane: &ControlPlane) -> Result<String> {
    let maps = Api::<ConfigMap>::namespaced(plane.admin()?, "kube-system");
    Ok(format!("{:?}", maps.get("osm-settings").await?.data))
}

/// What an error says.
fn refusal<T>(result: Result<T>, words: &str) -> Result<()> {
    let error = format!("{:#}", result.err().context("it succeeds")?);
    ensure!(error.contains(words), "{error}");
    Ok(())
}

/// A first installation that breaks off is never completed, whatever KubeOne says, until the release is
/// removed.
async fn break_off_the_first_installation(kubeone: &KubeOne<'_>, person: &Person<'_>) -> Result<()> {
    // The API server refuses one Deployment of four.
    kubeone.values("secretSyncer: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}}")?;
    refusal(kubeone.apply().await, "osm-secret-syncer")?;
    assert_eq!(kubeone.apply().await?, Done::Skipped);
    assert_eq!(deployments(kubeone.plane).await?.len(), Service::ALL.len() - 1);
    person.run(UNINSTALL).await?;

    // Someone presses Ctrl-C while it waits.
    kubeone.values("")?;
    let is_there = async || check(deployments(kubeone.plane).await?.len() == Service::ALL.len());
    tokio::select! {
        done = kubeone.apply_with(true) => bail!("it doesn't wait: {done:?}"),
        waited = wait_for("the Deployments", DEADLINE, is_there) => waited?,
    }
    assert_eq!(kubeone.apply().await?, Done::Skipped);
    kubeone.values(PAUSE_IMAGE)?;
    ensure!(kubeone.apply().await.is_err(), "the release is upgraded");
    person.run(UNINSTALL).await?;
    kubeone.values("")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_cluster_gets_osm_as_the_page_on_kubeone_says() -> Result<()> {
    tokio::task::spawn_blocking(|| packages::ensure(&["jq"])).await??;
    let page = read("kubeone.md")?;
    ensure!(page.contains(UNINSTALL), "{UNINSTALL}");
    let cluster = ControlPlane::start(Options::default()).await?;
    // The addon of machine-controller comes first.
    cluster.install_machine_deployment_crd().await?;
    let mut person = Person::new(vec![("cluster", &cluster)]).await?;
    person.environment.insert("CHART", chart().display().to_string());
    for family in [Family::Helm3, Family::ClientDryRun, Family::Newest] {
        let kubeone = KubeOne::new(&cluster, person.folder.path(), family).await?;
        break_off_the_first_installation(&kubeone, &person)
            .await
            .with_context(|| format!("{family:?}"))?;
        assert_eq!(kubeone.apply().await?, Done::Installed, "{family:?}");
        assert_eq!(deployments(&cluster).await?.len(), Service::ALL.len());
        ensure!(settings(&cluster).await?.contains("169.254.20.10"));
        assert_eq!(kubeone.apply().await?, Done::Skipped, "{family:?}");

        kubeone.values(PAUSE_IMAGE)?;
        match family {
            Family::ClientDryRun => refusal(kubeone.apply().await, "no deployed releases")?,
            _ => assert_eq!(kubeone.apply().await?, Done::Upgraded, "{family:?}"),
        }
        assert_eq!(
            settings(&cluster).await?.contains("pause:9"),
            family != Family::ClientDryRun,
            "{family:?}"
        );
        if family != Family::Newest {
            kubeone.values("")?;
            kubeone.apply().await?;
            ensure!(
                !settings(&cluster).await?.contains("pause:9"),
                "{family:?} keeps a value"
            );
            person.run(UNINSTALL).await?;
        }
    }
    let kubeone = KubeOne::new(&cluster, person.folder.path(), Family::Newest).await?;
    person
        .run(&section_blocks(&page, "A new cluster", "sh")?.join("\n"))
        .await?;

    // A value that is removed stays, until the command of the page.
    kubeone.values("")?;
    assert_eq!(kubeone.apply().await?, Done::Upgraded);
    ensure!(settings(&cluster).await?.contains("pause:9"), "the page is wrong");
    person.use_helm_4().await?;
    person
        .run(&section_blocks(&page, "Change values", "sh")?.join("\n"))
        .await?;
    ensure!(!settings(&cluster).await?.contains("pause:9"), "the value stays");
    kubeone.apply().await?;
    assert_eq!(kubeone.apply().await?, Done::Skipped);
    kubeone.values(PAUSE_IMAGE)?;
    assert_eq!(kubeone.apply().await?, Done::Upgraded);
    ensure!(settings(&cluster).await?.contains("pause:9"), "the value is lost");

    // A Secret for each host, of one with a key for each: without user name, with the key of 1.12 for all
    // hosts.
    let login = |name: &str| json!({"username": name, "password": "hunter2"}).to_string();
    let credentials = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "kubeone-registry-credentials", "namespace": "kube-system"},
        "stringData": {"docker.io": login("one"), "mirror.example.com": login("two"), "token.example.com": "{\"auth\": \"dG9rZW4=\"}"}});
    installation::apply(&cluster, &[credentials]).await?;
    person
        .run(&section_blocks(&page, "Registry credentials", "sh")?.join("\n"))
        .await?;
    let secrets = Api::<Secret>::namespaced(cluster.admin()?, CLOUD_INIT_SETTINGS);
    for (name, username) in [("docker-io", "one"), ("mirror-example-com", "two")] {
        let data = secrets.get(name).await?.data.context("data")?;
        assert_eq!(data["username"].0, username.as_bytes());
        assert_eq!(data["password"].0, b"hunter2");
    }
    ensure!(
        secrets.get_opt("token-example-com").await?.is_none(),
        "a login without a user"
    );
    is_removed_with_the_manifest(&kubeone).await
}

/// KubeOne uninstalls each revision, and finds no release after the first. What machines of OSM read outlives
/// the release.
async fn is_removed_with_the_manifest(kubeone: &KubeOne<'_>) -> Result<()> {
    let file = kubeone.folder.join("kubeone.yaml");
    let manifest = std::fs::read_to_string(&file)?;
    let start = manifest.find("helmReleases").context("releases")?;
    let end = manifest.find(MACHINES).context("machines")?;
    std::fs::write(&file, [&manifest[..start], &manifest[end..]].concat())?;
    refusal(kubeone.apply().await, "release: not found")?;
    assert_eq!(kubeone.apply().await?, Done::Nothing);
    ensure!(
        deployments(kubeone.plane)
            .await?
            .iter()
            .all(|one| !one.name_any().starts_with("osm-"))
    );
    let namespaces = Api::<Namespace>::all(kubeone.plane.admin()?);
    namespaces.get(CLOUD_INIT_SETTINGS).await?;
    Ok(())
}

/// The webhooks of the upstream OSM fail closed, and nothing answers them.
async fn migrate_and_go_back(has_helm_4: bool) -> Result<()> {
    let page = read("kubeone.md")?.replace(CHART, "$PWD/charts/operating-system-manager");
    let [script, install, keep_values, clean_up, delete_profiles] =
        &section_blocks(&page, "An existing cluster", "sh")?[..]
    else {
        bail!("other commands")
    };
    let cluster = ControlPlane::start(Options::default()).await?;
    cluster.install_machine_deployment_crd().await?;
    let fixture = |name: &str| std::fs::read_to_string(PathBuf::from(FIXTURES).join(name));
    cluster.apply_yaml(&fixture("go-shaped.yaml")?).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS}});
    installation::apply(&cluster, &[namespace]).await?;
    cluster.apply_yaml(&fixture("takeover/kubeone.yaml")?).await?;
    let mut person = Person::new(vec![("cluster", &cluster)]).await?;
    person.environment.insert("SETTLE", "1".to_owned());
    if has_helm_4 {
        person.use_helm_4().await?;
    }

    // With `deploy: true`, the addon comes before the release.
    let kubeone = KubeOne::new(&cluster, person.folder.path(), Family::Newest).await?;
    kubeone.values("")?;
    refusal(kubeone.apply().await, "deploy: true")?;

    person.run(script).await?;
    person.run("sh osm-migrate.sh stop").await?;
    // A part that is run twice does the same as once.
    person.run(&format!("{install}\n{keep_values}")).await?;
    ensure!(settings(&cluster).await?.contains("169.254.20.10"));

    // Manifests of other versions of Helm have other blank lines. So KubeOne upgrades once, which changes
    // nothing.
    let generations = async || -> Result<Vec<_>> {
        let all = deployments(&cluster).await?.into_iter();
        Ok(all.map(|one| (one.name_any(), one.metadata.generation)).collect())
    };
    let before = generations().await?;
    kubeone.apply().await?;
    assert_eq!(generations().await?, before);
    assert_eq!(kubeone.apply().await?, Done::Skipped);
    let file = person.folder.path().join("osm-values.yaml");
    let change = |from: &str, to: &str| -> Result<()> {
        let values = std::fs::read_to_string(&file)?;
        ensure!(values.contains(from), "{values}");
        Ok(std::fs::write(&file, values.replace(from, to))?)
    };
    change("169.254.20.10", "169.254.20.11")?;
    assert_eq!(kubeone.apply().await?, Done::Upgraded);
    ensure!(
        settings(&cluster).await?.contains("169.254.20.11"),
        "the value is lost"
    );
    let finished = person.run(clean_up).await?;
    ensure!(finished.contains("The migration is finished"), "{finished}");
    let ours = deployments(&cluster).await?;
    let ours: Vec<String> = ours.iter().map(ResourceExt::name_any).collect();
    ensure!(ours.len() == Service::ALL.len(), "{ours:?}");

    // Back: without pods of OSM, the addon may start the upstream OSM, and nothing refuses the release.
    let stopped = ["ospController", "oscController", "secretSyncer", "csrApprover"];
    let stopped: String = stopped.map(|key| format!("{key}: {{replicas: 0}}\n")).concat();
    change("image:\n", &format!("{stopped}image:\n"))?;
    assert_eq!(kubeone.apply().await?, Done::Upgraded);
    for deployment in deployments(&cluster).await? {
        let name = deployment.name_any();
        assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(0), "{name}");
    }
    leave_what_services_leave(&cluster).await?;
    person.run(delete_profiles).await?;
    // Nothing would answer the webhooks.
    let addon = fixture("takeover/kubeone.yaml")?;
    let (addon, _webhooks) = addon
        .split_once("---\napiVersion: admissionregistration.k8s.io")
        .context("webhooks")?;
    cluster.apply_yaml(addon).await?;
    assert_eq!(kubeone.apply().await?, Done::Skipped);
    let older = KubeOne::new(&cluster, person.folder.path(), Family::Helm3).await?;
    older.apply().await?;
    let mut upstream = UpstreamOsm::start(&cluster, "kube-system", &[]).await?;
    upstream.leads().await?;
    let secrets = Api::<Secret>::namespaced(cluster.admin()?, CLOUD_INIT_SETTINGS);
    let user_data = names::bootstrap_secret_name("workers", "kube-system");
    let served = wait_for("user data of the upstream OSM", DEADLINE, async || {
        check(secrets.get_opt(&user_data).await?.is_some())
    });
    if let Err(error) = served.await {
        return Err(error.context(upstream.logs()?));
    }
    is_removed_with_the_manifest(&kubeone).await
}

/// The default profiles as osp-controller writes them, and a pool with what the upstream OSM needs to serve
/// it.
async fn leave_what_services_leave(cluster: &ControlPlane) -> Result<()> {
    let mut pool = fixtures::machine_deployment("workers", "osp-ubuntu");
    pool["metadata"]["annotations"][names::REVISION] = json!("1");
    let token = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"token": "token"},
        "metadata": {"name": "cloud-init-getter-token", "namespace": CLOUD_INIT_SETTINGS}});
    let mut objects = vec![
        pool,
        token,
        installation::cluster_info(cluster.ca_pem(), &cluster.url()),
    ];
    for file in std::fs::read_dir(Path::new(FIXTURES).join("../../../profiles"))? {
        let mut profile: Value = serde_saphyr::from_str(&std::fs::read_to_string(file?.path())?)?;
        profile["metadata"]["namespace"] = json!("kube-system");
        profile["metadata"]["labels"] = json!({names::DEFAULT_PROFILE: "true"});
        objects.push(profile);
    }
    installation::apply(cluster, &objects).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_cluster_is_migrated_with_helm_3_as_the_page_on_kubeone_says() -> Result<()> {
    migrate_and_go_back(false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_cluster_is_migrated_with_helm_4_as_the_page_on_kubeone_says() -> Result<()> {
    migrate_and_go_back(true).await
}
