//! The progress of a command: a line for each step, with the time since the start.

use std::io::IsTerminal;
use std::time::Instant;

/// Writes to standard error, so that standard output can be redirected.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    started: Instant,
}

impl Progress {
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    /// Prints a step or an event.
    pub fn step(self, text: &str) {
        eprintln!("{} {text}", dim(&self.time()));
    }

    pub fn warn(self, text: &str) {
        eprintln!(
            "{} {}",
            dim(&self.time()),
            paint(text, "33", std::io::stderr().is_terminal())
        );
    }

    fn time(self) -> String {
        format!("[{:>6.1} s]", self.started.elapsed().as_secs_f64())
    }
}

fn dim(text: &str) -> String {
    paint(text, "2", std::io::stderr().is_terminal())
}

/// `text` in the style with this number of ECMA-48, such as 1 for bold, if it goes to a terminal.
#[must_use]
pub fn paint(text: &str, code: &str, terminal: bool) -> String {
    if terminal && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}
