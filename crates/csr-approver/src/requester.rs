//! The ServiceAccount of a pool, which asks for certificates. Requests of any other user are left alone.

use std::fmt;

use osm_api::names::{self, CLOUD_INIT_SETTINGS};

/// Hex characters of the id of a pool, as [`names::pool_id`] makes it.
const POOL_ID: usize = 20;

/// Name of a ServiceAccount in `cloud-init-settings` that is a pool's, or was one, by the username that the
/// API server has recorded. The text decides which replica owns its requests, so replicas of two versions
/// must agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requester(pub String);

impl Requester {
    /// `None`: csr-approver has nothing to do with this user.
    pub fn of(username: &str) -> Option<Self> {
        let account = username
            .strip_prefix("system:serviceaccount:")?
            .strip_prefix(CLOUD_INIT_SETTINGS)?
            .strip_prefix(':')?;
        let id = account.strip_prefix(names::pool_account("").as_str())?;
        let is_id = id.len() == POOL_ID && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_id.then(|| Self(account.to_owned()))
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accounts_of_pools_count() {
        let pool = "osm-node-0123456789abcdef0123";
        let of =
            |account: &str| Requester::of(&format!("system:serviceaccount:cloud-init-settings:{account}"));
        assert_eq!(of(pool), Some(Requester(pool.to_owned())));
        for account in [
            "cloud-init-getter",
            "default",
            "osm-node-",
            "osm-node-0123456789abcdef012",
            "osm-node-0123456789abcdef01234",
            "osm-node-0123456789ABCDEF0123",
            "osm-node-bootstrap",
        ] {
            assert_eq!(of(account), None, "{account}");
        }
        // Replicas of two versions must agree on the owner of a requester, which follows from this text.
        assert_eq!(
            of(pool).map(|requester| requester.to_string()),
            Some(pool.to_owned())
        );
        for user in [
            "system:serviceaccount:kube-system:osm-node-0123456789abcdef0123",
            "system:serviceaccount:cloud-init-settingsx:osm-node-bootstrap",
            "system:bootstrap:abcdef",
            "system:node:a",
            "admin",
            "osm-node-bootstrap",
            "",
        ] {
            assert_eq!(Requester::of(user), None, "{user}");
        }
    }
}
