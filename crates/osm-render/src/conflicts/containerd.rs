//! Finds containerd 1 with a configuration for containerd 2.

use std::sync::LazyLock;

use regex::Regex;

use super::{Conflict, Text, statements};

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

/// The major versions of containerd that a text names where it installs it: in the name of a package or file, in an address, or in
/// a variable that is named after it.
fn majors(text: &str) -> Vec<u8> {
    static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let suffix = r"(?:/releases/download|\.io|-static|-cni|_?(?:ver|release|tag|package|pkg)[a-z]*)*";
        let separator = r#"(?:\s*pin: version |["'=:/,@~^<>\[\](){}_-]+ ?["']?)"#;
        // Other numbers are addresses.
        Regex::new(&format!(
            "containerd{suffix}{separator}v?([1-9])(?:\\.[0-9x*$]|\\*)"
        ))
        .ok()
    });
    if !["containerd", "CONTAINERD", "Containerd"]
        .iter()
        .any(|name| text.contains(name))
    {
        return Vec::new();
    }
    let text = statements(text).join("\n").to_ascii_lowercase();
    let found = VERSION.iter().flat_map(|version| version.captures_iter(&text));
    found
        .filter_map(|found| found.get(1)?.as_str().parse().ok())
        .collect()
}
