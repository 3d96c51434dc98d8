//! Sends the writes of a file for each pool of the cluster of `KUBECONFIG`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use osm_api::names;
use osm_bare_client::pool::Sender;
use osm_bare_client::watch::{self, Options};

/// Send the writes of an implementation for each pool, and do nothing else
#[derive(Parser)]
#[command(name = "osm-bare-client")]
struct Arguments {
    /// File of requests by change, as `cargo xtask bench` writes it
    writes: PathBuf,
    /// Namespace of the profile and the settings
    #[arg(long, env = "OSM_BENCH_NAMESPACE")]
    namespace: String,
    /// Profile whose changes are served
    #[arg(long, env = "OSM_BENCH_PROFILE")]
    profile: String,
    /// Pools whose requests are sent at the same time
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("osm-bare-client: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let path = &arguments.writes;
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let writes = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let sender = Sender::new(kube::Config::infer().await?)?;
    let options = Options {
        namespace: arguments.namespace,
        profile: arguments.profile,
        settings: names::SETTINGS_CONFIG_MAP.to_owned(),
        concurrency: arguments.concurrency,
    };
    watch::run(sender, writes, &options).await
}
