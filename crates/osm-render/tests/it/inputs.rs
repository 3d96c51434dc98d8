//! Any text, anywhere in the inputs, comes out as it went in, as read by the program that reads it on the
//! machine, or is refused without being repeated. Nothing else in a document changes with it.
//!
//! What a machine gets with harmless texts is read down to its last text, and so is what it gets with others
//! in their place: what differs must be those texts alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use osm_api::{MachineDeployment, Pool, Settings};
use osm_render::Profile;
use osm_user_data::{LateValues, MachineFile, MachineStage, Stage, machine_stage, yaml};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

use crate::common::{cluster, compiled, default_spec};

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
            "hostCABundle": pem,
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
            "provisioning/sha256": "b29", "pool/id": "b33", "pool/content": "b34",
            "registry/b12.example:5000/username": "b30", "registry/b12.example:5000/password": "b31",
        },
    })
}

/// Places where many texts fit, as pointers into [`harmless`].
const PLACES: [&str; 24] = [
    "/settings/cluster/dnsDomain",
    "/settings/proxy/http",
    "/settings/proxy/noProxy",
    "/settings/hostCABundle",
    "/settings/pauseImage",
    "/settings/initialTaints/0/key",
    "/settings/initialTaints/0/value",
    "/settings/containerd/registries/0/mirrors/0/url",
    "/settings/downloads/kubelet/baseURL",
    "/settings/downloads/runc/baseURL",
    "/settings/downloads/cni/baseURL",
    "/settings/downloads/crictl/baseURL",
    "/deployment/spec/template/spec/providerSpec/value/sshPublicKeys/0",
    "/deployment/spec/template/spec/providerSpec/value/overwriteCloudConfig",
    "/cluster/apiServer",
    "/cluster/ca",
    "/late/api~1token",
    "/late/kubelet~1token",
    "/late/provisioning~1secret-name",
    "/late/provisioning~1sha256",
    "/late/registry~1b12.example:5000~1username",
    "/late/registry~1b12.example:5000~1password",
    "/settings/containerd/registries/0/credentials/name",
    "/settings/containerd/registries/0/credentials/namespace",
];

/// Texts that some reader or writer might trip over: short ones, longer ones, and those that fit where little
/// does. A test of YAML has more that only its readers mistake.
const TRICKY: [&[&str]; 3] = [
    &[
        "- item", "yes", "no", "0777", "12:30:45", "1_000", "~", "null", "true", "EOF\n", "\\", "\n\nlead",
        "'''", "\"\"\"", "%s%n%%", "=,<>",
    ],
    &[
        "it's \"quoted\" and `ticked`",
        "🙂 é 日本",
        "two\nlines",
        "cr\rin it",
        "dos\r\nlines\r\n",
        "nul\0in it",
        "{{cluster.ca}}",
        "}} {{{x}}} {{> lib/proxy.sh}} {{",
        "%%osm-late{api/token,raw}%%",
        "x%%osm-late{",
        "a\nEOF\necho injected\n",
        "a\nEND-OF-BUNDLE\nexit 1\n",
        "$(touch injected) ${IFS} $x",
        "back\\slash\\n\\",
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
        "a'''b\nc\"\"\"d\n",
        "$6$salt$hash",
        "http://u:p@host",
        "{}[]:,&*#?|-<>=!%@`",
    ],
    &[
        "https://fits.example:1/a%20b~!&()*+,;=:@/-._",
        "fits.example",
        "-----BEGIN CERTIFICATE-----\nEOF\n-----END CERTIFICATE-----\n# EOF\n-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
    ],
];

fn tricky() -> Vec<String> {
    let mut texts: Vec<String> = TRICKY.concat().into_iter().map(str::to_owned).collect();
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
    // A place that is not there yet is a field of a map.
    let (parent, key) = place.rsplit_once('/').unwrap();
    match input.pointer_mut(parent).unwrap() {
        Value::Object(map) => _ = map.insert(key.replace("~1", "/"), json!(text)),
        list => list[key.parse::<usize>().unwrap()] = json!(text),
    }
}

/// What an input puts on a machine, or what is said of it. Tests of each language show that documents have
/// the same in them.
fn render(profile: &Profile, input: &Value) -> Result<[MachineStage; 2], String> {
    let settings = Settings::from_document(input["settings"].clone()).map_err(|error| error.to_string())?;
    let deployment: MachineDeployment = serde_json::from_value(input["deployment"].clone()).unwrap();
    let pool = Pool::read(&deployment).map_err(|error| error.to_string())?;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let cluster = cluster(
        &text(&input["cluster"]["apiServer"]),
        &text(&input["cluster"]["ca"]),
    );
    let late = input["late"].as_object().unwrap().iter();
    let late: LateValues = late.map(|(id, value)| (id.clone(), text(value))).collect();
    let rendered = profile
        .render(&pool, &settings, &cluster)
        .map_err(|error| error.to_string())?;
    let stage = |stage| machine_stage(&rendered.spec, stage, &late).map_err(|error| error.to_string());
    Ok([stage(Stage::Bootstrap)?, stage(Stage::Provisioning)?])
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
    // Asks for nothing but the variables and what functions are called with. No program of this machine may
    // run: `must` would have its certificates updated.
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

/// A file, as the program reads it that does so on a machine.
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
            json!(documents)
        }
        _ => json!(text),
    }
}

/// What is on machines, as trees of the texts that the readers of files and scripts see.
fn structures(machines: Vec<[MachineStage; 2]>) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut scripts = Vec::new();
    let mut structures = Vec::new();
    for (i, stages) in machines.into_iter().enumerate() {
        let mut files = Map::new();
        let mut others = Vec::new();
        for stage in stages {
            for MachineFile { path, text, .. } in stage.files {
                let name = path.strip_prefix("/opt/bin/").unwrap_or_default();
                if ["osm-bootstrap", "osm-setup", "osm-extras"].contains(&name) {
                    let root = folder.path().join(i.to_string()).join(name);
                    fs::create_dir_all(&root).unwrap();
                    fs::write(root.join("script"), harnessed(&text, &root)).unwrap();
                    scripts.push((i, path, root));
                } else {
                    files.insert(path.clone(), read(&path, &text));
                }
            }
            others.push(json!({"units": stage.units, "other": stage.other}));
        }
        structures.push(json!({"stages": others, "files": files, "scripts": {}}));
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
    let escaped = |text: &String| {
        let quoted = json!(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(from, to)| (escaped(from), escaped(to)))
        .collect();
    serde_json::from_str(&replaced_text(&tree.to_string(), &pairs)).unwrap()
}

/// Tries each case: a text for each place, with all those before it that were taken.
fn check(os: &str, profile_name: &str, cases: Vec<Vec<String>>) {
    osm_judges::packages::ensure(&["dash"]).unwrap();
    let profile = compiled(&default_spec(profile_name));
    let harmless = harmless(os);
    let (mut machines, mut pairs) = (vec![render(&profile, &harmless).unwrap()], vec![Vec::new()]);
    let mut accepted = BTreeMap::<&str, usize>::new();
    for texts in &cases {
        let (mut input, mut machine) = (harmless.clone(), machines[0].clone());
        let mut chosen = Vec::new();
        for (place, text) in PLACES.into_iter().zip(texts) {
            let old = harmless.pointer(place).unwrap().as_str().unwrap();
            set(&mut input, place, text);
            match render(&profile, &input) {
                Ok(rendered) => {
                    machine = rendered;
                    *accepted.entry(place).or_default() += 1;
                    chosen.push((old.to_owned(), kept(place, text)));
                }
                Err(error) => {
                    // Short words are anywhere, and what is reserved is named.
                    let common = text.chars().count() < 9 || text == "<MACHINE_NAME>";
                    assert!(common || !error.contains(text.trim()), "{place}: {error}");
                    set(&mut input, place, old);
                }
            }
        }
        machines.push(machine);
        pairs.push(chosen);
    }
    let structures = structures(machines);
    for (i, (structure, mut pairs)) in structures.iter().zip(pairs).enumerate() {
        // The harmless API server is the last one that is reached without the proxy.
        pairs.push((",b25.example".to_owned(), String::new()));
        let expected = replaced(&structures[0], &pairs);
        if let Some(difference) = difference(&expected, structure, String::new()) {
            panic!("{:?}\n{difference}", cases[i.saturating_sub(1)][0]);
        }
    }
    for place in PLACES {
        let count = accepted.get(place).copied().unwrap_or_default();
        assert!(count > 0, "{place}: nothing fits");
    }
}

/// What is kept of a text that fits in a place.
fn kept(place: &str, text: &str) -> String {
    match place.rsplit_once('/').unwrap() {
        (_, "baseURL") => text.trim_end_matches('/').to_owned(),
        (_, "hostCABundle") => certificates(text.trim()),
        (_, "ca") => text.trim().to_owned(),
        (parent, _) if parent.ends_with("sshPublicKeys") => text.trim().replace('\t', " "),
        _ => text.to_owned(),
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

/// The first place where two trees differ. Where the text of the API server is a URL, its host is reached
/// without the proxy, and so may follow what is expected.
fn difference(expected: &Value, found: &Value, path: String) -> Option<String> {
    let in_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            let [a, b] = [a, b].map(|map| map.get(key).unwrap_or(&Value::Null));
            difference(a, b, format!("{path}.{key}"))
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            (0..a.len()).find_map(|i| difference(&a[i], &b[i], format!("{path}[{i}]")))
        }
        (Value::String(a), Value::String(b))
            if b.strip_prefix(&format!("{a},"))
                .is_some_and(|host| host.chars().all(in_host)) =>
        {
            None
        }
        _ => (expected != found).then(|| format!("{path}:\nexpected {expected}\nfound    {found}")),
    }
}

/// For each case, a text for each place.
fn cases() -> Vec<Vec<String>> {
    let everywhere = |text: String| vec![text; PLACES.len()];
    let mut cases: Vec<Vec<String>> = tricky().into_iter().map(everywhere).collect();
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let mut any = || text().new_tree(&mut runner).unwrap().current();
    cases.extend((0..16).map(|_| PLACES.map(|_| any()).to_vec()));
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
