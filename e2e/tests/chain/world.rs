//! One control plane, or a seed and its only user cluster, with the services, and helpers for what the tests do
//! to them.

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::profile::OperatingSystemProfile;
use osm_api::rbac::{Installation, Service};
use osm_api::{MachineDeployment, condition};
use osm_testkit::fixtures;
pub use osm_testkit::fixtures::{UserData, machine_deployment, parse};
use osm_testkit::installation::{self, Installed};
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::{ControlPlane, Options, check, machine_controller, provisioning, wait_for};
use serde_json::{Value, json};

/// Generous: the machine may be busy. Nothing ever waits for a time, only for a condition until this
/// deadline.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// What keeps a namespace from going.
const HOLD: &str = "hold";

/// Namespace of the installation in these tests: one that can be deleted.
pub const NAMESPACE: &str = "osm";

/// A further namespace of profiles.
pub const TEAM: &str = "team";

/// The profile of [`tiny`] in the installation's namespace.
pub fn profile(name: &str, version: &str, text: &str) -> Value {
    fixtures::profile(NAMESPACE, name, version, text)
}

/// Secret with the token without end of the upstream OSM.
pub const GETTER_TOKEN: &str = "cloud-init-getter-token";

/// Of the upstream OSM: an account with a token without end, and a Role that opens every Secret.
pub fn getter() -> [Value; 4] {
    let metadata = |name: &str| json!({"name": name, "namespace": CLOUD_INIT_SETTINGS});
    let rbac = "rbac.authorization.k8s.io";
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("cloud-init-getter")}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {"name": GETTER_TOKEN, "namespace": CLOUD_INIT_SETTINGS,
                    "annotations": {"kubernetes.io/service-account.name": "cloud-init-getter"}}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata("cloud-init-getter"),
                "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata("cloud-init-getter"),
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "cloud-init-getter"},
                "subjects": [{"kind": "ServiceAccount", "name": "cloud-init-getter"}]}),
    ]
}

pub struct World {
    /// The only cluster, or the user cluster.
    pub plane: ControlPlane,
    pub seed: Option<ControlPlane>,
    pub client: Client,
    /// To the cluster of profiles and configs.
    pub managed: Client,
    pub installed: Installed,
}

impl World {
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates what stands in every cluster of the upstream OSM.
    pub async fn leave_a_getter(&self) -> Result<()> {
        for object in getter() {
            self.apply(&object).await?;
        }
        Ok(())
    }

    pub fn configs(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(self.managed.clone(), NAMESPACE)
    }

    pub fn profiles(&self) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.managed.clone(), NAMESPACE)
    }

    pub fn secrets(&self) -> Api<Secret> {
        self.api(CLOUD_INIT_SETTINGS)
    }

    pub fn pools(&self) -> Api<MachineDeployment> {
        self.api("kube-system")
    }

    /// Applies an object in the cluster that it belongs into.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let is_in = |namespaces: &[&str]| {
            let own = &object["metadata"]["namespace"];
            namespaces.iter().any(|namespace| own == namespace)
        };
        let managed = self.seed.as_ref().filter(|_| is_in(&[NAMESPACE, TEAM]));
        let plane = managed.unwrap_or(&self.plane);
        plane.apply_yaml(&object.to_string()).await.map(drop)
    }

    /// Creates a profile and waits until osp-controller has accepted it.
    pub async fn accepted_profile(&self, name: &str, version: &str, text: &str) -> Result<()> {
        self.apply(&profile(name, version, text)).await?;
        wait_for("the profile to be accepted", DEADLINE, async || {
            let status = self.profiles().get(name).await?.status.unwrap_or_default();
            Ok(status
                .accepted
                .filter(|accepted| accepted.version == version)
                .map(drop))
        })
        .await
    }

    /// Creates a MachineDeployment in kube-system that names a profile.
    pub async fn pool(&self, name: &str, profile: &str) -> Result<()> {
        self.apply(&machine_deployment(name, profile)).await
    }

    /// What machine-controller does once it has made the MachineSet of a revision.
    pub async fn stamp(&self, name: &str, revision: u64) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {names::REVISION: revision.to_string()}}});
        self.patch_pool(name, patch).await
    }

    pub async fn patch_pool(&self, name: &str, patch: Value) -> Result<()> {
        self.pools()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    pub async fn config(&self, pool: &str) -> Result<OperatingSystemConfig> {
        Ok(self
            .configs()
            .get(&names::config_name(pool, "kube-system"))
            .await?)
    }

    pub async fn bootstrap(&self, pool: &str) -> Result<Secret> {
        Ok(self
            .secrets()
            .get(&names::bootstrap_secret_name(pool, "kube-system"))
            .await?)
    }

    /// Waits until machine-controller could make a machine of this revision, and a node fetch its document;
    /// gives what it boots with.
    pub async fn machine(&self, pool: &str, revision: u64) -> Result<UserData> {
        self.machine_with(pool, revision, |_| true).await
    }

    /// As [`Self::machine`], with more to wait for.
    pub async fn machine_with(
        &self,
        pool: &str,
        revision: u64,
        good: impl Fn(&UserData) -> bool,
    ) -> Result<UserData> {
        let what = format!("user data of {pool} at revision {revision}");
        let found = wait_for(&what, DEADLINE, async || {
            let user_data = self.user_data(pool, revision).await?;
            if !good(&user_data) {
                return Ok(None);
            }
            self.fetch(&user_data).await?;
            Ok(Some(user_data))
        });
        match found.await {
            Ok(found) => Ok(found),
            Err(error) => {
                let status = self.config(pool).await.ok().and_then(|config| config.status);
                Err(error.context(format!(
                    "{pool}: {}\n{}",
                    serde_json::to_string_pretty(&status)?,
                    self.installed.logs()
                )))
            }
        }
    }

    async fn user_data(&self, pool: &str, revision: u64) -> Result<UserData> {
        let secret = self.bootstrap(pool).await?;
        let text = machine_controller::user_data(&secret, &revision.to_string(), &format!("{pool}-machine"))?;
        parse(text)
    }

    /// Fetches the provisioning document as the node would, with the node's own token, and checks its digest.
    pub async fn fetch(&self, user_data: &UserData) -> Result<String> {
        provisioning::fetch(&self.plane, user_data).await
    }

    /// Waits for a condition of a pool's config; gives its message.
    pub async fn says(&self, pool: &str, type_: &str, status: bool, reason: &str) -> Result<String> {
        let (wanted, what) = (
            if status { "True" } else { "False" },
            format!("{type_}={status}/{reason} of {pool}"),
        );
        wait_for(&what, DEADLINE, async || {
            let conditions = self.config(pool).await?.status.unwrap_or_default().conditions;
            match condition::find(&conditions, type_) {
                Some(found) if found.reason == reason && found.status == wanted => {
                    Ok(Some(found.message.clone()))
                }
                other => bail!("{other:?}"),
            }
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }

    /// Waits for an Event with this reason about an object of this name; gives its note.
    pub async fn event(&self, namespace: &str, about: &str, reason: &str) -> Result<String> {
        wait_for(
            &format!("an Event {reason} about {about}"),
            DEADLINE,
            async || {
                let (here, there) = (self.client.clone(), self.managed.clone());
                let mut events = Api::<Event>::namespaced(here, namespace)
                    .list(&ListParams::default())
                    .await?
                    .items;
                events.extend(
                    Api::namespaced(there, namespace)
                        .list(&ListParams::default())
                        .await?,
                );
                let found = events.into_iter().find(|event| {
                    event.reason.as_deref() == Some(reason)
                        && event
                            .regarding
                            .as_ref()
                            .and_then(|regarding| regarding.name.as_deref())
                            == Some(about)
                });
                Ok(found.map(|event| event.note.unwrap_or_default()))
            },
        )
        .await
    }

    pub async fn delete<K>(&self, api: &Api<K>, name: &str) -> Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Names of everything that was made for any pool in cloud-init-settings.
    pub async fn made(&self) -> Result<Vec<String>> {
        use k8s_openapi::api::core::v1::ServiceAccount;
        use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
        async fn list<K>(api: Api<K>, kind: &str) -> Result<Vec<String>>
        where
            K: Clone + serde::de::DeserializeOwned + std::fmt::Debug + kube::Resource<DynamicType = ()>,
        {
            let found = api.list(&ListParams::default().labels(names::POOL)).await?;
            Ok(found
                .items
                .iter()
                .map(|item| format!("{kind} {}", item.name_any()))
                .collect())
        }
        let mut all = list(self.secrets(), "Secret").await?;
        all.extend(list::<ServiceAccount>(self.api(CLOUD_INIT_SETTINGS), "ServiceAccount").await?);
        all.extend(list::<Role>(self.api(CLOUD_INIT_SETTINGS), "Role").await?);
        all.extend(list::<RoleBinding>(self.api(CLOUD_INIT_SETTINGS), "RoleBinding").await?);
        Ok(all)
    }

    /// Watches bootstrap Secrets from now on.
    pub async fn observe(&self) -> Result<SecretWatch> {
        SecretWatch::start(self.client.clone()).await
    }
}

/// Settings with which osp-controller installs and validates one default profile, which takes less time than
/// all of them. A document that is not a mapping stays as it is.
fn with_one_default_profile(document: &str) -> String {
    let others = json!({"disabled": ["amzn2", "centos", "flatcar", "rhel", "rockylinux"]});
    let document = if document.is_empty() { "{}" } else { document };
    match serde_saphyr::from_str::<serde_json::Map<String, Value>>(document) {
        Ok(mut settings) => {
            settings.entry("defaultProfiles").or_insert(others);
            Value::from(settings).to_string()
        }
        Err(_) => document.to_owned(),
    }
}

/// The installation of these tests.
pub fn installation() -> Installation {
    Installation {
        namespace: NAMESPACE.to_owned(),
        profile_namespaces: vec![TEAM.to_owned()],
        ..Installation::default()
    }
}

impl World {
    pub async fn start(options: Options) -> Result<Self> {
        let mut world = Self::start_without_services(options).await?;
        world.installed.start_all().await?;
        Ok(world)
    }

    pub async fn start_without_services(options: Options) -> Result<Self> {
        Self::start_as_without_services(options, installation()).await
    }

    pub async fn start_as_without_services(options: Options, installation: Installation) -> Result<Self> {
        let binaries = installation::binaries()?;
        let plane = ControlPlane::start(options).await?;
        let installed = Installed::install(&plane, installation, &binaries).await?;
        let world = Self {
            client: plane.admin()?,
            managed: plane.admin()?,
            plane,
            seed: None,
            installed,
        };
        world.set_settings("").await?;
        Ok(world)
    }

    pub async fn restart(&mut self, services: &[Service]) -> Result<()> {
        for service in services {
            self.installed.terminate(*service, DEADLINE).await?;
            self.installed.start(*service).await?;
        }
        Ok(())
    }

    pub async fn set_settings(&self, document: &str) -> Result<()> {
        self.apply(&self.settings(document)).await
    }

    fn settings(&self, document: &str) -> Value {
        let document = with_one_default_profile(document);
        installation::settings(self.installed.installation(), &document)
    }

    /// Deletes a namespace, which stays `Terminating` until [`Self::delete_namespace`] is called, because of
    /// an object in it.
    pub async fn start_deleting_namespace(&self, name: &str) -> Result<()> {
        let hold = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": HOLD, "namespace": name, "finalizers": ["example.com/hold"]}});
        self.apply(&hold).await?;
        self.delete(&Api::<Namespace>::all(self.client.clone()), name)
            .await
    }

    /// Deletes a namespace, and waits until it is gone. The world needs the controller `namespace`.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let (namespaces, held) = (
            Api::<Namespace>::all(self.client.clone()),
            self.api::<ConfigMap>(name),
        );
        match held.get_opt(HOLD).await? {
            Some(_) => {
                let release = json!({"metadata": {"finalizers": null}});
                held.patch(HOLD, &PatchParams::default(), &Patch::Merge(&release))
                    .await?;
            }
            None => self.delete(&namespaces, name).await?,
        }
        wait_for("the namespace to go", DEADLINE, async || {
            check(namespaces.get_opt(name).await?.is_none())
        })
        .await
    }

    /// Brings a namespace back with what the installation has in it.
    pub async fn restore_namespace(&self, name: &str) -> Result<()> {
        let of = |object: &&Value| {
            object["metadata"]["namespace"] == name
                || (object["kind"] == "Namespace" && object["metadata"]["name"] == name)
        };
        let mut objects = installation::manifests(self.installed.installation());
        if name == NAMESPACE {
            objects.push(self.settings(""));
        }
        let objects: Vec<Value> = objects.iter().filter(of).cloned().collect();
        installation::apply(&self.plane, &objects).await
    }

    pub async fn delete_crd(&self, name: &str) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        self.delete(&crds, name).await?;
        wait_for("the CRD to go", DEADLINE, async || {
            check(crds.get_opt(name).await?.is_none())
        })
        .await
    }

    /// Takes a field of the spec out of a CustomResourceDefinition, as an older version of it, and waits
    /// until the API server shows that.
    pub async fn drop_field(&self, kind: &str, name: &str, field: &str) -> Result<()> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        let patch = serde_json::from_value(json!([
            // Rules that speak of the field.
            {"op": "remove", "path": format!("{spec}/x-kubernetes-validations")},
            {"op": "remove", "path": format!("{spec}/properties/{field}")},
        ]))?;
        crds.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch))
            .await?;
        wait_for("the older definition to be served", DEADLINE, async || {
            let url = format!("/openapi/v3/apis/{}/v1alpha1", names::GROUP);
            let request = http::Request::get(url).body(Vec::new())?;
            let document: Value = self.client.request(request).await?;
            let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
            let of_kind = schemas
                .into_iter()
                .flatten()
                .find(|(schema, _)| schema.rsplit('.').next() == Some(kind));
            let fields = of_kind.and_then(|(_, schema)| schema.pointer("/properties/spec/properties"));
            check(fields.is_some_and(|fields| fields.get(field).is_none()))
        })
        .await
    }

    pub async fn install_crds(&self) -> Result<()> {
        self.plane.install_crds(&installation::crds()).await
    }
}
