//! Single objects of the worker cluster that are named by others, each followed by a watch of its own from the first time it
//! is read.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use parking_lot::Mutex;

use crate::Cluster;
use crate::cache::Cache;
use crate::watch::{Watch, Watchable};

/// What the watches show, by kind, namespace and name of the object.
pub struct Followed<V> {
    /// For logs and metrics.
    what: &'static str,
    shown: Mutex<HashMap<String, Arc<Cache<V>>>>,
}

impl<V: Send + Sync + 'static> Followed<V> {
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            shown: Mutex::default(),
        }
    }

    /// The object as its watch shows it. Until the watch shows it, each call asks the API server, which also knows that there is
    /// none (`None`). `on_change` is called for every change from the first call on.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn get<K>(
        &self,
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        project: fn(K) -> V,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Result<Option<Arc<V>>, kube::Error>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope>,
    {
        if let Some(shown) = self.follow(cluster, namespace, name, project, on_change) {
            return Ok(Some(shown));
        }
        let api: Api<K> = Api::namespaced(cluster.worker.client.clone(), namespace);
        Ok(api.get_opt(name).await?.map(|object| Arc::new(project(object))))
    }

    /// Returns what the watch shows, and starts it where there is none.
    fn follow<K>(
        &self,
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        project: fn(K) -> V,
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> Option<Arc<V>>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope>,
    {
        let key = format!("{namespace}/{name}");
        // Held until the watch is there, so that two workers do not start two.
        let mut all = self.shown.lock();
        if let Some(shown) = all.get(&format!("{}/{key}", K::kind(&()))) {
            return shown.get(&key);
        }
        let cache = Arc::default();
        Watch::namespaced(&cluster.worker, namespace, self.what)
            .named(name)
            .project(move |object| Some(project(object)))
            .into_cache(&cache)
            .on_change(move |_| on_change())
            .unawaited()
            .spawn(cluster);
        all.insert(format!("{}/{key}", K::kind(&())), cache);
        None
    }
}
