//! A content, as JSON, of which secret-syncer makes documents: it may be one that somebody else wrote.

use std::collections::BTreeMap;

use osm_api::content::Content;
use osm_api::{Pool, Settings};

use crate::{pipeline, profile};

/// Both documents are written, or refused without repeating a credential.
pub fn run(input: &[u8]) {
    if let Ok(spec) = serde_json::from_slice::<Content>(input) {
        pipeline::documents(&spec);
    }
}

/// What comes of small profiles, one for each reader of documents.
pub fn seeds() -> Vec<String> {
    let of_small = profile::small().into_iter().filter_map(|small| {
        let spec = serde_json::from_value(small).ok()?;
        let (pool, settings) = pipeline::surroundings(&spec)?;
        rendered(&spec, &pool, &settings)
    });
    let deployment = pipeline::machine_deployment(pipeline::provider_spec(), BTreeMap::new());
    let of_rhel = Pool::read(&deployment).ok().and_then(|pool| {
        let mut small = pipeline::small();
        *small.pointer_mut("/osName")? = "rhel".into();
        rendered(&serde_json::from_value(small).ok()?, &pool, &Settings::default())
    });
    of_small.chain(of_rhel).collect()
}

fn rendered(spec: &osm_api::OperatingSystemProfileSpec, pool: &Pool, settings: &Settings) -> Option<String> {
    let profile = osm_render::compile(&osm_render::resolve(spec).ok()?).ok()?;
    let rendered = profile
        .render(pool, settings, &osm_render::stand_in_cluster())
        .ok()?;
    serde_json::to_string(&rendered.spec).ok()
}
