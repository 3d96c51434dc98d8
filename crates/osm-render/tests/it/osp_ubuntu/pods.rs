//! A machine without what pods need is no node: it says what is missing, and goes on trying.

use super::*;

const RELEASE: &str = "6.12.0-55.9.1.el10_0.x86_64";

/// A machine of this system whose kernel is of release [`RELEASE`], and lacks modules. Those come with a file `/modules`.
fn without(modules: &[&str], os: &str, kind: Kind, settings: &str) -> Machine {
    let cloud = if os == "amzn2" { "aws" } else { "openstack" };
    let machine = machine_of(&pool(os, cloud, "1.34.2", "IPv4", false), kind, settings);
    let is_missing = format!(
        "echo modprobe \"$@\" >>'{}'\ncase $1 in {}) ;; *) exit 0 ;; esac\n[ -e '{}' ] || {{\n\
         echo \"modprobe: FATAL: Module $1 not found in directory /lib/modules/{RELEASE}\" >&2\nexit 1\n}}",
        machine.path("/calls").display(),
        modules.join(" | "),
        machine.path("/modules").display(),
    );
    machine.program("modprobe", &is_missing);
    machine.program(
        "uname",
        &format!("if [ \"$1\" = -r ]; then echo {RELEASE}; else exec /usr/bin/uname \"$@\"; fi"),
    );
    machine
}

/// Settings with which nodes download from `port`, and nothing else is set.
fn settings(port: u16) -> String {
    let settings = downloading_from(port);
    format!("downloads:{}", settings.split_once("downloads:").unwrap().1)
}

/// The machine has said this on its console, and runs neither containerd nor the kubelet.
fn is_no_node(machine: &Machine, said: &str) {
    machine.wait_for_log(0, said);
    wait_for("the console", || {
        machine.read("/dev/console").contains(said).then_some(())
    });
    wait_for("three attempts", || {
        (machine.read("/sleeps").lines().count() > 2).then_some(())
    });
    let calls = machine.read("/calls");
    assert!(
        !calls.contains("restart containerd") && !calls.contains("kubelet"),
        "{calls}"
    );
    assert!(!machine.path("/var/lib/osm/set-up").exists());
}

fn becomes_a_node(machine: &Machine, run: machine::Run) {
    assert!(run.succeeds(), "{}", machine.read("/log"));
    assert!(
        machine
            .read("/calls")
            .contains("systemctl restart kubelet.service\n")
    );
    assert!(machine.path("/var/lib/osm/set-up").exists());
}

#[test]
fn a_kernel_without_modules_for_pods_makes_no_node() {
    prepare();
    let off = "packages: {enabled: false}\n";
    for (os, more) in [("ubuntu", ""), ("amzn2", off), ("rockylinux", off)] {
        for kind in KINDS {
            let server = Server::start(None);
            server.answer(&mirror());
            let settings = format!("{more}{}", settings(server.port));
            let machine = without(&["br_netfilter", "xt_comment"], os, kind, &settings);
            let run = machine.start("/opt/bin/osm-setup");
            is_no_node(
                &machine,
                "no kernel module br_netfilter xt_comment, without which pods don't work",
            );
            let log = machine.read("/log");
            assert!(
                log.contains("Module xt_comment not found in directory"),
                "{kind:?}: {log}"
            );
            assert!(!machine.read("/calls").contains("yum"), "{os}");
            assert_eq!(server.requests(), []);

            std::fs::write(machine.path("/modules"), "").unwrap();
            becomes_a_node(&machine, run);
            assert!(
                !machine.read("/log").contains("warning"),
                "{}",
                machine.read("/log")
            );
        }
    }
}

#[test]
fn what_the_kernel_of_rhel_lacks_is_installed_for_that_kernel() {
    prepare();
    let install = format!("yum -q -y install kernel-modules-extra-{RELEASE}\n");
    for kind in KINDS {
        for os in ["rhel", "rockylinux", "centos"] {
            let server = Server::start(None);
            server.answer(&mirror());
            let missing = [
                "br_netfilter",
                "ip_set",
                "nft_compat",
                "xt_comment",
                "xt_MASQUERADE",
                "ipt_MASQUERADE",
            ];
            let machine = without(&missing, os, kind, &settings(server.port));
            let (calls, repositories) = (machine.path("/calls"), machine.path("/repositories"));
            machine.program(
                "yum",
                &format!(
                    "echo yum \"$@\" >>'{}'\n[ -e '{}' ] || {{ echo \"Error: Unable to find a match: $4\" >&2; exit 1; }}\n\
                     echo >'{}'",
                    calls.display(),
                    repositories.display(),
                    machine.path("/modules").display(),
                ),
            );
            let run = machine.start("/opt/bin/osm-setup");
            let names = "no kernel module br_netfilter xt_MASQUERADE xt_comment nft_compat ip_set, ";
            is_no_node(&machine, names);
            let log = machine.read("/log");
            let why = format!(
                "install kernel-modules-extra-{RELEASE}: Error: Unable to find a match: kernel-modules-extra-{RELEASE} yum"
            );
            assert!(log.contains(&why), "{os} {kind:?}: {log}");

            std::fs::write(repositories, "").unwrap();
            becomes_a_node(&machine, run);
            let calls = machine.read("/calls");
            let installed = calls.rfind(&install).unwrap_or_else(|| panic!("{calls}"));
            let loaded = calls[installed..].find("modprobe br_netfilter\n").unwrap();
            let again = calls[installed..]
                .find("systemctl restart systemd-modules-load.service\n")
                .unwrap();
            let kubelet = calls[installed..]
                .find("systemctl restart kubelet.service\n")
                .unwrap();
            assert!(loaded < again && again < kubelet, "{calls}");
            // At every attempt, but not once more.
            assert_eq!(
                calls.matches("yum ").count(),
                calls.matches(&install).count(),
                "{calls}"
            );
        }
    }
}

#[test]
fn each_module_that_pods_need_is_one_that_a_node_must_have() {
    prepare();
    let every = [
        "overlay",
        "br_netfilter",
        "xt_addrtype",
        "xt_comment",
        "xt_conntrack",
        "xt_mark",
        "xt_nat",
        "xt_statistic",
    ];
    // Where one module is another's replacement, a kernel has either.
    let mut cases: Vec<(&str, Vec<&str>, bool)> = Vec::new();
    let systems = ["ubuntu", "rockylinux", "amzn2"];
    let turns = every.into_iter().zip(systems.into_iter().cycle());
    cases.extend(turns.map(|(module, os)| (os, vec![module], false)));
    for os in systems {
        cases.push((os, vec!["xt_MASQUERADE"], true));
        cases.push((os, vec!["xt_MASQUERADE", "ipt_MASQUERADE"], false));
        cases.push((os, vec!["nft_compat"], os != "rockylinux"));
        cases.push((os, vec!["nft_compat", "ip_tables"], false));
        cases.push((os, vec!["ip_set"], os != "rockylinux"));
    }
    for (os, missing, is_node) in cases {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = without(&missing, os, KINDS[0], &settings(server.port));
        let run = machine.start("/opt/bin/osm-setup");
        if is_node {
            becomes_a_node(&machine, run);
            assert!(!machine.read("/calls").contains("yum"), "{os} {missing:?}");
        } else {
            is_no_node(&machine, &format!("no kernel module {}, ", missing[0]));
        }
    }
}

#[test]
fn an_upgrade_brings_the_modules_of_a_newer_kernel() {
    prepare();
    for is_there in [true, false] {
        let server = Server::start(None);
        server.answer(&mirror());
        let mut pool = pool("rockylinux", "openstack", "1.34.2", "IPv4", false);
        pool.os.dist_upgrade_on_boot = true;
        let lacking = without(&["br_netfilter"], "rockylinux", KINDS[2], &settings(server.port));
        let (_, document) = render(
            &pool,
            &settings(server.port),
            "https://127.0.0.1:1",
            "",
            &values(&"0".repeat(64), 1),
        );
        lacking.write(&user_data_files(&document).unwrap());
        let calls = lacking.path("/calls");
        let modules = lacking.path("/modules");
        let install = format!("[ {is_there} = true ] && echo >'{}'", modules.display());
        let yum = format!(
            "echo yum \"$3\" >>'{}'; [ \"$3\" != install ] || {{ {install}; }}",
            calls.display()
        );
        lacking.program("yum", &yum);
        lacking.program("needs-restarting", "exit 1");
        assert!(
            lacking.start("/opt/bin/osm-setup").succeeds(),
            "{}",
            lacking.read("/log")
        );
        let calls = lacking.read("/calls");
        let yum: Vec<&str> = calls.lines().filter(|call| call.starts_with("yum")).collect();
        assert_eq!(
            yum,
            ["yum install", "yum upgrade"],
            "the modules first, whether they are there or not"
        );
        assert!(calls.ends_with("systemctl reboot\n"), "{calls}");
    }
}

/// Something that would keep pods from working, and must not go on.
struct Obstacle {
    os: &'static str,
    program: &'static str,
    /// A pattern for the arguments with which the program fails until it is mended.
    fails: &'static str,
    said: &'static str,
}

const OBSTACLES: [Obstacle; 6] = [
    Obstacle {
        os: "ubuntu",
        program: "ufw",
        fails: "*disable",
        said: "ufw --force disable failed",
    },
    Obstacle {
        os: "rockylinux",
        program: "systemctl",
        fails: "'stop firewalld.service'",
        said: "stop firewalld.service failed",
    },
    Obstacle {
        os: "rhel",
        program: "systemctl",
        fails: "'disable nm-cloud-setup.timer'",
        said: "disable nm-cloud-setup.timer failed",
    },
    Obstacle {
        os: "rhel",
        program: "systemctl",
        fails: "'stop nm-cloud-setup.service'",
        said: "stop nm-cloud-setup.service failed",
    },
    Obstacle {
        os: "centos",
        program: "systemctl",
        fails: "'reload NetworkManager.service'",
        said: "reload NetworkManager.service failed",
    },
    Obstacle {
        os: "amzn2",
        program: "setenforce",
        fails: "0",
        said: "setenforce 0 failed",
    },
];

/// A machine on which the obstacle stays until there is a file `/mended`. `state` is the answer to whether something is on.
fn with(obstacle: &Obstacle, state: &str, kind: Kind, port: u16) -> Machine {
    let Obstacle {
        os, program, fails, ..
    } = obstacle;
    let machine = without(&["none"], os, kind, &settings(port));
    machine.program("getenforce", "echo Enforcing");
    let script = format!(
        "echo {program} \"$@\" >>'{}'\ncase \"$*\" in\n{fails}) [ -e '{}' ] || {{ echo no memory >&2; exit 1; }} ;;\n\
         status | *is-active* | *is-enabled*) {state} ;;\nesac",
        machine.path("/calls").display(),
        machine.path("/mended").display(),
    );
    machine.program(program, &script);
    machine
}

#[test]
fn what_would_keep_pods_from_working_is_not_passed_over() {
    prepare();
    for (obstacle, kind) in OBSTACLES.iter().zip(KINDS.into_iter().cycle()) {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = with(obstacle, "echo Status: active", kind, server.port);
        let run = machine.start("/opt/bin/osm-setup");
        is_no_node(&machine, "can't prepare the system: no memory ");
        let log = machine.read("/log");
        assert!(log.contains(obstacle.said), "{kind:?} {}: {log}", obstacle.said);
        assert_eq!(server.requests(), []);

        std::fs::write(machine.path("/mended"), "").unwrap();
        becomes_a_node(&machine, run);
    }
}

#[test]
fn what_is_off_already_need_not_be_turned_off() {
    prepare();
    // A unit that the image masks, and a firewall that lacks what it needs to run.
    for obstacle in OBSTACLES.iter().filter(|obstacle| {
        !["reload", "setenforce"]
            .iter()
            .any(|word| obstacle.said.contains(word))
    }) {
        let server = Server::start(None);
        server.answer(&mirror());
        let machine = with(obstacle, "exit 1", KINDS[0], server.port);
        let run = machine.start("/opt/bin/osm-setup");
        becomes_a_node(&machine, run);
    }
}

#[test]
fn a_later_kernel_without_bridges_for_pods_runs_no_kubelet() {
    prepare();
    for kind in KINDS {
        let machine = without(&["br_netfilter"], "rockylinux", kind, "{}");
        machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
        assert!(!machine.start("/opt/bin/osm-kubelet-env").succeeds());
        let said = format!(
            "pods need the kernel module br_netfilter: install the package with modules of {RELEASE}\n"
        );
        assert!(
            machine.read("/log").ends_with(&said),
            "{kind:?}: {}",
            machine.read("/log")
        );

        // It is loaded, and its file was removed since.
        let loaded = machine.path("/proc/sys/net/bridge/bridge-nf-call-iptables");
        std::fs::create_dir_all(loaded.parent().unwrap()).unwrap();
        std::fs::write(&loaded, "1\n").unwrap();
        assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
        std::fs::remove_file(&loaded).unwrap();
        std::fs::write(machine.path("/modules"), "").unwrap();
        assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
    }
}

const LOGIND: &str = "/etc/systemd/logind.conf.d/zz-kubernetes.conf";

#[test]
fn logind_waits_as_long_as_the_kubelet_may_take() {
    prepare();
    // The second is the list of periods that add up; the kubelet takes whole seconds.
    for (configuration, seconds) in [
        (
            "{shutdownGracePeriod: 1m, shutdownGracePeriodCriticalPods: 10s}",
            60,
        ),
        ("{shutdownGracePeriod: 30500ms}", 31),
        (
            "{shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 40}, \
             {priority: 1000, shutdownGracePeriodSeconds: 5}]}",
            45,
        ),
    ] {
        for (os, kind) in ["ubuntu", "rhel", "centos", "rockylinux"].into_iter().zip(KINDS) {
            let settings = format!("kubelet: {{configuration: {configuration}}}");
            let machine = without(&["none"], os, kind, &settings);
            machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
            assert_eq!(
                machine.read(LOGIND),
                format!("[Login]\nInhibitDelayMaxSec={seconds}\n")
            );
            // As Ubuntu's images have it, whatever the kubelet writes, until logind reads its files again.
            let reload = "systemctl kill -s HUP systemd-logind.service";
            let delays = |after: &str| {
                format!(
                    "[ \"$4 $5\" = 'org.freedesktop.login1.Manager InhibitDelayMaxUSec' ] || exit 1\n\
                     grep -q '{reload}' '{}' && echo 't {after}' || echo 't 30000000'",
                    machine.path("/calls").display()
                )
            };
            machine.program("busctl", &delays(&format!("{seconds}000000")));
            for _ in 0..2 {
                assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
            }
            let (log, calls) = (machine.read("/log"), machine.read("/calls"));
            assert_eq!(calls.matches(reload).count(), 1, "{os}: {calls}");
            assert!(!log.contains("warning"), "{os}: {log}");

            // A file sorts after ours, or logind does not answer.
            for (busctl, found) in [(delays("30999999"), "30999999"), ("exit 1".to_owned(), "0")] {
                machine.program("busctl", &busctl);
                assert!(
                    machine.start("/opt/bin/osm-kubelet-env").succeeds(),
                    "{os}: pods run all the same"
                );
                let log = machine.read("/log");
                let warning = format!(
                    "warning: logind delays a shutdown by {found} us, not by the {seconds} s of shutdownGracePeriod"
                );
                assert_eq!(log.matches(&warning).count(), 1, "{os}: {log}");
            }
        }
    }
    for settings in [
        "{}",
        "kubelet: {configuration: {shutdownGracePeriod: 0s, maxPods: 9}}",
    ] {
        let machine = without(&["none"], "ubuntu", KINDS[0], settings);
        machine.program("ip", "echo '192.0.2.1 dev eth0 src 10.0.0.7 uid 0'");
        machine.program("busctl", "echo asked >&2");
        assert!(machine.start("/opt/bin/osm-kubelet-env").succeeds());
        assert!(
            !machine.path(LOGIND).exists() && !machine.read("/log").contains("asked"),
            "{settings}"
        );
    }
}
