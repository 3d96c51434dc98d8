//! Only the Secrets that are meant to carry a credential contain it, or anything from which it could be
//! guessed. What belongs to a cluster of a fleet never reaches another one.
//!
//! The tests plant credentials in every place that the services read, and provoke errors there. They then
//! search everything that the services wrote, in every form that a credential could have on its way.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::discovery::verbs;
use kube::{Client, Discovery, ResourceExt};
use osm_api::Reason;
use osm_api::digest::sha256_hex;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options, fixtures, machine_controller, provisioning};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::fleet::{Fleet, IN_WORKER, SERVICES, in_worker, pool, release, user_cluster_with};
use crate::world::{World, machine_deployment, parse, profile};

/// A credential, under a name by which a failure can tell it without repeating it.
struct Canary {
    name: String,
    /// Each with the name of the form.
    forms: Vec<(&'static str, String)>,
}

impl Canary {
    fn new(name: &str, value: &str) -> Self {
        let bytes = value.as_bytes();
        let digest = sha256_hex(bytes);
        let raw_digest = osm_api::digest::sha256(bytes);
        let json = serde_json::to_string(value).unwrap_or_default();
        let mut forms = vec![
            ("plain", value.to_owned()),
            ("JSON", json.trim_matches('"').to_owned()),
            (
                "JSON in JSON",
                serde_json::to_string(&json)
                    .unwrap_or_default()
                    .trim_matches(['"', '\\'])
                    .to_owned(),
            ),
            ("URL", utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()),
            // Names hold twenty characters; fewer than these nobody would call a hash.
            ("SHA-256", digest.chars().take(12).collect()),
            (
                "SHA-256 in base64",
                STANDARD_NO_PAD.encode(raw_digest).chars().take(12).collect(),
            ),
            (
                "SHA-256 in URL-safe base64",
                URL_SAFE_NO_PAD.encode(raw_digest).chars().take(12).collect(),
            ),
            ("hexadecimal", osm_api::digest::hex(bytes)),
        ];
        // The part of a password that no language escapes, so that no escape is forgotten.
        let core = value
            .split(|c: char| !c.is_ascii_alphanumeric())
            .max_by_key(|part| part.len());
        let core = core.filter(|core| core.len() >= 16);
        forms.extend(core.map(|core| ("a part", core.to_owned())));
        for bytes in [Some(value), core].into_iter().flatten().map(str::as_bytes) {
            for (form, engine) in [("base64", STANDARD_NO_PAD), ("URL-safe base64", URL_SAFE_NO_PAD)] {
                for before in 0..3usize {
                    let encoded = engine.encode([&vec![b'x'; before][..], bytes].concat());
                    // What depends on its neighbours is left out.
                    let from = (before * 8).div_ceil(6);
                    let to = (before + bytes.len()) * 8 / 6;
                    forms.push((form, encoded.chars().skip(from).take(to - from).collect()));
                }
            }
        }
        forms.retain(|(_, form)| form.len() >= 10);
        Self {
            name: name.to_owned(),
            forms,
        }
    }

    fn found_in(&self, text: &str) -> Option<&'static str> {
        self.forms
            .iter()
            .find(|(_, form)| text.contains(form))
            .map(|(name, _)| *name)
    }
}

/// A token, and what nobody can guess of it.
fn of_token(token: &str) -> [Canary; 2] {
    let signature = token.rsplit('.').next().unwrap_or_default();
    [
        Canary::new("a token", token),
        Canary::new("a token's signature", signature),
    ]
}

/// The token of a kubeconfig that a test has made.
fn token_in(kubeconfig: &str) -> Result<&str> {
    let mut lines = kubeconfig.lines();
    let token = lines.find_map(|line| line.trim().strip_prefix("token: "));
    token.context("a token")
}

/// A password that every language has to escape, and that nobody else has.
fn password(name: &str) -> String {
    let unique: String = sha256_hex(format!("{name} {}", std::process::id()).as_bytes())
        .chars()
        .take(24)
        .collect();
    format!("{name}\"q'\\ </&+%>?~{unique}")
}

/// Where something is written, and what.
type Written = (String, String);

/// Every object of the server, as it stands there, but for what is meant to carry credentials: the data of
/// Secrets, and what people wrote into MachineDeployments, WorkerClusters, settings and the ConfigMap of the
/// subscription.
async fn objects(client: &Client, installation: &Installation) -> Result<Vec<Written>> {
    let mut all = Vec::new();
    for group in Discovery::new(client.clone()).run().await?.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let list = Api::<DynamicObject>::all_with(client.clone(), &resource);
            for object in list
                .list(&ListParams::default())
                .await
                .with_context(|| resource.plural.clone())?
            {
                let mut value = serde_json::to_value(&object)?;
                let place = format!("{}/{}", resource.plural, object.name_any());
                match resource.kind.as_str() {
                    "Secret" => _ = value.as_object_mut().and_then(|secret| secret.remove("data")),
                    "MachineDeployment" => {
                        let of = |value: &mut Value, path: &str| value.pointer_mut(path).map(Value::take);
                        of(&mut value, "/spec/template/spec/providerSpec");
                        of(
                            &mut value,
                            &format!("/metadata/annotations/{}", names::SETTINGS.replace('/', "~1")),
                        );
                    }
                    "WorkerCluster" => _ = value.as_object_mut().and_then(|cluster| cluster.remove("spec")),
                    "ConfigMap" if ["red-hat", &installation.settings].contains(&&*object.name_any()) => {
                        value.as_object_mut().and_then(|map| map.remove("data"));
                    }
                    _ => {}
                }
                let mut text = value.to_string();
                if resource.kind == "OperatingSystemConfig" {
                    text = fixtures::with_documents(&serde_json::from_value(value)?)?;
                }
                all.push((place, text));
            }
        }
    }
    Ok(all)
}

/// Logs, metrics, what `/readyz` says, command lines and environments.
async fn processes(installed: &Installed) -> Result<Vec<Written>> {
    let mut all = Vec::new();
    for service in Service::ALL {
        let name = service.name();
        all.push((
            format!("log of {name}"),
            std::fs::read_to_string(installed.log_file(service))?,
        ));
        for path in ["/metrics", "/readyz", "/livez"] {
            all.push((format!("{path} of {name}"), installed.get(service, path).await?.1));
        }
        let pid = installed.process(service)?.pid();
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(format!("/proc/{pid}/{file}"))?;
            anyhow::ensure!(!text.is_empty(), "{file} of {name} is empty");
            all.push((
                format!("{file} of {name}"),
                String::from_utf8_lossy(&text).into_owned(),
            ));
        }
    }
    Ok(all)
}

/// `canary (form) in place`, for each that is somewhere.
fn search(canaries: &[Canary], written: &[Written]) -> Vec<String> {
    let in_place = |canary: &Canary, (place, text): &Written| {
        // The place is a name, in which nothing may stand either.
        let form = canary.found_in(text).or_else(|| canary.found_in(place))?;
        Some(format!("{} ({form}) in {place}", canary.name))
    };
    canaries
        .iter()
        .flat_map(|canary| written.iter().filter_map(move |each| in_place(canary, each)))
        .collect()
}

#[test]
fn every_form_is_found_wherever_it_begins() {
    let value = password("sample");
    let canary = Canary::new("sample", &value);
    let digest = osm_api::digest::sha256(value.as_bytes());
    for text in [
        format!("level=info {value}."),
        json!({"nested": json!({"password": value}).to_string()}).to_string(),
        format!(
            "http://user:{}@proxy",
            utf8_percent_encode(&value, NON_ALPHANUMERIC)
        ),
        format!(
            "osm-provisioning-{}",
            sha256_hex(value.as_bytes()).chars().take(20).collect::<String>()
        ),
        STANDARD.encode(digest),
        STANDARD.encode(format!("#cloud-config\npassword: {value}\n")),
        STANDARD.encode(format!("#cloud-config\npassword:  {value} more\n")),
        STANDARD.encode(format!("#cloud-config\npassword:   {value}")),
        URL_SAFE_NO_PAD.encode(format!("x{value}")),
        format!("{:x?}", value.as_bytes()).replace([',', ' '], ""),
    ] {
        assert!(canary.found_in(&text).is_some(), "{text}");
    }
    assert!(canary.found_in(&password("another")).is_none());
}

/// What is planted: in registries of both formats, a proxy, a Secret of a profile, and a subscription by
/// reference and as a text.
const PLANTED: [&str; 7] = [
    "docker",
    "plain",
    "proxy",
    "profile",
    "referenced",
    "configmap",
    "written",
];

fn settings() -> Value {
    let registry = |host: &str, secret: &str| json!({"host": host, "credentials": {"name": secret}});
    let allowed =
        json!({"namespace": CLOUD_INIT_SETTINGS, "secrets": ["red-hat"], "configMaps": ["red-hat"]});
    json!({
        "containerd": {"registries": [registry("docker.example", "docker"), registry("plain.example", "plain")]},
        "proxy": {"http": "http://proxy.example:3128", "credentials": {"name": "proxy"}},
        "credentials": {"allowedSources": [allowed],
            "profileSecrets": [{"namespace": CLOUD_INIT_SETTINGS, "name": "vpn", "key": "password"}]},
    })
}

fn auth_of_docker() -> String {
    STANDARD.encode(format!("user:{}", password("docker")))
}

async fn plant_sources(world: &World) -> Result<()> {
    let secret = |name: &str, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS},
            "stringData": data})
    };
    let docker = json!({"auths": {"docker.example": {"auth": auth_of_docker()}}}).to_string();
    for object in [
        secret("docker", json!({".dockerconfigjson": docker})),
        secret(
            "plain",
            json!({"username": "user", "password": password("plain")}),
        ),
        secret(
            "proxy",
            json!({"username": "user", "password": password("proxy")}),
        ),
        secret("red-hat", json!({"key": password("referenced")})),
        secret("vpn", json!({"password": password("profile")})),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "red-hat", "namespace": CLOUD_INIT_SETTINGS},
            "data": {"organization": password("configmap")}}),
    ] {
        world.apply(&object).await?;
    }
    Ok(())
}

/// What docs/settings.md says has to be granted for a ConfigMap, though it is in the namespace of our own
/// Secrets.
async fn grant_config_map(world: &World, name: &str) -> Result<()> {
    let (rbac, metadata) = (
        "rbac.authorization.k8s.io",
        json!({"name": "sources", "namespace": CLOUD_INIT_SETTINGS}),
    );
    let verbs = ["get", "list", "watch"];
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": verbs}]}))
        .await?;
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "sources"},
            "subjects": [{"kind": "ServiceAccount", "name": Service::SecretSyncer.name(), "namespace": installation::IDENTITIES}]}))
        .await
}

fn subscribed(name: &str, of: Value) -> Value {
    let mut pool = machine_deployment(name, "osp-red");
    let provider = &mut pool["spec"]["template"]["spec"]["providerSpec"]["value"];
    provider["operatingSystem"] = json!("rhel");
    provider["operatingSystemSpec"] = of;
    pool
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_only_where_they_are_meant_to_be() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    // Whatever a person who looks for a mistake may switch on; what is logged at debug is among it.
    world.installed.log_filter = "trace".to_owned();
    world.installed.start_all().await?;
    let mut canaries: Vec<Canary> = PLANTED
        .iter()
        .map(|name| Canary::new(name, &password(name)))
        .collect();
    canaries.push(Canary::new("docker's auth", &auth_of_docker()));
    plant_sources(&world).await?;
    grant_config_map(&world, "red-hat").await?;
    world.set_settings(&settings().to_string()).await?;

    let mut red = profile("osp-red", "v1.0.0", "one\n");
    red["spec"]["osName"] = json!("rhel");
    world.apply(&red).await?;
    let mut tiny = profile("osp-tiny", "v1.0.0", "one\n");
    let secret = "{{late \"secret/cloud-init-settings/vpn/password\" as=\"json\"}}";
    tiny.pointer_mut("/spec/provisioningConfig/files")
        .and_then(Value::as_array_mut)
        .context("the files")?
        .push(json!({"path": "/etc/vpn", "permissions": 600, "content": {"inline": {"data": secret}}}));
    world.apply(&tiny).await?;
    // Fails on the value, and nowhere before: a password is not letters and digits only.
    let raw = "{{#each containerd.registries}}{{#if credentials}}{{late (concat \"registry/\" host \"/password\") as=\"raw\"}}{{/if}}{{/each}}\n";
    world.accepted_profile("osp-raw", "v1.0.0", raw).await?;
    let reference = |key: &str| json!({"namespace": CLOUD_INIT_SETTINGS, "name": "red-hat", "key": key});
    world
        .apply(&subscribed(
            "by-reference",
            json!({"rhelOrganizationName": {"configMapKeyRef": reference("organization")},
                "rhelActivationKey": {"secretKeyRef": reference("key")}}),
        ))
        .await?;
    let written = json!({"rhelSubscriptionManagerUser": "user", "rhelSubscriptionManagerPassword": password("written")});
    world.apply(&subscribed("written", written)).await?;
    world.pool("tiny", "osp-tiny").await?;
    world.pool("raw", "osp-raw").await?;
    let mut machines = Vec::new();
    for pool in ["by-reference", "written", "tiny", "raw"] {
        world.stamp(pool, 1).await?;
    }
    for pool in ["by-reference", "written", "tiny"] {
        machines.push(world.machine(pool, 1).await?);
    }
    // They have arrived where they belong, else nothing of this would show anything.
    let arrived: [&[&str]; 3] = [
        &["referenced", "configmap"],
        &["written"],
        &["docker", "plain", "proxy", "profile"],
    ];
    for (machine, names) in machines.iter().zip(arrived) {
        let document = world.fetch(machine).await?;
        for name in names {
            assert!(
                Canary::new(name, &password(name)).found_in(&document).is_some(),
                "{name}"
            );
        }
    }

    // Every mistake that touches a value.
    world
        .says("raw", "Published", false, "LateBoundValueInvalid")
        .await?;
    let url = json!({"http": format!("http://user:{}@proxy.example:3128", password("proxy"))});
    let mut wrong = settings();
    wrong["proxy"] = url.clone();
    world.set_settings(&wrong.to_string()).await?;
    osm_testkit::wait_for("the proxy to be refused", crate::world::DEADLINE, async || {
        let (_, waits) = world.installed.get(Service::OscController, "/readyz").await?;
        osm_testkit::check(waits.contains("proxy.http"))
    })
    .await?;
    world.set_settings(&settings().to_string()).await?;
    let own = json!({"metadata": {"annotations": {names::SETTINGS: json!({"proxy": url}).to_string()}}});
    world.patch_pool("tiny", own).await?;
    world
        .says("tiny", "Rendered", false, "PoolSettingsInvalid")
        .await?;
    world.event("kube-system", "tiny", "PoolSettingsInvalid").await?;
    world
        .patch_pool(
            "tiny",
            json!({"metadata": {"annotations": {names::SETTINGS: null}}}),
        )
        .await?;
    world.says("tiny", "Rendered", true, "Rendered").await?;
    let broken = json!({"auths": {"docker.example": {"auth": password("docker")}}}).to_string();
    let data = json!({"stringData": {".dockerconfigjson": broken}});
    world
        .secrets()
        .patch("docker", &PatchParams::default(), &Patch::Merge(&data))
        .await?;
    let message = world.says("tiny", "Published", false, "SourceIncomplete").await?;
    assert!(message.contains("docker.example"), "{message}");
    plant_sources(&world).await?;
    world.says("tiny", "Published", true, "Published").await?;
    for spec in [
        json!({"rhelSubscriptionManagerPassword": [password("written")]}),
        json!({"nonsense": password("written")}),
    ] {
        let value = json!({"operatingSystemSpec": spec});
        let template = json!({"spec": {"providerSpec": {"value": value}}});
        world
            .patch_pool("written", json!({"spec": {"template": template}}))
            .await?;
        world.stamp("written", 2).await?;
    }
    world
        .says("written", "Rendered", false, "OperatingSystemSpecInvalid")
        .await?;
    world
        .event("kube-system", "written", "OperatingSystemSpecInvalid")
        .await?;

    // What we made ourselves: tokens, the key, and what the services log in with.
    for machine in &machines {
        for token in [&machine.api_token, &machine.kubelet_token] {
            canaries.extend(of_token(token));
        }
        canaries.push(Canary::new("the bootstrap document", &machine.text));
        canaries.push(Canary {
            name: "the provisioning document's hash".to_owned(),
            forms: vec![(
                "hexadecimal",
                machine.provisioning_digest.chars().take(12).collect(),
            )],
        });
    }
    for service in Service::ALL {
        let kubeconfig = world.installed.kubeconfig(service)?;
        let text = std::fs::read_to_string(kubeconfig)?;
        canaries.push(Canary::new("a service's own token", token_in(&text)?));
    }

    let mut written = objects(&world.client, world.installed.installation()).await?;
    written.extend(processes(&world.installed).await?);
    let kinds: BTreeSet<&str> = written
        .iter()
        .filter_map(|(place, _)| place.split('/').next())
        .collect();
    for kind in [
        "operatingsystemconfigs",
        "operatingsystemprofiles",
        "secrets",
        "events",
        "roles",
        "serviceaccounts",
    ] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    let of = |start: &str| {
        written
            .iter()
            .find(|(place, _)| place == start)
            .map(|(_, text)| text.len())
            .unwrap_or(0)
    };
    assert!(of("log of secret-syncer") > 100_000, "trace tells a lot");
    assert_eq!(search(&canaries, &written), Vec::<String>::new());
    Ok(())
}

/// Namespaces of two clusters of a fleet. What belongs to a cluster has its name.
const CLUSTERS: [&str; 2] = ["amsterdam", "barcelona"];

/// Every request that the API server has had, with its answer.
fn requests(plane: &ControlPlane, cluster: &str) -> Result<Vec<Written>> {
    let mut events = plane.audit_log()?.read()?;
    // Those of the test.
    events.retain(|event| {
        SERVICES
            .iter()
            .any(|service| event.user_agent.starts_with(service.name()))
    });
    ensure!(events.len() > 50, "{} requests", events.len());
    let request = |event: AuditEvent| {
        let text = format!("{} {} {}", event.uri, event.request, event.response);
        (format!("a request to {cluster}"), text)
    };
    Ok(events.into_iter().map(request).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_belongs_to_a_cluster_of_a_fleet_is_nowhere_in_another() -> Result<()> {
    let audited = || Options {
        audit_bodies: true,
        ..Options::default()
    };
    let installation = in_worker();
    let (mut fleet, first, second) = tokio::try_join!(
        Fleet::without_services(Options::default(), release()),
        user_cluster_with(audited(), &installation),
        user_cluster_with(audited(), &installation)
    )?;
    fleet.installed.log_filter = "trace".to_owned();
    let fleet = fleet.with_services().await?;
    let planes = [&first, &second];
    let (mut canaries, mut written) = (Vec::new(), Vec::new());
    for (name, plane) in CLUSTERS.into_iter().zip(planes) {
        let [login, proxy] = ["login", "proxy"].map(|what| format!("{what}-{name}"));
        for secret in [&login, &proxy] {
            let data = json!({"username": "user", "password": password(secret)});
            let metadata = json!({"name": secret, "namespace": CLOUD_INIT_SETTINGS});
            let object =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
            installation::apply(plane, &[object]).await?;
            canaries.push((name, Canary::new(secret, &password(secret))));
        }
        let settings = json!({
            "containerd": {"registries": [{"host": format!("{name}.example"), "credentials": {"name": login}}]},
            "proxy": {"http": format!("http://proxy.{name}.example:3128"), "credentials": {"name": proxy}},
        });
        let spec = json!({"workerNamespace": IN_WORKER, "settings": settings});
        fleet.register(name, plane, spec).await?;
        let machines = format!("pool-{name}");
        pool(plane, &machines).await?;
        let secret = fleet.boots(name, plane, &machines).await?;
        let data = parse(machine_controller::user_data(&secret, "1", "machine")?)?;
        let document = provisioning::fetch(plane, &data).await?;
        for secret in [&login, &proxy] {
            ensure!(
                Canary::new(secret, &password(secret))
                    .found_in(&document)
                    .is_some(),
                "{secret}"
            );
        }
        let tokens = [data.api_token, data.kubelet_token];
        canaries.extend(
            tokens
                .iter()
                .flat_map(|token| of_token(token))
                .map(|canary| (name, canary)),
        );
        written.push((name, (format!("documents of {name}"), data.text + &document)));
        for service in SERVICES {
            let text = fleet.kubeconfig(name, service).await?;
            canaries.extend(of_token(token_in(&text)?).map(|canary| (name, canary)));
        }
        // Names are no secret of the seed.
        let forms = vec![("plain", name.to_owned())];
        canaries.push((
            name,
            Canary {
                name: name.to_owned(),
                forms,
            },
        ));
    }
    for (name, plane) in CLUSTERS.into_iter().zip(planes) {
        fleet.is_served(name).await?;
        // A token of another cluster would be refused.
        let events = plane.audit_log()?.read()?;
        ensure!(
            events.iter().all(|event| event.code != 401),
            "{name}: a token is refused"
        );
    }

    // Mistakes that touch a value.
    let [name, _] = CLUSTERS;
    let service = Service::SecretSyncer;
    let kubeconfig = fleet.kubeconfig(name, service).await?;
    let wrong = kubeconfig.replace(
        token_in(&kubeconfig)?,
        &password("wrong token").replace(['"', '\\'], ""),
    );
    canaries.extend(of_token(token_in(&wrong)?).map(|canary| (name, canary)));
    fleet.write_kubeconfig(name, service, &wrong).await?;
    fleet.says(name, service, Reason::Unauthorized).await?;
    let url = format!("http://user:{}@proxy.example:3128", password("url"));
    canaries.push((name, Canary::new("a password in a URL", &password("url"))));
    let spec = json!({"workerNamespace": IN_WORKER, "settings": {"proxy": {"http": url}}});
    fleet.write_registration(name, spec).await?;
    fleet
        .says(name, Service::OscController, Reason::SettingsInvalid)
        .await?;

    for (name, plane) in CLUSTERS.into_iter().zip(planes) {
        let mut all = objects(&plane.admin()?, &release()).await?;
        all.extend(requests(plane, name)?);
        written.extend(all.into_iter().map(|one| (name, one)));
    }
    for (of, canary) in &canaries {
        let others = written.iter().filter(|(place, _)| place != of);
        let others: Vec<Written> = others.map(|(_, one)| one.clone()).collect();
        assert_eq!(
            search(std::slice::from_ref(canary), &others),
            Vec::<String>::new(),
            "of {of}"
        );
    }
    canaries.retain(|(_, canary)| !CLUSTERS.contains(&canary.name.as_str()));
    let canaries: Vec<Canary> = canaries.into_iter().map(|(_, canary)| canary).collect();
    let mut of_seed = objects(&fleet.seed.admin()?, &release()).await?;
    of_seed.extend(processes(&fleet.installed).await?);
    assert_eq!(search(&canaries, &of_seed), Vec::<String>::new());
    Ok(())
}
