//! The text of one template.

use osm_api::OperatingSystemProfileSpec;
use serde_json::{Value, json};

use crate::{canary, pipeline};

/// Whatever a template says, no message about it has a value of the pool or of the settings.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let mut profile = pipeline::small();
    if let Some(data) = profile.pointer_mut("/bootstrapConfig/files/1/content/inline/data") {
        *data = json!(text);
    }
    render_twice(profile, text);
}

/// Renders a profile with `text` in it.
pub(crate) fn render_twice(profile: Value, text: &str) {
    let Ok(spec) = serde_json::from_value::<OperatingSystemProfileSpec>(profile) else {
        return;
    };
    let Ok(accepted) = pipeline::resolve(&spec) else {
        return;
    };
    let Ok(profile) = pipeline::compile(&accepted) else {
        return;
    };
    let Some((pool, settings)) = pipeline::surroundings(&spec) else {
        return;
    };
    let canary_in_input = canary::is_in(text);
    let rendered = pipeline::render(&profile, &pool, &settings, canary_in_input);
    assert_eq!(
        rendered,
        pipeline::render(&profile, &pool, &settings, canary_in_input),
        "differs the second time"
    );
}

/// The templates of the built-in profile for Ubuntu that are not long, and what the language has besides.
pub fn seeds() -> Vec<String> {
    let mut seeds: Vec<String> = [
        "{{#if (and proxy.http (not hostCABundle))}}a{{else if (gt kubelet.minor 33)}}b{{else}}c{{/if}}",
        "{{#each containerd.registries}}{{@index}} {{host}} {{../pool.name}}{{#each mirrors}}{{toml url}}{{/each}}{{else}}none{{/each}}\n",
        "{{#with kubelet.configuration}}{{json this}}{{/with}}{{#unless packages.enabled}}x{{/unless}}",
        "{{yaml (lookup kubelet.systemReserved \"memory\")}}{{len initialTaints}}{{join cluster.dnsIPs \",\"}}",
        "{{#if (semver kubelet.version \">=1.33, <1.37\")}}{{shell (concat pool.name \"x\")}}{{/if}}",
        "{{indent 4 (trim overwriteCloudConfig)}}{{b64 hostCABundle}}{{!-- a comment --}}\\{{x}}",
        "{{> lib/proxy.env}}{{late \"registry/docker.io/password\" as=\"toml\"}}",
        "{{download-url \"kubelet\" arch=\"$arch\"}} {{checksum-url \"runc\" arch=\"amd64\"}}",
    ]
    .map(str::to_owned)
    .to_vec();
    let ubuntu = osm_render::defaults()
        .into_iter()
        .find(|(name, _)| name == "osp-ubuntu");
    let files = ubuntu
        .into_iter()
        .flat_map(|(_, spec)| spec.provisioning_config.files);
    let texts = files.filter_map(|file| Some(file.content.inline?.data));
    seeds.extend(texts.filter(|text| text.contains("{{") && text.len() < 2000));
    seeds
}
