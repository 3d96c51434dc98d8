//! The layout of KKP: the pods of a release in a namespace of a seed, everything else in a user cluster.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use osm_api::names::{CLOUD_INIT_SETTINGS, KUBE_SYSTEM};
use osm_api::rbac::Service;
use osm_testkit::{installation, provisioning};
use serde_json::{Value, json};

use super::lifecycle::{Lifecycle, NAME, values};
use super::objects;
use super::other_cluster::OtherCluster;
use super::pool::Pool;
use super::release::Release;

/// Namespace of the release in the seed.
const NAMESPACE: &str = "cluster-a";

const PROFILE: &str = "osp-ubuntu";

const IMAGE: &str = "registry.example.com/cluster-a/pause:1";

/// In a Secret of the seed, which the settings name.
const PASSWORD: &str = "password-from-the-seed";

/// Installs both releases, publishes a pool, replaces every pod, and uninstalls both releases.
pub async fn play(lifecycle: &Lifecycle<'_>) -> Result<()> {
    let seed = &lifecycle.cluster.control_plane;
    let before = objects::all(lifecycle.cluster).await?;
    let user = OtherCluster::start().await?;
    let there = Release::new(&user.plane, NAME, KUBE_SYSTEM).await?;
    there.install(&json!({"topology": "user"})).await?;

    let kubeconfigs = user
        .kubeconfigs(Service::ALL.into_iter(), KUBE_SYSTEM, lifecycle, NAMESPACE)
        .await?;
    let registry = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry", "namespace": NAMESPACE},
        "stringData": {"username": "user", "password": PASSWORD}});
    installation::apply(seed, &[registry]).await?;
    let home = Release::new(seed, NAME, NAMESPACE).await?;
    home.install(&home_values(json!(kubeconfigs))?).await?;
    lifecycle
        .progress
        .step("a release in a seed serves a user cluster: every pod is ready");

    let client = user.plane.admin()?;
    let mut pool = Pool::create(&client, "pool", PROFILE).await?;
    let published = pool.published(&client, KUBE_SYSTEM).await?;
    let published = published.status.and_then(|status| status.published);
    let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let secret = secrets
        .get(&published.context("published")?.provisioning_secret)
        .await?;
    let document = provisioning::document(secret)?;
    ensure!(
        document.contains(IMAGE) && document.contains(PASSWORD),
        "the settings of the seed, and the Secret that they name, are not in the document"
    );
    ensure!(
        pool.user_data().await?.starts_with("#cloud-config"),
        "a machine would not boot with this"
    );
    let outside: Vec<_> = objects::all(lifecycle.cluster)
        .await?
        .difference(&before)
        .filter(|(kind, namespace, name)| {
            namespace != NAMESPACE && !(kind == "Namespace" && name == NAMESPACE)
        })
        .cloned()
        .collect();
    ensure!(
        outside.is_empty(),
        "in the seed, outside its namespace: {outside:?}"
    );
    lifecycle
        .progress
        .step("a MachineDeployment of the user cluster is published, with a password of the seed");

    let pods = [
        "delete",
        "pods",
        "--all",
        "--namespace",
        NAMESPACE,
        "--wait=false",
    ];
    lifecycle.cluster.kubectl(&pods).await?;
    pool.change().await?;
    pool.published(&client, KUBE_SYSTEM).await?;
    pool.delete().await?;
    home.uninstall().await?;
    there.uninstall().await?;
    lifecycle
        .progress
        .step("it works on after all pods were deleted, and both releases are uninstalled");
    Ok(())
}

fn home_values(kubeconfigs: Value) -> Result<Value> {
    let mut values = values(IMAGE, 1);
    let fields = values.as_object_mut().context("values")?;
    let settings = fields.get_mut("settings").and_then(Value::as_object_mut);
    settings.context("settings")?.insert(
        "containerd".to_owned(),
        json!({"registries": [{"host": "registry.example.com", "credentials": {"namespace": NAMESPACE, "name": "registry"}}]}),
    );
    fields.insert("topology".to_owned(), json!("home"));
    fields.insert(
        "workerCluster".to_owned(),
        json!({"namespace": KUBE_SYSTEM, "kubeconfigs": kubeconfigs}),
    );
    Ok(values)
}
