//! What rendering may use, whatever the template language: steps, bytes, depth, and a flag that cancels it.
//!
//! Profiles are written by users, and an engine runs inside a service that many pools share. So a template that asks for too much
//! must fail before it takes memory or time. What is known before the work is charged before: steps, depth, sources, the arguments
//! of a function, the values that an engine clones, and output. The result of a function is charged once it exists.
//!
//! The copies that the library of an engine makes by itself are not charged. Only tests set the flag so far.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most steps: elements of templates, counted as often as a loop runs them.
pub(crate) const MAX_STEPS: u64 = 1_000_000;

/// Most bytes that are read, and copied, and written, in all steps together. [`MAX_STEPS`] alone allows far more, because a single step
/// can take a MiB.
pub(crate) const MAX_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// Deepest nesting of blocks and included templates together. Engines recurse, and an overflowing stack can't be caught.
pub(crate) const MAX_DEPTH: usize = 48;

/// Why rendering stops early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhausted {
    #[error("rendering takes more than {MAX_STEPS} steps: the template has too many loops")]
    Steps,
    #[error("rendering reads more than {MAX_BYTES} bytes")]
    Read,
    #[error("rendering copies more than {MAX_BYTES} bytes")]
    Copied,
    #[error("rendering writes more than {MAX_BYTES} bytes")]
    Written,
    #[error("blocks and included templates are nested more than {MAX_DEPTH} deep")]
    Depth,
    #[error("rendering was cancelled")]
    Cancelled,
}

/// What is left to use. One budget holds for all templates of a pool, and one for all templates of a profile that is compiled.
pub(crate) struct Budget<'a> {
    steps: AtomicU64,
    read: AtomicU64,
    copied: AtomicU64,
    written: AtomicU64,
    depth: AtomicUsize,
    cancelled: &'a AtomicBool,
}

impl<'a> Budget<'a> {
    /// A full budget. Setting `cancelled` makes the next charge fail.
    pub(crate) fn new(cancelled: &'a AtomicBool) -> Self {
        Self {
            steps: AtomicU64::new(MAX_STEPS),
            read: AtomicU64::new(MAX_BYTES),
            copied: AtomicU64::new(MAX_BYTES),
            written: AtomicU64::new(MAX_BYTES),
            depth: AtomicUsize::new(MAX_DEPTH),
            cancelled,
        }
    }

    pub(crate) fn step(&self, steps: u64) -> Result<(), Exhausted> {
        self.charge(&self.steps, steps, Exhausted::Steps)
    }

    /// Charges input that the engine looks at: sources, and values that a function is given.
    pub(crate) fn read(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(&self.read, widened(bytes), Exhausted::Read)
    }

    /// Charges values that the engine clones, or that a function has made. They take memory until the text is done.
    pub(crate) fn copy(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(&self.copied, widened(bytes), Exhausted::Copied)
    }

    /// Charges output.
    pub(crate) fn write(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(&self.written, widened(bytes), Exhausted::Written)
    }

    /// Goes one level deeper, until the level is dropped.
    pub(crate) fn descend(&self) -> Result<Level<'_>, Exhausted> {
        let left = self
            .depth
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.map(|_| Level(&self.depth)).map_err(|_| Exhausted::Depth)
    }

    fn charge(&self, left: &AtomicU64, amount: u64, exhausted: Exhausted) -> Result<(), Exhausted> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Exhausted::Cancelled);
        }
        let charged = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(amount)
        });
        charged.map(|_| ()).map_err(|_| exhausted)
    }
}

fn widened(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// A level of nesting that rendering is in.
pub(crate) struct Level<'b>(&'b AtomicUsize);

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Charge<'a> = fn(&Budget<'a>, usize) -> Result<(), Exhausted>;

    #[test]
    fn each_kind_of_use_has_a_bound_of_its_own() {
        let never = AtomicBool::new(false);
        let budget = Budget::new(&never);
        let all = usize::try_from(MAX_BYTES).unwrap();
        assert_eq!(budget.step(MAX_STEPS), Ok(()));
        assert_eq!(budget.step(1), Err(Exhausted::Steps));
        let charges: [(Charge<'_>, Exhausted); 3] = [
            (Budget::read, Exhausted::Read),
            (Budget::copy, Exhausted::Copied),
            (Budget::write, Exhausted::Written),
        ];
        for (charge, exhausted) in charges {
            assert_eq!(charge(&budget, all), Ok(()));
            assert_eq!(charge(&budget, 1), Err(exhausted));
        }
        assert_eq!(budget.step(0), Ok(()));
    }

    #[test]
    fn a_level_that_is_left_can_be_entered_again() {
        let never = AtomicBool::new(false);
        let budget = Budget::new(&never);
        let mut levels: Vec<_> = (0..MAX_DEPTH).map(|_| budget.descend().unwrap()).collect();
        assert_eq!(budget.descend().err(), Some(Exhausted::Depth));
        levels.pop();
        assert!(budget.descend().is_ok());
    }

    #[test]
    fn nothing_is_charged_once_rendering_is_cancelled() {
        let cancelled = AtomicBool::new(false);
        let budget = Budget::new(&cancelled);
        assert_eq!(budget.write(1), Ok(()));
        cancelled.store(true, Ordering::Relaxed);
        assert_eq!(budget.write(1), Err(Exhausted::Cancelled));
        assert_eq!(budget.step(0), Err(Exhausted::Cancelled));
    }
}
