//! What projects publish, as files: below each folder that is called like a host, what that host serves.

use std::path::Path;

use osm_api::digest::sha256_hex;

use super::{osmctl, out};

/// Publishes in `folder` what `osmctl urls` with `arguments` lists; all contents differ.
pub fn publish(folder: &Path, arguments: &[&str]) {
    let listed = osmctl(&[&["urls"], arguments].concat(), "");
    let checksum_of = |url: &'_ str| url.rsplit_once(".sha256").map(|(start, _)| start.to_owned());
    let (sums, files): (Vec<&str>, Vec<&str>) =
        out(&listed).lines().partition(|url| checksum_of(url).is_some());
    files.iter().for_each(|url| write(folder, url, url));
    for url in sums {
        let start = checksum_of(url).unwrap();
        // Kubernetes' projects publish it bare.
        let is_bare = ["/kubelet", "/crictl"].iter().any(|name| start.contains(name));
        let line = |file: &&&str| {
            let (sum, name) = (sha256_hex(file.as_bytes()), file.rsplit('/').next().unwrap());
            if is_bare { sum } else { format!("{sum}  {name}\n") }
        };
        // One file has the checksums of all architectures of runc.
        let lines: String = files
            .iter()
            .filter(|file| file.starts_with(&start))
            .map(|file| line(&file))
            .collect();
        write(folder, url, &lines);
    }
}

fn write(folder: &Path, url: &str, text: &str) {
    let path = folder.join(url.split_once("://").unwrap().1);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
