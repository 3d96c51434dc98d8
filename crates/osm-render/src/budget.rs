//! Bounds what rendering may use, whatever the template language: steps, bytes, and a flag that cancels it.
//!
//! Profiles are written by users, and an engine runs inside a service that many pools share. So a template
//! that asks for too much must fail before it takes memory or time. What is known before the work is charged
//! before: steps, sources, the arguments of a function, the values that an engine clones, and output. The
//! result of a function is charged once it exists.
//!
//! What the library of an engine copies before a budget sees it is bounded by the checks of that engine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most steps: elements of templates, counted as often as a loop or an inclusion renders them. This bounds
/// the time of a rendering.
pub(crate) const MAX_STEPS: u64 = 1_000_000;

/// Most bytes that helpers and functions look at. [`MAX_STEPS`] alone allows far more, because a single step
/// can look at half a MiB.
pub(crate) const MAX_READ: u64 = 64 * MIB;

/// Most bytes that are copied, or made by helpers and functions. All of them can be in memory together.
pub(crate) const MAX_COPIED: u64 = 16 * MIB;

/// Most bytes of output, which are in memory until they are parsed. Only a small part of it may be stored.
pub(crate) const MAX_WRITTEN: u64 = 8 * MIB;

/// How many times as much as one pool all sample pools of a profile may take together. Usual profiles take a
/// hundredth.
pub(crate) const MAX_SAMPLES: u64 = 4;

const MIB: u64 = 1024 * 1024;

/// Most elements of all templates of a profile: texts, tags, and the values in tags. Compiled, each takes
/// more memory than its text.
pub(crate) const MAX_ELEMENTS: u64 = 50_000;

/// Why rendering stops early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhausted {
    #[error(
        "rendering takes more than {MAX_STEPS} steps: the template has too many loops, or includes too much"
    )]
    Steps,
    #[error("helpers or functions read more than {MAX_READ} bytes")]
    Read,
    #[error("helpers or functions copy or make more than {MAX_COPIED} bytes")]
    Copied,
    #[error("the templates write more than {MAX_WRITTEN} bytes")]
    Written,
    #[error("the templates of the profile have more than {MAX_ELEMENTS} texts, tags and values together")]
    Elements,
    #[error("rendering was cancelled")]
    Cancelled,
    #[error("rendering all sample pools takes more than {MAX_SAMPLES} times as much as one pool may take")]
    Samples,
}

/// What is left to use. One budget holds for all templates of a pool, and one for all templates of a profile
/// that is compiled.
pub(crate) struct Budget<'a> {
    steps: AtomicU64,
    read: AtomicU64,
    copied: AtomicU64,
    written: AtomicU64,
    elements: AtomicU64,
    cancelled: &'a AtomicBool,
    /// What all renderings together have left, if they are bounded together.
    all: Option<&'a Allowance>,
}

/// What the renderings of all sample pools have left together: steps, and bytes of all kinds.
pub(crate) struct Allowance {
    steps: AtomicU64,
    bytes: AtomicU64,
}

impl Allowance {
    pub(crate) fn of_samples() -> Self {
        Self {
            steps: AtomicU64::new(MAX_SAMPLES * MAX_STEPS),
            bytes: AtomicU64::new(MAX_SAMPLES * (MAX_READ + MAX_COPIED + MAX_WRITTEN)),
        }
    }
}

impl<'a> Budget<'a> {
    /// A full budget. Setting `cancelled` makes the next charge fail.
    pub(crate) fn new(cancelled: &'a AtomicBool) -> Self {
        Self {
            steps: AtomicU64::new(MAX_STEPS),
            read: AtomicU64::new(MAX_READ),
            copied: AtomicU64::new(MAX_COPIED),
            written: AtomicU64::new(MAX_WRITTEN),
            elements: AtomicU64::new(MAX_ELEMENTS),
            cancelled,
            all: None,
        }
    }

    /// A budget that is part of what several renderings may use.
    pub(crate) fn part_of(self, all: &'a Allowance) -> Self {
        Self {
            all: Some(all),
            ..self
        }
    }

    pub(crate) fn step(&self, steps: u64) -> Result<(), Exhausted> {
        self.charge(&self.steps, steps, Exhausted::Steps)?;
        self.charge_all(|all| &all.steps, steps)
    }

    /// Charges input that the engine looks at: sources, and values that a function is given.
    pub(crate) fn read(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(&self.read, widened(bytes), Exhausted::Read)?;
        self.charge_all(|all| &all.bytes, widened(bytes))
    }

    /// Charges values that the engine clones, or that a function has made. They take memory until the text is
    /// done.
    pub(crate) fn copy(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(&self.copied, widened(bytes), Exhausted::Copied)?;
        self.charge_all(|all| &all.bytes, widened(bytes))
    }

    pub(crate) fn write(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(&self.written, widened(bytes), Exhausted::Written)?;
        self.charge_all(|all| &all.bytes, widened(bytes))
    }

    /// Charges elements of a template that is parsed.
    pub(crate) fn hold(&self, elements: u64) -> Result<(), Exhausted> {
        self.charge(&self.elements, elements, Exhausted::Elements)
    }

    fn charge_all(&self, left: fn(&Allowance) -> &AtomicU64, amount: u64) -> Result<(), Exhausted> {
        self.all
            .map_or(Ok(()), |all| self.charge(left(all), amount, Exhausted::Samples))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_samples_have_a_bound_together() {
        let (never, all) = (AtomicBool::new(false), Allowance::of_samples());
        let budget = || Budget::new(&never).part_of(&all);
        for _ in 0..MAX_SAMPLES {
            assert_eq!(budget().step(MAX_STEPS), Ok(()));
        }
        assert_eq!(budget().step(1), Err(Exhausted::Samples));
        assert_eq!(budget().write(1), Ok(()));
    }
}
