//! The results: as JSON, and as Markdown with the ratios between implementations.

use std::time::Duration;

use serde::Serialize;

use super::meter::{CONTROL_PLANE, Sample};
use super::scenario::Scenario;

/// Everything that a command measured. This is the shape of the file of `--json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// RFC 3339.
    pub measured: String,
    /// Commit of this repository.
    pub commit: String,
    /// The command.
    pub command: String,
    /// Whether the services are a development build, whose figures are not comparable.
    pub development: bool,
    /// One for each implementation, number of replicas and number of pools.
    pub runs: Vec<Run>,
}

/// One implementation on one new control plane.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// `this commit`, or the name of a comparison.
    pub implementation: String,
    /// Replicas of each service, or processes of a command.
    pub replicas: usize,
    /// MachineDeployments.
    pub pools: usize,
    /// What was measured, in order.
    pub phases: Vec<Phase>,
    /// Why the implementation could not be measured further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One scenario.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// What happened.
    pub scenario: Scenario,
    /// Seconds from the first change to the last bootstrap Secret that an independent watch showed. For `restarted`, until the
    /// implementation is ready; for `idle`, the whole time.
    pub seconds: f64,
    /// Seconds between the change of a pool and its Secret; absent if no Secret is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// The longest absence of a bootstrap Secret, in seconds; absent if none was absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_absence_seconds: Option<f64>,
    /// What all processes used until the implementation was quiet.
    #[serde(flatten)]
    pub used: Sample,
    /// What did not happen in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Quantiles of a time, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Wait {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Wait {
    /// Quantiles of sorted `waits`.
    pub fn of(waits: &[Duration]) -> Self {
        let [p50, p99, max] = [50, 99, 100].map(|percent| quantile(waits, percent).as_secs_f64());
        Self { p50, p99, max }
    }
}

impl Report {
    /// All results as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let mut groups: Vec<(usize, usize)> = self.runs.iter().map(|run| (run.replicas, run.pools)).collect();
        groups.dedup();
        for (replicas, pools) in groups {
            let runs: Vec<&Run> = self
                .runs
                .iter()
                .filter(|run| (run.replicas, run.pools) == (replicas, pools))
                .collect();
            let build = if self.development {
                " Development build: not comparable."
            } else {
                ""
            };
            let each = if replicas == 1 {
                "one replica".to_owned()
            } else {
                format!("{replicas} replicas")
            };
            text.push_str(&format!(
                "{pools} MachineDeployments (Ubuntu on AWS), {each}.{build}\n\n"
            ));
            text.push_str(&comparison(&runs));
            for run in &runs {
                text.push_str(&requests(run));
            }
            runs.iter().take(1).for_each(|run| text.push_str(&processes(run)));
            for run in runs {
                text.push_str(&failures(run));
            }
        }
        text
    }
}

/// A figure of a phase of a run; `None` where it was not measured.
type Figure = fn(&Phase, &Run) -> Option<f64>;

/// A figure of a phase, by run.
struct Row {
    scenario: Scenario,
    what: &'static str,
    decimals: usize,
    figure: Figure,
}

/// What is compared of a change of pools.
const FIGURES: [(&str, usize, Figure); 12] = [
    ("change → Secret, p50, s", 2, |phase, _| Some(phase.wait?.p50)),
    ("change → Secret, p99, s", 2, |phase, _| Some(phase.wait?.p99)),
    ("longest wait ÷ p50", 2, |phase, _| {
        let wait = phase.wait.filter(|wait| wait.p50 > 0.0)?;
        Some(wait.max / wait.p50)
    }),
    ("pools per second", 1, |phase, run| rate(phase, run)),
    ("CPU of kube-apiserver per pool, ms", 1, |phase, run| {
        cpu(phase, run, "kube-apiserver")
    }),
    ("CPU of etcd per pool, ms", 1, |phase, run| {
        cpu(phase, run, "etcd")
    }),
    ("own CPU per pool, ms", 1, |phase, run| {
        let own = own(phase).map(|used| used.cpu_seconds).sum::<f64>();
        Some(own * 1000.0 / to_f64(run.pools))
    }),
    ("requests per pool", 1, |phase, run| {
        Some(to_f64(phase.used.requests()) / to_f64(run.pools))
    }),
    ("written to etcd per pool, kB", 1, |phase, run| {
        Some(to_f64(phase.used.etcd_written_bytes) / 1000.0 / to_f64(run.pools))
    }),
    ("resident memory, MiB", 0, |phase, _| {
        Some(mebibytes(own(phase).map(|used| used.resident_bytes).sum()))
    }),
    ("peak memory, MiB", 0, |phase, _| {
        Some(mebibytes(own(phase).map(|used| used.peak_bytes).sum()))
    }),
    ("longest absence of a Secret, s", 1, |phase, _| {
        Some(phase.longest_absence_seconds.unwrap_or_default())
    }),
];

/// What is compared of scenarios in which no pool changes.
const TOTALS: [(&str, usize, Figure); 7] = [
    ("seconds", 1, |phase, _| Some(phase.seconds)),
    ("requests", 0, |phase, _| Some(to_f64(phase.used.requests()))),
    ("CPU of kube-apiserver, s", 2, |phase, _| {
        Some(phase.used.processes.get("kube-apiserver")?.cpu_seconds)
    }),
    ("own CPU, s", 2, |phase, _| {
        Some(own(phase).map(|used| used.cpu_seconds).sum())
    }),
    ("resident memory, MiB", 0, |phase, _| {
        Some(mebibytes(own(phase).map(|used| used.resident_bytes).sum()))
    }),
    ("peak memory, MiB", 0, |phase, _| {
        Some(mebibytes(own(phase).map(|used| used.peak_bytes).sum()))
    }),
    ("connections", 0, |phase, _| {
        Some(to_f64(own(phase).map(|used| used.connections).sum::<usize>()))
    }),
];

pub(super) fn rate(phase: &Phase, run: &Run) -> Option<f64> {
    let complete = phase.failure.is_none() && phase.seconds > 0.0;
    complete.then(|| to_f64(run.pools) / phase.seconds)
}

pub(super) fn own(phase: &Phase) -> impl Iterator<Item = &super::meter::Used> {
    let processes = phase.used.processes.iter();
    processes
        .filter(|(name, _)| !CONTROL_PLANE.contains(&name.as_str()))
        .map(|(_, used)| used)
}

pub(super) fn cpu(phase: &Phase, run: &Run, process: &str) -> Option<f64> {
    let used = phase.used.processes.get(process)?;
    Some(used.cpu_seconds * 1000.0 / to_f64(run.pools))
}

fn comparison(runs: &[&Run]) -> String {
    let Some((first, others)) = runs.split_first() else {
        return String::new();
    };
    let mut text = String::from("| |");
    runs.iter()
        .for_each(|run| text.push_str(&format!(" {} |", run.implementation)));
    others
        .iter()
        .for_each(|run| text.push_str(&format!(" ratio to {} |", run.implementation)));
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(runs.len() + others.len())));
    for phase in &first.phases {
        let rows: &[_] = match phase.scenario {
            Scenario::Idle | Scenario::Restarted => &TOTALS,
            _ => &FIGURES,
        };
        for (what, decimals, figure) in rows {
            let row = Row {
                scenario: phase.scenario,
                what,
                decimals: *decimals,
                figure: *figure,
            };
            text.push_str(&row.markdown(runs));
        }
    }
    text + "\n"
}

impl Row {
    fn markdown(&self, runs: &[&Run]) -> String {
        let figure = |run: &&Run| {
            let phase = run.phases.iter().find(|phase| phase.scenario == self.scenario)?;
            (self.figure)(phase, run)
        };
        let figures: Vec<Option<f64>> = runs.iter().map(figure).collect();
        let decimals = self.decimals;
        let mut text = format!("| {}: {} |", self.scenario.title(), self.what);
        for figure in &figures {
            let shown = figure.map_or("–".to_owned(), |figure| format!("{figure:.decimals$}"));
            text.push_str(&format!(" {shown} |"));
        }
        let first = figures.first().copied().flatten();
        for other in figures.iter().skip(1) {
            let ratio = match (first, other) {
                (Some(first), Some(other)) if *other > 0.0 => format!("{:.2}", first / other),
                _ => "–".to_owned(),
            };
            text.push_str(&format!(" {ratio} |"));
        }
        text + "\n"
    }
}

/// Requests per pool by kind and scenario.
fn requests(run: &Run) -> String {
    let phases: Vec<&Phase> = run
        .phases
        .iter()
        .filter(|phase| phase.scenario != Scenario::Idle)
        .collect();
    let mut kinds: Vec<&String> = phases
        .iter()
        .flat_map(|phase| phase.used.requests.keys())
        .collect();
    kinds.sort();
    kinds.dedup();
    let mut text = format!("| Requests per pool, {} |", run.implementation);
    phases
        .iter()
        .for_each(|phase| text.push_str(&format!(" {} |", phase.scenario.title())));
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(phases.len())));
    for kind in kinds {
        text.push_str(&format!("| {kind} |"));
        for phase in &phases {
            let count = phase.used.requests.get(kind).copied().unwrap_or_default();
            text.push_str(&format!(" {:.2} |", to_f64(count) / to_f64(run.pools)));
        }
        text.push('\n');
    }
    text + "\n"
}

/// CPU, memory and connections of each process.
fn processes(run: &Run) -> String {
    let mut text = format!(
        "| Processes, {} | CPU, s | resident, MiB | peak, MiB | connections |\n|---|---|---|---|---|\n",
        run.implementation
    );
    for phase in &run.phases {
        for (name, used) in &phase.used.processes {
            text.push_str(&format!(
                "| {}: {name} | {:.2} | {:.0} | {:.0} | {} |\n",
                phase.scenario.title(),
                used.cpu_seconds,
                mebibytes(used.resident_bytes),
                mebibytes(used.peak_bytes),
                used.connections
            ));
        }
    }
    text + "\n"
}

fn failures(run: &Run) -> String {
    let of_phases = run.phases.iter().filter_map(|phase| {
        let failure = phase.failure.as_ref()?;
        Some(format!(
            "- {}, {}: {failure}\n",
            run.implementation,
            phase.scenario.title()
        ))
    });
    let mut text: String = of_phases.collect();
    if let Some(failure) = &run.failure {
        text.push_str(&format!("- {}: {failure}\n", run.implementation));
    }
    if text.is_empty() { text } else { text + "\n" }
}

/// The smallest of sorted `waits` that `percent` of them do not exceed.
fn quantile(waits: &[Duration], percent: usize) -> Duration {
    let rank = (waits.len() * percent).div_ceil(100).max(1);
    waits.get(rank - 1).copied().unwrap_or_default()
}

pub(super) fn mebibytes(bytes: u64) -> f64 {
    to_f64(bytes) / f64::from(1 << 20)
}

#[allow(clippy::cast_precision_loss)]
pub(super) fn to_f64(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::meter::Used;
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let waits: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&waits, 50), Duration::from_millis(100));
        assert_eq!(quantile(&waits, 99), Duration::from_millis(198));
        let one = [Duration::from_secs(7)];
        assert_eq!((quantile(&one, 50), quantile(&one, 99)), (one[0], one[0]));
        assert_eq!(quantile(&[], 99), Duration::ZERO);
    }

    fn run(implementation: &str, cpu_seconds: f64) -> Run {
        let used = |cpu_seconds| Used {
            cpu_seconds,
            ..Used::default()
        };
        let processes = BTreeMap::from([
            ("kube-apiserver".to_owned(), used(cpu_seconds)),
            ("a".to_owned(), used(0.1)),
            ("b".to_owned(), used(0.2)),
        ]);
        let phase = Phase {
            scenario: Scenario::Created,
            seconds: 2.0,
            wait: Some(Wait::of(&[Duration::from_secs(1)])),
            longest_absence_seconds: None,
            used: Sample {
                processes,
                requests: BTreeMap::from([("create secrets".to_owned(), 20)]),
                ..Sample::default()
            },
            failure: None,
        };
        Run {
            implementation: implementation.to_owned(),
            replicas: 1,
            pools: 10,
            phases: vec![phase],
            failure: Some("it ended".to_owned()),
        }
    }

    #[test]
    fn figures_are_per_pool_and_compared_with_the_first_run() {
        let report = Report {
            measured: String::new(),
            commit: String::new(),
            command: String::new(),
            development: false,
            runs: vec![run("this commit", 1.0), run("other", 0.5)],
        };
        let text = report.markdown();
        for line in [
            "| | this commit | other | ratio to other |",
            "| created: pools per second | 5.0 | 5.0 | 1.00 |",
            "| created: CPU of kube-apiserver per pool, ms | 100.0 | 50.0 | 2.00 |",
            "| created: own CPU per pool, ms | 30.0 | 30.0 | 1.00 |",
            "| create secrets | 2.00 |",
            "- other: it ended",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
