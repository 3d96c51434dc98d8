//! Finds what can't work together in the texts that a profile renders to: flags that the pool's kubelet no longer has, and containerd 1
//! with a configuration for containerd 2.
//!
//! Profiles that were written for older releases have both. A finding is a warning, because a script can decide on the machine what it
//! installs and runs. Everything else that a kubelet does not start with is in its journal on the machine.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use osm_api::config::StageConfig;
use osm_api::content::Content;
use regex::Regex;
use serde_json::Value;

use crate::Stage;
use crate::user_data::unit_files;

/// Flags that profiles have set, and the minor version of Kubernetes 1 that no longer has them: from cmd/kubelet/app/options and
/// pkg/kubelet/config of Kubernetes. A test compares those of the versions that profiles are tested with.
pub const REMOVED_FLAGS: [(&str, u64); 16] = [
    ("allow-privileged", 15),
    ("cni-bin-dir", 24),
    ("cni-conf-dir", 24),
    ("dynamic-config-dir", 24),
    ("image-pull-progress-deadline", 24),
    ("network-plugin", 24),
    ("non-masquerade-cidr", 24),
    ("log-dir", 26),
    ("log-file", 26),
    ("logtostderr", 26),
    ("container-runtime", 27),
    ("azure-container-registry-config", 30),
    ("keep-terminated-pod-volumes", 31),
    ("cloud-config", 34),
    ("register-schedulable", 34),
    ("pod-infra-container-image", 35),
];

/// Two things in the documents of a pool that can't work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub stage: Stage,
    /// The file on the machine, or the module.
    pub path: String,
    /// What is in it, such as a flag.
    pub subject: String,
    /// Why that can't work, and what to do. It repeats no value.
    pub problem: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.path, self.subject, self.problem)
    }
}

/// Where a text is in the documents of a pool, and the text.
struct Text<'a> {
    stage: Stage,
    path: String,
    text: Cow<'a, str>,
}

impl Text<'_> {
    fn conflict(&self, subject: &str, problem: String) -> Conflict {
        Conflict {
            stage: self.stage,
            path: self.path.clone(),
            subject: subject.to_owned(),
            problem,
        }
    }
}

/// All conflicts in the documents of a pool, whose kubelet has the minor version `kubelet`.
pub(crate) fn find(spec: &Content, kubelet: u64) -> Vec<Conflict> {
    let of_stage = |stage: Stage| texts(stage, stage.of_content(spec));
    let texts: Vec<Text<'_>> = Stage::ALL.into_iter().flat_map(of_stage).collect();
    let mut found = of_containerd(&texts);
    found.extend(texts.iter().flat_map(|text| removed_flags(text, kubelet)));
    found
}

/// The flags of a unit, script, command or environment file that the kubelet no longer has.
fn removed_flags(text: &Text<'_>, kubelet: u64) -> Vec<Conflict> {
    if !text.text.contains("--") {
        return Vec::new();
    }
    let names_kubelet = |text: &str| text.contains("kubelet") || text.contains("KUBELET");
    let is_kubelets = names_kubelet(&text.path);
    let mut statements = statements(&text.text);
    // A script that asks `kubelet --help` decides itself.
    if statements.iter().any(|statement| statement.contains("--help")) {
        return Vec::new();
    }
    statements.retain(|statement| is_kubelets || names_kubelet(statement));
    let has = |flag: &str| {
        let written = format!("--{flag}");
        let mut all = statements
            .iter()
            .flat_map(|statement| statement.split(&written).skip(1));
        all.any(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-'))
    };
    let removed = REMOVED_FLAGS.iter().filter(|(_, since)| kubelet >= *since);
    removed
        .filter(|(flag, _)| has(flag))
        .map(|(flag, since)| {
            let problem = format!(
                "is no flag of kubelet 1.{since} and newer, which do not start with it; remove it, or write it only for older ones"
            );
            text.conflict(&format!("--{flag}"), problem)
        })
        .collect()
}

/// containerd 1 does not know the plugins of a configuration of version 3, and starts without what is in it.
fn of_containerd(texts: &[Text<'_>]) -> Vec<Conflict> {
    let is_of_version_3 = |text: &&Text<'_>| {
        let mut lines = text.text.lines();
        text.text.contains("io.containerd.") && lines.any(|line| line.trim() == "version = 3")
    };
    let Some(config) = texts.iter().find(is_of_version_3) else {
        return Vec::new();
    };
    let versions: Vec<_> = texts.iter().map(|text| (text, majors(&text.text))).collect();
    // A profile that can install both decides on the machine.
    let mut all = versions.iter().flat_map(|(_, majors)| majors);
    if all.any(|major| *major > 1) {
        return Vec::new();
    }
    let problem = format!(
        "is installed, but {} is for containerd 2: containerd 1 ignores the registries, the pause image and the cgroup driver in it; \
         install containerd 2",
        config.path
    );
    let old = versions.iter().filter(|(_, majors)| majors.contains(&1));
    old.map(|(text, _)| text.conflict("containerd 1", problem.clone()))
        .collect()
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
    let names = ["containerd", "CONTAINERD", "Containerd"];
    if !names.iter().any(|name| text.contains(name)) {
        return Vec::new();
    }
    let text = statements(text).join("\n").to_ascii_lowercase();
    let found = VERSION.iter().flat_map(|version| version.captures_iter(&text));
    found
        .filter_map(|found| found.get(1)?.as_str().parse().ok())
        .collect()
}

/// Files, units, drop-ins, and commands and packages of modules.
fn texts(stage: Stage, config: &StageConfig) -> Vec<Text<'_>> {
    let files = config.files.iter().filter_map(|file| {
        let inline = file.content.inline.as_ref()?;
        Some((file.path.clone(), Cow::Borrowed(inline.data.as_str())))
    });
    let units = config.units.iter().flat_map(unit_files);
    let units = units.map(|(path, text)| (path, Cow::Borrowed(text)));
    let modules = config.modules.as_ref().and_then(Value::as_object);
    let modules = modules.into_iter().flatten().flat_map(|(module, value)| {
        let path = format!("{}.modules.{module}", stage.field());
        // A package is in a list with its version, and a command with its arguments.
        let separator = if module == "packages" { "=" } else { " " };
        let items = value.as_array().into_iter().flatten();
        items.filter_map(move |item| {
            let text = match item {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                Value::Array(words) => {
                    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                    Cow::Owned(words.join(separator))
                }
                _ => return None,
            };
            Some((path.clone(), text))
        })
    });
    let all = files.chain(units).chain(modules);
    all.map(|(path, text)| Text { stage, path, text }).collect()
}

/// The lines of a shell script, a unit or an environment file, without comments, and with lines joined that end in a backslash.
fn statements(text: &str) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    let mut continued = false;
    // systemd allows comments between continued lines.
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with(['#', ';']))
    {
        let start = line.trim_end().strip_suffix('\\');
        match statements.last_mut().filter(|_| continued) {
            Some(last) => last.extend([" ", start.unwrap_or(line)]),
            None => statements.push(start.unwrap_or(line).to_owned()),
        }
        continued = start.is_some();
    }
    statements
}

#[cfg(test)]
mod tests;
