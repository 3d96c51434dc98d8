//! The observer of a real API server: fed by watches of its own, past all faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::TryStreamExt;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DynamicObject};
use kube::client::Body;
use kube::config::AuthInfo;
use kube::runtime::watcher;
use kube::{Api, Client};
use osm_api::digest;
use osm_api::names::CLOUD_INIT_SETTINGS;
use rand::seq::IteratorRandom;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::ControlPlane;
use crate::invariants::{Change, Door, InOrder, Observer, Purpose, What};
use crate::tiny;

/// Changes are held so long, so that one watch may lag behind another.
const HOLD: SignedDuration = SignedDuration::from_secs(2);
/// Authorizers learn of changes by watches: a "no" counts once it was said for so long.
const INSISTS: Duration = Duration::from_secs(8);
/// Doors of earlier documents that are tried at a time, besides all that are current.
const EARLIER: usize = 20;

/// Watches, and the observer that they feed. Dropping it ends the watches.
pub struct Watching {
    observer: Arc<Mutex<Observer>>,
    seen: Arc<Mutex<u64>>,
    /// Ended by being dropped.
    _tasks: JoinSet<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watching {
    /// Watches MachineDeployments of `kube-system`, configs of `namespace` and all that is made for pools. Profiles must be such as [`tiny::profile`] makes.
    ///
    /// # Errors
    /// When the TLS configuration is refused.
    pub fn start(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let observer = Arc::new(Mutex::new(Observer::new(tiny::parse)));
        let (in_order, seen) = (Arc::new(Mutex::new(InOrder::new(HOLD))), Arc::<Mutex<u64>>::default());
        let mut tasks = JoinSet::new();
        for (group, version, kind, plural, namespace) in [
            ("cluster.k8s.io", "v1alpha1", "MachineDeployment", "machinedeployments", "kube-system"),
            (
                "operatingsystemmanager.k8c.io",
                "v1alpha1",
                "OperatingSystemConfig",
                "operatingsystemconfigs",
                namespace,
            ),
            ("", "v1", "Secret", "secrets", CLOUD_INIT_SETTINGS),
            ("", "v1", "ServiceAccount", "serviceaccounts", CLOUD_INIT_SETTINGS),
            ("rbac.authorization.k8s.io", "v1", "Role", "roles", CLOUD_INIT_SETTINGS),
            ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", CLOUD_INIT_SETTINGS),
        ] {
            let api_version =
                if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let resource = ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version,
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            };
            let api = Api::namespaced_with(plane.admin()?, namespace, &resource);
            tasks.spawn(watch(api, resource, in_order.clone()));
        }
        let feed = (observer.clone(), seen.clone());
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                for change in lock(&in_order).ready(Timestamp::now()) {
                    *lock(&feed.1) += 1;
                    lock(&feed.0).observe(&change);
                }
            }
        });
        tasks.spawn(doors(plane.client_with(AuthInfo::default())?, observer.clone()));
        Ok(Self { observer, seen, _tasks: tasks })
    }

    /// What it has seen so far, and what it says of it.
    pub fn observer(&self) -> MutexGuard<'_, Observer> {
        lock(&self.observer)
    }

    /// Changes that were observed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        *lock(&self.seen)
    }

    /// Until everything that was done by now is observed.
    pub async fn caught_up(&self) {
        let hold = Duration::try_from(HOLD).unwrap_or_default();
        tokio::time::sleep(hold + Duration::from_secs(2)).await;
    }
}

async fn watch(api: Api<DynamicObject>, resource: ApiResource, in_order: Arc<Mutex<InOrder>>) {
    let mut known = BTreeSet::new();
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    loop {
        let (what, object) = match events.try_next().await {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                let new = known.insert(object.metadata.uid.clone());
                (if new { What::Added } else { What::Modified }, object)
            }
            Ok(Some(watcher::Event::Delete(object))) => (What::Deleted, object),
            Ok(Some(_)) => continue,
            Ok(None) => return,
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(500)).await;
                continue;
            }
        };
        let mut object = serde_json::to_value(object).unwrap_or_default();
        if let Value::Object(fields) = &mut object {
            fields.insert("apiVersion".to_owned(), json!(resource.api_version));
            fields.insert("kind".to_owned(), json!(resource.kind));
        }
        lock(&in_order).add(Change { at: Timestamp::now(), what, object });
    }
}

/// Tries the doors again and again.
async fn doors(client: Client, observer: Arc<Mutex<Observer>>) {
    let mut closed: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let at = Timestamp::now();
        let asked: Vec<Door> = {
            let mut observer = lock(&observer);
            let (current, earlier): (Vec<Door>, Vec<Door>) =
                observer.doors(at).iter().cloned().partition(|door| door.current);
            let earlier = earlier.into_iter().choose_multiple(&mut rand::rng(), EARLIER);
            current.into_iter().chain(earlier).collect()
        };
        let mut answers = Vec::new();
        for door in asked {
            let key = digest::sha256_hex(format!("{:?} {}", door.purpose, door.token).as_bytes());
            match opens(&client, &door).await {
                Ok(true) => {
                    closed.remove(&key);
                    answers.push((door, true));
                }
                Ok(false) => {
                    if closed.entry(key).or_insert_with(Instant::now).elapsed() >= INSISTS {
                        answers.push((door, false));
                    }
                }
                // The API server's own fault.
                Err(_) => {}
            }
        }
        // Together: a pool that was damaged is good again once all of its doors are open.
        lock(&observer).answer(at, answers.iter().map(|(door, is_open)| (door, *is_open)));
    }
}

async fn opens(client: &Client, door: &Door) -> Result<bool> {
    let (method, path, body) = match &door.purpose {
        Purpose::Fetch(secret) => {
            ("GET", format!("/api/v1/namespaces/{CLOUD_INIT_SETTINGS}/secrets/{secret}"), Vec::new())
        }
        Purpose::Join => {
            let attributes = json!({"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create"});
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes}});
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(),
                review.to_string().into_bytes(),
            )
        }
    };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(AUTHORIZATION, format!("Bearer {}", door.token))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body))?;
    let answer = client.send(request).await?;
    match answer.status().as_u16() {
        401 | 403 | 404 => Ok(false),
        code if code >= 300 => anyhow::bail!("status {code}"),
        _ => {
            let answer: Value = serde_json::from_slice(&answer.into_body().collect_bytes().await?)?;
            let allowed = answer.pointer("/status/allowed").and_then(Value::as_bool);
            Ok(door.purpose != Purpose::Join || allowed == Some(true))
        }
    }
}
