//! `osmctl new`, `schema`, `completions` and `man`, and the plugin of kubectl.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::{err, osmctl, out};

#[test]
fn a_new_profile_is_valid() {
    for (base, _) in osm_render::defaults() {
        let output = osmctl(&["new", "osp-mine", "--extends", &base, "--schema", "a.json"], "");
        let text = out(&output);
        assert!(
            text.starts_with("# yaml-language-server: $schema=a.json\n"),
            "{}",
            err(&output)
        );
        assert!(!text.contains('@'), "{text}");
        let profile = osm_render::yaml::read(text).unwrap().remove(0);
        assert_eq!(profile["spec"]["extends"], base.as_str());
        let linted = osmctl(&["lint", "-", "--warnings-as-errors"], text);
        assert!(linted.status.success(), "{}", out(&linted));
        // What it suggests is valid as well. Sentences end in a full stop.
        let suggested = |line: &&str| line.starts_with("    # ") && !line.ends_with('.');
        assert!(text.lines().filter(suggested).count() > 10, "{text}");
        let lines = text.lines().map(|line| match suggested(&line) {
            true => line.replacen("# ", "", 1),
            false => line.to_owned(),
        });
        let all = lines.collect::<Vec<_>>().join("\n");
        let linted = osmctl(&["lint", "-", "--warnings-as-errors"], &all);
        assert!(linted.status.success(), "{}{all}", out(&linted));
    }
    let own = super::PROFILE.replace("osp-ubuntu", "osp-base");
    let output = osmctl(&["new", "osp-mine", "--extends", "osp-base", "-f", "-"], &own);
    assert!(out(&output).contains("extends: osp-base"), "{}", err(&output));
    let output = osmctl(&["new", "osp-mine", "--extends", "osp-nothing"], "");
    assert!(
        err(&output).contains("profile osp-nothing does not exist"),
        "{}",
        err(&output)
    );
    assert_eq!(
        osmctl(&["new", "A B", "--extends", "osp-ubuntu"], "")
            .status
            .code(),
        Some(2)
    );
    assert_eq!(osmctl(&["new", "osp-mine"], "").status.code(), Some(2));
}

#[test]
fn compatibility_is_the_same_for_people_and_programs() {
    let printed = osmctl(&["compatibility"], "");
    assert!(printed.status.success(), "{}", err(&printed));
    let text = out(&printed);
    let json: Value = serde_json::from_str(out(&osmctl(&["compatibility", "-o", "json"], ""))).unwrap();
    let systems = json["operatingSystems"].as_array().unwrap();
    assert_eq!(systems.len(), osm_render::defaults().len());
    for system in systems {
        let of = |name: &str| system[name].as_str().unwrap();
        let line = text.lines().find(|line| line.starts_with(of("profile"))).unwrap();
        assert!(
            line.contains(of("title")) && line.contains(of("versions")),
            "{line}"
        );
    }
    // A line of the table of clouds: the cloud, and a word or a dash for each operating system.
    let openstack: Vec<&str> = text
        .lines()
        .find(|line| line.starts_with("openstack "))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(openstack.len(), 7, "{openstack:?}");
    assert_eq!(openstack[1], "booted");
    let newest = &json["machineControllers"][0];
    assert!(
        !newest["operatingSystems"]
            .as_array()
            .unwrap()
            .contains(&Value::from("centos"))
    );
    assert!(text.contains(newest["versions"].as_str().unwrap()));
}

#[test]
fn schemas_accept_what_is_right_and_nothing_else() {
    let schema = |kind: &str| serde_json::from_str::<Value>(out(&osmctl(&["schema", kind], ""))).unwrap();
    let profile = schema("profile");
    let text = profile.to_string();
    assert!(
        !text.contains("x-kubernetes") && !text.contains("nullable"),
        "{text}"
    );
    let spec = &profile["properties"]["spec"];
    assert_eq!(spec["additionalProperties"], false);
    assert!(
        spec["properties"]["bootstrapConfig"]["properties"]["files"]["items"]["properties"]["path"]
            .is_object()
    );
    let modules = &spec["properties"]["bootstrapConfig"]["properties"]["modules"];
    assert_ne!(modules["additionalProperties"], false, "{modules}");
    assert!(
        profile["properties"]["kind"]["enum"]
            .as_array()
            .unwrap()
            .contains(&"CustomOperatingSystemProfile".into())
    );
    assert!(schema("settings")["properties"]["proxy"].is_object());
    // The default profiles have only fields of the schema.
    for (file, text) in osm_render::default_manifests() {
        let document = osm_render::yaml::read(text).unwrap().remove(0);
        assert_eq!(mistake(&profile, &profile, &document, file), None);
    }
    let settings = schema("settings");
    let of_settings = |text: &str| {
        let document = osm_render::yaml::read(text).unwrap().remove(0);
        mistake(&settings, &settings, &document, "")
    };
    let example = include_str!("../../../../examples/settings-air-gapped.yaml");
    assert_eq!(of_settings(example), None);
    for (wrong, path) in [
        (example.replace("\ncluster:", "\nclutser:"), ".clutser"),
        (
            example.replace("  apiServer:", "  apiSever:"),
            ".cluster.apiSever",
        ),
        (
            example.replace("  dnsIPs:\n    - 10.96.0.10", "  dnsIPs: 10.96.0.10"),
            ".cluster.dnsIPs",
        ),
        (
            "initialTaints: [{key: a, effect: Never}]".to_owned(),
            ".initialTaints.effect",
        ),
    ] {
        assert_eq!(of_settings(&wrong).as_deref(), Some(path));
        let linted = osmctl(&["lint", "-"], &wrong);
        assert_eq!(
            linted.status.code(),
            Some(1),
            "the code refuses what the schema refuses: {path}"
        );
    }
}

#[test]
fn the_schema_of_annotations_is_that_of_the_code() {
    let output = osmctl(&["schema", "machinedeployment-annotations"], "");
    let schema: Value = serde_json::from_str(out(&output)).unwrap();
    let (own, template) = (
        &schema["properties"]["metadata"]["properties"]["annotations"],
        &schema["properties"]["spec"]["properties"]["template"]["properties"]["metadata"]["properties"]["annotations"],
    );
    let profile = "k8c.io/operating-system-profile";
    assert!(own["properties"][profile].is_object() && template["properties"][profile].is_null());
    // What the schema gives as an example is what the code reads, and an annotation that the schema refuses is refused by the code.
    let properties = own["properties"].as_object().unwrap();
    assert_eq!(
        properties.len(),
        3 + template["properties"].as_object().unwrap().len()
    );
    let annotations: String = properties
        .iter()
        .filter(|(key, _)| key.contains("kubelet-config"))
        .map(|(key, schema)| format!("{key}: {}, ", schema["examples"][0]))
        .collect();
    let linted = |annotations: &str| {
        let metadata = format!("metadata: {{annotations: {{{annotations}}}, ");
        let input = super::MACHINE_DEPLOYMENT.replace("metadata: {", &metadata);
        osmctl(&["lint", "-", "--warnings-as-errors"], &input)
    };
    let good = linted(&annotations);
    assert!(good.status.success(), "{}{}", out(&good), err(&good));
    for wrong in [
        "v1.kubelet-config.machine-controller.kubermatic.io/PodsPerCore",
        "kubelet-config.machine-controller.kubermatic.io/MaxPods",
    ] {
        let keys = own["propertyNames"]["anyOf"][0]["enum"].as_array().unwrap();
        assert!(!keys.contains(&wrong.into()));
        assert!(!linted(&format!("{wrong}: '5'")).status.success(), "{wrong}");
    }
}

/// The first mistake by a schema: fields, types and enumerations, which are what editors complete and underline.
fn mistake(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let schema = root.pointer(reference.trim_start_matches('#')).unwrap();
        return mistake(root, schema, value, path);
    }
    let one_of = ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema.get(key)?.as_array());
    if let Some(schemas) = one_of {
        let fits = schemas
            .iter()
            .any(|schema| mistake(root, schema, value, path).is_none());
        return (!fits).then(|| path.to_owned());
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        return Some(path.to_owned());
    }
    let is = |name: &Value| match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    let fits = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(is),
        Some(name) => is(name),
        None => true,
    };
    if !fits {
        return Some(path.to_owned());
    }
    match value {
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match (schema["properties"].get(key), schema.get("additionalProperties")) {
                (Some(inner), _) => mistake(root, inner, value, &path),
                (None, Some(Value::Bool(false))) => Some(path),
                (None, Some(inner @ Value::Object(_))) => mistake(root, inner, value, &path),
                (None, _) => None,
            }
        }),
        Value::Array(items) => items.iter().find_map(|item| {
            let inner = schema.get("items")?;
            mistake(root, inner, item, path)
        }),
        _ => None,
    }
}

#[test]
fn every_command_that_prints_results_prints_them_as_json() {
    // What these print has a format of its own.
    let others = ["new", "schema", "completions", "man", "help"];
    let help = osmctl(&["--help"], "");
    let (_, commands) = out(&help).split_once("Commands:\n").unwrap();
    let commands = commands.lines().map_while(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|name| !others.contains(name)).collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        let help = match command {
            // Of its subcommands, this one prints a result.
            "migrate" => osmctl(&[command, "check", "--help"], ""),
            _ => osmctl(&[command, "--help"], ""),
        };
        let (_, output) = out(&help)
            .split_once("--output <")
            .unwrap_or_else(|| panic!("{command}"));
        let output = output.split("\n  -").next().unwrap();
        assert!(output.contains("json"), "{command}: {output}");
    }
}

#[test]
fn shells_and_man_get_their_files() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = osmctl(&["completions", shell], "");
        assert!(out(&output).contains("mirror-settings"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("man1");
    assert!(osmctl(&["man", to.to_str().unwrap()], "").status.success());
    let page = fs::read_to_string(to.join("osmctl-lint.1")).unwrap();
    assert!(page.contains("warnings\\-as\\-errors") && to.join("osmctl.1").exists());
}

#[test]
fn the_plugin_of_kubectl_calls_itself_so() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-osm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_osmctl"), &plugin).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(&plugin).args(arguments).output().unwrap();
        (out(&output).to_owned(), err(&output).to_owned())
    };
    assert!(run(&["--help"]).0.contains("Usage: kubectl osm <COMMAND>"));
    // What kubectl asks when a person completes `kubectl osm sta`.
    let completion = folder.path().join("kubectl_complete-osm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_osmctl"), &completion).unwrap();
    let completed = Command::new(&completion).arg("sta").output().unwrap();
    assert_eq!(out(&completed), "status\n:4\n");
    let (help, _) = run(&["lint", "--help"]);
    assert!(
        help.contains("Usage: kubectl osm lint") && help.contains("  kubectl osm lint profiles/"),
        "{help}"
    );
    assert!(run(&["lint", "--wrong"]).1.contains("kubectl osm lint"));
}
