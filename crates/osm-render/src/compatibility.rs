//! What works with what, and how that is tested. docs/compatibility.md shows these tables.
//!
//! The clouds are those of the default profiles, and the kubelets those that templates are tested with. The rest is in the rows here.

use osm_api::names;
use osm_api::profile::{CloudProvider, OperatingSystem, OperatingSystemProfileSpec};
use strum::IntoEnumIterator;

use crate::defaults::defaults;
use crate::kubelet::TESTED_MINORS;

/// Oldest minor version of Kubernetes 1 for a cluster that holds only profiles, configs and settings. The chart has the same limit.
pub const MANAGEMENT_CLUSTER_MINOR: u64 = 29;

/// Minor version of the API server in `cargo xtask e2e`.
pub const API_SERVER_MINOR: u64 = 34;

/// How a combination is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tested {
    /// The programs that read the documents accept them.
    Validated,
    /// In addition, a program of the operating system has applied the documents to a file system.
    Applied,
    /// In addition, a machine has booted with the documents.
    Booted,
}

impl Tested {
    const ALL: [Self; 3] = [Self::Validated, Self::Applied, Self::Booted];

    fn as_str(self) -> &'static str {
        match self {
            Self::Validated => "validated",
            Self::Applied => "applied",
            Self::Booted => "booted",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Validated => {
                "The programs that read the documents accept them, such as cloud-init and the kubelet."
            }
            Self::Applied => {
                "Validated. In addition, Ignition or coreos-cloudinit applied the documents to a file system."
            }
            Self::Booted => "Validated. In addition, a machine booted, joined a cluster and ran a pod.",
        }
    }
}

#[derive(Clone, Debug)]
pub struct SystemRow {
    pub profile: String,
    /// Operating system, as in manifests.
    pub operating_system: OperatingSystem,
    /// Its name for people.
    pub title: &'static str,
    pub versions: &'static str,
    pub remark: &'static str,
    /// Cloud providers of the profile.
    pub clouds: Vec<CloudCell>,
}

/// A cloud provider of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloudCell {
    /// Name, as in manifests.
    pub name: CloudProvider,
    /// How both together are tested.
    pub tested: Tested,
}

/// A minor version of the kubelet.
#[derive(Clone, Debug)]
pub struct KubeletRow {
    /// Such as `1.34`.
    pub minor: String,
    pub tested: Tested,
}

/// A cluster, by what it holds.
#[derive(Clone, Debug)]
pub struct ClusterRow {
    pub cluster: &'static str,
    pub kubernetes: String,
    pub tested: String,
}

/// Versions of machine-controller.
#[derive(Clone, Debug)]
pub struct MachineControllerRow {
    pub versions: &'static str,
    /// Operating systems that they accept in a Machine.
    pub operating_systems: &'static [OperatingSystem],
    pub tested: &'static str,
}

#[derive(Clone, Debug)]
pub struct Compatibility {
    /// Default profiles and their clouds.
    pub operating_systems: Vec<SystemRow>,
    pub kubelets: Vec<KubeletRow>,
    pub clusters: Vec<ClusterRow>,
    /// Versions of machine-controller, the newest first.
    pub machine_controllers: Vec<MachineControllerRow>,
}

/// A table for people.
#[derive(Clone, Debug)]
pub struct Table {
    pub title: &'static str,
    /// What one must know to read it.
    pub note: &'static str,
    pub head: Vec<&'static str>,
    /// Cells, as many in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// What a default profile is for. The first line of its manifest names the same versions.
struct System {
    profile: &'static str,
    title: &'static str,
    versions: &'static str,
    remark: &'static str,
    /// Clouds of the machines that `cargo xtask e2e node` boots with it.
    booted: &'static [CloudProvider],
    /// Clouds for which a test of osm-render applies its documents.
    applied: &'static [CloudProvider],
}

const SYSTEMS: [System; 7] = [
    System {
        profile: "osp-ubuntu",
        title: "Ubuntu",
        versions: "22.04, 24.04 and 26.04",
        remark: "The machines that booted ran Debian 12 and 13 images.",
        booted: &[CloudProvider::Aws, CloudProvider::Openstack],
        applied: &[],
    },
    System {
        profile: "osp-flatcar",
        title: "Flatcar Container Linux",
        versions: "4459.2.3 or newer",
        remark: "Older images do not have containerd 2. Debian with Ignition ran the documents.",
        booted: &[],
        applied: &[CloudProvider::Vsphere],
    },
    System {
        profile: "osp-flatcar-cloud-init",
        title: "Flatcar Container Linux",
        versions: "4459.2.3 or newer",
        remark: "The pool sets provisioningUtility: cloud-init.",
        booted: &[],
        applied: &[CloudProvider::Anexia],
    },
    System {
        profile: "osp-rhel",
        title: "Red Hat Enterprise Linux",
        versions: "8, 9 and 10",
        remark: "No subscription was used in a test.",
        booted: &[],
        applied: &[],
    },
    System {
        profile: "osp-rockylinux",
        title: "Rocky Linux",
        versions: "8, 9 and 10",
        remark: "",
        booted: &[],
        applied: &[],
    },
    System {
        profile: "osp-centos",
        title: "CentOS Stream",
        versions: "9 and 10",
        remark: "Newer versions of machine-controller refuse the name centos.",
        booted: &[],
        applied: &[],
    },
    System {
        profile: "osp-amzn2",
        title: "Amazon Linux",
        versions: "2",
        remark: "It is past its end of support. Newer kubelets may need a newer glibc.",
        booted: &[],
        applied: &[],
    },
];

/// machine-controller's list is `AllOperatingSystems` in `sdk/providerconfig/types.go` at 1cf8dbfd. Pull request 1876 removed `centos` from it
/// in November 2024, and asked for the same in release 1.60.
const MACHINE_CONTROLLERS: [MachineControllerRow; 3] = [
    MachineControllerRow {
        versions: "1.62 or newer",
        operating_systems: &[
            OperatingSystem::Amzn2,
            OperatingSystem::Flatcar,
            OperatingSystem::Rhel,
            OperatingSystem::RockyLinux,
            OperatingSystem::Ubuntu,
        ],
        tested: "The tests contain a simulation that follows its code.",
    },
    MachineControllerRow {
        versions: "1.60 and 1.61",
        operating_systems: &[
            OperatingSystem::Amzn2,
            OperatingSystem::Flatcar,
            OperatingSystem::Rhel,
            OperatingSystem::RockyLinux,
            OperatingSystem::Ubuntu,
        ],
        tested: "Not tested. Some of these releases may still accept centos.",
    },
    MachineControllerRow {
        versions: "1.57 to 1.59",
        operating_systems: &[
            OperatingSystem::Amzn2,
            OperatingSystem::CentOs,
            OperatingSystem::Flatcar,
            OperatingSystem::Rhel,
            OperatingSystem::RockyLinux,
            OperatingSystem::Ubuntu,
        ],
        tested: "Not tested. The list is from its documentation.",
    },
];

pub fn compatibility() -> Compatibility {
    let (oldest, newest) = TESTED_MINORS;
    let specs = defaults();
    let operating_systems = SYSTEMS.iter().filter_map(|system| {
        let (profile, spec) = specs.iter().find(|(name, _)| name == system.profile)?;
        Some(SystemRow {
            profile: profile.clone(),
            operating_system: spec.os_name,
            title: system.title,
            versions: system.versions,
            remark: system.remark,
            clouds: clouds(system, spec),
        })
    });
    let kubelets = (oldest..=newest).map(|minor| KubeletRow {
        minor: format!("1.{minor}"),
        tested: match [oldest, API_SERVER_MINOR, newest].contains(&minor) {
            true => Tested::Booted,
            false => Tested::Validated,
        },
    });
    let cluster = |cluster, minor: u64| ClusterRow {
        cluster,
        kubernetes: format!("1.{minor} or newer"),
        tested: format!("API server 1.{API_SERVER_MINOR}; the chart refuses versions before 1.{minor}"),
    };
    Compatibility {
        operating_systems: operating_systems.collect(),
        kubelets: kubelets.collect(),
        clusters: vec![
            cluster("worker cluster, or one cluster for everything", oldest),
            cluster("management cluster", MANAGEMENT_CLUSTER_MINOR),
        ],
        machine_controllers: MACHINE_CONTROLLERS.to_vec(),
    }
}

fn clouds(system: &System, spec: &OperatingSystemProfileSpec) -> Vec<CloudCell> {
    let supported = spec.supported_cloud_providers.iter().map(|cloud| cloud.name);
    let cells = supported.map(|name| CloudCell {
        name,
        tested: if system.booted.contains(&name) {
            Tested::Booted
        } else if system.applied.contains(&name) {
            Tested::Applied
        } else {
            Tested::Validated
        },
    });
    cells.collect()
}

impl Compatibility {
    /// All tables, for people.
    pub fn tables(&self) -> Vec<Table> {
        vec![
            self.systems(),
            self.matrix(),
            self.kubelets(),
            self.clusters(),
            self.machine_controllers(),
            legend(),
        ]
    }

    fn systems(&self) -> Table {
        let row = |row: &SystemRow| {
            vec![
                row.profile.clone(),
                row.operating_system.to_string(),
                format!("{} {}", row.title, row.versions),
                row.remark.to_owned(),
            ]
        };
        Table {
            title: "Operating systems",
            note: "Each default profile is for one operating system, on amd64 and arm64. Only machines with amd64 have booted.",
            head: vec!["Profile", "operatingSystem", "Versions", "Remark"],
            rows: self.operating_systems.iter().map(row).collect(),
        }
    }

    /// Cloud providers by operating system. Where several profiles are for a cell, the one that is tested most counts.
    fn matrix(&self) -> Table {
        let mut columns: Vec<OperatingSystem> = self
            .operating_systems
            .iter()
            .map(|row| row.operating_system)
            .collect();
        // Profiles for the same system are next to each other.
        columns.dedup();
        let cell = |cloud: CloudProvider, os: OperatingSystem| {
            let rows = self
                .operating_systems
                .iter()
                .filter(|row| row.operating_system == os);
            let cells = rows.flat_map(|row| &row.clouds).filter(|cell| cell.name == cloud);
            cells.map(|cell| cell.tested).max()
        };
        let row = |cloud: CloudProvider| {
            let cells = columns.iter().map(|os| cell(cloud, *os));
            let texts = cells.map(|tested| tested.map_or("–", Tested::as_str).to_owned());
            std::iter::once(cloud.to_string()).chain(texts).collect()
        };
        Table {
            title: "Clouds",
            note: "A dash means that no default profile supports the cloud. A custom profile can support every cloud that machine-controller knows.",
            head: std::iter::once("cloudProvider")
                .chain(columns.iter().map(|os| os.as_str()))
                .collect(),
            rows: CloudProvider::iter()
                .filter(|cloud| columns.iter().any(|os| cell(*cloud, *os).is_some()))
                .map(row)
                .collect(),
        }
    }

    fn kubelets(&self) -> Table {
        // Nothing can boot a newer kubelet in a supported way until the tests have a newer API server.
        let is_newer = |row: &KubeletRow| {
            let minor = row.minor.strip_prefix("1.").and_then(|minor| minor.parse().ok());
            row.tested == Tested::Booted && minor.is_some_and(|minor: u64| minor > API_SERVER_MINOR)
        };
        let row = |row: &KubeletRow| {
            let tested = match is_newer(row) {
                true => "booted, but with the older API server, which Kubernetes does not support",
                false => row.tested.as_str(),
            };
            vec![row.minor.clone(), tested.to_owned()]
        };
        Table {
            title: "Kubelets",
            note: "Machines booted with an API server 1.34. With other versions of the kubelet, the condition Rendered of the pool has a warning.",
            head: vec!["Minor version", "Tested"],
            rows: self.kubelets.iter().map(row).collect(),
        }
    }

    fn clusters(&self) -> Table {
        let row = |row: &ClusterRow| vec![row.cluster.to_owned(), row.kubernetes.clone(), row.tested.clone()];
        Table {
            title: "Kubernetes",
            note: "A kubelet must not be newer than the API server of its cluster.",
            head: vec!["Cluster", "Versions", "Tested"],
            rows: self.clusters.iter().map(row).collect(),
        }
    }

    fn machine_controllers(&self) -> Table {
        let row = |row: &MachineControllerRow| {
            let systems: Vec<&str> = row.operating_systems.iter().map(|os| os.as_str()).collect();
            vec![row.versions.to_owned(), systems.join(", "), row.tested.to_owned()]
        };
        Table {
            title: "machine-controller",
            note: "machine-controller accepts these values of operatingSystem, and refuses Machines with others.",
            head: vec!["Versions", "operatingSystem", "Tested"],
            rows: self.machine_controllers.iter().map(row).collect(),
        }
    }
}

fn legend() -> Table {
    let row = |tested: Tested| vec![tested.as_str().to_owned(), tested.meaning().to_owned()];
    Table {
        title: "How it is tested",
        note: "Every combination is at least validated. None was tested on a real cloud.",
        head: vec!["Word", "Meaning"],
        rows: Tested::ALL.map(row).to_vec(),
    }
}

/// A warning for a pool with an operating system that some versions of machine-controller refuse.
pub(crate) fn refused_by_machine_controller(os: OperatingSystem) -> Option<String> {
    let refusing = MACHINE_CONTROLLERS
        .iter()
        .find(|row| !row.operating_systems.contains(&os))?;
    Some(format!(
        "machine-controller {} refuses machines with the operating system {os}; set operatingSystem to {} in the MachineDeployment, and name this profile in its annotation {}",
        refusing.versions,
        OperatingSystem::RockyLinux,
        names::PROFILE,
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::defaults::default_manifests;

    #[test]
    fn every_default_profile_has_a_row_with_the_versions_of_its_manifest() {
        let found = compatibility();
        let names: BTreeSet<String> = defaults().into_iter().map(|(name, _)| name).collect();
        let rows: BTreeSet<String> = found
            .operating_systems
            .iter()
            .map(|row| row.profile.clone())
            .collect();
        assert_eq!(rows, names);
        assert_eq!(found.operating_systems.len(), SYSTEMS.len());
        for row in &found.operating_systems {
            let (_, text) = default_manifests()
                .find(|(file, _)| *file == format!("{}.yaml", row.profile))
                .unwrap();
            let start = format!("# Default profile for {} {}", row.title, row.versions);
            assert!(text.starts_with(&start), "{}: {start}", row.profile);
            assert!(!row.clouds.is_empty());
        }
    }

    #[test]
    fn what_is_tested_further_is_a_cloud_of_the_profile() {
        for (system, row) in SYSTEMS.iter().zip(compatibility().operating_systems) {
            let number = |tested| row.clouds.iter().filter(|cell| cell.tested == tested).count();
            let found = (number(Tested::Booted), number(Tested::Applied));
            assert_eq!(
                found,
                (system.booted.len(), system.applied.len()),
                "{}",
                row.profile
            );
        }
    }

    #[test]
    fn tables_are_complete() {
        for table in compatibility().tables() {
            assert!(!table.rows.is_empty(), "{}", table.title);
            for row in &table.rows {
                assert_eq!(row.len(), table.head.len(), "{row:?}");
                for cell in row {
                    assert!(cell.split_whitespace().count() <= 15, "{cell}");
                }
            }
        }
    }

    #[test]
    fn only_centos_is_refused_and_its_replacement_is_not() {
        for os in OperatingSystem::iter() {
            let warning = refused_by_machine_controller(os);
            assert_eq!(warning.is_some(), os == OperatingSystem::CentOs, "{os}");
        }
        let warning = refused_by_machine_controller(OperatingSystem::CentOs).unwrap();
        assert!(
            warning.starts_with("machine-controller 1.62 or newer refuses"),
            "{warning}"
        );
        assert!(OperatingSystem::CentOs.fits(OperatingSystem::RockyLinux));
    }
}
