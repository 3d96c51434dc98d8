//! What osmctl waits for, on standard error. It appears on a terminal only, and only if the work takes longer than a second.

use std::io::{IsTerminal, Stderr, Write};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

const VISIBLE_AFTER: Duration = Duration::from_secs(1);

/// Erases a line of a terminal.
const ERASE: &str = "\r\x1b[2K";

/// A line about work that goes on. Dropping it erases the line.
pub struct Progress<W: Write = Stderr> {
    /// `None` where no person would see it.
    line: Option<Arc<Mutex<Line<W>>>>,
}

struct Line<W: Write> {
    out: W,
    text: String,
    is_visible: bool,
}

impl Progress {
    /// Progress on standard error.
    pub fn new() -> Self {
        match std::io::stderr().is_terminal() {
            true => Self::on(std::io::stderr(), || thread::sleep(VISIBLE_AFTER)),
            false => Self::silent(),
        }
    }

    /// Progress that nobody sees.
    pub fn silent() -> Self {
        Self { line: None }
    }
}

impl<W: Write + Send + 'static> Progress<W> {
    /// Progress that appears once `wait` returns.
    fn on(out: W, wait: impl FnOnce() + Send + 'static) -> Self {
        let line = Arc::new(Mutex::new(Line {
            out,
            text: String::new(),
            is_visible: false,
        }));
        let of_thread = Arc::downgrade(&line);
        // The thread ends with the program, if not before.
        let started = thread::Builder::new().spawn(move || {
            wait();
            reveal(&of_thread);
        });
        // Without a thread there is no progress.
        Self {
            line: started.ok().map(|_| line),
        }
    }
}

fn reveal<W: Write>(line: &Weak<Mutex<Line<W>>>) {
    if let Some(line) = line.upgrade() {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        line.is_visible = true;
        line.draw();
    }
}

impl<W: Write> Progress<W> {
    /// What goes on now.
    pub fn show(&self, what: &str) {
        if let Some(line) = &self.line {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            what.clone_into(&mut line.text);
            line.draw();
        }
    }

    /// Erases the line, so that something else can be printed.
    pub fn clear(&self) {
        if let Some(line) = &self.line {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            line.erase();
        }
    }

    /// What goes on now, and how much of it is done.
    pub fn count(&self, what: &str, done: usize, total: usize) {
        if self.line.is_some() {
            self.show(&format!("{what}: {done} of {total} done"));
        }
    }
}

impl<W: Write> Line<W> {
    fn draw(&mut self) {
        if self.is_visible && !self.text.is_empty() {
            // A terminal that is gone is no reason to stop.
            _ = write!(self.out, "{ERASE}osmctl: {} …", self.text);
            _ = self.out.flush();
        }
    }

    fn erase(&mut self) {
        let was_shown = self.is_visible && !self.text.is_empty();
        self.text.clear();
        if was_shown {
            _ = write!(self.out, "{ERASE}");
            _ = self.out.flush();
        }
    }
}

impl<W: Write> Drop for Progress<W> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A writer that others can read.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn work_is_shown_once_it_takes_long_and_erased_at_its_end() {
        let out = Shared::default();
        let (pass, passed) = mpsc::channel::<()>();
        let progress = Progress::on(out.clone(), move || passed.recv().unwrap());
        progress.count("checking profiles", 0, 3);
        progress.count("checking profiles", 1, 3);
        assert_eq!(out.text(), "", "a second has not passed");
        pass.send(()).unwrap();
        while out.text().is_empty() {
            thread::yield_now();
        }
        assert_eq!(
            out.text(),
            format!("{ERASE}osmctl: checking profiles: 1 of 3 done …")
        );
        progress.show("reading pods");
        progress.clear();
        let end = format!("{ERASE}osmctl: reading pods …{ERASE}");
        assert!(out.text().ends_with(&end), "{:?}", out.text());
        progress.show("reading pods");
        drop(progress);
        assert!(out.text().ends_with(&format!("{end}{end}")), "{:?}", out.text());
    }

    #[test]
    fn quick_work_is_never_shown() {
        let out = Shared::default();
        let (_pass, passed) = mpsc::channel::<()>();
        let progress = Progress::on(out.clone(), move || _ = passed.recv());
        let line = progress.line.clone().unwrap();
        progress.show("reading pods");
        drop(progress);
        reveal(&Arc::downgrade(&line));
        assert_eq!(out.text(), "");
    }
}
