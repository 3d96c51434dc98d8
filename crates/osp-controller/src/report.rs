//! Tells people: Events on failure and on recovery, metrics, log lines.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use osm_api::condition::{ACCEPTED, Verdict};

use crate::gather::Gathered;
use crate::plan::{Action, News, Plan};
use crate::state::State;

/// Reason of the Event that tells of a default profile that was put back.
pub const DEFAULT_PROFILE_RESTORED: &str = "DefaultProfileRestored";

/// Reports what a reconcile has done.
pub async fn report(state: &State, gathered: &Gathered, plan: &Plan) {
    let key = gathered.key();
    let name = key.as_str();
    match &plan.verdict {
        Some(verdict) => state.census.count(name, ACCEPTED, verdict.status, verdict.reason),
        None => state.census.forget(name, ACCEPTED),
    }
    let about = gathered.stored.as_ref().map(|stored| stored.object_ref(&()));
    match &plan.action {
        Action::Nothing => {}
        Action::Create(profile) => {
            tracing::info!(
                profile = name,
                version = profile.spec.version,
                "the default profile was missing and is created"
            );
        }
        Action::Restore(restore) => match (&restore.notice, &about) {
            (Some(notice), Some(about)) => {
                tracing::warn!(profile = name, reason = DEFAULT_PROFILE_RESTORED, "{notice}");
                state.context.management.events.warning(about, DEFAULT_PROFILE_RESTORED, notice).await;
            }
            _ => tracing::info!(
                profile = name,
                "the default profile of another release is replaced by this one's"
            ),
        },
        Action::Publish(publish) => {
            let Some((verdict, about)) = plan.verdict.as_ref().zip(about) else { return };
            if verdict.status {
                tracing::info!(profile = name, "accepted: {}", verdict.message);
            } else {
                tracing::warn!(profile = name, reason = verdict.reason, "refused: {}", verdict.message);
            }
            tell(state, &about, publish.news, verdict).await;
        }
    }
}

async fn tell(state: &State, about: &ObjectReference, news: Option<News>, verdict: &Verdict) {
    match news {
        None => {}
        Some(News::Refused) => {
            state.context.management.events.warning(about, verdict.reason, &verdict.message).await
        }
        Some(News::Recovered) => {
            state.context.management.events.recovery(about, verdict.reason, &verdict.message).await
        }
    }
}
