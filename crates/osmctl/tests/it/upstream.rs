//! What projects publish, as files: below each folder that is called like a host, what that host serves.

use std::collections::BTreeMap;
use std::path::Path;

use osm_api::digest::sha256_hex;
use serde_json::Value;

use super::{osmctl, out};

/// Publishes in `folder` what `osmctl urls` with `arguments` lists; all contents differ.
pub fn publish(folder: &Path, arguments: &[&str]) {
    let listed = osmctl(&[&["urls", "--output", "json"], arguments].concat(), "");
    let listed: Value = serde_json::from_str(out(&listed)).unwrap();
    let mut sums: BTreeMap<String, String> = BTreeMap::new();
    for download in listed["downloads"].as_array().unwrap() {
        let text = |field: &str| download[field].as_str().unwrap();
        let (url, name) = (text("url"), text("url").rsplit('/').next().unwrap());
        write(folder, url, url);
        let sum = sha256_hex(url.as_bytes());
        // Kubernetes' projects publish it bare.
        let line = match text("name") {
            "kubelet" | "crictl" => sum,
            _ => format!("{sum}  {name}\n"),
        };
        sums.entry(text("checksumURL").to_owned())
            .or_default()
            .push_str(&line);
    }
    for (url, text) in sums {
        write(folder, &url, &text);
    }
}

fn write(folder: &Path, url: &str, text: &str) {
    let path = folder.join(url.split_once("://").unwrap().1);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
