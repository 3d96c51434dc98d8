//! `system`: the operating system of nodes: swap, kernel parameters, kernel modules and time servers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::kubelet::KubeletDefaults;
use super::validation::{Problems, is_host_name};
use crate::profile::SysctlValue;
use crate::system_names::{IN_KERNEL_MODULES, IN_SYSCTLS, check_name, check_sysctl_value, dotted};

/// The largest swap file, in MiB: 1 TiB. More is a mistake in the unit.
const MAX_SWAP_MEBIBYTES: u32 = 1024 * 1024;

/// Kernel parameters without which a node does not become Ready or its pods have no network, and their only
/// value. `library/sysctl.conf` of osm-render sets them; a test compares both. The kubelet exits if some of
/// them differ, because of `protectKernelDefaults`.
pub const REQUIRED_SYSCTLS: [(&str, &str); 12] = [
    ("kernel.keys.root_maxbytes", "25000000"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    // Another name for net.ipv4.ip_forward.
    ("net.ipv4.conf.all.forwarding", "1"),
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.ipv6.conf.default.accept_ra", "2"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
];

/// The operating system of nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct System {
    /// Swap. By default, nodes turn it off.
    pub swap: Option<Swap>,
    /// Kernel parameters, such as `vm.max_map_count: 262144`.
    #[schemars(schema_with = "sysctls")]
    pub sysctls: BTreeMap<String, SysctlValue>,
    /// Kernel modules to load, now and at every boot.
    pub kernel_modules: Vec<String>,
    /// Time servers. The default is those of the image.
    pub ntp_servers: Vec<String>,
}

/// Swap of nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Swap {
    /// How much swap containers may use.
    pub behavior: SwapBehavior,
    /// Size of a swap file, in MiB or GiB, such as `2Gi`. By default, nodes use only the swap of their image.
    #[schemars(regex(pattern = "^[1-9][0-9]{0,6}(Mi|Gi)$"))]
    pub size: Option<String>,
}

/// `swapBehavior` of the kubelet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SwapBehavior {
    #[default]
    LimitedSwap,
    NoSwap,
}

impl Swap {
    /// Size of the swap file in MiB.
    pub fn mebibytes(&self) -> Option<u32> {
        let size = self.size.as_deref()?;
        let (number, factor) = match (size.strip_suffix("Mi"), size.strip_suffix("Gi")) {
            (Some(number), _) => (number, 1),
            (_, Some(number)) => (number, 1024),
            _ => return None,
        };
        let digits =
            number.starts_with(|c| matches!(c, '1'..='9')) && number.chars().all(|c| c.is_ascii_digit());
        let mebibytes = number.parse::<u32>().ok()?.checked_mul(factor)?;
        Some(mebibytes).filter(|size| digits && *size <= MAX_SWAP_MEBIBYTES)
    }
}

impl System {
    pub(super) fn validate(&self, kubelet: &KubeletDefaults, problems: &mut Problems) {
        if let Some(swap) = &self.swap {
            let ok = swap.size.is_none() || swap.mebibytes().is_some();
            let rule = "must be a size such as 512Mi or 2Gi, at most 1024Gi";
            problems.check("system.swap.size", ok, rule);
            self.validate_swap_of_kubelet(kubelet, problems);
        }
        for (name, value) in &self.sysctls {
            let path = format!("system.sysctls.{name}");
            if let Err(rule) = check_name(name, IN_SYSCTLS) {
                // A value may have slipped into the name.
                problems.add(
                    "system.sysctls",
                    Err(format!("the name of a kernel parameter {rule}")),
                );
                continue;
            }
            let value = value.to_string();
            problems.add(&path, check_sysctl_value(&value));
            problems.check(&path, !value.contains('{'), "must not contain an opening brace");
            let dotted = dotted(name);
            let required = REQUIRED_SYSCTLS.iter().find(|(name, _)| *name == dotted);
            if let Some((_, required)) = required {
                let rule =
                    format!("must be {required}, because every node needs this value; remove the parameter");
                problems.check(&path, value.trim() == *required, &rule);
            }
        }
        for (i, module) in self.kernel_modules.iter().enumerate() {
            let place = format!("system.kernelModules[{i}]");
            problems.add(place, check_name(module, IN_KERNEL_MODULES));
        }
        for (i, server) in self.ntp_servers.iter().enumerate() {
            let ok = is_host_name(server) || server.parse::<IpAddr>().is_ok();
            let rule = "must be the name of a host, or an address";
            problems.check(format!("system.ntpServers[{i}]"), ok, rule);
            // cloud-init calls a list with an item twice invalid.
            let is_new = self.ntp_servers.iter().take(i).all(|other| other != server);
            let path = format!("system.ntpServers[{i}]");
            problems.check(path, is_new, "is listed twice; remove one of them");
        }
    }

    /// The kubelet exits if it finds swap that its configuration forbids.
    fn validate_swap_of_kubelet(&self, kubelet: &KubeletDefaults, problems: &mut Problems) {
        let configured = |pointer: &str| {
            let configuration = kubelet.configuration.as_ref()?;
            let mut fields = pointer.split('.');
            let first = configuration.get(fields.next()?)?;
            fields.try_fold(first, |value, field| value.get(field))?.as_bool()
        };
        let rule = |field: &str| format!("contradicts {field}; remove one of them");
        problems.check(
            "system.swap",
            configured("failSwapOn") != Some(true),
            &rule("kubelet.configuration.failSwapOn"),
        );
        problems.check(
            "system.swap",
            kubelet.feature_gates.get("NodeSwap") != Some(&false)
                && configured("featureGates.NodeSwap") != Some(false),
            &rule("the feature gate NodeSwap of the kubelet"),
        );
    }
}

fn sysctls(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "additionalProperties": {"type": ["integer", "string"]}, "default": {}})
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    #[test]
    fn what_nodes_can_be_given_is_read() {
        let settings = Settings::parse(
            "system:\n  swap: {size: 2Gi}\n  sysctls: {vm.max_map_count: 262144, net/ipv4/conf/eth0.1/rp_filter: '2', kernel.panic: 10}\n  \
             kernelModules: [nf_conntrack]\n  ntpServers: [time.example, 192.0.2.1, 'fd00::1']\n",
        )
        .unwrap();
        let swap = settings.system.swap.unwrap();
        let expected = (Some(2048), super::SwapBehavior::LimitedSwap);
        assert_eq!((swap.mebibytes(), swap.behavior), expected);
        let swap = Settings::parse("system: {swap: {}}")
            .unwrap()
            .system
            .swap
            .unwrap();
        assert_eq!(swap.mebibytes(), None);
        assert_eq!(Settings::default().system.swap, None);
        for (size, mebibytes) in [("1024Gi", 1024 * 1024), ("1Mi", 1), ("1048576Mi", 1024 * 1024)] {
            let text = format!("system: {{swap: {{size: {size}}}}}");
            let swap = Settings::parse(&text).unwrap().system.swap.unwrap();
            assert_eq!(swap.mebibytes(), Some(mebibytes));
        }
    }
}
