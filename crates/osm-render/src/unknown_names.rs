//! Finds names in templates that no data has. Rendering finds only those in branches that are taken.

use std::collections::BTreeMap;

use osm_api::Settings;
use osm_api::profile::OperatingSystemProfileSpec;
use semver::Version;

use crate::downloads::Catalogue;
use crate::engine::{Inputs, Located, Part};
use crate::error::TemplatePosition;
use crate::rendered_text::Placements;
use crate::{Stage, engines, model, plain_pools, stand_in_cluster, template_walk};

/// A name that no data has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// Its place in the spec.
    pub position: TemplatePosition,
    /// What is wrong, with the name.
    pub problem: String,
}

/// The names in the templates of a profile that no data has, where that is certain without rendering. Templates that can't be parsed are
/// left out.
pub fn unknown_names(spec: &OperatingSystemProfileSpec) -> Vec<UnknownName> {
    let kubelet = Version::new(1, crate::kubelet::TESTED_MINORS.1, 0);
    let Some((_, pool)) = plain_pools(spec, std::slice::from_ref(&kubelet))
        .into_iter()
        .next()
    else {
        return Vec::new();
    };
    // A field that is unset here can have fields of its own elsewhere.
    let (settings, cluster) = (Settings::default(), stand_in_cluster());
    let none = BTreeMap::new();
    let inputs = Inputs {
        data: &model::data(&pool, &settings, &cluster),
        pool: &pool,
        settings: &settings,
        cluster: &cluster,
        late_bound: &Placements::new(&none),
        downloads: &Catalogue::new(&settings.downloads, &kubelet),
    };
    let engine = engines::engine(spec.template_engine);
    let mut unknown = Vec::new();
    for stage in Stage::ALL {
        let config = stage.config(spec);
        let named = template_walk::templates(stage.field(), config).into_iter();
        let named = named.map(|(place, _, text)| (place, text, Part::Named));
        let texts = template_walk::texts(stage.field(), config).into_iter();
        let texts = texts.map(|source| {
            let part = if source.in_file { Part::File } else { Part::Other };
            (source.place, source.text, part)
        });
        for (template, text, part) in named.chain(texts) {
            let found = engine.unknown_names(text, part, &inputs).into_iter();
            unknown.extend(found.map(
                |Located {
                     line,
                     column,
                     problem,
                 }| UnknownName {
                    position: TemplatePosition {
                        template: template.clone(),
                        line,
                        column,
                    },
                    problem,
                },
            ));
        }
    }
    unknown
}
