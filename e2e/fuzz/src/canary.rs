//! Values that must not come back in a message.

use osm_api::digest;
use serde_json::{Value, json};

/// Stands for a credential.
pub(crate) const WORD: &str = "hunter2";

/// A number that is as good as a credential.
const NUMBER: u64 = 7_272_772_727;

/// Whether an input itself has a canary, so that finding one proves nothing.
pub(crate) fn is_in(input: &str) -> bool {
    input.contains(WORD) || input.contains(&NUMBER.to_string())
}

/// Checks that a message repeats no canary.
pub(crate) fn check(message: &str) {
    assert!(!is_in(message), "a message repeats a value: {message}");
}

/// The document with a canary in the place of one of its values, another for each input; `None` where it has none.
pub(crate) fn plant(document: &Value, input: &str) -> Option<Value> {
    let mut planted = document.clone();
    let mut leaves = Vec::new();
    collect(&mut planted, &mut leaves);
    let hash = digest::sha256(input.as_bytes());
    let random = hash
        .iter()
        .take(4)
        .fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
    let at = random.checked_rem(leaves.len())?;
    let leaf = leaves.swap_remove(at);
    *leaf = match leaf {
        Value::String(text) if text.starts_with("http") => json!(format!("https://{WORD}")),
        Value::String(_) => json!(WORD),
        _ => json!(NUMBER),
    };
    Some(planted)
}

fn collect<'a>(value: &'a mut Value, leaves: &mut Vec<&'a mut Value>) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| collect(value, leaves)),
        Value::Array(items) => items.iter_mut().for_each(|value| collect(value, leaves)),
        Value::Null => {}
        leaf => leaves.push(leaf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_gets_the_canary_for_some_input() {
        let document = json!({"a": "x", "b": [1, {"c": true}], "d": null});
        let found: std::collections::BTreeSet<String> = (0..100)
            .map(|n| plant(&document, &n.to_string()).unwrap().to_string())
            .collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().all(|text| is_in(text)));
        assert_eq!(plant(&json!({}), ""), None);
    }

    #[test]
    #[should_panic(expected = "repeats a value")]
    fn a_message_with_a_canary_is_found() {
        check("no such user: hunter2");
    }
}
