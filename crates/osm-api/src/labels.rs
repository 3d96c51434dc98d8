//! The forms of label keys and label values, which the API server also demands of taints:
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>.

use crate::names::{MAX_LABEL, is_dns_subdomain};

/// What [`is_key`] accepts, for messages.
pub const KEY_RULE: &str = "must be a label key, such as example.com/name: an optional DNS name and a slash, then at most 63 letters, digits, -, _ and .";

/// What [`is_value`] accepts, for messages.
pub const VALUE_RULE: &str =
    "must be a label value: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends";

/// Whether a text is a label key: `name` or `prefix/name`.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Whether a text is a label value, which can be empty.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| end(c) || matches!(c, '-' | '_' | '.');
    text.len() <= MAX_LABEL && text.starts_with(end) && text.ends_with(end) && text.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_those_of_kubernetes() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        let keys = "a|A_b.c-1|example.com/a|node-role.kubernetes.io/control-plane".split('|');
        for key in keys.chain([long.as_str()]) {
            assert!(is_key(key), "{key}");
        }
        let keys = "|not a key!|-a|a-|a/|/a|a/b/c|Example.com/a|a..b/c|ä".split('|');
        for key in keys.chain([longer.as_str()]) {
            assert!(!is_key(key), "{key}");
        }
        assert!(is_value("") && is_value("A_b.c-1") && is_value(&long));
        for value in ["no value!", "-a", "a/b", &longer] {
            assert!(!is_value(value), "{value}");
        }
    }
}
