//! What osm-setup does to the operating system: swap and the upgrade of packages; and the name and the proxy
//! of a node.

use super::*;
use osm_user_data::user_data;

/// A machine of this system that `settings` describe, besides the server that it downloads from.
fn plain(os: &str, kind: Kind, port: u16, settings: &str, upgrade: bool) -> Machine {
    let mut pool = pool(os, "openstack", "1.34.2", "IPv4", false);
    pool.os.dist_upgrade_on_boot = upgrade;
    let machine = machine_of(&pool, kind, &format!("{settings}\n{}", downloads(port)));
    machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
    machine
}

/// Lets the disk of a machine have this many free blocks, and otherwise be what it is.
fn free_blocks(machine: &Machine, free: u64) {
    machine.program("stat", &format!("/usr/bin/stat \"$@\" | sed 's/^[0-9]*/{free}/'"));
}

/// More free blocks than any disk has.
const PLENTY: u64 = 1 << 40;

#[test]
fn swap_is_off_unless_the_settings_want_it() {
    let server = mirror();
    let off = plain("ubuntu", KINDS[0], server.port, "", false);
    off.runs(SETUP);
    off.called(&["swapoff -a\nsystemctl mask swap.target\n"]);
    let commented = FSTAB.replace("/swap none", "# /swap none");
    assert_eq!(off.read("/etc/fstab"), commented);
    let config = off.read("/etc/kubernetes/kubelet.yaml");
    assert!(!config.contains("failSwapOn") && !config.contains("memorySwap"));

    let not_refused = "kubelet: {configuration: {failSwapOn: false}}";
    for settings in ["system: {swap: {}}", not_refused] {
        let kept = plain("rockylinux", KINDS[3], server.port, settings, false);
        kept.runs(SETUP);
        kept.never_called(&["swap"]);
        assert_eq!(kept.read("/etc/fstab"), FSTAB);
    }
}

#[test]
fn a_swap_file_is_made_once_and_on_file_systems_of_any_kind() {
    let server = mirror();
    for kind in KINDS {
        let settings = "system: {swap: {behavior: NoSwap, size: 2Gi}}";
        let machine = plain("ubuntu", kind, server.port, settings, false);
        free_blocks(&machine, PLENTY);
        // Like XFS of old kernels: what fallocate reserves has holes.
        let file = r#""$MACHINE/var/lib/osm/swap""#;
        machine.noted("fallocate", &format!("echo holes >{file}"));
        machine.noted("dd", &format!("echo full >{file}"));
        machine.noted("swapon", &format!("grep -q full {file}"));
        machine.runs(SETUP);
        let path = machine.path("/var/lib/osm/swap").display().to_string();
        machine.called(&[
            &format!("fallocate -l 2048M {path}\n"),
            &format!("dd if=/dev/zero of={path} bs=1M count=2048"),
            "systemctl enable var-lib-osm-swap.swap\n",
            "restart kubelet.service\n",
        ]);
        machine.never_called(&["swapoff"]);
        machine.never_said("warning");
        let unit = machine.read("/etc/systemd/system/var-lib-osm-swap.swap");
        assert!(unit.contains(&format!("\nWhat={path}\n")), "{unit}");
        let config = machine.read("/etc/kubernetes/kubelet.yaml");
        let swap = "failSwapOn: false\nmemorySwap: {swapBehavior: NoSwap}\n";
        assert!(config.contains(swap), "{config}");

        // As after a power cut: the file stays.
        machine.remove("/calls");
        machine.runs(SETUP);
        machine.never_called(&["mkswap"]);
    }
}

#[test]
fn a_machine_without_room_for_swap_is_a_node() {
    let server = mirror();
    let too_little = "0 MiB are free, too little for a swap file of 1024 MiB: ";
    for (free, expected, is_tried) in [
        (PLENTY, "dd: No space left on device", true),
        (1, too_little, false),
    ] {
        let settings = "system: {swap: {size: 1Gi}}";
        let machine = plain("ubuntu", KINDS[0], server.port, settings, false);
        free_blocks(&machine, free);
        for name in ["swapon", "fallocate"] {
            machine.program(name, "exit 1");
        }
        let part = "echo part | tee \"$MACHINE/var/lib/osm/swap\" >\"$MACHINE/tried\"";
        machine.program("dd", &format!("{part}; echo dd: No space left on device; exit 1"));
        machine.runs(SETUP);
        machine.said(&format!("warning: prepare_swap failed: {expected}"));
        assert_eq!(machine.has("/tried"), is_tried);
        let unit = "/etc/systemd/system/var-lib-osm-swap.swap";
        assert!(!machine.has("/var/lib/osm/swap") && !machine.has(unit));
        machine.called(&["restart kubelet.service"]);
    }
}

#[test]
fn drop_ins_of_the_image_change_no_unit_of_ours() {
    let server = mirror();
    let machine = plain("ubuntu", KINDS[0], server.port, "", false);
    let folder = "/etc/systemd/system/kubelet.service.d";
    let path = |name: &str| machine.path(&format!("{folder}/{name}")).display().to_string();
    let starts = |program: &str| machine.moved(&format!("[Service]\nExecStart=\nExecStart={program}\n"));
    machine.put(&format!("{folder}/20-image.conf"), starts("/usr/bin/kubelet"));
    let ours = starts("/opt/bin/kubelet -v=4");
    machine.put(&format!("{folder}/30-profile.conf"), ours);
    let harmless = "[Service]\nEnvironment=A=b\n";
    machine.put(&format!("{folder}/40-profile.conf"), harmless);
    let of_image = "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf /usr/lib/systemd/system/service.d/10-all.conf";
    let of_etc = ["20-image.conf", "30-profile.conf", "40-profile.conf"].map(path);
    let paths = format!("DropInPaths={of_image} {}", of_etc.join(" "));
    let show = format!("case $* in 'show -p DropInPaths kubelet.service') echo {paths} ;; esac");
    machine.noted("systemctl", &show);
    machine.runs(SETUP);
    for (name, is_off) in [
        ("10-kubeadm.conf", true),
        ("10-all.conf", false),
        ("20-image.conf", true),
        ("30-profile.conf", false),
        ("40-profile.conf", false),
    ] {
        let off = std::fs::read_link(path(name)).is_ok_and(|target| target.as_os_str() == "/dev/null");
        assert_eq!(off, is_off, "{name}");
        let is_there = name == "10-all.conf" || machine.has(&format!("{folder}/{name}"));
        assert!(is_off || is_there, "{name}");
    }
    machine.said("warning: /usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf of the image changes kubelet.service");
    machine.called(&[
        "DropInPaths kubelet.service\n",
        "systemctl daemon-reload\n",
        "systemctl restart kubelet.service\n",
    ]);
}

const UPGRADES: [(&str, &str, &str, &str); 2] = [
    ("ubuntu", "apt-get", "dist-upgrade", "update-ca-certificates"),
    ("rockylinux", "yum", "upgrade", "update-ca-trust"),
];

#[test]
fn packages_are_upgraded_once_with_proxy_and_certificates_and_before_the_kubelet_runs() {
    for kind in KINDS {
        for (os, tool, verb, trust) in UPGRADES {
            let server = mirror();
            let settings = "proxy: {http: 'http://proxy.example:3128', noProxy: 127.0.0.1}\nhostCABundle: |\n  \
                -----BEGIN CERTIFICATE-----\n  TWFu\n  -----END CERTIFICATE-----";
            let machine = plain(os, kind, server.port, settings, true);
            machine.noted(tool, "echo by $https_proxy >>\"$MACHINE/calls\"");
            machine.runs(SETUP);
            let upgrade = format!("{verb}\nby http://proxy.example:3128\n");
            machine.called(&[trust, &upgrade, "restart containerd.service\n"]);
            machine.never_called(&["reboot"]);
            assert!(machine.has("/var/lib/osm/upgraded"));
            machine.runs(SETUP);
            machine.called_times(verb, 1);

            let not = plain(os, kind, server.port, settings, false);
            not.runs(SETUP);
            not.never_called(&[verb]);
        }
    }
}

#[test]
fn an_upgrade_reboots_at_most_once_survives_a_power_cut_and_may_fail() {
    for (os, tool, verb, _) in UPGRADES {
        let server = mirror();
        let machine = plain(os, KINDS[0], server.port, "", true);
        machine.noted(tool, "echo >\"$MACHINE/cut\"; exec /usr/bin/sleep 60");
        let run = machine.start(SETUP);
        wait_for("the upgrade", || machine.has("/cut").then_some(()));
        run.kill();
        assert!(!machine.has("/var/lib/osm/upgraded"));

        machine.noted(tool, "");
        machine.put("/run/reboot-required", "");
        machine.program("needs-restarting", "exit 1");
        machine.runs(SETUP);
        machine.called(&[verb]);
        let end = "systemctl reboot\n";
        assert!(machine.calls().ends_with(end), "{}", machine.calls());
        assert!(!machine.has("/var/lib/osm/set-up"));
        let before = "nothing is downloaded before the reboot";
        assert_eq!(server.requests(), [], "{os}: {before}");

        machine.runs(SETUP);
        machine.called_times("systemctl reboot\n", 1);
        assert!(machine.has("/var/lib/osm/set-up"));

        // One that fails is a warning.
        let machine = plain(os, KINDS[0], server.port, "", true);
        machine.program(tool, "echo the archive is gone; exit 100");
        machine.runs(SETUP);
        machine.said(&format!("{verb} failed: the archive is gone"));
        assert!(machine.has("/var/lib/osm/set-up"));
    }
}

#[test]
fn a_machine_that_joined_under_its_host_name_keeps_it() {
    let row = "\n| `--hostname-override` on OpenStack | ";
    let (_, row) = MIGRATION.split_once(row).unwrap();
    let setting = row.split('`').nth(1).unwrap();
    for kind in KINDS {
        let machine = plain("ubuntu", kind, 1, setting, false);
        let arguments = |name: &str| {
            machine.program("uname", &format!("echo {name}"));
            machine.runs(KUBELET_ENV);
            machine.read("/run/osm/kubelet.env")
        };
        let own = "KUBELET_NODE_ARGS= --node-ip=10.0.0.7\n";
        // Until it has joined, it may get another one.
        for name in ["localhost", "Pool-5D8F"] {
            assert_eq!(arguments(name), own, "{kind:?}");
        }
        machine.put("/var/lib/kubelet/kubeconfig", "");
        assert_eq!(arguments("pool-5d8f"), own);
        let first = "KUBELET_NODE_ARGS=--hostname-override=pool-5d8f --node-ip=10.0.0.7\n";
        assert_eq!(arguments("pool-5d8f.site.example"), first);
    }
}

#[test]
fn the_password_of_the_proxy_is_in_one_file_of_root() {
    let url = "http://node:p%24%22w@proxy.example:3128";
    let proxy =
        "proxy: {http: 'http://proxy.example:3128', noProxy: 127.0.0.1, credentials: {name: proxy}}\n";
    for os in ["ubuntu", "rockylinux"] {
        let server = mirror();
        let settings = proxy.to_owned() + &downloads(server.port);
        let pool = pool(os, "openstack", "1.34.2", "IPv4", false);
        let mut values = any_values();
        values.insert("proxy/url".to_owned(), url.to_owned());
        let content = content(&pool, &settings, ("https://127.0.0.1:1", ""));
        let bootstrap = user_data(&content, Stage::Bootstrap, &values).unwrap();
        // The bootstrap needs the API server only.
        assert!(!bootstrap.contains("proxy.example"));
        let files = files(&content, Stage::Provisioning, &values);
        for file in &files {
            let is_secret = file.text.contains("p%24");
            assert_eq!(is_secret, file.path == "/etc/osm/proxy.env", "{}", file.path);
            assert!(!is_secret || file.mode == "0600");
        }
        let machine = Machine::new(KINDS[2]);
        machine.write(&files);
        machine.put("/etc/environment", "LANG=C\n");
        for program in ["apt-get", "yum", "systemctl"] {
            machine.noted(program, "echo $http_proxy $NO_PROXY >>\"$MACHINE/proxies\"");
        }
        machine.runs(SETUP);
        machine.runs(EXTRAS);
        assert_eq!(machine.read("/etc/environment"), "LANG=C\n");
        let seen = machine.read("/proxies");
        let expected = format!("{url} 127.0.0.1\n");
        assert!(seen.lines().count() > 3, "{seen}");
        assert_eq!(seen.replace(&expected, ""), "");
        machine.never_called(&["p%24"]);
        machine.never_said("p%24");
    }
}
