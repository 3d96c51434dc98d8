//! A cache of what a watch has shown, as small values rather than whole objects, that also knows our own writes.
//!
//! A controller that reads only its watch acts on its own past: it writes, reads the state before the write, and
//! writes again. So each write is recorded here with the resourceVersion that the server gave it, and the older of
//! the two, watch or write, never wins.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Values by key (`namespace/name`).
#[derive(Debug)]
pub struct Cache<V> {
    inner: Mutex<Inner<V>>,
}

#[derive(Debug)]
struct Inner<V> {
    entries: HashMap<String, Entry<V>>,
    /// uids of objects that we deleted and the watch may still show.
    deleted: HashMap<String, String>,
    /// Counts (re)lists: what a finished list has not shown is gone.
    epoch: u64,
}

#[derive(Debug)]
struct Entry<V> {
    version: Version,
    epoch: u64,
    value: Arc<V>,
}

/// Which object, and how new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    uid: String,
    resource_version: u64,
}

impl Version {
    /// Version of an object as the server returned it. resourceVersions are compared as numbers, which is how the
    /// API server has always made them and, since Kubernetes 1.35, promises to.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0),
        }
    }
}

/// What an update did to a key: the values before and after.
#[derive(Debug)]
pub struct Change<V> {
    /// Key of the object.
    pub key: String,
    /// Before; `None`: it was not there.
    pub old: Option<Arc<V>>,
    /// After; `None`: it is gone.
    pub new: Option<Arc<V>>,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { entries: HashMap::new(), deleted: HashMap::new(), epoch: 0 }) }
    }
}

impl<V> Cache<V> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<Arc<V>> {
        self.lock().entries.get(key).map(|entry| entry.value.clone())
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values that `wanted` takes.
    pub fn select(&self, wanted: impl Fn(&V) -> bool) -> Vec<Arc<V>> {
        self.lock()
            .entries
            .values()
            .filter(|entry| wanted(&entry.value))
            .map(|entry| entry.value.clone())
            .collect()
    }

    /// Records an object that the server returned for a write (or a live read) of ours.
    pub fn wrote(&self, key: &str, version: Version, value: V) -> Option<Change<V>> {
        self.lock().put(key, version, value)
    }

    /// Records that we deleted the object with this uid.
    pub fn deleted(&self, key: &str, uid: &str) {
        let mut inner = self.lock();
        if inner.entries.get(key).is_some_and(|entry| entry.version.uid == uid) {
            inner.entries.remove(key);
        }
        inner.deleted.insert(key.to_owned(), uid.to_owned());
    }

    /// A list begins.
    pub(crate) fn list_begins(&self) {
        self.lock().epoch += 1;
    }

    /// A list has ended: what it has not shown is gone, unless we wrote it since it began.
    pub(crate) fn list_ended(&self) -> Vec<Change<V>> {
        let mut inner = self.lock();
        let epoch = inner.epoch;
        inner.deleted.clear();
        let gone: Vec<String> = inner
            .entries
            .iter()
            .filter(|(_, entry)| entry.epoch < epoch)
            .map(|(key, _)| key.clone())
            .collect();
        gone.into_iter()
            .map(|key| {
                let old = inner.entries.remove(&key).map(|entry| entry.value);
                Change { key, old, new: None }
            })
            .collect()
    }

    /// The watch shows an object.
    pub(crate) fn shown(&self, key: &str, version: Version, value: V) -> Option<Change<V>> {
        self.lock().put(key, version, value)
    }

    /// The watch shows that an object is gone.
    pub(crate) fn gone(&self, key: &str, version: &Version) -> Option<Change<V>> {
        let mut inner = self.lock();
        inner.deleted.remove(key);
        let entry = inner.entries.get(key)?;
        let newer =
            entry.version.uid != version.uid && entry.version.resource_version > version.resource_version;
        if newer {
            return None;
        }
        let old = inner.entries.remove(key).map(|entry| entry.value);
        Some(Change { key: key.to_owned(), old, new: None })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<V>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Inner<V> {
    fn put(&mut self, key: &str, version: Version, value: V) -> Option<Change<V>> {
        if self.deleted.get(key).is_some_and(|uid| *uid == version.uid) {
            return None;
        }
        let epoch = self.epoch;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.epoch = epoch;
            if entry.version.resource_version >= version.resource_version && version.resource_version != 0 {
                return None;
            }
        }
        let entry = Entry { version, epoch, value: Arc::new(value) };
        let new = Some(entry.value.clone());
        let old = self.entries.insert(key.to_owned(), entry).map(|entry| entry.value);
        Some(Change { key: key.to_owned(), old, new })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(uid: &str, resource_version: u64) -> Version {
        Version { uid: uid.to_owned(), resource_version }
    }

    fn value(cache: &Cache<i32>) -> Option<i32> {
        cache.get("a").map(|value| *value)
    }

    #[test]
    fn an_old_event_does_not_undo_our_write() {
        let cache = Cache::default();
        cache.shown("a", version("u", 5), 1);
        cache.wrote("a", version("u", 7), 2);
        assert!(cache.shown("a", version("u", 6), 9).is_none());
        assert_eq!(value(&cache), Some(2));
        assert!(cache.shown("a", version("u", 8), 3).is_some());
        assert_eq!(value(&cache), Some(3));
    }

    #[test]
    fn what_we_deleted_does_not_come_back_but_its_successor_does() {
        let cache = Cache::default();
        cache.shown("a", version("u", 5), 1);
        cache.deleted("a", "u");
        assert_eq!(value(&cache), None);
        cache.shown("a", version("u", 6), 1);
        assert_eq!(value(&cache), None, "an event from before the deletion");
        cache.wrote("a", version("v", 8), 2);
        cache.gone("a", &version("u", 7));
        assert_eq!(value(&cache), Some(2), "the deletion of the predecessor");
        assert!(cache.gone("a", &version("v", 9)).is_some());
        assert_eq!(value(&cache), None);
    }

    #[test]
    fn a_list_removes_what_it_does_not_show_but_not_what_we_just_wrote() {
        let cache = Cache::default();
        cache.shown("a", version("u", 5), 1);
        cache.shown("b", version("w", 5), 1);
        cache.list_begins();
        cache.shown("b", version("w", 5), 1);
        cache.wrote("c", version("x", 9), 1);
        let gone: Vec<String> = cache.list_ended().into_iter().map(|change| change.key).collect();
        assert_eq!(gone, ["a"]);
        assert_eq!(cache.len(), 2);
    }
}
