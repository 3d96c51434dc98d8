//! What differs between clouds, one row each, so that templates need not tell them apart.

use osm_api::profile::CloudProvider;

use crate::systems::Family;

/// Where a machine finds the name that its node must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeName {
    /// `/etc/machine-name`: the name of the Machine, which is also that of the cloud's instance.
    MachineName,
    /// The instance metadata's `local-hostname`, EC2's private DNS name.
    Ec2Metadata,
}

/// The program through which a hypervisor asks a guest for its addresses, freezes its disks and shuts it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestAgent {
    Qemu,
    OpenVmTools,
}

impl GuestAgent {
    /// Its package, which has the same name in all distributions.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Qemu => "qemu-guest-agent",
            Self::OpenVmTools => "open-vm-tools",
        }
    }

    /// Its unit.
    pub(crate) fn unit(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Qemu, _) => "qemu-guest-agent.service",
            (Self::OpenVmTools, Family::Debian) => "open-vm-tools.service",
            (Self::OpenVmTools, Family::RedHat | Family::Flatcar) => "vmtoolsd.service",
        }
    }
}

/// A cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cloud {
    pub(crate) node_name: NodeName,
    pub(crate) guest_agent: Option<GuestAgent>,
    /// Whether there can be a cloud controller manager that knows its machines. Else nobody would take away the taint
    /// that a kubelet with `--cloud-provider=external` registers with.
    pub(crate) external: bool,
}

/// The row of a cloud.
///
/// User data limits are [elsewhere](crate::size_limit). How a node's addresses are found does not differ: the one from
/// which the machine reaches others is among those that every cloud controller manager reports.
pub(crate) fn cloud(provider: CloudProvider) -> Cloud {
    use GuestAgent::{OpenVmTools, Qemu};
    use NodeName::{Ec2Metadata, MachineName};
    let row = |node_name, guest_agent, external| Cloud { node_name, guest_agent, external };
    match provider {
        // cloud-provider-aws, "Prerequisites": a node's name must be the private DNS name of its instance.
        CloudProvider::Aws => row(Ec2Metadata, None, true),
        // cloud-provider-azure, cloud-provider-gcp: the name of the virtual machine. Images bring waagent and
        // google-guest-agent along.
        CloudProvider::Azure | CloudProvider::Gce => row(MachineName, None, true),
        // digitalocean-cloud-controller-manager, "Requirements": the droplet's name.
        CloudProvider::Digitalocean => row(MachineName, None, true),
        // hcloud-cloud-controller-manager: the server's name. Its images bring qemu-guest-agent along.
        CloudProvider::Hetzner => row(MachineName, None, true),
        // cloud-provider-openstack, "Using openstack-cloud-controller-manager": the server's name. Nova asks the agent to
        // freeze file systems (`hw_qemu_guest_agent`).
        CloudProvider::Openstack => row(MachineName, Some(Qemu), true),
        // cloud-provider-kubevirt: the VirtualMachineInstance's name. KubeVirt reads addresses from the agent (user
        // guide, "Guest agent information").
        CloudProvider::Kubevirt => row(MachineName, Some(Qemu), true),
        // cloud-provider-vsphere finds machines by UUID and reads their addresses from VMware Tools; so does
        // cloud-provider-for-cloud-director.
        CloudProvider::Vsphere | CloudProvider::VmwareCloudDirector => {
            row(MachineName, Some(OpenVmTools), true)
        }
        // Whoever runs the script there has machines of any kind, which no cloud knows.
        CloudProvider::Edge => row(MachineName, None, false),
        // Alibaba, Nutanix, bare metal and all others: machine-controller's name, nothing to install.
        _ => row(MachineName, None, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_on_a_hypervisor_that_asks_gets_an_agent() {
        let agent =
            |provider, family| cloud(provider).guest_agent.map(|agent| (agent.package(), agent.unit(family)));
        let qemu = Some(("qemu-guest-agent", "qemu-guest-agent.service"));
        let cases = [
            (CloudProvider::Aws, Family::Debian, None),
            (CloudProvider::Baremetal, Family::Debian, None),
            (CloudProvider::Openstack, Family::RedHat, qemu),
            (CloudProvider::Kubevirt, Family::Debian, qemu),
            (CloudProvider::Vsphere, Family::Debian, Some(("open-vm-tools", "open-vm-tools.service"))),
            (CloudProvider::VmwareCloudDirector, Family::RedHat, Some(("open-vm-tools", "vmtoolsd.service"))),
        ];
        for (provider, family, expected) in cases {
            assert_eq!(agent(provider, family), expected, "{provider}");
        }
    }
}
