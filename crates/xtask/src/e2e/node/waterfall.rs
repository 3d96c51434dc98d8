//! Draws where the time of a boot goes, and which step waits for which.

use std::fmt;
use std::time::SystemTime;

use anyhow::{Result, ensure};
use osm_lab::machines::Machine;
use osm_lab::machines::journal::Entry;
use osm_lab::serve::files::FileServer;

/// Characters of the widest bar.
const WIDTH: f64 = 60.0;

/// What a test has seen from outside, as times.
pub struct Seen {
    /// The Node object exists.
    pub registered: SystemTime,
    /// It is Ready.
    pub ready: SystemTime,
    /// A pod on it answers.
    pub pod: SystemTime,
}

/// Stages of a boot, in seconds since the machine was switched on.
pub struct Waterfall(Vec<Stage>);

struct Stage {
    name: String,
    from: f64,
    to: f64,
}

impl Waterfall {
    /// Puts together what the journal, the mirror and the test know.
    ///
    /// # Errors
    /// When the journal can't be read, or lacks a stage.
    pub fn of(machine: &Machine, mirror: &FileServer, seen: &Seen) -> Result<Self> {
        let start = seconds(machine.powered_on());
        let journal = machine.journal()?;
        let find = |test: &dyn Fn(&Entry) -> bool| {
            journal
                .iter()
                .find(|entry| entry.time >= start && test(entry))
                .map(|entry| entry.time - start)
        };
        let says = |unit: &'static str, text: &'static str| {
            find(&|entry: &Entry| entry.unit == unit && entry.message.starts_with(text))
        };
        let (mut stages, mut unknown) = (Vec::new(), Vec::new());
        let mut stage = |name: &str, from: Option<f64>, to: Option<f64>| match (from, to) {
            (Some(from), Some(to)) => stages.push(Stage {
                name: name.to_owned(),
                from,
                to,
            }),
            _ => unknown.push(name.to_owned()),
        };
        let cloud_init = find(&|entry| entry.program == "cloud-init");
        let bootstrap = says("osm-bootstrap.service", "Started ");
        let applied = says("osm-bootstrap.service", "the provisioning document is applied");
        let setup = says("osm-setup.service", "Started ");
        let containerd = says("containerd.service", "Starting ");
        let kubelet = says("kubelet.service", "Started ");
        stage("systemd", Some(0.0), cloud_init);
        stage("cloud-init", cloud_init, bootstrap);
        stage("bootstrap: fetch, apply", bootstrap, applied);
        stage(
            "setup: kernel, files",
            setup,
            first_download(machine, mirror, start).or(containerd),
        );
        for request in mirror.requests() {
            let from = seconds(request.started) - start;
            if request.client == machine.address() && from > 0.0 {
                let name = request.path.rsplit('/').next().unwrap_or_default();
                let name = format!("  {name}, {} MB", request.bytes / 1_000_000);
                stage(
                    &name,
                    Some(from),
                    Some(from + request.duration.unwrap_or_default().as_secs_f64()),
                );
            }
        }
        stage(
            "setup: unpack, install",
            last_download(machine, mirror, start),
            containerd,
        );
        stage(
            "containerd starts",
            containerd,
            says("containerd.service", "Started "),
        );
        stage("kubelet starts", says("kubelet.service", "Starting "), kubelet);
        let outside = |time: SystemTime| Some(seconds(time) - start);
        stage("kubelet registers", kubelet, outside(seen.registered));
        stage("node gets Ready", outside(seen.registered), outside(seen.ready));
        stage("pod answers", outside(seen.ready), outside(seen.pod));
        ensure!(
            unknown.is_empty(),
            "the journal does not say when these began or ended: {unknown:?}"
        );
        Ok(Self(stages))
    }
}

fn first_download(machine: &Machine, mirror: &FileServer, start: f64) -> Option<f64> {
    downloads(machine, mirror, start)
        .map(|(from, _)| from)
        .min_by(f64::total_cmp)
}

fn last_download(machine: &Machine, mirror: &FileServer, start: f64) -> Option<f64> {
    downloads(machine, mirror, start)
        .map(|(_, to)| to)
        .max_by(f64::total_cmp)
}

fn downloads(machine: &Machine, mirror: &FileServer, start: f64) -> impl Iterator<Item = (f64, f64)> {
    let address = machine.address();
    mirror
        .requests()
        .into_iter()
        .filter(move |request| request.client == address)
        .map(move |request| {
            let from = seconds(request.started) - start;
            (from, from + request.duration.unwrap_or_default().as_secs_f64())
        })
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

impl fmt::Display for Waterfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().map(|stage| stage.to).fold(1.0, f64::max);
        let column = |time: f64| (time / end * WIDTH).round().clamp(0.0, WIDTH);
        for Stage { name, from, to } in &self.0 {
            let before = column(*from);
            let bar = (column(*to) - before).max(1.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 to WIDTH
            let (before, bar) = (before as usize, bar as usize);
            let (space, bar) = (" ".repeat(before), "█".repeat(bar));
            writeln!(f, "{name:<44} {from:>6.1} s {:>+6.1} s |{space}{bar}", to - from)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_drawn_where_it_was_and_as_long_as_it_took() {
        let stage = |name: &str, from, to| Stage {
            name: name.into(),
            from,
            to,
        };
        let picture = Waterfall(vec![
            stage("a", 0.0, 5.0),
            stage("b", 5.0, 10.0),
            stage("c", 9.99, 10.0),
        ])
        .to_string();
        let bars: Vec<&str> = picture
            .lines()
            .filter_map(|line| line.split_once('|'))
            .map(|(_, bar)| bar)
            .collect();
        assert_eq!(
            bars,
            [
                "█".repeat(30),
                " ".repeat(30) + &"█".repeat(30),
                " ".repeat(60) + "█"
            ]
        );
        assert!(picture.starts_with("a  "), "{picture}");
        assert!(picture.contains("0.0 s   +5.0 s"), "{picture}");
    }
}
