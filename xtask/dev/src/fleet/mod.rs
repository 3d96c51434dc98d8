//! `cargo xtask fleet`: what a release costs that serves many user clusters, and what those that misbehave do to the
//! others.
//!
//! Each number of clusters gets a new seed, which is a real etcd and kube-apiserver, and new user clusters, which one
//! other process serves from memory. They share the machine with the services and with this program.

mod figures;
mod options;
mod profile;
mod services;
mod stage;
mod user_clusters;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use osm_testkit::control_plane::assets;
use osm_testkit::progress::Progress;
use osm_testkit::{Options, installation};

use self::figures::Report;
pub use self::options::Fleet;
use self::stage::Stage;
use crate::build;

impl Fleet {
    /// Measures, and prints a Markdown table.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("building the services and the user clusters");
        let binaries = if self.dev {
            tokio::task::spawn_blocking(development_build).await??
        } else {
            build::fleet().await?
        };
        let mut all = Vec::new();
        let outcome: Result<()> = async {
            for clusters in &self.clusters {
                all.push(Stage::measure(progress, self, &binaries, *clusters).await?);
            }
            Ok(())
        }
        .await;
        // What was measured before a failure took long, too.
        let report = Report::new(crate::revision::read().await?, all);
        println!("{report}");
        if let Some(file) = &self.json {
            std::fs::write(file, serde_json::to_string_pretty(&report)?)
                .with_context(|| file.display().to_string())?;
        }
        outcome?;
        let broken = report.broken();
        ensure!(
            self.dev || broken.is_empty(),
            "these bars don't hold: {}",
            broken.join(", ")
        );
        Ok(())
    }
}

fn development_build() -> Result<PathBuf> {
    if std::env::var_os("OSM_BIN_DIR").is_none() {
        installation::build(&["osm-sim"])?;
    }
    installation::binaries()
}
