//! Who asks for a certificate. Requests of anybody else are left alone.

use std::fmt;

use osm_api::names::{self, CLOUD_INIT_SETTINGS, NODE_BOOTSTRAP_ACCOUNT};

/// What the API server calls a node.
pub const NODE_USER: &str = "system:node:";

/// Hex characters of the id of a pool.
const POOL_ID: usize = 20;

/// The API server's are `JTI=` and a UUID, which is no secret.
const MAX_TOKEN_ID: usize = 64;

/// Whose request it is, by the username that the API server has recorded. The text decides which replica owns it, so replicas of two
/// versions must agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Requester {
    /// This ServiceAccount in `cloud-init-settings`. It is a pool's, or was one.
    Pool(String),
    /// `osm-node-bootstrap`, the identity of all pools in mode `static`, with the id of the token; the id is empty if the API server does not
    /// record it. Whoever has one token of many must not delay the others.
    AnyPool(String),
    /// A node of this name, which asks for a serving certificate.
    Node(String),
}

impl Requester {
    /// `None`: csr-approver has nothing to do with this user. `token`: the id of its token, which the API server records since Kubernetes 1.30.
    pub fn of(username: &str, token: &str) -> Option<Self> {
        if let Some(node) = username.strip_prefix(NODE_USER) {
            return Some(Self::Node(node.to_owned()));
        }
        let account = username
            .strip_prefix("system:serviceaccount:")?
            .strip_prefix(CLOUD_INIT_SETTINGS)?
            .strip_prefix(':')?;
        if account == NODE_BOOTSTRAP_ACCOUNT {
            let is_id = token.len() <= MAX_TOKEN_ID;
            return Some(Self::AnyPool(if is_id { token } else { "" }.to_owned()));
        }
        let id = account.strip_prefix(names::pool_account("").as_str())?;
        let is_id = id.len() == POOL_ID && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_id.then(|| Self::Pool(account.to_owned()))
    }

    /// The text that tells it from others of its kind.
    pub fn name(&self) -> &str {
        match self {
            Self::Pool(name) | Self::AnyPool(name) | Self::Node(name) => name,
        }
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(account) => f.write_str(account),
            Self::AnyPool(token) if token.is_empty() => f.write_str(NODE_BOOTSTRAP_ACCOUNT),
            Self::AnyPool(token) => write!(f, "{NODE_BOOTSTRAP_ACCOUNT}/{token}"),
            Self::Node(name) => write!(f, "{NODE_USER}{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accounts_of_pools_and_of_nodes_count() {
        let pool = "osm-node-0123456789abcdef0123";
        let of = |account: &str| {
            Requester::of(
                &format!("system:serviceaccount:cloud-init-settings:{account}"),
                "JTI=1",
            )
        };
        assert_eq!(of(pool), Some(Requester::Pool(pool.to_owned())));
        assert_eq!(
            of("osm-node-bootstrap"),
            Some(Requester::AnyPool("JTI=1".to_owned()))
        );
        let node = Requester::of("system:node:a", "");
        assert_eq!(node, Some(Requester::Node("a".to_owned())));
        for account in [
            "cloud-init-getter",
            "default",
            "osm-node-",
            "osm-node-0123456789abcdef012",
            "osm-node-0123456789abcdef01234",
            "osm-node-0123456789ABCDEF0123",
            "osm-node-bootstrap2",
        ] {
            assert_eq!(of(account), None, "{account}");
        }
        for user in [
            "system:serviceaccount:kube-system:osm-node-0123456789abcdef0123",
            "system:serviceaccount:cloud-init-settingsx:osm-node-bootstrap",
            "system:bootstrap:abcdef",
            "admin",
            "osm-node-bootstrap",
            "",
        ] {
            assert_eq!(Requester::of(user, "JTI=1"), None, "{user}");
        }
    }

    /// During an upgrade, two versions run at once and must agree on the owner of a key.
    #[test]
    fn the_texts_are_the_same_in_each_version() {
        let any = |token: &str| Requester::AnyPool(token.to_owned()).to_string();
        assert_eq!(any(""), "osm-node-bootstrap");
        assert_eq!(any("JTI=1"), "osm-node-bootstrap/JTI=1");
        assert_eq!(Requester::Pool("osm-node-1".to_owned()).to_string(), "osm-node-1");
        assert_eq!(Requester::Node("a".to_owned()).to_string(), "system:node:a");
    }

    #[test]
    fn each_token_of_the_common_account_is_a_requester_of_its_own() {
        let of = |token: &str| {
            Requester::of(
                "system:serviceaccount:cloud-init-settings:osm-node-bootstrap",
                token,
            )
        };
        assert_ne!(of("JTI=1"), of("JTI=2"));
        assert_eq!(of(&"1".repeat(65)), of(""), "whatever is no id");
    }
}
