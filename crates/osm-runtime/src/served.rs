//! The clusters that a process serves now, by their namespace in the management cluster. One watch of the
//! management cluster shows the objects of all, and what it shows leads to the cluster that it concerns.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// `C` is what a controller has for each cluster.
pub struct Served<C>(Mutex<BTreeMap<String, C>>);

impl<C> Default for Served<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: Clone> Served<C> {
    /// Serves this cluster until the guard is dropped.
    pub fn serve(self: &Arc<Self>, namespace: &str, cluster: C) -> ServedGuard<C> {
        self.0.lock().insert(namespace.to_owned(), cluster);
        ServedGuard {
            served: self.clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// The cluster of the object with this key, `namespace/name`, with that name.
    pub fn of<'a>(&self, key: &'a str) -> Option<(C, &'a str)> {
        let (namespace, name) = key.split_once('/')?;
        Some((self.0.lock().get(namespace)?.clone(), name))
    }

    pub fn all(&self) -> Vec<C> {
        self.0.lock().values().cloned().collect()
    }
}

pub struct ServedGuard<C> {
    served: Arc<Served<C>>,
    namespace: String,
}

impl<C> Drop for ServedGuard<C> {
    fn drop(&mut self) {
        self.served.0.lock().remove(&self.namespace);
    }
}
