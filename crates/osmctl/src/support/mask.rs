//! Hides what looks like a credential.

use std::sync::LazyLock;

use osm_render::LateValues;
use regex::Regex;
use serde_json::Value;

use crate::credentials::{self, MASK};

/// From the scheme of a URL to the last `@` of its line: also a password that is not encoded.
static OF_URL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new("://.*@").ok());

/// A text of OSM: its messages name fields such as `credentials`, and never repeat a value.
pub fn own(text: &str) -> String {
    without_users(&credentials::hide_forms(text))
}

/// A text of another program, which may repeat anything.
pub fn foreign(text: &str) -> String {
    // Before everything else, so that a pattern does not cut the URL.
    credentials::hide(&without_users(text), "", &LateValues::new())
}

/// Nothing of a text.
pub fn everything(_: &str) -> String {
    MASK.to_owned()
}

/// `value` with every string hidden in this way. Names of fields stay.
pub fn values(value: Value, hide: fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => hide(&text).into(),
        Value::Array(items) => items.into_iter().map(|item| values(item, hide)).collect(),
        Value::Object(fields) => {
            let hidden = |(name, value)| (name, values(value, hide));
            Value::Object(fields.into_iter().map(hidden).collect())
        }
        other => other,
    }
}

fn without_users(text: &str) -> String {
    match &*OF_URL {
        Some(pattern) => pattern.replace_all(text, format!("://{MASK}@")).into_owned(),
        None => MASK.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_password_in_a_url_is_hidden_however_it_is_written() {
        for password in ["simple", "with/slash", "with blank", "with@at", "with%20percent"] {
            let text = format!("dial http://user:{password}@proxy.example:3128 failed");
            for hidden in [own(&text), foreign(&text)] {
                assert!(
                    !hidden.contains(password) && hidden.contains("proxy.example:3128 failed"),
                    "{hidden}"
                );
            }
        }
    }

    #[test]
    fn messages_of_osm_stay_readable() {
        let message = "spec.credentials: Secret cloud-init-settings/hub does not exist; create it";
        assert_eq!(own(message), message);
        assert!(!foreign("password: hunter2").contains("hunter2"));
    }

    #[test]
    fn every_string_is_hidden_and_the_form_stays() {
        let value = json!({"a": ["x", 1, {"b": "y"}], "c": true});
        assert_eq!(
            values(value, everything),
            json!({"a": [MASK, 1, {"b": MASK}], "c": true})
        );
    }
}
