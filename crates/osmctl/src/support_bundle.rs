//! `osmctl support-bundle`: one archive with what the report of a problem needs.
//!
//! Of objects, only the fields in [`kinds`] are taken. Secrets, settings, documents, templates, environment
//! variables, arguments, and the specs of MachineDeployments are not among them, because they may contain credentials.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::core::ApiResource;
use osm_api::worker_cluster::WorkerCluster;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile, names};
use serde_json::Value;

use crate::cluster::{self, List, Needs, PART_OF, Readers};
use crate::snapshot::Snapshot;
use crate::{chain, output, pool_nodes, status};

/// Lines of each container's log.
const LOG_LINES: i64 = 2_000;

/// Fields of all objects: paths, separated by spaces.
const METADATA: &str = "metadata/name metadata/namespace metadata/uid metadata/generation \
    metadata/creationTimestamp metadata/deletionTimestamp";

/// The fields of Events about MachineDeployments, configs and profiles.
const EVENTS: &str = "type reason message count lastTimestamp involvedObject";

/// Write an archive with what the report of a problem needs
///
/// The archive has the output of `osmctl status` for all pools, conditions and digests of configs and profiles, the
/// state of the services with the newest 2,000 lines of their logs, Leases, and Events. It has no Secret, no settings,
/// no documents or templates, and no cloud credentials, but it has names and addresses. The command prints what is in it. Read
/// it before you send it.
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl support-bundle -n osm")]
pub struct SupportBundle {
    /// The archive, which must not exist [default: osm-support-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// A kind of objects, the file with them, where they are, and the fields that are taken.
struct Kind {
    file: &'static str,
    resource: ApiResource,
    place: Place,
    /// As [`METADATA`].
    fields: &'static str,
}

enum Place {
    /// Namespace of the release.
    Release,
    /// Namespace of the release, objects of the services alone.
    Services,
    /// Namespace of the release, the Leases of replicas alone.
    Replicas,
    /// Namespace of the configs.
    Configs,
    WorkerCluster,
}

fn kinds() -> Vec<Kind> {
    let kind = |file, resource, place, fields| Kind {
        file,
        resource,
        place,
        fields,
    };
    vec![
        kind(
            "machinedeployments.json",
            ApiResource::erase::<MachineDeployment>(&()),
            Place::WorkerCluster,
            "spec/replicas spec/paused spec/template/spec/versions status",
        ),
        kind(
            "configs.json",
            ApiResource::erase::<OperatingSystemConfig>(&()),
            Place::Configs,
            "spec/poolRef status/conditions status/profile status/published status/retired \
             status/rendered/digest status/rendered/contentID status/rendered/revision \
             status/rendered/templateDigest status/rendered/profile status/rendered/settingsDigest \
             status/rendered/apiServer status/rendered/userDataBytes status/rendered/osName \
             status/rendered/cloudProvider",
        ),
        kind(
            "profiles.json",
            ApiResource::erase::<OperatingSystemProfile>(&()),
            Place::Release,
            "spec/version spec/osName spec/osVersion spec/templateEngine spec/supportedCloudProviders/name \
             status/conditions status/observedGeneration status/accepted/version status/accepted/digest \
             status/accepted/libraryVersion status/accepted/parents",
        ),
        kind(
            "workerclusters.json",
            ApiResource::erase::<WorkerCluster>(&()),
            Place::Configs,
            "metadata/labels spec/joining spec/profileAliases status/conditions",
        ),
        kind(
            "deployments.json",
            ApiResource::erase::<Deployment>(&()),
            Place::Services,
            "spec/replicas spec/template/spec/containers/name spec/template/spec/containers/image \
             spec/template/spec/containers/resources status",
        ),
        kind(
            "pods.json",
            ApiResource::erase::<Pod>(&()),
            Place::Services,
            "spec/nodeName status/phase status/conditions status/containerStatuses",
        ),
        kind(
            "leases.json",
            ApiResource::erase::<Lease>(&()),
            Place::Replicas,
            "metadata/labels spec",
        ),
    ]
}

impl SupportBundle {
    pub fn run(self) -> Result<ExitCode> {
        cluster::run(self.write())
    }

    async fn write(&self) -> Result<ExitCode> {
        let now = Timestamp::now();
        let default = || format!("osm-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")).into();
        let path = self.output.clone().unwrap_or_else(default);
        let files = self.files(now).await?;
        let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, text) in &files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now.as_second().unsigned_abs());
            tar.append_data(&mut header, format!("osm-support/{name}"), text.as_bytes())?;
        }
        let archive = tar.into_inner()?.finish()?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let written = file.and_then(|mut file| file.write_all(&archive));
        written
            .with_context(|| format!("can't write {}; name another file with --output", path.display()))?;
        let mut text = format!("{}\n", path.display());
        for (name, content) in &files {
            text.push_str(&format!(
                "  {name}: {}\n",
                output::count(content.lines().count(), "line")
            ));
        }
        output::print(&text)?;
        output::note("osmctl: read the archive before you send it; it has names and addresses");
        Ok(ExitCode::SUCCESS)
    }

    /// The files of the archive. What can't be read is in the first one.
    async fn files(&self, now: Timestamp) -> Result<Vec<(String, String)>> {
        let readers = Readers::connect(&self.cluster).await?;
        let mut unread = Vec::new();
        // The logs may show why it fails.
        let read = readers.read(&self.cluster, Needs::STATUS).await;
        let is_read = read.is_ok();
        let snapshot = read.unwrap_or_else(|error| {
            unread.push(format!("{error:#}"));
            Snapshot {
                namespace: self.cluster.namespace().to_owned(),
                ..Snapshot::default()
            }
        });
        unread.extend(snapshot.unread.iter().map(|unread| unread.message.clone()));
        let mut files = Vec::new();
        if is_read {
            // Otherwise they would say that there is nothing.
            files.push(("status.txt".to_owned(), status_of(&snapshot, now)));
            let events = serde_json::to_value(&snapshot.events)?;
            files.push(("events.json".to_owned(), kept(&events, EVENTS)?));
        }
        for kind in kinds() {
            match objects(&readers, &snapshot, &kind).await {
                Ok(text) => files.push((kind.file.to_owned(), text)),
                Err(error) => unread.push(error.to_string()),
            }
        }
        let kind = ApiResource::erase::<Pod>(&());
        let pods = List::within(&kind, snapshot.release()).labels(PART_OF);
        // If that fails, the list for pods.json did, too.
        let pods = readers.management.list::<Pod>(&pods).await;
        for pod in pods.map(|listed| listed.objects).unwrap_or_default() {
            for (name, log) in readers.management.logs(&pod, LOG_LINES).await {
                match log {
                    Ok(text) => files.push((format!("logs/{name}.log"), text)),
                    Err(failure) => unread.push(failure.to_string()),
                }
            }
        }
        let version = env!("CARGO_PKG_VERSION");
        let about = format!("osmctl {version}, {now}, namespace {}\n", snapshot.namespace);
        let unread: String = unread
            .iter()
            .map(|line| format!("not read: {}\n", output::one_line(line)))
            .collect();
        files.insert(0, ("about.txt".to_owned(), about + &unread));
        Ok(files)
    }
}

/// All pools, each with its chain and its Nodes.
fn status_of(snapshot: &Snapshot, now: Timestamp) -> String {
    let pools = snapshot.pools();
    let mut text = status::table(snapshot, &pools, now);
    for pool in &pools {
        let links = chain::chain(snapshot, pool, now);
        text.push_str(&format!("\n{}", chain::text(&pool.to_string(), &links)));
        let nodes = snapshot.nodes_of(pool);
        text.extend(nodes.map(|nodes| pool_nodes::text(pool, &nodes, now)));
    }
    output::clean(&text)
}

async fn objects(readers: &Readers, snapshot: &Snapshot, kind: &Kind) -> Result<String> {
    let release = List::within(&kind.resource, snapshot.release());
    let (reader, list) = match kind.place {
        Place::Release => (&readers.management, release),
        Place::Services => (&readers.management, release.labels(PART_OF)),
        Place::Replicas => (&readers.management, release.labels(names::REPLICA_OF)),
        Place::Configs => (
            &readers.management,
            List::within(&kind.resource, &snapshot.namespace),
        ),
        Place::WorkerCluster => (&readers.worker, List::everywhere(&kind.resource)),
    };
    let fields = format!("{METADATA} {}", kind.fields);
    let objects = reader.list::<Value>(&list).await?.objects;
    kept(&Value::Array(objects), &fields)
}

fn kept(objects: &Value, fields: &str) -> Result<String> {
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Ok(serde_json::to_string_pretty(&keep(objects, &fields))? + "\n")
}

/// The fields at these paths. In a list, those of each item.
fn keep(value: &Value, paths: &[&str]) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| keep(item, paths)).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| {
                let below = paths.iter().filter_map(|path| match path.split_once('/') {
                    Some((first, rest)) => (first == name).then_some(rest),
                    None => (path == name).then_some(""),
                });
                let below: Vec<&str> = below.collect();
                let kept = match below.as_slice() {
                    [] => return None,
                    paths if paths.contains(&"") => value.clone(),
                    paths => keep(value, paths),
                };
                Some((name.clone(), kept))
            })
            .collect(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_listed_fields_are_kept() {
        let object = json!({"metadata": {"name": "a", "annotations": {"x": "secret"}}, "data": {"a": "secret"},
            "spec": {"containers": [{"image": "i", "env": [{"name": "A", "value": "secret"}]}, {"image": "j"}],
            "replicas": 1, "text": "secret"}});
        let kept = keep(
            &object,
            &[
                "metadata/name",
                "spec/containers/image",
                "spec/replicas",
                "spec/text/below",
            ],
        );
        let expected = json!({"metadata": {"name": "a"},
            "spec": {"containers": [{"image": "i"}, {"image": "j"}], "replicas": 1, "text": null}});
        assert_eq!(kept, expected);
    }
}
