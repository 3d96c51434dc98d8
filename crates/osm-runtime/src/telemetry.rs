//! Logging.

use std::io::IsTerminal;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::args::{CommonArgs, LogFormat};

/// Starts logging to standard error.
///
/// # Errors
/// An invalid filter.
pub fn init(args: &CommonArgs) -> anyhow::Result<()> {
    // kube reports broken watches to us, and would log each a second time. Its client would log an answer that it
    // can't decode, which may hold a token: never, whatever the filter says.
    let filter = EnvFilter::try_new(format!("kube_runtime=error,{},kube_client::client=off", args.log))
        .with_context(|| format!("--log {:?} is not a filter such as info or info,kube=debug", args.log))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
    Ok(())
}
