//! Labels and annotations that say which pool an object belongs to.

use std::collections::BTreeMap;

use osm_api::{PoolRef, names};

use crate::model::pairs::Pairs;
use crate::model::view::Meta;

/// Labels and annotations of everything that is made for one pool. All are of our groups: views keep no others, so [`Self::are_on`] would
/// miss them. The purpose of an object ([`names::ROLE`]) and the installation
/// are added by [`Self::labels`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnershipLabels {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl OwnershipLabels {
    /// `management` is the uid of the cluster that holds the OperatingSystemConfig `config`.
    pub fn new(config: &str, pool: &str, management: &str, md: &PoolRef) -> Self {
        Self {
            labels: BTreeMap::from([(names::POOL.to_owned(), pool.to_owned())]),
            annotations: BTreeMap::from([
                (names::CONFIG.to_owned(), config.to_owned()),
                (names::MANAGEMENT_CLUSTER_UID.to_owned(), management.to_owned()),
                (names::OWNER.to_owned(), format!("{}/{}", md.namespace, md.name)),
            ]),
        }
    }

    pub fn are_on(&self, meta: &Meta) -> bool {
        let all = |wanted: &BTreeMap<String, String>, found: &Pairs| {
            wanted
                .iter()
                .all(|(name, value)| found.get(name) == Some(value.as_str()))
        };
        all(&self.labels, &meta.labels) && all(&self.annotations, &meta.annotations)
    }

    /// All labels of an object with this purpose.
    pub fn labels(&self, installation: &str, role: &'static str) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(names::INSTALLATION.to_owned(), installation.to_owned());
        labels.insert(names::ROLE.to_owned(), role.to_owned());
        labels
    }
}
