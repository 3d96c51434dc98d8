//! `osmctl migrate`: moves a cluster from the Go implementation to OSM, and back.
//!
//! ```text
//! kinds, rights    what a migration touches, and the permissions for it
//! find             lists of a cluster → the objects of the Go implementation
//! go_flags         its flags → settings and values of the chart; pure
//! check            all of these → whether the cluster can be migrated
//! plan             what was found → steps; pure
//! journal          the steps and their states, in the cluster
//! steps            does steps, and undoes them
//! text             what is printed
//! ```

mod check;
mod find;
mod go_flags;
mod journal;
mod kinds;
mod plan;
mod rights;
mod steps;
mod text;

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use jiff::SignedDuration;
use serde_json::Value;

use self::check::{Checked, Permitted};
use self::find::Found;
use self::journal::{Journal, Kept, NAME, Phase};
use self::plan::Step;
use self::steps::Steps;
use crate::cluster::{self, Editor, Needs, Object};
use crate::output::{Color, Format};
use crate::progress::Progress;

/// The published chart.
const CHART: &str = "oci://ghcr.io/kubermatic/operating-system-manager/charts/operating-system-manager";

/// Migrate a cluster from the Go implementation to OSM
///
/// `check` reads the cluster, and prints what the Go implementation has installed, what becomes of it, and the plan.
/// `apply` deletes the webhook configurations of the Go implementation, and stops its Deployments. Then you install the chart.
/// `finish` verifies that OSM has published every pool, and deletes what is left. `rollback` restores what was changed.
///
/// Each step is written into the Secret osm-migration before it begins, so that an interrupted command can be run again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What would happen
  osmctl migrate check

  # Stop the Go implementation, then install the chart with the command that is printed
  osmctl migrate apply

  # Delete what is left once OSM has published every pool
  osmctl migrate finish

Exit codes: 0 success, 1 the cluster cannot be migrated, or a step has failed.")]
pub struct Migrate {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
    Apply(Apply),
    Finish(Finish),
    Rollback(Rollback),
}

/// What a person has decided about.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Decisions")]
pub struct Source {
    /// Settings document; its fields win over those that follow from the flags of the Go implementation
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Flag of the Go implementation that --settings replaces, or that is not needed; repeatable
    #[arg(long, value_name = "NAME")]
    handled_flag: Vec<String>,
    /// Webhook configuration that belongs to another program; repeatable
    #[arg(long, value_name = "NAME")]
    keep_webhook: Vec<String>,
    /// Migrate although OSM would refuse pools
    #[arg(long)]
    accept_refused: bool,
}

/// How steps are done.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Steps")]
struct Doing {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// How long a step may take
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = cluster::timeout)]
    timeout: Duration,
    /// How long API servers may take to notice changed webhook configurations
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = cluster::timeout)]
    settle: Duration,
}

/// Check whether a cluster can be migrated, and print the plan
///
/// The command only reads.
#[derive(Args)]
struct Check {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// Stop the Go implementation, webhooks first
///
/// The command continues a migration that was interrupted. It writes the values of the chart into a file.
#[derive(Args)]
struct Apply {
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

/// Verify that OSM has published every pool, and delete what is left of the Go implementation
#[derive(Args)]
struct Finish {
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

/// Restore what the migration has changed, webhooks last
#[derive(Args)]
struct Rollback {
    #[command(flatten)]
    doing: Doing,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Migrate {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Check(check) => cluster::run(Box::pin(check.run())),
            Command::Apply(apply) => cluster::run(Box::pin(apply.run())),
            Command::Finish(finish) => cluster::run(Box::pin(finish.run())),
            Command::Rollback(rollback) => cluster::run(Box::pin(rollback.run())),
        }
    }
}

/// The one cluster that the flags select.
async fn connect<'a>(flags: &cluster::Flags, progress: &'a Progress) -> Result<Editor<'a>> {
    if flags.has_worker_cluster() {
        bail!(
            "`osmctl migrate` supports one cluster; two clusters need the manual steps of docs/migration.md"
        );
    }
    if flags.has_home_cluster() {
        bail!("`osmctl migrate` supports no home cluster; docs/kkp.md describes what KKP restores");
    }
    Editor::connect(flags, progress).await
}

impl Check {
    async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let editor = connect(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        let permitted = Permitted::ask(&editor, namespace)
            .await?
            .require(rights::is_reading)?;
        if let Some(kept) = Kept::read(&editor, namespace).await? {
            let (next, code) = kept.journal.phase.next();
            editor.print(&match self.output {
                Format::Text => {
                    let target = text::target(&editor, namespace);
                    format!("{target}{}\n{next}\n", text::plan(&kept.journal.steps))
                }
                Format::Json => text::begun(&kept.journal, &editor, namespace),
            })?;
            return Ok(code);
        }
        let checked = check::read(&editor, &self.cluster, &self.source, permitted).await?;
        let steps = plan::stop(&checked.found);
        editor.print(&match self.output {
            Format::Text => {
                let mut text = text::target(&editor, namespace);
                text.push_str(&text::report(&checked, &steps, self.color.is_on()));
                if checked.problems.is_empty() {
                    text.push_str("\nThe cluster can be migrated. Next step: osmctl migrate apply\n");
                }
                text
            }
            Format::Json => {
                let context = editor.context.as_deref();
                text::json(&checked, &steps, &editor.server, context, namespace)
            }
        })?;
        Ok(exit_code(&checked))
    }
}

impl Phase {
    /// What to do next in this phase, and whether `check` succeeds.
    fn next(self) -> (&'static str, ExitCode) {
        match self {
            Self::Stopping => (
                "This migration has begun. Next step: osmctl migrate apply",
                ExitCode::SUCCESS,
            ),
            Self::Stopped => (
                "The Go implementation is stopped. Next step: install the chart, and then run osmctl migrate finish",
                ExitCode::SUCCESS,
            ),
            Self::CleaningUp => (
                "This migration has begun. Next step: osmctl migrate finish",
                ExitCode::SUCCESS,
            ),
            Self::Finished => (
                "The cluster is already migrated; there is nothing to do.",
                ExitCode::FAILURE,
            ),
            Self::RollingBack => (
                "This migration is being rolled back. Next step: osmctl migrate rollback",
                ExitCode::FAILURE,
            ),
        }
    }
}

fn exit_code(checked: &Checked) -> ExitCode {
    match checked.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

impl Apply {
    async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let editor = connect(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        editor.print(&text::target(&editor, namespace))?;
        let permitted = Permitted::ask(&editor, namespace).await?.require(|_| true)?;
        let mut kept = match Kept::read(&editor, namespace).await? {
            Some(kept) => kept,
            None => {
                let mut checked = check::read(&editor, &self.cluster, &self.source, permitted).await?;
                let lacking = rights::not_restorable(&editor, &checked.found).await?;
                checked.problems.extend(lacking);
                let steps = plan::stop(&checked.found);
                editor.print(&text::report(&checked, &steps, Color::Auto.is_on()))?;
                if self.dry_run || !checked.problems.is_empty() {
                    editor.print("\nNothing was changed.\n")?;
                    return Ok(exit_code(&checked));
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

impl Doing {
    fn steps<'a>(&self, editor: &'a Editor<'a>, namespace: &'a str) -> Steps<'a> {
        Steps {
            editor,
            namespace,
            timeout: self.timeout,
            settle: SignedDuration::try_from(self.settle).unwrap_or(SignedDuration::MAX),
        }
    }
}

/// Asks whether to go on.
fn confirm(doing: &Doing, question: &str) -> Result<()> {
    if doing.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("nothing was changed; confirm with --yes, because standard input is not a terminal");
    }
    eprint!("\n{question} Type yes: ");
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => bail!("nothing was changed"),
    }
}

impl Finish {
    async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let editor = connect(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        editor.print(&text::target(&editor, namespace))?;
        let permitted = Permitted::ask(&editor, namespace).await?.require(|_| true)?;
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
                "OSM has not published the user data of {}; `osmctl why` explains it. Wait, or pass --accept-refused if these pools need no \
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
        .filter(|object| object.kind == kinds::SECRET && !find::is_token(object))
    {
        let whole = editor.get(object.kind, object.namespace(), object.name()).await?;
        if let Some(whole) = whole {
            *object = match find::is_token(&whole) {
                true => find::as_token(whole),
                false => whole,
            };
        }
    }
    Ok(())
}

impl Rollback {
    async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let editor = connect(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        editor.print(&text::target(&editor, namespace))?;
        let permitted = Permitted::ask(&editor, namespace).await?.require(|_| true)?;
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
