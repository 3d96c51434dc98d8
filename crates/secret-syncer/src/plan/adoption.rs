//! Decides what becomes of an object that already has a name that we wanted to create: only the API server's
//! answer shows it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::names;

use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::published_content::Entries;
use crate::model::record::of_entries;
use crate::model::view::SecretView;

/// What to do with what has our name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// It is as we make it, and the watch has yet to show it.
    GatherAgain,
    /// It is ours: replace its content in one write.
    Replace,
    /// It is ours and can't be changed: delete exactly this one, and create ours at once. The absence is as
    /// short as it can be.
    Recreate,
    /// It belongs to another owner and stays as it is.
    Foreign,
}

/// How a Secret of ours comes to hold what we write.
pub fn of_ours(existing: &SecretView) -> Adoption {
    if existing.immutable {
        Adoption::Recreate
    } else {
        Adoption::Replace
    }
}

pub fn of_well_known(installation: &str, gathered: &Gathered, known: WellKnown, found: &Secret) -> Adoption {
    let view = SecretView::of(found);
    let label = view.meta.label(names::INSTALLATION);
    let is_labelled = label == Some(installation);
    let is_of_config = view.meta.config() == Some(gathered.name.as_str());
    let is_of_pool = view.meta.pool() == Some(gathered.pool().as_str());
    if is_labelled && is_of_config && is_of_pool && view.is(known.purpose()) {
        return Adoption::GatherAgain;
    }
    // Data and annotations are still as they were written together.
    let is_as_written = is_of_config && view.is_intact;
    // The pool's id is still on it or in its name, which no other program knows.
    let is_in_name = known == WellKnown::Kubeconfig;
    let is_ours = is_as_written || is_in_name || is_of_pool;
    if is_labelled || (label.is_none() && is_ours) {
        return of_ours(&view);
    }
    if label.is_none() && is_of_the_upstream_osm(known, found, &view) {
        Adoption::Recreate
    } else {
        Adoption::Foreign
    }
}

/// The upstream OSM's bootstrap Secrets are immutable, and carry nothing but the document and annotations of
/// this form. Its scripts have neither labels nor annotations, and no other data.
fn is_of_the_upstream_osm(known: WellKnown, found: &Secret, view: &SecretView) -> bool {
    let data = found.data.as_ref();
    let is_empty = |map: &Option<BTreeMap<String, String>>| map.as_ref().is_none_or(BTreeMap::is_empty);
    match known {
        WellKnown::Bootstrap => {
            let revision = view.meta.annotation(names::MACHINE_DEPLOYMENT_REVISION);
            let has_document = data.is_some_and(|data| data.contains_key(names::CLOUD_CONFIG_KEY));
            view.immutable && revision.is_some() && has_document
        }
        WellKnown::EdgeScript => {
            let is_script = data.is_some_and(|data| data.keys().eq([names::EDGE_SCRIPT_KEY]));
            is_script && is_empty(&found.metadata.labels) && is_empty(&found.metadata.annotations)
        }
        WellKnown::Kubeconfig => false,
    }
}

/// What has the name and the content of a document is ours, whatever became of its labels.
pub fn of_document(found: &SecretView, entries: &Entries) -> Adoption {
    if found.entries == of_entries(entries) {
        Adoption::Replace
    } else {
        Adoption::Foreign
    }
}

/// Of a ServiceAccount, Role or RoleBinding. Tokens hang on its uid, so one that only lost its label or
/// annotation is patched.
pub fn of_identity(installation: &str, wanted: &ObjectMeta, found: &ObjectMeta) -> Adoption {
    let has_all = |wanted: &Option<BTreeMap<String, String>>, found: &Option<BTreeMap<String, String>>| {
        let get = |key| found.as_ref().and_then(|found| found.get(key));
        wanted
            .iter()
            .flatten()
            .all(|(key, value)| get(key) == Some(value))
    };
    let is_as_wanted =
        has_all(&wanted.labels, &found.labels) && has_all(&wanted.annotations, &found.annotations);
    match found
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::INSTALLATION))
    {
        Some(owner) if owner != installation => Adoption::Foreign,
        Some(_) if is_as_wanted => Adoption::GatherAgain,
        _ => Adoption::Replace,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::view::PURPOSE_BOOTSTRAP;
    use crate::plan::fixtures::{POOL, fresh};

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn found(labels: &[(&str, &str)], annotations: &[(&str, &str)], immutable: bool, entry: &str) -> Secret {
        let metadata = json!({"name": "taken", "labels": pairs(labels), "annotations": pairs(annotations)});
        serde_json::from_value(json!({"metadata": metadata, "immutable": immutable, "data": {entry: ""}}))
            .unwrap()
    }

    #[test]
    fn only_what_is_ours_or_the_upstream_osms_is_adopted() {
        use Adoption::{Foreign, GatherAgain, Recreate, Replace};
        let (ours, role) = ((names::INSTALLATION, "osm"), (names::ROLE, PURPOSE_BOOTSTRAP));
        let config = (names::CONFIG, "pool-kube-system-config");
        let pool = (names::POOL, POOL);
        let another = (names::INSTALLATION, "other");
        let revision = (names::MACHINE_DEPLOYMENT_REVISION, "1");
        let document = names::CLOUD_CONFIG_KEY;
        let cases = [
            (
                GatherAgain,
                vec![found(&[ours, role, pool], &[config], false, document)],
            ),
            (
                Replace,
                vec![
                    // Of another pool, another config, and for another purpose.
                    found(&[ours, role], &[config], false, document),
                    found(&[ours, role], &[], false, document),
                    found(&[ours], &[config], false, document),
                    // Without our label, with the pool's id.
                    found(&[pool], &[], false, document),
                ],
            ),
            (
                Recreate,
                vec![
                    // Locked.
                    found(&[ours], &[], true, document),
                    found(&[pool], &[revision], true, document),
                    // Of the upstream OSM.
                    found(&[], &[revision], true, document),
                ],
            ),
            (
                Foreign,
                vec![
                    found(&[another, pool], &[config], false, document),
                    found(&[another], &[revision], true, document),
                    // Not locked, without a revision, and with other data.
                    found(&[], &[revision], false, document),
                    found(&[], &[], true, document),
                    found(&[], &[revision], true, "other"),
                ],
            ),
        ];
        for (expected, all) in cases {
            for found in all {
                let adoption = of_well_known("osm", &fresh(), WellKnown::Bootstrap, &found);
                assert_eq!(adoption, expected, "{found:?}");
            }
        }
    }

    #[test]
    fn only_a_bare_edge_script_is_the_upstream_osms() {
        let of = |labels: &[_], annotations: &[_], entry| {
            let found = found(labels, annotations, false, entry);
            of_well_known("osm", &fresh(), WellKnown::EdgeScript, &found)
        };
        let script = names::EDGE_SCRIPT_KEY;
        let applied = ("kubectl.kubernetes.io/last-applied-configuration", "{}");
        assert_eq!(of(&[], &[], script), Adoption::Recreate);
        assert_eq!(of(&[("app", "b")], &[], script), Adoption::Foreign);
        assert_eq!(of(&[], &[applied], script), Adoption::Foreign);
        assert_eq!(of(&[], &[], "other"), Adoption::Foreign);
    }

    #[test]
    fn an_identity_keeps_its_uid_unless_it_is_another_installations() {
        let identity = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| ObjectMeta {
            labels: Some(pairs(labels)),
            annotations: Some(pairs(annotations)),
            ..ObjectMeta::default()
        };
        let (ours, config) = ((names::INSTALLATION, "osm"), (names::CONFIG, "config"));
        let another = (names::INSTALLATION, "other");
        let of = |labels: &[_], annotations: &[_]| {
            let wanted = identity(&[ours], &[config]);
            of_identity("osm", &wanted, &identity(labels, annotations))
        };
        assert_eq!(of(&[ours], &[config]), Adoption::GatherAgain);
        assert_eq!(of(&[ours], &[]), Adoption::Replace);
        assert_eq!(of(&[], &[config]), Adoption::Replace);
        assert_eq!(of(&[], &[]), Adoption::Replace);
        assert_eq!(of(&[another], &[config]), Adoption::Foreign);
    }
}
