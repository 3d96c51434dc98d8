//! Merges cloud-init modules: maps key by key, lists one after the other. Anything else can't be merged.

use serde_json::Value;

use super::Problem;

/// Adds `extension` to `base`. `path` is where both are inside the spec, and `module` the name of the module around it.
pub(super) fn merge(
    base: &mut Value,
    extension: &Value,
    path: &str,
    module: Option<&str>,
) -> Result<(), Problem> {
    match (base, extension) {
        (Value::Object(base), Value::Object(extension)) => {
            for (key, value) in extension {
                match base.get_mut(key) {
                    Some(below) => merge(
                        below,
                        value,
                        &format!("{path}.{key}"),
                        Some(module.unwrap_or(key)),
                    )?,
                    None => drop(base.insert(key.clone(), value.clone())),
                }
            }
            Ok(())
        }
        (Value::Array(base), Value::Array(extension)) => {
            base.extend(extension.iter().cloned());
            Ok(())
        }
        (base, extension) if base == extension => Ok(()),
        _ => Err(Problem::new(
            path,
            match module {
                Some(module) => format!(
                    "the base sets this as well, and only lists and maps can be merged; to replace the whole module, list {module} in \
                     removeModules"
                ),
                None => "must be an object of cloud-init modules".to_owned(),
            },
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_and_lists_are_merged_and_scalars_collide() {
        for (base, extension, expected) in [
            (json!({}), json!({"a": 1}), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1}), json!({"a": 1})),
            (
                json!({"a": [1]}),
                json!({"a": [1, [2]]}),
                json!({"a": [1, 1, [2]]}),
            ),
            (
                json!({"ntp": {"enabled": true, "servers": ["a"]}, "x": null}),
                json!({"ntp": {"servers": ["b"], "pools": []}}),
                json!({"ntp": {"enabled": true, "servers": ["a", "b"], "pools": []}, "x": null}),
            ),
        ] {
            let mut merged = base.clone();
            assert!(merge(&mut merged, &extension, "modules", None).is_ok());
            assert_eq!(merged, expected);
        }
        for (base, extension, path, module) in [
            (
                json!({"timezone": "UTC"}),
                json!({"timezone": "CET"}),
                "modules.timezone",
                "timezone",
            ),
            (
                json!({"ntp": {"a": {"b": 1}}}),
                json!({"ntp": {"a": {"b": 2}}}),
                "modules.ntp.a.b",
                "ntp",
            ),
            (
                json!({"users": "default"}),
                json!({"users": []}),
                "modules.users",
                "users",
            ),
            (json!({"x": null}), json!({"x": false}), "modules.x", "x"),
        ] {
            let problem = merge(&mut base.clone(), &extension, "modules", None).unwrap_err();
            assert_eq!(problem.path, path);
            assert!(
                problem
                    .problem
                    .ends_with(&format!("list {module} in removeModules")),
                "{}",
                problem.problem
            );
        }
    }
}
