//! Derives the name of a node on each cloud: the only names that a machine of a pool may join with.
//!
//! machine-controller replaces `<MACHINE_NAME>` in the user data with [`Machine::spec_name`], whatever the
//! cloud is: it reads the bootstrap Secret (`pkg/controller/machine/controller.go` at 0231d551:
//! `getOSMBootstrapUserdata(machine.Spec.Name, …)`, then `prov.Create`), and replaces the text in it
//! (`pkg/controller/machine/bootstrap.go` at 6758105a). The bootstrap document writes that name to
//! `/etc/machine-name` and to the host name, and the kubelet takes it as `--hostname-override`. So a cloud's
//! row is [`MachineName`](Source::MachineName) if machine-controller hands user data over to it. On AWS the
//! cloud controller manager requires the private DNS name instead.
//!
//! The list of clouds is that of machine-controller's `sdk/providerconfig/types.go` at 1cf8dbfd.
//!
//! A name that only the machine itself reports never counts.

use std::str::FromStr;

use crate::machine::Machine;
use crate::names::{self, MAX_LABEL};
use crate::profile::CloudProvider;

/// Where the name of a node is recorded before the node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `spec.metadata.name` of the Machine; while that is empty, the Machine's own name.
    MachineName,
    /// The address of type `InternalDNS` in the status of the Machine, which machine-controller reads from
    /// the cloud.
    InternalDns,
    /// The name of the MachineDeployment: the pool has no machines of machine-controller.
    MachineDeployment,
    /// Nothing that the cluster knows.
    Unknown,
}

/// The row of a cloud. The paths are those of machine-controller, below `pkg/cloudprovider/provider/`, at the
/// commit after the `@`.
pub fn source(cloud: CloudProvider) -> Source {
    match cloud {
        // alibaba/provider.go@c4897524: `createInstanceRequest.UserData`.
        CloudProvider::Alibaba
        // anexia/provider.go@838d96eb: `vm.Script`, in base64.
        | CloudProvider::Anexia
        // azure/provider.go@a86a982f: `OsProfile.CustomData`.
        | CloudProvider::Azure
        // baremetal/plugins/tinkerbell/client/workflow.go@141331a1: `cloud_init_script` in the workflow's
        // `HardwareMap`. Before that, a Secret (baremetal at fb5fc904).
        | CloudProvider::Baremetal
        // digitalocean/provider.go@48e4522a: `DropletCreateRequest.UserData`.
        | CloudProvider::Digitalocean
        // equinixmetal/provider.go@3d1687f8: `DeviceCreateRequest.UserData`. `packet` is its former name
        // (pkg/cloudprovider/provider.go@05e7ee5a).
        | CloudProvider::Equinixmetal
        | CloudProvider::Packet
        // gce/provider.go@d3b2ed9e: the instance's metadata `user-data`.
        | CloudProvider::Gce
        // hetzner/provider.go@67e65cfb: `ServerCreateOpts.UserData`.
        | CloudProvider::Hetzner
        // kubevirt/provider.go@e479c572: a Secret with the key `userdata`.
        | CloudProvider::Kubevirt
        // linode/provider.go@523a1397: the parameter `userdata` of the StackScript.
        | CloudProvider::Linode
        // nutanix/client.go@2b93e00a: `GuestCustomization.CloudInit.UserData`.
        | CloudProvider::Nutanix
        // opennebula/provider.go@c92595c9: `USER_DATA` of the context.
        | CloudProvider::Opennebula
        // openstack/provider.go@fa46dca7: `servers.CreateOpts.UserData`.
        | CloudProvider::Openstack
        // scaleway/provider.go@fb5fc904: the server's user data `cloud-init`.
        | CloudProvider::Scaleway
        // vmwareclouddirector/helper.go@672651ef: `guestinfo.ignition.config.data` or `user-data` of the
        // product section.
        | CloudProvider::VmwareCloudDirector
        // vsphere/helper.go@07839cb1: `guestinfo.ignition.config.data`, or an ISO image.
        | CloudProvider::Vsphere
        // vultr/provider.go@7adc5b65: `InstanceCreateReq.UserData`.
        | CloudProvider::Vultr => Source::MachineName,
        // aws/provider.go@523a1397, `awsInstance.Addresses`: EC2's `PrivateDnsName` becomes the address of
        // type InternalDNS. The node takes `local-hostname` of EC2's metadata service. The two differ in a
        // VPC whose DHCP options have another domain name, or none: then no Machine has the name that the
        // node asks for, and the request stays pending.
        CloudProvider::Aws => Source::InternalDns,
        // edge/provider.go@30362bbc: `Create` ignores the user data, and `Get` always finds an instance. The
        // owner of a machine runs a script.
        CloudProvider::Edge => Source::MachineDeployment,
        // external/provider.go@05e7ee5a and fake/provider.go@3d1687f8: `Create` ignores the user data.
        CloudProvider::External | CloudProvider::Fake => Source::Unknown,
    }
}

/// Where the host name of a machine is recorded before its node exists, if the user data sets the host name.
/// Other host names come from a cloud's DHCP or from the owner of a machine, perhaps with a domain, and no
/// table predicts them.
pub fn of_host_name(cloud: CloudProvider) -> Option<Source> {
    Some(source(cloud)).filter(|source| *source == Source::MachineName)
}

/// Whether machines of this cloud, by machine-controller's name of it, join under the name of their
/// MachineDeployment.
pub fn is_of_machine_deployment(cloud: &str) -> bool {
    CloudProvider::from_str(cloud).map(source) == Ok(Source::MachineDeployment)
}

/// What is wrong with the name of a pool whose only node takes that name. The API server shortens the names
/// of Machines itself.
pub fn warning(cloud: CloudProvider, pool: &str) -> Option<String> {
    let excess = pool.len().checked_sub(MAX_LABEL).filter(|excess| *excess > 0)?;
    (source(cloud) == Source::MachineDeployment).then(|| {
        format!(
            "the node of this pool takes the MachineDeployment's name, which has {} characters, but the API server refuses a Node whose label \
             kubernetes.io/hostname has more than {MAX_LABEL}; shorten the name by {excess}",
            pool.len()
        )
    })
}

/// The name that a Machine's node has, as far as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeName {
    /// The name, as the kubelet spells it.
    Known(String),
    /// machine-controller has yet to record it.
    NotRecorded,
    /// Nothing in the cluster proves the name of a node of this cloud. The Machine's own name, as the kubelet
    /// would spell it.
    Unverified(String),
}

/// Whether the cloud may give the name of this Machine's node to another machine, even while the Machine is
/// there.
pub fn is_node_name_reassignable(machine: &Machine) -> bool {
    source_of(machine) == Source::InternalDns
}

/// The row of a Machine's cloud.
fn source_of(machine: &Machine) -> Source {
    let cloud = machine.spec.provider_spec.value.as_ref();
    let cloud = cloud.and_then(|cloud| CloudProvider::from_str(&cloud.cloud_provider).ok());
    cloud.map_or(Source::Unknown, source)
}

impl NodeName {
    /// The name of a Machine's node.
    pub fn of(machine: &Machine) -> Self {
        let own = || kubelet_spelling(machine.spec_name());
        match source_of(machine) {
            Source::MachineName => own().map_or(Self::NotRecorded, Self::Known),
            Source::InternalDns => internal_dns(machine).map_or(Self::NotRecorded, Self::Known),
            Source::MachineDeployment | Source::Unknown => own().map_or(Self::NotRecorded, Self::Unverified),
        }
    }
}

/// The only address of type `InternalDNS`.
fn internal_dns(machine: &Machine) -> Option<String> {
    let addresses = machine.status.iter().flat_map(|status| &status.addresses);
    let mut names = addresses.filter(|address| address.type_ == "InternalDNS");
    match (names.next(), names.next()) {
        (Some(only), None) => kubelet_spelling(&only.address),
        _ => None,
    }
}

/// A name as the kubelet turns it into the name of its Node: trimmed, and in lower case (Kubernetes,
/// `pkg/util/node/node.go`: `GetHostname`). `None`: the API server takes no Node of that name
/// (`pkg/apis/core/validation/validation.go`: `ValidateNodeName`).
pub fn kubelet_spelling(name: &str) -> Option<String> {
    let name = name.trim().to_lowercase();
    names::is_dns_subdomain(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use strum::IntoEnumIterator;

    use super::*;

    fn machine(cloud: &str, name: &str, addresses: serde_json::Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"metadata": {"name": name, "creationTimestamp": null},
                "providerSpec": {"value": {"cloudProvider": cloud, "cloudProviderSpec": {"token": "secret"}}}},
            "status": {"addresses": addresses},
        }))
        .unwrap()
    }

    #[test]
    fn every_cloud_has_the_name_that_its_row_gives() {
        let addresses = json!([
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalDNS", "address": "Ip-10-0-0-1.ec2.internal"},
            {"type": "ExternalDNS", "address": "ec2-1.example.com"}, {"type": "Hostname", "address": "other"},
        ]);
        // A MachineSet's Machines are created without a name of the node. Then that of the Machine counts.
        for (given, own) in [("Pool-1a-b ", "pool-1a-b"), ("", "m")] {
            for cloud in CloudProvider::iter() {
                let name = NodeName::of(&machine(cloud.as_str(), given, addresses.clone()));
                let mut host_name = None;
                let expected = match cloud {
                    CloudProvider::Aws => NodeName::Known("ip-10-0-0-1.ec2.internal".to_owned()),
                    CloudProvider::Edge | CloudProvider::External | CloudProvider::Fake => {
                        NodeName::Unverified(own.to_owned())
                    }
                    _ => {
                        host_name = Some(Source::MachineName);
                        NodeName::Known(own.to_owned())
                    }
                };
                assert_eq!((name, of_host_name(cloud)), (expected, host_name), "{cloud}");
                let is_edge = cloud == CloudProvider::Edge;
                assert_eq!(is_of_machine_deployment(cloud.as_str()), is_edge, "{cloud}");
            }
            let unknown = NodeName::of(&machine("newcloud", given, json!([])));
            assert_eq!(unknown, NodeName::Unverified(own.to_owned()));
        }
    }

    #[test]
    fn a_pool_whose_node_takes_its_name_has_a_short_one() {
        for cloud in CloudProvider::iter() {
            assert_eq!(warning(cloud, &"p".repeat(63)), None);
            let found = warning(cloud, &"p".repeat(70));
            assert_eq!(found.is_some(), cloud == CloudProvider::Edge, "{cloud}");
            assert!(found.is_none_or(|text| text.ends_with("shorten the name by 7")));
        }
    }

    /// Specs and addresses hold any text, and the name stands in the path of a request.
    #[test]
    fn a_name_that_no_node_can_have_is_no_name() {
        let longest = "a".repeat(names::MAX_NAME);
        let longer = format!("{longest}a");
        let good = [("a.b-1", "a.b-1"), (" Pool-1 ", "pool-1"), (&longest, &longest)];
        let good = good.map(|(name, expected)| (name, Some(expected)));
        let bad = "odd/../existing|..|.|a/b|a?b|a#b|a%2fb|a b|a_b|-a|a..b|ü".split('|');
        let bad = bad.chain([longer.as_str()]).map(|name| (name, None));
        for (name, expected) in good.into_iter().chain(bad) {
            assert_eq!(kubelet_spelling(name).as_deref(), expected, "{name}");
            let known = expected.map_or(NodeName::NotRecorded, |name| NodeName::Known(name.to_owned()));
            let on_hetzner = NodeName::of(&machine("hetzner", name, json!([])));
            assert_eq!(on_hetzner, known, "{name}");
            let address = json!([{"type": "InternalDNS", "address": name}]);
            assert_eq!(NodeName::of(&machine("aws", "a", address)), known, "{name}");
        }
    }

    #[test]
    fn a_name_that_is_not_recorded_or_not_unique_is_no_name() {
        let two = json!([{"type": "InternalDNS", "address": "a"}, {"type": "InternalDNS", "address": "b"}]);
        for (cloud, name, addresses) in [
            ("aws", "a", json!([])),
            ("aws", "", json!([])),
            ("aws", "a", two),
            ("aws", "a", json!([{"type": "Hostname", "address": "a"}])),
            ("aws", "a", json!([{"type": "InternalDNS", "address": ""}])),
            ("hetzner", " ", json!([{"type": "InternalDNS", "address": "a"}])),
        ] {
            let found = NodeName::of(&machine(cloud, name, addresses.clone()));
            assert_eq!(found, NodeName::NotRecorded, "{cloud} {name} {addresses}");
        }
        for (metadata, expected) in [
            (json!({}), NodeName::NotRecorded),
            (json!({"name": "m"}), NodeName::Unverified("m".to_owned())),
        ] {
            let bare = json!({"metadata": metadata, "spec": {"providerSpec": {"value": null}}});
            let bare: Machine = serde_json::from_value(bare).unwrap();
            assert_eq!(NodeName::of(&bare), expected);
        }
    }
}
