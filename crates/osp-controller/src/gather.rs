//! Gathers everything that one reconcile needs from the watches, and validates the profile.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use osm_api::OperatingSystemProfileSpec;
use osm_render::ProfileKey;
use osm_render::validate::{Outcome, Refusal};
use tokio::time::Instant;

use crate::bases::{self, Bases, Sources};
use crate::context::Context;
use crate::custom_profile::{self, CustomProfile};
use crate::default_profile;
use crate::stored_profile::StoredProfile;

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The time of the plan.
    pub now: Timestamp,
    pub namespace: String,
    pub name: String,
    pub stored: Option<Arc<StoredProfile>>,
    /// The default profile of this name. `None` if there is none, if the settings disable it, if the
    /// settings, which could disable it, are not known yet, or while the upstream OSM, which has its own of
    /// that name, runs.
    pub default: Option<OperatingSystemProfileSpec>,
    /// How long ago it was last restored.
    pub restored: Option<Duration>,
    /// The CustomOperatingSystemProfile of this name, if custom profiles are copied.
    pub custom: Option<Arc<CustomProfile>>,
    /// Whether a default profile has this name, enabled or not.
    pub is_default: bool,
    /// The outcome of validating the stored profile; `None` if the profile is not [kept](Self::kept), or
    /// waits for another one.
    pub validation: Option<Outcome>,
    /// Name of the profile that it extends and that must be validated first.
    pub awaited: Option<String>,
}

impl Gathered {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// What to do for the copy of the custom profile; `None` if there is no custom profile.
    pub fn copy(&self) -> Option<Result<custom_profile::Step, custom_profile::Problem>> {
        let custom = self.custom.as_deref()?;
        let stored = self.stored.as_deref().map(Deref::deref);
        custom_profile::copy(custom, stored, self.is_default)
    }

    /// The stored profile, unless it is being deleted or about to be replaced by the default or by a newer
    /// copy. Only a kept profile is validated.
    pub fn kept(&self) -> Option<&Arc<StoredProfile>> {
        let stored = self
            .stored
            .as_ref()
            .filter(|stored| !default_profile::is_deleted(stored))?;
        let is_restored =
            default_profile::install(&self.name, Some(stored.as_ref()), self.default.as_ref()).is_some();
        let is_updated = matches!(self.copy(), Some(Ok(custom_profile::Step::Update(_))));
        (!is_restored && !is_updated).then_some(stored)
    }
}

/// Gathers for `namespace/name`, and validates the stored profile if it is kept.
pub async fn gather(context: &Context, key: &str) -> Gathered {
    let stored = context.profile(key);
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    // Default profiles are installed only in the namespace of the installation.
    let is_installation = namespace == context.cluster.installation.namespace;
    let default = is_installation.then(|| context.default_profile(name)).flatten();
    let is_default = is_installation && context.has_default(name);
    let mut gathered = Gathered {
        now: context.cluster.process.environment.now(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        stored,
        default,
        restored: context.restored.lock().get(key).map(Instant::elapsed),
        custom: context.custom_profile(key),
        is_default,
        validation: None,
        awaited: None,
    };
    if let Some(refusal) = gathered.kept().and_then(|kept| kept.refusal()) {
        gathered.validation = Some(Err(refusal));
    } else if let Some(kept) = gathered.kept().cloned() {
        let of = ProfileKey {
            namespace: gathered.namespace.clone(),
            name: gathered.name.clone(),
        };
        match find_bases(context, &of, &kept.spec) {
            Ok(Bases::Ready(bases)) => {
                gathered.validation = Some(context.validator.validate(&kept.spec, &bases).await);
            }
            Ok(Bases::Awaited(base)) => gathered.awaited = Some(base),
            Err(refusal) => gathered.validation = Some(Err(refusal)),
        }
    }
    // Validation may have taken seconds.
    gathered.now = context.cluster.process.environment.now();
    gathered
}

/// Finds the bases of a profile among those that are kept.
pub(crate) fn find_bases(
    context: &Context,
    key: &ProfileKey,
    spec: &OperatingSystemProfileSpec,
) -> Result<Bases, Refusal> {
    if let Some(base) = &spec.extends
        && !context.knows_bases_of(&key.namespace)
    {
        return Ok(Bases::Awaited(base.clone()));
    }
    let sources = Sources {
        installation: &context.cluster.installation.namespace,
        stored: &|key| context.profile(key),
        is_coming: &|name| context.may_install(name),
    };
    bases::find(key, spec, &sources)
}
