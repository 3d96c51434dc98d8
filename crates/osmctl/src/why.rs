//! `osmctl why`: what a pool waits for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::chain::{self, Link, State};
use crate::output::{Color, Format};
use crate::snapshot::Snapshot;
use crate::{cluster, output, snapshot};

/// Explain what a pool waits for
///
/// The command checks the MachineDeployment, its profile, the settings, the config and the Secrets, in this order.
/// It prints the first of them that is not well, with its reason and message, and the next step.
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl why kube-system/workers

Exit codes: 0 the pool is well, 1 it is not, 2 the cluster cannot be read.")]
pub struct Why {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment
    pool: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Why {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        let snapshot = cluster::read(&self.cluster, cluster::Needs::of_chains())?;
        let pools = snapshot.pools();
        let pool = snapshot::find(&pools, &self.pool)?;
        let links = chain::chain(&snapshot, pool, Timestamp::now());
        snapshot.warn();
        output::print(&match self.output {
            Format::Text => text(&pool.to_string(), &links, self.color.is_on()),
            Format::Json => json(&pool.to_string(), &links, &snapshot),
        })?;
        Ok(match chain::first_problem(&links) {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        })
    }
}

/// The chain, the first problem and the next step.
pub fn text(pool: &str, links: &[Link], with_color: bool) -> String {
    let lines: Vec<[String; 4]> = links.iter().map(|link| line(link, with_color)).collect();
    let mut text = output::table(&lines);
    match chain::first_problem(links) {
        None if links.iter().any(|link| link.state == State::Unknown) => {
            text.push_str(&format!("\n{pool} is well, as far as it could be read.\n"));
        }
        None => text.push_str(&format!("\n{pool} is well.\n")),
        Some((link, problem)) => {
            let (name, reason) = (link.name, &problem.reason);
            text.push_str(&format!(
                "\n{pool} waits for its {name}: {reason}\n  {}\nNext step: {}\n",
                output::visible(&problem.message),
                problem.next_step
            ));
        }
    }
    text
}

fn line(link: &Link, with_color: bool) -> [String; 4] {
    let (color, state, detail) = match &link.state {
        State::Well(detail) => (output::GREEN, "well", detail.clone()),
        State::NotWell(problem) => (output::RED, "not well", problem.reason.clone()),
        State::Unknown => ("", "unknown", "it could not be read".to_owned()),
    };
    [
        output::paint(color, &format!("{state:8}"), with_color),
        link.name.to_owned(),
        link.object.clone(),
        output::visible(&output::one_line(&detail)),
    ]
}

fn json(pool: &str, links: &[Link], snapshot: &Snapshot) -> String {
    let mut value = chain_json(pool, links);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("unread".to_owned(), json!(snapshot.unread_json()));
    }
    output::json(&value)
}

/// The chain for programs.
pub fn chain_json(pool: &str, links: &[Link]) -> Value {
    let shown = |link: &Link| -> Value {
        let (state, problem) = match &link.state {
            State::Well(_) => ("well", None),
            State::NotWell(problem) => ("notWell", Some(problem.json())),
            State::Unknown => ("unknown", None),
        };
        json!({"name": link.name, "object": link.object, "state": state, "problem": problem})
    };
    json!({
        "pool": pool,
        "well": chain::first_problem(links).is_none(),
        "links": links.iter().map(shown).collect::<Vec<_>>(),
    })
}
