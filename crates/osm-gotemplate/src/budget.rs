//! What parsing and rendering may use.

use std::cell::Cell;

/// Why a template must stop: a sentence without its end mark, e.g. `rendering takes more than 1000000 steps`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Exhausted(pub String);

/// What parsing and rendering may use. Each method is called before the work is done, or as soon as its size
/// is known.
pub trait Budget {
    /// Charges steps: nodes of templates, counted as often as a loop runs them, and elements that a function
    /// visits.
    ///
    /// # Errors
    /// Too many steps.
    fn step(&self, steps: u64) -> Result<(), Exhausted>;

    /// Charges input that a function looks at, in bytes.
    ///
    /// # Errors
    /// Too many bytes.
    fn read(&self, bytes: usize) -> Result<(), Exhausted>;

    /// Charges values that a function makes, in bytes.
    ///
    /// # Errors
    /// Too many bytes.
    fn copy(&self, bytes: usize) -> Result<(), Exhausted>;

    /// Charges output, in bytes.
    ///
    /// # Errors
    /// Too many bytes.
    fn write(&self, bytes: usize) -> Result<(), Exhausted>;
}

/// A budget that limits steps and bytes of all kinds together.
#[derive(Debug)]
pub struct Limits {
    steps: Cell<u64>,
    bytes: Cell<usize>,
}

impl Limits {
    /// At most `steps` steps and `bytes` bytes.
    #[must_use]
    pub fn new(steps: u64, bytes: usize) -> Self {
        Self {
            steps: Cell::new(steps),
            bytes: Cell::new(bytes),
        }
    }

    fn charge(&self, bytes: usize) -> Result<(), Exhausted> {
        let left = self.bytes.get().checked_sub(bytes);
        self.bytes
            .set(left.ok_or_else(|| Exhausted("the template takes too much memory".to_owned()))?);
        Ok(())
    }
}

impl Budget for Limits {
    fn step(&self, steps: u64) -> Result<(), Exhausted> {
        let left = self.steps.get().checked_sub(steps);
        self.steps
            .set(left.ok_or_else(|| Exhausted("the template takes too many steps".to_owned()))?);
        Ok(())
    }

    fn read(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(bytes)
    }

    fn copy(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(bytes)
    }

    fn write(&self, bytes: usize) -> Result<(), Exhausted> {
        self.charge(bytes)
    }
}
