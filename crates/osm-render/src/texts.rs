//! The one walk over everything in a stage that may be a template, used to compile and to render.

use osm_api::config::StageConfig;
use osm_api::profile::{
    ContainerRuntime, ContainerRuntimeName, DropIn, File, FileContent, InlineContent, ProfileConfig, Unit,
};
use serde_json::Value;

/// The container runtime whose files and templates are used.
pub(crate) fn runtime(config: &ProfileConfig) -> Option<&ContainerRuntime> {
    config
        .supported_container_runtimes
        .iter()
        .find(|runtime| runtime.name == ContainerRuntimeName::Containerd)
}

/// Files of a stage with their paths inside the spec: its own, then those of the container runtime.
pub(crate) fn files<'a>(stage: &str, config: &'a ProfileConfig) -> Vec<(String, &'a File)> {
    let own = config.files.iter().enumerate().map(|(i, file)| (format!("{stage}.files[{i}]"), file));
    let of_runtime = runtime(config).into_iter().flat_map(|runtime| runtime.files.iter().enumerate());
    let of_runtime = of_runtime
        .map(|(i, file)| (format!("{stage}.supportedContainerRuntimes[containerd].files[{i}]"), file));
    own.chain(of_runtime).map(|(place, file)| (format!("{place} ({})", file.path), file)).collect()
}

/// Named templates of a stage with their paths inside the spec: those of the container runtime, overlaid by its own.
pub(crate) fn templates<'a>(stage: &str, config: &'a ProfileConfig) -> Vec<(String, &'a str, &'a str)> {
    let own = &config.templates;
    let of_runtime = runtime(config).into_iter().flat_map(|runtime| &runtime.templates);
    let of_runtime = of_runtime.filter(|(name, _)| !own.contains_key(*name)).map(|(name, text)| {
        (
            format!("{stage}.supportedContainerRuntimes[containerd].templates.{name}"),
            name.as_str(),
            text.as_str(),
        )
    });
    let own =
        own.iter().map(|(name, text)| (format!("{stage}.templates.{name}"), name.as_str(), text.as_str()));
    of_runtime.chain(own).collect()
}

/// `config` with every text replaced by what `render` makes of it, given its path inside the spec.
pub(crate) fn map<E>(
    stage: &str,
    config: &ProfileConfig,
    render: &mut impl FnMut(&str, &str) -> Result<String, E>,
) -> Result<StageConfig, E> {
    let mut mapped = StageConfig::default();
    for (place, file) in files(stage, config) {
        let inline = file.content.inline.as_ref();
        let data = render(&place, inline.map_or("", |inline| &inline.data))?;
        let encoding = inline.and_then(|inline| inline.encoding.clone());
        mapped.files.push(File {
            path: file.path.clone(),
            permissions: if file.permissions == 0 { 644 } else { file.permissions },
            content: FileContent { inline: Some(InlineContent { encoding, data }) },
        });
    }
    for (i, unit) in config.units.iter().enumerate() {
        let place = format!("{stage}.units[{i}] ({})", unit.name);
        let content = unit.content.as_ref().map(|content| render(&place, content)).transpose()?;
        let mut drop_ins = Vec::new();
        for drop_in in &unit.drop_ins {
            let place = format!("{stage}.units[{i}] ({}).dropIns ({})", unit.name, drop_in.name);
            drop_ins.push(DropIn { name: drop_in.name.clone(), content: render(&place, &drop_in.content)? });
        }
        mapped.units.push(Unit { content, drop_ins, ..unit.clone() });
    }
    if let Some(modules) = &config.modules {
        mapped.modules = Some(map_value(&format!("{stage}.modules"), modules, render)?);
    }
    Ok(mapped)
}

/// A JSON tree with every string, keys left alone, replaced.
pub(crate) fn map_value<E>(
    place: &str,
    value: &Value,
    render: &mut impl FnMut(&str, &str) -> Result<String, E>,
) -> Result<Value, E> {
    Ok(match value {
        Value::String(text) => Value::String(render(place, text)?),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(i, item)| map_value(&format!("{place}[{i}]"), item, render))
                .collect::<Result<_, E>>()?,
        ),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| Ok((key.clone(), map_value(&format!("{place}.{key}"), item, render)?)))
                .collect::<Result<_, E>>()?,
        ),
        scalar => scalar.clone(),
    })
}
