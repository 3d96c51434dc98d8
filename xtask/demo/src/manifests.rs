//! The MachineDeployments to apply, from files in YAML or JSON.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use osm_testkit::machine_controller::machine_deployment;
use serde_json::Value;
use serde_saphyr::Spanned;

const EXPECTED: &str =
    "expected a MachineDeployment (apiVersion: cluster.k8s.io/v1alpha1, kind: MachineDeployment)";

/// A MachineDeployment, and where it is.
#[derive(Debug)]
pub struct Manifest {
    file: PathBuf,
    line: u64,
    object: DynamicObject,
}

impl Manifest {
    /// For the progress: the file and the name.
    pub fn what(&self) -> String {
        let file = self.file.strip_prefix(crate::root()).unwrap_or(&self.file);
        format!(
            "{} (MachineDeployment {})",
            file.display(),
            self.object.name_any()
        )
    }

    /// Creates it, or changes the one that is there. Returns its namespace and name.
    ///
    /// # Errors
    /// The API server refuses it.
    pub async fn apply(&self, client: &Client) -> Result<(String, String)> {
        let namespace = self.object.namespace().unwrap_or_else(|| "default".to_owned());
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &machine_deployment());
        let mut applied = api.create(&PostParams::default(), &self.object).await;
        if matches!(&applied, Err(kube::Error::Api(status)) if status.reason == "AlreadyExists") {
            let patch = Patch::Merge(&self.object);
            applied = api
                .patch(&self.object.name_any(), &PatchParams::default(), &patch)
                .await;
        }
        match applied {
            Ok(applied) => Ok((namespace, applied.name_any())),
            Err(kube::Error::Api(status)) => Err(at(&self.file, self.line, &status.message)),
            Err(error) => Err(error)
                .with_context(|| at(&self.file, self.line, "the MachineDeployment can't be applied")),
        }
    }
}

fn at(file: &Path, line: u64, what: &str) -> anyhow::Error {
    anyhow!("{}, line {line}: {what}", file.display())
}

/// Reads the MachineDeployments of a file.
///
/// # Errors
/// The file can't be read, or has something else in it: the line, and what is expected there.
pub fn read(file: &Path) -> Result<Vec<Manifest>> {
    let shown = file.display();
    let bytes = fs::read(file).with_context(|| format!("{shown}: the file can't be read"))?;
    let Ok(text) = String::from_utf8(bytes) else {
        bail!("{shown}, line 1: not a text in UTF-8; {EXPECTED}");
    };
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Spanned<Value>> =
        serde_saphyr::from_multiple_with_options(&text, options).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            let said = error.without_snippet().to_string();
            // The line is named already.
            let what = said
                .rsplit_once(" at line ")
                .map_or(said.as_str(), |(what, _)| what);
            at(file, line, &format!("not YAML: {what}; {EXPECTED}"))
        })?;
    if documents.is_empty() {
        bail!("{shown}, line 1: the file has no objects; {EXPECTED}");
    }
    let mut found = Vec::new();
    for document in documents {
        let line = document.referenced.line();
        let object = object(document.value).map_err(|what| at(file, line, &format!("{what}; {EXPECTED}")))?;
        found.push(Manifest {
            file: file.to_owned(),
            line,
            object,
        });
    }
    Ok(found)
}

/// The MachineDeployment in a document, or what is wrong with it.
fn object(document: Value) -> Result<DynamicObject, String> {
    if !document.is_object() {
        return Err("not an object of Kubernetes".to_owned());
    }
    for (field, expected) in [
        ("kind", "MachineDeployment"),
        ("apiVersion", "cluster.k8s.io/v1alpha1"),
    ] {
        match document.get(field) {
            Some(found) if found == expected => {}
            Some(_) => return Err(format!("{field} is not {expected}")),
            None => return Err(format!("{field} is missing")),
        }
    }
    let name = document.pointer("/metadata/name").and_then(Value::as_str);
    if name.is_none_or(str::is_empty) {
        return Err("metadata.name is missing".to_owned());
    }
    // The error could repeat values.
    serde_json::from_value(document).map_err(|_| "metadata has a field of a wrong type".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str =
        "apiVersion: cluster.k8s.io/v1alpha1\nkind: MachineDeployment\nmetadata: {name: a}\nspec: {}\n";

    fn read_text(text: impl AsRef<[u8]>) -> Result<Vec<Manifest>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pool.yaml");
        fs::write(&file, text).unwrap();
        let shown = folder.path().display().to_string() + "/";
        read(&file).map_err(|error| format!("{error:#}").replace(&shown, ""))
    }

    #[test]
    fn the_machine_deployments_of_a_file_are_read_with_their_lines() {
        let text = format!("# A comment.\n---\n{POOL}---\n# Nothing.\n---\n{POOL}");
        let lines = |text: &str| -> Vec<u64> {
            let manifests = read_text(text).unwrap();
            manifests.iter().map(|manifest| manifest.line).collect()
        };
        assert_eq!(lines(&text), [3, 10]);
        let json = r#"{"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "a"}}"#;
        assert_eq!(lines(json), [1]);
    }

    #[test]
    fn a_mistake_names_the_file_the_line_and_what_is_expected() {
        for (text, expected) in [
            (
                "a: [\n".to_owned(),
                "pool.yaml, line 1: not YAML: unclosed bracket '['; ",
            ),
            (
                "kind: MachineDeployment\n\tapiVersion: v1\n".to_owned(),
                "pool.yaml, line 1: not YAML: ",
            ),
            (String::new(), "pool.yaml, line 1: the file has no objects; "),
            (
                "# Nothing.\n---\n".to_owned(),
                "pool.yaml, line 1: the file has no objects; ",
            ),
            (
                "\n- a\n".to_owned(),
                "pool.yaml, line 2: not an object of Kubernetes; ",
            ),
            (
                "hello\n".to_owned(),
                "pool.yaml, line 1: not an object of Kubernetes; ",
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\n".to_owned(),
                "pool.yaml, line 1: kind is not MachineDeployment; ",
            ),
            (
                "apiVersion: v1\nmetadata: {name: a}\n".to_owned(),
                "pool.yaml, line 1: kind is missing; ",
            ),
            (
                POOL.replace("v1alpha1", "v1beta1"),
                "pool.yaml, line 1: apiVersion is not cluster.k8s.io/v1alpha1; ",
            ),
            (
                POOL.replace("name: a", ""),
                "pool.yaml, line 1: metadata.name is missing; ",
            ),
            (
                POOL.replace("name: a", "name: a, labels: 5"),
                "pool.yaml, line 1: metadata has a field of a wrong type; ",
            ),
            (
                format!("{POOL}---\nkind: Secret\n"),
                "pool.yaml, line 6: kind is not MachineDeployment; ",
            ),
        ] {
            let error = read_text(&text).unwrap_err();
            assert!(
                error.starts_with(expected) && error.ends_with(EXPECTED),
                "{text:?}: {error}"
            );
        }
        let error = read_text([0xff, 0xfe, 0xff]).unwrap_err();
        assert!(error.contains("UTF-8") && error.ends_with(EXPECTED), "{error}");
        let missing = format!("{:#}", read(Path::new("/missing/pool.yaml")).unwrap_err());
        assert!(
            missing.starts_with("/missing/pool.yaml: the file can't be read: "),
            "{missing}"
        );
    }
}
