//! The flags of the upstream OSM, and what they are in OSM: a settings document and values of the chart.
//!
//! No flag is dropped silently: each is carried over, has no counterpart for a reason, or is a problem. No
//! message repeats a value.
//!
//! ```text
//! command_line   words → flags
//! mapped         what flags are in OSM
//! registries     flags about registries
//! credentials    the Secret with their credentials
//! row            what becomes of each flag
//! ```

mod command_line;
mod credentials;
mod mapped;
mod registries;
mod row;

use std::collections::{BTreeMap, BTreeSet};

use osm_api::settings::{Settings, SettingsError};
use serde_json::{Value, json};

use self::command_line::{Flag, boolean, parse};
pub use self::credentials::RegistrySecret;
use self::mapped::MANUAL;
pub use self::mapped::Mapped;
pub use self::row::REGISTRY_SECRET;
use self::row::{Row, row};
use crate::output::merge;

/// The default of `-cluster-dns`.
const CLUSTER_DNS: &str = "10.10.10.10";

/// The default of `-node-no-proxy`.
const NO_PROXY: &str = ".svc,.cluster.local,localhost,127.0.0.1";

/// The CA of the cluster in a pod.
const CA_IN_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The value of a flag; empty if the command line does not have it.
pub fn value<'w>(words: &'w [String], name: &str) -> &'w str {
    let (flags, _) = parse(words);
    let last = flags.into_iter().rev().find(|(found, _)| *found == name);
    last.and_then(|(_, text)| text).unwrap_or_default()
}

/// Maps a command line. `handled` are flags about which a person has decided, with settings in `own`, which
/// win over those of flags. `secret` is the Secret that the flag [`REGISTRY_SECRET`] names.
pub fn map(
    words: &[String],
    handled: &[String],
    own: Option<&Value>,
    secret: Option<RegistrySecret>,
) -> Mapped {
    let mut mapped = Mapped {
        settings: json!({"cluster": {"dnsIPs": [CLUSTER_DNS]}, "proxy": {"noProxy": NO_PROXY}}),
        registry_secret: secret,
        ..Mapped::default()
    };
    let handled: BTreeSet<&str> = handled.iter().map(|flag| flag.trim_start_matches('-')).collect();
    let (flags, has_more) = parse(words);
    if has_more {
        mapped.problems.push(format!(
            "the command has an argument that is not a flag; {MANUAL}"
        ));
    }
    let mut blamed: BTreeMap<String, &str> = BTreeMap::new();
    for (name, text) in last_of_each(flags) {
        match text {
            _ if handled.contains(name) => {}
            Some(text) if text.contains("$(") => mapped.by_hand(
                name,
                "its value is from an environment variable; write the value into a settings document",
            ),
            _ => apply(&mut mapped, name, text),
        }
        for mistake in mistakes(&mapped.settings) {
            blamed.entry(mistake).or_insert(name);
        }
    }
    mapped.set_registries();
    if let Some(own) = own {
        merge(&mut mapped.settings, own);
    }
    // KubeOne, for one, passes the flag only with NodeLocal DNSCache.
    if mapped.settings.pointer("/cluster/dnsIPs") == Some(&json!([CLUSTER_DNS])) {
        mapped.notes.push(format!(
            "cluster.dnsIPs is {CLUSTER_DNS}, the default of the flag -cluster-dns; if `kubectl get service -n kube-system kube-dns` shows \
             another address, set that, because pods of new nodes would have no DNS"
        ));
    }
    for mistake in mistakes(&mapped.settings) {
        mapped.is_invalid = true;
        let origin = match blamed.get(&mistake) {
            Some(flag) => format!("the settings of the flag -{flag}"),
            None => "the settings".to_owned(),
        };
        mapped.problems.push(format!(
            "{origin} are not valid: {mistake}; correct them with --settings"
        ));
    }
    mapped
}

fn mistakes(settings: &Value) -> Vec<String> {
    match Settings::from_document(settings.clone()) {
        Ok(_) => Vec::new(),
        Err(SettingsError(mistakes)) => mistakes,
    }
}

/// The flags, without values that a later one of the same name replaces. One flag collects the values of all.
fn last_of_each(flags: Vec<Flag<'_>>) -> Vec<Flag<'_>> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> = flags
        .into_iter()
        .rev()
        .filter(|(name, _)| seen.insert(*name) || *name == "node-containerd-registry-mirrors")
        .collect();
    kept.reverse();
    kept
}

/// Carries a flag over.
fn apply(mapped: &mut Mapped, name: &str, text: Option<&str>) {
    match (row(name), text) {
        (None, _) => mapped.problems.push(format!(
            "the flag -{name} is not known; look up what it does, set its counterpart with --settings, and pass --handled-flag {name}"
        )),
        (Some(Row::NotNeeded(reason)), _) => mapped.note(name, reason),
        (Some(Row::File(_)), Some("")) => {}
        (Some(Row::File(_)), Some(CA_IN_POD)) => mapped.note(name, "OSM finds the CA of the cluster itself"),
        (Some(Row::File(field)), _) => mapped.by_hand(
            name,
            &format!("it names a file; write the text of the file into a settings document as {field}"),
        ),
        (Some(Row::Text(_)), None) => mapped.malformed(name, "present"),
        // As if the flag were absent, except for lists that replace a default.
        (Some(Row::Text(set)), Some("")) if name == "node-no-proxy" => set(mapped, ""),
        (Some(Row::Text(_)), Some("")) => {}
        // The proxy's are taken out of the address.
        (Some(Row::Text(_)), Some(text)) if name != "node-http-proxy" && has_userinfo(text) => mapped.by_hand(
            name,
            "its value contains a user name or a password; write the value without them into a settings document",
        ),
        (Some(Row::Text(set)), Some(text)) => set(mapped, text),
        (Some(Row::Bool(set)), text) => match boolean(text.unwrap_or("true")) {
            Some(on) => set(mapped, on),
            None => mapped.malformed(name, "true or false"),
        },
    }
}

/// Whether a value may contain a user name and a password. The digest of an image follows an `@`, too.
fn has_userinfo(text: &str) -> bool {
    let is_digest = |text: &str| text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    let image = match text.split_once("@sha256:") {
        Some((image, digest)) if is_digest(digest) => image,
        _ => text,
    };
    image.contains('@')
}

#[cfg(test)]
pub mod fixtures {
    use super::*;

    /// Flags whose value is a text.
    pub fn text_flags() -> Vec<&'static str> {
        let flags = include_str!("../../../../../e2e/tests/fixtures/go-flags.txt").lines();
        flags
            .filter(|flag| matches!(row(flag), Some(Row::Text(_))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::row::PROXY_SECRET;
    use super::*;

    fn mapped(words: &[&str]) -> Mapped {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        map(&words, &[], None, None)
    }

    /// The settings of these flags without the two defaults of the upstream OSM.
    fn settings(words: &[&str]) -> Value {
        let mapped = mapped(words);
        assert_eq!(mapped.problems, Vec::<String>::new(), "{words:?}");
        let mut settings = mapped.settings;
        assert_eq!(settings["cluster"]["dnsIPs"].take(), json!([CLUSTER_DNS]));
        assert_eq!(settings["proxy"]["noProxy"].take(), json!(NO_PROXY));
        for (section, field) in [("cluster", "dnsIPs"), ("proxy", "noProxy")] {
            let fields = settings[section].as_object_mut().unwrap();
            fields.remove(field);
            if fields.is_empty() {
                settings.as_object_mut().unwrap().remove(section);
            }
        }
        settings
    }

    #[test]
    fn the_default_address_of_dns_is_doubted() {
        let doubts = |words: &[&str]| {
            mapped(words)
                .notes
                .iter()
                .any(|note| note.contains("10.10.10.10"))
        };
        assert!(doubts(&["-namespace=kube-system"]));
        assert!(!doubts(&["-cluster-dns=169.254.20.10"]));
    }

    #[test]
    fn every_flag_of_the_upstream_osm_is_known() {
        let flags = include_str!("../../../../../e2e/tests/fixtures/go-flags.txt");
        let unknown: Vec<&str> = flags.lines().filter(|flag| row(flag).is_none()).collect();
        assert_eq!(unknown, Vec::<&str>::new());
        assert!(flags.lines().count() >= 30);
    }

    #[test]
    fn the_defaults_of_the_upstream_osm_are_carried_over() {
        assert_eq!(settings(&[]), json!({}));
        assert_eq!(settings(&["/usr/local/bin/osm-controller"]), json!({}));
        let mapped = mapped(&["-cluster-dns=169.254.20.10, fd00::a", "-node-no-proxy="]);
        assert_eq!(
            mapped.settings,
            json!({"cluster": {"dnsIPs": ["169.254.20.10", "fd00::a"]}, "proxy": {"noProxy": ""}})
        );
        assert!(mapped.problems.is_empty(), "{:?}", mapped.problems);
    }

    #[test]
    fn flags_become_settings() {
        let cases: &[(&[&str], Value)] = &[
            (
                &[
                    "-external-cloud-provider",
                    "-pause-image",
                    "registry.example/pause:3.10",
                    "-initial-taints=a.example/b=c:NoSchedule,d:NoExecute",
                    "-node-kubelet-feature-gates=RotateKubeletServerCertificate=true,ImageMaximumGCAge=F",
                    "--node-http-proxy=HTTP://proxy.example:3128/",
                    "-device-ownership-from-security-context",
                    "-disable-default-osps=true",
                    "-override-bootstrap-kubelet-apiserver=api.example:6443",
                ],
                json!({
                    "cluster": {"externalCloudProvider": true, "apiServer": "https://api.example:6443"},
                    "pauseImage": "registry.example/pause:3.10",
                    "initialTaints": [{"key": "a.example/b", "value": "c", "effect": "NoSchedule"},
                        {"key": "d", "effect": "NoExecute"}],
                    "kubelet": {"featureGates": {"ImageMaximumGCAge": false}},
                    "proxy": {"http": "http://proxy.example:3128"},
                    "containerd": {"deviceOwnershipFromSecurityContext": true},
                    "defaultProfiles": {"enabled": false},
                }),
            ),
            // Each mirror in its order, and the registry itself last.
            (
                &[
                    "-node-insecure-registries=own.example:5000",
                    "-node-registry-mirrors=a.example,quay.io=http://b.example:5000",
                    "-node-containerd-registry-mirrors=own.example:5000=https://c.example/v2/x?kubermatic=override_path%3Dtrue",
                    "-node-containerd-registry-mirrors=*=https://own.example:5000",
                ],
                json!({"containerd": {"registries": [
                    {"host": "_default", "mirrors": [{"url": "https://own.example:5000", "skipVerify": true}]},
                    {"host": "docker.io", "mirrors": [{"url": "https://a.example"}]},
                    {"host": "own.example:5000", "mirrors": [
                        {"url": "https://c.example/v2/x", "skipVerify": true, "overridePath": true},
                        {"url": "https://own.example:5000", "skipVerify": true}]},
                    {"host": "quay.io", "mirrors": [{"url": "http://b.example:5000"}]},
                ]}}),
            ),
        ];
        for (words, expected) in cases {
            assert_eq!(&settings(words), expected, "{words:?}");
        }
    }

    /// Forms of a mirror, and its URL.
    const MIRRORS: [(&str, &str); 5] = [
        ("mirror.example", "https://mirror.example"),
        (
            "mirror.example:5000/v2/hub/",
            "https://mirror.example:5000/v2/hub/",
        ),
        ("http://mirror.example:5000/hub", "http://mirror.example:5000/hub"),
        ("HTTPS://mirror.example", "https://mirror.example"),
        ("[fd00::1]:5000", "https://[fd00::1]:5000"),
    ];

    /// Forms of the two flags up to the mirror, and the host of the registry.
    const FLAGS: [(&str, &str); 7] = [
        ("-node-containerd-registry-mirrors=quay.io/org=", "quay.io"),
        ("-node-containerd-registry-mirrors=https://quay.io=", "quay.io"),
        (
            "-node-containerd-registry-mirrors=own.example:5000=",
            "own.example:5000",
        ),
        ("-node-containerd-registry-mirrors=*=", "_default"),
        ("-node-registry-mirrors=", "docker.io"),
        ("-node-registry-mirrors=docker.io=", "docker.io"),
        ("-node-registry-mirrors=quay.io=", "quay.io"),
    ];

    fn registry(host: &str, mirrors: &[Value]) -> Value {
        json!({"containerd": {"registries": [{"host": host, "mirrors": mirrors}]}})
    }

    #[test]
    fn every_form_of_a_mirror_is_the_same_in_both_flags() {
        for (mirror, url) in MIRRORS {
            for (query, is_root) in [
                ("", false),
                ("?kubermatic=override_path%3Dtrue", true),
                ("?kubermatic=override_path%3Dfalse", false),
            ] {
                let expected = if is_root {
                    json!({"url": url, "overridePath": true})
                } else {
                    json!({"url": url})
                };
                for (flag, host) in FLAGS {
                    let words = format!("{flag}{mirror}{query}");
                    let expected = registry(host, std::slice::from_ref(&expected));
                    assert_eq!(settings(&[&words]), expected, "{words}");
                }
            }
        }
    }

    #[test]
    fn nodes_verify_no_mirror_of_an_insecure_registry_and_none_on_its_host() {
        let unverified = |url: &str| json!({"url": url, "skipVerify": true});
        for (name, host, own) in [
            ("docker.io", "docker.io", "https://registry-1.docker.io"),
            ("own.example:5000", "own.example:5000", "https://own.example:5000"),
            ("http://own.example/x", "own.example", "http://own.example"),
        ] {
            let insecure = format!("-node-insecure-registries={name}");
            let of_registry = format!("-node-containerd-registry-mirrors={host}=mirror.example");
            let mirrors = [unverified("https://mirror.example"), unverified(own)];
            for words in [[&insecure, &of_registry], [&of_registry, &insecure]] {
                let words = words.map(String::as_str);
                assert_eq!(settings(&words), registry(host, &mirrors), "{words:?}");
            }
        }
        // On the host of an insecure registry, a mirror of another one.
        let words = [
            "-node-insecure-registries=own.example:5000",
            "-node-registry-mirrors=quay.io=own.example:5000/hub",
        ];
        let registries = &settings(&words)["containerd"]["registries"];
        assert_eq!(
            registries[1],
            json!({"host": "quay.io", "mirrors": [unverified("https://own.example:5000/hub")]})
        );
        // All registries together have no URL.
        let problems = mapped(&["-node-insecure-registries=*"]).problems.join("\n");
        assert!(
            problems.contains("-node-insecure-registries needs a decision"),
            "{problems}"
        );
    }

    #[test]
    fn several_values_are_those_that_the_upstream_osm_takes() {
        let mirrors = |hosts: &[&str]| {
            let mirror = |host: &&str| json!({"url": format!("https://{host}")});
            registry("docker.io", &hosts.iter().map(mirror).collect::<Vec<_>>())
        };
        let cases: &[(&[&str], Value)] = &[
            // A list, in its order and each once.
            (
                &["-node-registry-mirrors=b.example, a.example,https://b.example,"],
                mirrors(&["b.example", "a.example"]),
            ),
            // One flag collects what it is given, another has its last value.
            (
                &[
                    "-node-containerd-registry-mirrors=docker.io=b.example",
                    "--node-containerd-registry-mirrors",
                    "docker.io=a.example",
                    "-node-registry-mirrors=docker.io=c.example",
                ],
                mirrors(&["b.example", "a.example", "c.example"]),
            ),
            (
                &[
                    "-node-registry-mirrors=a.example",
                    "-node-registry-mirrors=b.example",
                ],
                mirrors(&["b.example"]),
            ),
            (
                &["-kubeconfig=", "-worker-cluster-kubeconfig", "", "--"],
                json!({}),
            ),
        ];
        for (words, expected) in cases {
            assert_eq!(&settings(words), expected, "{words:?}");
        }
    }

    #[test]
    fn the_digest_of_an_image_is_no_password() {
        let digest = format!("registry.example/pause@sha256:{}", "0a".repeat(32));
        let image = format!("-pause-image={digest}");
        assert_eq!(settings(&[&image]), json!({"pauseImage": digest}));
        for text in ["a:b@c/d", "a:b@c/d@sha256:00", "a:b@sha256:c"] {
            assert!(has_userinfo(text), "{text}");
        }
    }

    #[test]
    fn a_proxys_password_goes_into_a_secret_and_nowhere_else() {
        let mapped = mapped(&["-node-http-proxy=http://operator:h0t-and-secret@proxy.example:3128/"]);
        assert_eq!(mapped.settings["proxy"]["http"], "http://proxy.example:3128");
        assert_eq!(
            mapped.settings["proxy"]["credentials"],
            json!({"name": PROXY_SECRET})
        );
        assert_eq!(mapped.secrets, [PROXY_SECRET]);
        assert!(!format!("{mapped:?}").contains("h0t"), "{mapped:?}");
        let mapped = self::mapped(&["-node-http-proxy=operator:h0t://secret@proxy.example:3128"]);
        assert_eq!(mapped.settings["proxy"]["http"], "http://proxy.example:3128");
        assert!(!format!("{mapped:?}").contains("h0t"), "{mapped:?}");
    }

    #[test]
    fn what_cannot_be_carried_over_is_named_without_its_value() {
        let cases: &[(&[&str], &str)] = &[
            (&["-node-magic=s3cret"], "the flag -node-magic is not known"),
            (&["-kubernetes-ca-bundle=/s3cret"], "cluster.caBundle"),
            (
                &["-node-registry-credentials-secret=a/s3cret"],
                "-node-registry-credentials-secret names does not exist",
            ),
            (&["-worker-count=s3cret"], "-worker-count must be a number"),
            (&["-external-cloud-provider=s3cret"], "true or false"),
            (&["-initial-taints=s3cret"], "KEY=VALUE:EFFECT"),
            (&["-node-kubelet-feature-gates=s3cret"], "GATE=true"),
            (
                &["-node-kubelet-feature-gates=RotateKubeletServerCertificate=false"],
                "is always on",
            ),
            (&["-cluster-dns=s3cret"], "cluster.dnsIPs[0]"),
            (&["-cluster-dns"], "-cluster-dns must be present"),
            (
                &["-pause-image=s3cret image"],
                "the settings of the flag -pause-image",
            ),
            (
                &["-node-registry-mirrors=s3cret?x=y"],
                "-node-registry-mirrors must be mirrors",
            ),
            (
                &["-node-containerd-registry-mirrors=s3cret"],
                "-node-containerd-registry-mirrors must be REGISTRY=URL",
            ),
            (
                &["-node-insecure-registries=s3cret:port"],
                "-node-insecure-registries must be registries",
            ),
            (&["osm-controller", "run-s3cret"], "is not a flag"),
            (&["-node-no-proxy=$(S3CRET)"], "is from an environment variable"),
        ];
        for (words, expected) in cases {
            let problems = mapped(words).problems.join("\n");
            assert!(problems.contains(expected), "{words:?}: {problems}");
            assert!(!problems.contains("s3cret"), "{problems}");
        }
    }

    #[test]
    fn a_person_decides_about_flags_with_settings() {
        let words = [
            "-host-ca-bundle=/etc/ca.pem".to_owned(),
            "-node-magic=1".to_owned(),
        ];
        let handled = ["host-ca-bundle".to_owned(), "-node-magic".to_owned()];
        let own = json!({"cluster": {"dnsIPs": ["10.1.0.10"]}, "pauseImage": "registry.example/pause:3"});
        let mapped = map(&words, &handled, Some(&own), None);
        assert_eq!(mapped.problems, Vec::<String>::new());
        assert_eq!(mapped.settings["cluster"]["dnsIPs"], json!(["10.1.0.10"]));
        assert_eq!(mapped.settings["pauseImage"], "registry.example/pause:3");
        assert_eq!(mapped.settings["proxy"]["noProxy"], NO_PROXY);
    }
}
