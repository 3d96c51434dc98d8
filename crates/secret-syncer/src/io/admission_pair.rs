//! Keeps the key pair of the admission webhooks in a Secret, and its CA in their configurations.
//!
//! The chart creates these objects, so a right by name is enough. What is missing is not created: then there is no webhook.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use osm_api::rbac::AdmissionObjects;
use osm_runtime::RequestError;
use osm_runtime::request::failed;
use serde_json::json;

use crate::io::error::ApplyError;
use crate::io::syncer::Syncer;
use crate::model::admission_pair::{Made, Stored};
use crate::plan::admission_pair::{PairStep, plan};

/// A configuration that was created or replaced is trusted again within this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

const READING_SECRET: &str = "reading the Secret of the admission webhooks";
const WRITING_SECRET: &str = "writing the Secret of the admission webhooks";
const READING_WEBHOOK: &str = "reading the configuration of an admission webhook";
const WRITING_WEBHOOK: &str = "writing caBundle of an admission webhook";

/// # Errors
/// Requests that failed.
pub async fn reconcile(syncer: &Syncer) -> Result<Option<Duration>, ApplyError> {
    let cluster = &syncer.clients.cluster;
    let Some(objects) = &cluster.installation.admission else {
        return Ok(None);
    };
    let secrets: Api<Secret> =
        Api::namespaced(cluster.home.client.clone(), cluster.installation.home_namespace());
    let found = secrets.get_opt(&objects.secret).await;
    let Some(mut secret) = found.map_err(failed(READING_SECRET))? else {
        tracing::warn!(
            secret = objects.secret,
            "the Secret of the admission webhooks is missing, so they are not reached; create it without content, as the chart does"
        );
        return Ok(Some(CHECK_INTERVAL));
    };
    let webhooks = webhooks(syncer, objects).await?;
    let mut stored = Stored::read(&secret.data.clone().unwrap_or_default());
    let bundle = stored.bundle();
    let is_known = webhooks.iter().all(|webhook| webhook.trusts(&bundle));
    if step(syncer, &mut stored, is_known) {
        secret.data = Some(stored.data());
        secrets
            .replace(&objects.secret, &PostParams::default(), &secret)
            .await
            .map_err(failed(WRITING_SECRET))?;
    }
    for webhook in &webhooks {
        webhook.trust(&stored.bundle()).await?;
    }
    Ok(Some(CHECK_INTERVAL))
}

/// Carries out one step; returns whether it changed anything.
fn step(syncer: &Syncer, stored: &mut Stored, is_known: bool) -> bool {
    let clients = &syncer.clients;
    let (now, hosts) = (clients.cluster.home.server_time.now(), &clients.admission_hosts);
    let make = || {
        let number = u128::from_le_bytes(clients.process.environment.bytes());
        Made::new(hosts, now, number)
            .inspect_err(|error| {
                tracing::error!(
                    %error,
                    "no certificate can be made for the admission webhooks; correct the names in --admission-hosts"
                );
            })
            .ok()
    };
    let step = plan(stored, hosts, now, is_known);
    match step {
        PairStep::Keep => return false,
        PairStep::Start => match make() {
            Some(made) => *stored = Stored::start(made),
            None => return false,
        },
        PairStep::Prepare => match make() {
            Some(made) => stored.prepare(made),
            None => return false,
        },
        PairStep::Promote => stored.promote(now),
        PairStep::Forget => {
            stored.next = None;
            stored.forget_others();
        }
    }
    tracing::info!(?step, "the key pair of the admission webhooks");
    true
}

/// A configuration that exists.
struct Webhook {
    api: Api<ValidatingWebhookConfiguration>,
    name: String,
    found: ValidatingWebhookConfiguration,
}

async fn webhooks(syncer: &Syncer, objects: &AdmissionObjects) -> Result<Vec<Webhook>, RequestError> {
    let cluster = &syncer.clients.cluster;
    let named = [
        (&cluster.management.client, &objects.profiles),
        (&cluster.worker.client, &objects.machine_deployments),
    ];
    let mut found = Vec::new();
    for (client, name) in named {
        if let Some(name) = name {
            found.extend(Webhook::get(client, name).await?);
        }
    }
    Ok(found)
}

impl Webhook {
    async fn get(client: &Client, name: &str) -> Result<Option<Self>, RequestError> {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let found = api.get_opt(name).await.map_err(failed(READING_WEBHOOK))?;
        Ok(found.map(|found| Self {
            api,
            name: name.to_owned(),
            found,
        }))
    }

    fn trusts(&self, bundle: &str) -> bool {
        let mut webhooks = self.found.webhooks.iter().flatten();
        webhooks.all(|webhook| {
            let trusted = webhook.client_config.ca_bundle.as_ref();
            trusted.is_some_and(|trusted| trusted.0 == bundle.as_bytes())
        })
    }

    async fn trust(&self, bundle: &str) -> Result<(), RequestError> {
        if self.trusts(bundle) {
            return Ok(());
        }
        let trusted = ByteString(bundle.as_bytes().to_vec());
        let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": trusted}});
        let entries: Vec<_> = self
            .found
            .webhooks
            .iter()
            .flatten()
            .map(|webhook| entry(&webhook.name))
            .collect();
        let patch = Patch::Strategic(json!({
            "metadata": {"resourceVersion": self.found.metadata.resource_version}, "webhooks": entries,
        }));
        let patched = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        patched.map_err(failed(WRITING_WEBHOOK))?;
        tracing::info!(
            webhook = self.name,
            "the API server trusts the key pair of this admission webhook"
        );
        Ok(())
    }
}
