//! The scripts of the library at work, as the default profiles have them.

mod first_steps;
pub mod machine;
mod pods;
mod system;

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use self::machine::{Answer, Authority, KINDS, Kind, Machine, Server, wait_for};
use crate::common::{EVERYTHING, SECRET, pool, token, values};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use osm_api::{Pool, Settings, gzip};
use osm_judges::packages;
use osm_judges::{File, hosts_toml, user_data_files};
use osm_render::{ClusterEndpoint, LateValues, Stage, user_data};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn render(pool: &Pool, settings: &str, server: &str, ca: &str, values: &LateValues) -> (String, String) {
    let name = osm_render::default_name(pool.operating_system.as_str(), pool.provisioning_utility());
    let (_, spec) = osm_render::defaults()
        .into_iter()
        .find(|(known, _)| *known == name)
        .unwrap();
    let profile = osm_render::compile(&osm_render::resolve(&spec).unwrap()).unwrap();
    let cluster = ClusterEndpoint {
        api_server: server.to_owned(),
        ca: ca.to_owned(),
    };
    let rendered = profile
        .render(pool, &Settings::parse(settings).unwrap(), &cluster)
        .unwrap();
    let document = |stage| user_data(&rendered.spec, stage, values).unwrap();
    (document(Stage::Bootstrap), document(Stage::Provisioning))
}

/// What the cloud hands to a machine that is to apply `document`.
fn bootstrap(machine: &Machine, server: &str, ca: &str, document: &str, issued: u64) {
    let values = values(&sha256(document.as_bytes()), issued);
    let (text, _) = render(
        &pool("ubuntu", "openstack", "1.34.2", "IPv4", false),
        "{}",
        server,
        ca,
        &values,
    );
    machine.write(&user_data_files(&text).unwrap());
}

pub(crate) fn secret(document: &str) -> Vec<u8> {
    json!({"kind": "Secret", "data": {"cloud-config.gz": gzip::USUAL.base64(document)}})
        .to_string()
        .into_bytes()
}

fn prepare() {
    packages::ensure(&["busybox", "curl", "dash", "iproute2", "python3", "python3-yaml"]).unwrap();
}

#[test]
fn bootstrap_says_what_is_wrong_and_goes_on() {
    prepare();
    let authority = Authority::new("127.0.0.1");
    for kind in KINDS {
        let server = Server::start(Some(&authority));
        let machine = Machine::new(kind);
        let applied = machine.path("/applied");
        let document = format!(
            "#cloud-config\nruncmd: [[sh, -c, 'echo \"$1\" >>{}', _, \"it's\"]]\n",
            applied.display()
        );
        bootstrap(
            &machine,
            &format!("https://127.0.0.1:{}/", server.port),
            &authority.ca,
            &document,
            1,
        );

        let good = secret(&document);
        let steps = [
            (Answer::status(401), "refuses this machine's token (401)"),
            (Answer::status(403), "may not read Secret"),
            (Answer::status(404), "there is no Secret"),
            (Answer::status(503), "answers 503"),
            (Answer::ok(secret("#cloud-config\n")), "digest differs"),
            (Answer::ok("{\"data\":"), "can't take the document out"),
            (
                Answer {
                    cut: true,
                    ..Answer::ok(good.clone())
                },
                "can't read from the API server",
            ),
        ];
        let mut run = None;
        let mut seen = 0;
        for (answer, text) in steps {
            server.always(answer);
            run.get_or_insert_with(|| machine.start("/opt/bin/osm-bootstrap"));
            seen = machine.wait_for_log(seen, text);
        }
        server.always(Answer::ok(good));
        assert!(run.unwrap().succeeds());

        assert_eq!(machine.read("/applied"), "it's\n", "{kind:?}");
        assert_eq!(
            machine.mode("/applied"),
            0o644,
            "the script's own umask is for secrets only"
        );
        let (path, authorization) = server.requests().swap_remove(0);
        assert_eq!(
            path,
            format!("/api/v1/namespaces/cloud-init-settings/secrets/{SECRET}")
        );
        assert_eq!(authorization, format!("Bearer {}", token("api", 1)));
        assert!(!machine.read("/log").contains(&token("api", 1)));
        assert!(!machine.path("/etc/osm/api-token").exists());
        assert_eq!(machine.mode("/var/lib/osm/provisioning.yaml"), 0o600);
        assert!(machine.path("/var/lib/osm/bootstrapped").exists());
        assert!(
            machine
                .read("/dev/console")
                .ends_with("the provisioning document is applied\n")
        );
        let pauses: Vec<u32> = machine
            .read("/sleeps")
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert!(
            pauses
                .iter()
                .zip([2, 4, 8, 16, 32, 64, 64])
                .all(|(pause, most)| (most / 2..=most).contains(pause)),
            "{pauses:?}"
        );

        // Again: what is there is not fetched again.
        let asked = server.requests().len();
        assert!(machine.start("/opt/bin/osm-bootstrap").succeeds());
        assert_eq!(server.requests().len(), asked);
    }
}

#[test]
fn bootstrap_tells_network_tls_and_clock_apart() {
    prepare();
    let (ours, other) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let elsewhere = Authority::new("10.9.9.9");
    let (another, misnamed) = (Server::start(Some(&other)), Server::start(Some(&elsewhere)));
    let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100_000;
    let [stranger, wrong_name] =
        [&another, &misnamed].map(|server| format!("https://127.0.0.1:{}", server.port));
    let cases = [
        (
            "https://no-such-name.invalid:6443",
            &ours,
            1,
            "can't resolve a name",
        ),
        (
            "https://127.0.0.1:1",
            &ours,
            1,
            "can't reach the API server https://127.0.0.1:1",
        ),
        (&stranger, &ours, 1, "can't verify the API server"),
        (&wrong_name, &elsewhere, 1, "can't verify the API server"),
        (&stranger, &ours, later, "the clock is wrong"),
    ];
    for kind in KINDS {
        for (server, authority, issued, text) in cases {
            let machine = Machine::new(kind);
            bootstrap(&machine, server, &authority.ca, "", issued);
            let _run = machine.start("/opt/bin/osm-bootstrap");
            machine.wait_for_log(0, text);
            wait_for("the console", || {
                machine.read("/dev/console").contains(text).then_some(())
            });
        }
    }
    // Nobody else has got a request, and with it the token.
    assert!(another.requests().is_empty() && misnamed.requests().is_empty());
}

#[test]
fn a_clock_that_is_not_set_is_waited_for_a_minute() {
    prepare();
    let authority = Authority::new("127.0.0.1");
    let server = Server::start(Some(&authority));
    server.always(Answer::ok(secret("{}")));
    let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100_000;
    let machine = Machine::new(KINDS[0]);
    bootstrap(
        &machine,
        &format!("https://127.0.0.1:{}", server.port),
        &authority.ca,
        "{}",
        later,
    );
    assert!(
        machine.start("/opt/bin/osm-bootstrap").succeeds(),
        "a server that can be verified is good enough"
    );
    assert_eq!(machine.read("/sleeps"), "1\n".repeat(60));

    let machine = Machine::new(KINDS[0]);
    bootstrap(
        &machine,
        &format!("https://127.0.0.1:{}", server.port),
        &authority.ca,
        "{}",
        later,
    );
    // Set while it waits.
    let set = format!(
        "[ -s '{}' ] && echo {later} || exec /usr/bin/date \"$@\"",
        machine.path("/sleeps").display()
    );
    machine.program("date", &set);
    assert!(machine.start("/opt/bin/osm-bootstrap").succeeds());
    assert_eq!(machine.read("/sleeps"), "1\n");
}

#[test]
fn a_power_cut_while_applying_is_survived_without_the_api_server() {
    prepare();
    let authority = Authority::new("127.0.0.1");
    let server = Server::start(Some(&authority));
    let machine = Machine::new(KINDS[0]);
    let tries = machine.path("/tries").display().to_string();
    let document = format!("#cloud-config\nruncmd: ['echo try >>{tries}', '[ -e {tries}.go ]']\n");
    bootstrap(
        &machine,
        &format!("https://127.0.0.1:{}", server.port),
        &authority.ca,
        &document,
        1,
    );
    server.always(Answer::ok(secret(&document)));
    let run = machine.start("/opt/bin/osm-bootstrap");
    machine.wait_for_log(0, "can't apply the document: runcmd failed with status 1");
    run.kill();
    drop(server);
    std::fs::write(machine.path("/tries.go"), "").unwrap();
    assert!(machine.start("/opt/bin/osm-bootstrap").succeeds());
    assert!(machine.read("/tries").lines().count() >= 2);
}

#[test]
fn the_applier_does_what_cloud_init_would() {
    prepare();
    for (usage, before, after) in [
        ("single [--file FILE]", "single --file", ""),
        ("single", "--file", " single"),
    ] {
        let machine = Machine::new(KINDS[0]);
        bootstrap(&machine, "https://127.0.0.1:1", "", "", 1);
        let calls = machine.path("/calls");
        let noted = format!(
            "[ \"$*\" != 'single --help' ] || {{ echo '{usage}'; exit; }}\necho \"$@\" >>'{}'\nexit 2",
            calls.display()
        );
        machine.program("cloud-init", &noted);
        let path = |name: &str| machine.path(name).display().to_string();
        let cloud_cfg = "cloud_init_modules: [users-groups]\ncloud_config_modules: [set-passwords, [ntp, always], apt-configure]\n\
                     cloud_final_modules: [package-update-upgrade-install]\n";
        std::fs::create_dir_all(machine.path("/etc/cloud")).unwrap();
        std::fs::write(machine.path("/etc/cloud/cloud.cfg"), cloud_cfg).unwrap();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"zipped").unwrap();
        std::fs::write(machine.path("/appended"), "one\n").unwrap();
        std::os::unix::fs::symlink(machine.path("/target"), machine.path("/link")).unwrap();
        // Another name of a file keeps the old content only if the file is replaced, as a power cut requires.
        std::fs::write(machine.path("/plain"), "before\n").unwrap();
        std::fs::hard_link(machine.path("/plain"), machine.path("/before")).unwrap();
        let order = path("/order");
        let document = json!({
            "write_files": [
                {"path": path("/plain"), "content": "plain\n"},
                {
                    "path": path("/new/folder/zipped"), "encoding": "gz+b64", "permissions": "0600",
                    "content": STANDARD.encode(gzip.finish().unwrap()),
                },
                {"path": path("/appended"), "content": "two\n", "append": true},
                {"path": path("/link"), "content": "through"},
            ],
            "packages": ["a"], "apt": {}, "chpasswd": {}, "mine": {}, "package_update": true, "ntp": {}, "users": [],
            "bootcmd": [format!("[ -e {} ] && echo first >>{order}", path("/plain"))],
            "runcmd": [["cd", path("/")], ["sh", "-c", "echo \"$1\" >>order", "_", "it's"]],
        });
        std::fs::write(machine.path("/document"), document.to_string()).unwrap();
        std::fs::write(machine.path("/argument"), path("/document")).unwrap();
        for _ in 0..2 {
            assert!(
                machine.start("/opt/bin/osm-apply").succeeds(),
                "{}",
                machine.read("/log")
            );
        }
        assert_eq!(machine.read("/order"), "first\nit's\n".repeat(2));
        assert_eq!(
            (machine.read("/plain"), machine.mode("/plain")),
            ("plain\n".to_owned(), 0o644)
        );
        assert_eq!(machine.read("/before"), "before\n");
        assert_eq!(
            (
                machine.read("/new/folder/zipped"),
                machine.mode("/new/folder/zipped")
            ),
            ("zipped".to_owned(), 0o600)
        );
        assert_eq!(machine.read("/appended"), "one\ntwo\n");
        assert_eq!(machine.read("/target"), "through");
        let document = path("/document");
        let names = [
            "users_groups",
            "set_passwords",
            "ntp",
            "apt_configure",
            "package_update_upgrade_install",
            "mine",
        ];
        let calls: String = names
            .map(|name| format!("{before} {document}{after} --name {name} --frequency always\n"))
            .concat();
        assert_eq!(machine.read("/calls"), calls.repeat(2));
    }
}

/// Keys of cloud-init's schema that are about a login's looks, about names and host keys, which bootstrap has dealt with, of other
/// systems, or not in use any more: the table is part of what clouds want small.
const NOT_FOR_NODES: [&str; 23] = [
    "allow_public_ssh_keys",
    "apk_repos",
    "apt_reboot_if_required",
    "apt_update",
    "apt_upgrade",
    "authkey_hash",
    "autoinstall",
    "byobu_by_default",
    "create_hostname_file",
    "drivers",
    "migrate",
    "no_ssh_fingerprints",
    "power_state",
    "prefer_fqdn_over_hostname",
    "preserve_hostname",
    "ssh",
    "ssh_fp_console_blacklist",
    "ssh_key_console_blacklist",
    "ssh_publish_hostkeys",
    "ssh_quiet_keygen",
    "ubuntu_advantage",
    "updates",
    "vendor_data",
];

#[test]
fn the_applier_knows_the_module_of_every_key() {
    packages::ensure(&["cloud-init", "python3", "python3-yaml"]).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/library/osm-apply.py");
    let print = format!(
        "import json, runpy; all = runpy.run_path('{script}'); print(json.dumps([all['MODULES'], all['OURS']]))"
    );
    let output = std::process::Command::new("python3")
        .args(["-B", "-c", &print])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (modules, ours): (BTreeMap<String, String>, Vec<String>) =
        serde_json::from_slice(&output.stdout).unwrap();

    let schema = "/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json";
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (module, rules) in schema["$defs"].as_object().unwrap() {
        let Some(module) = module.strip_prefix("cc_") else {
            continue;
        };
        let mut left = vec![rules];
        while let Some(rules) = left.pop() {
            for key in rules["properties"]
                .as_object()
                .into_iter()
                .flat_map(|properties| properties.keys())
            {
                known.entry(key).or_default().push(module);
            }
            let parts = ["allOf", "anyOf", "oneOf"].map(|name| rules[name].as_array());
            left.extend(parts.into_iter().flatten().flatten());
        }
    }
    assert!(known.len() > 80, "{known:?}");
    for (key, owners) in known {
        let named = key.replace('-', "_");
        let module = modules.get(key).unwrap_or(&named);
        let ignored = NOT_FOR_NODES.contains(&key) || ours.iter().any(|own| own == key);
        assert!(
            ignored || owners.contains(&module.as_str()),
            "{key}: {module} instead of {owners:?}"
        );
    }
}

#[test]
fn the_applier_names_what_it_can_not_do() {
    prepare();
    let machine = Machine::new(KINDS[0]);
    bootstrap(&machine, "https://127.0.0.1:1", "", "", 1);
    std::fs::write(
        machine.path("/argument"),
        machine.path("/document").display().to_string(),
    )
    .unwrap();
    let mut seen = 0;
    for (document, text) in [
        (
            json!({"write_files": [{"path": "/proc/none/x"}]}),
            "write_files: /proc/none/x: ",
        ),
        (
            json!({"write_files": [{"path": "/x", "content": "!", "encoding": "b64"}]}),
            "write_files: /x: ",
        ),
        (json!({"bootcmd": ["exit 3"]}), "bootcmd failed with status 3"),
        (
            json!({"power_state": {"mode": "reboot"}}),
            "power_state: would end this",
        ),
    ] {
        std::fs::write(machine.path("/document"), document.to_string()).unwrap();
        assert!(!machine.start("/opt/bin/osm-apply").succeeds());
        seen = machine.wait_for_log(seen, text);
    }
}

#[test]
fn a_module_that_fails_is_named_and_what_needs_repositories_is_a_warning() {
    prepare();
    let machine = Machine::new(KINDS[0]);
    bootstrap(&machine, "https://127.0.0.1:1", "", "", 1);
    std::fs::write(
        machine.path("/argument"),
        machine.path("/document").display().to_string(),
    )
    .unwrap();
    std::fs::create_dir_all(machine.path("/etc/cloud")).unwrap();
    std::fs::write(machine.path("/etc/cloud/cloud.cfg"), "{}\n").unwrap();
    machine.program("cloud-init", "[ \"$*\" != 'single --help' ] || exit 0\nexit 1");
    std::fs::write(
        machine.path("/document"),
        json!({"packages": ["x"], "rh_subscription": {}}).to_string(),
    )
    .unwrap();
    assert!(
        machine.start("/opt/bin/osm-apply").succeeds(),
        "{}",
        machine.read("/log")
    );
    let log = machine.read("/log");
    for module in ["package_update_upgrade_install", "rh_subscription"] {
        assert!(
            log.contains(&format!("warning: module {module} failed with status 1")),
            "{log}"
        );
    }
    std::fs::write(
        machine.path("/document"),
        json!({"packages": ["x"], "ntp": {}}).to_string(),
    )
    .unwrap();
    assert!(!machine.start("/opt/bin/osm-apply").succeeds());
    machine.wait_for_log(0, "module ntp failed with status 1");
}

/// A tar archive, compressed, of programs that print their name; as release archives, with an owner that no node has.
fn archive(folder: &str, names: &[&str]) -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    for name in names {
        let path = scratch.path().join(folder).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, program(name)).unwrap();
        let mode = if name.contains('.') { 0o644 } else { 0o755 };
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    let made = std::process::Command::new("tar")
        .args(["-cz", "--owner=1001", "--group=1001", "-C"])
        .arg(scratch.path())
        .arg(".")
        .output()
        .unwrap();
    assert!(made.status.success());
    made.stdout
}

pub(crate) fn program(name: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho {name}\n").into_bytes()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// A mirror of what a node downloads, laid out and with checksum files as upstream has them.
pub(crate) fn mirror() -> BTreeMap<String, Answer> {
    let arch = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    let kubelet = format!("/k/v1.34.2/bin/linux/{arch}/kubelet");
    let containerd = format!("containerd-static-2.2.9-linux-{arch}.tar.gz");
    let cni = format!("cni-plugins-linux-{arch}-v1.9.1.tgz");
    let crictl = format!("/t/v1.34.0/crictl-v1.34.0-linux-{arch}.tar.gz");
    let programs = [
        "bin/containerd",
        "bin/containerd-shim-runc-v2",
        "bin/ctr",
        "bin/containerd-stress",
    ];
    let (containerd_archive, cni_archive) = (
        archive("", &programs),
        archive("", &["bridge", "loopback", "README.md"]),
    );
    let crictl_archive = archive("", &["crictl"]);
    let runc_sums = format!(
        "{}  runc.s390x\n{} *runc.{arch}\n",
        "f".repeat(64),
        sha256(&program("runc"))
    );
    let files = [
        (
            format!("{kubelet}.sha256"),
            sha256(&program("kubelet")).into_bytes(),
        ),
        (kubelet, program("kubelet")),
        (
            format!("/c/v2.2.9/{containerd}.sha256sum"),
            format!("{}  {containerd}\n", sha256(&containerd_archive)).into_bytes(),
        ),
        (format!("/c/v2.2.9/{containerd}"), containerd_archive),
        ("/r/v1.3.6/runc.sha256sum".to_owned(), runc_sums.into_bytes()),
        (format!("/r/v1.3.6/runc.{arch}"), program("runc")),
        (
            format!("/n/v1.9.1/{cni}.sha256"),
            format!("{}  ./{cni}\n", sha256(&cni_archive)).into_bytes(),
        ),
        (format!("/n/v1.9.1/{cni}"), cni_archive),
        (format!("{crictl}.sha256"), sha256(&crictl_archive).into_bytes()),
        (crictl, crictl_archive),
    ];
    files
        .into_iter()
        .map(|(path, body)| (path, Answer::ok(body)))
        .collect()
}

/// Settings by which nodes download from [`mirror()`] on `port`.
pub(crate) fn downloads(port: u16) -> String {
    let urls: String = [
        ("kubelet", "k"),
        ("containerd", "c"),
        ("runc", "r"),
        ("cni", "n"),
        ("crictl", "t"),
    ]
    .map(|(name, path)| format!("  {name}: {{baseURL: \"http://127.0.0.1:{port}/{path}\"}}\n"))
    .concat();
    format!("downloads:\n{}", urls.replace("/t\"", "/t\", version: 1.34.0"))
}

/// Settings with everything set but the proxy, which this machine is not behind, by which nodes download from `port`.
pub(crate) fn downloading_from(port: u16) -> String {
    let everything = EVERYTHING.split("downloads:").next().unwrap().lines();
    let everything = everything.filter(|line| !line.starts_with("proxy:"));
    let everything: String = everything.map(|line| format!("{line}\n")).collect();
    everything + &downloads(port)
}

/// A machine with the provisioning document applied, that downloads from `port`.
fn provisioned(kind: Kind, port: u16, family: &str) -> Machine {
    provisioned_with(kind, &downloading_from(port), family)
}

fn provisioned_with(kind: Kind, settings: &str, family: &str) -> Machine {
    machine_of(
        &pool("ubuntu", "openstack", "1.34.2", family, true),
        kind,
        settings,
    )
}

/// A machine of `pool` with the provisioning document applied.
fn machine_of(pool: &Pool, kind: Kind, settings: &str) -> Machine {
    let (_, text) = render(
        pool,
        settings,
        "https://127.0.0.1:1",
        "",
        &values(&"0".repeat(64), 1),
    );
    let files: Vec<File> = user_data_files(&text).unwrap();
    let machine = Machine::new(kind);
    machine.write(&files);
    std::fs::write(
        machine.path("/etc/fstab"),
        "/dev/vda1 / ext4 defaults 0 1\n/swap none swap sw 0 0\n",
    )
    .unwrap();
    std::fs::write(machine.path("/etc/machine-name"), "Pool-5D8F\n").unwrap();
    machine
}

#[test]
fn setup_survives_a_bad_mirror_and_a_power_cut() {
    prepare();
    let good = mirror();
    let path = |prefix: &str, suffix: &str| {
        good.keys()
            .find(|path| path.starts_with(prefix) && path.ends_with(suffix))
            .unwrap()
            .clone()
    };
    let (kubelet, containerd, cni) = (path("/k/", "/kubelet"), path("/c/", ".gz"), path("/n/", ".tgz"));
    for kind in KINDS {
        let server = Server::start(None);
        let machine = provisioned(kind, server.port, "IPv4");
        let mut answers = good.clone();
        answers.insert(kubelet.clone(), Answer::status(404));
        answers.get_mut(&containerd).unwrap().body[40] ^= 1;
        answers.get_mut(&cni).unwrap().body.truncate(20);
        server.answer(&answers);
        let run = machine.start("/opt/bin/osm-setup");
        let mut seen = machine.wait_for_log(0, "no kubelet yet");
        answers.insert(kubelet.clone(), good[&kubelet].clone());
        server.answer(&answers);
        seen = machine.wait_for_log(seen, "no containerd yet: checksum of");
        answers.insert(containerd.clone(), good[&containerd].clone());
        server.answer(&answers);
        machine.wait_for_log(seen, "no cni yet");
        run.kill();

        server.answer(&good);
        let asked = server.requests().len();
        assert!(
            machine.start("/opt/bin/osm-setup").succeeds(),
            "{}",
            machine.read("/log")
        );
        assert!(
            server.requests()[asked..]
                .iter()
                .all(|(path, _)| path.starts_with("/n/")),
            "the rest was there"
        );
        for (file, name) in [
            ("/opt/bin/kubelet", "kubelet"),
            ("/opt/bin/runc", "runc"),
            ("/opt/bin/containerd", "bin/containerd"),
            ("/opt/bin/containerd-shim-runc-v2", "bin/containerd-shim-runc-v2"),
            ("/opt/cni/bin/bridge", "bridge"),
        ] {
            assert_eq!(machine.read(file).into_bytes(), program(name), "{kind:?} {file}");
            assert_eq!(machine.mode(file), 0o755, "{file}");
        }
        assert!(!machine.path("/opt/cni/bin/README.md").exists());
        assert!(machine.path("/var/lib/osm/set-up").exists());
        assert!(!machine.path("/var/lib/osm/downloads").exists());
        let calls = machine.read("/calls");
        let last: Vec<&str> = calls.lines().rev().take(4).collect();
        assert_eq!(
            last,
            [
                "systemctl start --no-block osm-extras.service",
                "systemctl start osm-health.timer",
                "systemctl restart kubelet.service",
                "systemctl restart containerd.service",
            ]
        );
    }
}

#[test]
fn what_is_pinned_needs_no_checksum_file() {
    prepare();
    let good = mirror();
    let (sums, files): (BTreeMap<_, _>, BTreeMap<_, _>) =
        good.into_iter().partition(|(path, _)| path.contains("sha256"));
    let arch = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    // Upper case, as some people write them.
    let pin = |prefix: &str| {
        let (_, answer) = files.iter().find(|(path, _)| path.starts_with(prefix)).unwrap();
        format!("sha256: {{{arch}: {}}}", sha256(&answer.body).to_uppercase())
    };
    let settings = |port, runc: &str| {
        let kubelet = pin("/k/").replace("{", "{1.34.2: {").replace('}', "}}");
        [
            ("k", kubelet),
            ("c", pin("/c/")),
            ("r", runc.to_owned()),
            ("n", pin("/n/")),
        ]
        .iter()
        .fold(downloading_from(port), |settings, (path, pin)| {
            settings.replace(&format!("/{path}\""), &format!("/{path}\", {pin}"))
        })
    };
    let server = Server::start(None);
    server.answer(&files);
    let machine = provisioned_with(KINDS[0], &settings(server.port, &pin("/r/")), "IPv4");
    assert!(
        machine.start("/opt/bin/osm-setup").succeeds(),
        "{}",
        machine.read("/log")
    );
    assert!(
        server.requests().iter().all(|(path, _)| !sums.contains_key(path)),
        "{:?}",
        server.requests()
    );

    let wrong = format!("sha256: {{{arch}: {}}}", "f".repeat(64));
    let machine = provisioned_with(KINDS[0], &settings(server.port, &wrong), "IPv4");
    let _run = machine.start("/opt/bin/osm-setup");
    machine.wait_for_log(0, "no runc yet: checksum of");
}

#[test]
fn setup_writes_what_depends_on_settings() {
    prepare();
    let server = Server::start(None);
    server.answer(&mirror());
    let machine = provisioned(KINDS[0], server.port, "IPv4");
    assert!(machine.start("/opt/bin/osm-setup").succeeds());
    let hub = machine.read("/etc/containerd/certs.d/docker.io/hosts.toml");
    let others = machine.read("/etc/containerd/certs.d/_default/hosts.toml");
    for (name, text) in [("docker.io", &hub), ("_default", &others)] {
        hosts_toml(name, text).unwrap_or_else(|verdict| panic!("{verdict}"));
    }
    let at = |text: &str| hub.find(text).unwrap_or_else(|| panic!("{text} not in {hub}"));
    assert!(
        at("server = \"https://registry-1.docker.io\"") < at("z.example"),
        "{hub}"
    );
    assert!(
        at("z.example") < at("override_path = true") && at("override_path = true") < at("a.example"),
        "{hub}"
    );
    assert!(
        !machine
            .path("/etc/containerd/certs.d/registry.example:5000")
            .exists(),
        "it has no mirrors"
    );
    assert_eq!(
        machine.read("/etc/kubernetes/cloud-config"),
        "[Global]\nregion = \"EOF\"\nEOF\n"
    );
    assert_eq!(machine.mode("/etc/kubernetes/cloud-config"), 0o600);
    assert_eq!(machine.mode("/etc/containerd/config.toml"), 0o600);
    for (number, body) in [(1, "TWFueSBtYWNoaW5lcw=="), (2, "b25lIHRydXN0")] {
        let certificate = machine.read(&format!("/usr/local/share/ca-certificates/osm-{number}.crt"));
        assert_eq!(
            certificate,
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        );
    }
    let config = machine.read("/etc/containerd/config.toml");
    let config: Value = toml::from_str(&config).unwrap();
    let registry = &config["plugins"]["io.containerd.cri.v1.images"]["registry"]["configs"];
    for host in ["docker.io", "registry-1.docker.io", "registry.example:5000"] {
        assert_eq!(registry[host]["auth"]["password"], "quo\"te's \\ and\nline");
    }
}

#[test]
fn what_is_missing_in_the_end_is_a_warning() {
    prepare();
    for kind in KINDS {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = provisioned(kind, server.port, "IPv4");
        let calls = machine.path("/calls");
        // An archive without socat, so that installing all at once fails.
        let apt = format!(
            "echo \"$*\" >>'{}'; case \"$*\" in *update) exit 100 ;; *socat*) exit 100 ;; esac",
            calls.display()
        );
        machine.program("apt-get", &apt);
        assert!(machine.start("/opt/bin/osm-extras").succeeds());
        assert!(
            machine.read("/log").contains("warning: not installed: socat\n"),
            "{kind:?}: {}",
            machine.read("/log")
        );
        assert!(
            machine.read("/calls").contains("nfs-common\n")
                && machine.read("/calls").contains("qemu-guest-agent\n")
        );
        assert_eq!(machine.read("/opt/bin/crictl").into_bytes(), program("crictl"));
        assert!(
            !machine.path("/var/lib/osm/extras").exists(),
            "tried again at the next boot"
        );

        machine.program("apt-get", "exit 0");
        assert!(machine.start("/opt/bin/osm-extras").succeeds());
        assert!(machine.path("/var/lib/osm/extras").exists());
    }
}

#[test]
fn the_kubelet_is_told_what_only_the_machine_knows() {
    prepare();
    let cases = [
        ("IPv4", "--node-ip=10.0.0.7"),
        ("IPv6", "--node-ip=2001:db8::7"),
        ("IPv4+IPv6", "--node-ip=10.0.0.7,2001:db8::7"),
        ("IPv6+IPv4", "--node-ip=2001:db8::7,10.0.0.7"),
    ];
    for kind in KINDS {
        for (family, flag) in cases {
            let machine = provisioned(kind, 1, family);
            machine.program(
                "ip",
                "case $1 in -4) echo '192.0.2.1 via 10.0.0.1 dev eth0 src 10.0.0.7 uid 0 ' ;;\n\
                 -6) echo '2001:db8::1 from :: via fe80::1 dev eth0 proto ra src 2001:db8::7 metric 100 pref medium' ;; esac",
            );
            assert!(
                machine.start("/opt/bin/osm-kubelet-env").succeeds(),
                "{kind:?}: {}",
                machine.read("/log")
            );
            let arguments = format!("KUBELET_NODE_ARGS=--hostname-override=pool-5d8f {flag}\n");
            assert_eq!(machine.read("/run/osm/kubelet.env"), arguments);
            let link = || std::fs::read_link(machine.path("/run/osm/resolv.conf")).unwrap();
            assert_eq!(machine.read("/run/osm/resolv.conf"), "");
            assert!(machine.read("/log").contains("pods get no name servers"));
            for file in ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"] {
                std::fs::create_dir_all(machine.path(file).parent().unwrap()).unwrap();
                std::fs::write(machine.path(file), "").unwrap();
                assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
                assert_eq!(link(), machine.path(file));
            }
        }
    }
}

#[test]
fn a_missing_address_family_delays_the_kubelet_only() {
    prepare();
    let only_four = "case $1 in -4) echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0' ;; *) exit 2 ;; esac";
    let cases = [
        ("IPv4+IPv6", only_four, "no IPv6 address", " --node-ip=10.0.0.7\n"),
        ("IPv4", "exit 2", "no IPv4 address", " --node-ip=0.0.0.0\n"),
        ("IPv6", "exit 2", "no IPv6 address", " --node-ip=::\n"),
    ];
    for (family, ip, complaint, flag) in cases {
        let machine = provisioned(KINDS[0], 1, family);
        machine.program("ip", ip);
        assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
        assert!(machine.read("/run/osm/kubelet.env").ends_with(flag), "{family}");
        assert!(machine.read("/log").contains(complaint), "{family}");
    }
}

#[test]
fn without_a_default_route_the_node_has_the_address_of_the_machine() {
    prepare();
    let machine = provisioned(KINDS[0], 1, "IPv4");
    let isolated =
        "case $* in *'addr show'*) echo '2: eth0    inet 10.0.0.7/24 scope global eth0' ;; *) exit 2 ;; esac";
    machine.program("ip", isolated);
    assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
    let arguments = machine.read("/run/osm/kubelet.env");
    assert!(arguments.ends_with(" --node-ip=10.0.0.7\n"), "{arguments}");
}

/// The script of an edge pool, with the paths of a real machine moved into this one.
fn edge_script(machine: &Machine) -> String {
    let pool = pool("ubuntu", "edge", "1.34.2", "IPv4", false);
    let profile = osm_render::defaults()
        .into_iter()
        .find(|(name, _)| name == "osp-ubuntu");
    let profile = osm_render::compile(&osm_render::resolve(&profile.unwrap().1).unwrap()).unwrap();
    let cluster = ClusterEndpoint {
        api_server: "https://127.0.0.1:1".to_owned(),
        ca: String::new(),
    };
    let rendered = profile
        .render(&pool, &Settings::parse("{}").unwrap(), &cluster)
        .unwrap();
    let values = values(&"0".repeat(64), 1);
    let script = osm_render::edge_script(&rendered.spec, &values).unwrap().unwrap();
    let (mut moved, mut encoded) = (String::new(), None);
    for line in script.lines() {
        match &mut encoded {
            Some(text) if line == "EOF" => {
                let text = String::from_utf8(STANDARD.decode(&*text).unwrap()).unwrap();
                moved += &format!("{}\nEOF\n", STANDARD.encode(machine.moved(&text)));
                encoded = None;
            }
            Some(text) => *text += line,
            None => {
                moved += &format!("{line}\n");
                encoded = line.contains("<<'EOF'").then(String::new);
            }
        }
    }
    moved
}

#[test]
fn a_machine_of_its_owner_gets_no_more_than_the_script_says() {
    prepare();
    let machine = Machine::new(KINDS[0]);
    machine.program("id", "echo 0");
    let script = edge_script(&machine);
    std::fs::write(machine.path("/join.sh"), script).unwrap();
    std::fs::write(machine.path("/argument"), "not a name\n").unwrap();
    assert!(!machine.start("/join.sh").succeeds());
    machine.wait_for_log(0, "this machine was not changed");
    assert!(!machine.path("/opt").exists() && machine.read("/calls").is_empty());
    std::fs::write(machine.path("/argument"), "Node-1\n").unwrap();
    assert!(machine.start("/join.sh").succeeds(), "{}", machine.read("/log"));
    machine.wait_for_log(0, "joins as node-1");
    assert_eq!(machine.read("/etc/machine-name").trim_end(), "node-1");
    assert_eq!(machine.mode("/etc/osm/api-token"), 0o600);
    // Host name, users, keys and networks are the owner's: nothing of the kind is written or asked for.
    let calls = machine.read("/calls");
    assert!(
        calls.contains("systemctl") && !calls.contains("cloud-init") && !calls.contains("hostname"),
        "{calls}"
    );
    let etc: Vec<_> = std::fs::read_dir(machine.path("/etc"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    for of_the_owner in ["hostname", "passwd", "shadow", "netplan", "network"] {
        assert!(!etc.contains(&of_the_owner.into()), "{etc:?}");
    }
}

#[test]
fn what_hangs_three_times_in_a_row_is_restarted() {
    prepare();
    let machine = provisioned(KINDS[0], 1, "IPv4");
    let healthy = |healthy: bool| {
        std::fs::create_dir_all(machine.path("/opt/bin")).unwrap();
        std::fs::write(
            machine.path("/opt/bin/ctr"),
            if healthy {
                "#!/bin/sh\n"
            } else {
                "#!/bin/sh\nexit 1\n"
            },
        )
        .unwrap();
        std::fs::set_permissions(
            machine.path("/opt/bin/ctr"),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        assert!(machine.start("/opt/bin/osm-health").succeeds());
    };
    let restarts = || {
        machine
            .read("/calls")
            .matches("systemctl restart --no-block containerd.service")
            .count()
    };
    for (state, restarted) in [
        (false, 0),
        (false, 0),
        (true, 0),
        (false, 0),
        (false, 0),
        (false, 1),
        (false, 1),
    ] {
        healthy(state);
        assert_eq!(restarts(), restarted);
    }
    assert!(
        !machine.read("/calls").contains("kubelet"),
        "it has no certificate yet"
    );
}

#[test]
fn a_machine_like_rhel_is_set_up() {
    prepare();
    let server = Server::start(None);
    server.answer(&mirror());
    for (os, kind) in [("rockylinux", KINDS[0]), ("rhel", KINDS[3])] {
        let machine = machine_of(
            &pool(os, "openstack", "1.34.2", "IPv4", true),
            kind,
            &downloading_from(server.port),
        );
        std::fs::create_dir_all(machine.path("/etc/selinux")).unwrap();
        std::fs::write(
            machine.path("/etc/selinux/config"),
            "# SELINUX=enforcing\nSELINUX=enforcing\nSELINUXTYPE=targeted\n",
        )
        .unwrap();
        machine.program("getenforce", "echo Enforcing");
        machine.program(
            "ip",
            "echo '0: from all lookup local'; echo '30400: from 10.0.0.9 lookup 30400'",
        );
        let calls = machine.path("/calls");
        let nmcli = "[ \"$1\" != -t ] || printf 'eth0:ethernet\\nlo:loopback\\ncali1:veth\\n'";
        machine.program(
            "nmcli",
            &format!("echo nmcli \"$@\" >>'{}'; {nmcli}", calls.display()),
        );

        assert!(
            machine.start("/opt/bin/osm-setup").succeeds(),
            "{kind:?}: {}",
            machine.read("/log")
        );
        let calls = machine.read("/calls");
        let at = |call: &str| {
            calls
                .find(call)
                .unwrap_or_else(|| panic!("{kind:?}: {call} not in {calls}"))
        };
        for unit in [
            "firewalld.service",
            "nm-cloud-setup.timer",
            "nm-cloud-setup.service",
        ] {
            assert!(at(&format!("systemctl disable {unit}\n")) < at(&format!("systemctl stop {unit}\n")));
        }
        assert!(at("stop nm-cloud-setup.service\n") < at("reload NetworkManager.service\n"));
        assert!(at("reload NetworkManager.service\n") < at("nmcli device reapply eth0\n"));
        assert_eq!(calls.matches("reapply").count(), 1, "{calls}");
        assert!(
            at("setenforce 0\n") < at("restorecon -R ")
                && at("restorecon -R ") < at("restart containerd.service\n")
        );
        at("update-ca-trust extract\n");
        assert!(
            !calls.contains("ufw") && !calls.contains("update-ca-certificates"),
            "{calls}"
        );
        assert_eq!(
            machine.read("/etc/selinux/config"),
            "# SELINUX=enforcing\nSELINUX=permissive\nSELINUXTYPE=targeted\n"
        );
        let trusted = machine.read("/etc/pki/ca-trust/source/anchors/osm.pem");
        assert_eq!(
            trusted.matches("-----BEGIN CERTIFICATE-----\n").count(),
            2,
            "{trusted}"
        );
        assert!(
            !machine.read("/log").contains("warning"),
            "{kind:?}: {}",
            machine.read("/log")
        );
    }
}

#[test]
fn a_machine_without_selinux_and_networkmanager_needs_neither() {
    prepare();
    let server = Server::start(None);
    server.answer(&mirror());
    let machine = machine_of(
        &pool("amzn2", "aws", "1.34.2", "IPv4", true),
        KINDS[3],
        &downloading_from(server.port),
    );
    let none = format!(
        "echo systemctl \"$@\" >>'{}'; case $* in cat* | *is-active*) exit 1 ;; esac",
        machine.path("/calls").display()
    );
    machine.program("systemctl", &none);
    assert!(
        machine.start("/opt/bin/osm-setup").succeeds(),
        "{}",
        machine.read("/log")
    );
    let calls = machine.read("/calls");
    for call in [
        "systemctl disable",
        "systemctl stop",
        "systemctl reload",
        "nmcli",
        "setenforce",
    ] {
        assert!(!calls.contains(call), "{call}: {calls}");
    }
    assert!(!machine.path("/etc/NetworkManager").exists());
    assert!(
        !machine.read("/log").contains("warning"),
        "{}",
        machine.read("/log")
    );
}

#[test]
fn packages_that_are_switched_off_are_not_asked_for() {
    prepare();
    for (os, tool) in [("ubuntu", "apt-get"), ("rockylinux", "yum")] {
        let server = Server::start(None);
        server.answer(&mirror());
        let settings = downloading_from(server.port).replace("packages:\n", "packages:\n  enabled: false\n");
        let machine = machine_of(&pool(os, "vsphere", "1.34.2", "IPv4", true), KINDS[0], &settings);
        let calls = machine.path("/calls");
        machine.program(tool, &format!("echo {tool} >>'{}'; exit 1", calls.display()));
        assert!(
            machine.start("/opt/bin/osm-extras").succeeds(),
            "{}",
            machine.read("/log")
        );
        assert!(!calls.exists() || !machine.read("/calls").contains(tool), "{os}");
        assert_eq!(machine.read("/opt/bin/crictl").into_bytes(), program("crictl"));
        assert!(machine.path("/var/lib/osm/extras").exists());
    }
}

#[test]
fn yum_installs_what_it_can() {
    prepare();
    for kind in KINDS {
        let server = Server::start(None);
        server.answer(&mirror());
        let pool = pool("rockylinux", "vsphere", "1.34.2", "IPv4", true);
        let machine = machine_of(&pool, kind, &downloading_from(server.port));
        let calls = machine.path("/calls");
        let yum = format!(
            "echo \"$*\" >>'{}'; case \"$*\" in *socat*) exit 1 ;; esac",
            calls.display()
        );
        machine.program("yum", &yum);
        assert!(machine.start("/opt/bin/osm-extras").succeeds());
        let log = machine.read("/log");
        assert!(log.contains("warning: not installed: socat\n"), "{kind:?}: {log}");
        let calls = machine.read("/calls");
        assert!(
            calls.contains("install nfs-utils\n") && calls.contains("install open-vm-tools\n"),
            "{calls}"
        );
        machine.program("yum", "exit 0");
        assert!(machine.start("/opt/bin/osm-extras").succeeds());
        assert!(
            machine
                .read("/calls")
                .contains("start --no-block vmtoolsd.service\n")
        );
        assert!(machine.path("/var/lib/osm/extras").exists());
    }
}

#[test]
fn on_aws_the_node_is_named_by_the_instance_metadata() {
    prepare();
    for os in ["ubuntu", "amzn2"] {
        let server = Server::start(None);
        let machine = machine_of(&pool(os, "aws", "1.34.2", "IPv4", false), KINDS[1], "{}");
        std::fs::remove_file(machine.path("/etc/machine-name")).unwrap();
        let script = machine.read("/opt/bin/osm-kubelet-env");
        let here = format!("127.0.0.1:{}", server.port);
        std::fs::write(
            machine.path("/opt/bin/osm-kubelet-env"),
            script.replace("169.254.169.254", &here),
        )
        .unwrap();
        machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");

        assert!(
            !machine.start("/opt/bin/osm-kubelet-env").succeeds(),
            "systemd tries again"
        );
        assert!(
            machine
                .read("/log")
                .contains(&format!("instance metadata at {here}: ")),
            "{}",
            machine.read("/log")
        );
        server.answer(&BTreeMap::from([
            ("/latest/api/token".to_owned(), Answer::ok("t")),
            (
                "/latest/meta-data/local-hostname".to_owned(),
                Answer::ok("IP-10-0-0-7.ec2.internal other"),
            ),
        ]));
        assert!(
            machine.start("/opt/bin/osm-kubelet-env").succeeds(),
            "{}",
            machine.read("/log")
        );
        assert_eq!(
            machine.read("/run/osm/kubelet.env"),
            "KUBELET_NODE_ARGS=--hostname-override=ip-10-0-0-7.ec2.internal --node-ip=10.0.0.7\n"
        );
    }
}
