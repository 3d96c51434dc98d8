//! What stands in examples/ works: it is what people copy first.

use std::path::Path;

use osm_api::profile::AcceptedProfile;
use osm_api::{MachineDeployment, OperatingSystemProfile, OperatingSystemProfileSpec, Pool, Settings};
use osm_judges::{UserData, judge_user_data_batch};
use osm_render::{Base, Download, ProfileKey, resolve, stand_in_cluster};
use osm_user_data::{Stage, placeholders, user_data};

use crate::common::{compiled, default_spec};

/// A file below the root of the repository.
fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn example(name: &str) -> String {
    read(&format!("examples/{name}"))
}

fn air_gapped() -> Settings {
    Settings::parse(&example("settings-air-gapped.yaml")).unwrap()
}

fn pool(name: &str) -> Pool {
    let deployment: MachineDeployment = serde_saphyr::from_str(&example(name)).unwrap();
    Pool::read(&deployment).unwrap()
}

/// What documents are for, their kubelet, and their text.
type Documents = Vec<[String; 3]>;

/// Both documents for the pool.
fn documents(what: &str, pool: &Pool, accepted: &AcceptedProfile, settings: &Settings) -> Documents {
    let profile = osm_render::compile(accepted).unwrap();
    let rendered = profile.render(pool, settings, &stand_in_cluster()).unwrap();
    assert!(rendered.warnings.is_empty(), "{what}: {:?}", rendered.warnings);
    let values = placeholders(&rendered.spec);
    let document = |stage| user_data(&rendered.spec, stage, &values).unwrap();
    let kubelet = pool.kubelet_version.to_string();
    Stage::ALL
        .map(|stage| [format!("{what} {stage:?}"), kubelet.clone(), document(stage)])
        .to_vec()
}

/// All at once, because each judge is then started once.
fn judge(documents: &Documents) {
    let documents = documents.iter().map(|[name, kubelet, text]| UserData {
        name,
        text,
        kubelet: Some(kubelet),
    });
    judge_user_data_batch(&documents.collect::<Vec<_>>()).unwrap();
}

#[test]
fn machine_deployments_render_with_default_and_air_gapped_settings() {
    let ubuntu = resolve(&default_spec("osp-ubuntu")).unwrap();
    let mut all = Documents::new();
    for cloud in ["aws", "openstack"] {
        let pool = pool(&format!("machinedeployment-ubuntu-{cloud}.yaml"));
        for settings in [Settings::default(), air_gapped()] {
            all.extend(documents(cloud, &pool, &ubuntu, &settings));
        }
    }
    judge(&all);
}

#[test]
fn an_air_gapped_site_names_no_host_but_its_own() {
    let profile = compiled(&default_spec("osp-ubuntu"));
    let pool = pool("machinedeployment-ubuntu-openstack.yaml");
    let downloads = |settings: &Settings| {
        let rendered = profile.render(&pool, settings, &stand_in_cluster()).unwrap();
        let text = serde_json::to_string(&rendered.spec).unwrap();
        let internet = ["https://github.com/", "https://dl.k8s.io"];
        let urls: Vec<String> = rendered.downloads.iter().map(Download::url).collect();
        (internet.iter().filter(|host| text.contains(**host)).count(), urls)
    };
    assert_eq!(downloads(&Settings::default()).0, 2);
    let (internet, urls) = downloads(&air_gapped());
    assert_eq!((internet, urls.len()), (0, 10));
    let own = "https://files.example.com/";
    assert!(urls.iter().all(|url| url.starts_with(own)), "{urls:?}");
}

#[test]
fn nodes_get_the_names_of_their_machines_unless_the_settings_forbid_it() {
    assert!(read("docs/settings.md").contains("If `kubelet.hostnameOverride` is unset, it is true."));
    let profile = compiled(&default_spec("osp-ubuntu"));
    let pool = pool("machinedeployment-ubuntu-openstack.yaml");
    let rendered = |settings: &str| {
        let settings = Settings::parse(settings).unwrap();
        profile
            .render(&pool, &settings, &stand_in_cluster())
            .unwrap()
            .spec
    };
    assert_eq!(rendered("{}"), rendered("kubelet: {hostnameOverride: true}"));
    assert_ne!(rendered("{}"), rendered("kubelet: {hostnameOverride: false}"));
}

#[test]
fn the_custom_profile_is_accepted_and_renders() {
    let profile: OperatingSystemProfile = serde_saphyr::from_str(&example("osp-custom.yaml")).unwrap();
    let accepted = osm_render::resolve(&profile.spec).unwrap();
    osm_render::dry_run(&osm_render::compile(&accepted).unwrap()).unwrap();
    let pool = pool("machinedeployment-ubuntu-openstack.yaml");
    judge(&documents("custom", &pool, &accepted, &Settings::default()));
}

/// The profile with this name, without what the installation has.
fn built_in(_: &str, name: &str) -> Option<Base> {
    let mut defaults = osm_render::defaults().into_iter();
    let (_, spec) = defaults.find(|(known, _)| known == name)?;
    let key = ProfileKey {
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
    };
    Some(Base { key, spec })
}

#[test]
fn every_recipe_of_the_cookbook_renders_to_what_machines_read() {
    let page = read("docs/cookbook.md");
    let blocks = page.split("\n```yaml\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("\n```").next());
    let pool = pool("machinedeployment-ubuntu-openstack.yaml");
    let (mut profiles, mut settings, mut all) = (0, 0, Documents::new());
    for block in blocks {
        let recipe: serde_json::Value = serde_saphyr::from_str(block).unwrap();
        let spec = recipe.get("spec").unwrap_or(&recipe);
        let Some(stage) = spec.get("provisioningConfig") else {
            settings += 1;
            let recipe = Settings::from_document(recipe).unwrap();
            let ubuntu = resolve(&default_spec("osp-ubuntu")).unwrap();
            all.extend(documents(block, &pool, &ubuntu, &recipe));
            continue;
        };
        profiles += 1;
        let spec: OperatingSystemProfileSpec = serde_json::from_value(serde_json::json!({
            "extends": "osp-ubuntu", "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0",
            "templateEngine": "Handlebars", "supportedCloudProviders": [{"name": "openstack"}],
            "provisioningConfig": stage,
        }))
        .unwrap();
        let bases = osm_render::bases(&ProfileKey::default(), &spec, built_in).unwrap();
        let accepted = osm_render::resolve_on(&spec, &bases).unwrap();
        all.extend(documents(block, &pool, &accepted, &Settings::default()));
    }
    judge(&all);
    assert!(profiles >= 5 && settings >= 6, "{profiles} {settings}");
}

#[test]
fn the_profile_that_extends_a_default_is_accepted_renders_and_is_documented() {
    let profile: OperatingSystemProfile = serde_saphyr::from_str(&example("osp-extends.yaml")).unwrap();
    let page = read("docs/write-a-profile.md");
    let (_, block) = page.split_once("\n```yaml\n").unwrap();
    let documented: serde_json::Value = serde_saphyr::from_str(block.split("\n```").next().unwrap()).unwrap();
    let documented: OperatingSystemProfileSpec = serde_json::from_value(documented["spec"].clone()).unwrap();
    assert_eq!(documented, profile.spec);

    let bases = osm_render::bases(&ProfileKey::default(), &profile.spec, built_in).unwrap();
    let accepted = osm_render::resolve_on(&profile.spec, &bases).unwrap();
    let version = &accepted.version;
    assert!(version.starts_with("v1.0.0 on osp-ubuntu v"), "{version}");
    osm_render::dry_run(&osm_render::compile(&accepted).unwrap()).unwrap();
    let pool = pool("machinedeployment-ubuntu-openstack.yaml");
    judge(&documents("extends", &pool, &accepted, &Settings::default()));
}
