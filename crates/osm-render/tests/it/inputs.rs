//! Any text, anywhere in the inputs, comes out as it went in, as read by whoever reads it on the machine, or is refused
//! with the place and without the text. Nothing else in a document changes with it.
//!
//! Documents with harmless texts are read down to their last text, and so are those with others in their place: what
//! differs must be those texts alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use osm_api::{MachineDeployment, Pool, Settings};
use osm_judges::{MachineConfig, ignition_read, user_data_files};
use osm_render::{ClusterEndpoint, LateValues, Profile, Stage, compile, resolve, user_data, yaml};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

const KUBELET: &str = "v1.kubelet-config.machine-controller.kubermatic.io";

/// What is rendered, with a harmless text in every place. Each stands for itself, so no two are alike.
fn harmless(os: &str) -> Value {
    let pem = "-----BEGIN CERTIFICATE-----\nTWFueSBtYWNoaW5lcw==\n-----END CERTIFICATE-----";
    let pem2 = pem.replace("TWFu", "QWxs");
    let mut annotations = Map::new();
    for (name, value) in [
        ("SystemReserved", "memory=1001Mi"),
        ("KubeReserved", "memory=1002Mi"),
        ("EvictionHard", "memory.available<1003Mi"),
        ("ContainerLogMaxSize", "1004Mi"),
        ("ImageMinimumGCAge", "7m"),
    ] {
        annotations.insert(format!("{KUBELET}/{name}"), json!(value));
    }
    json!({
        "settings": {
            "cluster": {"dnsDomain": "b05.example"},
            "proxy": {"http": "http://b06.example:3128", "noProxy": "b07.example,.svc"},
            "hostCaBundle": pem,
            "pauseImage": "b08.example/pause:3",
            "initialTaints": [{"key": "b09", "value": "b10", "effect": "NoSchedule"}],
            "kubelet": {"featureGates": {"KubeletTracing": true}},
            "containerd": {"registries": [
                {"host": "b12.example:5000", "mirrors": [{"url": "https://b13.example/v2"}], "credentials": {"name": "b14", "namespace": "b15"}},
            ]},
            "downloads": {
                "kubelet": {"baseURL": "https://b16.example/k"},
                "runc": {"baseURL": "https://b17.example/r", "version": "1.3.6", "sha256": {"amd64": "b1".repeat(32)}},
                "cni": {"baseURL": "https://b18.example/c"},
                "crictl": {"baseURL": "https://b19.example/t", "version": "1.35.0"},
            },
            "credentials": {"allowedSources": [{"namespace": "b20"}]},
        },
        "deployment": {
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "b21", "namespace": "b22", "annotations": annotations},
            "spec": {"template": {"spec": {"versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": {
                "sshPublicKeys": ["ssh-ed25519 b23 c"], "cloudProvider": "openstack", "operatingSystem": os,
                "network": {"ipFamily": "IPv4", "cidr": "", "gateway": ""}, "overwriteCloudConfig": "b24\n",
            }}}}},
        },
        "cluster": {"apiServer": "https://b25.example:6443", "ca": pem2},
        "late": {
            "api/token": "b26", "kubelet/token": "b27", "provisioning/secret-name": "b28", "provisioning/key": "b32",
            "provisioning/sha256": "b29",
            "registry/b12.example:5000/username": "b30", "registry/b12.example:5000/password": "b31",
        },
    })
}

/// A place that takes a text.
#[derive(Clone, Copy)]
struct Place {
    /// A pointer into [`harmless`]; of a key, to the map, with the key behind a `#`.
    pointer: &'static str,
    /// Whether blanks around the text are taken away.
    trimmed: bool,
}

/// Places where many texts fit.
const PLACES: [Place; 24] = {
    const fn place(pointer: &'static str) -> Place {
        Place {
            pointer,
            trimmed: false,
        }
    }
    const fn trimmed(pointer: &'static str) -> Place {
        Place {
            trimmed: true,
            ..place(pointer)
        }
    }
    [
        place("/settings/cluster/dnsDomain"),
        place("/settings/proxy/http"),
        place("/settings/proxy/noProxy"),
        trimmed("/settings/hostCaBundle"),
        place("/settings/pauseImage"),
        place("/settings/initialTaints/0/key"),
        place("/settings/initialTaints/0/value"),
        place("/settings/containerd/registries/0/mirrors/0/url"),
        place("/settings/downloads/kubelet/baseURL"),
        place("/settings/downloads/runc/baseURL"),
        place("/settings/downloads/cni/baseURL"),
        place("/settings/downloads/crictl/baseURL"),
        trimmed("/deployment/spec/template/spec/providerSpec/value/sshPublicKeys/0"),
        place("/deployment/spec/template/spec/providerSpec/value/overwriteCloudConfig"),
        place("/cluster/apiServer"),
        trimmed("/cluster/ca"),
        place("/late/api~1token"),
        place("/late/kubelet~1token"),
        place("/late/provisioning~1secret-name"),
        place("/late/provisioning~1sha256"),
        place("/late/registry~1b12.example:5000~1username"),
        place("/late/registry~1b12.example:5000~1password"),
        place("/settings/containerd/registries/0/credentials/name"),
        place("/settings/containerd/registries/0/credentials/namespace"),
    ]
};

/// Places where almost none fits: none of those below. (Names of feature gates are told, as they say where a mistake is.)
const STRICT: [&str; 16] = [
    "/deployment/metadata/annotations/v1.kubelet-config.machine-controller.kubermatic.io~1SystemReserved",
    "/deployment/metadata/annotations/v1.kubelet-config.machine-controller.kubermatic.io~1KubeReserved",
    "/deployment/metadata/annotations/v1.kubelet-config.machine-controller.kubermatic.io~1EvictionHard",
    "/deployment/metadata/annotations/v1.kubelet-config.machine-controller.kubermatic.io~1ContainerLogMaxSize",
    "/settings/cluster/apiServer",
    "/settings/cluster/caBundle",
    "/settings/initialTaints/0/effect",
    "/settings/containerd/registries/0/host",
    "/settings/downloads/runc/version",
    "/settings/downloads/runc/sha256/amd64",
    "/deployment/metadata/annotations/v1.kubelet-config.machine-controller.kubermatic.io~1ImageMinimumGCAge",
    "/deployment/spec/template/spec/versions/kubelet",
    "/deployment/spec/template/spec/providerSpec/value/cloudProvider",
    "/deployment/spec/template/spec/providerSpec/value/operatingSystem",
    "/deployment/spec/template/spec/providerSpec/value/network/ipFamily",
    "/deployment/spec/template/spec/providerSpec/value/network/cidr",
];

/// Texts that some reader or writer might trip over.
fn tricky() -> Vec<String> {
    let mut texts: Vec<String> = [
        "it's \"quoted\" and `ticked`",
        "two\nlines",
        "cr\rin it",
        "dos\r\nlines\r\n",
        "nul\0in it",
        "{{cluster.ca}}",
        "}} {{{x}}} {{> lib/proxy.sh}} {{",
        "key: value",
        "a #comment",
        "#whole comment",
        "- item",
        "%%osm-late{api/token,raw}%%",
        "x%%osm-late{",
        "<MACHINE_NAME>",
        "%3CMACHINE_NAME%3E",
        "🙂 é 日本",
        "yes",
        "no",
        "0777",
        "12:30:45",
        "1_000",
        "~",
        "null",
        "true",
        "EOF\n",
        "a\nEOF\necho injected\n",
        "a\nEND-OF-BUNDLE\nexit 1\n",
        "$(touch injected) ${IFS} $x",
        "back\\slash\\n\\",
        "\\",
        "'; exit 1; '",
        "\"\nKEY=injected",
        "x\nKEY=injected\n",
        "[Service]\nExecStart=/bin/false",
        "]]></x>&amp;<",
        "\u{7f}del",
        "nel\u{85}ls\u{2028}ps\u{2029}",
        "bom\u{feff}\u{fffe}\u{ffff}",
        "c1\u{9f}\u{80}",
        "esc\u{1b}[2J",
        "tab\tin it",
        "  blanks around  ",
        "a\n   \nb",
        "\n\nlead",
        "--- \n...",
        "!!python/object:x",
        "&anchor *alias",
        "'''",
        "\"\"\"",
        "a'''b\nc\"\"\"d\n",
        "%s%n%%",
        "=,<>",
        "$6$salt$hash",
        "http://u:p@host",
        "{}[]:,&*#?|-<>=!%@`",
        // What fits where little does.
        "https://fits.example:1/a%20b~!&()*+,;=:@/-._",
        "fits.example",
        "-----BEGIN CERTIFICATE-----\nEOF\n-----END CERTIFICATE-----\n# EOF\n-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.push("x".repeat(10_000));
    texts.push("é\"\\\n".repeat(2_000));
    texts
}

/// Texts that fit where addresses, certificates and names are wanted, or almost.
fn fitting() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => "https?://[a-z0-9-]{1,9}(\\.[a-z]{1,5}){0,2}(:[1-9][0-9]{0,3})?(/[a-zA-Z0-9._~%!&()*+,;=:@-]{1,9}){0,3}",
        1 => "https?://[a-z]{1,5}[/ $`\"'\\\\#?{}<>|^\n]{1,3}[a-z]{0,5}",
        1 => "[a-zA-Z0-9.:/*,_-]{1,40}",
        1 => "[a-z0-9]{1,9}([.-][a-z0-9]{1,9}){0,3}",
        1 => "(-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/]{1,64}\n|EOF\n){1,4}-----END CERTIFICATE-----\n(# [a-zE#]{0,9}\n){0,2}){1,3}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => fitting(),
        1 => "(?s).{1,200}",
        1 => any::<String>(),
        1 => "([\\[\\]=#;\\\\ \n\r\tA%<>&\"'+$`(){}:,|~!*?-]|EOF|KEY|\u{85}|\u{a0}|\u{2028}|\u{0}){1,60}",
    ]
}

/// The input with `text` in a place.
fn set(input: &mut Value, place: &str, text: &str) {
    if let Some((pointer, key)) = place.split_once('#') {
        let map = input.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
        let value = map.remove(key).unwrap();
        map.insert(text.to_owned(), value);
    } else {
        let (parent, key) = place.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/");
        match input.pointer_mut(parent).unwrap() {
            Value::Object(map) => _ = map.insert(key, json!(text)),
            list => list[key.parse::<usize>().unwrap()] = json!(text),
        }
    }
}

/// The harmless text in a place.
fn at(input: &Value, place: &Place) -> String {
    match place.pointer.split_once('#') {
        Some((_, key)) => key.to_owned(),
        None => input.pointer(place.pointer).unwrap().as_str().unwrap().to_owned(),
    }
}

struct Documents {
    bootstrap: String,
    provisioning: String,
}

/// What comes of an input, or what is said of it.
fn render(profile: &Profile, input: &Value) -> Result<Documents, String> {
    let settings = Settings::from_document(input["settings"].clone()).map_err(|error| error.to_string())?;
    let deployment: MachineDeployment = serde_json::from_value(input["deployment"].clone()).unwrap();
    let pool = Pool::read(&deployment).map_err(|error| error.to_string())?;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cluster = &input["cluster"];
    let cluster = ClusterEndpoint {
        api_server: text(&cluster["apiServer"]),
        ca: text(&cluster["ca"]),
    };
    let late: LateValues = input["late"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(id, value)| (id.clone(), text(value)))
        .collect();
    let rendered = profile
        .render(&pool, &settings, &cluster)
        .map_err(|error| error.to_string())?;
    let document = |stage| user_data(&rendered.spec, stage, &late).map_err(|error| error.to_string());
    Ok(Documents {
        bootstrap: as_machine_controller_leaves_it(&document(Stage::Bootstrap)?),
        provisioning: document(Stage::Provisioning)?,
    })
}

fn as_machine_controller_leaves_it(document: &str) -> String {
    let named = document
        .replace("<MACHINE_NAME>", "machine-1")
        .replace("%3CMACHINE_NAME%3E", "machine-1");
    let blank = |line: &str| !line.is_empty() && line.trim_matches([' ', '\t']).is_empty();
    let lines: Vec<&str> = named
        .split('\n')
        .map(|line| if blank(line) { "" } else { line })
        .collect();
    lines.join("\n")
}

/// A document as a tree: files by path, and everything else.
fn tree(document: &str, ignition: Option<MachineConfig>) -> (Value, BTreeMap<String, String>) {
    let mut files = BTreeMap::new();
    let Some(config) = ignition else {
        let mut tree = yaml::read(document).unwrap().remove(0);
        tree["write_files"].take();
        for file in user_data_files(document).unwrap() {
            assert!(files.insert(file.path, file.content).is_none());
        }
        return (tree, files);
    };
    for file in config.files {
        assert!(files.insert(file.path, file.content).is_none());
    }
    let keys: Vec<_> = config
        .users
        .into_iter()
        .map(|user| (user.name, user.keys))
        .collect();
    let units: Vec<_> = config
        .units
        .into_iter()
        .map(|unit| (unit.name, unit.enabled, unit.content, unit.dropins))
        .collect();
    (json!({"users": keys, "units": units}), files)
}

/// Reads as systemd.exec(5) says of EnvironmentFile.
fn environment_file(text: &str) -> Value {
    let mut found = Map::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
    {
        let (key, value) = line
            .split_once('=')
            .unwrap_or_else(|| panic!("no assignment: {line:?}"));
        let inner = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'))
            .expect("in quotes");
        let mut value = String::new();
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            assert_ne!(c, '"', "ends the quotes: {line:?}");
            value.push(if c == '\\' {
                chars.next().filter(|c| "\"\\`$".contains(*c)).unwrap()
            } else {
                c
            });
        }
        assert!(found.insert(key.to_owned(), json!(value)).is_none());
    }
    Value::Object(found)
}

/// Everything before what a script does when all is defined, and then what it has to say.
fn harnessed(script: &str, root: &Path) -> String {
    let end = [
        "\nwait_for_clock\n",
        "\nprepare_kernel\n",
        "\nprepare_system\n",
        "\nset -- cifs-utils",
    ];
    let end = end.iter().filter_map(|end| script.rfind(end)).max().unwrap();
    let mut defined = script[..end].to_owned();
    for folder in ["/etc/", "/opt/", "/var/lib/", "/run/osm", "/usr/local/share/"] {
        defined = defined.replace(folder, &format!("{}{folder}", root.display()));
    }
    // Asks for nothing but the variables and what functions are called with. No program of this machine may run: `must` would have its
    // certificates updated.
    format!(
        r#"exec 2>&1
command() {{ case $2 in curl | python* | /usr/libexec/*) echo /bin/true ;; *) return 1 ;; esac; }}
update() {{ :; }}
{defined}
begin() {{ printf '%s\0' "$@"; }}
artefact() {{ printf '%s\0' "$@"; return 1; }}
try() {{ :; }}
must() {{ :; }}
printf '%s\0' "${{server-}}" "${{secret-}}" "${{digest-}}" "${{http_proxy-}}" "${{HTTPS_PROXY-}}" "${{no_proxy-}}"
if type write_files >/dev/null 2>&1; then
  write_files; trust_host_ca; arch=amd64; pinned runc; pinned cni; install_programs
fi
if type add_crictl >/dev/null 2>&1; then add_crictl; fi
printf 'end of %s' "$0"
"#
    )
}

/// Files below a folder, by path.
fn written(root: &Path, at: &Path, found: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(at) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            written(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, String::from_utf8(fs::read(&path).unwrap()).unwrap());
        }
    }
}

/// A file, read by whoever reads it on a machine.
fn read(path: &str, text: &str) -> Value {
    match path {
        "/etc/osm/proxy.env" => environment_file(text),
        path if path.ends_with(".toml") => {
            let table: toml::Table = toml::from_str(text).unwrap_or_else(|error| panic!("{path}: {error}"));
            serde_json::to_value(table).unwrap()
        }
        "/etc/kubernetes/kubelet.yaml" | "/etc/kubernetes/bootstrap-kubelet.conf" | "/etc/crictl.yaml" => {
            let documents = yaml::read(text).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(documents.len(), 1, "{path}");
            json!({"parsed": documents, "by PyYAML": text})
        }
        _ => json!(text),
    }
}

/// The harmless API server is the last one that is reached without the proxy.
fn without_api_server(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(listed) = text.strip_suffix(",b25.example") {
                *text = listed.to_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_api_server),
        Value::Object(fields) => fields.values_mut().for_each(without_api_server),
        _ => {}
    }
}

/// Removes a host that follows what is expected: where the text of the API server is a URL, its host is reached without the proxy.
fn ignore_api_server(expected: &Value, found: &mut Value) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    match (expected, found) {
        (Value::String(expected), Value::String(found)) => {
            let more = found
                .strip_prefix(expected.as_str())
                .and_then(|more| more.strip_prefix(','));
            if more.is_some_and(|host| host.chars().all(plain)) {
                found.clone_from(expected);
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            for (expected, found) in expected.iter().zip(found) {
                ignore_api_server(expected, found);
            }
        }
        (Value::Object(expected), Value::Object(found)) => {
            for (key, expected) in expected {
                if let Some(found) = found.get_mut(key) {
                    ignore_api_server(expected, found);
                }
            }
        }
        _ => {}
    }
}

/// Documents as trees of the texts that their readers see.
fn structures(documents: &[Documents], ignition: bool) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<(&str, &str)> = documents
        .iter()
        .flat_map(|documents| {
            [
                ("bootstrap", &*documents.bootstrap),
                ("provisioning", &*documents.provisioning),
            ]
        })
        .collect();
    let mut configs: Vec<Option<MachineConfig>> = if ignition {
        let read = ignition_read(&texts).unwrap();
        read.into_iter()
            .map(|config| Some(config.unwrap_or_else(|verdict| panic!("{verdict}"))))
            .collect()
    } else {
        texts.iter().map(|_| None).collect()
    };
    let mut scripts = Vec::new();
    let mut structures = Vec::new();
    for (i, documents) in documents.iter().enumerate() {
        let (bootstrap, first) = tree(&documents.bootstrap, configs[2 * i].take());
        let (provisioning, second) = tree(&documents.provisioning, configs[2 * i + 1].take());
        let mut files = Map::new();
        for (path, text) in first.iter().chain(&second) {
            if [
                "/opt/bin/osm-bootstrap",
                "/opt/bin/osm-setup",
                "/opt/bin/osm-extras",
            ]
            .contains(&path.as_str())
            {
                let root = folder
                    .path()
                    .join(format!("{i}"))
                    .join(&path["/opt/bin/".len()..]);
                fs::create_dir_all(&root).unwrap();
                fs::write(root.join("script"), harnessed(text, &root)).unwrap();
                scripts.push((i, path.clone(), root));
            } else {
                files.insert(path.clone(), read(path, text));
            }
        }
        structures.push(
            json!({"bootstrap": bootstrap, "provisioning": provisioning, "files": files, "scripts": {}}),
        );
    }
    let run = "for script in */*/script; do (cd \"${script%/*}\" && exec dash script >out </dev/null); done";
    let status = Command::new("dash")
        .args(["-c", run])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    for (i, path, root) in scripts {
        let said = fs::read(root.join("out")).unwrap();
        let said = String::from_utf8(said)
            .unwrap()
            .replace(root.to_str().unwrap(), "");
        let mut found = BTreeMap::new();
        written(&root, &root, &mut found);
        let mut certificates = String::new();
        let mut read_files = Map::new();
        for n in 1.. {
            let names = [
                "usr/local/share/ca-certificates/osm-N.crt",
                "etc/ssl/certs/osm-N.pem",
            ];
            let names = names.map(|name| name.replace('N', &n.to_string()));
            let Some(text) = names.iter().find_map(|name| found.remove(name)) else {
                break;
            };
            certificates.push_str(&text);
        }
        for (name, text) in found
            .into_iter()
            .filter(|(name, _)| name != "out" && name != "script")
        {
            read_files.insert(name.clone(), read(&name, &text));
        }
        let said: Vec<&str> = said.split('\0').collect();
        structures[i]["scripts"][path] =
            json!({"said": said, "certificates": certificates, "files": read_files});
    }
    structures
}

/// `text` with all of `pairs` replaced at once: what takes a place is not looked at again.
fn replaced_text(text: &str, pairs: &[(String, String)]) -> String {
    let (mut new, mut rest) = (String::new(), text);
    while let Some((at, (from, to))) = pairs
        .iter()
        .filter_map(|pair| Some((rest.find(&pair.0)?, pair)))
        .min_by_key(|(at, _)| *at)
    {
        new.push_str(&rest[..at]);
        new.push_str(to);
        rest = &rest[at + from.len()..];
    }
    new + rest
}

/// `tree` with all texts of `pairs` replaced.
fn replaced(tree: &Value, pairs: &[(String, String)]) -> Value {
    let text = |text: &str| replaced_text(text, pairs);
    match tree {
        Value::String(old) => json!(text(old)),
        Value::Array(items) => items.iter().map(|item| replaced(item, pairs)).collect(),
        Value::Object(map) if map.contains_key("by PyYAML") => replaced(&map["parsed"], pairs),
        Value::Object(map) => map
            .iter()
            .map(|(key, item)| (text(key), replaced(item, pairs)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Texts of files for PyYAML, and what they must say.
fn for_pyyaml(tree: &Value, found: &mut Vec<(String, Value)>) {
    match tree {
        Value::Object(map) => match map.get("by PyYAML") {
            Some(text) => found.push((text.as_str().unwrap().to_owned(), map["parsed"][0].clone())),
            None => map.values().for_each(|item| for_pyyaml(item, found)),
        },
        Value::Array(items) => items.iter().for_each(|item| for_pyyaml(item, found)),
        _ => {}
    }
}

/// cloud-init's reader, and much like the kubelet's, takes the texts for the same.
fn pyyaml_agrees(cases: &[(String, Value)]) {
    osm_judges::packages::ensure(&["python3", "python3-yaml"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<&String> = cases.iter().map(|(text, _)| text).collect();
    fs::write(folder.path().join("in"), serde_json::to_vec(&texts).unwrap()).unwrap();
    let program = "import json, sys, yaml
json.dump([yaml.safe_load(text) for text in json.load(sys.stdin)], sys.stdout)";
    let output = Command::new("python3")
        .args(["-c", program])
        .stdin(fs::File::open(folder.path().join("in")).unwrap())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let read: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for ((text, expected), read) in cases.iter().zip(read) {
        assert_eq!(&read, expected, "{text}");
    }
}

/// That an input is refused with its place, and without the text.
fn refused_well(place: &str, text: &str, error: &str) {
    // The whole is too large, whatever made it so.
    if error.contains("takes at most") {
        return;
    }
    let (whole, _) = place.split_once('#').unwrap_or((place, ""));
    let last = whole
        .rsplit('/')
        .find(|part| part.parse::<usize>().is_err())
        .unwrap();
    let last = last.rsplit("~1").next().unwrap();
    let named = match place {
        _ if place.starts_with("/late/") => place["/late/".len()..].replace("~1", "/"),
        "/cluster/ca" => "cluster.ca".to_owned(),
        _ => last.to_owned(),
    };
    // Where a value is refused only where it would stand, that is the place.
    let stands =
        error.starts_with("bootstrapConfig") || error.contains("/opt/bin/") || error.contains("/etc/");
    let says = error.to_lowercase().contains(&named.to_lowercase());
    assert!(says || stands, "{place}: {error}");
    // Short words are anywhere, and what is reserved is named.
    let common = text.chars().count() < 9 || text == "<MACHINE_NAME>";
    assert!(common || !error.contains(text.trim()), "{place}: {error}");
}

/// Tries each case: a text for each place, first alone, then together with all others that were taken.
fn check(os: &str, profile_name: &str, cases: Vec<Vec<String>>) {
    osm_judges::packages::ensure(&["dash"]).unwrap();
    let (_, spec) = osm_render::defaults()
        .into_iter()
        .find(|(name, _)| name == profile_name)
        .unwrap();
    let profile = compile(&resolve(&spec).unwrap()).unwrap();
    let harmless = harmless(os);
    let (mut documents, mut pairs) = (vec![render(&profile, &harmless).unwrap()], vec![Vec::new()]);
    let mut accepted = BTreeMap::<&str, usize>::new();
    for texts in &cases {
        let mut all = harmless.clone();
        let mut chosen = Vec::new();
        for (place, text) in PLACES.iter().zip(texts) {
            let mut input = harmless.clone();
            set(&mut input, place.pointer, text);
            match render(&profile, &input) {
                Ok(_) => {
                    *accepted.entry(place.pointer).or_default() += 1;
                    let mut more = all.clone();
                    set(&mut more, place.pointer, text);
                    // All together may be too large for the cloud.
                    if text.len() > 1000 && render(&profile, &more).is_err() {
                        continue;
                    }
                    all = more;
                    let trimmed = if place.trimmed { text.trim() } else { text };
                    let kept = match place.pointer {
                        url if url.ends_with("baseURL") => trimmed.trim_end_matches('/').to_owned(),
                        bundle if bundle.ends_with("hostCaBundle") => certificates(trimmed),
                        key if key.contains("/sshPublicKeys/") => trimmed.replace('\t', " "),
                        _ => trimmed.to_owned(),
                    };
                    chosen.push((at(&harmless, place), kept));
                }
                Err(error) => refused_well(place.pointer, text, &error),
            }
        }
        for place in STRICT {
            let mut input = harmless.clone();
            set(&mut input, place, &texts[0]);
            // Another host is one whose credentials are not given here.
            match render(&profile, &input) {
                Err(error) if !error.ends_with("is missing") => refused_well(place, &texts[0], &error),
                _ => {}
            }
        }
        documents.push(render(&profile, &all).unwrap());
        pairs.push(chosen);
    }
    let structures = structures(&documents, os == "flatcar");
    for ((structure, pairs), texts) in structures
        .iter()
        .zip(&pairs)
        .zip([&cases[0]].into_iter().chain(&cases))
    {
        let mut first = structures[0].clone();
        without_api_server(&mut first);
        let (expected, mut found) = (replaced(&first, pairs), replaced(structure, &[]));
        ignore_api_server(&expected, &mut found);
        if expected != found {
            panic!("{:?}\n{}", texts[0], difference(&expected, &found, String::new()));
        }
    }
    let mut for_python = Vec::new();
    structures
        .iter()
        .step_by(3)
        .for_each(|structure| for_pyyaml(structure, &mut for_python));
    pyyaml_agrees(&for_python);
    eprintln!("{profile_name}: {} cases; accepted {accepted:#?}", cases.len());
    for place in PLACES {
        assert!(
            accepted.get(place.pointer).is_some_and(|count| *count > 0),
            "{}: nothing fits",
            place.pointer
        );
    }
}

/// What stands around certificates is left out.
fn certificates(bundle: &str) -> String {
    let mut inside = false;
    let kept = bundle.lines().filter(|line| {
        inside |= line.starts_with("-----BEGIN ");
        inside && {
            inside = !line.starts_with("-----END ");
            true
        }
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// The first place where two trees differ.
fn difference(expected: &Value, found: &Value, path: String) -> String {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            let at = keys.into_iter().find(|key| a.get(*key) != b.get(*key)).unwrap();
            let (a, b) = (
                a.get(at).unwrap_or(&Value::Null),
                b.get(at).unwrap_or(&Value::Null),
            );
            difference(a, b, format!("{path}.{at}"))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap();
            difference(&a[at], &b[at], format!("{path}[{at}]"))
        }
        _ => format!("{path}:\nexpected {expected}\nfound    {found}"),
    }
}

fn cases() -> Vec<Vec<String>> {
    let mut cases: Vec<Vec<String>> = tricky()
        .into_iter()
        .map(|text| PLACES.iter().map(|_| text.clone()).collect())
        .collect();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    for _ in 0..40 {
        cases.push(
            PLACES
                .iter()
                .map(|_| text().new_tree(&mut runner).unwrap().current())
                .collect(),
        );
    }
    // What is empty is not set, which is something else.
    for text in cases.iter_mut().flatten().filter(|text| text.trim().is_empty()) {
        "https://not.empty.example".clone_into(text);
    }
    cases
}

#[test]
fn ubuntu_and_cloud_init() {
    check("ubuntu", "osp-ubuntu", cases());
}

#[test]
fn flatcar_and_ignition() {
    check("flatcar", "osp-flatcar", cases());
}

#[test]
fn the_same_input_gives_the_same_bytes_whoever_renders_it() {
    for (os, name) in [("ubuntu", "osp-ubuntu"), ("flatcar", "osp-flatcar")] {
        let (_, spec) = osm_render::defaults()
            .into_iter()
            .find(|(known, _)| known == name)
            .unwrap();
        let profile = compile(&resolve(&spec).unwrap()).unwrap();
        let inputs: Vec<Value> = ["https://a", "https://b", "https://c"]
            .map(|server| {
                let mut input = harmless(os);
                set(&mut input, "/cluster/apiServer", server);
                input
            })
            .into();
        let all = |profile: &Profile| -> Vec<(String, String)> {
            let render = |input| render(profile, input).unwrap();
            inputs
                .iter()
                .map(render)
                .map(|documents| (documents.bootstrap, documents.provisioning))
                .collect()
        };
        let first = all(&profile);
        assert_eq!(all(&compile(&resolve(&spec).unwrap()).unwrap()), first);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| all(&profile))).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), first);
            }
        });
    }
}
