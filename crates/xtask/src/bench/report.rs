//! The figures as Markdown.

use std::time::Duration;

use super::baseline;
use super::meter::Sample;

/// One thing that was done to all MachineDeployments.
pub struct Phase {
    /// Time until the bootstrap Secret was there, in order of length.
    pub waits: Vec<Duration>,
    /// What it took.
    pub used: Sample,
}

impl Phase {
    /// A phase.
    pub fn new(waits: Vec<Duration>, used: Sample) -> Self {
        Self { waits, used }
    }

    fn quantiles(&self) -> String {
        format!("{} / {} s", seconds(quantile(&self.waits, 50)), seconds(quantile(&self.waits, 99)))
    }
}

/// Everything that was measured.
pub struct Figures {
    /// MachineDeployments.
    pub count: usize,
    /// Creation.
    pub created: Phase,
    /// Rotation.
    pub rotated: Phase,
    /// Absences of bootstrap Secrets, in order of length.
    pub absences: Vec<Duration>,
    /// What the services use while nothing happens, and for how long they were watched.
    pub idle: Option<(Sample, Duration)>,
    /// Deletion.
    pub deleted: Sample,
    /// In the end.
    pub end: Sample,
}

/// Prints to standard output.
pub fn print(figures: &Figures, dev: bool) {
    let Figures { count, created, rotated, absences, .. } = figures;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let build = if dev { "development build: not comparable" } else { "release build" };
    println!(
        "{count} MachineDeployments (ubuntu, aws) at once; {build}; {cores} cores, shared with etcd and kube-apiserver\n"
    );
    let each = |n: f64| n / to_f64(*count);
    let requests = |used: &Sample| format!("{:.1}", each(to_f64(used.requests())));
    let millis = |used: &Sample| format!("{:.0}", each(used.cpu() * 1000.0));
    let absent = match absences.last() {
        None => "0: never".to_owned(),
        Some(max) => format!("{} times, at most {} s", absences.len(), seconds(*max)),
    };
    let rows = [
        ("created → bootstrap Secret, p50 / p99", created.quantiles()),
        ("revision changed → new bootstrap Secret, p50 / p99", rotated.quantiles()),
        ("bootstrap Secret absent while rotating (Go: p50 / max)", absent),
        (
            "API requests each, created / rotated / deleted",
            format!(
                "{} / {} / {}",
                requests(&created.used),
                requests(&rotated.used),
                requests(&figures.deleted)
            ),
        ),
        ("CPU each, created / rotated", format!("{} / {} ms", millis(&created.used), millis(&rotated.used))),
        ("peak memory, all services", format!("{} MiB", mebibytes(figures.end.peak_rss()))),
    ];
    let go = baseline::of(*count);
    let go = go.map(|go| [go.created, go.rotated, go.absent, go.requests, go.cpu, go.rss]);
    println!("| | here | Go implementation v1.11.3+ |\n|---|---|---|");
    for (i, (what, here)) in rows.iter().enumerate() {
        println!("| {what} | {here} | {} |", go.and_then(|go| go.get(i).copied()).unwrap_or("not measured"));
    }
    by_service(figures);
    println!(
        "\nThe Go figures were measured on the same kind of machine, on another day, for MachineDeployments that are rendered once when \
         created. Here each is created without a revision and gets it right after, as from machine-controller; that takes the Go \
         implementation 15 requests and 54 ms of CPU."
    );
}

fn by_service(figures: &Figures) {
    let idle = |name: &str| {
        let (used, time) = figures.idle.as_ref()?;
        let used = used.0.get(name)?;
        let minutes = time.as_secs_f64() / 60.0;
        Some(format!("{:.1} | {:.2} s", to_f64(used.requests) / minutes, used.cpu / minutes))
    };
    let each = |sample: &Sample, name: &str| {
        let used = sample.0.get(name).copied().unwrap_or_default();
        let count = to_f64(figures.count);
        (format!("{:.1}", to_f64(used.requests) / count), format!("{:.1}", used.cpu * 1000.0 / count))
    };
    println!(
        "\n| | requests each, created / rotated / deleted | CPU each, created / rotated | peak memory | idle requests a minute | idle CPU a minute |"
    );
    println!("|---|---|---|---|---|---|");
    for (name, end) in &figures.end.0 {
        let phases = [&figures.created.used, &figures.rotated.used, &figures.deleted];
        let [created, rotated, deleted] = phases.map(|phase| each(phase, name));
        println!(
            "| {name} | {} / {} / {} | {} / {} ms | {} MiB | {} |",
            created.0,
            rotated.0,
            deleted.0,
            created.1,
            rotated.1,
            mebibytes(end.peak_rss),
            idle(name).unwrap_or_else(|| "– | –".to_owned())
        );
    }
}

/// The smallest of sorted `waits` that `percent` of them do not exceed.
fn quantile(waits: &[Duration], percent: usize) -> Duration {
    let rank = (waits.len() * percent).div_ceil(100).max(1);
    waits.get(rank - 1).copied().unwrap_or_default()
}

fn seconds(duration: Duration) -> String {
    format!("{:.2}", duration.as_secs_f64())
}

fn mebibytes(bytes: u64) -> u64 {
    bytes / (1 << 20)
}

#[allow(clippy::cast_precision_loss)]
fn to_f64(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
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
}
