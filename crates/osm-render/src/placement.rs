//! Adds what settings and pool ask for to the documents of a profile, and decides which of the two contains
//! it.
//!
//! `osm-bootstrap` of the library applies all modules of the second document. Profiles of the upstream OSM
//! apply that document by `cloud-init init`, which runs only the modules of this stage, and some never fetch
//! it. So what OSM adds to such a profile is in the first document, which runs through all stages.

use osm_api::config::StageConfig;
use osm_api::pool::Pool;
use osm_api::profile::{OperatingSystemProfileSpec, TemplateEngine};
use osm_api::settings::{Downloads, Settings};
use osm_user_data::reader::Reader;
use osm_user_data::stage::Stage;
use serde_json::json;

use crate::{additions, packages, subscription, time_servers};

/// Adds to the documents. Returns warnings about what has no effect.
pub(crate) fn add(
    spec: &OperatingSystemProfileSpec,
    [bootstrap, provisioning]: [&mut StageConfig; 2],
    pool: &Pool,
    settings: &Settings,
) -> Vec<String> {
    let reader = Reader::of(Some(spec.os_name), spec.provisioning_utility);
    let is_go = spec.template_engine == TemplateEngine::GoTemplate;
    let mut warnings = Vec::new();
    if spec.template_engine != TemplateEngine::Handlebars {
        warnings.extend(without_effect(settings));
    }
    // The first request to the API server needs the time, and every later installation of a package its
    // source.
    warnings.extend(time_servers::configure(
        reader,
        bootstrap,
        pool,
        &settings.system.ntp_servers,
    ));
    // Ignition applies all of the second document.
    let usual = if is_go && reader != Reader::Ignition {
        Stage::Bootstrap
    } else {
        Stage::Provisioning
    };
    let document = match usual {
        Stage::Bootstrap => &mut *bootstrap,
        Stage::Provisioning => &mut *provisioning,
    };
    additions::add_settings(reader, usual, document, &settings.system);
    let packages = &settings.packages;
    if reader != Reader::CloudInit {
        let os = pool.operating_system;
        warnings.extend((!packages.install.is_empty()).then(|| {
            format!("packages.install of the settings has no effect, because {os} has no package manager")
        }));
        return warnings;
    }
    warnings.extend(packages::install(
        document,
        &spec.provisioning_config.packages,
        packages,
    ));
    warnings.extend(packages::configure(bootstrap, pool, packages));
    if settings.kubelet.hostname_override == Some(false)
        && let Some(modules) = additions::modules(bootstrap)
    {
        // Some distributions would take the name with the domain of the cloud.
        modules.insert("prefer_fqdn_over_hostname".to_owned(), json!(false));
    }
    // The upstream OSM writes these to both.
    for document in is_go.then_some(bootstrap).into_iter().chain([provisioning]) {
        let found = [
            subscription::configure(document, pool),
            packages::upgrade_on_boot(document, pool, packages),
        ];
        for warning in found.into_iter().flatten() {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings
}

/// A warning for each setting that needs the library, which only Handlebars can include.
fn without_effect(settings: &Settings) -> impl Iterator<Item = String> {
    let configuration = settings.kubelet.configuration.as_ref();
    let unused = [
        ("system.swap", settings.system.swap.is_some()),
        (
            "kubelet.configuration",
            configuration.is_some_and(|fields| !fields.is_empty()),
        ),
        ("downloads", settings.downloads != Downloads::default()),
    ];
    let unused = unused.into_iter().filter(|(_, is_unused)| *is_unused);
    unused.map(|(field, _)| {
        format!("{field} of the settings has no effect, because it needs the library, which only Handlebars can include")
    })
}

#[cfg(test)]
mod tests {
    use osm_api::provider_spec::ConfigVar;

    use super::*;
    use crate::{compile, resolve, sample_pools, stand_in_cluster};

    const SETTINGS: &str = "kubelet: {hostnameOverride: false}\npackages:\n  install: [chrony]\n  apt: {mirror: 'https://m.example/u'}\n  yum:\n    \
        repositories:\n    - {name: base, baseURL: 'https://m.example/$releasever', gpgKey: 'file:///etc/key'}\n\
        system: {sysctls: {vm.max_map_count: 300000}, kernelModules: [ip_vs], ntpServers: [time.example]}\n";

    /// An operating system, a language, and the modules that OSM adds to the two documents of a profile
    /// without any. Of profiles of the upstream OSM, only the first runs all modules.
    const ADDED: &str = "
ubuntu | Handlebars | apt ntp prefer_fqdn_over_hostname | bootcmd package_reboot_if_required package_upgrade packages
ubuntu | GoTemplate | apt ntp package_reboot_if_required package_upgrade packages prefer_fqdn_over_hostname runcmd | package_reboot_if_required package_upgrade
rhel | Handlebars | bootcmd ntp prefer_fqdn_over_hostname yum_repos | bootcmd package_reboot_if_required package_upgrade packages rh_subscription
rhel | GoTemplate | bootcmd ntp package_reboot_if_required package_upgrade packages prefer_fqdn_over_hostname rh_subscription runcmd yum_repos | package_reboot_if_required package_upgrade rh_subscription
";

    #[test]
    fn every_module_that_osm_adds_is_in_a_document_that_runs_it() {
        for row in ADDED.trim().lines() {
            let [os, engine, bootstrap, provisioning] = row.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
                "osName": os, "osVersion": "1", "version": "v1.0.0", "templateEngine": engine,
                "supportedCloudProviders": [{"name": "openstack"}],
            }))
            .unwrap();
            let (_, mut pool) = sample_pools(&spec).swap_remove(0);
            pool.os.dist_upgrade_on_boot = true;
            pool.os.rhel_subscription_manager_user = ConfigVar::Text("me".to_owned());
            pool.os.rhel_subscription_manager_password = ConfigVar::Text("hunter2".to_owned());
            let settings = Settings::parse(SETTINGS).unwrap();
            let profile = compile(&resolve(&spec).unwrap()).unwrap();
            let rendered = profile.render(&pool, &settings, &stand_in_cluster());
            let spec = rendered.unwrap().spec;
            let stages = [
                (spec.bootstrap_config, bootstrap),
                (spec.provisioning_config, provisioning),
            ];
            for (stage, expected) in stages {
                let modules = stage.modules.unwrap();
                let mut found: Vec<&str> = modules.as_object().unwrap().keys().map(String::as_str).collect();
                found.sort_unstable();
                assert_eq!(found.join(" "), expected, "{os}, {engine}");
            }
        }
    }
}
