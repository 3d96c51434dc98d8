//! What a pool's tokens are bound to. When one of these changes, the tokens are dead.

/// The middle part of `bound-to` where the kubelets' token is the pool's own.
const POOL: &str = "pool";

/// The token that the kubelets of a pool join with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeletToken {
    /// The same as the API token.
    Pool,
    /// Of the ServiceAccount `osm-node-bootstrap`.
    NodeAccount,
}

impl KubeletToken {
    /// What the token rests on: the pool's own account, or the uid of `osm-node-bootstrap`.
    pub fn joins_by(&self, node_account: Option<&str>) -> Option<String> {
        match self {
            Self::Pool => Some(POOL.to_owned()),
            Self::NodeAccount => node_account.map(str::to_owned),
        }
    }
}

/// Value of the annotation `bound-to`; `None` where one of the three is missing.
pub fn bound_to(account: Option<&str>, joins_by: Option<&str>, secret: Option<&str>) -> Option<String> {
    Some(format!("{}/{}/{}", account?, joins_by?, secret?))
}

/// Value of the annotation `bound-to` of the bootstrap Secret of a pool whose tokens are bound to the Secret `kubeconfig`, and whose
/// provisioning document depends on them.
pub fn bound_to_kubeconfig(
    account: Option<&str>,
    joins_by: Option<&str>,
    document: Option<&str>,
    kubeconfig: Option<&str>,
) -> Option<String> {
    Some(format!(
        "{}/{}",
        bound_to(account, joins_by, document)?,
        kubeconfig?
    ))
}

/// Whether an API token with this `bound-to` ([`bound_to`]) opens nothing any more, because its account or the Secret that it is bound to
/// is another one now. A text that was altered proves nothing.
pub fn is_api_token_dead(recorded: &str, account: &str, secret: &str) -> bool {
    let parts: Vec<&str> = recorded.split('/').collect();
    matches!(parts.as_slice(), [of, _, to] if (*of, *to) != (account, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_as_long_as_its_account_and_its_secret() {
        for (recorded, dead) in [
            ("account/kubelets/secret", false),
            ("account/other/secret", false),
            ("other/kubelets/secret", true),
            ("account/kubelets/other", true),
            ("account/kubelets", false),
            ("", false),
        ] {
            assert_eq!(
                is_api_token_dead(recorded, "account", "secret"),
                dead,
                "{recorded}"
            );
        }
        let bound = |kubeconfig| bound_to_kubeconfig(Some("a"), Some("j"), Some("d"), kubeconfig);
        assert_eq!(bound(Some("k")).as_deref(), Some("a/j/d/k"));
        assert_eq!(bound(None), None);
    }
}
