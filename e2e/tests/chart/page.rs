//! Runs the commands of the pages on installing and on migrating, on API servers without nodes. The tests
//! check the commands; only the pods of Jobs run. The push of images is a `bash` block, which is not run
//! here: `cargo xtask e2e helm` runs the same command of the README, and shows that the services work
//! afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_judges::packages;
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::helm::{self, chart};
use osm_testkit::process::ScratchDir;
use osm_testkit::rollout::roll_out;
use osm_testkit::{ControlPlane, Options, check, fixtures, installation, wait_for};
use serde_json::{Value, json};

pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");

/// Of all commands together.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// The text of all fenced blocks of a kind, in order. In a list, they are indented.
pub fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some((indent, found)) = line.split_once("```") {
            let text = lines
                .by_ref()
                .map(|line| line.strip_prefix(indent).unwrap_or(line));
            let text: Vec<&str> = text.take_while(|line| *line != "```").collect();
            if found == kind {
                blocks.push(text.join("\n"));
            }
        }
    }
    blocks
}

/// The `sh` blocks of the section whose heading begins like this.
pub fn section(page: &str, heading: &str) -> Result<String> {
    Ok(section_blocks(page, heading, "sh")?.join("\n"))
}

/// The blocks of a kind in the section whose heading begins like this.
pub fn section_blocks(page: &str, heading: &str, kind: &str) -> Result<Vec<String>> {
    let (_, text) = page
        .split_once(&format!("\n## {heading}"))
        .with_context(|| heading.to_owned())?;
    let found = blocks(text.split("\n## ").next().unwrap_or_default(), kind);
    ensure!(!found.is_empty(), "section {heading} has no {kind}");
    Ok(found)
}

/// Someone with kubectl and Helm, a folder, and clusters in the kubeconfig, the first of which is the current
/// one.
pub struct Person<'a> {
    clusters: Vec<&'a ControlPlane>,
    pub folder: ScratchDir,
    pub environment: BTreeMap<&'static str, String>,
}

impl<'a> Person<'a> {
    pub async fn new(clusters: Vec<(&str, &'a ControlPlane)>) -> Result<Self> {
        let folder = ScratchDir::new("osm-page-")?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, contexts(&clusters)?.to_string())?;
        // The pages begin in a checkout.
        let charts = chart().parent().context("charts")?.canonicalize()?;
        std::os::unix::fs::symlink(charts, folder.path().join("charts"))?;
        let helm = helm::program(|line| eprintln!("{line}")).await?;
        let assets = assets::ensure_verbosely(&[Component::Kubectl]).await?;
        let osmctl = tokio::task::spawn_blocking(installation::osmctl).await??;
        let tools = [helm.as_path(), assets.path(Component::Kubectl)?, osmctl.as_path()].map(|path| {
            path.parent()
                .map(|path| path.display().to_string())
                .unwrap_or_default()
        });
        let environment = BTreeMap::from([
            ("PATH", format!("{}:{}", tools.join(":"), std::env::var("PATH")?)),
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("HOME", folder.path().display().to_string()),
        ]);
        let clusters = clusters.into_iter().map(|(_, plane)| plane).collect();
        Ok(Self {
            clusters,
            folder,
            environment,
        })
    }

    /// Replaces Helm 3.
    pub async fn use_helm_4(&mut self) -> Result<()> {
        let helm = helm::program_4(|line| eprintln!("{line}")).await?;
        let path = self.environment.entry("PATH").or_default();
        *path = format!("{}:{path}", helm.parent().context("a folder")?.display());
        Ok(())
    }

    /// Does what a page says; gives what is printed.
    pub async fn run(&self, script: &str) -> Result<String> {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-eu", "-c", script])
            .current_dir(self.folder.path())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let nodes = self
            .clusters
            .iter()
            .map(async |plane| roll_out(plane.admin()?).await);
        let output = tokio::select! {
            output = tokio::time::timeout(DEADLINE, command.output()) => output.context("the page takes too long")??,
            problem = try_join_all(nodes) => bail!("no node any more: {problem:?}"),
        };
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(
            output.status.success(),
            "the page does not work ({}):\n{said}",
            output.status
        );
        Ok(said)
    }
}

/// A page of `docs/`.
pub fn read(page: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    Ok(std::fs::read_to_string(path.join(page))?)
}

/// The commands of a page, and those from the first `helm uninstall`.
fn until_uninstall(page: &str) -> Result<(String, String)> {
    let commands = blocks(page, "sh").join("\n");
    let (before, rest) = commands.split_once("helm uninstall").context("the end")?;
    Ok((before.to_owned(), format!("helm uninstall{rest}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_on_installing_does_what_it_says() -> Result<()> {
    // So that a namespace that is deleted goes.
    let cluster = ControlPlane::start(Options {
        controllers: vec!["namespace"],
        ..Options::default()
    })
    .await?;
    cluster.install_machine_deployment_crd().await?;
    let person = Person::new(vec![("cluster", &cluster)]).await?;
    let client = cluster.admin()?;
    let (install, uninstall) = until_uninstall(&read("install.md")?)?;
    person.run(&install).await?;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "osm");
    let rolled_out = deployments.list(&ListParams::default()).await?;
    assert_eq!(rolled_out.items.len(), Service::ALL.len());
    let restarted = serde_json::to_string(&rolled_out)?
        .matches("restartedAt\":")
        .count();
    ensure!(
        restarted >= Service::ALL.len(),
        "an upgrade to the same tag replaces no pod"
    );
    person.run(&uninstall).await?;
    let namespaces = Api::<Namespace>::all(client.clone());
    ensure!(
        namespaces.get_opt(CLOUD_INIT_SETTINGS).await?.is_none(),
        "the namespace stays"
    );
    let definitions = Api::<CustomResourceDefinition>::all(client)
        .list(&ListParams::default())
        .await?;
    let mut groups = definitions
        .iter()
        .map(|definition| definition.spec.group.as_str());
    ensure!(!groups.any(|group| group == names::GROUP), "definitions stay");
    Ok(())
}

/// Cluster API has MachineDeployments, too.
#[test]
fn commands_name_the_group_of_machine_deployments() -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in std::fs::read_dir(docs)? {
        let text = std::fs::read_to_string(page?.path()).unwrap_or_default();
        let commands = text.lines().filter(|line| line.contains("kubectl "));
        for command in commands {
            let bare = command.replace("machinedeployments.cluster.k8s.io", "");
            ensure!(!bare.contains("machinedeployment"), "{command}");
        }
    }
    Ok(())
}

/// What a site has to mirror.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_on_air_gapped_sites_lists_the_images_of_the_chart() -> Result<()> {
    let page = read("air-gap.md")?;
    let cluster = ControlPlane::start(Options::default()).await?;
    let person = Person::new(vec![("cluster", &cluster)]).await?;
    let commands = blocks(&page, "bash");
    let images = person.run(commands.first().context("a command")?).await?;
    ensure!(
        blocks(&page, "console").contains(&images.trim_end().to_owned()),
        "the page doesn't show {images}"
    );
    Ok(())
}

/// What each installer of the upstream OSM leaves is in `fixtures/takeover`. Nothing answers its webhooks,
/// which fail closed, until the commands delete them: the page itself checks that the API server accepts
/// writes. The chain's test `migrate` runs `osmctl migrate script`, which has the same steps, with a webhook
/// that answers and with the services.
#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_and_given_up_as_the_page_on_migration_says() -> Result<()> {
    let page = read("migration.md")?;
    tokio::task::spawn_blocking(|| packages::ensure(&["jq"])).await??;
    let cluster = ControlPlane::start(Options::default()).await?;
    cluster.install_machine_deployment_crd().await?;
    cluster
        .install_crds(&Path::new(FIXTURES).join("cert-manager"))
        .await?;
    let fixture = |name: &str| std::fs::read_to_string(Path::new(FIXTURES).join(name));
    cluster.apply_yaml(&fixture("go-shaped.yaml")?).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS}});
    let pool = fixtures::machine_deployment("workers", "osp-ubuntu");
    let profile = fixtures::profile("kube-system", "mine", "v1.0.0", "text");
    let objects = [namespace, pool, profile];
    wait_for("profiles to be served", DEADLINE, async || {
        check(installation::apply(&cluster, &objects).await.is_ok())
    })
    .await?;

    let person = Person::new(vec![("cluster", &cluster)]).await?;
    let client = cluster.admin()?;
    for installer in ["deploy", "machine-controller", "kubeone"] {
        cluster
            .apply_yaml(&fixture(&format!("takeover/{installer}.yaml"))?)
            .await?;
        for (heading, expected) in [
            ("1. ", "-cluster-dns="),
            ("2. ", "WebhookConfiguration/operatingsystemmanager.k8c.io"),
            ("6. ", "nothing is left"),
        ] {
            let printed = person.run(&section(&page, heading)?).await?;
            ensure!(printed.contains(expected), "{installer}, {heading}: {printed}");
        }
    }

    person.run(&section(&page, "3. ")?).await?;
    // What the chart has installed is not taken for a remnant.
    let listed = person.run(&section(&page, "6. ")?).await?;
    ensure!(listed.contains("nothing is left"), "{listed}");
    let settings = Api::<ConfigMap>::namespaced(client.clone(), "kube-system")
        .get("osm-settings")
        .await?;
    ensure!(
        format!("{:?}", settings.data).contains("10.10.10.10"),
        "{settings:?}"
    );
    person.run(&section(&page, "Back")?).await?;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "kube-system");
    let left = deployments.list(&ListParams::default()).await?;
    ensure!(left.items.is_empty(), "services stay");
    let bindings = Api::<ClusterRoleBinding>::all(client)
        .list(&ListParams::default())
        .await?;
    let ours = bindings
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| name.starts_with("osm:"));
    ensure!(ours.is_none(), "{ours:?} stays");
    Ok(())
}

#[test]
fn the_page_on_migration_has_every_flag_of_the_upstream_osm() -> Result<()> {
    let page = read("migration.md")?;
    let (_, table) = page.split_once("\n## Flags").context("the flags")?;
    let table = table.split("\n## ").next().unwrap_or_default();
    let left: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .collect();
    let flags = std::fs::read_to_string(Path::new(FIXTURES).join("go-flags.txt"))?;
    let missing: Vec<&str> = flags
        .lines()
        .filter(|flag| !left.iter().any(|cell| cell.contains(&format!("`-{flag}`"))))
        .collect();
    ensure!(flags.lines().count() == 30, "30 flags, of version 1.11");
    ensure!(missing.is_empty(), "flags without a row: {missing:?}");
    Ok(())
}

/// A kubeconfig with all these clusters.
fn contexts(clusters: &[(&str, &ControlPlane)]) -> Result<Value> {
    let current = clusters.first().map(|(name, _)| name);
    let mut merged = json!({"apiVersion": "v1", "kind": "Config", "current-context": current, "contexts": [], "clusters": [], "users": []});
    for (name, plane) in clusters {
        let one: Value = serde_saphyr::from_str(&std::fs::read_to_string(plane.admin_kubeconfig_path())?)?;
        let mut add = |list: &str, key: &str, value: Value| {
            if let Some(list) = merged[list].as_array_mut() {
                list.push(json!({"name": name, key: value}));
            }
        };
        add("contexts", "context", json!({"cluster": name, "user": name}));
        add("clusters", "cluster", one["clusters"][0]["cluster"].clone());
        add("users", "user", one["users"][0]["user"].clone());
    }
    Ok(merged)
}
