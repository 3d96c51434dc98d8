//! Mode `approved`: whether the pools' tokens may do more than ask.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use osm_api::{Joining, names};
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

    /// Returns what was known before.
    fn set_open(&self, is_open: bool) -> Option<bool> {
        self.0.lock().is_open.replace(is_open)
    }

    /// How long ago it was asked.
    fn asked(&self) -> Option<Duration> {
        self.0.lock().asked.map(|at| at.elapsed())
    }

    /// It is asked now. Returns whether rights have changed since the last time.
    fn ask(&self) -> bool {
        let mut known = self.0.lock();
        known.asked = Some(Instant::now());
        std::mem::take(&mut known.rights_changed)
    }

    pub fn note_change_of_rights(&self) {
        self.0.lock().rights_changed = true;
    }

    /// There is no pool that could join.
    fn forget(&self) {
        *self.0.lock() = Known::default();
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
        context.join_right.forget();
        report_nobody(context);
        return Ok(Some(ANSWER_TTL));
    };
    if let Some(pause) = questions::pause(context.join_right.asked()) {
        return Ok(Some(pause));
    }
    // Before the question, so that a change that comes while it is asked is not lost.
    let has_changed = context.join_right.ask();
    let answer = ask(context, account).await;
    report_question(context, &answer);
    if has_changed && !matches!(answer, Ok(Some(_))) {
        context.join_right.note_change_of_rights();
    }
    let Some(is_open) = answer? else {
        return Ok(Some(QUESTION_INTERVAL));
    };
    let before = context.join_right.set_open(is_open);
    if before.unwrap_or(false) != is_open {
        report(context, account, is_open).await;
        context.wake(|_| true);
    }
    Ok(Some(questions::again(has_changed)))
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
        .joining_open_unknown
        .set(is_unknown.into());
    // The runner logs errors.
    if matches!(answer, Ok(None)) {
        tracing::warn!("{}", messages::joining_is_unknown());
    }
}

/// Reports that there is no token of a pool, so that nothing has to be known.
fn report_nobody(context: &Context) {
    context.reporting.metrics.joining_open.set(0);
    context.reporting.metrics.joining_open_unknown.set(0);
}

/// Reports that it became known, or changed, whether whatever the pools' tokens ask for is approved. `account` is one of theirs.
async fn report(context: &Context, account: &Meta, is_open: bool) {
    context.reporting.metrics.joining_open.set(is_open.into());
    if !is_open {
        return tracing::info!("{}", messages::joining_is_closed());
    }
    let (reason, message) = messages::joining_is_open();
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
    events.warning(&about, reason, &message).await;
}
