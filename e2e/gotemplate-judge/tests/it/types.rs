//! Names of Go's types, and the types with a name that data can have.

use std::rc::Rc;

use anyhow::{Result, bail};
use osm_gotemplate::standard;
use osm_gotemplate::value::{FloatKind, IntKind, Type, UintKind};

use crate::named;

/// Structs: their names, and names and types of their fields in order. The Go program has the same.
const STRUCTS: &[(&str, &[(&str, &str)])] = &[
    ("v1.Duration", &[("Duration", "time.Duration")]),
    ("providerconfig.DNSConfig", &[("Servers", "[]string")]),
    (
        "providerconfig.NetworkConfig",
        &[
            ("CIDR", "string"),
            ("Gateway", "string"),
            ("DNS", "providerconfig.DNSConfig"),
            ("IPFamily", "providerconfig.IPFamily"),
        ],
    ),
    ("resources.amazonLinuxConfig", &[("DistUpgradeOnBoot", "bool")]),
    (
        "resources.flatcarConfig",
        &[
            ("DisableAutoUpdate", "bool"),
            ("DisableLocksmithD", "bool"),
            ("DisableUpdateEngine", "bool"),
            ("ProvisioningUtility", "string"),
        ],
    ),
    (
        "resources.rhelConfig",
        &[
            ("DistUpgradeOnBoot", "bool"),
            ("RHELSubscriptionManagerUser", "string"),
            ("RHELSubscriptionManagerPassword", "string"),
            ("RHSMOfflineToken", "string"),
            ("AttachSubscription", "bool"),
            ("RHELUseSatelliteServer", "bool"),
            ("RHELSatelliteServer", "string"),
            ("RHELOrganizationName", "string"),
            ("RHELActivationKey", "string"),
        ],
    ),
    ("resources.ubuntuConfig", &[("DistUpgradeOnBoot", "bool")]),
    ("resources.rockyLinuxConfig", &[("DistUpgradeOnBoot", "bool")]),
    (
        "resources.filesData",
        &[
            ("KubeVersion", "string"),
            ("KubeletConfiguration", "string"),
            ("KubeletSystemdUnit", "string"),
            ("CNIVersion", "string"),
            ("ServerAddress", "string"),
            ("BootstrapKubeconfig", "string"),
            ("InTreeCCMAvailable", "bool"),
            ("ClusterDNSIPs", "[]net.IP"),
            ("KubernetesCACert", "string"),
            ("HostCACert", "string"),
            ("CloudConfig", "string"),
            ("ContainerRuntime", "string"),
            ("CloudProviderName", "v1alpha1.CloudProvider"),
            ("NetworkConfig", "*providerconfig.NetworkConfig"),
            ("ExternalCloudProvider", "bool"),
            ("InitialTaints", "string"),
            ("HTTPProxy", "*string"),
            ("NoProxy", "*string"),
            ("ContainerRuntimeConfig", "string"),
            ("ContainerRuntimeAuthConfig", "string"),
            ("KubeletFeatureGates", "map[string]bool"),
            ("RHSubscription", "map[string]string"),
            ("NetworkIPFamily", "string"),
            ("PauseImage", "string"),
            ("KubeReserved", "*map[string]string"),
            ("SystemReserved", "*map[string]string"),
            ("EvictionHard", "*map[string]string"),
            ("MaxPods", "*int32"),
            ("ImageGCHighThresholdPercent", "*int32"),
            ("ImageGCLowThresholdPercent", "*int32"),
            ("ContainerLogMaxSize", "*string"),
            ("ContainerLogMaxFiles", "*string"),
            ("ImageMinimumGCAge", "*v1.Duration"),
            ("ImageMaximumGCAge", "*v1.Duration"),
            ("Token", "string"),
            ("ServerURL", "string"),
            ("SecretName", "string"),
            ("BootstrapKubeconfigSecretName", "string"),
            ("AmazonLinuxConfig", "resources.amazonLinuxConfig"),
            ("FlatcarConfig", "resources.flatcarConfig"),
            ("RhelConfig", "resources.rhelConfig"),
            ("UbuntuConfig", "resources.ubuntuConfig"),
            ("RockyLinuxConfig", "resources.rockyLinuxConfig"),
        ],
    ),
];

/// The fields of a struct: names, and names of their types.
pub(crate) fn fields(name: &str) -> Option<&'static [(&'static str, &'static str)]> {
    let found = STRUCTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, fields)| *fields)
}

/// Reads the name of a type, such as `map[string]*int32`.
pub(crate) fn parse(name: &str) -> Result<Type> {
    Ok(match name {
        "any" => Type::Any,
        "bool" => Type::Bool,
        "string" => Type::String,
        "int" => Type::Int(IntKind::Int),
        "int8" => Type::Int(IntKind::Int8),
        "int16" => Type::Int(IntKind::Int16),
        "int32" => Type::Int(IntKind::Int32),
        "int64" => Type::Int(IntKind::Int64),
        "uint" => Type::Uint(UintKind::Uint),
        "uint8" => Type::Uint(UintKind::Uint8),
        "uint16" => Type::Uint(UintKind::Uint16),
        "uint32" => Type::Uint(UintKind::Uint32),
        "uint64" => Type::Uint(UintKind::Uint64),
        "float32" => Type::Float(FloatKind::Float32),
        "float64" => Type::Float(FloatKind::Float64),
        standard::IP => standard::ip_type(),
        standard::DURATION => standard::duration_type(),
        "v1.Duration" => standard::type_embedding_duration(name),
        "v1alpha1.CloudProvider" | "providerconfig.IPFamily" => Type::named(name, Type::String),
        "providerconfig.NetworkConfig" => Type::Named(name.into(), Type::Struct.into(), &named::NETWORK),
        _ if fields(name).is_some() => Type::named(name, Type::Struct),
        _ => {
            if let Some(to) = name.strip_prefix('*') {
                Type::Pointer(Rc::new(parse(to)?))
            } else if let Some(element) = name.strip_prefix("[]") {
                Type::List(Rc::new(parse(element)?))
            } else if let Some(element) = name.strip_prefix("map[string]") {
                Type::Map(Rc::new(parse(element)?))
            } else {
                bail!("unknown type {name}");
            }
        }
    })
}
