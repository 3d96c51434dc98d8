//! What this process remembers between reconciles. A reconcile stores what its plan remembers, and carrying the plan out corrects it.
//! [`crate::io::hmac_key`] sets the key. [`Syncer::forget`](crate::io::syncer::Syncer::forget) drops what is remembered of a config.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::io::error::ApplyError;
use crate::model::hmac_key::HmacKey;
use crate::model::memory::PoolMemory;

#[derive(Default)]
pub struct Memory {
    /// By name of the OperatingSystemConfig.
    pools: Mutex<HashMap<String, PoolMemory>>,
    hmac_key: Mutex<KeyMemory>,
    /// When the worker cluster last confirmed its identity.
    worker_confirmed: Mutex<Option<Instant>>,
    /// Whether whatever a pool's token asks for is approved; `None`: that was not asked yet.
    joining_is_open: Mutex<Option<bool>>,
}

#[derive(Clone, Default)]
pub enum KeyMemory {
    /// Its first reconcile has not ended yet.
    #[default]
    Unknown,
    /// There is no key, because its last reconcile failed.
    Failed(Arc<ApplyError>),
    Known(HmacKey),
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

    pub fn hmac_key(&self) -> KeyMemory {
        self.hmac_key.lock().clone()
    }

    pub fn set_hmac_key(&self, key: KeyMemory) {
        *self.hmac_key.lock() = key;
    }

    /// A reconcile of the key failed. A key that is in use stays in use. Returns whether configs wait for the first reconcile to end.
    pub fn hmac_key_failed(&self, error: Arc<ApplyError>) -> bool {
        let mut key = self.hmac_key.lock();
        let is_awaited = matches!(*key, KeyMemory::Unknown);
        if !matches!(*key, KeyMemory::Known(_)) {
            *key = KeyMemory::Failed(error);
        }
        is_awaited
    }

    pub fn worker_confirmed(&self) -> Option<Duration> {
        self.worker_confirmed.lock().map(|at| at.elapsed())
    }

    pub fn joining_is_open(&self) -> Option<bool> {
        *self.joining_is_open.lock()
    }

    /// Returns what was known before.
    pub fn set_joining_is_open(&self, is_open: bool) -> Option<bool> {
        self.joining_is_open.lock().replace(is_open)
    }

    pub fn confirm_worker(&self) {
        *self.worker_confirmed.lock() = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_use_outlasts_failures_and_the_first_failure_ends_the_wait() {
        let memory = Memory::default();
        let fail = || memory.hmac_key_failed(Arc::new(ApplyError::ClusterChanged("changed".into())));
        assert!(fail(), "configs wait");
        assert!(matches!(memory.hmac_key(), KeyMemory::Failed(_)));
        assert!(!fail(), "they know already");
        assert!(matches!(memory.hmac_key(), KeyMemory::Failed(_)));
        memory.set_hmac_key(KeyMemory::Known(HmacKey::new([7; 32])));
        assert!(!fail());
        assert!(
            matches!(memory.hmac_key(), KeyMemory::Known(_)),
            "it stays in use"
        );
    }
}
