//! Finds the profiles that a profile extends, and whether they can be built on. Pure.

use std::sync::Arc;

use kube::ResourceExt;
use osm_api::condition::{self, ACCEPTED};
use osm_api::{OperatingSystemProfileSpec, Reason};
use osm_render::validate::Refusal;
use osm_render::{Base, ProfileError, ProfileKey};

use crate::default_profile;
use crate::stored_profile::StoredProfile;

/// The profiles that a profile extends.
#[derive(Clone, Debug, PartialEq)]
pub enum Bases {
    /// All of them are accepted; the nearest is the first.
    Ready(Vec<Base>),
    /// The profile of this name is not validated yet, is about to be installed, or may come with the rest of
    /// a list. A change of it wakes the profiles that extend it.
    Awaited(String),
}

/// Where bases are looked for.
pub(crate) struct Sources<'a> {
    /// Namespace of the installation, whose profiles all others may extend.
    pub(crate) installation: &'a str,
    /// The stored profile with a key `namespace/name`.
    pub(crate) stored: &'a dyn Fn(&str) -> Option<Arc<StoredProfile>>,
    /// Whether osp-controller is about to install a default profile of this name.
    pub(crate) is_coming: &'a dyn Fn(&str) -> bool,
}

impl Sources<'_> {
    /// The profile that a profile in `namespace` means by `name`.
    fn find(&self, namespace: &str, name: &str) -> Option<Arc<StoredProfile>> {
        let stored = |namespace: &str| {
            let stored = (self.stored)(&format!("{namespace}/{name}"));
            stored.filter(|stored| !default_profile::is_deleted(stored))
        };
        stored(namespace).or_else(|| stored(self.installation))
    }
}

/// The bases of the profile with this key.
///
/// # Errors
/// A base that does not exist or is refused, or a profile that extends itself.
pub(crate) fn find(
    key: &ProfileKey,
    spec: &OperatingSystemProfileSpec,
    sources: &Sources<'_>,
) -> Result<Bases, Refusal> {
    let mut stored = Vec::new();
    let found = osm_render::bases(key, spec, |namespace, name| {
        let profile = sources.find(namespace, name)?;
        let key = ProfileKey {
            namespace: profile.namespace().unwrap_or_default(),
            name: name.to_owned(),
        };
        let spec = profile.spec.clone();
        stored.push(profile);
        Some(Base { key, spec })
    });
    let bases = match found {
        Err(ProfileError::ParentNotFound { base, .. }) if (sources.is_coming)(&base) => {
            return Ok(Bases::Awaited(base));
        }
        found => found?,
    };
    // The lowest first: the others are refused because of it.
    for base in stored.iter().rev() {
        let status = base.status.as_ref();
        let accepted = status.and_then(|status| condition::find(&status.conditions, ACCEPTED));
        let newest = accepted.filter(|found| found.observed_generation == base.metadata.generation);
        let Some(verdict) = newest else {
            return Ok(Bases::Awaited(base.name_any()));
        };
        if verdict.status != "True" {
            return Err(Refusal {
                reason: Reason::ParentNotAccepted,
                message: format!(
                    "the profile {}, which this one extends, is refused ({}); correct it as its condition Accepted describes",
                    base.name_any(),
                    verdict.reason
                ),
                position: None,
            });
        }
    }
    Ok(Bases::Ready(bases))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use osm_api::OperatingSystemProfile;
    use serde_json::json;

    use super::*;
    use crate::plan::tests::profile;

    /// How far the validation of a stored profile is.
    #[derive(Clone, Copy)]
    enum Stored {
        Accepted,
        Refused,
        Edited,
        New,
        Deleting,
    }
    use Stored::{Accepted, Deleting, Edited, New, Refused};

    fn stored(path: &str, extends: Option<&str>, state: Stored) -> (String, Arc<StoredProfile>) {
        let (namespace, name) = path.split_once('/').unwrap();
        let mut spec = profile("v1.0.0");
        spec.extends = extends.map(str::to_owned);
        let verdict = |status: &str, reason: &str, generation: i64| {
            json!([{"type": ACCEPTED, "status": status, "reason": reason, "message": "", "observedGeneration": generation,
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let (conditions, deleted) = match state {
            New => (json!([]), None),
            Accepted => (verdict("True", "Accepted", 2), None),
            Edited => (verdict("True", "Accepted", 1), None),
            Refused => (verdict("False", "TemplateInvalid", 2), None),
            Deleting => (verdict("True", "Accepted", 2), Some("2026-01-01T00:00:00Z")),
        };
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
            "metadata": {"name": name, "namespace": namespace, "generation": 2, "deletionTimestamp": deleted},
            "spec": spec, "status": {"conditions": conditions},
        });
        let stored: OperatingSystemProfile = serde_json::from_value(object).unwrap();
        (path.to_owned(), Arc::new(stored.into()))
    }

    /// The bases of `own/a`, which extends `b`.
    fn found(all: &[(&str, Option<&str>, Stored)]) -> Result<Bases, Refusal> {
        let all: BTreeMap<_, _> = all
            .iter()
            .map(|(path, extends, state)| stored(path, *extends, *state))
            .collect();
        let (_, of) = stored("own/a", Some("b"), New);
        let key = ProfileKey {
            namespace: "own".to_owned(),
            name: "a".to_owned(),
        };
        let sources = Sources {
            installation: "kube-system",
            stored: &|key| all.get(key).cloned(),
            is_coming: &|name| name == "osp-ubuntu",
        };
        find(&key, &of.spec, &sources)
    }

    fn ready(all: &[(&str, Option<&str>, Stored)]) -> Vec<String> {
        match found(all).unwrap() {
            Bases::Ready(bases) => bases
                .into_iter()
                .map(|base| format!("{}/{}", base.key.namespace, base.key.name))
                .collect(),
            awaited => panic!("{awaited:?}"),
        }
    }

    #[test]
    fn a_base_is_in_the_own_namespace_or_that_of_the_installation() {
        let (own, installed) = (("own/b", None, Accepted), ("kube-system/b", None, Accepted));
        assert_eq!(ready(&[own, installed]), ["own/b"]);
        assert_eq!(ready(&[installed]), ["kube-system/b"]);
        assert_eq!(ready(&[("own/b", None, Deleting), installed]), ["kube-system/b"]);
        for missing in [("other/b", None, Accepted), ("own/b", None, Deleting)] {
            let refusal = found(&[missing]).unwrap_err();
            assert_eq!(refusal.reason, Reason::ParentNotFound);
            assert!(refusal.message.contains("\"b\""), "{}", refusal.message);
        }
        assert_eq!(
            ready(&[("own/b", Some("c"), Accepted), ("kube-system/c", None, Accepted)]),
            ["own/b", "kube-system/c"]
        );
    }

    #[test]
    fn the_verdicts_of_all_bases_count_and_the_lowest_refused_one_is_named() {
        let awaited = |all: &[_]| found(all).unwrap();
        for state in [New, Edited] {
            assert_eq!(awaited(&[("own/b", None, state)]), Bases::Awaited("b".to_owned()));
        }
        assert_eq!(
            awaited(&[("own/b", Some("c"), Refused), ("own/c", None, New)]),
            Bases::Awaited("c".to_owned())
        );
        assert_eq!(
            awaited(&[("own/b", Some("osp-ubuntu"), Accepted)]),
            Bases::Awaited("osp-ubuntu".to_owned())
        );
        let refusal = found(&[("own/b", Some("c"), Refused), ("own/c", None, Refused)]).unwrap_err();
        assert_eq!(refusal.reason, Reason::ParentNotAccepted);
        assert!(
            refusal
                .message
                .starts_with("the profile c, which this one extends, is refused (TemplateInvalid);"),
            "{}",
            refusal.message
        );
        // Nothing is awaited for ever.
        let refusal = found(&[("own/b", Some("a"), New), ("own/a", Some("b"), New)]).unwrap_err();
        assert_eq!(refusal.reason, Reason::ExtendsInvalid);
        assert!(refusal.message.contains("a → b → a"), "{}", refusal.message);
    }
}
