//! Asks the API server what a token may do, with that token.

use std::time::Duration;

use http::Request;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::request::failed;
use osm_runtime::rights;
use parking_lot::Mutex;

use crate::io::error::ApplyError;
use crate::plan::join_right;

/// Pauses between questions. The API server learns of a new Role or RoleBinding by a watch of its own, so its first "no" is not final.
const RETRY_PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// A connection on which each request carries a token of its own.
pub struct TokenProbe {
    client: Client,
    /// What was last found to be allowed to join, and when.
    may_join: Mutex<Option<(String, tokio::time::Instant)>>,
}

impl TokenProbe {
    /// On an anonymous connection.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            may_join: Mutex::new(None),
        }
    }

    pub async fn may_read(&self, token: &str, secret: &str) -> Result<(), ApplyError> {
        let read = ResourceAttributes {
            namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
            verb: Some("get".to_owned()),
            resource: Some("secrets".to_owned()),
            name: Some(secret.to_owned()),
            ..ResourceAttributes::default()
        };
        self.must_be_allowed(token, read).await
    }

    pub async fn may_join(&self, token: &str, joins_by: String) -> Result<(), ApplyError> {
        let found = self.may_join.lock().clone();
        let found = found.as_ref().map(|(known, at)| (known.as_str(), at.elapsed()));
        if !join_right::has_to_be_asked(found, &joins_by) {
            return Ok(());
        }
        for subresource in [None, Some("nodeclient")] {
            let join = ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                verb: Some("create".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: subresource.map(str::to_owned),
                ..ResourceAttributes::default()
            };
            self.must_be_allowed(token, join).await?;
        }
        *self.may_join.lock() = Some((joins_by, tokio::time::Instant::now()));
        Ok(())
    }

    async fn must_be_allowed(&self, token: &str, attributes: ResourceAttributes) -> Result<(), ApplyError> {
        for pause in RETRY_PAUSES {
            if self.allowed(token, &attributes).await? {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
        }
        Err(ApplyError::RightMissing {
            right: rights::describe(&attributes),
        })
    }

    async fn allowed(&self, token: &str, attributes: &ResourceAttributes) -> Result<bool, ApplyError> {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes.clone()),
            ..Default::default()
        };
        let review = SelfSubjectAccessReview {
            spec,
            ..SelfSubjectAccessReview::default()
        };
        let body = serde_json::to_vec(&review).map_err(kube::Error::SerdeError);
        let request = body.and_then(|body| {
            Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .header(http::header::CONTENT_TYPE, "application/json")
                .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
                .body(body)
                .map_err(kube::Error::HttpError)
        });
        let answer = match request {
            Ok(request) => self.client.request::<SelfSubjectAccessReview>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
            // The API server has yet to see the account or the Secret that the token is bound to.
            Err(error) if osm_runtime::error::is_code(&error, 401) => Ok(false),
            Err(error) => Err(failed("asking what a token may do")(error).into()),
        }
    }
}
