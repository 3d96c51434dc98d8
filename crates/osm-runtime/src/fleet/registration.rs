//! What a WorkerCluster, its Secret and the release say about one cluster: how it is served, or why not.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::config::Kubeconfig;
use osm_api::names::{KUBECONFIG_KEY, worker_kubeconfig};
use osm_api::rbac::{Installation, Service};
use osm_api::worker_cluster::{Joining, WorkerCluster, WorkerClusterSpec};
use osm_api::{Reason, condition};
use secrecy::ExposeSecret;
use serde::Deserialize;

/// A WorkerCluster, as far as it matters here.
pub struct WorkerClusterView {
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: Option<i64>,
    /// When it was created, in a form that is ordered.
    pub created: String,
    pub spec: WorkerClusterSpec,
    pub cluster_uid: Option<String>,
    /// The conditions of all services.
    pub conditions: Vec<Condition>,
}

impl WorkerClusterView {
    pub fn of(cluster: WorkerCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            uid: cluster.uid().unwrap_or_default(),
            resource_version: cluster.resource_version().unwrap_or_default(),
            generation: cluster.metadata.generation,
            created: cluster
                .creation_timestamp()
                .map(|at| at.0.to_string())
                .unwrap_or_default(),
            cluster_uid: status.cluster_uid,
            conditions: status.conditions,
            spec: cluster.spec,
        }
    }

    /// Whether `other`, which has the same cluster, was there before.
    pub fn is_younger_than(&self, other: &Self) -> bool {
        let order = |view: &Self| (view.created.clone(), view.namespace.clone());
        self.uid != other.uid && order(self) > order(other)
    }
}

/// The kubeconfig of a Secret; `None`: it has no such key, or no text in it.
pub type KubeconfigText = Option<Arc<str>>;

pub fn kubeconfig(secret: Secret) -> KubeconfigText {
    let bytes = secret.data?.remove(KUBECONFIG_KEY)?;
    Some(String::from_utf8(bytes.0).ok()?.into())
}

/// From when to when a kubeconfig is valid.
pub type Validity = (Timestamp, Timestamp);

/// What is to be said about a cluster that is served with a kubeconfig that is valid so long, and when to look
/// again. A kubeconfig is renewed several times within its lifetime, so in its second half a renewal has failed
/// again and again.
pub fn expiry((from, to): Validity, namespace: &str, now: Timestamp) -> (Option<State>, Option<Duration>) {
    let half = from + to.duration_since(from) / 2;
    if now < half {
        let look_again = Duration::try_from(half.duration_since(now)).ok();
        return (None, look_again);
    }
    let message = format!(
        "the kubeconfig expires at {to}; see why the CronJob does not renew it, or run `osmctl kubeconfigs -n {namespace} \
         --worker-context CONTEXT`"
    );
    (Some(State::new(Reason::Serving, message)), None)
}

/// How a cluster is served. What differs leads to another connection.
#[derive(Clone, PartialEq)]
pub struct Registration {
    /// uid of the WorkerCluster.
    pub uid: String,
    pub installation: Installation,
    pub kubeconfig: Arc<str>,
}

impl Registration {
    /// From when to when the token of the kubeconfig is valid, if it says so; it is not verified.
    pub fn validity(&self) -> Option<Validity> {
        #[derive(Deserialize)]
        struct Claims {
            iat: i64,
            exp: i64,
        }
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig).ok()?;
        let mut users = kubeconfig.auth_infos.into_iter();
        let token = users.find_map(|user| user.auth_info?.token)?;
        let payload = BASE64_URL_SAFE_NO_PAD
            .decode(token.expose_secret().split('.').nth(1)?)
            .ok()?;
        let Claims { iat, exp } = serde_json::from_slice(&payload).ok()?;
        let at = |seconds| Timestamp::from_second(seconds).ok();
        at(iat).zip(at(exp))
    }

    /// Whether they differ in the kubeconfig only.
    pub fn is_of_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.installation == other.installation
    }
}

/// What the condition of this service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub reason: Reason,
    /// What is wrong and what to do.
    pub message: String,
}

impl State {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub fn verdict(&self, type_: &'static str) -> condition::Verdict {
        condition::Verdict {
            type_,
            status: self.reason == Reason::Serving,
            reason: self.reason,
            message: self.message.clone(),
        }
    }
}

/// How `service` serves the cluster of a WorkerCluster.
///
/// # Errors
/// Why it does not.
pub fn read(
    view: &WorkerClusterView,
    secret: Option<&KubeconfigText>,
    release: &Installation,
    service: Service,
) -> Result<Registration, State> {
    if service == Service::CsrApprover && view.spec.joining == Joining::Static {
        let why = "kube-controller-manager approves machines, because spec.joining is static";
        return Err(State::new(Reason::NotServed, why));
    }
    let name = worker_kubeconfig(service.name());
    let missing = |what: String| {
        let namespace = &view.namespace;
        let command = format!("osmctl kubeconfigs -n {namespace} --worker-context CONTEXT");
        Err(State::new(
            Reason::KubeconfigMissing,
            format!("{what}; write it with `{command}`"),
        ))
    };
    match secret {
        None => missing(format!("there is no Secret {name} in this namespace")),
        Some(None) => missing(format!(
            "the Secret {name} has no kubeconfig in its key {KUBECONFIG_KEY}"
        )),
        Some(Some(text)) => Ok(Registration {
            uid: view.uid.clone(),
            installation: installation(view, release),
            kubeconfig: text.clone(),
        }),
    }
}

/// The release's, but for what belongs to the cluster.
fn installation(view: &WorkerClusterView, release: &Installation) -> Installation {
    let spec = &view.spec;
    Installation {
        id: spec
            .installation
            .clone()
            .unwrap_or_else(|| view.namespace.clone()),
        namespace: view.namespace.clone(),
        profiles_in: Some(release.namespace.clone()),
        profile_namespaces: spec.profile_namespaces.clone(),
        profile_aliases: spec.profile_aliases.clone(),
        worker_namespace: spec.worker_namespace.clone(),
        ..release.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(namespace: &str, created: &str, spec: &Value) -> WorkerClusterView {
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster", "spec": spec,
            "metadata": {"name": "worker", "namespace": namespace, "uid": namespace, "creationTimestamp": created},
        });
        WorkerClusterView::of(serde_json::from_value(object).unwrap())
    }

    fn secret(data: &Value) -> KubeconfigText {
        kubeconfig(serde_json::from_value(json!({"data": data})).unwrap())
    }

    fn release() -> Installation {
        Installation {
            id: "osm".to_owned(),
            namespace: "osm".to_owned(),
            profile_namespaces: vec!["team".to_owned(), "other".to_owned()],
            fleet: true,
            ..Installation::default()
        }
    }

    #[test]
    fn a_cluster_is_served_with_the_kubeconfig_of_the_service_or_there_is_a_reason() {
        let (approved, fixed) = (json!({}), json!({"joining": "static"}));
        let [good, other, binary] = [
            json!({"kubeconfig": "YQ=="}),
            json!({"value": "YQ=="}),
            json!({"kubeconfig": "/w=="}),
        ]
        .map(|data| secret(&data));
        let (syncer, approver) = (Service::SecretSyncer, Service::CsrApprover);
        for (service, spec, secret, expected) in [
            (syncer, &approved, Some(&good), Ok("a")),
            (syncer, &fixed, Some(&good), Ok("a")),
            (approver, &approved, Some(&good), Ok("a")),
            (
                approver,
                &fixed,
                Some(&good),
                Err((Reason::NotServed, "spec.joining is static")),
            ),
            (
                syncer,
                &approved,
                None,
                Err((Reason::KubeconfigMissing, "no Secret worker-secret-syncer")),
            ),
            (
                syncer,
                &approved,
                Some(&other),
                Err((Reason::KubeconfigMissing, "no kubeconfig in its key")),
            ),
            (
                syncer,
                &approved,
                Some(&binary),
                Err((Reason::KubeconfigMissing, "`osmctl kubeconfigs -n cluster-a")),
            ),
        ] {
            let found = read(
                &view("cluster-a", "2026-01-01T00:00:00Z", spec),
                secret,
                &release(),
                service,
            );
            match (found, expected) {
                (Ok(found), Ok(text)) => assert_eq!(&*found.kubeconfig, text),
                (Err(found), Err((reason, words))) => {
                    assert_eq!(found.reason, reason);
                    assert!(found.message.contains(words), "{}", found.message);
                }
                (found, _) => panic!("{service:?} {spec}: {:?}", found.map(|found| found.uid)),
            }
        }
    }

    #[test]
    fn what_belongs_to_the_cluster_is_its_own_and_all_else_the_releases() {
        let of = |spec: Value| installation(&view("cluster-a", "2026-01-01T00:00:00Z", &spec), &release());
        let plain = of(json!({}));
        assert_eq!(
            (&*plain.id, &*plain.namespace, plain.worker_namespace()),
            ("cluster-a", "cluster-a", "cluster-a")
        );
        assert_eq!(plain.namespaces_to_render_from(), ["osm"]);
        let own = of(json!({"installation": "old", "workerNamespace": "w", "profileNamespaces": ["team"]}));
        assert_eq!(
            (&*own.id, &*own.namespace, own.worker_namespace()),
            ("old", "cluster-a", "w")
        );
        assert_eq!(own.namespaces_to_render_from(), ["osm", "team"]);
    }

    #[test]
    fn of_two_with_one_cluster_the_older_has_it() {
        let [first, second] =
            ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"].map(|at| view("b", at, &json!({})));
        let same_second = view("c", "2026-01-01T00:00:00Z", &json!({}));
        let late = WorkerClusterView {
            uid: "late".to_owned(),
            ..second
        };
        assert!(late.is_younger_than(&first) && !first.is_younger_than(&late));
        assert!(same_second.is_younger_than(&first) && !first.is_younger_than(&same_second));
        assert!(!first.is_younger_than(&first));
    }

    #[test]
    fn a_kubeconfig_that_was_not_renewed_for_half_of_its_lifetime_is_named() {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(r#"{"iat":1000,"exp":3000,"sub":"x"}"#);
        let of = |token: &str| Registration {
            uid: String::new(),
            installation: Installation::default(),
            kubeconfig: format!("users: [{{name: a, user: {{token: {token}}}}}]").into(),
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let validity = of(&format!("header.{payload}.signature")).validity().unwrap();
        assert_eq!(validity, (at(1000), at(3000)));
        assert_eq!(
            expiry(validity, "a", at(1500)),
            (None, Some(Duration::from_secs(500)))
        );
        let (found, again) = expiry(validity, "a", at(2000));
        let found = found.unwrap();
        assert_eq!((found.reason, again), (Reason::Serving, None));
        assert!(
            found.message.contains("expires at 1970-01-01T00:50:00Z"),
            "{}",
            found.message
        );
        for other in ["hunter2", "a.b.c", "'a.e30.c'"] {
            assert!(of(other).validity().is_none(), "{other}");
        }
    }
}
