//! A profile on the profile that it extends.
use osm_api::profile::{AcceptedProfile, OperatingSystemProfileSpec};
use osm_render::{Base, ProfileError, ProfileKey, compile, dry_run, resolve, resolve_on};
use serde_json::{Value, json};

use crate::common::{default_spec, table};

fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "permissions": 644, "content": {"inline": {"data": text}}})
}

/// The profile that the others extend.
fn base() -> Value {
    json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.3.2", "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
        "bootstrapConfig": {"files": [file("/opt/bin/bootstrap", "#!/bin/sh\n")]},
        "provisioningConfig": {
            "supportedContainerRuntimes": [{
                "name": "containerd",
                "files": [file("/etc/containerd/config.toml", "{{> auth}}")],
                "templates": {"auth": "auth of {{pool.name}}\n"},
            }],
            "templates": {"motd": "kubelet {{kubelet.version}}\n"},
            "files": [file("/etc/a", "a"), file("/etc/motd", "{{> motd}}"), file("/etc/z", "z")],
            "units": [
                {"name": "setup.service", "content": "[Service]\nExecStart=/a\n", "dropIns": [{"name": "10.conf", "content": "[Unit]\n"}]},
                {"name": "ufw.service", "mask": true},
            ],
            "modules": {
                "timezone": "UTC", "runcmd": ["base"], "ntp": {"enabled": true, "servers": ["ntp.base"]},
            },
        },
    })
}

/// A profile with this provisioning stage that extends the base.
fn on_base(provisioning: Value) -> Value {
    json!({
        "extends": "base", "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}], "provisioningConfig": provisioning,
    })
}

fn spec(value: &Value) -> OperatingSystemProfileSpec {
    serde_json::from_value(value.clone()).unwrap()
}

fn stored(name: &str, value: &Value) -> Base {
    let key = ProfileKey {
        namespace: "kube-system".to_owned(),
        name: name.to_owned(),
    };
    Base {
        key,
        spec: spec(value),
    }
}

fn on(extension: &Value, base: &Value) -> Result<AcceptedProfile, ProfileError> {
    resolve_on(&spec(extension), &[stored("base", base)])
}

/// The provisioning stage of the resolved profile.
fn resolved(provisioning: Value) -> Value {
    let accepted =
        on(&on_base(provisioning.clone()), &base()).unwrap_or_else(|error| panic!("{provisioning}: {error}"));
    dry_run(&compile(&accepted).unwrap()).unwrap_or_else(|error| panic!("{provisioning}: {error}"));
    serde_json::to_value(&accepted.spec.0.provisioning_config).unwrap()
}

/// The base's provisioning stage with a change. Files and templates of its container runtime are those of the
/// stage.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut provisioning = base()["provisioningConfig"].clone();
    let fields = provisioning.as_object_mut().unwrap();
    let runtime = fields.remove("supportedContainerRuntimes").unwrap()[0].take();
    push(&mut provisioning["files"], runtime["files"][0].clone());
    provisioning["templates"]["auth"] = runtime["templates"]["auth"].clone();
    change(&mut provisioning);
    provisioning
}

fn push(list: &mut Value, item: Value) {
    list.as_array_mut().unwrap().push(item);
}

#[test]
fn an_empty_extension_is_its_base_with_its_own_version() {
    let accepted = on(&on_base(json!({})), &base()).unwrap();
    let alone = resolve(&spec(&base())).unwrap();
    let mut expected = alone.spec.0.clone();
    expected.version = "v1.0.0".to_owned();
    expected.supported_cloud_providers.truncate(1);
    expected.provisioning_config = serde_json::from_value(changed(|_| ())).unwrap();
    assert_eq!(accepted.spec.0, expected);
    assert_eq!(accepted.version, "v1.0.0 on base v1.3.2");
    let [recorded] = accepted.parents.as_slice() else {
        panic!("{:?}", accepted.parents)
    };
    let named = [&recorded.namespace, &recorded.name, &recorded.version];
    assert_eq!(named, ["kube-system", "base", "v1.3.2"]);
    assert_eq!(recorded.digest.len(), 64);
    assert_eq!((alone.version.as_str(), alone.parents), ("v1.3.2", vec![]));
}

/// Provisioning stages of an extension, and what they change in the base's: values by place, where `-` is
/// behind the last one, and null stands for nothing.
const CHANGES: &str = r#"
{"files": [{"path": "/b", "content": {"inline": {"data": "b"}}}]} | {"/files/-": {"path": "/b", "permissions": 644, "content": {"inline": {"data": "b"}}}}
{"files": [{"path": "/etc/a", "replace": true, "content": {"inline": {"data": "b"}}}]} | {"/files/0/content/inline/data": "b"}
{"files": [{"path": "/etc/containerd/config.toml", "replace": true, "content": {"inline": {"data": "b"}}}]} | {"/files/3/content/inline/data": "b"}
{"files": [{"path": "/etc/motd", "remove": true}]} | {"/files/1": null}
{"supportedContainerRuntimes": [{"name": "containerd", "files": [{"path": "/etc/a", "replace": true, "content": {"inline": {"data": "b"}}}]}]} | {"/files/0/content/inline/data": "b"}
{"units": [{"name": "x.service", "enable": true}]} | {"/units/-": {"name": "x.service", "enable": true}}
{"units": [{"name": "ufw.service", "enable": true, "replace": true}]} | {"/units/1": {"name": "ufw.service", "enable": true}}
{"units": [{"name": "ufw.service", "remove": true}]} | {"/units/1": null}
{"units": [{"name": "setup.service", "dropIns": [{"name": "20.conf", "content": "[Service]\n"}]}]} | {"/units/0/dropIns/-": {"name": "20.conf", "content": "[Service]\n"}}
{"templates": {"b": "b"}} | {"/templates/b": "b"}
{"replaceTemplates": {"motd": "mine", "auth": "mine"}} | {"/templates/motd": "mine", "/templates/auth": "mine"}
{"removeTemplates": ["motd"], "files": [{"path": "/etc/motd", "remove": true}]} | {"/templates/motd": null, "/files/1": null}
{"modules": {"runcmd": ["own"], "ntp": {"servers": ["own"]}, "locale": "C", "timezone": "UTC"}} | {"/modules/runcmd/-": "own", "/modules/ntp/servers/-": "own", "/modules/locale": "C"}
{"removeModules": ["ntp", "timezone"], "modules": {"timezone": "CET"}} | {"/modules/ntp": null, "/modules/timezone": "CET"}
"#;

/// Puts a value into a place of a tree.
fn put(tree: &mut Value, place: &str, value: &Value) {
    let (above, key) = place.rsplit_once('/').unwrap();
    match tree.pointer_mut(above).unwrap() {
        Value::Array(items) if key == "-" => items.push(value.clone()),
        Value::Array(items) if value.is_null() => drop(items.remove(key.parse().unwrap())),
        Value::Object(fields) if value.is_null() => drop(fields.remove(key)),
        Value::Object(fields) => drop(fields.insert(key.to_owned(), value.clone())),
        items => items[key.parse::<usize>().unwrap()] = value.clone(),
    }
}

#[test]
fn an_extension_adds_replaces_and_removes() {
    for [extension, changes] in table(CHANGES, " | ") {
        let changes: Value = serde_json::from_str(changes).unwrap();
        let expected = changed(|stage| {
            for (place, value) in changes.as_object().unwrap() {
                put(stage, place, value);
            }
        });
        let found = resolved(serde_json::from_str(extension).unwrap());
        assert_eq!(found, expected, "{extension}");
    }
}

/// A field of an extension, its value, what is wrong, and what to do.
const MISTAKES: &str = r#"
provisioningConfig | {"files": [{"path": "/etc/motd", "content": {"inline": {"data": ""}}}]} | spec.provisioningConfig.files[0] (/etc/motd): base has this file as well | set replace: true
provisioningConfig | {"files": [{"path": "/etc/containerd/config.toml", "content": {"inline": {"data": ""}}}]} | (/etc/containerd/config.toml): base has this file | replace: true
provisioningConfig | {"files": [{"path": "/etc/mtod", "replace": true, "content": {"inline": {"data": ""}}}]} | spec.provisioningConfig.files[0] (/etc/mtod): base has no such file | correct the name
provisioningConfig | {"files": [{"path": "/etc/motd", "remove": true, "replace": true}]} | (/etc/motd) | set one of them
bootstrapConfig | {"units": [{"name": "a.service", "remove": true}]} | spec.bootstrapConfig.units[0] (a.service): base has no such unit | correct the name
provisioningConfig | {"units": [{"name": "ufw.service", "enable": true}]} | spec.provisioningConfig.units[0] (ufw.service): base has this unit | replace: true
provisioningConfig | {"units": [{"name": "setup.service", "dropIns": [{"name": "10.conf", "content": "x"}]}]} | units[0] (setup.service).dropIns (10.conf) | another name
provisioningConfig | {"templates": {"motd": "mine"}} | spec.provisioningConfig.templates.motd: base has this template | under replaceTemplates
provisioningConfig | {"templates": {"auth": "mine"}} | templates.auth | under replaceTemplates
provisioningConfig | {"replaceTemplates": {"mtd": "mine"}} | replaceTemplates.mtd: base has no such template | correct the name
provisioningConfig | {"replaceTemplates": {"lib/proxy.env": "x"}} | base has no such template | correct the name
provisioningConfig | {"removeTemplates": ["x"]} | removeTemplates[0] | base has no such template
provisioningConfig | {"removeTemplates": ["motd"], "templates": {"motd": "mine"}} | spec.provisioningConfig.templates: motd is listed more than once | list it once
provisioningConfig | {"modules": {"timezone": "CET"}} | spec.provisioningConfig.modules.timezone | list timezone in removeModules
provisioningConfig | {"modules": {"ntp": {"enabled": false}}} | spec.provisioningConfig.modules.ntp.enabled | list ntp in removeModules
provisioningConfig | {"modules": {"runcmd": {"a": "b"}}} | spec.provisioningConfig.modules.runcmd | list runcmd in removeModules
provisioningConfig | {"modules": {"ntp": null}} | spec.provisioningConfig.modules.ntp | list ntp in removeModules
provisioningConfig | {"removeModules": ["npt"]} | removeModules[0] (npt): base has no such module | correct the name
osName | "rhel" | spec.osName: must be ubuntu | as in the parent profile base
supportedCloudProviders | [{"name": "aws"}, {"name": "azure"}] | spec.supportedCloudProviders: azure is not supported by base, which supports aws, openstack | remove it
templateEngine | "GoTemplate" | spec.templateEngine: must be Handlebars | as in the parent profile base
"#;

#[test]
fn what_both_set_or_the_base_does_not_have_is_refused_with_what_to_do() {
    for [field, value, text, remedy] in table(MISTAKES, " | ") {
        let mut extension = on_base(json!({}));
        extension[field] = serde_json::from_str(value).unwrap();
        let error = on(&extension, &base()).expect_err(text);
        assert_eq!(error.reason(), "ExtendsInvalid", "{error}");
        let message = error.to_string();
        assert!(
            message.contains(text) && message.contains(remedy),
            "{text}: {message}"
        );
    }
}

/// Stages that need a base, and what is said of them where there is none.
const MARKS: &str = r#"
{"files": [{"path": "/a", "replace": true, "content": {"inline": {"data": ""}}}]} | files[0] (/a): replaces or removes
{"files": [{"path": "/a", "remove": true}]} | files[0] (/a): replaces or removes
{"units": [{"name": "a.service", "remove": true}]} | units[0] (a.service): replaces or removes
{"supportedContainerRuntimes": [{"name": "containerd", "files": [{"path": "/a", "remove": true}]}]} | supportedContainerRuntimes[containerd].files[0] (/a): replaces
{"replaceTemplates": {"a": "b"}} | replaceTemplates: replaces or removes
{"removeTemplates": ["a"]} | removeTemplates: replaces or removes
{"removeModules": ["a"]} | removeModules: replaces or removes
{"removeSysctls": ["a"]} | removeSysctls: replaces or removes
"#;

/// Stages that contradict themselves, or what the base has, and what is said where their author wrote it.
const CONTRADICTIONS: &str = r#"
{"files": [{"path": "/etc/motd", "remove": true, "content": {"inline": {"data": ""}}}]} | a removed file has no content
{"files": [{"path": "/etc/motd", "replace": true}]} | content.inline is missing
{"files": [{"path": "/etc/b", "permissions": 999, "content": {"inline": {"data": ""}}}]} | spec.provisioningConfig.files[0] (/etc/b): permissions
{"files": [{"path": "/etc/motd/x", "content": {"inline": {"data": ""}}}]} | below a path that is itself a file
{"files": [{"path": "/etc/systemd/system/setup.service", "content": {"inline": {"data": ""}}}]} | written more than once
{"units": [{"name": "ufw.service", "remove": true, "mask": true}]} | a removed unit has only its name
{"files": [{"path": "/etc/motd", "remove": true}, {"path": "/etc/motd", "content": {"inline": {"data": ""}}}]} | spec.provisioningConfig.files[1] (/etc/motd): is listed more than once
"#;

/// Rows of a table of stages.
fn stages(rows: &'static str) -> impl Iterator<Item = (Value, &'static str)> {
    table(rows, " | ").map(|[stage, text]| (serde_json::from_str(stage).unwrap(), text))
}

#[test]
fn marks_without_a_base_and_contradictions_are_refused() {
    for (stage, text) in stages(MARKS) {
        let mut alone = on_base(stage);
        alone.as_object_mut().unwrap().remove("extends");
        let error = resolve(&spec(&alone)).expect_err(text).to_string();
        assert!(
            error.contains(text) && error.contains("set spec.extends"),
            "{text}: {error}"
        );
        // The same mistake in a base names the base.
        let error = on(&on_base(json!({})), &alone).expect_err(text).to_string();
        let start = "in base, which the profile extends: ";
        assert!(error.starts_with(start), "{error}");
    }
    for (stage, text) in stages(CONTRADICTIONS) {
        let error = on(&on_base(stage), &base()).expect_err(text).to_string();
        assert!(
            error.contains(text) && !error.starts_with("in base"),
            "{text}: {error}"
        );
    }
    // What is removed makes room for a folder.
    resolved(json!({"files": [{"path": "/etc/a", "remove": true}, file("/etc/a/b", "b")]}));
}

#[test]
fn a_profile_of_the_library_is_no_part_of_the_version() {
    let spec = default_spec("osp-rhel");
    let accepted = resolve(&spec).unwrap();
    assert_eq!((accepted.version, accepted.parents), (spec.version, vec![]));
    assert_eq!(accepted.library_version, Some(osm_render::library_version()));
}

#[test]
fn mistakes_of_the_whole_are_found() {
    let refused = |stage: Value, base: &Value| on(&on_base(stage), base).unwrap_err();
    let mut wrong = file("/etc/b", "b");
    wrong["permissions"] = json!(999);
    let with_file = |file: Value| {
        let mut base = base();
        push(&mut base["provisioningConfig"]["files"], file);
        base
    };
    let error = refused(json!({}), &with_file(wrong)).to_string();
    let place = "in base, which the profile extends: spec.provisioningConfig.files[3] (/etc/b): permissions";
    assert!(error.starts_with(place), "{error}");
    // Each is small enough, but not both.
    let large = "x".repeat(300 * 1024);
    let larger = json!({"files": [file("/etc/larger", &large)]});
    let error = refused(larger, &with_file(file("/etc/large", &large)));
    assert_eq!(error.reason(), "ContentTooLarge");
    // A profile that is resolved without its base.
    let error = resolve(&spec(&on_base(json!({})))).unwrap_err();
    assert_eq!(error.reason(), "ParentNotFound");
    assert!(error.to_string().contains("\"base\""), "{error}");
}

#[test]
fn a_chain_says_all_versions_and_which_base_is_wrong() {
    let mut middle = on_base(json!({"files": [file("/etc/b", "b")]}));
    middle["version"] = json!("v2.0.0");
    let removed = ["/etc/b", "/etc/a"].map(|path| json!({"path": path, "remove": true}));
    let mut top = on_base(json!({"files": removed}));
    top["extends"] = json!("middle");
    let resolved =
        |middle: &Value| resolve_on(&spec(&top), &[stored("middle", middle), stored("base", &base())]);
    let accepted = resolved(&middle).unwrap();
    assert_eq!(accepted.version, "v1.0.0 on middle v2.0.0 on base v1.3.2");
    assert!(
        accepted
            .parents
            .iter()
            .map(|base| &*base.name)
            .eq(["middle", "base"])
    );
    let files = &accepted.spec.0.provisioning_config.files;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["/etc/motd", "/etc/z", "/etc/containerd/config.toml"]);

    middle["provisioningConfig"]["files"][0]["path"] = json!("/etc/a");
    assert_eq!(
        resolved(&middle).unwrap_err().to_string(),
        "in middle, which the profile extends: spec.provisioningConfig.files[0] (/etc/a): base has this file as well; \
         to replace it, set replace: true"
    );
}
