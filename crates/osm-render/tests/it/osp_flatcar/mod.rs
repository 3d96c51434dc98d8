//! The profiles osp-flatcar and osp-flatcar-cloud-init: their documents before the judges, their scripts at
//! work.

mod cloud_init;
mod ovf_network;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use crate::common::{any_values, content, files};
use crate::osp_ubuntu::machine::{Answer, Authority, KINDS, Kind, Machine, Server};
use crate::osp_ubuntu::{BOOTSTRAP, KUBELET_ENV, SETUP, booted_of, refusals, secret};
use crate::osp_ubuntu::{bootstrap, downloading_from, has_used_its_token, mirror, program};
use osm_api::Pool;
use osm_user_data::{Stage, user_data};

/// An API server that no machine asks.
const NOWHERE: (&str, &str) = ("https://127.0.0.1:1", "CA");

/// A pool of Flatcar; with `everything`, its MachineDeployment says everything it can.
fn pool(cloud: &str, everything: bool) -> Pool {
    let mut pool = crate::common::pool("flatcar", cloud, "1.34.2", "IPv4", everything);
    pool.os.disable_auto_update = everything;
    pool
}

/// A machine that has read a bootstrap document which names `document`.
fn booted(kind: Kind, server: &Server, ca: &str, document: &str) -> Machine {
    let pool = pool("openstack", false);
    let machine = booted_of(&pool, kind, (&server.url(), ca), document, 1);
    for folder in ["/oem", "/boot/flatcar"] {
        fs::create_dir_all(machine.path(folder)).unwrap();
    }
    machine.put("/etc/machine-id", "0123\n");
    machine.program("mountpoint", "exit 0");
    machine
}

/// Flatcar always has curl.
fn kinds() -> impl Iterator<Item = Kind> {
    KINDS.into_iter().filter(|kind| kind.curl)
}

#[test]
fn bootstrap_says_what_is_wrong_goes_on_and_reboots_into_ignition() {
    let authority = Authority::new("127.0.0.1");
    let pool = pool("openstack", false);
    let content = content(&pool, "{}", NOWHERE);
    let document = user_data(&content, Stage::Provisioning, &any_values()).unwrap();
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        let machine = booted(kind, &server, &authority.ca, &document);
        let good = secret(&document);
        let run = bootstrap(&machine, &server, &refusals(&good));
        assert!(!machine.has("/oem/config.ign"));
        assert_eq!(machine.calls(), "");
        server.always(Answer::ok(good));
        run.ends_well();

        assert_eq!(machine.calls(), "systemctl reboot\n", "{kind:?}");
        assert_eq!(machine.read("/oem/config.ign"), document);
        assert_eq!(machine.mode("/oem/config.ign"), 0o600);
        assert!(machine.has("/boot/flatcar/first_boot"));
        assert!(!machine.has("/etc/machine-id"));
        has_used_its_token(&machine, &server);
        // That is the document's to say.
        assert!(!machine.has("/var/lib/osm/bootstrapped"));
        let console = machine.read("/dev/console");
        assert!(console.ends_with("at the next boot: rebooting\n"), "{console}");

        // Should Ignition not have applied it: what is there is not fetched again, and the machine does not
        // reboot in a hurry.
        let (asked, sleeps) = (server.requests().len(), machine.read("/sleeps").len());
        machine.runs(BOOTSTRAP);
        assert_eq!(server.requests().len(), asked);
        machine.said("Ignition did not apply");
        assert!(machine.read("/sleeps")[sleeps..].starts_with("600\n"));
        assert_eq!(machine.calls(), "systemctl reboot\n".repeat(2));
    }
    let mut files = files(&content, Stage::Provisioning, &any_values()).into_iter();
    assert!(files.any(|file| file.path == "/var/lib/osm/bootstrapped"));
}

#[test]
fn a_reboot_that_can_not_be_prepared_is_not_tried() {
    let authority = Authority::new("127.0.0.1");
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        let machine = booted(kind, &server, &authority.ca, "{}");
        // Nobody, not even root, can make a file there.
        let flag = "/boot/flatcar/first_boot";
        symlink("/proc/no-such-folder/file", machine.path(flag)).unwrap();
        let good = Answer::ok(secret("{}"));
        let run = bootstrap(&machine, &server, &[(good, "can't prepare the reboot: ")]);
        // A power cut: the token is still needed, should the document be lost.
        run.kill();
        assert_eq!(machine.calls(), "");
        assert!(machine.has("/etc/osm/api-token") && !machine.has("/var/lib/osm/reboots"));
        machine.put("/oem/config.ign", "damaged");
        machine.remove(flag);
        machine.runs(BOOTSTRAP);
        assert_eq!(machine.read("/oem/config.ign"), "{}");
        assert!(machine.has(flag));
        assert_eq!(machine.calls(), "systemctl reboot\n");
    }
}

#[test]
fn a_machine_that_would_reboot_for_ever_does_not_reboot() {
    let authority = Authority::new("127.0.0.1");
    let server = Server::start(Some(&authority));
    server.always(Answer::ok(secret("{}")));
    for kind in kinds() {
        let unmounted = booted(kind, &server, &authority.ca, "{}");
        unmounted.program("mountpoint", "exit 32");
        let without_folder = booted(kind, &server, &authority.ca, "{}");
        fs::remove_dir(without_folder.path("/boot/flatcar")).unwrap();
        for (machine, complaint) in [
            (unmounted, "the OEM partition is not mounted on"),
            (without_folder, "there is no folder"),
        ] {
            let _run = machine.start(BOOTSTRAP);
            machine.wait_for_log(0, complaint);
            assert_eq!(machine.calls(), "");
        }
        // As older releases have it.
        let older = booted(kind, &server, &authority.ca, "{}");
        fs::create_dir_all(older.path("/usr/share")).unwrap();
        fs::rename(older.path("/oem"), older.path("/usr/share/oem")).unwrap();
        older.runs(BOOTSTRAP);
        assert_eq!(older.read("/usr/share/oem/config.ign"), "{}");
    }
}

/// A machine with the provisioning document applied, that downloads from `port`.
fn provisioned(kind: Kind, cloud: &str, port: u16) -> Machine {
    let machine = Machine::new(kind);
    let content = content(&pool(cloud, true), &downloading_from(port), NOWHERE);
    machine.write(&files(&content, Stage::Provisioning, &any_values()));
    machine.put("/etc/machine-name", "Pool-5d8f");
    let version =
        "containerd github.com/containerd/containerd/v2 v2.1.5 fcd43222d6b07379a4be9786bda52438f0dd16a1";
    machine.program("containerd", &format!("echo {version}"));
    machine
}

#[test]
fn setup_makes_a_node() {
    for kind in kinds() {
        let server = mirror();
        let machine = provisioned(kind, "openstack", server.port);
        machine.runs(SETUP);
        for (folder, name) in [
            ("/opt/bin", "kubelet"),
            ("/opt/cni/bin", "bridge"),
            ("/opt/cni/bin", "loopback"),
            ("/opt/bin", "crictl"),
        ] {
            let path = format!("{folder}/{name}");
            assert_eq!(machine.read(&path).as_bytes(), program(name), "{}", machine.log());
            assert_eq!(machine.mode(&path), 0o755);
        }
        for name in ["ctr", "runc"] {
            let link = fs::read_link(machine.path(&format!("/opt/bin/{name}"))).unwrap();
            assert_eq!(link.to_str().unwrap(), format!("/usr/bin/{name}"));
        }
        machine.called(&[
            "systemctl mask --now update-engine.service\nsystemctl mask --now locksmithd.service\n",
            "systemctl mask --now docker.socket docker.service\n",
            "update-ca-certificates",
            "systemctl enable containerd.service kubelet.service osm-health.timer\n",
            "systemctl restart containerd.service\nsystemctl restart kubelet.service\n",
        ]);
        let certificate = "-----BEGIN CERTIFICATE-----\nb25lIHRydXN0\n-----END CERTIFICATE-----\n";
        assert_eq!(machine.read("/etc/ssl/certs/osm-2.pem"), certificate);
        machine.never_called(&["osm-extras", "ufw", "setenforce", "apt-get"]);
        assert!(machine.has("/var/lib/osm/set-up"));
        assert!(machine.read("/dev/console").ends_with("the kubelet runs\n"));
    }
}

#[test]
fn a_second_runtime_holds_up_the_kubelet() {
    let server = mirror();
    let machine = provisioned(KINDS[0], "openstack", server.port);
    let masked = "[ -e \"$MACHINE/masked\" ] || { echo no memory >&2; exit 1; }";
    machine.noted("systemctl", &format!("case $1 in mask) {masked} ;; esac"));
    let run = machine.start(SETUP);
    let complaint =
        "can't prepare the system: no memory systemctl mask --now docker.socket docker.service failed";
    machine.wait_for_log(0, complaint);
    machine.never_called(&["restart kubelet.service"]);
    assert_eq!(server.requests(), []);
    machine.put("/masked", "");
    run.ends_well();

    // An image without docker has no units to stop.
    let machine = provisioned(KINDS[1], "openstack", server.port);
    machine.program("systemctl", "case \"$*\" in *docker*) exit 5 ;; esac");
    machine.runs(SETUP);
}

#[test]
fn an_old_containerd_is_told_in_one_line() {
    for kind in kinds() {
        let machine = provisioned(kind, "openstack", 1);
        let old = "echo containerd github.com/containerd/containerd v1.7.23 abc";
        machine.program("containerd", old);
        let _run = machine.start(SETUP);
        let too_old = "containerd is 1.7.23, too old: use Flatcar 4459.2.3 or newer\n";
        machine.wait_for_log(0, too_old);
        machine.program("containerd", "echo 'no such library' >&2; exit 127");
        machine.wait_for_log(0, "containerd does not say its version: no such library");
        assert!(!machine.has("/var/lib/osm/set-up"));
    }
}

#[test]
fn on_aws_the_node_is_named_by_instance_metadata_of_ipv6_alone() {
    for kind in kinds() {
        let machine = provisioned(kind, "aws", 1);
        machine.program("ip", "echo \"x dev eth0 src 10.0.0.7 uid 0\"");
        machine.program(
            "curl",
            "case \"$*\" in
              *169.254*) exit 7 ;;
              *-X\\ PUT*fd00:ec2::254*/api/token) echo secret-token ;;
              *secret-token*) exit 22 ;;
              *-H\\ @-*/meta-data/local-hostname)
                [ \"$(cat)\" = 'X-aws-ec2-metadata-token: secret-token' ] && echo 'IP-10-0-0-7.eu.compute.internal other' ;;
              *) exit 22 ;;
            esac",
        );
        machine.runs(KUBELET_ENV);
        let arguments = machine.read("/run/osm/kubelet.env");
        let name = "--hostname-override=ip-10-0-0-7.eu.compute.internal ";
        assert!(arguments.contains(name), "{arguments}");
        machine.program("curl", "exit 7");
        machine.fails(KUBELET_ENV);
    }
}
