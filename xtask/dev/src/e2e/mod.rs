//! `cargo xtask e2e`: Operating System Manager with real machines.

mod air_gap;
mod environment;
mod helm;
mod machine_args;
mod node;
mod pool;

use anyhow::Result;
use clap::Subcommand;

/// Run end-to-end tests with real machines
#[derive(clap::Args)]
pub struct E2e {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Helm(helm::Helm),
    Node(node::Node),
}

impl E2e {
    /// Runs what was asked for.
    ///
    /// # Errors
    /// A test that fails, or something that can't be installed, built or started.
    pub async fn run(&self) -> Result<()> {
        match &self.what {
            What::Helm(helm) => helm.run().await,
            What::Node(node) => node.run().await,
        }
    }
}
