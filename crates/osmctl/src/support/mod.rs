//! `osmctl support`: what a maintainer asks for, in one archive.
//!
//! It reads no Secret. Objects are never copied: each file has the fields that it names, and every text is masked.
//!
//! ```text
//! mask       hides what looks like a credential
//! services   Deployments, pods and Leases as JSON
//! archive    files → tar.gz
//! ```

mod archive;
mod mask;
mod services;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile, Pool, Settings, pool};
use osm_render::yaml;
use serde_json::{Value, json};

use self::archive::File;
use crate::cluster::{self, Services};
use crate::snapshot::{Snapshot, event_time};
use crate::{chain, events, output, why};

/// What is never part of an archive, and how to add it.
const NEVER: [&str; 3] = [
    "Secrets: osmctl does not read them",
    "the specs of MachineDeployments, profiles and configs, because they may contain credentials; `osmctl show` prints the files of a pool without them",
    "logs; add those of the services by hand: kubectl logs -n NAMESPACE -l app.kubernetes.io/name=operating-system-manager --tail -1",
];

/// Collect what a maintainer asks for into one archive, without credentials
///
/// The archive contains versions, the pools with their conditions, profiles, Events, the settings, and images, flags, state, Leases,
/// metrics and `/readyz` of the services. It contains names of objects and addresses of your site.
///
/// The command reads no Secret. It masks whatever looks like a credential. It reports on standard error what it left out, and why.
/// The file `left-out.txt` of the archive has the same list.
#[derive(Args)]
#[command(after_help = "\
Examples:
  osmctl support

  # The machines have another cluster than the installation
  osmctl support --context seed -n cluster-x7k2 --worker-kubeconfig user-cluster.kubeconfig -o report.tar.gz

  # The services have another cluster than the profiles and the machines
  osmctl support --context user --home-context seed --home-namespace cluster-x7k2")]
pub struct Support {
    /// Archive to write [default: osm-support-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Support {
    /// Reads the cluster and writes the archive.
    pub fn run(self) -> Result<ExitCode> {
        let now = Timestamp::now();
        let path = self
            .output
            .unwrap_or_else(|| format!("osm-support-{}.tar.gz", now.strftime("%Y%m%dT%H%M%SZ")).into());
        if path.exists() {
            bail!("{} exists already; name another file with -o", path.display());
        }
        let (snapshot, services) = cluster::run(cluster::read_with_services(&self.cluster))?;
        let left_out = left_out(&snapshot);
        for note in &left_out {
            eprintln!("osmctl: left out: {note}");
        }
        let mut files = files(&snapshot, &services, now);
        files.push(File::text("left-out.txt", left_out.join("\n") + "\n"));
        archive::write(&path, &files, now)?;
        let count = output::count(files.len(), "file");
        output::print(&format!(
            "{}: {count}; read them before you send them\n",
            path.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn left_out(snapshot: &Snapshot) -> Vec<String> {
    let never = NEVER.iter().map(|note| (*note).to_owned());
    let unread = snapshot.unread.iter().map(|unread| mask::own(&unread.message));
    never.chain(unread).collect()
}

/// Everything but the list of what was left out.
fn files(snapshot: &Snapshot, services: &Services, now: Timestamp) -> Vec<File> {
    let mut files = vec![
        File::json("versions.json", &versions(services, now)),
        File::json("pools.json", &pools(snapshot, now)),
        File::json(
            "machine-deployments.json",
            &list(&snapshot.machine_deployments, machine_deployment),
        ),
        File::json("configs.json", &list(&snapshot.configs, config)),
        File::json("profiles.json", &list(&snapshot.profiles, profile)),
        File::json("events.json", &all_events(snapshot, services)),
        File::json("services.json", &services::json(services)),
    ];
    files.extend(snapshot.settings.as_deref().map(settings));
    files.extend(services.answers.iter().map(|answer| {
        let name = format!("{}/{}.txt", answer.what, answer.pod);
        File::text(&name, mask::own(&answer.text))
    }));
    files
}

fn versions(services: &Services, now: Timestamp) -> Value {
    let servers: serde_json::Map<String, Value> = services
        .versions
        .iter()
        .map(|(cluster, version)| ((*cluster).to_owned(), version.as_str().into()))
        .collect();
    json!({"osmctl": env!("CARGO_PKG_VERSION"), "collected": output::timestamp(now), "apiServers": servers})
}

/// What each pool waits for.
fn pools(snapshot: &Snapshot, now: Timestamp) -> Value {
    let pools = snapshot.pools();
    let shown = pools
        .iter()
        .map(|pool| why::chain_json(&pool.to_string(), &chain::chain(snapshot, pool, now)));
    mask::values(shown.collect(), mask::own)
}

fn list<T>(objects: &[T], shown: fn(&T) -> Value) -> Value {
    let shown: Vec<Value> = objects.iter().map(shown).collect();
    mask::values(shown.into(), mask::own)
}

/// Only what OSM reads and no credential can be in: `providerSpec` contains those of the cloud.
fn machine_deployment(object: &MachineDeployment) -> Value {
    let described = match Pool::read(object) {
        Ok(pool) => json!({
            "operatingSystem": pool.operating_system,
            "cloudProvider": pool.cloud_provider,
            "kubelet": pool.kubelet_version.to_string(),
            "provisioningUtility": pool.provisioning_utility(),
            "warnings": pool.warnings,
        }),
        Err(error) => json!({"reason": error.reason().as_str(), "error": error.to_string()}),
    };
    let annotations: Vec<&String> = object.annotations().keys().collect();
    json!({
        "metadata": metadata(object),
        "revision": pool::revision(object),
        "profile": pool::annotation(object, osm_api::names::PROFILE),
        "profileNamespace": pool::annotation(object, osm_api::names::PROFILE_NAMESPACE),
        "annotations": annotations,
        "pool": described,
    })
}

fn config(object: &OperatingSystemConfig) -> Value {
    let status = object.status.as_ref();
    let rendered = status.and_then(|status| status.rendered.as_ref());
    json!({
        "metadata": metadata(object),
        "conditions": conditions(status.map(|status| status.conditions.as_slice())),
        "rendered": rendered.map(|rendered| json!({
            "generation": rendered.generation,
            "digest": rendered.digest,
            "revision": rendered.revision,
            "profile": rendered.profile,
            "settingsDigest": rendered.settings_digest,
            "apiServer": rendered.api_server,
            "userDataBytes": rendered.user_data_bytes,
        })),
        "published": status.and_then(|status| status.published.as_ref()),
        "retired": status.and_then(|status| status.retired.as_ref()),
    })
}

fn profile(object: &OperatingSystemProfile) -> Value {
    let status = object.status.as_ref();
    json!({
        "metadata": metadata(object),
        "osName": object.spec.os_name,
        "version": object.spec.version,
        "observedGeneration": status.and_then(|status| status.observed_generation),
        "acceptedVersion": status.and_then(|status| status.accepted.as_ref()).map(|accepted| &accepted.version),
        "conditions": conditions(status.map(|status| status.conditions.as_slice())),
    })
}

fn metadata(object: &impl ResourceExt) -> Value {
    let meta = object.meta();
    json!({
        "namespace": meta.namespace, "name": meta.name, "uid": meta.uid, "generation": meta.generation,
        "creationTimestamp": meta.creation_timestamp, "deletionTimestamp": meta.deletion_timestamp, "finalizers": meta.finalizers,
    })
}

fn conditions(conditions: Option<&[Condition]>) -> Vec<Value> {
    let shown = |condition: &Condition| {
        json!({
            "type": condition.type_, "status": condition.status, "reason": condition.reason, "message": condition.message,
            "since": condition.last_transition_time.0.to_string(), "observedGeneration": condition.observed_generation,
        })
    };
    conditions.unwrap_or_default().iter().map(shown).collect()
}

/// Events of other programs may repeat what a cloud provider answered.
fn all_events(snapshot: &Snapshot, services: &Services) -> Value {
    let mut all: Vec<&Event> = snapshot.events.iter().chain(&services.events).collect();
    all.sort_by_key(|event| event_time(event));
    let is_ours = |event: &Event| {
        osm_api::rbac::Service::ALL
            .iter()
            .any(|service| service.name() == events::component(event))
    };
    let shown = |event: &&Event| {
        let hide = if is_ours(event) { mask::own } else { mask::foreign };
        mask::values(events::shown(event), hide)
    };
    all.iter().map(shown).collect()
}

/// The settings document. One that is invalid may contain anything, so that only its form is kept.
fn settings(document: &str) -> File {
    let errors: Vec<String> = match Settings::parse(document) {
        Ok(_) => Vec::new(),
        Err(error) => error.0,
    };
    let hide: fn(&str) -> String = match errors.is_empty() {
        true => mask::own,
        false => mask::everything,
    };
    let comments = errors
        .iter()
        .map(|error| format!("# {}\n", output::one_line(&mask::own(error))));
    let mut text: String = comments.collect();
    match yaml::read(document) {
        Ok(documents) => {
            for value in documents {
                let masked = mask::values(value, hide);
                text.push_str(&yaml::write(&masked).unwrap_or_else(|problem| format!("# {problem}\n")));
            }
        }
        Err(_) => text.push_str("# The document is not valid YAML, so it is left out.\n"),
    }
    File::text("settings.yaml", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Answer;
    use crate::snapshot::{Part, Unread, fixtures};

    const PASSWORD: &str = "hunter2-of-the-site";

    fn now() -> Timestamp {
        "2026-02-01T00:00:00Z".parse().unwrap()
    }

    fn all(snapshot: &Snapshot, services: &Services) -> String {
        let files = files(snapshot, services, now());
        files
            .iter()
            .map(|file| format!("{}\n{}\n", file.name, file.text))
            .collect()
    }

    #[test]
    fn what_a_maintainer_asks_for_is_there() {
        let mut snapshot = fixtures::snapshot();
        snapshot.settings = Some("cluster: {dnsIPs: [10.96.0.10]}\n".to_owned());
        let services = Services {
            versions: vec![("management", "v1.34.2".to_owned())],
            deployments: vec![
                json!({"metadata": {"name": "osm-secret-syncer"}, "spec": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "secret-syncer", "image": "ghcr.io/x/secret-syncer:0.1.0", "args": ["--joining=approved"],
                    "env": [{"name": "HTTPS_PROXY", "value": format!("http://u:{PASSWORD}@proxy")}]}]}}}}),
            ],
            answers: vec![Answer {
                pod: "osm-secret-syncer-1".to_owned(),
                what: "metrics",
                text: "osm_replicas 1\n".to_owned(),
            }],
            ..Services::default()
        };
        let text = all(&snapshot, &services);
        for part in [
            "\"management\": \"v1.34.2\"",
            "kube-system",
            "rendered from profile osp-tiny v1.0.0",
            "\"credentialExpires\": \"2026-03-01T00:00:00Z\"",
            "10.96.0.10",
            "ghcr.io/x/secret-syncer:0.1.0",
            "--joining=approved",
            "HTTPS_PROXY",
            "metrics/osm-secret-syncer-1.txt\nosm_replicas 1\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains(PASSWORD), "{text}");
    }

    #[test]
    fn settings_that_are_invalid_keep_only_their_form() {
        let document = format!(
            "proxy: {{http: 'http://u:{PASSWORD}@proxy:3128'}}\nnonsense: {PASSWORD}\ncluster: {{dnsIPs: [10.96.0.10]}}\n"
        );
        let file = settings(&document);
        assert!(
            !file.text.contains(PASSWORD) && !file.text.contains("10.96.0.10"),
            "{}",
            file.text
        );
        assert!(
            file.text.contains("nonsense") && file.text.starts_with("# "),
            "{}",
            file.text
        );
        let file = settings(&format!("a: [{PASSWORD}\n"));
        assert!(
            !file.text.contains(PASSWORD) && file.text.contains("left out"),
            "{}",
            file.text
        );
        let good = settings("proxy: {http: 'http://proxy.example:3128'}\n");
        assert!(good.text.contains("http://proxy.example:3128"), "{}", good.text);
    }

    #[test]
    fn what_could_not_be_read_is_listed() {
        let mut snapshot = fixtures::snapshot();
        snapshot.unread.push(Unread {
            part: Part::Services,
            message: format!("cannot list pods: proxy http://u:{PASSWORD}@proxy refused"),
        });
        let notes = left_out(&snapshot);
        assert_eq!(notes.len(), NEVER.len() + 1);
        assert!(!notes.concat().contains(PASSWORD) && notes.concat().contains("cannot list pods"));
    }
}
