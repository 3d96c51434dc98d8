//! Merges cloud-init modules: maps key by key, lists one after the other. Anything else can't be merged.

use serde_json::Value;

use crate::error::{ProfileError, extends};

/// Adds `extension` to `base`. `path` is where both are inside the spec, and `module` the name of the module
/// around it.
pub(super) fn merge(
    base: &mut Value,
    extension: &Value,
    path: &str,
    module: Option<&str>,
) -> Result<(), ProfileError> {
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
        _ => Err(extends(
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
