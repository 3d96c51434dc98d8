//! The flags of the Go implementation, and what they are in OSM: a settings document and values of the chart.
//!
//! No flag is dropped silently: each is carried over, has no counterpart for a reason, or is a problem. No message repeats a value.

use std::collections::{BTreeMap, BTreeSet};

use osm_api::settings::{Settings, SettingsError};
use serde_json::{Map, Value, json};

/// The default of `-cluster-dns`.
const CLUSTER_DNS: &str = "10.10.10.10";

/// The default of `-node-no-proxy`.
const NO_PROXY: &str = ".svc,.cluster.local,localhost,127.0.0.1";

/// The Secret that the settings name if a proxy has a user and a password.
pub const PROXY_SECRET: &str = "osm-proxy";

/// The CA of the cluster in a pod.
const CA_IN_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// How a mirror's URL marks that its path is the API root.
const OVERRIDE_PATH: &str = "?kubermatic=override_path%3Dtrue";

/// What flags are in OSM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapped {
    /// The settings document.
    pub settings: Value,
    /// Whether it is not valid, so that no one looked for passwords in it.
    pub is_invalid: bool,
    /// Values of the chart except for the settings.
    pub values: Map<String, Value>,
    /// Why the migration can't go on: a flag that a person has to decide about.
    pub problems: Vec<String>,
    /// What a person may want to know.
    pub notes: Vec<String>,
    /// Secrets in `cloud-init-settings` that must exist.
    pub secrets: Vec<String>,
    /// Namespace of profiles and configs.
    pub namespace: Option<String>,
}

/// What becomes of a flag.
enum Row {
    /// It has no counterpart, for this reason.
    NotNeeded(&'static str),
    Bool(fn(&mut Mapped, bool)),
    Text(fn(&mut Mapped, &str)),
    /// A file in the pod, whose text is this field.
    File(&'static str),
    /// A person has to write the counterpart into settings.
    ByHand(&'static str),
    /// Such an installation is not supported.
    Unsupported(&'static str),
}

/// A flag without a value of its own.
const SWITCHES: [&str; 8] = [
    "device-ownership-from-security-context",
    "disable-default-osps",
    "external-cloud-provider",
    "leader-elect",
    "log-debug",
    "logtostderr",
    "alsologtostderr",
    "help",
];

const MANUAL: &str = "migrate by the manual steps of docs/migration.md";

fn row(flag: &str) -> Option<Row> {
    use Row::{Bool, ByHand, File, NotNeeded, Text, Unsupported};
    Some(match flag {
        "kubeconfig" | "worker-cluster-kubeconfig" => Unsupported(
            "`osmctl migrate` supports an installation in the cluster that it serves; others need the manual steps of docs/migration.md",
        ),
        "namespace" => Text(|mapped, text| mapped.namespace = Some(text.to_owned())),
        "worker-count" => Text(worker_count),
        "container-runtime" => NotNeeded("OSM supports only containerd"),
        "external-cloud-provider" => {
            Bool(|mapped, on| mapped.set("/cluster/externalCloudProvider", json!(on)))
        }
        "cluster-dns" => Text(|mapped, text| mapped.set("/cluster/dnsIPs", json!(listed(text)))),
        "pause-image" => Text(|mapped, text| mapped.set("/pauseImage", json!(text))),
        "initial-taints" => Text(initial_taints),
        "node-kubelet-feature-gates" => Text(feature_gates),
        "node-http-proxy" => Text(http_proxy),
        "node-no-proxy" => Text(|mapped, text| {
            mapped.set("/proxy/noProxy", json!(listed(text).join(",")));
        }),
        "node-insecure-registries" => Text(|mapped, text| {
            listed(text).into_iter().for_each(|host| mapped.insecure(host));
        }),
        "node-registry-mirrors" => Text(registry_mirrors),
        "node-containerd-registry-mirrors" => Text(|mapped, text| match text.split_once('=') {
            Some((registry, url)) => mapped.mirror(registry, url),
            None => mapped.malformed("node-containerd-registry-mirrors", "REGISTRY=URL"),
        }),
        "device-ownership-from-security-context" => Bool(|mapped, on| {
            mapped.set("/containerd/deviceOwnershipFromSecurityContext", json!(on));
        }),
        "node-registry-credentials-secret" => ByHand(
            "the settings name one Secret for each registry; write containerd.registries[].credentials into a settings document",
        ),
        "kubernetes-ca-bundle" => File("/cluster/caBundle"),
        "host-ca-bundle" => File("/hostCaBundle"),
        "ca-bundle" => NotNeeded("it has no effect in the Go implementation"),
        "override-bootstrap-kubelet-apiserver" => Text(|mapped, text| {
            mapped.set("/cluster/apiServer", json!(text));
            mapped.notes.push(
                "the flag -override-bootstrap-kubelet-apiserver becomes cluster.apiServer; nodes use this address for all requests to the API server"
                    .to_owned(),
            );
        }),
        "bootstrap-token-service-account-name" => NotNeeded("all tokens of pools expire"),
        "disable-default-osps" => Bool(|mapped, on| {
            if on {
                mapped.set("/defaultProfiles/enabled", json!(false));
            }
        }),
        "health-probe-address"
        | "metrics-address"
        | "worker-health-probe-address"
        | "worker-metrics-address" => NotNeeded("the chart sets one port for probes and metrics"),
        "leader-elect" => NotNeeded("replicas share the work"),
        "log-debug" => Bool(|mapped, on| {
            if on {
                mapped.value("log", "filter", json!("debug"));
            }
        }),
        "log-format" => Text(|mapped, text| match text.to_ascii_lowercase().as_str() {
            "json" => mapped.value("log", "format", json!("json")),
            _ => mapped.value("log", "format", json!("text")),
        }),
        "v" | "vmodule" | "logtostderr" | "alsologtostderr" | "stderrthreshold" => {
            NotNeeded("the value log.filter of the chart decides what is logged")
        }
        _ => return None,
    })
}

/// A flag with its value, if it has one.
type Flag<'w> = (&'w str, Option<&'w str>);

/// The flags of a command line, and whether something else follows them.
fn parse(words: &[String]) -> (Vec<Flag<'_>>, bool) {
    let (mut flags, mut words) = (Vec::new(), words.iter().map(String::as_str).peekable());
    // The program.
    words.next_if(|word| !word.starts_with('-'));
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return (flags, true);
        };
        flags.push(match flag.split_once('=') {
            Some((name, text)) => (name, Some(text)),
            None if SWITCHES.contains(&flag) => (flag, None),
            None => (flag, words.next()),
        });
    }
    (flags, false)
}

/// Flags that name a file in the pod, and its path. The CA of the cluster is known without it.
pub fn files(words: &[String]) -> Vec<(String, String)> {
    let (flags, _) = parse(words);
    let is_file = |(name, text): Flag<'_>| {
        let path = text.filter(|path| !path.is_empty() && *path != CA_IN_POD)?;
        matches!(row(name), Some(Row::File(_))).then(|| (name.to_owned(), path.to_owned()))
    };
    flags.into_iter().filter_map(is_file).collect()
}

/// Maps a command line. `handled` are flags about which a person has decided, with settings in `own`, which win over those of flags. `files` are
/// the texts of files by the flag that names them.
pub fn map(
    words: &[String],
    handled: &[String],
    files: &BTreeMap<String, String>,
    own: Option<&Value>,
) -> Mapped {
    let mut mapped = Mapped {
        settings: json!({"cluster": {"dnsIPs": [CLUSTER_DNS]}, "proxy": {"noProxy": NO_PROXY}}),
        ..Mapped::default()
    };
    let handled: BTreeSet<&str> = handled.iter().map(|flag| flag.trim_start_matches('-')).collect();
    let (flags, has_more) = parse(words);
    if has_more {
        mapped.problems.push(format!(
            "the command has an argument that is not a flag; {MANUAL}"
        ));
    }
    for (name, text) in flags {
        match text {
            _ if handled.contains(name) => {}
            Some(text) if text.contains("$(") => mapped.by_hand(
                name,
                "its value is from an environment variable; write the value into a settings document",
            ),
            _ => mapped.apply(name, text, files),
        }
    }
    mapped.insecure_mirrors();
    if let Some(own) = own {
        merge(&mut mapped.settings, own);
    }
    if let Err(SettingsError(mistakes)) = Settings::from_document(mapped.settings.clone()) {
        mapped.is_invalid = true;
        mapped.problems.extend(
            mistakes.into_iter().map(|mistake| {
                format!("the settings are not valid: {mistake}; correct them with --settings")
            }),
        );
    }
    mapped
}

/// Adds the fields of `more` to `document`. Those of `more` win.
pub fn merge(document: &mut Value, more: &Value) {
    match (document, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (key, value) in more {
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (place, value) => *place = value.clone(),
    }
}

impl Mapped {
    fn apply(&mut self, name: &str, text: Option<&str>, files: &BTreeMap<String, String>) {
        match (row(name), text) {
            (None, _) => self.problems.push(format!(
                "the flag -{name} is not known; look up what it does, set its counterpart with --settings, and pass --handled-flag {name}"
            )),
            (Some(Row::NotNeeded(reason)), _) => self.note(name, reason),
            (Some(Row::Unsupported(reason)), _) => self.problems.push(format!("the flag -{name} is set: {reason}")),
            (Some(Row::ByHand(reason)), Some("")) => self.note(name, &format!("it is empty ({reason})")),
            (Some(Row::ByHand(reason)), _) => self.by_hand(name, reason),
            (Some(Row::File(_)), Some("")) => {}
            (Some(Row::File(_)), Some(CA_IN_POD)) => self.note(name, "OSM finds the CA of the cluster itself"),
            (Some(Row::File(field)), _) => match files.get(name) {
                Some(text) => self.set(field, json!(text)),
                None => self.by_hand(
                    name,
                    &format!(
                        "it names a file that is not from a ConfigMap; write the text of the file into a settings document as {}",
                        field.trim_start_matches('/').replace('/', ".")
                    ),
                ),
            },
            (Some(Row::Text(_)), None) => self.malformed(name, "present"),
            // As if the flag were absent, except for lists that replace a default.
            (Some(Row::Text(set)), Some("")) if name == "node-no-proxy" => set(self, ""),
            (Some(Row::Text(_)), Some("")) => {}
            // The proxy's are taken out of the address.
            (Some(Row::Text(_)), Some(text)) if name != "node-http-proxy" && has_userinfo(text) => self.by_hand(
                name,
                "its value contains a user name or a password; write the value without them into a settings document",
            ),
            (Some(Row::Text(set)), Some(text)) => set(self, text),
            (Some(Row::Bool(set)), text) => match text.unwrap_or("true") {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => set(self, true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => set(self, false),
                _ => self.malformed(name, "true or false"),
            },
        }
    }

    fn note(&mut self, flag: &str, reason: &str) {
        self.notes
            .push(format!("the flag -{flag} is not needed: {reason}"));
    }

    fn by_hand(&mut self, flag: &str, reason: &str) {
        self.problems.push(format!(
            "the flag -{flag} needs a decision: {reason}. Then pass the settings document with --settings, and add --handled-flag {flag}"
        ));
    }

    fn malformed(&mut self, flag: &str, form: &str) {
        self.problems
            .push(format!("the value of the flag -{flag} must be {form}; {MANUAL}"));
    }

    /// Sets a field of the settings.
    fn set(&mut self, pointer: &str, value: Value) {
        let mut document = value;
        for part in pointer.rsplit('/').filter(|part| !part.is_empty()) {
            document = Value::Object(Map::from_iter([(part.to_owned(), document)]));
        }
        merge(&mut self.settings, &document);
    }

    /// Sets a value of the chart.
    fn value(&mut self, section: &str, key: &str, value: Value) {
        let section = self.values.entry(section).or_insert_with(|| json!({}));
        merge(section, &json!({key: value}));
    }

    /// The registry of a host, which is added if it is not listed.
    fn registry(&mut self, registry: &str) -> Option<&mut Map<String, Value>> {
        // The path of a registry never had an effect.
        let host = match registry.split('/').next().unwrap_or_default() {
            "*" => "_default",
            host => host,
        };
        if self.settings.pointer("/containerd/registries").is_none() {
            self.set("/containerd/registries", json!([]));
        }
        let registries = self
            .settings
            .pointer_mut("/containerd/registries")?
            .as_array_mut()?;
        let at = match registries
            .iter()
            .position(|known| known.get("host") == Some(&json!(host)))
        {
            Some(at) => at,
            None => {
                registries.push(json!({"host": host, "mirrors": []}));
                registries.len() - 1
            }
        };
        registries.get_mut(at)?.as_object_mut()
    }

    fn mirror(&mut self, registry: &str, url: &str) {
        let (url, is_root) = match url.strip_suffix(OVERRIDE_PATH) {
            Some(url) => (url, true),
            None => (url, false),
        };
        let mut mirror = json!({"url": url});
        if is_root {
            merge(&mut mirror, &json!({"overridePath": true}));
        }
        self.add_mirror(registry, mirror);
    }

    fn add_mirror(&mut self, registry: &str, mirror: Value) {
        let registry = self.registry(registry);
        if let Some(Value::Array(mirrors)) = registry.and_then(|registry| registry.get_mut("mirrors")) {
            mirrors.push(mirror);
        }
    }

    /// A registry whose certificate is not verified is its own mirror.
    fn insecure(&mut self, host: &str) {
        let name = host.split('/').next().unwrap_or_default();
        self.add_mirror(
            host,
            json!({"url": format!("https://{name}"), "skipVerify": true}),
        );
    }

    /// Mirrors on hosts that are insecure registries, too, are not verified either. The order of the flags has no meaning, so a registry is its
    /// own mirror only after the others.
    fn insecure_mirrors(&mut self) {
        let Some(Value::Array(registries)) = self.settings.pointer_mut("/containerd/registries") else {
            return;
        };
        let is_insecure = |mirror: &Value| mirror.get("skipVerify") == Some(&json!(true));
        let mirrors = |registry: &Value| registry.get("mirrors").and_then(Value::as_array).cloned();
        let insecure: Vec<String> = registries
            .iter()
            .flat_map(|registry| mirrors(registry).unwrap_or_default())
            .filter(is_insecure)
            .filter_map(|mirror| host_of(mirror.get("url")?.as_str()?))
            .collect();
        for registry in registries {
            let Some(Value::Array(mirrors)) = registry.get_mut("mirrors") else {
                continue;
            };
            mirrors.sort_by_key(is_insecure);
            for mirror in mirrors {
                let host = mirror.get("url").and_then(Value::as_str).and_then(host_of);
                if host.is_some_and(|host| insecure.contains(&host)) {
                    merge(mirror, &json!({"skipVerify": true}));
                }
            }
        }
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

fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next().map(str::to_owned)
}

/// The parts of a comma-separated list.
fn listed(text: &str) -> Vec<&str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn worker_count(mapped: &mut Mapped, text: &str) {
    match text.parse::<u32>() {
        Ok(count) if count > 0 => mapped.value("limits", "concurrency", json!(count)),
        _ => mapped.malformed("worker-count", "a number"),
    }
}

fn initial_taints(mapped: &mut Mapped, text: &str) {
    let mut taints = Vec::new();
    for part in listed(text) {
        let Some((key, effect)) = part.rsplit_once(':') else {
            return mapped.malformed("initial-taints", "KEY=VALUE:EFFECT");
        };
        taints.push(match key.split_once('=') {
            Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
            None => json!({"key": key, "effect": effect}),
        });
    }
    mapped.set("/initialTaints", json!(taints));
}

fn feature_gates(mapped: &mut Mapped, text: &str) {
    const ROTATE: &str = "RotateKubeletServerCertificate";
    for part in listed(text) {
        match part.split_once('=').map(|(gate, on)| (gate, on.parse::<bool>())) {
            Some((ROTATE, Ok(true))) => {}
            Some((ROTATE, Ok(false))) => mapped.by_hand(
                "node-kubelet-feature-gates",
                "the gate RotateKubeletServerCertificate is always on; write only the other gates into kubelet.featureGates of a settings document",
            ),
            Some((gate, Ok(on))) => mapped.set(&format!("/kubelet/featureGates/{gate}"), json!(on)),
            _ => mapped.malformed("node-kubelet-feature-gates", "GATE=true or GATE=false"),
        }
    }
}

fn http_proxy(mapped: &mut Mapped, text: &str) {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let rest = rest.trim_end_matches('/');
    match rest.rsplit_once('@') {
        Some((_, host)) => {
            mapped.set("/proxy/http", json!(format!("{scheme}://{host}")));
            mapped.set("/proxy/credentials", json!({"name": PROXY_SECRET}));
            mapped.secrets.push(PROXY_SECRET.to_owned());
        }
        None => mapped.set("/proxy/http", json!(format!("{scheme}://{rest}"))),
    }
}

fn registry_mirrors(mapped: &mut Mapped, text: &str) {
    for part in listed(text) {
        let is_host = |host: &str| {
            !host.is_empty()
                && host
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        };
        let (registry, url) = match part.split_once('=') {
            Some((registry, url)) if is_host(registry) => (registry, url),
            _ => ("docker.io", part),
        };
        match url.starts_with("http") {
            true => mapped.mirror(registry, url),
            false => mapped.mirror(registry, &format!("https://{url}")),
        }
    }
}

#[cfg(test)]
pub mod fixtures {
    use super::*;

    /// Flags whose value is a text.
    pub fn text_flags() -> Vec<&'static str> {
        let flags = include_str!("../../../../tests/fixtures/go-flags.txt").lines();
        flags
            .filter(|flag| matches!(row(flag), Some(Row::Text(_))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(words: &[&str]) -> Mapped {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        map(&words, &[], &BTreeMap::new(), None)
    }

    /// The settings of these flags without the two defaults of the Go implementation.
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
    fn every_flag_of_the_go_implementation_is_known() {
        let flags = include_str!("../../../../tests/fixtures/go-flags.txt");
        let unknown: Vec<&str> = flags.lines().filter(|flag| row(flag).is_none()).collect();
        assert_eq!(unknown, Vec::<&str>::new());
        assert!(flags.lines().count() >= 30);
    }

    #[test]
    fn the_defaults_of_the_go_implementation_are_carried_over() {
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
                &["-external-cloud-provider"],
                json!({"cluster": {"externalCloudProvider": true}}),
            ),
            (
                &[
                    "--external-cloud-provider=false",
                    "-pause-image",
                    "registry.example/pause:3.10",
                ],
                json!({"cluster": {"externalCloudProvider": false}, "pauseImage": "registry.example/pause:3.10"}),
            ),
            (
                &["-initial-taints=a.example/b=c:NoSchedule,d:NoExecute"],
                json!({"initialTaints": [{"key": "a.example/b", "value": "c", "effect": "NoSchedule"},
                    {"key": "d", "effect": "NoExecute"}]}),
            ),
            (
                &["-node-kubelet-feature-gates=RotateKubeletServerCertificate=true,ImageMaximumGCAge=false"],
                json!({"kubelet": {"featureGates": {"ImageMaximumGCAge": false}}}),
            ),
            (
                &["-node-http-proxy=proxy.example:3128"],
                json!({"proxy": {"http": "http://proxy.example:3128"}}),
            ),
            (
                &[
                    "-device-ownership-from-security-context",
                    "-disable-default-osps=true",
                ],
                json!({"containerd": {"deviceOwnershipFromSecurityContext": true}, "defaultProfiles": {"enabled": false}}),
            ),
            (
                &["-override-bootstrap-kubelet-apiserver=https://api.example:6443"],
                json!({"cluster": {"apiServer": "https://api.example:6443"}}),
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
                    {"host": "own.example:5000", "mirrors": [
                        {"url": "https://c.example/v2/x", "overridePath": true},
                        {"url": "https://own.example:5000", "skipVerify": true}]},
                    {"host": "docker.io", "mirrors": [{"url": "https://a.example"}]},
                    {"host": "quay.io", "mirrors": [{"url": "http://b.example:5000"}]},
                    {"host": "_default", "mirrors": [{"url": "https://own.example:5000", "skipVerify": true}]},
                ]}}),
            ),
        ];
        for (words, expected) in cases {
            assert_eq!(&settings(words), expected, "{words:?}");
        }
    }

    #[test]
    fn flags_become_values_of_the_chart() {
        let mapped = mapped(&[
            "-worker-count=4",
            "-log-debug",
            "-log-format=Console",
            "-leader-elect=false",
        ]);
        assert_eq!(
            Value::Object(mapped.values),
            json!({"limits": {"concurrency": 4}, "log": {"filter": "debug", "format": "text"}})
        );
        assert!(
            mapped.notes.iter().any(|note| note.contains("-leader-elect")),
            "{:?}",
            mapped.notes
        );
        assert!(mapped.problems.is_empty());
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
    }

    #[test]
    fn what_cannot_be_carried_over_is_named_without_its_value() {
        let cases: &[(&[&str], &str)] = &[
            (&["-node-magic=s3cret"], "the flag -node-magic is not known"),
            (&["-node-magic", "s3cret"], "the flag -node-magic is not known"),
            (
                &["-worker-cluster-kubeconfig=/s3cret"],
                "the flag -worker-cluster-kubeconfig is set",
            ),
            (&["-host-ca-bundle=/s3cret"], "hostCaBundle"),
            (&["-kubernetes-ca-bundle=/s3cret"], "cluster.caBundle"),
            (
                &["-node-registry-credentials-secret=a/s3cret"],
                "containerd.registries[].credentials",
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
    fn the_text_of_a_file_becomes_a_setting() {
        let pem = "-----BEGIN CERTIFICATE-----\nTWFu+/==\n-----END CERTIFICATE-----\n";
        let words = ["-host-ca-bundle=/etc/ca.pem", "-kubernetes-ca-bundle", CA_IN_POD].map(str::to_owned);
        let known = [("host-ca-bundle".to_owned(), "/etc/ca.pem".to_owned())];
        assert_eq!(files(&words), known);
        let texts = BTreeMap::from([("host-ca-bundle".to_owned(), pem.to_owned())]);
        let mapped = map(&words, &[], &texts, None);
        assert_eq!(mapped.problems, Vec::<String>::new());
        assert_eq!(mapped.settings["hostCaBundle"], pem);
        assert!(mapped.settings["cluster"].get("caBundle").is_none());
    }

    #[test]
    fn a_person_decides_about_flags_with_settings() {
        let words = [
            "-host-ca-bundle=/etc/ca.pem".to_owned(),
            "-node-magic=1".to_owned(),
        ];
        let handled = ["host-ca-bundle".to_owned(), "-node-magic".to_owned()];
        let own = json!({"cluster": {"dnsIPs": ["10.1.0.10"]}, "pauseImage": "registry.example/pause:3"});
        let mapped = map(&words, &handled, &BTreeMap::new(), Some(&own));
        assert_eq!(mapped.problems, Vec::<String>::new());
        assert_eq!(mapped.settings["cluster"]["dnsIPs"], json!(["10.1.0.10"]));
        assert_eq!(mapped.settings["pauseImage"], "registry.example/pause:3");
        assert_eq!(mapped.settings["proxy"]["noProxy"], NO_PROXY);
    }
}
