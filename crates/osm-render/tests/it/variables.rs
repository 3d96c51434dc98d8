//! Every variable of Go templates is the same as its field in Handlebars, for pools of each operating system,
//! in each stage.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::config::StageConfig;
use osm_api::profile::OperatingSystemProfileSpec;
use osm_api::{Pool, Settings};
use osm_render::stand_in_cluster;
use serde_json::{Value, json};

use crate::common::{EVERYTHING, compiled, give_static_address, pool, table};

/// The same in both languages: in Go's, and in Handlebars.
type Row = (&'static str, &'static str);

/// For every pool, in both stages.
const EVERYWHERE: &str = r#"
{{ .KubeVersion }} == v{{kubelet.version}}
{{ .ClusterDNSIPs | join "," }} == {{join cluster.dnsIPs ","}}
{{ .KubernetesCACert }} == {{cluster.ca}}
{{ .HostCACert }} == {{hostCABundle}}
{{ .CloudConfig }} == {{overwriteCloudConfig}}
{{ .CloudProviderName }} == {{cloud.name}}
{{ .ExternalCloudProvider }} == {{cloud.external}}
{{ .InitialTaints }} == {{#each initialTaints}}{{#unless @first}},{{/unless}}{{key}}={{value}}:{{effect}}{{/each}}
{{ with .HTTPProxy }}{{ . }}{{ end }} == {{proxy.http}}
{{ with .NoProxy }}{{ . }}{{ end }} == {{proxy.noProxy}}
{{ range $gate, $on := .KubeletFeatureGates }}{{ $gate }}={{ $on }},{{ end }} == {{#each kubelet.featureGates}}{{@key}}={{this}},{{/each}}
{{ .PauseImage }} == {{pauseImage}}
{{ .ServerURL }} == {{cluster.apiServer}}
{{ if .KubeReserved }}{{ range $k, $v := .KubeReserved }}{{ $k }}={{ $v }},{{ end }}{{ end }} == {{#each kubelet.kubeReserved}}{{@key}}={{this}},{{/each}}
{{ if .SystemReserved }}{{ range $k, $v := .SystemReserved }}{{ $k }}={{ $v }},{{ end }}{{ end }} == {{#each kubelet.systemReserved}}{{@key}}={{this}},{{/each}}
{{ if .EvictionHard }}{{ range $k, $v := .EvictionHard }}{{ $k }}<{{ $v }},{{ end }}{{ end }} == {{#each kubelet.evictionHard}}{{@key}}<{{this}},{{/each}}
{{ if .MaxPods }}{{ .MaxPods }}{{ end }} == {{kubelet.maxPods}}
{{ if .ImageGCHighThresholdPercent }}{{ .ImageGCHighThresholdPercent }}{{ end }} == {{kubelet.imageGCHighThresholdPercent}}
{{ if .ImageGCLowThresholdPercent }}{{ .ImageGCLowThresholdPercent }}{{ end }} == {{kubelet.imageGCLowThresholdPercent}}
{{ if .ContainerLogMaxSize }}{{ .ContainerLogMaxSize }}{{ end }} == {{kubelet.containerLogMaxSize}}
{{ if .ContainerLogMaxFiles }}{{ .ContainerLogMaxFiles }}{{ end }} == {{kubelet.containerLogMaxFiles}}
{{ .ContainerRuntime }} == containerd
{{ or .NetworkIPFamily "IPv4" }} == {{network.ipFamily}}
{{ if .NetworkConfig }}{{ .NetworkConfig.IPFamily }}{{ else }}IPv4{{ end }} == {{network.ipFamily}}
{{ .KubeletConfiguration }}{{ .KubeletSystemdUnit }}{{ .CNIVersion }}{{ .ServerAddress }}{{ .ContainerRuntimeAuthConfig }} == 
{{ .NetworkConfig.IsStaticIPConfig }} == {{#if network.static}}true{{else}}false{{/if}}
{{ .InTreeCCMAvailable }} == {{and (not cloud.external) (or (eq cloud.name "aws") (eq cloud.name "azure") (eq cloud.name "gce") (eq cloud.name "vsphere"))}}
{{ len .RHSubscription }} == 0
{{ if .NetworkConfig.IsStaticIPConfig }}{{ .NetworkConfig.CIDR }} {{ .NetworkConfig.Gateway }} {{ join "," .NetworkConfig.DNS.Servers }}{{ end }} == {{#with network.static}}{{cidr}} {{gateway}} {{join dnsServers ","}}{{/with}}
"#;

/// For pools of one system, in both stages.
const OF_SYSTEM: &str = r#"
ubuntu | {{ .UbuntuConfig.DistUpgradeOnBoot }} == {{os.distUpgradeOnBoot}}
rockylinux | {{ .RockyLinuxConfig.DistUpgradeOnBoot }} == {{os.distUpgradeOnBoot}}
amzn2 | {{ .AmazonLinuxConfig.DistUpgradeOnBoot }} == {{os.distUpgradeOnBoot}}
rhel | {{ .RhelConfig.DistUpgradeOnBoot }} == {{os.distUpgradeOnBoot}}
flatcar | {{ .FlatcarConfig.DisableAutoUpdate }} == {{os.disableAutoUpdate}}
flatcar | {{ .FlatcarConfig.DisableLocksmithD }} == {{os.disableLocksmithD}}
flatcar | {{ .FlatcarConfig.DisableUpdateEngine }} == {{os.disableUpdateEngine}}
"#;

/// For every pool, only in the bootstrap stage: credentials, and what is known when a document is published.
const IN_BOOTSTRAP: &str = r#"
{{ .Token }} == {{late "api/token" as="raw"}}
{{ .SecretName }} == {{late "provisioning/secret-name" as="raw"}}
"#;

/// For pools of RHEL with a user, and with an activation key, only in the provisioning stage.
const WITH_USER: &str = r#"
{{ .RhelConfig.RHELSubscriptionManagerUser }} == {{late "rhel/username" as="raw"}}
{{ .RhelConfig.RHELSubscriptionManagerPassword }} == {{late "rhel/password" as="raw"}}
"#;
const WITH_KEY: &str = r#"
{{ .RhelConfig.RHELOrganizationName }} == {{late "rhel/organization" as="raw"}}
{{ .RhelConfig.RHELActivationKey }} == {{late "rhel/activation-key" as="raw"}}
"#;

fn rows(table: &'static str) -> Vec<Row> {
    table.trim().lines().map(row).collect()
}

fn row(text: &'static str) -> Row {
    let (go, handlebars) = text.split_once(" ==").unwrap();
    (go.trim(), handlebars.trim())
}

/// Before each text in a file.
const SEPARATOR: &str = "¦";

/// A profile whose stages have a file with these texts.
fn spec(os: &str, engine: &str, stages: [Vec<&str>; 2]) -> OperatingSystemProfileSpec {
    let [bootstrap, provisioning] = stages.map(|texts| {
        let texts: String = texts.iter().map(|text| SEPARATOR.to_owned() + text).collect();
        json!({"files": [{"path": "/texts", "content": {"inline": {"data": texts}}}]})
    });
    let utility = if os == "flatcar" { "ignition" } else { "cloud-init" };
    serde_json::from_value(json!({
        "osName": os, "osVersion": "1", "version": "v1.0.0", "templateEngine": engine, "provisioningUtility": utility,
        "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
        "bootstrapConfig": bootstrap, "provisioningConfig": provisioning,
    }))
    .unwrap()
}

/// The texts of a stage.
fn texts(stage: &StageConfig) -> Vec<String> {
    let file = stage.files.iter().find(|file| file.path == "/texts").unwrap();
    let text = &file.content.inline.as_ref().unwrap().data;
    text.split(SEPARATOR).skip(1).map(str::to_owned).collect()
}

/// What rows render to: pairs of Go and Handlebars, of both stages.
fn rendered(
    pool: &Pool,
    settings: &Settings,
    bootstrap: &[Row],
    provisioning: &[Row],
) -> [Vec<(String, String)>; 2] {
    let of = |engine: &str, side: fn(&Row) -> &'static str| {
        let stages = [bootstrap, provisioning].map(|rows| rows.iter().map(side).collect());
        let profile = compiled(&spec(pool.operating_system.as_str(), engine, stages));
        let rendered = profile.render(pool, settings, &stand_in_cluster());
        let spec = rendered
            .unwrap_or_else(|error| panic!("{engine}, {pool:?}: {error}"))
            .spec;
        [spec.bootstrap_config, spec.provisioning_config].map(|stage| texts(&stage))
    };
    let [first, second] = of("GoTemplate", |row| row.0);
    let [bootstrap, provisioning] = of("Handlebars", |row| row.1);
    [(first, bootstrap), (second, provisioning)].map(|(go, handlebars)| {
        assert_eq!(go.len(), handlebars.len());
        go.into_iter().zip(handlebars).collect()
    })
}

fn assert_equal(pool: &Pool, settings: &Settings, bootstrap: &[Row], provisioning: &[Row]) {
    let found = rendered(pool, settings, bootstrap, provisioning);
    for (rows, found) in [bootstrap, provisioning].into_iter().zip(found) {
        for (row, (go, handlebars)) in rows.iter().zip(found) {
            assert_eq!(go, handlebars, "{row:?}, {pool:?}");
        }
    }
}

fn all_settings() -> [Settings; 2] {
    [Settings::default(), Settings::parse(EVERYTHING).unwrap()]
}

#[test]
fn variables_are_the_same_in_both_languages_for_every_system_and_stage() {
    // No variable depends on the system together with the cloud or the addresses.
    for (os, cloud, family) in [
        ("ubuntu", "aws", ""),
        ("rockylinux", "aws", "IPv6"),
        ("amzn2", "openstack", "IPv4+IPv6"),
        ("rhel", "aws", "IPv6+IPv4"),
        ("flatcar", "openstack", "IPv4"),
    ] {
        let own = table(OF_SYSTEM, " | ").filter(|[system, _]| *system == os);
        let own: Vec<Row> = own.map(|[_, text]| row(text)).collect();
        for settings in all_settings() {
            for full in [false, true] {
                let mut pool = pool(os, cloud, "1.35.0", family, full);
                if full && os == "flatcar" {
                    pool.os.disable_auto_update = true;
                    pool.os.disable_update_engine = true;
                    give_static_address(&mut pool);
                    pool.network.dns.servers.push("192.0.2.53".to_owned());
                }
                let provisioning = [rows(EVERYWHERE), own.clone()].concat();
                let bootstrap = [provisioning.clone(), rows(IN_BOOTSTRAP)].concat();
                assert_equal(&pool, &settings, &bootstrap, &provisioning);
            }
        }
    }
}

#[test]
fn subscriptions_are_the_same_in_both_languages() {
    let secret = |key: &str| {
        serde_json::from_value(json!({"secretKeyRef": {"namespace": "n", "name": "s", "key": key}})).unwrap()
    };
    let mut with_user = pool("rhel", "aws", "1.35.0", "IPv4", false);
    with_user.os.rhel_subscription_manager_user = secret("user");
    with_user.os.rhel_subscription_manager_password = secret("password");
    let mut with_key = pool("rhel", "aws", "1.35.0", "IPv4", false);
    with_key.os.rhel_organization_name = secret("organization");
    with_key.os.rhel_activation_key = secret("key");
    for (pool, table) in [(with_user, WITH_USER), (with_key, WITH_KEY)] {
        assert_equal(&pool, &Settings::default(), &[], &rows(table));
    }
}

#[test]
fn documents_mean_the_same_in_both_languages() {
    let containerd = ("{{ .ContainerRuntimeConfig }}", "{{> lib/containerd.toml}}");
    let kubeconfig = ("{{ .BootstrapKubeconfig }}", "{{> lib/bootstrap-kubelet.conf}}");
    let pool = pool("ubuntu", "aws", "1.35.0", "", true);
    for settings in all_settings() {
        // Markers are quoted in neither.
        let quoted = |text: &str| text.replace("%%osm-late{", "'%%osm-late{").replace("}%%", "}%%'");
        let [_, found] = rendered(&pool, &settings, &[], &[containerd]);
        let [go, mut handlebars] =
            [&found[0].0, &found[0].1].map(|text| toml::from_str::<Value>(&quoted(text)).unwrap());
        // The library's profiles have a folder for additions, and programs of their own.
        assert!(handlebars.as_object_mut().unwrap().remove("imports").is_some());
        let options = "/plugins/io.containerd.cri.v1.runtime/containerd/runtimes/runc/options";
        let options = handlebars.pointer_mut(options).unwrap().as_object_mut().unwrap();
        assert!(options.remove("BinaryName").is_some());
        assert_eq!(go, handlebars);

        let [found, _] = rendered(&pool, &settings, &[kubeconfig], &[]);
        let [go, handlebars] = [&found[0].0, &found[0].1]
            .map(|text| osm_user_data::yaml::read(&quoted(text)).unwrap().remove(0));
        let cluster = |config: &Value| config["clusters"][0]["cluster"].clone();
        assert_eq!(cluster(&go)["server"], cluster(&handlebars)["server"]);
        for config in [&go, &handlebars] {
            let token = config["users"][0]["user"]["token"].as_str().unwrap();
            assert!(token.starts_with("%%osm-late{kubelet/token,"), "{token}");
        }
        // The library's profiles write the certificate to a file.
        let ca = cluster(&go)["certificate-authority-data"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(STANDARD.decode(ca).unwrap(), stand_in_cluster().ca.into_bytes());
        let file = "/etc/kubernetes/pki/ca.crt";
        assert_eq!(cluster(&handlebars)["certificate-authority"], file);
    }
}
