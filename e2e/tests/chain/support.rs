//! The archive of `osmctl support` has what a maintainer asks for, and no credential.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::Options;
use serde_json::json;

use crate::canaries::{Canary, Planted, Written, search, subscribed};
use crate::osmctl::osmctl;
use crate::world::{NAMESPACE, World, machine_deployment, profile};

/// Runs `osmctl support` with further flags; gives the files of the archive, and what was printed.
pub async fn collect(kubeconfig: &Path, archive: &Path, flags: &[&str]) -> Result<Vec<Written>> {
    let path = archive.display().to_string();
    let run = osmctl(kubeconfig, &[&["support", "-o", &path], flags].concat())
        .await?
        .expect(0, &["left out: Secrets: osmctl does not read them"])?;
    let tar = |arguments: &[&str]| -> Result<String> {
        let output = Command::new("tar").args(arguments).output()?;
        ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let mut files = vec![("output".to_owned(), run.out), ("errors".to_owned(), run.err)];
    for name in tar(&["-tzf", &path])?.lines() {
        files.push((name.to_owned(), tar(&["-xzOf", &path, name])?));
    }
    Ok(files)
}

/// Objects of the installation that may carry a credential, and what others wrote about them.
async fn objects_with(world: &World, password: &str) -> Result<()> {
    let labels = json!({"app.kubernetes.io/name": "operating-system-manager"});
    let container = json!({"name": "secret-syncer", "image": "registry.example/secret-syncer:0.1.0",
        "args": ["--joining=approved", format!("--proxy=http://user:{password}@proxy.example:3128")],
        "env": [{"name": "HTTPS_PROXY", "value": format!("http://user:{password}@proxy.example:3128")}]});
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("osm-secret-syncer"),
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("osm-secret-syncer-1"), "spec": {"containers": [container]}}),
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "quota", "namespace": "kube-system"},
            "involvedObject": {"kind": "MachineDeployment", "namespace": "kube-system", "name": "tiny"}, "type": "Warning", "reason": "Quota",
            "source": {"component": "machine-controller"}, "message": format!("no quota; request had password: {password}")}),
    ] {
        world.apply(&object).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_archive_for_maintainers_has_no_credential() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let planted = Planted::new();
    let mut canaries = planted.canaries();
    planted.sources(&world).await?;
    world.set_settings(&planted.settings()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    let mut red = profile("osp-red", "v1.0.0", "one\n");
    red["spec"]["osName"] = json!("rhel");
    world.apply(&red).await?;
    let written =
        json!({"rhelSubscriptionManagerUser": "user", "rhelSubscriptionManagerPassword": planted.written});
    world.apply(&subscribed("written", written)).await?;
    let mut tiny = machine_deployment("tiny", "osp-tiny");
    let provider = &mut tiny["spec"]["template"]["spec"]["providerSpec"]["value"];
    provider["cloudProviderSpec"] = json!({"password": planted.written});
    provider["overwriteCloudConfig"] = json!(format!("[Global]\npassword = {}\n", planted.written));
    world.apply(&tiny).await?;
    for pool in ["written", "tiny"] {
        world.stamp(pool, 1).await?;
    }
    world.says("tiny", "Published", true, "Published").await?;
    let machine = world.machine("tiny", 1).await?;
    let url = json!({"proxy": {"http": format!("http://user:{}@proxy.example:3128", planted.proxy)}});
    let own = json!({"metadata": {"annotations": {names::SETTINGS: url.to_string()}}});
    world.patch_pool("written", own).await?;
    world
        .says("written", "Rendered", false, "PoolSettingsInvalid")
        .await?;
    objects_with(&world, &planted.proxy).await?;
    for token in [&machine.api_token, &machine.kubelet_token] {
        canaries.push(Canary::new("a token", token));
    }
    let secrets: Api<Secret> = world.secrets();
    for secret in secrets.list(&ListParams::default()).await? {
        let values = secret.data.unwrap_or_default().into_iter();
        let texts = values.filter_map(|(_, value)| String::from_utf8(value.0).ok());
        canaries.extend(
            texts
                .filter(|text| text.len() > 16)
                .map(|text| Canary::new(&format!("data of a Secret of {CLOUD_INIT_SETTINGS}"), &text)),
        );
    }
    ensure!(canaries.len() > 12, "{}", canaries.len());

    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("valid.tar.gz");
    let admin = world.plane.admin_kubeconfig_path();
    let files = collect(&admin, &archive, &[]).await?;
    assert_eq!(search(&canaries, &files), Vec::<String>::new());
    let of = |name: &str| -> Result<&str> {
        let found = files.iter().find(|(path, _)| path.ends_with(name));
        found.map(|(_, text)| text.as_str()).context(name.to_owned())
    };
    for (name, parts) in [
        ("versions.json", &["\"management\": \"v1."][..]),
        ("pools.json", &["PoolSettingsInvalid", "kube-system/tiny"]),
        ("configs.json", &["user data is published"]),
        ("profiles.json", &["osp-tiny", "\"Accepted\""]),
        ("machine-deployments.json", &["\"kubelet\""]),
        ("events.json", &["\"Quota\"", "machine-controller"]),
        (
            "services.json",
            &[
                "registry.example/secret-syncer:0.1.0",
                "--joining=approved",
                "HTTPS_PROXY",
            ],
        ),
        (
            "services.json",
            &["\"service\": \"osc-controller\"", "\"renewTime\": \"2"],
        ),
        ("settings.yaml", &["docker.example", "http://proxy.example:3128"]),
        // No node runs the pod.
        ("left-out.txt", &["/metrics of pod osm-secret-syncer-1"]),
    ] {
        for part in parts {
            ensure!(of(name)?.contains(part), "{name} has no {part}:\n{}", of(name)?);
        }
    }

    // Nothing is written over, and settings that are invalid keep no value.
    let path = archive.display().to_string();
    osmctl(&admin, &["support", "-o", &path])
        .await?
        .expect(1, &["exists already"])?;
    let broken = format!("{{\"nonsense\": {}, \"proxy\": {url}}}", json!(planted.plain));
    world.set_settings(&broken).await?;
    let files = collect(&admin, &folder.path().join("invalid.tar.gz"), &[]).await?;
    assert_eq!(search(&canaries, &files), Vec::<String>::new());

    // The search finds what it looks for.
    let text = format!("password: {}", planted.plain);
    assert!(!search(&canaries, &[("a file".to_owned(), text)]).is_empty());
    Ok(())
}
