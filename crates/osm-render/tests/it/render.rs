//! From profile to documents.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::config::LateBoundKind;
use osm_api::content::{Content, RenderedFor};
use osm_api::pool::Pool;
use osm_api::profile::{CloudProvider, OperatingSystem, OperatingSystemProfileSpec};
use osm_api::provider_spec::ConfigVar;
use osm_api::{PoolRef, Settings};
use osm_render::*;
use osm_user_data::*;
use serde_json::{Value, json};

use crate::common::{noise, table};

fn spec(change: impl FnOnce(&mut Value)) -> OperatingSystemProfileSpec {
    let mut spec = json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}, {"name": "edge"}],
        "bootstrapConfig": {
            "templates": {"proxy": "{{#if proxy.http}}proxy={{shell proxy.http}}{{/if}}\n"},
            "files": [
                {"path": "/token", "permissions": 600, "content": {"inline": {"data": "Bearer {{late \"api/token\" as=\"raw\"}}\n"}}},
                {"path": "/script", "permissions": 755, "content": {"inline": {"data": "#!/bin/sh\n{{> proxy}}\necho {{shell pool.name}} <MACHINE_NAME>\n"}}},
            ],
            "modules": {"runcmd": [["echo", "{{cluster.apiServer}}"], "/script"]},
        },
        "provisioningConfig": {
            "supportedContainerRuntimes": [{
                "name": "containerd",
                "templates": {"auth": "{{#each containerd.registries}}{{#if credentials}}password = {{late (concat \"registry/\" host \"/password\") as=\"toml\"}}\n{{/if}}{{/each}}"},
                "files": [{"path": "/config.toml", "permissions": 0, "content": {"inline": {"encoding": "b64", "data": "{{> auth}}"}}}],
            }],
            "units": [
                {"name": "setup.service", "content": "[Service]\nEnvironment=V={{kubelet.version}}\n", "dropIns": [{"name": "10.conf", "content": "[Unit]\n"}]},
                {"name": "chronyd.service", "enable": true},
                {"name": "ufw.service", "mask": true},
            ],
            "modules": {"bootcmd": ["true"], "runcmd": ["true"], "timezone": "UTC"},
        },
    });
    change(&mut spec);
    serde_json::from_value(spec).unwrap()
}

fn profile(change: impl FnOnce(&mut Value)) -> Profile {
    compile(&resolve(&spec(change)).unwrap()).unwrap()
}

/// The profile with another text in a place, which is a JSON pointer.
fn with(place: &str, value: Value) -> Profile {
    profile(|spec| *spec.pointer_mut(place).unwrap() = value)
}

/// Where the profile has its script, a template, and the text of a unit.
const SCRIPT: &str = "/bootstrapConfig/files/1/content/inline/data";
const TEMPLATE: &str = "/bootstrapConfig/templates/proxy";
const UNIT: &str = "/provisioningConfig/units/0/content";

fn pool(cloud: &str) -> Pool {
    let mut pools = sample_pools(&spec(|_| {})).into_iter();
    pools.find(|(label, _)| label.starts_with(cloud)).unwrap().1
}

fn settings() -> Settings {
    Settings::parse(
        "proxy: {http: 'http://p:1', noProxy: 10.96.0.0/12}\ncontainerd: {registries: [{host: 'r:5000', credentials: {name: s}}, {host: 'q:5000'}]}",
    )
    .unwrap()
}

fn render(profile: &Profile, cloud: &str, settings: &Settings) -> Result<Rendered, RenderError> {
    profile.render(&pool(cloud), settings, &stand_in_cluster())
}

/// What a profile gives for a pool on AWS with [`settings()`].
fn content(profile: &Profile) -> Content {
    render(profile, "aws", &settings()).unwrap().spec
}

fn refusal(profile: &Profile) -> RenderError {
    render(profile, "aws", &settings()).unwrap_err()
}

fn script(content: &Content) -> &str {
    &content.bootstrap_config.files[1]
        .content
        .inline
        .as_ref()
        .unwrap()
        .data
}

fn late(id: &str, value: &str) -> LateValues {
    LateValues::from([(id.to_owned(), value.to_owned())])
}

fn parse(document: &str) -> Value {
    assert!(document.starts_with("#cloud-config\n"), "{document}");
    yaml::read(document).unwrap().remove(0)
}

fn file<'d>(document: &'d Value, path: &str) -> &'d Value {
    let mut files = document["write_files"].as_array().unwrap().iter();
    files.find(|file| file["path"] == path).unwrap()
}

#[test]
fn a_profile_places_secrets_that_its_text_names_and_no_others() {
    const ID: &str = "secret/kube-system/vpn/password";
    let literal = format!("{{{{late \"{ID}\" as=\"json\"}}}}");
    let placed = with(UNIT, json!(literal));
    dry_run(&placed).unwrap();
    let content = content(&placed);
    let late = content
        .late_bound_values
        .iter()
        .find(|late| late.id == ID)
        .unwrap();
    assert_eq!(late.kind, LateBoundKind::ProfileSecretKey);
    let source = late.source.as_ref().unwrap();
    let named = [&source.namespace, &source.name, &source.key];
    assert_eq!(named, ["kube-system", "vpn", "password"]);

    let unit = "/etc/systemd/system/setup.service";
    let mut values = placeholders(&content);
    values.insert(ID.to_owned(), "hunter2\n\"".to_owned());
    let document = parse(&user_data(&content, Stage::Provisioning, &values).unwrap());
    assert_eq!(file(&document, unit)["content"], "\"hunter2\\n\\\"\"");

    let computed = "{{late (concat \"secret/kube-system/\" pool.name \"/password\") as=\"json\"}}";
    let half = "{{late \"secret/kube-system/vpn\" as=\"json\"}}";
    for (place, text) in [(SCRIPT, &*literal), (UNIT, computed), (UNIT, half)] {
        let error = dry_run(&with(place, json!(text))).unwrap_err();
        assert_eq!(error.reason, "TemplateFailed");
        let problem = "must be named by a literal text";
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn content_holds_markers_and_says_what_they_mean() {
    let profile = profile(|_| {});
    let rendered = render(&profile, "aws", &settings()).unwrap();
    let late = rendered
        .spec
        .late_bound_values
        .iter()
        .map(|late| (late.id.as_str(), late.kind));
    let expected = [
        ("api/token", LateBoundKind::APIToken),
        ("registry/r:5000/password", LateBoundKind::RegistryPassword),
    ];
    assert!(late.eq(expected), "{:?}", rendered.spec.late_bound_values);
    let source = rendered.spec.late_bound_values[1].source.as_ref().unwrap();
    let named = [&source.namespace, &source.name, &source.key];
    assert_eq!(named, ["cloud-init-settings", "s", "r:5000"]);
    assert_eq!(rendered.spec.provisioning_config.files[0].permissions, 644);
    assert!(rendered.spec.machine_deployment.is_none());

    assert_eq!(rendered, render(&profile, "aws", &settings()).unwrap());
    let other = render(&profile, "aws", &Settings::default()).unwrap();
    assert_ne!(rendered.spec, other.spec);
    assert_eq!(other.spec.late_bound_values.len(), 1);
}

#[test]
fn machines_that_no_cloud_knows_are_not_left_to_a_cloud_controller_manager() {
    let profile = with(
        TEMPLATE,
        json!("external={{cloud.external}} {{cloud.nodeName}}\n"),
    );
    let external = Settings::parse("cluster: {externalCloudProvider: true}").unwrap();
    for (cloud, settings, expected) in [
        ("aws", &external, "external=true ec2-metadata\n"),
        ("openstack", &external, "external=true machine-name\n"),
        ("edge", &external, "external=false machine-name\n"),
        ("aws", &Settings::default(), "external=false"),
    ] {
        let content = render(&profile, cloud, settings).unwrap().spec;
        assert!(
            script(&content).contains(expected),
            "{cloud}: {}",
            script(&content)
        );
    }
}

#[test]
fn a_resolved_profile_holds_the_parts_of_the_library_that_it_includes() {
    assert_eq!(resolve(&spec(|_| {})).unwrap().library_version, None);
    let verbatim = spec(|spec| {
        spec["templateEngine"] = json!("None");
        spec["bootstrapConfig"]["templates"]["proxy"] = json!("{{> lib/no-such-part}}");
    });
    assert_eq!(resolve(&verbatim).unwrap().library_version, None);

    // By way of another part, from a template that is itself included, and twice.
    let text = "{{> lib/osm-extras.sh}}{{#if proxy.http}}\n{{> lib/proxy.sh}}{{/if}}";
    let spec = spec(|spec| spec["bootstrapConfig"]["templates"]["proxy"] = json!(text));
    let mut accepted = resolve(&spec).unwrap();
    assert_eq!(accepted.library_version, Some(library_version()));
    assert_eq!(accepted.digest, osm_api::digest::of(&accepted.spec.0).unwrap());
    // The other stage includes none.
    assert_eq!(accepted.spec.0.provisioning_config.templates, BTreeMap::new());
    let templates = &mut accepted.spec.0.bootstrap_config.templates;
    for part in [
        "lib/downloads.sh",
        "lib/osm-extras.sh",
        "lib/persist.sh",
        "lib/proxy.sh",
    ] {
        assert!(templates.contains_key(part), "{part} is not among {templates:?}");
    }
    // It needs no library any more.
    let old = "the proxy of long ago\n";
    templates.insert("lib/proxy.sh".to_owned(), old.to_owned());
    let content = content(&compile(&accepted).unwrap());
    assert_eq!(script(&content).matches(old).count(), 2, "{}", script(&content));
}

/// Names and architectures of what a rendering downloads.
fn downloads(profile: &Profile, settings: &str) -> Vec<String> {
    let rendered = render(profile, "aws", &Settings::parse(settings).unwrap()).unwrap();
    let named = |download: &Download| format!("{} {}", download.artefact.name(), download.architecture);
    rendered.downloads.iter().map(named).collect()
}

#[test]
fn what_is_downloaded_is_what_templates_ask_for() {
    assert_eq!(downloads(&profile(|_| {}), "{}"), [""; 0]);
    let asks = |text: &'static str| {
        profile(move |spec| {
            spec["bootstrapConfig"]["templates"]["unused"] = json!("{{download-url \"cni\" arch=\"$arch\"}}");
            spec["provisioningConfig"]["units"][0]["content"] = json!(text);
            spec["bootstrapConfig"]["modules"]["runcmd"] =
                json!(["curl {{download-url \"runc\" arch=\"arm64\"}}"]);
        })
    };
    // In a branch, in both stages, computed, and one file of a pair.
    let conditional = asks(
        "{{#if proxy.http}}{{checksum-url (concat \"kube\" \"let\") arch=\"$a\"}}{{/if}}{{download-url \"runc\" arch=\"amd64\"}}",
    );
    let optional = asks("{{#if downloads.crictl.version}}{{download-url \"crictl\" arch=\"$a\"}}{{/if}}");
    let proxy = "proxy: {http: 'http://p:1'}";
    let off = "downloads: {crictl: {enabled: false}}";
    for (profile, settings, expected) in [
        (&conditional, "{}", "runc amd64, runc arm64"),
        (
            &conditional,
            proxy,
            "kubelet amd64, kubelet arm64, runc amd64, runc arm64",
        ),
        (&optional, off, "runc arm64"),
        (&optional, "{}", "runc arm64, crictl amd64, crictl arm64"),
    ] {
        assert_eq!(downloads(profile, settings).join(", "), expected);
    }
    let verbatim = profile(|spec| {
        spec["templateEngine"] = json!("None");
        spec["provisioningConfig"]["units"][0]["content"] = json!("{{download-url \"runc\" arch=\"arm64\"}}");
    });
    assert_eq!(downloads(&verbatim, "{}"), [""; 0]);
}

#[test]
fn late_bound_values_are_encoded_declared_and_complete() {
    let mut content = render(&profile(|_| {}), "openstack", &settings()).unwrap().spec;
    let mut values = late("api/token", "eyJ.a-_b");
    let missing = user_data(&content, Stage::Provisioning, &values);
    let id = "registry/r:5000/password".to_owned();
    assert_eq!(missing, Err(UserDataError::MissingValue(id.clone())));
    let password = "it's \"a\\b\"\n%%osm-late{api/token,raw}%%";
    values.insert(id, password.to_owned());

    let provisioning = parse(&user_data(&content, Stage::Provisioning, &values).unwrap());
    let config = file(&provisioning, "/config.toml");
    assert_eq!([&config["encoding"], &config["permissions"]], ["b64", "0644"]);
    let text = STANDARD.decode(config["content"].as_str().unwrap()).unwrap();
    let text: toml::Table = toml::from_slice(&text).unwrap();
    assert_eq!(text["password"].as_str(), Some(password));

    values.insert("api/token".to_owned(), "a\"b".to_owned());
    let not_raw = user_data(&content, Stage::Bootstrap, &values);
    assert_eq!(not_raw, Err(UserDataError::NotRaw("api/token".to_owned())));
    let in_shell = json!("{{late \"api/token\" as=\"shell\"}}");
    let in_shell = self::content(&with("/bootstrapConfig/files/0/content/inline/data", in_shell));
    let lost = user_data(&in_shell, Stage::Bootstrap, &late("api/token", "a\0b"));
    assert_eq!(lost, Err(UserDataError::Nul("api/token".to_owned())));
    content.late_bound_values.clear();
    let undeclared = user_data(&content, Stage::Bootstrap, &values).unwrap_err();
    assert_eq!(undeclared.reason(), "LateBoundValueUnknown");
}

#[test]
fn a_marker_in_a_name_or_a_key_of_an_edited_config_is_refused() {
    let content = serde_json::to_value(content(&profile(|_| {}))).unwrap();
    let marker = "a%%osm-late{api/token,raw}%%";
    let file = json!([{"path": marker, "content": {"inline": {"data": ""}}}]);
    let drop_in = json!([{"name": "a.service", "dropIns": [{"name": marker, "content": ""}]}]);
    for (path, value) in [
        ("userSSHKeys", json!([marker])),
        ("files", file),
        ("units", json!([{"name": marker, "content": ""}])),
        ("units", drop_in),
        ("modules", json!({"a": [{marker: 1}]})),
        // Found by the fuzzer: half of a marker.
        ("modules", json!({"package_upgr%%osm-late{ade": true})),
    ] {
        let mut edited = content.clone();
        edited["bootstrapConfig"][path] = value;
        let edited = serde_json::from_value(edited).unwrap();
        let place = "bootstrapConfig, in a name, a key or an SSH key".to_owned();
        let refused = user_data(&edited, Stage::Bootstrap, &late("api/token", "t"));
        assert_eq!(refused, Err(UserDataError::LateBoundValueUnknown { place }));
    }
}

#[test]
fn pools_and_clouds_shape_the_bootstrap_document() {
    let bootstrap = |pool: &Pool, name: &str| {
        let rendered = profile(|_| {}).render(pool, &Settings::default(), &stand_in_cluster());
        let mut spec = rendered.unwrap().spec;
        RenderedFor {
            pool: PoolRef::machine_deployment("kube-system", name, "u"),
            revision: None,
            template_digest: String::new(),
            template_generation: None,
        }
        .store(&mut spec);
        parse(&user_data(&spec, Stage::Bootstrap, &placeholders(&spec)).unwrap())
    };
    let aws = bootstrap(&pool("aws"), "x");
    assert!(aws.get("hostname").is_none() && !aws.to_string().contains("machine-name"));
    assert_eq!(bootstrap(&pool("edge"), "gateway")["hostname"], "gateway");
    let keys = vec!["ssh-ed25519 AAA it's: me".to_owned()];
    let mut upgraded = Pool {
        ssh_public_keys: keys.clone(),
        ..pool("openstack")
    };
    upgraded.os.dist_upgrade_on_boot = true;
    let document = bootstrap(&upgraded, "x");
    assert_eq!(document["ssh_authorized_keys"], json!(keys));
    // Before the proxy, the mirrors and the certificates are set, an upgrade would fail.
    assert!(document.get("package_upgrade").is_none());
    assert_eq!(document["hostname"], "<MACHINE_NAME>");
}

#[test]
fn pools_that_do_not_fit_are_refused_and_odd_ones_noted() {
    type Change = fn(&mut Pool);
    let render = |os: &str, change: Change| {
        let mut pool = pool("aws");
        change(&mut pool);
        let profile = profile(|spec| spec["osName"] = json!(os));
        profile.render(&pool, &Settings::default(), &stand_in_cluster())
    };
    let refusals: [(&str, &str, Change); 3] = [
        ("UnsupportedOperatingSystem", "flatcar", |pool| {
            pool.operating_system = OperatingSystem::Flatcar
        }),
        ("UnsupportedCloudProvider", "aws, openstack, edge", |pool| {
            pool.cloud_provider = CloudProvider::Hetzner
        }),
        ("UnsupportedNetwork", "network", |pool| {
            pool.network.gateway = "10.0.0.1".to_owned()
        }),
    ];
    for (reason, text, change) in refusals {
        let error = render("ubuntu", change).unwrap_err();
        assert_eq!(error.reason(), reason);
        assert!(error.to_string().contains(text), "{error}");
    }
    let flatcar = spec(|spec| spec["osName"] = json!("flatcar"));
    let mut edge = pool("edge");
    edge.operating_system = OperatingSystem::Flatcar;
    assert_eq!(suits(&flatcar, &edge), Err(RenderError::NoCloudInit));
    let only_edge = spec(|spec| {
        spec["osName"] = json!("flatcar");
        spec["supportedCloudProviders"] = json!([{"name": "edge"}]);
    });
    let error = resolve(&only_edge).unwrap_err().to_string();
    assert!(error.contains("one besides edge"), "{error}");
    assert_eq!(render("ubuntu", |_| {}).unwrap().warnings, [""; 0]);
    let on_rocky: fn(&mut Pool) = |pool| pool.operating_system = OperatingSystem::RockyLinux;
    let on_new: fn(&mut Pool) = |pool| pool.kubelet_version = semver::Version::new(1, 40, 0);
    for (os, part, change) in [
        ("ubuntu", "1.40", on_new),
        ("rhel", "rhel", on_rocky),
        ("centos", "centos", on_rocky),
    ] {
        let found = render(os, change).unwrap().warnings;
        assert!(found.len() == 1 && found[0].contains(part), "{part}: {found:?}");
    }
}

#[test]
fn reserved_text_is_refused_wherever_it_comes_from() {
    let marker = "%%osm-late{api/token,raw}%%";
    let refused = |change: &dyn Fn(&mut Pool, &mut Settings, &mut ClusterEndpoint)| {
        let (mut pool, mut settings, mut cluster) = (pool("aws"), Settings::default(), stand_in_cluster());
        change(&mut pool, &mut settings, &mut cluster);
        let error = profile(|_| {}).render(&pool, &settings, &cluster).unwrap_err();
        assert_eq!(error.reason(), "ReservedText");
        error.to_string()
    };
    let text = refused(&|pool, _, _| pool.kubelet.container_log_max_size = Some(marker.to_owned()));
    assert!(text.contains("kubelet.containerLogMaxSize"), "{text}");
    refused(&|pool, _, _| {
        pool.kubelet.kube_reserved = Some(BTreeMap::from([(marker.to_owned(), "1".to_owned())]))
    });
    refused(&|pool, _, _| pool.ssh_public_keys.push(format!("ssh-rsa {marker}")));
    refused(&|pool, _, _| pool.overwrite_cloud_config = Some(format!("x{marker}y")));
    // The texts of a subscription reach the document without a template. The machine would send the value to
    // its author's server.
    let text = || ConfigVar::Text(marker.to_owned());
    refused(&|pool, _, _| pool.os.rhel_organization_name = text());
    refused(&|pool, _, _| pool.os.rhel_subscription_manager_user = text());
    refused(&|pool, _, _| pool.os.rhel_satellite_server = marker.to_owned());
    refused(&|_, settings, _| settings.pause_image = Some("%%osm-late{".to_owned()));
    refused(&|_, _, cluster| cluster.ca = marker.to_owned());
    let own = spec(|spec| spec["bootstrapConfig"]["templates"]["proxy"] = json!(marker));
    let error = resolve(&own).unwrap_err();
    assert_eq!(error.reason(), "ReservedText");
    let place = "spec.bootstrapConfig.templates.proxy";
    assert!(error.to_string().contains(place), "{error}");
}

/// Changes of a profile: the reason and a part of the message, the place, and the value there. A test of Go
/// templates has more, which are passed on in that language alone.
const MISTAKES: &str = r#"
ProfileInvalid | use cloud-init | /provisioningUtility | "ignition"
ProfileInvalid | version | /version | "1.0"
ProfileInvalid | supportedCloudProviders | /supportedCloudProviders | []
ProfileInvalid | bootstrapConfig.files[1] (/token) | /bootstrapConfig/files/1/path | "/token"
ProfileInvalid | octal | /bootstrapConfig/files/1/permissions | 688
ProfileInvalid | inline is missing | /bootstrapConfig/files/1/content | {}
ProfileInvalid | suffix | /provisioningConfig/units/0/name | "../x.service"
ProfileInvalid | masked | /provisioningConfig/units/0/mask | true
ProfileInvalid | write_files | /provisioningConfig/modules/write_files | []
ProfileInvalid | list of commands | /provisioningConfig/modules/runcmd | "true"
ProfileInvalid | letters | /bootstrapConfig/templates/a b | ""
TemplateInvalid | bootstrapConfig.files[1] (/script), line 2, column 4: this block is never closed | /bootstrapConfig/files/1/content/inline/data | "x\n   {{#if a}}"
TemplateInvalid | provisioningConfig.units[0] (setup.service) | /provisioningConfig/units/0/content | "{{#if a}}"
TemplateInvalid | bootstrapConfig.modules.runcmd[0][1] | /bootstrapConfig/modules/runcmd/0/1 | "{{nope x}}"
TemplateInvalid | no template "lib/kubelet" | /bootstrapConfig/templates/proxy | "one\n{{> lib/kubelet}}"
TemplateInvalid | templates.proxy, line 2 | /bootstrapConfig/templates/proxy | "one\n{{> lib/kubelet}}"
TemplateInvalid | templates.proxy, line 1 | /bootstrapConfig/templates/proxy | "{{> lib/persist.sh}}{{#if}}"
ProfileInvalid | names that start with lib/ | /provisioningConfig/templates | {"lib/mine": "x"}
TemplateInvalid | no template "proxy" | /bootstrapConfig/templates | {}
TemplateInvalid | no template "auth" | /bootstrapConfig/files/1/content/inline/data | "{{> auth}}"
"#;

#[test]
fn profiles_that_can_not_work_are_refused_with_the_place() {
    for [reason, text, place, value] in table(MISTAKES, " | ") {
        let (above, key) = place.rsplit_once('/').unwrap();
        let change = |spec: &mut Value| match spec.pointer_mut(above).unwrap() {
            Value::Array(items) => {
                items[key.parse::<usize>().unwrap()] = serde_json::from_str(value).unwrap()
            }
            object => object[key] = serde_json::from_str(value).unwrap(),
        };
        let result = resolve(&spec(change)).and_then(|accepted| compile(&accepted));
        let error = result.expect_err(text);
        assert_eq!(error.reason(), reason, "{error}");
        assert!(error.to_string().contains(text), "{text}: {error}");
    }
    let large = resolve(&spec(|s| s["osVersion"] = json!("x".repeat(600_000)))).unwrap_err();
    assert_eq!(large.reason(), "ContentTooLarge");
    assert!(large.to_string().contains("524288"), "{large}");
}

#[test]
fn a_template_that_fails_is_named_with_its_line() {
    let failing = |text: &str| refusal(&with(UNIT, json!(text)));
    let error = failing("\n{{kubelet.versin}}\n");
    assert_eq!(error.reason(), "TemplateFailed");
    assert_eq!(
        error.to_string(),
        "provisioningConfig.units[0] (setup.service), line 2, column 1: there is no field \"kubelet.versin\" here"
    );
    let error = failing("{{late \"api/token\" as=\"raw\"}}");
    let known = "registry/r:5000/password, registry/r:5000/username";
    assert!(error.to_string().contains(known), "{error}");
    // The bootstrap document is published even while the Secret of the proxy is missing.
    let settings = Settings::parse("proxy: {http: 'http://p:1', credentials: {name: proxy}}").unwrap();
    let proxy = with(SCRIPT, json!("{{late \"proxy/url\" as=\"raw\"}}"));
    let error = render(&proxy, "aws", &settings).unwrap_err().to_string();
    let known = "api/token, kubelet/token, provisioning/key, provisioning/secret-name, provisioning/sha256";
    assert!(error.contains(known), "{error}");
    let of_ipv6 = "with the sample pool aws, kubelet 1.33.0, IPv6, default settings: ";
    for (text, sample) in [
        ("{{#unless network.ipv4}}{{typo}}{{/unless}}", of_ipv6),
        ("{{#if proxy.http}}{{typo}}{{/if}}", "everything set"),
    ] {
        let error = dry_run(&with(SCRIPT, json!(text))).unwrap_err();
        assert!(error.to_string().contains(sample), "{error}");
    }
}

#[test]
fn texts_whose_places_read_the_same_stay_apart() {
    let modules = json!({"a": {"b.c": "x {{pool.name}}", "b": {"c": "y {{pool.name}}"}}});
    let modules_of = |engine: &str| {
        let profile = profile(|spec| {
            spec["templateEngine"] = json!(engine);
            spec["bootstrapConfig"] = json!({"modules": modules});
            spec["provisioningConfig"] = json!({});
        });
        content(&profile).bootstrap_config.modules.unwrap()
    };
    let name = pool("aws").name;
    let expected = json!({"a": {"b.c": format!("x {name}"), "b": {"c": format!("y {name}")}}});
    assert_eq!(modules_of("Handlebars"), expected);
    assert_eq!(modules_of("None"), modules);
}

#[test]
fn user_data_is_counted_as_the_cloud_counts() {
    use OperatingSystem::{Flatcar, Ubuntu};
    let limit = |cloud, os| size_limit(cloud, os).map(|limit| (limit.bytes, limit.counted));
    assert_eq!(limit(CloudProvider::Aws, Ubuntu), Some((16384, Counted::Gzip)));
    assert_eq!(limit(CloudProvider::Aws, Flatcar), Some((16384, Counted::Raw)));
    let expected = Some((65535, Counted::Base64));
    assert_eq!(limit(CloudProvider::Openstack, Ubuntu), expected);
    assert_eq!(limit(CloudProvider::Kubevirt, Ubuntu), None);
    let sized = |bytes| {
        render(
            &with(SCRIPT, json!(noise("file", bytes))),
            "openstack",
            &settings(),
        )
    };
    let small = sized(1000).unwrap();
    // The token counts at its largest.
    assert!(small.user_data_bytes.bootstrap > (1000 + 1536) * 4 / 3);
    assert!(small.user_data_bytes.provisioning > 4096);
    // The profile has a password in a file that all users can read.
    let of_size = |rendered: Rendered| -> Vec<String> {
        let warnings = rendered.warnings.into_iter();
        warnings.filter(|text| !text.contains("password")).collect()
    };
    assert_eq!(of_size(small), Vec::<String>::new());
    assert!(of_size(sized(45_000).unwrap())[0].contains("65535"));
    let error = sized(50_000).unwrap_err();
    assert_eq!(error.reason(), "UserDataTooLarge");
    let text = "openstack takes at most 65535";
    assert!(error.to_string().contains(text), "{error}");
}

/// Golden documents show which files of a bootstrap document are compressed.
#[test]
fn a_file_in_which_machine_controller_finds_its_placeholder_is_not_compressed() {
    let long = "echo this is a long script of <MACHINE_NAME>\n".repeat(50);
    let content = content(&with(SCRIPT, json!(long)));
    let document = user_data(&content, Stage::Bootstrap, &placeholders(&content)).unwrap();
    assert_eq!(file(&parse(&document), "/script")["content"], json!(long));
}

#[test]
fn a_unit_that_nothing_would_start_again_is_refused() {
    let enabled = |content: &'static str| {
        profile(move |spec| {
            spec["provisioningConfig"]["units"][0]["enable"] = json!(true);
            spec["provisioningConfig"]["units"][0]["content"] = json!(content);
        })
    };
    for content in [
        "",
        "[Service]\nExecStart=/a\n",
        "[Service]\nExecStart=/a\n#[Install]\n",
    ] {
        let error = refusal(&enabled(content));
        assert_eq!(error.reason(), "UserDataInvalid");
        let text = "setup.service: the unit is enabled, but has no [Install]";
        assert!(error.to_string().contains(text), "{error}");
    }
    content(&enabled(
        "[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n",
    ));
}

#[test]
fn too_much_content_is_refused() {
    let text = "{{#each containerd.registries}}{{#each mirrors}}{{> proxy}}{{/each}}{{/each}}";
    let mirrors: Vec<Value> = (0..300)
        .map(|i| json!({"url": format!("https://m{i}")}))
        .collect();
    let settings =
        json!({"containerd": {"registries": [{"host": "a.example", "mirrors": mirrors}]}}).to_string();
    let profile = profile(|spec| {
        spec["bootstrapConfig"]["templates"]["proxy"] = json!("x".repeat(1000));
        spec["bootstrapConfig"]["files"][0]["content"]["inline"]["data"] = json!(text);
        spec["bootstrapConfig"]["files"][1]["content"]["inline"]["data"] = json!(text);
    });
    let error = render(&profile, "edge", &Settings::parse(&settings).unwrap()).unwrap_err();
    assert_eq!(error.reason(), "ContentTooLarge");
}

#[test]
fn a_pool_that_refers_to_too_many_secrets_is_refused() {
    let rendered = |registries: usize, secrets: usize| {
        let registries: Vec<Value> = (0..registries)
            .map(|i| json!({"host": format!("r{i}.example"), "credentials": {"name": format!("s{}", i % secrets)}}))
            .collect();
        let settings = json!({"containerd": {"registries": registries}}).to_string();
        render(&profile(|_| {}), "edge", &Settings::parse(&settings).unwrap())
    };
    rendered(100, 100).unwrap();
    // The number of registries that share a Secret does not count.
    rendered(150, 100).unwrap();
    let error = rendered(101, 101).unwrap_err();
    assert_eq!(error.reason(), "TooManySources");
    let message = error.to_string();
    let start = "the content refers to 101 Secrets and ConfigMaps, but 100 is the limit";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn a_file_is_written_only_if_its_template_has_something_to_say() {
    let texts = [
        ("/conditional", "{{#if proxy.http}}\n{{proxy.http}}\n{{/if}}\n"),
        ("/empty", ""),
    ];
    let files = texts.map(|(path, text)| json!({"path": path, "content": {"inline": {"data": text}}}));
    let profile = with("/bootstrapConfig/files", json!(files));
    let paths = |settings: &Settings| {
        let content = render(&profile, "aws", settings).unwrap().spec;
        let files = content.bootstrap_config.files.into_iter();
        files.map(|file| file.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&settings()), ["/conditional", "/empty"]);
    // A file that is empty on purpose is written.
    assert_eq!(paths(&Settings::default()), ["/empty"]);
}

#[test]
fn settings_that_no_kubelet_starts_with_are_refused() {
    let settings =
        "kubelet: {featureGates: {Nonsense: true}, configuration: {maxPods: s3cr3t, maxPod: s3cr3t}}";
    let settings = Settings::parse(settings).unwrap();
    let error = render(&profile(|_| {}), "aws", &settings).unwrap_err();
    assert_eq!(error.reason(), "KubeletSettingsInvalid");
    assert_eq!(
        error.to_string(),
        "the settings' kubelet.featureGates.Nonsense: kubelet 1.33 knows no such feature gate; \
         the settings' kubelet.configuration.maxPods: must be a whole number; \
         the settings' kubelet.configuration.maxPod: kubelet 1.33 has no such field"
    );
}
