//! Logging.

use std::io::IsTerminal;

use anyhow::Context as _;
use osm_api::settings::LogLevel;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::args::{CommonArgs, LogFormat};
use crate::{Cluster, settings_watch};

/// Starts of the targets of the services' own lines. Their tests plant credentials, and search the lines of every level for them. Lines of
/// libraries may hold what a request holds, and whoever may edit the settings need not be allowed to see that.
const OWN: [&str; 5] = [
    "csr_approver",
    "osc_controller",
    "osm_",
    "osp_controller",
    "secret_syncer",
];

/// The filter of log lines. It can change while the service runs.
pub struct Filter {
    handle: reload::Handle<Targets, Registry>,
    flag: String,
}

/// Starts logging to standard error.
///
/// # Errors
/// The filter is not valid.
pub fn init(args: &CommonArgs) -> anyhow::Result<Filter> {
    let (filter, handle) = reload::Layer::new(targets(&args.log, None)?);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match args.log_format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).boxed(),
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    Ok(Filter {
        handle,
        flag: args.log.clone(),
    })
}

/// The filter of a flag such as `--log`, with `level` for the services' own lines.
///
/// # Errors
/// The flag is not valid.
pub fn targets(flag: &str, level: Option<LogLevel>) -> anyhow::Result<Targets> {
    let own = level.map_or_else(String::new, |level| {
        OWN.map(|target| format!("{target}={level},")).concat()
    });
    // kube would log an answer that it can't decode. Such an answer may hold a token, so these logs are off whatever the filter is. The
    // services log failed watches themselves.
    format!("{flag},{own}kube_client::client=off,kube_runtime=off")
        .parse()
        .with_context(|| format!("--log {flag:?} is not a filter such as info or info,kube=debug"))
}

impl Filter {
    /// Follows `logLevel` of the settings.
    pub fn follow(self, cluster: &Cluster) {
        let settings = cluster.settings.clone();
        settings_watch::on_change(cluster, move || {
            let level = settings
                .borrow()
                .as_ref()
                .and_then(|current| current.settings.log_level);
            self.set(level);
        });
    }

    fn set(&self, level: Option<LogLevel>) {
        let changed = targets(&self.flag, level).and_then(|targets| Ok(self.handle.reload(targets)?));
        if let Err(error) = changed {
            tracing::error!(%error, "the log level can't be changed; restart the service");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn the_level_of_the_settings_is_that_of_the_services_own_lines_alone() {
        let logs = |flag: &str, level, target: &str, line: Level| {
            targets(flag, level).unwrap().would_enable(target, &line)
        };
        let debug = Some(LogLevel::Debug);
        for target in OWN.map(|own| format!("{own}::watch")) {
            assert!(!logs("info", None, &target, Level::DEBUG), "{target}");
            assert!(logs("info", debug, &target, Level::DEBUG), "{target}");
            assert!(logs("debug", None, &target, Level::DEBUG), "{target}");
            assert!(
                !logs("debug", Some(LogLevel::Error), &target, Level::WARN),
                "{target}"
            );
        }
        assert!(logs("info", debug, "kube_client", Level::INFO));
        assert!(!logs("info", debug, "hyper", Level::DEBUG));
        // Whoever names a module knows what to look for.
        assert!(logs(
            "info,osm_runtime::watch=debug",
            Some(LogLevel::Warn),
            "osm_runtime::watch",
            Level::DEBUG
        ));
        for target in ["kube_client::client", "kube_runtime::watcher"] {
            for flag in ["trace", "kube_client::client=trace,kube_runtime=trace"] {
                assert!(!logs(flag, debug, target, Level::ERROR), "{flag}");
            }
        }
        assert!(targets("info=loud", None).is_err());
    }

    #[test]
    fn the_filter_changes_while_the_service_runs() {
        let (layer, handle) = reload::Layer::new(targets("info", None).unwrap());
        let filter = Filter {
            handle,
            flag: "info".to_owned(),
        };
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let logs_details = || tracing::enabled!(target: "osm_runtime::watch", Level::DEBUG);
            assert!(!logs_details());
            filter.set(Some(LogLevel::Debug));
            assert!(logs_details());
            filter.set(None);
            assert!(!logs_details());
        });
    }
}
