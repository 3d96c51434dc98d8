//! Non-expiring tokens in `cloud-init-settings`: Secrets of type `kubernetes.io/service-account-token`.
//!
//! The upstream OSM's `cloud-init-getter-token` opens every Secret of the namespace to anyone who has ever read a machine's user
//! data. Such Secrets belong to other programs, so this program never deletes them. It warns about each once, and once more when it is no
//! longer needed.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::{Resource, ResourceExt};
use osm_api::names::CLOUD_INIT_SETTINGS;

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

/// By uid of the Secret: whether the token was still needed at the last warning.
pub type Reported = HashMap<String, bool>;

/// Tokens to warn about now. Forgets those that no longer exist.
pub fn due<'a>(
    reported: &mut Reported,
    tokens: &'a [Arc<LegacyToken>],
    needed: bool,
) -> Vec<&'a LegacyToken> {
    let uid = |token: &LegacyToken| token.secret.uid.clone().unwrap_or_default();
    reported.retain(|known, _| tokens.iter().any(|token| uid(token) == *known));
    let mut due = Vec::new();
    for token in tokens {
        let before = reported.get(&uid(token)).copied();
        // A pool that is new, or broken for a while, changes nothing about the token.
        if before.is_none() || (before == Some(true) && !needed) {
            reported.insert(uid(token), needed);
            due.push(token.as_ref());
        }
    }
    due
}

/// `needed_by`: how many OperatingSystemConfigs have no Secrets of ours, and the first of them.
pub fn message(token: &LegacyToken, needed_by: Option<(usize, &str)>) -> String {
    let (name, account) = (token.secret.name.as_deref().unwrap_or_default(), &token.account);
    let found = format!(
        "Secret {CLOUD_INIT_SETTINGS}/{name} holds a token of ServiceAccount {account} that never expires"
    );
    match needed_by {
        Some((configs, first)) => format!(
            "{found}. Do not delete it yet: machines of {configs} OperatingSystemConfigs that are not published, such as {first}, \
             may still need it"
        ),
        None => format!(
            "{found}, and new machines no longer need it. Once all booting machines have joined, delete it with its \
             ServiceAccount, Role and RoleBinding: `kubectl delete secret/{name} serviceaccount/{account} \
             role/{account} rolebinding/{account} -n {CLOUD_INIT_SETTINGS}`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_is_reported_once_and_when_it_is_no_longer_needed() {
        let token = |uid: &str| {
            let secret = ObjectReference {
                name: Some("cloud-init-getter-token".into()),
                uid: Some(uid.into()),
                ..ObjectReference::default()
            };
            Arc::new(LegacyToken {
                secret,
                account: "cloud-init-getter".into(),
            })
        };
        let (mut reported, both) = (Reported::new(), [token("a"), token("b")]);
        assert_eq!(due(&mut reported, &both[..1], true).len(), 1);
        assert_eq!(due(&mut reported, &both[..1], true).len(), 0);
        assert_eq!(due(&mut reported, &both, true).len(), 1, "the new one");
        assert_eq!(due(&mut reported, &both, false).len(), 2, "no longer needed");
        assert_eq!(
            due(&mut reported, &both, true).len(),
            0,
            "a pool that is new does not need it"
        );
        assert_eq!(due(&mut reported, &[], false).len(), 0);
        assert_eq!(due(&mut reported, &both[..1], false).len(), 1, "back again");

        let needed = message(&both[0], Some((2, "p-kube-system-config")));
        assert!(
            needed.contains("not delete it yet") && !needed.contains("kubectl"),
            "{needed}"
        );
        let command = "kubectl delete secret/cloud-init-getter-token serviceaccount/cloud-init-getter role/";
        assert!(message(&both[0], None).contains(command));
    }
}
