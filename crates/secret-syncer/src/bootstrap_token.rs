//! Bootstrap tokens in `kube-system`: for clusters whose policy wants kubelets to join with these and no others.
//!
//! One is created and never looked at again: not read, listed, changed or deleted, for which there is no right. It expires
//! by itself, when kube-controller-manager's `tokencleaner` removes it. So there may be any number of them for a pool.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use osm_api::names::{self, BOOTSTRAP_TOKENS_NAMESPACE};
use osm_runtime::Surroundings;
use osm_runtime::request::failed;
use osm_runtime::status;

use crate::Error;
use crate::plan::{self, Publish};
use crate::state::{State, lock};
use crate::tokens::Issued;
use crate::view::ROLE_BOOTSTRAP_TOKEN;

/// The API server's alphabet of ids and secrets.
const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Ids are random, and not many: a taken one is replaced so often.
const ATTEMPTS: usize = 5;

/// One that stands in no document yet: taken for the next attempt, so that a failure that lasts does not leave one Secret
/// each time. `Debug` does not show it.
pub struct Unpublished {
    groups: Option<String>,
    token: Issued,
}

/// A token that expires when `with` does, by the API server's clock, which has set that time.
///
/// # Errors
/// Requests that failed; [`Error::BootstrapTokenForbidden`].
pub async fn issue(state: &State, config: &str, publish: &Publish, with: &Issued) -> Result<Issued, Error> {
    let groups = plan::joins_by(&publish.node_bootstrap, None);
    if let Some(kept) = lock(&state.unpublished).get(config)
        && kept.groups == groups
        && kept.token.expires.duration_since(with.issued) * 2 > with.expires.duration_since(with.issued)
    {
        return Ok(kept.token.clone());
    }
    let token = Issued { token: create(state, publish, with.expires).await?, ..with.clone() };
    lock(&state.unpublished).insert(config.to_owned(), Unpublished { groups, token: token.clone() });
    Ok(token)
}

async fn create(state: &State, publish: &Publish, expires: Timestamp) -> Result<String, Error> {
    let api: Api<Secret> = Api::namespaced(state.context.worker.client.clone(), BOOTSTRAP_TOKENS_NAMESPACE);
    let mut refused = None;
    for _ in 0..ATTEMPTS {
        let surroundings = &state.context.surroundings;
        let (id, word) = (random(surroundings, 6), random(surroundings, 16));
        let secret = secret(state, publish, expires, &id, &word);
        match api.create(&PostParams::default(), &secret).await {
            Ok(_) => return Ok(format!("{id}.{word}")),
            Err(error) if status::already_exists(&error) => refused = Some(error),
            Err(error) if status::is_code(&error, 403) && !status::namespace_missing(&error) => {
                return Err(Error::BootstrapTokenForbidden);
            }
            Err(error) => return Err(failed("creating a bootstrap token")(error).into()),
        }
    }
    let none = || kube::Error::Api(Box::default());
    Err(failed("creating a bootstrap token")(refused.unwrap_or_else(none)).into())
}

/// Without the Go implementation's label `machinedeployment.k8s.io/name`: it would find ours by it, and stop at the second.
fn secret(state: &State, publish: &Publish, expires: Timestamp, id: &str, word: &str) -> Secret {
    let owner = publish.marks.annotations.get(names::OWNER).map(String::as_str).unwrap_or_default();
    let mut data = BTreeMap::from([
        ("description", format!("for new nodes of MachineDeployment {owner}")),
        ("token-id", id.to_owned()),
        ("token-secret", word.to_owned()),
        ("expiration", expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ("usage-bootstrap-authentication", "true".to_owned()),
    ]);
    if !publish.node_bootstrap.groups.is_empty() {
        data.insert("auth-extra-groups", publish.node_bootstrap.groups.join(","));
    }
    let data = data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())));
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("bootstrap-token-{id}")),
            labels: Some(publish.marks.labels(&state.installation, ROLE_BOOTSTRAP_TOKEN)),
            annotations: Some(publish.marks.annotations.clone()),
            ..ObjectMeta::default()
        },
        data: Some(data.collect()),
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        ..Secret::default()
    }
}

/// Characters of which each is as likely as any other.
fn random(surroundings: &Surroundings, length: usize) -> String {
    let mut text = String::new();
    while text.len() < length {
        let byte = usize::from(u8::from_le_bytes(surroundings.bytes()));
        // The last few bytes would favour the first characters.
        if byte < usize::from(u8::MAX) / ALPHABET.len() * ALPHABET.len() {
            text.extend(ALPHABET.get(byte % ALPHABET.len()).copied().map(char::from));
        }
    }
    text
}
