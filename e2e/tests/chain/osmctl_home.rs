//! `osmctl` with services in a home cluster: their settings are there, and everything else is in the user cluster.

use std::path::{Path, PathBuf};

use crate::home::registry;
use crate::osmctl::{Run, osmctl};
use crate::world::{HOME, NAMESPACE, World};
use anyhow::{Context, Result, ensure};
use osm_api::rbac::Service;
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{ControlPlane, Options};

/// What the Secret of a registry contains that the settings name.
const PASSWORD: &str = "hunter2";

/// A published pool of services with a home cluster.
async fn a_published_pool() -> Result<World> {
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let world = World::start_with_home(options).await?;
    registry(&world).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("workers", "osp-tiny").await?;
    world.stamp("workers", 1).await?;
    let machine = world.machine("workers", 1).await?;
    ensure!(world.fetch(&machine).await?.contains(PASSWORD));
    world.says("workers", "Ready", true, "Published").await?;
    Ok(world)
}

fn home(world: &World) -> Result<&ControlPlane> {
    world.home.as_ref().context("a home cluster")
}

/// Requests of osmctl. The services use other programs.
fn requests(plane: &ControlPlane) -> Result<Vec<AuditEvent>> {
    let mut events = plane.audit_events()?;
    events.retain(|event| event.user_agent.starts_with("osmctl/"));
    Ok(events)
}

/// Runs osmctl with a kubeconfig of the user cluster, and another one of the home cluster.
async fn with_home(world: &World, home: &Path, namespace: &str, arguments: &[&str]) -> Result<Run> {
    let home = home.display().to_string();
    let flags = ["--home-kubeconfig", &home, "--home-namespace", namespace];
    osmctl(
        &world.plane.admin_kubeconfig_path(),
        &[arguments, &flags].concat(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_finds_settings_of_the_home_cluster() -> Result<()> {
    let world = a_published_pool().await?;
    let home = home(&world)?;
    let admin = home.admin_kubeconfig_path();
    let run = async |arguments: &[&str]| with_home(&world, &admin, HOME, arguments).await;

    let place = "cluster-a/osm-settings of the home cluster";
    let why = run(&["status", "workers"]).await?;
    why.expect(0, &["kube-system/workers is well.", place])?;
    let status = run(&["status", "-o", "json"]).await?.expect(0, &[])?.json()?;
    assert_eq!(status["pools"].as_array().map(Vec::len), Some(1), "{status}");
    assert_eq!(status["unread"], serde_json::json!([]), "{status}");
    run(&["diff", "--cluster"]).await?.expect(0, &[])?;
    run(&["show", "workers"]).await?.expect(0, &["bootstrap"])?;
    let refused = run(&["migrate", "check"]).await?;
    refused.expect(1, &["`osmctl migrate` supports no home cluster"])?;

    // Nothing else is read at home, and no Secret anywhere.
    for event in requests(home)? {
        let is_read = matches!(event.verb.as_str(), "get" | "list") && event.resource != "secrets";
        ensure!(
            is_read && (event.namespace == HOME || event.uri == "/version"),
            "{event:?}"
        );
    }
    let in_user_cluster = requests(&world.plane)?;
    ensure!(!in_user_cluster.is_empty());
    for event in in_user_cluster {
        let is_settings = event.resource == "configmaps" && event.namespace == NAMESPACE;
        let is_lease = event.resource == "leases";
        ensure!(
            !is_settings && !is_lease && event.resource != "secrets",
            "{event:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_reports_what_is_wrong_with_the_home_cluster_and_the_next_step() -> Result<()> {
    let world = a_published_pool().await?;
    let (user, home) = (world.plane.admin_kubeconfig_path(), home(&world)?);
    let admin = home.admin_kubeconfig_path();

    // Without the flags, the settings are looked for in the user cluster.
    let alone = osmctl(&user, &["status", "workers"]).await?;
    let flags = "select the home cluster of the services with --home-context and --home-namespace";
    alone.expect(1, &["waits for its settings: SettingsMissing", flags])?;
    let alone = osmctl(&user, &["diff", "--cluster"]).await?;
    alone.expect(2, &["ConfigMap osm/osm-settings does not exist", flags])?;

    let missing = "ConfigMap elsewhere/osm-settings of the home cluster does not exist";
    let check = "check --home-context, --home-namespace and --settings-config-map";
    for (command, code) in [(&["status", "workers"][..], 1), (&["diff", "--cluster"], 2)] {
        let run = with_home(&world, &admin, "elsewhere", command).await?;
        run.expect(code, &[missing, check])?;
    }

    // csr-approver reads Leases, and no settings.
    let few: PathBuf = home.identity(IDENTITIES, Service::CsrApprover.name()).await?;
    let forbidden = "cannot get configmaps osm-settings in namespace cluster-a of the home cluster: forbidden; \
         check --home-namespace, or ask the administrator of this cluster for the permission";
    let why = with_home(&world, &few, HOME, &["status", "workers"]).await?;
    why.expect(
        0,
        &[forbidden, "unknown    settings", "as far as it could be read"],
    )?;
    let diff = with_home(&world, &few, HOME, &["diff", "--cluster"]).await?;
    diff.expect(2, &[forbidden, "the settings of the cluster could not be read"])?;
    home.stop_apiserver().await?;
    let why = with_home(&world, &admin, HOME, &["status", "workers"]).await?;
    let away = "cannot get configmaps osm-settings in namespace cluster-a of the home cluster: ";
    why.expect(0, &[away, "as far as it could be read"])?;
    Ok(())
}
