//! docs/install.md, followed to the letter.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::helm::{self, chart};
use osm_testkit::process::ScratchDir;
use osm_testkit::{ControlPlane, Options, installation};
use serde_json::{Value, json};

use crate::node;

/// Of all commands together.
const DEADLINE: Duration = Duration::from_secs(300);

/// The text of all fenced blocks of a kind, in order.
fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if found == kind {
                blocks.push(text.join("\n"));
            }
        }
    }
    blocks
}

/// What a Deployment's controller and a node would do: every Deployment is rolled out at once.
async fn roll_out(client: Client) -> Result<()> {
    loop {
        let all = Api::<Deployment>::all(client.clone());
        for deployment in all.list(&ListParams::default()).await? {
            let seen = deployment.status.as_ref().and_then(|status| status.observed_generation);
            if seen == deployment.metadata.generation {
                continue;
            }
            let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            let status = json!({"status": {"observedGeneration": deployment.metadata.generation, "replicas": replicas,
                "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
            let namespace = deployment.namespace().unwrap_or_default();
            let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
            // It may be gone already.
            let _ = api
                .patch_status(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(&status))
                .await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_does_what_it_says() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let page = std::fs::read_to_string(root.join("docs/install.md"))?;
    let assets = assets::ensure_verbosely(&[Component::Kubectl]).await?;
    // So that a namespace that is deleted goes.
    let options = Options { controllers: vec!["namespace"], ..Options::default() };
    let (management, worker) =
        (ControlPlane::start(options).await?, ControlPlane::start(Options::default()).await?);
    worker.install_machine_deployment_crd().await?;
    let folder = ScratchDir::new("osm-install-page-")?;
    let merged = folder.path().join("kubeconfig");
    std::fs::write(&merged, two_contexts(&management, &worker)?.to_string())?;
    let helm = helm::program(|line| eprintln!("{line}")).await?;
    let tools = [helm.as_path(), assets.path(Component::Kubectl)?]
        .map(|path| path.parent().map(|path| path.display().to_string()).unwrap_or_default());
    let path = format!("{}:{}", tools.join(":"), std::env::var("PATH")?);

    let node = [tokio::spawn(roll_out(management.admin()?)), tokio::spawn(roll_out(worker.admin()?))];
    let (before, rest) = blocks(&page, "sh")
        .join("\n")
        .split_once("helm uninstall")
        .map(|(a, b)| (a.to_owned(), format!("helm uninstall{b}")))
        .context("the end")?;
    let run = async |script: &str| -> Result<()> {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-eu", "-c", script])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("KUBECONFIG", &merged)
            .env("HOME", folder.path())
            .env("CHART", chart())
            .env("CRDS", installation::crds())
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        let output = tokio::select! {
            output = tokio::time::timeout(DEADLINE, command.output()) => output.context("the page takes too long")??,
            problem = node::runs_jobs(&management) => problem?,
        };
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "docs/install.md does not work ({}):\n{said}", output.status);
        Ok(())
    };
    run(&before).await?;

    let client = management.admin()?;
    let deployments = |namespace: &str| Api::<Deployment>::namespaced(client.clone(), namespace);
    let replicas =
        deployments("kube-system").get("osm-secret-syncer").await?.spec.and_then(|spec| spec.replicas);
    assert_eq!(replicas, Some(3));
    // The kubeconfigs are in force, and work.
    let mounted = deployments("cluster-a").get("osm-osc-controller").await?;
    ensure!(serde_json::to_string(&mounted.spec)?.contains("worker-osc-controller"));
    let secret = Api::<Secret>::namespaced(client.clone(), "cluster-a").get("worker-secret-syncer").await?;
    let text = secret.data.and_then(|mut data| data.remove("kubeconfig")).context("a kubeconfig")?.0;
    let config = kube::Config::from_custom_kubeconfig(
        serde_saphyr::from_str(std::str::from_utf8(&text)?)?,
        &Default::default(),
    )
    .await?;
    Api::<Secret>::namespaced(Client::try_from(config)?, osm_api::names::CLOUD_INIT_SETTINGS)
        .list(&ListParams::default())
        .await?;
    // The page shows what it prints.
    let images = std::fs::read_to_string(folder.path().join("images.txt"))?;
    ensure!(page.contains(&format!("$ cat images.txt\n{images}")), "the page does not show {images}");
    let left: Vec<_> = std::fs::read_dir(folder.path())?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    ensure!(!left.iter().any(|name| name.to_string_lossy().starts_with("kubeconfig-")), "{left:?}");

    run(&format!("CHART=; MANAGEMENT=; WORKER=\n{rest}")).await?;
    node.iter().for_each(tokio::task::JoinHandle::abort);
    ensure!(Api::<Namespace>::all(client.clone()).get_opt("cloud-init-settings").await?.is_none());
    ensure!(
        Api::<CustomResourceDefinition>::all(client).list(&ListParams::default()).await?.items.is_empty()
    );
    Ok(())
}

/// A kubeconfig with both clusters; the management cluster is the current one.
fn two_contexts(management: &ControlPlane, worker: &ControlPlane) -> Result<Value> {
    let mut merged = json!({"apiVersion": "v1", "kind": "Config", "current-context": "management", "contexts": [], "clusters": [], "users": []});
    for (name, plane) in [("management", management), ("worker", worker)] {
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
