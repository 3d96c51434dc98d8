//! What a document puts on a machine, as the programs that read it tell.

use std::collections::BTreeMap;

use osm_api::Settings;
use osm_api::content::Content;
use osm_render::{compile, defaults, full_sample, resolve, stand_in_cluster};
use osm_user_data::reader::Reader;
use osm_user_data::{Stage, machine_stage, placeholders, user_data};

/// Files of a document by path, with mode and text, as the programs that read it on a machine tell them.
fn files_of(spec: &Content, document: &str) -> BTreeMap<String, (String, String)> {
    let named = [("document", document)];
    let read = match Reader::of(spec.os_name, spec.provisioning_utility) {
        Reader::CloudInit => osm_judges::user_data_files(document),
        Reader::CoreosCloudinit => {
            let mut configs = osm_judges::coreos_read(&named).unwrap();
            configs.remove(0).map(osm_judges::MachineConfig::into_files)
        }
        Reader::Ignition => {
            let mut configs = osm_judges::ignition_read(&named).unwrap();
            configs.remove(0).map(osm_judges::MachineConfig::into_files)
        }
    };
    let files = read.unwrap_or_else(|verdict| panic!("{verdict}")).into_iter();
    files
        .map(|file| (file.path, (format!("{:04o}", file.mode), file.content)))
        .collect()
}

#[test]
fn the_files_are_those_of_the_document_in_every_language() {
    for (name, spec) in defaults() {
        let profile = compile(&resolve(&spec).unwrap()).unwrap();
        for cloud in &spec.supported_cloud_providers {
            let (pool, settings) = full_sample(&spec, cloud.name).unwrap();
            for settings in [settings, Settings::default()] {
                let rendered = profile.render(&pool, &settings, &stand_in_cluster());
                let config = rendered.unwrap().spec;
                let values = placeholders(&config);
                for stage in Stage::ALL {
                    let expected = files_of(&config, &user_data(&config, stage, &values).unwrap());
                    let machine = machine_stage(&config, stage, &values).unwrap();
                    assert_eq!(machine.files.len(), expected.len(), "{name}");
                    let files = machine.files.into_iter();
                    let files: BTreeMap<_, _> =
                        files.map(|file| (file.path, (file.mode, file.text))).collect();
                    assert_eq!(files, expected, "{name}");
                    assert!(!machine.other.contains_key("write_files"));
                }
            }
        }
    }
}
