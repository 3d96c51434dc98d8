//! The profile osp-flatcar-cloud-init, where it differs from osp-flatcar. The matrix of all profiles has its documents judged.

use osm_api::profile::ProvisioningUtility;
use osm_judges::{MachineConfig, coreos_apply, coreos_read};

use super::*;

fn pool(family: &str, everything: bool) -> Pool {
    let mut pool = super::pool("anexia", family, everything);
    pool.os.provisioning_utility = Some(ProvisioningUtility::CloudInit);
    pool
}

fn read(document: &str) -> MachineConfig {
    coreos_read(&[("document", document)])
        .unwrap()
        .remove(0)
        .unwrap_or_else(|verdict| panic!("{verdict}"))
}

/// A machine that has read a bootstrap document which names `document`, with a coreos-cloudinit that applies it as `program` says.
fn booted(kind: Kind, server: &Server, ca: &str, document: &str, program: &str) -> Machine {
    prepare();
    let machine = Machine::new(kind);
    let values = values(&sha256(document.as_bytes()), 1);
    let [bootstrap, _] = documents(&pool("IPv4", false), "{}", (&server.url(), ca), &values);
    machine.write(&read(&bootstrap).into_files());
    machine.noted("coreos-cloudinit", program);
    machine
}

const DOCUMENT: &str = "/var/lib/osm/provisioning.yaml";

/// The call that applies the document.
fn call(machine: &Machine) -> String {
    format!(
        "coreos-cloudinit --from-file={}\n",
        machine.path(DOCUMENT).display()
    )
}

#[test]
fn bootstrap_says_what_is_wrong_goes_on_and_applies_the_document() {
    let authority = Authority::new("127.0.0.1");
    let document = "#cloud-config\nhostname: \"a\"\n";
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        let fails = "[ -e \"$MACHINE/works\" ] || { echo 'Writing file'; echo 'Failed to apply cloud-config: no space' >&2; exit 1; }";
        let machine = booted(kind, &server, &authority.ca, document, fails);
        let good = secret(document);
        let run = bootstrap(&machine, &server, &refusals(&good));
        assert_eq!(machine.calls(), "");
        server.always(Answer::ok(good));
        machine.wait_for_log(
            0,
            "can't apply the document: Failed to apply cloud-config: no space",
        );
        assert!(!machine.has("/var/lib/osm/bootstrapped") && machine.has("/etc/osm/api-token"));
        let asked = server.requests().len();
        machine.put("/works", "");
        run.ends_well();

        assert!(machine.calls().ends_with(&call(&machine)), "{kind:?}");
        // What is there and whole is not fetched again.
        assert_eq!(server.requests().len(), asked);
        assert_eq!(machine.read(DOCUMENT), document);
        assert_eq!(machine.mode(DOCUMENT), 0o600);
        assert!(machine.has("/var/lib/osm/bootstrapped") && !machine.has("/run/osm/osm-bootstrap/answer"));
        let console = machine.read("/dev/console");
        assert!(
            console.ends_with("the provisioning document is applied\n"),
            "{console}"
        );
        has_used_its_token(&machine, &server);
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
        let hangs = "while [ -e \"$0\" ] && [ ! -e \"$MACHINE/works\" ]; do /usr/bin/sleep 0.05; done";
        let machine = booted(kind, &server, &authority.ca, document, hangs);
        let run = machine.start(BOOTSTRAP);
        wait_for("the document to be applied", || {
            (machine.calls() == call(&machine)).then_some(())
        });
        run.kill();
        assert!(!machine.has("/var/lib/osm/bootstrapped") && machine.has("/etc/osm/api-token"));

        // What was kept is no longer whole.
        machine.put(DOCUMENT, "damaged");
        machine.put("/works", "");
        machine.runs(BOOTSTRAP);
        assert_eq!(machine.read(DOCUMENT), document);
        assert_eq!(server.requests().len(), 2);
        assert_eq!(machine.calls(), call(&machine).repeat(2));
    }
}

#[test]
fn at_later_boots_the_token_is_taken_away_and_nothing_else_done() {
    let authority = Authority::new("127.0.0.1");
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        server.always(Answer::ok(secret("{}")));
        let machine = booted(kind, &server, &authority.ca, "{}", "");
        machine.runs(BOOTSTRAP);
        // coreos-cloudinit writes it at every boot.
        machine.put("/etc/osm/api-token", "Authorization: Bearer a.b.c\n");
        machine.runs(BOOTSTRAP);
        assert!(!machine.has("/etc/osm/api-token"));
        assert_eq!((server.requests().len(), machine.calls()), (1, call(&machine)));
        // Which systemd lets it do.
        let condition = machine.read("/etc/systemd/system/osm-bootstrap.service.d/10-every-boot.conf");
        assert!(condition.ends_with("\nConditionPathExists=\n"), "{condition}");
    }
}

#[test]
fn coreos_cloudinit_makes_of_the_documents_what_the_profile_says() {
    let documents = documents(&pool("IPv4+IPv6", true), EVERYTHING, NOWHERE, &any_values());
    let root = tempfile::tempdir().unwrap();
    let [first, second] = documents.map(|document| {
        let calls = coreos_apply(&document, root.path()).unwrap();
        assert_written(root.path(), read(&document).into_files());
        calls
    });
    assert_eq!(first[0], "hostnamectl set-hostname pool-5d8f");
    assert!(first[2].starts_with("ssh-ed25519 "), "{first:?}");
    assert_eq!(
        first[3..],
        [
            "systemd enable osm-time-servers.service",
            "systemd enable osm-bootstrap.service",
            "systemd daemon-reload",
            "systemd restart systemd-networkd.service",
            "systemd start osm-time-servers.service",
            "systemd start osm-bootstrap.service",
        ]
    );
    // The name and the keys stay as they are.
    assert_eq!(
        second,
        [
            "systemd enable osm-settings-kernel.service",
            "systemd enable osm-setup.service",
            "systemd daemon-reload",
            "systemd start osm-settings-kernel.service",
            "systemd start osm-setup.service",
        ]
    );
    assert_configured(root.path());
}

#[test]
fn setup_makes_a_node_behind_a_proxy() {
    prepare();
    for kind in kinds() {
        let server = mirror();
        let machine = Machine::new(kind);
        let settings = "proxy: {http: \"http://127.0.0.1:1\", noProxy: 127.0.0.1}\n".to_owned();
        let settings = settings + &downloads(server.port);
        let [_, document] = documents(&pool("IPv6", false), &settings, NOWHERE, &any_values());
        machine.write(&read(&document).into_files());
        let containerd = "echo containerd github.com/containerd/containerd/v2 v2.1.5 abc";
        machine.program("containerd", containerd);
        machine.runs(SETUP);
        assert_eq!(machine.read("/opt/bin/kubelet").as_bytes(), program("kubelet"));
        for call in [
            "systemctl try-restart update-engine.service\n",
            "systemctl try-restart systemd-journald.service\n",
            "systemctl mask --now docker.socket docker.service\n",
        ] {
            machine.called(&[call]);
        }
        machine.never_called(&["mask --now update-engine", "swapoff", "osm-extras"]);
        machine.never_called(&["ufw", "setenforce", "apt-get"]);
        assert!(machine.has("/var/lib/osm/set-up"));
        machine.never_said("warning");
    }
}
