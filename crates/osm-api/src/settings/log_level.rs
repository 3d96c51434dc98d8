//! `logLevel`: how much the services log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Least severity of the lines that the services log themselves. Lines of libraries do not depend on it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[allow(missing_docs)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn a_level_is_one_of_four() {
        let read = |text| Settings::parse(text).map(|settings| settings.log_level);
        assert_eq!(read("logLevel: debug"), Ok(Some(LogLevel::Debug)));
        assert_eq!(read("logLevel: null"), Ok(None));
        // At this level, libraries could log what a request holds.
        let refused = read("logLevel: trace").unwrap_err().0;
        assert!(refused[0].starts_with("logLevel: expected one of"), "{refused:?}");
    }

    #[test]
    fn the_digest_of_settings_does_not_depend_on_the_level() {
        let digest = |text| Settings::parse(text).unwrap().digest().unwrap();
        assert_eq!(digest("logLevel: debug"), digest(""));
        assert_ne!(digest("pauseImage: a/b:1"), digest(""));
    }
}
