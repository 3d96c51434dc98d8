//! Finds paths in a template that lead to no field, including those in branches that no sample takes.

use std::collections::HashMap;

use ::handlebars::Template;
use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use serde_json::Value;

use super::lint::{self, name};
use crate::engine::Located;

/// The paths of a parsed template that lead nowhere in `data`. `of_data` says that paths start there: those of a template that others
/// include can start at a value that it is included with.
pub(super) fn names(template: &Template, data: &Value, of_data: bool) -> Vec<Located> {
    let mut found = Vec::new();
    of_template(template, data, of_data, &mut found);
    found
}

fn of_template(template: &Template, data: &Value, of_data: bool, found: &mut Vec<Located>) {
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
            let path = unknown_path(path, data, of_data)?;
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
                of_template(inner, data, of_data && !moves, found);
            }
            for inner in helper.inverse.iter() {
                of_template(inner, data, of_data, found);
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
    if is_plain && !lint::is_helper(name) {
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
fn unknown_path(path: &str, data: &Value, of_data: bool) -> Option<String> {
    let separators = ['.', '/'];
    let names = match path
        .strip_prefix("@root")
        .and_then(|rest| rest.strip_prefix(separators))
    {
        Some(rest) => rest,
        None if !of_data || path.starts_with(['@', '.']) || path.starts_with("this") => return None,
        None => path,
    };
    let mut value = data;
    let mut path = String::new();
    for name in names.split(separators) {
        let separator = if path.is_empty() { "" } else { "." };
        path.push_str(&format!("{separator}{name}"));
        match value {
            Value::Object(fields) if !fields.is_empty() => match fields.get(name) {
                Some(below) => value = below,
                None => return Some(path),
            },
            // Other pools have something there.
            Value::Null | Value::Object(_) | Value::Array(_) => return None,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => return Some(path),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(source: &str, of_data: bool) -> Vec<String> {
        let data = json!({
            "kubelet": {"version": "1.34.2", "configuration": null, "featureGates": {}}, "os": {"name": "ubuntu"},
            "cluster": {"dnsIPs": ["10.96.0.10"]}, "pool": {"name": "a"}, "initialTaints": [],
        });
        let names = names(&Template::compile(source).unwrap(), &data, of_data);
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
                "{{json (lookup kubelet.gates key=os.nam)}}{{pool.name.first}}",
                &["1:1 kubelet.gates", "1:1 os.nam", "1:43 pool.name.first"],
            ),
            (
                "{{kubelet.configuration.a}}{{kubelet.featureGates.A}}{{initialTaints.0.key}}",
                &[],
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
