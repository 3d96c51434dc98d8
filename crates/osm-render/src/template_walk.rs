//! The one walk over everything in a stage that may be a template, used to compile and to render.
//!
//! The place of a text inside the spec is formatted only where it is printed: the keys of modules can be
//! long, and their values many.

use std::convert::Infallible;
use std::fmt;

use osm_api::config::StageConfig;
use osm_api::profile::{
    ContainerRuntime, ContainerRuntimeName, DropIn, File, FileContent, InlineContent, ProfileConfig,
    ProfileFile, Unit,
};
use osm_user_data::tree;

use crate::engine::Source;

/// The container runtime whose files and templates are used.
pub(crate) fn runtime(config: &ProfileConfig) -> Option<&ContainerRuntime> {
    config
        .supported_container_runtimes
        .iter()
        .find(|runtime| runtime.name == ContainerRuntimeName::Containerd)
}

/// Files of a stage with their places inside the spec: its own, then those of the container runtime.
pub(crate) fn files<'a>(
    stage: &str,
    config: &'a ProfileConfig,
) -> impl Iterator<Item = (String, &'a ProfileFile)> {
    let place = |list: &str, index: usize, file: &ProfileFile| format!("{list}[{index}] ({})", file.path);
    let own = format!("{stage}.files");
    let own = config
        .files
        .iter()
        .enumerate()
        .map(move |(i, file)| (place(&own, i, file), file));
    let others = format!("{stage}.supportedContainerRuntimes[containerd].files");
    let of_runtime = runtime(config).into_iter().flat_map(|runtime| &runtime.files);
    own.chain(
        of_runtime
            .enumerate()
            .map(move |(i, file)| (place(&others, i, file), file)),
    )
}

/// Named templates of a stage with their paths inside the spec: those of the container runtime, overlaid by
/// its own.
pub(crate) fn templates<'a>(stage: &str, config: &'a ProfileConfig) -> Vec<(String, &'a str, &'a str)> {
    let own = &config.templates;
    let of_runtime = runtime(config).into_iter().flat_map(|runtime| &runtime.templates);
    let of_runtime = of_runtime
        .filter(|(name, _)| !own.contains_key(*name))
        .map(|(name, text)| {
            (
                format!("{stage}.supportedContainerRuntimes[containerd].templates.{name}"),
                name.as_str(),
                text.as_str(),
            )
        });
    let own = own
        .iter()
        .map(|(name, text)| (format!("{stage}.templates.{name}"), name.as_str(), text.as_str()));
    of_runtime.chain(own).collect()
}

/// Every text of a stage, in the order of [`map`].
pub(crate) fn texts<'a>(stage: &str, config: &'a ProfileConfig) -> Vec<Source<'a>> {
    let files = files(stage, config).count();
    let mut texts = Vec::new();
    let collected: Result<_, Infallible> = map(stage, config, &mut |_, text| {
        let in_file = texts.len() < files;
        texts.push(Source { text, in_file });
        Ok(String::new())
    });
    let Ok(_) = collected;
    texts
}

/// The place inside the spec of the text with this number in [`texts`].
pub(crate) fn place(stage: &str, config: &ProfileConfig, number: usize) -> String {
    let (mut walked, mut found) = (0, String::new());
    let all: Result<_, Infallible> = map(stage, config, &mut |place, _| {
        if walked == number {
            found = place.to_string();
        }
        walked += 1;
        Ok(String::new())
    });
    let Ok(_) = all;
    found
}

/// `config` with every text replaced by what `render` makes of it, given its place inside the spec: files,
/// units, modules.
pub(crate) fn map<'a, E>(
    stage: &str,
    config: &'a ProfileConfig,
    render: &mut impl FnMut(fmt::Arguments<'_>, &'a str) -> Result<String, E>,
) -> Result<StageConfig, E> {
    let mut mapped = StageConfig::default();
    for (place, file) in files(stage, config) {
        let data = render(format_args!("{place}"), file.content.text())?;
        let inline = file.content.inline.as_ref();
        let encoding = inline.and_then(|inline| inline.encoding.clone());
        mapped.files.push(File {
            path: file.path.clone(),
            permissions: if file.permissions == 0 {
                644
            } else {
                file.permissions
            },
            content: FileContent {
                inline: Some(InlineContent { encoding, data }),
            },
        });
    }
    for (i, unit) in config.units.iter().enumerate() {
        let name = &unit.name;
        let content = unit
            .content
            .as_ref()
            .map(|content| render(format_args!("{stage}.units[{i}] ({name})"), content))
            .transpose()?;
        let mut drop_ins = Vec::new();
        for drop_in in &unit.drop_ins {
            let place = format_args!("{stage}.units[{i}] ({name}).dropIns ({})", drop_in.name);
            let content = render(place, &drop_in.content)?;
            let name = drop_in.name.clone();
            drop_ins.push(DropIn { name, content });
        }
        mapped.units.push(Unit {
            name: name.clone(),
            enable: unit.enable,
            mask: unit.mask,
            content,
            drop_ins,
        });
    }
    if let Some(modules) = &config.modules {
        mapped.modules = Some(tree::map(format_args!("{stage}.modules"), modules, render)?);
    }
    Ok(mapped)
}
