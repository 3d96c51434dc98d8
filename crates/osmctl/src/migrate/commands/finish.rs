//! `osmctl migrate finish`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use super::super::check;
use super::super::find::{self, Found};
use super::super::journal::{Kept, NAME, Phase};
use super::super::plan::{self, Step};
use super::super::restorable::{as_token, is_token};
use super::super::{kinds, rights, text};
use super::{Doing, confirm, connect_to_change};
use crate::cluster::{self, Editor, Needs, Object};
use crate::progress::Progress;

/// Verify that OSM has published every pool, and delete what is left of the Go implementation
#[derive(Args)]
pub struct Finish {
    /// Keep the non-expiring token and the generated user data, which machines still need
    #[arg(long)]
    keep_tokens: bool,
    /// Finish although OSM has not published every pool
    #[arg(long)]
    accept_refused: bool,
    #[command(flatten)]
    doing: Doing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Finish {
    /// Does the steps of this phase.
    ///
    /// # Errors
    /// A phase that does not permit it, leftovers that are needed still, or a step that has failed.
    pub async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let (editor, permitted) = connect_to_change(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        let Some(mut kept) = Kept::read(&editor, namespace).await? else {
            bail!(
                "namespace {namespace} has no journal of a migration; run `osmctl migrate apply` first, or check --context and --namespace"
            );
        };
        match kept.journal.phase {
            Phase::Stopped | Phase::CleaningUp | Phase::Finished => {}
            Phase::Stopping => bail!("`osmctl migrate apply` has not ended; run that command again"),
            Phase::RollingBack => bail!("`osmctl migrate rollback` has begun; run that command again"),
        }
        let seen = find::read(&editor, namespace, permitted.has_cert_manager).await?;
        let mut found = find::sort(&seen, &[]);
        let problems = self.problems(&editor, &found).await?;
        if !problems.is_empty() {
            bail!("nothing was changed:\n  - {}", problems.join("\n  - "));
        }
        with_content(&editor, &mut found).await?;
        let new = plan::clean_up(&found, !self.keep_tokens, &kept.journal.steps);
        let user_data: &[Object] = if self.keep_tokens { &[] } else { &found.user_data };
        let open = kept
            .journal
            .steps
            .iter()
            .filter(|step| step.state != plan::State::Done);
        let todo: Vec<Step> = open.chain(&new).cloned().collect();
        if todo.is_empty() && user_data.is_empty() {
            if kept.journal.phase != Phase::Finished {
                kept.enter(&editor, Phase::Finished).await?;
            }
            editor.print(&finished(namespace, self.keep_tokens))?;
            return Ok(ExitCode::SUCCESS);
        }
        editor.print(&text::plan(&todo))?;
        editor.print(&text::list("\nNotes:\n", &found.kept))?;
        if !user_data.is_empty() {
            let names: Vec<String> = user_data.iter().map(ToString::to_string).collect();
            editor.print(&text::list(
                "\nGenerated user data, which is deleted at the end, and which a rollback does not restore:\n",
                &names,
            ))?;
        }
        confirm(&self.doing, "Delete these objects?")?;
        if !new.is_empty() || kept.journal.phase != Phase::CleaningUp {
            kept.journal.steps.extend(new);
            kept.enter(&editor, Phase::CleaningUp).await?;
        }
        self.doing.steps(&editor, namespace).run(&mut kept).await?;
        for secret in user_data {
            editor.delete(secret).await?;
        }
        kept.enter(&editor, Phase::Finished).await?;
        editor.print(&finished(namespace, self.keep_tokens))?;
        Ok(ExitCode::SUCCESS)
    }

    /// Why the leftovers are needed still.
    async fn problems(&self, editor: &Editor<'_>, found: &Found) -> Result<Vec<String>> {
        let (namespace, settings) = (self.cluster.namespace(), self.cluster.settings_config_map());
        let mut problems = rights::not_restorable(editor, found).await?;
        if editor
            .get(kinds::CONFIG_MAP, Some(namespace), settings)
            .await?
            .is_none()
        {
            problems.push(format!(
                "OSM is not installed in namespace {namespace}, because the ConfigMap {settings} does not exist; install the chart first"
            ));
        }
        for deployment in &found.own_deployments {
            if deployment.number("/status/availableReplicas").unwrap_or(0) == 0 {
                problems.push(format!(
                    "{deployment} is not available; `kubectl describe` shows what it waits for"
                ));
            }
        }
        let snapshot = cluster::read_all(&self.cluster, Needs::default()).await?;
        let unpublished = check::unpublished(&snapshot);
        if !unpublished.is_empty() && !self.accept_refused {
            problems.push(format!(
                "OSM has not published the user data of {}; `osmctl status POOL` explains it. Wait, or pass --accept-refused if these pools need no \
                 new machines",
                check::listed(&unpublished)
            ));
        }
        if !self.keep_tokens {
            let machines = editor.list(kinds::MACHINE, None).await?;
            let waiting = check::waiting(&snapshot, &machines);
            if !waiting.is_empty() {
                problems.push(format!(
                    "some Machines have not joined, and may need the user data of the Go implementation: {}; wait, delete them, or pass \
                     --keep-tokens, and run this command again later without it",
                    check::listed(&waiting)
                ));
            }
        }
        Ok(problems)
    }
}

fn finished(namespace: &str, keeps_tokens: bool) -> String {
    let tokens = match keeps_tokens {
        true => {
            "The non-expiring token is kept. Run this command again without --keep-tokens when all machines have joined.\n"
        }
        false => "",
    };
    format!(
        "\nThe migration is finished.\n{tokens}\
         The Secret {namespace}/{NAME} contains the deleted objects except generated user data, so that `osmctl migrate rollback` can restore them. \
         Delete it when you no longer need it:\n\n  \
         kubectl delete secret --namespace {namespace} {NAME}\n"
    )
}

/// Reads the content of Secrets with certificates, of which only the metadata was listed.
async fn with_content(editor: &Editor<'_>, found: &mut Found) -> Result<()> {
    for object in found
        .leftovers
        .iter_mut()
        .filter(|object| object.kind == kinds::SECRET && !is_token(object))
    {
        let whole = editor.get(object.kind, object.namespace(), object.name()).await?;
        if let Some(whole) = whole {
            *object = match is_token(&whole) {
                true => as_token(whole),
                false => whole,
            };
        }
    }
    Ok(())
}
