//! Profiles in Go's template language, as people have them.

use std::collections::BTreeMap;

use osm_api::config::LateBoundKind;
use osm_api::profile::{File, OperatingSystem, OperatingSystemProfileSpec};
use osm_api::{Pool, Settings};
use osm_judges::ignition_configs;
use osm_render::{Rendered, compile, dry_run, resolve};
use osm_user_data::{Stage, placeholders, user_data};
use serde_json::{Value, json};

use crate::common::{EVERYTHING, cluster, compiled, pool};

const CA: &str = "-----BEGIN CERTIFICATE-----\nTWFueSBtYWNoaW5lcw==\n-----END CERTIFICATE-----\n";

/// A profile for Ubuntu whose stages are given. Without `templateEngine`, as the manifests of the upstream
/// OSM are.
fn profile(bootstrap: Value, provisioning: Value) -> OperatingSystemProfileSpec {
    serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0",
        "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
        "bootstrapConfig": bootstrap, "provisioningConfig": provisioning,
    }))
    .unwrap()
}

fn file(path: &str, data: &str) -> Value {
    json!({"path": path, "content": {"inline": {"data": data}}})
}

fn render_for(
    spec: &OperatingSystemProfileSpec,
    pool: &Pool,
    settings: &Settings,
) -> Result<Rendered, String> {
    let accepted = resolve(spec).map_err(|error| error.to_string())?;
    let profile = compile(&accepted).map_err(|error| error.to_string())?;
    let rendered = profile.render(pool, settings, &cluster("https://10.0.0.1:6443", CA));
    rendered.map_err(|error| error.to_string())
}

/// A pool whose MachineDeployment says little.
fn plain() -> Pool {
    pool("ubuntu", "aws", "1.34.2", "", false)
}

/// What a profile gives for a plain pool.
fn rendered(spec: &OperatingSystemProfileSpec) -> Result<Rendered, String> {
    render_for(spec, &plain(), &Settings::default())
}

fn content<'a>(files: &'a [File], path: &str) -> &'a str {
    let found = files.iter().find(|file| file.path == path);
    let inline = found.and_then(|file| file.content.inline.as_ref());
    &inline.unwrap_or_else(|| panic!("no {path}")).data
}

/// What a file of the provisioning stage with this text renders to, beside named templates.
fn of_file(templates: Value, data: &str) -> Result<String, String> {
    let stage = json!({"templates": templates, "files": [file("/a", data)]});
    let rendered = rendered(&profile(json!({}), stage))?;
    Ok(content(&rendered.spec.provisioning_config.files, "/a").to_owned())
}

/// What a file of the provisioning stage with this text renders to, for a pool and with settings.
fn for_pool(pool: &Pool, settings: &Settings, data: &str) -> Result<String, String> {
    let spec = profile(json!({}), json!({"files": [file("/a", data)]}));
    let rendered = render_for(&spec, pool, settings)?;
    Ok(content(&rendered.spec.provisioning_config.files, "/a").to_owned())
}

#[test]
fn files_are_templates_and_nothing_else_is() {
    let action = "{{ .KubeVersion }}";
    let stage = json!({
        "files": [file("/a", action), file("/empty", "{{ if false }}x{{ end }}"), file("/plain", "no action")],
        "units": [{"name": "a.service", "content": action,
            "dropIns": [{"name": "b.conf", "content": action}]}],
        "modules": {"runcmd": [action]},
    });
    let rendered = rendered(&profile(stage.clone(), stage)).unwrap();
    for stage in [
        &rendered.spec.bootstrap_config,
        &rendered.spec.provisioning_config,
    ] {
        assert_eq!(content(&stage.files, "/a"), "v1.34.2");
        assert_eq!(content(&stage.files, "/empty"), "");
        assert_eq!(content(&stage.files, "/plain"), "no action");
        assert_eq!(stage.units[0].content.as_deref(), Some(action));
        assert_eq!(stage.units[0].drop_ins[0].content, action);
        assert_eq!(stage.modules.as_ref().unwrap()["runcmd"], json!([action]));
    }
}

#[test]
fn a_named_template_is_executed_by_itself_with_all_data() {
    let named = json!({"version": "kubelet {{ .KubeVersion }}\n \n", "blank": "{{ if false }}x{{ end }}\n"});
    let of_file = |data| of_file(named.clone(), data);
    let own = "{{ define \"version\" }}own{{ end }}{{ define \"blank\" }}own{{ end }}{{ template \"version\" }} {{ template \"blank\" }}";
    for (data, expected) in [
        ("<{{ template \"version\" }}>", "<\nkubelet v1.34.2>"),
        ("<{{ template \"blank\" . }}>", "<>"),
        (own, "\nkubelet v1.34.2 own"),
    ] {
        assert_eq!(of_file(data).as_deref(), Ok(expected));
    }
    let error = of_file("{{ template \"missing\" }}").unwrap_err();
    assert!(error.ends_with(r#"template "missing" not defined"#), "{error}");
    // Nobody else's are defined yet when it is executed.
    let calling = json!({"a": "{{ template \"b\" }}", "b": "text"});
    let stage = json!({"templates": calling, "files": [file("/a", "{{ template \"a\" }}")]});
    let error = rendered(&profile(json!({}), stage)).unwrap_err();
    assert!(
        error.starts_with("provisioningConfig.templates.a, line 1") && error.contains("not defined"),
        "{error}"
    );
}

#[test]
fn templates_of_containerd_are_overlaid_by_those_of_the_stage() {
    let stage = json!({
        "supportedContainerRuntimes": [
            {"name": "docker", "files": [file("/docker", "x")], "templates": {"a": "of docker"}},
            {"name": "containerd", "files": [file("/runtime", "{{ .ContainerRuntime }}{{ template \"a\" }}{{ template \"b\" }}")],
                "templates": {"a": "of containerd", "b": "of containerd"}},
        ],
        "templates": {"b": "of the stage"},
        "files": [file("/own", "")],
    });
    let rendered = rendered(&profile(json!({}), stage)).unwrap();
    let files = rendered.spec.provisioning_config.files;
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let hosts = "/etc/containerd/certs.d/docker.io/hosts.toml";
    assert_eq!(paths, ["/own", "/runtime", hosts]);
    let expected = "containerd\nof containerd\nof the stage";
    assert_eq!(content(&files, "/runtime"), expected);
}

#[test]
fn what_a_template_gives_is_never_evaluated_again() {
    let error = of_file(json!({"a": "{{ \"{{\" }} .Token }}"}), "{{ template \"a\" }}").unwrap_err();
    assert!(error.contains("is not evaluated a second time"), "{error}");
    // Where it comes from data, it is text.
    let settings = Settings {
        pause_image: Some("{{ .Token }}".to_owned()),
        ..Settings::default()
    };
    let stage =
        json!({"templates": {"a": "{{ .PauseImage }}"}, "files": [file("/a", "{{ template \"a\" }}")]});
    let rendered = render_for(&profile(json!({}), stage), &plain(), &settings).unwrap();
    let files = &rendered.spec.provisioning_config.files;
    assert_eq!(content(files, "/a"), "\n{{ .Token }}");
}

#[test]
fn credentials_are_late_bound() {
    let script = "curl -H 'Authorization: Bearer {{ .Token }}' {{ .ServerURL }}/{{ .SecretName }}\n{{ .BootstrapKubeconfig | indent 2 }}";
    let bootstrap = json!({"files": [file("/a", script)]});
    let provisioning =
        json!({"files": [file("/a", "{{ .Token | quote }} {{ .BootstrapKubeconfigSecretName }}")]});
    let rendered = rendered(&profile(bootstrap, provisioning)).unwrap();
    let text = content(&rendered.spec.bootstrap_config.files, "/a");
    let expected = "curl -H 'Authorization: Bearer %%osm-late{api/token,raw}%%' https://10.0.0.1:6443/%%osm-late{provisioning/secret-name,raw}%%\n";
    // A test of variables reads the kubeconfig as YAML.
    let token = "\n      token: %%osm-late{kubelet/token,raw}%%";
    assert!(text.starts_with(expected) && text.contains(token), "{text}");
    let wanted = "\"%%osm-late{api/token,raw}%%\" %%osm-late{kubelet/kubeconfig-secret-name,raw}%%";
    assert_eq!(content(&rendered.spec.provisioning_config.files, "/a"), wanted);
    let late = rendered.spec.late_bound_values.iter();
    let late: BTreeMap<&str, LateBoundKind> = late.map(|late| (late.id.as_str(), late.kind)).collect();
    use LateBoundKind::{APIToken, KubeconfigSecretName, KubeletToken, ProvisioningSecretName};
    let expected = [
        ("api/token", APIToken),
        ("kubelet/kubeconfig-secret-name", KubeconfigSecretName),
        ("kubelet/token", KubeletToken),
        ("provisioning/secret-name", ProvisioningSecretName),
    ];
    assert_eq!(late, BTreeMap::from(expected));
}

/// Settings with a proxy, without and with a password.
const PROXIES: [&str; 2] = [
    "proxy: {http: 'http://proxy.example:3128'}",
    "proxy: {http: 'http://proxy.example:3128', credentials: {name: proxy}}",
];

#[test]
fn the_url_of_a_proxy_with_a_password_is_late_bound() {
    let [open, secret] = PROXIES.map(|text| Settings::parse(text).unwrap());
    let of = |text: &str, settings| for_pool(&plain(), settings, text);
    let line = "{{ with .HTTPProxy }}HTTPS_PROXY={{ . }}{{ end }}";
    for (settings, url) in [
        (&open, "http://proxy.example:3128"),
        (&secret, "%%osm-late{proxy/url,text}%%"),
    ] {
        assert_eq!(of(line, settings), Ok(format!("HTTPS_PROXY={url}")));
    }
    let looks = "{{ with .HTTPProxy }}{{ upper . }}{{ end }}";
    assert_eq!(of(looks, &open).as_deref(), Ok("HTTP://PROXY.EXAMPLE:3128"));
    of(looks, &secret).unwrap_err();
    let looking = profile(json!({"files": [file("/a", looks)]}), json!({}));
    dry_run(&compiled(&looking)).unwrap();
}

#[test]
fn a_password_that_users_other_than_root_can_read_gives_a_warning() {
    let [open, secret] = PROXIES;
    for (permissions, settings, expected) in [(644, secret, true), (600, secret, false), (644, open, false)] {
        let mut file = file("/etc/proxy", "{{ .Token }} {{ with .HTTPProxy }}{{ . }}{{ end }}");
        file["permissions"] = json!(permissions);
        let spec = profile(json!({"files": [file]}), json!({}));
        let rendered = render_for(&spec, &plain(), &Settings::parse(settings).unwrap());
        let warnings = rendered.unwrap().warnings;
        let is_it = |warning: &String| warning.starts_with("/etc/proxy contains a password");
        let found = warnings.iter().any(is_it);
        assert_eq!(found, expected, "{permissions} {settings}: {warnings:?}");
    }
}

#[test]
fn a_function_that_looks_at_a_credential_or_changes_it_is_refused() {
    for action in [
        "b64enc .Token",
        "upper .Token",
        "trunc 1 .Token",
        "trunc -1 .Token",
        "trunc 20 .Token",
        "len .Token",
        "sha256sum .Token",
        "printf \"%x\" .Token",
        "urlquery .Token",
        "regexFind \"[a-z]+\" .Token",
        "range $c := splitList \"\" .Token }}{{ $c }}-{{ end",
        "if hasPrefix \"%%\" .Token }}x{{ end",
        "substr 3 8 .BootstrapKubeconfigSecretName",
        "b64enc .BootstrapKubeconfig",
    ] {
        let data = format!("{{{{ {action} }}}}");
        let error = of_file(json!({}), &data).expect_err(&data);
        assert!(error.starts_with("provisioningConfig.files[0] (/a): "), "{error}");
        assert!(error.contains("print it as"), "{data}: {error}");
    }
    for (action, output) in [
        (".Token | quote", "\"%%osm-late{api/token,raw}%%\""),
        ("list \"a\" .Token | join \",\"", "a,%%osm-late{api/token,raw}%%"),
        ("if .Token }}yes{{ end", "yes"),
        ("default \"none\" .Token", "%%osm-late{api/token,raw}%%"),
        (
            "dict \"t\" .Token | toJson",
            "{\"t\":\"%%osm-late{api/token,raw}%%\"}",
        ),
    ] {
        let data = format!("{{{{ {action} }}}}");
        assert_eq!(of_file(json!({}), &data).as_deref(), Ok(output), "{data}");
    }
}

#[test]
fn a_value_of_the_other_stage_is_refused() {
    let error = of_file(json!({}), "{{ .SecretName }}").unwrap_err();
    let start = "provisioningConfig.files[0] (/a): the late-bound value provisioning/secret-name can't be used in this stage";
    assert!(error.starts_with(start), "{error}");
    let password = json!({"files": [file("/a", "{{ .RhelConfig.RHELSubscriptionManagerPassword }}")]});
    let refused = |bootstrap: Value, provisioning: Value| {
        let mut spec = profile(bootstrap, provisioning);
        spec.os_name = OperatingSystem::Rhel;
        dry_run(&compiled(&spec)).map_err(|error| error.to_string())
    };
    assert_eq!(refused(json!({}), password.clone()), Ok(()));
    let error = refused(password, json!({})).unwrap_err();
    let part =
        "bootstrapConfig.files[0] (/a): the late-bound value rhel/password can't be used in this stage";
    assert!(error.contains(part), "{error}");
}

/// What is in line 2, and the error that it gives.
const ERRORS: &str = r#"
  {{ .KubletVersion }} | column 6: at <.KubletVersion>: can't evaluate field KubletVersion in type *resources.filesData
{{ semver .ServerURL }} | column 4: at <semver .ServerURL>: error calling semver
{{ date "2006" 0 }} | column 4: function "date" is not supported; write the date or duration into the profile
{{ fail "use another cloud" }} | column 4: at <fail "use another cloud">: error calling fail
{{ if }}{{ end }} | column 7: missing value for if
 {{ .KubeVersion | column 2: unclosed action started at file:2
"#;

#[test]
fn errors_say_where_and_repeat_no_data() {
    for row in ERRORS.trim_matches('\n').lines() {
        let (data, expected) = row.split_once(" | ").unwrap();
        let expected = format!("provisioningConfig.files[0] (/a), line 2, {expected}");
        assert_eq!(of_file(json!({}), &format!("a\n{data}\n")), Err(expected));
    }
}

#[test]
fn the_templates_of_a_stage_share_the_bounds_of_one() {
    let copies = "{{ range 30 }}{{ $x := repeat 100000 \"x\" }}{{ end }}";
    let files: Vec<Value> = (0..20).map(|n| file(&format!("/{n}"), copies)).collect();
    assert!(of_file(json!({}), copies).is_ok());
    let error = rendered(&profile(json!({}), json!({"files": files}))).unwrap_err();
    assert!(error.contains("functions copy or make more than"), "{error}");

    let long = format!(
        "{{{{ range 300 }}}}{}{{{{ end }}}}",
        "{{ $.KubernetesCACert }}".repeat(4)
    );
    let named: BTreeMap<String, &str> = (0..300).map(|n| (format!("n{n}"), &*long)).collect();
    let error = of_file(json!(named), "").unwrap_err();
    assert!(error.contains("the templates write more than"), "{error}");
}

#[test]
fn values_have_the_types_of_go() {
    let text = r#"{{ .ImageMinimumGCAge }} {{ .ImageMaximumGCAge }} {{ .ClusterDNSIPs }} {{ index .ClusterDNSIPs 0 }}
{{ if eq .CloudProviderName "aws" }}aws{{ end }} {{ typeOf .CloudProviderName }} {{ .MaxPods }} {{ if .ImageGCLowThresholdPercent }}zero is set{{ end }}
{{ .NetworkConfig.IPFamily }} {{ .NetworkConfig.DNS.Servers }} {{ semverCompare "~1.34.0" .KubeVersion }} {{ .InTreeCCMAvailable }}
{{ .FlatcarConfig.DisableAutoUpdate }} {{ .RhelConfig.RHELSubscriptionManagerUser }}{{ .RHSubscription }}"#;
    let pool = pool("ubuntu", "aws", "1.34.2", "IPv4+IPv6", true);
    assert_eq!(
        for_pool(&pool, &Settings::default(), text).unwrap(),
        "5m0s 24h0m0s [10.96.0.10] 10.96.0.10\n\
         aws v1alpha1.CloudProvider 55 zero is set\n\
         IPv4+IPv6 [] true true\n\
         false map[]"
    );
}

/// A test of variables compares the configuration with that of the library, which containerd itself has read.
#[test]
fn mirrors_of_registries_are_files_as_the_upstream_osm_writes_them() {
    let stage = json!({"files": [file("/etc/containerd/config.toml", "{{ .ContainerRuntimeConfig }}")]});
    let settings = Settings::parse(EVERYTHING).unwrap();
    let rendered = render_for(&profile(json!({}), stage), &plain(), &settings).unwrap();
    let files = &rendered.spec.provisioning_config.files;
    let paths: Vec<&str> = files.iter().skip(1).map(|file| file.path.as_str()).collect();
    let expected = ["_default", "docker.io"].map(|host| format!("/etc/containerd/certs.d/{host}/hosts.toml"));
    assert_eq!(paths, expected);
    assert_eq!(
        content(files, paths[1]),
        "server = \"https://registry-1.docker.io\"\n\
         \n[host.\"https://z.example/v2/hub\"]\ncapabilities = [\"pull\", \"resolve\"]\nskip_verify = true\noverride_path = true\n\
         \n[host.\"https://a.example\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
    );
}

#[test]
fn a_file_of_the_profile_gives_way_to_the_settings_with_a_warning() {
    let path = "/etc/containerd/certs.d/docker.io/hosts.toml";
    let rendered = rendered(&profile(json!({}), json!({"files": [file(path, "own")]}))).unwrap();
    let files = &rendered.spec.provisioning_config.files;
    assert_eq!(files.len(), 1);
    assert!(content(files, path).starts_with("server = "));
    assert!(
        rendered.warnings.iter().any(|warning| warning.contains(path)),
        "{:?}",
        rendered.warnings
    );
}

/// The systems whose programs read documents in languages of their own.
#[derive(Clone, Copy)]
enum Machine {
    Ubuntu,
    Coreos,
    Ignition,
}

/// A profile for a machine whose bootstrap stage is given: the bootstrap document, and the warnings.
fn passed_on(machine: Machine, engine: &str, spec: Value) -> Result<(String, Vec<String>), String> {
    let (os, utility) = match machine {
        Machine::Ubuntu => ("ubuntu", "cloud-init"),
        Machine::Coreos => ("flatcar", "cloud-init"),
        Machine::Ignition => ("flatcar", "ignition"),
    };
    let mut all = json!({
        "osName": os, "osVersion": "1", "version": "v1.0.0", "provisioningUtility": utility, "templateEngine": engine,
        "supportedCloudProviders": [{"name": "aws"}],
    });
    let fields = spec.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    let spec: OperatingSystemProfileSpec = serde_json::from_value(all).unwrap();
    let mut pool = pool(os, "aws", "1.34.2", "", false);
    pool.os.provisioning_utility = Some(spec.provisioning_utility);
    let rendered = render_for(&spec, &pool, &Settings::default())?;
    let document = user_data(&rendered.spec, Stage::Bootstrap, &placeholders(&rendered.spec));
    Ok((document.unwrap(), rendered.warnings))
}

/// One row for each text that the upstream OSM passes on: the stage, where in the document it ends up, as
/// what, the warning about it, and the message for a profile in another language. Ignition, which refuses
/// what occurs twice, has no complaint.
#[test]
#[rustfmt::skip]
fn what_the_upstream_osm_passes_on_becomes_the_same() {
    use Machine::{Coreos, Ignition, Ubuntu};
    let file = |path: &str, encoding: &str, data: &str| json!({"path": path, "content": {"inline": {"encoding": encoding, "data": data}}});
    let path = |path: &str| json!({"files": [file(path, "", "text")]});
    let mode = |mode: i32| json!({"files": [{"path": "/a", "permissions": mode, "content": {"inline": {"data": ""}}}]});
    let encoded = |encoding: &str, data: &str| json!({"files": [file("/a", encoding, data)]});
    let written = |encoding: &str, data: &str| json!([{"path": "/a", "permissions": "0644", "encoding": encoding, "content": data}]);
    let twice = json!({"files": [file("/a", "", "one"), file("/b", "", ""), file("//a", "b64", "two")]});
    let unit = |name: &str, rest: Value| {
        let mut unit = json!({"name": name});
        unit.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        unit
    };
    let (one, two) = ("[Service]\nNice=1\n[Install]\nWantedBy=a.target\n", "[Service]\nNice=2\n[Install]\nWantedBy=a.target\n");
    let file_and_unit = json!({"files": [file("/etc/systemd/system/a.service", "", one)], "units": [unit("a.service", json!({"content": two}))]});
    let units_twice = json!({"units": [unit("a.service", json!({"enable": true, "content": one})), unit("a.service", json!({"content": two}))]});
    let drop_in = |name: &str, text: &str| json!({"name": name, "content": text});
    let drop_ins = |first: &str, second: &str| json!({"units": [unit("a.service", json!({"dropIns": [drop_in(first, one), drop_in(second, two)]}))]});
    let masked = json!({"units": [unit("a.service", json!({"mask": true, "enable": true, "content": one}))]});
    let templates = |name: &str| json!({"templates": {name: "x"}, "files": [file("/a", "", &format!("{{{{ template \"{name}\" }}}}"))]});
    let module = |name: &str, value: Value| json!({"modules": {name: value}});
    let command = |text: &str| module("runcmd", json!([text]));
    let repository = |key: &str, value: &str| module("yum_repos", json!({"a": {"baseurl": "https://a.example", key: value}}));
    let more_than_once = "written more than once";
    let none = Value::Null;
    let rows: Vec<(Machine, Value, &str, Value, &str, &str)> = vec![
        // Paths.
        (Ubuntu, path("/it's/{a}: #b"), "/write_files/0/path", json!("/it's/{a}: #b"), "", ""),
        (Ubuntu, path("/etc//a/./b/../c/"), "/write_files/0/path", json!("/etc/a/c"), "", "must be absolute"),
        (Ignition, path("/etc//a/../b"), "/storage/files/1/path", json!("/etc/b"), "", "must be absolute"),
        (Ubuntu, path("etc/a"), "/write_files/0/path", json!("/etc/a"), "", "must be absolute"),
        (Coreos, path("etc/a"), "/write_files/1/path", json!("/etc/a"), "", "must be absolute"),
        (Ubuntu, path("/{{ .KubeVersion }}"), "/write_files/0/path", json!("/{{ .KubeVersion }}"), "", "template tags"),
        (Ubuntu, path("/etc/machine-name"), "/write_files/0/content", json!("text"), "", more_than_once),
        (Ignition, path("/etc/ssh/sshd_config.d/10-osm.conf"), "/storage/files", json!([
            {"path": "/etc/ssh/sshd_config.d/10-osm.conf", "mode": 0o644, "overwrite": true, "contents": {"source": "data:,text"}}]),
            "", more_than_once),
        // A path twice.
        (Ubuntu, twice.clone(), "/write_files", json!([
            {"path": "/a", "permissions": "0644", "content": "one"}, {"path": "/b", "permissions": "0644", "content": ""},
            {"path": "/a", "permissions": "0644", "encoding": "b64", "content": "dHdv"}]), "", "must be absolute"),
        (Coreos, twice.clone(), "/write_files/3", json!({"path": "/a", "permissions": "0644", "content": "two"}), "", "must be absolute"),
        (Ignition, twice, "/storage/files/2/contents/source", json!("data:,two"), "", "must be absolute"),
        (Ubuntu, file_and_unit.clone(), "/write_files/1/content", json!(two), "", more_than_once),
        (Coreos, file_and_unit.clone(), "/coreos/units/0/content", json!(two), "", more_than_once),
        (Ignition, file_and_unit.clone(), "/storage/files/1", none.clone(), "", more_than_once),
        (Ignition, file_and_unit, "/systemd/units/0/contents", json!(two), "", more_than_once),
        (Ignition, path("/proc/sys/kernel/panic"), "/storage/files/1/path", json!("/proc/sys/kernel/panic"), "", "write the file from a unit"),
        // Permissions.
        (Ubuntu, mode(0), "/write_files/0/permissions", json!("0644"), "", ""),
        (Ubuntu, mode(44), "/write_files/0/permissions", json!("0044"), "", ""),
        (Ubuntu, mode(1777), "/write_files/0/permissions", json!("1777"), "", ""),
        (Ignition, mode(755), "/storage/files/1/mode", json!(0o755), "", ""),
        // Encodings.
        (Ubuntu, encoded("b64", "{{ .KubeVersion }}"), "/write_files", written("b64", "djEuMzQuMg=="), "", ""),
        (Ubuntu, encoded("base64", "dGV4dAo=\n"), "/write_files", written("base64", "dGV4dAo=\n"), "", "must be b64"),
        (Ubuntu, encoded("B64", "dGV4dAo="), "/write_files", written("B64", "dGV4dAo="), "", "must be b64"),
        (Ubuntu, encoded("gz+b64", "H4sI"), "/write_files", written("gz+b64", "H4sI"), "", "must be b64"),
        (Ubuntu, encoded("gzip+base64", "H4sI"), "/write_files", written("gzip+base64", "H4sI"), "", "must be b64"),
        (Ubuntu, encoded("text/plain", "text"), "/write_files", written("text/plain", "text"), "", "must be b64"),
        (Ubuntu, encoded("base64", "echo plain"), "/write_files", written("base64", "echo plain"), "", "must be b64"),
        (Ubuntu, encoded("utf-8", "text"), "/write_files/0/encoding", none.clone(), "", "must be b64"),
        (Coreos, encoded("GZIP+base64", "H4sI"), "/write_files/1/encoding", json!("gzip+base64"), "", "must be b64"),
        (Coreos, encoded("text/plain", "text"), "/write_files/1/encoding", none.clone(), "", "must be b64"),
        (Ignition, encoded("base64", "dGV4"), "/storage/files/1/contents/source", json!("data:,dGV4"), "", "must be b64"),
        // Units and drop-ins.
        (Ignition, json!({"units": [unit("a.scope", json!({"content": one}))]}), "/systemd/units/0/name", json!("a.scope"), "", "suffix"),
        (Coreos, json!({"units": [unit("a.network", json!({"content": one}))]}), "/coreos/units/0/name", json!("a.network"), "", "suffix"),
        (Ignition, json!({"units": [unit("a.service", json!({}))]}), "/systemd", none.clone(), "", "has no effect"),
        (Ubuntu, units_twice.clone(), "/write_files", json!([{"path": "/etc/systemd/system/a.service", "permissions": "0644", "content": two}]),
            "", "listed more than once"),
        (Ignition, units_twice, "/systemd/units", json!([{"name": "a.service", "enabled": true, "contents": two}]),
            "", "listed more than once"),
        (Ignition, masked, "/systemd/units", json!([{"name": "a.service", "mask": true}]), "", "masked"),
        (Ignition, drop_ins("a.conf", "a.conf"), "/systemd/units/0/dropins", json!([{"name": "a.conf", "contents": two}]), "", more_than_once),
        (Ubuntu, drop_ins("a.conf", "b"), "/write_files/1/path", json!("/etc/systemd/system/a.service.d/b"), "", "must end in .conf"),
        // Names of templates.
        (Ubuntu, templates("install.sh"), "/write_files/0/content", json!("\nx"), "", ""),
        (Ubuntu, templates(""), "/write_files/0/content", json!("\nx"), "", ""),
        (Ubuntu, templates("lib/{a}: 'ü' #"), "/write_files/0/content", json!("\nx"), "", ""),
        // Modules, which are written into YAML without quotes.
        (Ubuntu, command("echo a: b # c"), "/runcmd/0", json!("echo a: b # c"), "", ""),
        (Ubuntu, command("[ -f /a ] && echo a"), "/runcmd/0", json!("[ -f /a ] && echo a"), "", ""),
        (Ubuntu, command("\"$HOME/a\" b"), "/runcmd/0", json!("\"$HOME/a\" b"), "", ""),
        (Ubuntu, command("true"), "/runcmd/0", json!("true"), "", ""),
        (Ubuntu, command("[echo, a b, 5]"), "/runcmd/0", json!(["echo", "a b", "5"]), "", ""),
        (Ubuntu, command("'echo \"a\"'"), "/runcmd/0", json!("echo \"a\""), "", ""),
        (Ubuntu, command("|\n  set -e\n  true\n"), "/runcmd/0", json!("set -e\ntrue\n"), "", ""),
        (Ubuntu, module("bootcmd", json!(["[a]"])), "/bootcmd/0", json!(["a"]), "", ""),
        (Ubuntu, module("runcmd", none.clone()), "/runcmd", none.clone(), "", "must be a list"),
        (Ubuntu, module("yum_repo_dir", json!("'/etc/a'")), "/yum_repo_dir", json!("/etc/a"), "", ""),
        (Ubuntu, repository("name", "'a: b'"), "/yum_repos/a/name", json!("a: b"), "", ""),
        (Ubuntu, repository("priority", "010"), "/yum_repos/a/priority", json!("010"), "", ""),
        (Ubuntu, repository("name", ""), "/yum_repos/a/name", none.clone(), "", ""),
        (Ubuntu, module("rh_subscription", json!({"add-pool": "['a', b]", "password": "a #b"})), "/rh_subscription",
            json!({"add-pool": ["a", "b"], "password": "a #b"}), "", ""),
        (Ignition, command("true"), "/runcmd", none.clone(), "bootstrapConfig.modules.runcmd is left out: Flatcar applies no", "Flatcar applies no"),
        (Coreos, command("true"), "/runcmd", none.clone(), "bootstrapConfig.modules.runcmd is left out: Flatcar applies no", "Flatcar applies no"),
    ];
    let mut of_ignition: Vec<(String, String)> = Vec::new();
    for (machine, stage, pointer, expected, warning, strict) in rows {
        let spec = json!({"bootstrapConfig": stage});
        let (text, warnings) = passed_on(machine, "GoTemplate", spec.clone()).unwrap_or_else(|error| panic!("{stage}: {error}"));
        let document: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(document.pointer(pointer).unwrap_or(&Value::Null), &expected, "{stage}: {text}");
        if matches!(machine, Ignition) {
            of_ignition.push((stage.to_string(), text));
        }
        let mut about = warnings.iter().filter(|warning| !warning.contains("/etc/containerd"));
        match warning {
            "" => assert_eq!(about.next(), None, "{stage}"),
            part => assert!(about.any(|warning| warning.contains(part)), "{stage}: {warnings:#?}"),
        }
        let refused = passed_on(machine, "None", spec);
        match strict {
            "" => {}
            part => assert!(refused.as_ref().is_err_and(|error| error.contains(part)), "{stage}: {refused:?}"),
        }
    }
    let of_ignition: Vec<(&str, &str)> = of_ignition.iter().map(|(name, text)| (&**name, &**text)).collect();
    ignition_configs(&of_ignition).unwrap_or_else(|verdict| panic!("{verdict}"));
    for (version, go, strict) in [
        ("v1.4.0", true, true), ("site-v1.4.0", true, true), ("v1 of v2.0.0-rc.1+x", true, true),
        ("1.4.0", false, false), ("v1.4", false, false), ("v1.4.0 ", false, false), ("v01.4.0", false, false),
    ] {
        for (engine, accepted) in [("GoTemplate", go), ("None", strict)] {
            let spec = json!({"version": version});
            assert_eq!(passed_on(Ubuntu, engine, spec).is_ok(), accepted, "{engine} {version}");
        }
    }
    let long = format!("{}v1.0.0", "v0.0.0-".repeat(40));
    assert!(passed_on(Ubuntu, "GoTemplate", json!({"version": long})).unwrap_err().contains("at most 256 bytes"));
    // These are refused in every language, because the machine would not get what the profile wants.
    for (machine, stage, problem) in [
        (Ubuntu, path("/"), "must be absolute"),
        (Ubuntu, path("/a\nb"), "must be absolute"),
        (Ignition, path("etc/a"), "must be absolute"),
        (Ignition, path("//usr/a"), "/usr is read-only"),
        (Ubuntu, json!({"files": [file("/a", "", ""), file("/a//b", "", "")]}), "is below a path that is itself a file"),
        (Ubuntu, mode(493), "octal digits"),
        (Ignition, mode(1777), "777 or less"),
        (Ubuntu, json!({"units": [unit("a", json!({"content": one}))]}), "suffix"),
        (Ignition, json!({"units": [unit("a.network", json!({"content": one}))]}), "suffix"),
        (Ignition, drop_ins("a.conf", "b"), "must end in .conf"),
        (Ubuntu, templates("a\\b"), "backslashes"),
    ] {
        let result = passed_on(machine, "GoTemplate", json!({"bootstrapConfig": stage}));
        let error = result.err().unwrap_or_default();
        assert!(error.contains(problem), "{stage}: {error}");
    }
}

/// A test of additions has settings that reach profiles in every language, and one of placement the documents
/// that they are in.
#[test]
fn settings_that_need_the_library_give_a_warning() {
    let settings = "system: {swap: {size: 1Gi}}\nkubelet: {configuration: {podPidsLimit: 4096}}\ndownloads: {cni: {version: 1.9.0}}";
    let spec = profile(json!({}), json!({"modules": {"runcmd": ["echo never"]}}));
    let rendered = render_for(&spec, &plain(), &Settings::parse(settings).unwrap()).unwrap();
    let fields = ["system.swap", "kubelet.configuration", "downloads"];
    let expected = fields
        .map(|field| format!("{field} of the settings has no effect, because it needs the library, which only Handlebars can include"));
    assert_eq!(rendered.warnings, expected);
}
