//! The data of a provisioning Secret: a document and, behind a line `---`, the content that it was generated from. Both are read as they are
//! and compressed. Everything is also read as the digits of compressed bytes.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use osm_api::{gzip, names};
use secret_syncer::model::documents::Documents;
use secret_syncer::model::hmac_key::HmacKey;
use secret_syncer::model::published_content::PublishedDocument;

use crate::{bounds, canary, config, hex};

const POOL: &str = "0123456789abcdef0123";

/// Most bytes of a text that is unpacked here.
const MOST: usize = 512 * 1024;

/// A Secret is read, and then its documents can be written again with other tokens, or it is not read. No message repeats a value.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    unpack(input);
    unpack(&hex::bytes(text));
    let Some((document, content)) = text.split_once("\n---\n") else {
        return;
    };
    let plain = [
        (names::CLOUD_CONFIG_KEY, document.as_bytes().to_vec()),
        (names::CONTENT_GZIP_KEY, gzip::USUAL.bytes(content)),
    ];
    let compressed = [
        (names::CLOUD_CONFIG_GZIP_KEY, gzip::USUAL.bytes(document)),
        (names::CONTENT_GZIP_KEY, gzip::USUAL.bytes(content)),
    ];
    let damaged = [
        (names::CLOUD_CONFIG_KEY, document.as_bytes().to_vec()),
        (names::CONTENT_GZIP_KEY, hex::bytes(content)),
    ];
    for entries in [plain, compressed, damaged] {
        let canary_in_input = canary::is_in(text);
        bounds::within("a provisioning Secret", || read(&entries, canary_in_input));
    }
}

fn unpack(bytes: &[u8]) {
    if let Ok(text) = bounds::within("unpacking", || gzip::unpack(bytes, MOST)) {
        assert!(text.len() <= MOST, "{} bytes", text.len());
    }
}

fn read(entries: &[(&str, Vec<u8>); 2], canary_in_input: bool) {
    let key = HmacKey::new([7; 32]);
    let [(document_name, document), (content_name, content)] = entries;
    let parts: [&[u8]; 4] = [
        document_name.as_bytes(),
        document,
        content_name.as_bytes(),
        content,
    ];
    let name = names::provisioning_secret_name(POOL, &key.mac(&parts));
    let data: BTreeMap<String, ByteString> = entries
        .iter()
        .map(|(name, bytes)| ((*name).to_owned(), ByteString(bytes.clone())))
        .collect();
    let Some(published) = PublishedDocument::read(&name, data, POOL, &key) else {
        return;
    };
    match Documents::published(&published, POOL, &key) {
        Ok(again) if published.content.needs_kubeconfig_secret() => {
            let data = again.entries.data();
            let data = data.map(|(name, bytes)| (name.to_owned(), ByteString(bytes.to_vec())));
            let renewed = PublishedDocument::read(&again.provisioning_secret, data.collect(), POOL, &key);
            assert!(renewed.is_some(), "what was written again is not read");
        }
        Ok(again) => assert_eq!(again.provisioning_secret, name, "another name"),
        Err(error) if canary_in_input => assert!(!error.to_string().is_empty()),
        Err(error) => canary::check(&error.to_string()),
    }
}

/// The Secrets of pools with the configurations of the other target, and compressed texts.
pub fn seeds() -> Vec<String> {
    let key = HmacKey::new([7; 32]);
    let of_configs = config::seeds().into_iter().filter_map(|spec| {
        let spec: osm_api::content::Content = serde_json::from_str(&spec).ok()?;
        let ids = spec.late_bound.iter().filter(|late| late.source.is_some());
        let values = ids.map(|late| (late.id.clone(), "value".to_owned())).collect();
        let documents = Documents::make(spec, values, POOL, &key).ok()?;
        let mut data = documents.entries.data();
        let content = data.find(|(name, _)| *name == names::CONTENT_GZIP_KEY)?;
        let content = gzip::unpack(content.1, MOST).ok()?;
        Some(format!("{}\n---\n{content}", documents.provisioning))
    });
    let compressed = ["", "text", "a: b\n"].map(|text| hex::text(&gzip::USUAL.bytes(text)));
    of_configs.chain(compressed).collect()
}
