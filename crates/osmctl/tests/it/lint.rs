//! `osmctl lint`.

use osm_api::{Reason, names};
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

/// The values of a field of all problems.
fn all<'p>(found: &'p [Value], field: &str) -> Vec<&'p str> {
    found
        .iter()
        .map(|problem| problem[field].as_str().unwrap())
        .collect()
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

/// What lint says about something that the cluster would report with a reason.
enum Said {
    /// A problem of the reason's name, about an input.
    Same(String),
    /// A problem of another rule, about an input.
    As(&'static str, String),
    /// Nothing: it is no fault, or depends on the cluster, on values of Secrets, or on a request of a machine.
    Not,
}

/// The usual MachineDeployment with an annotation.
fn annotated(key: &str, value: &str) -> String {
    let annotations = format!("metadata: {{annotations: {{{key}: {value:?}}}, ");
    MACHINE_DEPLOYMENT.replace("metadata: {", &annotations)
}

/// The usual MachineDeployment, and one like it.
fn two(one: [&str; 2], other: [&str; 2]) -> String {
    let named = |[namespace, name]: [&str; 2]| {
        let metadata = format!("metadata: {{name: {name}, namespace: {namespace}}}");
        MACHINE_DEPLOYMENT.replace("metadata: {name: workers, namespace: kube-system}", &metadata)
    };
    format!("{}---{}", named(one), named(other))
}

/// A profile that extends another one.
fn extending(base: &str, more: &str) -> String {
    format!(
        "---\napiVersion: operatingsystemmanager.k8c.io/v1alpha1\nkind: OperatingSystemProfile\nmetadata: {{name: mine}}\nspec:\n  \
         extends: {base}\n  osName: ubuntu\n  osVersion: '24.04'\n  version: v1.0.0\n  templateEngine: Handlebars\n  \
         supportedCloudProviders: [{{name: openstack}}]\n{more}"
    )
}

/// What lint reports for each reason.
fn said(reason: Reason) -> Said {
    use Said::{As, Not, Same};
    let md = |from: &str, to: &str| MACHINE_DEPLOYMENT.replace(from, to);
    let mine = PROFILE.replace("osp-ubuntu", "mine");
    let broken = mine.replace("{{late", "{{#late");
    let file = |path: &str, text: &str| {
        format!(
            "  provisioningConfig: {{files: [{{path: {path}, permissions: 644, content: {{inline: {{data: {text}}}}}}}]}}\n"
        )
    };
    match reason {
        Reason::BaseNotFound => Same(extending("osp-none", "")),
        // The mistake of the base.
        Reason::BaseRefused => As(
            "TemplateInvalid",
            extending("osp-base", "") + &broken.replace("mine", "osp-base"),
        ),
        Reason::ContentTooLarge => Same(extending("osp-ubuntu", &file("/a", &"x".repeat(600_000)))),
        Reason::CustomProfileInvalid => {
            let custom = mine.replace("kind: ", "kind: Custom");
            Same(custom.replace("osName: ubuntu", "osName: [ubuntu]"))
        }
        Reason::CustomProfileNameTaken => Same(PROFILE.replace("kind: ", "kind: Custom")),
        Reason::DefaultProfileRestored => As("default-name", PROFILE.to_owned()),
        Reason::ExtendsInvalid => {
            let path = "/etc/systemd/journald.conf.d/10-kubernetes.conf";
            Same(extending("osp-ubuntu", &file(path, "x")))
        }
        Reason::HostNameUnpredictable => {
            let pool = annotated(names::SETTINGS, "kubelet: {hostnameOverride: false}");
            Same(pool.replace("openstack", "aws"))
        }
        Reason::InvalidAnnotation => Same(annotated(names::PROFILE, &"x".repeat(names::MAX_NAME + 1))),
        Reason::InvalidKubeletSettings => Same(annotated(
            names::SETTINGS,
            "kubelet: {configuration: {maxPods: many}}",
        )),
        Reason::InvalidKubeletVersion => Same(md("1.34.2", "latest")),
        Reason::InvalidOperatingSystemSpec => Same(md("distUpgradeOnBoot: false", "distUpgradeOnBoot: [x]")),
        Reason::InvalidProviderSpec => Same(md("cloudProvider:", "cloudProvidr:")),
        Reason::MachineNotUnique => Same(two(["a", "pool"], ["b", "pool"]).replace("openstack", "edge")),
        Reason::ModulesInvalid => Same(extending(
            "osp-ubuntu",
            "  provisioningConfig: {modules: {runcdm: []}}\n",
        )),
        Reason::NameConflict => Same(two(["c", "a-b"], ["b-c", "a"])),
        Reason::NameTooLong => Same(md("workers", &"x".repeat(245))),
        Reason::ObjectUnreadable => Same(md("name: workers", "name: [workers]")),
        Reason::PoolSettingsInvalid => Same(annotated(names::SETTINGS, "pauseImge: x")),
        Reason::PoolSettingsMissing => Same(annotated(names::SETTINGS, "fromConfigMap: none")),
        Reason::ProfileInvalid => Same(mine.replace("osName: ubuntu", "osName: [ubuntu]")),
        // The mistake of the profile.
        Reason::ProfileNotAccepted => As("TemplateInvalid", annotated(names::PROFILE, "mine") + &broken),
        Reason::ProfileNotFound => Same(annotated(names::PROFILE, "none")),
        Reason::ReservedText => Same(mine.replace(" for ", "%%osm-late{")),
        Reason::SourceNotAllowed => {
            let user = "rhelSubscriptionManagerUser: {secretKeyRef: {namespace: kube-system, name: rhel, key: user}}, rhelSubscriptionManagerPassword: x";
            let pool = md("distUpgradeOnBoot: false", user).replace("ubuntu", "rhel");
            Same(pool + "---\ncredentials: {tokenLifetimeHours: 12}\n")
        }
        Reason::TemplateFailed => Same(mine.replace("cluster.apiServer", "cluster.nothing")),
        Reason::TemplateInvalid => Same(broken),
        Reason::TooManyMachineDeployments => {
            Same(two(["a", "b"], ["a", "c"]) + "---\nlimits: {machineDeployments: 1}\n")
        }
        Reason::TooManySources => {
            let registry = |i| format!("{{host: r{i}.example, credentials: {{name: s{i}}}}}");
            let registries: Vec<String> = (0..101).map(registry).collect();
            let settings = format!("containerd: {{registries: [{}]}}", registries.join(", "));
            Same(annotated(names::SETTINGS, &settings))
        }
        Reason::UnknownCloudProvider => Same(md("openstack", "nowhere")),
        Reason::UnknownOperatingSystem => Same(md("ubuntu", "windows")),
        Reason::UnsupportedCloudProvider => {
            Same(annotated(names::PROFILE, "mine").replace("openstack", "aws") + &mine)
        }
        Reason::UnsupportedNetwork => Same(md(
            "operatingSystem:",
            "network: {cidr: 10.0.0.5/24}\n          operatingSystem:",
        )),
        Reason::UnsupportedOperatingSystem => Same(annotated(names::PROFILE, "osp-flatcar")),
        Reason::UnsupportedProvisioningUtility => {
            let pool = annotated(names::PROFILE, "osp-flatcar").replace("ubuntu", "flatcar");
            Same(pool.replace("distUpgradeOnBoot: false", "provisioningUtility: cloud-init"))
        }
        Reason::UserDataInvalid => {
            let input = REVIEWED.replace("\\n[Install]\\nWantedBy=multi-user.target", "");
            Same(input.replace("@BIG@", "x"))
        }
        Reason::UserDataTooLarge => Same(REVIEWED.replace("@BIG@", &incompressible(80_000))),
        _ => Not,
    }
}

#[test]
fn lint_says_what_the_cluster_would_report() {
    for reason in Reason::all() {
        let (rule, input) = match said(reason) {
            Said::Same(input) => (reason.as_str(), input),
            Said::As(rule, input) => (rule, input),
            Said::Not => continue,
        };
        let found = problems(&input);
        let rules = all(&found, "rule");
        assert!(rules.contains(&rule), "{reason}: {found:#?}");
        // Another error would be another fault of the input.
        let errors = found.iter().filter(|problem| problem["severity"] == "error");
        assert!(
            errors.map(|problem| &problem["rule"]).all(|found| found == rule),
            "{reason}: {found:#?}"
        );
    }
    assert_eq!(problems(MACHINE_DEPLOYMENT), Vec::<Value>::new());
}

#[test]
fn names_and_labels_are_those_that_the_api_server_takes() {
    let long = |count| "x".repeat(count);
    let named = |name: &str| MACHINE_DEPLOYMENT.replace("name: workers", &format!("name: {name}"));
    let metadata =
        |more: &str| MACHINE_DEPLOYMENT.replace("name: workers", &format!("name: workers, {more}"));
    let template = |labels: &str| {
        MACHINE_DEPLOYMENT.replace(
            "  template:\n",
            &format!("  template:\n    metadata: {{labels: {{{labels}}}}}\n"),
        )
    };
    let node = |labels: &str| {
        MACHINE_DEPLOYMENT.replace(
            "      versions",
            &format!("      metadata: {{labels: {{{labels}}}}}\n      versions"),
        )
    };
    let edge = |name: &str| named(name).replace("openstack", "edge");
    let profile = |name: &str| PROFILE.replace("osp-ubuntu", name);
    let map = |name: &str| {
        format!("kind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{settings.yaml: 'pauseImage: a'}}\n")
    };
    for (input, expected) in [
        (named("Pool_A"), Some("name")),
        (named("-a"), Some("name")),
        (named("a..b"), Some("name")),
        (named("''"), Some("name")),
        (named("a.b-1"), None),
        (
            MACHINE_DEPLOYMENT.replace("name: workers", "generateName: workers-"),
            None,
        ),
        (MACHINE_DEPLOYMENT.replace("name: workers, ", ""), Some("name")),
        (
            MACHINE_DEPLOYMENT.replace("kube-system", "kube.system"),
            Some("name"),
        ),
        (MACHINE_DEPLOYMENT.replace("kube-system", &long(64)), Some("name")),
        (MACHINE_DEPLOYMENT.replace("kube-system", &long(63)), None),
        (profile("Osp_A"), Some("name")),
        (profile(&long(254)), Some("name")),
        (profile(&long(253)), None),
        (map("Of_Pool"), Some("name")),
        (metadata("labels: {a b: c}"), Some("label")),
        (metadata("labels: {a: b c}"), Some("label")),
        (metadata("annotations: {a b: c}"), Some("label")),
        (metadata("annotations: {Example.com/a: any text}"), None),
        (
            metadata(&format!("annotations: {{a: {}}}", long(256 * 1024))),
            Some("label"),
        ),
        (template(&format!("pool: {}", long(64))), Some("label")),
        (template(&format!("pool: {}", long(63))), None),
        (node(&format!("pool: {}", long(64))), Some("label")),
        (node("example.com/a/b: c"), Some("label")),
        // machine-controller prescribes the names of the Secrets.
        (named(&long(224)), None),
        (named(&long(225)), Some("NameTooLong")),
        // The only node takes the name.
        (edge(&long(63)), None),
        (edge(&long(64)), Some("pool")),
    ] {
        let found = problems(&input);
        let rules = all(&found, "rule");
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(
            rules,
            expected,
            "{}: {found:#?}",
            input.chars().take(200).collect::<String>()
        );
    }
    // One pool that is refused hides nothing of another.
    let input = [named("Pool_A"), named(&long(245)), edge(&long(70))].join("---");
    let found = problems(&input);
    let rules = all(&found, "rule");
    assert_eq!(rules, ["name", "NameTooLong", "pool"], "{found:#?}");
    let places: Vec<u64> = found
        .iter()
        .map(|problem| problem["line"].as_u64().unwrap())
        .collect();
    assert_eq!(places, [4, 20, 36], "{found:#?}");
}

#[test]
fn what_settings_allow_is_not_reported() {
    let user = "rhelSubscriptionManagerUser: {secretKeyRef: {namespace: kube-system, name: rhel, key: user}}, rhelSubscriptionManagerPassword: x";
    let pool = MACHINE_DEPLOYMENT
        .replace("distUpgradeOnBoot: false", user)
        .replace("ubuntu", "rhel");
    // Without settings, lint does not know.
    assert_eq!(problems(&pool), Vec::<Value>::new());
    let settings = "---\ncredentials: {allowedSources: [{namespace: kube-system, secrets: [rhel]}]}\n";
    assert_eq!(problems(&format!("{pool}{settings}")), Vec::<Value>::new());
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
            "docs/go-templates.md lists all variables",
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
            "docs/go-templates.md lists all variables",
        ),
        (
            handlebars,
            "Handlebars",
            ["\"typo\"", "\"other\""],
            ["{{typo", "{{@root"],
            "docs/templates.md lists all fields",
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
