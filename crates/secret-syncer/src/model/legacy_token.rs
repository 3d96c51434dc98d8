//! Non-expiring tokens in `cloud-init-settings`: Secrets of type `kubernetes.io/service-account-token`.
//!
//! The Go implementation's `cloud-init-getter-token` opens every Secret of the namespace to anyone who has ever read a machine's user
//! data. Such Secrets belong to other programs, so this program never deletes them. It warns about them.

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::{Resource, ResourceExt};

/// Type of the Secrets.
pub const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// A Secret with a non-expiring token. The token itself is not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct LegacyToken {
    pub secret: ObjectReference,
    /// Name of the ServiceAccount that it belongs to.
    pub account: String,
}

impl LegacyToken {
    pub fn of(secret: &Secret) -> Self {
        let account = secret.annotations().get(ACCOUNT).cloned().unwrap_or_default();
        Self {
            secret: secret.object_ref(&()),
            account,
        }
    }
}
