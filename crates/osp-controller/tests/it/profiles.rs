//! The binary, as itself, against a real API server: what becomes of default profiles and of people's own.

use anyhow::{Context, Result};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{CustomResourceExt, ResourceExt};
use osm_api::names::DEFAULT_PROFILE;
use osm_api::profile::TemplateEngine;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_testkit::{ControlPlane, Options};
use serde_json::json;

use crate::support::{Site, accepted, profile};

/// The default profile that these tests look at.
#[allow(clippy::unwrap_used)]
fn ubuntu() -> OperatingSystemProfileSpec {
    let mut defaults = osm_render::defaults().into_iter();
    defaults
        .find_map(|(name, spec)| (name == "osp-ubuntu").then_some(spec))
        .unwrap()
}

fn is_default(stored: &OperatingSystemProfile) -> bool {
    stored.spec == ubuntu()
        && stored
            .labels()
            .get(DEFAULT_PROFILE)
            .is_some_and(|value| value == "true")
}

#[tokio::test]
async fn defaults_are_installed_accepted_and_put_back() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-defaults").await?;
    let ours = ubuntu().version;
    let installed = site
        .judged("osp-ubuntu", "True", |stored| {
            is_default(stored) && accepted(stored) == Some(&ours)
        })
        .await?;
    assert!(
        site.events("osp-ubuntu").await?.is_empty(),
        "an installation is nothing to tell of"
    );
    site.ready().await?;

    // Another version with other content, and without our label.
    let edit = json!({"spec": {"version": "v99.0.0", "osVersion": "mine"},
        "metadata": {"labels": {DEFAULT_PROFILE: null, "team": "a"}}});
    site.profiles
        .patch("osp-ubuntu", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    let note = site
        .event("osp-ubuntu", "Warning", "DefaultProfileRestored")
        .await?;
    assert!(
        note.contains("v99.0.0") && note.contains("another name"),
        "{note}"
    );
    let back = site.judged("osp-ubuntu", "True", is_default).await?;
    assert_eq!(
        (back.uid(), accepted(&back)),
        (installed.uid(), Some(ours.as_str())),
        "never missing, always accepted"
    );
    assert!(
        back.labels().contains_key("team"),
        "labels of others stay: {back:?}"
    );

    site.profiles
        .delete("osp-ubuntu", &DeleteParams::default())
        .await?;
    let again = site
        .judged("osp-ubuntu", "True", |stored| stored.uid() != installed.uid())
        .await?;
    assert!(is_default(&again) && accepted(&again) == Some(&ours));
    Ok(())
}

#[tokio::test]
async fn other_content_under_a_default_s_very_version_is_put_back() -> Result<()> {
    let mut site = Site::prepare(ControlPlane::shared().await?, "osp-same-version").await?;
    site.create("osp-ubuntu", profile(&ubuntu().version, "mine"))
        .await?;
    let before = site.profiles.get("osp-ubuntu").await?;
    let refused = site
        .edit("osp-ubuntu", json!({"osVersion": "26.04"}))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("new version"),
        "what makes the detour necessary: {refused}"
    );
    site.run().await?;
    let back = site.judged("osp-ubuntu", "True", is_default).await?;
    assert_eq!(back.uid(), before.uid(), "it was never missing");
    site.event("osp-ubuntu", "Warning", "DefaultProfileRestored")
        .await?;
    Ok(())
}

#[tokio::test]
async fn settings_switch_defaults_off_and_on() -> Result<()> {
    let mut site = Site::prepare(ControlPlane::shared().await?, "osp-off").await?;
    site.settings("defaultProfiles: {enabled: false}").await?;
    site.run().await?;
    site.create("marker", profile("v1.0.0", "text")).await?;
    site.judged("marker", "True", |_| true).await?;
    site.ready().await?;
    assert!(site.profiles.get_opt("osp-ubuntu").await?.is_none());

    site.settings("defaultProfiles: {enabled: true}").await?;
    site.judged("osp-ubuntu", "True", is_default).await?;
    Ok(())
}

#[tokio::test]
async fn with_the_definitions_of_another_version_it_complains_and_creates_nothing() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let mut site = Site::prepare(&control_plane, "osp-old-crd").await?;
    let mut old = serde_json::to_value(OperatingSystemProfile::crd())?;
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = old
        .pointer_mut(properties)
        .and_then(serde_json::Value::as_object_mut)
        .context("schema")?;
    fields
        .remove("templateEngine")
        .context("a field that the upstream OSM does not know")?;
    control_plane.apply_yaml(&old.to_string()).await?;
    site.wait("the field to be dropped", async || {
        site.create("probe", profile("v1.0.0", "text")).await?;
        let stored = site.profiles.get("probe").await?;
        site.profiles.delete("probe", &DeleteParams::default()).await?;
        Ok((stored.spec.template_engine == TemplateEngine::GoTemplate).then_some(()))
    })
    .await?;
    site.run().await?;
    site.wait("attempts", async || {
        let metrics = site.metrics().await?;
        // Until the check of the definitions has ended, a dry run finds it out.
        let is_refused = |line: &str| {
            ["DefinitionsOutdated", "FieldsDropped"].iter().any(|reason| {
                line.starts_with(&format!(
                    "osm_reconciles_total{{reason=\"{reason}\",result=\"failure\""
                ))
            })
        };
        Ok(metrics.lines().any(is_refused).then_some(()))
    })
    .await?;
    let stored = site.profiles.list(&ListParams::default()).await?;
    assert!(
        stored.items.is_empty(),
        "a profile was created with dropped fields"
    );
    control_plane
        .apply_yaml(&serde_json::to_string(&OperatingSystemProfile::crd())?)
        .await?;
    site.judged("osp-ubuntu", "True", is_default).await?;
    Ok(())
}
