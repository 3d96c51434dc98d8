//! The `sh` blocks of docs/runbooks, docs/troubleshooting.md and docs/recovery.md run against a cluster in
//! which everything is well.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::installation;
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, NAMESPACE};

/// Words of commands that change something. The pages must not have them in blocks that people copy without a
/// thought.
const CHANGES: [&str; 10] = [
    "apply", "approve", "create", "delete", "edit", "patch", "replace", "rollback", "scale", "upgrade",
];

/// A page, and the commands in its `sh` blocks.
fn pages() -> Result<Vec<(PathBuf, Vec<String>)>> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut paths: Vec<PathBuf> = ["troubleshooting.md", "recovery.md"]
        .map(|name| docs.join(name))
        .into();
    for entry in std::fs::read_dir(docs.join("runbooks"))? {
        paths.push(entry?.path());
    }
    let mut pages = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let blocks = text.split("```sh\n").skip(1);
        let blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0.to_owned()));
        pages.push((path, blocks.collect()));
    }
    Ok(pages)
}

#[test]
fn every_runbook_has_commands_and_none_changes_anything() -> Result<()> {
    for (path, blocks) in pages()? {
        ensure!(!blocks.is_empty(), "{}", path.display());
        for block in blocks {
            let mut words = block.split_whitespace();
            // `kubectl auth can-i create` only asks.
            let changes = words.find(|word| CHANGES.contains(word) && !block.contains("can-i"));
            ensure!(changes.is_none(), "{}: {changes:?}", path.display());
        }
    }
    Ok(())
}

#[test]
fn every_command_of_the_runbooks_works() -> Result<()> {
    in_shared_world(async |world| {
        world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
        world.pool("workers", "osp-tiny").await?;
        world.stamp("workers", 1).await?;
        world
            .apply(
                &json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine", "spec": {},
            "metadata": {"name": "workers-7d9f6c5b8-x2x4k", "namespace": "kube-system"}}),
            )
            .await?;
        world.says("workers", "Published", true, "Published").await?;

        let program = tokio::task::spawn_blocking(installation::osmctl).await??;
        let assets = assets::ensure_verbosely(&[Component::Kubectl]).await?;
        let mut folders = Vec::new();
        for path in [program.as_path(), assets.path(Component::Kubectl)?] {
            folders.push(path.parent().context("a folder")?.display().to_string());
        }
        let folder = tempfile::tempdir()?;
        let path = format!("{}:{}", folders.join(":"), std::env::var("PATH")?);
        let run = async |page: PathBuf, block: String| -> Result<()> {
            let output = tokio::process::Command::new("sh")
                .args(["-eu", "-c", &block])
                .env("PATH", &path)
                .env("KUBECONFIG", world.plane.admin_kubeconfig_path())
                .env("NAMESPACE", NAMESPACE)
                .env("PROFILE", "osp-tiny")
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output();
            let output = tokio::time::timeout(DEADLINE, output)
                .await
                .context(page.display().to_string())??;
            let printed = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            ensure!(output.status.success(), "{}:\n{block}\n{printed}", page.display());
            Ok(())
        };
        let mut number = 0;
        for (page, blocks) in pages()? {
            number += blocks.len();
            try_join_all(blocks.into_iter().map(|block| run(page.clone(), block))).await?;
        }
        ensure!(number > 20, "{number}");
        world.delete_machine("workers-7d9f6c5b8-x2x4k").await
    })
}
