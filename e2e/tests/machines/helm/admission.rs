//! The admission webhooks of a release: the API server reaches the pods by their Services, and trusts the certificate of an operator's Secret.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use osm_api::names::KUBE_SYSTEM;
use osm_api::{MachineDeployment, OperatingSystemProfile};
use osm_testkit::{fixtures, wait_for};
use serde_json::{Value, json};

use super::lifecycle::{BEFORE, Lifecycle, NAME, values};
use super::release::Release;

const REFUSED_WITHIN: Duration = Duration::from_secs(600);

/// The Secret with the certificate of the webhooks.
const PAIR: &str = "webhooks";

/// Turns the webhooks on, waits until they refuse what they should, and turns them off.
pub async fn play(lifecycle: &Lifecycle<'_>, client: &Client, release: &Release) -> Result<()> {
    let hosts = ["osp", "osc"].map(|service| format!("{NAME}-{service}-admission.{NAME}.svc"));
    let pair = rcgen::generate_simple_self_signed(hosts)?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": PAIR, "namespace": NAME},
        "stringData": {"tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem()}});
    let secrets = Api::<Secret>::namespaced(client.clone(), NAME);
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret)?)
        .await?;
    let certificate =
        json!({"source": "secret", "secretName": PAIR, "caBundle": STANDARD.encode(pair.cert.pem())});
    let mut with_webhooks = values(BEFORE, 1);
    let fields = with_webhooks.as_object_mut().context("values")?;
    fields.insert(
        "admission".to_owned(),
        json!({"enabled": true, "certificate": certificate}),
    );
    release.upgrade(&with_webhooks).await?;

    let profile = fixtures::profile(NAME, "broken", "v1.0.0", "{{nothing.here}}");
    let resource = ApiResource::erase::<OperatingSystemProfile>(&());
    refused(client, &resource, NAME, &profile).await?;
    let pool = fixtures::machine_deployment("lost", "nowhere");
    let resource = ApiResource::erase::<MachineDeployment>(&());
    refused(client, &resource, KUBE_SYSTEM, &pool).await?;
    lifecycle
        .progress
        .step("the admission webhooks refuse a broken profile, and a MachineDeployment with an unknown one");
    release.upgrade(&values(BEFORE, 1)).await?;
    secrets.delete(PAIR, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits until a webhook refuses the object, which is not stored in any case.
async fn refused(client: &Client, resource: &ApiResource, namespace: &str, object: &Value) -> Result<()> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, resource);
    let object = serde_json::from_value(object.clone())?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let what = format!("a webhook for {} to refuse one", resource.plural);
    wait_for(&what, REFUSED_WITHIN, async || {
        match api.create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => Ok(Some(())),
            _ => Ok(None),
        }
    })
    .await
}
