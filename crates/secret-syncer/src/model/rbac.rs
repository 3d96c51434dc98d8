//! Shapes of a pool's Role and RoleBinding. The views compare what is watched with them, and the writers write them.

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleRef, Subject};
use osm_api::names::CLOUD_INIT_SETTINGS;

/// A pool's Role allows exactly this: to get these Secrets.
pub fn rule(secrets: &[String]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(secrets.to_vec()),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }
}

/// A pool's RoleBinding refers to the Role of the same name.
pub fn role_ref(name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: "Role".to_owned(),
        name: name.to_owned(),
    }
}

/// A pool's RoleBinding binds the ServiceAccount of the same name.
pub fn subject(name: &str) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
    }
}
