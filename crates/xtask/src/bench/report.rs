//! The figures as Markdown.

use std::time::Duration;

use super::meter::Sample;

/// A change of all MachineDeployments.
pub struct Phase {
    /// Time until each bootstrap Secret was published, the shortest first.
    pub waits: Vec<Duration>,
    /// Resources that the services used meanwhile.
    pub used: Sample,
}

impl Phase {
    pub fn new(waits: Vec<Duration>, used: Sample) -> Self {
        Self { waits, used }
    }

    fn quantiles(&self) -> String {
        format!(
            "{} / {} s",
            seconds(quantile(&self.waits, 50)),
            seconds(quantile(&self.waits, 99))
        )
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
    /// Absences of bootstrap Secrets, the shortest first.
    pub absences: Vec<Duration>,
    /// Resources that idle services used, and in which time.
    pub idle: Option<(Sample, Duration)>,
    /// Deletion.
    pub deleted: Sample,
    /// At the end.
    pub end: Sample,
}

/// The figures of all services together, and of each.
pub fn tables(figures: &Figures, dev: bool) -> String {
    let Figures {
        count,
        created,
        rotated,
        absences,
        ..
    } = figures;
    let build = if dev {
        " Development build: not comparable."
    } else {
        ""
    };
    let each = |n: f64| n / to_f64(*count);
    let requests = |used: &Sample| format!("{:.1}", each(to_f64(used.requests())));
    let millis = |used: &Sample| format!("{:.0}", each(used.cpu() * 1000.0));
    let absent = match absences.last() {
        None => "never".to_owned(),
        Some(max) => format!("{} times, at most {} s", absences.len(), seconds(*max)),
    };
    let rows = [
        ("created → bootstrap Secret, p50 / p99", created.quantiles()),
        (
            "revision changed → new bootstrap Secret, p50 / p99",
            rotated.quantiles(),
        ),
        ("bootstrap Secret absent during rotation", absent),
        (
            "API requests per pool, created / rotated / deleted",
            format!(
                "{} / {} / {}",
                requests(&created.used),
                requests(&rotated.used),
                requests(&figures.deleted)
            ),
        ),
        (
            "CPU time per pool, created / rotated",
            format!("{} / {} ms", millis(&created.used), millis(&rotated.used)),
        ),
        (
            "peak memory, all services",
            format!("{} MiB", mebibytes(figures.end.peak_rss())),
        ),
    ];
    let mut text = format!(
        "{count} MachineDeployments (Ubuntu on AWS) at once.{build}\n\n| All services | |\n|---|---|\n"
    );
    for (what, figure) in rows {
        text.push_str(&format!("| {what} | {figure} |\n"));
    }
    text + &by_service(figures)
}

fn by_service(figures: &Figures) -> String {
    let idle = |name: &str| {
        let (used, time) = figures.idle.as_ref()?;
        let used = used.0.get(name)?;
        let minutes = time.as_secs_f64() / 60.0;
        Some(format!(
            "{:.1} | {:.2} s",
            to_f64(used.requests) / minutes,
            used.cpu / minutes
        ))
    };
    let each = |sample: &Sample, name: &str| {
        let used = sample.0.get(name).copied().unwrap_or_default();
        let count = to_f64(figures.count);
        (
            format!("{:.1}", to_f64(used.requests) / count),
            format!("{:.1}", used.cpu * 1000.0 / count),
        )
    };
    let mut text = String::from(
        "\n| By service | requests per pool, created / rotated / deleted | CPU per pool, created / rotated \
         | peak memory | requests per idle minute | CPU per idle minute |\n|---|---|---|---|---|---|\n",
    );
    for (name, end) in &figures.end.0 {
        let phases = [&figures.created.used, &figures.rotated.used, &figures.deleted];
        let [created, rotated, deleted] = phases.map(|phase| each(phase, name));
        text.push_str(&format!(
            "| {name} | {} / {} / {} | {} / {} ms | {} MiB | {} |\n",
            created.0,
            rotated.0,
            deleted.0,
            created.1,
            rotated.1,
            mebibytes(end.peak_rss),
            idle(name).unwrap_or_else(|| "– | –".to_owned())
        ));
    }
    text
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
