//! Asks the API server what a token may do, with that token.

use std::time::Duration;

use http::Request;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::request::failed;
use osm_runtime::{Connection, rights};
use parking_lot::Mutex;

use crate::io::error::ApplyError;

/// Pauses between questions. The API server learns of a new Role or RoleBinding by a watch of its own, so its
/// first "no" is not final.
const RETRY_PAUSES: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

pub struct TokenProbe {
    worker: Connection,
    /// When a pool's token was last found to open a Secret of its Role.
    may_read: Mutex<Option<tokio::time::Instant>>,
    /// When a token was last found to be allowed to join.
    may_join: Mutex<Option<tokio::time::Instant>>,
}

impl TokenProbe {
    pub fn new(worker: &Connection) -> Self {
        Self {
            worker: worker.clone(),
            may_read: Mutex::new(None),
            may_join: Mutex::new(None),
        }
    }

    /// How long ago [`Self::may_read`] last had a yes; `None` also where it has had a no since.
    pub fn found_readable(&self) -> Option<Duration> {
        self.may_read.lock().map(|at| at.elapsed())
    }

    pub async fn may_read(&self, token: &str, secret: &str) -> Result<(), ApplyError> {
        let read = ResourceAttributes {
            namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
            verb: Some("get".to_owned()),
            resource: Some("secrets".to_owned()),
            name: Some(secret.to_owned()),
            ..ResourceAttributes::default()
        };
        let answer = self.must_be_allowed(token, read).await;
        *self.may_read.lock() = answer.is_ok().then(tokio::time::Instant::now);
        answer
    }

    /// How long ago [`Self::may_join`] last had a yes.
    pub fn found_joinable(&self) -> Option<Duration> {
        self.may_join.lock().map(|at| at.elapsed())
    }

    /// The token must be allowed to request certificates.
    pub async fn may_join(&self, token: &str) -> Result<(), ApplyError> {
        self.must_be_allowed(token, requests()).await?;
        *self.may_join.lock() = Some(tokio::time::Instant::now());
        Ok(())
    }

    /// Whether the API server accepts the token, whatever it may do.
    pub async fn is_accepted(&self, token: &str) -> Result<bool, ApplyError> {
        let answer = self.ask(token, &requests(), &[Answer::Yes, Answer::No]).await?;
        Ok(answer != Answer::Unauthenticated)
    }

    async fn must_be_allowed(&self, token: &str, attributes: ResourceAttributes) -> Result<(), ApplyError> {
        match self.ask(token, &attributes, &[Answer::Yes]).await? {
            Answer::Yes => Ok(()),
            Answer::No => Err(ApplyError::RightMissing {
                right: rights::describe(&attributes),
            }),
            Answer::Unauthenticated => Err(ApplyError::TokenRefused),
        }
    }

    /// Asks until the answer is one of these, or the last.
    async fn ask(
        &self,
        token: &str,
        attributes: &ResourceAttributes,
        until: &[Answer],
    ) -> Result<Answer, ApplyError> {
        let mut answer = Answer::Unauthenticated;
        for pause in RETRY_PAUSES {
            answer = self.answer(token, attributes).await?;
            if until.contains(&answer) {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        Ok(answer)
    }

    async fn answer(&self, token: &str, attributes: &ResourceAttributes) -> Result<Answer, ApplyError> {
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
            Ok(request) => {
                self.worker
                    .anonymous()
                    .request::<SelfSubjectAccessReview>(request)
                    .await
            }
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Ok(if answer.status.is_some_and(|status| status.allowed) {
                Answer::Yes
            } else {
                Answer::No
            }),
            Err(error) if osm_runtime::error::is_code(&error, 401) => Ok(Answer::Unauthenticated),
            Err(error) => Err(failed("asking what a token may do")(error).into()),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// The API server has yet to see the account or the Secret that the token is bound to.
    Unauthenticated,
}

/// To create CertificateSigningRequests.
fn requests() -> ResourceAttributes {
    ResourceAttributes {
        group: Some("certificates.k8s.io".to_owned()),
        verb: Some("create".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        ..ResourceAttributes::default()
    }
}
