//! Any text, in every place of a document that takes one: it comes out as it went in, or is refused.

use osm_api::config::{CloudProviderRef, LateBound, LateBoundKind, StageConfig};
use osm_api::content::Content;
use osm_api::profile::{CloudProvider, DropIn, File, FileContent, InlineContent, Unit};
use osm_judges::Complaints;
use osm_render::{LateValues, Stage, user_data};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

/// What machine-controller replaces.
pub const MACHINE_NAME: &str = "<MACHINE_NAME>";

const TEXTS: usize = 800;

/// Reads documents.
pub type Reader<C> = fn(&[(&str, &str)]) -> Vec<Result<C, Complaints>>;

/// A language of user data, and who reads it as configs.
pub struct Language<C> {
    /// What a config has that determines the language.
    pub spec: Content,
    /// Of the content of files.
    pub encoding: Option<&'static str>,
    /// What machine-controller replaces.
    pub replaced: &'static [&'static str],
    /// What machine-controller makes of a bootstrap document.
    pub passed_on: fn(String) -> String,
    pub read: Reader<C>,
    /// The files of a config, and those that its units become.
    pub files: fn(C) -> Vec<osm_judges::File>,
}

impl<C> Language<C> {
    fn config(&self, text: &str) -> Content {
        let file = |path: &str, data: &str| File {
            path: path.to_owned(),
            permissions: 600,
            content: FileContent {
                inline: Some(InlineContent {
                    encoding: self.encoding.map(str::to_owned),
                    data: data.to_owned(),
                }),
            },
        };
        let unit = |name: &str, content: Option<&str>, drop_in: Option<&str>| Unit {
            name: name.to_owned(),
            enable: None,
            mask: None,
            content: content.map(str::to_owned),
            drop_ins: drop_in
                .map(|content| DropIn {
                    name: "a.conf".to_owned(),
                    content: content.to_owned(),
                })
                .into_iter()
                .collect(),
        };
        Content {
            cloud_provider: Some(CloudProviderRef {
                name: CloudProvider::Aws,
                spec: None,
            }),
            bootstrap_config: StageConfig {
                files: vec![
                    file("/plain", text),
                    file("/named", &format!("{MACHINE_NAME}{text}")),
                    file("/late", "%%osm-late{a,json}%%"),
                ],
                units: vec![
                    unit("a.service", Some(text), None),
                    unit("b.service", None, Some(text)),
                ],
                ..StageConfig::default()
            },
            late_bound: vec![LateBound {
                id: "a".to_owned(),
                kind: LateBoundKind::RegistryPassword,
                source: None,
            }],
            ..self.spec.clone()
        }
    }

    /// Everything at once, because one process that reads a thousand documents is much quicker than a thousand processes.
    pub fn passes_on_or_refuses(&self, first: &[&str], others: &impl Strategy<Value = String>) {
        let mut runner = TestRunner::new(Config {
            failure_persistence: None,
            ..Config::default()
        });
        let mut texts: Vec<String> = first.iter().map(|text| (*text).to_owned()).collect();
        texts.extend((0..TEXTS).map(|_| others.new_tree(&mut runner).unwrap().current()));
        let mut written = Vec::new();
        for text in &texts {
            let mut spec = self.config(text);
            let values = LateValues::from([("a".to_owned(), text.clone())]);
            let whole = user_data(&spec, Stage::Bootstrap, &values);
            let refused = whole.is_err();
            // Files are never refused, but for late-bound values that machine-controller would change.
            spec.bootstrap_config.units.clear();
            let without_units = || user_data(&spec, Stage::Bootstrap, &values);
            if self.replaced.iter().any(|replaced| text.contains(replaced)) {
                let refusal = without_units().unwrap_err().to_string();
                assert!(
                    refusal.starts_with("/late: ") && refusal.contains(MACHINE_NAME),
                    "{refusal}"
                );
                continue;
            }
            let document = whole.unwrap_or_else(|_| without_units().unwrap());
            written.push((text, refused, (self.passed_on)(document)));
        }
        let documents: Vec<(&str, &str)> = written
            .iter()
            .map(|(_, _, document)| ("document", document.as_str()))
            .collect();
        let mut accepted = 0;
        let configs = (self.read)(&documents);
        for ((text, refused, document), config) in written.iter().zip(configs) {
            let config = config.unwrap_or_else(|verdict| panic!("{text:?}: {verdict}{document}"));
            let files = (self.files)(config);
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
                for path in [
                    "/etc/systemd/system/a.service",
                    "/etc/systemd/system/b.service.d/a.conf",
                ] {
                    assert_eq!(content(path), text.as_str(), "{document}");
                }
            }
        }
        assert!(accepted > 50, "{accepted} units of {}", texts.len());
    }
}
