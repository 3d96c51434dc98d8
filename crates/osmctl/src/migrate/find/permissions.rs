//! ServiceAccounts of the Go implementation, and the bindings and Roles that give them permissions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::marks::{CONTROLLER, WEBHOOK, is_named_so, is_of_chart};
use super::pods::account;
use super::seen::Seen;
use crate::cluster::Object;

/// Accounts of the Go implementation, each with another program that uses it as well.
pub(super) type Accounts<'o> = BTreeMap<String, Option<&'o Object>>;

/// The accounts of these Deployments, and those with the usual names. The account `default` belongs to no program.
pub(super) fn accounts<'o>(deployments: &[Object], others: &[&'o Object]) -> Accounts<'o> {
    let named = deployments.iter().map(account);
    let named = named.filter(|name| !name.is_empty() && *name != "default");
    let with_user = |name: &str| {
        let user = others.iter().find(|other| account(other) == name);
        (name.to_owned(), user.copied())
    };
    named.chain([CONTROLLER, WEBHOOK]).map(with_user).collect()
}

/// Whether only the Go implementation uses an account.
pub(super) fn is_free(accounts: &Accounts<'_>, name: &str) -> bool {
    accounts.get(name).is_some_and(Option::is_none)
}

/// Bindings that give permissions to these accounts alone.
pub(super) fn bindings(seen: &Seen, accounts: &Accounts<'_>) -> Vec<Object> {
    let is_account = |subject: &Value, namespace: &str| {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).unwrap_or_default();
        let place = Some(text("namespace")).filter(|place| !place.is_empty());
        text("kind") == "ServiceAccount"
            && place.unwrap_or(namespace) == seen.namespace
            && is_free(accounts, text("name"))
    };
    let is_it = |binding: &&Object| {
        let subjects = binding.items("/subjects");
        let namespace = binding.namespace().unwrap_or_default();
        !subjects.is_empty()
            && subjects.iter().all(|subject| is_account(subject, namespace))
            && !is_of_chart(binding)
    };
    seen.bindings.iter().filter(is_it).cloned().collect()
}

/// Roles with the name of the Go implementation that only these bindings refer to.
pub(super) fn roles(seen: &Seen, bindings: &[Object]) -> Vec<Object> {
    let refers = |binding: &Object, role: &Object| {
        let is_near = role.namespace().is_none() || role.namespace() == binding.namespace();
        binding.text("/roleRef/kind") == role.kind.kind
            && binding.text("/roleRef/name") == role.name()
            && is_near
    };
    let is_it = |role: &&Object| {
        let mut others = seen.bindings.iter().filter(|binding| !bindings.contains(binding));
        is_named_so(role)
            && bindings.iter().any(|binding| refers(binding, role))
            && !others.any(|other| refers(other, role))
    };
    seen.roles.iter().filter(is_it).cloned().collect()
}
