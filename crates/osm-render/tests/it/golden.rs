//! What the default profiles render to is committed in tests/golden, so that a change of a template shows in a diff of documents.
//!
//! `cargo xtask bless` runs this test with `OSM_BLESS=1`, which writes the files instead of comparing them.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::Settings;
use osm_api::config::Rendered;
use osm_api::content::Unpacked;
use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec};
use osm_render::{
    Stage, compile, defaults, full_sample, placeholders, resolve, stand_in_cluster, user_data, yaml,
};
use serde_json::{Value, json};

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

/// secret-syncer takes a configuration with a new digest for new content. So a release that computes digests in another way publishes the
/// user data of every pool again, even if no byte of it has changed. That must be decided, and be in the changelog.
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
    let profile = compile(&resolve(&spec).unwrap()).unwrap();
    let rendered = profile
        .render(&pool, &Settings::parse("{}").unwrap(), &stand_in_cluster())
        .unwrap();
    let unpacked = Unpacked::new(&rendered.spec, false, Rendered::default());
    assert_eq!(
        unpacked.rendered().digest,
        "c471e0647af6c307530355448a3fa678a5599a6a4a3ddaf489fd4fb26f9e356d"
    );
}

/// Both documents of every default profile for the newest kubelet, with everything set and readable stand-ins for
/// credentials: paths below `tests/golden`, such as `osp-ubuntu/bootstrap.yaml`, and texts.
fn goldens() -> Vec<(String, String)> {
    let mut goldens = Vec::new();
    for (name, spec) in defaults() {
        let documents = documents(&spec).unwrap_or_else(|error| panic!("{name}: {error}"));
        goldens.extend(
            documents
                .into_iter()
                .map(|(stage, text)| (format!("{name}/{stage}.yaml"), text)),
        );
    }
    goldens
}

fn documents(spec: &OperatingSystemProfileSpec) -> Result<Vec<(&'static str, String)>, String> {
    let supports = |cloud| {
        spec.supported_cloud_providers
            .iter()
            .any(|known| known.name == cloud)
    };
    let first = spec.supported_cloud_providers.first().map(|cloud| cloud.name);
    // The most usual one, where it is supported.
    let usual = supports(CloudProvider::Openstack)
        .then_some(CloudProvider::Openstack)
        .or(first);
    let cloud = usual.ok_or("supports no cloud")?;
    let (pool, settings) = full_sample(spec, cloud).ok_or("there is no sample")?;
    let profile = resolve(spec)
        .and_then(|accepted| compile(&accepted))
        .map_err(|error| error.to_string())?;
    let rendered = profile
        .render(&pool, &settings, &stand_in_cluster())
        .map_err(|error| error.to_string())?;
    let kubelet = &pool.kubelet_version;
    [
        ("bootstrap", Stage::Bootstrap),
        ("provisioning", Stage::Provisioning),
    ]
    .into_iter()
    .map(|(name, stage)| {
        let document = user_data(&rendered.spec, stage, &placeholders(&rendered.spec));
        let text = readable(&document.map_err(|error| error.to_string())?)?;
        let header = format!(
            "# {name} on {cloud}, kubelet {kubelet}, everything set. Written by `cargo xtask bless`."
        );
        Ok((name, format!("{header}\n{text}")))
    })
    .collect()
}

/// A document as people read it: of a cloud-config the compressed files unpacked, of an Ignition config the contents of all files decoded,
/// as YAML.
fn readable(document: &str) -> Result<String, String> {
    if let Some(body) = document.strip_prefix("#cloud-config\n") {
        let mut config = yaml::read(body).map_err(|error| error.to_string())?.remove(0);
        let files = config.get_mut("write_files").and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            let encoding = file.get("encoding").and_then(Value::as_str).unwrap_or_default();
            if encoding.starts_with("gz") {
                let content = file["content"].as_str().ok_or("a file without content")?;
                file["content"] = json!(decode(&format!("data:;base64,{content}"), true)?);
            }
        }
        return Ok(format!("#cloud-config\n{}", yaml::write(&config)?));
    }
    let mut config: Value = serde_json::from_str(document).map_err(|error| error.to_string())?;
    for file in config
        .pointer_mut("/storage/files")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let contents = file.get("contents").ok_or("a file without contents")?;
        let compressed = contents.get("compression").is_some();
        let source = contents
            .get("source")
            .and_then(Value::as_str)
            .ok_or("contents without a source")?;
        let text = decode(source, compressed)?;
        let compression = if compressed { "gzip" } else { "none" };
        let fields = file.as_object_mut().ok_or("a file that is none")?;
        fields.insert(
            "contents".to_owned(),
            json!({"compression": compression, "text": text}),
        );
    }
    yaml::write(&config)
}

fn decode(source: &str, compressed: bool) -> Result<String, String> {
    let bytes = match source.strip_prefix("data:;base64,") {
        Some(body) => STANDARD.decode(body).map_err(|error| error.to_string())?,
        None => percent_decoded(source.strip_prefix("data:,").ok_or("no data URL")?)?,
    };
    let mut text = String::new();
    let read = match compressed {
        true => flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text),
        false => bytes.as_slice().read_to_string(&mut text),
    };
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

fn percent_decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend(before.as_bytes());
        let digits = after.get(..2).ok_or("a % without digits")?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
        rest = after.get(2..).unwrap_or_default();
    }
    bytes.extend(rest.as_bytes());
    Ok(bytes)
}
