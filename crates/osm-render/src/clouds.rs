//! The one table of clouds: what differs between them, a row each, so that templates need no conditions on the cloud.

use osm_api::profile::{CloudProvider, OperatingSystem};

use crate::systems::Family;

/// Where a machine finds the name that its node must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeName {
    /// `/etc/machine-name`: the name of the Machine, which is also that of the cloud's instance.
    MachineName,
    /// `local-hostname` of EC2's metadata service, the private DNS name.
    Ec2Metadata,
}

/// The program through which a hypervisor asks a guest for its addresses, freezes its disks and shuts it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestAgent {
    /// Its package, which has the same name in all distributions.
    pub(crate) package: &'static str,
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
    pub(crate) fn unit(self, family: Family) -> &'static str {
        let [of_debian, other] = self.units;
        match family {
            Family::Debian => of_debian,
            Family::RedHat | Family::Flatcar => other,
        }
    }
}

/// What machine-controller, or the cloud's client library, does to user data before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Nothing: it is sent as it is.
    Raw,
    /// Encodes it.
    Base64,
    /// Compresses it, and encodes the result.
    GzipBase64,
}

/// What a cloud's limit on user data counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// What the machine gets to see, compressed or not: the limit is on the content, before base64.
    Content,
    /// What is sent, base64 included.
    Sent,
}

/// How a cloud takes user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserData {
    pub(crate) encoding: Encoding,
    /// The encoding for Flatcar, whose Ignition can't read compressed user data.
    pub(crate) flatcar: Encoding,
    /// Most bytes; none where no limit is documented that a bootstrap document could come near.
    pub(crate) limit: Option<(usize, Counts)>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cloud {
    pub(crate) node_name: NodeName,
    pub(crate) guest_agent: Option<GuestAgent>,
    /// Whether a cloud controller manager can know its machines. Without one, nothing would remove the taint that a kubelet with
    /// `--cloud-provider=external` registers with.
    pub(crate) external: bool,
    /// None where machine-controller creates no machines, so that it never reads the bootstrap Secret.
    pub(crate) user_data: Option<UserData>,
}

/// The row of a cloud. Adding a cloud means a row here, and its name in the profiles that support it.
///
/// How a node's addresses are found does not differ: the one from which the machine reaches others is among those that every
/// cloud controller manager reports.
pub(crate) fn cloud(provider: CloudProvider) -> Cloud {
    use Counts::{Content, Sent};
    use Encoding::{Base64, GzipBase64, Raw};
    use NodeName::{Ec2Metadata, MachineName};
    const KIB: usize = 1024;
    let takes = |encoding, limit| {
        Some(UserData {
            encoding,
            flatcar: encoding,
            limit,
        })
    };
    // The name that machine-controller gives, and nothing to install.
    let usual = Cloud {
        node_name: MachineName,
        guest_agent: None,
        external: true,
        user_data: takes(Base64, None),
    };
    match provider {
        // ECS, "Instance user data": 32 KiB before base64.
        CloudProvider::Alibaba => Cloud {
            user_data: takes(Base64, Some((32 * KIB, Content))),
            ..usual
        },
        // cloud-provider-aws, "Prerequisites": a node's name must be the private DNS name of its instance. EC2 user guide, "Run
        // commands when you launch an EC2 instance": 16 KiB before base64.
        CloudProvider::Aws => Cloud {
            node_name: Ec2Metadata,
            user_data: Some(UserData {
                encoding: GzipBase64,
                flatcar: Base64,
                limit: Some((16 * KIB, Content)),
            }),
            ..usual
        },
        // cloud-provider-azure: the name of the virtual machine. Images bring waagent along. REST reference,
        // `osProfile.customData`: 65,535 bytes before base64.
        CloudProvider::Azure => Cloud {
            user_data: takes(Base64, Some((65_535, Content))),
            ..usual
        },
        // digitalocean-cloud-controller-manager, "Requirements": the droplet's name. API, `user_data`: 64 KiB.
        CloudProvider::Digitalocean => Cloud {
            user_data: takes(Raw, Some((64 * KIB, Content))),
            ..usual
        },
        // The owner of a machine runs a script there; no cloud knows the machine.
        CloudProvider::Edge => Cloud {
            external: false,
            user_data: None,
            ..usual
        },
        // machine-controller creates no machines there.
        CloudProvider::External | CloudProvider::Fake => Cloud {
            user_data: None,
            ..usual
        },
        // cloud-provider-gcp: the name of the virtual machine. Images bring google-guest-agent along. Compute Engine, "About VM
        // metadata": 256 KiB for a value.
        CloudProvider::Gce => Cloud {
            user_data: takes(Raw, Some((256 * KIB, Content))),
            ..usual
        },
        // hcloud-cloud-controller-manager: the server's name. Its images bring qemu-guest-agent along. Cloud API, `user_data`:
        // 32 KiB.
        CloudProvider::Hetzner => Cloud {
            user_data: takes(Raw, Some((32 * KIB, Content))),
            ..usual
        },
        // cloud-provider-kubevirt: the VirtualMachineInstance's name. KubeVirt reads addresses from the agent (user
        // guide, "Guest agent information").
        CloudProvider::Kubevirt => Cloud {
            guest_agent: Some(QEMU),
            user_data: takes(Raw, None),
            ..usual
        },
        // cloud-provider-openstack, "Using openstack-cloud-controller-manager": the server's name. Nova asks the agent to
        // freeze file systems (`hw_qemu_guest_agent`). Nova, "Provide user data to instances": 65,535 bytes of base64, which the
        // client library writes.
        CloudProvider::Openstack => Cloud {
            guest_agent: Some(QEMU),
            user_data: takes(Base64, Some((65_535, Sent))),
            ..usual
        },
        // cloud-provider-vsphere finds machines by UUID and reads their addresses from VMware Tools; so does
        // cloud-provider-for-cloud-director.
        CloudProvider::Vsphere | CloudProvider::VmwareCloudDirector => Cloud {
            guest_agent: Some(OPEN_VM_TOOLS),
            user_data: Some(UserData {
                encoding: Raw,
                flatcar: Base64,
                limit: None,
            }),
            ..usual
        },
        CloudProvider::Equinixmetal | CloudProvider::Packet | CloudProvider::Scaleway => Cloud {
            user_data: takes(Raw, None),
            ..usual
        },
        CloudProvider::Anexia
        | CloudProvider::Baremetal
        | CloudProvider::Linode
        | CloudProvider::Nutanix
        | CloudProvider::Opennebula
        | CloudProvider::Vultr => usual,
    }
}

impl UserData {
    pub(crate) fn encoding(&self, os: OperatingSystem) -> Encoding {
        if os == OperatingSystem::Flatcar {
            self.flatcar
        } else {
            self.encoding
        }
    }
}

/// Whether the cloud, and not machine-controller, names the nodes of its machines.
pub(crate) fn names_machines(provider: CloudProvider) -> bool {
    cloud(provider).node_name == NodeName::Ec2Metadata
}

/// How user data is sent to a cloud; none where machine-controller creates no machines.
pub fn delivery(cloud: CloudProvider, os: OperatingSystem) -> Option<Encoding> {
    Some(self::cloud(cloud).user_data?.encoding(os))
}

#[cfg(test)]
mod tests {
    use osm_api::node_name::{self, Source};
    use strum::IntoEnumIterator;

    use super::*;

    /// Simulations of machine-controller use [`delivery`] too, so that only these rows show a change of it.
    #[test]
    fn user_data_is_sent_as_machine_controller_sends_it() {
        use Encoding::{Base64, GzipBase64, Raw};
        for provider in CloudProvider::iter() {
            let expected = match provider.as_str() {
                "edge" | "external" | "fake" => None,
                "aws" => Some((GzipBase64, Base64)),
                "vmware-cloud-director" | "vsphere" => Some((Raw, Base64)),
                "digitalocean" | "equinixmetal" | "gce" | "hetzner" | "kubevirt" | "packet" | "scaleway" => {
                    Some((Raw, Raw))
                }
                _ => Some((Base64, Base64)),
            };
            let [ubuntu, flatcar] =
                [OperatingSystem::Ubuntu, OperatingSystem::Flatcar].map(|system| delivery(provider, system));
            assert_eq!(ubuntu.zip(flatcar), expected, "{provider}");
        }
    }

    /// csr-approver approves the names of the table in osm-api. A machine must ask for the same name: a test of rendering has documents
    /// with and without one.
    #[test]
    fn a_machine_takes_the_name_that_its_certificate_is_approved_for() {
        for provider in CloudProvider::iter() {
            let source = node_name::source(provider);
            assert_eq!(
                names_machines(provider),
                source == Source::InternalDns,
                "{provider}"
            );
            let has_no_machines = matches!(source, Source::MachineDeployment | Source::Unknown);
            let delivered = delivery(provider, OperatingSystem::Ubuntu);
            assert_eq!(delivered.is_none(), has_no_machines, "{provider}");
        }
    }
}
