//! A report for people.

use super::{Outcome, PoolReport, Refusal, Report};
use crate::difference::Difference;
use crate::output;

/// A report for people.
pub fn text(report: &Report, with_lines: bool) -> String {
    let mut text = String::new();
    for pool in &report.pools {
        text.push_str(&of_pool(pool));
        let differences = match &pool.outcome {
            Outcome::Differs(differences) => differences.as_slice(),
            _ => &[],
        };
        for difference in differences {
            text.push_str(&if with_lines {
                difference.unified()
            } else {
                in_one_line(difference)
            });
        }
    }
    text.push_str(&format!("\n{}\n", summary(report)));
    text
}

fn of_pool(pool: &PoolReport) -> String {
    let PoolReport {
        namespace,
        name,
        shown_profile,
        outcome,
        warnings,
        ..
    } = pool;
    let result = match outcome {
        Outcome::Refused(Refusal { reason, message }) => {
            format!("refused: {} [{reason}]", output::one_line(message))
        }
        Outcome::Equal => "equal".to_owned(),
        Outcome::Differs(differences) => {
            format!("differs in {}", output::count(differences.len(), "file"))
        }
        Outcome::NotGenerated => "OSM renders it; the upstream OSM has no config for it".to_owned(),
        Outcome::Migrated => "OSM renders it already".to_owned(),
    };
    let mut text = format!("{namespace}/{name}: {result}\n");
    if let Some(profile) = shown_profile {
        text.push_str(&format!("  profile: {profile}\n"));
    }
    for warning in warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text
}

fn in_one_line(difference: &Difference) -> String {
    let (added, removed) = difference.changed_lines();
    format!(
        "  {} {} (+{added} -{removed})\n",
        difference.kind(),
        difference.path
    )
}

fn summary(report: &Report) -> String {
    let count = |is: fn(&Outcome) -> bool| report.pools.iter().filter(|pool| is(&pool.outcome)).count();
    format!(
        "{}: {} equal, {} with differences, {} refused, {} without a config, {} rendered by OSM already",
        output::count(report.pools.len(), "pool"),
        count(|outcome| matches!(outcome, Outcome::Equal)),
        count(|outcome| matches!(outcome, Outcome::Differs(_))),
        count(|outcome| matches!(outcome, Outcome::Refused(_))),
        count(|outcome| matches!(outcome, Outcome::NotGenerated)),
        count(|outcome| matches!(outcome, Outcome::Migrated)),
    )
}
