//! The ServiceAccount, Role and RoleBinding of a pool: what the Role opens, and whose an object is that already has such a name.

use std::collections::BTreeSet;

use osm_api::names;

use crate::model::found::Identity;

/// Names of the Secrets that the Role has to open once these are there as well.
pub fn opened(kept: &[String], new: &[&str]) -> Vec<String> {
    let new = new.iter().map(|name| (*name).to_owned());
    let secrets: BTreeSet<String> = kept.iter().cloned().chain(new).collect();
    secrets.into_iter().collect()
}

/// A ServiceAccount, Role or RoleBinding. Tokens hang on its uid, so one that only lost its label or annotation is adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityAdoption {
    /// As [`Adoption::GatherAgain`].
    GatherAgain,
    /// Patch it, fenced by this resourceVersion. Where the API server refuses to change it (422: what a RoleBinding refers to), delete
    /// the object with this uid and create ours.
    Patch {
        resource_version: Option<String>,
        uid: String,
    },
    /// As [`Adoption::Foreign`].
    Foreign,
}

pub fn of_identity(installation: &str, wanted: &Identity, found: &Identity) -> IdentityAdoption {
    let labels = wanted
        .labels
        .iter()
        .all(|(key, value)| found.labels.get(key) == Some(value));
    let annotations = wanted
        .annotations
        .iter()
        .all(|(key, value)| found.annotations.get(key) == Some(value));
    match found.labels.get(names::INSTALLATION) {
        Some(owner) if owner != installation => IdentityAdoption::Foreign,
        Some(_) if labels && annotations => IdentityAdoption::GatherAgain,
        _ => IdentityAdoption::Patch {
            resource_version: found.resource_version.clone(),
            uid: found.uid.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_opens_what_is_kept_and_the_new_document() {
        let kept = ["b".to_owned(), "c".to_owned()];
        assert_eq!(opened(&kept, &["a"]), ["a", "b", "c"]);
        assert_eq!(opened(&kept, &["b"]), ["b", "c"]);
        assert_eq!(opened(&[], &["a"]), ["a"]);
        assert_eq!(opened(&kept, &["d", "a"]), ["a", "b", "c", "d"]);
    }

    #[test]
    fn an_identity_keeps_its_uid_unless_it_is_another_installations() {
        let identity = |installation: Option<&str>, config: Option<&str>| Identity {
            uid: "uid".into(),
            resource_version: Some("7".into()),
            labels: installation
                .map(|of| (names::INSTALLATION.to_owned(), of.to_owned()))
                .into_iter()
                .collect(),
            annotations: config
                .map(|name| (names::CONFIG.to_owned(), name.to_owned()))
                .into_iter()
                .collect(),
        };
        let patch = IdentityAdoption::Patch {
            resource_version: Some("7".into()),
            uid: "uid".into(),
        };
        for (what, found, expected) in [
            (
                "as we make it",
                identity(Some("osm"), Some("config")),
                IdentityAdoption::GatherAgain,
            ),
            ("without annotation", identity(Some("osm"), None), patch.clone()),
            ("without label", identity(None, Some("config")), patch.clone()),
            ("bare", identity(None, None), patch),
            (
                "of another installation",
                identity(Some("other"), Some("config")),
                IdentityAdoption::Foreign,
            ),
        ] {
            assert_eq!(
                of_identity("osm", &identity(Some("osm"), Some("config")), &found),
                expected,
                "{what}"
            );
        }
    }
}
