//! Decoding of documents that people write: every error at once, each with its path, and never a value in a
//! message, because a value may be a credential.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// More errors than this in one document help nobody.
const MAX_ERRORS: usize = 50;

/// Decodes `value` into `T`, which should deny unknown fields.
///
/// # Errors
/// One line per mistake, `path: what is wrong`, in the order found. No line repeats a value of the document.
pub fn decode<T: DeserializeOwned>(mut value: Value) -> Result<T, Vec<String>> {
    let mut errors = Vec::new();
    loop {
        match serde_path_to_error::deserialize::<_, T>(value.clone()) {
            Ok(decoded) if errors.is_empty() => return Ok(decoded),
            Ok(_) => return Err(errors),
            Err(error) => {
                let path = error.path().to_string();
                errors.push(format!("{path}: {}", without_values(&error.inner().to_string())));
                // What is wrong is taken out, so that the next round finds the next mistake.
                let segments: Vec<String> = error.path().iter().map(ToString::to_string).collect();
                if errors.len() >= MAX_ERRORS || !remove(&mut value, &segments) {
                    return Err(errors);
                }
            }
        }
    }
}

/// A serde message without the value that it complains about.
fn without_values(message: &str) -> String {
    let keeps = ["unknown field", "missing field", "duplicate field"];
    if keeps.iter().any(|prefix| message.starts_with(prefix)) {
        return message.to_owned();
    }
    match message.split_once("expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => "not a valid value".to_owned(),
    }
}

fn remove(value: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let mut at = value;
    for segment in parents {
        let next = match at {
            Value::Object(map) => map.get_mut(segment),
            Value::Array(items) => index(segment).and_then(|i| items.get_mut(i)),
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    match at {
        Value::Object(map) => map.remove(last).is_some(),
        Value::Array(items) => index(last).filter(|i| *i < items.len()).map(|i| items.remove(i)).is_some(),
        _ => false,
    }
}

/// Sequence segments print as `[3]`.
fn index(segment: &str) -> Option<usize> {
    segment.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Document {
        #[serde(default)]
        number: i32,
        #[serde(default)]
        inner: Inner,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    #[allow(dead_code)]
    struct Inner {
        flag: bool,
        list: Vec<i32>,
    }

    #[test]
    fn every_mistake_is_named_once_and_no_value_is_repeated() {
        let errors = decode::<Document>(json!({
            "number": "hunter2",
            "inner": {"flag": "hunter2", "lst": 1, "list": [1, "hunter2"]},
        }))
        .unwrap_err();
        let all = errors.join("\n");
        for path in ["number: ", "inner.flag: ", "inner.lst: ", "inner.list[1]: "] {
            assert!(all.contains(path), "{path} is missing in:\n{all}");
        }
        assert_eq!(errors.len(), 4);
        assert!(!all.contains("hunter2"), "{all}");
    }

    #[test]
    fn a_document_that_is_no_object_is_one_error() {
        assert_eq!(decode::<Document>(json!("text")).unwrap_err().len(), 1);
    }
}
