//! The profiles osp-flatcar and osp-flatcar-cloud-init: their documents before the judges, their scripts at work.

mod cloud_init;
mod ovf_network;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::{EVERYTHING, SECRET, token, values};
use crate::osp_ubuntu::machine::{Answer, Authority, KINDS, Kind, Machine, Server, wait_for};
use crate::osp_ubuntu::{downloading_from, downloads, mirror, program, secret, sha256};
use osm_api::profile::OperatingSystemProfile;
use osm_api::provider_spec::{Dns, Network};
use osm_api::{Pool, Settings};
use osm_judges::packages;
use osm_judges::{File, MachineConfig, ignition_apply, ignition_read};
use osm_render::{ClusterEndpoint, LateValues, Profile, Stage, user_data};

const PROFILE: &str = include_str!("../../../../../profiles/osp-flatcar.yaml");
const CLOUDS: [&str; 7] = [
    "aws",
    "azure",
    "gce",
    "kubevirt",
    "openstack",
    "vmware-cloud-director",
    "vsphere",
];

/// A pool of Flatcar; with `everything`, its MachineDeployment says everything it can.
fn pool(cloud: &str, kubelet: &str, family: &str, everything: bool) -> Pool {
    let mut pool = crate::common::pool("flatcar", cloud, kubelet, family, everything);
    if everything {
        pool.os.disable_auto_update = true;
        let dns = Dns {
            servers: vec!["192.0.2.2".to_owned()],
        };
        let (cidr, gateway) = ("192.0.2.7/24".to_owned(), "192.0.2.1".to_owned());
        pool.network = Network {
            cidr,
            gateway,
            dns,
            ..pool.network
        };
    }
    pool
}

fn profile() -> Profile {
    let profile: OperatingSystemProfile = serde_saphyr::from_str(PROFILE).unwrap();
    osm_render::compile(&osm_render::resolve(&profile.spec).unwrap()).unwrap()
}

fn render(
    profile: &Profile,
    pool: &Pool,
    settings: &str,
    cluster: (&str, &str),
    values: &LateValues,
) -> [String; 2] {
    let cluster = ClusterEndpoint {
        api_server: cluster.0.to_owned(),
        ca: cluster.1.to_owned(),
    };
    let rendered = profile
        .render(pool, &Settings::parse(settings).unwrap(), &cluster)
        .unwrap();
    // What machine-controller does with a bootstrap document.
    let name = |document: String| {
        document
            .replace("<MACHINE_NAME>", "pool-5d8f")
            .replace("%3CMACHINE_NAME%3E", "pool-5d8f")
    };
    Stage::ALL.map(|stage| name(user_data(&rendered.spec, stage, values).unwrap()))
}

/// With the paths of the two partitions that a machine of these tests does not have.
fn on_the_machine(config: &MachineConfig) -> Vec<File> {
    let mut files = config.files.clone();
    for file in &mut files {
        file.content = file
            .content
            .replace("=/oem\n", "=/etc/oem\n")
            .replace("/usr/share/oem", "/etc/share-oem")
            .replace("/boot/flatcar", "/etc/boot-flatcar");
    }
    files
}

fn read(document: &str) -> MachineConfig {
    ignition_read(&[("document", document)])
        .unwrap()
        .remove(0)
        .unwrap()
}

/// A machine that has read a bootstrap document which names `document`.
fn booted(kind: Kind, server: &str, ca: &str, document: &str, issued: u64) -> Machine {
    packages::ensure(&["busybox", "curl", "dash", "jq", "python3"]).unwrap();
    let machine = Machine::new(kind);
    let values = values(&sha256(document.as_bytes()), issued);
    let pool = pool("openstack", "1.34.2", "IPv4", false);
    let [bootstrap, _] = render(&profile(), &pool, "{}", (server, ca), &values);
    machine.write(&on_the_machine(&read(&bootstrap)));
    for folder in ["/etc/oem", "/etc/boot-flatcar"] {
        fs::create_dir(machine.path(folder)).unwrap();
    }
    fs::write(machine.path("/etc/machine-id"), "0123\n").unwrap();
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
    let pool = pool("openstack", "1.34.2", "IPv4", false);
    let cluster = ("https://127.0.0.1:1", authority.ca.as_str());
    let [_, document] = render(&profile(), &pool, "{}", cluster, &values(&"0".repeat(64), 1));
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        let url = format!("https://127.0.0.1:{}/", server.port);
        let machine = booted(kind, &url, &authority.ca, &document, 1);

        let good = secret(&document);
        let steps = [
            (Answer::status(401), "refuses this machine's token (401)"),
            (Answer::status(403), "may not read Secret"),
            (Answer::status(404), "there is no Secret"),
            (Answer::status(503), "answers 503"),
            (Answer::ok(secret("{}")), "digest differs"),
            (Answer::ok("{\"data\":"), "can't take the document out"),
            (
                Answer::ok("{\"data\":{\"cloud-config\":\"%\"}}"),
                "can't take the document out",
            ),
            (Answer::ok("{}"), "can't take the document out"),
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
        assert!(!machine.path("/etc/oem/config.ign").exists());
        assert_eq!(machine.read("/calls"), "");
        server.always(Answer::ok(good));
        assert!(run.unwrap().succeeds(), "{}", machine.read("/log"));

        assert_eq!(machine.read("/calls"), "systemctl reboot\n", "{kind:?}");
        assert_eq!(machine.read("/etc/oem/config.ign"), document);
        assert_eq!(machine.mode("/etc/oem/config.ign"), 0o600);
        assert!(machine.path("/etc/boot-flatcar/first_boot").exists());
        assert!(!machine.path("/etc/machine-id").exists());
        let (path, authorization) = server.requests().swap_remove(0);
        assert_eq!(
            path,
            format!("/api/v1/namespaces/cloud-init-settings/secrets/{SECRET}")
        );
        assert_eq!(authorization, format!("Bearer {}", token("api", 1)));
        assert!(!machine.read("/log").contains(&token("api", 1)));
        assert!(!machine.path("/etc/osm/api-token").exists());
        assert!(
            !machine.path("/var/lib/osm/bootstrapped").exists(),
            "that is the document's to say"
        );
        assert!(
            machine
                .read("/dev/console")
                .ends_with("at the next boot: rebooting\n")
        );

        // Should Ignition not have applied it: what is there is not fetched again, and the machine does not reboot in a hurry.
        let (asked, sleeps) = (server.requests().len(), machine.read("/sleeps").len());
        assert!(machine.start("/opt/bin/osm-bootstrap").succeeds());
        assert_eq!(server.requests().len(), asked);
        assert!(
            machine.read("/log").contains("Ignition did not apply"),
            "{}",
            machine.read("/log")
        );
        assert!(machine.read("/sleeps")[sleeps..].starts_with("600\n"));
        assert_eq!(machine.read("/calls"), "systemctl reboot\n".repeat(2));
    }
    assert!(
        read(&document)
            .files
            .iter()
            .any(|file| file.path == "/var/lib/osm/bootstrapped")
    );
}

#[test]
fn a_reboot_that_can_not_be_prepared_is_not_tried() {
    let authority = Authority::new("127.0.0.1");
    for kind in kinds() {
        let server = Server::start(Some(&authority));
        server.always(Answer::ok(secret("{}")));
        let url = format!("https://127.0.0.1:{}", server.port);
        let machine = booted(kind, &url, &authority.ca, "{}", 1);
        // Nobody, not even root, can make a file there.
        let flag = machine.path("/etc/boot-flatcar/first_boot");
        std::os::unix::fs::symlink("/proc/no-such-folder/file", &flag).unwrap();
        let run = machine.start("/opt/bin/osm-bootstrap");
        machine.wait_for_log(0, "can't prepare the reboot: ");
        // A power cut: the token is still needed, should the document be lost.
        run.kill();
        assert_eq!(machine.read("/calls"), "");
        assert!(machine.path("/etc/osm/api-token").exists());
        assert!(!machine.path("/var/lib/osm/reboots").exists());
        fs::write(machine.path("/etc/oem/config.ign"), "damaged").unwrap();
        fs::remove_file(&flag).unwrap();
        assert!(
            machine.start("/opt/bin/osm-bootstrap").succeeds(),
            "{}",
            machine.read("/log")
        );
        assert_eq!(machine.read("/etc/oem/config.ign"), "{}");
        assert!(flag.exists());
        assert_eq!(machine.read("/calls"), "systemctl reboot\n");
    }
}

#[test]
fn a_machine_that_would_reboot_for_ever_does_not_reboot() {
    let authority = Authority::new("127.0.0.1");
    let server = Server::start(Some(&authority));
    server.always(Answer::ok(secret("{}")));
    let url = format!("https://127.0.0.1:{}", server.port);
    for kind in kinds() {
        let machine = booted(kind, &url, &authority.ca, "{}", 1);
        machine.program("mountpoint", "exit 32");
        let _run = machine.start("/opt/bin/osm-bootstrap");
        machine.wait_for_log(0, "the OEM partition is not mounted on");
        assert_eq!(machine.read("/calls"), "");

        let machine = booted(kind, &url, &authority.ca, "{}", 1);
        fs::remove_dir(machine.path("/etc/boot-flatcar")).unwrap();
        let _run = machine.start("/opt/bin/osm-bootstrap");
        machine.wait_for_log(0, "there is no folder");
        assert_eq!(machine.read("/calls"), "");

        // As older releases have it.
        let machine = booted(kind, &url, &authority.ca, "{}", 1);
        fs::rename(machine.path("/etc/oem"), machine.path("/etc/share-oem")).unwrap();
        assert!(machine.start("/opt/bin/osm-bootstrap").succeeds());
        assert_eq!(machine.read("/etc/share-oem/config.ign"), "{}");
    }
}

#[test]
fn ignition_makes_of_the_documents_what_the_profile_says() {
    // With the files of this cloud.
    let pool = pool("vmware-cloud-director", "1.34.2", "IPv4+IPv6", true);
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
    let enabled = |unit: &str| {
        fs::symlink_metadata(at(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"))).is_ok()
    };
    for (document, unit) in documents
        .iter()
        .zip(["osm-bootstrap.service", "osm-setup.service"])
    {
        assert!(!enabled(unit));
        ignition_apply(document, root.path()).unwrap();
        assert!(enabled("osm-bootstrap.service") && enabled(unit), "{unit}");
        let config = read(document);
        assert!(config.files.len() > 5);
        for file in &config.files {
            let metadata = fs::metadata(at(&file.path)).unwrap();
            assert_eq!(
                fs::read_to_string(at(&file.path)).unwrap(),
                file.content,
                "{}",
                file.path
            );
            assert_eq!(metadata.mode() & 0o7777, file.mode, "{}", file.path);
            assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{}", file.path);
        }
        for unit in config.units {
            let path = at("/etc/systemd/system").join(&unit.name);
            assert_eq!(fs::read_to_string(&path).ok(), unit.content, "{}", unit.name);
            for (name, text) in unit.dropins {
                let path = path.with_file_name(format!("{}.d", unit.name)).join(name);
                assert_eq!(fs::read_to_string(path).unwrap(), text);
            }
        }
    }
    let rule = fs::read_to_string(at("/etc/polkit-1/rules.d/60-osm-reboot.rules")).unwrap();
    assert!(rule.contains("\"org.freedesktop.login1.reboot\"") && rule.contains("\"core\""));
    let servers = fs::read_to_string(at("/etc/systemd/timesyncd.conf.d/10-osm.conf")).unwrap();
    assert_eq!(servers, "[Time]\nNTP=time.example 192.0.2.123\n");
    assert!(
        fs::read_to_string(at("/etc/systemd/network/05-osm-static.network"))
            .unwrap()
            .contains("192.0.2.7")
    );
    let config: toml::Table = fs::read_to_string(at("/etc/containerd/config.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let password = &config["plugins"]["io.containerd.cri.v1.images"]["registry"]["configs"]["docker.io"]["auth"]
        ["password"];
    assert_eq!(password.as_str(), Some("quo\"te's \\ and\nline"));
}

/// A machine with the provisioning document applied, that downloads from `port`.
fn provisioned(kind: Kind, cloud: &str, family: &str, port: u16) -> Machine {
    packages::ensure(&["busybox", "curl", "dash", "iproute2", "jq", "python3"]).unwrap();
    let machine = Machine::new(kind);
    let pool = pool(cloud, "1.34.2", family, true);
    let (settings, cluster) = (downloading_from(port), ("https://127.0.0.1:1", "CA"));
    let [_, document] = render(&profile(), &pool, &settings, cluster, &values(&"0".repeat(64), 1));
    machine.write(&on_the_machine(&read(&document)));
    fs::write(machine.path("/etc/machine-name"), "Pool-5d8f").unwrap();
    let version =
        "containerd github.com/containerd/containerd/v2 v2.1.5 fcd43222d6b07379a4be9786bda52438f0dd16a1";
    machine.program("containerd", &format!("echo {version}"));
    machine
}

#[test]
fn setup_makes_a_node() {
    for kind in kinds() {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = provisioned(kind, "openstack", "IPv4", server.port);
        assert!(
            machine.start("/opt/bin/osm-setup").succeeds(),
            "{}",
            machine.read("/log")
        );
        for name in [
            "/opt/bin/kubelet",
            "/opt/cni/bin/bridge",
            "/opt/cni/bin/loopback",
            "/opt/bin/crictl",
        ] {
            assert_eq!(
                machine.read(name).as_bytes(),
                program(name.rsplit('/').next().unwrap()),
                "{}",
                machine.read("/log")
            );
            assert_eq!(machine.mode(name), 0o755);
        }
        for name in ["ctr", "runc"] {
            let link = fs::read_link(machine.path(&format!("/opt/bin/{name}"))).unwrap();
            assert_eq!(link.to_str().unwrap(), format!("/usr/bin/{name}"));
        }
        let calls = machine.read("/calls");
        let mut rest = calls.as_str();
        for call in [
            "systemctl mask --now update-engine.service\nsystemctl mask --now locksmithd.service\n",
            "systemctl mask --now docker.socket docker.service\n",
            "update-ca-certificates",
            "systemctl enable containerd.service kubelet.service osm-health.timer\n",
            "systemctl restart containerd.service\nsystemctl restart kubelet.service\n",
        ] {
            let at = rest
                .find(call)
                .unwrap_or_else(|| panic!("{call:?} is not, or not here, in {calls}"));
            rest = &rest[at + call.len()..];
        }
        let certificate = "-----BEGIN CERTIFICATE-----\nb25lIHRydXN0\n-----END CERTIFICATE-----\n";
        assert_eq!(machine.read("/etc/ssl/certs/osm-2.pem"), certificate);
        assert!(
            machine
                .read("/etc/containerd/certs.d/docker.io/hosts.toml")
                .contains("https://a.example")
        );
        assert_eq!(
            machine.read("/etc/kubernetes/cloud-config"),
            "[Global]\nregion = \"EOF\"\nEOF\n"
        );
        assert!(machine.path("/var/lib/osm/set-up").exists());
        assert!(machine.read("/dev/console").ends_with("the kubelet runs\n"));
    }
}

#[test]
fn modules_and_a_second_runtime_hold_up_the_kubelet() {
    let server = Server::start(None);
    server.answer(&mirror());
    let machine = provisioned(KINDS[0], "openstack", "IPv4", server.port);
    let mended = |name: &str| format!("[ -e '{}' ]", machine.path(name).display());
    machine.program(
        "systemctl",
        &format!(
            "echo systemctl \"$@\" >>'{}'\ncase $1 in mask) {} || {{ echo no memory >&2; exit 1; }} ;; esac",
            machine.path("/calls").display(),
            mended("/masked")
        ),
    );
    machine.program(
        "modprobe",
        &format!("{} || {{ echo \"no $1\" >&2; exit 1; }}", mended("/modules")),
    );
    let run = machine.start("/opt/bin/osm-setup");
    let complaint =
        "can't prepare the system: no memory systemctl mask --now docker.socket docker.service failed";
    let seen = machine.wait_for_log(0, complaint);
    fs::write(machine.path("/masked"), "").unwrap();
    machine.wait_for_log(seen, "no kernel module overlay br_netfilter ");
    let calls = machine.read("/calls");
    assert!(
        !calls.contains("restart kubelet.service") && server.requests().is_empty(),
        "{calls}"
    );
    fs::write(machine.path("/modules"), "").unwrap();
    assert!(run.succeeds(), "{}", machine.read("/log"));

    // An image without docker has no units to stop.
    let machine = provisioned(KINDS[1], "openstack", "IPv4", server.port);
    let none = "case \"$*\" in *docker*) exit 5 ;; esac";
    machine.program("systemctl", none);
    assert!(
        machine.start("/opt/bin/osm-setup").succeeds(),
        "{}",
        machine.read("/log")
    );
}

#[test]
fn an_old_containerd_is_told_in_one_line() {
    for kind in kinds() {
        let machine = provisioned(kind, "openstack", "IPv4", 1);
        machine.program(
            "containerd",
            "echo containerd github.com/containerd/containerd v1.7.23 abc",
        );
        let _run = machine.start("/opt/bin/osm-setup");
        machine.wait_for_log(
            0,
            "containerd is 1.7.23, too old: use Flatcar 4459.2.3 or newer\n",
        );
        machine.program("containerd", "echo 'no such library' >&2; exit 127");
        machine.wait_for_log(0, "containerd does not say its version: no such library");
        assert!(!machine.path("/var/lib/osm/set-up").exists());
    }
}

#[test]
fn on_aws_the_node_is_named_by_instance_metadata_of_ipv6_alone() {
    for kind in kinds() {
        let machine = provisioned(kind, "aws", "IPv4", 1);
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
        assert!(
            machine.start("/opt/bin/osm-kubelet-env").succeeds(),
            "{}",
            machine.read("/log")
        );
        let arguments = machine.read("/run/osm/kubelet.env");
        assert!(
            arguments.contains("--hostname-override=ip-10-0-0-7.eu.compute.internal "),
            "{arguments}"
        );
        machine.program("curl", "exit 7");
        assert!(!machine.start("/opt/bin/osm-kubelet-env").succeeds());
    }
}
