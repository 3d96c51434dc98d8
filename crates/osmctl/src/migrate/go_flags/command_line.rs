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
