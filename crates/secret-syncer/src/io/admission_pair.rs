//! Keeps the key pair of the admission webhooks in a Secret, and its CA in their configurations.
//!
//! The chart creates these objects, so a right by name is enough. What is missing is not created: then there is no webhook.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use osm_runtime::Api;
use osm_runtime::request::failed;
use osm_runtime::{Environment, RequestError};
use serde_json::json;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::admission_pair::{Made, Stored};
use crate::plan::admission_pair::{PairStep, plan};

/// A configuration that was created or replaced is trusted again within this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

const READING_SECRET: &str = "reading the Secret of the admission webhooks";
const WRITING_SECRET: &str = "writing the Secret of the admission webhooks";
const READING_WEBHOOK: &str = "reading the configuration of an admission webhook";
const WRITING_WEBHOOK: &str = "writing caBundle of an admission webhook";

/// # Errors
/// Requests that failed.
pub async fn reconcile(context: &Context) -> Result<Option<Duration>, ApplyError> {
    let clients = &context.clients;
    let cluster = &clients.cluster;
    let Some(objects) = &cluster.installation.admission else {
        return Ok(None);
    };
    let named = [
        (&cluster.management.client, &objects.profiles),
        (&cluster.worker.client, &objects.machine_deployments),
    ];
    let named = named.into_iter().filter_map(|(client, name)| {
        let name = name.as_deref()?;
        Some((Api::all(client.clone()), name))
    });
    let keeper = Keeper {
        secrets: Api::namespaced(cluster.home.client.clone(), cluster.installation.home_namespace()),
        secret: &objects.secret,
        webhooks: named.collect(),
        hosts: &clients.admission_hosts,
        environment: &clients.process.environment,
    };
    keeper.keep(cluster.home.server_time.now()).await?;
    Ok(Some(CHECK_INTERVAL))
}

/// What is kept, and where.
struct Keeper<'a> {
    secrets: Api<Secret>,
    secret: &'a str,
    webhooks: Vec<(Api<ValidatingWebhookConfiguration>, &'a str)>,
    hosts: &'a BTreeSet<String>,
    environment: &'a Environment,
}

impl Keeper<'_> {
    async fn keep(&self, now: Timestamp) -> Result<(), RequestError> {
        let found = self.secrets.get_opt(self.secret).await;
        let Some(mut secret) = found.map_err(failed(READING_SECRET))? else {
            tracing::warn!(
                secret = self.secret,
                "the Secret of the admission webhooks is missing, so they are not reached; create it without content, as the chart does"
            );
            return Ok(());
        };
        // A cluster that can't be reached holds up no other.
        let mut failure = None;
        let mut webhooks = Vec::new();
        for (api, name) in &self.webhooks {
            match Webhook::get(api, name).await {
                Ok(found) => webhooks.extend(found),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let mut stored = Stored::read(&secret.data.clone().unwrap_or_default());
        let bundle = stored.bundle();
        let is_known = failure.is_none() && webhooks.iter().all(|webhook| webhook.trusts(&bundle));
        if self.step(&mut stored, now, is_known) {
            secret.data = Some(stored.data());
            self.secrets
                .replace(self.secret, &PostParams::default(), &secret)
                .await
                .map_err(failed(WRITING_SECRET))?;
        }
        let bundle = stored.bundle();
        for webhook in &webhooks {
            if let Err(error) = webhook.trust(&bundle).await {
                failure = failure.or(Some(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Carries out one step; returns whether it changed anything.
    fn step(&self, stored: &mut Stored, now: Timestamp, is_known: bool) -> bool {
        let make = || {
            let number = u128::from_le_bytes(self.environment.bytes());
            Made::new(self.hosts, now, number)
                .inspect_err(|error| {
                    tracing::error!(
                        %error,
                        "no certificate can be made for the admission webhooks; correct the names in --admission-hosts"
                    );
                })
                .ok()
        };
        let step = plan(stored, self.hosts, now, is_known);
        match step {
            PairStep::Keep => return false,
            PairStep::Start => match make() {
                Some(made) => stored.start(made),
                None => return false,
            },
            PairStep::Prepare => match make() {
                Some(made) => stored.prepare(made),
                None => return false,
            },
            PairStep::Promote => stored.promote(now),
            PairStep::Forget => {
                stored.next = None;
                stored.forget_others();
            }
        }
        tracing::info!(?step, "the key pair of the admission webhooks");
        true
    }
}

/// A configuration that exists.
struct Webhook {
    api: Api<ValidatingWebhookConfiguration>,
    name: String,
    found: ValidatingWebhookConfiguration,
}

impl Webhook {
    async fn get(
        api: &Api<ValidatingWebhookConfiguration>,
        name: &str,
    ) -> Result<Option<Self>, RequestError> {
        let found = api.get_opt(name).await.map_err(failed(READING_WEBHOOK))?;
        Ok(found.map(|found| Self {
            api: api.clone(),
            name: name.to_owned(),
            found,
        }))
    }

    fn trusts(&self, bundle: &str) -> bool {
        let mut webhooks = self.found.webhooks.iter().flatten();
        webhooks.all(|webhook| {
            let trusted = webhook.client_config.ca_bundle.as_ref();
            trusted.is_some_and(|trusted| trusted.0 == bundle.as_bytes())
        })
    }

    async fn trust(&self, bundle: &str) -> Result<(), RequestError> {
        // An empty bundle is stored as none, so it would be written again and again.
        if bundle.is_empty() || self.trusts(bundle) {
            return Ok(());
        }
        let trusted = ByteString(bundle.as_bytes().to_vec());
        let entry = |name: &str| json!({"name": name, "clientConfig": {"caBundle": trusted}});
        let entries: Vec<_> = self
            .found
            .webhooks
            .iter()
            .flatten()
            .map(|webhook| entry(&webhook.name))
            .collect();
        let patch = Patch::Strategic(json!({
            "metadata": {"resourceVersion": self.found.metadata.resource_version}, "webhooks": entries,
        }));
        let patched = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        patched.map_err(failed(WRITING_WEBHOOK))?;
        tracing::info!(
            webhook = self.name,
            "the API server trusts the key pair of this admission webhook"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::Value;

    use super::*;
    use crate::model::admission_pair::LIFETIME;

    const SECRET: &str = "/api/v1/namespaces/osm/secrets/pair";
    const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

    /// An API server that stores a Secret and configurations of webhooks.
    #[derive(Clone, Default)]
    struct Server(Arc<Mutex<Stock>>);

    #[derive(Default)]
    struct Stock {
        objects: BTreeMap<String, Value>,
        writes: usize,
        is_unreachable: bool,
    }

    impl Server {
        fn with(path: impl Into<String>, object: Value) -> Self {
            let server = Self::default();
            server.0.lock().unwrap().objects.insert(path.into(), object);
            server
        }

        fn webhook(name: &str) -> Self {
            let object = json!({"metadata": {"name": name}, "webhooks": [{
                "name": "a", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}}]});
            Self::with(format!("{WEBHOOKS}/{name}"), object)
        }

        fn client(&self) -> Client {
            let server = self.clone();
            let send = tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move { server.answer(request).await }
            });
            Client::new(send, "default")
        }

        async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut stock = self.0.lock().unwrap();
            if stock.is_unreachable {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            stock.writes += usize::from(method != Method::GET);
            let object = stock.objects.get_mut(&path).unwrap();
            if method != Method::GET {
                let sent: Value = serde_json::from_slice(&body).unwrap();
                match method {
                    // An API server drops an empty value.
                    Method::PATCH if sent["webhooks"][0]["clientConfig"]["caBundle"] != "" => {
                        object["webhooks"][0]["clientConfig"] = sent["webhooks"][0]["clientConfig"].clone();
                    }
                    Method::PATCH => {}
                    _ => *object = sent,
                }
            }
            Ok(Response::new(object.to_string().into_bytes().into()))
        }

        fn set_unreachable(&self, is_unreachable: bool) {
            self.0.lock().unwrap().is_unreachable = is_unreachable;
        }

        fn writes(&self) -> usize {
            std::mem::take(&mut self.0.lock().unwrap().writes)
        }

        fn object(&self) -> Value {
            self.0.lock().unwrap().objects.values().next().unwrap().clone()
        }

        fn ca_bundle(&self) -> Value {
            self.object()["webhooks"][0]["clientConfig"]["caBundle"].clone()
        }
    }

    /// The Secret, and the webhooks of two clusters.
    struct World {
        secret: Server,
        management: Server,
        worker: Server,
        environment: Environment,
    }

    impl World {
        fn new() -> Self {
            Self {
                secret: Server::with(SECRET, json!({"metadata": {"name": "pair"}})),
                management: Server::webhook("m"),
                worker: Server::webhook("w"),
                environment: Environment::default(),
            }
        }

        async fn keep(&self, host: &str, after: Duration) -> Result<(), RequestError> {
            let keeper = Keeper {
                secrets: Api::namespaced(self.secret.client(), "osm"),
                secret: "pair",
                webhooks: vec![
                    (Api::all(self.worker.client()), "w"),
                    (Api::all(self.management.client()), "m"),
                ],
                hosts: &BTreeSet::from([host.to_owned()]),
                environment: &self.environment,
            };
            keeper
                .keep(Timestamp::from_second(1_800_000_000).unwrap() + after)
                .await
        }

        fn data(&self, key: &str) -> Value {
            self.secret.object()["data"][key].clone()
        }
    }

    #[tokio::test]
    async fn a_cluster_that_can_not_be_reached_holds_up_no_other() {
        let world = World::new();
        world.worker.set_unreachable(true);
        assert!(world.keep("a", Duration::ZERO).await.is_err());
        let first = world.data("tls.crt");
        assert!(first.is_string());
        assert_eq!(world.management.ca_bundle(), world.data("ca.crt"));

        let renewal = LIFETIME - Duration::from_hours(30 * 24);
        assert!(world.keep("a", renewal).await.is_err());
        let next = world.data("next.crt");
        assert!(next.is_string());
        assert_eq!(world.management.ca_bundle(), world.data("ca.crt"));
        assert!(world.keep("a", renewal + Duration::from_hours(2)).await.is_err());
        assert_eq!(
            world.data("tls.crt"),
            first,
            "the worker cluster may be back in time"
        );
        assert!(
            world
                .keep("a", LIFETIME - Duration::from_hours(23))
                .await
                .is_err()
        );
        assert_eq!(world.data("tls.crt"), next);

        world.worker.set_unreachable(false);
        world.keep("a", LIFETIME).await.unwrap();
        assert_eq!(world.worker.ca_bundle(), world.data("ca.crt"));
    }

    #[tokio::test]
    async fn what_is_trusted_or_can_not_be_trusted_is_not_written_again() {
        let world = World::new();
        let all = [&world.secret, &world.management, &world.worker];
        // No certificate can have such a name.
        world.keep("ä", Duration::ZERO).await.unwrap();
        assert_eq!(all.map(Server::writes), [0; 3]);
        world.keep("a", Duration::ZERO).await.unwrap();
        assert_eq!(all.map(Server::writes), [1; 3]);
        for host in ["a", "ä"] {
            world.keep(host, Duration::ZERO).await.unwrap();
            assert_eq!(all.map(Server::writes), [0; 3]);
        }
    }
}
