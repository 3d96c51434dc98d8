//! Everything that templates can use, for people to read: data, helpers and late-bound values of Handlebars, and variables of Go
//! templates. Tests make sure that these tables and the code agree.

/// A field of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Path, such as `kubelet.version`. `[]` stands for an item of a list.
    pub path: &'static str,
    /// `text`, `number`, `boolean`, `list` or `map`; ` or null` if it can be unset.
    pub kind: &'static str,
    /// A value, as JSON.
    pub example: &'static str,
    /// What it is.
    pub meaning: &'static str,
}

/// A helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper {
    /// Name.
    pub name: &'static str,
    /// The name with its arguments.
    pub usage: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// A template, and what it renders to for a pool with kubelet 1.36.0 on AWS.
    pub example: (&'static str, &'static str),
}

/// A variable of Go templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoVariable {
    /// Name, such as `.KubeVersion`.
    pub name: &'static str,
    /// Example of its arguments, as a template writes them; empty if it takes none.
    pub arguments: &'static str,
    /// Type in Go, such as `string`.
    pub kind: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The same in Handlebars; empty if there is nothing.
    pub handlebars: &'static str,
}

/// A late-bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateValue {
    /// Id. HOST stands for the host of a registry.
    pub id: &'static str,
    /// Stages that can use it: `bootstrap`, `provisioning` or `both`.
    pub stages: &'static str,
    /// What it is.
    pub meaning: &'static str,
}

const fn field(
    path: &'static str,
    kind: &'static str,
    example: &'static str,
    meaning: &'static str,
) -> Field {
    Field {
        path,
        kind,
        example,
        meaning,
    }
}

/// Every field of the data, in order.
#[rustfmt::skip] // A row each.
pub const FIELDS: &[Field] = &[
    field("kubelet.version", "text", "\"1.34.2\"", "Version of the kubelet, without v."),
    field("kubelet.minor", "number", "34", "Minor version of the kubelet."),
    field("kubelet.hostnameOverride", "boolean", "true", "Whether the kubelet gets the name of its node by --hostname-override."),
    field("kubelet.featureGates", "map", "{\"ImageVolume\": true}", "Feature gates of the settings."),
    field(
        "kubelet.configuration",
        "map or null",
        "{\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"kind\": \"KubeletConfiguration\", \"podPidsLimit\": 4096}",
        "The kubelet configuration of the settings, as a complete drop-in.",
    ),
    field("kubelet.shutdownSeconds", "number or null", "60", "How long the settings let the kubelet delay a shutdown of the machine, for its pods."),
    field("kubelet.systemReserved", "map or null", "{\"cpu\": \"200m\"}", "Resources for the system, from an annotation."),
    field("kubelet.kubeReserved", "map or null", "{\"cpu\": \"200m\"}", "Resources for Kubernetes, from an annotation."),
    field("kubelet.evictionHard", "map or null", "{\"memory.available\": \"100Mi\"}", "Eviction thresholds, from an annotation."),
    field("kubelet.containerLogMaxSize", "text or null", "\"100Mi\"", "Size at which a container's log is rotated, from an annotation."),
    field("kubelet.containerLogMaxFiles", "number or null", "5", "Logs to keep of each container, from an annotation."),
    field("kubelet.maxPods", "number or null", "110", "Most pods of a node, from an annotation."),
    field("kubelet.imageGCHighThresholdPercent", "number or null", "85", "Disk usage at which images are removed, from an annotation."),
    field("kubelet.imageGCLowThresholdPercent", "number or null", "80", "Disk usage down to which images are removed, from an annotation."),
    field("kubelet.imageMinimumGCAge", "text or null", "\"2m\"", "Age before which no image is removed, from an annotation."),
    field("kubelet.imageMaximumGCAge", "text or null", "\"24h\"", "Age at which an unused image is removed, from an annotation."),
    field("cloud.name", "text", "\"aws\"", "Cloud provider of the pool."),
    field("cloud.external", "boolean", "true", "Whether an external cloud controller manager initializes nodes; always false on edge."),
    field("cloud.nodeName", "text", "\"machine-name\"", "Where a machine finds its node name: \"machine-name\" (/etc/machine-name) or \"ec2-metadata\"."),
    field("cloud.guestAgent", "map or null", "{\"package\": \"qemu-guest-agent\", \"unit\": \"qemu-guest-agent.service\"}", "Guest agent for the hypervisor: its package and its unit."),
    field("os.name", "text", "\"ubuntu\"", "Operating system of the pool."),
    field("os.family", "text", "\"debian\"", "\"debian\", \"redhat\" or \"flatcar\"."),
    field("os.selinux", "boolean", "false", "Whether the images of the operating system use SELinux."),
    field("os.python.first", "text", "\"python3\"", "Command of the Python that has a YAML module."),
    field("os.python.otherwise", "text", "\"/usr/libexec/platform-python\"", "Command to use if the first does not exist."),
    field("os.distUpgradeOnBoot", "boolean", "false", "Whether the pool upgrades all packages at the first boot."),
    field("os.disableAutoUpdate", "boolean", "false", "Whether the pool turns automatic updates off; only for Flatcar."),
    field("os.disableLocksmithD", "boolean", "false", "Whether the pool turns locksmithd off; only for Flatcar."),
    field("os.disableUpdateEngine", "boolean", "false", "Whether the pool turns update-engine off; only for Flatcar."),
    field("cluster.apiServer", "text", "\"https://api.example:6443\"", "URL of the API server."),
    field("cluster.ca", "text", "\"-----BEGIN CERTIFICATE-----\\n…\"", "Certificates of the cluster, in PEM."),
    field("cluster.dnsIPs", "list", "[\"10.96.0.10\"]", "Addresses of the cluster's DNS service."),
    field("cluster.dnsDomain", "text", "\"cluster.local\"", "DNS domain of the cluster."),
    field("pool.name", "text", "\"workers\"", "Name of the MachineDeployment."),
    field("pool.namespace", "text", "\"kube-system\"", "Namespace of the MachineDeployment."),
    field("network.ipFamily", "text", "\"IPv4+IPv6\"", "\"IPv4\", \"IPv6\", \"IPv4+IPv6\" or \"IPv6+IPv4\"."),
    field("network.ipv4", "boolean", "true", "Whether nodes have an IPv4 address."),
    field("network.ipv6", "boolean", "false", "Whether nodes have an IPv6 address."),
    field("network.dualStack", "boolean", "false", "Whether nodes have both."),
    field("network.static", "map or null", "{\"cidr\": \"192.0.2.7/24\", \"gateway\": \"192.0.2.1\", \"dnsServers\": [\"192.0.2.53\"]}", "Static address of the machines, if the MachineDeployment sets one."),
    field("proxy.http", "text or null", "\"http://proxy.example:3128\"", "Proxy of the settings."),
    field("proxy.noProxy", "text or null", "\"10.0.0.0/8,.svc\"", "Destinations that do not use the proxy."),
    field("proxy.credentials", "boolean", "false", "Whether the proxy demands a user name and a password; late \"proxy/url\" has them."),
    field("hostCABundle", "text or null", "\"-----BEGIN CERTIFICATE-----\\n…\"", "Certificates that nodes trust in addition, in PEM."),
    field("pauseImage", "text or null", "\"registry.example/pause:3.10\"", "Image of the pod sandbox."),
    field("initialTaints", "list", "[{\"key\": \"dedicated\", \"value\": \"batch\", \"effect\": \"NoSchedule\"}]", "Taints with which nodes register."),
    field("initialTaints[].key", "text", "\"dedicated\"", "Key of the taint."),
    field("initialTaints[].value", "text or null", "\"batch\"", "Value of the taint."),
    field("initialTaints[].effect", "text", "\"NoSchedule\"", "Effect of the taint."),
    field("overwriteCloudConfig", "text or null", "\"[Global]\\n…\"", "Text of /etc/kubernetes/cloud-config, from the MachineDeployment."),
    field("containerd.registries", "list", "[{\"host\": \"docker.io\", …}]", "Registries with mirrors or credentials."),
    field("containerd.registries[].host", "text", "\"docker.io\"", "Host of the registry, or \"_default\" for all others."),
    field("containerd.registries[].server", "text or null", "\"https://registry-1.docker.io\"", "URL of the registry; null for \"_default\"."),
    field("containerd.registries[].directory", "text", "\"docker.io\"", "Name of its folder below /etc/containerd/certs.d."),
    field("containerd.registries[].credentials", "boolean", "true", "Whether there are late-bound credentials for it."),
    field("containerd.registries[].mirrors", "list", "[{\"url\": \"https://mirror.example\", …}]", "Mirrors, in the order in which they are tried."),
    field("containerd.registries[].mirrors[].url", "text", "\"https://mirror.example\"", "URL of the mirror."),
    field("containerd.registries[].mirrors[].skipVerify", "boolean", "false", "Whether its certificate is not verified."),
    field("containerd.registries[].mirrors[].overridePath", "boolean", "false", "Whether the path of its URL replaces /v2."),
    field("containerd.deviceOwnershipFromSecurityContext", "boolean", "false", "Whether devices belong to the user of the pod."),
    field("downloads.kubelet.baseURL", "text", "\"https://dl.k8s.io\"", "Where the kubelet is downloaded from, without a trailing /."),
    field("downloads.kubelet.sha256.amd64", "text or null", "\"0f…\"", "Pinned checksum for amd64, in lower case."),
    field("downloads.kubelet.sha256.arm64", "text or null", "\"0f…\"", "Pinned checksum for arm64, in lower case."),
    field("downloads.containerd.version", "text", "\"2.2.1\"", "Version of containerd."),
    field("downloads.containerd.baseURL", "text", "\"https://github.com/containerd/containerd/releases/download\"", "Where containerd is downloaded from."),
    field("downloads.containerd.sha256.amd64", "text or null", "\"0f…\"", "Pinned checksum for amd64."),
    field("downloads.containerd.sha256.arm64", "text or null", "\"0f…\"", "Pinned checksum for arm64."),
    field("downloads.runc.version", "text", "\"1.3.4\"", "Version of runc."),
    field("downloads.runc.baseURL", "text", "\"https://github.com/opencontainers/runc/releases/download\"", "Where runc is downloaded from."),
    field("downloads.runc.sha256.amd64", "text or null", "\"0f…\"", "Pinned checksum for amd64."),
    field("downloads.runc.sha256.arm64", "text or null", "\"0f…\"", "Pinned checksum for arm64."),
    field("downloads.cni.version", "text", "\"1.9.0\"", "Version of the CNI plugins."),
    field("downloads.cni.baseURL", "text", "\"https://github.com/containernetworking/plugins/releases/download\"", "Where the CNI plugins are downloaded from."),
    field("downloads.cni.sha256.amd64", "text or null", "\"0f…\"", "Pinned checksum for amd64."),
    field("downloads.cni.sha256.arm64", "text or null", "\"0f…\"", "Pinned checksum for arm64."),
    field("downloads.crictl.version", "text or null", "\"1.35.0\"", "Version of crictl; null if the settings turn crictl off."),
    field("downloads.crictl.baseURL", "text", "\"https://github.com/kubernetes-sigs/cri-tools/releases/download\"", "Where crictl is downloaded from."),
    field("downloads.crictl.sha256.amd64", "text or null", "\"0f…\"", "Pinned checksum for amd64."),
    field("downloads.crictl.sha256.arm64", "text or null", "\"0f…\"", "Pinned checksum for arm64."),
    field("packages.enabled", "boolean", "true", "Whether packages of the operating system may be installed."),
    field("packages.install", "list", "[\"nfs-common\"]", "Packages of the settings to install."),
    field("system.swap.on", "boolean", "false", "Whether the swap of the machine is left on."),
    field("system.swap.behavior", "text or null", "\"LimitedSwap\"", "The kubelet's swapBehavior of the settings."),
    field("system.swap.mebibytes", "number or null", "2048", "Size of the swap file to create, in MiB."),
];

const fn helper(
    name: &'static str,
    usage: &'static str,
    meaning: &'static str,
    template: &'static str,
    output: &'static str,
) -> Helper {
    Helper {
        name,
        usage,
        meaning,
        example: (template, output),
    }
}

/// Every helper: blocks first.
#[rustfmt::skip] // A row each.
pub const HELPERS: &[Helper] = &[
    helper("if", "{{#if x}} … {{else}} … {{/if}}", "Renders the first part unless x is false, null, 0, \"\", or an empty list or map. With includeZero=true, 0 counts as true.", "{{#if network.ipv4}}yes{{else}}no{{/if}}", "yes"),
    helper("unless", "{{#unless x}} … {{/unless}}", "The opposite of if.", "{{#unless network.ipv4}}no IPv4{{/unless}}.", "."),
    helper("each", "{{#each list}} … {{else}} … {{/each}}", "Renders its text for each item. Inside are the fields of the item, this, @index, @key, @first and @last; ../ leads to the data outside.", "{{#each cluster.dnsIPs}}{{@index}}={{this}} {{/each}}", "0=10.96.0.10 1=fd00::a "),
    helper("with", "{{#with x}} … {{/with}}", "As if, and the fields inside are those of x.", "{{#with os}}{{name}}{{/with}}", "ubuntu"),
    helper("eq", "eq a b", "Whether a equals b.", "{{eq cloud.name \"aws\"}}", "true"),
    helper("ne", "ne a b", "Whether a differs from b.", "{{ne cloud.name \"aws\"}}", "false"),
    helper("gt", "gt a b", "Whether a is greater than b.", "{{gt kubelet.minor 33}}", "true"),
    helper("gte", "gte a b", "Whether a is greater than or equal to b.", "{{gte kubelet.minor 36}}", "true"),
    helper("lt", "lt a b", "Whether a is less than b.", "{{lt kubelet.minor 36}}", "false"),
    helper("lte", "lte a b", "Whether a is less than or equal to b.", "{{lte kubelet.minor 36}}", "true"),
    helper("not", "not a", "Whether a is false, null, 0, or empty.", "{{not network.ipv4}}", "false"),
    helper("len", "len list", "Number of items.", "{{len cluster.dnsIPs}}", "2"),
    helper("lookup", "lookup map key", "The value of a key, or the item at an index.", "{{lookup cluster.dnsIPs 0}}", "10.96.0.10"),
    helper("and", "and a b …", "Whether all are true.", "{{and network.ipv4 network.ipv6}}", "true"),
    helper("or", "or a b …", "Whether one is true.", "{{or network.ipv4 network.ipv6}}", "true"),
    helper("semver", "semver version requirement", "Whether a version satisfies a requirement. A pre-release counts as its release.", "{{semver kubelet.version \">=1.35, <1.37\"}}", "true"),
    helper("indent", "indent spaces text", "The text with each line indented.", "{{indent 2 \"a\"}}", "  a"),
    helper("json", "json value", "The value as JSON; a text includes its quotes.", "{{json cluster.dnsIPs}}", "[\"10.96.0.10\",\"fd00::a\"]"),
    helper("toml", "toml value", "The value in TOML; a text includes its quotes.", "{{toml cloud.name}}", "\"aws\""),
    helper("yaml", "yaml value", "The value as YAML on one line; a text includes its quotes.", "{{yaml cluster.dnsIPs}}", "[\"10.96.0.10\", \"fd00::a\"]"),
    helper("shell", "shell text", "The text as one word of a POSIX shell, in single quotes.", "{{shell cloud.name}}", "'aws'"),
    helper("b64", "b64 text", "The text in base64.", "{{b64 cloud.name}}", "YXdz"),
    helper("join", "join list separator", "The items as one text.", "{{join cluster.dnsIPs \",\"}}", "10.96.0.10,fd00::a"),
    helper("trim", "trim text", "The text without spaces and line breaks at its ends.", "{{trim \" a \"}}", "a"),
    helper("lit", "lit text", "The text unchanged, for braces that do not start a tag.", "{{lit \"{{\"}} .ID }}", "{{ .ID }}"),
    helper("concat", "concat a b …", "The texts as one.", "{{concat cloud.name \"-\" os.name}}", "aws-ubuntu"),
    helper("late", "late id as=\"raw|shell|yaml|json|toml|b64\"", "A late-bound value, encoded for the language of the text around it.", "{{late \"api/token\" as=\"shell\"}}", "'api/token'"),
    helper("download-url", "download-url name arch=\"…\"", "URL of a project's release file: kubelet, containerd, runc, cni or crictl.", "{{download-url \"kubelet\" arch=\"amd64\"}}", "https://files.example/k8s/v1.36.0/bin/linux/amd64/kubelet"),
    helper("checksum-url", "checksum-url name arch=\"…\"", "URL of the file with its checksum.", "{{checksum-url \"kubelet\" arch=\"amd64\"}}", "https://files.example/k8s/v1.36.0/bin/linux/amd64/kubelet.sha256"),
];

const fn late(id: &'static str, stages: &'static str, meaning: &'static str) -> LateValue {
    LateValue { id, stages, meaning }
}

/// Every late-bound value that templates can place.
#[rustfmt::skip] // A row each.
pub const LATE_VALUES: &[LateValue] = &[
    late("api/token", "bootstrap", "Token that reads the documents of the pool."),
    late("kubelet/token", "bootstrap", "Token that requests a client certificate for a node."),
    late("provisioning/secret-name", "bootstrap", "Name of the Secret with the provisioning document."),
    late("provisioning/key", "bootstrap", "Key of that Secret: its value is the document, compressed by gzip."),
    late("provisioning/sha256", "bootstrap", "Checksum of the provisioning document."),
    late("rhel/username", "provisioning", "User of the RHEL subscription, if it comes from a Secret or ConfigMap."),
    late("rhel/password", "provisioning", "Password of the RHEL subscription."),
    late("rhel/organization", "provisioning", "Organization of the RHEL subscription, if it comes from a Secret or ConfigMap."),
    late("rhel/activation-key", "provisioning", "Activation key of the RHEL subscription."),
    late("proxy/url", "provisioning", "URL of the proxy with its user name and password, if proxy.credentials is true."),
    late("secret/NAMESPACE/NAME/KEY", "provisioning", "Value of a Secret that credentials.profileSecrets of the settings lists; the id must be a literal."),
    late("registry/HOST/username", "both", "User of a registry whose credentials is true."),
    late("registry/HOST/password", "both", "Password of a registry whose credentials is true."),
];

const fn variable(
    name: &'static str,
    kind: &'static str,
    meaning: &'static str,
    handlebars: &'static str,
) -> GoVariable {
    GoVariable {
        name,
        arguments: "",
        kind,
        meaning,
        handlebars,
    }
}

impl GoVariable {
    /// As a template writes it.
    #[must_use]
    pub fn usage(&self) -> String {
        format!("{} {}", self.name, self.arguments).trim_end().to_owned()
    }

    const fn with(self, arguments: &'static str) -> Self {
        Self { arguments, ..self }
    }
}

/// Every variable of Go templates.
#[rustfmt::skip] // A row each.
pub const GO_VARIABLES: &[GoVariable] = &[
    variable(".KubeVersion", "string", "Version of the kubelet, with a leading v.", "kubelet.version, without v"),
    variable(".KubeReserved", "*map[string]string", "Resources for Kubernetes, from an annotation.", "kubelet.kubeReserved"),
    variable(".SystemReserved", "*map[string]string", "Resources for the system, from an annotation.", "kubelet.systemReserved"),
    variable(".EvictionHard", "*map[string]string", "Eviction thresholds, from an annotation.", "kubelet.evictionHard"),
    variable(".MaxPods", "*int32", "Most pods of a node, from an annotation.", "kubelet.maxPods"),
    variable(".ImageGCHighThresholdPercent", "*int32", "Disk usage at which images are removed, from an annotation.", "kubelet.imageGCHighThresholdPercent"),
    variable(".ImageGCLowThresholdPercent", "*int32", "Disk usage down to which images are removed, from an annotation.", "kubelet.imageGCLowThresholdPercent"),
    variable(".ContainerLogMaxSize", "*string", "Size at which a container's log is rotated, from an annotation.", "kubelet.containerLogMaxSize"),
    variable(".ContainerLogMaxFiles", "*string", "Logs to keep of each container, from an annotation.", "kubelet.containerLogMaxFiles"),
    variable(".ImageMinimumGCAge", "*v1.Duration", "Age before which no image is removed, from an annotation. It is printed as 5m0s.", "kubelet.imageMinimumGCAge"),
    variable(".ImageMaximumGCAge", "*v1.Duration", "Age at which an unused image is removed, from an annotation. It is printed as 5m0s.", "kubelet.imageMaximumGCAge"),
    variable(".KubeletFeatureGates", "map[string]bool", "Feature gates of the settings.", "kubelet.featureGates"),
    variable(".CloudProviderName", "v1alpha1.CloudProvider", "Cloud provider of the pool, a text.", "cloud.name"),
    variable(".ExternalCloudProvider", "bool", "Whether an external cloud controller manager initializes nodes.", "cloud.external"),
    variable(".InTreeCCMAvailable", "bool", "Not external, and AWS, Azure, GCE or vSphere.", ""),
    variable(".CloudConfig", "string", "Text of the cloud provider's configuration, from the MachineDeployment.", "overwriteCloudConfig"),
    variable(".ClusterDNSIPs", "[]net.IP", "Addresses of the cluster's DNS service.", "cluster.dnsIPs"),
    variable(".KubernetesCACert", "string", "Certificates of the cluster, in PEM.", "cluster.ca"),
    variable(".ServerURL", "string", "URL of the API server.", "cluster.apiServer"),
    variable(".HostCACert", "string", "Certificates that nodes trust in addition, in PEM; empty if the settings have none.", "hostCABundle"),
    variable(".HTTPProxy", "*string", "Proxy of the settings.", "proxy.http"),
    variable(".NoProxy", "*string", "Destinations that do not use the proxy.", "proxy.noProxy"),
    variable(".PauseImage", "string", "Image of the pod sandbox; empty if the settings name none.", "pauseImage"),
    variable(".InitialTaints", "string", "Taints with which nodes register, for the kubelet's --register-with-taints.", "initialTaints, a list"),
    variable(".NetworkIPFamily", "string", "IP family of the pool; empty if it names none.", "network.ipFamily"),
    variable(".NetworkConfig", "*providerconfig.NetworkConfig", "Network of the pool.", "network"),
    variable(".NetworkConfig.CIDR", "string", "Static address with its prefix length, or an empty text.", "network.static.cidr"),
    variable(".NetworkConfig.Gateway", "string", "Gateway of the static address.", "network.static.gateway"),
    variable(".NetworkConfig.DNS", "providerconfig.DNSConfig", "DNS servers of the static address.", ""),
    variable(".NetworkConfig.DNS.Servers", "[]string", "Addresses of the DNS servers.", "network.static.dnsServers"),
    variable(".NetworkConfig.IPFamily", "providerconfig.IPFamily", "IP family of the pool, a text.", "network.ipFamily"),
    variable(".NetworkConfig.IsStaticIPConfig", "bool", "Whether the machines have a static address.", "network.static, null if they have none"),
    variable(".ContainerRuntime", "string", "The text containerd.", ""),
    variable(".ContainerRuntimeConfig", "string", "The config.toml of containerd 2.", "{{> lib/containerd.toml}}"),
    variable(".UbuntuConfig", "resources.ubuntuConfig", "Settings of Ubuntu.", ""),
    variable(".UbuntuConfig.DistUpgradeOnBoot", "bool", "Whether the pool upgrades all packages at the first boot.", "os.distUpgradeOnBoot"),
    variable(".RockyLinuxConfig", "resources.rockyLinuxConfig", "Settings of Rocky Linux.", ""),
    variable(".RockyLinuxConfig.DistUpgradeOnBoot", "bool", "Whether the pool upgrades all packages at the first boot.", "os.distUpgradeOnBoot"),
    variable(".AmazonLinuxConfig", "resources.amazonLinuxConfig", "Settings of Amazon Linux.", ""),
    variable(".AmazonLinuxConfig.DistUpgradeOnBoot", "bool", "Whether the pool upgrades all packages at the first boot.", "os.distUpgradeOnBoot"),
    variable(".FlatcarConfig", "resources.flatcarConfig", "Settings of Flatcar.", ""),
    variable(".FlatcarConfig.DisableAutoUpdate", "bool", "Whether the pool turns automatic updates off.", "os.disableAutoUpdate"),
    variable(".FlatcarConfig.DisableLocksmithD", "bool", "Whether the pool turns locksmithd off.", "os.disableLocksmithD"),
    variable(".FlatcarConfig.DisableUpdateEngine", "bool", "Whether the pool turns update-engine off.", "os.disableUpdateEngine"),
    variable(".FlatcarConfig.ProvisioningUtility", "string", "The text ignition or cloud-init; empty if the pool names none.", ""),
    variable(".RhelConfig", "resources.rhelConfig", "Settings of RHEL.", ""),
    variable(".RhelConfig.DistUpgradeOnBoot", "bool", "Whether the pool upgrades all packages at the first boot.", "os.distUpgradeOnBoot"),
    variable(".RhelConfig.RHELSubscriptionManagerUser", "string", "User of the subscription, late-bound if it comes from a Secret or ConfigMap.", "late \"rhel/username\""),
    variable(".RhelConfig.RHELSubscriptionManagerPassword", "string", "Password of the subscription, late-bound.", "late \"rhel/password\""),
    variable(".RhelConfig.RHSMOfflineToken", "string", "Always empty.", ""),
    variable(".RhelConfig.AttachSubscription", "bool", "Whether the pool attaches a subscription.", ""),
    variable(".RhelConfig.RHELUseSatelliteServer", "bool", "Whether the machines register with a Satellite server.", ""),
    variable(".RhelConfig.RHELSatelliteServer", "string", "Host of the Satellite server.", ""),
    variable(".RhelConfig.RHELOrganizationName", "string", "Organization of the subscription, late-bound if it comes from a Secret or ConfigMap.", "late \"rhel/organization\""),
    variable(".RhelConfig.RHELActivationKey", "string", "Activation key of the subscription, late-bound.", "late \"rhel/activation-key\""),
    variable(".Token", "string", "Token that reads the documents of the pool, late-bound.", "late \"api/token\""),
    variable(".SecretName", "string", "Name of the Secret with the provisioning document, late-bound; only in bootstrapConfig.", "late \"provisioning/secret-name\""),
    variable(".BootstrapKubeconfig", "string", "Kubeconfig with the token by which a kubelet joins, late-bound.", "{{> lib/bootstrap-kubelet.conf}}"),
    variable(".BootstrapKubeconfigSecretName", "string", "Name of the Secret with that kubeconfig, late-bound.", ""),
    variable(".ProfileSecret", "string", "Value of a Secret that credentials.profileSecrets of the settings lists, late-bound; only in provisioningConfig. The argument must be a literal text.", "late \"secret/NAMESPACE/NAME/KEY\"")
        .with("\"secret/kube-system/vpn/password\""),
    variable(".KubeletConfiguration", "string", "Always empty.", ""),
    variable(".KubeletSystemdUnit", "string", "Always empty.", ""),
    variable(".CNIVersion", "string", "Always empty.", ""),
    variable(".ServerAddress", "string", "Always empty.", ""),
    variable(".ContainerRuntimeAuthConfig", "string", "Always empty.", ""),
    variable(".RHSubscription", "map[string]string", "Always empty.", ""),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let is_map = |field: &Field| field.path == path && field.kind.starts_with("map");
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
                let known: BTreeSet<String> = FIELDS.iter().map(|field| field.path.to_owned()).collect();
                let unknown: Vec<_> = found.difference(&known).collect();
                assert!(unknown.is_empty(), "not in the table: {unknown:?}");
                for (field, seen) in FIELDS.iter().zip(&mut null_or_not) {
                    for value in values(&data, field.path) {
                        seen.insert(value.is_null());
                        let kind = match value {
                            Value::Null => "null",
                            Value::Bool(_) => "boolean",
                            Value::Number(_) => "number",
                            Value::String(_) => "text",
                            Value::Array(_) => "list",
                            Value::Object(_) => "map",
                        };
                        assert!(
                            field.kind.split(" or ").any(|known| known == kind),
                            "{} is {kind}",
                            field.path
                        );
                    }
                }
            }
        }
        for (field, seen) in FIELDS.iter().zip(null_or_not) {
            assert_eq!(
                field.kind.ends_with("or null"),
                seen.contains(&true),
                "{}",
                field.path
            );
            assert!(seen.contains(&false), "{} is never set", field.path);
            assert!(
                field.meaning.ends_with('.') && !field.example.is_empty(),
                "{}",
                field.path
            );
            let complete = !field.example.contains('…') || field.kind == "list";
            assert!(
                field.example.contains('…') || serde_json::from_str::<Value>(field.example).is_ok(),
                "{} {complete}",
                field.path
            );
        }
    }

    #[test]
    fn helpers_are_those_of_the_engine_and_examples_render() {
        let mut known: Vec<&str> = HELPERS.iter().map(|helper| helper.name).collect();
        let mut names = handlebars::helper_names();
        known.sort_unstable();
        names.sort_unstable();
        assert_eq!(known, names);
        for helper in HELPERS {
            let (template, expected) = helper.example;
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
            assert_eq!(file.text, expected, "{template}");
            assert!(helper.usage.contains(helper.name), "{}", helper.name);
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
        for (path, method) in crate::go_templates::methods() {
            let name = format!("{path}.{}", method.name);
            let variable = GO_VARIABLES.iter().find(|variable| variable.name == name);
            let arguments = variable.map(|variable| variable.arguments.split_whitespace().count());
            assert_eq!(arguments, Some(method.parameters.len()), "{name}");
            found.insert(name);
        }
        let known = GO_VARIABLES.iter().map(|variable| variable.name.to_owned());
        assert_eq!(found, known.collect());
        for variable in GO_VARIABLES {
            let stage = match variable.arguments {
                "" => Stage::Bootstrap,
                // Only values of Secrets have arguments.
                _ => Stage::Provisioning,
            };
            let kind = render_in(stage, &format!("{{{{ typeOf ({}) }}}}", variable.usage()));
            assert_eq!(kind, variable.kind, "{}", variable.name);
            let fields = variable
                .handlebars
                .split(", ")
                .filter(|text| text.starts_with(char::is_lowercase));
            for field in fields.filter(|text| text.contains('.')) {
                assert_eq!(crate::known_names::unknown_field(field.split('.')), None);
            }
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
        let known = LATE_VALUES.iter().flat_map(|late| {
            let stages = ["bootstrap", "provisioning"].into_iter();
            let stages = stages.filter(|stage| late.stages == "both" || late.stages == *stage);
            stages.map(|stage| (late.id.to_owned(), stage))
        });
        assert_eq!(found, known.collect());
    }
}
