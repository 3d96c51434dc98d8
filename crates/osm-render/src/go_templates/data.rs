//! The data of Go templates: the fields of the upstream OSM's `resources.filesData`, with the names, Go types
//! and values that existing profiles expect.
//!
//! Credentials, and names that only secret-syncer knows, are late-bound values.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::kubelet_value;
use osm_api::pool::Pool;
use osm_api::profile::{CloudProvider, OperatingSystem, ProvisioningUtility};
use osm_api::provider_spec::{ConfigVar, IpFamily, Network};
use osm_api::settings::{Settings, Taint};
use osm_gotemplate::methods::{Behavior, Encoded, Method};
use osm_gotemplate::value::{IntKind, Map, Named, Pointer, Struct, Type};
use osm_gotemplate::{Value, standard};
use osm_user_data::late_bound::Encoding;
use serde_json::{Value as Json, json};

use super::containerd;
use super::spelling::Spelling;
use crate::model::{
    self, API_TOKEN, KUBECONFIG_SECRET_NAME, KUBELET_TOKEN, PROVISIONING_SECRET_NAME, PROXY_URL,
};
use crate::{no_proxy, subscription};
use osm_api::ClusterEndpoint;

/// Fields of a struct, in the order of their declaration.
type Fields = Vec<(Rc<str>, Value)>;

/// The pointer to `resources.filesData` with which every template is executed.
pub(super) fn files_data(
    pool: &Pool,
    settings: &Settings,
    cluster: &ClusterEndpoint,
    spelling: Spelling,
) -> Value {
    let mut all = of_cluster(pool, settings, cluster, spelling);
    all.extend(of_kubelet(pool));
    all.extend(of_systems(pool, spelling));
    let all = Value::Struct(Struct::new(all));
    pointer_to(Value::Named(Named::new("resources.filesData", all)))
}

/// A kubeconfig with the token by which a kubelet joins.
pub(super) fn kubeconfig(cluster: &ClusterEndpoint, spelling: Spelling) -> String {
    let (server, ca) = (json!(cluster.api_server), STANDARD.encode(&cluster.ca));
    let token = spelling.of(KUBELET_TOKEN, Encoding::Raw);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    certificate-authority-data: {ca}
    server: {server}
contexts:
- name: c
  context:
    cluster: c
    user: c
current-context: c
preferences: {{}}
users:
- name: c
  user:
    token: {token}
"
    )
}

fn of_cluster(pool: &Pool, settings: &Settings, cluster: &ClusterEndpoint, spelling: Spelling) -> Fields {
    let external = model::is_external(pool, settings);
    let family = pool.network.ip_family;
    let late = |id| text(&spelling.of(id, Encoding::Raw));
    let empty = || text("");
    fields([
        ("KubeVersion", text(&format!("v{}", pool.kubelet_version))),
        ("KubeletConfiguration", empty()),
        ("KubeletSystemdUnit", empty()),
        ("CNIVersion", empty()),
        ("ServerAddress", empty()),
        ("BootstrapKubeconfig", text(&kubeconfig(cluster, spelling))),
        (
            "InTreeCCMAvailable",
            Value::Bool(!external && was_in_kubernetes(pool.cloud_provider)),
        ),
        (
            "ClusterDNSIPs",
            standard::ips(settings.cluster.dns_ips.iter().copied()),
        ),
        ("KubernetesCACert", text(&cluster.ca)),
        ("HostCACert", text_or_empty(settings.host_ca_bundle.as_deref())),
        (
            "CloudConfig",
            text_or_empty(pool.overwrite_cloud_config.as_deref()),
        ),
        ("ContainerRuntime", text("containerd")),
        (
            "CloudProviderName",
            named_text("v1alpha1.CloudProvider", pool.cloud_provider.as_str()),
        ),
        ("NetworkConfig", network(&pool.network)),
        ("ExternalCloudProvider", Value::Bool(external)),
        ("InitialTaints", text(&taints(&settings.initial_taints))),
        (
            "HTTPProxy",
            text_or_nil(http_proxy(settings, spelling).as_deref()),
        ),
        (
            "NoProxy",
            text_or_nil(no_proxy::no_proxy(settings, cluster).as_deref()),
        ),
        (
            "ContainerRuntimeConfig",
            text(&containerd::config(settings, spelling)),
        ),
        ("ContainerRuntimeAuthConfig", empty()),
        ("KubeletFeatureGates", feature_gates(settings)),
        ("RHSubscription", Value::Map(Map::nil(Type::String))),
        ("NetworkIPFamily", text(family.as_str())),
        ("PauseImage", text_or_empty(settings.pause_image.as_deref())),
        ("Token", late(API_TOKEN)),
        ("ServerURL", text(&cluster.api_server)),
        ("SecretName", late(PROVISIONING_SECRET_NAME)),
        ("BootstrapKubeconfigSecretName", late(KUBECONFIG_SECRET_NAME)),
    ])
}

/// The URL of the proxy. What is late-bound of it has no character that ends a text in quotes, because it is
/// percent-encoded.
fn http_proxy(settings: &Settings, spelling: Spelling) -> Option<String> {
    match settings.proxy.credentials {
        Some(_) => Some(spelling.of(PROXY_URL, Encoding::Text)),
        None => settings.proxy.http.clone(),
    }
}

/// What the annotations of a pool set. A pointer is nil where there is no annotation.
fn of_kubelet(pool: &Pool) -> Fields {
    let kubelet = &pool.kubelet;
    let number = |number: Option<i32>| {
        let number = number.map(|number| Value::Int(number.into(), IntKind::Int32));
        pointer(Type::Int(IntKind::Int32), number)
    };
    let log_files = kubelet.container_log_max_files.map(|files| files.to_string());
    fields([
        ("KubeReserved", pairs(kubelet.kube_reserved.as_ref())),
        ("SystemReserved", pairs(kubelet.system_reserved.as_ref())),
        ("EvictionHard", pairs(kubelet.eviction_hard.as_ref())),
        ("MaxPods", number(kubelet.max_pods)),
        (
            "ImageGCHighThresholdPercent",
            number(kubelet.image_gc_high_threshold_percent),
        ),
        (
            "ImageGCLowThresholdPercent",
            number(kubelet.image_gc_low_threshold_percent),
        ),
        (
            "ContainerLogMaxSize",
            text_or_nil(kubelet.container_log_max_size.as_deref()),
        ),
        ("ContainerLogMaxFiles", text_or_nil(log_files.as_deref())),
        (
            "ImageMinimumGCAge",
            duration(kubelet.image_minimum_gc_age.as_deref()),
        ),
        (
            "ImageMaximumGCAge",
            duration(kubelet.image_maximum_gc_age.as_deref()),
        ),
    ])
}

/// The settings of each operating system. Only those of the pool's own system are set.
fn of_systems(pool: &Pool, spelling: Spelling) -> Fields {
    let os = &pool.os;
    let is = |system| pool.operating_system == system;
    let upgrade = |system| is(system) && os.dist_upgrade_on_boot;
    let only_upgrade = |name, system| structure(name, json!({"DistUpgradeOnBoot": upgrade(system)}));
    let (is_flatcar, is_rhel) = (is(OperatingSystem::Flatcar), is(OperatingSystem::Rhel));
    let utility = os.provisioning_utility.filter(|_| is_flatcar);
    let satellite = is_rhel.then_some(os.rhel_satellite_server.as_str());
    let subscribed = |value: &ConfigVar, id: &str| match value {
        ConfigVar::Text(plain) if is_rhel && !subscription::is_secret(id) => plain.clone(),
        ConfigVar::Empty => String::new(),
        _ if is_rhel => spelling.of(id, Encoding::Raw),
        _ => String::new(),
    };
    let flatcar = json!({
        "DisableAutoUpdate": is_flatcar && os.disable_auto_update,
        "DisableLocksmithD": is_flatcar && os.disable_locksmith_d,
        "DisableUpdateEngine": is_flatcar && os.disable_update_engine,
        "ProvisioningUtility": utility.map_or("", ProvisioningUtility::as_str),
    });
    let rhel = json!({
        "DistUpgradeOnBoot": upgrade(OperatingSystem::Rhel),
        "RHELSubscriptionManagerUser": subscribed(&os.rhel_subscription_manager_user, subscription::USER),
        "RHELSubscriptionManagerPassword": subscribed(&os.rhel_subscription_manager_password, subscription::PASSWORD),
        "RHSMOfflineToken": "",
        "AttachSubscription": is_rhel && os.attach_subscription,
        "RHELUseSatelliteServer": is_rhel && os.rhel_use_satellite_server,
        "RHELSatelliteServer": satellite.unwrap_or_default(),
        "RHELOrganizationName": subscribed(&os.rhel_organization_name, subscription::ORGANIZATION),
        "RHELActivationKey": subscribed(&os.rhel_activation_key, subscription::ACTIVATION_KEY),
    });
    let amazon_linux = only_upgrade("resources.amazonLinuxConfig", OperatingSystem::Amzn2);
    let ubuntu = only_upgrade("resources.ubuntuConfig", OperatingSystem::Ubuntu);
    let rocky_linux = only_upgrade("resources.rockyLinuxConfig", OperatingSystem::RockyLinux);
    fields([
        ("AmazonLinuxConfig", amazon_linux),
        ("FlatcarConfig", structure("resources.flatcarConfig", flatcar)),
        ("RhelConfig", structure("resources.rhelConfig", rhel)),
        ("UbuntuConfig", ubuntu),
        ("RockyLinuxConfig", rocky_linux),
    ])
}

/// Clouds whose controllers were once part of Kubernetes itself.
fn was_in_kubernetes(cloud: CloudProvider) -> bool {
    matches!(
        cloud,
        CloudProvider::Aws | CloudProvider::Azure | CloudProvider::Gce | CloudProvider::Vsphere
    )
}

/// The method that pointers to a `providerconfig.NetworkConfig` have, even if they are nil.
static NETWORK: Behavior = Behavior::new(
    &[Method::of_pointer("IsStaticIPConfig", &[], |call| {
        let is_static = match call.receiver().underlying() {
            Value::Struct(fields) => {
                let all = fields.fields().iter();
                all.filter(|(name, _)| &**name != "IPFamily")
                    .any(|(_, value)| is_set(value))
            }
            _ => false,
        };
        Ok(is_static.into())
    })],
    Encoded::AsValue,
);

/// Whether a value, or a field of it, is true.
fn is_set(value: &Value) -> bool {
    match value.underlying() {
        Value::Struct(fields) => fields.fields().iter().any(|(_, value)| value.is_true()),
        _ => value.is_true(),
    }
}

/// A `*providerconfig.NetworkConfig`, which is nil where the MachineDeployment sets nothing of the network.
fn network(network: &Network) -> Value {
    const NAME: &str = "providerconfig.NetworkConfig";
    if network.ip_family == IpFamily::Unspecified && !network.is_static() {
        let to = Type::Named(NAME.into(), Type::Struct.into(), &NETWORK);
        return Value::Pointer(Pointer::nil(to));
    }
    let servers = Value::strings(network.dns.servers.iter().map(String::as_str));
    let dns = Value::Struct(Struct::new(fields([("Servers", servers)])));
    let dns = Value::Named(Named::new("providerconfig.DNSConfig", dns));
    let all = fields([
        ("CIDR", text(&network.cidr)),
        ("Gateway", text(&network.gateway)),
        ("DNS", dns),
        (
            "IPFamily",
            named_text("providerconfig.IPFamily", network.ip_family.as_str()),
        ),
    ]);
    let all = Value::Struct(Struct::new(all));
    pointer_to(Value::Named(Named::with_behavior(NAME, all, None, &NETWORK)))
}

/// Taints as the kubelet's `--register-with-taints` takes them.
fn taints(taints: &[Taint]) -> String {
    let one = |taint: &Taint| {
        let value = taint.value.as_deref().unwrap_or_default();
        format!("{}={value}:{}", taint.key, taint.effect)
    };
    taints.iter().map(one).collect::<Vec<_>>().join(",")
}

fn feature_gates(settings: &Settings) -> Value {
    let gates = settings.kubelet.feature_gates.iter();
    let gates = gates.map(|(gate, on)| (gate.as_str().into(), Value::Bool(*on)));
    Value::Map(Map::new(Type::Bool, gates.collect()))
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Fields {
    fields.map(|(name, value)| (name.into(), value)).into()
}

/// A struct of a named type, with texts and flags.
fn structure(name: &str, of: Json) -> Value {
    let fields = of.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or(Value::Bool(*value == true), text);
        (name.as_str().into(), value)
    });
    Value::Named(Named::new(name, Value::Struct(Struct::new(fields.collect()))))
}

fn text(text: &str) -> Value {
    Value::string(text)
}

fn text_or_empty(optional: Option<&str>) -> Value {
    text(optional.unwrap_or_default())
}

/// A value of a named string type.
fn named_text(name: &str, of: &str) -> Value {
    Value::Named(Named::new(name, text(of)))
}

fn pointer_to(value: Value) -> Value {
    Value::Pointer(Pointer::to_value(value))
}

/// A pointer to the value, or a nil pointer.
fn pointer(to: Type, value: Option<Value>) -> Value {
    value.map_or_else(|| Value::Pointer(Pointer::nil(to)), pointer_to)
}

/// A `*string`, which is nil where there is no text or an empty one.
fn text_or_nil(optional: Option<&str>) -> Value {
    pointer(Type::String, optional.filter(|text| !text.is_empty()).map(text))
}

/// A `*map[string]string`.
fn pairs(pairs: Option<&BTreeMap<String, String>>) -> Value {
    let map = |pairs: &BTreeMap<String, String>| {
        let pairs = pairs.iter();
        let pairs = pairs.map(|(key, value)| (key.as_str().into(), text(value)));
        Value::Map(Map::new(Type::String, pairs.collect()))
    };
    pointer(Type::Map(Rc::new(Type::String)), pairs.map(map))
}

/// A `*v1.Duration`.
fn duration(duration: Option<&str>) -> Value {
    const NAME: &str = "v1.Duration";
    let nanoseconds = duration.and_then(kubelet_value::duration);
    pointer(
        standard::type_embedding_duration(NAME),
        nanoseconds.map(|nanoseconds| standard::embedding_duration(NAME, nanoseconds)),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/go-templates.md");

    /// What stands between backticks in the first column of the table after a heading.
    fn listed(heading: &str) -> BTreeSet<&'static str> {
        let (_, section) = PAGE.split_once(heading).unwrap();
        let rows = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
        let first = rows.map(|row| row.split('|').nth(1).unwrap());
        first
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .collect()
    }

    fn plain() -> Value {
        let (_, profile) = crate::defaults().swap_remove(0);
        let (_, pool) = crate::sample_pools(&profile).swap_remove(0);
        let cluster = crate::stand_in_cluster();
        files_data(&pool, &Settings::default(), &cluster, Spelling::Marker)
    }

    #[test]
    fn the_documentation_lists_every_variable() {
        let Value::Pointer(data) = plain() else { panic!() };
        let Value::Struct(fields) = data.value().unwrap().underlying() else {
            panic!()
        };
        let names = fields.fields().iter().map(|(name, _)| format!(".{name}"));
        let names: BTreeSet<String> = names.collect();
        assert_eq!(listed("## Variables"), names.iter().map(String::as_str).collect());
    }

    #[test]
    fn the_documentation_lists_every_function() {
        let (_, section) = PAGE.split_once("## Functions").unwrap();
        let (section, _) = section.split_once("###").unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
        let spans = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
        let functions = osm_gotemplate::functions::all().map(|function| function.name);
        assert_eq!(spans.collect::<BTreeSet<_>>(), functions.collect());
    }
}
