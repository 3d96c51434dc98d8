//! What osm-setup does before it downloads anything: the network, certificates, mirrors and the cloud-config.
//! A step that fails is named and repeated, and nothing is downloaded before.

use super::*;

/// Files that osm-setup writes on its way, on a full disk: the system, the first thing that can't be written,
/// the complaint, the file that there must be once there is room, and a text in it. The scripts write into a
/// folder for certificates here, which can't be made.
const FULL_DISKS: &str = r#"
ubuntu | /etc/environment.new | No space | /etc/environment | https_proxy="http://proxy.example:3128"
ubuntu | /usr/local/share/ca-certificates | File exists | /usr/local/share/ca-certificates/osm-2.crt | b25lIHRydXN0
rockylinux | /etc/pki/ca-trust/source/anchors/osm.pem | No space | /etc/pki/ca-trust/source/anchors/osm.pem | b25lIHRydXN0
ubuntu | /etc/containerd/certs.d/docker.io/hosts.toml | No space | /etc/containerd/certs.d/docker.io/hosts.toml | [host."https://a.example"]
ubuntu | /etc/kubernetes/cloud-config.new | No space | /etc/kubernetes/cloud-config | region = "EOF"
"#;

/// A machine of such a system that downloads from `server`, past its proxy.
fn machine(os: &str, kind: Kind, server: &Server) -> Machine {
    let proxy = "proxy: {http: \"http://proxy.example:3128\", noProxy: 127.0.0.1}\n";
    let settings = downloading_from(server.port) + proxy;
    machine_of(&pool(os, "openstack", "1.34.2", "IPv4", true), kind, &settings)
}

/// Nothing was downloaded, and no later boot skips osm-setup.
fn nothing_else_was_done(machine: &Machine, server: &Server) {
    assert_eq!(server.requests(), [], "{}", machine.log());
    assert!(!machine.has("/var/lib/osm/set-up"));
    machine.never_called(&["systemctl restart"]);
}

#[test]
fn a_full_disk_is_named_and_what_could_not_be_written_is_there_in_the_end() {
    for kind in KINDS {
        for [os, full, complaint, file, text] in table(FULL_DISKS, " | ") {
            let server = mirror();
            let machine = machine(os, kind, &server);
            let at = machine.path(full);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink("/dev/full", &at).unwrap();
            let run = machine.start(SETUP);
            let seen = machine.wait_for_log(0, "can't write the node's files: ");
            let log = machine.log();
            assert!(log[..seen].contains(complaint), "{kind:?} {full}: {log}");
            nothing_else_was_done(&machine, &server);

            machine.remove(full);
            run.ends_well();
            let written = machine.read(file);
            assert!(written.contains(text), "{kind:?} {file}: {written}");
            assert!(machine.has("/var/lib/osm/set-up"));
        }
    }
}

#[test]
fn what_people_set_in_their_environment_is_kept() {
    for kind in KINDS {
        let server = mirror();
        let machine = machine("ubuntu", kind, &server);
        let own = "PATH=\"/usr/bin\"\nhttp_proxy=http://old.example:1\nNO_PROXY=old.example\n";
        machine.put("/etc/environment", own);
        for _ in 0..2 {
            machine.runs(SETUP);
            let text = machine.read("/etc/environment");
            assert!(text.starts_with("PATH=\"/usr/bin\"\n"), "{kind:?}: {text}");
            assert_eq!(text.matches("\nhttp_proxy=").count(), 1, "{kind:?}: {text}");
            assert!(!text.contains("old.example"), "{kind:?}: {text}");
            assert_eq!(machine.mode("/etc/environment"), 0o644);
        }
    }
}

#[test]
fn nothing_is_downloaded_before_the_certificates_are_trusted() {
    let (ubuntu, rocky) = ("update-ca-certificates", "update-ca-trust");
    for (os, program) in [("ubuntu", ubuntu), ("rockylinux", rocky)] {
        for kind in KINDS {
            let server = mirror();
            let machine = machine(os, kind, &server);
            let fails = r#"[ -e "$MACHINE/trusted" ] || { echo 'no memory' >&2; exit 1; }"#;
            machine.noted(program, fails);
            let run = machine.start(SETUP);
            machine.wait_for_log(0, &format!("can't write the node's files: no memory {program}"));
            let attempts = || machine.calls().matches(program).count();
            wait_for("three attempts", || (attempts() > 2).then_some(()));
            nothing_else_was_done(&machine, &server);

            machine.put("/trusted", "");
            run.ends_well();
            assert!(machine.has("/var/lib/osm/set-up"));
        }
    }
}
