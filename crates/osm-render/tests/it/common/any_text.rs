//! Any text, in every place of a document that takes one: it comes out as it went in, or is refused.

use osm_api::content::Content;
use osm_judges::{Complaints, MachineConfig};
use osm_user_data::{LateValues, Stage, user_data};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::without_blanks;

/// What machine-controller replaces.
pub const MACHINE_NAME: &str = "<MACHINE_NAME>";

const TEXTS: usize = 400;

/// Any text, those above all that some layer might trip over.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(?s).{0,3000}",
        "([\\[\\]=#;\\\\ \n\r\tA%<>&\"'+\u{85}\u{a0}]|Install|Unit|MACHINE_NAME|%3C|\u{0}){0,40}",
        "([ -~\u{a1}-\u{ff}\u{1f600}\u{2028}\u{feff}]{0,60}\n){0,20}",
        "(\\\\|\\$private_ipv4|\\$public_ipv6|\\$|\"|'|a\n|: |\t|#| \n){0,40}",
        "(\\[Unit\\]\n)?( {0,3}[-?:&*!|>{}%@`]{0,3}[a-z~0-9_]{0,9}\n){0,9}",
        "(\\[[A-Z]{0,3}\\]?\n|[A-C]? ?=x?\\\\?\n|#.?\\\\? ?\n|\n){0,12}",
        "\\[Unit\\]\nA=.{1900,2200}\n",
        "(#.{0,9}\n){0,2}(\\[[A-Z][a-z]{1,8}\\]\n([A-Z]=[^\r\n]{0,30}\n){1,3}){1,3}",
    ]
}

/// Reads documents of a kind with the program that reads them on a machine.
type Read = fn(&[(&str, &str)]) -> Vec<Result<MachineConfig, Complaints>>;

fn config(utility: &str, encoding: Option<&str>, text: &str) -> Content {
    let file = |path: &str, data: &str| json!({"path": path, "permissions": 600, "content": {"inline": {"encoding": encoding, "data": data}}});
    serde_json::from_value(json!({
        "osName": "flatcar", "provisioningUtility": utility, "cloudProvider": {"name": "aws"},
        "bootstrapConfig": {
            "files": [
                file("/plain", text), file("/named", &format!("{MACHINE_NAME}{text}")), file("/late", "%%osm-late{a,json}%%"),
            ],
            "units": [
                {"name": "a.service", "content": text},
                {"name": "b.service", "dropIns": [{"name": "a.conf", "content": text}]},
            ],
        },
        "lateBoundValues": [{"id": "a", "kind": "RegistryPassword"}],
    }))
    .unwrap()
}

/// Everything at once, because one process that reads a thousand documents is much quicker than a thousand
/// processes.
pub fn passes_on_or_refuses(utility: &str, encoding: Option<&str>, first: &[&str], read: Read) {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let mut texts: Vec<String> = first.iter().map(|text| (*text).to_owned()).collect();
    texts.extend((0..TEXTS).map(|_| text().new_tree(&mut runner).unwrap().current()));
    let mut written = Vec::new();
    for text in &texts {
        let mut spec = config(utility, encoding, text);
        let values = LateValues::from([("a".to_owned(), text.clone())]);
        let whole = user_data(&spec, Stage::Bootstrap, &values);
        let refused = whole.is_err();
        // Files are never refused.
        spec.bootstrap_config.units.clear();
        let without_units = || user_data(&spec, Stage::Bootstrap, &values);
        let document = whole.unwrap_or_else(|_| without_units().unwrap());
        written.push((text, refused, without_blanks(&document)));
    }
    let documents = written
        .iter()
        .map(|(_, _, document)| ("document", document.as_str()));
    let documents: Vec<(&str, &str)> = documents.collect();
    let mut accepted = 0;
    let configs = read(&documents);
    for ((text, refused, document), config) in written.iter().zip(configs) {
        let config = config.unwrap_or_else(|verdict| panic!("{text:?}: {verdict}{document}"));
        let files = config.into_files();
        let content = |path: &str| {
            let file = files.iter().find(|file| file.path == path);
            file.map(|file| file.content.as_str())
                .unwrap_or_else(|| panic!("{text:?}: no {path}"))
        };
        assert_eq!(content("/plain"), text.as_str(), "{document}");
        assert_eq!(content("/named"), format!("{MACHINE_NAME}{text}"), "{document}");
        assert_eq!(serde_json::from_str::<String>(content("/late")).unwrap(), **text);
        if !refused {
            accepted += 1;
            for path in ["a.service", "b.service.d/a.conf"] {
                let unit = content(&format!("/etc/systemd/system/{path}"));
                assert_eq!(unit, text.as_str(), "{document}");
            }
        }
    }
    assert!(accepted > 50, "{accepted} units of {}", texts.len());
}
