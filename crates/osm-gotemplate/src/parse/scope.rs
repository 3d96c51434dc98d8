//! The variables that a place in a template can name.

use std::collections::HashMap;

/// The variables that are declared at a place. Looking one up takes the same time however many there are.
#[derive(Default)]
pub(super) struct Scope {
    declared: Vec<u32>,
    count: HashMap<u32, u32>,
}

impl Scope {
    pub(super) fn declare(&mut self, name: u32) {
        self.declared.push(name);
        let count = self.count.entry(name).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn contains(&self, name: u32) -> bool {
        self.count.get(&name).is_some_and(|count| *count > 0)
    }

    pub(super) fn mark(&self) -> usize {
        self.declared.len()
    }

    /// Forgets what was declared since the mark.
    pub(super) fn release(&mut self, mark: usize) {
        for name in self.declared.drain(mark.min(self.declared.len())..) {
            if let Some(count) = self.count.get_mut(&name) {
                *count = count.saturating_sub(1);
            }
        }
    }
}
