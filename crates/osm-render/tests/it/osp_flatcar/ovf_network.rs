//! The script of osp-flatcar that configures the network from the OVF environment of VMware Cloud Director.

use super::*;

const SCRIPT: &str = "/opt/bin/osm-ovf-network";
const FOLDER: &str = "/etc/systemd/network";
/// What an OVF environment contains besides: the user data, and with it credentials.
const USER_DATA: &str = "dG9wIHNlY3JldA==";

/// Keys and values of an OVF environment.
type Properties = Vec<(String, String)>;

fn bootstrap(cloud: &str, family: &str) -> MachineConfig {
    let pool = pool(cloud, "1.34.2", family, false);
    let cluster = ("https://127.0.0.1:1", "CA");
    let [bootstrap, _] = render(&profile(), &pool, "{}", cluster, &values(&"0".repeat(64), 1));
    read(&bootstrap)
}

/// A machine that has read its bootstrap document. Its OVF environment is the file `ovf.xml`.
fn machine(kind: Kind, family: &str) -> Machine {
    packages::ensure(&["busybox", "dash"]).unwrap();
    let machine = Machine::new(kind);
    machine.write(&bootstrap("vmware-cloud-director", family).files);
    let document = machine.path("/ovf.xml");
    machine.program(
        "vmware-rpctool",
        &format!(
            "[ \"$*\" = 'info-get guestinfo.ovfEnv' ] || exit 2\n\
             cat '{}' 2>/dev/null || {{ echo 'No value found' >&2; exit 1; }}",
            document.display()
        ),
    );
    machine.program("vmtoolsd", "echo 'No value found' >&2; exit 1");
    let calls = machine.path("/calls");
    machine.program(
        "networkctl",
        &format!("echo networkctl \"$@\" >>'{}'", calls.display()),
    );
    machine
}

/// An interface of a network with a static pool, or with DHCP if it has no address.
fn interface(number: u8, address: Option<&str>) -> Properties {
    let mac = format!("00:50:56:01:aa:0{number}");
    let of_all = [
        ("bootproto", if address.is_some() { "static" } else { "dhcp" }),
        ("macaddr", &mac),
    ];
    let of_static = [
        ("dns1", "192.0.2.2"),
        ("dns2", ""),
        ("gateway", "192.0.2.1"),
        ("ip", address.unwrap_or_default()),
        ("netmask", "255.255.255.0"),
        ("suffix", ""),
    ];
    of_all
        .into_iter()
        .chain(of_static.into_iter().filter(|_| address.is_some()))
        .map(|(name, value)| (format!("vCloud_{name}_{number}"), value.to_owned()))
        .collect()
}

/// `properties` with another value; without the property, if there is none.
fn with(mut properties: Properties, key: &str, value: Option<&str>) -> Properties {
    properties.retain(|(known, _)| known != key);
    properties.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    properties
}

/// The document, as VMware Cloud Director writes it.
fn document(properties: &Properties) -> String {
    let escaped = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('"', "&quot;")
            .replace('\n', "&#10;")
    };
    let properties: String = properties
        .iter()
        .map(|(key, value)| {
            format!(
                "<oe:Property oe:key=\"{key}\" oe:value=\"{}\"/>\n",
                escaped(value)
            )
        })
        .collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Environment xmlns=\"http://schemas.dmtf.org/ovf/environment/1\" oe:id=\"\">\n<PropertySection>\n\
         <Property oe:key=\"guestinfo.ignition.config.data\" oe:value=\"{USER_DATA}\"/>\n{properties}</PropertySection>\n\
         <ve:EthernetAdapterSection><ve:Adapter ve:mac=\"00:50:56:01:aa:00\"/></ve:EthernetAdapterSection>\n</Environment>\n"
    )
}

/// Boots the machine with this document; whether the script succeeds.
fn boots(machine: &Machine, document: &str) -> bool {
    fs::write(machine.path("/ovf.xml"), document).unwrap();
    machine.start(SCRIPT).succeeds()
}

/// The files that systemd-networkd reads, by name.
fn networks(machine: &Machine) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(machine.path(FOLDER)) else {
        return BTreeMap::new();
    };
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".network"))
        .map(|name| (name.clone(), machine.read(&format!("{FOLDER}/{name}"))))
        .collect()
}

fn name(number: u8) -> String {
    format!("06-osm-ovf-{number}.network")
}

#[test]
fn only_machines_of_this_cloud_have_the_script_and_the_network_waits_for_it() {
    let parts = [
        SCRIPT,
        "/etc/systemd/system/osm-ovf-network.service",
        "/etc/systemd/system/systemd-networkd.service.d/10-osm-ovf.conf",
    ];
    for cloud in CLOUDS {
        let config = bootstrap(cloud, "IPv4");
        let found: Vec<&str> = config
            .files
            .iter()
            .map(|file| file.path.as_str())
            .filter(|path| path.contains("ovf"))
            .collect();
        if cloud != "vmware-cloud-director" {
            assert_eq!(found, Vec::<&str>::new(), "{cloud}");
            continue;
        }
        assert_eq!(found, parts);
        let text = |path: &str| {
            &config
                .files
                .iter()
                .find(|file| file.path == path)
                .unwrap()
                .content
        };
        assert!(text(parts[1]).contains("\nBefore=systemd-networkd.service network-pre.target"));
        assert!(text(parts[2]).contains("\nWants=osm-ovf-network.service\nAfter=osm-ovf-network.service\n"));
    }
}

#[test]
fn each_interface_gets_its_addresses_and_the_primary_one_the_default_route() {
    let mut properties = interface(0, Some("198.51.100.7"));
    properties.extend(interface(1, Some("192.0.2.7")));
    properties.extend(interface(2, None));
    properties.push(("vCloud_primaryNic".to_owned(), "1".to_owned()));
    properties.push(("vCloud_numnics".to_owned(), "3".to_owned()));
    let properties = with(properties, "vCloud_dns2_1", Some("2001:db8::2"));
    let properties = with(properties, "vCloud_suffix_1", Some("nodes.example"));
    let document = document(&properties);
    for kind in kinds() {
        let machine = machine(kind, "IPv4");
        assert!(boots(&machine, &document), "{}", machine.read("/log"));
        let expected = [
            "[Match]\nMACAddress=00:50:56:01:aa:00\nName=en* eth*\n\n\
             [Network]\nDHCP=no\nAddress=198.51.100.7/24\nDNS=192.0.2.2\n\n[IPv6AcceptRA]\nUseGateway=no\n",
            "[Match]\nMACAddress=00:50:56:01:aa:01\nName=en* eth*\n\n\
             [Network]\nDHCP=no\nAddress=192.0.2.7/24\nGateway=192.0.2.1\nDNS=192.0.2.2\nDNS=2001:db8::2\n\
             Domains=nodes.example\n",
            "[Match]\nMACAddress=00:50:56:01:aa:02\nName=en* eth*\n\n[Network]\nDHCP=yes\n\n\
             [DHCPv4]\nUseMTU=yes\nUseDomains=yes\nRequestBroadcast=yes\nUseGateway=no\n\n\
             [Link]\nRequiredForOnline=no\n\n[IPv6AcceptRA]\nUseGateway=no\n",
        ];
        let expected: BTreeMap<String, String> = (0..).map(name).zip(expected.map(str::to_owned)).collect();
        assert_eq!(networks(&machine), expected);
        assert_eq!(machine.mode(&format!("{FOLDER}/{}", name(0))), 0o644);
        let log = machine.read("/log");
        assert!(
            log.contains("interface 0: static address 198.51.100.7/24\n"),
            "{log}"
        );
        // A file, unlike a console, has only what was written last.
        assert_eq!(
            machine.read("/dev/console"),
            "osm-ovf-network: interface 2: DHCP\n"
        );
    }
}

/// systemd-networkd itself, with the files in the folder that `$1` names, and interfaces with these MAC addresses. A bridge has the MAC
/// address of the first one, as those of network plugins do. Prints what it logs, and then addresses and routes.
const NETWORKD: &str = r#"
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/systemd /run/log
mkdir -p /etc/systemd/network
mount --bind "$1" /etc/systemd/network
# Otherwise it waits for udev.
mount -t sysfs -o ro sysfs /sys
for number in 0 1 2; do
  ip link add "en$number" address "00:50:56:01:aa:0$number" type veth peer name "peer$number"
  ip link set "peer$number" up
done
ip link add bridge0 address 00:50:56:01:aa:00 type bridge
ip link set peer0 master bridge0
SYSTEMD_LOG_TARGET=console SYSTEMD_LOG_LEVEL=notice /lib/systemd/systemd-networkd >/run/log/networkd 2>&1 &
bridge=/run/systemd/netif/links/$(cat /sys/class/net/bridge0/ifindex)
left=600
until { [ "$(ip -4 route | wc -l)" -ge 3 ] && grep -q 'ADMIN_STATE=[^pi]' "$bridge"; } || [ "$left" -eq 0 ]; do
  left=$((left - 1))
  sleep 0.1
done
grep ADMIN_STATE "$bridge"
kill $!
wait || :
cat /run/log/networkd
ip -o -4 addr
ip -4 route
"#;

#[test]
fn systemd_networkd_does_what_the_files_say() {
    packages::ensure(&["iproute2", "systemd"]).unwrap();
    let machine = machine(KINDS[0], "IPv4");
    let interfaces = [
        interface(0, Some("192.0.2.7")),
        interface(1, Some("198.51.100.7")),
        interface(2, None),
    ]
    .concat();
    let properties = with(interfaces, "vCloud_suffix_0", Some("nodes.example"));
    assert!(
        boots(&machine, &document(&properties)),
        "{}",
        machine.read("/log")
    );
    let output = std::process::Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", NETWORKD, "sh"])
        .arg(machine.path(FOLDER))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let found: Vec<String> = lines
        .iter()
        .map(|words| words[..words.len().min(5)].join(" "))
        .collect();
    assert_eq!(
        found,
        [
            "ADMIN_STATE=unmanaged",
            "3: en0 inet 192.0.2.7/24 brd",
            "5: en1 inet 198.51.100.7/24 brd",
            "default via 192.0.2.1 dev en0",
            "192.0.2.0/24 dev en0 proto kernel",
            "198.51.100.0/24 dev en1 proto kernel",
        ],
        "without a complaint: {text}"
    );
}

#[test]
fn without_a_static_address_the_image_configures_the_network() {
    for kind in kinds() {
        let machine = machine(kind, "IPv4");
        let nothing = |machine: &Machine, text: &str| {
            assert_eq!(networks(machine), BTreeMap::new());
            assert_eq!(machine.read("/calls"), "");
            assert!(machine.read("/log").contains(text), "{}", machine.read("/log"));
        };
        assert!(machine.start(SCRIPT).succeeds());
        nothing(&machine, "describes no network interfaces");
        let others = vec![("instance-id".to_owned(), "vm-1".to_owned())];
        assert!(boots(&machine, &document(&others)));
        let without_mac = with(interface(0, Some("192.0.2.7")), "vCloud_macaddr_0", None);
        assert!(boots(&machine, &document(&without_mac)));
        nothing(&machine, "describes no network interfaces");
        let dhcp = [interface(0, None), interface(1, None)].concat();
        assert!(boots(&machine, &document(&dhcp)));
        nothing(&machine, "nothing to do");
        // Addresses that VMware Cloud Director keeps for an interface that uses DHCP now.
        let was_static = with(
            interface(0, Some("192.0.2.7")),
            "vCloud_bootproto_0",
            Some("dhcp"),
        );
        assert!(boots(&machine, &document(&was_static)));
        nothing(&machine, "nothing to do");
    }
}

#[test]
fn every_netmask_has_its_prefix_length_and_no_other_text_is_one() {
    let machine = machine(KINDS[0], "IPv4");
    let boot = |mask: &str| {
        let properties = with(interface(0, Some("192.0.2.7")), "vCloud_netmask_0", Some(mask));
        boots(&machine, &document(&properties))
    };
    for length in 1..=32_u32 {
        let mask = std::net::Ipv4Addr::from(u32::MAX << (32 - length)).to_string();
        assert!(boot(&mask), "{mask}");
        let text = networks(&machine).remove(&name(0)).unwrap();
        assert!(
            text.contains(&format!("\nAddress=192.0.2.7/{length}\n")),
            "{mask}: {text}"
        );
    }
    let before = networks(&machine);
    for mask in [
        "0.0.0.0",
        "255.0.255.0",
        "255.255.255.1",
        "24",
        "255.255.255",
        "255.255.255.256",
        "",
    ] {
        assert!(!boot(mask), "{mask}");
        assert_eq!(networks(&machine), before, "{mask}");
    }
}

#[test]
fn an_interface_with_an_invalid_value_keeps_its_last_configuration() {
    let hostile = [
        "192.0.2.9\n[Match]\nName=*",
        "192.0.2.9 Gateway=6.6.6.6",
        "$(reboot)",
        "`reboot`",
        "'; reboot; '",
        "\"><Property oe:key=\"vCloud_ip_0\" oe:value=\"6.6.6.6",
        "../../../passwd",
        "*",
        "!",
    ];
    let addresses = [
        "192.0.2",
        "192.0.2.256",
        "0.0.0.0",
        "127.0.0.1",
        "224.0.0.1",
        "2001:db8::7",
        "192.0.2.07",
    ];
    let hardware = ["00:50:56:01:aa", "00-50-56-01-aa-00", "00:50:56:01:aa:0g"];
    let cases: Vec<(&str, &str)> = [
        addresses.map(|value| ("ip", value)).as_slice(),
        &hardware.map(|value| ("macaddr", value)),
        &hostile.map(|value| ("ip", value)),
        &hostile.map(|value| ("macaddr", value))[..3],
        &hostile.map(|value| ("netmask", value))[..3],
    ]
    .concat();
    let good = [
        interface(0, Some("192.0.2.7")),
        interface(1, Some("198.51.100.7")),
    ]
    .concat();
    for kind in kinds() {
        let machine = machine(kind, "IPv4");
        assert!(boots(&machine, &document(&good)), "{}", machine.read("/log"));
        let before = networks(&machine);
        for (property, value) in &cases {
            let key = format!("vCloud_{property}_0");
            let seen = machine.read("/log").len();
            let bad = with(good.clone(), &key, Some(value));
            assert!(!boots(&machine, &document(&bad)), "{property} {value:?}");
            assert_eq!(networks(&machine), before, "{property} {value:?}");
            let log = machine.read("/log").split_off(seen);
            assert!(
                log.contains(&format!("{key} in the OVF environment is missing or invalid\n"))
                    && log.contains("interface 0: not configured"),
                "{property} {value:?}: {log}"
            );
        }
        // The other interface is configured nevertheless.
        fs::remove_dir_all(machine.path(FOLDER)).unwrap();
        let bad = with(good.clone(), "vCloud_ip_0", Some("192.0.2.256"));
        assert!(!boots(&machine, &document(&bad)));
        assert_eq!(networks(&machine).keys().collect::<Vec<_>>(), [&name(1)]);
    }
}

#[test]
fn xml_is_read_as_xml() {
    let good = document(&interface(0, Some("192.0.2.7")));
    let fake = "oe:key=\"vCloud_ip_0\" oe:value=\"6.6.6.6\"";
    let start = "<PropertySection>";
    let variants = [
        // In single quotes, in another order, on several lines, without a prefix, with content.
        good.replace(
            "<oe:Property oe:key=\"vCloud_ip_0\" oe:value=\"192.0.2.7\"/>",
            "<Property\n\tvalue = '192.0.2.7'\r\n  oe:key='vCloud_ip_0' >\n</Property>",
        ),
        good.replace(
            start,
            &format!("{start}<!-- <Property {fake}/> - <Property {fake}/> -->"),
        ),
        good.replace(start, &format!("{start}<![CDATA[ <Property {fake}/> ]]>")),
        good.replace(start, &format!("{start}<Other {fake}/><PropertyOther {fake}/>")),
        good.replace(
            start,
            &format!("{start}<Property oe:key='note' oe:value='{fake}'/>"),
        ),
        good.replace(
            start,
            &format!(
                "{start}<Property oe:key=\"a > b\" oe:value=\"&lt;Property {}\"/>",
                fake.replace('"', "&quot;")
            ),
        ),
        // The first one is that of VMware Cloud Director.
        good.replace(
            "</PropertySection>",
            &format!("<Property {fake}/></PropertySection>"),
        ),
    ];
    for kind in kinds() {
        for document in &variants {
            assert_ne!(*document, good);
            let machine = machine(kind, "IPv4");
            assert!(boots(&machine, document), "{document}\n{}", machine.read("/log"));
            let text = &networks(&machine)[&name(0)];
            assert!(
                text.contains("\nAddress=192.0.2.7/24\n") && !text.contains("6.6.6.6"),
                "{document}\n{text}"
            );
        }
        // A document that breaks off, or is none.
        let machine = machine(kind, "IPv4");
        for end in ["vCloud_macaddr_0\" oe:va", "<oe:Prop", "<?xml"] {
            let cut = &good[..good.find(end).unwrap() + end.len()];
            assert!(boots(&machine, cut), "{}", machine.read("/log"));
            assert_eq!(networks(&machine), BTreeMap::new());
        }
    }
}

#[test]
fn only_a_change_is_written_and_makes_a_running_networkd_reload() {
    let first = document(
        &[
            interface(0, Some("192.0.2.7")),
            interface(1, Some("198.51.100.7")),
        ]
        .concat(),
    );
    let second = document(&interface(0, Some("192.0.2.8")));
    let reload = "systemctl -q is-active systemd-networkd.service\nnetworkctl reload\n";
    for kind in kinds() {
        let machine = machine(kind, "IPv4");
        // As at boot.
        let calls = machine.path("/calls");
        let noted = format!("echo systemctl \"$@\" >>'{}'", calls.display());
        machine.program("systemctl", &format!("{noted}; exit 3"));
        assert!(boots(&machine, &first));
        assert!(!machine.read("/calls").contains("networkctl"));
        fs::remove_file(&calls).unwrap();

        machine.program("systemctl", &noted);
        let file = machine.path(&format!("{FOLDER}/{}", name(0)));
        let written = fs::metadata(&file).unwrap().ino();
        assert!(boots(&machine, &first));
        assert_eq!(machine.read("/calls"), "");
        assert_eq!(fs::metadata(&file).unwrap().ino(), written);
        assert!(machine.read("/log").ends_with("nothing to do\n"));

        assert!(boots(&machine, &second));
        assert_eq!(machine.read("/calls"), reload);
        let networks_now = networks(&machine);
        assert_eq!(
            networks_now.keys().collect::<Vec<_>>(),
            [&name(0)],
            "the other interface is gone"
        );
        assert!(networks_now[&name(0)].contains("Address=192.0.2.8/24\n"));

        // DHCP from now on. Files of others stay.
        fs::write(machine.path(&format!("{FOLDER}/05-osm-static.network")), "").unwrap();
        assert!(boots(&machine, &document(&interface(0, None))));
        assert_eq!(machine.read("/calls"), reload.repeat(2));
        assert_eq!(
            networks(&machine).keys().collect::<Vec<_>>(),
            ["05-osm-static.network"]
        );

        machine.program("networkctl", "echo refused >&2; exit 1");
        assert!(!boots(&machine, &first));
        assert!(machine.read("/log").ends_with("does not reload: refused \n"));
    }
}

#[test]
fn a_hypervisor_that_does_not_answer_is_asked_again_in_both_ways() {
    let good = document(&interface(0, Some("192.0.2.7")));
    for kind in kinds() {
        let machine = machine(kind, "IPv4");
        assert!(boots(&machine, &good));
        let before = networks(&machine);
        for name in ["vmware-rpctool", "vmtoolsd"] {
            machine.program(name, "echo 'channel is busy' >&2; exit 1");
        }
        assert!(!machine.start(SCRIPT).succeeds());
        assert_eq!(machine.read("/sleeps"), "1\n".repeat(4));
        assert!(
            machine
                .read("/log")
                .ends_with("can't read the OVF environment: channel is busy \n")
        );
        assert_eq!(networks(&machine), before);

        fs::remove_dir_all(machine.path(FOLDER)).unwrap();
        let document = machine.path("/ovf.xml");
        let answer = format!(
            "[ \"$*\" = '--cmd info-get guestinfo.ovfEnv' ] && cat '{}'",
            document.display()
        );
        machine.program("vmtoolsd", &answer);
        assert!(machine.start(SCRIPT).succeeds(), "{}", machine.read("/log"));
        assert_eq!(networks(&machine), before);

        machine.program("awk", "echo 'out of memory' >&2; exit 2");
        assert!(!machine.start(SCRIPT).succeeds());
        assert!(
            machine
                .read("/log")
                .ends_with("can't understand the OVF environment: out of memory \n")
        );
        assert_eq!(networks(&machine), before);

        // The document has the machine's credentials in it.
        let mut folders = vec![machine.path("/run"), machine.path("/etc"), machine.path("/var")];
        let mut texts = vec![machine.read("/log"), machine.read("/dev/console")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => texts.push(fs::read_to_string(entry.path()).unwrap()),
                }
            }
        }
        assert!(texts.len() > 5 && !texts.iter().any(|text| text.contains(USER_DATA)));
    }
}
