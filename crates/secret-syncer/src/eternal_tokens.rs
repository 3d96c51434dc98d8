//! Tokens without end in `cloud-init-settings`: Secrets of type `kubernetes.io/service-account-token`. The Go implementation's
//! `cloud-init-getter-token` opens every Secret of the namespace to whoever has ever read a machine's user data. They are
//! somebody else's, so they are never deleted here: people are told, once and again when they are no longer needed.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::{Resource, ResourceExt};
use osm_api::names::CLOUD_INIT_SETTINGS;
use prometheus::IntGauge;

use crate::state::{State, lock};

/// Type of the Secrets.
pub const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// A Secret with such a token; the token itself is not kept.
#[derive(Clone, Debug, PartialEq)]
pub struct EternalToken {
    /// Its Secret.
    pub secret: ObjectReference,
    /// Whose it is.
    pub account: String,
}

impl EternalToken {
    /// Drops the token.
    pub fn of(secret: &Secret) -> Self {
        let account = secret.annotations().get(ACCOUNT).cloned().unwrap_or_default();
        Self { secret: secret.object_ref(&()), account }
    }

    /// What people are told; `needed_by`: OperatingSystemConfigs without Secrets of ours, and the first of them.
    fn message(&self, needed_by: Option<(usize, &str)>) -> String {
        let (name, account) = (self.secret.name.as_deref().unwrap_or_default(), &self.account);
        let found = format!(
            "Secret {CLOUD_INIT_SETTINGS}/{name} holds a token of ServiceAccount {account} that never expires"
        );
        match needed_by {
            Some((configs, first)) => format!(
                "{found}. It is to be deleted, but not yet: machines of {configs} OperatingSystemConfigs that are not published \
                 ({first} is one) may still need it"
            ),
            None => format!(
                "{found}, and no machine made from now on needs it: delete it once those that are booting have joined, with its \
                 ServiceAccount, Role and RoleBinding: `kubectl delete secret/{name} serviceaccount/{account} \
                 role/{account} rolebinding/{account} -n {CLOUD_INIT_SETTINGS}`"
            ),
        }
    }
}

/// The metric.
///
/// # Errors
/// Where its name is taken.
pub fn metric(metrics: &osm_runtime::Metrics) -> Result<IntGauge, prometheus::Error> {
    let help =
        "Secrets in cloud-init-settings with a ServiceAccount's token that never expires. None is ours.";
    let gauge = IntGauge::new("foreign_credentials", help)?;
    metrics.register(gauge.clone())?;
    Ok(gauge)
}

/// Looks at all of them, and tells what is new.
pub async fn tell(state: &State) {
    let tokens = state.eternal_tokens.select(|_| true);
    state.metrics.foreign_credentials.set(i64::try_from(tokens.len()).unwrap_or(i64::MAX));
    let waiting = state.configs.select(|config| config.status.published.is_none() && !config.is_retired());
    let needed_by = waiting.iter().map(|config| config.name.as_str()).min().map(|name| (waiting.len(), name));
    let news = told_of(&mut lock(&state.told_of_tokens), &tokens, needed_by.is_some());
    for token in news {
        let message = token.message(needed_by);
        tracing::warn!(secret = token.secret.name, account = token.account, "{message}");
        let events = &state.context.worker.events;
        events.warning_once(&token.secret, "TokenWithoutEnd", &message).await;
    }
}

/// Another replica tells of them from now on.
pub fn released(state: &State) {
    state.metrics.foreign_credentials.set(0);
    lock(&state.told_of_tokens).clear();
}

/// By uid of the Secret: whether it was needed when people were last told of it.
pub type Told = HashMap<String, bool>;

/// Those of which people are to be told now: new ones, and those that are no longer needed. Forgets those that are gone.
fn told_of<'a>(
    told: &mut Told,
    tokens: &'a [std::sync::Arc<EternalToken>],
    needed: bool,
) -> Vec<&'a EternalToken> {
    let uid = |token: &EternalToken| token.secret.uid.clone().unwrap_or_default();
    told.retain(|known, _| tokens.iter().any(|token| uid(token) == *known));
    let mut news = Vec::new();
    for token in tokens {
        let before = told.get(&uid(token)).copied();
        // That a pool is new, or broken for a while, is no news about the token.
        if before.is_none() || (before == Some(true) && !needed) {
            told.insert(uid(token), needed);
            news.push(token.as_ref());
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn people_are_told_of_each_once_and_when_it_is_no_longer_needed() {
        let token = |uid: &str| {
            let secret = ObjectReference {
                name: Some("cloud-init-getter-token".into()),
                uid: Some(uid.into()),
                ..ObjectReference::default()
            };
            Arc::new(EternalToken { secret, account: "cloud-init-getter".into() })
        };
        let (mut told, both) = (Told::new(), [token("a"), token("b")]);
        assert_eq!(told_of(&mut told, &both[..1], true).len(), 1);
        assert_eq!(told_of(&mut told, &both[..1], true).len(), 0);
        assert_eq!(told_of(&mut told, &both, true).len(), 1, "the new one");
        assert_eq!(told_of(&mut told, &both, false).len(), 2, "no longer needed");
        assert_eq!(told_of(&mut told, &both, true).len(), 0, "a pool that is new does not need it");
        assert_eq!(told_of(&mut told, &[], false).len(), 0);
        assert_eq!(told_of(&mut told, &both[..1], false).len(), 1, "back again");

        let needed = both[0].message(Some((2, "p-kube-system-config")));
        assert!(needed.contains("not yet") && !needed.contains("kubectl"), "{needed}");
        let command = "kubectl delete secret/cloud-init-getter-token serviceaccount/cloud-init-getter role/";
        assert!(both[0].message(None).contains(command));
    }
}
