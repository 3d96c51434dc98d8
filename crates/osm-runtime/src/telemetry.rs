//! Logging.

use std::io::IsTerminal;

use anyhow::Context as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{CommonArgs, LogFormat};

/// Starts logging to standard error.
///
/// # Errors
/// The filter is not valid.
pub fn init(args: &CommonArgs) -> anyhow::Result<()> {
    // The services log failed watches themselves, so kube's own log of them is off. kube's client would log an answer that it
    // can't decode. Such an answer may hold a token, so that log is off whatever the filter is.
    let filter: Targets = format!("kube_runtime=error,{},kube_client::client=off", args.log)
        .parse()
        .with_context(|| {
            format!(
                "--log {:?} is not a filter such as info or info,kube=debug",
                args.log
            )
        })?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match args.log_format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
    };
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok(())
}
