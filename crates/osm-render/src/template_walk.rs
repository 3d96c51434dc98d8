//! The one walk over everything in a stage that may be a template, used to compile and to render.

use std::convert::Infallible;
use std::fmt;

use osm_api::config::StageConfig;
use osm_api::profile::{
    ContainerRuntime, ContainerRuntimeName, DropIn, File, FileContent, InlineContent, ProfileConfig,
    ProfileFile, ProfileUnit, Unit,
};
use serde_json::Value;

use crate::engine::Source;

/// Where a text is inside the spec.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Of a file of the stage, or of its container runtime.
    File {
        stage: &'static str,
        of_runtime: bool,
        index: usize,
        path: &'a str,
    },
    /// Of a unit, or of a drop-in of it.
    Unit {
        stage: &'static str,
        index: usize,
        unit: &'a str,
        drop_in: Option<&'a str>,
    },
    /// Of a value of the modules.
    Value { stage: &'static str, path: &'a Path<'a> },
}

/// Where a value is inside a tree.
pub(crate) enum Path<'a> {
    Top,
    Key(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Key(above, key) => write!(f, "{above}.{key}"),
            Self::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File {
                stage,
                of_runtime,
                index,
                path,
            } => {
                let runtime = if *of_runtime {
                    ".supportedContainerRuntimes[containerd]"
                } else {
                    ""
                };
                write!(f, "{stage}{runtime}.files[{index}] ({path})")
            }
            Self::Unit {
                stage,
                index,
                unit,
                drop_in,
            } => {
                write!(f, "{stage}.units[{index}] ({unit})")?;
                drop_in.map_or(Ok(()), |name| write!(f, ".dropIns ({name})"))
            }
            Self::Value { stage, path } => write!(f, "{stage}.modules{path}"),
        }
    }
}

/// The container runtime whose files and templates are used.
pub(crate) fn runtime(config: &ProfileConfig) -> Option<&ContainerRuntime> {
    config
        .supported_container_runtimes
        .iter()
        .find(|runtime| runtime.name == ContainerRuntimeName::Containerd)
}

/// Files of a stage with their places: its own, then those of the container runtime.
pub(crate) fn files<'a>(
    stage: &'static str,
    config: &'a ProfileConfig,
) -> impl Iterator<Item = (Place<'a>, &'a ProfileFile)> {
    let of_runtime = runtime(config).into_iter().flat_map(|runtime| &runtime.files);
    let place = move |(index, file): (usize, &'a ProfileFile), of_runtime| {
        (
            Place::File {
                stage,
                of_runtime,
                index,
                path: &file.path,
            },
            file,
        )
    };
    let own = config
        .files
        .iter()
        .enumerate()
        .map(move |file| place(file, false));
    own.chain(of_runtime.enumerate().map(move |file| place(file, true)))
}

/// Named templates of a stage with their paths inside the spec: those of the container runtime, overlaid by its own.
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

/// Every text of a stage with its place inside the spec, in the order of [`map`].
pub(crate) fn texts<'a>(stage: &'static str, config: &'a ProfileConfig) -> Vec<Source<'a>> {
    let mut texts = Vec::new();
    let collected: Result<_, Infallible> = map(stage, config, &mut |place, text| {
        texts.push(Source {
            place: place.to_string(),
            text,
            in_file: matches!(place, Place::File { .. }),
        });
        Ok(String::new())
    });
    let Ok(_) = collected;
    texts
}

/// `config` with every text replaced by what `render` makes of it, given its place inside the spec: files, units, modules.
pub(crate) fn map<'a, E>(
    stage: &'static str,
    config: &'a ProfileConfig,
    render: &mut impl FnMut(Place<'_>, &'a str) -> Result<String, E>,
) -> Result<StageConfig, E> {
    let mut mapped = StageConfig::default();
    for (place, file) in files(stage, config) {
        let inline = file.content.inline.as_ref();
        let data = render(place, inline.map_or("", |inline| &inline.data))?;
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
    for (index, unit) in config.units.iter().enumerate() {
        let place = |drop_in| Place::Unit {
            stage,
            index,
            unit: &unit.name,
            drop_in,
        };
        let content = unit
            .content
            .as_ref()
            .map(|content| render(place(None), content))
            .transpose()?;
        let mut drop_ins = Vec::new();
        for DropIn { name, content } in &unit.drop_ins {
            drop_ins.push(DropIn {
                name: name.clone(),
                content: render(place(Some(name)), content)?,
            });
        }
        // A resolved unit has no mark any more.
        let ProfileUnit {
            name,
            enable,
            mask,
            content: _,
            drop_ins: _,
            replace: _,
            remove: _,
        } = unit;
        mapped.units.push(Unit {
            name: name.clone(),
            enable: *enable,
            mask: *mask,
            content,
            drop_ins,
        });
    }
    if let Some(modules) = &config.modules {
        let render = &mut |path: &Path<'_>, text: &'a str| render(Place::Value { stage, path }, text);
        mapped.modules = Some(map_value(&Path::Top, modules, render)?);
    }
    Ok(mapped)
}

/// A JSON tree with every string, keys left alone, replaced.
pub(crate) fn map_value<'v, E>(
    path: &Path<'_>,
    value: &'v Value,
    render: &mut impl FnMut(&Path<'_>, &'v str) -> Result<String, E>,
) -> Result<Value, E> {
    Ok(match value {
        Value::String(text) => Value::String(render(path, text)?),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(i, item)| map_value(&Path::Item(path, i), item, render))
                .collect::<Result<_, E>>()?,
        ),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| Ok((key.clone(), map_value(&Path::Key(path, key), item, render)?)))
                .collect::<Result<_, E>>()?,
        ),
        scalar => scalar.clone(),
    })
}
