//! Warns if a profile installs containerd 1 and writes a configuration for containerd 2, as profiles for
//! older releases can do.
//!
//! It is a warning, because a script can decide on the machine what it installs.

use std::sync::LazyLock;

use osm_api::config::StageConfig;
use osm_api::content::Content;
use osm_user_data::stage::Stage;
use osm_user_data::units::unit_files;
use regex::Regex;

/// A warning for each file, unit or module that installs containerd 1, which does not know the plugins of a
/// configuration of version 3 and starts without what is in it.
pub(crate) fn warnings(spec: &Content) -> Vec<String> {
    let of_stage = |stage: Stage| texts(stage, stage.of_content(spec));
    let texts: Vec<(String, String)> = Stage::ALL.into_iter().flat_map(of_stage).collect();
    let is_of_version_3 = |(_, text): &&(String, String)| {
        text.contains("io.containerd.") && text.lines().any(|line| line.trim() == "version = 3")
    };
    let Some((config, _)) = texts.iter().find(is_of_version_3) else {
        return Vec::new();
    };
    let versions: Vec<_> = texts.iter().map(|(path, text)| (path, majors(text))).collect();
    // A profile that can install both decides on the machine.
    if versions
        .iter()
        .flat_map(|(_, majors)| majors)
        .any(|major| *major > 1)
    {
        return Vec::new();
    }
    let old = versions.iter().filter(|(_, majors)| majors.contains(&1));
    let warning = |(path, _): &(&String, _)| {
        format!(
            "{path}: containerd 1 is installed, but {config} is for containerd 2: containerd 1 ignores the registries, the pause image \
             and the cgroup driver in it; install containerd 2"
        )
    };
    old.map(warning).collect()
}

/// The major versions of containerd that a text names where it installs it: in the name of a package or file,
/// in an address, or in a variable that is named after it.
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
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.collect::<Vec<_>>().join("\n").to_ascii_lowercase();
    let found = VERSION.iter().flat_map(|version| version.captures_iter(&text));
    found
        .filter_map(|found| found.get(1)?.as_str().parse().ok())
        .collect()
}

/// Paths and texts of files, units and drop-ins, and names of modules and what they contain.
fn texts(stage: Stage, config: &StageConfig) -> Vec<(String, String)> {
    let files = config.files.iter();
    let files = files.map(|file| (file.path.clone(), file.content.text().to_owned()));
    let units = config.units.iter().flat_map(unit_files);
    let units = units.map(|(path, text)| (path, text.to_owned()));
    let modules = config.modules.as_ref().and_then(|modules| modules.as_object());
    let modules = modules.into_iter().flatten().map(|(module, value)| {
        let path = format!("{}.modules.{module}", stage.field());
        (path, value.to_string())
    });
    files.chain(units).chain(modules).collect()
}

#[cfg(test)]
mod tests {
    use osm_api::profile::File;
    use serde_json::json;

    use super::*;

    const CONFIG: &str = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n";

    /// Whether there is a warning about a script, beside this configuration.
    fn is_found(script: &str, config: &str) -> bool {
        let mut spec = Content::default();
        let files = [
            ("/opt/bin/setup", script),
            ("/etc/containerd/config.toml", config),
        ];
        let files = files.map(|(path, text)| File::of_text(path, 644, text.to_owned()));
        spec.provisioning_config.files = files.into();
        let found = warnings(&spec);
        assert!(found.len() < 2, "{found:#?}");
        found
            .iter()
            .any(|text| text.starts_with("/opt/bin/setup: containerd 1 is installed"))
    }

    #[test]
    fn containerd_1_is_found_in_every_form_of_its_installation() {
        for text in [
            "apt-get install -y containerd.io=1.7*\napt-mark hold containerd.io\n",
            "apt-get install -y \\\n  curl \\\n  \"containerd.io=1.6.33-1\"\n",
            "yum install -y containerd.io-1.6* yum-plugin-versionlock\n",
            "Package: containerd.io\nPin: version 1.7.*\nPin-Priority: 999\n",
            "CONTAINERD_VERSION=1.7.13\ncurl -LO https://x/v${CONTAINERD_VERSION}/containerd-${CONTAINERD_VERSION}-linux-amd64.tar.gz\n",
            "CONTAINERD_VERSION=\"${CONTAINERD_VERSION:-v1.7.13}\"\n",
            "containerdVersion: \"1.6.8\"\n",
            "curl -LO https://github.com/containerd/containerd/releases/download/v1.7.13/containerd-1.7.13-linux-amd64.tar.gz\n",
            "curl -LO https://x/cri-containerd-cni-1.6.8-linux-amd64.tar.gz\n",
            "dpkg -i containerd.io_1.6.9-1_amd64.deb\n",
            "{\"containerd\": \"1.7.0\"}\n",
        ] {
            assert!(is_found(text, CONFIG), "{text}");
            let version_2 = CONFIG.replace("version = 3", "version = 2");
            assert!(!is_found(text, &version_2), "{text}");
        }
        let mut spec = Content::default();
        spec.bootstrap_config.modules = Some(json!({"packages": ["curl", ["containerd.io", "1.7.24-1"]]}));
        let config = File::of_text("/etc/containerd/config.toml", 644, CONFIG.to_owned());
        spec.provisioning_config.files = vec![config];
        let found = warnings(&spec);
        let [warning] = &found[..] else {
            panic!("{found:#?}")
        };
        assert!(warning.starts_with("bootstrapConfig.modules.packages: "));
    }

    #[test]
    fn what_is_not_containerd_1_is_left_alone() {
        for text in [
            "apt-get install -y containerd.io=2.2*\n",
            "apt-get install -y containerd.io runc=1.3.6\n",
            "# containerd.io=1.7*\napt-get install -y containerd.io\n",
            "CNI=1.9.1\ncurl https://x/v$CNI/cni.tgz\ncontainerd config default\n",
            "curl -LO https://github.com/containerd/nerdctl/releases/download/v1.7.6/nerdctl-1.7.6.tar.gz\n",
            "case $ID in a) v=containerd.io=1.7* ;; *) v=containerd.io=2.2* ;; esac\n",
            "containerd-shim-runc-v2\nio.containerd.grpc.v1.cri\ncontainerd_address=10.1.2.3\n",
        ] {
            assert!(!is_found(text, CONFIG), "{text}");
        }
    }
}
