//! `osmctl show`: what the machines of a pool get.
//!
//! It reads the config of the pool, which contains no credentials, and never a Secret. So it needs no right
//! on Secrets, and can't print what it does not have.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use osm_api::OperatingSystemConfig;
use osm_api::pool::Pool;
use osm_user_data::{MachineStage, Stage, yaml};

use crate::credentials::{CLOUD_CONFIG, CLOUD_CONFIG_MASK};
use crate::snapshot::ClusterPool;
use crate::tree::{self, StageName};
use crate::{cluster, output, snapshot};

/// Print what the machines of a pool get, without credentials
///
/// The content is that of the pool's OperatingSystemConfig. Credentials are not part of it: secret-syncer
/// adds them when it publishes. The output has their names in their places, such as
/// `<registry/docker.io/password>`. The command reads no Secret.
///
/// Without FILE, the command lists the files and units of both documents. With FILE, it prints the text of
/// one file.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Files and units
  osmctl show kube-system/workers

  # One file
  osmctl show kube-system/workers /etc/kubernetes/kubelet.conf")]
pub struct Show {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment
    pool: String,
    /// Path of a file on the machine
    file: Option<String>,
    /// Only this document
    #[arg(long, value_enum)]
    stage: Option<StageName>,
    #[command(flatten)]
    cluster: cluster::Flags,
}

type Stages = Vec<(Stage, MachineStage)>;

impl Show {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        let snapshot = cluster::read(&self.cluster, cluster::Needs::default())?;
        let pools = snapshot.pools();
        let pool = snapshot::find(&pools, &self.pool)?;
        snapshot.warn();
        let config = content(pool)?;
        if let Some(note) = note(config) {
            output::note(&format!("osmctl: {note}"));
        }
        let wanted = self.stage.map_or(Stage::ALL.to_vec(), |stage| vec![stage.into()]);
        let stages = masked(pool, config, &wanted)?;
        match &self.file {
            Some(path) => drop(output::raw(only(&stages, path)?)?),
            None => output::print(&list(&stages)?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The config of a pool, if osc-controller rendered it.
fn content<'a>(pool: &ClusterPool<'a>) -> Result<&'a OperatingSystemConfig> {
    let Some(config) = pool.config else {
        bail!("pool {pool} has no OperatingSystemConfig; run `osmctl status {pool}`");
    };
    if pool.is_of_the_upstream_osm() {
        bail!(
            "the upstream OSM created the OperatingSystemConfig of pool {pool}, and it may contain credentials; `osmctl migrate check` \
             compares it with what OSM renders"
        );
    }
    if config.stored().is_none() {
        bail!("pool {pool} was never rendered; run `osmctl status {pool}`");
    }
    Ok(config)
}

/// What a reader must know about the content.
fn note(config: &OperatingSystemConfig) -> Option<String> {
    let rendered = config.stored()?;
    let published = config.status.as_ref()?.published.as_ref();
    match published {
        Some(published) if published.digest == rendered.digest => None,
        Some(_) => Some("this content is not published yet; machines get the content before it".to_owned()),
        None => Some("this content is not published yet".to_owned()),
    }
}

/// The stages, without credentials.
fn masked(pool: &ClusterPool<'_>, config: &OperatingSystemConfig, wanted: &[Stage]) -> Result<Stages> {
    let content = config.content()?;
    let overwrite = pool
        .machine_deployment
        .and_then(|md| Pool::read(md).ok())
        .and_then(|pool| pool.overwrite_cloud_config)
        .filter(|text| !text.trim().is_empty());
    let mut stages = Vec::new();
    for stage in wanted {
        let mut machine = osm_user_data::masked_machine_stage(&content, *stage)?;
        for file in &mut machine.files {
            if file.path == CLOUD_CONFIG && !file.text.trim().is_empty() {
                file.text = format!("{CLOUD_CONFIG_MASK}\n");
            } else if let Some(overwrite) = &overwrite {
                file.text = file.text.replace(overwrite.trim(), CLOUD_CONFIG_MASK);
            }
        }
        stages.push((*stage, machine));
    }
    Ok(stages)
}

/// The text of a file.
fn only<'s>(stages: &'s Stages, path: &str) -> Result<&'s str> {
    let files = stages.iter().flat_map(|(_, machine)| &machine.files);
    let found: Vec<&str> = files
        .filter(|file| file.path == path)
        .map(|file| file.text.as_str())
        .collect();
    match found.as_slice() {
        [text] => Ok(text),
        [] => bail!("no document of the pool contains {path}; without a FILE, the command lists all files"),
        _ => bail!("both documents contain {path}; select one with --stage"),
    }
}

/// The overviews of the stages, and the files with the number of their lines.
fn list(stages: &Stages) -> Result<String> {
    let mut text = String::new();
    for (stage, machine) in stages {
        let lines = machine.files.iter().map(|file| {
            let lines = output::count(file.text.lines().count(), "line");
            [file.mode.clone(), file.path.clone(), lines]
        });
        let lines: Vec<[String; 3]> = lines.collect();
        let mut rest = tree::overview(machine);
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("modes");
        }
        let rest = yaml::write(&rest).map_err(anyhow::Error::msg)?;
        let name = tree::stage_name(*stage);
        text.push_str(&format!("# {name}\n{}\n{rest}\n", output::table(&lines)));
    }
    Ok(text.trim_end().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use osm_api::config::Stored;
    use osm_api::content::Content;
    use serde_json::json;

    use super::*;
    use crate::snapshot::{Snapshot, fixtures};

    fn snapshot() -> Snapshot {
        let mut snapshot = fixtures::snapshot();
        let file = |path: &str, data: &str| {
            serde_json::from_value(
                json!({"path": path, "content": {"inline": {"encoding": "b64", "data": data}}}),
            )
            .unwrap()
        };
        let mut content = Content {
            late_bound_values: serde_json::from_value(json!([{"id": "api/token", "kind": "APIToken"}]))
                .unwrap(),
            ..Content::default()
        };
        content.bootstrap_config.files = vec![
            file("/etc/token", "token: %%osm-late{api/token,b64}%%\n"),
            file("/etc/both", "1\n"),
        ];
        content.provisioning_config.files = vec![
            file("/etc/both", "2\n"),
            file("/opt/cloud", "before\n[Global]\npassword = hunter2\nafter\n"),
            file(CLOUD_CONFIG, "password = hunter2"),
        ];
        let status = snapshot.configs[0].status.as_mut().unwrap();
        let rendered = Stored::new(&content, false, status.rendered.take().unwrap()).with_documents(&content);
        status.published.as_mut().unwrap().digest = rendered.digest.clone();
        status.rendered = Some(rendered);
        let template = &mut snapshot.machine_deployments[0].spec.template;
        let provider = template.pointer_mut("/spec/providerSpec/value").unwrap();
        provider["overwriteCloudConfig"] = "[Global]\npassword = hunter2\n".into();
        snapshot
    }

    #[test]
    fn no_credential_is_shown() {
        let snapshot = snapshot();
        let pools = snapshot.pools();
        let config = content(&pools[0]).unwrap();
        let stages = masked(&pools[0], config, &Stage::ALL).unwrap();
        let text = format!("{stages:?}");
        assert!(
            !text.contains("hunter2") && text.contains("<api/token>"),
            "{text}"
        );
        assert!(list(&stages).unwrap().contains("/opt/cloud"));
        let one = only(&stages, "/opt/cloud").unwrap();
        assert_eq!(one, format!("before\n{CLOUD_CONFIG_MASK}\nafter\n"));
        for (path, expected) in [
            ("/etc/tokens", "lists all files"),
            ("/etc/both", "select one with --stage"),
        ] {
            let error = only(&stages, path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn content_that_is_not_published_is_noted_and_that_of_the_upstream_osm_is_not_shown() {
        let mut snapshot = snapshot();
        assert_eq!(note(&snapshot.configs[0]), None);
        let published = snapshot.configs[0].status.as_mut().unwrap().published.as_mut();
        published.unwrap().digest = "before".to_owned();
        assert!(note(&snapshot.configs[0]).unwrap().contains("not published yet"));
        snapshot.configs[0].spec.pool_ref = None;
        let pools = snapshot.pools();
        let error = content(&pools[0]).unwrap_err().to_string();
        assert!(error.contains("osmctl migrate check"), "{error}");
    }
}
