//! How the name of a node comes about on each cloud: the only names that a machine of a pool may join with.
//!
//! machine-controller replaces `<MACHINE_NAME>` in the user data with `spec.metadata.name` of the Machine, whatever the cloud is
//! (`pkg/controller/machine/controller.go`: `getOSMBootstrapUserdata(machine.Spec.Name, …)`). The bootstrap document writes that name to
//! `/etc/machine-name` and to the host name, and the kubelet takes it as `--hostname-override`. So a cloud's row is
//! [`MachineName`](Source::MachineName) if machine-controller hands user data over to it. On AWS the cloud controller manager requires
//! the private DNS name instead.
//!
//! A name that only the machine itself reports never counts.

use std::str::FromStr;

use crate::machine::Machine;
use crate::profile::CloudProvider;

/// Where the name of a node is recorded before the node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `spec.metadata.name` of the Machine.
    MachineName,
    /// The address of type `InternalDNS` in the status of the Machine, which machine-controller reads from the cloud.
    InternalDns,
    /// The name of the MachineDeployment: the pool has no machines of machine-controller.
    MachineDeployment,
    /// Nothing that the cluster knows.
    Unknown,
}

/// The row of a cloud. The paths are those of machine-controller, below `pkg/cloudprovider/provider/`.
pub fn source(cloud: CloudProvider) -> Source {
    match cloud {
        // alibaba/provider.go: `createInstanceRequest.UserData`.
        CloudProvider::Alibaba
        // anexia/provider.go: `vm.UserData` of the provisioning request.
        | CloudProvider::Anexia
        // azure/provider.go: `OsProfile.CustomData`.
        | CloudProvider::Azure
        // baremetal/plugins/tinkerbell/client/workflow.go: a value of the workflow's template.
        | CloudProvider::Baremetal
        // digitalocean/provider.go: `DropletCreateRequest.UserData`.
        | CloudProvider::Digitalocean
        // equinixmetal/provider.go: `DeviceCreateRequest.UserData`. `packet` is its former name.
        | CloudProvider::Equinixmetal
        | CloudProvider::Packet
        // gce/provider.go: the instance's metadata `user-data`.
        | CloudProvider::Gce
        // hetzner/provider.go: `ServerCreateOpts.UserData`.
        | CloudProvider::Hetzner
        // kubevirt/provider.go: a Secret with the key `userdata`.
        | CloudProvider::Kubevirt
        // linode/provider.go: the parameter `userdata` of the StackScript.
        | CloudProvider::Linode
        // nutanix/client.go: `GuestCustomization.CloudInit.UserData`.
        | CloudProvider::Nutanix
        // opennebula/provider.go: `USER_DATA` of the context.
        | CloudProvider::Opennebula
        // openstack/provider.go: `servers.CreateOpts.UserData`.
        | CloudProvider::Openstack
        // scaleway/provider.go: the server's user data `cloud-init`.
        | CloudProvider::Scaleway
        // vmwareclouddirector/provider.go: `guestinfo.ignition.config.data` or `user-data` of the product section.
        | CloudProvider::VmwareCloudDirector
        // vsphere/provider.go: `guestinfo.ignition.config.data`, or an ISO image.
        | CloudProvider::Vsphere
        // vultr/provider.go: `InstanceCreateReq.UserData`.
        | CloudProvider::Vultr => Source::MachineName,
        // aws/provider.go, `awsInstance.Addresses`: EC2's `PrivateDnsName` becomes the address of type InternalDNS. The node asks EC2's
        // metadata service for the same name.
        CloudProvider::Aws => Source::InternalDns,
        // edge/provider.go: `Create` does nothing. The owner of a machine runs a script.
        CloudProvider::Edge => Source::MachineDeployment,
        // external/provider.go and fake/provider.go: `Create` ignores the user data.
        CloudProvider::External | CloudProvider::Fake => Source::Unknown,
    }
}

/// Where the host name of a machine is recorded before its node exists, if the user data sets the host name. Other host names come from
/// a cloud's DHCP or from the owner of a machine, perhaps with a domain, and no table predicts them.
pub fn of_host_name(cloud: CloudProvider) -> Option<Source> {
    Some(source(cloud)).filter(|source| *source == Source::MachineName)
}

/// Whether machines of this cloud, by machine-controller's name of it, join under the name of their MachineDeployment.
pub fn is_of_machine_deployment(cloud: &str) -> bool {
    CloudProvider::from_str(cloud).map(source) == Ok(Source::MachineDeployment)
}

/// The name that a Machine's node has, as far as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeName {
    /// The name, as the kubelet spells it.
    Known(String),
    /// machine-controller has yet to record it.
    NotRecorded,
    /// Nothing in the cluster proves the name of a node of this cloud. The Machine's own name, as the kubelet would spell it.
    Unproven(String),
}

/// Whether the cloud may give the name of this Machine's node to another machine, even while the Machine is there.
pub fn may_pass_on(machine: &Machine) -> bool {
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
        let own = || kubelet_spelling(&machine.spec.metadata.name);
        match source_of(machine) {
            Source::MachineName => own().map_or(Self::NotRecorded, Self::Known),
            Source::InternalDns => internal_dns(machine).map_or(Self::NotRecorded, Self::Known),
            Source::MachineDeployment | Source::Unknown => own().map_or(Self::NotRecorded, Self::Unproven),
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

/// A name as the kubelet turns it into the name of its Node: trimmed, in lower case, and not empty (Kubernetes,
/// `pkg/util/node/node.go`: `GetHostname`).
pub fn kubelet_spelling(name: &str) -> Option<String> {
    let name = name.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
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
        for cloud in CloudProvider::iter() {
            let name = NodeName::of(&machine(cloud.as_str(), "Pool-1a-b ", addresses.clone()));
            let expected = match cloud {
                CloudProvider::Aws => NodeName::Known("ip-10-0-0-1.ec2.internal".to_owned()),
                CloudProvider::Edge | CloudProvider::External | CloudProvider::Fake => {
                    NodeName::Unproven("pool-1a-b".to_owned())
                }
                _ => NodeName::Known("pool-1a-b".to_owned()),
            };
            assert_eq!(name, expected, "{cloud}");
            let predicted = !matches!(
                cloud,
                CloudProvider::Aws | CloudProvider::Edge | CloudProvider::External | CloudProvider::Fake
            );
            assert_eq!(
                of_host_name(cloud),
                predicted.then_some(Source::MachineName),
                "{cloud}"
            );
            let is_edge = cloud == CloudProvider::Edge;
            assert_eq!(is_of_machine_deployment(cloud.as_str()), is_edge, "{cloud}");
        }
        let unknown = NodeName::of(&machine("newcloud", "a", json!([])));
        assert_eq!(unknown, NodeName::Unproven("a".to_owned()));
    }

    #[test]
    fn a_name_that_is_not_recorded_or_not_unique_is_no_name() {
        let two = json!([{"type": "InternalDNS", "address": "a"}, {"type": "InternalDNS", "address": "b"}]);
        for (cloud, name, addresses) in [
            ("aws", "a", json!([])),
            ("aws", "a", two),
            ("aws", "a", json!([{"type": "Hostname", "address": "a"}])),
            ("aws", "a", json!([{"type": "InternalDNS", "address": ""}])),
            ("hetzner", " ", json!([{"type": "InternalDNS", "address": "a"}])),
        ] {
            let found = NodeName::of(&machine(cloud, name, addresses.clone()));
            assert_eq!(found, NodeName::NotRecorded, "{cloud} {name} {addresses}");
        }
        let bare: Machine = serde_json::from_value(
            json!({"metadata": {"name": "m"}, "spec": {"providerSpec": {"value": null}}}),
        )
        .unwrap();
        assert_eq!(NodeName::of(&bare), NodeName::NotRecorded);
    }
}
