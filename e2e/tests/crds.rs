//! The CustomResourceDefinitions on a real server: what their rules reject and accept, with objects of the
//! upstream OSM stored before.

use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, WorkerCluster};
use osm_testkit::{ControlPlane, Options, installation};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// One server with our definitions, for tests that store nothing before them.
async fn ours() -> Result<&'static ControlPlane> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let control_plane = ControlPlane::shared().await?;
    INSTALLED
        .get_or_try_init(async || control_plane.install_crds(&installation::crds()).await)
        .await?;
    Ok(control_plane)
}

fn profiles(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &OperatingSystemProfile::api_resource())
}

fn configs(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "default", &OperatingSystemConfig::api_resource())
}

async fn patch(api: &Api<DynamicObject>, name: &str, patch: Value) -> Result<DynamicObject, kube::Error> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
}

/// Why the server refuses a patch; an error where it does not.
async fn refused(api: &Api<DynamicObject>, name: &str, change: Value) -> Result<String> {
    match patch(api, name, change.clone()).await {
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(status.message),
        other => bail!("{change} is not refused: {other:?}"),
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject> {
    Ok(api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?)
}

fn profile(name: &str) -> Value {
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
            "supportedCloudProviders": [{"name": "aws"}],
            "bootstrapConfig": {"modules": {"runcmd": ["one"]}},
        },
    })
}

#[tokio::test]
async fn objects_of_the_upstream_osm_live_on_under_our_definitions() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let read = |name: &str| {
        std::fs::read_to_string(fixtures.join(name)).context(fixtures.join(name).display().to_string())
    };
    let client = control_plane.admin()?;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let installer = PostParams {
        field_manager: Some("installer".to_owned()),
        ..PostParams::default()
    };
    for theirs in serde_saphyr::from_multiple(&read("go-shaped.yaml")?)? {
        definitions.create(&installer, &theirs).await?;
    }
    let stored = control_plane.apply_yaml(&read("go-objects.yaml")?).await?;
    control_plane.install_crds(&installation::crds()).await?;
    let (profiles, configs) = (profiles(&client), configs(&client));

    // Server-side apply merges: what the schemas of another manager said, and ours say nothing about, could
    // stay.
    for ours in osm_api::definitions::all() {
        let served = definitions.get(&ours.name_any()).await?.spec.versions;
        let schemas = [&served, &ours.spec.versions]
            .map(|versions| -> Vec<_> { versions.iter().map(|version| &version.schema).collect() });
        assert_eq!(schemas[0], schemas[1], "{}", ours.name_any());
    }

    // Nothing is lost, and our types read it.
    let [old_profile, old_config] = stored.as_slice() else {
        panic!("{stored:?}")
    };
    let profile = profiles.get("stored").await?;
    let config = configs.get("pool-kube-system-config").await?;
    assert_eq!(
        profile.data["spec"]["bootstrapConfig"],
        old_profile.data["spec"]["bootstrapConfig"]
    );
    assert_eq!(
        profile.data["spec"]["provisioningConfig"]["supportedContainerRuntimes"],
        old_profile.data["spec"]["provisioningConfig"]["supportedContainerRuntimes"]
    );
    assert_eq!(
        profile.data["spec"]["supportedCloudProviders"],
        old_profile.data["spec"]["supportedCloudProviders"]
    );
    assert_eq!(profile.data["spec"]["templateEngine"], "GoTemplate");
    assert_eq!(
        profile.data["spec"]["provisioningConfig"]["files"][0]["permissions"], 644,
        "the default"
    );
    assert_eq!(config.data["spec"], old_config.data["spec"]);
    let _: OperatingSystemProfile = serde_json::from_value(serde_json::to_value(&profile)?)?;
    let _: OperatingSystemConfig = serde_json::from_value(serde_json::to_value(&config)?)?;

    // Both can still be changed: metadata, and whose the config is.
    for (api, name) in [(&profiles, "stored"), (&configs, "pool-kube-system-config")] {
        patch(api, name, json!({"metadata": {"labels": {"a": "b"}}})).await?;
    }
    patch(
        &configs,
        "pool-kube-system-config",
        json!({"spec": {"poolRef": pool("1")}}),
    )
    .await?;
    let other = json!({"spec": {"poolRef": {"uid": "2"}}});
    let message = refused(&configs, "pool-kube-system-config", other).await?;
    assert!(message.contains("belongs to one pool"), "{message}");

    let message = refused(&profiles, "stored", json!({"spec": {"osVersion": "9"}})).await?;
    assert!(
        message.contains("give the changed profile a new version"),
        "{message}"
    );
    patch(
        &profiles,
        "stored",
        json!({"spec": {"osVersion": "9", "version": "v1.7.1"}}),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_profiles_spec_changes_only_with_its_version() -> Result<()> {
    let profiles = profiles(&ours().await?.admin()?);
    create(&profiles, profile("versions")).await?;
    for change in [
        json!({"osVersion": "22.04"}),
        json!({"supportedCloudProviders": []}),
        json!({"bootstrapConfig": {"files": [{"path": "/a", "content": {"inline": {"data": "a"}}}]}}),
        json!({"bootstrapConfig": {"templates": {"a": "b"}}}),
        // Fields that the schema does not know, which the rule must see nevertheless.
        json!({"bootstrapConfig": {"modules": {"runcmd": ["two"]}}}),
        json!({"bootstrapConfig": {"modules": {"bootcmd": ["one"]}}}),
        json!({"bootstrapConfig": {"modules": {"runcmd": null}}}),
        json!({"bootstrapConfig": {"modules": {"runcmd": null, "bootcmd": ["one"]}}}),
        json!({"templateEngine": "None"}),
        json!({"extends": "osp-ubuntu"}),
    ] {
        let message = refused(&profiles, "versions", json!({"spec": change.clone()})).await?;
        assert!(
            message.contains("give the changed profile a new version"),
            "{change}: {message}"
        );
    }
    patch(
        &profiles,
        "versions",
        json!({"spec": {"version": "v1.0.1", "bootstrapConfig": {"modules": {"runcmd": ["two"]}}}}),
    )
    .await?;
    for version in ["1.0.2", "v1.0", "latest"] {
        refused(&profiles, "versions", json!({"spec": {"version": version}})).await?;
    }
    Ok(())
}

#[tokio::test]
async fn modules_of_any_shape_are_kept_as_they_are() -> Result<()> {
    let profiles = profiles(&ours().await?.admin()?);
    let modules = json!({
        "ntp": null, "package_upgrade": true, "swap": {"size": 0, "options": {"a": [null, 1.5, "x"]}},
        "runcmd": ["a", ["b", 1]], "phone_home": "x",
    });
    let mut profile = profile("modules");
    profile["spec"]["bootstrapConfig"]["modules"] = modules.clone();
    let created = create(&profiles, profile).await?;
    assert_eq!(created.data["spec"]["bootstrapConfig"]["modules"], modules);
    refused(
        &profiles,
        "modules",
        json!({"spec": {"bootstrapConfig": {"modules": "a string"}, "version": "v2.0.0"}}),
    )
    .await?;
    Ok(())
}

/// The spec of a WorkerCluster, a change of it, and what refuses that.
fn changes_of_clusters() -> Vec<(Value, Value, Option<&'static str>)> {
    let mut rows = vec![
        (
            json!({}),
            json!({"joining": "never"}),
            Some("spec.joining: Unsupported value: \"never\""),
        ),
        (
            json!({}),
            json!({"settings": "a text"}),
            Some("spec.settings in body must be of type object"),
        ),
        (
            json!({}),
            json!({"profileNamespaces": ["A b"]}),
            Some("spec.profileNamespaces[0]"),
        ),
        (
            json!({"installation": "a", "workerNamespace": "a"}),
            json!({"joining": "static", "settings": {"pauseImage": "a"}, "profileNamespaces": ["a"]}),
            None,
        ),
    ];
    for (field, message) in [
        (
            "installation",
            "spec.installation can't be changed, added or removed",
        ),
        (
            "workerNamespace",
            "spec.workerNamespace can't be changed, added or removed",
        ),
    ] {
        let with = |value: Value| json!({field: value});
        rows.extend([
            (with(json!("a")), with(json!("b")), Some(message)),
            (json!({}), with(json!("a")), Some(message)),
            // Removed.
            (with(json!("a")), with(Value::Null), Some(message)),
            // Stored as null, which is the same as absent.
            (with(Value::Null), with(json!("a")), Some(message)),
        ]);
    }
    rows
}

#[tokio::test]
async fn a_worker_cluster_has_one_name_and_two_fields_that_never_change() -> Result<()> {
    let control_plane = ours().await?;
    let resource = WorkerCluster::api_resource();
    let clusters = Api::namespaced_with(control_plane.admin()?, "default", &resource);
    let cluster = |name: &str, spec: &Value| {
        json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": {"name": name}, "spec": spec})
    };
    let other = create(&clusters, cluster("other", &json!({}))).await.unwrap_err();
    assert!(
        format!("{other:#}").contains("must have the name worker; create one"),
        "{other:#}"
    );
    for (spec, change, expected) in changes_of_clusters() {
        create(&clusters, cluster("worker", &spec)).await?;
        let change = json!({"spec": change});
        match expected {
            Some(expected) => {
                let message = refused(&clusters, "worker", change).await?;
                assert!(message.contains(expected), "{spec}: {message}");
            }
            None => drop(patch(&clusters, "worker", change).await?),
        }
        clusters.delete("worker", &DeleteParams::default()).await?;
    }

    // A rule can't see null here, so the services refuse it.
    let settings = json!({"prxy": {"a": [null, 1]}, "proxy": null, "kubelet": {"featureGates": {"A": null}}});
    let created = create(&clusters, cluster("worker", &json!({"settings": settings}))).await?;
    assert_eq!(
        created.data["spec"],
        json!({"settings": settings, "joining": "approved"})
    );

    let condition = |type_: &str, reason: &str| json!({"type": type_, "reason": reason, "status": "True", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"clusterUID": "a", "conditions": [condition("Rendering", "Serving"),
        condition("Publishing", "KubeconfigMissing"), condition("Joining", "Unreachable")]});
    let both = json!({"status": status, "spec": {"joining": "static"}});
    assert_eq!(
        patch(&clusters, "worker", both.clone()).await?.data["status"],
        Value::Null
    );
    let written = clusters
        .patch_status("worker", &PatchParams::default(), &Patch::Merge(both))
        .await?;
    assert_eq!(written.data["status"], status);
    let _: WorkerCluster = serde_json::from_value(serde_json::to_value(&written)?)?;

    // What `kubectl get wc -A` prints.
    let request = http::Request::get("/apis/operatingsystemmanager.k8c.io/v1alpha1/workerclusters")
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = control_plane.admin()?.request(request.body(Vec::new())?).await?;
    let columns = table["columnDefinitions"].as_array().context("columns")?;
    let columns: Vec<_> = columns
        .iter()
        .filter(|column| column["priority"] == 0)
        .map(|column| &column["name"])
        .collect();
    assert_eq!(columns, ["Name", "Rendering", "Publishing", "Joining", "Age"]);
    let cells = table["rows"][0]["cells"].as_array().context("cells")?;
    assert_eq!(
        cells[..4],
        ["worker", "Serving", "KubeconfigMissing", "Unreachable"]
    );
    Ok(())
}

fn pool(uid: &str) -> Value {
    json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "namespace": "kube-system", "name": "pool", "uid": uid})
}
