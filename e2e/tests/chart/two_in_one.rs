//! Two releases in one namespace would serve the same pools: Helm refuses the second one, with an explanation from the chart.

use anyhow::{Result, ensure};
use osm_testkit::helm::{Helm, REGISTRY, chart};
use osm_testkit::{ControlPlane, Options};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn the_second_release_in_a_namespace_is_refused() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let helm = Helm::new(&control_plane).await?;
    let chart = chart().display().to_string();
    // Somebody else's is no release of ours.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "osm"}});
    let labels = json!({"app.kubernetes.io/name": "other", "app.kubernetes.io/instance": "other", "app.kubernetes.io/component": "osc-controller"});
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other", "namespace": "osm", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "other", "image": "other"}]}}}});
    for object in [namespace, other] {
        control_plane.apply_yaml(&object.to_string()).await?;
    }
    let install = async |verb: &str, release: &str, namespace: &str| {
        let own = format!("--set=settingsConfigMap.name=settings-of-{release},image.registry={REGISTRY}");
        helm.run([
            verb,
            release,
            &chart,
            "--namespace",
            namespace,
            "--create-namespace",
            "--set=crds.enabled=false",
            &own,
        ])
        .await
    };
    install("install", "one", "osm").await?;
    install("upgrade", "one", "osm").await?;
    let Err(error) = install("install", "two", "osm").await else {
        anyhow::bail!("both are installed")
    };
    let sentence = "namespace osm has release one, which serves the same MachineDeployments and profiles: \
                    install each release into a separate namespace";
    ensure!(format!("{error:#}").contains(sentence), "{error:#}");
    install("install", "two", "another").await?;
    Ok(())
}
