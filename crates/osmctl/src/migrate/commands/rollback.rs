//! `osmctl migrate rollback`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use super::super::journal::{Kept, Phase};
use super::super::{find, plan};
use super::{Doing, confirm, connect_to_change};
use crate::cluster::{self, Object};
use crate::progress::Progress;

/// Restore what the migration has changed, webhooks last
#[derive(Args)]
pub struct Rollback {
    #[command(flatten)]
    doing: Doing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Rollback {
    /// Undoes the steps.
    ///
    /// # Errors
    /// A migration that has not begun, OSM that runs, or a step that cannot be undone.
    pub async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let (editor, permitted) = connect_to_change(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        let found = find::sort(
            &find::read(&editor, namespace, permitted.has_cert_manager).await?,
            &[],
        );
        let Some(mut kept) = Kept::read(&editor, namespace).await? else {
            let runs = |deployment: &Object| deployment.number("/spec/replicas") != Some(0);
            if found.controller.as_ref().is_some_and(runs) {
                editor.print(
                    "The Go implementation runs, and no migration has begun: there is nothing to restore.\n",
                )?;
                return Ok(ExitCode::SUCCESS);
            }
            bail!(
                "namespace {namespace} has no journal of a migration to roll back; check --context and --namespace"
            );
        };
        for deployment in &found.own_deployments {
            if deployment.number("/spec/replicas") != Some(0) {
                bail!(
                    "{deployment} of OSM runs, and both implementations must not run at the same time; nothing was changed. Stop OSM first:\n  \
                     kubectl scale deployment --namespace {namespace} --selector app.kubernetes.io/instance={} --replicas 0",
                    deployment.text("/metadata/labels/app.kubernetes.io~1instance")
                );
            }
        }
        let changed = kept.journal.steps.iter().rev();
        let changed =
            changed.filter(|step| !matches!(step.state, plan::State::Planned | plan::State::Restored));
        let lines = changed
            .zip(1..)
            .map(|(step, number)| format!("  {number}. undo: {}\n", step.sentence()));
        editor.print(&format!("\nPlan:\n{}", lines.collect::<String>()))?;
        confirm(&self.doing, "Restore the Go implementation?")?;
        if kept.journal.phase != Phase::RollingBack {
            kept.enter(&editor, Phase::RollingBack).await?;
        }
        self.doing.steps(&editor, namespace).undo(&mut kept).await?;
        kept.delete(&editor).await?;
        editor.print(
            "\nThe Go implementation runs again. If OSM was installed, continue with step 5 of the section Back in docs/migration.md.\n",
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
