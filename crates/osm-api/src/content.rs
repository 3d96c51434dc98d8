//! The content of an OperatingSystemConfig: for which pool and revision it was rendered, its digest, its late-bound
//! values, and whether it may be published.
//!
//! This module alone knows which fields hold these. Everything else reads them through [`ContentView`] (or, where
//! objects are JSON, through [`ContentJson`]) and writes them by [`RenderedFor::store`].

use serde_json::Value;

use crate::config::{
    LateBound, MachineDeploymentRef, OperatingSystemConfig, OperatingSystemConfigSpec,
    OperatingSystemConfigStatus, ProfileRef, Rendered,
};
use crate::pool_ref::PoolRef;
use crate::profile::CloudProvider;

/// What the content of an OperatingSystemConfig was rendered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedFor {
    /// The pool. It never changes: another pool gets another OperatingSystemConfig.
    pub pool: PoolRef,
    /// Revision that machine-controller stamped on the pool's object. It is absent before the first revision, and while
    /// nothing has been rendered.
    pub revision: Option<String>,
    /// SHA-256 of the machine template that the content was rendered from, 64 hex characters.
    pub template_digest: String,
}

impl RenderedFor {
    /// Writes it into `spec`.
    pub fn store(&self, spec: &mut OperatingSystemConfigSpec) {
        spec.machine_deployment = Some(MachineDeploymentRef {
            namespace: self.pool.namespace.clone(),
            name: self.pool.name.clone(),
            uid: self.pool.uid.clone(),
            revision: self.revision.clone(),
            template_digest: self.template_digest.clone(),
        });
    }
}

/// Reads an OperatingSystemConfig.
#[derive(Clone, Copy, Debug)]
pub struct ContentView<'a>(&'a OperatingSystemConfig);

impl<'a> ContentView<'a> {
    /// The view of `config`.
    pub fn of(config: &'a OperatingSystemConfig) -> Self {
        Self(config)
    }

    /// What it was rendered for; `None` on objects that the Go implementation made.
    pub fn rendered_for(self) -> Option<RenderedFor> {
        let md = self.0.spec.machine_deployment.as_ref()?;
        Some(RenderedFor {
            pool: self.pool()?,
            revision: md.revision.clone(),
            template_digest: md.template_digest.clone(),
        })
    }

    /// The pool; `None` on objects that the Go implementation made.
    pub fn pool(self) -> Option<PoolRef> {
        let md = self.0.spec.machine_deployment.as_ref()?;
        Some(PoolRef::machine_deployment(&md.namespace, &md.name, &md.uid))
    }

    /// Whether it belongs to the pool whose object has this uid.
    pub fn belongs_to(self, uid: &str) -> bool {
        self.0
            .spec
            .machine_deployment
            .as_ref()
            .is_some_and(|md| md.uid == uid)
    }

    /// The profile that the content was rendered from.
    pub fn profile(self) -> Option<&'a ProfileRef> {
        self.0.spec.profile.as_ref()
    }

    /// SHA-256 of the content as its writer gave it, 64 hex characters. It is absent while nothing has been rendered.
    pub fn digest(self) -> Option<&'a str> {
        self.0.spec.digest.as_deref()
    }

    /// What the markers in the content stand for.
    pub fn late_bound(self) -> &'a [LateBound] {
        &self.0.spec.late_bound
    }

    /// Cloud of the pool. It is absent while nothing has been rendered.
    pub fn cloud_provider(self) -> Option<CloudProvider> {
        self.0.spec.cloud_provider.as_ref().map(|cloud| cloud.name)
    }

    /// The content itself, as `osm-render` makes documents of it.
    pub fn content(self) -> &'a OperatingSystemConfigSpec {
        &self.0.spec
    }

    /// The content that may be published, if there is any; see [`publishable`].
    pub fn publishable(self) -> Option<&'a Rendered> {
        publishable(self.0.metadata.generation, self.0.status.as_ref()?)
    }

    /// Whether what may be published is published, for this revision.
    pub fn is_published(self, revision: &str) -> bool {
        let published = self
            .0
            .status
            .as_ref()
            .and_then(|status| status.published.as_ref());
        published
            .zip(self.publishable())
            .is_some_and(|(published, rendered)| {
                published.revision == revision && published.digest == rendered.digest
            })
    }
}

/// The content that may be published: that of the generation which osc-controller rendered. An edit by anybody else has
/// another generation, so it is never published.
pub fn publishable(generation: Option<i64>, status: &OperatingSystemConfigStatus) -> Option<&Rendered> {
    status
        .rendered
        .as_ref()
        .filter(|rendered| Some(rendered.generation) == generation)
}

/// The content of a `config` that is needed for nothing else; see [`ContentView::content`].
pub fn into_content(config: OperatingSystemConfig) -> OperatingSystemConfigSpec {
    config.spec
}

/// Name of the pool that the content of this `spec` is for.
pub fn pool_name(spec: &OperatingSystemConfigSpec) -> Option<&str> {
    spec.machine_deployment.as_ref().map(|md| md.name.as_str())
}

/// Reads an OperatingSystemConfig that is JSON, and perhaps not whole. Observers that follow objects of every kind use it.
#[derive(Clone, Copy, Debug)]
pub struct ContentJson<'a>(&'a Value);

impl<'a> ContentJson<'a> {
    /// The view of `config`.
    pub fn of(config: &'a Value) -> Self {
        Self(config)
    }

    /// uid of the pool's object.
    pub fn pool_uid(self) -> Option<&'a str> {
        self.text("/spec/machineDeployment/uid")
    }

    /// Revision that the content was rendered for.
    pub fn revision(self) -> Option<&'a str> {
        self.text("/spec/machineDeployment/revision")
    }

    /// Whether its content may be published; see [`publishable`].
    pub fn is_publishable(self) -> bool {
        let generation = self
            .0
            .pointer("/status/rendered/generation")
            .and_then(Value::as_i64);
        generation.is_some() && generation == self.0.pointer("/metadata/generation").and_then(Value::as_i64)
    }

    fn text(self, pointer: &str) -> Option<&'a str> {
        self.0.pointer(pointer)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(generation: i64, rendered: i64) -> Value {
        json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": "p-n-config", "generation": generation},
            "spec": {"digest": "d"},
            "status": {
                "rendered": {"generation": rendered, "digest": "d", "revision": "1"},
                "published": {"digest": "d", "revision": "1", "bootstrapSecret": "b", "provisioningSecret": "p",
                    "credentialExpires": "e"},
            },
        })
    }

    #[test]
    fn only_the_rendered_generation_is_publishable() {
        for (rendered, expected) in [(3, true), (2, false)] {
            let json = config(3, rendered);
            let typed: OperatingSystemConfig = serde_json::from_value(json.clone()).unwrap();
            let view = ContentView::of(&typed);
            assert_eq!(view.publishable().is_some(), expected);
            assert_eq!(ContentJson::of(&json).is_publishable(), expected);
            assert_eq!(
                (view.is_published("1"), view.is_published("2")),
                (expected, false)
            );
        }
        assert!(!ContentJson::of(&json!({})).is_publishable());
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let rendered_for = RenderedFor {
            pool: PoolRef::machine_deployment("n", "p", "u"),
            revision: Some("7".into()),
            template_digest: "t".into(),
        };
        let mut typed: OperatingSystemConfig = serde_json::from_value(config(1, 1)).unwrap();
        assert_eq!(ContentView::of(&typed).rendered_for(), None);
        rendered_for.store(&mut typed.spec);
        let view = ContentView::of(&typed);
        assert!(view.belongs_to("u") && !view.belongs_to("v"));
        assert_eq!(view.rendered_for(), Some(rendered_for));
        let json = serde_json::to_value(&typed).unwrap();
        let view = ContentJson::of(&json);
        assert_eq!((view.pool_uid(), view.revision()), (Some("u"), Some("7")));
    }
}
