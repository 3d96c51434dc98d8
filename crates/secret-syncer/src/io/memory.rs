//! What this process remembers between reconciles. A reconcile stores what its plan remembers, and carrying the plan out corrects it.
//! [`Context::forget`](crate::io::context::Context::forget) drops what is remembered of a config.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::memory::PoolMemory;

#[derive(Default)]
pub struct Memory {
    /// By name of the OperatingSystemConfig.
    pools: Mutex<HashMap<String, PoolMemory>>,
    joining: Mutex<JoiningMemory>,
}

#[derive(Default)]
struct JoiningMemory {
    /// Whether whatever a pool's token asks for is approved; `None`: there was no answer yet.
    is_open: Option<bool>,
    asked: Option<Instant>,
    /// Rights have changed since that was last asked.
    rights_changed: bool,
}

impl Memory {
    pub fn of(&self, config: &str) -> PoolMemory {
        self.pools.lock().get(config).cloned().unwrap_or_default()
    }

    pub fn set(&self, config: &str, memory: PoolMemory) {
        self.pools.lock().insert(config.to_owned(), memory);
    }

    pub fn edit(&self, config: &str, edit: impl FnOnce(&mut PoolMemory)) {
        edit(self.pools.lock().entry(config.to_owned()).or_default());
    }

    pub fn forget(&self, config: &str) {
        self.pools.lock().remove(config);
    }

    pub fn joining_is_open(&self) -> Option<bool> {
        self.joining.lock().is_open
    }

    /// Returns what was known before.
    pub fn set_joining_is_open(&self, is_open: bool) -> Option<bool> {
        self.joining.lock().is_open.replace(is_open)
    }

    /// How long ago it was asked whether joining is open.
    pub fn joining_asked(&self) -> Option<Duration> {
        self.joining.lock().asked.map(|at| at.elapsed())
    }

    /// It is asked now. Returns whether rights have changed since the last time.
    pub fn ask_about_joining(&self) -> bool {
        let mut joining = self.joining.lock();
        joining.asked = Some(Instant::now());
        std::mem::take(&mut joining.rights_changed)
    }

    pub fn note_change_of_rights(&self) {
        self.joining.lock().rights_changed = true;
    }

    /// There is no pool that could join.
    pub fn forget_joining(&self) {
        *self.joining.lock() = JoiningMemory::default();
    }
}
