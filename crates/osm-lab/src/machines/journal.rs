//! Reads the journal of a machine.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::run;

/// A line of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Seconds since 1970.
    pub time: f64,
    /// The unit that wrote it, or that systemd writes about.
    pub unit: String,
    /// The program's name.
    pub program: String,
    /// From 0, an emergency, over 3, an error, to 7, for debugging.
    pub priority: u8,
    /// The text.
    pub message: String,
}

/// The lines of a journal that [`raw`] gives.
pub(super) fn entries(raw: &str) -> Result<Vec<Entry>> {
    raw.lines().map(entry).collect()
}

/// A journal for people: time in seconds since 1970, program and message.
pub(super) fn readable(entries: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let Entry {
            time,
            unit,
            program,
            message,
            ..
        } = entry;
        format!("{time:.3} {unit} {program}: {message}\n")
    };
    entries.iter().map(line).collect()
}

/// The journal in a folder (`…/var/log/journal`) of a machine that may be running or not, of all its boots: a JSON object a line, with all
/// fields.
///
/// # Errors
/// When `journalctl` can't read it.
pub(super) fn raw(folder: &Path) -> Result<String> {
    let folder = folder.display().to_string();
    run(
        "journalctl",
        &[
            "--directory",
            &folder,
            "--output=json",
            "--all",
            "--quiet",
            "--no-pager",
        ],
    )
}

fn entry(line: &str) -> Result<Entry> {
    let fields: Value = serde_json::from_str(line).context("a line of journalctl")?;
    let field = |name: &str| text(fields.get(name));
    let microseconds: f64 = field("__REALTIME_TIMESTAMP")
        .parse()
        .context("time of a journal's line")?;
    // What systemd says of a unit names it in UNIT.
    let unit = [field("UNIT"), field("_SYSTEMD_UNIT")]
        .into_iter()
        .find(|unit| !unit.is_empty());
    Ok(Entry {
        time: microseconds / 1e6,
        unit: unit.unwrap_or_default(),
        program: field("SYSLOG_IDENTIFIER"),
        priority: field("PRIORITY").parse().unwrap_or(6),
        message: field("MESSAGE"),
    })
}

/// Bytes that are no text come as a list of numbers.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(bytes)) => {
            let bytes: Vec<u8> = bytes
                .iter()
                .filter_map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_units_about_units_and_of_bytes() {
        let line = r#"{"__REALTIME_TIMESTAMP":"1700000000500000","_SYSTEMD_UNIT":"a.service","SYSLOG_IDENTIFIER":"a","PRIORITY":"3","MESSAGE":"hi"}"#;
        let expected = Entry {
            time: 1_700_000_000.5,
            unit: "a.service".into(),
            program: "a".into(),
            priority: 3,
            message: "hi".into(),
        };
        assert_eq!(entry(line).unwrap(), expected);
        let line = r#"{"__REALTIME_TIMESTAMP":"1","_SYSTEMD_UNIT":"init.scope","UNIT":"b.service","MESSAGE":[104,105]}"#;
        let about = entry(line).unwrap();
        assert_eq!((about.unit.as_str(), about.message.as_str()), ("b.service", "hi"));
        assert!(entry("{}").is_err());
    }
}
