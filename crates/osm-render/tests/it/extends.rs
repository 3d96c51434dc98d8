//! A profile on the profile that it extends.
use osm_api::profile::{AcceptedProfile, OperatingSystemProfileSpec};
use osm_render::{Base, ProfileError, ProfileKey, bases, compile, dry_run, resolve, resolve_on};
use serde_json::{Value, json};

fn file(path: &str, text: &str) -> Value {
    json!({"path": path, "permissions": 644, "content": {"inline": {"data": text}}})
}

fn replaced(mut item: Value) -> Value {
    item["replace"] = json!(true);
    item
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

/// The base's provisioning stage with a change. Files and templates of its container runtime are those of the stage.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut provisioning = base()["provisioningConfig"].clone();
    let runtimes = provisioning
        .as_object_mut()
        .unwrap()
        .remove("supportedContainerRuntimes");
    let runtime = &runtimes.unwrap()[0];
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
    let [recorded] = accepted.bases.as_slice() else {
        panic!("{:?}", accepted.bases)
    };
    assert_eq!(
        (
            recorded.namespace.as_str(),
            recorded.name.as_str(),
            recorded.version.as_str()
        ),
        ("kube-system", "base", "v1.3.2")
    );
    assert_eq!(recorded.digest.len(), 64);
    assert_eq!((alone.version.as_str(), alone.bases), ("v1.3.2", vec![]));
}

#[test]
fn an_extension_adds_replaces_and_removes() {
    let motd = file("/etc/motd", "mine");
    let cases: Vec<(Value, Value)> = vec![
        (
            json!({"files": [file("/etc/b", "b")]}),
            changed(|p| push(&mut p["files"], file("/etc/b", "b"))),
        ),
        // In its place, so that the order of the base stays.
        (
            json!({"files": [replaced(motd.clone())]}),
            changed(|p| p["files"][1] = motd.clone()),
        ),
        (
            json!({"files": [{"path": "/etc/motd", "remove": true}]}),
            changed(|p| drop(p["files"].as_array_mut().unwrap().remove(1))),
        ),
        // Wherever the base has it.
        (
            json!({"files": [replaced(file("/etc/containerd/config.toml", "x"))]}),
            changed(|p| p["files"][3] = file("/etc/containerd/config.toml", "x")),
        ),
        (
            json!({"supportedContainerRuntimes": [{"name": "containerd", "files": [file("/etc/b", "b"), replaced(motd.clone())]}]}),
            changed(|p| {
                push(&mut p["files"], file("/etc/b", "b"));
                p["files"][1] = motd.clone();
            }),
        ),
        (
            json!({"units": [{"name": "x.service", "enable": true}]}),
            changed(|p| push(&mut p["units"], json!({"name": "x.service", "enable": true}))),
        ),
        (
            json!({"units": [{"name": "ufw.service", "enable": true, "replace": true}]}),
            changed(|p| p["units"][1] = json!({"name": "ufw.service", "enable": true})),
        ),
        (
            json!({"units": [{"name": "ufw.service", "remove": true}]}),
            changed(|p| drop(p["units"].as_array_mut().unwrap().pop())),
        ),
        // Drop-ins alone change nothing of the unit.
        (
            json!({"units": [{"name": "setup.service", "dropIns": [{"name": "20.conf", "content": "[Service]\n"}]}]}),
            changed(|p| {
                push(
                    &mut p["units"][0]["dropIns"],
                    json!({"name": "20.conf", "content": "[Service]\n"}),
                )
            }),
        ),
        (
            json!({"templates": {"b": "b"}}),
            changed(|p| p["templates"]["b"] = json!("b")),
        ),
        (
            json!({"replaceTemplates": {"motd": "mine"}}),
            changed(|p| p["templates"]["motd"] = json!("mine")),
        ),
        (
            json!({"replaceTemplates": {"auth": "mine"}}),
            changed(|p| p["templates"]["auth"] = json!("mine")),
        ),
        (
            json!({"removeTemplates": ["motd"], "files": [replaced(motd.clone())]}),
            changed(|p| {
                p["templates"].as_object_mut().unwrap().remove("motd");
                p["files"][1] = motd.clone();
            }),
        ),
        (
            json!({"modules": {"runcmd": ["own"], "ntp": {"servers": ["ntp.own"]}, "locale": "C.UTF-8", "timezone": "UTC"}}),
            changed(|p| {
                p["modules"] = json!({"timezone": "UTC", "runcmd": ["base", "own"], "locale": "C.UTF-8",
                    "ntp": {"enabled": true, "servers": ["ntp.base", "ntp.own"]}});
            }),
        ),
        (
            json!({"removeModules": ["ntp", "timezone"], "modules": {"timezone": "Europe/Berlin"}}),
            changed(|p| p["modules"] = json!({"timezone": "Europe/Berlin", "runcmd": ["base"]})),
        ),
    ];
    for (extension, expected) in cases {
        assert_eq!(resolved(extension.clone()), expected, "{extension}");
    }
}

#[test]
fn what_both_set_or_the_base_does_not_have_is_refused_with_what_to_do() {
    let in_provisioning = |value: Value| move |spec: &mut Value| spec["provisioningConfig"] = value;
    type Change = Box<dyn FnOnce(&mut Value)>;
    let cases: Vec<(Change, &str, &str)> = vec![
        (
            Box::new(in_provisioning(json!({"files": [file("/etc/motd", "mine")]}))),
            "spec.provisioningConfig.files[0] (/etc/motd): base has this file as well",
            "set replace: true",
        ),
        (
            Box::new(in_provisioning(
                json!({"files": [file("/etc/containerd/config.toml", "mine")]}),
            )),
            "(/etc/containerd/config.toml): base has this file",
            "replace: true",
        ),
        (
            Box::new(in_provisioning(
                json!({"files": [replaced(file("/etc/mtod", "mine"))]}),
            )),
            "spec.provisioningConfig.files[0] (/etc/mtod): base has no such file",
            "correct the name",
        ),
        (
            Box::new(|spec| {
                spec["bootstrapConfig"] = json!({"units": [{"name": "a.service", "remove": true}]})
            }),
            "spec.bootstrapConfig.units[0] (a.service): base has no such unit",
            "correct the name",
        ),
        (
            Box::new(in_provisioning(
                json!({"files": [{"path": "/etc/motd", "remove": true, "replace": true}]}),
            )),
            "(/etc/motd)",
            "set one of them",
        ),
        (
            Box::new(in_provisioning(
                json!({"units": [{"name": "ufw.service", "enable": true}]}),
            )),
            "spec.provisioningConfig.units[0] (ufw.service): base has this unit",
            "replace: true",
        ),
        (
            Box::new(in_provisioning(
                json!({"units": [{"name": "setup.service", "dropIns": [{"name": "10.conf", "content": "x"}]}]}),
            )),
            "units[0] (setup.service).dropIns (10.conf)",
            "another name",
        ),
        (
            Box::new(in_provisioning(json!({"templates": {"motd": "mine"}}))),
            "spec.provisioningConfig.templates.motd: base has this template",
            "under replaceTemplates",
        ),
        (
            Box::new(in_provisioning(json!({"templates": {"auth": "mine"}}))),
            "templates.auth",
            "under replaceTemplates",
        ),
        (
            Box::new(in_provisioning(json!({"replaceTemplates": {"mtd": "mine"}}))),
            "replaceTemplates.mtd: base has no such template",
            "correct the name",
        ),
        (
            Box::new(in_provisioning(json!({"removeTemplates": ["x"]}))),
            "removeTemplates[0]",
            "base has no such template",
        ),
        (
            Box::new(in_provisioning(
                json!({"removeTemplates": ["motd"], "templates": {"motd": "mine"}}),
            )),
            "spec.provisioningConfig.templates: motd is listed more than once",
            "list it once",
        ),
        (
            Box::new(in_provisioning(json!({"modules": {"timezone": "CET"}}))),
            "spec.provisioningConfig.modules.timezone",
            "list timezone in removeModules",
        ),
        (
            Box::new(in_provisioning(json!({"modules": {"ntp": {"enabled": false}}}))),
            "spec.provisioningConfig.modules.ntp.enabled",
            "list ntp in removeModules",
        ),
        (
            Box::new(in_provisioning(json!({"removeModules": ["npt"]}))),
            "removeModules[0] (npt): base has no such module",
            "correct the name",
        ),
        (
            Box::new(|spec| spec["osName"] = json!("rhel")),
            "spec.osName: must be ubuntu",
            "as in the parent profile base",
        ),
        (
            Box::new(|spec| spec["supportedCloudProviders"] = json!([{"name": "aws"}, {"name": "azure"}])),
            "spec.supportedCloudProviders: azure is not supported by base, which supports aws, openstack",
            "remove it",
        ),
        (
            Box::new(|spec| spec["templateEngine"] = json!("GoTemplate")),
            "spec.templateEngine: must be Handlebars",
            "as in the parent profile base",
        ),
    ];
    for (change, text, remedy) in cases {
        let mut extension = on_base(json!({}));
        change(&mut extension);
        let error = on(&extension, &base()).expect_err(text);
        let message = error.to_string();
        assert_eq!(error.reason(), "ExtendsInvalid", "{message}");
        assert!(
            message.contains(text) && message.contains(remedy),
            "{text}, {remedy}: {message}"
        );
    }
}

#[test]
fn marks_without_a_base_and_contents_of_what_is_removed_are_refused() {
    for (provisioning, text) in [
        (
            json!({"files": [replaced(file("/a", "a"))]}),
            "files[0] (/a): replaces or removes",
        ),
        (
            json!({"files": [{"path": "/a", "remove": true}]}),
            "files[0] (/a): replaces or removes",
        ),
        (
            json!({"units": [{"name": "a.service", "remove": true}]}),
            "units[0] (a.service): replaces or removes",
        ),
        (
            json!({"supportedContainerRuntimes": [{"name": "containerd", "files": [{"path": "/a", "remove": true}]}]}),
            "supportedContainerRuntimes[containerd].files[0] (/a): replaces",
        ),
        (
            json!({"replaceTemplates": {"a": "b"}}),
            "replaceTemplates: replaces or removes",
        ),
        (
            json!({"removeTemplates": ["a"]}),
            "removeTemplates: replaces or removes",
        ),
        (
            json!({"removeModules": ["a"]}),
            "removeModules: replaces or removes",
        ),
        (
            json!({"removeSysctls": ["a"]}),
            "removeSysctls: replaces or removes",
        ),
    ] {
        let mut alone = on_base(provisioning);
        alone.as_object_mut().unwrap().remove("extends");
        let error = resolve(&spec(&alone)).expect_err(text);
        assert!(
            error.to_string().contains(text) && error.to_string().contains("set spec.extends"),
            "{text}: {error}"
        );
        // The same mistake in a base names the base.
        let error = on(&on_base(json!({})), &alone).expect_err(text);
        assert!(
            error
                .to_string()
                .starts_with("in base, which the profile extends: "),
            "{error}"
        );
    }
    for (provisioning, text) in [
        (
            json!({"files": [{"path": "/etc/motd", "remove": true, "content": {"inline": {"data": ""}}}]}),
            "a removed file has no content",
        ),
        (
            json!({"files": [{"path": "/etc/motd", "replace": true}]}),
            "content.inline is missing",
        ),
        (
            json!({"units": [{"name": "ufw.service", "remove": true, "mask": true}]}),
            "a removed unit has only its name",
        ),
        (
            json!({"files": [{"path": "/etc/motd", "remove": true}, file("/etc/motd", "x")]}),
            "spec.provisioningConfig.files[1] (/etc/motd): is listed more than once",
        ),
    ] {
        let error = on(&on_base(provisioning), &base()).expect_err(text);
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
    // What is removed makes room for a folder.
    resolved(json!({"files": [{"path": "/etc/a", "remove": true}, file("/etc/a/b", "b")]}));
}

#[test]
fn the_library_is_applied_to_the_whole() {
    let including = json!({"files": [file("/etc/osm/proxy.env", "{{> lib/proxy.env}}")]});
    let accepted = on(&on_base(including), &base()).unwrap();
    assert_eq!(accepted.library, Some(osm_render::library_version()));
    assert!(
        accepted
            .spec
            .0
            .provisioning_config
            .templates
            .contains_key("lib/proxy.env")
    );
    let error = on(
        &on_base(json!({"replaceTemplates": {"lib/proxy.env": "x"}})),
        &base(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("base has no such template"), "{error}");
}

#[test]
fn the_profiles_of_the_rhel_family_need_no_stored_profile_and_can_be_copied() {
    let family = ["osp-rhel", "osp-rockylinux", "osp-centos", "osp-amzn2"];
    let defaults = osm_render::defaults();
    let family: Vec<_> = defaults
        .iter()
        .filter(|(name, _)| family.contains(&name.as_str()))
        .collect();
    assert_eq!(family.len(), 4);
    for (name, spec) in family {
        let accepted_as = |name: &str| {
            let key = ProfileKey {
                namespace: "kube-system".to_owned(),
                name: name.to_owned(),
            };
            // The default profiles are disabled, so none is stored.
            let bases = bases(&key, spec, |_, _| None).unwrap();
            resolve_on(spec, &bases).unwrap()
        };
        let accepted = accepted_as(name);
        assert_eq!(accepted, accepted_as("osp-copy"));
        dry_run(&compile(&accepted).unwrap()).unwrap();
        // The library has a version of its own.
        assert_eq!(accepted.version, spec.version);
        assert_eq!(accepted.library, Some(osm_render::library_version()));
        assert!(accepted.bases.is_empty());
    }
}

#[test]
fn mistakes_of_the_whole_are_found() {
    // The path is fine on its own, and lies below a file of the base.
    let error = on(&on_base(json!({"files": [file("/etc/motd/x", "")]})), &base()).unwrap_err();
    assert!(
        error.to_string().contains("below a path that is itself a file"),
        "{error}"
    );
    let unit_file = file("/etc/systemd/system/setup.service", "");
    let error = on(&on_base(json!({"files": [unit_file]})), &base()).unwrap_err();
    assert!(error.to_string().contains("written more than once"), "{error}");
    // A mistake of one of them is where its author wrote it.
    let mut wrong = file("/etc/b", "b");
    wrong["permissions"] = json!(999);
    let extension = on_base(json!({"files": [wrong.clone()]}));
    let error = on(&extension, &base()).unwrap_err().to_string();
    assert!(
        error.starts_with("spec.provisioningConfig.files[0] (/etc/b): permissions"),
        "{error}"
    );
    let mut wrong_base = base();
    push(&mut wrong_base["provisioningConfig"]["files"], wrong);
    let error = on(&on_base(json!({})), &wrong_base).unwrap_err().to_string();
    let place = "in base, which the profile extends: spec.provisioningConfig.files[3] (/etc/b): permissions";
    assert!(error.starts_with(place), "{error}");
    // Each is small enough, but not both.
    let large = "x".repeat(300 * 1024);
    let mut big_base = base();
    push(
        &mut big_base["provisioningConfig"]["files"],
        file("/etc/large", &large),
    );
    let error = on(
        &on_base(json!({"files": [file("/etc/larger", &large)]})),
        &big_base,
    )
    .unwrap_err();
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
    let mut top =
        on_base(json!({"files": [{"path": "/etc/b", "remove": true}, {"path": "/etc/a", "remove": true}]}));
    top["extends"] = json!("middle");
    let bases = [stored("middle", &middle), stored("base", &base())];
    let accepted = resolve_on(&spec(&top), &bases).unwrap();
    assert_eq!(accepted.version, "v1.0.0 on middle v2.0.0 on base v1.3.2");
    let names: Vec<&str> = accepted.bases.iter().map(|base| base.name.as_str()).collect();
    assert_eq!(names, ["middle", "base"]);
    let files = &accepted.spec.0.provisioning_config.files;
    assert_eq!(
        files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        ["/etc/motd", "/etc/z", "/etc/containerd/config.toml"]
    );

    middle["provisioningConfig"]["files"][0]["path"] = json!("/etc/a");
    let error = resolve_on(&spec(&top), &[stored("middle", &middle), stored("base", &base())]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "in middle, which the profile extends: spec.provisioningConfig.files[0] (/etc/a): base has this file as well; \
         to replace it, set replace: true"
    );
}
