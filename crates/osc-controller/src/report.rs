//! Tells people: Events on failure and on recovery, metrics, log lines.

use std::time::Duration;

use osm_api::condition;
use osm_api::config::UserDataBytes;
use osm_api::profile::CloudProvider;
use osm_runtime::strangers::CLUSTER_CHANGED;

use crate::apply::Applied;
use crate::finalizer;
use crate::gather::Gathered;
use crate::plan::Vouched;
use crate::state::{State, lock};

/// Reports what a reconcile has done; returns when to look again.
pub async fn report(state: &State, gathered: &Gathered, applied: Applied) -> Option<Duration> {
    report_rejections(state, gathered, &applied).await;
    finalizer::tell(state, &applied.finalizers).await;
    let verdict = applied.status.as_ref().map(|status| (status.verdict.reason, &status.verdict.message));
    let mut found =
        applied.rejected.iter().map(|rejection| (rejection.reason, &rejection.message)).chain(verdict);
    let stranger = found.find(|(reason, _)| *reason == CLUSTER_CHANGED);
    state.strangers.note(&gathered.name, stranger.map(|(_, message)| message.as_str()));
    if applied.deleted {
        tracing::info!(config = gathered.name, "the pool is retired, and everything made for it is undone");
    }
    if gathered.claimants.is_empty() && (gathered.config.is_none() || applied.deleted) {
        state.forget(&gathered.name);
    }
    let Some(status) = &applied.status else { return applied.again };
    let verdict = &status.verdict;
    state.count(&gathered.name, Some(verdict));
    state.sizes.note(&gathered.name, sizes(gathered, &status.rendered));
    let before =
        gathered.config.as_ref().and_then(|c| condition::find(&c.status.conditions, condition::RENDERED));
    let unchanged = before.is_some_and(|before| {
        before.reason == verdict.reason
            && before.message == verdict.message
            && (before.status == "True") == verdict.status
    });
    if unchanged {
        return applied.again;
    }
    tracing::info!(
        config = gathered.name,
        rendered = verdict.status,
        reason = verdict.reason,
        "{}",
        verdict.message
    );
    let failed_before = before.is_some_and(|before| before.status != "True");
    if let Some(about) = &applied.about {
        // Waiting is no failure.
        if !verdict.status && verdict.reason != "WaitingForProfile" {
            state.context.worker.events.warning(about, verdict.reason, &verdict.message).await;
        } else if verdict.status && failed_before {
            state.context.worker.events.recovery(about, verdict.reason, &verdict.message).await;
        }
    }
    applied.again
}

/// Sizes of what is vouched for, with the cloud that they are for.
fn sizes(gathered: &Gathered, vouched: &Vouched) -> Option<(CloudProvider, UserDataBytes)> {
    let (Vouched::Written(rendered) | Vouched::Last(Some(rendered))) = vouched else { return None };
    let owner = gathered.claimants.first()?;
    let cloud = owner.spec.template.pointer("/spec/providerSpec/value/cloudProvider")?;
    Some((serde_json::from_value(cloud.clone()).ok()?, rendered.user_data_bytes?))
}

async fn report_rejections(state: &State, gathered: &Gathered, applied: &Applied) {
    for rejection in &applied.rejected {
        let known = lock(&state.rejected).insert(rejection.uid.clone(), rejection.reason);
        if known != Some(rejection.reason) {
            state.census.count(&rejection.uid, condition::RENDERED, false, rejection.reason);
            tracing::warn!(config = gathered.name, reason = rejection.reason, "{}", rejection.message);
            state.context.worker.events.warning(&rejection.about, rejection.reason, &rejection.message).await;
        }
    }
    // Who owns the config now was perhaps rejected before.
    let rejected: Vec<&str> = applied.rejected.iter().map(|rejection| rejection.uid.as_str()).collect();
    for owner in gathered.claimants.iter().filter_map(|md| md.metadata.uid.as_deref()) {
        if !rejected.contains(&owner) {
            state.no_longer_rejected(owner);
        }
    }
}
