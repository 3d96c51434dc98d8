//! Single objects of one cluster that are named by others. Each is followed by a watch of its own from the
//! first time it is read until nothing names it any more.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use parking_lot::Mutex;
use tokio_util::sync::DropGuard;

use crate::cache::Cache;
use crate::connection::Connection;
use crate::read;
use crate::scope::Scope;
use crate::watch::{Watch, Watchable};

/// The largest number of objects that are followed. Others are read whenever they are needed. A
/// kube-apiserver serves 100 requests of one connection at a time, and each watch is one of them: with more
/// watches, all other requests would wait for their end.
pub const MAX_FOLLOWED: usize = 50;

/// The same for a user cluster of a fleet, of which there can be a thousand.
const MAX_FOLLOWED_IN_FLEET: usize = 10;

/// What the watches show, by kind, namespace and name of the object.
pub struct Followed<V> {
    what: &'static str,
    /// Whether a value is small enough to be kept. Larger ones are read whenever they are needed.
    is_small: fn(&V) -> bool,
    shown: Mutex<HashMap<String, Follow<V>>>,
}

/// What a watch shows. It ends when the guard is dropped.
type Follow<V> = (Arc<Cache<V>>, DropGuard);

/// Key of an object: `Kind/namespace/name`.
pub fn key(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

impl<V: Send + Sync + 'static> Followed<V> {
    pub fn new(what: &'static str, is_small: fn(&V) -> bool) -> Self {
        Self {
            what,
            is_small,
            shown: Mutex::default(),
        }
    }

    /// The object of the cluster behind `of`, as its watch shows it, which starts with the first call. Until
    /// the watch shows it, each call asks the API server, which also knows that there is none (`None`).
    /// `on_change` is called for every change from the first call on.
    ///
    /// # Errors
    /// Those of the request; an object that can't be decoded.
    pub async fn get<K>(
        &self,
        (scope, of): (&Scope, &Connection),
        namespace: &str,
        name: &str,
        project: fn(K) -> V,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Result<Option<Arc<V>>, kube::Error>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope>,
    {
        {
            let key = key(&K::kind(&()), namespace, name);
            // Held until the watch is there, so that two workers do not start two.
            let mut all = self.shown.lock();
            if let Some((cache, _)) = all.get(&key) {
                if let Some(shown) = cache.get(&format!("{namespace}/{name}")) {
                    return Ok(Some(shown));
                }
            } else if all.len() < of.bounds().map_or(MAX_FOLLOWED, |_| MAX_FOLLOWED_IN_FLEET) {
                let (cache, is_small) = (Arc::<Cache<V>>::default(), self.is_small);
                let end = scope.shutdown.child_token();
                Watch::namespaced(of, namespace, self.what)
                    .named(name)
                    .project(move |object| Some(project(object)).filter(is_small))
                    .into_cache(&cache)
                    .on_change(move |_| on_change())
                    .awaited(false)
                    .until(&end)
                    .spawn(scope);
                all.insert(key, (cache, end.drop_guard()));
            }
        }
        let api: Api<K> = Api::namespaced(of.client.clone(), namespace);
        let found = read::get(
            &api,
            name,
            |object| Ok(Arc::new(project(object))),
            |unreadable| Err(kube::Error::Service(unreadable.problem.to_string().into())),
        );
        found.await?.transpose()
    }

    /// Ends the watches of all objects that `used` does not take, by [`key`].
    pub fn keep(&self, used: impl Fn(&str) -> bool) {
        self.shown.lock().retain(|key, _| used(key));
    }
}
