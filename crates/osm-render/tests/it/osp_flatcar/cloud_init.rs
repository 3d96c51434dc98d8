//! The profile osp-flatcar-cloud-init, where it differs from osp-flatcar. The matrix of all profiles has its documents judged.

use osm_api::profile::ProvisioningUtility;
use osm_judges::{MachineConfig, coreos_apply, coreos_read};

use super::*;

fn pool(family: &str, everything: bool) -> Pool {
    let mut pool = super::pool("anexia", "1.34.2", family, everything);
    pool.os.provisioning_utility = Some(ProvisioningUtility::CloudInit);
    pool
}

/// The default of such pools.
fn profile() -> Profile {
    let pool = pool("IPv4", false);
    let name = osm_render::default_name(pool.operating_system.as_str(), pool.provisioning_utility());
    assert_eq!(name, "osp-flatcar-cloud-init");
    let (_, spec) = osm_render::defaults()
        .into_iter()
        .find(|(known, _)| *known == name)
        .unwrap();
    osm_render::compile(&osm_render::resolve(&spec).unwrap()).unwrap()
}

fn read(document: &str) -> MachineConfig {
    coreos_read(&[("document", document)])
        .unwrap()
        .remove(0)
        .unwrap_or_else(|verdict| panic!("{verdict}"))
}

/// A machine that has read a bootstrap document which names `document`, with a coreos-cloudinit that applies it as `program` says.
fn booted(kind: Kind, server: &Server, ca: &str, document: &str, program: &str) -> Machine {
    packages::ensure(&["busybox", "curl", "dash", "jq", "python3"]).unwrap();
    let machine = Machine::new(kind);
    let values = values(&sha256(document.as_bytes()), 1);
    let url = format!("https://127.0.0.1:{}", server.port);
    let [bootstrap, _] = render(&profile(), &pool("IPv4", false), "{}", (&url, ca), &values);
    machine.write(&read(&bootstrap).into_files());
    let calls = machine.path("/calls");
    machine.program(
        "coreos-cloudinit",
        &format!("echo coreos-cloudinit \"$@\" >>'{}'\n{program}", calls.display()),
    );
    machine
}

/// The call that applies the document.
fn call(machine: &Machine) -> String {
    format!(
        "coreos-cloudinit --from-file={}\n",
        machine.path("/var/lib/osm/provisioning.yaml").display()
    )
}

#[test]
fn bootstrap_says_what_is_wrong_goes_on_and_applies_the_document() {
    let authority = Authority::new("127.0.0.1");
    let document = "#cloud-config\nhostname: \"a\"\n";
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        let fails = "[ -e \"$0.works\" ] || { echo 'Writing file'; echo 'Failed to apply cloud-config: no space' >&2; exit 1; }";
        let machine = booted(kind, &server, &authority.ca, document, fails);
        let good = secret(document);
        let steps = [
            (Answer::status(401), "refuses this machine's token (401)"),
            (Answer::status(404), "there is no Secret"),
            (Answer::ok(secret("{}")), "digest differs"),
            (Answer::ok("{\"data\":"), "can't take the document out"),
            (
                Answer {
                    cut: true,
                    ..Answer::ok(good.clone())
                },
                "can't read from the API server",
            ),
            (
                Answer::ok(good),
                "can't apply the document: Failed to apply cloud-config: no space",
            ),
        ];
        let mut run = None;
        let mut seen = 0;
        for (i, (answer, text)) in steps.into_iter().enumerate() {
            assert!(machine.read("/calls").is_empty(), "before step {i}");
            server.always(answer);
            run.get_or_insert_with(|| machine.start("/opt/bin/osm-bootstrap"));
            seen = machine.wait_for_log(seen, text);
        }
        assert!(!machine.path("/var/lib/osm/bootstrapped").exists());
        assert!(machine.path("/etc/osm/api-token").exists());
        let asked = server.requests().len();
        fs::write(machine.path("/bin/coreos-cloudinit.works"), "").unwrap();
        assert!(run.unwrap().succeeds(), "{}", machine.read("/log"));

        assert!(machine.read("/calls").ends_with(&call(&machine)), "{kind:?}");
        assert_eq!(
            server.requests().len(),
            asked,
            "what is there and whole is not fetched again"
        );
        assert_eq!(machine.read("/var/lib/osm/provisioning.yaml"), document);
        assert_eq!(machine.mode("/var/lib/osm/provisioning.yaml"), 0o600);
        assert!(machine.path("/var/lib/osm/bootstrapped").exists());
        assert!(
            !machine.path("/etc/osm/api-token").exists()
                && !machine.path("/run/osm/osm-bootstrap/answer").exists()
        );
        assert!(
            machine
                .read("/dev/console")
                .ends_with("the provisioning document is applied\n")
        );
        assert!(server.requests().iter().all(|(path, authorization)| {
            path.ends_with(SECRET) && *authorization == format!("Bearer {}", token("api", 1))
        }));
    }
}

#[test]
fn a_power_cut_while_the_document_is_applied_costs_no_more_than_time() {
    let authority = Authority::new("127.0.0.1");
    let document = "#cloud-config\nhostname: \"b\"\n";
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        server.always(Answer::ok(secret(document)));
        // Until it is told otherwise, or the machine is no more.
        let hangs = "while [ -e \"$0\" ] && [ ! -e \"$0.works\" ]; do /usr/bin/sleep 0.05; done";
        let machine = booted(kind, &server, &authority.ca, document, hangs);
        let run = machine.start("/opt/bin/osm-bootstrap");
        wait_for("the document to be applied", || {
            (machine.read("/calls") == call(&machine)).then_some(())
        });
        run.kill();
        assert!(!machine.path("/var/lib/osm/bootstrapped").exists());
        assert!(machine.path("/etc/osm/api-token").exists());

        // What was kept is no longer whole.
        fs::write(machine.path("/var/lib/osm/provisioning.yaml"), "damaged").unwrap();
        fs::write(machine.path("/bin/coreos-cloudinit.works"), "").unwrap();
        assert!(
            machine.start("/opt/bin/osm-bootstrap").succeeds(),
            "{}",
            machine.read("/log")
        );
        assert_eq!(machine.read("/var/lib/osm/provisioning.yaml"), document);
        assert_eq!(
            (server.requests().len(), machine.read("/calls")),
            (2, call(&machine).repeat(2))
        );
    }
}

#[test]
fn at_later_boots_the_token_is_taken_away_and_nothing_else_done() {
    let authority = Authority::new("127.0.0.1");
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        server.always(Answer::ok(secret("{}")));
        let machine = booted(kind, &server, &authority.ca, "{}", "");
        assert!(
            machine.start("/opt/bin/osm-bootstrap").succeeds(),
            "{}",
            machine.read("/log")
        );
        // coreos-cloudinit writes it at every boot.
        fs::write(
            machine.path("/etc/osm/api-token"),
            "Authorization: Bearer a.b.c\n",
        )
        .unwrap();
        assert!(machine.start("/opt/bin/osm-bootstrap").succeeds());
        assert!(!machine.path("/etc/osm/api-token").exists());
        assert_eq!(
            (server.requests().len(), machine.read("/calls")),
            (1, call(&machine))
        );
        // Which systemd lets it do.
        let condition = machine.read("/etc/systemd/system/osm-bootstrap.service.d/10-every-boot.conf");
        assert!(condition.ends_with("\nConditionPathExists=\n"), "{condition}");
    }
}

#[test]
fn coreos_cloudinit_makes_of_the_documents_what_the_profile_says() {
    let pool = pool("IPv4+IPv6", true);
    let cluster = ("https://10.0.0.1:6443", "CA\n");
    let documents = render(
        &profile(),
        &pool,
        EVERYTHING,
        cluster,
        &values(&"0".repeat(64), 1),
    );
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path.trim_start_matches('/'));
    for (document, unit) in documents
        .iter()
        .zip(["osm-bootstrap.service", "osm-setup.service"])
    {
        let calls = coreos_apply(document, root.path()).unwrap();
        let of_systemd: Vec<&str> = calls
            .iter()
            .filter_map(|call| call.strip_prefix("systemd "))
            .collect();
        let mut expected = Vec::new();
        if unit == "osm-bootstrap.service" {
            expected.extend([
                "enable osm-time-servers.service",
                "enable osm-bootstrap.service",
                "daemon-reload",
                "restart systemd-networkd.service",
                "start osm-time-servers.service",
                "start osm-bootstrap.service",
            ]);
            assert_eq!(calls[0], "hostnamectl set-hostname pool-5d8f");
            assert!(calls[2].starts_with("ssh-ed25519 "), "{calls:?}");
        } else {
            expected.extend([
                "enable osm-settings-kernel.service",
                "enable osm-setup.service",
                "daemon-reload",
                "start osm-settings-kernel.service",
                "start osm-setup.service",
            ]);
            assert_eq!(
                of_systemd.len(),
                calls.len(),
                "the name and the keys stay as they are: {calls:?}"
            );
        }
        assert_eq!(of_systemd, expected);
        let files = read(document).into_files();
        assert!(files.len() > 5);
        for file in files {
            let metadata = fs::metadata(at(&file.path)).unwrap();
            assert_eq!(
                fs::read_to_string(at(&file.path)).unwrap(),
                file.content,
                "{}",
                file.path
            );
            assert_eq!(metadata.mode() & 0o7777, file.mode, "{}", file.path);
        }
    }
    let network = fs::read_to_string(at("/etc/systemd/network/05-osm-static.network")).unwrap();
    assert!(network.contains("192.0.2.7"));
    let config: toml::Table = fs::read_to_string(at("/etc/containerd/config.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let password = &config["plugins"]["io.containerd.cri.v1.images"]["registry"]["configs"]["docker.io"]["auth"]
        ["password"];
    assert_eq!(password.as_str(), Some("quo\"te's \\ and\nline"));
}

#[test]
fn setup_makes_a_node_behind_a_proxy() {
    for kind in kinds() {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = Machine::new(kind);
        let settings = "proxy: {http: \"http://127.0.0.1:1\", noProxy: 127.0.0.1}\n".to_owned();
        let [_, document] = render(
            &profile(),
            &pool("IPv6", false),
            &(settings + &downloads(server.port)),
            ("https://127.0.0.1:1", "CA"),
            &values(&"0".repeat(64), 1),
        );
        machine.write(&read(&document).into_files());
        machine.program(
            "containerd",
            "echo containerd github.com/containerd/containerd/v2 v2.1.5 abc",
        );
        assert!(
            machine.start("/opt/bin/osm-setup").succeeds(),
            "{}",
            machine.read("/log")
        );
        assert_eq!(machine.read("/opt/bin/kubelet").as_bytes(), program("kubelet"));
        let calls = machine.read("/calls");
        assert!(
            calls.contains("systemctl try-restart update-engine.service\n"),
            "{calls}"
        );
        assert!(
            calls.contains("systemctl try-restart systemd-journald.service\n"),
            "{calls}"
        );
        assert!(calls.contains("systemctl mask --now docker.socket docker.service\n"));
        for foreign in [
            "mask --now update-engine",
            "swapoff",
            "osm-extras",
            "ufw",
            "setenforce",
            "apt-get",
        ] {
            assert!(!calls.contains(foreign), "{calls}");
        }
        assert!(machine.path("/var/lib/osm/set-up").exists());
        assert!(
            !machine.read("/log").contains("warning"),
            "{}",
            machine.read("/log")
        );
    }
}
