//! What becomes of an object that already has a name that we wanted to create: only the API server's answer shows it.

use osm_api::names;

use crate::model::found::FoundSecret;
use crate::model::gathered::Gathered;
use crate::model::view::{ROLE_BOOTSTRAP, ROLE_EDGE_SCRIPT, ROLE_KUBECONFIG, ROLE_TOKEN_BINDING, SecretView};
use crate::plan::provisioning_secret;

/// What to do with what has our name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is as we make it, and the watch has yet to show it.
    GatherAgain,
    /// It is ours.
    Take(Replacement),
    /// It belongs to another owner and stays as it is.
    Foreign,
}

/// How a Secret comes to hold what we write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// In one write, fenced by this resourceVersion.
    InPlace { resource_version: String },
    /// It can't be changed: delete exactly this one, and create ours at once. The absence is as short as it can be.
    Recreate {
        uid: String,
        resource_version: Option<String>,
    },
}

/// How a Secret of ours is replaced.
pub fn replacement(existing: &SecretView) -> Replacement {
    let (uid, resource_version) = (existing.meta.uid.clone(), existing.meta.resource_version.clone());
    if existing.immutable {
        Replacement::Recreate {
            uid,
            resource_version: Some(resource_version),
        }
    } else {
        Replacement::InPlace { resource_version }
    }
}

/// A Secret whose name does not depend on its content: other programs or machines know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WellKnown {
    Bootstrap,
    Kubeconfig,
    EdgeScript,
    TokenBinding,
}

impl WellKnown {
    pub fn role(self) -> &'static str {
        match self {
            Self::Bootstrap => ROLE_BOOTSTRAP,
            Self::Kubeconfig => ROLE_KUBECONFIG,
            Self::EdgeScript => ROLE_EDGE_SCRIPT,
            Self::TokenBinding => ROLE_TOKEN_BINDING,
        }
    }

    /// For error messages.
    pub fn what(self) -> &'static str {
        match self {
            Self::Bootstrap => "the bootstrap Secret",
            Self::Kubeconfig => "the kubeconfig Secret",
            Self::EdgeScript => "the Secret with the edge script",
            Self::TokenBinding => "the Secret that a token is bound to",
        }
    }
}

pub fn of_well_known(gathered: &Gathered, known: WellKnown, found: &FoundSecret) -> Adoption {
    let meta = &found.view.meta;
    let is_labelled = found.installation() == Some(gathered.installation.as_str());
    let is_of_config = meta.config() == Some(gathered.name.as_str());
    let is_of_pool = meta.pool() == Some(gathered.pool.as_str());
    if is_labelled && is_of_config && is_of_pool && found.view.is(known.role()) {
        return Adoption::GatherAgain;
    }
    // Data and annotations are still as they were written together.
    let lost_all_labels = found.installation().is_none() && is_of_config && found.view.is_intact;
    if is_labelled || lost_all_labels || lost_its_label(&gathered.pool, known, found) {
        return Adoption::Take(replacement(&found.view));
    }
    let is_of_the_go_implementation = match known {
        WellKnown::Bootstrap => is_bootstrap_of_the_go_implementation(found),
        WellKnown::Kubeconfig | WellKnown::TokenBinding => false,
        WellKnown::EdgeScript => is_edge_script_of_the_go_implementation(found),
    };
    if is_of_the_go_implementation {
        Adoption::Take(Replacement::Recreate {
            uid: meta.uid.clone(),
            resource_version: None,
        })
    } else {
        Adoption::Foreign
    }
}

/// The pool's id is still on it or in its name, which no other program knows.
fn lost_its_label(pool: &str, known: WellKnown, found: &FoundSecret) -> bool {
    let is_in_name = matches!(known, WellKnown::Kubeconfig | WellKnown::TokenBinding);
    found.installation().is_none() && (is_in_name || found.view.meta.pool() == Some(pool))
}

/// The Go implementation's bootstrap Secrets are immutable, and carry nothing but the document and annotations of this form.
fn is_bootstrap_of_the_go_implementation(found: &FoundSecret) -> bool {
    let annotated = found
        .view
        .meta
        .annotation(names::MACHINE_DEPLOYMENT_REVISION)
        .is_some();
    let has_document = found.entries.iter().any(|entry| entry == names::CLOUD_CONFIG_KEY);
    found.view.immutable && annotated && has_document && found.installation().is_none()
}

/// The Go implementation's scripts have neither labels nor annotations, and no other data.
fn is_edge_script_of_the_go_implementation(found: &FoundSecret) -> bool {
    let meta = &found.view.meta;
    found.entries == [names::EDGE_SCRIPT_KEY] && meta.labels.is_empty() && meta.annotations.is_empty()
}

/// What has the name of a provisioning Secret and its content is ours, whatever became of its labels.
pub fn is_our_document(found: &SecretView, digest: &str) -> bool {
    provisioning_secret::holds(found, digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::view::Meta;
    use crate::plan::fixtures::{POOL, fresh};

    fn found(
        labels: &[(&str, &str)],
        annotations: &[(&str, &str)],
        immutable: bool,
        entry: &str,
    ) -> FoundSecret {
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let meta = Meta {
            name: "taken".into(),
            uid: "uid".into(),
            resource_version: "7".into(),
            labels: map(labels),
            annotations: map(annotations),
        };
        let view = SecretView {
            meta,
            immutable,
            ..SecretView::default()
        };
        FoundSecret {
            view,
            entries: vec![entry.to_owned()],
        }
    }

    #[test]
    fn only_what_is_ours_or_the_go_implementations_is_adopted() {
        const CONFIG: &str = "pool-kube-system-config";
        let replace = Adoption::Take(Replacement::InPlace {
            resource_version: "7".into(),
        });
        let recreate = |resource_version: Option<&str>| {
            let resource_version = resource_version.map(str::to_owned);
            Adoption::Take(Replacement::Recreate {
                uid: "uid".into(),
                resource_version,
            })
        };
        let (recreate, recreate_go) = (recreate(Some("7")), recreate(None));
        let (ours, role) = ((names::INSTALLATION, "osm"), (names::ROLE, ROLE_BOOTSTRAP));
        let (config, pool) = ((names::CONFIG, CONFIG), (names::POOL, POOL));
        let (another, revision) = (
            (names::INSTALLATION, "other"),
            (names::MACHINE_DEPLOYMENT_REVISION, "1"),
        );
        let document = names::CLOUD_CONFIG_KEY;
        for (what, found, expected) in [
            (
                "as we make it",
                found(&[ours, role, pool], &[config], false, document),
                Adoption::GatherAgain,
            ),
            (
                "of another pool",
                found(&[ours, role], &[config], false, document),
                replace.clone(),
            ),
            (
                "of another config",
                found(&[ours, role], &[], false, document),
                replace.clone(),
            ),
            (
                "of another purpose",
                found(&[ours], &[config], false, document),
                replace.clone(),
            ),
            (
                "ours, locked",
                found(&[ours], &[], true, document),
                recreate.clone(),
            ),
            (
                "without label, with the pool's id",
                found(&[pool], &[], false, document),
                replace.clone(),
            ),
            (
                "the same, locked",
                found(&[pool], &[revision], true, document),
                recreate,
            ),
            (
                "of another installation",
                found(&[another, pool], &[config], false, document),
                Adoption::Foreign,
            ),
            (
                "the same, locked",
                found(&[another], &[revision], true, document),
                Adoption::Foreign,
            ),
            (
                "of the Go implementation",
                found(&[], &[revision], true, document),
                recreate_go,
            ),
            (
                "not locked",
                found(&[], &[revision], false, document),
                Adoption::Foreign,
            ),
            (
                "without revision",
                found(&[], &[], true, document),
                Adoption::Foreign,
            ),
            (
                "with other data",
                found(&[], &[revision], true, "other"),
                Adoption::Foreign,
            ),
        ] {
            assert_eq!(
                of_well_known(&fresh(), WellKnown::Bootstrap, &found),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn a_bare_edge_script_is_the_go_implementations() {
        let recreate = Replacement::Recreate {
            uid: "uid".into(),
            resource_version: None,
        };
        let recreate_go = Adoption::Take(recreate);
        for (what, found, expected) in [
            (
                "bare",
                found(&[], &[], false, names::EDGE_SCRIPT_KEY),
                recreate_go,
            ),
            (
                "with a label",
                found(&[("a", "b")], &[], false, names::EDGE_SCRIPT_KEY),
                Adoption::Foreign,
            ),
            (
                "with an annotation",
                found(&[], &[("a", "b")], false, names::EDGE_SCRIPT_KEY),
                Adoption::Foreign,
            ),
            (
                "with other data",
                found(&[], &[], false, "other"),
                Adoption::Foreign,
            ),
        ] {
            assert_eq!(
                of_well_known(&fresh(), WellKnown::EdgeScript, &found),
                expected,
                "{what}"
            );
        }
    }

    /// As it is read from the API server.
    #[test]
    fn an_edge_script_with_labels_of_others_is_foreign() {
        for metadata in [
            serde_json::json!({"name": "taken", "uid": "uid", "labels": {"app": "b"}}),
            serde_json::json!({"name": "taken", "uid": "uid", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}),
        ] {
            let secret = serde_json::json!({"metadata": metadata, "data": {names::EDGE_SCRIPT_KEY: ""}});
            let secret = serde_json::from_value(secret).unwrap();
            let adoption = of_well_known(&fresh(), WellKnown::EdgeScript, &FoundSecret::of(&secret));
            assert_eq!(adoption, Adoption::Foreign);
        }
    }

    #[test]
    fn a_document_is_known_by_its_content() {
        let document = |immutable| SecretView {
            entries: "d".into(),
            immutable,
            ..SecretView::default()
        };
        assert!(is_our_document(&document(true), "d"));
        assert!(!is_our_document(&document(true), "other") && !is_our_document(&document(false), "d"));
    }
}
