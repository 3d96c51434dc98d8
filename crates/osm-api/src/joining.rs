//! How machines of an installation join.

use strum::{Display, EnumString, VariantNames};

/// Whose token a kubelet asks for its first certificate with, and who approves that. Bindings and Deployments depend on it, so it is a
/// flag and a value of the chart, and no setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "camelCase")]
pub enum Joining {
    /// The pool's own token, which may only request certificates. csr-approver approves those of a Machine of that pool that has no Node yet.
    Approved,
    /// The token of the ServiceAccount `osm-node-bootstrap`. kube-controller-manager approves whatever it asks for.
    ///
    /// This is the default of the flag, because it needs nothing that secret-syncer does not check: it never publishes a token that lacks a
    /// permission, but it cannot know whether an approver runs.
    #[default]
    Static,
}

impl Joining {
    /// The texts that are parsed.
    pub fn names() -> &'static [&'static str] {
        Self::VARIANTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_those_of_the_flag_and_of_the_charts_value() {
        assert_eq!(Joining::names(), ["approved", "static"]);
        for mode in [Joining::Approved, Joining::Static] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
    }
}
