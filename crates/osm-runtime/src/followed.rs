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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use kube::{Client, ResourceExt};
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::connection::tests::of_fleet;
    use crate::scope::tests::process;

    /// Answers reads of single objects, and no watch.
    async fn read(request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if request.uri().query().is_some() {
            return pending().await;
        }
        let name = request.uri().path().rsplit('/').next();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        Ok(Response::new(Body::from(map.to_string().into_bytes())))
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_user_cluster_of_a_fleet_ten_are_followed_and_the_others_read() {
        let scope = process();
        let connection = of_fleet(&scope.process, Client::new(tower::service_fn(read), "default"));
        let followed = Followed::new("maps", |_: &String| true);
        for number in 0..12 {
            let (name, of) = (format!("map-{number}"), (&scope, &connection));
            let name_of = |map: ConfigMap| map.name_any();
            let found = followed.get(of, "kube-system", &name, name_of, || ()).await;
            assert_eq!(*found.unwrap().unwrap(), name);
        }
        assert_eq!(followed.shown.lock().len(), 10);
    }
}
