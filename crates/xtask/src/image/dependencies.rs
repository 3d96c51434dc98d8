//! What is linked into a program: the crates that it depends on, as `cargo metadata` has resolved them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::build::{self, cargo};

/// A crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Part {
    id: String,
    pub name: String,
    pub version: String,
    /// SPDX expression.
    pub license: Option<String>,
    manifest_path: PathBuf,
    /// `None` for crates of this workspace.
    pub source: Option<String>,
}

impl Part {
    /// Where its files are.
    pub fn directory(&self) -> Result<PathBuf> {
        Ok(self.manifest_path.parent().context("the directory of a crate")?.to_owned())
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Part>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `None` where it is a usual one, neither for tests nor for a build script.
    kind: Option<String>,
}

/// The graph of all crates, for this kind of machine.
pub struct Dependencies {
    parts: BTreeMap<String, Part>,
    edges: BTreeMap<String, Vec<String>>,
}

impl Dependencies {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo fails.
    pub async fn read() -> Result<Self> {
        let output = cargo()
            .args(["metadata", "--format-version=1", "--locked", "--filter-platform"])
            .arg(build::host().await?)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?
            .wait_with_output()
            .await?;
        ensure!(output.status.success(), "cargo metadata failed");
        Self::parse(&output.stdout)
    }

    fn parse(metadata: &[u8]) -> Result<Self> {
        let metadata: Metadata = serde_json::from_slice(metadata).context("cargo's metadata")?;
        let usual = |edge: &Edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none());
        let edges = metadata.resolve.nodes.into_iter().map(|node| {
            (node.id, node.deps.into_iter().filter(usual).map(|edge| edge.pkg).collect::<Vec<_>>())
        });
        let parts = metadata.packages.into_iter().map(|part| (part.id.clone(), part));
        Ok(Self { parts: parts.collect(), edges: edges.collect() })
    }

    /// The crate itself and all that it depends on, by name and version.
    ///
    /// # Errors
    /// When there is no crate of that name in the workspace.
    pub fn of(&self, name: &str) -> Result<Vec<&Part>> {
        let own = self.parts.values().find(|part| part.name == name && part.source.is_none());
        let mut waiting = vec![own.with_context(|| format!("no crate {name}"))?.id.as_str()];
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if seen.insert(id) {
                waiting.extend(self.edges.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        let mut parts: Vec<&Part> = seen.into_iter().filter_map(|id| self.parts.get(id)).collect();
        parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_only_tests_and_build_scripts_need_is_not_linked() {
        let part = |name: &str, source: Option<&str>| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "manifest_path": "/x/Cargo.toml", "source": source});
        let edge = |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [part("service", None), part("http", Some("r")), part("bytes", Some("r")), part("cc", Some("r")), part("testkit", None)],
            "resolve": {"nodes": [
                {"id": "service", "deps": [edge("http", None), edge("cc", Some("build")), edge("testkit", Some("dev"))]},
                {"id": "http", "deps": [edge("bytes", None)]},
                {"id": "bytes", "deps": []},
            ]},
        });
        let dependencies = Dependencies::parse(metadata.to_string().as_bytes()).unwrap();
        let names: Vec<_> =
            dependencies.of("service").unwrap().iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["bytes", "http", "service"]);
        assert!(dependencies.of("http").is_err(), "not ours");
    }
}
