//! All decisions of osp-controller, from what was gathered alone: no client, no clock.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::ResourceExt;
use osm_api::condition::{self, ACCEPTED, Verdict};
use osm_api::profile::{AcceptedProfile, OperatingSystemProfileStatus, SupportedCloudProvider};
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec, names};

use crate::gather::Gathered;

/// Reason of `Accepted=True`.
pub const REASON_ACCEPTED: &str = "Accepted";

/// Value of the label [`names::DEFAULT_PROFILE`].
const DEFAULT_LABEL: &str = "true";

/// Version that a default profile has for a moment while it is put back, see [`put_back`].
const PASSING_VERSION: &str = "v0.0.0-restoring";

/// What is to be done, and what the profile is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What is to be done. It leaves no choice to whoever does it.
    pub action: Action,
    /// The verdict on the profile that stands there; `None` where none stands, or not for long.
    pub verdict: Option<Verdict>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing would change.
    Nothing,
    /// The default profile is missing.
    Create(Box<OperatingSystemProfile>),
    /// The default profile is not what it should be.
    Restore(Box<Restore>),
    /// The status is to say something else.
    Publish(Box<Publish>),
}

/// How a default profile is put back.
#[derive(Clone, Debug, PartialEq)]
pub struct Restore {
    /// The default profile, with the uid, the resourceVersion and the rest of the metadata that were seen.
    pub profile: OperatingSystemProfile,
    /// A version that has to stand there first, because the spec may only change together with its version.
    pub by_way_of: Option<String>,
    /// What people are told; `None`: it came from another version of this program, so nobody's work is lost.
    pub notice: Option<String>,
}

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    /// resourceVersion of the profile that was judged.
    pub resource_version: String,
    /// The whole status.
    pub status: OperatingSystemProfileStatus,
    /// What people are told besides.
    pub news: Option<News>,
}

/// What is worth an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The profile is refused, or for another reason than before.
    Refused,
    /// The profile was refused before, and no longer is.
    Recovered,
}

/// The stored profile, if it stays as it is: then it is worth judging.
pub fn stays(gathered: &Gathered) -> Option<&Arc<OperatingSystemProfile>> {
    let stored = gathered.stored.as_ref()?;
    (stored.metadata.deletion_timestamp.is_none() && install(gathered).is_none()).then_some(stored)
}

/// Plans.
pub fn plan(gathered: &Gathered) -> Plan {
    if let Some(action) = install(gathered) {
        return Plan { action, verdict: None };
    }
    let Some((stored, judgement)) = stays(gathered).zip(gathered.judgement.as_ref()) else {
        return Plan { action: Action::Nothing, verdict: None };
    };
    let before = stored.status.clone().unwrap_or_default();
    let (verdict, accepted) = match judgement {
        Ok(accepted) => (acceptance(&stored.spec), Some(accepted.clone())),
        Err(refusal) => {
            let message = match &before.accepted {
                Some(last) => format!("{}; until then {} stays in use", refusal.message, known_as(last)),
                None => refusal.message.clone(),
            };
            let verdict = Verdict { type_: ACCEPTED, status: false, reason: refusal.reason, message };
            (verdict, before.accepted.clone())
        }
    };
    let generation = stored.metadata.generation;
    let condition = verdict.condition(&before.conditions, generation, gathered.now);
    let news = news(condition::find(&before.conditions, ACCEPTED), &condition);
    let status = OperatingSystemProfileStatus {
        observed_generation: generation,
        conditions: vec![condition],
        accepted,
    };
    let action = if status == before {
        Action::Nothing
    } else {
        Action::Publish(Box::new(Publish {
            resource_version: stored.resource_version().unwrap_or_default(),
            status,
            news,
        }))
    };
    Plan { action, verdict: Some(verdict) }
}

/// A version, and the library that it is resolved with unless that is this program's.
fn known_as(last: &AcceptedProfile) -> String {
    match &last.library {
        Some(library) if *library != osm_render::library_version() => {
            format!("version {} with the library {library}", last.version)
        }
        _ => format!("version {}", last.version),
    }
}

fn acceptance(spec: &OperatingSystemProfileSpec) -> Verdict {
    let name = |cloud: &SupportedCloudProvider| cloud.name.as_str();
    let clouds: Vec<&str> = spec.supported_cloud_providers.iter().map(name).collect();
    let message = format!("version {} renders for {}", spec.version, clouds.join(", "));
    Verdict { type_: ACCEPTED, status: true, reason: REASON_ACCEPTED, message }
}

fn news(before: Option<&Condition>, now: &Condition) -> Option<News> {
    let refused_before = before.is_some_and(|before| before.status != "True");
    if now.status == "True" {
        return refused_before.then_some(News::Recovered);
    }
    let told = before.is_some_and(|before| {
        before.status == now.status && before.reason == now.reason && before.message == now.message
    });
    (!told).then_some(News::Refused)
}

/// What brings the default profile of this name to where it should be; `None`: it is there, or there is to be none.
fn install(gathered: &Gathered) -> Option<Action> {
    let default = gathered.default.as_ref()?;
    let Some(stored) = &gathered.stored else {
        let mut profile = OperatingSystemProfile::new(&gathered.name, default.clone());
        label(&mut profile.metadata);
        return Some(Action::Create(Box::new(profile)));
    };
    // Being deleted: once it is gone, it is created again.
    if stored.metadata.deletion_timestamp.is_some() {
        return None;
    }
    put_back(stored, default).map(|restore| Action::Restore(Box::new(restore)))
}

/// Compares specs as typed values. The server may have filled in defaults, but every field of the schema is a field of
/// the type, which knows the same defaults, so that what we wrote compares equal to what comes back.
fn put_back(stored: &OperatingSystemProfile, default: &OperatingSystemProfileSpec) -> Option<Restore> {
    let (same, labelled) = (stored.spec == *default, is_labelled(&stored.metadata));
    if same && labelled {
        return None;
    }
    // The CustomResourceDefinition lets a spec change only together with its version. Other content under our version can
    // stand there if it was stored before that rule, or while it was absent; a version in between gets us past it, with
    // no moment at which the profile or its status is missing.
    let by_way_of = (!same && stored.spec.version == default.version).then(|| PASSING_VERSION.to_owned());
    let name = stored.name_any();
    let notice = if same {
        let label = names::DEFAULT_PROFILE;
        Some(format!(
            "{name} is a default profile: its label {label} was put back. Copy it under another name to change it"
        ))
    } else if osm_render::blessed_version(&stored.spec) == stored.spec.version {
        // The version tells that this is, unchanged, the default profile of another release.
        None
    } else {
        let (found, version) = (&stored.spec.version, &default.version);
        Some(format!(
            "{name} is a default profile: version {found}, which stood here, was replaced by {version}. Copy it under another name to change it"
        ))
    };
    let metadata = stored.metadata.clone();
    let mut profile = OperatingSystemProfile { metadata, spec: default.clone(), status: None };
    label(&mut profile.metadata);
    Some(Restore { profile, by_way_of, notice })
}

fn is_labelled(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(names::DEFAULT_PROFILE)).is_some_and(|value| value == DEFAULT_LABEL)
}

fn label(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(names::DEFAULT_PROFILE.to_owned(), DEFAULT_LABEL.to_owned());
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
