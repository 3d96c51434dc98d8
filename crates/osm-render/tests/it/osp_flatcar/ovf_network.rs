//! The script of osp-flatcar that configures the network from the OVF environment of VMware Cloud Director.

use super::*;

const SCRIPT: &str = "/opt/bin/osm-ovf-network";
const FOLDER: &str = "/etc/systemd/network";
/// What an OVF environment contains besides: the user data, and with it credentials.
const USER_DATA: &str = "dG9wIHNlY3JldA==";

/// Keys and values of an OVF environment.
type Properties = Vec<(String, String)>;

/// A machine that has read its bootstrap document. Its OVF environment is the file `ovf.xml`.
fn machine(kind: Kind) -> Machine {
    let machine = Machine::new(kind);
    let content = content(&pool("vmware-cloud-director", false), "{}", NOWHERE);
    machine.write(&files(&content, Stage::Bootstrap, &any_values()));
    machine.program(
        "vmware-rpctool",
        "[ \"$*\" = 'info-get guestinfo.ovfEnv' ] || exit 2\n\
         cat \"$MACHINE/ovf.xml\" 2>/dev/null || { echo 'No value found' >&2; exit 1; }",
    );
    machine.program("vmtoolsd", "echo 'No value found' >&2; exit 1");
    machine.noted("networkctl", "");
    machine
}

/// An interface of a network with a static pool, or with DHCP if it has no address.
fn interface(number: u8, address: Option<&str>) -> Properties {
    let mac = format!("00:50:56:01:aa:0{number}");
    let mut properties = vec![("bootproto", "dhcp"), ("macaddr", &*mac)];
    if let Some(address) = address {
        properties[0].1 = "static";
        properties.extend([("dns1", "192.0.2.2"), ("dns2", ""), ("suffix", "")]);
        properties.extend([
            ("gateway", "192.0.2.1"),
            ("ip", address),
            ("netmask", "255.255.255.0"),
        ]);
    }
    let keyed = |(name, value): &(&str, &str)| (format!("vCloud_{name}_{number}"), (*value).to_owned());
    properties.iter().map(keyed).collect()
}

/// Two interfaces with static addresses.
fn two() -> Properties {
    let (first, second) = ("192.0.2.7", "198.51.100.7");
    [interface(0, Some(first)), interface(1, Some(second))].concat()
}

/// `properties` with another value; without the property, if there is none.
fn with(mut properties: Properties, key: &str, value: Option<&str>) -> Properties {
    properties.retain(|(known, _)| known != key);
    properties.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    properties
}

/// The document, as VMware Cloud Director writes it.
fn document(properties: &Properties) -> String {
    let escapes = [("&", "&amp;"), ("<", "&lt;"), ("\"", "&quot;"), ("\n", "&#10;")];
    let property = |(key, value): &(String, String)| {
        let escape = |value: String, (c, escaped): (&str, &str)| value.replace(c, escaped);
        let value = escapes.into_iter().fold(value.clone(), escape);
        format!("<oe:Property oe:key=\"{key}\" oe:value=\"{value}\"/>\n")
    };
    let properties: String = properties.iter().map(property).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Environment xmlns=\"http://schemas.dmtf.org/ovf/environment/1\" oe:id=\"\">\n<PropertySection>\n\
         <Property oe:key=\"guestinfo.ignition.config.data\" oe:value=\"{USER_DATA}\"/>\n{properties}</PropertySection>\n\
         <ve:EthernetAdapterSection><ve:Adapter ve:mac=\"00:50:56:01:aa:00\"/></ve:EthernetAdapterSection>\n</Environment>\n"
    )
}

/// Boots the machine with these properties; whether the script succeeds.
fn boots(machine: &Machine, properties: &Properties) -> bool {
    boots_with(machine, &document(properties))
}

fn boots_with(machine: &Machine, document: &str) -> bool {
    machine.put("/ovf.xml", document);
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

/// The golden document of another cloud has neither.
#[test]
fn the_network_waits_for_the_script() {
    let machine = machine(KINDS[0]);
    let unit = machine.read("/etc/systemd/system/osm-ovf-network.service");
    assert!(unit.contains("\nBefore=systemd-networkd.service network-pre.target"));
    let drop_in = machine.read("/etc/systemd/system/systemd-networkd.service.d/10-osm-ovf.conf");
    assert!(drop_in.contains("\nWants=osm-ovf-network.service\nAfter=osm-ovf-network.service\n"));
}

#[test]
fn each_interface_gets_its_addresses_and_the_primary_one_the_default_route() {
    let mut properties = interface(0, Some("198.51.100.7"));
    properties.extend(interface(1, Some("192.0.2.7")));
    properties.extend(interface(2, None));
    let properties = [
        ("vCloud_primaryNic", "1"),
        ("vCloud_numnics", "3"),
        ("vCloud_dns2_1", "2001:db8::2"),
        ("vCloud_suffix_1", "nodes.example"),
    ]
    .into_iter()
    .fold(properties, |all, (key, value)| with(all, key, Some(value)));
    for kind in kinds() {
        let machine = machine(kind);
        assert!(boots(&machine, &properties), "{}", machine.log());
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
        machine.said("interface 0: static address 198.51.100.7/24\n");
        // A file, unlike a console, has only what was written last.
        let console = machine.read("/dev/console");
        assert_eq!(console, "osm-ovf-network: interface 2: DHCP\n");
    }
}

#[test]
fn without_a_static_address_the_image_configures_the_network() {
    let others = vec![("instance-id".to_owned(), "vm-1".to_owned())];
    let one = || interface(0, Some("192.0.2.7"));
    let none = "describes no network interfaces";
    for kind in kinds() {
        let machine = machine(kind);
        machine.runs(SCRIPT);
        machine.said(none);
        for (properties, text) in [
            (others.clone(), none),
            (with(one(), "vCloud_macaddr_0", None), none),
            ([interface(0, None), interface(1, None)].concat(), "nothing to do"),
            // Addresses that VMware Cloud Director keeps for an interface that uses DHCP now.
            (with(one(), "vCloud_bootproto_0", Some("dhcp")), "nothing to do"),
        ] {
            assert!(boots(&machine, &properties), "{}", machine.log());
            assert_eq!(networks(&machine), BTreeMap::new());
            assert_eq!(machine.calls(), "");
            machine.said(text);
        }
    }
}

#[test]
fn every_netmask_has_its_prefix_length_and_no_other_text_is_one() {
    let machine = machine(KINDS[0]);
    let boot = |mask: &str| {
        let properties = with(interface(0, Some("192.0.2.7")), "vCloud_netmask_0", Some(mask));
        boots(&machine, &properties)
    };
    for length in 1..=32_u32 {
        let mask = std::net::Ipv4Addr::from(u32::MAX << (32 - length)).to_string();
        assert!(boot(&mask), "{mask}");
        let text = networks(&machine).remove(&name(0)).unwrap();
        let address = format!("\nAddress=192.0.2.7/{length}\n");
        assert!(text.contains(&address), "{mask}: {text}");
    }
    let before = networks(&machine);
    // The last is empty.
    for mask in "0.0.0.0 255.0.255.0 255.255.255.1 24 255.255.255 255.255.255.256 ".split(' ') {
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
    let addresses = "192.0.2 192.0.2.256 0.0.0.0 127.0.0.1 224.0.0.1 2001:db8::7 192.0.2.07";
    let hardware = "00:50:56:01:aa 00-50-56-01-aa-00 00:50:56:01:aa:0g";
    let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
    let cases = [
        ("vCloud_ip_0", [&words(addresses)[..], &hostile].concat()),
        ("vCloud_macaddr_0", [&words(hardware)[..], &hostile[..3]].concat()),
        ("vCloud_netmask_0", hostile[..3].to_vec()),
    ];
    for kind in kinds() {
        let machine = machine(kind);
        assert!(boots(&machine, &two()), "{}", machine.log());
        let before = networks(&machine);
        for (key, values) in &cases {
            for value in values {
                machine.put("/log", "");
                let configured = boots(&machine, &with(two(), key, Some(value)));
                assert!(!configured, "{key} {value:?}");
                assert_eq!(networks(&machine), before, "{key} {value:?}");
                machine.said(&format!("{key} in the OVF environment is missing or invalid\n"));
                machine.said("interface 0: not configured");
            }
        }
        // The other interface is configured nevertheless.
        fs::remove_dir_all(machine.path(FOLDER)).unwrap();
        assert!(!boots(&machine, &with(two(), "vCloud_ip_0", Some("192.0.2.256"))));
        assert!(networks(&machine).into_keys().eq([name(1)]));
    }
}

#[test]
fn xml_is_read_as_xml() {
    let good = document(&interface(0, Some("192.0.2.7")));
    let fake = "oe:key=\"vCloud_ip_0\" oe:value=\"6.6.6.6\"";
    let quoted = fake.replace('"', "&quot;");
    let (start, end) = ("<PropertySection>", "</PropertySection>");
    // What takes the place of a part of the document.
    let behind_start = [
        format!("<!-- <Property {fake}/> - <Property {fake}/> -->"),
        format!("<![CDATA[ <Property {fake}/> ]]>"),
        format!("<Other {fake}/><PropertyOther {fake}/>"),
        format!("<Property oe:key='note' oe:value='{fake}'/>"),
        format!("<Property oe:key=\"a > b\" oe:value=\"&lt;Property {quoted}\"/>"),
    ];
    let mut variants = behind_start
        .map(|text| (start, start.to_owned() + &text))
        .to_vec();
    // The first one is that of VMware Cloud Director.
    variants.push((end, format!("<Property {fake}/>{end}")));
    // In single quotes, in another order, on several lines, without a prefix, with content.
    let rewritten = "<Property\n\tvalue = '192.0.2.7'\r\n  oe:key='vCloud_ip_0' >\n</Property>";
    let address = "<oe:Property oe:key=\"vCloud_ip_0\" oe:value=\"192.0.2.7\"/>";
    variants.push((address, rewritten.to_owned()));
    for kind in kinds() {
        for (part, other) in &variants {
            let document = good.replace(part, other);
            assert_ne!(document, good);
            let machine = machine(kind);
            assert!(boots_with(&machine, &document), "{document}\n{}", machine.log());
            let text = &networks(&machine)[&name(0)];
            let is_ours = text.contains("\nAddress=192.0.2.7/24\n") && !text.contains("6.6.6.6");
            assert!(is_ours, "{document}\n{text}");
        }
        // A document that breaks off, or is none.
        let machine = machine(kind);
        for end in ["vCloud_macaddr_0\" oe:va", "<oe:Prop", "<?xml"] {
            let cut = &good[..good.find(end).unwrap() + end.len()];
            assert!(boots_with(&machine, cut), "{}", machine.log());
            assert_eq!(networks(&machine), BTreeMap::new());
        }
    }
}

#[test]
fn only_a_change_is_written_and_makes_a_running_networkd_reload() {
    let reload = "systemctl -q is-active systemd-networkd.service\nnetworkctl reload\n";
    for kind in kinds() {
        let machine = machine(kind);
        // As at boot.
        machine.noted("systemctl", "exit 3");
        assert!(boots(&machine, &two()));
        machine.never_called(&["networkctl"]);
        machine.remove("/calls");

        machine.noted("systemctl", "");
        let path = machine.path(&format!("{FOLDER}/{}", name(0)));
        let inode = || fs::metadata(&path).unwrap().ino();
        let written = inode();
        assert!(boots(&machine, &two()));
        assert_eq!((machine.calls(), inode()), (String::new(), written));
        assert!(machine.log().ends_with("nothing to do\n"));

        assert!(boots(&machine, &interface(0, Some("192.0.2.8"))));
        assert_eq!(machine.calls(), reload);
        // The other interface is gone.
        assert!(networks(&machine).into_keys().eq([name(0)]));
        assert!(networks(&machine)[&name(0)].contains("Address=192.0.2.8/24\n"));

        // DHCP from now on. Files of others stay.
        machine.put(&format!("{FOLDER}/05-osm-static.network"), "");
        assert!(boots(&machine, &interface(0, None)));
        assert_eq!(machine.calls(), reload.repeat(2));
        assert!(networks(&machine).into_keys().eq(["05-osm-static.network"]));

        machine.program("networkctl", "echo refused >&2; exit 1");
        assert!(!boots(&machine, &two()));
        assert!(machine.log().ends_with("does not reload: refused \n"));
    }
}

#[test]
fn a_hypervisor_that_does_not_answer_is_asked_again_in_both_ways() {
    for kind in kinds() {
        let machine = machine(kind);
        assert!(boots(&machine, &interface(0, Some("192.0.2.7"))));
        let before = networks(&machine);
        for name in ["vmware-rpctool", "vmtoolsd"] {
            machine.program(name, "echo 'channel is busy' >&2; exit 1");
        }
        machine.fails(SCRIPT);
        assert_eq!(machine.read("/sleeps"), "1\n".repeat(4));
        machine.said("can't read the OVF environment: channel is busy \n");
        assert_eq!(networks(&machine), before);

        fs::remove_dir_all(machine.path(FOLDER)).unwrap();
        let answer = "[ \"$*\" = '--cmd info-get guestinfo.ovfEnv' ] && cat \"$MACHINE/ovf.xml\"";
        machine.program("vmtoolsd", answer);
        machine.runs(SCRIPT);
        assert_eq!(networks(&machine), before);

        machine.program("awk", "echo 'out of memory' >&2; exit 2");
        machine.fails(SCRIPT);
        machine.said("can't understand the OVF environment: out of memory \n");
        assert_eq!(networks(&machine), before);

        // The document has the machine's credentials in it.
        let mut left = ["/run", "/etc", "/var", "/log", "/dev"]
            .map(|path| machine.path(path))
            .to_vec();
        let mut texts = Vec::new();
        while let Some(path) = left.pop() {
            if path.is_dir() {
                left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
        assert!(texts.len() > 5 && !texts.iter().any(|text| text.contains(USER_DATA)));
    }
}
