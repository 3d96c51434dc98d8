//! A cache of what a watch has shown, as small values instead of whole objects. It also has the controller's
//! own writes.
//!
//! The watch shows a write only later. A controller that reads only its watch would read the state before its
//! write, and write again. So each write is recorded here with the resourceVersion of the answer. Of a watch
//! event and a write, the newer one wins.
//!
//! A watch keeps a bounded number of objects, and ignores further ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The groups that a value belongs to.
type Grouping<V> = Box<dyn Fn(&V) -> Vec<String> + Send + Sync>;

/// Values by key (`namespace/name`), and by group if there is a grouping.
pub struct Cache<V> {
    inner: Mutex<Inner<V>>,
    groups_of: Grouping<V>,
}

struct Inner<V> {
    /// Ordered, so that model tests are deterministic.
    entries: BTreeMap<Arc<str>, Entry<V>>,
    /// Groups with their keys. Most groups have one or two, for which a set of its own would be large.
    groups: BTreeSet<(Arc<str>, Arc<str>)>,
    /// The latest deleted objects, which a late event or answer may still show.
    gone: VecDeque<Tombstone>,
    /// Counts lists. An object that a finished list has not shown is deleted.
    epoch: u64,
    /// Whether a whole list was received.
    is_listed: bool,
    /// A list is under way. It shows objects in the order of their names, so a younger one can be here before
    /// an older one.
    is_listing: bool,
    /// The watch has failed since the last whole list.
    is_broken: bool,
}

struct Entry<V> {
    version: Version,
    epoch: u64,
    value: Arc<V>,
}

/// A deleted object. For a watch with a selector, also an object that no longer matches it, which may match
/// again.
#[derive(Debug)]
struct Tombstone {
    uid: String,
    resource_version: u64,
    epoch: u64,
    since: Instant,
}

/// The identity and the age of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    uid: String,
    resource_version: u64,
}

impl Version {
    /// Version of an object as the server returned it. resourceVersions are compared as numbers, which is how
    /// the API server has always made them and, since Kubernetes 1.35, promises to.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta
                .resource_version
                .as_deref()
                .and_then(|v| v.parse().ok())
                .unwrap_or(0),
        }
    }
}

/// The values of a key before and after an update.
#[derive(Debug)]
pub struct Change<V> {
    pub key: String,
    /// Before; `None`: it did not exist.
    pub old: Option<Arc<V>>,
    /// After; `None`: it is deleted.
    pub new: Option<Arc<V>>,
}

impl<V> Default for Cache<V> {
    fn default() -> Self {
        Self::grouped(|_| None::<String>)
    }
}

impl<V> Cache<V> {
    /// A cache that finds the values of a group without looking at the others. A value can be in any number
    /// of groups.
    pub fn grouped<G: IntoIterator<Item = String>>(
        groups_of: impl Fn(&V) -> G + Send + Sync + 'static,
    ) -> Self {
        let inner = Inner {
            entries: BTreeMap::new(),
            groups: BTreeSet::new(),
            gone: VecDeque::new(),
            epoch: 0,
            is_listed: false,
            is_listing: false,
            is_broken: false,
        };
        Self {
            inner: Mutex::new(inner),
            groups_of: Box::new(move |value| groups_of(value).into_iter().collect()),
        }
    }

    /// The groups that a value belongs to.
    pub fn groups_of(&self, value: &V) -> Vec<String> {
        (self.groups_of)(value)
    }

    /// The values of a group.
    pub fn group(&self, group: &str) -> Vec<Arc<V>> {
        self.inner.lock().group(group)
    }

    /// The values of a group, and whether every object that is older than one of them is here. This is not so
    /// while a list is under way.
    pub fn group_by_age(&self, group: &str) -> (Vec<Arc<V>>, bool) {
        let inner = self.inner.lock();
        (inner.group(group), inner.is_listed && !inner.is_listing)
    }

    /// How many values a group has.
    pub fn group_len(&self, group: &str) -> usize {
        self.inner.lock().keys(group).count()
    }

    pub fn groups(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let mut groups: Vec<&Arc<str>> = inner.groups.iter().map(|(group, _)| group).collect();
        groups.dedup();
        groups.into_iter().map(ToString::to_string).collect()
    }

    pub fn get(&self, key: &str) -> Option<Arc<V>> {
        self.inner
            .lock()
            .entries
            .get(key)
            .map(|entry| entry.value.clone())
    }

    pub fn len(&self) -> usize {
        self.inner.lock().entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a list has ended. Before that, an object that is not here may exist.
    pub fn is_listed(&self) -> bool {
        self.inner.lock().is_listed
    }

    /// Whether a watch follows what was listed.
    pub(crate) fn is_current(&self) -> bool {
        let inner = self.inner.lock();
        inner.is_listed && !inner.is_listing && !inner.is_broken
    }

    /// All values that `wanted` takes.
    pub fn select(&self, wanted: impl Fn(&V) -> bool) -> Vec<Arc<V>> {
        self.inner
            .lock()
            .entries
            .values()
            .filter(|entry| wanted(&entry.value))
            .map(|entry| entry.value.clone())
            .collect()
    }

    /// Whether `wanted` takes any value.
    pub fn any(&self, wanted: impl Fn(&V) -> bool) -> bool {
        self.inner
            .lock()
            .entries
            .values()
            .any(|entry| wanted(&entry.value))
    }

    /// Drops an object that is no longer of interest. It still exists.
    pub fn forget(&self, key: &str) {
        self.inner.lock().remove(key, &self.groups_of);
    }

    /// Records an object that the server returned for a write or a live read of this controller.
    ///
    /// The watch will report neither this change nor what others changed before it. The caller must queue the
    /// keys that depend on it.
    #[must_use = "the watch will not report this change"]
    pub fn wrote(&self, key: &str, version: Version, value: V) -> Option<Change<V>> {
        let mut inner = self.inner.lock();
        if inner.gone.iter().any(|tombstone| tombstone.holds(&version)) {
            return None;
        }
        inner.put(key, version, value, &self.groups_of)
    }

    /// Records that this controller has deleted the object with this uid.
    pub fn deleted(&self, key: &str, uid: &str) {
        let mut inner = self.inner.lock();
        if inner
            .entries
            .get(key)
            .is_some_and(|entry| entry.version.uid == uid)
        {
            inner.remove(key, &self.groups_of);
        }
        inner.record_deletion(uid, u64::MAX);
    }

    pub(crate) fn list_begins(&self) {
        let mut inner = self.inner.lock();
        inner.epoch += 1;
        inner.is_listing = true;
    }

    /// The watch has failed: until the next list has ended, nothing is known to be as it is here.
    pub(crate) fn broke(&self) {
        self.inner.lock().is_broken = true;
    }

    /// A list has ended. Objects that it has not shown are deleted, unless they were written since it began.
    pub(crate) fn list_ended(&self) -> Vec<Change<V>> {
        let mut inner = self.inner.lock();
        inner.is_listed = true;
        (inner.is_listing, inner.is_broken) = (false, false);
        let epoch = inner.epoch;
        let gone: Vec<Arc<str>> = inner
            .entries
            .iter()
            .filter(|(_, entry)| entry.epoch < epoch)
            .map(|(key, _)| key.clone())
            .collect();
        gone.into_iter()
            .map(|key| {
                let old = inner.remove(&key, &self.groups_of);
                Change {
                    key: key.to_string(),
                    old,
                    new: None,
                }
            })
            .collect()
    }

    /// The watch shows an object.
    pub(crate) fn shown(&self, key: &str, version: Version, value: V) -> Option<Change<V>> {
        let mut inner = self.inner.lock();
        // An object in a list that began after the deletion exists: etcd was restored.
        let epoch = inner.epoch;
        if inner
            .gone
            .iter()
            .any(|tombstone| tombstone.epoch == epoch && tombstone.holds(&version))
        {
            return None;
        }
        inner.gone.retain(|grave| !grave.holds(&version));
        inner.put(key, version, value, &self.groups_of)
    }

    /// The namespace with most objects, where they are in namespaces.
    pub(crate) fn largest_namespace(&self) -> Option<String> {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        let inner = self.inner.lock();
        let namespaces = inner.entries.keys().filter_map(|key| key.split_once('/'));
        namespaces.for_each(|(namespace, _)| *sizes.entry(namespace).or_default() += 1);
        let largest = sizes.into_iter().max_by_key(|(_, size)| *size);
        largest.map(|(namespace, _)| namespace.to_owned())
    }

    /// The watch shows that an object is deleted.
    pub(crate) fn gone(&self, key: &str, version: &Version) -> Option<Change<V>> {
        let mut inner = self.inner.lock();
        inner.record_deletion(&version.uid, version.resource_version);
        let entry = inner.entries.get(key)?;
        let newer =
            entry.version.uid != version.uid && entry.version.resource_version > version.resource_version;
        if newer {
            return None;
        }
        let old = inner.remove(key, &self.groups_of);
        Some(Change {
            key: key.to_owned(),
            old,
            new: None,
        })
    }
}

/// Deleted objects that are remembered, and how long. An event that is late is so by seconds, in which fewer
/// objects are deleted.
const MAX_TOMBSTONES: usize = 1024;
const LASTING: Duration = Duration::from_secs(300);

impl Tombstone {
    fn holds(&self, version: &Version) -> bool {
        self.uid == version.uid && version.resource_version <= self.resource_version
    }
}

impl<V> Inner<V> {
    /// The keys of a group, in order.
    fn keys<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        let first: (Arc<str>, Arc<str>) = (group.into(), "".into());
        let from_first = self.groups.range(first..);
        from_first
            .take_while(move |(of, _)| **of == *group)
            .map(|(_, key)| key)
    }

    fn group(&self, group: &str) -> Vec<Arc<V>> {
        self.keys(group)
            .filter_map(|key| self.entries.get(key))
            .map(|entry| entry.value.clone())
            .collect()
    }

    fn record_deletion(&mut self, uid: &str, resource_version: u64) {
        if !uid.is_empty() {
            self.gone.push_back(Tombstone {
                uid: uid.to_owned(),
                resource_version,
                epoch: self.epoch,
                since: Instant::now(),
            });
            if self.gone.len() > MAX_TOMBSTONES {
                self.gone.pop_front();
            }
        }
    }

    /// Gives back the memory of those that can't be needed any more.
    fn forget_old(&mut self) {
        let is_old = |grave: &mut Tombstone| grave.since.elapsed() > LASTING;
        while self.gone.pop_front_if(is_old).is_some() {}
        if self.gone.is_empty() {
            self.gone = VecDeque::new();
        }
    }

    fn remove(&mut self, key: &str, groups_of: &Grouping<V>) -> Option<Arc<V>> {
        let (key, Entry { value, .. }) = self.entries.remove_entry(key)?;
        for group in groups_of(&value) {
            self.groups.remove(&(group.into(), key.clone()));
        }
        Some(value)
    }

    fn put(&mut self, key: &str, version: Version, value: V, groups_of: &Grouping<V>) -> Option<Change<V>> {
        self.forget_old();
        let epoch = self.epoch;
        if let Some(entry) = self.entries.get_mut(key) {
            // A new list is right even if its resourceVersion is lower: etcd was restored.
            let current = entry.epoch == epoch;
            entry.epoch = epoch;
            if current
                && entry.version.resource_version >= version.resource_version
                && version.resource_version != 0
            {
                return None;
            }
        }
        let old = self.remove(key, groups_of);
        let shared: Arc<str> = key.into();
        for group in groups_of(&value) {
            self.groups.insert((group.into(), shared.clone()));
        }
        let entry = Entry {
            version,
            epoch,
            value: Arc::new(value),
        };
        let new = Some(entry.value.clone());
        self.entries.insert(shared, entry);
        Some(Change {
            key: key.to_owned(),
            old,
            new,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(uid: &str, resource_version: u64) -> Version {
        Version {
            uid: uid.to_owned(),
            resource_version,
        }
    }

    fn value(cache: &Cache<i32>) -> Option<i32> {
        cache.get("a").map(|value| *value)
    }

    #[test]
    fn an_old_event_does_not_undo_our_write() {
        let cache = Cache::default();
        cache.shown("a", version("u", 5), 1);
        let _ = cache.wrote("a", version("u", 7), 2);
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
        let _ = cache.wrote("a", version("v", 8), 2);
        cache.gone("a", &version("u", 7));
        assert_eq!(value(&cache), Some(2), "the deletion of the predecessor");
        assert!(cache.gone("a", &version("v", 9)).is_some());
        assert_eq!(value(&cache), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_forgotten_when_no_event_can_be_so_late() {
        let cache = Cache::default();
        cache.deleted("a", "u");
        tokio::time::sleep(LASTING).await;
        assert!(cache.wrote("a", version("u", 6), 1).is_none());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _ = cache.wrote("b", version("v", 7), 1);
        assert_eq!(cache.inner.lock().gone.capacity(), 0);
    }

    #[test]
    fn a_late_answer_does_not_bring_back_what_is_gone() {
        let cache = Cache::default();
        cache.gone("a", &version("u", 7));
        assert!(cache.wrote("a", version("u", 6), 1).is_none());
        assert_eq!(value(&cache), None);
        // It was only out of sight: to a selector an object without its label is gone.
        assert!(cache.wrote("a", version("u", 8), 1).is_some());
        cache.deleted("a", "u");
        assert!(cache.wrote("a", version("u", 9), 1).is_none());
    }

    #[test]
    fn a_list_after_a_restore_is_believed() {
        let cache = Cache::default();
        cache.shown("a", version("u", 50), 1);
        cache.list_begins();
        cache.shown("a", version("u", 20), 2);
        assert!(cache.list_ended().is_empty());
        assert_eq!(value(&cache), Some(2));
    }

    #[test]
    fn what_we_deleted_comes_back_with_a_restore() {
        let cache = Cache::default();
        cache.list_begins();
        cache.shown("a", version("u", 5), 1);
        cache.list_ended();
        cache.deleted("a", "u");
        cache.list_begins();
        assert!(cache.shown("a", version("u", 5), 1).is_some());
        assert!(cache.wrote("a", version("u", 6), 2).is_some());
        cache.list_ended();
        assert_eq!(value(&cache), Some(2));
    }

    #[test]
    fn an_older_object_may_be_missing_while_a_list_is_under_way() {
        let cache = Cache::grouped(|_: &i32| Some("all".to_owned()));
        assert!(!cache.group_by_age("all").1, "nothing was listed");
        for _ in 0..2 {
            cache.list_begins();
            cache.shown("a", version("younger", 2), 1);
            assert!(!cache.group_by_age("all").1);
            cache.shown("b", version("older", 1), 1);
            cache.list_ended();
            let (values, complete) = cache.group_by_age("all");
            assert_eq!((values.len(), complete), (2, true));
        }
    }

    #[test]
    fn a_value_may_belong_to_several_groups_and_they_follow_it() {
        let cache = Cache::grouped(|value: &i32| {
            vec![format!("last {}", value % 10), format!("first {}", value / 10)]
        });
        cache.shown("a", version("u", 1), 12);
        cache.shown("b", version("v", 1), 13);
        assert_eq!(cache.groups(), ["first 1", "last 2", "last 3"]);
        assert_eq!((cache.group_len("first 1"), cache.group("last 2").len()), (2, 1));
        cache.shown("a", version("u", 2), 23);
        assert_eq!((cache.group_len("first 1"), cache.group("last 3").len()), (1, 2));
        cache.gone("a", &version("u", 3));
        cache.deleted("b", "v");
        assert!(cache.groups().is_empty());
    }

    #[test]
    fn a_list_removes_what_it_does_not_show_but_not_what_we_just_wrote() {
        let cache = Cache::default();
        cache.shown("a", version("u", 5), 1);
        cache.shown("b", version("w", 5), 1);
        cache.list_begins();
        cache.shown("b", version("w", 5), 1);
        let _ = cache.wrote("c", version("x", 9), 1);
        let gone: Vec<String> = cache.list_ended().into_iter().map(|change| change.key).collect();
        assert_eq!(gone, ["a"]);
        assert_eq!(cache.len(), 2);
    }
}
