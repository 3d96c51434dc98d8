//! `packages`: packages of the operating system, and where nodes get them from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::{HTTP, HTTPS, Problems, URL, URL_RULE, is_url};
use crate::system_names::{IN_PACKAGES, check_name};

/// Packages of the operating system: tools that a node is better off with, none that it needs to become
/// Ready.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Packages {
    /// Whether nodes install or upgrade packages.
    pub enabled: bool,
    /// Packages to install in addition to those of the profile.
    pub install: Vec<String>,
    /// Sources of systems with apt.
    pub apt: Apt,
    /// Sources of systems with yum or dnf.
    pub yum: Yum,
}

impl Default for Packages {
    fn default() -> Self {
        Self {
            enabled: true,
            install: Vec::new(),
            apt: Apt::default(),
            yum: Yum::default(),
        }
    }
}

/// Sources of systems with apt.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Apt {
    /// Mirror of the archive of the distribution, `http(s)://host[:port][/path]`. The default is that of the
    /// image.
    #[schemars(regex(pattern = URL))]
    pub mirror: Option<String>,
    /// Mirror of the security updates. The default is `mirror`.
    #[schemars(regex(pattern = URL))]
    pub security_mirror: Option<String>,
}

/// Sources of systems with yum or dnf.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Yum {
    /// Repositories that replace those of the image, if there are any.
    pub repositories: Vec<YumRepository>,
}

/// A repository.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct YumRepository {
    /// Name of the repository: letters, digits, `-` and `_`.
    pub name: String,
    /// URL, `http(s)://host[:port][/path]`. It may contain `$releasever` and `$basearch` of yum.
    #[serde(rename = "baseURL")]
    pub base_url: String,
    /// Key that signs the packages: a URL, or `file:///…` on the machine.
    pub gpg_key: String,
}

impl Packages {
    pub(super) fn validate(&self, problems: &mut Problems) {
        for (i, name) in self.install.iter().enumerate() {
            problems.add(format!("packages.install[{i}]"), check_name(name, IN_PACKAGES));
        }
        for (name, url) in [
            ("mirror", &self.apt.mirror),
            ("securityMirror", &self.apt.security_mirror),
        ] {
            let ok = url.as_ref().is_none_or(|url| is_url(url, HTTP));
            problems.check(format!("packages.apt.{name}"), ok, URL_RULE);
        }
        let repositories = &self.yum.repositories;
        for (i, repository) in repositories.iter().enumerate() {
            let path = format!("packages.yum.repositories[{i}]");
            repository.validate(&path, problems);
            let listed = repositories
                .iter()
                .filter(|other| other.name == repository.name)
                .count();
            problems.check(format!("{path}.name"), listed == 1, "is listed more than once");
        }
    }
}

impl YumRepository {
    fn validate(&self, path: &str, problems: &mut Problems) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let ok = !self.name.is_empty() && self.name.chars().all(is_plain);
        problems.check(format!("{path}.name"), ok, "must be letters, digits, - and _");
        // yum replaces its variables; any value stands in for theirs here.
        let url = self
            .base_url
            .replace("$releasever", "9")
            .replace("$basearch", "x86_64");
        problems.check(format!("{path}.baseURL"), is_url(&url, HTTP), URL_RULE);
        let is_file = self.gpg_key.starts_with("file:///")
            && self
                .gpg_key
                .strip_prefix("file://")
                .is_some_and(|path| is_url(&format!("https://host{path}"), HTTPS));
        let ok = is_file || is_url(&self.gpg_key, HTTP);
        let rule = "must be http(s)://host[:port][/path] or file:///path";
        problems.check(format!("{path}.gpgKey"), ok, rule);
    }
}
