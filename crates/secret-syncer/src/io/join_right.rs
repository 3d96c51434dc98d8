//! Mode `approved`: whether the pools' tokens may do more than ask.

use std::time::Duration;

use osm_api::Joining;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::report::{report_join_question, report_join_right, report_no_join_right};
use crate::io::token;
use crate::model::view::Meta;
use crate::plan::join_right::{self, JOIN_RIGHT_TTL, QUESTION_INTERVAL};

/// Asks with a token of one pool, which is issued for this question alone: bindings that open joining are for all ServiceAccounts of the
/// namespace. Until there is an answer, the last one holds.
///
/// # Errors
/// Requests that failed.
pub async fn reconcile(context: &Context) -> Result<Option<Duration>, ApplyError> {
    if context.clients.joining() == Joining::Static {
        return Ok(None);
    }
    let accounts = context.caches.accounts.select(|_| true);
    let Some(account) = accounts.iter().min_by_key(|account| &account.name) else {
        // Nobody has a token. The first account that is created requeues this.
        context.memory.forget_joining();
        report_no_join_right(context);
        return Ok(Some(JOIN_RIGHT_TTL));
    };
    if let Some(pause) = join_right::pause(context.memory.joining_asked()) {
        return Ok(Some(pause));
    }
    // Before the question, so that a change that comes while it is asked is not lost.
    let has_changed = context.memory.ask_about_joining();
    let answer = ask(context, account).await;
    report_join_question(context, &answer);
    if has_changed && !matches!(answer, Ok(Some(_))) {
        context.memory.note_change_of_rights();
    }
    let Some(is_open) = answer? else {
        return Ok(Some(QUESTION_INTERVAL));
    };
    let before = context.memory.set_joining_is_open(is_open);
    if before.unwrap_or(false) != is_open {
        report_join_right(context, account, is_open).await;
        context.wake(|_| true);
    }
    Ok(Some(join_right::again(has_changed)))
}

async fn ask(context: &Context, account: &Meta) -> Result<Option<bool>, ApplyError> {
    let token = token::for_question(context, &account.name).await?;
    context.clients.token_probe.is_approved_anyway(&token).await
}
