//! Bad input leads to a precise condition and Event. It affects no other pool, and published user data stays.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use osm_api::rbac::Service;
use osm_api::{condition, names};
use osm_testkit::{Options, check, installation, wait_for};
use serde_json::{Value, json};

use crate::world::{self, DEADLINE, NAMESPACE, World};

/// What is broken, the reason that is given, and a part of the message.
fn breaks() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let provider = |value: Value| json!({"spec": {"template": {"spec": {"providerSpec": {"value": value}}}}});
    let annotation = |key: String, value: &str| json!({"metadata": {"annotations": {key: value}}});
    vec![
        (
            "no-such-profile",
            annotation(names::PROFILE.into(), "osp-nowhere"),
            "ProfileNotFound",
            "osm/osp-nowhere",
        ),
        (
            "other-system",
            provider(json!({"operatingSystem": "flatcar"})),
            "UnsupportedOperatingSystem",
            "flatcar",
        ),
        (
            "other-cloud",
            provider(json!({"cloudProvider": "azure"})),
            "UnsupportedCloudProvider",
            "azure",
        ),
        (
            "unparsable",
            json!({"spec": {"template": {"spec": {"providerSpec": {"value": "text"}}}}}),
            "InvalidProviderSpec",
            "providerSpec",
        ),
        (
            "unknown-key",
            provider(json!({"operatingSytem": "ubuntu"})),
            "InvalidProviderSpec",
            "operatingSytem",
        ),
        (
            "no-kubelet",
            json!({"spec": {"template": {"spec": {"versions": {"kubelet": null}}}}}),
            "InvalidKubeletVersion",
            "versions.kubelet",
        ),
        (
            "kubelet-without-quotes",
            json!({"spec": {"template": {"spec": {"versions": {"kubelet": 1.34}}}}}),
            "InvalidKubeletVersion",
            "spec.template.spec.versions.kubelet is a number; put it in quotes",
        ),
        (
            "bad-annotation",
            annotation(format!("{}MaxPods", names::KUBELET_CONFIG_PREFIX), "many"),
            "InvalidAnnotation",
            "MaxPods",
        ),
        (
            "marker",
            provider(json!({"overwriteCloudConfig": "%%osm-late{api/token,raw}%%"})),
            "ReservedText",
            "osm-late",
        ),
        (
            "failing-template",
            annotation(names::PROFILE.into(), "osp-failing"),
            "TemplateFailed",
            "line 2",
        ),
    ]
}

/// What has no effect and affects no other part of its pool, and a part of the warning.
fn oddities() -> Vec<(&'static str, String, &'static str)> {
    vec![
        (
            "unknown-kubelet-setting",
            format!("{}PodsPerCore", names::KUBELET_CONFIG_PREFIX),
            "PodsPerCore has no effect; no annotation carries this kubelet setting",
        ),
        (
            "feature-gate",
            format!("v1.{}/ImageVolume", names::KUBELET_FEATURE_GATES),
            "ImageVolume has no effect; set kubelet.featureGates",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_in_a_machine_deployment_is_reported_and_affects_no_other_pool() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    // Fails only for what the samples of a dry run do not have.
    world
        .accepted_profile(
            "osp-failing",
            "v1.0.0",
            "one\n{{#if (eq pool.name \"failing-template\")}}{{nothing.here}}{{/if}}\n",
        )
        .await?;
    world.pool("healthy", "osp-tiny").await?;
    for (name, key, text) in oddities() {
        let mut pool = world::machine_deployment(name, "osp-tiny");
        pool["metadata"]["annotations"][key] = json!("5");
        world.apply(&pool).await?;
        world.stamp(name, 1).await?;
        let message = world.says(name, "Rendered", true, "Rendered").await?;
        ensure!(message.contains(text), "{name}: {message}");
        world.machine(name, 1).await?;
    }
    for (name, ..) in breaks() {
        world.pool(name, "osp-tiny").await?;
        world.stamp(name, 1).await?;
    }
    for (name, ..) in breaks() {
        world.machine(name, 1).await?;
    }
    let observer = world.observe().await?;
    for (name, patch, ..) in breaks() {
        world.patch_pool(name, patch).await?;
        world.stamp(name, 2).await?;
    }
    for (name, _, reason, text) in breaks() {
        let message = world.says(name, "Rendered", false, reason).await?;
        assert!(message.contains(text), "{name}: {message}");
        assert!(
            world.event("kube-system", name, reason).await?.contains(text),
            "{name}"
        );
        // What was published stays, for machines of the old revision.
        world.machine(name, 1).await?;
    }
    world.stamp("healthy", 1).await?;
    world.machine("healthy", 1).await?;
    assert!(observer.absences().is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_collide_or_are_too_long_and_secrets_of_others() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;

    // `a` in `b-kube-system` is `a-b` in `kube-system`; `e2e/tests/attacks/names.rs` has more of that.
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "b-kube-system"}}))
        .await?;
    world.pool("a-b", "osp-tiny").await?;
    world.stamp("a-b", 1).await?;
    let first = world.machine("a-b", 1).await?;
    let mut other = world::machine_deployment("a", "osp-tiny");
    other["metadata"]["namespace"] = json!("b-kube-system");
    other["metadata"]["annotations"][names::REVISION] = json!("1");
    world.apply(&other).await?;
    assert!(
        world
            .event("b-kube-system", "a", "NameConflict")
            .await?
            .contains("kube-system/a-b")
    );
    assert_eq!(world.machine("a-b", 1).await?.text, first.text);

    let long = "x".repeat(240);
    world.pool(&long, "osp-tiny").await?;
    world.stamp(&long, 1).await?;
    assert!(
        world
            .event("kube-system", &long, "NameTooLong")
            .await?
            .contains("is shortened by")
    );

    // A Secret with our name that is not ours is never touched, and the pool is published as soon as it is gone.
    let name = names::bootstrap_secret_name("taken", "kube-system");
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": names::CLOUD_INIT_SETTINGS},
            "stringData": {"mine": "not yours"}}))
        .await?;
    world.pool("taken", "osp-tiny").await?;
    world.stamp("taken", 1).await?;
    assert!(
        world
            .says("taken", "Published", false, "ForeignSecret")
            .await?
            .contains(&name)
    );
    world
        .event(NAMESPACE, "taken-kube-system-config", "ForeignSecret")
        .await?;
    let foreign: Secret = world.secrets().get(&name).await?;
    assert!(foreign.data.is_some_and(|data| data.contains_key("mine")));
    world.delete(&world.secrets(), &name).await?;
    world.stamp("taken", 2).await?;
    world.machine("taken", 2).await?;

    // One of the Go implementation's is taken over.
    let name = names::bootstrap_secret_name("migrated", "kube-system");
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "immutable": true, "metadata": {"name": name, "namespace": names::CLOUD_INIT_SETTINGS,
            "annotations": {names::MACHINE_DEPLOYMENT_REVISION: "1"}}, "stringData": {"cloud-config": "#cloud-config\n{}\n"}}))
        .await?;
    world.pool("migrated", "osp-tiny").await?;
    world.stamp("migrated", 1).await?;
    world.machine("migrated", 1).await?;
    assert_eq!(
        world.bootstrap("migrated").await?.labels()[names::INSTALLATION],
        NAMESPACE
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_refused_whole_and_the_last_good_ones_stay() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.set_settings("cluster: {dnsDomain: first.example}").await?;
    world
        .accepted_profile("osp-tiny", "v1.0.0", "domain {{cluster.dnsDomain}}\n")
        .await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world
        .machine_with("p", 1, |machine| machine.text.contains("first.example"))
        .await?;
    world
        .set_settings("cluster: {dnsDomain: second.example, dnsIPs: [x], apiServer: here}\nmore: 1")
        .await?;
    let mistakes = [
        "cluster.dnsIPs[0]: ",
        "cluster.apiServer: ",
        "more: unknown field",
    ];
    for service in Service::ALL
        .into_iter()
        .filter(|service| service.reads_settings())
    {
        world.settings_valid(service, 0).await?;
        wait_for("every mistake in the log", DEADLINE, async || {
            let log = std::fs::read_to_string(world.installed.log_file(service))?;
            check(mistakes.iter().all(|mistake| log.contains(mistake)))
        })
        .await?;
    }
    let told = |message: &str| mistakes.iter().all(|mistake| message.contains(mistake));
    let refused = world.rendered("p", told).await?;
    assert!(
        refused.contains("ConfigMap osm/osm-settings, key settings.yaml: "),
        "{refused}"
    );
    // Of a new pool, too.
    world.pool("q", "osp-tiny").await?;
    world.rendered("q", told).await?;
    world.stamp("p", 2).await?;
    assert!(world.machine("p", 2).await?.text.contains("first.example"));
    // Another edit is told anew.
    world.set_settings("moore: 1").await?;
    world
        .rendered("p", |message| message.contains("moore: ") && !told(message))
        .await?;
    // And that its key has another name.
    let mut renamed = installation::settings(world.installed.installation(), "");
    renamed["data"] = json!({"settings.yml": ""});
    world.take_settings().await?;
    world.apply(&renamed).await?;
    world
        .rendered("p", |message| {
            message.contains("has no key settings.yaml") && message.contains("settings.yml")
        })
        .await?;
    for service in Service::ALL
        .into_iter()
        .filter(|service| service.reads_settings())
    {
        world.settings_valid(service, 0).await?;
    }
    world.stamp("p", 3).await?;
    assert!(world.machine("p", 3).await?.text.contains("first.example"));
    // And that the document is gone.
    let settings = world.take_settings().await?;
    world
        .rendered("p", |message| message.contains("the ConfigMap is gone"))
        .await?;
    world.apply(&settings).await?;
    world.set_settings("cluster: {dnsDomain: third.example}").await?;
    world
        .machine_with("p", 3, |machine| machine.text.contains("third.example"))
        .await?;
    for pool in ["p", "q"] {
        world
            .rendered(pool, |message| {
                message.starts_with("rendered from profile osp-tiny v1.0.0; ")
                    && message.ends_with("unpack status.rendered with `base64 -d | gunzip`")
            })
            .await?;
    }
    for service in Service::ALL
        .into_iter()
        .filter(|service| service.reads_settings())
    {
        world.settings_valid(service, 1).await?;
    }
    Ok(())
}

impl World {
    /// Waits until a pool is rendered, with such a message; gives that.
    async fn rendered(&self, pool: &str, good: impl Fn(&str) -> bool) -> Result<String> {
        wait_for(
            &format!("the message of Rendered of {pool}"),
            DEADLINE,
            async || {
                let conditions = self.config(pool).await?.status.unwrap_or_default().conditions;
                let found = condition::find(&conditions, condition::RENDERED).context("the condition")?;
                ensure!(found.status == "True" && found.reason == "Rendered", "{found:?}");
                ensure!(good(&found.message), "{found:?}");
                Ok(Some(found.message.clone()))
            },
        )
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }

    async fn settings_valid(&self, service: Service, valid: u8) -> Result<()> {
        let line = format!("osm_settings_valid {valid}");
        wait_for(
            &format!("{} to count {line}", service.name()),
            DEADLINE,
            async || {
                let (_, metrics) = self.installed.get(service, "/metrics").await?;
                check(metrics.lines().any(|found| found == line))
            },
        )
        .await
    }
}
