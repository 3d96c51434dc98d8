//! The scripts of the library at work, as the default profiles have them.

mod first_steps;
pub mod machine;
mod pods;
mod system;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{SystemTime, UNIX_EPOCH};

use self::machine::{Answer, Authority, KINDS, Kind, Machine, Run, Server, wait_for};
use crate::common::{
    EVERYTHING, SECRET, any_values, cluster, compiled, content, default_spec, files, pool, table, token,
    values,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use osm_api::{Pool, Settings, gzip};
use osm_judges::{hosts_toml, packages};
use osm_user_data::Stage;
use serde_json::json;
use sha2::{Digest, Sha256};

pub(crate) const BOOTSTRAP: &str = "/opt/bin/osm-bootstrap";
pub(crate) const SETUP: &str = "/opt/bin/osm-setup";
const EXTRAS: &str = "/opt/bin/osm-extras";
pub(crate) const KUBELET_ENV: &str = "/opt/bin/osm-kubelet-env";

const FSTAB: &str = "/dev/vda1 / ext4 defaults 0 1\n/swap none swap sw 0 0\n";

/// A machine with what the cloud hands to it, so that it applies `document`.
pub(crate) fn booted_of(
    pool: &Pool,
    kind: Kind,
    cluster: (&str, &str),
    document: &str,
    issued: u64,
) -> Machine {
    let machine = Machine::new(kind);
    let values = values(&sha256(document.as_bytes()), issued);
    machine.write(&files(&content(pool, "{}", cluster), Stage::Bootstrap, &values));
    machine
}

fn booted(kind: Kind, server: &str, ca: &str, document: &str, issued: u64) -> Machine {
    let pool = pool("ubuntu", "openstack", "1.34.2", "IPv4", false);
    booted_of(&pool, kind, (server, ca), document, issued)
}

pub(crate) fn secret(document: &str) -> Vec<u8> {
    json!({"kind": "Secret", "data": {"cloud-config.gz": gzip::USUAL.base64(document)}})
        .to_string()
        .into_bytes()
}

/// Answers instead of the Secret, and what a machine says of each.
pub(crate) fn refusals(good: &[u8]) -> [(Answer, &'static str); 8] {
    let cut = Answer {
        cut: true,
        ..Answer::ok(good)
    };
    [
        (Answer::status(401), "refuses this machine's token (401)"),
        (Answer::status(403), "may not read Secret"),
        (Answer::status(404), "there is no Secret"),
        (Answer::status(503), "answers 503"),
        (Answer::ok(secret("#cloud-config\n")), "digest differs"),
        (Answer::ok("{\"data\":"), "can't take the document out"),
        (Answer::ok("{}"), "can't take the document out"),
        (cut, "can't read from the API server"),
    ]
}

/// Starts the bootstrap, and gives it one answer after the other, until it has said what it thinks of each.
pub(crate) fn bootstrap(machine: &Machine, server: &Server, answers: &[(Answer, &str)]) -> Run {
    server.always(answers[0].0.clone());
    let run = machine.start(BOOTSTRAP);
    let mut seen = 0;
    for (answer, text) in answers {
        server.always(answer.clone());
        seen = machine.wait_for_log(seen, text);
    }
    run
}

/// The machine asked for its Secret with its token, which it has told nobody and has no more.
pub(crate) fn has_used_its_token(machine: &Machine, server: &Server) {
    let secret = format!("/api/v1/namespaces/cloud-init-settings/secrets/{SECRET}");
    let authorization = format!("Bearer {}", token("api", 1));
    let expected = (secret, authorization);
    assert!(server.requests().iter().all(|request| *request == expected));
    machine.never_said(&token("api", 1));
    assert!(!machine.has("/etc/osm/api-token"));
}

#[test]
fn bootstrap_says_what_is_wrong_and_goes_on() {
    let authority = Authority::new("127.0.0.1");
    for kind in KINDS {
        let server = Server::start(Some(&authority));
        let document =
            "#cloud-config\nruncmd: [[sh, -c, 'echo \"$1\" >>\"$MACHINE/applied\"', _, \"it's\"]]\n";
        let machine = booted(kind, &(server.url() + "/"), &authority.ca, document, 1);
        let good = secret(document);
        let run = bootstrap(&machine, &server, &refusals(&good));
        server.always(Answer::ok(good));
        run.ends_well();

        assert_eq!(machine.read("/applied"), "it's\n", "{kind:?}");
        let own_umask = "the script's own umask is for secrets only";
        assert_eq!(machine.mode("/applied"), 0o644, "{own_umask}");
        has_used_its_token(&machine, &server);
        assert_eq!(machine.mode("/var/lib/osm/provisioning.yaml"), 0o600);
        assert!(machine.has("/var/lib/osm/bootstrapped"));
        let console = machine.read("/dev/console");
        let end = "the provisioning document is applied\n";
        assert!(console.ends_with(end), "{console}");
        let pauses = machine.read("/sleeps");
        let pauses: Vec<u32> = pauses.lines().map(|line| line.parse().unwrap()).collect();
        let mut most = [2, 4, 8, 16, 32, 64, 64].into_iter().zip(&pauses);
        let grow = most.all(|(most, pause)| (most / 2..=most).contains(pause));
        assert!(grow, "{pauses:?}");

        // Again: what is there is not fetched again.
        let asked = server.requests().len();
        machine.runs(BOOTSTRAP);
        assert_eq!(server.requests().len(), asked);
    }
}

/// A time after every certificate of these tests was issued, in seconds.
fn later() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs() + 100_000
}

#[test]
fn bootstrap_tells_network_tls_and_clock_apart() {
    let (ours, other) = (Authority::new("127.0.0.1"), Authority::new("127.0.0.1"));
    let elsewhere = Authority::new("10.9.9.9");
    let (another, misnamed) = (Server::start(Some(&other)), Server::start(Some(&elsewhere)));
    let (no_name, nobody) = ("https://no-such-name.invalid:6443", "https://127.0.0.1:1");
    let unreachable = "can't reach the API server https://127.0.0.1:1";
    let [stranger, wrong_name] = [&another, &misnamed].map(Server::url);
    for kind in KINDS {
        for (server, authority, issued, text) in [
            (no_name, &ours, 1, "can't resolve a name"),
            (nobody, &ours, 1, unreachable),
            (&stranger, &ours, 1, "can't verify the API server"),
            (&wrong_name, &elsewhere, 1, "can't verify the API server"),
            (&stranger, &ours, later(), "the clock is wrong"),
        ] {
            let machine = booted(kind, server, &authority.ca, "", issued);
            let _run = machine.start(BOOTSTRAP);
            machine.wait_for_log(0, text);
            machine.wait_for_console(text);
        }
    }
    // Nobody else has got a request, and with it the token.
    assert!(another.requests().is_empty() && misnamed.requests().is_empty());
}

#[test]
fn a_clock_that_is_not_set_is_waited_for_a_minute() {
    let authority = Authority::new("127.0.0.1");
    let server = Server::start(Some(&authority));
    server.always(Answer::ok(secret("{}")));
    let later = later();
    let machine = || booted(KINDS[0], &server.url(), &authority.ca, "{}", later);
    let never = machine();
    // A server that can be verified is good enough.
    never.runs(BOOTSTRAP);
    assert_eq!(never.read("/sleeps"), "1\n".repeat(60));

    let meanwhile = machine();
    let set = format!(r#"[ -s "$MACHINE/sleeps" ] && echo {later} || exec /usr/bin/date "$@""#);
    meanwhile.program("date", &set);
    meanwhile.runs(BOOTSTRAP);
    assert_eq!(meanwhile.read("/sleeps"), "1\n");
}

#[test]
fn a_power_cut_while_applying_is_survived_without_the_api_server() {
    let authority = Authority::new("127.0.0.1");
    let server = Server::start(Some(&authority));
    let document = "#cloud-config\nruncmd: ['echo try >>\"$MACHINE/tries\"', '[ -e \"$MACHINE/go\" ]']\n";
    let machine = booted(KINDS[0], &server.url(), &authority.ca, document, 1);
    let fails = "can't apply the document: runcmd failed with status 1";
    let run = bootstrap(&machine, &server, &[(Answer::ok(secret(document)), fails)]);
    run.kill();
    drop(server);
    machine.put("/go", "");
    machine.runs(BOOTSTRAP);
    assert!(machine.read("/tries").lines().count() >= 2);
}

const APPLY: &str = "/opt/bin/osm-apply";

/// A machine with the program that applies documents.
fn applier() -> Machine {
    let machine = booted(KINDS[0], "https://127.0.0.1:1", "", "", 1);
    machine.put("/argument", machine.path("/document").display().to_string());
    machine
}

#[test]
fn the_applier_does_what_cloud_init_would() {
    for (usage, before, after) in [
        ("single [--file FILE]", "single --file", ""),
        ("single", "--file", " single"),
    ] {
        let machine = applier();
        let help = format!("[ \"$*\" != 'single --help' ] || {{ echo '{usage}'; exit; }}");
        let notes = "echo \"$@\" >>\"$MACHINE/calls\"";
        machine.program("cloud-init", &format!("{help}\n{notes}\nexit 2"));
        let cloud_cfg = "cloud_init_modules: [users-groups]\ncloud_config_modules: [set-passwords, [ntp, always], apt-configure]\n\
                     cloud_final_modules: [package-update-upgrade-install]\n";
        machine.put("/etc/cloud/cloud.cfg", cloud_cfg);
        let path = |name: &str| machine.path(name).display().to_string();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"zipped").unwrap();
        machine.put("/appended", "one\n");
        symlink(path("/target"), path("/link")).unwrap();
        // Another name of a file keeps the old content only if the file is replaced, as a power cut requires.
        machine.put("/plain", "before\n");
        std::fs::hard_link(path("/plain"), path("/before")).unwrap();
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
            "packages": ["a"], "apt": {}, "chpasswd": {}, "mine": {}, "output": {}, "package_update": true, "ntp": {}, "users": [],
            "bootcmd": ["[ -e \"$MACHINE/plain\" ] && echo first >>\"$MACHINE/order\""],
            "runcmd": [["cd", path("/")], ["sh", "-c", "echo \"$1\" >>order", "_", "it's"]],
        });
        machine.put("/document", document.to_string());
        for _ in 0..2 {
            machine.runs(APPLY);
        }
        for (file, text) in [
            ("/order", "first\nit's\nfirst\nit's\n"),
            ("/plain", "plain\n"),
            ("/before", "before\n"),
            ("/new/folder/zipped", "zipped"),
            ("/appended", "one\ntwo\n"),
            ("/target", "through"),
        ] {
            assert_eq!(machine.read(file), text, "{file}");
        }
        let modes = ["/plain", "/new/folder/zipped"].map(|file| machine.mode(file));
        assert_eq!(modes, [0o644, 0o600]);
        let document = path("/document");
        let names =
            "users_groups set_passwords ntp apt_configure package_update_upgrade_install mine".split(' ');
        let call = |name| format!("{before} {document}{after} --name {name} --frequency always\n");
        let calls: String = names.map(call).collect();
        assert_eq!(machine.calls(), calls.repeat(2));
    }
}

const MIGRATION: &str = include_str!("../../../../../docs/migration.md");

#[test]
fn a_module_of_the_applier_leaves_the_network_as_cloud_init_configured_it() {
    assert!(MIGRATION.contains("| those of the first boot, because cloud-init isn't run twice |"));
    packages::ensure(&["cloud-init", "python3"]).unwrap();
    let find = "import inspect; from cloudinit.cmd import main as m\n\
                print(['apply_network_config' in inspect.getsource(f) for f in (m.main_init, m.main_single)])";
    let mut python = std::process::Command::new("/usr/bin/python3");
    let output = python.args(["-B", "-c", find]).output().unwrap();
    let expected = "[True, False]\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
}

const CAN_NOT: &str = r#"
{"write_files": [{"path": "/proc/none/x"}]} | write_files: /proc/none/x:
{"write_files": [{"path": "/x", "content": "!", "encoding": "b64"}]} | write_files: /x:
{"bootcmd": ["exit 3"]} | bootcmd failed with status 3
{"power_state": {"mode": "reboot"}} | power_state: would end this
{"packages": ["x"], "ntp": {}} | module ntp failed with status 1
"#;

#[test]
fn the_applier_names_what_it_can_not_do() {
    let machine = applier();
    machine.put("/etc/cloud/cloud.cfg", "{}\n");
    machine.program("cloud-init", "[ \"$*\" != 'single --help' ] || exit 0\nexit 1");
    let mut seen = 0;
    for [document, text] in table(CAN_NOT, " | ") {
        machine.put("/document", document);
        machine.fails(APPLY);
        seen = machine.wait_for_log(seen, text);
    }
    // What needs repositories may come later.
    let document = json!({"packages": ["x"], "rh_subscription": {}});
    machine.put("/document", document.to_string());
    machine.runs(APPLY);
    for module in ["package_update_upgrade_install", "rh_subscription"] {
        machine.said(&format!("warning: module {module} failed with status 1"));
    }
}

/// A tar archive, compressed, of programs that print their name; as release archives, with an owner that no
/// node has.
fn archive(names: &str) -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    for name in names.split(' ') {
        let path = scratch.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, program(name)).unwrap();
        let mode = if name.contains('.') { 0o644 } else { 0o755 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
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

const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// What a node downloads, laid out and with checksum files as upstream has them.
fn artefacts() -> BTreeMap<String, Answer> {
    let kubelet = format!("/k/v1.34.2/bin/linux/{ARCH}/kubelet");
    let containerd = format!("containerd-static-2.2.9-linux-{ARCH}.tar.gz");
    let cni = format!("cni-plugins-linux-{ARCH}-v1.9.1.tgz");
    let crictl = format!("/t/v1.34.0/crictl-v1.34.0-linux-{ARCH}.tar.gz");
    let containerd_archive =
        archive("bin/containerd bin/containerd-shim-runc-v2 bin/ctr bin/containerd-stress");
    let cni_archive = archive("bridge loopback README.md");
    let crictl_archive = archive("crictl");
    let other = "f".repeat(64);
    let runc_sums = format!("{other}  runc.s390x\n{} *runc.{ARCH}\n", sha256(&program("runc")));
    let sum = |bytes: &[u8], name: &str| format!("{}{name}", sha256(bytes)).into_bytes();
    let containerd_sum = sum(&containerd_archive, &format!("  {containerd}\n"));
    let cni_sum = sum(&cni_archive, &format!("  ./{cni}\n"));
    let files = [
        (format!("{kubelet}.sha256"), sum(&program("kubelet"), "")),
        (kubelet, program("kubelet")),
        (format!("/c/v2.2.9/{containerd}.sha256sum"), containerd_sum),
        (format!("/c/v2.2.9/{containerd}"), containerd_archive),
        ("/r/v1.3.6/runc.sha256sum".to_owned(), runc_sums.into_bytes()),
        (format!("/r/v1.3.6/runc.{ARCH}"), program("runc")),
        (format!("/n/v1.9.1/{cni}.sha256"), cni_sum),
        (format!("/n/v1.9.1/{cni}"), cni_archive),
        (format!("{crictl}.sha256"), sum(&crictl_archive, "")),
        (crictl, crictl_archive),
    ];
    files.map(|(path, body)| (path, Answer::ok(body))).into()
}

/// A mirror of what a node downloads.
pub(crate) fn mirror() -> Server {
    let server = Server::start(None);
    server.answer(&artefacts());
    server
}

/// Settings by which nodes download from a [`mirror()`] on `port`.
pub(crate) fn downloads(port: u16) -> String {
    let at = format!("baseURL: \"http://127.0.0.1:{port}");
    format!(
        "downloads:\n  kubelet: {{{at}/k\"}}\n  containerd: {{{at}/c\"}}\n  runc: {{{at}/r\"}}\n  cni: {{{at}/n\"}}\n  \
         crictl: {{{at}/t\", version: 1.34.0}}\n"
    )
}

/// Settings with everything set but the proxy, which this machine is not behind, by which nodes download from
/// `port`.
pub(crate) fn downloading_from(port: u16) -> String {
    let everything = EVERYTHING.split("downloads:").next().unwrap().lines();
    let everything = everything.filter(|line| !line.starts_with("proxy:"));
    let everything: String = everything.map(|line| format!("{line}\n")).collect();
    everything + &downloads(port)
}

/// A machine with the provisioning document applied, that downloads from `port`.
fn provisioned(kind: Kind, port: u16, family: &str) -> Machine {
    let pool = pool("ubuntu", "openstack", "1.34.2", family, true);
    machine_of(&pool, kind, &downloading_from(port))
}

/// A machine of `pool` with the provisioning document applied.
fn machine_of(pool: &Pool, kind: Kind, settings: &str) -> Machine {
    let content = content(pool, settings, ("https://127.0.0.1:1", ""));
    let machine = Machine::new(kind);
    machine.write(&files(&content, Stage::Provisioning, &any_values()));
    machine.put("/etc/fstab", FSTAB);
    machine.put("/etc/machine-name", "Pool-5D8F\n");
    machine
}

#[test]
fn setup_survives_a_bad_mirror_and_a_power_cut() {
    let good = artefacts();
    let path = |prefix: &str, suffix: &str| {
        let mut paths = good.keys();
        let found = paths.find(|path| path.starts_with(prefix) && path.ends_with(suffix));
        found.unwrap().clone()
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
        let run = machine.start(SETUP);
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
        machine.runs(SETUP);
        let more = server.requests().split_off(asked);
        let is_cni = more.iter().all(|(path, _)| path.starts_with("/n/"));
        assert!(is_cni, "the rest was there");
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
        assert!(!machine.has("/opt/cni/bin/README.md"));
        assert!(machine.has("/var/lib/osm/set-up") && !machine.has("/var/lib/osm/downloads"));
        let last = "systemctl restart containerd.service\nsystemctl restart kubelet.service\n\
            systemctl start osm-health.timer\nsystemctl start --no-block osm-extras.service\n";
        assert!(machine.calls().ends_with(last), "{}", machine.calls());
    }
}

#[test]
fn what_is_pinned_needs_no_checksum_file() {
    let mut files = artefacts();
    files.retain(|path, _| !path.contains("sha256"));
    let server = Server::start(None);
    server.answer(&files);
    // Upper case, as some people write them.
    let sums = ["/k/", "/c/", "/r/", "/n/"].map(|prefix| {
        let (_, answer) = files.iter().find(|(path, _)| path.starts_with(prefix)).unwrap();
        sha256(&answer.body).to_uppercase()
    });
    let machine = |[kubelet, containerd, runc, cni]: [&str; 4]| {
        let at = format!("baseURL: \"http://127.0.0.1:{}", server.port);
        let settings = format!(
            "downloads:\n\
             \x20 kubelet: {{{at}/k\", sha256: {{1.34.2: {{{ARCH}: {kubelet}}}}}}}\n\
             \x20 containerd: {{{at}/c\", sha256: {{{ARCH}: {containerd}}}}}\n\
             \x20 runc: {{{at}/r\", sha256: {{{ARCH}: {runc}}}}}\n\
             \x20 cni: {{{at}/n\", sha256: {{{ARCH}: {cni}}}}}\n"
        );
        let pool = pool("ubuntu", "openstack", "1.34.2", "IPv4", false);
        machine_of(&pool, KINDS[0], &settings)
    };
    let mut sums = sums.each_ref().map(String::as_str);
    machine(sums).runs(SETUP);
    let wrong = "f".repeat(64);
    sums[2] = &wrong;
    let machine = machine(sums);
    let _run = machine.start(SETUP);
    machine.wait_for_log(0, "no runc yet: checksum of");
}

#[test]
fn a_redirect_leads_to_another_server_but_not_away_from_https() {
    let authority = Authority::new("127.0.0.1");
    let (secure, plain) = (Server::start(Some(&authority)), mirror());
    secure.answer(&artefacts());
    for kind in &KINDS[..2] {
        let server = Server::start(Some(&authority));
        let settings = downloads(server.port).replace("http:", "https:");
        let pool = pool("ubuntu", "openstack", "1.34.2", "IPv4", false);
        let machine = machine_of(&pool, *kind, &settings);
        machine.put("/ca.pem", &authority.ca);
        for program in ["curl", "python3"].iter().skip(usize::from(!kind.curl)) {
            let trusts = "CURL_CA_BUNDLE=$MACHINE/ca.pem SSL_CERT_FILE=$MACHINE/ca.pem";
            machine.program(program, &format!("{trusts} exec /usr/bin/{program} \"$@\""));
        }
        let to = |url: String| Answer {
            body: url.into_bytes(),
            ..Answer::status(302)
        };
        server.always(to(format!("http://127.0.0.1:{}", plain.port)));
        let run = machine.start(SETUP);
        let first = format!("{}/k/v1.34.2/bin/linux/{ARCH}/kubelet.sha256", server.url());
        machine.wait_for_log(0, &format!("can't download {first}"));
        server.always(to(secure.url()));
        run.ends_well();
        let kubelet = machine.read("/opt/bin/kubelet");
        assert_eq!(kubelet.into_bytes(), program("kubelet"), "{kind:?}");
    }
    assert_eq!(plain.requests(), []);
}

/// Tests of full disks have the other files that settings make.
#[test]
fn setup_writes_what_containerd_reads_of_mirrors() {
    let server = mirror();
    let machine = provisioned(KINDS[0], server.port, "IPv4");
    machine.runs(SETUP);
    for host in ["docker.io", "_default"] {
        let hosts = machine.read(&format!("/etc/containerd/certs.d/{host}/hosts.toml"));
        hosts_toml(host, &hosts).unwrap_or_else(|verdict| panic!("{verdict}"));
    }
    let hub = machine.read("/etc/containerd/certs.d/docker.io/hosts.toml");
    let at = |text: &str| hub.find(text).unwrap_or_else(|| panic!("{text} not in {hub}"));
    let order = [
        "server = \"https://registry-1.docker.io\"",
        "z.example",
        "override_path = true",
        "a.example",
    ];
    assert!(order.map(at).is_sorted(), "{hub}");
    let without_mirrors = "/etc/containerd/certs.d/registry.example:5000";
    assert!(!machine.has(without_mirrors));
    assert_eq!(machine.mode("/etc/kubernetes/cloud-config"), 0o600);
}

/// A system on a cloud, its package manager, packages that are installed whatever else is missing, and the
/// unit that the second brings.
const PACKAGES: &str = "
ubuntu openstack apt-get nfs-common qemu-guest-agent qemu-guest-agent
rockylinux vsphere yum nfs-utils open-vm-tools vmtoolsd
";

#[test]
fn what_is_missing_in_the_end_is_a_warning() {
    for kind in KINDS {
        for [os, cloud, tool, storage, agent, unit] in table(PACKAGES, " ") {
            let server = mirror();
            let pool = pool(os, cloud, "1.34.2", "IPv4", true);
            let machine = machine_of(&pool, kind, &downloading_from(server.port));
            // A repository without socat, so that installing all at once fails.
            machine.noted(tool, "case \"$*\" in *update | *socat*) exit 100 ;; esac");
            machine.runs(EXTRAS);
            machine.said("warning: not installed: socat\n");
            for package in [storage, agent] {
                machine.called(&[&format!(" {package}\n")]);
            }
            machine.called(&[&format!("systemctl start --no-block {unit}.service\n")]);
            assert_eq!(machine.read("/opt/bin/crictl").into_bytes(), program("crictl"));
            let again = "tried again at the next boot";
            assert!(!machine.has("/var/lib/osm/extras"), "{again}");

            machine.program(tool, "exit 0");
            machine.runs(EXTRAS);
            assert!(machine.has("/var/lib/osm/extras"));
        }
    }
}

#[test]
fn packages_that_are_switched_off_are_not_asked_for() {
    for [os, cloud, tool, ..] in table::<6>(PACKAGES, " ") {
        let server = mirror();
        let settings = downloading_from(server.port).replace("packages:\n", "packages:\n  enabled: false\n");
        let machine = machine_of(&pool(os, cloud, "1.34.2", "IPv4", true), KINDS[0], &settings);
        machine.noted(tool, "exit 1");
        machine.runs(EXTRAS);
        machine.never_called(&[tool]);
        assert_eq!(machine.read("/opt/bin/crictl").into_bytes(), program("crictl"));
        assert!(machine.has("/var/lib/osm/extras"));
    }
}

#[test]
fn the_kubelet_is_told_what_only_the_machine_knows() {
    for kind in KINDS {
        for (family, flag) in [
            ("IPv4", "--node-ip=10.0.0.7"),
            ("IPv6", "--node-ip=2001:db8::7"),
            ("IPv4+IPv6", "--node-ip=10.0.0.7,2001:db8::7"),
            ("IPv6+IPv4", "--node-ip=2001:db8::7,10.0.0.7"),
        ] {
            let machine = provisioned(kind, 1, family);
            machine.program(
                "ip",
                "case $1 in -4) echo '192.0.2.1 via 10.0.0.1 dev eth0 src 10.0.0.7 uid 0 ' ;;\n\
                 -6) echo '2001:db8::1 from :: via fe80::1 dev eth0 proto ra src 2001:db8::7 metric 100 pref medium' ;; esac",
            );
            machine.runs(KUBELET_ENV);
            let arguments = format!("KUBELET_NODE_ARGS=--hostname-override=pool-5d8f {flag}\n");
            assert_eq!(machine.read("/run/osm/kubelet.env"), arguments);
            assert_eq!(machine.read("/run/osm/resolv.conf"), "");
            machine.said("pods get no name servers");
            for file in ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"] {
                machine.put(file, "");
                machine.runs(KUBELET_ENV);
                let link = std::fs::read_link(machine.path("/run/osm/resolv.conf")).unwrap();
                assert_eq!(link, machine.path(file));
            }
        }
    }
}

#[test]
fn a_missing_address_delays_the_kubelet_only() {
    let only_four = "case $1 in -4) echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0' ;; *) exit 2 ;; esac";
    let no_default_route =
        "case $* in *'addr show'*) echo '2: eth0    inet 10.0.0.7/24 scope global eth0' ;; *) exit 2 ;; esac";
    for (family, ip, complaint, flag) in [
        ("IPv4+IPv6", only_four, "no IPv6 address", " --node-ip=10.0.0.7\n"),
        ("IPv4", "exit 2", "no IPv4 address", " --node-ip=0.0.0.0\n"),
        ("IPv6", "exit 2", "no IPv6 address", " --node-ip=::\n"),
        ("IPv4", no_default_route, "", " --node-ip=10.0.0.7\n"),
    ] {
        let machine = provisioned(KINDS[0], 1, family);
        machine.program("ip", ip);
        machine.runs(KUBELET_ENV);
        let arguments = machine.read("/run/osm/kubelet.env");
        assert!(arguments.ends_with(flag), "{family}: {arguments}");
        machine.said(complaint);
    }
}

/// The script of an edge pool, with the paths of a real machine moved into this one.
fn edge_script(machine: &Machine) -> String {
    let pool = pool("ubuntu", "edge", "1.34.2", "IPv4", false);
    let profile = compiled(&default_spec("osp-ubuntu"));
    let rendered = profile.render(&pool, &Settings::default(), &cluster("https://127.0.0.1:1", ""));
    let script = osm_user_data::edge_script(&rendered.unwrap().spec, &any_values())
        .unwrap()
        .unwrap();
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
    let machine = Machine::new(KINDS[0]);
    machine.program("id", "echo 0");
    machine.put("/join.sh", edge_script(&machine));
    machine.put("/argument", "not a name\n");
    machine.fails("/join.sh");
    machine.said("this machine was not changed");
    assert!(!machine.has("/opt") && machine.calls().is_empty());
    machine.put("/argument", "Node-1\n");
    machine.runs("/join.sh");
    machine.said("joins as node-1");
    assert_eq!(machine.read("/etc/machine-name").trim_end(), "node-1");
    assert_eq!(machine.mode("/etc/osm/api-token"), 0o600);
    // Host name, users, keys and networks are the owner's: nothing of the kind is written or asked for.
    machine.called(&["systemctl"]);
    machine.never_called(&["cloud-init", "hostname"]);
    for of_the_owner in ["hostname", "passwd", "shadow", "netplan", "network"] {
        assert!(!machine.has(&format!("/etc/{of_the_owner}")), "{of_the_owner}");
    }
}

#[test]
fn what_hangs_three_times_in_a_row_is_restarted() {
    let machine = provisioned(KINDS[0], 1, "IPv4");
    let script = format!("#!/bin/sh\n[ ! -e '{}' ]\n", machine.path("/hangs").display());
    machine.put("/opt/bin/ctr", script);
    std::fs::set_permissions(machine.path("/opt/bin/ctr"), PermissionsExt::from_mode(0o755)).unwrap();
    let hangs = [true, true, false, true, true, true, true];
    for (hangs, restarted) in hangs.into_iter().zip([0, 0, 0, 0, 0, 1, 1]) {
        if hangs {
            machine.put("/hangs", "");
        } else {
            machine.remove("/hangs");
        }
        machine.runs("/opt/bin/osm-health");
        let restart = "systemctl restart --no-block containerd.service";
        machine.called_times(restart, restarted);
    }
    // It has no certificate yet.
    machine.never_called(&["kubelet"]);
}

#[test]
fn a_machine_like_rhel_is_set_up() {
    let server = mirror();
    for (os, kind) in [("rockylinux", KINDS[0]), ("rhel", KINDS[3])] {
        let pool = pool(os, "openstack", "1.34.2", "IPv4", true);
        let machine = machine_of(&pool, kind, &downloading_from(server.port));
        let selinux = "# SELINUX=enforcing\nSELINUX=enforcing\nSELINUXTYPE=targeted\n";
        machine.put("/etc/selinux/config", selinux);
        machine.program("getenforce", "echo Enforcing");
        let rules = "echo '0: from all lookup local'; echo '30400: from 10.0.0.9 lookup 30400'";
        machine.program("ip", rules);
        let devices = "[ \"$1\" != -t ] || printf 'eth0:ethernet\\nlo:loopback\\ncali1:veth\\n'";
        machine.noted("nmcli", devices);
        machine.runs(SETUP);
        machine.called(&[
            "stop nm-cloud-setup.service\n",
            "reload NetworkManager.service\n",
            "nmcli device reapply eth0\n",
        ]);
        machine.called_times("reapply", 1);
        machine.called(&["setenforce 0\n", "restorecon -R ", "restart containerd.service\n"]);
        machine.called(&["update-ca-trust extract\n"]);
        machine.never_called(&["ufw", "update-ca-certificates"]);
        let permissive = selinux.replace("\nSELINUX=enforcing", "\nSELINUX=permissive");
        assert_eq!(machine.read("/etc/selinux/config"), permissive);
        let trusted = machine.read("/etc/pki/ca-trust/source/anchors/osm.pem");
        assert_eq!(trusted.matches("-----BEGIN CERTIFICATE-----\n").count(), 2);
        machine.never_said("warning");
    }
}

#[test]
fn a_machine_without_selinux_and_networkmanager_needs_neither() {
    let server = mirror();
    let pool = pool("amzn2", "aws", "1.34.2", "IPv4", true);
    let machine = machine_of(&pool, KINDS[3], &downloading_from(server.port));
    machine.noted("systemctl", "case $* in cat* | *is-active*) exit 1 ;; esac");
    machine.runs(SETUP);
    let of_systemctl = ["disable", "stop", "reload"].map(|verb| format!("systemctl {verb}"));
    machine.never_called(&of_systemctl.each_ref().map(|call| &**call));
    machine.never_called(&["nmcli", "setenforce"]);
    assert!(!machine.has("/etc/NetworkManager"));
    machine.never_said("warning");
}

#[test]
fn on_aws_the_node_is_named_by_the_instance_metadata() {
    for os in ["ubuntu", "amzn2"] {
        let server = Server::start(None);
        let machine = machine_of(&pool(os, "aws", "1.34.2", "IPv4", false), KINDS[1], "{}");
        machine.remove("/etc/machine-name");
        let here = format!("127.0.0.1:{}", server.port);
        let script = machine.read(KUBELET_ENV).replace("169.254.169.254", &here);
        machine.put(KUBELET_ENV, script);
        machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
        // systemd tries again.
        machine.fails(KUBELET_ENV);
        machine.said(&format!("instance metadata at {here}: "));
        let name = Answer::ok("IP-10-0-0-7.ec2.internal other");
        server.answer(&BTreeMap::from([
            ("/latest/api/token".to_owned(), Answer::ok("t")),
            ("/latest/meta-data/local-hostname".to_owned(), name),
        ]));
        machine.runs(KUBELET_ENV);
        let expected = "KUBELET_NODE_ARGS=--hostname-override=ip-10-0-0-7.ec2.internal --node-ip=10.0.0.7\n";
        assert_eq!(machine.read("/run/osm/kubelet.env"), expected);
    }
}
