//! Profiles that extend others, against a real API server: they follow, and what was good stays.

use anyhow::{Context, Result};
use kube::api::DeleteParams;
use osm_api::OperatingSystemProfile;
use osm_api::condition::{self, ACCEPTED};
use osm_testkit::ControlPlane;
use serde_json::{Value, json};

use crate::support::{Site, accepted, profile, verdict, version};

/// A profile that extends `base`, with these files.
fn extending(base: &str, version: &str, files: Value) -> Value {
    let mut spec = profile(version, "");
    spec["extends"] = json!(base);
    spec["provisioningConfig"]["files"] = files;
    spec
}

fn motd(text: &str) -> Value {
    json!({"path": "/etc/motd", "replace": true, "content": {"inline": {"data": text}}})
}

fn issue(text: &str) -> Value {
    json!({"path": "/etc/issue", "content": {"inline": {"data": text}}})
}

/// Paths and texts of the files that are accepted.
fn files(stored: &OperatingSystemProfile) -> Option<Vec<(String, String)>> {
    let accepted = stored.status.as_ref()?.accepted.as_ref()?;
    let files = accepted.spec.0.provisioning_config.files.iter();
    Some(
        files
            .map(|file| {
                let text = file.content.inline.clone().unwrap_or_default().data;
                (file.path.clone(), text)
            })
            .collect(),
    )
}

fn pair(path: &str, text: &str) -> (String, String) {
    (path.to_owned(), text.to_owned())
}

#[tokio::test]
async fn an_extension_follows_its_base_and_keeps_the_last_good_one() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-extends").await?;
    let own = json!([motd("mine {{kubelet.version}}"), issue("added")]);
    site.create("mine", extending("base", "v1.0.0", own)).await?;
    let refused = site.judged("mine", "False", |_| true).await?;
    let (reason, message) = verdict(&refused);
    assert!(
        reason == "ParentNotFound" && message.contains("\"base\""),
        "{reason}: {message}"
    );
    assert_eq!(accepted(&refused), None);

    // A replaced file reaches the accepted spec, which has no marks.
    site.create("base", profile("v2.0.0", "base")).await?;
    let on_base = |base: &str| format!("v1.0.0 on base {base}");
    let good = site
        .judged("mine", "True", |stored| {
            accepted(stored) == Some(&on_base("v2.0.0"))
        })
        .await?;
    let both = [
        pair("/etc/motd", "mine {{kubelet.version}}"),
        pair("/etc/issue", "added"),
    ];
    assert_eq!(files(&good).context("accepted")?, both);
    let first = good.status.context("status")?.accepted.context("accepted")?;
    assert_eq!((first.spec.0.extends, first.bases.len()), (None, 1));
    assert!(
        site.event("mine", "Normal", "Accepted")
            .await?
            .contains("on base v2.0.0")
    );

    // The base changes, and gets another file.
    let mut changed = profile("v2.1.0", "base");
    let list = changed["provisioningConfig"]["files"]
        .as_array_mut()
        .context("files")?;
    list.push(json!({"path": "/etc/new", "content": {"inline": {"data": "new"}}}));
    site.edit("base", changed.clone()).await?;
    let followed = site
        .judged("mine", "True", |stored| {
            accepted(stored) == Some(&on_base("v2.1.0"))
        })
        .await?;
    assert!(
        files(&followed)
            .context("accepted")?
            .contains(&pair("/etc/new", "new"))
    );
    let last_good = followed.status.context("status")?.accepted;

    // Of bad states, each names the base, and leaves what was accepted.
    let mut colliding = changed.clone();
    colliding["version"] = json!("v2.2.0");
    colliding["provisioningConfig"]["files"]
        .as_array_mut()
        .context("files")?
        .push(issue("the base's"));
    for (edit, reason, text) in [
        (
            profile("v2.1.1", "{{#if}}"),
            "ParentNotAccepted",
            "the profile base, which this one extends, is refused (TemplateInvalid)",
        ),
        (
            colliding,
            "ExtendsInvalid",
            "(/etc/issue): base has this file as well; to replace it, set replace: true",
        ),
    ] {
        site.edit("base", edit).await?;
        let refused = site
            .judged("mine", "False", |stored| verdict(stored).0 == reason)
            .await?;
        let (_, message) = verdict(&refused);
        assert!(message.contains(text), "{message}");
        assert!(
            message.ends_with("until then version v1.0.0 on base v2.1.0 stays in use"),
            "{message}"
        );
        assert_eq!(refused.status.context("status")?.accepted, last_good);
        assert_eq!(site.event("mine", "Warning", reason).await?, message);
    }

    site.profiles.delete("base", &DeleteParams::default()).await?;
    let refused = site
        .judged("mine", "False", |stored| verdict(stored).0 == "ParentNotFound")
        .await?;
    assert!(verdict(&refused).1.contains("\"base\""));
    assert_eq!(refused.status.context("status")?.accepted, last_good);

    site.create("base", profile("v3.0.0", "base")).await?;
    let back = site
        .judged("mine", "True", |stored| {
            accepted(stored) == Some(&on_base("v3.0.0"))
        })
        .await?;
    assert_eq!(files(&back).context("accepted")?, both);
    Ok(())
}

#[tokio::test]
async fn a_chain_follows_its_lowest_base_and_a_cycle_is_named() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-chain").await?;
    site.create("top", extending("middle", "v1.0.0", json!([motd("top")])))
        .await?;
    site.create("middle", extending("low", "v1.0.0", json!([issue("middle")])))
        .await?;
    site.create("low", profile("v1.0.0", "v1.0.0")).await?;
    let whole = |low: &str| format!("v1.0.0 on middle v1.0.0 on low {low}");
    for low in ["v1.0.0", "v1.0.1"] {
        site.edit("low", profile(low, low)).await?;
        let top = site
            .judged("top", "True", |stored| accepted(stored) == Some(&whole(low)))
            .await?;
        assert_eq!(
            files(&top).context("accepted")?,
            [pair("/etc/motd", "top"), pair("/etc/issue", "middle")]
        );
    }

    site.edit("low", extending("top", "v1.0.2", json!([]))).await?;
    for (name, cycle) in [
        ("top", "top → middle → low → top"),
        ("middle", "middle → low → top → middle"),
        ("low", "low → top → middle → low"),
    ] {
        let refused = site.judged(name, "False", |_| true).await?;
        let (reason, message) = verdict(&refused);
        assert_eq!(reason, "ExtendsInvalid", "{message}");
        assert!(message.contains(cycle), "{message}");
        assert!(accepted(&refused).is_some(), "the last good one stays");
    }
    site.edit(
        "low",
        json!({"extends": null, "version": "v1.0.3",
        "provisioningConfig": profile("v1.0.3", "low")["provisioningConfig"]}),
    )
    .await?;
    for name in ["low", "middle", "top"] {
        site.judged(name, "True", |stored| {
            accepted(stored).is_some_and(|version| version.ends_with("v1.0.3"))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_default_profile_is_awaited_and_nothing_is_written_when_nothing_changes() -> Result<()> {
    let mut site = Site::prepare(ControlPlane::shared().await?, "osp-extends-default").await?;
    let own = json!([{"path": "/etc/site", "content": {"inline": {"data": "site"}}}]);
    site.create("mine", extending("osp-ubuntu", "v1.0.0", own))
        .await?;
    site.run()?;
    let mine = site.judged("mine", "True", |_| true).await?;
    let base = site.judged("osp-ubuntu", "True", |_| true).await?;
    let expected = format!("v1.0.0 on osp-ubuntu {}", base.spec.version);
    assert_eq!(accepted(&mine), Some(expected.as_str()));
    assert!(
        site.events("mine").await?.is_empty(),
        "the first validation waits until the default profile is installed and validated"
    );

    // A restart validates everything again.
    site.terminate().await?;
    site.run()?;
    site.create("later", extending("osp-ubuntu", "v1.0.0", json!([])))
        .await?;
    site.judged("later", "True", |_| true).await?;
    site.edit("mine", json!({"version": "v1.0.1"})).await?;
    let edited = site
        .judged("mine", "True", |stored| stored.spec.version == "v1.0.1")
        .await?;
    let settled = site.profiles.get("osp-ubuntu").await?;
    assert_eq!(version(&settled), version(&base));
    let transition = |stored: &OperatingSystemProfile| {
        let status = stored.status.clone().unwrap_or_default();
        condition::find(&status.conditions, ACCEPTED).map(|found| found.last_transition_time.clone())
    };
    assert_eq!(transition(&edited), transition(&mine), "it was never refused");
    Ok(())
}
