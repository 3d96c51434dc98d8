//! A machine that lacks something that pods need does not join: it says what is missing, and goes on trying.

use super::*;

const RELEASE: &str = "6.12.0-55.9.1.el10_0.x86_64";

/// A machine of this system whose kernel is of release [`RELEASE`], and lacks modules. Those come with a file
/// `/modules`.
fn without(modules: &[&str], os: &str, kind: Kind, settings: &str) -> Machine {
    let cloud = if os == "amzn2" { "aws" } else { "openstack" };
    lacking(modules, &pool(os, cloud, "1.34.2", "IPv4", false), kind, settings)
}

fn lacking(modules: &[&str], pool: &Pool, kind: Kind, settings: &str) -> Machine {
    let machine = machine_of(pool, kind, settings);
    let is_missing = format!(
        "case $1 in {}) ;; *) exit 0 ;; esac\n[ -e \"$MACHINE/modules\" ] || {{\n\
         echo \"modprobe: FATAL: Module $1 not found in directory /lib/modules/{RELEASE}\" >&2\nexit 1\n}}",
        modules.join(" | "),
    );
    machine.noted("modprobe", &is_missing);
    let uname = format!("[ \"$1\" = -r ] && echo {RELEASE} || exec /usr/bin/uname \"$@\"");
    machine.program("uname", &uname);
    machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
    machine
}

/// The machine has said this on its console, and runs neither containerd nor the kubelet.
fn is_no_node(machine: &Machine, said: &str) {
    machine.wait_for_log(0, said);
    machine.wait_for_console(said);
    let attempts = || machine.read("/sleeps").lines().count();
    wait_for("three attempts", || (attempts() > 2).then_some(()));
    machine.never_called(&["restart containerd", "kubelet"]);
    assert!(!machine.has("/var/lib/osm/set-up"));
}

fn becomes_a_node(machine: &Machine, run: Run) {
    run.ends_well();
    machine.called(&["systemctl restart kubelet.service\n"]);
    assert!(machine.has("/var/lib/osm/set-up"));
    // At the next boot, before kernel parameters that the modules bring.
    let loaded = machine.read("/etc/modules-load.d/osm-pods.conf");
    let alternatives = ["nft_compat\n", "ip_tables\n"].map(|name| loaded.matches(name).count());
    let has_either = alternatives.iter().sum::<usize>() == 1;
    assert!(loaded.contains("xt_conntrack\n") && has_either, "{loaded}");
}

#[test]
fn what_the_kernel_of_rhel_lacks_is_installed_for_that_kernel() {
    let install = format!("yum -q -y install kernel-modules-extra-{RELEASE}\n");
    let missing = "br_netfilter ip_set nft_compat xt_comment xt_MASQUERADE ipt_MASQUERADE";
    let missing: Vec<&str> = missing.split(' ').collect();
    for kind in KINDS {
        for os in ["rhel", "rockylinux", "centos"] {
            let server = mirror();
            let machine = without(&missing, os, kind, &downloads(server.port));
            machine.noted(
                "yum",
                "[ -e \"$MACHINE/repositories\" ] || { echo \"Error: Unable to find a match: $4\" >&2; exit 1; }\n\
                 echo >\"$MACHINE/modules\"",
            );
            let run = machine.start(SETUP);
            let names = "no kernel module br_netfilter xt_MASQUERADE xt_comment nft_compat ip_set, ";
            is_no_node(&machine, names);
            let no_match = format!("Error: Unable to find a match: kernel-modules-extra-{RELEASE}");
            machine.said(&format!("install kernel-modules-extra-{RELEASE}: {no_match} yum"));

            machine.put("/repositories", "");
            becomes_a_node(&machine, run);
            let calls = machine.calls();
            let (before, after) = calls.rsplit_once(&install).unwrap();
            let loads = [
                "modprobe br_netfilter\n",
                "restart systemd-modules-load.service\n",
                "restart kubelet.service\n",
            ];
            let at = loads.map(|call| after.find(call));
            assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{calls}");
            // At every attempt, but not once more.
            let expected = before.matches(&install).count();
            assert_eq!(before.matches("yum ").count(), expected, "{calls}");
            assert!(!after.contains("yum "), "{calls}");
        }
    }
}

#[test]
fn a_variant_of_the_kernel_has_packages_of_its_own() {
    for (kernel, variant) in [("aarch64", "64k"), ("x86_64", "rt-debug")] {
        let release = format!("6.12.0-55.el10_0.{kernel}+{variant}");
        let package = format!("kernel-{variant}-modules-extra-6.12.0-55.el10_0.{kernel}");
        let server = mirror();
        let machine = without(&["br_netfilter"], "rhel", KINDS[0], &downloads(server.port));
        let uname = format!("[ \"$1\" = -r ] && echo {release} || exec /usr/bin/uname \"$@\"");
        machine.program("uname", &uname);
        machine.noted("yum", "echo >\"$MACHINE/modules\"");
        machine.runs(SETUP);
        machine.called(&[
            &format!("yum -q -y install {package}\n"),
            "systemctl restart kubelet.service\n",
        ]);
    }
}

#[test]
fn each_module_that_pods_need_is_one_that_a_node_must_have() {
    let every = "overlay br_netfilter xt_addrtype xt_comment xt_conntrack xt_mark xt_nat xt_statistic";
    // Where one module is another's replacement, a kernel has either.
    let mut cases: Vec<(&str, Vec<&str>, bool)> = Vec::new();
    let systems = ["ubuntu", "rockylinux", "amzn2"];
    let turns = every.split(' ').zip(systems.into_iter().cycle());
    cases.extend(turns.map(|(module, os)| (os, vec![module], false)));
    for os in systems {
        cases.push((os, vec!["xt_MASQUERADE"], true));
        cases.push((os, vec!["xt_MASQUERADE", "ipt_MASQUERADE"], false));
        cases.push((os, vec!["nft_compat"], os != "rockylinux"));
        cases.push((os, vec!["nft_compat", "ip_tables"], false));
        cases.push((os, vec!["ip_set"], os != "rockylinux"));
    }
    for ((os, missing, is_node), kind) in cases.into_iter().zip(KINDS.into_iter().cycle()) {
        let server = mirror();
        // Where packages are off, nothing is installed.
        let settings = format!("packages: {{enabled: false}}\n{}", downloads(server.port));
        let machine = without(&missing, os, kind, &settings);
        let run = machine.start(SETUP);
        if !is_node {
            let said = format!("no kernel module {}, without which pods don't work", missing[0]);
            is_no_node(&machine, &said);
            machine.said(&format!("Module {} not found in directory", missing[0]));
            assert_eq!(server.requests(), []);
            machine.put("/modules", "");
        }
        becomes_a_node(&machine, run);
        machine.never_called(&["yum"]);
        machine.never_said("warning");
    }
}

#[test]
fn an_upgrade_brings_the_modules_of_a_newer_kernel() {
    for is_there in [true, false] {
        let server = mirror();
        let mut pool = pool("rockylinux", "openstack", "1.34.2", "IPv4", false);
        pool.os.dist_upgrade_on_boot = true;
        let machine = lacking(&["br_netfilter"], &pool, KINDS[2], &downloads(server.port));
        let install = format!("[ {is_there} = true ] && echo >\"$MACHINE/modules\"");
        machine.noted("yum", &format!("[ \"$3\" != install ] || {{ {install}; }}"));
        machine.program("needs-restarting", "exit 1");
        machine.runs(SETUP);
        // The modules first, whether they are there or not.
        machine.called(&["yum -q -y install", "yum -q -y upgrade", "systemctl reboot\n"]);
        machine.called_times("yum", 2);
        assert!(machine.calls().ends_with("systemctl reboot\n"));
    }
}

/// Something that would keep pods from working, and must not go on: the system, the program that stops it, a
/// pattern for the arguments with which that program fails until it is mended, and what the machine says.
const OBSTACLES: &str = "
ubuntu | ufw | *disable | ufw --force disable failed
rockylinux | systemctl | 'stop firewalld.service' | stop firewalld.service failed
rhel | systemctl | 'disable nm-cloud-setup.timer' | disable nm-cloud-setup.timer failed
rhel | systemctl | 'stop nm-cloud-setup.service' | stop nm-cloud-setup.service failed
centos | systemctl | 'reload NetworkManager.service' | reload NetworkManager.service failed
amzn2 | setenforce | 0 | setenforce 0 failed
";

/// A machine on which the obstacle stays until there is a file `/mended`. `state` is the answer to whether
/// something is on.
fn with([os, program, fails, _]: [&str; 4], state: &str, kind: Kind, port: u16) -> Machine {
    let machine = without(&["none"], os, kind, &downloads(port));
    machine.program("getenforce", "echo Enforcing");
    let mended = "[ -e \"$MACHINE/mended\" ] || { echo no memory >&2; exit 1; }";
    let asked = "status | *is-active* | *is-enabled*";
    let script = format!("case \"$*\" in\n{fails}) {mended} ;;\n{asked}) {state} ;;\nesac");
    machine.noted(program, &script);
    machine
}

#[test]
fn what_would_keep_pods_from_working_is_not_passed_over() {
    for (obstacle, kind) in table(OBSTACLES, " | ").zip(KINDS.into_iter().cycle()) {
        let server = mirror();
        let machine = with(obstacle, "echo Status: active", kind, server.port);
        let run = machine.start(SETUP);
        is_no_node(&machine, "can't prepare the system: no memory ");
        machine.said(obstacle[3]);
        assert_eq!(server.requests(), []);

        machine.put("/mended", "");
        becomes_a_node(&machine, run);

        // A unit that the image masks, or a firewall that lacks what it needs to run, need not be turned off.
        if !obstacle[3].contains("reload") && !obstacle[3].contains("setenforce") {
            let machine = with(obstacle, "exit 1", kind, server.port);
            becomes_a_node(&machine, machine.start(SETUP));
        }
    }
}

#[test]
fn a_later_kernel_without_bridges_for_pods_runs_no_kubelet() {
    for kind in KINDS {
        let machine = without(&["br_netfilter"], "rockylinux", kind, "{}");
        machine.fails(KUBELET_ENV);
        let package = format!("install the package with modules of {RELEASE}\n");
        machine.said(&format!("pods need the kernel module br_netfilter: {package}"));
        // It is loaded, and its file was removed since.
        let loaded = "/proc/sys/net/bridge/bridge-nf-call-iptables";
        machine.put(loaded, "1\n");
        machine.runs(KUBELET_ENV);
        machine.remove(loaded);
        machine.put("/modules", "");
        machine.runs(KUBELET_ENV);
    }
}

const LOGIND: &str = "/etc/systemd/logind.conf.d/zz-kubernetes.conf";

#[test]
fn logind_waits_as_long_as_the_kubelet_may_take() {
    // Tests of the kubelet's settings have the other ways to set it.
    let settings =
        "kubelet: {configuration: {shutdownGracePeriod: 1m, shutdownGracePeriodCriticalPods: 10s}}";
    for (os, kind) in ["ubuntu", "rhel", "centos", "rockylinux"].into_iter().zip(KINDS) {
        let machine = without(&["none"], os, kind, settings);
        assert_eq!(machine.read(LOGIND), "[Login]\nInhibitDelayMaxSec=60\n");
        // As Ubuntu's images have it, whatever the kubelet writes, until logind reads its files again.
        let reload = "systemctl kill -s HUP systemd-logind.service";
        let delays = |after: &str| {
            format!(
                "[ \"$4 $5\" = 'org.freedesktop.login1.Manager InhibitDelayMaxUSec' ] || exit 1\n\
                 grep -q '{reload}' \"$MACHINE/calls\" && echo 't {after}' || echo 't 30000000'"
            )
        };
        machine.program("busctl", &delays("60000000"));
        for _ in 0..2 {
            machine.runs(KUBELET_ENV);
        }
        machine.called_times(reload, 1);
        machine.never_said("warning");

        // A file sorts after ours, or logind does not answer. Pods run all the same.
        for (busctl, found) in [(delays("30999999"), "30999999"), ("exit 1".to_owned(), "0")] {
            machine.program("busctl", &busctl);
            machine.runs(KUBELET_ENV);
            let warning =
                format!("logind delays a shutdown by {found} us, not by the 60 s of shutdownGracePeriod");
            let log = machine.log();
            assert_eq!(log.matches(&warning).count(), 1, "{os}: {log}");
        }
    }
    let none = "kubelet: {configuration: {shutdownGracePeriod: 0s, maxPods: 9}}";
    for settings in ["{}", none] {
        let machine = without(&["none"], "ubuntu", KINDS[0], settings);
        machine.program("busctl", "echo asked >&2");
        machine.runs(KUBELET_ENV);
        assert!(!machine.has(LOGIND), "{settings}");
        machine.never_said("asked");
    }
}
