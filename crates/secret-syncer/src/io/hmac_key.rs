//! Keeps the installation's HMAC key in a Secret, and the key of that Secret in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use osm_api::names;
use osm_runtime::RequestError;
use osm_runtime::error::already_exists;
use osm_runtime::request::failed;

use crate::io::apply::teardown;
use crate::io::context::Context;
use crate::io::error::{ApplyError, Error, GatherError};
use crate::io::memory::KeyMemory;
use crate::model::found::FoundSecret;
use crate::model::hmac_key::{DATA_KEY, HmacKey};
use crate::model::view::ROLE_KEY;
use crate::plan::hmac_key::{KeyAdoption, KeyStep, adopt, choose};

/// Ensures that the key exists in the cluster, and requeues the configs that waited for it or depend on it.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
pub async fn reconcile(context: &Context) -> Result<(), Error> {
    let before = context.memory.hmac_key();
    let unfinished = Unfinished(context);
    let outcome = ensure(context, &before).await;
    std::mem::forget(unfinished);
    match (outcome, before) {
        (Ok(key), before) => {
            context.memory.set_hmac_key(KeyMemory::Known(key.clone()));
            match before {
                KeyMemory::Known(before) if before == key => {}
                KeyMemory::Known(_) => {
                    tracing::warn!(
                        secret = names::digest_key_secret_name(&context.clients.installation),
                        "another HMAC key is in the Secret now; all user data is published once more"
                    );
                    context.wake(|_| true);
                }
                KeyMemory::Unknown | KeyMemory::Failed(_) => context.wake_all(),
            }
            Ok(())
        }
        (Err(error), _) => {
            let error = Arc::new(error);
            note_failure(context, error.clone());
            Err(GatherError::HmacKey(error).into())
        }
    }
}

/// The configs that waited can now report why.
fn note_failure(context: &Context, error: Arc<ApplyError>) {
    if context.memory.hmac_key_failed(error) {
        context.wake_all();
    }
}

/// Dropped where the time limit or a panic ends the reconcile. Without this the configs would go on waiting for the key, and
/// nothing would report why.
struct Unfinished<'a>(&'a Context);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let source = Box::new(kube::Error::Service("its reconcile did not finish".into()));
        let error = RequestError::Failed {
            what: "the HMAC key",
            source,
        };
        note_failure(self.0, Arc::new(error.into()));
    }
}

async fn ensure(context: &Context, memory: &KeyMemory) -> Result<HmacKey, ApplyError> {
    let secret = context.caches.hmac_key_secret(&context.clients.installation);
    let watched = secret.and_then(|secret| secret.key.clone());
    let used = match memory {
        KeyMemory::Known(key) => Some(key.clone()),
        KeyMemory::Unknown | KeyMemory::Failed(_) => None,
    };
    match choose(watched, used, || {
        HmacKey::new(context.clients.process.environment.bytes())
    }) {
        KeyStep::Use(key) => Ok(key),
        KeyStep::Store(key) => store(context, key).await,
    }
}

/// Returns the key that is in the Secret afterwards.
async fn store(context: &Context, key: HmacKey) -> Result<HmacKey, ApplyError> {
    const WHAT: &str = "the HMAC key";
    let installation = &context.clients.installation;
    let name = names::digest_key_secret_name(installation);
    let api = context.clients.secrets();
    let secret = secret(&name, installation, &key);
    match api.create(&PostParams::default(), &secret).await {
        Ok(created) => {
            context.caches.wrote_secret(&created);
            return Ok(key);
        }
        Err(error) if already_exists(&error) => {}
        Err(error) => return Err(failed("creating the HMAC key")(error).into()),
    }
    let mut found = api.get(&name).await.map_err(failed("reading the HMAC key"))?;
    let stored = found.data.as_ref().and_then(|data| data.get(DATA_KEY));
    let stored = stored.and_then(|key| HmacKey::of(&key.0));
    match adopt(installation, &FoundSecret::of(&found), stored, key.clone()) {
        KeyAdoption::Foreign => Err(ApplyError::ForeignSecret { name }),
        KeyAdoption::Recreate { uid } => {
            teardown::delete(&api, &name, &uid, None, WHAT).await?;
            let created = api
                .create(&PostParams::default(), &secret)
                .await
                .map_err(failed(WHAT))?;
            context.caches.wrote_secret(&created);
            Ok(key)
        }
        KeyAdoption::Replace(key) => {
            let wanted = self::secret(&name, installation, &key);
            (found.data, found.metadata.labels) = (wanted.data, wanted.metadata.labels);
            let replaced = api
                .replace(&name, &PostParams::default(), &found)
                .await
                .map_err(failed(WHAT))?;
            context.caches.wrote_secret(&replaced);
            Ok(key)
        }
    }
}

fn secret(name: &str, installation: &str, key: &HmacKey) -> Secret {
    let labels = [(names::INSTALLATION, installation), (names::ROLE, ROLE_KEY)];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            DATA_KEY.to_owned(),
            ByteString(key.bytes().to_vec()),
        )])),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}
