//! Clocks that are hours off or jump, and a server that grants a shorter life than a token request asks for.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use osm_api::names;
use osm_api::rbac::Service;
use osm_judges::packages;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::credentials::bring_renewal_near;
use crate::world::{DEADLINE, World};

/// A library by which a program sees another time than its machine does.
fn faketime() -> Result<PathBuf> {
    packages::ensure(&["libfaketime"])?;
    let listed = std::process::Command::new("dpkg")
        .args(["-L", "libfaketime"])
        .output()?;
    let listed = String::from_utf8(listed.stdout)?;
    listed
        .lines()
        .find(|line| line.ends_with("/libfaketimeMT.so.1"))
        .map(PathBuf::from)
        .context("libfaketime's files")
}

/// The time of the last line that secret-syncer has logged, by its own clock.
fn last_logged(world: &World) -> Result<Timestamp> {
    let log = std::fs::read_to_string(world.installed.log_file(Service::SecretSyncer))?;
    let last = log
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str::<Value>(line).ok())
        .context("a line")?;
    Ok(last["timestamp"].as_str().context("a timestamp")?.parse()?)
}

fn time(secret: &Secret, annotation: &str) -> Result<Timestamp> {
    Ok(secret
        .annotations()
        .get(annotation)
        .context("an annotation")?
        .parse()?)
}

fn hours_from_now(time: Timestamp) -> f64 {
    time.duration_since(Timestamp::now()).as_secs_f64() / 3600.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off_or_jumps_changes_no_credentials_life() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let offset = scratch.path().join("offset");
    let shift = |hours: i64| anyhow::Ok(std::fs::write(&offset, format!("{hours:+}h\n"))?);
    let mut world = World::start_without_services(Options::default()).await?;
    for (name, value) in [
        ("LD_PRELOAD", faketime()?.display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", offset.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        // Only the time of day: that a second lasts a second is for no clock to decide.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
    ] {
        world.installed.environment.insert(name.to_owned(), value);
    }
    shift(30)?;
    world.installed.start_all().await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for (n, (hours, pool)) in [(30i64, "ahead"), (-30, "behind")].into_iter().enumerate() {
        // The second time it is a jump: nobody is restarted.
        shift(hours)?;
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        let machine = world.machine(pool, 1).await?;
        let off = hours_from_now(last_logged(&world)?);
        assert!(
            (off - hours as f64).abs() < 1.0,
            "the clock is {off} hours off, not {hours}"
        );

        let secret = world.bootstrap(pool).await?;
        let document = world.secrets().get(&machine.provisioning_secret).await?;
        for (what, secret, annotation, hours) in [
            ("it expires", &secret, names::EXPIRES, 24.0),
            ("it is renewed", &secret, names::RENEW_AT, 11.5),
            ("its document is kept", &document, names::KEEP_UNTIL, 25.0),
        ] {
            let actual = hours_from_now(time(secret, annotation)?);
            assert!(
                (actual - hours).abs() < 0.7,
                "{pool}: {what} in {actual} hours, not in {hours}"
            );
        }
        bring_renewal_near(&world, pool).await?;
        let renewed = world
            .machine_with(pool, 1, |new| new.api_token != machine.api_token)
            .await?;
        assert!(world.is_alive(&renewed.kubelet_token).await?);
        world.fetch(&machine).await?;

        // Another jump, and a restart with that clock, make nothing due that is not.
        let before = world.bootstrap(pool).await?;
        shift(-hours)?;
        world
            .patch_pool(
                pool,
                json!({"metadata": {"annotations": {"example.com/n": n.to_string()}}}),
            )
            .await?;
        world.installed.kill9(Service::SecretSyncer)?;
        world.installed.start(Service::SecretSyncer).await?;
        world.installed.ready(DEADLINE).await?;
        // A new revision of another pool shows that it is at work, after what it found at its start.
        let witness = format!("witness-{n}");
        world.pool(&witness, "osp-tiny").await?;
        world.stamp(&witness, 1).await?;
        world.machine(&witness, 1).await?;
        assert_eq!(
            world.bootstrap(pool).await?.metadata.resource_version,
            before.metadata.resource_version
        );
        world.fetch(&machine).await?;
        shift(hours)?;
    }
    Ok(())
}

/// An API server, or what stands before it, may shorten what is asked for to the least that Kubernetes knows.
#[tokio::test(flavor = "multi_thread")]
async fn ten_minutes_are_renewed_after_five() -> Result<()> {
    let world = World::start(Options {
        mutating_policies: true,
        ..Options::default()
    })
    .await?;
    let group = "admissionregistration.k8s.io/v1beta1";
    let patch = "[JSONPatch{op: 'replace', path: '/spec/expirationSeconds', value: 600}]";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["serviceaccounts/token"]});
    for object in [
        json!({"apiVersion": group, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "short"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]}}),
        json!({"apiVersion": group, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "short"},
            "spec": {"policyName": "short"}}),
    ] {
        world.apply(&object).await?;
    }
    wait_for("the policy to be in force", DEADLINE, async || {
        let token = world
            .plane
            .token("osm-services", Service::SecretSyncer.name())
            .await?;
        let life = crate::credentials::life(&token)?;
        check(life.as_secs() == 600)
    })
    .await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let machine = world.machine("p", 1).await?;
    for token in [&machine.api_token, &machine.kubelet_token] {
        assert_eq!(crate::credentials::life(token)?.as_secs(), 600);
    }
    let secret = world.bootstrap("p").await?;
    let (expires, renewal) = (time(&secret, names::EXPIRES)?, time(&secret, names::RENEW_AT)?);
    let left = expires.duration_since(renewal);
    assert!(
        (SignedDuration::from_secs(299)..SignedDuration::from_secs(335)).contains(&left),
        "{left:?}"
    );
    let message = world.says("p", "Published", true, "Published").await?;
    assert!(message.contains(&expires.to_string()), "{message}");
    bring_renewal_near(&world, "p").await?;
    world
        .machine_with("p", 1, |new| new.api_token != machine.api_token)
        .await?;
    Ok(())
}
