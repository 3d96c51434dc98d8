//! A stand-in for machine-controller that follows its side of the contract: the revision that it stamps, when
//! it reads a bootstrap Secret, what it replaces in the text, and how a cloud delivers the text.

use std::io::Write;

use anyhow::{Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::{Compression, write::GzEncoder};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::json;
use thiserror::Error;

/// Annotation of MachineSets and MachineDeployments with the current revision.
pub const REVISION_ANNOTATION: &str = "machinedeployment.clusters.k8s.io/revision";

/// Annotation of a bootstrap Secret with the revision that it was made for.
const SECRET_REVISION_ANNOTATION: &str = "k8c.io/machine-deployment-revision";

const CLOUD_INIT_SETTINGS_NAMESPACE: &str = "cloud-init-settings";

/// The key of a bootstrap Secret with the user data.
pub const CLOUD_CONFIG_KEY: &str = "cloud-config";

const MACHINE_NAME: &str = "<MACHINE_NAME>";

/// [`MACHINE_NAME`] as it stands in a `data:` URL.
const ESCAPED_MACHINE_NAME: &str = "%3CMACHINE_NAME%3E";

/// Why a machine can't be made yet. machine-controller asks again, for ever.
#[derive(Debug, Error)]
pub enum NotReady {
    /// The bootstrap Secret could not be read: there is none, or the server refused.
    #[error("cloud config {name:?} is not ready yet: {source}")]
    Unreadable {
        name: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// The bootstrap Secret was made for another revision than the machine's MachineSet has.
    #[error("cloud config is for revision {secret:?}, the MachineSet has {machine_set:?}")]
    Revision {
        /// The Secret's revision; empty where it has none.
        secret: String,
        machine_set: String,
    },
    /// The user data is not text. (machine-controller would hand it on as it is.)
    #[error("cloud config is not UTF-8")]
    NotText,
}

#[must_use]
pub fn machine_deployment() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "cluster.k8s.io",
        "v1alpha1",
        "MachineDeployment",
    ))
}

/// The bootstrap Secret's name for a MachineDeployment.
#[must_use]
pub fn bootstrap_secret_name(namespace: &str, name: &str) -> String {
    format!("{name}-{namespace}-bootstrap-config")
}

/// Gives a MachineDeployment its revision, as machine-controller does when its template has changed. Returns
/// the updated object.
///
/// # Errors
/// What the API server says.
pub async fn stamp_revision(
    client: &Client,
    md: &DynamicObject,
    revision: u64,
) -> Result<DynamicObject, kube::Error> {
    let namespace = md.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &machine_deployment());
    let patch = json!({"metadata": {"annotations": {REVISION_ANNOTATION: revision.to_string()}}});
    api.patch(&md.name_any(), &PatchParams::default(), &Patch::Merge(patch))
        .await
}

/// Reads the bootstrap Secret of a MachineDeployment and makes a machine's user data from it.
///
/// # Errors
/// Whatever keeps machine-controller from making the machine now.
pub async fn fetch_user_data(
    client: &Client,
    md: &DynamicObject,
    machine_set_revision: &str,
    machine_name: &str,
) -> Result<String, NotReady> {
    let name = bootstrap_secret_name(&md.namespace().unwrap_or_default(), &md.name_any());
    let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS_NAMESPACE);
    match secrets.get(&name).await {
        Ok(secret) => user_data(&secret, machine_set_revision, machine_name),
        Err(error) => Err(NotReady::Unreadable {
            name,
            source: Box::new(error),
        }),
    }
}

/// The user data of one machine: the bootstrap Secret's text with the machine's name filled in.
///
/// Follows machine-controller to the letter, also where it is careless: a Secret without `cloud-config` gives
/// a machine without user data.
///
/// # Errors
/// When the Secret is for another revision.
pub fn user_data(
    secret: &Secret,
    machine_set_revision: &str,
    machine_name: &str,
) -> Result<String, NotReady> {
    let revision = secret
        .annotations()
        .get(SECRET_REVISION_ANNOTATION)
        .map(String::as_str)
        .unwrap_or_default();
    if revision != machine_set_revision {
        return Err(NotReady::Revision {
            secret: revision.to_owned(),
            machine_set: machine_set_revision.to_owned(),
        });
    }
    let data = secret.data.as_ref().and_then(|data| data.get(CLOUD_CONFIG_KEY));
    let bytes = data.map(|data| data.0.clone()).unwrap_or_default();
    let text = String::from_utf8(bytes).map_err(|_| NotReady::NotText)?;
    let text = text
        .replace(MACHINE_NAME, machine_name)
        .replace(ESCAPED_MACHINE_NAME, &query_escape(machine_name));
    Ok(without_blank_lines(&text))
}

/// Go's `url.QueryEscape`.
fn query_escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            b' ' => escaped.push('+'),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Empties every line that has only blanks and tabs: the regular expression `(?m)^[ \t]+$`.
fn without_blank_lines(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        if line.chars().all(|c| c == ' ' || c == '\t') {
            ""
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// User data as it goes to the API of `cloud`, for a machine with operating system `os`; both by
/// machine-controller's names.
///
/// # Errors
/// When it is a cloud that no test uses.
pub fn delivered(cloud: &str, os: &str, user_data: &str) -> Result<Vec<u8>> {
    let sent = match cloud {
        "aws" if os != "flatcar" => BASE64_STANDARD.encode(gzip(user_data)),
        "aws" | "openstack" => BASE64_STANDARD.encode(user_data),
        _ => bail!("it is not known here how {cloud} takes user data"),
    };
    Ok(sent.into())
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    encoder
        .write_all(text.as_bytes())
        .and_then(|()| encoder.finish())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn secret(revision: &str, text: &str) -> Secret {
        let mut secret = Secret::default();
        secret
            .annotations_mut()
            .insert(SECRET_REVISION_ANNOTATION.to_owned(), revision.to_owned());
        secret.data = Some([(CLOUD_CONFIG_KEY.to_owned(), ByteString(text.into()))].into());
        secret
    }

    #[test]
    fn the_machine_name_is_filled_in_everywhere() {
        let text = "hostname: <MACHINE_NAME>\nname: <MACHINE_NAME>\nurl: data:,%3CMACHINE_NAME%3E\nlower: %3cMACHINE_NAME%3e\n";
        assert_eq!(
            user_data(&secret("1", text), "1", "pool-a.b c").unwrap(),
            "hostname: pool-a.b c\nname: pool-a.b c\nurl: data:,pool-a.b+c\nlower: %3cMACHINE_NAME%3e\n"
        );
    }

    #[test]
    fn another_revision_is_not_ready() {
        for (secret, machine_set) in [
            (secret("1", ""), "2"),
            (secret("2", ""), "1"),
            (Secret::default(), "1"),
        ] {
            let error = user_data(&secret, machine_set, "m").unwrap_err();
            assert!(matches!(error, NotReady::Revision { .. }), "{error}");
        }
    }
}
