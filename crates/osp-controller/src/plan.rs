//! All decisions of osp-controller. They follow from what was gathered: no client, no clock.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use osm_api::condition::{self, ACCEPTED, READY, Verdict};
use osm_api::profile::{AcceptedProfile, OperatingSystemProfileStatus};
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec, Reason};
use osm_render::validate::{Outcome, Refusal};

use crate::custom_profile::{Problem, Step};
use crate::default_profile::{self, Install};
use crate::gather::Gathered;

/// A base that is awaited is looked for again after this time. The end of a list wakes no profile.
const AWAITED_INTERVAL: Duration = Duration::from_secs(10);

/// A default profile is restored at most once in this time, to limit writes and Events if someone else, such
/// as a GitOps tool, keeps changing it. Meanwhile, pools use what was accepted.
const RESTORE_INTERVAL: Duration = Duration::from_secs(60);

/// When to validate a profile again whose validation panicked or took too long: each attempt can hold a slot
/// for a minute.
const VALIDATE_AGAIN: Duration = Duration::from_secs(300);

/// What to do. `apply` and `report` have no rules of their own; they only handle the answers of the API
/// server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// How to install the default profile; `None` if it is in place, or if there is none.
    pub install: Option<Install>,
    /// What to do for the copy of a custom profile, or why it is not copied; `None` if there is no custom
    /// profile.
    pub copy: Option<Result<Step, Problem>>,
    /// The verdict on the stored profile; `None` if the profile is not kept.
    pub verdict: Option<Verdict>,
    /// The status to write; `None` if it is up to date.
    pub status: Option<StatusUpdate>,
    /// Reconcile again after this time, even if nothing changes.
    pub requeue_after: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    /// resourceVersion of the profile that was validated.
    pub resource_version: String,
    pub status: OperatingSystemProfileStatus,
    pub transition: Option<Transition>,
}

/// A change of the verdict that is worth an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The profile is refused: newly, or for another reason than before.
    Refused,
    /// The profile is accepted after a refusal.
    Recovered,
}

pub fn plan(gathered: &Gathered) -> Plan {
    Plan {
        copy: gathered.copy(),
        ..for_profile(gathered)
    }
}

fn for_profile(gathered: &Gathered) -> Plan {
    let stored = gathered.stored.as_deref();
    if let Some(install) = default_profile::install(
        &gathered.name,
        stored.map(|stored| &**stored),
        gathered.default.as_ref(),
    ) {
        let wait = gathered
            .restored
            .and_then(|ago| RESTORE_INTERVAL.checked_sub(ago));
        return match install {
            Install::Restore(_) if wait.is_some() => Plan {
                requeue_after: wait,
                ..Plan::default()
            },
            install => Plan {
                install: Some(install),
                ..Plan::default()
            },
        };
    }
    match gathered.kept().zip(gathered.validation.as_ref()) {
        Some((kept, outcome)) => for_kept(gathered, kept, outcome),
        // While another profile is awaited, the verdict before stays.
        None => Plan {
            requeue_after: gathered.awaited.as_ref().map(|_| AWAITED_INTERVAL),
            ..Plan::default()
        },
    }
}

fn for_kept(gathered: &Gathered, kept: &OperatingSystemProfile, outcome: &Outcome) -> Plan {
    let before = kept.status.clone().unwrap_or_default();
    // A refused edit must not take away what pools use.
    let accepted = outcome.as_ref().ok().or(before.accepted.as_ref()).cloned();
    let verdict = verdict(&kept.spec, outcome, before.accepted.as_ref());
    let generation = kept.metadata.generation;
    let ready = ready(&verdict, accepted.as_ref());
    let conditions = condition::all([&verdict, &ready], &before.conditions, generation, gathered.now);
    let [condition, _] = &conditions;
    let transition = transition(condition::find(&before.conditions, ACCEPTED), condition);
    // Another client may have added conditions of its own.
    let is_up_to_date = before.observed_generation == generation
        && before.accepted == accepted
        && condition::has_all(&before.conditions, &conditions);
    let status = OperatingSystemProfileStatus {
        observed_generation: generation,
        conditions: conditions.to_vec(),
        accepted,
    };
    let resource_version = kept.resource_version().unwrap_or_default();
    let update = StatusUpdate {
        resource_version,
        status,
        transition,
    };
    Plan {
        verdict: Some(verdict),
        status: (!is_up_to_date).then_some(update),
        requeue_after: outcome
            .as_ref()
            .is_err_and(Refusal::is_unfinished)
            .then_some(VALIDATE_AGAIN),
        ..Plan::default()
    }
}

pub(crate) fn verdict(
    spec: &OperatingSystemProfileSpec,
    outcome: &Outcome,
    accepted_before: Option<&AcceptedProfile>,
) -> Verdict {
    match (outcome, accepted_before) {
        (Ok(accepted), _) => {
            let clouds: Vec<&str> = spec
                .supported_cloud_providers
                .iter()
                .map(|cloud| cloud.name.as_str())
                .collect();
            Verdict {
                type_: ACCEPTED,
                status: true,
                reason: Reason::Accepted,
                message: format!("version {} renders for {}", accepted.version, clouds.join(", ")),
            }
        }
        (Err(refusal), Some(last)) => Verdict {
            type_: ACCEPTED,
            status: false,
            reason: refusal.reason,
            message: format!(
                "{}; until then {} stays in use",
                refusal.message,
                version_of(last)
            ),
        },
        (Err(refusal), None) => Verdict {
            type_: ACCEPTED,
            status: false,
            reason: refusal.reason,
            message: refusal.message.clone(),
        },
    }
}

/// The condition `Ready`: pools can use what was accepted, also after an edit that is refused.
fn ready(verdict: &Verdict, accepted: Option<&AcceptedProfile>) -> Verdict {
    let message = match accepted {
        None => return verdict.of_type(READY),
        Some(accepted) if verdict.status => format!("{} is accepted", version_of(accepted)),
        Some(last) => format!(
            "{} stays in use; the newest edit is refused, see the condition Accepted",
            version_of(last)
        ),
    };
    Verdict {
        type_: READY,
        status: true,
        reason: Reason::Accepted,
        message,
    }
}

/// The version, and the version of the template library unless this program has the same.
fn version_of(last: &AcceptedProfile) -> String {
    match &last.library_version {
        Some(library) if *library != osm_render::library_version() => {
            format!("version {} with the library {library}", last.version)
        }
        _ => format!("version {}", last.version),
    }
}

fn transition(before: Option<&Condition>, now: &Condition) -> Option<Transition> {
    let was_refused = before.is_some_and(|before| before.status != "True");
    if now.status == "True" {
        return was_refused.then_some(Transition::Recovered);
    }
    let is_known = before.is_some_and(|before| {
        before.status == now.status && before.reason == now.reason && before.message == now.message
    });
    (!is_known).then_some(Transition::Refused)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;
