//! Settings that a profile does not use, so that they have no effect on its machines.

use osm_api::config::StageConfig;
use osm_api::profile::TemplateEngine;
use osm_api::settings::{Downloads, Settings};

/// A warning for each. Those that every engine has data for are the profile's choice; these need the library, or what it is made of.
pub(crate) fn warnings(
    engine: TemplateEngine,
    stages: [&StageConfig; 2],
    settings: &Settings,
) -> Vec<String> {
    let files = || stages.into_iter().flat_map(|stage| &stage.files);
    let texts = || files().filter_map(|file| file.content.inline.as_ref());
    // Only Handlebars has data for them.
    let has = |words: &[&str]| {
        engine == TemplateEngine::Handlebars
            && texts().any(|inline| words.iter().all(|word| inline.data.contains(word)))
    };
    let swap = settings.system.swap.as_ref();
    let makes_swap = |size: &Option<String>| size.is_none() || has(&["/var/lib/osm/swap"]);
    let configuration = settings
        .kubelet
        .configuration
        .iter()
        .flat_map(|fields| fields.keys());
    let fields: Vec<&str> = configuration.map(String::as_str).collect();
    let unused = [
        (
            "system.swap",
            swap.is_some_and(|swap| !(has(&["memorySwap"]) && makes_swap(&swap.size))),
        ),
        ("kubelet.configuration", !fields.is_empty() && !has(&fields)),
        (
            "downloads",
            engine != TemplateEngine::Handlebars && settings.downloads != Downloads::default(),
        ),
    ];
    let unused = unused.into_iter().filter(|(_, is_unused)| *is_unused);
    unused
        .map(|(field, _)| {
            format!("{field} of the settings has no effect, because the profile does not use it")
        })
        .collect()
}
