//! What the default profiles render to is committed in tests/golden, so that a change of a template shows in
//! a diff of documents.
//!
//! `cargo xtask bless` runs this test with `OSM_BLESS=1`, which writes the files instead of comparing them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use osm_api::Settings;
use osm_api::config::Stored;
use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec};
use osm_render::{defaults, full_sample, stand_in_cluster};
use osm_user_data::{Stage, placeholders, user_data, yaml};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::common::compiled;

#[test]
fn documents_are_those_that_are_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("OSM_BLESS").is_some();
    let mut expected = BTreeSet::new();
    for (name, text) in goldens() {
        let path = folder.join(&name);
        let written = fs::read_to_string(&path).unwrap_or_default();
        if bless && text != written {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &text).unwrap();
            println!("written: {}", path.display());
        }
        let differing = text
            .lines()
            .zip(written.lines())
            .position(|(now, then)| now != then);
        let line = differing.unwrap_or_else(|| text.lines().count().min(written.lines().count())) + 1;
        assert!(
            bless || text == written,
            "{name}, line {line}: is now {:?}: if that is meant, run `cargo xtask bless` and read the diff",
            text.lines().nth(line - 1).unwrap_or_default()
        );
        expected.insert(path);
    }
    let folders = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let found: BTreeSet<_> = folders
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .collect();
    assert_eq!(
        found, expected,
        "no default profile renders to some of these files: delete them"
    );
}

/// secret-syncer takes a configuration with a new digest for new content. So a release that computes digests
/// in another way publishes the user data of every pool again, even if no byte of it has changed. That must
/// be decided, and be in the changelog.
#[test]
fn the_digest_of_the_same_content_stays_the_same() {
    let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "openstack"}],
        "bootstrapConfig": {"modules": {"runcmd": ["true"], "bootcmd": [["a", "b"]]}},
        "provisioningConfig": {
            "files": [{"path": "/etc/node", "content": {"inline": {"data": "kubelet {{kubelet.version}}\n"}}}],
            "units": [{"name": "setup.service", "content": "[Service]\n", "dropIns": [{"name": "10.conf", "content": "[Unit]\n"}]}],
        },
    }))
    .unwrap();
    let (mut pool, _) = full_sample(&spec, CloudProvider::Openstack).unwrap();
    pool.kubelet_version = "1.34.2".parse().unwrap();
    pool.ssh_public_keys = vec!["ssh-ed25519 AAAA".to_owned()];
    pool.os.dist_upgrade_on_boot = false;
    let rendered = compiled(&spec)
        .render(&pool, &Settings::default(), &stand_in_cluster())
        .unwrap();
    let stored = Stored::new(&rendered.spec, false, Stored::default());
    let expected = "c471e0647af6c307530355448a3fa678a5599a6a4a3ddaf489fd4fb26f9e356d";
    assert_eq!(stored.digest, expected);
}

/// Both documents of every default profile for the newest kubelet, with everything set and readable stand-ins
/// for credentials: paths below `tests/golden`, such as `osp-ubuntu/bootstrap.yaml`, and texts.
fn goldens() -> Vec<(String, String)> {
    let mut goldens = Vec::new();
    for (name, spec) in defaults() {
        let clouds = &spec.supported_cloud_providers;
        // The most usual one, where it is supported.
        let usual = clouds.iter().find(|cloud| cloud.name == CloudProvider::Openstack);
        let cloud = usual.unwrap_or(&clouds[0]).name;
        let (pool, settings) = full_sample(&spec, cloud).unwrap();
        let rendered = compiled(&spec).render(&pool, &settings, &stand_in_cluster());
        let content = rendered.unwrap_or_else(|error| panic!("{name}: {error}")).spec;
        let kubelet = &pool.kubelet_version;
        for (stage, label) in Stage::ALL.into_iter().zip(["bootstrap", "provisioning"]) {
            let text = readable(&user_data(&content, stage, &placeholders(&content)).unwrap());
            let header = format!(
                "# {label} on {cloud}, kubelet {kubelet}, everything set. Written by `cargo xtask bless`."
            );
            goldens.push((format!("{name}/{label}.yaml"), format!("{header}\n{text}")));
        }
    }
    goldens
}

/// A document as people read it: of a cloud-config the compressed files unpacked, of an Ignition config the
/// contents of all files decoded, as YAML.
fn readable(document: &str) -> String {
    if let Some(body) = document.strip_prefix("#cloud-config\n") {
        let mut config = yaml::read(body).unwrap().remove(0);
        for file in config["write_files"].as_array_mut().into_iter().flatten() {
            if file["encoding"]
                .as_str()
                .is_some_and(|encoding| encoding.starts_with("gz"))
            {
                let packed = STANDARD.decode(file["content"].as_str().unwrap()).unwrap();
                file["content"] = json!(unpacked(&packed));
            }
        }
        return format!("#cloud-config\n{}", yaml::write(&config).unwrap());
    }
    let mut config: Value = serde_json::from_str(document).unwrap();
    for file in config["storage"]["files"].as_array_mut().into_iter().flatten() {
        let contents = &file["contents"];
        let (kind, data) = contents["source"].as_str().unwrap().split_once(',').unwrap();
        let bytes = match kind {
            "data:;base64" => STANDARD.decode(data).unwrap(),
            _ => percent_decode_str(data).collect(),
        };
        file["contents"] = match contents.get("compression") {
            Some(_) => json!({"compression": "gzip", "text": unpacked(&bytes)}),
            None => json!({"compression": "none", "text": String::from_utf8(bytes).unwrap()}),
        };
    }
    yaml::write(&config).unwrap()
}

fn unpacked(packed: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text
}
