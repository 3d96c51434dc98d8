//! `osmctl fleet status`: one line per cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use kube::ResourceExt;
use osm_api::OperatingSystemConfig;
use osm_api::condition::{self, PUBLISHED};
use osm_api::rbac::Service;
use osm_api::worker_cluster::{self, Joining, WorkerCluster};

use crate::cluster::{self, Seed};
use crate::output;

const COLUMNS: [&str; 6] = [
    "NAMESPACE",
    "SERVED BY",
    "POOLS",
    "FIRST EXPIRY",
    "PROBLEM",
    "MESSAGE",
];

/// Show the clusters of a fleet
///
/// For each cluster, the command prints the namespace of the release that serves it, the number of its published and
/// of all its pools, when the first of their credentials expire, and which service does not serve it.
/// `osmctl status -n NAMESPACE` shows its pools.
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl fleet status --context seed --cluster-selector ring=canary")]
pub struct Status {
    /// Only WorkerClusters with these labels, as a label selector such as ring=canary
    #[arg(long, value_name = "SELECTOR")]
    cluster_selector: Option<String>,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// What the configs of a cluster say together.
#[derive(Default)]
struct Pools {
    all: usize,
    published: usize,
    /// Of a form in which the first one is the smallest.
    first_expiry: Option<String>,
}

impl Status {
    pub async fn run(self) -> Result<ExitCode> {
        let seed = Seed::connect(&self.cluster).await?;
        let (clusters, unreadable) = seed.worker_clusters(self.cluster_selector.as_deref()).await?;
        output::warnings(&unreadable);
        let mut pools: BTreeMap<String, Pools> = BTreeMap::new();
        for (namespace, cells) in seed.reader.table::<OperatingSystemConfig>().await? {
            pools.entry(namespace).or_default().add(&cells);
        }
        let served_by = seed.served_by().await;
        if let Err(failure) = &served_by {
            output::warnings([&failure.to_string()]);
        }
        let mut lines: Vec<[String; 6]> = clusters
            .iter()
            .map(|cluster| {
                let namespace = cluster.namespace().unwrap_or_default();
                let pools = pools.remove(&namespace).unwrap_or_default();
                let releases = served_by.as_ref().map_or("?".to_owned(), |served_by| {
                    served_by
                        .get(&namespace)
                        .map(|releases| releases.join(","))
                        .unwrap_or_default()
                });
                line(cluster, &releases, &pools)
            })
            .collect();
        // With a selector, those of other clusters are left.
        let others = pools.into_iter().filter(|_| self.cluster_selector.is_none());
        lines.extend(others.map(|(namespace, pools)| {
            let message = "it has configs and no WorkerCluster; create one, unless another release serves the namespace";
            pools.line([&namespace, "", "NotRegistered", message])
        }));
        lines.sort();
        lines.insert(0, COLUMNS.map(str::to_owned));
        output::print(&output::table(&lines))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Pools {
    fn add(&mut self, cells: &BTreeMap<String, String>) {
        self.all += 1;
        let cell = |column: &str| cells.get(column).map(String::as_str).unwrap_or_default();
        self.published += usize::from(cell("Published") == PUBLISHED);
        let expiry = Some(cell("Expires").to_owned()).filter(|expiry| !expiry.is_empty());
        self.first_expiry = self.first_expiry.take().into_iter().chain(expiry).min();
    }

    fn line(&self, [namespace, releases, problems, messages]: [&str; 4]) -> [String; 6] {
        let or_hyphen = |text: &str| match output::one_line(text) {
            line if line.is_empty() => "-".to_owned(),
            line => line,
        };
        [
            namespace.to_owned(),
            or_hyphen(releases),
            format!("{}/{}", self.published, self.all),
            or_hyphen(self.first_expiry.as_deref().unwrap_or_default()),
            or_hyphen(problems),
            or_hyphen(messages),
        ]
    }
}

fn line(cluster: &WorkerCluster, releases: &str, pools: &Pools) -> [String; 6] {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    let expected =
        |service: &Service| *service != Service::CsrApprover || cluster.spec.joining == Joining::Approved;
    let mut problems = Vec::new();
    let mut messages = Vec::new();
    for type_ in Service::ALL
        .into_iter()
        .filter(expected)
        .filter_map(worker_cluster::condition)
    {
        let Some(found) = condition::find(conditions.unwrap_or_default(), type_) else {
            problems.push(format!("{type_}: not reported"));
            continue;
        };
        let is_problem = found.status != "True";
        problems.extend(is_problem.then(|| format!("{type_}: {}", found.reason)));
        // A cluster that is served may have one, too, such as that a kubeconfig expires soon.
        messages.push(found.message.as_str());
    }
    let namespace = cluster.namespace().unwrap_or_default();
    pools.line([&namespace, releases, &problems.join(", "), &messages.join(" ")])
}
