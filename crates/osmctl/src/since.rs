//! Since which version of Operating System Manager templates can use each name. A test fails for a name without a version.
//!
//! A new field, helper, late-bound value, variable or function needs a row: add it to the row of the version that will be released next,
//! in the group in which `osmctl explain` lists it.

/// The names of a group that a release has added.
struct Added {
    version: &'static str,
    group: &'static str,
    /// Separated by blanks.
    names: &'static str,
}

#[rustfmt::skip] // Names fill lines.
const ADDED: &[Added] = &[
    Added {
        version: "0.1.0",
        group: "data",
        names: "\
            kubelet.version kubelet.minor kubelet.hostnameOverride kubelet.featureGates kubelet.configuration kubelet.shutdownSeconds \
            kubelet.systemReserved kubelet.kubeReserved kubelet.evictionHard kubelet.containerLogMaxSize kubelet.containerLogMaxFiles \
            kubelet.maxPods kubelet.imageGCHighThresholdPercent kubelet.imageGCLowThresholdPercent \
            kubelet.imageMinimumGCAge kubelet.imageMaximumGCAge cloud.name cloud.external cloud.nodeName cloud.guestAgent \
            os.name os.family os.selinux os.python.first os.python.otherwise os.distUpgradeOnBoot os.disableAutoUpdate \
            os.disableLocksmithD os.disableUpdateEngine cluster.apiServer cluster.ca cluster.dnsIPs cluster.dnsDomain \
            pool.name pool.namespace network.ipFamily network.ipv4 network.ipv6 network.dualStack network.static proxy.http proxy.noProxy proxy.credentials \
            hostCABundle pauseImage initialTaints initialTaints[].key initialTaints[].value initialTaints[].effect \
            overwriteCloudConfig containerd.registries containerd.registries[].host containerd.registries[].server \
            containerd.registries[].directory containerd.registries[].credentials containerd.registries[].mirrors \
            containerd.registries[].mirrors[].url containerd.registries[].mirrors[].skipVerify \
            containerd.registries[].mirrors[].overridePath containerd.deviceOwnershipFromSecurityContext \
            downloads.kubelet.baseURL downloads.kubelet.sha256.amd64 downloads.kubelet.sha256.arm64 \
            downloads.containerd.version downloads.containerd.baseURL downloads.containerd.sha256.amd64 \
            downloads.containerd.sha256.arm64 downloads.runc.version downloads.runc.baseURL downloads.runc.sha256.amd64 \
            downloads.runc.sha256.arm64 downloads.cni.version downloads.cni.baseURL downloads.cni.sha256.amd64 \
            downloads.cni.sha256.arm64 downloads.crictl.version downloads.crictl.baseURL downloads.crictl.sha256.amd64 \
            downloads.crictl.sha256.arm64 packages.enabled packages.install system.swap.on system.swap.behavior \
            system.swap.mebibytes",
    },
    Added {
        version: "0.1.0",
        group: "helpers",
        names: "\
            if unless each with eq ne gt gte lt lte not len lookup and or semver indent json toml yaml shell b64 join trim \
            lit concat late download-url checksum-url",
    },
    Added {
        version: "0.1.0",
        group: "late",
        names: "\
            api/token kubelet/token provisioning/secret-name provisioning/key provisioning/sha256 rhel/username rhel/password \
            rhel/organization rhel/activation-key proxy/url registry/HOST/username registry/HOST/password secret/NAMESPACE/NAME/KEY",
    },
    Added {
        version: "0.1.0",
        group: "variables",
        names: "\
            .KubeVersion .KubeReserved .SystemReserved .EvictionHard .MaxPods .ImageGCHighThresholdPercent \
            .ImageGCLowThresholdPercent .ContainerLogMaxSize .ContainerLogMaxFiles .ImageMinimumGCAge .ImageMaximumGCAge \
            .KubeletFeatureGates .CloudProviderName .ExternalCloudProvider .InTreeCCMAvailable .CloudConfig .ClusterDNSIPs \
            .KubernetesCACert .ServerURL .HostCACert .HTTPProxy .NoProxy .PauseImage .InitialTaints .NetworkIPFamily \
            .NetworkConfig .ContainerRuntime .ContainerRuntimeConfig .UbuntuConfig .RockyLinuxConfig .AmazonLinuxConfig \
            .FlatcarConfig .RhelConfig .Token .SecretName .BootstrapKubeconfig .BootstrapKubeconfigSecretName .ProfileSecret \
            .KubeletConfiguration .KubeletSystemdUnit .CNIVersion .ServerAddress .ContainerRuntimeAuthConfig \
            .RHSubscription .NetworkConfig.CIDR .NetworkConfig.Gateway .NetworkConfig.DNS .NetworkConfig.DNS.Servers \
            .NetworkConfig.IPFamily .NetworkConfig.IsStaticIPConfig .UbuntuConfig.DistUpgradeOnBoot \
            .RockyLinuxConfig.DistUpgradeOnBoot .AmazonLinuxConfig.DistUpgradeOnBoot .FlatcarConfig.DisableAutoUpdate \
            .FlatcarConfig.DisableLocksmithD .FlatcarConfig.DisableUpdateEngine .FlatcarConfig.ProvisioningUtility \
            .RhelConfig.DistUpgradeOnBoot .RhelConfig.RHELSubscriptionManagerUser \
            .RhelConfig.RHELSubscriptionManagerPassword .RhelConfig.RHSMOfflineToken .RhelConfig.AttachSubscription \
            .RhelConfig.RHELUseSatelliteServer .RhelConfig.RHELSatelliteServer .RhelConfig.RHELOrganizationName \
            .RhelConfig.RHELActivationKey",
    },
    Added {
        version: "0.1.0",
        group: "functions",
        names: "\
            and call html index js len not or print printf println urlquery eq ge gt le lt ne dict get set unset hasKey keys \
            values pick omit b64dec b64enc fromJson fromYaml toJson toToml toYaml sha256sum list append prepend concat first \
            last rest initial reverse compact uniq without has slice sortAlpha toStrings join atoi int int64 float64 add \
            add1 sub mul div mod max min regexMatch regexFind regexReplaceAll trunc substr trim trimAll trimPrefix \
            trimSuffix upper lower repeat replace contains hasPrefix hasSuffix quote squote cat indent nindent toString \
            splitList typeOf typeIs kindOf kindIs deepEqual default empty coalesce all any ternary fail semver semverCompare",
    },
];

/// The first version that has this name in this group; `None` if no row has it.
pub fn version(group: &str, name: &str) -> Option<&'static str> {
    let mut rows = ADDED.iter().filter(|added| added.group == group);
    let row = rows.find(|added| added.names.split_whitespace().any(|added| added == name))?;
    Some(row.version)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Every name of the table: group and name.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        let of = |added: &'static Added| added.names.split_whitespace().map(|name| (added.group, name));
        ADDED.iter().flat_map(of)
    }

    #[test]
    fn versions_are_released_or_the_next() {
        let next = semver::Version::parse(env!("CARGO_PKG_VERSION")).unwrap();
        for added in ADDED {
            assert!(
                semver::Version::parse(added.version).unwrap() <= next,
                "{}",
                added.version
            );
        }
        assert_eq!(version("data", "kubelet.version"), Some("0.1.0"));
        assert_eq!(version("helpers", "kubelet.version"), None);
    }
}
