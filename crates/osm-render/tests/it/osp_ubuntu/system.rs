//! What osm-setup does to the operating system: swap and the upgrade of packages; and the name and the proxy of a node.

use super::*;

/// A machine of this system that `settings` describe, besides the server that it downloads from.
fn plain(os: &str, kind: Kind, port: u16, settings: &str, upgrade: bool) -> Machine {
    let downloads = downloading_from(port);
    let (_, downloads) = downloads.split_once("downloads:").unwrap();
    let mut pool = pool(os, "openstack", "1.34.2", "IPv4", false);
    pool.os.dist_upgrade_on_boot = upgrade;
    machine_of(&pool, kind, &format!("{settings}\ndownloads:{downloads}"))
}

fn set_up(machine: &Machine) {
    assert!(
        machine.start("/opt/bin/osm-setup").succeeds(),
        "{}",
        machine.read("/log")
    );
}

/// Where a call is among those that a machine of this kind noted.
fn position(calls: &str, call: &str, kind: Kind) -> usize {
    let found = calls.find(call);
    found.unwrap_or_else(|| panic!("{kind:?}: {call} not in {calls}"))
}

/// Lets the disk of a machine have this many free blocks, and otherwise be what it is.
fn free_blocks(machine: &Machine, free: u64) {
    machine.program("stat", &format!("/usr/bin/stat \"$@\" | sed 's/^[0-9]*/{free}/'"));
}

/// More free blocks than any disk has.
const PLENTY: u64 = 1 << 40;

const FSTAB: &str = "/dev/vda1 / ext4 defaults 0 1\n/swap none swap sw 0 0\n";

#[test]
fn swap_is_off_unless_the_settings_want_it() {
    prepare();
    let server = Server::start(None);
    server.answer(&mirror());
    let off = plain("ubuntu", KINDS[0], server.port, "", false);
    set_up(&off);
    assert!(
        off.read("/calls")
            .contains("swapoff -a\nsystemctl mask swap.target\n")
    );
    assert_eq!(
        off.read("/etc/fstab"),
        FSTAB.replace("/swap none", "# /swap none")
    );

    for settings in [
        "system: {swap: {}}",
        "kubelet: {configuration: {failSwapOn: false}}",
    ] {
        let kept = plain("rockylinux", KINDS[3], server.port, settings, false);
        set_up(&kept);
        let calls = kept.read("/calls");
        assert!(!calls.contains("swap"), "{settings}: {calls}");
        assert_eq!(kept.read("/etc/fstab"), FSTAB);
    }
    let config = off.read("/etc/kubernetes/kubelet.yaml");
    assert!(!config.contains("failSwapOn") && !config.contains("memorySwap"));
}

#[test]
fn a_swap_file_is_made_once_and_on_file_systems_of_any_kind() {
    prepare();
    let server = Server::start(None);
    server.answer(&mirror());
    for kind in KINDS {
        let settings = "system: {swap: {behavior: NoSwap, size: 2Gi}}";
        let machine = plain("ubuntu", kind, server.port, settings, false);
        let (calls, file) = (machine.path("/calls"), machine.path("/var/lib/osm/swap"));
        let (noted, file) = (calls.display(), file.display());
        free_blocks(&machine, PLENTY);
        // Like XFS of old kernels: what fallocate reserves has holes.
        machine.program(
            "fallocate",
            &format!("echo fallocate $1 $2 >>'{noted}'; echo holes >'{file}'"),
        );
        machine.program("dd", &format!("echo dd $3 $4 >>'{noted}'; echo full >'{file}'"));
        machine.program(
            "swapon",
            &format!("echo swapon >>'{noted}'; grep -q full '{file}'"),
        );
        set_up(&machine);
        let calls = machine.read("/calls");
        let at = |call: &str| position(&calls, call, kind);
        assert!(at("fallocate -l 2048M\n") < at("dd bs=1M count=2048\n"));
        assert!(at("dd ") < at("systemctl enable var-lib-osm-swap.swap\n"));
        assert!(at("enable var-lib-osm-swap.swap\n") < at("restart kubelet.service\n"));
        assert!(!calls.contains("swapoff") && !machine.read("/log").contains("warning"));
        let unit = machine.read("/etc/systemd/system/var-lib-osm-swap.swap");
        assert!(unit.contains(&format!("\nWhat={file}\n")), "{unit}");
        let config = machine.read("/etc/kubernetes/kubelet.yaml");
        assert!(
            config.contains("failSwapOn: false\nmemorySwap: {swapBehavior: NoSwap}\n"),
            "{config}"
        );

        // As after a power cut: the file stays.
        std::fs::remove_file(machine.path("/calls")).unwrap();
        set_up(&machine);
        assert!(
            !machine.read("/calls").contains("mkswap"),
            "{}",
            machine.read("/calls")
        );
    }
}

#[test]
fn a_machine_without_room_for_swap_is_a_node() {
    prepare();
    let server = Server::start(None);
    server.answer(&mirror());
    for (free, expected, is_tried) in [
        (PLENTY, "dd: No space left on device", true),
        (
            1,
            "0 MiB are free, too little for a swap file of 1024 MiB: ",
            false,
        ),
    ] {
        let settings = "system: {swap: {size: 1Gi}}";
        let machine = plain("ubuntu", KINDS[0], server.port, settings, false);
        free_blocks(&machine, free);
        for name in ["swapon", "fallocate"] {
            machine.program(name, "exit 1");
        }
        let (file, tried) = (machine.path("/var/lib/osm/swap"), machine.path("/tried"));
        machine.program(
            "dd",
            &format!(
                "echo part | tee '{}' >'{}'; echo dd: No space left on device; exit 1",
                file.display(),
                tried.display()
            ),
        );
        set_up(&machine);
        let log = machine.read("/log");
        assert!(
            log.contains(&format!("warning: prepare_swap failed: {expected}")),
            "{log}"
        );
        assert_eq!(tried.exists(), is_tried, "{log}");
        assert!(!file.exists() && !machine.path("/etc/systemd/system/var-lib-osm-swap.swap").exists());
        assert!(machine.read("/calls").contains("restart kubelet.service"));
    }
}

const UPGRADES: [(&str, &str, &str, &str); 2] = [
    ("ubuntu", "apt-get", "dist-upgrade", "update-ca-certificates"),
    ("rockylinux", "yum", "upgrade", "update-ca-trust"),
];

#[test]
fn packages_are_upgraded_once_with_proxy_and_certificates_and_before_the_kubelet_runs() {
    prepare();
    for kind in KINDS {
        for (os, tool, verb, trust) in UPGRADES {
            let server = Server::start(None);
            server.answer(&mirror());
            let settings = "proxy: {http: 'http://proxy.example:3128', noProxy: 127.0.0.1}\nhostCaBundle: |\n  \
                -----BEGIN CERTIFICATE-----\n  TWFu\n  -----END CERTIFICATE-----";
            let machine = plain(os, kind, server.port, settings, true);
            let calls = machine.path("/calls");
            machine.program(
                tool,
                &format!("echo {tool} \"$@\" by $https_proxy >>'{}'", calls.display()),
            );
            set_up(&machine);
            let calls = machine.read("/calls");
            let at = |call: &str| position(&calls, call, kind);
            assert!(at(trust) < at(verb), "{calls}");
            assert!(
                at(&format!("{verb} by http://proxy.example:3128\n")) < at("restart containerd.service\n")
            );
            assert!(!calls.contains("reboot") && machine.path("/var/lib/osm/upgraded").exists());
            set_up(&machine);
            assert_eq!(machine.read("/calls").matches(verb).count(), 1, "{os}");

            let not = plain(os, kind, server.port, settings, false);
            set_up(&not);
            assert!(!not.read("/calls").contains(verb));
        }
    }
}

#[test]
fn an_upgrade_that_fails_is_a_warning() {
    prepare();
    for (os, tool, verb, _) in UPGRADES {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = plain(os, KINDS[0], server.port, "", true);
        machine.program(tool, "echo the archive is gone; exit 100");
        set_up(&machine);
        let log = machine.read("/log");
        assert!(
            log.contains(&format!("{verb} failed: the archive is gone")),
            "{log}"
        );
        assert!(machine.path("/var/lib/osm/set-up").exists());
    }
}

#[test]
fn an_upgrade_reboots_at_most_once_and_survives_a_power_cut() {
    prepare();
    for (os, tool, verb, _) in UPGRADES {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = plain(os, KINDS[0], server.port, "", true);
        let (calls, cut) = (machine.path("/calls"), machine.path("/cut"));
        let noted = format!("echo {tool} \"$@\" >>'{}'", calls.display());
        machine.program(
            tool,
            &format!(
                "{noted}; echo upgrading; echo >'{}'; exec /usr/bin/sleep 60",
                cut.display()
            ),
        );
        let run = machine.start("/opt/bin/osm-setup");
        wait_for("the upgrade", || cut.exists().then_some(()));
        run.kill();
        assert!(!machine.path("/var/lib/osm/upgraded").exists());

        machine.program(tool, &noted);
        std::fs::write(machine.path("/run/reboot-required"), "").unwrap();
        machine.program("needs-restarting", "exit 1");
        set_up(&machine);
        let seen = machine.read("/calls");
        assert!(
            seen.contains(verb) && seen.ends_with("systemctl reboot\n"),
            "{seen}"
        );
        assert!(!machine.path("/var/lib/osm/set-up").exists());
        assert_eq!(
            server.requests(),
            [],
            "{os}: nothing is downloaded before the reboot"
        );

        set_up(&machine);
        let seen = machine.read("/calls");
        assert_eq!(seen.matches("systemctl reboot\n").count(), 1, "{seen}");
        assert!(machine.path("/var/lib/osm/set-up").exists());
    }
}

#[test]
fn a_machine_that_joined_under_its_host_name_keeps_it() {
    prepare();
    for kind in KINDS {
        let machine = plain("ubuntu", kind, 1, "kubelet: {hostnameOverride: false}", false);
        machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
        let arguments = |name: &str| {
            machine.program("uname", &format!("echo {name}"));
            assert!(
                machine.start("/opt/bin/osm-kubelet-env").succeeds(),
                "{}",
                machine.read("/log")
            );
            machine.read("/run/osm/kubelet.env")
        };
        // Until it has joined, it may get another one.
        for name in ["localhost", "Pool-5D8F"] {
            assert_eq!(
                arguments(name),
                "KUBELET_NODE_ARGS= --node-ip=10.0.0.7\n",
                "{kind:?}"
            );
        }
        let kubeconfig = machine.path("/var/lib/kubelet/kubeconfig");
        std::fs::create_dir_all(kubeconfig.parent().unwrap()).unwrap();
        std::fs::write(kubeconfig, "").unwrap();
        assert_eq!(arguments("pool-5d8f"), "KUBELET_NODE_ARGS= --node-ip=10.0.0.7\n");
        assert_eq!(
            arguments("pool-5d8f.site.example"),
            "KUBELET_NODE_ARGS=--hostname-override=pool-5d8f --node-ip=10.0.0.7\n"
        );
    }
}

#[test]
fn the_password_of_the_proxy_is_in_one_file_of_root() {
    prepare();
    let url = "http://node:p%24%22w@proxy.example:3128";
    let settings =
        "proxy: {http: 'http://proxy.example:3128', noProxy: 127.0.0.1, credentials: {name: proxy}}";
    for os in ["ubuntu", "rockylinux"] {
        let server = Server::start(None);
        server.answer(&mirror());
        let downloads = downloading_from(server.port);
        let (_, downloads) = downloads.split_once("downloads:").unwrap();
        let settings = format!("{settings}\ndownloads:{downloads}");
        let pool = pool(os, "openstack", "1.34.2", "IPv4", false);
        let mut values = values(&"0".repeat(64), 1);
        values.insert("proxy/url".to_owned(), url.to_owned());
        let (bootstrap, provisioning) = render(&pool, &settings, "https://127.0.0.1:1", "", &values);
        assert!(
            !bootstrap.contains("proxy.example"),
            "the bootstrap needs the API server only"
        );
        let files = user_data_files(&provisioning).unwrap();
        for file in &files {
            let is_secret = file.content.contains("p%24");
            assert_eq!(is_secret, file.path == "/etc/osm/proxy.env", "{}", file.path);
            assert!(!is_secret || file.mode == 0o600);
        }
        let machine = Machine::new(KINDS[2]);
        machine.write(&files);
        std::fs::write(machine.path("/etc/environment"), "LANG=C\n").unwrap();
        let note = format!(
            "echo $0 \"$@\" >>'{}'; echo $http_proxy $NO_PROXY >>'{}'",
            machine.path("/calls").display(),
            machine.path("/proxies").display()
        );
        for program in ["apt-get", "yum", "systemctl"] {
            machine.program(program, &note);
        }
        set_up(&machine);
        assert!(machine.start("/opt/bin/osm-extras").succeeds());
        assert_eq!(machine.read("/etc/environment"), "LANG=C\n");
        let seen = machine.read("/proxies");
        assert!(
            seen.lines().all(|line| line == format!("{url} 127.0.0.1")),
            "{seen}"
        );
        assert!(!machine.read("/calls").contains("p%24") && !machine.read("/log").contains("p%24"));
    }
}
