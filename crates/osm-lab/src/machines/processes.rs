//! Samples process lists: the command lines and environments of everything that runs.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// How long the watcher rests between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks at every process of this namespace and of those below it, machines' and containers', until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Every different command line with its environment so far.
    seen: Mutex<BTreeSet<String>>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.seen.lock()
    }
}

impl Watcher {
    /// Starts looking.
    #[must_use]
    pub fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let watching = shared.clone();
        let thread = thread::spawn(move || {
            let mut known = HashMap::new();
            while !watching.stop.load(Ordering::Relaxed) {
                look(&watching, &mut known);
                thread::sleep(PAUSE);
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// What of all that was seen satisfies `test`: command lines, each with a tab and its environment. Words are separated by blanks.
    #[must_use]
    pub fn seen(&self, test: impl Fn(&str) -> bool) -> Vec<String> {
        self.shared
            .seen()
            .iter()
            .filter(|text| test(text))
            .cloned()
            .collect()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Only what is new is read as a whole: a process changes its command line when it becomes another program.
fn look(shared: &Shared, known: &mut HashMap<String, Vec<u8>>) {
    let mut alive = HashMap::with_capacity(known.len());
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.parse::<u32>().is_err() {
            continue;
        }
        let Ok(command) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        if known.get(&pid) != Some(&command) {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let words = |text: &[u8]| String::from_utf8_lossy(text).replace(['\0', '\t'], " ");
            let text = format!("{}\t{}", words(&command), words(&environment));
            shared.seen().insert(text);
        }
        alive.insert(pid, command);
    }
    *known = alive;
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn arguments_and_environments_are_seen() {
        let watcher = Watcher::start();
        let started = Instant::now();
        let found = |text: &str| !watcher.seen(|seen| seen.contains(text)).is_empty();
        let mut child = Command::new("sleep")
            .args(["300.25"])
            .env("OSM_CANARY", "of-an-environment")
            .spawn()
            .unwrap();
        while !(found("sleep 300.25") && found("OSM_CANARY=of-an-environment")) {
            assert!(started.elapsed() < Duration::from_secs(20), "not seen");
            thread::sleep(PAUSE);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!found("of-an-environment-that-nobody-has"));
    }
}
