//! Feeds the observer from watches of a real API server, which bypass all injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
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
use osm_testkit::ControlPlane;
use osm_testkit::fixtures;
use parking_lot::{Mutex, MutexGuard};
use rand::seq::IteratorRandom;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::invariants::{Change, CredentialProbe, InOrder, Observer, Purpose, What};

/// Changes are held so long, so that one watch may lag behind another.
const REORDER_WINDOW: SignedDuration = SignedDuration::from_secs(2);
/// Authorizers learn of changes by watches: a "no" counts once it was said for so long.
const REFUSED_FOR: Duration = Duration::from_secs(8);
/// A "yes" to what somebody has just damaged may be that of an authorizer which does not know yet.
const AUTHORIZERS_LAG: SignedDuration = SignedDuration::from_secs(2);
/// How many probes of earlier documents are sent at a time, besides all current ones and all that were refused the last time.
const EARLIER_PROBES: usize = 20;

/// Watches, and the observer that they feed. Dropping it ends the watches.
pub struct Watching {
    observer: Arc<Mutex<Observer>>,
    seen: Arc<Mutex<u64>>,
    /// Ended by being dropped.
    _tasks: JoinSet<()>,
}

impl Watching {
    /// Watches MachineDeployments of `kube-system`, configs of `namespace` and all that is made for pools. Profiles must be such as [`fixtures::profile`] makes.
    ///
    /// # Errors
    /// When the TLS configuration is refused.
    pub fn start(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let observer = Arc::new(Mutex::new(Observer::new(fixtures::parse, AUTHORIZERS_LAG)));
        let (in_order, seen) = (
            Arc::new(Mutex::new(InOrder::new(REORDER_WINDOW))),
            Arc::<Mutex<u64>>::default(),
        );
        let mut tasks = JoinSet::new();
        for (group, version, kind, plural, namespace) in [
            (
                "cluster.k8s.io",
                "v1alpha1",
                "MachineDeployment",
                "machinedeployments",
                "kube-system",
            ),
            (
                "operatingsystemmanager.k8c.io",
                "v1alpha1",
                "OperatingSystemConfig",
                "operatingsystemconfigs",
                namespace,
            ),
            ("", "v1", "Secret", "secrets", CLOUD_INIT_SETTINGS),
            ("", "v1", "ServiceAccount", "serviceaccounts", CLOUD_INIT_SETTINGS),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "Role",
                "roles",
                CLOUD_INIT_SETTINGS,
            ),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "RoleBinding",
                "rolebindings",
                CLOUD_INIT_SETTINGS,
            ),
        ] {
            let api_version = if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            };
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
                for change in in_order.lock().ready(Timestamp::now()) {
                    *feed.1.lock() += 1;
                    feed.0.lock().observe(&change);
                }
            }
        });
        tasks.spawn(probes(plane.client_with(AuthInfo::default())?, observer.clone()));
        Ok(Self {
            observer,
            seen,
            _tasks: tasks,
        })
    }

    /// What it has seen so far, and what it says of it.
    pub fn observer(&self) -> MutexGuard<'_, Observer> {
        self.observer.lock()
    }

    /// Changes that were observed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        *self.seen.lock()
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
        in_order.lock().add(Change {
            at: Timestamp::now(),
            what,
            object,
        });
    }
}

/// Sends the probes again and again.
async fn probes(client: Client, observer: Arc<Mutex<Observer>>) {
    // Since when a probe was refused each time. One that was refused is sent again at once, so that two faults a minute apart are not one.
    let mut refused: BTreeMap<String, Instant> = BTreeMap::new();
    let key = |probe: &CredentialProbe| {
        digest::sha256_hex(format!("{:?} {}", probe.purpose, probe.token).as_bytes())
    };
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let at = Timestamp::now();
        let asked: Vec<CredentialProbe> = {
            let mut observer = observer.lock();
            let (always, now_and_then): (Vec<CredentialProbe>, Vec<CredentialProbe>) = observer
                .probes(at)
                .iter()
                .cloned()
                .partition(|probe| probe.current || refused.contains_key(&key(probe)));
            let now_and_then = now_and_then
                .into_iter()
                .choose_multiple(&mut rand::rng(), EARLIER_PROBES);
            always.into_iter().chain(now_and_then).collect()
        };
        let mut answers = Vec::new();
        let before = std::mem::take(&mut refused);
        for probe in asked {
            let key = key(&probe);
            match is_accepted(&client, &probe).await {
                Ok(true) => answers.push((probe, true)),
                Ok(false) => {
                    let since = before.get(&key).copied().unwrap_or_else(Instant::now);
                    refused.insert(key, since);
                    if since.elapsed() >= REFUSED_FOR {
                        answers.push((probe, false));
                    }
                }
                // The API server failed, and this is no answer.
                Err(_) => refused.extend(before.get(&key).map(|since| (key, *since))),
            }
        }
        // Together: a damaged pool has recovered once the API server accepts all of its tokens.
        observer.lock().answer(
            at,
            answers.iter().map(|(probe, is_accepted)| (probe, *is_accepted)),
        );
    }
}

async fn is_accepted(client: &Client, probe: &CredentialProbe) -> Result<bool> {
    let (method, path, body) = match &probe.purpose {
        Purpose::Fetch(secret) => (
            "GET",
            format!("/api/v1/namespaces/{CLOUD_INIT_SETTINGS}/secrets/{secret}"),
            Vec::new(),
        ),
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
        .header(AUTHORIZATION, format!("Bearer {}", probe.token))
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body))?;
    let answer = client.send(request).await?;
    match answer.status().as_u16() {
        401 | 403 | 404 => Ok(false),
        code if code >= 300 => anyhow::bail!("status {code}"),
        _ => {
            let answer: Value = serde_json::from_slice(&answer.into_body().collect_bytes().await?)?;
            let allowed = answer.pointer("/status/allowed").and_then(Value::as_bool);
            Ok(probe.purpose != Purpose::Join || allowed == Some(true))
        }
    }
}
