//! `osmctl migrate apply`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use super::super::check::{self, Checked, Source};
use super::super::journal::{Journal, Kept, Phase};
use super::super::plan::Step;
use super::super::{plan, rights, text};
use super::{Doing, confirm, connect_to_change};
use crate::cluster;
use crate::output::Color;
use crate::progress::Progress;

/// The published chart.
const CHART: &str = "oci://ghcr.io/kubermatic/operating-system-manager/charts/operating-system-manager";

/// Stop the Go implementation, webhooks first
///
/// The command continues a migration that was interrupted. It writes the values of the chart into a file.
#[derive(Args)]
pub struct Apply {
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// File for the values of the chart
    #[arg(long, value_name = "FILE", default_value = "osm-values.yaml")]
    values: PathBuf,
    #[command(flatten)]
    doing: Doing,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Apply {
    /// Does the steps of this phase.
    ///
    /// # Errors
    /// A phase that does not permit it, or a step that has failed.
    pub async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let (editor, permitted) = connect_to_change(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        let mut kept = match Kept::read(&editor, namespace).await? {
            Some(kept) => kept,
            None => {
                let mut checked = check::read(&editor, &self.cluster, &self.source, permitted).await?;
                let lacking = rights::not_restorable(&editor, &checked.found).await?;
                checked.problems.extend(lacking);
                let steps = plan::stop(&checked.found);
                editor.print(&text::report(&checked, &steps, false, Color::Auto.is_on()))?;
                if self.dry_run || !checked.problems.is_empty() {
                    editor.print("\nNothing was changed.\n")?;
                    return Ok(checked.exit_code());
                }
                confirm(&self.doing, "Stop the Go implementation?")?;
                write_values(&self.values, &checked.values)?;
                Kept::create(&editor, namespace, journal(&checked, steps)).await?
            }
        };
        match kept.journal.phase {
            Phase::Stopping | Phase::Stopped => {}
            Phase::CleaningUp => bail!("`osmctl migrate finish` has begun; run that command again"),
            Phase::Finished => bail!("the cluster is already migrated; there is nothing to do"),
            Phase::RollingBack => bail!("`osmctl migrate rollback` has begun; run that command again"),
        }
        if self.dry_run {
            editor.print(&text::plan(&kept.journal.steps))?;
            editor.print("\nThis migration has begun. Nothing was changed now.\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        write_values(&self.values, &kept.journal.values)?;
        let steps = self.doing.steps(&editor, namespace);
        steps.run(&mut kept).await?;
        steps.webhooks_are_gone(&kept).await?;
        steps.writes_are_accepted(&kept.journal.webhooks).await?;
        if kept.journal.phase == Phase::Stopping {
            kept.enter(&editor, Phase::Stopped).await?;
        }
        editor.print(&format!(
            "\nThe Go implementation is stopped, and the API server accepts writes. Existing bootstrap tokens expire within an hour.\n\
             Next step: install OSM with these commands, and then delete what is left.\n\n  \
             helm install osm {CHART} --namespace {namespace} --values {}\n  \
             kubectl rollout status deployment --namespace {namespace} --selector app.kubernetes.io/instance=osm --timeout 2m\n  \
             osmctl migrate finish --namespace {namespace}\n\n\
             To go back: osmctl migrate rollback --namespace {namespace}\n",
            self.values.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The first journal of a migration.
fn journal(checked: &Checked, steps: Vec<Step>) -> Journal {
    let webhooks = checked
        .found
        .webhooks
        .iter()
        .flat_map(|object| object.items("/webhooks"));
    let webhooks = webhooks.filter_map(|webhook| webhook.get("name")?.as_str());
    Journal {
        phase: Phase::Stopping,
        values: checked.values.clone(),
        webhooks: webhooks.map(str::to_owned).collect(),
        services: checked.found.services.clone(),
        deleted_webhooks_at: None,
        steps,
    }
}

/// Writes the values into a file. A file with other content stays.
fn write_values(path: &Path, values: &Value) -> Result<()> {
    let text = text::values(values);
    match std::fs::read_to_string(path) {
        Ok(known) if known == text => Ok(()),
        Ok(_) => bail!(
            "{} exists with other content; name another file with --values",
            path.display()
        ),
        Err(_) => std::fs::write(path, text)
            .with_context(|| format!("cannot write {}; name another file with --values", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_values_file_with_other_content_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values.yaml");
        let values = json!({"settings": {"pauseImage": "registry.example/pause:3"}});
        write_values(&path, &values).unwrap();
        write_values(&path, &values).unwrap();
        let error = write_values(&path, &json!({})).unwrap_err().to_string();
        assert!(
            error.contains("exists with other content; name another file"),
            "{error}"
        );
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(osm_render::yaml::read(&text).unwrap(), [values]);
        let nowhere = folder.path().join("none/values.yaml");
        assert!(
            write_values(&nowhere, &json!({}))
                .unwrap_err()
                .to_string()
                .contains("--values")
        );
    }
}
