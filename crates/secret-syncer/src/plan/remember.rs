//! What a process remembers of a config from one reconcile to the next.

use crate::model::gathered::Gathered;
use crate::model::memory::PoolMemory;
use crate::plan::waiting;

/// What follows from what was gathered, whatever is decided.
pub fn remember(gathered: &Gathered) -> PoolMemory {
    let rendered = gathered.config.as_ref().and_then(|config| config.to_publish());
    let is_ready = rendered.is_some_and(|rendered| rendered.revision.is_some());
    let mut memory = gathered.memory.clone();
    memory.waiting_since = waiting::since(memory.waiting_since, is_ready, gathered.now);
    memory
}
