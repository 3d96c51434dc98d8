//! The objects of a pool, as they are written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::model::ownership::OwnershipLabels;
use crate::model::rbac;

pub fn metadata(
    ownership: &OwnershipLabels,
    installation: &str,
    name: &str,
    role: &'static str,
) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(ownership.labels(installation, role)),
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
        rules: Some(vec![rbac::rule(secrets)]),
    }
}

/// `name` is that of the Role and of the ServiceAccount as well.
pub fn binding(metadata: ObjectMeta, name: &str) -> RoleBinding {
    RoleBinding {
        metadata,
        role_ref: rbac::role_ref(name),
        subjects: Some(vec![rbac::subject(name)]),
    }
}

/// A Secret with one document or script, under this name of a data entry.
pub fn secret(metadata: ObjectMeta, entry: &str, document: &str, immutable: bool) -> Secret {
    let data = BTreeMap::from([(entry.to_owned(), ByteString(document.as_bytes().to_vec()))]);
    Secret {
        metadata,
        data: Some(data),
        type_: Some("Opaque".to_owned()),
        immutable: immutable.then_some(true),
        ..Secret::default()
    }
}
