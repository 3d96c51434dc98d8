//! What stands in examples/ works: it is what people copy first.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;

use osm_api::{MachineDeployment, OperatingSystemProfile, OperatingSystemProfileSpec, Pool, Settings};
use osm_judges::{UserData, judge_user_data_batch};
use osm_render::{Download, Stage, stand_in_cluster, user_data};

fn example(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(name),
    )
    .unwrap()
}

fn pool(name: &str) -> Pool {
    let text = example(name);
    let deployment: MachineDeployment = serde_saphyr::from_str(&text).unwrap();
    Pool::read(&deployment).unwrap()
}

/// Both documents for the pool, before the judges.
fn judge(pool: &Pool, spec: &OperatingSystemProfileSpec, settings: &Settings) {
    let profile = osm_render::compile(&osm_render::resolve(spec).unwrap()).unwrap();
    let rendered = profile.render(pool, settings, &stand_in_cluster()).unwrap();
    assert!(rendered.warnings.is_empty(), "{:?}", rendered.warnings);
    for stage in Stage::ALL {
        let text = user_data(&rendered.spec, stage, &osm_render::placeholders(&rendered.spec)).unwrap();
        let name = format!("{} {stage:?}", pool.name);
        let kubelet = Some(pool.kubelet_version.to_string());
        judge_user_data_batch(&[UserData {
            name: &name,
            text: &text,
            kubelet: kubelet.as_deref(),
        }])
        .unwrap();
    }
}

#[test]
fn machine_deployments_render_with_default_and_air_gapped_settings() {
    let (_, ubuntu) = osm_render::defaults()
        .into_iter()
        .find(|(name, _)| name == "osp-ubuntu")
        .unwrap();
    let air_gapped = Settings::parse(&example("settings-air-gapped.yaml")).unwrap();
    for name in [
        "machinedeployment-ubuntu-aws.yaml",
        "machinedeployment-ubuntu-openstack.yaml",
    ] {
        let pool = pool(name);
        judge(&pool, &ubuntu, &Settings::default());
        judge(&pool, &ubuntu, &air_gapped);
    }
}

#[test]
fn an_air_gapped_site_names_no_host_but_its_own() {
    let (_, ubuntu) = osm_render::defaults()
        .into_iter()
        .find(|(name, _)| name == "osp-ubuntu")
        .unwrap();
    let profile = osm_render::compile(&osm_render::resolve(&ubuntu).unwrap()).unwrap();
    let air_gapped = Settings::parse(&example("settings-air-gapped.yaml")).unwrap();
    let pool = pool("machinedeployment-ubuntu-openstack.yaml");
    let downloads = |settings: &Settings| {
        let rendered = profile.render(&pool, settings, &stand_in_cluster()).unwrap();
        let text = serde_json::to_string(&rendered.spec).unwrap();
        let internet = ["https://github.com/", "https://dl.k8s.io"];
        let urls: Vec<String> = rendered.downloads.iter().map(Download::url).collect();
        (internet.iter().filter(|host| text.contains(**host)).count(), urls)
    };
    assert_eq!(downloads(&Settings::default()).0, 2);
    let (internet, urls) = downloads(&air_gapped);
    assert_eq!((internet, urls.len()), (0, 8));
    assert!(
        urls.iter()
            .all(|url| url.starts_with("https://files.example.com/")),
        "{urls:?}"
    );
}

#[test]
fn the_custom_profile_is_accepted_and_renders() {
    let profile: OperatingSystemProfile = serde_saphyr::from_str(&example("osp-custom.yaml")).unwrap();
    let accepted = osm_render::resolve(&profile.spec).unwrap();
    osm_render::dry_run(&osm_render::compile(&accepted).unwrap()).unwrap();
    judge(
        &pool("machinedeployment-ubuntu-openstack.yaml"),
        &profile.spec,
        &Settings::default(),
    );
}
