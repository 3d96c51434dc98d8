//! Timestamps of YAML. They are texts here, as everything else that has no type of its own.

use std::sync::OnceLock;

use regex::Regex;

/// Whether `gopkg.in/yaml.v3` reads a text as a timestamp, so that it must be quoted. Its dates need not exist.
pub(super) fn is_timestamp(text: &str) -> bool {
    static TIMESTAMP: OnceLock<Option<Regex>> = OnceLock::new();
    static PATTERN: &str = concat!(
        r"^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}",
        r"([Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.,][0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})",
        r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.,][0-9]+)?)?$"
    );
    if text.as_bytes().get(4) != Some(&b'-') {
        return false;
    }
    let regex = TIMESTAMP.get_or_init(|| Regex::new(PATTERN).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}
