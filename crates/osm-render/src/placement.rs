//! Which of the two documents contains what OSM adds to a profile, and which stage of cloud-init runs the modules of it.
//!
//! `osm-bootstrap` of the library applies all modules of the second document. Profiles of the Go implementation apply that document by
//! `cloud-init init`, which runs only the modules of this stage, and some never fetch it. So what OSM adds to such a profile is in the
//! first document, which runs through all stages.

use osm_api::config::StageConfig;
use osm_api::profile::{TemplateEngine, Unit};
use serde_json::Value;

use crate::Stage;
use crate::user_data::Reader;

/// What OSM adds to the documents of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addition {
    /// `ntp`, or a file and commands.
    TimeServers,
    /// `apt`, or `yum_repos` and `bootcmd`.
    PackageSources,
    /// `prefer_fqdn_over_hostname`.
    HostNames,
    Subscription,
    Packages,
    /// `package_upgrade` and `package_reboot_if_required`.
    Upgrade,
    /// Files with kernel parameters and modules, and a command or a unit that applies them.
    Kernel,
}

/// The documents that contain an addition.
pub(crate) fn documents(addition: Addition, engine: TemplateEngine, reader: Reader) -> &'static [Stage] {
    match (addition, engine, reader) {
        // The first request to the API server needs the time, and every later installation of a package its source.
        (Addition::TimeServers | Addition::PackageSources | Addition::HostNames, _, _) => &[Stage::Bootstrap],
        // As the Go implementation writes them.
        (Addition::Subscription | Addition::Upgrade, TemplateEngine::GoTemplate, _) => &Stage::ALL,
        // Ignition applies all of the second document.
        (_, TemplateEngine::GoTemplate, Reader::CloudInit | Reader::CoreosCloudinit) => &[Stage::Bootstrap],
        _ => &[Stage::Provisioning],
    }
}

/// A stage of cloud-init, by the name of its list in `/etc/cloud/cloud.cfg`: `cloud_init_modules` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloudInitStage {
    Init,
    Config,
    Final,
}

/// The stage that runs the module of a key; `None` where distributions and versions differ, or the key is not known.
pub(crate) fn stage_of(key: &str) -> Option<CloudInitStage> {
    match key {
        "bootcmd"
        | "ca_certs"
        | "fqdn"
        | "groups"
        | "growpart"
        | "hostname"
        | "manage_etc_hosts"
        | "prefer_fqdn_over_hostname"
        | "preserve_hostname"
        | "random_seed"
        | "resize_rootfs"
        | "ssh_authorized_keys"
        | "user"
        | "users"
        | "write_files" => Some(CloudInitStage::Init),
        // The scripts of `runcmd` are run by the last stage.
        "apt" | "keyboard" | "locale" | "ntp" | "rh_subscription" | "runcmd" | "snap" | "spacewalk"
        | "timezone" | "ubuntu_pro" | "yum_repos" => Some(CloudInitStage::Config),
        "ansible"
        | "chef"
        | "landscape"
        | "package_reboot_if_required"
        | "package_update"
        | "package_upgrade"
        | "packages"
        | "phone_home"
        | "power_state"
        | "puppet"
        | "salt_minion" => Some(CloudInitStage::Final),
        _ => None,
    }
}

/// A warning for what is in the second document of a profile in vain, because the first one applies it by `cloud-init init`.
pub(crate) fn not_run(bootstrap: &StageConfig, provisioning: &StageConfig) -> Option<String> {
    if !applies_by_init_alone(bootstrap) {
        return None;
    }
    let modules = provisioning
        .modules
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    // What is in both documents is run from the first one.
    let is_in_both = |key: &str, value: &Value| {
        bootstrap.modules.as_ref().and_then(|modules| modules.get(key)) == Some(value)
    };
    let modules = modules.filter(|(key, value)| {
        matches!(
            stage_of(key),
            Some(CloudInitStage::Config | CloudInitStage::Final)
        ) && !is_in_both(key, value)
    });
    let mut fields: Vec<String> = modules.map(|(key, _)| format!("modules.{key}")).collect();
    fields.sort();
    let is_run = |unit: &Unit| unit.enable == Some(true) || unit.mask == Some(true);
    if provisioning.units.iter().any(is_run) {
        fields.push("enable and mask of units".to_owned());
    }
    let fields = fields.join(", ");
    (!fields.is_empty()).then(|| {
        format!(
            "the profile applies provisioningConfig by `cloud-init init`, in which these have no effect: {fields}; move them to \
             bootstrapConfig, or do the same in a script"
        )
    })
}

/// Whether the first document runs `cloud-init init`, and neither the other stages nor a reboot that would run them.
fn applies_by_init_alone(bootstrap: &StageConfig) -> bool {
    let files = bootstrap
        .files
        .iter()
        .filter_map(|file| file.content.inline.as_ref());
    let texts = files.map(|inline| inline.data.as_str());
    let mut lines = texts
        .flat_map(str::lines)
        .filter(|line| line.contains("cloud-init"));
    let word = |line: &str, word: &str| line.split_whitespace().any(|other| other == word);
    let mut inits = false;
    let others = lines.any(|line| {
        inits |= word(line, "init");
        word(line, "modules") || word(line, "single") || line.contains("reboot")
    });
    inits && !others
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use osm_api::profile::OperatingSystemProfileSpec;
    use osm_api::settings::Settings;
    use serde_json::json;

    use super::*;
    use crate::{compile, resolve, sample_pools, stand_in_cluster};

    const SETTINGS: &str = "kubelet: {hostnameOverride: false}\npackages:\n  install: [chrony]\n  apt: {mirror: 'https://m.example/u'}\n  yum:\n    \
        repositories:\n    - {name: base, baseURL: 'https://m.example/$releasever', gpgKey: 'file:///etc/key'}\n\
        system: {sysctls: {vm.max_map_count: 300000}, kernelModules: [ip_vs], ntpServers: [time.example]}\n";

    /// The modules that OSM adds to a profile without any, with their documents.
    fn added(os: &str, engine: &str) -> BTreeMap<String, BTreeSet<Stage>> {
        let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
            "osName": os, "osVersion": "1", "version": "v1.0.0", "templateEngine": engine,
            "supportedCloudProviders": [{"name": "openstack"}],
        }))
        .unwrap();
        let (_, mut pool) = sample_pools(&spec).swap_remove(0);
        pool.os.dist_upgrade_on_boot = true;
        pool.os.rhel_subscription_manager_user = osm_api::provider_spec::ConfigVar::Text("me".to_owned());
        pool.os.rhel_subscription_manager_password =
            osm_api::provider_spec::ConfigVar::Text("hunter2".to_owned());
        let settings = Settings::parse(SETTINGS).unwrap();
        let profile = compile(&resolve(&spec).unwrap()).unwrap();
        let rendered = profile
            .render(&pool, &settings, &stand_in_cluster())
            .unwrap()
            .spec;
        let mut added: BTreeMap<String, BTreeSet<Stage>> = BTreeMap::new();
        for (stage, config) in [
            (Stage::Bootstrap, rendered.bootstrap_config),
            (Stage::Provisioning, rendered.provisioning_config),
        ] {
            for key in config
                .modules
                .iter()
                .filter_map(Value::as_object)
                .flat_map(|modules| modules.keys())
            {
                added.entry(key.clone()).or_default().insert(stage);
            }
        }
        added
    }

    #[test]
    fn every_module_that_osm_adds_is_in_a_document_that_runs_it() {
        use CloudInitStage::{Config, Final, Init};
        let (first, second, both): (&[Stage], &[Stage], &[Stage]) =
            (&[Stage::Bootstrap], &[Stage::Provisioning], &Stage::ALL);
        let none: &[Stage] = &[];
        // The module, its stage, and its documents with Handlebars and in profiles of the Go implementation.
        let common = [
            ("ntp", Config, first, first),
            ("package_reboot_if_required", Final, second, both),
            ("package_upgrade", Final, second, both),
            ("packages", Final, second, first),
            ("prefer_fqdn_over_hostname", Init, first, first),
            ("runcmd", Config, none, first),
        ];
        let ubuntu = [("apt", Config, first, first), ("bootcmd", Init, second, none)];
        let rhel = [
            ("bootcmd", Init, both, first),
            ("rh_subscription", Config, second, both),
            ("yum_repos", Config, first, first),
        ];
        for (os, own) in [("ubuntu", ubuntu.as_slice()), ("rhel", rhel.as_slice())] {
            let table: Vec<_> = common.iter().chain(own).collect();
            for (engine, is_go) in [("Handlebars", false), ("GoTemplate", true)] {
                let expected = table
                    .iter()
                    .map(|(key, _, handlebars, go)| (*key, if is_go { *go } else { *handlebars }));
                let expected: BTreeMap<String, BTreeSet<Stage>> = expected
                    .filter(|(_, documents)| !documents.is_empty())
                    .map(|(key, documents)| (key.to_owned(), documents.iter().copied().collect()))
                    .collect();
                assert_eq!(added(os, engine), expected, "{os}, {engine}");
            }
            for (key, stage, _, go) in table {
                assert_eq!(stage_of(key), Some(*stage), "{key}");
                assert!(
                    go.is_empty() || go.contains(&Stage::Bootstrap) || *stage == Init,
                    "{key}"
                );
            }
        }
    }

    #[test]
    fn what_a_profile_itself_has_in_a_document_that_does_not_run_it_gives_a_warning() {
        let stage = |command: &str, modules: Value| {
            let files = json!([{"path": "/opt/bin/bootstrap", "content": {"inline": {"data": command}}}]);
            serde_json::from_value::<StageConfig>(json!({"files": files, "modules": modules})).unwrap()
        };
        let mut provisioning = stage(
            "",
            json!({"runcmd": ["x"], "bootcmd": ["y"], "packages": ["z"], "chpasswd": {}}),
        );
        for (command, modules, expected) in [
            (
                "cloud-init --file /a init",
                json!({}),
                Some("effect: modules.packages, modules.runcmd;"),
            ),
            (
                "cloud-init init --file /a",
                json!({"runcmd": ["x"]}),
                Some("effect: modules.packages;"),
            ),
            (
                "cloud-init init\ncloud-init modules --mode=config\n",
                json!({}),
                None,
            ),
            (
                "cloud-init init\ncloud-init single --name runcmd",
                json!({}),
                None,
            ),
            ("cloud-init init; cloud-init clean --reboot", json!({}), None),
            ("echo init", json!({}), None),
        ] {
            let warning = not_run(&stage(command, modules), &provisioning);
            assert_eq!(warning.is_some(), expected.is_some(), "{command}: {warning:?}");
            assert!(
                warning.unwrap_or_default().contains(expected.unwrap_or_default()),
                "{command}"
            );
        }
        provisioning.units = serde_json::from_value(json!([{"name": "a.service", "enable": true}])).unwrap();
        let warning = not_run(&stage("cloud-init init", json!({})), &provisioning).unwrap();
        assert!(warning.contains("enable and mask of units"), "{warning}");
    }
}
