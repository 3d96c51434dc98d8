//! How fast orphans are collected: whatever made so many configs vanish was hardly meant.
//!
//! When any were is recorded on the Secret with the HMAC key, so that the limit holds whatever replicas come and go, and the
//! resourceVersion sees to it that two of them don't use the same permission.

use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use osm_api::names;
use osm_runtime::RequestError;
use osm_runtime::request::failed;
use serde_json::json;

use crate::Error;
use crate::state::State;
use crate::view::{ROLE_BOOTSTRAP, SecretView};

const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// How many pools may be collected at `now`: a tenth of them in an hour, but at least one.
pub fn may_be(state: &State, now: Timestamp) -> usize {
    let key = state.secrets.get(&state.key_in_namespace(&names::digest_key_secret_name(&state.installation)));
    let pools = state.secrets.select(|secret| secret.is(ROLE_BOOTSTRAP)).len();
    allowed(pools).saturating_sub(recent(key.as_deref(), now).len())
}

/// Records that a pool is collected at `now`; whether it may be.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`] where somebody else has collected one in between.
pub async fn record(state: &State, now: Timestamp) -> Result<bool, Error> {
    const WHAT: &str = "recording that an orphan is collected";
    let name = names::digest_key_secret_name(&state.installation);
    // It is being put back.
    let Some(key) = state.secrets.get(&state.key_in_namespace(&name)) else {
        return Err(RequestError::Conflict { what: WHAT }.into());
    };
    if may_be(state, now) == 0 {
        return Ok(false);
    }
    let mut times: Vec<String> = recent(Some(&key), now).iter().map(ToString::to_string).collect();
    times.push(now.to_string());
    let patch = json!({"metadata": {
        "resourceVersion": key.meta.resource_version,
        "annotations": {names::COLLECTED: times.join(",")},
    }});
    let patched = state.secret_api().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    state.wrote_secret(&patched.map_err(failed(WHAT))?);
    Ok(true)
}

fn allowed(pools: usize) -> usize {
    (pools / 10).max(1)
}

/// When orphans were collected in the hour before `now`. A time to come was written by a clock that was put right since: it counts.
fn recent(key: Option<&SecretView>, now: Timestamp) -> Vec<Timestamp> {
    let text = key.and_then(|key| key.meta.annotation(names::COLLECTED)).unwrap_or_default();
    let times = text.split(',').filter_map(|time| time.parse::<Timestamp>().ok());
    times.filter(|at| now.duration_since(*at).abs() <= HOUR).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Meta;

    #[test]
    fn a_tenth_in_an_hour_and_at_least_one() {
        assert_eq!([0, 1, 9, 10, 29, 2000].map(allowed), [1, 1, 1, 1, 2, 200]);
    }

    #[test]
    fn what_was_collected_counts_for_an_hour() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let text =
            "2026-11-21T10:59:59Z,2026-11-21T11:00:00Z,2026-11-21T11:59:00Z,nonsense,,2026-11-21T12:10:00Z";
        let annotations = [(names::COLLECTED.to_owned(), text.to_owned())].into();
        let key = SecretView { meta: Meta { annotations, ..Meta::default() }, ..SecretView::default() };
        assert_eq!(recent(Some(&key), now).len(), 3);
        assert_eq!(recent(Some(&SecretView::default()), now).len(), 0);
        assert_eq!(recent(None, now).len(), 0);
    }
}
