//! Profiles that extend others, against a real API server: they follow, and what was good stays.

use anyhow::{Context, Result};
use osm_testkit::ControlPlane;
use serde_json::{Value, json};

use crate::support::{Site, accepted, profile, verdict};

/// A profile that extends `base`, with these files.
fn extending(base: &str, version: &str, files: Value) -> Value {
    let mut spec = profile(version, "");
    spec["extends"] = json!(base);
    spec["provisioningConfig"]["files"] = files;
    spec
}

#[tokio::test]
async fn an_extension_follows_its_base_and_keeps_the_last_good_one() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-extends").await?;
    let own = json!([{"path": "/etc/issue", "content": {"inline": {"data": "added"}}}]);
    site.create("mine", extending("base", "v1.0.0", own)).await?;
    let refused = site.judged("mine", "False", |_| true).await?;
    let (reason, message) = verdict(&refused);
    assert!(
        reason == "ParentNotFound" && message.contains("\"base\""),
        "{reason}: {message}"
    );
    assert_eq!(accepted(&refused), None);

    site.create("base", profile("v2.0.0", "base")).await?;
    let on_base = |base: &str| format!("v1.0.0 on base {base}");
    site.judged("mine", "True", |stored| {
        accepted(stored) == Some(&on_base("v2.0.0"))
    })
    .await?;
    assert!(
        site.event("mine", "Normal", "Accepted")
            .await?
            .contains("on base v2.0.0")
    );
    site.edit("base", profile("v2.1.0", "changed")).await?;
    let followed = site
        .judged("mine", "True", |stored| {
            accepted(stored) == Some(&on_base("v2.1.0"))
        })
        .await?;
    let last_good = followed.status.context("status")?.accepted;

    // A base that is refused leaves what was accepted, and its correction is followed.
    site.edit("base", profile("v2.1.1", "{{#if}}")).await?;
    let refused = site
        .judged("mine", "False", |stored| verdict(stored).0 == "ParentNotAccepted")
        .await?;
    let (_, message) = verdict(&refused);
    assert!(
        message.contains("the profile base, which this one extends, is refused (TemplateInvalid)"),
        "{message}"
    );
    assert_eq!(refused.status.context("status")?.accepted, last_good);
    assert_eq!(site.event("mine", "Warning", "ParentNotAccepted").await?, message);
    site.edit("base", profile("v2.2.0", "base")).await?;
    site.judged("mine", "True", |stored| {
        accepted(stored) == Some(&on_base("v2.2.0"))
    })
    .await?;
    Ok(())
}
