//! The page on KubeOne: its commands, and what `kubeone apply` does with the release of its manifest. KubeOne calls Helm 4. Where the release
//! exists, it upgrades only if a dry run differs from it: on the server, in older versions without the cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::rbac::Service;
use osm_judges::packages;
use osm_testkit::helm::{Helm, chart};
use osm_testkit::rollout::roll_out;
use osm_testkit::{ControlPlane, Options, installation};
use serde_json::{Value, json};

use crate::page::{FIXTURES, Person, blocks, read, section_blocks};

/// The chart's address on the page.
const CHART: &str = "oci://registry.example.com/osm/charts/operating-system-manager";

/// What `kubeone apply` does for the release of the manifest on the page.
struct KubeOne<'a> {
    plane: &'a ControlPlane,
    helm: Helm,
    /// The arguments that name the release, its chart and its values.
    release: Vec<String>,
}

impl<'a> KubeOne<'a> {
    async fn new(plane: &'a ControlPlane, folder: &Path) -> Result<Self> {
        let manifest = blocks(&read("kubeone.md")?, "yaml");
        let manifest = manifest
            .iter()
            .find(|block| block.contains("kind: KubeOneCluster"));
        let manifest: Value = serde_saphyr::from_str(manifest.context("a manifest")?)?;
        assert_eq!(manifest["operatingSystemManager"]["deploy"], false);
        let release = &manifest["addons"]["addons"][0]["helmRelease"];
        assert_eq!(release["chartURL"], CHART);
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        let values = folder.join(text(&release["values"][0]["valuesFile"])?);
        let mut arguments = vec![
            text(&release["releaseName"])?,
            chart().display().to_string(),
            format!("--namespace={}", text(&release["namespace"])?),
            format!("--values={}", values.display()),
            "--create-namespace".to_owned(),
        ];
        arguments.extend((release["wait"] == true).then(|| "--wait".to_owned()));
        Ok(Self {
            plane,
            helm: Helm::version_4(plane).await?,
            release: arguments,
        })
    }

    async fn upgrade(&self, more: &[&str]) -> Result<String> {
        let release = self.release.iter().map(String::as_str);
        let arguments = ["upgrade", "--install"].into_iter().chain(release);
        let arguments = arguments.chain(more.iter().copied());
        tokio::select! {
            done = self.helm.run(arguments) => done,
            problem = roll_out(self.plane.admin()?) => anyhow::bail!("no node any more: {problem:?}"),
        }
    }

    async fn get(&self, what: &str) -> Result<String> {
        let arguments = ["get", what, &self.release[0], &self.release[2]];
        self.helm.run(arguments).await
    }

    /// Whether a dry run differs from the release.
    async fn differs(&self, dry_run: &str) -> Result<bool> {
        let dry_run = format!("--dry-run={dry_run}");
        let planned: Value = serde_json::from_str(&self.upgrade(&[&dry_run, "--output=json"]).await?)?;
        let manifest = planned["manifest"].as_str().context("a manifest")?;
        Ok(manifest.trim() != self.get("manifest").await?.trim())
    }

    /// Installs or upgrades the release. Returns whether it has done anything.
    async fn apply(&self) -> Result<bool> {
        let releases = self.helm.run(["list", "--short", &self.release[2]]).await?;
        if releases.lines().any(|name| name == self.release[0]) && !self.differs("server").await? {
            return Ok(false);
        }
        self.upgrade(&[]).await?;
        Ok(true)
    }
}

async fn deployments(plane: &ControlPlane) -> Result<Vec<Deployment>> {
    let deployments = Api::<Deployment>::namespaced(plane.admin()?, "kube-system");
    Ok(deployments.list(&ListParams::default()).await?.items)
}

/// The settings that are installed.
async fn settings(plane: &ControlPlane) -> Result<String> {
    let maps = Api::<ConfigMap>::namespaced(plane.admin()?, "kube-system");
    Ok(format!("{:?}", maps.get("osm-settings").await?.data))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_cluster_gets_osm_as_the_page_on_kubeone_says() -> Result<()> {
    tokio::task::spawn_blocking(|| packages::ensure(&["jq"])).await??;
    let page = read("kubeone.md")?;
    let cluster = ControlPlane::start(Options::default()).await?;
    // The addon of machine-controller comes first.
    cluster.install_machine_deployment_crd().await?;
    let person = Person::new(vec![("cluster", &cluster)]).await?;
    let values = section_blocks(&page, "A new cluster", "yaml")?;
    std::fs::write(person.folder.path().join("osm-values.yaml"), &values[0])?;

    let kubeone = KubeOne::new(&cluster, person.folder.path()).await?;
    ensure!(kubeone.apply().await?, "nothing is installed");
    assert_eq!(deployments(&cluster).await?.len(), Service::ALL.len());
    ensure!(settings(&cluster).await?.contains("169.254.20.10"));
    person
        .run(&section_blocks(&page, "A new cluster", "sh")?.join("\n"))
        .await?;
    for dry_run in ["server", "client"] {
        ensure!(!kubeone.differs(dry_run).await?, "{dry_run}");
    }
    ensure!(!kubeone.apply().await?, "it is upgraded without a change");

    // A Secret for each registry, of one with a key for each.
    let login = |name: &str| json!({"username": name, "password": "hunter2"}).to_string();
    let credentials = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "kubeone-registry-credentials", "namespace": "kube-system"},
        "stringData": {"docker.io": login("one"), "registry.example.com": login("two")}});
    installation::apply(&cluster, &[credentials]).await?;
    person
        .run(&section_blocks(&page, "Registry credentials", "sh")?.join("\n"))
        .await?;
    let secrets = Api::<Secret>::namespaced(cluster.admin()?, CLOUD_INIT_SETTINGS);
    for (name, username) in [("docker-io", "one"), ("registry-example-com", "two")] {
        let data = secrets.get(name).await?.data.context("data")?;
        assert_eq!(data["username"].0, username.as_bytes());
        assert_eq!(data["password"].0, b"hunter2");
    }
    Ok(())
}

/// The webhooks of the upstream OSM fail closed, and nothing answers them.
#[tokio::test(flavor = "multi_thread")]
async fn an_existing_cluster_is_migrated_as_the_page_on_kubeone_says() -> Result<()> {
    let page = read("kubeone.md")?.replace(CHART, "$PWD/charts/operating-system-manager");
    let [script, install, keep_values, clean_up] = &section_blocks(&page, "An existing cluster", "sh")?[..]
    else {
        anyhow::bail!("other commands")
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

    person.run(script).await?;
    person.run("sh osm-migrate.sh stop").await?;
    // A part that is run twice does the same as once.
    person.run(&format!("{install}\n{keep_values}")).await?;
    ensure!(settings(&cluster).await?.contains("169.254.20.10"));

    // The script was run with Helm 3, whose manifests have other blank lines. So KubeOne upgrades once, which changes nothing.
    let generations = async || -> Result<Vec<_>> {
        let all = deployments(&cluster).await?.into_iter();
        Ok(all.map(|one| (one.name_any(), one.metadata.generation)).collect())
    };
    let before = generations().await?;
    let kubeone = KubeOne::new(&cluster, person.folder.path()).await?;
    ensure!(kubeone.apply().await?, "Helm 3 and 4 write the same manifest");
    assert_eq!(generations().await?, before);
    for dry_run in ["server", "client"] {
        ensure!(!kubeone.differs(dry_run).await?, "{dry_run}");
    }
    let finished = person.run(clean_up).await?;
    ensure!(finished.contains("The migration is finished"), "{finished}");
    let ours = deployments(&cluster).await?;
    let ours: Vec<String> = ours.iter().map(ResourceExt::name_any).collect();
    ensure!(ours.len() == Service::ALL.len(), "{ours:?}");

    // Back: without pods of OSM, the addon may start the upstream OSM, and nothing refuses the release.
    let stopped = ["ospController", "oscController", "secretSyncer", "csrApprover"];
    let stopped: String = stopped.map(|key| format!("{key}: {{replicas: 0}}\n")).concat();
    let file = person.folder.path().join("osm-values.yaml");
    std::fs::write(&file, std::fs::read_to_string(&file)? + &stopped)?;
    ensure!(kubeone.apply().await?, "the replicas are the same");
    for deployment in deployments(&cluster).await? {
        let name = deployment.name_any();
        assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(0), "{name}");
    }
    cluster.apply_yaml(&fixture("takeover/kubeone.yaml")?).await?;
    ensure!(!kubeone.apply().await?, "the release is upgraded");
    std::fs::write(&file, std::fs::read_to_string(&file)? + "joining: static\n")?;
    ensure!(kubeone.apply().await?, "nothing is upgraded");
    // What machines of OSM read outlives the release.
    kubeone
        .helm
        .run(["uninstall", &kubeone.release[0], &kubeone.release[2]])
        .await?;
    Api::<Namespace>::all(cluster.admin()?)
        .get(CLOUD_INIT_SETTINGS)
        .await?;
    Ok(())
}
