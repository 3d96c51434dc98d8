//! `osmctl lint`.

use serde_json::Value;

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out};

/// A profile with one thing wrong for each rule.
const REVIEWED: &str = r##"
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: mine}
spec:
  osName: ubuntu
  osVersion: "24.04"
  version: v1.0.0
  templateEngine: Handlebars
  supportedCloudProviders: [{name: aws}, {name: hetzner}]
  bootstrapConfig:
    files:
      - path: /opt/bin/a
        permissions: 644
        content: {inline: {data: "#!/bin/sh\necho {{shell kubelet.version}}\ntrue\n"}}
      - path: /etc/token
        permissions: 640
        content: {inline: {data: "{{late \"api/token\" as=\"raw\"}}"}}
      - path: /etc/name
        permissions: 420
        content: {inline: {encoding: b64, data: "<MACHINE_NAME>"}}
      - path: /etc/big
        permissions: 600
        content: {inline: {data: "@BIG@"}}
  provisioningConfig:
    units: [{name: a.service, enable: yes, content: "[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n"}]
"##;

/// A text that does not get shorter by gzip and Base64.
fn incompressible(chars: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[usize::try_from(state >> 58).unwrap()])
    };
    (0..chars).map(|_| next()).collect()
}

fn problems(input: &str) -> Vec<Value> {
    let output = osmctl(&["lint", "-", "-o", "json", "--no-shellcheck"], input);
    let json: Value = serde_json::from_str(out(&output)).unwrap_or_else(|_| panic!("{}", err(&output)));
    json["problems"].as_array().unwrap().clone()
}

#[test]
fn the_default_profiles_have_no_problems() {
    let output = osmctl(&["lint", "--warnings-as-errors"], "");
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    assert_eq!(out(&output), "");
    assert!(
        err(&output).contains("0 errors, 0 warnings in 7 profiles"),
        "{}",
        err(&output)
    );
}

#[test]
fn warnings_are_what_a_reviewer_would_say() {
    // Nearly all that AWS takes, where user data is compressed.
    let big = incompressible(19_000);
    let input = REVIEWED.replace("@BIG@", &big);
    let found = problems(&input);
    let found: Vec<(&str, u64, &str)> = found
        .iter()
        .map(|problem| {
            let text = |key: &str| problem[key].as_str().unwrap();
            (text("rule"), problem["line"].as_u64().unwrap(), text("severity"))
        })
        .collect();
    let expected = [
        ("size", 12, "warning"),
        ("script-without-set-e", 13, "warning"),
        ("script-not-executable", 13, "warning"),
        ("readable-credential", 16, "warning"),
        ("machine-name", 19, "warning"),
        ("decimal-mode", 20, "warning"),
        ("yaml-boolean", 26, "warning"),
    ];
    for one in expected {
        assert!(found.contains(&one), "{one:?} is not in {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    let output = osmctl(&["lint", "-", "--no-shellcheck"], &input);
    assert!(output.status.success(), "{}", out(&output));
    let output = osmctl(&["lint", "-", "--no-shellcheck", "--warnings-as-errors"], &input);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn warnings_about_pools_are_reported() {
    let pool = MACHINE_DEPLOYMENT.replace("1.34.2", "1.20.0");
    let pool = pool.replace(
        "metadata: {",
        "metadata: {annotations: {k8c.io/operating-system-profile: osp-mine}, ",
    );
    let found = problems(&format!("{pool}{}", PROFILE.replace("osp-ubuntu", "osp-mine")));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (&found[0]["rule"], &found[0]["line"]),
        (&"pool".into(), &4.into())
    );
    assert!(
        found[0]["message"]
            .as_str()
            .unwrap()
            .contains("kubelet 1.20.0 is not one of")
    );
    let found = problems(&MACHINE_DEPLOYMENT.replace("operatingSystem: ubuntu", "operatingSystem: centos"));
    assert_eq!(found.len(), 1, "{found:#?}");
    let message = found[0]["message"].as_str().unwrap();
    assert!(
        message.contains("refuses machines with the operating system centos"),
        "{message}"
    );
}

#[test]
fn errors_are_those_of_the_controllers() {
    let cases = [
        (
            REVIEWED.replace("@BIG@", &incompressible(80_000)),
            "UserDataTooLarge",
        ),
        (
            REVIEWED.replace("\\n[Install]\\nWantedBy=multi-user.target", ""),
            "UserDataInvalid",
        ),
        (
            REVIEWED.replace("as=\\\"raw\\\"", "as=\\\"none\\\""),
            "TemplateFailed",
        ),
        (
            REVIEWED.replace("{{shell kubelet.version}}", "{{sell kubelet.version}}"),
            "TemplateInvalid",
        ),
        (
            REVIEWED
                .replace("{{late", "{{b64 (late")
                .replace("\\\"raw\\\"}}", "\\\"raw\\\")}}"),
            "TemplateFailed",
        ),
        (
            REVIEWED.replace(
                "  provisioningConfig:\n",
                "  provisioningConfig:\n    modules: {runcdm: []}\n",
            ),
            "ModulesInvalid",
        ),
        (
            REVIEWED.replace("permissions: 420", "permissions: 0644"),
            "octal-number",
        ),
        (
            REVIEWED.replace("templateEngine", "templatEngine"),
            "unknown-field",
        ),
        (
            format!(
                "{MACHINE_DEPLOYMENT}{}",
                PROFILE.replace("name: openstack", "name: aws")
            ),
            "UnsupportedCloudProvider",
        ),
        (
            MACHINE_DEPLOYMENT.replace("cloudProvider: openstack", "cloudProvider: nowhere"),
            "UnknownCloudProvider",
        ),
    ];
    for (input, rule) in cases {
        let found = problems(&input.replace("@BIG@", "x"));
        let mut errors = found.iter().filter(|problem| problem["severity"] == "error");
        assert!(
            errors.any(|problem| problem["rule"] == rule),
            "{rule}: {found:#?}"
        );
    }
}

#[test]
fn go_templates_are_checked_with_their_places() {
    let go = |text: &str| {
        REVIEWED
            .replace("  templateEngine: Handlebars\n", "")
            .replace("\"#!/bin/sh\\necho {{shell kubelet.version}}\\ntrue\\n\"", text)
            .replace(
                "\"{{late \\\"api/token\\\" as=\\\"raw\\\"}}\"",
                "\"{{ .Token }}\"",
            )
            .replace("@BIG@", "x")
    };
    let found = problems(&go("\"{{ .KubeVersion }}\""));
    assert!(
        found.iter().all(|problem| problem["severity"] == "warning"),
        "{found:#?}"
    );
    assert!(
        found
            .iter()
            .any(|problem| problem["rule"] == "readable-credential"),
        "{found:#?}"
    );
    for (permissions, expected) in [("640", true), ("600", false)] {
        let input = go("\"x\"")
            .replace("{{ .Token }}", "{{ with .HTTPProxy }}{{ . }}{{ end }}")
            .replace("permissions: 640", &format!("permissions: {permissions}"));
        let found = problems(&input);
        let has_warning = found
            .iter()
            .any(|problem| problem["rule"] == "readable-credential");
        assert_eq!(has_warning, expected, "{permissions}: {found:#?}");
    }
    for (text, expected, hint) in [
        (
            "\"{{ .KubletVersion }}\"",
            "can't evaluate field KubletVersion",
            "osmctl explain variables",
        ),
        ("\"{{ env \\\"HOME\\\" }}\"", "reads the environment", ""),
        ("\"{{ if }}\"", "missing value for if", ""),
    ] {
        let found = problems(&go(text));
        let errors: Vec<&Value> = found
            .iter()
            .filter(|problem| problem["severity"] == "error")
            .collect();
        assert_eq!(errors.len(), 1, "{found:#?}");
        assert_eq!(errors[0]["line"], 14, "{found:#?}");
        assert!(
            errors[0]["message"].as_str().unwrap().contains(expected),
            "{found:#?}"
        );
        assert!(
            errors[0]["hint"].as_str().unwrap_or_default().contains(hint),
            "{found:#?}"
        );
    }
}

#[test]
fn each_cloud_of_a_profile_is_rendered() {
    let input = REVIEWED.replace(
        "@BIG@",
        "{{#if (eq cloud.name \\\"hetzner\\\")}}{{nothing}}{{/if}}",
    );
    let found = problems(&input);
    assert!(
        found.iter().any(|problem| problem["message"]
            .as_str()
            .unwrap()
            .contains("sample pool hetzner")),
        "{found:#?}"
    );
}

#[test]
fn names_that_no_data_has_are_found_in_branches_that_no_sample_takes() {
    let of = |text: &str, engine: &str| {
        let lines: String = text
            .lines()
            .map(|line| format!("              {line}\n"))
            .collect();
        let found = problems(&format!(
            "apiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\nmetadata: {{name: mine}}\nspec:\n  \
             osName: ubuntu\n  osVersion: '24.04'\n  version: v1.0.0\n  templateEngine: {engine}\n  supportedCloudProviders: \
             [{{name: aws}}]\n  provisioningConfig:\n    files:\n      - path: /etc/motd\n        \
             content:\n          inline:\n            data: |\n{lines}"
        ));
        let rules = ["unknown-variable", "TemplateFailed"];
        let found = found.into_iter();
        found
            .filter(|problem| rules.contains(&problem["rule"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let go = "a\n{{ if eq .CloudProviderName \"none\" }}{{ .Typo }}{{ with .NetworkConfig }}{{ .Cidr }}{{ $.Other }}{{ end }}{{ end }}";
    let handlebars =
        "a\n{{#if (eq pool.name \"none\")}}{{typo}}{{#with os}}{{nam}}{{@root.other}}{{/with}}{{/if}}";
    for (text, engine, names, columns, hint) in [
        (
            go,
            "GoTemplate",
            [".Typo", ".Other"],
            [".Typo", ".Other"],
            "osmctl explain variables",
        ),
        (
            handlebars,
            "Handlebars",
            ["\"typo\"", "\"other\""],
            ["{{typo", "{{@root"],
            "osmctl explain data",
        ),
    ] {
        let found = of(text, engine);
        assert_eq!(found.len(), 2, "{found:#?}");
        for ((problem, name), start) in found.iter().zip(names).zip(columns) {
            assert_eq!(
                (&problem["rule"], &problem["severity"]),
                (&"unknown-variable".into(), &"warning".into())
            );
            assert_eq!(problem["line"], 17, "{problem:#}");
            let column = 15 + text.lines().nth(1).unwrap().find(start).unwrap();
            assert_eq!(problem["column"], column, "{problem:#}");
            let text = |key: &str| problem[key].as_str().unwrap();
            assert!(
                text("message").contains(name) && text("hint").contains(hint),
                "{problem:#}"
            );
        }
    }
    // A sample finds this one, and it is reported once.
    let found = of("{{typo}}", "Handlebars");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0]["severity"], "error");
}

#[test]
fn actions_in_what_go_templates_leave_as_it_is_are_warned_of() {
    let input = "
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: mine}
spec:
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0
  templateEngine: GoTemplate
  supportedCloudProviders: [{name: aws}]
  bootstrapConfig:
    files: [{path: /a, content: {inline: {data: '{{ .KubeVersion }}'}}}]
    modules: {runcmd: ['echo {{ .KubeVersion }}']}
    units:
      - name: a.service
        content: |
          [Unit]
          Description={{ .KubeVersion }}
";
    let rule = |input: &str| {
        let found = problems(input);
        let lines = found.iter().filter(|problem| problem["rule"] == "verbatim");
        lines
            .map(|problem| problem["line"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(rule(input), [13, 17]);
    let handlebars = input
        .replace("GoTemplate", "Handlebars")
        .replace("{{ .KubeVersion }}", "{{kubelet.version}}");
    assert_eq!(rule(&handlebars), [0; 0]);
}

#[test]
fn profiles_with_the_name_of_a_default_profile_are_found() {
    let built_in = include_str!("../../../../profiles/osp-ubuntu.yaml");
    let custom = built_in.replace(
        "kind: OperatingSystemProfile",
        "kind: CustomOperatingSystemProfile",
    );
    let changed = built_in.replace("osVersion: ", "osVersion: '1' # ");
    for (input, expected) in [
        (built_in, None),
        (
            &changed,
            Some(("default-name", "warning", "osp-controller replaces this profile")),
        ),
        (
            &custom,
            Some((
                "CustomProfileNameTaken",
                "error",
                "is the name of a default profile",
            )),
        ),
        (&custom.replace("name: osp-ubuntu\n", "name: osp-mine\n"), None),
    ] {
        let found = problems(input);
        let Some((rule, severity, message)) = expected else {
            assert!(found.is_empty(), "{found:#?}");
            continue;
        };
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(
            (&found[0]["rule"], &found[0]["severity"]),
            (&rule.into(), &severity.into())
        );
        assert!(
            found[0]["message"].as_str().unwrap().contains(message),
            "{found:#?}"
        );
    }
}

#[test]
fn yaml_traps_are_found_in_every_kind_of_input() {
    let pool = MACHINE_DEPLOYMENT.replace(
        "cloudProviderSpec: {password: hunter2}",
        "cloudProviderSpec: {region: no}",
    );
    let pool = pool.replace(
        "metadata: {name: workers, namespace: kube-system}",
        "metadata:\n  name: workers\n  namespace: kube-system\n  annotations:\n    operatingsystemmanager.k8c.io/settings: |\n      packages: {enabled: off}",
    );
    let map = |name: &str| {
        format!(
            "kind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  settings.yaml: |\n    pauseImage: a\n    packages: {{enabled: on}}\n"
        )
    };
    for (input, lines) in [
        (pool.as_str(), &[9, 18][..]),
        (&map("osm-settings"), &[6]),
        (&map("of-a-pool"), &[6]),
        ("packages: {enabled: yes}", &[1]),
    ] {
        let found = problems(input);
        let traps = found.iter().filter(|problem| problem["rule"] == "yaml-boolean");
        let found_lines: Vec<u64> = traps.map(|problem| problem["line"].as_u64().unwrap()).collect();
        assert_eq!(found_lines, lines, "{input}\n{found:#?}");
    }
}

#[test]
fn programs_can_read_the_result() {
    let input = PROFILE.replace("permissions: 600", "permissions: 0644");
    let sarif = osmctl(&["lint", "-", "-o", "sarif"], &input);
    assert_eq!(sarif.status.code(), Some(1));
    let log: Value = serde_json::from_str(out(&sarif)).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let results = log["runs"][0]["results"].as_array().unwrap();
    let result = results
        .iter()
        .find(|result| result["ruleId"] == "octal-number")
        .unwrap();
    assert_eq!(result["level"], "error");
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!(*region, serde_json::json!({"startLine": 15, "startColumn": 22}));
    let github = osmctl(&["lint", "-", "-o", "github"], &input);
    assert!(
        out(&github).contains("::error file=<stdin>,line=15,col=22,title=octal-number::permissions with"),
        "{}",
        out(&github)
    );
    assert_eq!(osmctl(&["lint", "-o", "xml"], "").status.code(), Some(2));
}

#[test]
fn shellcheck_is_run_where_it_is_installed() {
    // A stand-in with the output format of the program.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shellcheck");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\ngrep -q \"value\" || exit 3\n\
                  echo '{\"comments\": [{\"line\": 2, \"code\": 2086, \"message\": \"Quote this.\"}]}'\nexit 1\n";
    std::fs::write(&program, script).unwrap();
    let mut permissions = std::fs::metadata(&program).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    std::fs::set_permissions(&program, permissions).unwrap();
    let input = REVIEWED.replace(
        "{{shell kubelet.version}}",
        "{{late \\\"api/token\\\" as=\\\"shell\\\"}}",
    );
    let file = folder.path().join("profile.yaml");
    std::fs::write(&file, input.replace("@BIG@", "x")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_osmctl"))
        .arg("lint")
        .arg(&file)
        .env("PATH", path)
        .output()
        .unwrap();
    let text = out(&output);
    assert!(
        text.contains("/opt/bin/a, line 2 of the rendered script: Quote this. [shellcheck]"),
        "{text}"
    );
    assert!(text.contains("wiki/SC2086"), "{text}");
    // It checks the real program's reading of what the library contains, where that is installed.
    assert_eq!(text.matches("[shellcheck]").count(), 1, "{text}");
}

#[test]
fn a_profile_for_older_versions_gives_warnings_at_its_files() {
    let input = "
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: mine}
spec:
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0
  supportedCloudProviders: [{name: aws}]
  provisioningConfig:
    files:
      - path: /etc/containerd/config.toml
        permissions: 600
        content: {inline: {data: '{{ .ContainerRuntimeConfig }}'}}
      - path: /etc/setup
        content: {inline: {data: 'apt-get install -y containerd.io=1.7*'}}
      - path: /etc/systemd/system/kubelet.service
        content:
          inline:
            data: |
              [Service]
              ExecStart=/opt/bin/kubelet --network-plugin=cni{{ if .PauseImage }} \\
                --pod-infra-container-image={{ .PauseImage }}{{ end }}
";
    let found = problems(input);
    let found: Vec<(&str, u64, &str)> = found
        .iter()
        .map(|problem| {
            let text = |key: &str| problem[key].as_str().unwrap();
            let subject = text("message").split(' ').nth(1).unwrap();
            (text("rule"), problem["line"].as_u64().unwrap(), subject)
        })
        .collect();
    let expected = [
        ("conflict", 15, "containerd"),
        ("conflict", 17, "--network-plugin"),
        ("conflict", 17, "--pod-infra-container-image"),
    ];
    assert_eq!(found, expected);
}
