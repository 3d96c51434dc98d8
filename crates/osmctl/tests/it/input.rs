//! What people feed to osmctl by mistake: each is an error with its place and the next step, and never a
//! panic.

use super::{MACHINE_DEPLOYMENT, PROFILE, err, naming_profile, osmctl, out, prints, run, says, succeeds};

/// A profile whose one file has this text, as a literal block that starts on line 17.
fn profile_with(text: &str) -> String {
    let indented: String = text
        .split_inclusive('\n')
        .map(|line| format!("              {line}"))
        .chain(["\n".to_owned()])
        .collect();
    format!(
        "apiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\nmetadata: {{name: mine}}\nspec:\n  \
         osName: ubuntu\n  osVersion: '24.04'\n  version: v1.0.0\n  templateEngine: Handlebars\n  supportedCloudProviders: \
         [{{name: openstack}}]\n  provisioningConfig:\n    files:\n      - path: /etc/motd\n        permissions: 644\n        \
         content:\n          inline:\n            data: |\n{indented}"
    )
}

/// The same in Go's template language.
fn go_profile_with(text: &str) -> String {
    profile_with(text).replace("templateEngine: Handlebars", "templateEngine: GoTemplate")
}

#[test]
fn bad_input_is_an_error_with_its_place_and_a_hint() {
    let bomb: String = (1..12).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
        text + &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(","))
    });
    let large = profile_with(&"x".repeat(1_400_000));
    let endless = profile_with("{{> a}}").replace(
        "    files:",
        "    templates: {a: '{{> b}}', b: '{{> a}}'}\n    files:",
    );
    let cases = [
        // The text, its place, what is wrong, and the next step.
        (
            large.as_str(),
            "<stdin>:5:3: error: ",
            "at most 524288 can be stored",
            "make it smaller",
        ),
        (
            &"x".repeat(5 << 20),
            "<stdin>: error: ",
            "more than 4194304 bytes",
            "hint: split it",
        ),
        (
            &endless,
            "<stdin>:11:",
            "blocks and included templates are nested more than 48 deep",
            "a template must not include itself without an end",
        ),
        (
            &profile_with("a\nb {{c"),
            "<stdin>:18:17: error: ",
            "the tag is not closed",
            "write \\{{",
        ),
        (
            &profile_with("a\nb {{kubelet.versin}}").replace('\n', "\r\n"),
            "<stdin>:18:17: error: ",
            "there is no field",
            "hint: docs/templates.md lists all fields",
        ),
        (
            &go_profile_with("a\nb {{ .KubletVersion }}").replace('\n', "\r\n"),
            "<stdin>:18:20: error: ",
            "can't evaluate field KubletVersion",
            "hint: docs/go-templates.md lists all variables",
        ),
        (
            &format!("\u{feff}{}", go_profile_with("a\nb {{ nothing .KubeVersion }}")),
            "<stdin>:18:20: error: ",
            "function \"nothing\" not defined",
            "hint: docs/go-templates.md lists all functions",
        ),
        (
            &go_profile_with("a {{ if .HTTPProxy }} b"),
            "<stdin>:18:15: error: ",
            "unexpected EOF",
            "with {{ end }}",
        ),
        (
            &go_profile_with("x {{ range 100000 }}{{ $.KubernetesCACert }}{{ end }}"),
            "<stdin>:17:39: error: ",
            "more than",
            "hint: shorten the loops",
        ),
        (
            &bomb,
            "<stdin>:6:14: error: ",
            "not valid YAML: budget breached",
            "hint: write the repeated parts out",
        ),
        (
            &profile_with("x").replace("'24.04'", "24.04"),
            "<stdin>:6:14: error: ",
            "osVersion: is a number; put it in quotes",
            "",
        ),
        (
            "kind: Pod",
            "<stdin>:1:7: error: ",
            "is a Pod",
            "provide only MachineDeployments",
        ),
        (
            "- a\n- b",
            "<stdin>:1:1: error: ",
            "has no kind",
            "provide a complete manifest",
        ),
        (
            "cluster: {dnsIPs: [x]}",
            "<stdin>:1:20: error: ",
            "the settings' cluster.dnsIPs[0]",
            "hint: docs/settings.md",
        ),
        (
            "kind: ConfigMap\nmetadata: {name: osm-settings}\ndata:\n  settings.yaml: |\n    proxy:\n      htpp: x\n",
            "<stdin>:6:13: error: ",
            "the settings' proxy.htpp: unknown field",
            "hint: docs/settings.md",
        ),
        (
            &MACHINE_DEPLOYMENT.replace("1.34.2", "latest"),
            "<stdin>:9:27: error: ",
            "is not a version such as 1.34.2",
            "",
        ),
    ];
    for (input, place, problem, hint) in cases {
        let start: String = input.chars().take(200).collect();
        let output = run("lint -", input);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{start}\n{}{}",
            out(&output),
            err(&output)
        );
        let out = out(&output);
        assert!(!err(&output).contains("panicked"), "{start}: {}", err(&output));
        for part in [place, problem, hint] {
            assert!(out.contains(part), "{part:?} is not in\n{out}\nof\n{start}");
        }
    }
}

#[test]
fn a_mistake_hides_none_of_another_document() {
    let input = profile_with("{{a.b}}\n");
    let other = profile_with("{{c.d}}\n").replace("name: mine", "name: other");
    let output = run("lint -", &format!("{input}\n---\nproxy: 5\n---\n{other}"));
    let text = out(&output);
    for part in ["a.b", "c.d", "the settings' proxy"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches(": error: ").count(), 3, "{text}");
}

#[test]
fn carriage_returns_marks_json_lists_and_both_kinds_of_profiles_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let both = format!(
        "{}{}",
        naming_profile("osp-mine"),
        PROFILE.replace("osp-ubuntu", "osp-mine")
    );
    let plain = run("render - --stage provisioning", &both);
    succeeds(&plain);

    let custom = both.replace(
        "kind: OperatingSystemProfile",
        "kind: CustomOperatingSystemProfile",
    );
    let variants = [format!("\u{feff}{}", both.replace('\n', "\r\n")), custom, {
        let documents = osm_user_data::yaml::read(&both).unwrap();
        serde_json::json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string()
    }];
    for variant in variants {
        let output = run("render - --stage provisioning", &variant);
        assert_eq!(out(&output), out(&plain), "{variant}\n{}", err(&output));
    }

    // A folder, with files of others.
    std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
    write("a/pool.yml", &naming_profile("osp-mine"));
    let profile = osm_user_data::yaml::read(PROFILE).unwrap().remove(0).to_string();
    write("a/b/profile.json", &profile.replace("osp-ubuntu", "osp-mine"));
    write("a/pod.yaml", "kind: Pod\n");
    write("a/Chart.yaml", "apiVersion: v2\nname: x\n");
    write("a/values.yaml", "image: {tag: x}\n");
    write("a/settings.yaml", "pauseImage: registry.example/x\n");
    write("a/README.md", "not: [yaml");
    write("a/.hidden.yaml", "not: [yaml");
    let path = folder.path().to_str().unwrap();
    let output = osmctl(&["render", path, "--stage", "provisioning"], "");
    assert_eq!(out(&output), out(&plain), "{}", err(&output));
    let linted = osmctl(&["lint", path], "");
    assert!(
        err(&linted).contains("in 1 profile, 1 MachineDeployment, 1 settings document"),
        "{}{}",
        out(&linted),
        err(&linted)
    );
}

#[test]
fn settings_come_from_documents_config_maps_and_annotations_of_pools() {
    let setting = |document: &str| {
        let annotated = MACHINE_DEPLOYMENT.replace(
            "metadata: {",
            "metadata: {annotations: {operatingsystemmanager.k8c.io/settings: 'fromConfigMap: ours'}, ",
        );
        format!(
            "{annotated}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ours, namespace: kube-system}}\ndata:\n  \
             settings.yaml: 'pauseImage: registry.example/of-pool'\n---\n{document}"
        )
    };
    let document = "pauseImage: registry.example/of-all\nproxy: {http: 'http://proxy.example:1'}\n";
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: osm-settings}}\ndata:\n  settings.yaml: |\n    {}",
        document.replace('\n', "\n    ")
    );
    for input in [setting(document), setting(&map)] {
        let output = run("render - --stage provisioning", &input);
        prints(&output, "registry.example/of-pool");
        prints(&output, "http://proxy.example:1");
        assert!(
            !out(&output).contains("registry.example/of-all"),
            "{}",
            out(&output)
        );
    }
    let without = setting(document).replace("name: ours", "name: others");
    let output = run("render - --stage provisioning", &without);
    says(&output, "there is no ConfigMap kube-system/ours");
    let output = run(
        "render - --stage provisioning",
        &setting(&format!("{document}---\n{map}")),
    );
    says(&output, "two settings documents");
}

#[test]
fn no_text_of_an_input_acts_on_a_terminal_or_a_workflow() {
    // In quotes of YAML: a title of the terminal, a color, two directions of text, and commands of workflows.
    const TEXT: &str =
        r#""\e]0;x\a\x9b31m\u202e\u2066\n::stop-commands::x\n \u00a0::add-mask::x\r##[add-mask]y\u2028""#;
    let profile = |field: &str| {
        let value = match field {
            "name: osp-ubuntu" => format!("name: {TEXT}"),
            "path: /token" => format!("path: {TEXT}"),
            _ => format!("version: {TEXT}"),
        };
        format!("{}{}", MACHINE_DEPLOYMENT, PROFILE.replace(field, &value))
    };
    let inputs = [
        naming_profile(TEXT),
        MACHINE_DEPLOYMENT.replace("name: workers", &format!("name: {TEXT}")),
        MACHINE_DEPLOYMENT.replace("ubuntu", TEXT),
        profile("name: osp-ubuntu"),
        profile("path: /token"),
        profile("version: v1.0.0"),
    ];
    let is_hidden = |c: char| c.is_control() || ['\u{202e}', '\u{2066}', '\u{2028}'].contains(&c);
    let mut seen = 0;
    for input in &inputs {
        for command in [
            "lint -",
            "lint -o json -",
            "lint -o github -",
            "render -o user-data --stage bootstrap -",
            "urls -",
        ] {
            let output = run(command, input);
            // What a machine gets is written as it is.
            let result = if command.starts_with("render") {
                ""
            } else {
                out(&output)
            };
            for line in [result, err(&output)]
                .into_iter()
                .flat_map(|text| text.split('\n'))
            {
                seen += usize::from(line.contains("31m"));
                assert!(!line.contains(is_hidden), "{command}: {line:?}");
                let own = command.contains("github")
                    && ["::error ", "::warning "].iter().any(|own| line.starts_with(own));
                let is_command = line.trim_start().starts_with("::") || line.contains("##[");
                assert!(own || !is_command, "{command}: {line:?}");
            }
        }
    }
    assert!(seen > inputs.len(), "the text is in {seen} lines");
}
