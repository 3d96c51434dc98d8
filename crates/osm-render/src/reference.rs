//! Names and types of what templates can use. [`crate::known_names`] warns of other names, and tests make sure that these tables and the
//! data agree.

/// Every field of the data, in order: its path, where `[]` stands for an item of a list, and its type. ` or null` if it can be unset.
pub(crate) const FIELDS: &[(&str, &str)] = &[
    ("kubelet.version", "text"),
    ("kubelet.minor", "number"),
    ("kubelet.hostnameOverride", "boolean"),
    ("kubelet.featureGates", "map"),
    ("kubelet.configuration", "map or null"),
    ("kubelet.shutdownSeconds", "number or null"),
    ("kubelet.systemReserved", "map or null"),
    ("kubelet.kubeReserved", "map or null"),
    ("kubelet.evictionHard", "map or null"),
    ("kubelet.containerLogMaxSize", "text or null"),
    ("kubelet.containerLogMaxFiles", "number or null"),
    ("kubelet.maxPods", "number or null"),
    ("kubelet.imageGCHighThresholdPercent", "number or null"),
    ("kubelet.imageGCLowThresholdPercent", "number or null"),
    ("kubelet.imageMinimumGCAge", "text or null"),
    ("kubelet.imageMaximumGCAge", "text or null"),
    ("cloud.name", "text"),
    ("cloud.external", "boolean"),
    ("cloud.nodeName", "text"),
    ("cloud.guestAgent", "map or null"),
    ("os.name", "text"),
    ("os.family", "text"),
    ("os.selinux", "boolean"),
    ("os.python.first", "text"),
    ("os.python.otherwise", "text"),
    ("os.distUpgradeOnBoot", "boolean"),
    ("os.disableAutoUpdate", "boolean"),
    ("os.disableLocksmithD", "boolean"),
    ("os.disableUpdateEngine", "boolean"),
    ("cluster.apiServer", "text"),
    ("cluster.ca", "text"),
    ("cluster.dnsIPs", "list"),
    ("cluster.dnsDomain", "text"),
    ("pool.name", "text"),
    ("pool.namespace", "text"),
    ("network.ipFamily", "text"),
    ("network.ipv4", "boolean"),
    ("network.ipv6", "boolean"),
    ("network.dualStack", "boolean"),
    ("network.static", "map or null"),
    ("proxy.http", "text or null"),
    ("proxy.noProxy", "text or null"),
    ("proxy.credentials", "boolean"),
    ("hostCABundle", "text or null"),
    ("pauseImage", "text or null"),
    ("initialTaints", "list"),
    ("initialTaints[].key", "text"),
    ("initialTaints[].value", "text or null"),
    ("initialTaints[].effect", "text"),
    ("overwriteCloudConfig", "text or null"),
    ("containerd.registries", "list"),
    ("containerd.registries[].host", "text"),
    ("containerd.registries[].server", "text or null"),
    ("containerd.registries[].directory", "text"),
    ("containerd.registries[].credentials", "boolean"),
    ("containerd.registries[].mirrors", "list"),
    ("containerd.registries[].mirrors[].url", "text"),
    ("containerd.registries[].mirrors[].skipVerify", "boolean"),
    ("containerd.registries[].mirrors[].overridePath", "boolean"),
    ("containerd.deviceOwnershipFromSecurityContext", "boolean"),
    ("downloads.kubelet.baseURL", "text"),
    ("downloads.kubelet.sha256.amd64", "text or null"),
    ("downloads.kubelet.sha256.arm64", "text or null"),
    ("downloads.containerd.version", "text"),
    ("downloads.containerd.baseURL", "text"),
    ("downloads.containerd.sha256.amd64", "text or null"),
    ("downloads.containerd.sha256.arm64", "text or null"),
    ("downloads.runc.version", "text"),
    ("downloads.runc.baseURL", "text"),
    ("downloads.runc.sha256.amd64", "text or null"),
    ("downloads.runc.sha256.arm64", "text or null"),
    ("downloads.cni.version", "text"),
    ("downloads.cni.baseURL", "text"),
    ("downloads.cni.sha256.amd64", "text or null"),
    ("downloads.cni.sha256.arm64", "text or null"),
    ("downloads.crictl.version", "text or null"),
    ("downloads.crictl.baseURL", "text"),
    ("downloads.crictl.sha256.amd64", "text or null"),
    ("downloads.crictl.sha256.arm64", "text or null"),
    ("packages.enabled", "boolean"),
    ("packages.install", "list"),
    ("system.swap.on", "boolean"),
    ("system.swap.behavior", "text or null"),
    ("system.swap.mebibytes", "number or null"),
];

/// Every variable of Go templates, and its type in Go.
pub const GO_VARIABLES: &[(&str, &str)] = &[
    (".KubeVersion", "string"),
    (".KubeReserved", "*map[string]string"),
    (".SystemReserved", "*map[string]string"),
    (".EvictionHard", "*map[string]string"),
    (".MaxPods", "*int32"),
    (".ImageGCHighThresholdPercent", "*int32"),
    (".ImageGCLowThresholdPercent", "*int32"),
    (".ContainerLogMaxSize", "*string"),
    (".ContainerLogMaxFiles", "*string"),
    (".ImageMinimumGCAge", "*v1.Duration"),
    (".ImageMaximumGCAge", "*v1.Duration"),
    (".KubeletFeatureGates", "map[string]bool"),
    (".CloudProviderName", "v1alpha1.CloudProvider"),
    (".ExternalCloudProvider", "bool"),
    (".InTreeCCMAvailable", "bool"),
    (".CloudConfig", "string"),
    (".ClusterDNSIPs", "[]net.IP"),
    (".KubernetesCACert", "string"),
    (".ServerURL", "string"),
    (".HostCACert", "string"),
    (".HTTPProxy", "*string"),
    (".NoProxy", "*string"),
    (".PauseImage", "string"),
    (".InitialTaints", "string"),
    (".NetworkIPFamily", "string"),
    (".NetworkConfig", "*providerconfig.NetworkConfig"),
    (".NetworkConfig.CIDR", "string"),
    (".NetworkConfig.Gateway", "string"),
    (".NetworkConfig.DNS", "providerconfig.DNSConfig"),
    (".NetworkConfig.DNS.Servers", "[]string"),
    (".NetworkConfig.IPFamily", "providerconfig.IPFamily"),
    (".NetworkConfig.IsStaticIPConfig", "bool"),
    (".ContainerRuntime", "string"),
    (".ContainerRuntimeConfig", "string"),
    (".UbuntuConfig", "resources.ubuntuConfig"),
    (".UbuntuConfig.DistUpgradeOnBoot", "bool"),
    (".RockyLinuxConfig", "resources.rockyLinuxConfig"),
    (".RockyLinuxConfig.DistUpgradeOnBoot", "bool"),
    (".AmazonLinuxConfig", "resources.amazonLinuxConfig"),
    (".AmazonLinuxConfig.DistUpgradeOnBoot", "bool"),
    (".FlatcarConfig", "resources.flatcarConfig"),
    (".FlatcarConfig.DisableAutoUpdate", "bool"),
    (".FlatcarConfig.DisableLocksmithD", "bool"),
    (".FlatcarConfig.DisableUpdateEngine", "bool"),
    (".FlatcarConfig.ProvisioningUtility", "string"),
    (".RhelConfig", "resources.rhelConfig"),
    (".RhelConfig.DistUpgradeOnBoot", "bool"),
    (".RhelConfig.RHELSubscriptionManagerUser", "string"),
    (".RhelConfig.RHELSubscriptionManagerPassword", "string"),
    (".RhelConfig.RHSMOfflineToken", "string"),
    (".RhelConfig.AttachSubscription", "bool"),
    (".RhelConfig.RHELUseSatelliteServer", "bool"),
    (".RhelConfig.RHELSatelliteServer", "string"),
    (".RhelConfig.RHELOrganizationName", "string"),
    (".RhelConfig.RHELActivationKey", "string"),
    (".Token", "string"),
    (".SecretName", "string"),
    (".BootstrapKubeconfig", "string"),
    (".BootstrapKubeconfigSecretName", "string"),
    (".ProfileSecret", "string"),
    (".KubeletConfiguration", "string"),
    (".KubeletSystemdUnit", "string"),
    (".CNIVersion", "string"),
    (".ServerAddress", "string"),
    (".ContainerRuntimeAuthConfig", "string"),
    (".RHSubscription", "map[string]string"),
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use osm_api::Settings;
    use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec, TemplateEngine};
    use osm_api::provider_spec::ConfigVar;
    use serde_json::{Value, json};

    use super::*;
    use crate::{Stage, handlebars, model};

    fn spec(text: &str) -> OperatingSystemProfileSpec {
        serde_json::from_value(json!({
            "osName": "ubuntu", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
            "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
            "bootstrapConfig": {"files": [{"path": "/a", "content": {"inline": {"data": text}}}]},
        }))
        .unwrap()
    }

    /// Paths of all values that are no maps, except those of maps that are listed as a whole.
    fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        let is_map = |field: &(&str, &str)| field.0 == path && field.1.starts_with("map");
        match value {
            Value::Object(map) if !FIELDS.iter().any(is_map) => {
                for (key, value) in map {
                    let separator = if path.is_empty() { "" } else { "." };
                    leaves(value, &format!("{path}{separator}{key}"), found);
                }
            }
            Value::Array(items) => {
                found.insert(path.to_owned());
                for item in items.iter().filter(|item| item.is_object()) {
                    leaves(item, &format!("{path}[]"), found);
                }
            }
            _ => drop(found.insert(path.to_owned())),
        }
    }

    fn values<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let (key, is_item) = first.strip_suffix("[]").map_or((first, false), |key| (key, true));
        let found = value.get(key).unwrap_or_else(|| panic!("{path}"));
        let below: Vec<&Value> = match is_item {
            true => found.as_array().unwrap().iter().collect(),
            false => vec![found],
        };
        match rest {
            "" => below,
            _ => below.into_iter().flat_map(|value| values(value, rest)).collect(),
        }
    }

    #[test]
    fn fields_are_those_of_the_data() {
        let spec = spec("a");
        let mut null_or_not: Vec<BTreeSet<bool>> = vec![BTreeSet::new(); FIELDS.len()];
        for cloud in [CloudProvider::Aws, CloudProvider::Openstack] {
            let (mut full, settings) = crate::full_sample(&spec, cloud).unwrap();
            full.network = crate::samples::static_network();
            let (_, plain) = crate::sample_pools(&spec).remove(0);
            let off = Settings::parse("downloads: {crictl: {enabled: false}}").unwrap();
            let samples = [
                (full, settings),
                (plain.clone(), Settings::default()),
                (plain, off),
            ];
            for (pool, settings) in samples {
                let data = model::data(&pool, &settings, &crate::stand_in_cluster());
                let mut found = BTreeSet::new();
                leaves(&data, "", &mut found);
                let known: BTreeSet<String> = FIELDS.iter().map(|(path, _)| (*path).to_owned()).collect();
                let unknown: Vec<_> = found.difference(&known).collect();
                assert!(unknown.is_empty(), "not in the table: {unknown:?}");
                for ((path, known), seen) in FIELDS.iter().zip(&mut null_or_not) {
                    for value in values(&data, path) {
                        seen.insert(value.is_null());
                        let kind = match value {
                            Value::Null => "null",
                            Value::Bool(_) => "boolean",
                            Value::Number(_) => "number",
                            Value::String(_) => "text",
                            Value::Array(_) => "list",
                            Value::Object(_) => "map",
                        };
                        assert!(known.split(" or ").any(|known| known == kind), "{path} is {kind}");
                    }
                }
            }
        }
        for ((path, kind), seen) in FIELDS.iter().zip(null_or_not) {
            assert_eq!(kind.ends_with("or null"), seen.contains(&true), "{path}");
            assert!(seen.contains(&false), "{path} is never set");
        }
    }

    /// A template with each helper, and what it renders to for a pool with kubelet 1.36.0 on AWS.
    const HELPERS: &[(&str, &str)] = &[
        ("{{#if network.ipv4}}yes{{else}}no{{/if}}", "yes"),
        ("{{#unless network.ipv4}}no IPv4{{/unless}}.", "."),
        (
            "{{#each cluster.dnsIPs}}{{@index}}={{this}} {{/each}}",
            "0=10.96.0.10 1=fd00::a ",
        ),
        ("{{#with os}}{{name}}{{/with}}", "ubuntu"),
        ("{{eq cloud.name \"aws\"}}", "true"),
        ("{{ne cloud.name \"aws\"}}", "false"),
        ("{{gt kubelet.minor 33}}", "true"),
        ("{{gte kubelet.minor 36}}", "true"),
        ("{{lt kubelet.minor 36}}", "false"),
        ("{{lte kubelet.minor 36}}", "true"),
        ("{{not network.ipv4}}", "false"),
        ("{{len cluster.dnsIPs}}", "2"),
        ("{{lookup cluster.dnsIPs 0}}", "10.96.0.10"),
        ("{{and network.ipv4 network.ipv6}}", "true"),
        ("{{or network.ipv4 network.ipv6}}", "true"),
        ("{{semver kubelet.version \">=1.35, <1.37\"}}", "true"),
        ("{{indent 2 \"a\"}}", "  a"),
        ("{{json cluster.dnsIPs}}", "[\"10.96.0.10\",\"fd00::a\"]"),
        ("{{toml cloud.name}}", "\"aws\""),
        ("{{yaml cluster.dnsIPs}}", "[\"10.96.0.10\", \"fd00::a\"]"),
        ("{{shell cloud.name}}", "'aws'"),
        ("{{b64 cloud.name}}", "YXdz"),
        ("{{join cluster.dnsIPs \",\"}}", "10.96.0.10,fd00::a"),
        ("{{trim \" a \"}}", "a"),
        ("{{lit \"{{\"}} .ID }}", "{{ .ID }}"),
        ("{{concat cloud.name \"-\" os.name}}", "aws-ubuntu"),
        ("{{late \"api/token\" as=\"shell\"}}", "'api/token'"),
        (
            "{{download-url \"kubelet\" arch=\"amd64\"}}",
            "https://files.example/k8s/v1.36.0/bin/linux/amd64/kubelet",
        ),
        (
            "{{checksum-url \"kubelet\" arch=\"amd64\"}}",
            "https://files.example/k8s/v1.36.0/bin/linux/amd64/kubelet.sha256",
        ),
    ];

    #[test]
    fn every_helper_does_what_the_page_says() {
        let page = include_str!("../../../docs/templates.md");
        for name in handlebars::helper_names() {
            let is_used = |(template, _): &(&str, &str)| {
                ["{{", "{{#", "("]
                    .iter()
                    .any(|start| template.contains(&format!("{start}{name} ")))
            };
            assert!(HELPERS.iter().any(is_used), "no example: {name}");
            let ways = [
                format!("`{name} "),
                format!("`{name}`"),
                format!("{{{{#{name} "),
                format!("{{{{{name} "),
            ];
            assert!(
                ways.iter().any(|way| page.contains(way)),
                "not on the page: {name}"
            );
        }
        for (template, expected) in HELPERS {
            let spec = spec(template);
            let profile = crate::compile(&crate::resolve(&spec).unwrap()).unwrap();
            let (pool, settings) = crate::full_sample(&spec, CloudProvider::Aws).unwrap();
            let config = profile
                .render(&pool, &settings, &crate::stand_in_cluster())
                .unwrap()
                .spec;
            let values = crate::placeholders(&config);
            let machine = crate::machine_stage(&config, Stage::Bootstrap, &values).unwrap();
            let file = machine.files.iter().find(|file| file.path == "/a").unwrap();
            assert_eq!(file.text, *expected, "{template}");
        }
    }

    #[test]
    fn variables_are_those_of_go_templates() {
        let render_in = |stage: Stage, template: &str| {
            let mut spec = spec(template);
            spec.template_engine = TemplateEngine::GoTemplate;
            if stage == Stage::Provisioning {
                std::mem::swap(&mut spec.bootstrap_config, &mut spec.provisioning_config);
            }
            let profile = crate::compile(&crate::resolve(&spec).unwrap()).unwrap();
            let (mut pool, settings) = crate::full_sample(&spec, CloudProvider::Aws).unwrap();
            pool.network.ip_family = osm_api::provider_spec::IpFamily::IPv4;
            let rendered = profile
                .render(&pool, &settings, &crate::stand_in_cluster())
                .unwrap();
            let config = match stage {
                Stage::Bootstrap => rendered.spec.bootstrap_config,
                Stage::Provisioning => rendered.spec.provisioning_config,
            };
            let file = config.files.iter().find(|file| file.path == "/a").unwrap();
            file.content.inline.clone().unwrap().data
        };
        let render = |template: &str| render_in(Stage::Bootstrap, template);
        let data: Value = serde_json::from_str(&render("{{ toJson . }}")).unwrap();
        let mut found = BTreeSet::new();
        go_fields(&data, "", &render, &mut found);
        let mut arguments = BTreeMap::new();
        for (path, method) in crate::go_templates::methods() {
            let name = format!("{path}.{}", method.name);
            arguments.insert(name.clone(), method.parameters.len());
            found.insert(name);
        }
        let known = GO_VARIABLES.iter().map(|(name, _)| (*name).to_owned());
        assert_eq!(found, known.collect());
        for (name, expected) in GO_VARIABLES {
            let kind = match arguments.get(*name) {
                // Only values of Secrets have arguments.
                Some(1) => render_in(
                    Stage::Provisioning,
                    &format!("{{{{ typeOf ({name} \"secret/kube-system/vpn/password\") }}}}"),
                ),
                _ => render(&format!("{{{{ typeOf {name} }}}}")),
            };
            assert_eq!(kind, *expected, "{name}");
        }
    }

    /// The fields of a struct, and of the structs in it.
    fn go_fields(data: &Value, path: &str, render: &dyn Fn(&str) -> String, found: &mut BTreeSet<String>) {
        for (key, value) in data.as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            let kind = render(&format!("{{{{ kindOf {path} }}}} {{{{ typeOf {path} }}}}"));
            let is_struct = kind.starts_with("struct") || kind.ends_with("NetworkConfig");
            go_fields(if is_struct { value } else { &Value::Null }, &path, render, found);
            found.insert(path);
        }
    }

    /// Every late-bound value that templates can place, and its stages, as docs/templates.md lists them.
    const LATE_VALUES: &[(&str, &str)] = &[
        ("api/token", "bootstrap"),
        ("kubelet/token", "bootstrap"),
        ("provisioning/secret-name", "bootstrap"),
        ("provisioning/key", "bootstrap"),
        ("provisioning/sha256", "bootstrap"),
        ("rhel/username", "provisioning"),
        ("rhel/password", "provisioning"),
        ("rhel/organization", "provisioning"),
        ("rhel/activation-key", "provisioning"),
        ("proxy/url", "provisioning"),
        ("secret/NAMESPACE/NAME/KEY", "provisioning"),
        ("registry/HOST/username", "both"),
        ("registry/HOST/password", "both"),
    ];

    #[test]
    fn late_bound_values_are_those_of_each_stage() {
        let (mut pool, settings) = crate::full_sample(&spec("a"), CloudProvider::Aws).unwrap();
        pool.operating_system = osm_api::profile::OperatingSystem::Rhel;
        let secret = || {
            let secret = json!({"secretKeyRef": {"namespace": "a", "name": "b", "key": "c"}});
            serde_json::from_value::<ConfigVar>(secret).unwrap()
        };
        // The texts of a profile decide which of these there are.
        let mut found = BTreeSet::from([("secret/NAMESPACE/NAME/KEY".to_owned(), "provisioning")]);
        for with_key in [false, true] {
            pool.os.rhel_subscription_manager_user = secret();
            pool.os.rhel_subscription_manager_password = secret();
            if with_key {
                pool.os.rhel_organization_name = secret();
                pool.os.rhel_activation_key = secret();
            }
            for stage in Stage::ALL {
                let name = if stage == Stage::Bootstrap {
                    "bootstrap"
                } else {
                    "provisioning"
                };
                for id in model::late_bound(stage, TemplateEngine::Handlebars, &settings, &pool).into_keys() {
                    let id = match id
                        .strip_prefix("registry/")
                        .and_then(|rest| rest.rsplit_once('/'))
                    {
                        Some((_, part)) => format!("registry/HOST/{part}"),
                        None => id,
                    };
                    found.insert((id, name));
                }
            }
        }
        let known = LATE_VALUES.iter().flat_map(|(id, of)| {
            let stages = ["bootstrap", "provisioning"].into_iter();
            let stages = stages.filter(move |stage| *of == "both" || of == stage);
            stages.map(|stage| ((*id).to_owned(), stage))
        });
        assert_eq!(found, known.collect());
    }
}
