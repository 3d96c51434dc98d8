//! `osmctl lint`.

use osm_api::{Reason, names};
use serde_json::Value;

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out, prints, run, says, succeeds};

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
    let output = run("lint - -o json", input);
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
    let output = run("lint --warnings-as-errors", "");
    succeeds(&output);
    assert_eq!(out(&output), "");
    says(&output, "0 errors, 0 warnings in 7 profiles");
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
    let output = run("lint -", &input);
    succeeds(&output);
    let output = run("lint - --warnings-as-errors", &input);
    assert_eq!(output.status.code(), Some(1));
}

/// What lint says about something that the cluster would report with a reason.
enum Said {
    /// A problem of the reason's name, about an input.
    Same(String),
    /// A problem of another rule, about an input.
    As(&'static str, String),
    /// Nothing: it is not a fault, or depends on the cluster, on values of Secrets, or on a request of a
    /// machine.
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
        Reason::ParentNotFound => Same(extending("osp-none", "")),
        // The mistake of the base.
        Reason::ParentNotAccepted => As(
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
        Reason::HostnameUnpredictable => {
            let pool = annotated(names::SETTINGS, "kubelet: {hostnameOverride: false}");
            Same(pool.replace("openstack", "aws"))
        }
        Reason::AnnotationInvalid => Same(annotated(names::PROFILE, &"x".repeat(names::MAX_NAME + 1))),
        Reason::KubeletSettingsInvalid => Same(annotated(
            names::SETTINGS,
            "kubelet: {configuration: {maxPods: many}}",
        )),
        Reason::KubeletVersionInvalid => Same(md("1.34.2", "latest")),
        Reason::OperatingSystemSpecInvalid => Same(md("distUpgradeOnBoot: false", "distUpgradeOnBoot: [x]")),
        Reason::ProviderSpecInvalid => Same(md("cloudProvider:", "cloudProvidr:")),
        Reason::MachineNotUnique => Same(two(["a", "pool"], ["b", "pool"]).replace("openstack", "edge")),
        Reason::ModulesInvalid => Same(extending(
            "osp-ubuntu",
            "  provisioningConfig: {modules: {runcdm: []}}\n",
        )),
        Reason::NameCollision => Same(two(["c", "a-b"], ["b-c", "a"])),
        Reason::NameTooLong => Same(md("workers", &"x".repeat(245))),
        Reason::ObjectUnreadable => Same(md("name: workers", "name: [workers]")),
        Reason::PoolSettingsInvalid => Same(annotated(names::SETTINGS, "pauseImge: x")),
        Reason::PoolSettingsNotFound => Same(annotated(names::SETTINGS, "fromConfigMap: none")),
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

/// The author of a pool has no file of a built-in profile.
#[test]
fn what_is_wrong_with_a_pool_or_its_settings_is_reported_at_its_own_line() {
    const PAGE: &str = include_str!("../../../../docs/osmctl.md");
    assert!(
        PAGE.contains("An error of a pool, or of the settings for it, is reported at its MachineDeployment")
    );
    let pools = two(["a", "one"], ["a", "other"]);
    let network = pools.replace(
        "operatingSystem:",
        "network: {cidr: 10.0.0.5/24}\n          operatingSystem:",
    );
    let gate = format!("{pools}---\nkubelet: {{featureGates: {{NoSuchGate: true}}}}\n");
    for (rule, input, lines) in [
        ("UnsupportedNetwork", network, [4, 21]),
        ("KubeletSettingsInvalid", gate, [4, 20]),
    ] {
        let found = problems(&input);
        let found: Vec<_> = found
            .iter()
            .map(|problem| (problem["rule"].as_str(), problem["line"].as_u64()))
            .collect();
        assert_eq!(found, lines.map(|line| (Some(rule), Some(line))));
        for (name, line) in ["one", "other"].into_iter().zip(lines) {
            let message = format!("MachineDeployment {name}: profile osp-ubuntu: the ");
            prints(
                &run("lint -", &input),
                &format!("<stdin>:{line}:18: error: {message}"),
            );
            let github = run("lint - -o github", &input);
            prints(
                &github,
                &format!("file=<stdin>,line={line},col=18,title={rule}::{message}"),
            );
        }
    }
}

#[test]
fn names_and_labels_are_those_that_the_api_server_takes() {
    let long = |count| "x".repeat(count);
    let md = |from: &str, to: &str| MACHINE_DEPLOYMENT.replace(from, to);
    let labels = |labels: &str| format!("metadata: {{labels: {{{labels}}}}}\n");
    let map = "kind: ConfigMap\nmetadata: {name: Of_Pool}\ndata: {settings.yaml: 'pauseImage: a'}\n";
    for (input, expected) in [
        (md("name: workers", "name: Pool_A"), "name"),
        (md("name: workers, ", ""), "name"),
        (md("kube-system", &long(64)), "name"),
        (PROFILE.replace("osp-ubuntu", &long(254)), "name"),
        (map.to_owned(), "name"),
        (md("name: workers", "name: workers, labels: {a: b c}"), "label"),
        (
            md(
                "  template:\n",
                &format!("  template:\n    {}", labels(&format!("pool: {}", long(64)))),
            ),
            "label",
        ),
        (
            md(
                "      versions",
                &format!("      {}      versions", labels("example.com/a/b: c")),
            ),
            "label",
        ),
        // The only node takes the name.
        (
            md("name: workers", &format!("name: {}", long(64))).replace("openstack", "edge"),
            "pool",
        ),
    ] {
        let found = problems(&input);
        let rules = all(&found, "rule");
        assert_eq!(rules, [expected], "{found:#?}");
    }
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
fn actions_in_what_go_templates_leave_as_it_is_are_warned_of() {
    let lines = |input: &str| {
        let found = problems(input);
        let verbatim = found.iter().filter(|problem| problem["rule"] == "verbatim");
        verbatim
            .map(|problem| problem["line"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let input = REVIEWED.replace("ExecStart=/a", "ExecStart=/a {{kubelet.version}}");
    assert_eq!(lines(&input), [0; 0]);
    let input = input.replace("Handlebars", "GoTemplate");
    assert_eq!(
        lines(&input.replace("{{kubelet.version}}", "{{ .KubeVersion }}")),
        [26]
    );
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
fn workflows_of_github_annotate_the_lines() {
    let input = PROFILE.replace("permissions: 600", "permissions: 0644");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a b,c:d.yaml");
    std::fs::write(&file, input).unwrap();
    let github = osmctl(&["lint", file.to_str().unwrap(), "-o", "github"], "");
    prints(
        &github,
        "a b%2Cc%3Ad.yaml,line=15,col=22,title=octal-number::permissions with",
    );
    prints(&github, "%0AHint: write the digits alone: 644\n");
}

#[test]
fn inputs_that_are_not_what_they_seem_are_named() {
    let twice = format!("{MACHINE_DEPLOYMENT}---{MACHINE_DEPLOYMENT}");
    let with = |settings: &str| format!("{MACHINE_DEPLOYMENT}---\n{settings}\n");
    let old = MACHINE_DEPLOYMENT.replace("providerSpec:", "providerConfig:");
    let skipped = PROFILE
        .replace("{name: osp-ubuntu}", "{name: mine}")
        .replace("openstack}", "edge}");
    let skipped = skipped.replace(
        "bootstrapConfig:",
        "bootstrapConfig:\n    modules: {output: {all: '| cat'}}",
    );
    for (input, rule, place, text) in [
        (
            twice,
            "same-name",
            20,
            "MachineDeployment workers: there is another one of this name at <stdin>:4:18",
        ),
        (
            with("downloads: {kubelet: {sha256: {1.34.2: {}, 1.34.9: {}}}}"),
            "unused-checksum",
            18,
            "pins 1.34.9, but no MachineDeployment",
        ),
        (
            with("{image: {tag: x}, settings: {pauseImage: 'a:1'}}"),
            "SettingsInvalid",
            18,
            "copy what is below settings to a file",
        ),
        (
            old,
            "ProviderSpecInvalid",
            9,
            "rename spec.template.spec.providerConfig",
        ),
        (
            skipped,
            "module-skipped",
            13,
            "bootstrapConfig.modules.output has no effect",
        ),
    ] {
        let found = problems(&input);
        let is_it = |problem: &&Value| problem["rule"] == rule && problem.to_string().contains(text);
        let problem = found.iter().find(is_it);
        let problem = problem.unwrap_or_else(|| panic!("{rule}: {found:#?}"));
        assert_eq!(problem["line"], place, "{problem:#}");
    }
    let both = [MACHINE_DEPLOYMENT, MACHINE_DEPLOYMENT].join("---").replacen(
        "namespace: kube-system",
        "namespace: other",
        1,
    );
    assert!(!all(&problems(&both), "rule").contains(&"same-name"));
}
