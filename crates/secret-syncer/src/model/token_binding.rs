//! What a pool's tokens are bound to. When one of these changes, the tokens are dead.

use osm_api::settings::{NodeBootstrap, NodeBootstrapKind};

/// Group of every bootstrap token.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";

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

/// What the token of a pool's kubelets rests on: the uid of `osm-node-bootstrap`, or the groups of a bootstrap token.
pub fn joins_by(with: &NodeBootstrap, node_account: Option<&str>) -> Option<String> {
    match with.kind {
        NodeBootstrapKind::ServiceAccountToken => node_account.map(str::to_owned),
        NodeBootstrapKind::BootstrapToken => Some(groups(with)),
    }
}

/// Groups of a bootstrap token, joined by commas.
pub fn groups(of: &NodeBootstrap) -> String {
    std::iter::once(BOOTSTRAPPERS)
        .chain(of.groups.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(",")
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
