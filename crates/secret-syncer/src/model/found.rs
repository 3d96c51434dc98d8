//! Objects that already have a name that we wanted to create.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::names;

use crate::model::pairs::Pairs;
use crate::model::view::SecretView;

/// A Secret, with the names of its data entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundSecret {
    pub view: SecretView,
    pub entries: Vec<String>,
}

impl FoundSecret {
    pub fn of(secret: &Secret) -> Self {
        let entries = secret
            .data
            .iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect();
        // A view keeps only our labels and annotations. The Go implementation's scripts have none at all.
        let mut view = SecretView::of(secret);
        let all = |pairs: Option<&BTreeMap<String, String>>| pairs.map(Pairs::from).unwrap_or_default();
        view.meta.labels = all(secret.metadata.labels.as_ref());
        view.meta.annotations = all(secret.metadata.annotations.as_ref());
        Self { view, entries }
    }

    pub fn installation(&self) -> Option<&str> {
        self.view.meta.labels.get(names::INSTALLATION)
    }
}

/// Labels and annotations of a ServiceAccount, Role or RoleBinding: as it is, or as we want it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    pub uid: String,
    pub resource_version: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Identity {
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
        }
    }
}
