//! Which HMAC key is in force, so that all replicas agree whichever of them was first.

use crate::model::found::FoundSecret;
use crate::model::hmac_key::HmacKey;

#[derive(Clone, Debug, PartialEq)]
pub enum KeyStep {
    /// It is in the cluster.
    Use(HmacKey),
    /// There is none in the cluster: store this one, unless the API server has one that the watch has yet to show.
    Store(HmacKey),
}

/// The key in the cluster has precedence, then the one that this process already uses, then a new one.
pub fn choose(watched: Option<HmacKey>, used: Option<HmacKey>, new: impl FnOnce() -> HmacKey) -> KeyStep {
    match watched {
        Some(watched) => KeyStep::Use(watched),
        None => KeyStep::Store(used.unwrap_or_else(new)),
    }
}

/// What to do with the Secret that already has the name of ours.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyAdoption {
    Foreign,
    /// Label it as ours, with this key in it.
    Replace(HmacKey),
    /// It is locked without a key: delete exactly this one, and create ours.
    Recreate {
        uid: String,
    },
}

/// The name is made for this installation, so a Secret whose label was taken off is ours. A key in it is kept.
pub fn adopt(installation: &str, found: &FoundSecret, stored: Option<HmacKey>, key: HmacKey) -> KeyAdoption {
    match (found.installation(), stored) {
        (Some(owner), _) if owner != installation => KeyAdoption::Foreign,
        (_, Some(stored)) => KeyAdoption::Replace(stored),
        (_, None) if found.view.immutable => KeyAdoption::Recreate {
            uid: found.view.meta.uid.clone(),
        },
        (_, None) => KeyAdoption::Replace(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use osm_api::names;

    fn key(byte: u8) -> HmacKey {
        HmacKey::new([byte; 32])
    }

    #[test]
    fn the_cluster_has_precedence_then_the_process() {
        for (watched, used, expected) in [
            (Some(key(1)), Some(key(2)), KeyStep::Use(key(1))),
            (Some(key(1)), None, KeyStep::Use(key(1))),
            (None, Some(key(2)), KeyStep::Store(key(2))),
            (None, None, KeyStep::Store(key(3))),
        ] {
            assert_eq!(choose(watched, used, || key(3)), expected);
        }
    }

    #[test]
    fn a_stored_key_is_kept_and_another_installations_secret_is_left_alone() {
        let found = |owner: Option<&str>, immutable| {
            let mut found = FoundSecret::default();
            found.view.immutable = immutable;
            found.view.meta.uid = "uid".into();
            found.view.meta.labels = owner
                .map(|owner| (names::INSTALLATION.to_owned(), owner.to_owned()))
                .into_iter()
                .collect();
            found
        };
        for (what, found, stored, expected) in [
            (
                "another installation's",
                found(Some("other"), false),
                Some(key(1)),
                KeyAdoption::Foreign,
            ),
            (
                "without label",
                found(None, false),
                Some(key(1)),
                KeyAdoption::Replace(key(1)),
            ),
            (
                "ours, locked",
                found(Some("osm"), true),
                Some(key(1)),
                KeyAdoption::Replace(key(1)),
            ),
            (
                "without a key",
                found(Some("osm"), false),
                None,
                KeyAdoption::Replace(key(2)),
            ),
            (
                "locked without a key",
                found(None, true),
                None,
                KeyAdoption::Recreate { uid: "uid".into() },
            ),
        ] {
            assert_eq!(adopt("osm", &found, stored, key(2)), expected, "{what}");
        }
    }
}
