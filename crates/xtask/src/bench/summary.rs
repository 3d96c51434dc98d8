//! The figures that `docs/performance.md` shows: of the services, and beside the bare clients of the same command.

use super::contender::{BARE_GO, BARE_OWN};
use super::report::{Phase, Report, Run, cpu, mebibytes, own, rate, to_f64};
use super::scenario::Scenario;

/// Scenarios that are compared with the bare clients.
const COMPARED: [Scenario; 6] = [
    Scenario::Created,
    Scenario::Rotated,
    Scenario::Revision,
    Scenario::Profile,
    Scenario::Settings,
    Scenario::Deleted,
];

type Figure = fn(&Phase, &Run) -> Option<String>;

/// What is compared, and of how many of [`COMPARED`].
const BESIDE: [(&str, usize, Figure); 4] = [
    ("CPU of kube-apiserver", 6, |phase, run| {
        Some(format!("{:.0} ms", cpu(phase, run, "kube-apiserver")?))
    }),
    ("pools per second", 5, |phase, run| {
        Some(format!("{:.0}", rate(phase, run)?))
    }),
    ("own CPU", 2, |phase, run| Some(own_cpu(phase, run))),
    ("written to etcd", 2, |phase, run| {
        let written = to_f64(phase.used.etcd_written_bytes) / 1000.0;
        Some(format!("{:.0} kB", written / to_f64(run.pools)))
    }),
];

/// The tables of the page. The largest number of pools with one replica counts, and of a single pool only the time.
pub fn tables(report: &Report, services: &str) -> String {
    let runs = || report.runs.iter().filter(|run| run.replicas == 1);
    let pools = runs().map(|run| run.pools).max().unwrap_or_default();
    let of = |name: &str, pools: usize| runs().find(|run| run.implementation == name && run.pools == pools);
    let Some(run) = of(services, pools) else {
        return String::new();
    };
    let mut text = of_services(run, of(services, 1));
    let clients = [of(BARE_OWN, pools), of(BARE_GO, pools)];
    if let [Some(bare_own), Some(bare_go)] = clients {
        text.push_str(&beside([run, bare_own, bare_go]));
    }
    text
}

fn phase(run: &Run, scenario: Scenario) -> Option<&Phase> {
    run.phases.iter().find(|phase| phase.scenario == scenario)
}

/// The figures of some scenarios in one cell.
fn cell(run: &Run, scenarios: &[Scenario], figure: impl Fn(&Phase) -> Option<String>) -> String {
    let figures = scenarios.iter().map(|scenario| {
        let figure = phase(run, *scenario).and_then(&figure);
        figure.unwrap_or_else(|| "–".to_owned())
    });
    figures.collect::<Vec<_>>().join(" / ")
}

fn own_cpu(phase: &Phase, run: &Run) -> String {
    let seconds: f64 = own(phase).map(|used| used.cpu_seconds).sum();
    format!("{:.1} ms", seconds * 1000.0 / to_f64(run.pools))
}

fn of_services(run: &Run, single: Option<&Run>) -> String {
    use Scenario::{Created, Deleted, Idle, Profile, Restarted, Revision, Rotated, Settings};
    let waits = |phase: &Phase| {
        let wait = phase.wait?;
        Some(format!("{:.1} / {:.1} s", wait.p50, wait.p99))
    };
    let longest = |phase: &Phase| {
        let wait = phase.wait.filter(|wait| wait.p50 > 0.0)?;
        Some(format!("{:.1}", wait.max / wait.p50))
    };
    let absence = |phase: &Phase| match phase.longest_absence_seconds {
        None => Some("never".to_owned()),
        Some(seconds) => Some(format!("{seconds:.1} s")),
    };
    let requests = |phase: &Phase| {
        Some(format!(
            "{:.1}",
            to_f64(phase.used.requests()) / to_f64(run.pools)
        ))
    };
    let peak = |phase: &Phase| own(phase).map(|used| used.peak_bytes).sum::<u64>();
    let peak = mebibytes(run.phases.iter().map(peak).max().unwrap_or_default());
    let restart = |phase: &Phase| {
        let cpu: f64 = own(phase).map(|used| used.cpu_seconds).sum();
        Some(format!(
            "{:.1} s, {}, {cpu:.1} s",
            phase.seconds,
            phase.used.requests()
        ))
    };
    let connections =
        |phase: &Phase| Some(own(phase).map(|used| used.connections).sum::<usize>().to_string());
    let per_minute = |phase: &Phase| {
        Some(format!(
            "{:.1}",
            to_f64(phase.used.requests()) * 60.0 / phase.seconds
        ))
    };
    let mut rows = vec![
        (
            "created → bootstrap Secret, p50 / p99",
            cell(run, &[Created], waits),
        ),
        (
            "revision changed → new bootstrap Secret, p50 / p99",
            cell(run, &[Rotated], waits),
        ),
        (
            "longest wait ÷ p50, profile / settings changed",
            cell(run, &[Profile, Settings], longest),
        ),
        (
            "bootstrap Secret absent during rotation",
            cell(run, &[Rotated], absence),
        ),
        (
            "API requests per pool, created / rotated / revision only / deleted",
            cell(run, &[Created, Rotated, Revision, Deleted], requests),
        ),
        (
            "CPU time per pool, created / rotated",
            cell(run, &[Created, Rotated], |phase| Some(own_cpu(phase, run))),
        ),
        ("peak memory, all services", format!("{peak:.0} MiB")),
        (
            "restart: time, requests, CPU time",
            cell(run, &[Restarted], restart),
        ),
        (
            "connections to the API server after it",
            cell(run, &[Restarted], connections),
        ),
    ];
    if phase(run, Idle).is_some() {
        rows.push((
            "requests a minute while nothing changes, without watches, Leases and Events",
            cell(run, &[Idle], per_minute),
        ));
    }
    if let Some(single) = single {
        let alone = |phase: &Phase| Some(format!("{:.2} s", phase.wait?.p50));
        rows.push((
            "with one pool alone: created / rotated → bootstrap Secret",
            cell(single, &[Created, Rotated], alone),
        ));
    }
    let rows: String = rows
        .iter()
        .map(|(what, figures)| format!("| {what} | {figures} |\n"))
        .collect();
    format!("| All services, {} pools | |\n|---|---|\n{rows}", run.pools)
}

fn beside(runs: [&Run; 3]) -> String {
    let mut text = format!(
        "\nThe same command measured two bare clients. The figures are per pool, of {} pools.\n\n\
         | | services | `{BARE_OWN}` | `{BARE_GO}` |\n|---|---|---|---|\n",
        runs.iter().map(|run| run.pools).max().unwrap_or_default()
    );
    for (what, scenarios, figure) in BESIDE {
        for scenario in COMPARED.iter().take(scenarios) {
            let figures = runs.map(|run| {
                let figure = phase(run, *scenario).and_then(|phase| figure(phase, run));
                figure.unwrap_or_else(|| "–".to_owned())
            });
            text.push_str(&format!(
                "| {}: {what} | {} |\n",
                scenario.title(),
                figures.join(" | ")
            ));
        }
    }
    let absences = runs.map(|run| {
        let longest = run
            .phases
            .iter()
            .filter_map(|phase| phase.longest_absence_seconds);
        match longest.reduce(f64::max) {
            None => "never".to_owned(),
            Some(seconds) => format!("{seconds:.1} s"),
        }
    });
    text + &format!(
        "| longest absence of a bootstrap Secret | {} |\n",
        absences.join(" | ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::super::meter::{Sample, Used};
    use super::super::report::Wait;
    use super::*;

    fn run(implementation: &str, pools: usize, cpu_seconds: f64) -> Run {
        let used = |cpu_seconds, connections| Used {
            cpu_seconds,
            connections,
            peak_bytes: 3 << 20,
            ..Used::default()
        };
        let phase = |scenario, waits: &[Duration]| Phase {
            scenario,
            seconds: 2.0,
            wait: (!waits.is_empty()).then(|| Wait::of(waits)),
            longest_absence_seconds: None,
            used: Sample {
                processes: BTreeMap::from([
                    ("kube-apiserver".to_owned(), used(cpu_seconds, 0)),
                    ("a".to_owned(), used(0.1, 1)),
                ]),
                requests: BTreeMap::from([("create secrets".to_owned(), 70)]),
                etcd_written_bytes: 1_000_000,
                ..Sample::default()
            },
            failure: None,
        };
        let waits = [Duration::from_secs(1), Duration::from_secs(2)];
        Run {
            implementation: implementation.to_owned(),
            replicas: 1,
            pools,
            phases: vec![
                phase(Scenario::Created, &waits),
                phase(Scenario::Rotated, &waits),
                phase(Scenario::Profile, &waits),
                phase(Scenario::Restarted, &[]),
            ],
            failure: None,
        }
    }

    #[test]
    fn the_page_has_the_largest_run_the_bare_clients_and_one_pool_alone() {
        let report = |runs| Report {
            measured: String::new(),
            commit: String::new(),
            command: String::new(),
            development: false,
            runs,
        };
        let runs = vec![
            run("this commit", 1, 0.0),
            run("this commit", 10, 0.5),
            run(BARE_OWN, 10, 0.4),
            run(BARE_GO, 10, 0.3),
        ];
        let text = tables(&report(runs), "this commit");
        for line in [
            "| All services, 10 pools | |",
            "| created → bootstrap Secret, p50 / p99 | 1.0 / 2.0 s |",
            "| longest wait ÷ p50, profile / settings changed | 2.0 / – |",
            "| API requests per pool, created / rotated / revision only / deleted | 7.0 / 7.0 / – / – |",
            "| CPU time per pool, created / rotated | 10.0 ms / 10.0 ms |",
            "| restart: time, requests, CPU time | 2.0 s, 70, 0.1 s |",
            "| connections to the API server after it | 1 |",
            "| with one pool alone: created / rotated → bootstrap Secret | 1.00 s / 1.00 s |",
            "| created: CPU of kube-apiserver | 50 ms | 40 ms | 30 ms |",
            "| profile changed: pools per second | 5 | 5 | 5 |",
            "| created: written to etcd | 100 kB | 100 kB | 100 kB |",
            "| longest absence of a bootstrap Secret | never | never | never |",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        let alone = tables(&report(vec![run("this commit", 10, 0.5)]), "this commit");
        assert!(
            !alone.contains("bare") && !alone.contains("with one pool alone"),
            "{alone}"
        );
        assert_eq!(tables(&report(Vec::new()), "this commit"), "");
    }
}
