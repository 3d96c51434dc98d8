//! Pools whose provisioning document has the pool's token, and with it fetches the kubelet's bootstrap kubeconfig.
//!
//! The tests write the content of the OperatingSystemConfig themselves, as osc-controller would: it is stopped.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use osm_api::config::{LateBound, LateBoundKind, OperatingSystemConfigSpec};
use osm_api::content::Unpacked;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::profile::File;
use osm_api::rbac::{Installation, Service};
use osm_api::{Joining, content};
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::fixtures;
use osm_testkit::{Options, check, wait_for};
use secret_syncer::model::hmac_key::{DATA_KEY, HmacKey};
use secret_syncer::model::pairs::Pairs;
use secret_syncer::model::seal::seal;
use secret_syncer::model::view::SecretView;
use serde_json::{Value, json};

use crate::joining::{CONTROLLERS, join, rights};
use crate::world::{self, DEADLINE, NAMESPACE, UserData, World};

/// What a machine of such a pool has.
#[derive(Clone)]
struct Machine {
    user_data: UserData,
    /// From its provisioning document.
    token: String,
    /// The same; in the last content of one test, the kubelet's token instead.
    kubeconfig_secret: String,
}

/// A world with such a pool of this name.
async fn start(options: Options, pool: &str) -> Result<(World, Machine)> {
    let mut world = World::start(options).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool(pool, "osp-tiny").await?;
    world.stamp(pool, 1).await?;
    world.machine(pool, 1).await?;
    world.installed.kill9(Service::OscController)?;
    need_tokens_later(&world, pool, "one").await?;
    let machine = machine(&world, pool, |_| true).await?;
    Ok((world, machine))
}

/// Renders content whose provisioning stage has the API token and fetches the kubeconfig, and confirms it.
async fn need_tokens_later(world: &World, pool: &str, text: &str) -> Result<()> {
    let config = world.config(pool).await?;
    let mut content = content::into_content(config)?;
    content.late_bound.push(LateBound {
        id: "kubelet/kubeconfig-secret-name".into(),
        kind: LateBoundKind::KubeconfigSecretName,
        source: None,
    });
    content.late_bound.dedup();
    content.kubelet_kubeconfig = Some(kubeconfig(world)?);
    let join = "%%osm-late{api/token,raw}%% %%osm-late{kubelet/kubeconfig-secret-name,raw}%%";
    render(world, pool, content, join, text).await
}

/// Renders content whose provisioning stage has this join file and text besides.
async fn render(
    world: &World,
    pool: &str,
    mut content: OperatingSystemConfigSpec,
    join: &str,
    text: &str,
) -> Result<()> {
    let file = |path: &str, data: &str| {
        let file = json!({"path": path, "permissions": 600, "content": {"inline": {"data": data}}});
        serde_json::from_value::<File>(file)
    };
    let files = &mut content.provisioning_config.files;
    files.retain(|file| file.path != "/etc/join" && file.path != "/etc/later");
    files.extend([file("/etc/join", join)?, file("/etc/later", text)?]);
    let config = world.config(pool).await?;
    let described = config
        .status
        .clone()
        .unwrap_or_default()
        .rendered
        .context("rendered")?;
    let mut rendered = serde_json::to_value(Unpacked::new(&content, true, described).pack())?;
    if content.kubelet_kubeconfig.is_none() {
        // A merge patch removes what is null.
        rendered["kubeletKubeconfig"] = Value::Null;
    }
    let patch = Patch::Merge(json!({"status": {"rendered": rendered}}));
    world
        .configs()
        .patch_status(&config.name_any(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// A kubeconfig of the cluster with a marker for the kubelet's token.
fn kubeconfig(world: &World) -> Result<String> {
    let admin = Kubeconfig::read_from(world.plane.admin_kubeconfig_path())?;
    let cluster = admin.clusters.first().and_then(|cluster| cluster.cluster.clone());
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster.context("a cluster")?}],
        "users": [{"name": "c", "user": {"token": "%%osm-late{kubelet/token,raw}%%"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    })
    .to_string())
}

/// Waits until a machine could boot that finds everything it needs.
async fn machine(world: &World, pool: &str, good: impl Fn(&Machine) -> bool) -> Result<Machine> {
    let what = format!("a machine of {pool}");
    let found = wait_for(&what, DEADLINE, async || {
        let user_data = world.machine(pool, 1).await?;
        let machine = boot(world, user_data).await?;
        fetch_kubeconfig(world, &machine).await?;
        Ok(good(&machine).then_some(machine))
    });
    found.await.map_err(|error| error.context(world.installed.logs()))
}

/// Fetches the provisioning document.
async fn boot(world: &World, user_data: UserData) -> Result<Machine> {
    let document = world.fetch(&user_data).await?;
    let files = osm_judges::user_data_files(&document).map_err(|verdict| anyhow::anyhow!("{verdict}"))?;
    let join = files.iter().find(|file| file.path == "/etc/join");
    let (token, name) = join
        .and_then(|file| file.content.split_once(' '))
        .context("token and name")?;
    Ok(Machine {
        token: token.to_owned(),
        kubeconfig_secret: name.to_owned(),
        user_data,
    })
}

/// As the setup script of such a profile does; gives the token in the kubeconfig, which the API server accepts as a kubelet's.
async fn fetch_kubeconfig(world: &World, machine: &Machine) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(world.plane.client(&machine.token)?, CLOUD_INIT_SETTINGS);
    let secret = secrets.get(&machine.kubeconfig_secret).await?;
    let data = secret.data.unwrap_or_default();
    let text = String::from_utf8(data.get("kubeconfig").context("no kubeconfig")?.0.clone())?;
    let config = Kubeconfig::from_yaml(&text)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let reviews = Api::<SelfSubjectReview>::all(Client::try_from(config)?);
    let who = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let name = who.status.and_then(|status| status.user_info?.username);
    ensure!(
        name.as_deref() == Some("system:serviceaccount:cloud-init-settings:osm-node-bootstrap"),
        "{name:?}"
    );
    let text: Value = serde_json::from_str(&text)?;
    let token = text.pointer("/users/0/user/token").and_then(Value::as_str);
    Ok(token.context("a token")?.to_owned())
}

/// Names of the Secrets that a token may get, as the API server says.
async fn readable(world: &World, token: &str) -> Result<BTreeSet<String>> {
    let all = rights(world.plane.client(token)?, CLOUD_INIT_SETTINGS).await?;
    let names = all.iter().filter_map(|right| right.strip_prefix("get /secrets "));
    Ok(names.map(str::to_owned).collect())
}

/// Everything that was made for pools, with uid and resourceVersion.
async fn state(world: &World) -> Result<Vec<String>> {
    let labelled = ListParams::default().labels(names::POOL);
    let secrets = world.secrets().list(&labelled).await?.items;
    let roles = world
        .api::<Role>(CLOUD_INIT_SETTINGS)
        .list(&labelled)
        .await?
        .items;
    let meta = secrets.iter().map(|secret| &secret.metadata);
    let meta = meta.chain(roles.iter().map(|role| &role.metadata));
    Ok(meta
        .map(|meta| format!("{:?} {:?} {:?}", meta.name, meta.uid, meta.resource_version))
        .collect())
}

async fn documents(world: &World) -> Result<BTreeSet<String>> {
    let labelled = ListParams::default().labels(&format!("{}=provisioning", names::ROLE));
    let found = world.secrets().list(&labelled).await?;
    Ok(found.items.iter().map(ResourceExt::name_any).collect())
}

fn is_forbidden<T>(outcome: Result<T, kube::Error>) -> bool {
    matches!(outcome, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_in_the_document_opens_the_kubeconfig_and_the_documents_and_nothing_else() -> Result<()> {
    let options = Options {
        audit: true,
        controllers: CONTROLLERS.to_vec(),
        ..Options::default()
    };
    let (mut world, p) = start(options, "p").await?;
    let plain = documents(&world).await?;
    let own = BTreeSet::from([p.kubeconfig_secret.clone()]);
    assert_eq!(readable(&world, &p.token).await?, &own | &plain);
    assert_eq!(plain.len(), 2, "that of the first content is kept");
    assert_eq!(p.token, p.user_data.api_token);
    assert_eq!(
        p.kubeconfig_secret,
        names::kubeconfig_secret_name(&pool_id(&world).await?)
    );
    let secret = world.secrets().get(&p.kubeconfig_secret).await?;
    assert_eq!(secret.labels()[names::ROLE], "kubeconfig");
    assert_eq!(secret.data.unwrap_or_default().len(), 1);

    // The kubelet's token makes a node, and opens none of the Secrets.
    let kubelet = fetch_kubeconfig(&world, &p).await?;
    assert_eq!(
        join(&world, &kubelet, "one").await?,
        "system:node:one of system:nodes"
    );
    let secrets: Api<Secret> = Api::namespaced(world.plane.client(&kubelet)?, CLOUD_INIT_SETTINGS);
    for name in [&p.kubeconfig_secret, &p.user_data.provisioning_secret] {
        assert!(is_forbidden(secrets.get(name).await), "{name}");
    }
    let (config, logs) = (
        fixtures::with_documents(&world.config("p").await?)?,
        world.installed.logs(),
    );
    for token in [&p.token, &kubelet] {
        assert!(!config.contains(token.as_str()) && !logs.contains(token.as_str()));
    }

    // A process that starts compares the documents of another program, and writes nothing.
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), CLOUD_INIT_SETTINGS);
    let another = json!({"metadata": {"annotations": {names::PROGRAM: "another"}}});
    let bootstrap = names::bootstrap_secret_name("p", "kube-system");
    secrets
        .patch(&bootstrap, &PatchParams::default(), &Patch::Merge(&another))
        .await?;
    let before = state(&world).await?;
    world.installed.kill9(Service::SecretSyncer)?;
    let events = world.plane.audit_events()?.len();
    world.installed.start(Service::SecretSyncer).await?;
    let is_compared = |event: &AuditEvent| {
        event.verb == "get"
            && event.resource == "operatingsystemconfigs"
            && event.user.ends_with("secret-syncer")
    };
    wait_for("the documents to be compared", DEADLINE, async || {
        check(world.plane.audit_events()?.iter().skip(events).any(is_compared))
    })
    .await?;
    world.says("p", "Published", true, "Published").await?;

    let issued = world.plane.audit_events()?.into_iter().skip(events);
    let issued = issued.filter(|event| event.resource == "serviceaccounts/token");
    assert_eq!(
        issued.map(|event| event.user).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    assert_eq!(state(&world).await?, before);

    // New content is one document more.
    need_tokens_later(&world, "p", "two").await?;
    let first = p.user_data.provisioning_secret.clone();
    machine(&world, "p", |p| p.user_data.provisioning_secret != first).await?;
    assert_eq!(documents(&world).await?.len(), 3);
    // A machine that booted with the first document finds all of it.
    world.fetch(&p.user_data).await?;
    fetch_kubeconfig(&world, &p).await?;

    // A document that has both tokens in it and fetches nothing: they are bound to a Secret without content.
    let mut content = content::into_content(world.config("p").await?)?;
    content.kubelet_kubeconfig = None;
    let kind = LateBoundKind::KubeconfigSecretName;
    content.late_bound.retain(|late| late.kind != kind);
    let join = "%%osm-late{api/token,raw}%% %%osm-late{kubelet/token,raw}%%";
    render(&world, "p", content, join, "three").await?;
    let third = wait_for("both tokens", DEADLINE, async || {
        let third = boot(&world, world.machine("p", 1).await?).await?;
        Ok(third.kubeconfig_secret.contains("ey").then_some(third))
    })
    .await?;
    world.says("p", "Published", true, "Published").await?;
    let secret = world.secrets().get(&p.kubeconfig_secret).await?;
    assert_eq!(secret.data, None);
    assert_eq!(third.kubeconfig_secret, third.user_data.kubelet_token);
    assert_eq!(third.token, third.user_data.api_token);
    assert!(world.is_alive(&third.kubeconfig_secret).await?);
    Ok(())
}

async fn pool_id(world: &World) -> Result<String> {
    let labels = world.bootstrap("p").await?.metadata.labels;
    labels
        .and_then(|mut labels| labels.remove(names::POOL))
        .context("a pool")
}

/// Brings the renewal of all tokens near while nobody is there, sealed as if it had always been so.
async fn bring_renewal_near(world: &World, machine: &Machine) -> Result<()> {
    let key = world
        .secrets()
        .get(&names::digest_key_secret_name(NAMESPACE))
        .await?;
    let key = HmacKey::of(&key.data.unwrap()[DATA_KEY].0).unwrap();
    let bootstrap = names::bootstrap_secret_name("p", "kube-system");
    let past = jiff::Timestamp::now().to_string();
    for name in [&bootstrap, &machine.kubeconfig_secret] {
        let mut secret = world.secrets().get(name).await?;
        secret
            .annotations_mut()
            .insert(names::RENEW_AT.to_owned(), past.clone());
        let content = SecretView::of(&secret).content.unwrap();
        let seal = seal(&key, &content, &Pairs::from(secret.annotations()));
        secret
            .annotations_mut()
            .insert(names::CONTENT_MAC.to_owned(), seal);
        world
            .secrets()
            .replace(name, &PostParams::default(), &secret)
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn renewal_replaces_all_and_breaks_nothing_whenever_it_is_killed() -> Result<()> {
    let (mut world, first) = start(Options::default(), "p").await?;
    let observer = world.observe().await?;
    world.installed.kill9(Service::SecretSyncer)?;
    bring_renewal_near(&world, &first).await?;
    world.installed.start(Service::SecretSyncer).await?;
    let second = machine(&world, "p", |machine| machine.token != first.token).await?;
    assert_ne!(
        first.user_data.provisioning_secret,
        second.user_data.provisioning_secret
    );
    // A machine on its way finds the document that it was told of, and the kubeconfig, which has new tokens.
    world.fetch(&first.user_data).await?;
    let (of_first, of_second) = (
        fetch_kubeconfig(&world, &first).await?,
        fetch_kubeconfig(&world, &second).await?,
    );
    assert_eq!(of_first, of_second);
    assert_ne!(of_first, first.user_data.kubelet_token);

    // Killed once the kubeconfig Secret has new tokens, at the next document, and at any later moment.
    let mut last = second;
    for round in 0..6u32 {
        world.installed.kill9(Service::SecretSyncer)?;
        bring_renewal_near(&world, &last).await?;
        let secret = world.secrets().get(&last.kubeconfig_secret).await?;
        let before = documents(&world).await?;
        world.installed.start(Service::SecretSyncer).await?;
        wait_for("the renewal to begin", DEADLINE, async || {
            let now = world.secrets().get(&last.kubeconfig_secret).await?;
            let begun = now.resource_version() != secret.resource_version();
            check(begun && (round % 2 == 0 || documents(&world).await? != before))
        })
        .await?;
        world.installed.kill9(Service::SecretSyncer)?;
        // Whatever there is: the machine that boots now finds everything.
        let now = boot(&world, world.machine("p", 1).await?).await?;
        fetch_kubeconfig(&world, &now).await?;
        fetch_kubeconfig(&world, &first).await?;
        world.installed.start(Service::SecretSyncer).await?;
        last = machine(&world, "p", |machine| machine.token != last.token).await?;
        world.says("p", "Published", true, "Published").await?;
    }
    assert_eq!(observer.absences(), Vec::<String>::new());
    world.fetch(&first.user_data).await?;
    Ok(())
}

/// Refuses each change of the pool's bootstrap Secret, or no longer does.
async fn refuse_bootstrap(world: &World, refuse: bool) -> Result<()> {
    let admission = "admissionregistration.k8s.io/v1";
    let bootstrap = names::bootstrap_secret_name("p", "kube-system");
    let expression = format!("!{refuse} || object.metadata.name != '{bootstrap}'");
    let policy = json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "refuse"},
        "spec": {"failurePolicy": "Fail", "validations": [{"expression": expression}],
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
                "operations": ["CREATE", "UPDATE"]}]}}});
    let binding = json!({"apiVersion": admission, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "refuse"},
        "spec": {"policyName": "refuse", "validationActions": ["Deny"]}});
    world.apply(&policy).await?;
    world.apply(&binding).await?;
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = json!({"metadata": {"annotations": {"example.com/tried": "yes"}}});
    wait_for("the policy to be in force", DEADLINE, async || {
        let tried = world
            .secrets()
            .patch(&bootstrap, &dry, &Patch::Merge(&patch))
            .await;
        check(tried.is_err() == refuse)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_failure_leaves_one_document_however_often_it_is_retried() -> Result<()> {
    let (world, first) = start(
        Options {
            audit: true,
            ..Options::default()
        },
        "p",
    )
    .await?;
    refuse_bootstrap(&world, true).await?;
    let events = world.plane.audit_events()?.len();
    need_tokens_later(&world, "p", "two").await?;
    wait_for("several attempts", DEADLINE, async || {
        let attempts = world
            .plane
            .audit_events()?
            .into_iter()
            .skip(events)
            .filter(|event| {
                let bootstrap = event.name == names::bootstrap_secret_name("p", "kube-system");
                bootstrap && event.verb == "update" && event.code >= 400
            });
        check(attempts.count() >= 4)
    })
    .await?;
    assert_eq!(documents(&world).await?.len(), 3, "plain, one and two");
    // What was published serves on.
    world.fetch(&first.user_data).await?;
    fetch_kubeconfig(&world, &first).await?;
    refuse_bootstrap(&world, false).await?;
    let name = first.user_data.provisioning_secret.clone();
    machine(&world, "p", |machine| {
        machine.user_data.provisioning_secret != name
    })
    .await?;
    assert_eq!(documents(&world).await?.len(), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_done_to_the_kubeconfig_secret_is_put_right() -> Result<()> {
    let (world, first) = start(Options::default(), "p").await?;
    let name = first.kubeconfig_secret.clone();
    let shape = async || -> Result<Value> {
        let secret = world.secrets().get(&name).await?;
        let mut annotations = secret.annotations().clone();
        annotations.retain(|key, _| {
            let moments = [
                names::EXPIRES,
                names::RENEW_AT,
                names::CONTENT_MAC,
                names::BOUND_TO,
                names::KEEP_UNTIL,
                names::PROVISIONING_SECRET,
            ];
            !moments.contains(&key.as_str())
        });
        let keys: Vec<_> = secret.data.iter().flatten().map(|(key, _)| key.clone()).collect();
        Ok(
            json!({"labels": secret.labels(), "annotations": annotations, "immutable": secret.immutable, "keys": keys}),
        )
    };
    let before = shape().await?;
    let whole = async |what: &str| -> Result<Machine> {
        let found = wait_for(what, DEADLINE, async || {
            ensure!(shape().await? == before, "{}", shape().await?);
            machine(&world, "p", |_| true).await.map(Some)
        });
        found.await.map_err(|error| error.context(world.installed.logs()))
    };
    let label = |name: &str, value: Value| json!({"metadata": {"labels": {name: value}}});
    let annotation = |name: &str, value: Value| json!({"metadata": {"annotations": {name: value}}});
    // The same tokens are put back, so the document stays the same.
    for patch in [
        label(names::ROLE, json!("provisioning")),
        label(names::ROLE, json!(null)),
        label(names::POOL, json!("0123456789abcdef0123")),
        label(names::POOL, json!(null)),
        label(names::INSTALLATION, json!(null)),
        annotation(names::CONFIG, json!("no-such-config")),
        annotation(names::CONFIG, json!(null)),
        annotation(names::OWNER, json!("kube-system/other")),
        annotation(names::RENEW_AT, json!("2099-01-01T00:00:00Z")),
        annotation(names::ORPHANED_SINCE, json!("2020-01-01T00:00:00Z")),
        json!({"data": null}),
        json!({"stringData": {"kubeconfig": "another"}}),
        json!({"stringData": {"more": "than there should be"}}),
    ] {
        let secrets = world.secrets();
        secrets
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        let now = whole(&format!("{name} to be put right after {patch}")).await?;
        assert_eq!(
            now.user_data.provisioning_secret, first.user_data.provisioning_secret,
            "{patch}"
        );
    }

    // A document that is deleted comes back as it was.
    let secrets = world.secrets();
    world
        .delete(&secrets, &first.user_data.provisioning_secret)
        .await?;
    let now = whole("the document to come back").await?;
    assert_eq!(now.user_data.text, first.user_data.text);

    // With the Secret its tokens die, and every document with them is useless.
    let locked = json!({"immutable": true, "stringData": {"kubeconfig": "another"}});
    let mut last = first;
    for round in 0..3 {
        match round {
            0 => {
                let patch = Patch::Merge(&locked);
                drop(secrets.patch(&name, &PatchParams::default(), &patch).await?);
            }
            _ => drop(secrets.delete(&name, &DeleteParams::default()).await?),
        }
        let before = last.token.clone();
        wait_for("other tokens", DEADLINE, async || {
            let now = whole("the Secret to come back").await?;
            check(now.token != before)
        })
        .await?;
        wait_for("the tokens that were bound to it to die", DEADLINE, async || {
            check(!world.is_alive(&before).await?)
        })
        .await?;
        last = machine(&world, "p", |_| true).await?;
        wait_for("only what is of use to be left", DEADLINE, async || {
            let left = documents(&world).await?;
            check(left.len() == 2 && left.contains(&last.user_data.provisioning_secret))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_when_no_token_may_fetch_it_and_with_its_pool_at_once() -> Result<()> {
    let (mut world, late) = start(
        Options {
            audit: true,
            ..Options::default()
        },
        "p",
    )
    .await?;
    // osc-controller restores the content of a profile that needs no tokens later.
    world.installed.start(Service::OscController).await?;
    let name = late.user_data.provisioning_secret.clone();
    world
        .machine_with("p", 1, |machine| machine.provisioning_secret != name)
        .await?;
    world.says("p", "Published", true, "Published").await?;
    world.fetch(&late.user_data).await?;
    fetch_kubeconfig(&world, &late).await?;

    // A day later.
    let past = json!({"metadata": {"annotations": {names::KEEP_UNTIL: "2026-01-01T00:00:00Z"}}});
    for secret in [&late.kubeconfig_secret, &late.user_data.provisioning_secret] {
        let secrets = world.secrets();
        secrets
            .patch(secret, &PatchParams::default(), &Patch::Merge(&past))
            .await?;
    }
    wait_for("both to go", DEADLINE, async || {
        let left = world.secrets().get_opt(&late.kubeconfig_secret).await?;
        check(
            left.is_none()
                && !documents(&world)
                    .await?
                    .contains(&late.user_data.provisioning_secret),
        )
    })
    .await?;
    let machine_now = world.machine("p", 1).await?;
    wait_for("the Role to narrow", DEADLINE, async || {
        let readable = readable(&world, &machine_now.api_token).await?;
        check(!readable.contains(&late.kubeconfig_secret))
    })
    .await?;
    assert_eq!(world.made().await?.len(), 5, "{:?}", world.made().await?);

    // Needed once more, and then the pool goes.
    world.installed.kill9(Service::OscController)?;
    need_tokens_later(&world, "p", "again").await?;
    let last = machine(&world, "p", |_| true).await?;
    let kubelet = fetch_kubeconfig(&world, &last).await?;
    let events = world.plane.audit_events()?.len();
    world.delete(&world.pools(), "p").await?;
    world.installed.start(Service::OscController).await?;
    wait_for("everything to be undone", DEADLINE, async || {
        let configs = world.configs().list(&ListParams::default()).await?;
        check(world.made().await?.is_empty() && configs.items.is_empty())
    })
    .await?;
    let deleted: Vec<String> = world
        .plane
        .audit_events()?
        .into_iter()
        .skip(events)
        .filter(|event| event.verb == "delete" && event.user.ends_with("secret-syncer") && event.code < 300)
        .map(|event| format!("{}/{}", event.resource, event.name))
        .collect();
    assert!(
        deleted[0].starts_with("serviceaccounts/")
            && deleted[1] == format!("secrets/{}", last.kubeconfig_secret),
        "{deleted:?}"
    );
    wait_for("the tokens to die", DEADLINE, async || {
        check(!world.is_alive(&last.token).await? && !world.is_alive(&kubelet).await?)
    })
    .await
}

/// As profiles of the Go implementation print them.
#[tokio::test(flavor = "multi_thread")]
async fn a_go_template_prints_both_tokens_in_the_provisioning_document() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let printed = go_template(&world).await?;
    assert!(printed.kubelet_token != printed.token);
    Ok(())
}

/// The kubeconfig then has the pool's own token, with which a machine joins through csr-approver, and only as a Machine of this pool.
#[tokio::test(flavor = "multi_thread")]
async fn in_mode_approved_a_go_template_prints_the_one_token_twice_and_a_machine_joins_with_it() -> Result<()>
{
    let options = Options {
        controllers: vec!["csrsigning"],
        ..Options::default()
    };
    let installation = Installation {
        joining: Joining::Approved,
        ..world::installation()
    };
    let mut world = World::start_as_without_services(options, installation).await?;
    world.installed.start_all().await?;
    let printed = go_template(&world).await?;
    assert_eq!(printed.kubelet_token, printed.token);
    let pool = world.with_set("p", printed.kubelet_token.clone()).await?;
    world.machine_of(&pool, "p-1").await?;
    let who = join(&world, &printed.kubelet_token, "p-1").await;
    assert_eq!(
        who.map_err(|error| error.context(world.installed.logs()))?,
        "system:node:p-1 of system:nodes"
    );
    let other = world.pool_of("other", "openstack").await?;
    world.machine_of(&other, "other-1").await?;
    world.ask_as(&printed.kubelet_token, "foreign", "other-1").await?;
    world.denied("foreign", "ForeignMachine").await
}

/// What a template of the Go implementation prints for a machine.
struct Printed {
    token: String,
    kubelet_token: String,
}

async fn go_template(world: &World) -> Result<Printed> {
    let file = |path: &str, data: &str| json!({"path": path, "content": {"inline": {"data": data}}});
    world
        .apply(&json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
            "metadata": {"name": "existing", "namespace": NAMESPACE},
            "spec": {
                "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0",
                "supportedCloudProviders": [{"name": "openstack"}],
                "bootstrapConfig": {"files": [file("/etc/fetch", "{{ .Token }} {{ .SecretName }}")]},
                "provisioningConfig": {"files": [
                    file("/etc/token", "{{ .Token }}"),
                    file("/etc/kubeconfig", "{{ .BootstrapKubeconfig }}"),
                ]},
            },
        }))
        .await?;
    world.pool("p", "existing").await?;
    world.stamp("p", 1).await?;
    world.says("p", "Published", true, "Published").await?;
    let content = |document: &str, path: &str| -> Result<String> {
        let files = osm_judges::user_data_files(document).map_err(|verdict| anyhow::anyhow!("{verdict}"))?;
        let file = files.into_iter().find(|file| file.path == path);
        Ok(file.with_context(|| path.to_owned())?.content)
    };
    let bootstrap = world.bootstrap("p").await?.data.unwrap_or_default();
    let bootstrap = String::from_utf8(bootstrap[names::CLOUD_CONFIG_KEY].0.clone())?;
    let fetch = content(&bootstrap, "/etc/fetch")?;
    let (token, name) = fetch.split_once(' ').context("token and name")?;
    let secrets: Api<Secret> = Api::namespaced(world.plane.client(token)?, CLOUD_INIT_SETTINGS);
    let document = secrets.get(name).await?.data.unwrap_or_default();
    let document = String::from_utf8(document[names::CLOUD_CONFIG_KEY].0.clone())?;
    assert_eq!(content(&document, "/etc/token")?, token);
    let kubeconfig = content(&document, "/etc/kubeconfig")?;
    let kubelet = kubeconfig.split_once("token: ").context("a token")?.1.trim();
    assert!(world.is_alive(kubelet).await?);
    assert_eq!(documents(world).await?.len(), 1);
    let secret = names::kubeconfig_secret_name(&pool_id(world).await?);
    assert_eq!(secrets.get(&secret).await?.data, None);
    Ok(Printed {
        token: token.to_owned(),
        kubelet_token: kubelet.to_owned(),
    })
}
