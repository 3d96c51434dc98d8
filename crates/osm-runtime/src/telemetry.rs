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
    let filter = targets(&args.log_filter)?;
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match args.log_format {
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(())
}

/// The filter of a flag such as `--log-filter`.
///
/// # Errors
/// The flag is not valid.
pub fn targets(flag: &str) -> anyhow::Result<Targets> {
    // kube would log an answer that it can't decode. Such an answer may hold a token, so these logs are off
    // whatever the filter is. The services log failed watches themselves.
    format!("{flag},kube_client::client=off")
        .parse()
        .with_context(|| format!("--log-filter {flag:?} is not a filter such as info or info,kube=debug"))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn no_filter_lets_kube_log_answers() {
        let logs = |flag: &str, target: &str, line: Level| targets(flag).unwrap().would_enable(target, &line);
        assert!(logs("info", "kube_client", Level::INFO));
        assert!(logs(
            "info,osm_runtime::watch=debug",
            "osm_runtime::watch",
            Level::DEBUG
        ));
        assert!(!logs("info", "osm_runtime::watch", Level::DEBUG));
        for flag in ["trace", "kube_client::client=trace"] {
            assert!(!logs(flag, "kube_client::client", Level::ERROR), "{flag}");
        }
        assert!(targets("info=loud").is_err());
    }
}
