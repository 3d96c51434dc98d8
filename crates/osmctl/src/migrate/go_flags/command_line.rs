//! Reads a command line as the package `flag` of Go does.

/// A flag without a value of its own.
const SWITCHES: [&str; 8] = [
    "device-ownership-from-security-context",
    "disable-default-osps",
    "external-cloud-provider",
    "leader-elect",
    "log-debug",
    "logtostderr",
    "alsologtostderr",
    "help",
];

/// A flag with its value, if it has one.
pub(super) type Flag<'w> = (&'w str, Option<&'w str>);

/// The flags of a command line, and whether something else follows them.
pub(super) fn parse(words: &[String]) -> (Vec<Flag<'_>>, bool) {
    let (mut flags, mut words) = (Vec::new(), words.iter().map(String::as_str).peekable());
    // The program.
    words.next_if(|word| !word.starts_with('-'));
    while let Some(word) = words.next() {
        if word == "--" {
            return (flags, words.next().is_some());
        }
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return (flags, true);
        };
        flags.push(match flag.split_once('=') {
            Some((name, text)) => (name, Some(text)),
            None if SWITCHES.contains(&flag) => (flag, None),
            None => (flag, words.next()),
        });
    }
    (flags, false)
}

/// The parts of a comma-separated list.
pub(super) fn listed(text: &str) -> Vec<&str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

/// A URL, which has this scheme if it names none.
pub(super) fn with_scheme(scheme: &str, text: &str) -> String {
    let text = text.trim();
    // What is before :// can also be a password with these characters in it.
    let is_scheme = |(scheme, _): &(&str, &str)| scheme.chars().all(|c| c.is_ascii_alphanumeric());
    match text.split_once("://").filter(is_scheme) {
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
        None => format!("{scheme}://{text}"),
    }
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
