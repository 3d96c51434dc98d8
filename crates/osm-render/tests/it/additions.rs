//! Commands, packages, kernel parameters and kernel modules of a profile, for each program that reads
//! documents.

use std::process::Command;

use osm_api::Settings;
use osm_api::config::StageConfig;
use osm_api::profile::{OperatingSystem, OperatingSystemProfileSpec, ProvisioningUtility, Unit};
use osm_judges::{UserData, coreos_cloud_configs, judge_user_data_batch};
use osm_render::{Base, ProfileKey, Rendered, dry_run, full_sample, resolve, resolve_on, stand_in_cluster};
use osm_user_data::{Stage, placeholders, user_data};
use serde_json::{Value, json};

use crate::common::{compiled, default_spec, pool, table};

/// A profile for a system with this provisioning stage, besides a unit and, where there are commands,
/// commands.
fn spec(os: &str, utility: &str, mut stage: Value) -> OperatingSystemProfileSpec {
    stage["units"] = json!([{"name": "setup.service", "enable": true,
        "content": "[Unit]\nDescription=x\n[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"}]);
    serde_json::from_value(json!({
        "osName": os, "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars", "provisioningUtility": utility,
        "supportedCloudProviders": [{"name": "aws"}], "provisioningConfig": stage,
    }))
    .unwrap()
}

const READERS: [(&str, &str); 3] = [
    ("ubuntu", "cloud-init"),
    ("flatcar", "cloud-init"),
    ("flatcar", "ignition"),
];

fn everything() -> Value {
    json!({
        "commands": {
            "before": ["echo \"first in {{pool.name}}\"", ["echo", "it's", "a;b"]],
            "after": ["echo last"],
        },
        "sysctls": {"vm.max_map_count": 262_144, "net.ipv4.tcp_rmem": "4096 87380 6291456", "kernel.shmmax": 68_719_476_736_i64},
        "kernelModules": ["nf_conntrack", "ip_vs"],
    })
}

/// Without an upgrade of packages, and without a judge.
fn rendered(spec: &OperatingSystemProfileSpec, settings: &str) -> Rendered {
    let cloud = spec.supported_cloud_providers[0].name;
    let (mut pool, _) = full_sample(spec, cloud).unwrap();
    pool.os.dist_upgrade_on_boot = false;
    let settings = Settings::parse(settings).unwrap();
    let rendered = compiled(spec).render(&pool, &settings, &stand_in_cluster());
    rendered.unwrap()
}

fn render(spec: &OperatingSystemProfileSpec, settings: &str) -> Rendered {
    let rendered = rendered(spec, settings);
    let text = user_data(&rendered.spec, Stage::Provisioning, &placeholders(&rendered.spec)).unwrap();
    let is_coreos = spec.os_name == OperatingSystem::Flatcar
        && spec.provisioning_utility == ProvisioningUtility::CloudInit;
    let judged = if is_coreos {
        coreos_cloud_configs(&[("provisioning", &text)])
    } else {
        judge_user_data_batch(&[UserData {
            name: "provisioning",
            text: &text,
            kubelet: None,
        }])
    };
    judged.unwrap_or_else(|error| panic!("{error}\n{text}"));
    rendered
}

/// The modules of a profile for Ubuntu with this provisioning stage.
fn modules(provisioning: Value, settings: &str) -> Value {
    let rendered = rendered(&spec("ubuntu", "cloud-init", provisioning), settings);
    rendered.spec.provisioning_config.modules.unwrap()
}

#[test]
fn a_kernel_module_of_a_package_is_loaded_after_its_installation() {
    let load = "modprobe -a nvidia; :";
    let package = "nvidia-headless-535-server";
    for (packages, runcmd) in [
        (json!([package]), json!([load, "echo own"])),
        (json!([]), json!(["echo own"])),
    ] {
        let gpu =
            json!({"packages": packages, "kernelModules": ["nvidia"], "modules": {"runcmd": ["echo own"]}});
        let found = modules(gpu, "");
        assert_eq!(found["bootcmd"], json!([load]));
        assert_eq!(found["runcmd"], runcmd);
    }
}

fn text(stage: &StageConfig, path: &str) -> Option<String> {
    let file = stage.files.iter().find(|file| file.path == path)?;
    Some(file.content.inline.clone()?.data)
}

#[test]
fn each_reader_gets_what_it_understands() {
    for (os, utility) in READERS {
        let mut provisioning = everything();
        if os == "ubuntu" {
            provisioning["modules"] = json!({"bootcmd": ["own first"], "runcmd": ["own last"]});
        }
        let rendered = render(&spec(os, utility, provisioning), OF_SETTINGS);
        let rendered = rendered.spec.provisioning_config;
        assert_eq!(
            text(&rendered, "/etc/sysctl.d/99-zz-osm-profile.conf").unwrap(),
            "kernel.shmmax = 68719476736\nnet.ipv4.tcp_rmem = 4096 87380 6291456\nvm.max_map_count = 262144\n"
        );
        let loaded = text(&rendered, "/etc/modules-load.d/osm-profile.conf");
        assert_eq!(loaded.unwrap(), "nf_conntrack\nip_vs\n");
        let units: Vec<&str> = rendered.units.iter().map(|unit| unit.name.as_str()).collect();
        let apply = "modprobe -a nf_conntrack ip_vs; sysctl -q -e -p /etc/sysctl.d/99-zz-osm-profile.conf; :";
        let before = "osm-commands-before.service";
        match (os, utility) {
            ("ubuntu", _) => {
                assert_eq!(units, ["setup.service"]);
                let own = ["echo", "it's", "a;b"];
                let of_settings = format!("status=$?; {APPLY_SETTINGS}; (exit $status)");
                let expected = json!({
                    "bootcmd": ["echo \"first in sample\"", own, apply, "own first", of_settings],
                    "runcmd": ["own last", "echo last"],
                });
                assert_eq!(rendered.modules, Some(expected));
            }
            (_, "cloud-init") => {
                let kernel = ["osm-profile-kernel.service", "osm-settings-kernel.service"];
                let others = ["setup.service", "osm-commands-after.service"];
                assert_eq!(units, [&[before][..], &kernel, &others].concat());
                let unit = rendered.units[1].content.clone().unwrap();
                let is_ordered = unit.contains("\nBefore=setup.service\n");
                assert!(is_ordered && unit.contains(apply), "{unit}");
            }
            // The next boot, after which the units start, reads both files.
            _ => assert_eq!(units, [before, "setup.service", "osm-commands-after.service"]),
        }
        if os == "flatcar" {
            let unit = |name: &str| {
                let found = rendered.units.iter().find(|unit| unit.name.contains(name));
                found.unwrap().content.clone().unwrap()
            };
            let before = unit("before");
            let order = before.lines().find(|line| line.starts_with("Before=")).unwrap();
            let is_first = order.ends_with("setup.service") && !order.contains("commands");
            assert!(is_first, "{order}");
            assert!(unit("after").contains("setup.service\n"), "{}", unit("after"));
            let script = text(&rendered, "/opt/bin/osm-commands-before").unwrap();
            let run = Command::new("sh").args(["-euc", &script]).output().unwrap();
            assert!(run.status.success());
            assert_eq!(run.stdout, b"first in sample\nit's a;b\n");
        }
    }
}

#[test]
fn without_them_a_resolved_profile_is_what_it_was() {
    for (os, utility) in READERS {
        let plain = spec(os, utility, json!({}));
        let resolved = resolve(&plain).unwrap();
        assert_eq!(resolved.spec.0, plain);
        // Resolving a resolved profile changes nothing.
        let resolved = resolve(&spec(os, utility, everything())).unwrap();
        assert_eq!(resolve(&resolved.spec.0).unwrap().digest, resolved.digest);
    }
}

#[test]
fn packages_are_installed_unless_the_settings_forbid_it() {
    let provisioning = json!({"packages": ["htop", "g++"], "modules": {"packages": ["own"]}});
    let listed = spec("ubuntu", "cloud-init", provisioning);
    let (more, off) = ("packages: {install: [chrony]}", "packages: {enabled: false}");
    for (settings, packages) in [
        ("{}", json!(["own", "htop", "g++"])),
        (more, json!(["own", "htop", "g++", "chrony"])),
        (off, json!(["own"])),
    ] {
        let rendered = rendered(&listed, settings);
        let modules = rendered.spec.provisioning_config.modules.unwrap();
        assert_eq!(modules, json!({"packages": packages}));
        let warnings = rendered.warnings.iter();
        let about = warnings.filter(|warning| warning.contains("packages.enabled"));
        assert_eq!(about.count(), usize::from(settings == off), "{settings}");
    }
}

/// Who refuses a stage, the stage, and a part of the message.
const MISTAKES: &str = r#"
flatcar | {"packages": ["htop"]} | spec.provisioningConfig.packages: Flatcar has no package manager
cloud-init | {"packages": ["--force"]} | packages[0]: must consist of
cloud-init | {"packages": ["a b"]} | packages[0]: must consist of
all | {"kernelModules": ["a", "-r"]} | kernelModules[1]: must consist of
all | {"sysctls": {"vm swappiness": 1}} | sysctls.vm swappiness: must consist of
all | {"sysctls": {"vm.swappiness": "1\n2"}} | sysctls.vm.swappiness: must be a number or a text on one line
all | {"commands": {"before": [1]}} | commands.before[0]: must be a command
all | {"commands": {"after": ["true", []]}} | commands.after[1]: must be a command
flatcar | {"commands": {"after": [["echo", "{{pool.name}}"]]}} | write the command as one string
all | {"sysctls": {"a": 1}, "files": [{"path": "/etc/sysctl.d/99-zz-osm-profile.conf", "content": {"inline": {"data": ""}}}]} | written more than once
"#;

#[test]
fn mistakes_are_refused_with_the_place() {
    for [who, provisioning, text] in table(MISTAKES, " | ") {
        let readers = match who {
            "flatcar" => &READERS[1..],
            "cloud-init" => &READERS[..1],
            _ => &READERS[..],
        };
        for (os, utility) in readers {
            let provisioning = serde_json::from_str(provisioning).unwrap();
            let error = resolve(&spec(os, utility, provisioning)).expect_err(text);
            assert_eq!(error.reason(), "ProfileInvalid");
            assert!(error.to_string().contains(text), "{text}: {error}");
        }
    }
    for (field, value) in [
        ("commands", json!({})),
        ("packages", json!(["a"])),
        ("sysctls", json!({"a": 1})),
        ("kernelModules", json!(["a"])),
    ] {
        let mut early = spec("ubuntu", "cloud-init", json!({}));
        early.bootstrap_config = serde_json::from_value(json!({field: value})).unwrap();
        let error = resolve(&early).unwrap_err().to_string();
        let problem = format!("spec.bootstrapConfig.{field}: can't be set here");
        assert!(error.contains(&problem), "{error}");
    }
}

#[test]
fn an_extension_adds_to_those_of_its_base() {
    let base = json!({
        "commands": {"before": ["base 1"], "after": ["base 2"]}, "packages": ["a", "b"], "kernelModules": ["m"],
        "sysctls": {"x": 1, "y": "2"},
    });
    let on_base = |provisioning: Value| {
        let mut extension = spec("ubuntu", "cloud-init", json!({}));
        extension.provisioning_config = serde_json::from_value(provisioning).unwrap();
        let base = Base {
            key: ProfileKey::default(),
            spec: spec("ubuntu", "cloud-init", base.clone()),
        };
        resolve_on(&extension, &[base]).map(|accepted| accepted.spec.0.provisioning_config)
    };
    let own = json!({
        "commands": {"before": ["own 1"], "after": ["own 2"]}, "packages": ["b", "c"], "kernelModules": ["n"],
        "sysctls": {"x": 1, "y": 3, "z": 4}, "removeSysctls": ["y"],
    });
    let resolved = on_base(own).unwrap();
    assert_eq!(resolved.packages, ["a", "b", "c"]);
    let modules = resolved.modules.unwrap();
    let first: Vec<&Value> = modules["bootcmd"].as_array().unwrap().iter().take(2).collect();
    assert_eq!(first, ["own 1", "base 1"]);
    // The packages may contain the kernel modules.
    let last = json!(["modprobe -a m n; :", "base 2", "own 2"]);
    assert_eq!(modules["runcmd"], last);
    let files = resolved.files.into_iter();
    let texts: Vec<String> = files.map(|file| file.content.inline.unwrap().data).collect();
    assert_eq!(texts, ["m\nn\n", "x = 1\ny = 3\nz = 4\n"]);
    let changed = "spec.provisioningConfig.sysctls.y: ";
    let missing = "has no such entry in sysctls; correct the name";
    for (own, text) in [
        (json!({"sysctls": {"y": 3}}), changed),
        (json!({"removeSysctls": ["z"]}), missing),
    ] {
        let error = on_base(own).expect_err(text);
        assert_eq!(error.reason(), "ExtendsInvalid");
        assert!(error.to_string().contains(text), "{error}");
    }
}

const OF_SETTINGS: &str = "system: {sysctls: {vm.max_map_count: 300000, kernel.core_pattern: 'core.%p'}, kernelModules: [ip_vs], \
    ntpServers: [time.example, 'fd00::7b']}";

/// What applies the kernel's settings.
const APPLY_SETTINGS: &str = "modprobe -a ip_vs; sysctl -q -e -p /etc/sysctl.d/99-zz-osm-settings.conf; :";

#[test]
fn the_settings_reach_profiles_of_every_engine_and_reader() {
    for engine in ["Handlebars", "GoTemplate", "None"] {
        for (os, utility) in READERS {
            let mut spec = serde_json::to_value(spec(os, utility, json!({}))).unwrap();
            spec["templateEngine"] = json!(engine);
            let rendered = render(&serde_json::from_value(spec).unwrap(), OF_SETTINGS).spec;
            let (bootstrap, provisioning) = (rendered.bootstrap_config, rendered.provisioning_config);
            let of_go = engine == "GoTemplate" && utility == "cloud-init";
            let document = if of_go { &bootstrap } else { &provisioning };
            let sysctls = text(document, "/etc/sysctl.d/99-zz-osm-settings.conf");
            let expected = "kernel.core_pattern = core.%p\nvm.max_map_count = 300000\n";
            assert_eq!(sysctls.unwrap(), expected);
            let modules = text(document, "/etc/modules-load.d/osm-settings.conf");
            assert_eq!(modules.unwrap(), "ip_vs\n");
            if os == "ubuntu" {
                let in_bootcmd = format!("status=$?; {APPLY_SETTINGS}; (exit $status)");
                let commands = if of_go {
                    json!({"runcmd": [APPLY_SETTINGS]})
                } else {
                    json!({"bootcmd": [in_bootcmd]})
                };
                let ntp = json!({"enabled": true, "servers": ["time.example", "fd00::7b"]});
                assert_eq!(bootstrap.modules.as_ref().unwrap()["ntp"], ntp);
                let mut modules = document.modules.clone().unwrap();
                modules.as_object_mut().unwrap().remove("ntp");
                assert_eq!(modules, commands);
                continue;
            }
            let timesyncd = text(&bootstrap, "/etc/systemd/timesyncd.conf.d/10-osm.conf");
            assert_eq!(timesyncd.unwrap(), "[Time]\nNTP=time.example fd00::7b\n");
            let kernel = |unit: &&Unit| unit.name == "osm-settings-kernel.service";
            let unit = document.units.iter().find(kernel);
            // The next boot, after which the units of Ignition start, reads both files.
            assert_eq!(unit.is_some(), utility == "cloud-init");
            if let Some(unit) = unit {
                let first = if of_go { "osm-time-servers" } else { "setup" };
                let unit = unit.content.as_ref().unwrap();
                let ordered = unit.contains(&format!("\nBefore={first}.service"));
                assert!(ordered && unit.contains(APPLY_SETTINGS), "{unit}");
                assert_eq!(bootstrap.units.last().unwrap().name, "osm-time-servers.service");
            }
        }
    }
}

#[test]
fn amazon_linux_2_has_its_time_servers_in_a_file_of_chrony() {
    let rendered = render(&spec("amzn2", "cloud-init", json!({})), OF_SETTINGS);
    let bootstrap = rendered.spec.bootstrap_config;
    let servers = text(&bootstrap, "/etc/chrony.d/osm.conf");
    let expected = "server time.example iburst\nserver fd00::7b iburst\n";
    assert_eq!(servers.unwrap(), expected);
    let modules = bootstrap.modules.unwrap();
    let command = modules["runcmd"][0].as_str().unwrap();
    assert!(command.contains("try-restart chronyd.service"), "{command}");
    // The command, on a configuration without and then with the line.
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&config, "driftfile x\n").unwrap();
    let here = config.path().to_str().unwrap();
    let command = command.replace("/etc/chrony.conf", here);
    let command = command.replace("systemctl", "true");
    for _ in 0..2 {
        let run = Command::new("/bin/sh").args(["-c", &command]).status();
        assert!(run.unwrap().success());
    }
    let written = std::fs::read_to_string(&config).unwrap();
    assert_eq!(written, "driftfile x\ninclude /etc/chrony.d/*.conf\n");
}

#[test]
fn time_servers_of_the_profile_itself_stay() {
    let mut spec = spec("ubuntu", "cloud-init", json!({}));
    spec.bootstrap_config.modules = Some(json!({"ntp": {"enabled": false}}));
    let rendered = render(&spec, OF_SETTINGS);
    let modules = rendered.spec.bootstrap_config.modules.unwrap();
    assert_eq!(modules["ntp"], json!({"enabled": false}));
    let [warning] = rendered.warnings.as_slice() else {
        panic!("{:?}", rendered.warnings)
    };
    let text = "system.ntpServers of the settings has no effect";
    assert!(warning.contains(text), "{warning}");
}

/// Golden documents show how the default profiles install them.
#[test]
fn packages_of_the_settings_that_are_not_installed_give_a_warning() {
    let on = "packages: {install: [chrony, jq]}";
    let off = "packages: {enabled: false, install: [chrony, jq]}";
    for (profile, settings, warned) in [
        ("osp-ubuntu", on, false),
        ("osp-ubuntu", off, true),
        ("osp-flatcar", on, true),
    ] {
        let warnings = rendered(&default_spec(profile), settings).warnings;
        let is_told = warnings.iter().any(|text| text.contains("packages.install"));
        assert_eq!(is_told, warned, "{profile}, {settings}: {warnings:?}");
    }
}

#[test]
fn nodes_have_host_names_as_names_only_where_these_can_be_predicted() {
    let of = |cloud: &str, name: &str, modules: Value| {
        let mut spec = serde_json::to_value(spec("ubuntu", "cloud-init", json!({}))).unwrap();
        spec["supportedCloudProviders"] = json!([{"name": cloud}]);
        spec["bootstrapConfig"] = json!({"modules": modules});
        let spec: OperatingSystemProfileSpec = serde_json::from_value(spec).unwrap();
        let (mut pool, _) = full_sample(&spec, spec.supported_cloud_providers[0].name).unwrap();
        pool.name = name.to_owned();
        let settings = Settings::parse("kubelet: {hostnameOverride: false}").unwrap();
        compiled(&spec).render(&pool, &settings, &stand_in_cluster())
    };
    for cloud in ["openstack", "hetzner", "vsphere", "kubevirt", "azure"] {
        let content = of(cloud, "workers", json!({})).unwrap().spec;
        let modules = content.bootstrap_config.modules.unwrap();
        assert_eq!(modules["prefer_fqdn_over_hostname"], json!(false), "{cloud}");
    }
    let fqdn = json!({"fqdn": "a.b"});
    for (cloud, name, modules, problem) in [
        ("aws", "workers", json!({}), "on aws OSM does not set"),
        ("edge", "workers", json!({}), "on edge OSM does not set"),
        ("openstack", "workers.b", json!({}), "has a dot"),
        ("openstack", "workers", fqdn, "bootstrapConfig.modules.fqdn"),
    ] {
        let error = of(cloud, name, modules).unwrap_err();
        assert_eq!(error.reason(), "HostnameUnpredictable");
        assert!(error.to_string().contains(problem), "{error}");
    }
}

/// A default profile, a cloud, a stage and its modules; then the error of the profile, or else a warning
/// about a pool.
const APPLIED: &str = r#"
osp-ubuntu | openstack | provisioningConfig | {"power_state": {"mode": "reboot"}} | .modules.power_state: would end osm-apply
osp-ubuntu | edge | bootstrapConfig | {"power_state": {"mode": "reboot"}} | .modules.power_state: would end the script of edge
osp-ubuntu | openstack | bootstrapConfig | {"power_state": {"mode": "reboot"}} | nothing
osp-amzn2 | aws | provisioningConfig | {"keyboard": {"layout": "us"}} | .modules.keyboard: has no module in cloud-init 19.3
osp-ubuntu | openstack | provisioningConfig | {"keyboard": {"layout": "us"}} | nothing
osp-ubuntu | openstack | provisioningConfig | {"output": {"all": "| cat"}} | .modules.output has no effect
osp-ubuntu | edge | bootstrapConfig | {"launch-index": 1} | .modules.launch-index has no effect
osp-ubuntu | openstack | bootstrapConfig | {"output": {"all": "| cat"}} | nothing
"#;

#[test]
fn what_osm_apply_would_not_do_is_said_before() {
    for [profile, cloud, stage, modules, expected] in table(APPLIED, " | ") {
        let mut spec = serde_json::to_value(default_spec(profile)).unwrap();
        // Modules that were good on another cloud are judged again for edge machines.
        let mut clouds = vec![json!({"name": "aws"}), json!({"name": cloud})];
        if cloud != "edge" {
            clouds.remove(0);
        }
        spec["supportedCloudProviders"] = json!(clouds);
        let added: Value = serde_json::from_str(modules).unwrap();
        let known = spec[stage]["modules"].as_object_mut();
        match known {
            Some(known) => known.extend(added.as_object().unwrap().clone()),
            None => spec[stage]["modules"] = added,
        }
        let spec: OperatingSystemProfileSpec = serde_json::from_value(spec).unwrap();
        let profile = compiled(&spec);
        let pool = pool(spec.os_name.as_str(), cloud, "1.34.2", "IPv4", false);
        let rendered = profile.render(&pool, &Settings::default(), &stand_in_cluster());
        let warnings = rendered.unwrap().warnings.join("\n");
        let refusal = dry_run(&profile).err();
        let said = refusal.map_or(warnings, |refusal| refusal.message);
        match expected {
            "nothing" => assert_eq!(said, "", "{modules}"),
            expected => assert!(said.contains(&format!("{stage}{expected}")), "{modules}: {said}"),
        }
    }
}
