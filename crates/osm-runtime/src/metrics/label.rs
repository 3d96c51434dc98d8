//! Labels of metrics, each with the closed set of its values.

use osm_api::Reason;
use osm_api::rbac::Service;

/// A label and the values that it can have.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub name: &'static str,
    pub values: Values,
}

/// A closed set of values.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    These(&'static [&'static str]),
    /// Those of a larger set.
    Set {
        /// Which set it is, as Markdown of `docs/metrics.md`.
        words: &'static str,
        has: fn(&str) -> bool,
    },
}

impl Label {
    pub const fn of(name: &'static str, values: &'static [&'static str]) -> Self {
        let values = Values::These(values);
        Self { name, values }
    }

    pub const fn of_set(name: &'static str, words: &'static str, has: fn(&str) -> bool) -> Self {
        let values = Values::Set { words, has };
        Self { name, values }
    }

    /// The value, or `other` where the set does not have it.
    pub(super) fn known<'a>(&self, value: &'a str) -> &'a str {
        if self.values.has(value) { value } else { OTHER }
    }
}

impl Values {
    pub fn has(&self, value: &str) -> bool {
        match self {
            Self::These(values) => values.contains(&value),
            Self::Set { has, .. } => has(value),
        }
    }
}

const OTHER: &str = "other";

pub const REASON: Label = Label::of_set("reason", "a [reason](reasons.md)", is_reason);

pub(super) const REASON_IF_ANY: Label =
    Label::of_set("reason", "a [reason](reasons.md); empty on success", |value| {
        value.is_empty() || is_reason(value)
    });

pub(super) const OUTCOME: Label =
    Label::of("outcome", &["success", "conflict", "failure", "timeout", "panic"]);

pub(super) const CLUSTER: Label = Label::of("cluster", &["management", "worker", "single"]);

pub(super) const COMPONENT: Label = Label::of_set("component", "the name of a service", |component| {
    Service::ALL.iter().any(|service| service.name() == component)
});

pub(super) const VERB: Label = Label::of(
    "verb",
    &[
        "get", "list", "watch", "create", "update", "patch", "delete", OTHER,
    ],
);

pub(super) const CODE: Label =
    Label::of_set("code", "an HTTP status code, or 0 without a response", |code| {
        code == "0" || (code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit()))
    });

pub(super) const CONDITION: Label = Label::of("condition", &["Accepted", "Copied", "Published", "Rendered"]);

pub(super) const STATUS: Label = Label::of("status", &["True", "False"]);

pub(super) const VERSION: Label = Label::of_set("version", "the version of the service", |version| {
    version == env!("CARGO_PKG_VERSION")
});

/// What the services send requests for, as RBAC names it.
pub(super) const RESOURCE: Label = Label::of(
    "resource",
    &[
        "certificatesigningrequests",
        "certificatesigningrequests/approval",
        "clusterrolebindings",
        "clusterroles",
        "configmaps",
        "customoperatingsystemprofiles",
        "endpointslices",
        "events",
        "leases",
        "machinedeployments",
        "machines",
        "machinesets",
        "namespaces",
        "nodes",
        "operatingsystemconfigs",
        "operatingsystemconfigs/status",
        "operatingsystemprofiles",
        "operatingsystemprofiles/status",
        "rolebindings",
        "roles",
        "secrets",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "serviceaccounts",
        "serviceaccounts/token",
        OTHER,
    ],
);

/// What the services watch. Several watches can be of the same resource.
pub(super) const KIND: Label = Label::of(
    "kind",
    &[
        "certificatesigningrequests",
        "claims",
        "cluster-info",
        "clusterrolebindings",
        "clusterroles",
        "configmaps",
        "customoperatingsystemprofiles",
        "endpointslices",
        "leases",
        "machinedeployments",
        "machines",
        "machinesets",
        "namespaces",
        "nodes",
        "non-expiring-tokens",
        "operatingsystemconfigs",
        "operatingsystemprofiles",
        "pool-settings",
        "rolebindings",
        "roles",
        "secrets",
        "serviceaccounts",
        "settings",
        "sources",
        OTHER,
    ],
);

fn is_reason(value: &str) -> bool {
    Reason::all().any(|reason| reason.as_str() == value)
}

#[cfg(test)]
mod tests {
    use osm_api::rbac::{Installation, Service};

    use super::*;

    #[test]
    fn every_resource_that_a_service_may_use_is_a_value() {
        let everything = Installation {
            profile_namespaces: vec!["profiles".to_owned()],
            go_finalizers: true,
            custom_profiles: true,
            serving_certificates: true,
            ..Installation::default()
        };
        let grants = Service::ALL.map(|service| service.grants(&everything));
        let rights = grants.iter().flatten().flat_map(|grant| &grant.rights);
        let resources: Vec<&String> = rights
            .flat_map(|right| right.rule.resources.iter().flatten())
            .collect();
        assert!(resources.len() > 20);
        for resource in resources {
            // The right to approve requests of a signer is a right on the signer, which gets no request.
            assert!(
                RESOURCE.values.has(resource) || resource == "signers",
                "{resource}"
            );
        }
    }

    #[test]
    fn what_no_set_has_is_other() {
        assert_eq!(RESOURCE.known("secrets"), "secrets");
        for name in ["my-secret", "secrets/my-secret", ""] {
            assert_eq!(RESOURCE.known(name), "other");
        }
        for (label, good, bad) in [
            (CODE, ["0", "200", "409"], ["1", "20", "2000", "OK"]),
            (
                REASON,
                ["Rendered", "Panic", "Timeout"],
                ["", "rendered", "Any", "a/b"],
            ),
            (
                REASON_IF_ANY,
                ["", "Rendered", "Panic"],
                [" ", "rendered", "Any", "a/b"],
            ),
        ] {
            assert!(good.iter().all(|value| label.values.has(value)), "{}", label.name);
            assert!(!bad.iter().any(|value| label.values.has(value)), "{}", label.name);
        }
    }
}
