//! What is reconciled.

use std::fmt;

use osm_runtime::runner;

/// A unit of work in the queue. Its text decides which replica owns it, so replicas of two versions must agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The OperatingSystemConfig of this name, whether it exists or not.
    Config(String),
    /// Non-expiring ServiceAccount tokens that other programs left.
    LegacyTokens,
    /// Whether a pool's token may do more than it needs to join.
    JoinRight,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(name) => f.write_str(name),
            Self::LegacyTokens => f.write_str("(non-expiring tokens)"),
            Self::JoinRight => f.write_str("(right to join)"),
        }
    }
}

impl runner::Key for Key {
    fn is_of_each(&self) -> bool {
        // Each replica reports on the right in its own conditions.
        matches!(self, Self::JoinRight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replicas elect the owner of a key by hashing its text. During an upgrade, two versions run at once: with different texts,
    /// both or neither would own the key. So these texts never change, however they read.
    #[test]
    fn the_texts_are_the_same_in_each_version() {
        assert_eq!(Key::LegacyTokens.to_string(), "(non-expiring tokens)");
        assert_eq!(Key::JoinRight.to_string(), "(right to join)");
        assert_eq!(
            Key::Config("pool-kube-system-config".into()).to_string(),
            "pool-kube-system-config"
        );
    }
}
