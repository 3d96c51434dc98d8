//! `upgrade-crds` on a real API server.

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use osm_api::OperatingSystemConfig;
use osm_api::definitions;
use osm_testkit::{ControlPlane, Options};
use osp_controller::crds;

use crate::support::SOON;

#[tokio::test(flavor = "multi_thread")]
async fn they_are_installed_and_served_and_come_to_one_version_whoever_is_last() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let client = control_plane.admin()?;
    crds::upgrade(client.clone()).await?;
    // Served means that nobody has to wait.
    Api::<OperatingSystemConfig>::all(client.clone())
        .list(&ListParams::default())
        .await?;

    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let [_, ours] = definitions::all();
    let name = ours.name_any();
    let written = async |version: &str| -> Result<String> {
        let mut definition = api.get(&name).await?;
        definition
            .labels_mut()
            .insert(definitions::VERSION_LABEL.to_owned(), version.to_owned());
        definition.spec.names.short_names = Some(vec!["other".to_owned()]);
        api.replace(&name, &PostParams::default(), &definition).await?;
        crds::upgrade(client.clone()).await?;
        let short_names = api.get(&name).await?.spec.names.short_names;
        short_names
            .and_then(|names| names.into_iter().next())
            .context("a short name")
    };
    assert_eq!(written("0.0.1").await?, "osc");
    assert_eq!(written("nonsense").await?, "osc");
    assert_eq!(written("99.0.0").await?, "other");
    // Two at once, over what is older: neither fails.
    let mut older = api.get(&name).await?;
    older
        .labels_mut()
        .insert(definitions::VERSION_LABEL.to_owned(), "0.0.1".to_owned());
    api.replace(&name, &PostParams::default(), &older).await?;
    tokio::try_join!(crds::upgrade(client.clone()), crds::upgrade(client.clone()))?;
    assert_eq!(
        api.get(&name).await?.spec.names.short_names,
        ours.spec.names.short_names
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_another_s_are_told() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let client = control_plane.admin()?;
    // The server looks at names within a group alone.
    let [mut other, _] = definitions::all();
    other.spec.names.plural = "others".to_owned();
    other.spec.names.singular = Some("other".to_owned());
    other.metadata.name = Some(format!("others.{}", other.spec.group));
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    api.create(&PostParams::default(), &other).await?;
    osm_testkit::wait_for("the other", SOON, async || {
        let status = api.get(&other.name_any()).await?.status;
        osm_testkit::check(
            status
                .and_then(|status| status.accepted_names)
                .is_some_and(|names| names.plural == "others"),
        )
    })
    .await?;
    let error = format!("{:#}", crds::upgrade(client).await.unwrap_err());
    assert!(
        error.contains("operatingsystemprofiles") && error.contains("its names are taken"),
        "{error}"
    );
    Ok(())
}
