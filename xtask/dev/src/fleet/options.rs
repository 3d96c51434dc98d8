//! What is measured.

use std::path::PathBuf;

/// Measure what it costs to serve many user clusters: memory, CPU, requests and delays
///
/// Memory, CPU and requests at 1,000 clusters follow from those of all numbers by linear regression, if 1,000 is
/// not among them. The command fails if a bar does not hold. Times are judged at up to 500 clusters, and beyond only
/// if the process that serves the user clusters takes less than half of the processors.
#[derive(clap::Args)]
pub struct Fleet {
    /// Numbers of user clusters, separated by commas
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "10,100,300,1000",
          value_parser = clap::value_parser!(u32).range(1..=5000))]
    pub clusters: Vec<u32>,
    /// MachineDeployments in each cluster; without any, no change is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub pools: u32,
    /// Then add clusters that refuse everything, or do not answer
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub away: u32,
    /// Then add clusters that send too much
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub hostile: u32,
    /// Then run this many replicas, and kill one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub replicas: usize,
    /// Then register and remove clusters this often, 100 at a time
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub churn: u32,
    /// Time without changes in which idle services are measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub minutes: u64,
    /// Changes of pools of one cluster, one after the other
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub changes: u32,
    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure the development build in OSM_BIN_DIR, or a new one, to try this command; its figures are not
    /// comparable
    #[arg(long)]
    pub dev: bool,
}
