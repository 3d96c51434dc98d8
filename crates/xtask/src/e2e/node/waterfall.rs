//! Draws where the time of a boot goes, and which step waits for which: as text, and as a picture.

use std::fmt;
use std::time::SystemTime;

use anyhow::{Result, ensure};
use osm_lab::machines::Machine;
use osm_lab::machines::journal::Entry;
use osm_lab::serve::files::FileServer;
use svg::Document;
use svg::node::element::{Rectangle, Text};

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
    cause: Cause,
    name: String,
    from: f64,
    to: f64,
}

/// What takes the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The image takes this long without us, too.
    Image,
    /// The scripts of the profile.
    Scripts,
    /// Files come from the mirror.
    Downloads,
    /// containerd, the kubelet and the cluster.
    Node,
}

impl Cause {
    const ALL: [Self; 4] = [Self::Image, Self::Scripts, Self::Downloads, Self::Node];

    /// In a legend.
    fn title(self) -> &'static str {
        match self {
            Self::Image => "the image",
            Self::Scripts => "scripts of the profile",
            Self::Downloads => "downloads",
            Self::Node => "containerd, kubelet, cluster",
        }
    }

    /// Colours that people with any kind of colour vision can tell apart (Okabe and Ito).
    fn colour(self) -> &'static str {
        match self {
            Self::Image => "#999999",
            Self::Scripts => "#d55e00",
            Self::Downloads => "#56b4e9",
            Self::Node => "#009e73",
        }
    }
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
        let mut stage = |cause: Cause, name: &str, from: Option<f64>, to: Option<f64>| match (from, to) {
            (Some(from), Some(to)) => stages.push(Stage {
                cause,
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
        stage(Cause::Image, "systemd", Some(0.0), cloud_init);
        stage(Cause::Image, "cloud-init", cloud_init, bootstrap);
        stage(Cause::Scripts, "bootstrap: fetch, apply", bootstrap, applied);
        stage(
            Cause::Scripts,
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
                    Cause::Downloads,
                    &name,
                    Some(from),
                    Some(from + request.duration.unwrap_or_default().as_secs_f64()),
                );
            }
        }
        stage(
            Cause::Scripts,
            "setup: unpack, install",
            last_download(machine, mirror, start),
            containerd,
        );
        stage(
            Cause::Node,
            "containerd starts",
            containerd,
            says("containerd.service", "Started "),
        );
        stage(
            Cause::Node,
            "kubelet starts",
            says("kubelet.service", "Starting "),
            kubelet,
        );
        let outside = |time: SystemTime| Some(seconds(time) - start);
        stage(
            Cause::Node,
            "kubelet registers",
            kubelet,
            outside(seen.registered),
        );
        stage(
            Cause::Node,
            "node gets Ready",
            outside(seen.registered),
            outside(seen.ready),
        );
        stage(Cause::Node, "pod answers", outside(seen.ready), outside(seen.pod));
        ensure!(
            unknown.is_empty(),
            "the journal does not say when these began or ended: {unknown:?}"
        );
        Ok(Self(stages))
    }

    /// When the last stage ended.
    fn end(&self) -> f64 {
        self.0.iter().map(|stage| stage.to).fold(1.0, f64::max)
    }

    /// Seconds in which at least one stage with this cause was under way.
    fn share(&self, cause: Cause) -> f64 {
        let mut times: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter(|stage| stage.cause == cause)
            .map(|stage| (stage.from, stage.to))
            .collect();
        times.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut sum, mut counted) = (0.0, 0.0_f64);
        for (from, to) in times {
            sum += (to - from.max(counted)).max(0.0);
            counted = counted.max(to);
        }
        sum
    }

    /// A picture in the format SVG.
    pub fn picture(&self, title: &str) -> String {
        let row = |number: usize| HEAD + ROW * f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        let end = self.end();
        let x = |time: f64| NAMES + time / end * BARS;
        let (width, height) = (NAMES + BARS + NUMBERS, row(self.0.len() + 1));
        let mut picture = Document::new()
            .set("viewBox", (0, 0, width, height))
            .set("font-family", "sans-serif")
            .set("font-size", 12)
            .add(rectangle((0.0, 0.0), (width, height), "#ffffff"))
            .add(words((10.0, 22.0), title).set("font-size", 15));
        let mut left = 10.0;
        for cause in Cause::ALL {
            let legend = format!("{}: {:.1} s", cause.title(), self.share(cause));
            picture = picture
                .add(rectangle((left, 36.0), (12.0, 12.0), cause.colour()))
                .add(words((left + 18.0, 46.0), &legend));
            left += LEGEND;
        }
        for (number, stage) in self.0.iter().enumerate() {
            let (top, from, to) = (row(number), x(stage.from), x(stage.to));
            let length = (to - from).max(1.0);
            let took = format!("{:.1} s", stage.to - stage.from);
            picture = picture
                .add(words((10.0, top + 13.0), stage.name.trim_start()))
                .add(rectangle(
                    (from, top + 3.0),
                    (length, ROW - 6.0),
                    stage.cause.colour(),
                ))
                .add(words((from + length + 5.0, top + 13.0), &took));
        }
        picture.to_string()
    }
}

/// Sizes of the picture, in pixels: columns, rows, the lines above them, and an entry of the legend.
const NAMES: f64 = 270.0;
const BARS: f64 = 620.0;
const NUMBERS: f64 = 60.0;
const ROW: f64 = 20.0;
const HEAD: f64 = 62.0;
const LEGEND: f64 = 235.0;

fn rectangle((x, y): (f64, f64), (width, height): (f64, f64), colour: &str) -> Rectangle {
    Rectangle::new()
        .set("x", rounded(x))
        .set("y", rounded(y))
        .set("width", rounded(width))
        .set("height", rounded(height))
        .set("fill", colour)
}

fn words((x, y): (f64, f64), text: &str) -> Text {
    Text::new(text).set("x", rounded(x)).set("y", rounded(y))
}

/// To a tenth, so that the text is short.
fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
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
        let end = self.end();
        let column = |time: f64| (time / end * WIDTH).round().clamp(0.0, WIDTH);
        for Stage { name, from, to, .. } in &self.0 {
            let before = column(*from);
            let bar = (column(*to) - before).max(1.0);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 to WIDTH
            let (before, bar) = (before as usize, bar as usize);
            let (space, bar) = (" ".repeat(before), "█".repeat(bar));
            writeln!(f, "{name:<44} {from:>6.1} s {:>+6.1} s |{space}{bar}", to - from)?;
        }
        let shares = Cause::ALL.map(|cause| format!("{} {:.1} s", cause.title(), self.share(cause)));
        writeln!(f, "{}", shares.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(cause: Cause, name: &str, from: f64, to: f64) -> Stage {
        Stage {
            cause,
            name: name.into(),
            from,
            to,
        }
    }

    #[test]
    fn time_of_stages_that_overlap_counts_once() {
        let waterfall = Waterfall(vec![
            stage(Cause::Downloads, "b", 2.0, 4.0),
            stage(Cause::Image, "image", 0.0, 3.0),
            stage(Cause::Downloads, "a", 1.0, 6.0),
            stage(Cause::Downloads, "c", 8.0, 9.0),
        ]);
        let shares = Cause::ALL.map(|cause| waterfall.share(cause));
        assert_eq!(shares, [3.0, 0.0, 6.0, 0.0]);
    }

    #[test]
    fn the_picture_has_a_bar_for_each_stage_and_escapes_names() {
        let waterfall = Waterfall(vec![
            stage(Cause::Image, "systemd", 0.0, 5.0),
            stage(Cause::Scripts, "<a> & b", 5.0, 10.0),
        ]);
        let picture = waterfall.picture("join on Debian 12");
        assert!(picture.contains("&lt;a&gt; &amp; b"), "{picture}");
        assert!(picture.contains("scripts of the profile: 5.0 s"), "{picture}");
        let bars = |colour: &str| picture.matches(colour).count();
        // In the legend, and as a bar.
        assert_eq!(Cause::ALL.map(|cause| bars(cause.colour())), [2, 2, 1, 1]);
        let second = picture.lines().rfind(|line| line.contains("#d55e00")).unwrap();
        for attribute in [r#"x="580""#, r#"width="310""#] {
            assert!(second.contains(attribute), "{second}");
        }
    }

    #[test]
    fn a_stage_is_drawn_where_it_was_and_as_long_as_it_took() {
        let picture = Waterfall(vec![
            stage(Cause::Image, "a", 0.0, 5.0),
            stage(Cause::Scripts, "b", 5.0, 10.0),
            stage(Cause::Node, "c", 9.99, 10.0),
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
