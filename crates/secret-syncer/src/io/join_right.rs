//! Mode `approved`: whether the pools' tokens may do more than ask.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use osm_api::{Joining, Reason, names};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::token;
use crate::model::view::Meta;
use crate::plan::messages;
use crate::plan::questions::{self, ANSWER_TTL, QUESTION_INTERVAL};

/// What is known about the pools' tokens.
#[derive(Default)]
pub struct JoinRight(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Whether whatever a pool's token asks for is approved; `None`: there was no answer yet.
    is_open: Option<bool>,
    asked: Option<Instant>,
    /// Rights have changed since that was last asked.
    rights_changed: bool,
}

impl JoinRight {
    pub fn is_open(&self) -> Option<bool> {
        self.0.lock().is_open
    }

    pub fn note_change_of_rights(&self) {
        self.0.lock().rights_changed = true;
    }
}

/// Asks with a token of one pool, which is issued for this question alone: bindings that open joining are for all ServiceAccounts of the
/// namespace. Until there is an answer, the last one holds.
///
/// # Errors
/// Requests that failed.
pub async fn reconcile(context: &Context) -> Result<Option<Duration>, ApplyError> {
    if context.joining() == Joining::Static {
        return Ok(None);
    }
    let accounts = context.caches.accounts.select(|_| true);
    let Some(account) = accounts.iter().min_by_key(|account| &account.name) else {
        // Nobody has a token. The first account that is created requeues this.
        *context.join_right.0.lock() = Known::default();
        context.reporting.metrics.nodeclient_binding_found.set(0);
        context.reporting.metrics.nodeclient_binding_unknown.set(0);
        return Ok(Some(ANSWER_TTL));
    };
    let asked = context.join_right.0.lock().asked;
    if let Some(pause) = questions::pause(asked.map(|at| at.elapsed())) {
        return Ok(Some(pause));
    }
    // Before the question, so that a change that comes while it is asked is not lost.
    let has_changed = {
        let mut known = context.join_right.0.lock();
        known.asked = Some(Instant::now());
        std::mem::take(&mut known.rights_changed)
    };
    let answer = ask(context, account).await;
    report_question(context, &answer);
    if has_changed && !matches!(answer, Ok(Some(_))) {
        context.join_right.note_change_of_rights();
    }
    let Some(is_open) = answer? else {
        return Ok(Some(QUESTION_INTERVAL));
    };
    let before = context.join_right.0.lock().is_open.replace(is_open);
    if before.unwrap_or(false) != is_open {
        report(context, account, is_open).await;
        context.wake(|_| true);
    }
    Ok(Some(questions::requeue_after(has_changed)))
}

async fn ask(context: &Context, account: &Meta) -> Result<Option<bool>, ApplyError> {
    let token = token::for_question(context, &account.name).await?;
    context.token_probe.is_approved_anyway(&token).await
}

/// Reports whether the API server has answered the question that [`report`] is about.
fn report_question(context: &Context, answer: &Result<Option<bool>, ApplyError>) {
    let is_unknown = !matches!(answer, Ok(Some(_)));
    context
        .reporting
        .metrics
        .nodeclient_binding_unknown
        .set(is_unknown.into());
    // The runner logs errors.
    if matches!(answer, Ok(None)) {
        tracing::warn!("{}", messages::joining_is_unknown());
    }
}

/// Reports that it became known, or changed, whether whatever the pools' tokens ask for is approved. `account` is one of theirs.
async fn report(context: &Context, account: &Meta, is_open: bool) {
    context
        .reporting
        .metrics
        .nodeclient_binding_found
        .set(is_open.into());
    if !is_open {
        return tracing::info!("{}", messages::joining_is_closed());
    }
    let (reason, message) = (Reason::NodeclientBindingFound, messages::why_joining_is_open());
    tracing::warn!("{message}");
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ServiceAccount".to_owned()),
        namespace: Some(names::CLOUD_INIT_SETTINGS.to_owned()),
        name: Some(account.name.clone()),
        uid: Some(account.uid.clone()),
        ..ObjectReference::default()
    };
    let events = &context.cluster.worker.events;
    events.warning(&about, reason, message).await;
}
