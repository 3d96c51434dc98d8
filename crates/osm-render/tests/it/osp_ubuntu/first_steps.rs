//! What osm-setup does before it downloads anything: the network, certificates, mirrors and the cloud-config. A step that fails is named and
//! repeated, and nothing is downloaded before.

use std::os::unix::fs::symlink;

use super::*;

/// A file that osm-setup writes on its way, where the disk is full; and what there must be once it is not.
struct FullDisk {
    os: &'static str,
    /// The first thing that can't be written.
    at: &'static str,
    complaint: &'static str,
    file: &'static str,
    text: &'static str,
}

const NO_SPACE: &str = "No space left on device";

const FULL_DISKS: [FullDisk; 5] = [
    FullDisk {
        os: "ubuntu",
        at: "/etc/environment.new",
        complaint: NO_SPACE,
        file: "/etc/environment",
        text: "https_proxy=\"http://proxy.example:3128\"\n",
    },
    // The scripts write into a folder here, which can't be made.
    FullDisk {
        os: "ubuntu",
        at: "/usr/local/share/ca-certificates",
        complaint: "File exists",
        file: "/usr/local/share/ca-certificates/osm-2.crt",
        text: "b25lIHRydXN0\n-----END CERTIFICATE-----\n",
    },
    FullDisk {
        os: "rockylinux",
        at: "/etc/pki/ca-trust/source/anchors/osm.pem",
        complaint: NO_SPACE,
        file: "/etc/pki/ca-trust/source/anchors/osm.pem",
        text: "b25lIHRydXN0\n-----END CERTIFICATE-----\n",
    },
    FullDisk {
        os: "ubuntu",
        at: "/etc/containerd/certs.d/docker.io/hosts.toml",
        complaint: NO_SPACE,
        file: "/etc/containerd/certs.d/docker.io/hosts.toml",
        text: "[host.\"https://a.example\"]\n",
    },
    FullDisk {
        os: "ubuntu",
        at: "/etc/kubernetes/cloud-config.new",
        complaint: NO_SPACE,
        file: "/etc/kubernetes/cloud-config",
        text: "[Global]\nregion = \"EOF\"\nEOF\n",
    },
];

/// A machine of such a system that downloads from `server`, past its proxy.
fn machine(os: &str, kind: Kind, server: &Server) -> Machine {
    let proxy = "proxy: {http: \"http://proxy.example:3128\", noProxy: 127.0.0.1}\n";
    let settings = downloading_from(server.port) + proxy;
    machine_of(&pool(os, "openstack", "1.34.2", "IPv4", true), kind, &settings)
}

/// Nothing was downloaded, and no later boot skips osm-setup.
fn nothing_else_was_done(machine: &Machine, server: &Server) {
    assert_eq!(server.requests(), [], "{}", machine.read("/log"));
    assert!(!machine.path("/var/lib/osm/set-up").exists());
    assert!(!machine.read("/calls").contains("systemctl restart"));
}

#[test]
fn a_full_disk_is_named_and_what_could_not_be_written_is_there_in_the_end() {
    prepare();
    for kind in KINDS {
        for full in FULL_DISKS {
            let server = Server::start(None);
            server.answer(&mirror());
            let machine = machine(full.os, kind, &server);
            let at = machine.path(full.at);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink("/dev/full", &at).unwrap();
            let run = machine.start("/opt/bin/osm-setup");
            let seen = machine.wait_for_log(0, "can't write the node's files: ");
            let log = machine.read("/log");
            assert!(
                log[..seen].contains(full.complaint),
                "{kind:?} {}: {log}",
                full.at
            );
            nothing_else_was_done(&machine, &server);

            std::fs::remove_file(&at).unwrap();
            assert!(run.succeeds(), "{}", machine.read("/log"));
            let text = machine.read(full.file);
            assert!(text.contains(full.text), "{kind:?} {}: {text}", full.file);
            assert!(machine.path("/var/lib/osm/set-up").exists());
        }
    }
}

#[test]
fn what_people_set_in_their_environment_is_kept() {
    prepare();
    for kind in KINDS {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = machine("ubuntu", kind, &server);
        std::fs::write(
            machine.path("/etc/environment"),
            "PATH=\"/usr/bin\"\nhttp_proxy=http://old.example:1\nNO_PROXY=old.example\n",
        )
        .unwrap();
        for _ in 0..2 {
            assert!(machine.start("/opt/bin/osm-setup").succeeds());
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
    prepare();
    for (os, program) in [
        ("ubuntu", "update-ca-certificates"),
        ("rockylinux", "update-ca-trust"),
    ] {
        for kind in KINDS {
            let server = Server::start(None);
            server.answer(&mirror());
            let machine = machine(os, kind, &server);
            let (calls, trusted) = (machine.path("/calls"), machine.path("/trusted"));
            machine.program(
                program,
                &format!(
                    "echo {program} >>'{}'; [ -e '{}' ] || {{ echo 'no memory' >&2; exit 1; }}",
                    calls.display(),
                    trusted.display()
                ),
            );
            let run = machine.start("/opt/bin/osm-setup");
            machine.wait_for_log(0, &format!("can't write the node's files: no memory {program}"));
            wait_for("three attempts", || {
                (machine.read("/calls").matches(program).count() > 2).then_some(())
            });
            nothing_else_was_done(&machine, &server);

            std::fs::write(&trusted, "").unwrap();
            assert!(run.succeeds(), "{}", machine.read("/log"));
            assert!(machine.path("/var/lib/osm/set-up").exists());
        }
    }
}
