//! Views of the watched objects. They keep only what decisions need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use osm_api::config::{OperatingSystemConfig, OperatingSystemConfigStatus, RequestedProfile, Stored};
use osm_api::content::RenderedFor;
use osm_api::machine_deployment::MachineDeploymentSpec;
use osm_api::pool::PoolError;
use osm_api::pool_settings::PoolSettings;
use osm_api::profile::{
    AcceptedProfile, CloudProvider, OperatingSystemProfile, OperatingSystemProfileStatus,
};
use osm_api::rbac::Installation;
use osm_api::{MachineDeployment, Pool, PoolRef, Reason, condition, names, pool};
use osm_runtime::cache::Cache;
use osm_runtime::object::Unreadable;
use osm_runtime::watch;
use serde::de::IgnoredAny;
use tokio::time::Instant;

/// An OperatingSystemConfig without its documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigView {
    /// Without managed fields, to save memory.
    pub metadata: ObjectMeta,
    /// Absent on objects that the upstream OSM made.
    pub rendered_for: Option<RenderedFor>,
    /// Whether the spec says whose it is and nothing else.
    pub has_bare_spec: bool,
    /// Whether it can't be decoded. The other fields have what can be.
    pub is_unreadable: bool,
    /// Without the documents, to save memory.
    pub status: OperatingSystemConfigStatus,
}

impl ConfigView {
    pub fn of(mut config: OperatingSystemConfig) -> Self {
        if let Some(status) = &mut config.status {
            status.rendered = status.rendered.take().map(Stored::without_documents);
        }
        let (rendered_for, has_bare_spec) = (config.rendered_for(), config.has_bare_spec());
        let mut metadata = config.metadata;
        metadata.managed_fields = None;
        Self {
            metadata,
            rendered_for,
            has_bare_spec,
            is_unreadable: false,
            status: config.status.unwrap_or_default(),
        }
    }

    /// The view of a config that can't be decoded. It is rendered again, and its spec is replaced.
    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let mut config = OperatingSystemConfig::new("", unreadable.part("spec"));
        config.metadata = unreadable.metadata.clone();
        config.status = Some(unreadable.part("status"));
        // Whatever else is there has to go, even if it is what can't be decoded.
        let fields: BTreeMap<String, IgnoredAny> = unreadable.part("spec");
        Self {
            has_bare_spec: fields.keys().eq(["poolRef"]),
            is_unreadable: true,
            ..Self::of(config)
        }
    }

    /// The part that others than this controller write.
    pub fn written_by_others(&self) -> impl PartialEq {
        let published = condition::find(&self.status.conditions, condition::PUBLISHED).cloned();
        (
            self.metadata.uid.clone(),
            self.metadata.generation,
            published,
            self.status.published.clone(),
        )
    }

    /// Whether secret-syncer has published what is rendered, and nothing else happened since `old`. Then
    /// there is nothing to do: most changes of a config are such, and rendering its pool again takes most of
    /// the time of a reconcile.
    pub fn is_only_published_since(&self, old: &Self) -> bool {
        let published = condition::find(&self.status.conditions, condition::PUBLISHED);
        let rendered = self.status.rendered.as_ref();
        published.is_some_and(|published| published.status == "True")
            && rendered.is_some_and(|rendered| self.is_published(rendered))
            // Otherwise the conversion of the upstream OSM's form waits for the publish.
            && self.has_bare_spec
            && self.without_published() == old.without_published()
    }

    fn without_published(&self) -> Self {
        let mut view = self.clone();
        view.metadata.resource_version = None;
        view.status.published = None;
        let conditions = &mut view.status.conditions;
        let of_syncer = [condition::PUBLISHED, condition::READY];
        conditions.retain(|condition| !of_syncer.contains(&condition.type_.as_str()));
        view
    }

    /// Its resourceVersion, with which a write fails if it has changed since.
    pub fn version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    pub fn pool_uid(&self) -> Option<&str> {
        self.rendered_for.as_ref().map(|of| of.pool.uid.as_str())
    }

    /// The address of the API server that its content was last rendered with.
    pub fn api_server(&self) -> Option<&str> {
        self.status.rendered.as_ref()?.api_server.as_deref()
    }

    /// uid of the cluster that it was created for.
    pub fn made_in(&self) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(names::CLUSTER_UID)
            .map(String::as_str)
    }

    /// Whether the upstream OSM created it and this controller has not rendered it yet.
    pub fn is_of_the_upstream_osm(&self) -> bool {
        let mut names = names::GO_CONFIG_ANNOTATIONS.iter();
        let annotations = self.metadata.annotations.as_ref();
        self.rendered_for.is_none()
            && annotations.is_some_and(|annotations| names.any(|name| annotations.contains_key(*name)))
    }

    /// Whether exactly this is published.
    pub fn is_published(&self, rendered: &Stored) -> bool {
        let published = self.status.published.as_ref();
        published.is_some_and(|published| published.digest == rendered.digest)
    }

    /// Whether secret-syncer found the documents to be altered.
    pub fn is_altered(&self) -> bool {
        condition::find(&self.status.conditions, condition::PUBLISHED)
            .is_some_and(|published| Reason::ContentModified.as_str() == published.reason)
    }

    /// Whether `status.retired` declares its pool gone.
    pub fn is_retired(&self) -> bool {
        self.status
            .retired
            .as_ref()
            .is_some_and(|retired| Some(retired.uid.as_str()) == self.pool_uid())
    }

    /// Whether secret-syncer has deleted everything that it made for the retired pool.
    pub fn is_torn_down(&self) -> bool {
        self.is_retired()
            && condition::find(&self.status.conditions, condition::PUBLISHED)
                .is_some_and(|published| condition::REASON_DELETED == *published.reason)
    }
}

/// An OperatingSystemProfile without its spec: only what was accepted is rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileView {
    pub generation: i64,
    /// Generation that osp-controller has validated.
    pub judged: i64,
    pub accepted: Option<AcceptedProfile>,
    /// Why the newest generation is not accepted.
    pub refusal: Option<String>,
    /// Since when an edit of it waits to be validated, if one does.
    pub since: Instant,
}

impl ProfileView {
    /// The view of a profile of which the cache may have an older view.
    pub fn of(profile: OperatingSystemProfile, known: &Cache<Self>) -> Self {
        Self::new(&profile.metadata, profile.status.unwrap_or_default(), known)
    }

    /// The view of a profile that can't be decoded. Its spec is not needed.
    pub fn unreadable(unreadable: &Unreadable, known: &Cache<Self>) -> Self {
        let mut view = Self::new(&unreadable.metadata, unreadable.part("status"), known);
        if view.accepted.is_none() {
            view.refusal
                .get_or_insert_with(|| format!("it can't be read: {}", unreadable.problem));
        }
        view
    }

    fn new(metadata: &ObjectMeta, status: OperatingSystemProfileStatus, known: &Cache<Self>) -> Self {
        let refusal = condition::find(&status.conditions, condition::ACCEPTED)
            .filter(|accepted| accepted.status != "True")
            .map(|accepted| accepted.message.clone());
        // A pool waits only so long. Neither further edits nor a new list of the same profile prolong that.
        let known = known.get(&watch::key(metadata));
        let waiting = known.filter(|known| known.judged < known.generation);
        Self {
            generation: metadata.generation.unwrap_or(0),
            judged: status.observed_generation.unwrap_or(0),
            accepted: status.accepted,
            refusal,
            since: waiting.map_or_else(Instant::now, |known| known.since),
        }
    }
}

/// A MachineDeployment as it was read: its pool, or why it has none, and what else decisions need.
///
/// The watch and every live read of the whole object go through [`PoolView::of`]. The object itself is not
/// kept: its template is large, and can hold credentials of the cloud. What rendering needs is kept, and can
/// also be a credential: the subscription in `pool.os`, whose `Debug` shows no text, and
/// `pool.overwrite_cloud_config`. So a view is never logged.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    pub pool_ref: PoolRef,
    pub created: Timestamp,
    pub revision: Option<String>,
    /// SHA-256 of `spec.template`. It shows an edit that has no revision yet.
    pub template_digest: String,
    /// Every edit of the spec counts it up.
    pub generation: i64,
    /// Namespace and name of the profile: those that the annotations name, else the name of the default for
    /// its operating system and provisioning utility. They are known even where the rest of the pool cannot
    /// be read.
    pub wanted_profile: (Option<String>, Option<String>),
    /// Text of the annotation with the pool's settings.
    pub settings: Option<String>,
    /// ConfigMap in the pool's namespace that those settings name. It is kept because every change of a
    /// ConfigMap looks for its pools.
    pub settings_map: Option<String>,
    /// The cloud is known even where the rest of the pool cannot be read.
    pub cloud_provider: Option<CloudProvider>,
    pub pool: Result<Pool, PoolError>,
    /// Position of the upstream OSM's finalizer in `metadata.finalizers` of a MachineDeployment that is being
    /// deleted.
    pub go_finalizer_of_deleted: Option<usize>,
}

impl PoolView {
    pub fn of(md: &MachineDeployment) -> Self {
        // What is kept of every MachineDeployment is small. A longer annotation is an error of `pool`.
        let short = |key: &str| pool::short_annotation(md, key).ok()?.map(str::to_owned);
        let profile = short(names::PROFILE);
        let default_profile = || {
            let (system, utility) = pool::system(md)?;
            Some(osm_render::default_name(system.as_str(), utility))
        };
        let profile = profile.or_else(default_profile);
        let settings = pool::annotation(md, names::SETTINGS);
        let parsed = settings.and_then(|text| PoolSettings::parse(text).ok());
        let finalizer = md
            .finalizers()
            .iter()
            .position(|finalizer| finalizer == names::GO_FINALIZER);
        Self {
            pool_ref: PoolRef::from(md),
            // The API server records it with a resolution of one second.
            created: md
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::MAX, |time| time.0),
            revision: short(names::REVISION),
            template_digest: pool::template_digest(md),
            generation: md.metadata.generation.unwrap_or(0),
            wanted_profile: (short(names::PROFILE_NAMESPACE), profile),
            settings: settings.map(str::to_owned),
            settings_map: parsed.and_then(|settings| settings.config_map),
            cloud_provider: pool::cloud_provider(md),
            pool: Pool::read(md),
            go_finalizer_of_deleted: finalizer.filter(|_| md.metadata.deletion_timestamp.is_some()),
        }
    }

    /// The view of a MachineDeployment that can't be decoded. Its metadata can.
    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let mut md = MachineDeployment::new("", MachineDeploymentSpec::default());
        md.metadata = unreadable.metadata.clone();
        Self {
            pool: Err(PoolError::unreadable(&unreadable.problem.to_string())),
            ..Self::of(&md)
        }
    }

    /// The profiles that the pool asks for, of which it gets the first that exists: by annotation, else the
    /// default of its operating system and provisioning utility, or the alias of either. They differ only in
    /// the namespace. There is none if no annotation names it and the operating system cannot be read.
    pub fn requested_profiles(&self, installation: &Installation) -> Vec<RequestedProfile> {
        let (Some(name), namespace) = (&self.wanted_profile.1, &self.wanted_profile.0) else {
            return Vec::new();
        };
        let name = installation.profile_aliases.get(name).unwrap_or(name);
        let mut namespaces = vec![namespace.as_deref().unwrap_or(installation.profiles_namespace())];
        let fallback = installation.fallback_profile_namespace.as_deref();
        namespaces.extend(fallback.filter(|other| {
            // A default profile that is missing is about to be installed.
            namespace.is_none() && !is_default(name) && *other != installation.profiles_namespace()
        }));
        let requested = |namespace: &str| RequestedProfile {
            namespace: namespace.to_owned(),
            name: name.clone(),
        };
        namespaces.into_iter().map(requested).collect()
    }

    /// Whether its settings name this ConfigMap.
    pub fn names_settings(&self, namespace: &str, name: &str) -> bool {
        self.pool_ref.namespace == namespace && self.settings_map.as_deref() == Some(name)
    }

    /// Whether machine-controller has stamped a revision that the content of `config` was not rendered for.
    pub fn has_new_revision(&self, config: Option<&ConfigView>) -> bool {
        let rendered_for = config.and_then(|config| config.rendered_for.as_ref());
        let known = rendered_for.and_then(|known| known.revision.as_ref());
        self.revision.is_some() && self.revision.as_ref() != known
    }

    /// What content that is rendered now is rendered for.
    pub fn rendered_for(&self, config: Option<&ConfigView>) -> RenderedFor {
        // The same template keeps its number, so that scaling the pool writes nothing.
        let known = config.and_then(|config| config.rendered_for.as_ref());
        let since = known
            .filter(|known| known.template_digest == self.template_digest)
            .and_then(|known| known.template_generation)
            .filter(|since| *since <= self.generation);
        RenderedFor {
            pool: self.pool_ref.clone(),
            revision: self.revision.clone(),
            template_digest: self.template_digest.clone(),
            template_generation: Some(since.unwrap_or(self.generation)),
        }
    }
}

/// Whether a default profile has this name.
fn is_default(name: &str) -> bool {
    osm_render::default_manifests().any(|(file, _)| file.strip_suffix(".yaml") == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    use osm_runtime::cache::Version;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn view(md: Value) -> PoolView {
        PoolView::of(&serde_json::from_value(md).unwrap())
    }

    #[test]
    fn a_pool_that_names_no_namespace_also_asks_for_a_profile_of_the_fallback_namespace() {
        let namespaces = |own: &str, annotations: Value| {
            let pool = view(json!({"metadata": {"annotations": annotations}, "spec": {}}));
            let installation = Installation {
                namespace: own.to_owned(),
                fallback_profile_namespace: Some("shared".to_owned()),
                ..Installation::default()
            };
            let requested = pool.requested_profiles(&installation).into_iter();
            requested.map(|profile| profile.namespace).collect::<Vec<_>>()
        };
        let unnamed = json!({names::PROFILE: "mine"});
        assert_eq!(namespaces("here", unnamed.clone()), ["here", "shared"]);
        assert_eq!(namespaces("shared", unnamed), ["shared"]);
        for named in ["there", "here", "shared"] {
            let annotations = json!({names::PROFILE: "mine", names::PROFILE_NAMESPACE: named});
            assert_eq!(namespaces("here", annotations), [named]);
        }
        assert!(namespaces("here", Value::Null).is_empty());
        assert_eq!(
            namespaces("here", json!({names::PROFILE: "osp-ubuntu"})),
            ["here"]
        );
    }

    #[test]
    fn a_publish_of_what_is_rendered_is_nothing_to_look_at_and_any_other_change_is() {
        let config = |published: &str, status: &str| {
            let conditions = ["Published", "Ready"].map(|type_| {
                json!({"type": type_, "status": status, "reason": "Any", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            });
            let object = json!({
                "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
                "metadata": {"name": "p-n-config", "uid": "u", "resourceVersion": published, "generation": 1},
                "spec": {"poolRef": {"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                    "namespace": "n", "name": "p", "uid": "md"}},
                "status": {
                    "conditions": conditions,
                    "rendered": {"digest": "d2", "revision": "1", "bootstrap": "b"},
                    "published": {"digest": published, "revision": "1", "bootstrapSecret": "b",
                        "provisioningSecret": "p", "credentialExpirationTime": "2026-01-02T00:00:00Z"},
                },
            });
            ConfigView::of(serde_json::from_value(object).unwrap())
        };
        let (old, new) = (config("d1", "False"), config("d2", "True"));
        assert!(new.has_bare_spec && new.is_only_published_since(&old));
        assert!(!config("d2", "False").is_only_published_since(&old), "a failure");
        assert!(
            !config("d1", "True").is_only_published_since(&old),
            "other content"
        );
        type EditConfig = fn(&mut ConfigView);
        let edits: [(&str, EditConfig); 5] = [
            ("spec", |view| view.has_bare_spec = false),
            ("generation", |view| view.metadata.generation = Some(2)),
            ("condition", |view| {
                let rendered = Condition {
                    type_: condition::RENDERED.into(),
                    ..view.status.conditions[0].clone()
                };
                view.status.conditions.push(rendered);
            }),
            ("content", |view| {
                view.status.rendered.as_mut().unwrap().revision = Some("2".into())
            }),
            ("unreadable", |view| view.is_unreadable = true),
        ];
        for (what, edit) in edits {
            let mut edited = new.clone();
            edit(&mut edited);
            assert!(!edited.is_only_published_since(&old), "{what}");
        }
    }

    #[test]
    fn a_pool_that_names_no_profile_gets_that_of_its_system_and_utility() {
        let wanted = |annotations: Value, system: &str, spec: Value| {
            let provider =
                json!({"cloudProvider": "aws", "operatingSystem": system, "operatingSystemSpec": spec});
            let md = json!({
                "metadata": {"annotations": annotations},
                "spec": {"template": {"spec": {
                    "versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": provider},
                }}},
            });
            let requested = view(md).requested_profiles(&Installation::default()).pop();
            requested.map(|profile| (profile.namespace, profile.name))
        };
        let name = |system, spec| wanted(Value::Null, system, spec).unwrap().1;
        let utility = |utility: &str| json!({"provisioningUtility": utility});
        assert_eq!(name("ubuntu", Value::Null), "osp-ubuntu");
        assert_eq!(name("ubuntu", utility("cloud-init")), "osp-ubuntu");
        for spec in [Value::Null, json!({}), utility(""), utility("ignition")] {
            assert_eq!(name("flatcar", spec), "osp-flatcar");
        }
        assert_eq!(name("flatcar", utility("cloud-init")), "osp-flatcar-cloud-init");
        let annotations = json!({names::PROFILE: "mine", names::PROFILE_NAMESPACE: "there"});
        let mine = Some(("there".to_owned(), "mine".to_owned()));
        assert_eq!(
            wanted(annotations.clone(), "flatcar", utility("cloud-init")),
            mine
        );
        // The name is known even if something else is wrong.
        assert_eq!(
            name("flatcar", json!({"disableAutoUpdate": "yes"})),
            "osp-flatcar"
        );
        assert_eq!(wanted(Value::Null, "windows", utility("cloud-init")), None);
        assert_eq!(wanted(annotations, "windows", Value::Null), mine);
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_waits_since_it_was_first_seen_whatever_follows_it() {
        let known = Cache::default();
        let start = Instant::now();
        for (resource_version, generation, judged, since) in [
            (1, 1, 1, 0),
            (2, 2, 1, 1),
            // Other edits, one of which is validated, and another list.
            (3, 3, 1, 1),
            (4, 3, 2, 1),
            (4, 3, 2, 1),
            (5, 3, 3, 1),
            (6, 4, 3, 6),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(json!({"name": "p", "namespace": "n",
                "generation": generation, "resourceVersion": resource_version.to_string()}))
            .unwrap();
            let version = Version::of(&metadata);
            let status = OperatingSystemProfileStatus {
                observed_generation: Some(judged),
                ..OperatingSystemProfileStatus::default()
            };
            let view = ProfileView::new(&metadata, status, &known);
            assert_eq!((view.since - start).as_secs(), since, "{resource_version}");
            let _ = known.wrote("n/p", version, view);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[test]
    fn a_pool_names_a_config_map_of_its_namespace() {
        let named = |settings: &str| {
            let annotations = json!({names::SETTINGS: settings});
            let md =
                json!({"metadata": {"name": "p", "namespace": "n", "annotations": annotations}, "spec": {}});
            let view = view(md);
            assert!(!view.names_settings("other", "dmz") && !view.names_settings("n", ""));
            view.names_settings("n", "dmz")
        };
        assert!(named("{fromConfigMap: dmz, pauseImage: a}"));
        for other in [
            "{fromConfigMap: lan}",
            "{fromConfigMap: [dmz]}",
            "fromConfigMap: {",
            "",
        ] {
            assert!(!named(other), "{other}");
        }
    }

    #[test]
    fn no_credential_of_a_cloud_is_kept() {
        let md = |provider: Value| {
            let template =
                json!({"spec": {"versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": provider}}});
            view(json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"template": template}}))
        };
        let mut provider = json!({"cloudProvider": "aws", "operatingSystem": "ubuntu", "operatingSystemSpec": {},
            "cloudProviderSpec": {"accessKeyId": "hunter2", "deep": [{"secret": "hunter2"}]}});
        let view = md(provider.clone());
        assert!(view.pool.is_ok(), "{view:?}");
        assert!(!format!("{view:?}").contains("hunter2"), "{view:?}");
        // The reason why a MachineDeployment is not a pool does not show them either.
        for (field, value) in [
            ("cloudProvider", json!("hunter2")),
            ("operatingSystem", json!({"hunter2": "hunter2"})),
            ("operatingSystemSpec", json!({"distUpgradeOnBoot": "hunter2"})),
        ] {
            provider[field] = value;
            let view = md(provider.clone());
            assert!(view.pool.is_err(), "{field}");
            assert!(!format!("{view:?}").contains("hunter2"), "{view:?}");
        }
    }

    #[test]
    fn a_long_annotation_is_an_error_and_is_not_kept() {
        for name in [names::REVISION, names::PROFILE, names::PROFILE_NAMESPACE] {
            let annotations = json!({name: "x".repeat(100_000)});
            let md = json!({"metadata": {"name": "p", "namespace": "n", "annotations": annotations},
                "spec": {"template": {"spec": {"providerSpec": {"value": {"operatingSystem": "rhel"}}}}}});
            let view = view(md);
            assert!(format!("{view:?}").len() < 3_000, "{name}");
            let message = view.pool.unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("annotation {name}: must have at most")),
                "{message}"
            );
        }
    }
}
