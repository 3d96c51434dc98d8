//! Configures where machines get packages from, as cloud-init's modules `apt` and `yum_repos`.
//!
//! They are part of the bootstrap document, so that every later installation of a package uses them.

use osm_api::config::StageConfig;
use osm_api::pool::Pool;
use osm_api::settings::Packages;
use osm_user_data::late_bound::in_single_quotes;
use osm_user_data::systems::{self, Family};
use serde_json::{Map, Value, json};

use crate::additions::{self, modules};

/// Names of our repositories start with this, so that they differ from those of the image.
const PREFIX: &str = "osm-";

/// Turns off the repositories of the image. It runs once, because at the next boot it would turn off ours.
const TURN_OTHERS_OFF: &str = "sed -i 's/^enabled *= *1/enabled=0/' /etc/yum.repos.d/*.repo";

/// Redirects package sources to those of the settings. Returns a warning if the profile's own modules prevent
/// it.
pub(crate) fn configure(bootstrap: &mut StageConfig, pool: &Pool, packages: &Packages) -> Option<String> {
    if !packages.enabled {
        return None;
    }
    let (module, content, field) = match systems::system(pool.operating_system).family {
        Family::Debian => ("apt", apt(packages)?, "packages.apt"),
        Family::RedHat => ("yum_repos", yum(packages)?, "packages.yum"),
        Family::Flatcar => return None,
    };
    let modules = modules(bootstrap)?;
    if modules.contains_key(module) {
        return Some(format!(
            "{field} of the settings has no effect, because the profile sets bootstrapConfig.modules.{module}"
        ));
    }
    modules.insert(module.to_owned(), content);
    if module == "yum_repos" {
        let command = json!([
            "cloud-init-per",
            "once",
            "osm-repositories",
            "sh",
            "-c",
            TURN_OTHERS_OFF
        ]);
        additions::set(modules, "bootcmd", |own| [vec![command], own].concat());
    }
    None
}

/// Upgrades all packages if the pool asks for it. The document does it if its `osm-setup` does not, which
/// knows the proxy, the mirrors and the certificates by then. Returns a warning if the settings prevent it.
pub(crate) fn upgrade_on_boot(stage: &mut StageConfig, pool: &Pool, packages: &Packages) -> Option<String> {
    if !pool.os.dist_upgrade_on_boot {
        return None;
    }
    if !packages.enabled {
        return Some(
            "distUpgradeOnBoot has no effect, because packages.enabled of the settings is false".to_owned(),
        );
    }
    if has_file_with(stage, &["upgrade_packages"]) {
        return None;
    }
    let modules = modules(stage)?;
    modules.insert("package_upgrade".to_owned(), json!(true));
    modules.insert("package_reboot_if_required".to_owned(), json!(true));
    None
}

/// Installs the packages that the profile lists, and those of the settings if `osm-extras` does not. Returns
/// warnings if the settings prevent it.
pub(crate) fn install(stage: &mut StageConfig, of_profile: &[String], packages: &Packages) -> Vec<String> {
    let quoted: Vec<String> = packages
        .install
        .iter()
        .map(|name| in_single_quotes(name))
        .collect();
    let mut words: Vec<&str> = quoted.iter().map(String::as_str).collect();
    words.push("add_packages");
    let of_settings = if has_file_with(stage, &words) {
        &[]
    } else {
        packages.install.as_slice()
    };
    let mut warnings = Vec::new();
    for (owner, names) in [
        ("the packages of the profile", of_profile),
        ("the packages in packages.install of the settings", of_settings),
    ] {
        if names.is_empty() {
            continue;
        }
        let not_installed = |why: &str| format!("{owner} are not installed, because {why}");
        if !packages.enabled {
            warnings.push(not_installed("packages.enabled of the settings is false"));
            continue;
        }
        let listed = modules(stage).map(|modules| modules.entry("packages").or_insert_with(|| json!([])));
        match listed.and_then(Value::as_array_mut) {
            Some(listed) => listed.extend(names.iter().map(|name| json!(name))),
            None => warnings.push(not_installed(
                "the module packages of the profile is not a list; correct it",
            )),
        }
    }
    warnings
}

/// Whether a file contains all these words.
fn has_file_with(stage: &StageConfig, words: &[&str]) -> bool {
    let mut texts = stage.files.iter().map(|file| file.content.text());
    texts.any(|text| words.iter().all(|word| text.contains(word)))
}

fn apt(packages: &Packages) -> Option<Value> {
    let mirror = packages.apt.mirror.as_ref();
    let security = packages.apt.security_mirror.as_ref().or(mirror);
    let of = |uri: &String| json!([{"arches": ["default"], "uri": uri}]);
    let mut content = Map::new();
    content.extend(mirror.map(|uri| ("primary".to_owned(), of(uri))));
    content.extend(security.map(|uri| ("security".to_owned(), of(uri))));
    (!content.is_empty()).then_some(Value::Object(content))
}

fn yum(packages: &Packages) -> Option<Value> {
    let repositories = &packages.yum.repositories;
    let of = |repository: &osm_api::settings::YumRepository| {
        let content = json!({
            "name": repository.name, "baseurl": repository.base_url, "enabled": true,
            "gpgcheck": true, "gpgkey": repository.gpg_key,
        });
        (format!("{PREFIX}{}", repository.name), content)
    };
    (!repositories.is_empty()).then(|| repositories.iter().map(of).collect::<Map<_, _>>().into())
}

#[cfg(test)]
mod tests {
    use osm_api::settings::Settings;

    use super::*;

    const SOURCES: &str = "packages:\n  apt: {mirror: 'https://m.example/ubuntu'}\n  yum:\n    repositories:\n    \
        - {name: base, baseURL: 'https://m.example/$releasever/$basearch', gpgKey: 'file:///etc/key'}\n";

    fn configured(os: &str, settings: &str, own: Value) -> (Value, Option<String>) {
        let spec = serde_json::from_value(json!({
            "osName": os, "osVersion": "1", "version": "v1.0.0", "supportedCloudProviders": [{"name": "aws"}],
        }))
        .unwrap();
        let (_, mut pool) = crate::sample_pools(&spec).swap_remove(0);
        pool.os.dist_upgrade_on_boot = true;
        let packages = Settings::parse(settings).unwrap().packages;
        let mut config = StageConfig {
            modules: Some(own),
            ..StageConfig::default()
        };
        let warning = configure(&mut config, &pool, &packages);
        let of_upgrade = upgrade_on_boot(&mut config, &pool, &packages);
        (config.modules.unwrap(), warning.or(of_upgrade))
    }

    #[test]
    fn sources_are_redirected_in_the_systems_own_way() {
        let uri = json!([{"arches": ["default"], "uri": "https://m.example/ubuntu"}]);
        let upgrade = json!({"package_upgrade": true, "package_reboot_if_required": true});
        let mut expected = upgrade.clone();
        expected["apt"] = json!({"primary": uri, "security": uri});
        assert_eq!(configured("ubuntu", SOURCES, json!({})), (expected, None));
        assert_eq!(configured("ubuntu", "", json!({})), (upgrade, None));
        let own = json!({"bootcmd": ["own"], "runcmd": ["x"]});
        let (modules, _) = configured("rockylinux", SOURCES, own);
        let repository = &modules["yum_repos"]["osm-base"];
        assert_eq!(repository["baseurl"], "https://m.example/$releasever/$basearch");
        assert_eq!(modules["bootcmd"][0][0], "cloud-init-per");
        assert_eq!(modules["bootcmd"][1], "own");
    }

    #[test]
    fn what_is_switched_off_or_the_profiles_own_is_left_alone_with_a_warning() {
        let off = format!("{SOURCES}  enabled: false\n");
        let (modules, warning) = configured("ubuntu", &off, json!({}));
        assert_eq!(modules, json!({}));
        assert!(warning.unwrap().contains("distUpgradeOnBoot has no effect"));
        let (modules, warning) = configured("ubuntu", SOURCES, json!({"apt": {"conf": "x"}}));
        assert_eq!(modules["apt"], json!({"conf": "x"}));
        assert!(warning.unwrap().contains("packages.apt"));
    }
}
