//! osp-controller copies CustomOperatingSystemProfiles, with the rights of the table, and leaves profiles of
//! other authors alone.

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, CustomResourceExt, ResourceExt};
use osm_api::OperatingSystemProfile;
use osm_api::rbac::{Installation, Service};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, NAMESPACE, TEAM, World, installation, profile};

/// A definition as KKP has it: of the same fields, with neither rules nor a status.
pub fn definition() -> Result<Value> {
    let mut definition: CustomResourceDefinition = OperatingSystemProfile::crd();
    definition.metadata.name = Some("customoperatingsystemprofiles.operatingsystemmanager.k8c.io".to_owned());
    definition.spec.names = serde_json::from_value(json!({
        "kind": "CustomOperatingSystemProfile", "plural": "customoperatingsystemprofiles",
        "singular": "customoperatingsystemprofile", "shortNames": ["cosp"],
    }))?;
    let version = definition.spec.versions.first_mut().context("a version")?;
    (version.subresources, version.additional_printer_columns) = (None, None);
    let mut definition = serde_json::to_value(definition)?;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let spec = definition.pointer_mut(schema).and_then(Value::as_object_mut);
    let spec = spec.context("the schema of the spec")?;
    spec.remove("x-kubernetes-validations").context("the rule")?;
    let version = spec
        .get_mut("properties")
        .and_then(|fields| fields.pointer_mut("/version"))
        .and_then(Value::as_object_mut);
    version
        .context("the version")?
        .remove("pattern")
        .context("the pattern")?;
    Ok(definition)
}

pub fn custom(namespace: &str, name: &str, version: &str, text: &str) -> Value {
    let mut object = profile(name, version, text);
    object["kind"] = json!("CustomOperatingSystemProfile");
    object["metadata"]["namespace"] = json!(namespace);
    object
}

impl World {
    fn profiles_in(&self, namespace: &str) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.managed.clone(), namespace)
    }

    /// Waits until osp-controller has accepted the copy in this version.
    async fn copy(&self, namespace: &str, name: &str, version: &str) -> Result<OperatingSystemProfile> {
        let what = format!("{namespace}/{name} to be accepted in {version}");
        let found = wait_for(&what, DEADLINE, async || {
            let copy = self.profiles_in(namespace).get(name).await?;
            let accepted = copy.status.as_ref().and_then(|status| status.accepted.as_ref());
            let is_good =
                copy.spec.version == version && accepted.is_some_and(|found| found.version == version);
            Ok(is_good.then_some(copy))
        });
        found.await.map_err(|error| error.context(self.installed.logs()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_profiles_are_copied_and_followed() -> Result<()> {
    let installation = Installation {
        custom_profiles: true,
        ..installation()
    };
    let mut world = World::start_as_without_services(Options::default(), installation).await?;
    world.installed.start(Service::OspController).await?;
    // Without KKP's definition, osp-controller is not ready and does everything else.
    let missing = wait_for("the missing definition to be reported", DEADLINE, async || {
        let (code, body) = world.installed.get(Service::OspController, "/readyz").await?;
        Ok((code == 503 && body.contains("CustomOperatingSystemProfile is missing")).then_some(body))
    });
    let body = missing.await?;
    ensure!(body.contains("--custom-profiles"), "{body}");
    world.accepted_profile("osp-other", "v1.0.0", "other\n").await?;

    // It appears, and is followed in each namespace.
    world.apply(&definition()?).await?;
    for namespace in [NAMESPACE, TEAM] {
        let applied = wait_for("the definition to be served", DEADLINE, async || {
            world.apply(&custom(namespace, "mine", "v1.0.0", "one\n")).await?;
            Ok(Some(()))
        });
        applied.await?;
        let copy = world.copy(namespace, "mine", "v1.0.0").await?;
        let [owner] = copy.owner_references() else {
            anyhow::bail!("{copy:?}")
        };
        ensure!(owner.kind == "CustomOperatingSystemProfile");
        world.apply(&custom(namespace, "mine", "v1.1.0", "two\n")).await?;
        world.copy(namespace, "mine", "v1.1.0").await?;
    }
    wait_for("osp-controller to be ready", DEADLINE, async || {
        check(world.installed.is_ready(Service::OspController).await)
    })
    .await?;

    // A copy that someone deletes is restored.
    let copy = world.profiles().get("mine").await?;
    world.delete(&world.profiles(), "mine").await?;
    wait_for("another copy", DEADLINE, async || {
        check(world.profiles().get("mine").await?.metadata.uid != copy.metadata.uid)
    })
    .await
}
