//! Bootstrap tokens in `kube-system`: for clusters whose policy requires that kubelets join with these and no others.
//!
//! This program only creates them. It has no right to read, list, change or delete them. kube-controller-manager's `tokencleaner` deletes
//! them once they expire, so there may be any number of them for a pool.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use osm_api::names::{self, BOOTSTRAP_TOKENS_NAMESPACE};
use osm_runtime::Api;
use osm_runtime::Environment;
use osm_runtime::error;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::memory::Unpublished;
use crate::model::token_binding;
use crate::model::tokens::Issued;
use crate::model::view::ROLE_BOOTSTRAP_TOKEN;
use crate::plan::renewal;
use crate::plan::steps::Publish;

/// The API server's alphabet of ids and secrets.
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Ids are random and short, so one may be taken: this many are tried.
const ATTEMPTS: usize = 5;

/// A token that expires when `with` does, by the API server's clock, which has set that time.
///
/// # Errors
/// Requests that failed; [`ApplyError::BootstrapTokenForbidden`].
pub async fn issue(
    context: &Context,
    config: &str,
    publish: &Publish,
    extra_groups: &[String],
    with: &Issued,
) -> Result<Issued, ApplyError> {
    let groups = token_binding::joined(extra_groups);
    let unpublished = context.memory.of(config).unpublished;
    if let Some(kept) = unpublished.filter(|kept| renewal::is_reusable(kept, &groups, with)) {
        return Ok(kept.token);
    }
    let token = Issued {
        token: create(context, publish, extra_groups, with.expires).await?,
        ..with.clone()
    };
    let unpublished = Some(Unpublished {
        groups,
        token: token.clone(),
    });
    context
        .memory
        .edit(config, |memory| memory.unpublished = unpublished);
    Ok(token)
}

async fn create(
    context: &Context,
    publish: &Publish,
    extra_groups: &[String],
    expires: Timestamp,
) -> Result<String, ApplyError> {
    let api: Api<Secret> = Api::namespaced(
        context.clients.cluster.worker.client.clone(),
        BOOTSTRAP_TOKENS_NAMESPACE,
    );
    let mut refused = None;
    for _ in 0..ATTEMPTS {
        let environment = &context.clients.process.environment;
        let (id, word) = (random(environment, 6), random(environment, 16));
        let secret = secret(context, publish, extra_groups, expires, (&id, &word));
        match api.create(&PostParams::default(), &secret).await {
            Ok(_) => return Ok(format!("{id}.{word}")),
            Err(refusal) if error::already_exists(&refusal) => refused = Some(refusal),
            Err(refusal) if error::is_code(&refusal, 403) && !error::namespace_missing(&refusal) => {
                return Err(ApplyError::BootstrapTokenForbidden);
            }
            Err(error) => return Err(failed("creating a bootstrap token")(error).into()),
        }
    }
    let none = || kube::Error::Api(Box::default());
    Err(failed("creating a bootstrap token")(refused.unwrap_or_else(none)).into())
}

/// Without the Go implementation's label `machinedeployment.k8s.io/name`: it would find ours by it, and stop at the second.
fn secret(
    context: &Context,
    publish: &Publish,
    extra_groups: &[String],
    expires: Timestamp,
    (id, word): (&str, &str),
) -> Secret {
    let owner = publish
        .ownership
        .annotations
        .get(names::OWNER)
        .map(String::as_str)
        .unwrap_or_default();
    let mut data = BTreeMap::from([
        (
            "description",
            format!("for new nodes of MachineDeployment {owner}"),
        ),
        ("token-id", id.to_owned()),
        ("token-secret", word.to_owned()),
        ("expiration", expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ("usage-bootstrap-authentication", "true".to_owned()),
    ]);
    if !extra_groups.is_empty() {
        data.insert("auth-extra-groups", extra_groups.join(","));
    }
    let data = data
        .into_iter()
        .map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())));
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("bootstrap-token-{id}")),
            labels: Some(
                publish
                    .ownership
                    .labels(&context.clients.installation, ROLE_BOOTSTRAP_TOKEN),
            ),
            annotations: Some(publish.ownership.annotations.clone()),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        ..Secret::default()
    }
}

/// Characters of which each is as likely as any other.
fn random(environment: &Environment, length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        let byte = usize::from(u8::from_le_bytes(environment.bytes()));
        // The last few bytes would favour the first characters.
        if byte < usize::from(u8::MAX) / ALPHABET.len() * ALPHABET.len() {
            text.extend(ALPHABET.get(byte % ALPHABET.len()).copied().map(char::from));
        }
    }
    text
}
