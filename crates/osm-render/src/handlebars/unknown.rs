//! Paths in a template that lead to no field, in branches that no sample takes, too.

use std::collections::HashMap;

use ::handlebars::Template;
use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};

use super::element::name;
use super::lint;
use crate::engine::Located;
use crate::known_names;

/// The paths of a parsed template that lead nowhere. `of_data` says that paths start at the data: those of a template that others include
/// can start at a value that it is included with.
pub(super) fn names(template: &Template, of_data: bool) -> Vec<Located> {
    let mut found = Vec::new();
    of_template(template, of_data, &mut found);
    found
}

fn of_template(template: &Template, of_data: bool, found: &mut Vec<Located>) {
    for (index, element) in template.elements.iter().enumerate() {
        let mut paths = Vec::new();
        match element {
            TemplateElement::Expression(helper) | TemplateElement::HtmlExpression(helper) => {
                of_expression(helper, &mut paths);
            }
            TemplateElement::HelperBlock(helper) => of_values(&helper.params, &helper.hash, &mut paths),
            TemplateElement::PartialExpression(partial) => {
                of_values(&partial.params, &partial.hash, &mut paths);
            }
            _ => {}
        }
        let (line, column) = template.mapping.get(index).map(|at| (at.0, at.1)).unzip();
        found.extend(paths.into_iter().filter_map(|path| {
            let path = unknown_path(path, of_data)?;
            let problem = format!("there is no field {path:?}");
            Some(Located {
                line,
                column,
                problem,
            })
        }));
        if let TemplateElement::HelperBlock(helper) = element {
            let moves = matches!(name(&helper.name), Ok("each" | "with"));
            for inner in helper.template.iter() {
                of_template(inner, of_data && !moves, found);
            }
            for inner in helper.inverse.iter() {
                of_template(inner, of_data, found);
            }
        }
    }
}

fn of_expression<'t>(helper: &'t HelperTemplate, paths: &mut Vec<&'t str>) {
    of_values(&helper.params, &helper.hash, paths);
    let Ok(name) = name(&helper.name) else {
        return;
    };
    let is_plain = helper.params.is_empty() && helper.hash.is_empty();
    if is_plain && !lint::SESSION_HELPERS.contains(&name) && !lint::VALUE_HELPERS.contains(&name) {
        paths.push(name);
    }
}

fn of_values<'t>(params: &'t [Parameter], hash: &'t HashMap<String, Parameter>, paths: &mut Vec<&'t str>) {
    for value in params.iter().chain(hash.values()) {
        match value {
            Parameter::Subexpression(sub) => {
                if let TemplateElement::Expression(helper) = sub.as_element() {
                    of_expression(helper, paths);
                }
            }
            Parameter::Literal(_) => {}
            path => paths.extend(name(path).ok()),
        }
    }
}

/// The part of a path that no field has.
fn unknown_path(path: &str, of_data: bool) -> Option<String> {
    let separators = ['.', '/'];
    let names = match path
        .strip_prefix("@root")
        .and_then(|rest| rest.strip_prefix(separators))
    {
        Some(rest) => rest,
        None if !of_data || path.starts_with(['@', '.']) || path.starts_with("this") => return None,
        None => path,
    };
    known_names::unknown_field(names.split(separators))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, of_data: bool) -> Vec<String> {
        let names = names(&Template::compile(source).unwrap(), of_data);
        let text = |at: Located| {
            let name = at.problem.split('"').nth(1).unwrap().to_owned();
            format!("{}:{} {name}", at.line.unwrap(), at.column.unwrap())
        };
        names.into_iter().map(text).collect()
    }

    #[test]
    fn paths_that_lead_nowhere_are_found_in_every_branch() {
        for (source, expected) in [
            (
                "{{kubelet.version}} {{json cluster.dnsIPs}} {{@root.pool.name}}",
                &[][..],
            ),
            ("a\n{{#if (eq pool.name \"x\")}}{{typo}}{{/if}}", &["2:27 typo"]),
            (
                "{{#if typo}}{{else}}{{@root.typo}}{{/if}}",
                &["1:1 typo", "1:21 typo"],
            ),
            (
                "{{json (lookup kubelet.gates key=os.nam)}}",
                &["1:1 kubelet.gates", "1:1 os.nam"],
            ),
            (
                "{{#each initialTaints}}{{typo}}{{@root/typo}}{{../typo}}{{@index}}{{this.typo}}{{else}}{{typo}}{{/each}}",
                &["1:32 typo", "1:88 typo"],
            ),
            ("{{> part typo x=os.name}}", &["1:1 typo"]),
        ] {
            let mut found = found(source, true);
            found.sort_unstable();
            assert_eq!(found, expected, "{source}");
        }
        assert_eq!(found("{{typo}}{{@root.typo}}", false), ["1:9 typo"]);
    }
}
