//! An installation of osp-controller: a namespace, its settings, an identity with exactly the rights of the table, and the binary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use osm_api::OperatingSystemProfile;
use osm_api::condition::{self, ACCEPTED};
use osm_api::rbac::{Grant, Installation, Service as Identity};
use osm_testkit::process::ScratchDir;
use osm_testkit::{ControlPlane, Service, wait_for};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Deadline of every wait; far more than any takes, because tests share the machine.
pub const SOON: Duration = Duration::from_secs(180);

/// One installation in a namespace of its own.
pub struct Site {
    pub namespace: String,
    pub client: Client,
    pub profiles: Api<OperatingSystemProfile>,
    kubeconfig: PathBuf,
    // Dropped before the directory that it logs to.
    service: Option<Service>,
    logs: u32,
    directory: ScratchDir,
}

impl Site {
    /// Everything but the running service, with the rights of the table.
    pub async fn prepare(control_plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let client = control_plane.admin()?;
        let installation = Installation {
            namespace: namespace.to_owned(),
            ..Installation::default()
        };
        let mut objects = vec![
            serde_json::to_value(OperatingSystemProfile::crd())?,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "osp-controller", "namespace": namespace}}),
        ];
        for grant in Identity::OspController.grants(&installation) {
            objects.extend(role(namespace, grant)?);
        }
        for object in objects {
            control_plane.apply_yaml(&object.to_string()).await?;
        }
        let directory = ScratchDir::new("osp-controller-")?;
        let profiles = Api::namespaced(client.clone(), namespace);
        let kubeconfig = control_plane.identity(namespace, "osp-controller").await?;
        let site = Self {
            namespace: namespace.to_owned(),
            client,
            profiles,
            kubeconfig,
            service: None,
            logs: 0,
            directory,
        };
        site.settings("").await?;
        let token = control_plane.token(namespace, "osp-controller").await?;
        let own = Api::<OperatingSystemProfile>::namespaced(control_plane.client(&token)?, namespace);
        wait_for("rights", SOON, async || {
            Ok(Some(own.list(&ListParams::default()).await?))
        })
        .await?;
        Ok(site)
    }

    pub async fn start(control_plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let mut site = Self::prepare(control_plane, namespace).await?;
        site.run()?;
        Ok(site)
    }

    pub fn run(&mut self) -> Result<()> {
        let arguments = [
            format!("--namespace={}", self.namespace),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            "--listen=127.0.0.1:0".to_owned(),
        ];
        self.logs += 1;
        let binary = Path::new(env!("CARGO_BIN_EXE_osp-controller"));
        self.service = Some(Service::spawn(
            binary,
            arguments,
            [("OSM_LOG", "info")],
            &self.log_file(),
        )?);
        Ok(())
    }

    /// Asks the service to end, and waits until it has.
    pub async fn terminate(&mut self) -> Result<()> {
        let status = self
            .service
            .as_mut()
            .context("it does not run")?
            .terminate(SOON)
            .await?;
        anyhow::ensure!(status.success(), "{status}");
        Ok(())
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join(format!("{}.log", self.logs))
    }

    /// Waits for `condition`; a failure shows what the service has said last.
    pub async fn wait<T>(&self, what: &str, condition: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let tail = || {
            self.service
                .as_ref()
                .map(|service| service.log_tail(15))
                .unwrap_or_default()
        };
        wait_for(what, SOON, condition)
            .await
            .with_context(|| format!("osp-controller's last lines:\n{}", tail()))
    }

    /// Status code and body of an answer of the admin server.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let logs = std::fs::read_to_string(self.log_file())?;
        let lines = logs
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let address = lines
            .into_iter()
            .find_map(|line| line.get("address")?.as_str().map(str::to_owned));
        let mut stream = TcpStream::connect(address.context("it does not listen yet")?).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("not HTTP")?;
        let code = head.split(' ').nth(1).context("not HTTP")?.parse()?;
        Ok((code, body.to_owned()))
    }

    /// Waits until `/readyz` says that it is ready.
    pub async fn ready(&self) -> Result<()> {
        self.wait("readiness", async || {
            let (code, body) = self.get("/readyz").await?;
            anyhow::ensure!(code == 200, "{body}");
            Ok(Some(()))
        })
        .await
    }

    pub async fn settings(&self, text: &str) -> Result<()> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "osm-settings", "namespace": self.namespace}, "data": {"settings.yaml": text}});
        let maps =
            Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        maps.patch(
            "osm-settings",
            &PatchParams::apply("person").force(),
            &Patch::Apply(&map),
        )
        .await?;
        Ok(())
    }

    pub async fn create(&self, name: &str, spec: Value) -> Result<()> {
        let object = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object)?;
        let resource = kube::core::ApiResource::erase::<OperatingSystemProfile>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        wait_for("the kind to be served", SOON, async || {
            match api.create(&PostParams::default(), &object).await {
                Ok(_) => Ok(Some(Ok(()))),
                Err(kube::Error::Api(status)) if status.code != 404 => {
                    Ok(Some(Err(kube::Error::Api(status))))
                }
                Err(error) => Err(error.into()),
            }
        })
        .await??;
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
        let events = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let about = |event: &Event| event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name);
        Ok(events
            .list(&ListParams::default())
            .await?
            .items
            .into_iter()
            .filter(about)
            .collect())
    }
}

fn role(namespace: &str, grant: Grant) -> Result<[Value; 2]> {
    let place = grant
        .namespace
        .context("osp-controller has no rights in the whole cluster")?;
    let rules: Vec<_> = grant.rights.into_iter().map(|right| right.rule).collect();
    let api = "rbac.authorization.k8s.io";
    // Several sites have a Role in kube-system.
    let name = format!("osp-controller-{namespace}");
    let metadata = json!({"name": name, "namespace": place});
    Ok([
        json!({"apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}),
        json!({"apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "osp-controller", "namespace": namespace}]}),
    ])
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
    let conditions = profile
        .status
        .as_ref()
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default();
    let found = condition::find(conditions, ACCEPTED);
    found
        .map(|accepted| (accepted.reason.clone(), accepted.message.clone()))
        .unwrap_or_default()
}

pub fn version(profile: &OperatingSystemProfile) -> String {
    profile.resource_version().unwrap_or_default()
}
