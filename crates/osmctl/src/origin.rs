//! Records where a manifest was read, and finds the parts of it that messages name by their paths.

use std::rc::Rc;

use osm_render::TemplatePosition;

use crate::problem::Place;
use crate::yaml_tree::{Kind, Node, Style};

/// Where a manifest was read.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Path as it was given, or `<stdin>`.
    pub file: Rc<str>,
    /// The manifest. Absent where its position is not known.
    node: Option<Rc<Node>>,
}

/// The part of a value that a path leads to, as far as it goes.
struct Found<'n> {
    node: &'n Node,
    /// The part of the path that leads nowhere.
    rest: String,
}

impl Origin {
    /// A manifest of a file.
    pub fn new(file: Rc<str>, node: Option<Node>) -> Self {
        Self {
            file,
            node: node.map(Rc::new),
        }
    }

    /// The root of the manifest.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// The place of a node.
    pub fn place_of(&self, node: &Node) -> Place {
        self.at(node.line, node.column)
    }

    /// The start of the manifest.
    pub fn start(&self) -> Place {
        self.node
            .as_ref()
            .map_or_else(|| Place::file(&*self.file), |node| self.place_of(node))
    }

    /// The place of the part that a path such as `spec.units[2].name` leads to, or as near as possible.
    pub fn place(&self, path: &str) -> Place {
        match &self.node {
            Some(node) => self.place_of(find(node, path).node),
            None => self.start(),
        }
    }

    /// The scalar that a path leads to, as it is written.
    pub fn written(&self, path: &str) -> Option<&str> {
        let found = find(self.node.as_deref()?, path);
        match &found.node.kind {
            Kind::Scalar(text, _) if found.rest.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The place in a text that the manifest contains: `line` and `column` count from 1 inside the text.
    pub fn place_in_text(&self, path: &str, line: usize, column: Option<usize>) -> Place {
        match &self.node {
            Some(node) => self.inside(find(node, path).node, line, column),
            None => self.start(),
        }
    }

    /// The place inside `spec` that an error of a profile names.
    pub fn place_in_spec(&self, position: &TemplatePosition) -> Place {
        let Some(spec) = self.node.as_ref().and_then(|node| node.get("spec")) else {
            return self.start();
        };
        let found = find_template(spec, position);
        match position.line.filter(|_| found.rest.is_empty()) {
            Some(line) => self.inside(text_of(found).node, line, position.column),
            None => self.place_of(found.node),
        }
    }

    fn at(&self, line: usize, column: usize) -> Place {
        Place {
            file: self.file.to_string(),
            line: Some(line),
            column: Some(column),
        }
    }

    /// In literal blocks each line of the text is a line of the file. In other scalars only the start is
    /// certain.
    fn inside(&self, node: &Node, line: usize, column: Option<usize>) -> Place {
        let Kind::Scalar(text, Style::Literal) = &node.kind else {
            return self.place_of(node);
        };
        // The position of a block is that of its first character that is not a line break. Its column is the
        // indentation.
        let blank = text.len() - text.trim_start_matches('\n').len();
        Place {
            file: self.file.to_string(),
            line: Some((node.line + line).saturating_sub(blank + 1)),
            column: column.map(|column| column + node.column - 1),
        }
    }
}

/// Messages name a template of the profile's own by the text that includes it: `PATH, in the template "NAME"
/// of STAGE`.
fn find_template<'n>(spec: &'n Node, position: &TemplatePosition) -> Found<'n> {
    let Some((text, included)) = position.template.split_once(", in the template \"") else {
        return find_place(spec, &position.template);
    };
    let named = included.split_once("\" of ").and_then(|(name, stage)| {
        let runtimes = format!("{stage}.supportedContainerRuntimes[containerd].templates.{name}");
        [format!("{stage}.templates.{name}"), runtimes]
            .iter()
            .map(|path| find(spec, path))
            .find(|found| found.rest.is_empty())
    });
    named.unwrap_or_else(|| Found {
        // The line is one of a part of the library.
        rest: included.to_owned(),
        ..find_place(spec, text)
    })
}

/// The text of a file or unit.
fn text_of(found: Found<'_>) -> Found<'_> {
    for keys in [&["content", "inline", "data"][..], &["content"]] {
        let inner = keys.iter().try_fold(found.node, |node, key| node.get(key));
        if let Some(inner) = inner.filter(|inner| matches!(inner.kind, Kind::Scalar(..))) {
            return Found { node: inner, ..found };
        }
    }
    found
}

/// A path inside the spec, or the path of a file or unit on the machine.
fn find_place<'n>(spec: &'n Node, path: &str) -> Found<'n> {
    if !path.starts_with('/') {
        return find(spec, path);
    }
    let unit = path.strip_prefix("/etc/systemd/system/");
    let unit = unit.map(|name| name.split(".d/").next().unwrap_or(name));
    let stages = ["provisioningConfig", "bootstrapConfig"];
    let lists = stages.iter().flat_map(|stage| {
        let of_runtime = format!("{stage}.supportedContainerRuntimes[containerd].files");
        let unit = unit.map(|unit| (format!("{stage}.units"), "name", unit));
        [
            (format!("{stage}.files"), "path", path),
            (of_runtime, "path", path),
        ]
        .into_iter()
        .chain(unit)
    });
    for (list, key, wanted) in lists {
        let list = find(spec, &list);
        let Kind::List(items) = &list.node.kind else {
            continue;
        };
        let is_it = |item: &Node| item.get(key).is_some_and(|name| is_text(name, wanted));
        if let Some(node) = items.iter().find(|item| is_it(item)) {
            return Found {
                node,
                rest: String::new(),
            };
        }
    }
    Found {
        node: spec,
        rest: path.to_owned(),
    }
}

fn is_text(node: &Node, wanted: &str) -> bool {
    matches!(&node.kind, Kind::Scalar(text, _) if text == wanted)
}

/// Follows a path such as `bootstrapConfig.files[3] (/etc/motd)` as far as it goes. Keys can contain dots.
fn find<'n>(root: &'n Node, path: &str) -> Found<'n> {
    let mut found = Found {
        node: root,
        rest: path.to_owned(),
    };
    while !found.rest.is_empty() {
        let Some((node, rest)) = next(found.node, &found.rest) else {
            break;
        };
        found = Found {
            node,
            rest: rest.to_owned(),
        };
    }
    found
}

fn next<'n, 'p>(node: &'n Node, path: &'p str) -> Option<(&'n Node, &'p str)> {
    let path = path.strip_prefix('.').unwrap_or(path);
    let named = |items: &'n [Node], name: &str| {
        let mut items = items.iter();
        items.find(|item| item.get("name").is_some_and(|found| is_text(found, name)))
    };
    if let Some(rest) = path.strip_prefix(" (") {
        let (name, rest) = rest.split_once(')')?;
        // After an index it repeats the name for people; after the name of a list it selects an item.
        return match &node.kind {
            Kind::List(items) => named(items, name).map(|item| (item, rest)),
            _ => Some((node, rest)),
        };
    }
    match &node.kind {
        Kind::List(items) => {
            let (name, rest) = path.strip_prefix('[')?.split_once(']')?;
            let item = match name.parse::<usize>() {
                Ok(index) => items.get(index)?,
                Err(_) => named(items, name)?,
            };
            Some((item, rest))
        }
        Kind::Map(entries) => {
            let fitting = entries.iter().filter_map(|(key, value)| {
                let Kind::Scalar(key, _) = &key.kind else {
                    return None;
                };
                let rest = path.strip_prefix(key.as_str())?;
                let ends = rest.is_empty() || rest.starts_with(['.', '[']) || rest.starts_with(" (");
                ends.then_some((value, rest))
            });
            // The longest key.
            fitting.min_by_key(|(_, rest)| rest.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml_tree;

    const TEXT: &str = "\
kind: OperatingSystemProfile
spec:
  bootstrapConfig:
    templates: {a.b: x}
    supportedContainerRuntimes:
      - name: containerd
        files:
          - path: /c
            content: {inline: {data: \"{{x}}\"}}
    units:
      - name: a.service
        content: |

          [Unit]
            {{x}}
        dropIns: [{name: 1.conf, content: y}]
    modules: {runcmd: [a, [b, c]]}
";

    #[test]
    fn paths_of_messages_lead_to_lines() {
        let node = yaml_tree::read(TEXT).unwrap().remove(0);
        let origin = Origin::new("f".into(), Some(node));
        let cases = [
            ("bootstrapConfig.units[0] (a.service)", Some((3, 3)), "f:15:13"),
            (
                "bootstrapConfig.units[0] (a.service).dropIns (1.conf)",
                None,
                "f:16:19",
            ),
            (
                "bootstrapConfig.supportedContainerRuntimes[containerd].files[0] (/c)",
                Some((1, 1)),
                "f:9:38",
            ),
            ("bootstrapConfig.modules.runcmd[1][0]", Some((1, 1)), "f:17:28"),
            ("/etc/systemd/system/a.service.d/1.conf", None, "f:11:9"),
            (
                "bootstrapConfig.modules.runcmd[0], in the template \"a.b\" of bootstrapConfig",
                Some((1, 1)),
                "f:4:22",
            ),
            (
                "bootstrapConfig.modules.runcmd[0], in the template \"lib/x\" of bootstrapConfig",
                Some((7, 7)),
                "f:17:24",
            ),
            ("version", None, "f:3:3"),
        ];
        for (template, at, expected) in cases {
            let (line, column) = at.unzip();
            let position = TemplatePosition {
                template: template.to_owned(),
                line,
                column,
            };
            assert_eq!(
                origin.place_in_spec(&position).to_string(),
                expected,
                "{template}"
            );
        }
    }
}
