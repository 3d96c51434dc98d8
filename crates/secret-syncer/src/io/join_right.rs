//! Mode `approved`: whether the pools' tokens may do more than ask, and whether the settings suit the mode.

use std::time::Duration;

use osm_api::Joining;

use crate::io::error::ApplyError;
use crate::io::report::report_join_right;
use crate::io::syncer::Syncer;
use crate::io::tokens;
use crate::plan::join_right::JOIN_RIGHT_TTL;
use crate::plan::{credentials, messages};

/// Asks with a token of any pool, which is issued for this question alone.
///
/// # Errors
/// Requests that failed.
pub async fn reconcile(syncer: &Syncer) -> Result<Option<Duration>, ApplyError> {
    if syncer.clients.joining() == Joining::Static {
        return Ok(None);
    }
    let accounts = syncer.caches.accounts.select(|_| true);
    // Without any, the first that is created requeues this.
    let Some(account) = accounts.first() else {
        return Ok(Some(JOIN_RIGHT_TTL));
    };
    let token = tokens::for_question(syncer, &account.name).await?;
    let is_open = syncer.clients.token_probe.is_approved_anyway(&token).await?;
    let before = syncer.memory.set_joining_is_open(is_open);
    if before.unwrap_or(false) != is_open {
        report_join_right(syncer, account, is_open).await;
        syncer.wake(|_| true);
    }
    Ok(Some(JOIN_RIGHT_TTL))
}

/// Returns what has to be called whenever the settings change. While they contradict the mode, a replica that starts does not become
/// ready, so that those of the mode before keep the pools.
pub fn settings_gate(syncer: &Syncer) -> impl Fn() + Send + 'static {
    let cluster = syncer.clients.cluster.clone();
    let (gate, joining) = (
        cluster.gates.gate("settings for --joining"),
        syncer.clients.joining(),
    );
    let confirm = move || {
        let current = cluster.settings.borrow().clone();
        if current.is_some_and(|current| credentials::contradict(joining, &current.settings.credentials)) {
            gate.close(messages::joining_conflict());
        } else {
            gate.open();
        }
    };
    confirm();
    confirm
}
