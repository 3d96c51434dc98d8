//! The crates that are linked into a program, as `cargo metadata` resolves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::build::{self, cargo};

/// A crate that is linked into a program.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    id: String,
    pub name: String,
    pub version: String,
    /// SPDX expression.
    pub license: Option<String>,
    manifest_path: PathBuf,
    /// `None` for crates of this workspace.
    pub source: Option<String>,
}

impl Package {
    /// The directory of its files.
    pub fn directory(&self) -> Result<PathBuf> {
        Ok(self
            .manifest_path
            .parent()
            .context("the directory of a crate")?
            .to_owned())
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
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
    /// `None` for a normal dependency, which is neither for tests nor for a build script.
    kind: Option<String>,
}

/// The graph of all crates, for the target of this machine.
pub struct Dependencies {
    packages: BTreeMap<String, Package>,
    edges: BTreeMap<String, Vec<String>>,
}

impl Dependencies {
    /// Reads the graph from cargo.
    ///
    /// # Errors
    /// A failure of cargo.
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
        let is_normal = |edge: &Edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none());
        let edges = metadata.resolve.nodes.into_iter().map(|node| {
            (
                node.id,
                node.deps
                    .into_iter()
                    .filter(is_normal)
                    .map(|edge| edge.pkg)
                    .collect::<Vec<_>>(),
            )
        });
        let packages = metadata
            .packages
            .into_iter()
            .map(|package| (package.id.clone(), package));
        Ok(Self {
            packages: packages.collect(),
            edges: edges.collect(),
        })
    }

    /// The crate of this name and all its normal dependencies, ordered by name and version.
    ///
    /// # Errors
    /// A name that no crate of the workspace has.
    pub fn of(&self, name: &str) -> Result<Vec<&Package>> {
        let own = self
            .packages
            .values()
            .find(|package| package.name == name && package.source.is_none());
        let mut waiting = vec![
            own.with_context(|| format!("no crate {name} in the workspace"))?
                .id
                .as_str(),
        ];
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if seen.insert(id) {
                waiting.extend(self.edges.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        let mut packages: Vec<&Package> = seen.into_iter().filter_map(|id| self.packages.get(id)).collect();
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        Ok(packages)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dependencies_of_tests_and_build_scripts_are_not_linked() {
        let package = |name: &str, source: Option<&str>| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "manifest_path": "/x/Cargo.toml", "source": source});
        let edge = |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("service", None), package("http", Some("r")), package("bytes", Some("r")), package("cc", Some("r")), package("testkit", None)],
            "resolve": {"nodes": [
                {"id": "service", "deps": [edge("http", None), edge("cc", Some("build")), edge("testkit", Some("dev"))]},
                {"id": "http", "deps": [edge("bytes", None)]},
                {"id": "bytes", "deps": []},
            ]},
        });
        let dependencies = Dependencies::parse(metadata.to_string().as_bytes()).unwrap();
        let names: Vec<_> = dependencies
            .of("service")
            .unwrap()
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(names, ["bytes", "http", "service"]);
        assert!(dependencies.of("http").is_err(), "not of the workspace");
    }
}
