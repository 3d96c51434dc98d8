//! Issues the tokens of nodes, bound to a pool's provisioning Secret, and checks what they may do before they are published.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use osm_api::names::NODE_BOOTSTRAP_ACCOUNT;
use osm_api::settings::NodeBootstrapKind;
use osm_runtime::request::failed;

use crate::io::bootstrap_token;
use crate::io::error::ApplyError;
use crate::io::syncer::Syncer;
use crate::model::token_binding;
use crate::model::tokens::{Issued, Tokens, granted};
use crate::plan::steps::Publish;

/// Issues both tokens, bound to the provisioning Secret where they are ServiceAccounts', and checks that they open what a
/// node needs.
///
/// # Errors
/// Requests that failed; [`ApplyError::RightMissing`], [`ApplyError::BootstrapTokenForbidden`].
pub async fn issue(
    syncer: &Syncer,
    config: &str,
    publish: &Publish,
    secret: (&str, &str),
) -> Result<Tokens, ApplyError> {
    let api = request(syncer, &publish.identity, secret, publish.life);
    let (api, kubelet) = match publish.node_bootstrap.kind {
        NodeBootstrapKind::ServiceAccountToken => {
            tokio::try_join!(api, request(syncer, NODE_BOOTSTRAP_ACCOUNT, secret, publish.life))?
        }
        NodeBootstrapKind::BootstrapToken => {
            let api = api.await?;
            let kubelet = bootstrap_token::issue(syncer, config, publish, &api).await?;
            (api, kubelet)
        }
    };
    syncer.clients.token_probe.may_read(&api.token, secret.0).await?;
    let joins_by =
        token_binding::joins_by(&publish.node_bootstrap, Some(NODE_BOOTSTRAP_ACCOUNT)).unwrap_or_default();
    syncer
        .clients
        .token_probe
        .may_join(&kubelet.token, joins_by)
        .await?;
    Ok(Tokens {
        issued: api.issued.min(kubelet.issued),
        expires: api.expires.min(kubelet.expires),
        life: api.life.min(kubelet.life),
        api: api.token,
        kubelet: kubelet.token,
    })
}

async fn request(
    syncer: &Syncer,
    account: &str,
    (name, uid): (&str, &str),
    life: Duration,
) -> Result<Issued, ApplyError> {
    let spec = TokenRequestSpec {
        // Empty: the API server's own audience.
        audiences: Vec::new(),
        expiration_seconds: Some(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
        }),
    };
    let request = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let api: Api<ServiceAccount> = syncer.clients.in_namespace();
    let before = syncer.clients.cluster.worker.server_time.now();
    let issued = api
        .create_token_request(account, &PostParams::default(), &request)
        .await;
    Ok(granted(issued.map_err(failed("issuing a token"))?, before, life))
}
