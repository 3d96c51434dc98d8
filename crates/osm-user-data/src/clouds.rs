//! The one table of clouds: what differs between them, a row each, so that templates need no conditions on
//! the cloud.

use osm_api::profile::{CloudProvider, OperatingSystem};

use crate::size::{Counted, SizeLimit};
use crate::systems::Family;

/// Where a machine finds the name that its node must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeName {
    /// `/etc/machine-name`: the name of the Machine, which is also that of the cloud's instance.
    MachineName,
    /// `local-hostname` of EC2's metadata service, the private DNS name.
    Ec2Metadata,
}

/// The program through which a hypervisor asks a guest for its addresses, freezes its disks and shuts it
/// down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestAgent {
    /// Its package, which has the same name in all distributions.
    pub package: &'static str,
    /// Its unit in Debian's distributions, and in all others.
    units: [&'static str; 2],
}

const QEMU: GuestAgent = GuestAgent {
    package: "qemu-guest-agent",
    units: ["qemu-guest-agent.service"; 2],
};

const OPEN_VM_TOOLS: GuestAgent = GuestAgent {
    package: "open-vm-tools",
    units: ["open-vm-tools.service", "vmtoolsd.service"],
};

impl GuestAgent {
    pub fn unit(self, family: Family) -> &'static str {
        let [of_debian, other] = self.units;
        match family {
            Family::Debian => of_debian,
            Family::RedHat | Family::Flatcar => other,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cloud {
    pub node_name: NodeName,
    pub guest_agent: Option<GuestAgent>,
    /// Whether a cloud controller manager can know its machines. Without one, nothing would remove the taint
    /// that a kubelet with `--cloud-provider=external` registers with.
    pub external: bool,
    /// For the bootstrap document; none where no limit is documented that it could come near.
    pub limit: Option<SizeLimit>,
}

/// The row of a cloud. Adding a cloud means a row here, and its name in the profiles that support it.
///
/// How a node's addresses are found does not differ: the one from which the machine reaches others is among
/// those that every cloud controller manager reports.
pub fn cloud(provider: CloudProvider) -> Cloud {
    use Counted::{Base64, Gzip, Raw};
    use NodeName::{Ec2Metadata, MachineName};
    const KIB: usize = 1024;
    let limit = |bytes, counted| Some(SizeLimit { bytes, counted });
    // The name that machine-controller gives, and nothing to install.
    let usual = Cloud {
        node_name: MachineName,
        guest_agent: None,
        external: true,
        limit: None,
    };
    match provider {
        // ECS, "Instance user data": 32 KiB before base64.
        CloudProvider::Alibaba => Cloud {
            limit: limit(32 * KIB, Raw),
            ..usual
        },
        // cloud-provider-aws, "Prerequisites": a node's name must be the private DNS name of its instance.
        // EC2 user guide, "Run commands when you launch an EC2 instance": 16 KiB before base64.
        // machine-controller compresses the document.
        CloudProvider::Aws => Cloud {
            node_name: Ec2Metadata,
            limit: limit(16 * KIB, Gzip),
            ..usual
        },
        // cloud-provider-azure: the name of the virtual machine. Images bring waagent along. REST reference,
        // `osProfile.customData`: 65,535 bytes before base64.
        CloudProvider::Azure => Cloud {
            limit: limit(65_535, Raw),
            ..usual
        },
        // digitalocean-cloud-controller-manager, "Requirements": the droplet's name. API, `user_data`: 64
        // KiB.
        CloudProvider::Digitalocean => Cloud {
            limit: limit(64 * KIB, Raw),
            ..usual
        },
        // The owner of a machine runs a script there; no cloud knows the machine.
        CloudProvider::Edge => Cloud {
            external: false,
            ..usual
        },
        // cloud-provider-gcp: the name of the virtual machine. Images bring google-guest-agent along. Compute
        // Engine, "About VM metadata": 256 KiB for a value.
        CloudProvider::Gce => Cloud {
            limit: limit(256 * KIB, Raw),
            ..usual
        },
        // hcloud-cloud-controller-manager: the server's name. Its images bring qemu-guest-agent along. Cloud
        // API, `user_data`: 32 KiB.
        CloudProvider::Hetzner => Cloud {
            limit: limit(32 * KIB, Raw),
            ..usual
        },
        // cloud-provider-kubevirt: the VirtualMachineInstance's name. KubeVirt reads addresses from the agent
        // (user guide, "Guest agent information").
        CloudProvider::Kubevirt => Cloud {
            guest_agent: Some(QEMU),
            ..usual
        },
        // cloud-provider-openstack, "Using openstack-cloud-controller-manager": the server's name. Nova asks
        // the agent to freeze file systems (`hw_qemu_guest_agent`). Nova, "Provide user data to instances":
        // 65,535 bytes of base64, which the client library writes.
        CloudProvider::Openstack => Cloud {
            guest_agent: Some(QEMU),
            limit: limit(65_535, Base64),
            ..usual
        },
        // cloud-provider-vsphere finds machines by UUID and reads their addresses from VMware Tools; so does
        // cloud-provider-for-cloud-director.
        CloudProvider::Vsphere | CloudProvider::VmwareCloudDirector => Cloud {
            guest_agent: Some(OPEN_VM_TOOLS),
            ..usual
        },
        CloudProvider::Anexia
        | CloudProvider::Baremetal
        | CloudProvider::Equinixmetal
        | CloudProvider::External
        | CloudProvider::Fake
        | CloudProvider::Linode
        | CloudProvider::Nutanix
        | CloudProvider::Opennebula
        | CloudProvider::Packet
        | CloudProvider::Scaleway
        | CloudProvider::Vultr => usual,
    }
}

/// Whether the cloud, and not machine-controller, names the nodes of its machines.
pub(crate) fn names_machines(provider: CloudProvider) -> bool {
    cloud(provider).node_name == NodeName::Ec2Metadata
}

/// The limit of a cloud for bootstrap documents; `None` where no limit is documented that a bootstrap
/// document could come near.
pub fn size_limit(provider: CloudProvider, os: OperatingSystem) -> Option<SizeLimit> {
    let SizeLimit { bytes, mut counted } = cloud(provider).limit?;
    // Its Ignition can't read compressed user data, so machine-controller does not compress it.
    if os == OperatingSystem::Flatcar && counted == Counted::Gzip {
        counted = Counted::Raw;
    }
    Some(SizeLimit { bytes, counted })
}

/// The limit of a cloud in bytes, whatever it counts. It is the same for every operating system.
pub fn limit_bytes(provider: CloudProvider) -> Option<usize> {
    Some(cloud(provider).limit?.bytes)
}

#[cfg(test)]
mod tests {
    use osm_api::node_name::{self, Source};
    use strum::IntoEnumIterator;

    use super::*;

    /// csr-approver approves the names of the table in osm-api. A machine must ask for the same name: a test
    /// of rendering has documents with and without one.
    #[test]
    fn a_machine_takes_the_name_that_its_certificate_is_approved_for() {
        for provider in CloudProvider::iter() {
            let source = node_name::source(provider);
            let expected = source == Source::InternalDns;
            assert_eq!(names_machines(provider), expected, "{provider}");
        }
    }
}
