//! containerd 1 with a configuration for containerd 2.

use super::{Conflict, Text, statements};

/// What separates a name from its version, in commands, lists of packages and addresses.
const SEPARATORS: &str = "\"'=:-/,@~^<>[](){}";

/// containerd 1 does not know the plugins of a configuration of version 3, and starts without what is in it.
pub(super) fn conflicts(texts: &[Text<'_>]) -> Vec<Conflict> {
    let Some(config) = texts.iter().find(|text| is_of_version_3(&text.text)) else {
        return Vec::new();
    };
    let problem = format!(
        "is installed, but {} is for containerd 2: containerd 1 ignores the registries, the pause image and the cgroup driver in it; \
         install containerd 2",
        config.path
    );
    let mut versions: Vec<(&Text<'_>, Vec<u8>)> =
        texts.iter().map(|text| (text, majors(&text.text))).collect();
    // A profile that can install both decides on the machine.
    if versions
        .iter()
        .any(|(_, majors)| majors.iter().any(|major| *major > 1))
    {
        return Vec::new();
    }
    versions.retain(|(_, majors)| majors.contains(&1));
    let conflicts = versions.into_iter();
    conflicts
        .map(|(text, _)| text.conflict("containerd 1", problem.as_str()))
        .collect()
}

/// Whether containerd leaves cgroups to systemd, where a configuration says so.
pub(super) fn systemd_cgroup<'t, 'a>(texts: &'t [Text<'a>]) -> Option<(&'t Text<'a>, bool)> {
    texts
        .iter()
        .find_map(|text| Some((text, value(&text.text, "SystemdCgroup")? == "true")))
}

fn is_of_version_3(text: &str) -> bool {
    text.contains("io.containerd.") && value(text, "version") == Some("3")
}

/// The value of the first line `key = value`.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let mut lines = text.lines().filter(|line| line.contains(key));
    lines.find_map(|line| {
        line.trim()
            .strip_prefix(key)?
            .trim_start()
            .strip_prefix('=')
            .map(str::trim)
    })
}

/// The major versions of containerd that a text names where it installs it.
fn majors(text: &str) -> Vec<u8> {
    let is_about = |text: &str| {
        ["containerd", "CONTAINERD", "Containerd"]
            .iter()
            .any(|name| text.contains(name))
    };
    if !is_about(text) {
        return Vec::new();
    }
    let text = statements(text).join("\n").to_ascii_lowercase();
    let mut majors = Vec::new();
    for (at, name) in text.match_indices("containerd") {
        let Some(rest) = text.get(at + name.len()..) else {
            continue;
        };
        let rest = ["/releases/download", ".io", "-static", "-cni"]
            .iter()
            .find_map(|part| rest.strip_prefix(part))
            .unwrap_or(rest);
        let in_file_name = rest
            .strip_prefix('_')
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let (variable, rest) = in_file_name.map_or_else(|| word(rest), |rest| ("", rest));
        // Of a variable, or of the field of a list.
        let of_version = ["ver", "release", "tag", "package", "pkg"]
            .iter()
            .any(|part| variable.contains(part));
        if variable.is_empty() || of_version {
            majors.extend(version(rest, &text));
        }
    }
    majors
}

/// The letters, digits and underscores at the start of a text, and the rest.
fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    text.split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or_default()
}

/// The major versions that follow a name. A variable has those that the script gives it.
fn version(rest: &str, script: &str) -> Vec<u8> {
    let trimmed = rest.trim_start_matches(|c| SEPARATORS.contains(c));
    // A blank separates only after another separator.
    let trimmed = match trimmed.len() < rest.len() {
        true => trimmed.trim_start_matches(|c| c == ' ' || SEPARATORS.contains(c)),
        // The preferences of apt.
        false => trimmed
            .trim_start()
            .strip_prefix("pin: version")
            .map_or(trimmed, str::trim_start),
    };
    let Some(variable) = trimmed.strip_prefix('$') else {
        return major(trimmed).into_iter().collect();
    };
    let (name, rest) = word(variable.trim_start_matches('{'));
    let default = rest
        .strip_prefix([':', '-'])
        .and_then(|rest| major(rest.trim_start_matches(['-', '='])));
    let assigned = script.match_indices(name).filter_map(|(at, _)| {
        let before = script.get(..at)?.chars().next_back();
        let is_whole = before.is_none_or(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '{')));
        let value = script.get(at + name.len()..)?.strip_prefix('=')?;
        major(value.trim_start_matches(['"', '\''])).filter(|_| is_whole)
    });
    default
        .into_iter()
        .chain(assigned.filter(|_| !name.is_empty()))
        .collect()
}

/// The major version at the start of a text such as `v1.7.13`, `1.7*` and `1.*`.
fn major(text: &str) -> Option<u8> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (major, rest) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit())?)?;
    let rest = rest.strip_prefix('.').or(rest.starts_with('*').then_some(rest))?;
    rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '*' | 'x' | '$'))
        .then_some(())?;
    // Other numbers are addresses.
    major.parse().ok().filter(|major| (1..=9).contains(major))
}
