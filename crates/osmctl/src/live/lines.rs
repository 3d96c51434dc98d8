//! The table where nobody looks at a screen: a line for each pool that changes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write, stdout};

use anyhow::{Context, Result};
use jiff::Timestamp;

use super::State;
use crate::output;
use crate::row::{COLUMNS, Row};
use crate::snapshot::{self, ClusterPool};

/// Ends the line of a pool that is gone.
const GONE: &str = "gone";

/// What was printed last.
#[derive(Default)]
pub struct Lines {
    /// Cells by pool. `None`: nothing was printed yet.
    printed: Option<BTreeMap<String, Vec<String>>>,
    /// The problem of the last read.
    problem: Option<String>,
}

impl Lines {
    /// Prints what has changed. Returns whether anyone still reads.
    ///
    /// # Errors
    /// Standard output can't be written.
    pub fn print(&mut self, state: &State, pool: Option<&str>, now: Timestamp) -> Result<bool> {
        if self.problem != state.problem {
            if let Some(problem) = &state.problem {
                eprintln!("osmctl: warning: {problem}");
            }
            self.problem.clone_from(&state.problem);
        }
        let text = self.changes(state, pool, now);
        let mut out = stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            result => result.map(|()| true).context("can't write to standard output"),
        }
    }

    fn changes(&mut self, state: &State, pool: Option<&str>, now: Timestamp) -> String {
        let pools = state.snapshot.pools();
        let shown: Vec<&ClusterPool<'_>> = match pool {
            None => pools.iter().collect(),
            Some(name) => snapshot::find(&pools, name).into_iter().collect(),
        };
        let rows = shown.iter().map(|pool| Row::of(&state.snapshot, pool, now));
        let current: BTreeMap<String, Vec<String>> = rows
            .map(|row| (row.name(), row.line(false, str::to_owned).to_vec()))
            .collect();
        let time = output::timestamp(now);
        let mut lines: Vec<Vec<String>> = Vec::new();
        let before = self.printed.replace(current.clone());
        if before.is_none() {
            let head = std::iter::once("TIME").chain(COLUMNS);
            lines.push(head.map(str::to_owned).collect());
        }
        let before = before.unwrap_or_default();
        let line = |cells: &[String]| [std::slice::from_ref(&time), cells].concat();
        for (name, cells) in &current {
            if before.get(name) != Some(cells) {
                lines.push(line(cells));
            }
        }
        for (name, cells) in &before {
            if !current.contains_key(name) {
                let kept = cells.split_last().map(|(_, kept)| kept).unwrap_or_default();
                lines.push(line(&[kept, &[GONE.to_owned()]].concat()));
            }
        }
        output::table(&lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::fixtures;

    #[test]
    fn a_line_is_printed_for_each_change_and_no_other() {
        let now: Timestamp = "2026-02-01T00:00:00.5Z".parse().unwrap();
        let mut state = State {
            snapshot: fixtures::snapshot(),
            read_at: now,
            problem: None,
        };
        let mut lines = Lines::default();
        let first = lines.changes(&state, None, now);
        let first: Vec<&str> = first.lines().collect();
        assert!(first.len() == 2 && first[0].starts_with("TIME "), "{first:?}");
        assert!(
            first[1].starts_with("2026-02-01T00:00:00Z   kube-system   workers   True"),
            "{first:?}"
        );
        assert_eq!(lines.changes(&state, None, now), "");
        let new = fixtures::machine_deployment("team", "new");
        state.snapshot.machine_deployments.push(new);
        let changed = lines.changes(&state, None, now);
        assert!(
            changed.lines().count() == 1 && changed.contains("config: no-config"),
            "{changed}"
        );
        state.snapshot.machine_deployments.pop();
        let changed = lines.changes(&state, None, now);
        assert!(
            changed.lines().count() == 1 && changed.ends_with("gone\n"),
            "{changed}"
        );
    }
}
