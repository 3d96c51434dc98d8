//! `osmctl show`: what the machines of a pool get.
//!
//! It reads the config of the pool, which contains no credentials, and never a Secret. So it needs no right on Secrets, and can't print
//! what it does not have.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use osm_api::OperatingSystemConfig;
use osm_api::content::ContentView;
use osm_api::pool::Pool;
use osm_render::{MachineStage, Stage, yaml};

use crate::credentials::{CLOUD_CONFIG, CLOUD_CONFIG_MASK};
use crate::snapshot::ClusterPool;
use crate::tree::{self, Tree};
use crate::{cluster, output, snapshot};

/// Print what the machines of a pool get, without credentials
///
/// The content is that of the pool's OperatingSystemConfig. Credentials are not part of it: secret-syncer adds them when it publishes.
/// The output has a description in their places, such as `<registry password of docker.io>`. The command reads no Secret.
///
/// Without FILE, the command lists the files and units of both documents. With FILE, it prints the text of one file.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Files and units
  osmctl show kube-system/workers

  # One file
  osmctl show kube-system/workers /etc/kubernetes/kubelet.conf

  # All files, in a folder
  osmctl show kube-system/workers -o dir=machine")]
pub struct Show {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment
    pool: String,
    /// Path of a file on the machine
    file: Option<String>,
    /// Only this document
    #[arg(long, value_enum)]
    stage: Option<StageName>,
    /// Output: text, or dir=PATH (the files of the machines)
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

#[derive(Clone, Copy, ValueEnum)]
enum StageName {
    /// The user data that the cloud provides to a new machine
    Bootstrap,
    /// The document that the machine then fetches and applies
    Provisioning,
}

#[derive(Clone)]
enum Format {
    Text,
    Folder(PathBuf),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("dir=")) {
            ("text", _) => Ok(Self::Text),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Folder(path.into())),
            _ => Err("use text or dir=PATH".to_owned()),
        }
    }
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
            eprintln!("osmctl: {note}");
        }
        let wanted = match self.stage {
            None => Stage::ALL.to_vec(),
            Some(StageName::Bootstrap) => vec![Stage::Bootstrap],
            Some(StageName::Provisioning) => vec![Stage::Provisioning],
        };
        let mut stages = masked(pool, config, &wanted)?;
        if let Some(path) = &self.file {
            stages = only(stages, path)?;
        }
        match (&self.output, &self.file) {
            (Format::Folder(folder), _) => {
                let mut tree = Tree::default();
                let top = tree::pool_folder(&pool.namespace, &pool.name)?;
                for (stage, machine) in stages {
                    tree.add(&top, stage, machine)?;
                }
                tree.write(folder)?;
            }
            (Format::Text, None) => output::print(&list(&stages)?)?,
            (Format::Text, Some(_)) => {
                let files = stages.iter().flat_map(|(_, machine)| &machine.files);
                let text: String = files.map(|file| file.text.as_str()).collect();
                output::print(&text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The config of a pool, if osc-controller rendered it.
fn content<'a>(pool: &ClusterPool<'a>) -> Result<&'a OperatingSystemConfig> {
    let Some(config) = pool.config else {
        bail!("pool {pool} has no OperatingSystemConfig; run `osmctl status {pool}`");
    };
    if pool.is_of_the_go_implementation() {
        bail!(
            "the Go implementation created the OperatingSystemConfig of pool {pool}, and it may contain credentials; `osmctl migrate check` \
             compares it with what OSM renders"
        );
    }
    if ContentView::of(config).rendered().is_none() {
        bail!("pool {pool} was never rendered; run `osmctl status {pool}`");
    }
    Ok(config)
}

/// What a reader must know about the content.
fn note(config: &OperatingSystemConfig) -> Option<String> {
    let rendered = ContentView::of(config).rendered()?;
    let published = config.status.as_ref()?.published.as_ref();
    match published {
        Some(published) if published.digest == rendered.digest => None,
        Some(_) => Some("this content is not published yet; machines get the content before it".to_owned()),
        None => Some("this content is not published yet".to_owned()),
    }
}

/// The stages, without credentials.
fn masked(pool: &ClusterPool<'_>, config: &OperatingSystemConfig, wanted: &[Stage]) -> Result<Stages> {
    let content = ContentView::of(config).content()?;
    let overwrite = pool
        .machine_deployment
        .and_then(|md| Pool::read(md).ok())
        .and_then(|pool| pool.overwrite_cloud_config)
        .filter(|text| !text.trim().is_empty());
    let mut stages = Vec::new();
    for stage in wanted {
        let mut machine = osm_render::masked_machine_stage(&content, *stage)?;
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

/// The stage that has the file, with the file alone.
fn only(stages: Stages, path: &str) -> Result<Stages> {
    let paths: Vec<String> = stages
        .iter()
        .flat_map(|(_, machine)| machine.files.iter().map(|file| file.path.clone()))
        .collect();
    let found: Stages = stages
        .into_iter()
        .filter_map(|(stage, mut machine)| {
            machine.files.retain(|file| file.path == path);
            (!machine.files.is_empty()).then_some((stage, machine))
        })
        .collect();
    match found.len() {
        1 => Ok(found),
        0 => {
            let nearest = paths.iter().min_by_key(|known| strsim::levenshtein(known, path));
            let hint = nearest.map_or_else(String::new, |path| format!("; the nearest is {path}"));
            Err(anyhow!("no document of the pool contains {path}{hint}"))
        }
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
        text.push_str(&format!(
            "# {name}\n{}\n{}\n",
            output::table(&lines),
            output::visible(&rest)
        ));
    }
    Ok(text.trim_end().to_owned() + "\n")
}

#[cfg(test)]
mod tests {
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
            late_bound: serde_json::from_value(json!([{"id": "api/token", "kind": "ApiToken"}])).unwrap(),
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
        let rendered = osm_render::content(&content, status.rendered.take().unwrap()).pack();
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
            !text.contains("hunter2") && text.contains("<API token of the pool>"),
            "{text}"
        );
        assert!(list(&stages).unwrap().contains("/opt/cloud"));
        let one = only(stages.clone(), "/opt/cloud").unwrap();
        assert_eq!(
            one[0].1.files[0].text,
            format!("before\n{CLOUD_CONFIG_MASK}\nafter\n")
        );
        for (path, expected) in [
            ("/etc/tokens", "the nearest is /etc/token"),
            ("/etc/both", "select one with --stage"),
        ] {
            let error = only(stages.clone(), path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn content_that_is_not_published_is_noted_and_that_of_the_go_implementation_is_not_shown() {
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
