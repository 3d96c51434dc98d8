//! Knows the downloads of nodes: where each project publishes the files of a release, and which of them a
//! template asks for.
//!
//! Templates get URLs from here only, so that the list of downloads is complete.

use std::collections::BTreeSet;

use osm_api::settings::{ARCHITECTURES, Checksums, Downloads};
use parking_lot::Mutex;
use semver::Version;
use strum::VariantArray;

use crate::kubelet::TESTED_MINORS;

/// A program, or an archive of programs, that a project releases for each architecture. They are in the order
/// of the settings.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Artefact {
    Kubelet,
    Containerd,
    Runc,
    Cni,
    Crictl,
}

impl Artefact {
    /// Its name in templates, and below `downloads` in the settings.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Paths below the base URL: of the artefact, and of the file that holds its checksum.
    fn paths(self, version: &Version, architecture: &str) -> (String, String) {
        let folder = format!("v{version}");
        let beside =
            |file: String, suffix: &str| (format!("{folder}/{file}"), format!("{folder}/{file}{suffix}"));
        match self {
            Self::Kubelet => beside(format!("bin/linux/{architecture}/kubelet"), ".sha256"),
            Self::Containerd => beside(
                format!("containerd-static-{version}-linux-{architecture}.tar.gz"),
                ".sha256sum",
            ),
            // One file with the checksums of all architectures.
            Self::Runc => (
                format!("{folder}/runc.{architecture}"),
                format!("{folder}/runc.sha256sum"),
            ),
            Self::Cni => beside(
                format!("cni-plugins-linux-{architecture}-v{version}.tgz"),
                ".sha256",
            ),
            Self::Crictl => beside(
                format!("crictl-v{version}-linux-{architecture}.tar.gz"),
                ".sha256",
            ),
        }
    }
}

/// The settings for an artefact.
pub(crate) struct Source<'a> {
    pub(crate) base_url: &'a str,
    pub(crate) version: Option<String>,
    sha256: Option<&'a Checksums>,
}

impl<'a> Source<'a> {
    pub(crate) fn of(artefact: Artefact, settings: &'a Downloads, kubelet: &Version) -> Self {
        let released = |url: &'a str, version: &Option<String>, sums| (url, version.clone(), Some(sums));
        let (base_url, version, sha256) = match artefact {
            Artefact::Kubelet => {
                let version = kubelet.to_string();
                let sums = settings.kubelet.sha256.get(&version);
                (settings.kubelet.base_url.as_str(), Some(version), sums)
            }
            Artefact::Containerd => {
                let containerd = &settings.containerd;
                released(&containerd.base_url, &containerd.version, &containerd.sha256)
            }
            Artefact::Runc => released(
                &settings.runc.base_url,
                &settings.runc.version,
                &settings.runc.sha256,
            ),
            Artefact::Cni => released(
                &settings.cni.base_url,
                &settings.cni.version,
                &settings.cni.sha256,
            ),
            Artefact::Crictl => {
                let crictl = &settings.crictl;
                let version = crictl.version.clone().unwrap_or_else(|| default_crictl(kubelet));
                let sums = crictl.sha256.get(&version);
                (
                    crictl.base_url.as_str(),
                    Some(version).filter(|_| crictl.enabled),
                    sums,
                )
            }
        };
        // Paths are appended with their `/`.
        Self {
            base_url: base_url.trim_end_matches('/'),
            version,
            sha256,
        }
    }

    /// The checksum that is pinned for an architecture, in lower case as `sha256sum` writes it.
    pub(crate) fn sha256(&self, architecture: &str) -> Option<String> {
        self.sha256?.get(architecture).map(|sum| sum.to_ascii_lowercase())
    }
}

/// The first release of crictl for the minor version of a kubelet, which the project publishes before or with
/// that minor. A kubelet that this version does not know gets the nearest one.
fn default_crictl(kubelet: &Version) -> String {
    let (oldest, newest) = TESTED_MINORS;
    format!("1.{}.0", kubelet.minor.clamp(oldest, newest))
}

/// A file that nodes download. Ordered by artefact, version and architecture.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Download {
    pub artefact: Artefact,
    pub version: Version,
    /// `amd64` or `arm64`.
    pub architecture: &'static str,
    /// Base URL of the settings, without `/` at its end.
    pub base_url: String,
    /// Path below the base URL.
    pub path: String,
    /// Path, below the base URL, of the file that holds its checksum, perhaps with those of others.
    pub checksum_path: String,
    /// The checksum that the settings pin, 64 hex characters in lower case.
    pub sha256: Option<String>,
}

impl Download {
    /// Where nodes fetch it.
    pub fn url(&self) -> String {
        format!("{}/{}", self.base_url, self.path)
    }

    /// Where nodes fetch its checksum, unless the settings pin it.
    pub fn checksum_url(&self) -> String {
        format!("{}/{}", self.base_url, self.checksum_path)
    }
}

/// What one rendering can ask for, and what it has asked for.
pub(crate) struct Catalogue<'a> {
    settings: &'a Downloads,
    kubelet: &'a Version,
    asked: Mutex<BTreeSet<Download>>,
}

impl<'a> Catalogue<'a> {
    pub(crate) fn new(settings: &'a Downloads, kubelet: &'a Version) -> Self {
        Self {
            settings,
            kubelet,
            asked: Mutex::default(),
        }
    }

    /// The URLs of a file and of its checksum, and notes that it was asked for. `architecture` is one, or a
    /// shell variable such as `$arch`, which the URL then contains and which means all of them.
    ///
    /// Settings take no URL, and no version, that holds a quote, backslash, backtick or `$`: inside the
    /// double quotes of a shell the variable is all that is expanded.
    pub(crate) fn urls(&self, name: &str, architecture: Option<&str>) -> Result<[String; 2], String> {
        let artefact: Artefact = name.parse().map_err(|_| {
            let known: Vec<&str> = Artefact::VARIANTS.iter().map(|known| known.name()).collect();
            format!("there is no such download; it can be {}", known.join(", "))
        })?;
        let written = architecture.unwrap_or_default();
        let meant: Vec<&'static str> = ARCHITECTURES
            .into_iter()
            .filter(|known| *known == written || is_variable(written))
            .collect();
        if meant.is_empty() {
            let known = ARCHITECTURES.map(|known| format!("arch={known:?}")).join(" or ");
            return Err(format!(
                "write {known}, or arch=\"$arch\" with the name of a shell variable that holds one of them"
            ));
        }
        let source = Source::of(artefact, self.settings, self.kubelet);
        let version = source
            .version
            .as_deref()
            .and_then(|version| Version::parse(version).ok());
        let version = version.ok_or_else(|| {
            let field = format!("downloads.{name}.version");
            format!("downloads.{name}.enabled of the settings is false; enable it there, or test {{{{#if {field}}}}} first")
        })?;

        let mut asked = self.asked.lock();
        for architecture in meant {
            let (path, checksum_path) = artefact.paths(&version, architecture);
            asked.insert(Download {
                artefact,
                version: version.clone(),
                architecture,
                base_url: source.base_url.to_owned(),
                path,
                checksum_path,
                sha256: source.sha256(architecture),
            });
        }
        let (path, checksum_path) = artefact.paths(&version, written);
        Ok([path, checksum_path].map(|path| format!("{}/{path}", source.base_url)))
    }

    /// Everything that was asked for.
    pub(crate) fn asked(self) -> Vec<Download> {
        self.asked.into_inner().into_iter().collect()
    }
}

/// `$` and a name, to its end.
fn is_variable(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use osm_api::Settings;

    use super::*;

    static KUBELET: Version = Version::new(1, 34, 4);

    fn settings() -> Downloads {
        let runc = "{version: 1.3.6, baseURL: 'http://files.example:8080/runc//'}";
        let text = format!(
            "downloads: {{containerd: {{version: 2.2.9}}, runc: {runc}, crictl: {{version: 1.34.0}}}}"
        );
        Settings::parse(&text).unwrap().downloads
    }

    /// As published: name, base URL, what follows it, and what follows that for the checksum.
    const PUBLISHED: &str = "
        kubelet https://dl.k8s.io /v1.34.4/bin/linux/ARCH/kubelet .sha256
        containerd https://github.com/containerd/containerd/releases/download /v2.2.9/containerd-static-2.2.9-linux-ARCH.tar.gz .sha256sum
        runc http://files.example:8080/runc /v1.3.6/runc.ARCH /v1.3.6/runc.sha256sum
        cni https://github.com/containernetworking/plugins/releases/download /v1.9.1/cni-plugins-linux-ARCH-v1.9.1.tgz .sha256
        crictl https://github.com/kubernetes-sigs/cri-tools/releases/download /v1.34.0/crictl-v1.34.0-linux-ARCH.tar.gz .sha256
    ";

    #[test]
    fn urls_are_where_projects_publish() {
        let settings = settings();
        for row in PUBLISHED.trim().lines() {
            let [name, base, path, checksum] = row.split_whitespace().collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            let artefact = |arch: &str| format!("{base}{path}").replace("ARCH", arch);
            // One file has the checksums of all architectures.
            let checksum = |arch: &str| {
                if checksum.starts_with('/') {
                    format!("{base}{checksum}")
                } else {
                    artefact(arch) + checksum
                }
            };
            for (written, meant) in [("arm64", &["arm64"][..]), ("$arch", &["amd64", "arm64"])] {
                let catalogue = Catalogue::new(&settings, &KUBELET);
                let urls = catalogue.urls(name, Some(written)).unwrap();
                assert_eq!(urls, [artefact(written), checksum(written)]);
                let asked = catalogue.asked().into_iter();
                let asked =
                    asked.map(|download| (download.artefact.name(), download.url(), download.checksum_url()));
                let expected = meant.iter().map(|arch| (name, artefact(arch), checksum(arch)));
                assert!(asked.eq(expected), "{name} {written}");
            }
        }
    }

    #[test]
    fn crictl_has_the_minor_of_the_kubelet_and_the_checksums_of_its_version() {
        let sum = "d".repeat(64);
        let text = format!("downloads: {{crictl: {{sha256: {{1.35.0: {{amd64: {sum}}}}}}}}}");
        let settings = Settings::parse(&text).unwrap().downloads;
        for (kubelet, crictl, pinned) in [
            ((1, 34, 4), "1.34.0", false),
            ((1, 35, 2), "1.35.0", true),
            ((1, 20, 0), "1.33.0", false),
            ((1, 99, 0), "1.37.0", false),
        ] {
            let kubelet = Version::new(kubelet.0, kubelet.1, kubelet.2);
            let source = Source::of(Artefact::Crictl, &settings, &kubelet);
            assert_eq!(source.version.as_deref(), Some(crictl));
            assert_eq!(source.sha256("amd64").is_some(), pinned, "{kubelet}");
        }
        let off = Settings::parse("downloads: {crictl: {enabled: false, version: 1.34.0}}").unwrap();
        let source = Source::of(Artefact::Crictl, &off.downloads, &KUBELET);
        assert_eq!(source.version, None);
    }

    #[test]
    fn mistakes_say_what_to_do_and_list_nothing() {
        let settings = Settings::parse("downloads: {crictl: {enabled: false}}").unwrap();
        let catalogue = Catalogue::new(&settings.downloads, &KUBELET);
        let disabled = "downloads.crictl.enabled of the settings is false; enable it there, or test {{#if downloads.crictl.version}}";
        let missing = "write arch=\"amd64\" or arch=\"arm64\", or arch=\"$arch\"";
        let known = "it can be kubelet, containerd, runc, cni, crictl";
        let wrong = ["x86_64", "$", "$1", "$(arch)", "$arch\""];
        let wrong = wrong.map(|written| ("kubelet", Some(written), missing));
        for (name, architecture, text) in wrong.into_iter().chain([
            ("kubectl", Some("$arch"), known),
            ("crictl", Some("$arch"), disabled),
            ("kubelet", None, missing),
        ]) {
            let error = catalogue.urls(name, architecture).unwrap_err();
            assert!(error.contains(text), "{name} {architecture:?}: {error}");
        }
        assert_eq!(catalogue.asked(), []);
    }
}
