//! The objects of a pool, as they are written.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::names;

use crate::model::hmac_key::HmacKey;
use crate::model::ownership::OwnershipLabels;
use crate::model::rbac;
use crate::model::seal::seal;
use crate::model::view::SecretView;

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

/// A Secret with these data entries, by their names.
pub fn secret<'a>(
    metadata: ObjectMeta,
    entries: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    immutable: bool,
) -> Secret {
    let entries = entries.into_iter();
    let data: BTreeMap<_, _> = entries
        .map(|(name, bytes)| (name.to_owned(), ByteString(bytes.to_vec())))
        .collect();
    Secret {
        metadata,
        data: (!data.is_empty()).then_some(data),
        type_: Some("Opaque".to_owned()),
        immutable: immutable.then_some(true),
        ..Secret::default()
    }
}

/// The Secret with a seal over its content and the annotations that later decisions rest on.
pub fn sealed(key: &HmacKey, mut secret: Secret) -> Secret {
    let SecretView { meta, content, .. } = SecretView::of(&secret);
    let seal = seal(key, &content.unwrap_or_default(), &meta.annotations);
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(names::CONTENT_MAC.to_owned(), seal);
    secret
}
