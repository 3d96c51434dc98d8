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
}

impl Values {
    pub fn has(&self, value: &str) -> bool {
        match self {
            Self::These(values) => values.contains(&value),
            Self::Set { has, .. } => has(value),
        }
    }
}

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
        "get", "list", "watch", "create", "update", "patch", "delete", "other",
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

/// What the services send requests for. The client reads it from the paths of requests, in which names stand elsewhere.
pub(super) const RESOURCE: Label = Label::of_set("resource", "a resource, as RBAC names it", is_of_code);

/// What the services watch, as the code names it. Several watches can be of the same resource.
pub(super) const KIND: Label = Label::of_set("kind", "what a watch is of", is_of_code);

fn is_of_code(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || b"-/".contains(&byte))
}

fn is_reason(value: &str) -> bool {
    Reason::all().any(|reason| reason.as_str() == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_values_and_no_names_of_objects() {
        for (label, good, bad) in [
            (CODE, ["0", "200", "409"], ["1", "20", "2000", "OK"]),
            (
                RESOURCE,
                ["secrets", "serviceaccounts/token", "other"],
                ["", "Secrets", "pool-1", "a b"],
            ),
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
