//! The objects of a pool, as they are written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::names;

use crate::model::existing::Ownership;
use crate::model::record::content_digest;
use crate::model::view;

pub fn metadata(ownership: &Ownership, installation: &str, name: &str, purpose: &'static str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(ownership.all_labels(installation, purpose)),
        annotations: Some(ownership.annotations.clone()),
        ..ObjectMeta::default()
    }
}

/// Pods that borrow the account get no token.
pub fn account(metadata: ObjectMeta) -> ServiceAccount {
    ServiceAccount {
        metadata,
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

pub fn role(metadata: ObjectMeta, secrets: &[String]) -> Role {
    Role {
        metadata,
        rules: Some(vec![view::rule(secrets)]),
    }
}

/// `name` is that of the Role and of the ServiceAccount as well.
pub fn binding(metadata: ObjectMeta, name: &str) -> RoleBinding {
    RoleBinding {
        metadata,
        role_ref: view::role_ref(name),
        subjects: Some(vec![view::subject(name)]),
    }
}

pub fn secret(metadata: ObjectMeta, data: BTreeMap<String, ByteString>, immutable: bool) -> Secret {
    Secret {
        metadata,
        data: (!data.is_empty()).then_some(data),
        type_: Some("Opaque".to_owned()),
        immutable: immutable.then_some(true),
        ..Secret::default()
    }
}

/// The Secret with the [digest](content_digest()) of its content.
pub fn with_digest(mut secret: Secret) -> Secret {
    let data = secret.data.get_or_insert_default();
    let annotations = secret.metadata.annotations.get_or_insert_default();
    let digest = content_digest(data, |name| annotations.get(name).map(String::as_str));
    data.insert(
        names::CONTENT_DIGEST_KEY.to_owned(),
        ByteString(digest.into_bytes()),
    );
    secret
}
