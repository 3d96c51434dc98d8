//! The protocol: `AdmissionReview` of `admission.k8s.io/v1`.
//!
//! kube's types decode the object into a tree. These keep its text, so that [`crate::object`] decodes it as
//! for a watch: within limits, and with the same message if it can't be decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::condition::clip;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::judge::{Request, Verdict};

/// The only version that is understood. The configuration of the webhook names no other.
pub(super) const VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// The API server cuts longer warnings off, if all of them together have more than 4,096 bytes.
const MAX_WARNING: usize = 256;
/// As many of the longest warnings as fit into the 4,096 bytes that the API server passes on.
const MAX_WARNINGS: usize = 16;

/// A review that was read.
#[derive(Debug)]
pub(super) struct Review {
    /// Identifies the request in the answer.
    pub(super) uid: String,
    /// What is to be judged; `None`: it is allowed.
    pub(super) request: Option<Request>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    api_version: String,
    kind: String,
    request: Sent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    uid: String,
    operation: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    object: Option<Box<RawValue>>,
    old_object: Option<Box<RawValue>>,
}

/// Reads the body of a request; `None`: it is not a review of this version.
pub(super) fn read(body: &[u8]) -> Option<Review> {
    let body: Body = serde_json::from_slice(body).ok()?;
    let is_review = body.kind == KIND && body.api_version == VERSION;
    is_review.then(|| Review {
        uid: body.request.uid.clone(),
        request: to_judge(body.request),
    })
}

/// What of a request is to be judged. Deletion is never held up: neither the request for it, nor an update
/// that removes a finalizer.
fn to_judge(sent: Sent) -> Option<Request> {
    let is_judged = matches!(sent.operation.as_str(), "CREATE" | "UPDATE");
    let object = sent
        .object
        .filter(|object| is_judged && !is_being_deleted(object))?;
    Some(Request {
        namespace: sent.namespace,
        name: sent.name,
        object,
        old_object: sent.old_object,
    })
}

fn is_being_deleted(object: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        metadata: ObjectMeta,
    }
    serde_json::from_str::<Head>(object.get()).is_ok_and(|head| head.metadata.deletion_timestamp.is_some())
}

/// The body of the answer to a request.
pub(super) fn answer(uid: &str, verdict: &Verdict) -> Vec<u8> {
    let warnings: Vec<String> = verdict
        .warnings
        .iter()
        .take(MAX_WARNINGS)
        .map(|warning| of_one_line(warning))
        .collect();
    let mut response = json!({"uid": uid, "allowed": verdict.denial.is_none(), "warnings": warnings});
    if let Some(message) = &verdict.denial
        && let Some(fields) = response.as_object_mut()
    {
        let status = json!({"status": "Failure", "message": message, "reason": "Invalid", "code": 422});
        fields.insert("status".to_owned(), status);
    }
    let review = json!({"apiVersion": VERSION, "kind": KIND, "response": response});
    review.to_string().into_bytes()
}

/// A header carries the warning, and the API server drops one with control characters.
fn of_one_line(warning: &str) -> String {
    let one_line: String = warning
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    clip(&one_line, MAX_WARNING)
}
