//! From profile to documents.
#![allow(clippy::type_complexity)]

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::config::LateBoundKind;
use osm_api::content::RenderedFor;
use osm_api::pool::Pool;
use osm_api::profile::{CloudProvider, OperatingSystem, OperatingSystemProfileSpec};
use osm_api::provider_spec::ConfigVar;
use osm_api::{PoolRef, Settings};
use osm_render::*;
use serde_json::{Value, json};

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
            "modules": {"bootcmd": [], "runcmd": ["true"], "timezone": "UTC"},
        },
    });
    change(&mut spec);
    serde_json::from_value(spec).unwrap()
}

fn profile(change: impl FnOnce(&mut Value)) -> Profile {
    compile(&resolve(&spec(change)).unwrap()).unwrap()
}

fn pool(cloud: &str) -> Pool {
    let pools = sample_pools(&spec(|_| {}));
    pools
        .into_iter()
        .find(|(label, _)| label.starts_with(cloud))
        .unwrap()
        .1
}

fn settings() -> Settings {
    Settings::parse(
        "proxy: {http: 'http://p:1'}\ncontainerd: {registries: [{host: 'r:5000', credentials: {name: s}}, {host: q}]}",
    )
    .unwrap()
}

fn parse(document: &str) -> Value {
    assert!(document.starts_with("#cloud-config\n"), "{document}");
    yaml::read(document).unwrap().remove(0)
}

fn file<'d>(document: &'d Value, path: &str) -> &'d Value {
    document["write_files"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["path"] == path)
        .unwrap()
}

#[test]
fn a_profile_places_secrets_that_its_text_names_and_no_others() {
    const ID: &str = "secret/kube-system/vpn/password";
    let with = |stage: &str, text: &str| {
        profile(|spec| {
            let file = json!({"path": "/secret", "content": {"inline": {"data": text}}});
            let stage = spec[stage].as_object_mut().unwrap();
            let files = stage.entry("files").or_insert_with(|| json!([]));
            files.as_array_mut().unwrap().push(file);
        })
    };
    let literal = format!("{{{{late \"{ID}\" as=\"json\"}}}}");
    let placed = with("provisioningConfig", &literal);
    dry_run(&placed).unwrap();
    let rendered = placed
        .render(&pool("aws"), &Settings::default(), &stand_in_cluster())
        .unwrap();
    let late = rendered
        .spec
        .late_bound
        .iter()
        .find(|late| late.id == ID)
        .unwrap();
    assert_eq!(late.kind, LateBoundKind::ProfileSecretKey);
    let source = late.source.as_ref().unwrap();
    let named = [&source.namespace, &source.name, &source.key];
    assert_eq!(named, ["kube-system", "vpn", "password"]);

    let mut values = placeholders(&rendered.spec);
    values.insert(ID.to_owned(), "hunter2\n\"".to_owned());
    let document = parse(&user_data(&rendered.spec, Stage::Provisioning, &values).unwrap());
    assert_eq!(file(&document, "/secret")["content"], "\"hunter2\\n\\\"\"");
    let masked = masked_machine_stage(&rendered.spec, Stage::Provisioning).unwrap();
    let masked = masked.files.iter().find(|file| file.path == "/secret").unwrap();
    assert_eq!(masked.text, "\"<key password of Secret kube-system/vpn>\"");

    let computed = "{{late (concat \"secret/kube-system/\" pool.name \"/password\") as=\"json\"}}";
    for (stage, text) in [
        ("bootstrapConfig", literal.as_str()),
        ("provisioningConfig", computed),
        (
            "provisioningConfig",
            "{{late \"secret/kube-system/vpn\" as=\"json\"}}",
        ),
    ] {
        let error = dry_run(&with(stage, text)).unwrap_err();
        assert_eq!(error.reason(), "TemplateFailed");
        assert!(
            error.to_string().contains("must be named by a literal text"),
            "{error}"
        );
    }
}

#[test]
fn content_holds_markers_and_says_what_they_mean() {
    let rendered = profile(|_| {})
        .render(&pool("aws"), &settings(), &stand_in_cluster())
        .unwrap();
    let late: Vec<_> = rendered
        .spec
        .late_bound
        .iter()
        .map(|late| (late.id.as_str(), late.kind))
        .collect();
    assert_eq!(
        late,
        [
            ("api/token", LateBoundKind::ApiToken),
            ("registry/r:5000/password", LateBoundKind::RegistryPassword)
        ]
    );
    let source = rendered.spec.late_bound[1].source.as_ref().unwrap();
    assert_eq!(
        (
            source.namespace.as_str(),
            source.name.as_str(),
            source.key.as_str()
        ),
        ("cloud-init-settings", "s", "r:5000")
    );
    assert_eq!(rendered.spec.provisioning_config.files[0].permissions, 644);
    assert!(rendered.spec.machine_deployment.is_none());

    let again = profile(|_| {})
        .render(&pool("aws"), &settings(), &stand_in_cluster())
        .unwrap();
    assert_eq!(rendered, again);
    let other = profile(|_| {})
        .render(&pool("aws"), &Settings::default(), &stand_in_cluster())
        .unwrap();
    assert_ne!(rendered.spec.digest, other.spec.digest);
    assert_eq!(other.spec.late_bound.len(), 1);
}

#[test]
fn machines_that_no_cloud_knows_are_not_left_to_a_cloud_controller_manager() {
    let profile = profile(|spec| {
        spec["bootstrapConfig"]["templates"]["proxy"] =
            json!("external={{cloud.external}} {{cloud.nodeName}}\n");
    });
    let settings = Settings::parse("cluster: {externalCloudProvider: true}").unwrap();
    let script = |cloud: &str, settings: &Settings| {
        let rendered = profile
            .render(&pool(cloud), settings, &stand_in_cluster())
            .unwrap();
        rendered.spec.bootstrap_config.files[1]
            .content
            .inline
            .clone()
            .unwrap()
            .data
    };
    assert!(script("aws", &settings).contains("external=true ec2-metadata\n"));
    assert!(script("openstack", &settings).contains("external=true machine-name\n"));
    assert!(script("edge", &settings).contains("external=false machine-name\n"));
    assert!(script("aws", &Settings::default()).contains("external=false"));
}

/// Changes a spec's first template of the bootstrap stage.
fn including(text: &'static str) -> OperatingSystemProfileSpec {
    spec(|spec| spec["bootstrapConfig"]["templates"]["proxy"] = json!(text))
}

#[test]
fn a_resolved_profile_holds_the_parts_of_the_library_that_it_includes() {
    assert_eq!(resolve(&spec(|_| {})).unwrap().library, None);

    // By way of another part, from a template that is itself included, and twice.
    let spec = including("{{> lib/osm-extras.sh}}{{#if proxy.http}}\n{{> lib/proxy.sh}}{{/if}}");
    let accepted = resolve(&spec).unwrap();
    assert_eq!(accepted.library, Some(library_version()));
    let names = |templates: &BTreeMap<String, String>| templates.keys().cloned().collect::<Vec<_>>();
    let templates = &accepted.spec.0.bootstrap_config.templates;
    for part in [
        "lib/downloads.sh",
        "lib/osm-extras.sh",
        "lib/persist.sh",
        "lib/proxy.sh",
    ] {
        assert!(
            templates.contains_key(part),
            "{part} is not among {:?}",
            names(templates)
        );
    }
    assert_eq!(
        names(&accepted.spec.0.provisioning_config.templates),
        [""; 0],
        "the other stage includes none"
    );
    assert_eq!(accepted.digest, osm_api::digest::of(&accepted.spec.0).unwrap());

    // It needs no library any more.
    let mut stored: osm_api::profile::AcceptedProfile =
        serde_json::from_value(serde_json::to_value(&accepted).unwrap()).unwrap();
    let stored_templates = &mut stored.spec.0.bootstrap_config.templates;
    stored_templates.insert("lib/proxy.sh".to_owned(), "the proxy of long ago\n".to_owned());
    let rendered = compile(&stored)
        .unwrap()
        .render(&pool("aws"), &settings(), &stand_in_cluster())
        .unwrap();
    let script = rendered.spec.bootstrap_config.files[1]
        .content
        .inline
        .as_ref()
        .unwrap();
    assert_eq!(
        script.data.matches("the proxy of long ago\n").count(),
        2,
        "{}",
        script.data
    );
}

#[test]
fn mistakes_with_the_library_say_where_and_what_there_is() {
    let error = resolve(&including("one\n{{> lib/kubelet}}")).unwrap_err();
    assert_eq!(error.reason(), "TemplateInvalid");
    let error = error.to_string();
    for text in [
        "bootstrapConfig.templates.proxy, line 2",
        "no \"lib/kubelet\"",
        "lib/kubelet.yaml",
    ] {
        assert!(error.contains(text), "{text} is not in {error}");
    }
    let own = spec(|spec| spec["provisioningConfig"]["templates"] = json!({"lib/mine": "x"}));
    let error = resolve(&own).unwrap_err().to_string();
    assert!(error.contains("names that start with lib/"), "{error}");

    // What can't be parsed is the compiler's to tell; what is no template includes nothing.
    let accepted = resolve(&including("{{> lib/persist.sh}}{{#if}}")).unwrap();
    assert_eq!(compile(&accepted).unwrap_err().reason(), "TemplateInvalid");
    let verbatim = spec(|spec| {
        spec["templateEngine"] = json!("None");
        spec["bootstrapConfig"]["templates"]["proxy"] = json!("{{> lib/no-such-part}}");
    });
    assert_eq!(resolve(&verbatim).unwrap().library, None);
}

/// Names and architectures of what a rendering downloads.
fn downloads(profile: &Profile, settings: &str) -> Vec<String> {
    let settings = Settings::parse(settings).unwrap();
    let rendered = profile
        .render(&pool("aws"), &settings, &stand_in_cluster())
        .unwrap();
    let named = |download: &Download| format!("{} {}", download.artefact.name(), download.architecture);
    rendered.downloads.iter().map(named).collect()
}

#[test]
fn what_is_downloaded_is_what_templates_ask_for() {
    let none: [&str; 0] = [];
    assert_eq!(downloads(&profile(|_| {}), "{}"), none);
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
    assert_eq!(downloads(&conditional, "{}"), ["runc amd64", "runc arm64"]);
    assert_eq!(
        downloads(&conditional, "proxy: {http: 'http://p:1'}"),
        ["kubelet amd64", "kubelet arm64", "runc amd64", "runc arm64"]
    );
    let optional = asks("{{#if downloads.crictl.version}}{{download-url \"crictl\" arch=\"$a\"}}{{/if}}");
    let off = "downloads: {crictl: {enabled: false}}";
    assert_eq!(downloads(&optional, off), ["runc arm64"]);
    assert_eq!(
        downloads(&optional, "{}"),
        ["runc arm64", "crictl amd64", "crictl arm64"]
    );
    let verbatim = profile(|spec| {
        spec["templateEngine"] = json!("None");
        spec["provisioningConfig"]["units"][0]["content"] = json!("{{download-url \"runc\" arch=\"arm64\"}}");
    });
    assert_eq!(downloads(&verbatim, "{}"), none);
}

#[test]
fn in_double_quotes_a_shell_expands_the_variable_alone() {
    osm_judges::packages::ensure(&["busybox", "dash"]).unwrap();
    let profile = profile(|spec| {
        spec["provisioningConfig"]["units"][0]["content"] =
            json!("printf %s \"{{download-url \"runc\" arch=\"$arch\"}}\"");
    });
    // Every character that settings take.
    let base = "https://a-b_c.d:1/~me/%20!&()*+,;=:@";
    let settings = json!({"downloads": {"runc": {"version": "1.3.6-rc.1+b", "baseURL": base}}}).to_string();
    let rendered = profile
        .render(
            &pool("aws"),
            &Settings::parse(&settings).unwrap(),
            &stand_in_cluster(),
        )
        .unwrap();
    let script = &rendered.spec.provisioning_config.units[0].content;
    let script = format!("arch=arm64\n{}", script.as_deref().unwrap());
    for shell in [&["dash"][..], &["busybox", "sh"], &["bash"]] {
        let mut command = std::process::Command::new(shell[0]);
        let printed = command.args(&shell[1..]).args(["-c", &script]).output().unwrap();
        assert_eq!(
            String::from_utf8(printed.stdout).unwrap(),
            format!("{base}/v1.3.6-rc.1+b/runc.arm64")
        );
    }
}

#[test]
fn late_bound_values_are_encoded_declared_and_complete() {
    let rendered = profile(|_| {})
        .render(&pool("openstack"), &settings(), &stand_in_cluster())
        .unwrap()
        .spec;
    let mut values = LateValues::from([("api/token".to_owned(), "eyJ.a-_b".to_owned())]);
    assert_eq!(
        user_data(&rendered, Stage::Provisioning, &values),
        Err(UserDataError::MissingValue("registry/r:5000/password".to_owned()))
    );
    let password = "it's \"a\\b\"\n%%osm-late{api/token,raw}%%";
    values.insert("registry/r:5000/password".to_owned(), password.to_owned());

    let provisioning = parse(&user_data(&rendered, Stage::Provisioning, &values).unwrap());
    let config = file(&provisioning, "/config.toml");
    assert_eq!(
        (&config["encoding"], &config["permissions"]),
        (&json!("b64"), &json!("0644"))
    );
    let text = STANDARD.decode(config["content"].as_str().unwrap()).unwrap();
    let text: toml::Table = toml::from_str(&String::from_utf8(text).unwrap()).unwrap();
    assert_eq!(text["password"].as_str(), Some(password));
    values.insert("api/token".to_owned(), "a\"b".to_owned());
    assert_eq!(
        user_data(&rendered, Stage::Bootstrap, &values),
        Err(UserDataError::NotRaw("api/token".to_owned()))
    );
    let mut undeclared = rendered.clone();
    undeclared.late_bound.clear();
    assert_eq!(
        user_data(&undeclared, Stage::Bootstrap, &values)
            .unwrap_err()
            .reason(),
        "UnknownMarker"
    );
}

#[test]
fn a_marker_in_a_name_or_a_key_of_an_edited_config_is_refused() {
    let rendered = profile(|_| {})
        .render(&pool("openstack"), &settings(), &stand_in_cluster())
        .unwrap()
        .spec;
    let marker = "a%%osm-late{api/token,raw}%%";
    for (path, value, place) in [
        ("userSSHKeys", json!([marker]), "userSSHKeys"),
        (
            "files",
            json!([{"path": marker, "content": {"inline": {"data": ""}}}]),
            "files[].path",
        ),
        ("units", json!([{"name": marker, "content": ""}]), "units[].name"),
        (
            "units",
            json!([{"name": "a.service", "dropIns": [{"name": marker, "content": ""}]}]),
            "units[].dropIns[].name",
        ),
        ("modules", json!({"a": [{marker: 1}]}), "modules, in a key,"),
        // Found by the fuzzer: half of a marker.
        (
            "modules",
            json!({"package_upgr%%osm-late{ade": true}),
            "modules, in a key,",
        ),
    ] {
        let mut edited = serde_json::to_value(&rendered).unwrap();
        edited["bootstrapConfig"][path] = value;
        let edited = serde_json::from_value(edited).unwrap();
        let values = LateValues::from([("api/token".to_owned(), "t".to_owned())]);
        assert_eq!(
            user_data(&edited, Stage::Bootstrap, &values),
            Err(UserDataError::UnknownMarker {
                place: format!("bootstrapConfig.{place}")
            })
        );
    }
}

#[test]
fn pools_and_clouds_shape_the_bootstrap_document() {
    let bootstrap = |pool: &Pool, name: Option<&str>| {
        let mut spec = profile(|_| {})
            .render(pool, &Settings::default(), &stand_in_cluster())
            .unwrap()
            .spec;
        if let Some(name) = name {
            let pool = PoolRef::machine_deployment("kube-system", name, "u");
            RenderedFor {
                pool,
                revision: None,
                template_digest: String::new(),
            }
            .store(&mut spec);
        }
        parse(&user_data(&spec, Stage::Bootstrap, &placeholders(&spec)).unwrap())
    };
    let aws = bootstrap(&pool("aws"), None);
    assert!(aws.get("hostname").is_none());
    assert!(!aws.to_string().contains("machine-name"));
    assert_eq!(bootstrap(&pool("edge"), Some("gateway"))["hostname"], "gateway");
    let keys = vec!["ssh-ed25519 AAA it's: me".to_owned()];
    let mut upgraded = Pool {
        ssh_public_keys: keys.clone(),
        ..pool("openstack")
    };
    upgraded.os.dist_upgrade_on_boot = true;
    let document = bootstrap(&upgraded, Some("x"));
    assert_eq!(document["ssh_authorized_keys"], json!(keys));
    // Before the proxy, the mirrors and the certificates are set, an upgrade would fail.
    assert!(document.get("package_upgrade").is_none());
    assert_eq!(document["hostname"], "<MACHINE_NAME>");
}

#[test]
fn pools_that_do_not_fit_are_refused_and_odd_ones_noted() {
    let cluster = stand_in_cluster();
    let render = |pool: &Pool| profile(|_| {}).render(pool, &Settings::default(), &cluster);
    let mut other = pool("aws");
    other.operating_system = OperatingSystem::Flatcar;
    assert_eq!(render(&other).unwrap_err().reason(), "UnsupportedOperatingSystem");
    other = pool("aws");
    other.cloud_provider = CloudProvider::Hetzner;
    let error = render(&other).unwrap_err();
    assert_eq!(error.reason(), "UnsupportedCloudProvider");
    assert!(error.to_string().contains("aws, openstack, edge"), "{error}");
    assert_eq!(render(&pool("aws")).unwrap().warnings, Vec::<String>::new());
    other = pool("aws");
    other.kubelet_version = semver::Version::new(1, 40, 0);
    assert_eq!(render(&other).unwrap().warnings.len(), 1);
    other.network.gateway = "10.0.0.1".to_owned();
    assert_eq!(render(&other).unwrap_err().reason(), "UnsupportedNetwork");
    let rhel = profile(|spec| spec["osName"] = json!("rhel"));
    other = pool("aws");
    other.operating_system = OperatingSystem::RockyLinux;
    assert!(
        rhel.render(&other, &Settings::default(), &cluster)
            .unwrap()
            .warnings[0]
            .contains("rhel")
    );
    let centos = profile(|spec| spec["osName"] = json!("centos"));
    let warnings = |pool: &Pool| {
        centos
            .render(pool, &Settings::default(), &cluster)
            .unwrap()
            .warnings
    };
    assert!(!warnings(&other)[0].contains("machine-controller"));
    other.operating_system = OperatingSystem::CentOs;
    let found = warnings(&other);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .contains("refuses machines with the operating system centos; set operatingSystem to rockylinux"),
        "{found:?}"
    );
    let hidden = profile(|spec| {
        spec["bootstrapConfig"]["files"][1]["content"]["inline"]["encoding"] = json!("b64");
    });
    assert!(
        hidden
            .render(&pool("aws"), &Settings::default(), &cluster)
            .unwrap()
            .warnings[0]
            .contains("/script")
    );
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
    // The texts of a subscription reach the document without a template. The machine would send the value to its author's server.
    let text = || ConfigVar::Text(marker.to_owned());
    refused(&|pool, _, _| pool.os.rhel_organization_name = text());
    refused(&|pool, _, _| pool.os.rhel_subscription_manager_user = text());
    refused(&|pool, _, _| pool.os.rhel_satellite_server = marker.to_owned());
    refused(&|_, settings, _| settings.pause_image = Some("%%osm-late{".to_owned()));
    refused(&|_, _, cluster| cluster.ca = marker.to_owned());
    let error = resolve(&spec(|spec| {
        spec["bootstrapConfig"]["templates"]["proxy"] = json!(marker)
    }))
    .unwrap_err();
    assert_eq!(error.reason(), "ReservedText");
    assert!(
        error.to_string().contains("spec.bootstrapConfig.templates.proxy"),
        "{error}"
    );
}

/// Changes of a profile: the reason and a part of the message, the place, and the value there.
const MISTAKES: &str = r#"
ProfileInvalid | use cloud-init | /provisioningUtility | "ignition"
ProfileInvalid | version | /version | "1.0"
ProfileInvalid | supportedCloudProviders | /supportedCloudProviders | []
ProfileInvalid | bootstrapConfig.files[1] (/token) | /bootstrapConfig/files/1/path | "/token"
ProfileInvalid | (/etc/machine-name) | /bootstrapConfig/files/1/path | "/etc/machine-name"
ProfileInvalid | absolute | /bootstrapConfig/files/1/path | "/a/../b"
ProfileInvalid | template tags | /bootstrapConfig/files/1/path | "/{{a}}"
ProfileInvalid | octal | /bootstrapConfig/files/1/permissions | 688
ProfileInvalid | inline is missing | /bootstrapConfig/files/1/content | {}
ProfileInvalid | must be b64 | /bootstrapConfig/files/1/content/inline/encoding | "gzip"
ProfileInvalid | suffix | /provisioningConfig/units/0/name | "../x.service"
ProfileInvalid | .conf | /provisioningConfig/units/0/dropIns/0/name | "x"
ProfileInvalid | masked | /provisioningConfig/units/0/mask | true
ProfileInvalid | has no effect | /provisioningConfig/units/2/mask | false
ProfileInvalid | write_files | /provisioningConfig/modules/write_files | []
ProfileInvalid | list of commands | /provisioningConfig/modules/runcmd | "true"
ProfileInvalid | letters | /bootstrapConfig/templates/a b | ""
TemplateInvalid | bootstrapConfig.files[1] (/script), line 2, column 4: this block is never closed | /bootstrapConfig/files/1/content/inline/data | "x\n   {{#if a}}"
TemplateInvalid | provisioningConfig.units[0] (setup.service) | /provisioningConfig/units/0/content | "{{#if a}}"
TemplateInvalid | bootstrapConfig.modules.runcmd[0][1] | /bootstrapConfig/modules/runcmd/0/1 | "{{nope x}}"
TemplateInvalid | no template "proxy" | /bootstrapConfig/templates | {}
TemplateInvalid | no template "auth" | /bootstrapConfig/files/1/content/inline/data | "{{> auth}}"
TemplateInvalid | bootstrapConfig.templates.proxy: templates include each other | /bootstrapConfig/templates/proxy | "{{> proxy}}"
"#;

#[test]
fn profiles_that_can_not_work_are_refused_with_the_place() {
    for row in MISTAKES.trim().lines() {
        let [reason, text, place, value] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
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
    let failing = |text: &str| {
        let text = text.to_owned();
        profile(move |spec| spec["provisioningConfig"]["units"][0]["content"] = json!(text))
            .render(&pool("aws"), &settings(), &stand_in_cluster())
            .unwrap_err()
    };
    let error = failing("\n{{kubelet.versin}}\n");
    assert_eq!(error.reason(), "TemplateFailed");
    assert_eq!(
        error.to_string(),
        "provisioningConfig.units[0] (setup.service), line 2, column 1: there is no field \"kubelet.versin\" here"
    );
    let error = failing("{{late \"api/token\" as=\"raw\"}}");
    assert!(
        error
            .to_string()
            .contains("registry/r:5000/password, registry/r:5000/username"),
        "{error}"
    );
    let only_ipv6 = profile(|spec| {
        spec["bootstrapConfig"]["files"][1]["content"]["inline"]["data"] =
            json!("{{#unless network.ipv4}}{{typo}}{{/unless}}");
    });
    let error = dry_run(&only_ipv6).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("with the sample pool aws, kubelet 1.33.0, IPv6, default settings: "),
        "{error}"
    );
    let only_proxy = profile(|spec| {
        spec["bootstrapConfig"]["files"][1]["content"]["inline"]["data"] =
            json!("{{#if proxy.http}}{{typo}}{{/if}}");
    });
    assert!(
        dry_run(&only_proxy)
            .unwrap_err()
            .to_string()
            .contains("everything set")
    );
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
        let pool = pool("aws");
        let rendered = profile.render(&pool, &settings(), &stand_in_cluster()).unwrap();
        (rendered.spec.bootstrap_config.modules.unwrap(), pool.name)
    };
    let (rendered, name) = modules_of("Handlebars");
    assert_eq!(
        rendered,
        json!({"a": {"b.c": format!("x {name}"), "b": {"c": format!("y {name}")}}})
    );
    assert_eq!(modules_of("None").0, modules);
}

#[test]
fn user_data_is_counted_as_the_cloud_counts() {
    let limit = |cloud, os| size_limit(cloud, os).unwrap();
    let aws = limit(CloudProvider::Aws, OperatingSystem::Ubuntu);
    assert_eq!((aws.bytes, aws.counted), (16384, Counted::Gzip));
    assert!(aws.count(&"x".repeat(100_000)) < 1000);
    let flatcar = limit(CloudProvider::Aws, OperatingSystem::Flatcar);
    assert_eq!(flatcar.count(&"x".repeat(100_000)), 100_000);
    assert_eq!(
        limit(CloudProvider::Openstack, OperatingSystem::Ubuntu).count("1234"),
        8
    );
    assert_eq!(size_limit(CloudProvider::Kubevirt, OperatingSystem::Ubuntu), None);

    let sized = |bytes: usize| {
        // Text that doesn't become shorter by compression.
        let noise = (0..bytes / 32).map(|i| STANDARD.encode(osm_api::digest::sha256(&i.to_le_bytes())));
        let filler: String = noise.collect::<String>().chars().take(bytes).collect();
        profile(move |spec| spec["bootstrapConfig"]["files"][1]["content"]["inline"]["data"] = json!(filler))
            .render(&pool("openstack"), &settings(), &stand_in_cluster())
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
    assert!(
        error.to_string().contains("openstack takes at most 65535"),
        "{error}"
    );
}

/// What machine-controller or people look for stays as it is, and so does the provisioning document, which is compressed as a whole.
#[test]
fn long_files_of_a_bootstrap_document_are_compressed() {
    let long = "echo this is a long script\n".repeat(50);
    let named = format!("{long}echo <MACHINE_NAME>\n");
    let texts = [
        ("/long", long.as_str(), true),
        ("/short", "echo\n", false),
        ("/named", &named, false),
    ];
    let files = texts.map(|(path, text, _)| json!({"path": path, "content": {"inline": {"data": text}}}));
    let rendered = profile(|spec| {
        spec["bootstrapConfig"]["files"] = json!(files);
        spec["provisioningConfig"]["files"] = json!([files[0]]);
    })
    .render(&pool("aws"), &Settings::default(), &stand_in_cluster())
    .unwrap()
    .spec;
    let values = placeholders(&rendered);
    let document = user_data(&rendered, Stage::Bootstrap, &values).unwrap();
    for (path, text, is_packed) in texts {
        let encoding = file(&parse(&document), path)["encoding"].clone();
        assert_eq!(encoding == "gz+b64", is_packed, "{path}");
        let read = osm_judges::user_data_files(&document).unwrap();
        assert!(
            read.iter().any(|file| file.path == path && file.content == text),
            "{path}"
        );
    }
    for plain in [
        plain_user_data(&rendered, Stage::Bootstrap, &values).unwrap(),
        user_data(&rendered, Stage::Provisioning, &values).unwrap(),
    ] {
        assert_eq!(file(&parse(&plain), "/long")["content"], json!(long));
    }
}

#[test]
fn a_unit_that_nothing_would_start_again_is_refused() {
    let rendered = |content: &'static str| {
        profile(move |spec| {
            spec["provisioningConfig"]["units"][0]["enable"] = json!(true);
            spec["provisioningConfig"]["units"][0]["content"] = json!(content);
        })
        .render(&pool("openstack"), &settings(), &stand_in_cluster())
    };
    for content in [
        "",
        "[Service]\nExecStart=/a\n",
        "[Service]\nExecStart=/a\n#[Install]\n",
    ] {
        let error = rendered(content).unwrap_err();
        assert_eq!(error.reason(), "UserDataInvalid");
        let text = error.to_string();
        assert!(
            text.contains("setup.service: the unit is enabled, but has no [Install]"),
            "{text}"
        );
    }
    rendered("[Service]\nExecStart=/a\n[Install]\nWantedBy=multi-user.target\n").unwrap();
}

#[test]
fn names_of_machines_come_from_templates_alone() {
    let refused = |change: &dyn Fn(&mut Pool, &mut Settings, &mut ClusterEndpoint)| {
        let (mut pool, mut settings, mut cluster) = (pool("aws"), Settings::default(), stand_in_cluster());
        change(&mut pool, &mut settings, &mut cluster);
        profile(|_| {}).render(&pool, &settings, &cluster)
    };
    for text in ["x<MACHINE_NAME>", "%3CMACHINE_NAME%3E"] {
        let error = refused(&|pool, _, _| pool.ssh_public_keys = vec![text.to_owned()]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("sshPublicKeys[0] contains <MACHINE_NAME>"),
            "{error}"
        );
        let error = refused(&|_, _, cluster| cluster.ca = text.to_owned()).unwrap_err();
        assert_eq!(error.reason(), "ReservedText");
        // It is in the second document, or a profile's own affair.
        refused(&|pool, _, _| pool.overwrite_cloud_config = Some(text.to_owned())).unwrap();

        let rendered = profile(|_| {})
            .render(&pool("aws"), &settings(), &stand_in_cluster())
            .unwrap()
            .spec;
        let late = |id: &str| LateValues::from([(id.to_owned(), text.to_owned())]);
        user_data(&rendered, Stage::Provisioning, &late("registry/r:5000/password")).unwrap();
        let quoted = profile(|spec| {
            spec["bootstrapConfig"]["files"][0]["content"]["inline"]["data"] =
                json!("{{late \"api/token\" as=\"json\"}} {{late \"api/token\" as=\"shell\"}}");
        });
        let rendered = quoted
            .render(&pool("aws"), &settings(), &stand_in_cluster())
            .unwrap()
            .spec;
        let error = user_data(&rendered, Stage::Bootstrap, &late("api/token")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("/token: a late-bound value contains"),
            "{error}"
        );
        let nul = LateValues::from([("api/token".to_owned(), "a\0b".to_owned())]);
        let error = user_data(&rendered, Stage::Bootstrap, &nul).unwrap_err();
        assert_eq!(error, UserDataError::Nul("api/token".to_owned()));
    }
}

#[test]
fn json_is_yaml_and_nothing_that_a_shell_loses_gets_into_one() {
    let text = "del\u{7f} nel\u{85} ls\u{2028} bom\u{feff} end\u{ffff} 🙂";
    let written = yaml::json(&json!({"a": [text]}));
    assert_eq!(
        serde_json::from_str::<Value>(&written).unwrap(),
        json!({"a": [text]})
    );
    assert_eq!(yaml::read(&written).unwrap(), [json!({"a": [text]})]);
    assert!(written.contains("🙂") && !written.contains('\u{85}') && !written.contains('\u{2028}'));

    let mut nul = pool("aws");
    nul.name = "a\0b".to_owned();
    let error = profile(|_| {})
        .render(&nul, &Settings::default(), &stand_in_cluster())
        .unwrap_err();
    assert!(
        error.to_string().contains("shell: the text has a NUL character"),
        "{error}"
    );
    assert!(!error.to_string().contains("a\0b"));
}

#[test]
fn too_much_content_is_refused() {
    let text = "{{#each containerd.registries}}{{#each mirrors}}{{> proxy}}{{/each}}{{/each}}";
    let mirrors = vec![json!({"url": "https://m"}); 300];
    let settings = json!({"containerd": {"registries": [{"host": "a", "mirrors": mirrors}]}}).to_string();
    let error = profile(|spec| {
        spec["bootstrapConfig"]["templates"]["proxy"] = json!("x".repeat(1000));
        spec["bootstrapConfig"]["files"][0]["content"]["inline"]["data"] = json!(text);
        spec["bootstrapConfig"]["files"][1]["content"]["inline"]["data"] = json!(text);
    })
    .render(
        &pool("edge"),
        &Settings::parse(&settings).unwrap(),
        &stand_in_cluster(),
    )
    .unwrap_err();
    assert_eq!(error.reason(), "ContentTooLarge");
}

#[test]
fn a_pool_that_refers_to_too_many_secrets_is_refused() {
    let rendered = |registries: usize, secrets: usize| {
        let registries: Vec<Value> = (0..registries)
            .map(|i| json!({"host": format!("r{i}"), "credentials": {"name": format!("s{}", i % secrets)}}))
            .collect();
        let settings = json!({"containerd": {"registries": registries}}).to_string();
        profile(|_| {}).render(
            &pool("edge"),
            &Settings::parse(&settings).unwrap(),
            &stand_in_cluster(),
        )
    };
    rendered(100, 100).unwrap();
    // The number of registries that share a Secret does not count.
    rendered(150, 100).unwrap();
    let error = rendered(101, 101).unwrap_err();
    assert_eq!(error.reason(), "TooManySources");
    let message = error.to_string();
    assert!(
        message.starts_with("the content refers to 101 Secrets and ConfigMaps, but 100 is the limit"),
        "{message}"
    );
}

#[test]
fn a_file_is_written_only_if_its_template_has_something_to_say() {
    let profile = profile(|spec| {
        let files = [
            ("/conditional", "{{#if proxy.http}}\n{{proxy.http}}\n{{/if}}\n"),
            ("/empty", ""),
        ]
        .map(|(path, text)| json!({"path": path, "content": {"inline": {"data": text}}}));
        spec["bootstrapConfig"]["files"] = json!(files);
    });
    let paths = |settings: &Settings| {
        let rendered = profile
            .render(&pool("aws"), settings, &stand_in_cluster())
            .unwrap();
        let files = rendered.spec.bootstrap_config.files.into_iter();
        files.map(|file| file.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&settings()), ["/conditional", "/empty"]);
    assert_eq!(
        paths(&Settings::default()),
        ["/empty"],
        "a file that is empty on purpose is written"
    );
}

#[test]
fn settings_that_no_kubelet_starts_with_are_refused() {
    let settings =
        "kubelet: {featureGates: {Nonsense: true}, configuration: {maxPods: s3cr3t, maxPod: s3cr3t}}";
    let settings = Settings::parse(settings).unwrap();
    let error = profile(|_| {})
        .render(&pool("aws"), &settings, &stand_in_cluster())
        .unwrap_err();
    assert_eq!(error.reason(), "InvalidKubeletSettings");
    assert_eq!(
        error.to_string(),
        "the settings' kubelet.featureGates.Nonsense: kubelet 1.33 knows no such feature gate; \
         the settings' kubelet.configuration.maxPods: must be a whole number; \
         the settings' kubelet.configuration.maxPod: kubelet 1.33 has no such field"
    );
}
