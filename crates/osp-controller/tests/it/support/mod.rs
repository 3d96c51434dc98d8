//! An installation in a namespace of its own, of which osp-controller runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use osm_api::OperatingSystemProfile;
use osm_api::condition::{self, ACCEPTED};
use osm_api::rbac::{Installation, Service};
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, wait_for};
use serde_json::{Value, json};

/// Deadline of every wait; far more than any takes, because tests share the machine.
const SOON: Duration = Duration::from_secs(180);

pub struct Site<'a> {
    control_plane: &'a ControlPlane,
    client: Client,
    pub profiles: Api<OperatingSystemProfile>,
    installed: Installed,
}

impl<'a> Site<'a> {
    /// Everything but the running service.
    pub async fn prepare(control_plane: &'a ControlPlane, namespace: &str) -> Result<Self> {
        let client = control_plane.admin()?;
        let installation = Installation {
            namespace: namespace.to_owned(),
            ..Installation::default()
        };
        let binary = Path::new(env!("CARGO_BIN_EXE_osp-controller"));
        let binaries = binary.parent().context("a folder")?;
        Ok(Self {
            control_plane,
            profiles: Api::namespaced(client.clone(), namespace),
            client,
            installed: Installed::install(control_plane, installation, binaries).await?,
        })
    }

    pub async fn start(control_plane: &'a ControlPlane, namespace: &str) -> Result<Self> {
        let mut site = Self::prepare(control_plane, namespace).await?;
        site.run().await?;
        Ok(site)
    }

    pub async fn run(&mut self) -> Result<()> {
        self.installed.start(Service::OspController).await
    }

    /// Waits for `condition`; a failure shows what the service has said.
    pub async fn wait<T>(&self, what: &str, condition: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let waited = wait_for(what, SOON, condition).await;
        waited.with_context(|| self.installed.logs())
    }

    pub async fn metrics(&self) -> Result<String> {
        Ok(self.installed.get(Service::OspController, "/metrics").await?.1)
    }

    /// Waits until `/readyz` says that it is ready.
    pub async fn ready(&self) -> Result<()> {
        self.installed.ready(SOON).await
    }

    pub async fn settings(&self, text: &str) -> Result<()> {
        let settings = installation::settings(self.installed.installation(), text);
        installation::apply(self.control_plane, &[settings]).await
    }

    /// The API server adds the defaults.
    pub async fn create(&self, name: &str, spec: Value) -> Result<()> {
        let resource = ApiResource::erase::<OperatingSystemProfile>(&());
        let namespace = &self.installed.installation().namespace;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        api.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Changes a profile's spec by a merge patch, as a person would.
    pub async fn edit(&self, name: &str, spec: Value) -> Result<()> {
        let patch = json!({"spec": spec});
        self.profiles
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    /// Waits until a profile's newest generation has been judged so, and `also` holds; returns it.
    pub async fn judged(
        &self,
        name: &str,
        status: &str,
        also: impl Fn(&OperatingSystemProfile) -> bool,
    ) -> Result<OperatingSystemProfile> {
        self.wait(&format!("{name} to be judged {status}"), async || {
            let profile = self.profiles.get(name).await?;
            let judged = profile.status.clone().unwrap_or_default();
            let found = condition::find(&judged.conditions, ACCEPTED).context("no condition")?;
            let newest = judged.observed_generation == profile.metadata.generation
                && found.observed_generation == profile.metadata.generation;
            anyhow::ensure!(newest && found.status == status && also(&profile), "{found:?}");
            Ok(Some(profile))
        })
        .await
    }

    /// Waits for an Event about a profile; returns its note.
    pub async fn event(&self, name: &str, type_: &str, reason: &str) -> Result<String> {
        let what = format!("the Event {reason} about {name}");
        self.wait(&what, async || {
            let events = self.events(name).await?;
            let found = events.into_iter().find(|event| {
                event.reason.as_deref() == Some(reason) && event.type_.as_deref() == Some(type_)
            });
            Ok(found.map(|event| event.note.unwrap_or_default()))
        })
        .await
    }

    /// All Events about a profile.
    pub async fn events(&self, name: &str) -> Result<Vec<Event>> {
        let namespace = &self.installed.installation().namespace;
        let events = Api::<Event>::namespaced(self.client.clone(), namespace);
        let mut all = events.list(&ListParams::default()).await?.items;
        all.retain(|event| event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name));
        Ok(all)
    }
}

/// A small good profile, whose one file holds `text`.
pub fn profile(version: &str, text: &str) -> Value {
    json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": version, "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}],
        "provisioningConfig": {"files": [{"path": "/etc/motd", "content": {"inline": {"data": text}}}]},
    })
}

/// `spec.version` of what is accepted.
pub fn accepted(profile: &OperatingSystemProfile) -> Option<&str> {
    Some(profile.status.as_ref()?.accepted.as_ref()?.version.as_str())
}

/// Reason and message of the condition `Accepted`.
pub fn verdict(profile: &OperatingSystemProfile) -> (String, String) {
    let status = profile.status.clone().unwrap_or_default();
    let found = condition::find(&status.conditions, ACCEPTED).cloned();
    found
        .map(|accepted| (accepted.reason, accepted.message))
        .unwrap_or_default()
}
