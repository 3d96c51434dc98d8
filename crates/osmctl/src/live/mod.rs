//! `osmctl status --watch`: a table that stays up to date.
//!
//! ```text
//! frame    what is shown: a snapshot, a time and a size → lines
//! screen   the terminal: it is taken over, and given back
//! lines    standard output that is no terminal
//! ```

mod frame;
mod lines;
mod screen;

use std::io::IsTerminal;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::lines::Lines;
use self::screen::Screen;
use crate::cluster::{self, Clusters, Needs};
use crate::output::Color;
use crate::progress::Progress;
use crate::snapshot::{self, Snapshot};

/// How often time left is drawn.
const SECOND: Duration = Duration::from_secs(1);

/// The shortest pause between two reads, and the pause after one that failed.
const SHORTEST_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause between two reads: nothing is watched that would show new Events.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reading takes at most this part of the time, however large the cluster is.
const PAUSE_PER_READ: u32 = 4;

/// What is known of the cluster.
struct State {
    snapshot: Snapshot,
    read_at: Timestamp,
    /// Why the last read failed.
    problem: Option<String>,
}

impl State {
    fn take(&mut self, read: Result<Snapshot>) {
        match read {
            Ok(snapshot) => {
                *self = Self {
                    snapshot,
                    read_at: Timestamp::now(),
                    problem: None,
                };
            }
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }
}

/// Where the table is shown.
enum Output {
    Screen(Screen),
    Lines(Lines),
}

/// Shows the table until a signal ends it.
///
/// # Errors
/// A cluster that can't be read at the start; an unknown pool; a terminal that can't be used.
pub fn run(pool: Option<&str>, color: Color, flags: &cluster::Flags) -> Result<ExitCode> {
    cluster::run(show(pool, color, flags))
}

async fn show(pool: Option<&str>, color: Color, flags: &cluster::Flags) -> Result<ExitCode> {
    let clusters = Clusters::connect(flags).await?;
    let snapshot = clusters.read(Needs::of_chains(), &Progress::new()).await?;
    if let Some(name) = pool {
        snapshot::find(&snapshot.pools(), name)?;
    }
    let changed = clusters.follow(&snapshot);
    let mut signals = Signals::new().context("cannot wait for signals")?;
    let mut output = match std::io::stdout().is_terminal() {
        true => Output::Screen(Screen::enter()?),
        false => {
            snapshot.warn();
            Output::Lines(Lines::default())
        }
    };
    let mut state = State {
        snapshot,
        read_at: Timestamp::now(),
        problem: None,
    };
    let silent = Progress::silent();
    let mut reads = pin!(reads(&clusters, &changed, &silent));
    let mut seconds = tokio::time::interval(SECOND);
    loop {
        let now = Timestamp::now();
        match &mut output {
            Output::Screen(screen) => {
                screen.draw(|size| frame::frame(&state, pool, now, size, color.is_on()))?;
            }
            Output::Lines(lines) => {
                if !lines.print(&state, pool, now)? {
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
        tokio::select! {
            Some(read) = reads.next() => state.take(read),
            _ = seconds.tick() => {}
            signalled = signals.next() => match (signalled, &mut output) {
                (Signalled::End, _) => return Ok(ExitCode::SUCCESS),
                (Signalled::Stop, Output::Screen(screen)) => screen.stop()?,
                (Signalled::Stop, Output::Lines(_)) => screen::stop()?,
                (Signalled::Resized, _) => {}
            },
        }
    }
}

/// Reads again after changes, and from time to time.
fn reads<'a>(
    clusters: &'a Clusters,
    changed: &'a Notify,
    progress: &'a Progress,
) -> impl Stream<Item = Result<Snapshot>> + 'a {
    stream::unfold((SHORTEST_PAUSE, true), move |(pause, was_read)| async move {
        tokio::time::sleep(pause).await;
        if was_read {
            // Either way it is time to read.
            _ = tokio::time::timeout(LONGEST_PAUSE, changed.notified()).await;
        }
        let began = Instant::now();
        let read = clusters.read(Needs::of_chains(), progress).await;
        let pause = (began.elapsed() * PAUSE_PER_READ).max(SHORTEST_PAUSE);
        let next = (pause, read.is_ok());
        Some((read, next))
    })
}

/// What a signal asks for.
enum Signalled {
    End,
    Stop,
    Resized,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    stop: Signal,
    resized: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            stop: signal(SignalKind::from_raw(screen::STOP.as_raw()))?,
            resized: signal(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.interrupt.recv() => Signalled::End,
            _ = self.terminate.recv() => Signalled::End,
            _ = self.hangup.recv() => Signalled::End,
            _ = self.stop.recv() => Signalled::Stop,
            _ = self.resized.recv() => Signalled::Resized,
        }
    }
}
