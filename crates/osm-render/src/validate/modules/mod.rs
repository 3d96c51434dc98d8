//! Validates what rendered profiles contain in `modules`, by cloud-init's own schema. On the machine,
//! cloud-init only warns about modules that it does not understand, and skips them.

pub(crate) mod applied;
mod schema;

use osm_api::Reason;
use osm_user_data::stage::Stage;
use serde_json::Value;

use self::schema::Schema;
use crate::error::TemplatePosition;
use crate::profile::Rendered;
use crate::validate::refusal::Refusal;

/// Validates the modules of a profile's samples.
#[derive(Default)]
pub(crate) struct Modules {
    /// It is parsed only if there are modules.
    schema: Option<Schema>,
    /// What was validated: most samples have the same modules.
    known: Vec<Value>,
}

impl Modules {
    /// Validates the modules of a sample.
    ///
    /// # Errors
    /// All problems of the sample.
    pub(crate) fn validate(&mut self, sample: &str, rendered: &Rendered) -> Result<(), Refusal> {
        let (mut message, mut first) = (String::new(), None);
        for stage in Stage::ALL {
            let mut problems: Vec<_> = applied::problems(&rendered.spec, stage).collect();
            let modules = stage.of_content(&rendered.spec).modules.as_ref();
            if let Some(modules) = modules.filter(|modules| !self.known.contains(modules)) {
                self.known.push(modules.clone());
                problems.extend(self.schema.get_or_insert_default().problems(modules));
            }
            for (path, text) in problems {
                let place = format!("{}.modules{path}", stage.field());
                message.push_str(&format!("{place}: {text}; "));
                first.get_or_insert(place);
            }
        }
        let Some(template) = first else { return Ok(()) };
        Err(Refusal {
            reason: Reason::ModulesInvalid,
            message: format!("{message}found with the sample pool {sample}"),
            position: Some(TemplatePosition::of_field(&template)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use osm_judges::{cloud_config, cloud_init_modules_missing};
    use serde_json::json;

    fn problems(modules: &Value) -> Vec<String> {
        let found = Schema::default().problems(modules);
        found
            .into_iter()
            .map(|(path, text)| format!("{path}: {text}"))
            .collect()
    }

    /// Every keyword and pattern of a schema.
    fn vocabulary(schema: &Value, keywords: &mut BTreeSet<String>, patterns: &mut BTreeSet<String>) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            keywords.insert(keyword.clone());
            match (keyword.as_str(), value) {
                ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                    if keyword == "patternProperties" {
                        patterns.extend(schemas.keys().cloned());
                    }
                    schemas
                        .values()
                        .for_each(|schema| vocabulary(schema, keywords, patterns));
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                    schemas
                        .iter()
                        .for_each(|schema| vocabulary(schema, keywords, patterns));
                }
                ("items", Value::Array(_)) => panic!("a schema for each item is not known here"),
                ("items" | "additionalProperties", schema) => vocabulary(schema, keywords, patterns),
                ("pattern", Value::String(pattern)) => drop(patterns.insert(pattern.clone())),
                _ => {}
            }
        }
    }

    #[test]
    fn every_keyword_and_pattern_of_the_schema_is_known() {
        let (mut keywords, mut patterns) = Default::default();
        vocabulary(
            &serde_json::from_str(schema::CLOUD_CONFIG).unwrap(),
            &mut keywords,
            &mut patterns,
        );
        let known = "$defs $ref $schema additionalProperties allOf anyOf enum items maxItems minItems minProperties minimum oneOf \
            pattern patternProperties properties required type uniqueItems";
        let unknown: Vec<_> = keywords
            .iter()
            .filter(|keyword| !known.split(' ').any(|known| known == *keyword))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        for pattern in patterns {
            regex::Regex::new(&pattern).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Modules with a mistake, and the start of its problem.
    const BAD: &str = r#"
{"runcdm": ["a"]} | .runcdm: is not known to cloud-init 25.1
{"runcmd": "a"} | .runcmd: is not of type array
{"runcmd": [1]} | .runcmd[0]: is not of type array, string or null
{"runcmd": [["a", 1]]} | .runcmd[0][1]: is not of type string
{"ntp": {"servers": [1]}} | .ntp.servers[0]: is not of type string
{"ntp": {"server": []}} | .ntp.server: is not known to cloud-init 25.1
{"timezone": 1} | .timezone: is not of type string
{"packages": [["a", "b", "c"]]} | .packages[0]: has more items than 2
{"users": [{"name": 1}]} | .users[0].name: is not of type string
{"users": [{"uid": 1}]} | .users[0].name: is missing
{"apt": {"sources": {"a": {"sorce": "b"}}}} | .apt.sources.a.sorce: is not known to cloud-init 25.1
{"power_state": {"mode": "off"}} | .power_state.mode: is none of
{"power_state": {}} | .power_state.mode: is missing
{"mounts": [[]]} | .mounts[0]: has fewer items than 1
{"yum_repos": {"a": {"enabled": true}}} | .yum_repos.a
{"write_files": [{"content": "a"}]} | .write_files[0].path: is missing
{"growpart": {"mode": "on"}} | .growpart.mode: is none of
{"ssh_keys": {"dsa_private": "a"}} | .ssh_keys.dsa_private
{"swap": {"size": "big"}} | .swap.size
{"ntp": {"servers": ["a", "a"]}} | .ntp.servers: contains an item twice
{"ca_certs": {}} | .ca_certs: has fewer entries than 1
{"reporting": {"a": {"type": "webhook", "endpoint": "b", "retries": -1}}} | .reporting.a.retries: is below 0
"#;

    #[test]
    fn modules_are_validated_as_cloud_init_does() {
        let good = [
            json!({"runcmd": ["a", ["b", "c"], null], "bootcmd": [["a"]], "timezone": "UTC"}),
            json!({"ntp": {"enabled": true, "servers": ["a.example"], "pools": []}}),
            json!({"package_update": true, "packages": ["a", ["b", "1.0"], {"apt": ["c"]}]}),
            json!({"users": ["default", {"name": "a", "groups": "b, c", "sudo": ["ALL=(ALL) ALL"]}]}),
            json!({"apt": {"sources": {"a.list": {"source": "deb http://a b c", "keyid": "1"}}}}),
            json!({"yum_repos": {"a": {"baseurl": "http://a", "enabled": true, "gpgcheck": 1}}}),
            json!({"mounts": [["a", "/b", "ext4", "defaults", "0", "2"]], "swap": {"filename": "/a", "size": "auto"}}),
            json!({"ca_certs": {"trusted": ["a"]}, "power_state": {"mode": "reboot", "delay": 5}}),
            json!({"hostname": "a", "fqdn": "a.b", "manage_etc_hosts": "localhost", "preserve_hostname": false}),
            json!({"write_files": [{"path": "/a", "content": "b", "permissions": "0644"}]}),
            json!({"ssh_authorized_keys": ["ssh-ed25519 AAAA a"], "ssh_pwauth": false, "disable_root": true}),
            json!({"growpart": {"mode": "auto", "devices": ["/"]}, "resize_rootfs": "noblock"}),
            json!({"fs_setup": [{"label": "a", "filesystem": "ext4", "device": "/dev/a", "partition": "auto"}]}),
            json!({"rsyslog": {"remotes": {"a": "10.0.0.1"}}, "final_message": "done", "locale": "C.UTF-8"}),
        ];
        let bad = BAD.trim().lines().map(|row| row.split_once(" | ").unwrap());
        let bad: Vec<(Value, &str)> = bad
            .map(|(modules, expected)| (serde_json::from_str(modules).unwrap(), expected))
            .collect();
        for modules in &good {
            assert_eq!(problems(modules), [""; 0], "{modules}");
        }
        for (modules, expected) in &bad {
            let found = problems(modules);
            let mut all = found.iter();
            assert!(
                all.any(|problem| problem.starts_with(expected)),
                "{expected}: {found:#?}"
            );
        }

        // cloud-init itself finds the same, in each document.
        let bad = bad.iter().map(|(modules, _)| ("bad", modules));
        let all = good.iter().map(|modules| ("good", modules)).chain(bad);
        let texts: Vec<(String, String)> = all
            .map(|(kind, modules)| (format!("{kind} {modules}"), format!("#cloud-config\n{modules}\n")))
            .collect();
        let documents: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (&**name, &**text)).collect();
        let complaints = cloud_config(&documents).unwrap_err();
        let ours = complaints
            .iter()
            .filter(|complaint| complaint.to_string().contains("25.1"));
        let complained: BTreeSet<&str> = ours.map(|complaint| &*complaint.document).collect();
        let names = documents.iter().map(|(name, _)| *name);
        let refused: BTreeSet<&str> = names.filter(|name| name.starts_with("bad")).collect();
        assert_eq!(complained, refused, "{complaints}");
    }

    /// The table of `osm-apply` against cloud-init's schema, which says which module a key belongs to, and
    /// its loader.
    #[test]
    fn osm_apply_runs_a_module_for_every_key_that_has_one() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../osm-user-data/src/osm-apply.py");
        let print = format!(
            "import json, runpy; all = runpy.run_path('{script}'); print(json.dumps([all['MODULES'], all['OURS']]))"
        );
        let mut python = std::process::Command::new("/usr/bin/python3");
        let output = python.args(["-B", "-c", &print]).output().unwrap();
        let (mut table, ours): (BTreeMap<String, String>, Vec<String>) =
            serde_json::from_slice(&output.stdout).unwrap();

        let schema: Value = serde_json::from_str(schema::CLOUD_CONFIG).unwrap();
        let definitions = schema["$defs"].as_object().unwrap();
        let mut owners: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (owner, rules) in [("", &schema)]
            .into_iter()
            .chain(definitions.iter().map(|(name, rules)| (&**name, rules)))
        {
            let mut left = vec![rules];
            while let Some(rules) = left.pop() {
                let keys = rules["properties"].as_object().into_iter().flatten();
                // Definitions of something else than modules are parts of values.
                if owner.is_empty() || owner.starts_with("cc_") {
                    let module = owner.trim_start_matches("cc_");
                    keys.for_each(|(key, _)| owners.entry(key).or_default().extend([module]));
                }
                let parts = ["allOf", "anyOf", "oneOf"].map(|name| rules[name].as_array());
                left.extend(parts.into_iter().flatten().flatten());
            }
        }
        assert!(owners.len() > 90, "{owners:?}");
        let mut modules = BTreeSet::new();
        for (key, owners) in owners {
            let module = table.remove(key).unwrap_or_else(|| key.replace('-', "_"));
            let is_owned = match &*module {
                // cloud-init has read the data of its vendor by then, and its module would run their scripts
                // again.
                "skipped" => owners.len() == 1 || key == "vendor_data",
                "refused" => key == "power_state",
                // The schema has the name that the module got in 24.1, and 22.4 has only this one.
                "ubuntu_advantage" => owners.contains("ubuntu_pro"),
                module => owners.contains(module) || ours.iter().any(|own| own == key),
            };
            assert!(is_owned, "{key}: {module} instead of {owners:?}");
            modules.insert(module);
        }
        assert!(table.is_empty(), "cloud-init has no such keys: {table:?}");
        let modules: Vec<&str> = modules.iter().map(String::as_str).collect();
        let expected = ["refused", "skipped"].repeat(2);
        assert_eq!(cloud_init_modules_missing(&modules).unwrap(), expected);
    }

    #[test]
    fn a_problem_has_its_stage_and_sample() {
        let validate = |bootstrap: Value, provisioning: Value| {
            let spec = serde_json::from_value(json!({
                "osName": "ubuntu", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
                "provisioningUtility": "cloud-init", "supportedCloudProviders": [{"name": "aws"}],
                "bootstrapConfig": {"modules": bootstrap}, "provisioningConfig": {"modules": provisioning},
            }))
            .unwrap();
            crate::validate::dry_run(&crate::compile(&crate::resolve(&spec).unwrap()).unwrap())
        };
        let provisioning = json!({"ntp": {"servers": ["a"]}, "resolv_conf": {"domain": "{{cluster.dnsDomain}}", "nameserver": "a"}});
        let refusal = validate(json!({"runcdm": ["a"]}), provisioning).unwrap_err();
        assert_eq!(refusal.reason, Reason::ModulesInvalid);
        assert_eq!(
            refusal.message,
            "bootstrapConfig.modules.runcdm: is not known to cloud-init 25.1; \
             provisioningConfig.modules.resolv_conf.nameserver: is not known to cloud-init 25.1; \
             found with the sample pool aws, kubelet 1.33.0, IPv4, default settings"
        );
    }
}
