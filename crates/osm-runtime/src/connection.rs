//! The connection to one cluster: a client that survives a change of its kubeconfig, Events about objects of the cluster, and
//! the cluster's identity.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};
use std::time::Duration;

use crate::Api;
use http::Uri;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use kube::{Client, Config, ResourceExt};
use osm_api::names::KUBE_SYSTEM;
use osm_api::rbac::Service;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tower::{BoxError, ServiceBuilder};

use crate::client::Observe;
use crate::connection_role::ConnectionRole;
use crate::events::Events;
use crate::list_watch::Selection;
use crate::server_time::ServerTime;
use crate::transport::Clients;
use crate::{Environment, Metrics, transport};

/// Lists that are read from a cluster at the same time. Each takes as much memory as the largest page.
const PARALLEL_LISTS: usize = 2;

/// How long [`Connection::recent_uid`] uses an answer: many pools may come or go at once, and no cluster replaces another within this time
/// under the same address.
const UID_TTL: Duration = Duration::from_secs(5);

/// The connection to a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    /// Always uses the newest kubeconfig.
    pub client: Client,
    /// The same without credentials, for requests that carry a token of their own.
    pub anonymous: Client,
    pub events: Events,
    /// The clock of the API server.
    pub server_time: ServerTime,
    role: ConnectionRole,
    observe: Observe,
    current: watch::Receiver<Arc<Config>>,
    uid: Arc<OnceLock<String>>,
    last_uid: Arc<Mutex<Option<ReadUid>>>,
    /// Bounds the lists that are read at the same time.
    lists: Arc<Semaphore>,
}

/// The uid of `kube-system`, as the cluster of a configuration returned it.
#[derive(Clone)]
struct ReadUid {
    uid: String,
    at: Instant,
    by: Arc<Config>,
}

impl Connection {
    /// Connects. The connection uses the last configuration that was sent to `current`.
    ///
    /// # Errors
    /// Certificates or keys can't be read.
    pub(crate) fn open(
        role: ConnectionRole,
        service: Service,
        observe: Observe,
        current: watch::Receiver<Arc<Config>>,
    ) -> anyhow::Result<Self> {
        let config = current.borrow().clone();
        let made = Arc::new(Mutex::new((config.clone(), transport::connect(&config)?)));
        let client = |observe: Observe, which: fn(Clients) -> Client| {
            let switch = Switch {
                current: current.clone(),
                made: made.clone(),
                which,
            };
            let service = ServiceBuilder::new().layer(observe).service(switch);
            Client::new(service, config.default_namespace.clone())
        };
        let anonymous = client(observe.of_others(), |clients| clients.anonymous);
        let client = client(observe.clone(), |clients| clients.own);
        Ok(Self::assemble(role, service, observe, current, client, anonymous))
    }

    /// The only cluster of a service, by existing clients with and without its credentials, such as those of a simulated API
    /// server.
    pub fn by(
        service: Service,
        [client, anonymous]: [Client; 2],
        metrics: &Metrics,
        timeout: Duration,
        environment: &Environment,
    ) -> Self {
        let observe = Observe::new(metrics, timeout, ConnectionRole::Only, environment, None);
        let config = Config::new(Uri::from_static("https://kubernetes.default.svc"));
        let (client, anonymous) = (
            observe.client(client, &config),
            observe.client(anonymous, &config),
        );
        let (_, current) = watch::channel(Arc::new(config));
        Self::assemble(ConnectionRole::Only, service, observe, current, client, anonymous)
    }

    fn assemble(
        role: ConnectionRole,
        service: Service,
        observe: Observe,
        current: watch::Receiver<Arc<Config>>,
        client: Client,
        anonymous: Client,
    ) -> Self {
        Self {
            events: Events::new(client.clone(), service),
            client,
            anonymous,
            server_time: observe.server_time().clone(),
            role,
            observe,
            current,
            uid: Arc::default(),
            last_uid: Arc::default(),
            lists: Arc::new(Semaphore::new(PARALLEL_LISTS)),
        }
    }

    pub fn role(&self) -> ConnectionRole {
        self.role
    }

    pub fn config(&self) -> Arc<Config> {
        self.current.borrow().clone()
    }

    /// Changes whenever another configuration comes into use.
    pub fn changes(&self) -> watch::Receiver<Arc<Config>> {
        self.current.clone()
    }

    /// uid of `kube-system` when this process first connected to the cluster.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn uid(&self) -> Result<String, kube::Error> {
        if let Some(uid) = self.uid.get() {
            return Ok(uid.clone());
        }
        let uid = self.live_uid().await?;
        Ok(self.uid.get_or_init(|| uid).clone())
    }

    /// uid of `kube-system`, read now.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn live_uid(&self) -> Result<String, kube::Error> {
        uid_of(&self.client).await
    }

    /// As [`Self::live_uid`], read at most `UID_TTL` ago with the configuration in use.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn recent_uid(&self) -> Result<String, kube::Error> {
        let (by, at) = (self.config(), Instant::now());
        let last = self.last_uid.lock().clone();
        if let Some(last) = last.filter(|last| Arc::ptr_eq(&last.by, &by) && last.at.elapsed() < UID_TTL) {
            return Ok(last.uid);
        }
        let uid = self.live_uid().await?;
        let read = ReadUid {
            uid: uid.clone(),
            at,
            by,
        };
        *self.last_uid.lock() = Some(read);
        Ok(uid)
    }

    /// The uid that [`Self::uid`] has read, if it has yet.
    pub(crate) fn known_uid(&self) -> Option<&String> {
        self.uid.get()
    }

    /// All objects at a path of the API.
    pub(crate) fn selection(&self, path: Option<String>) -> Selection {
        Selection {
            client: self.client.clone(),
            changes: self.current.clone(),
            lists: self.lists.clone(),
            path,
            labels: None,
            fields: None,
            metadata_only: false,
        }
    }

    /// A client with another configuration, to try it out.
    pub(crate) fn candidate(&self, config: &Config) -> anyhow::Result<Client> {
        let clients = transport::connect(config)?;
        Ok(self.observe.of_another_server().client(clients.own, config))
    }
}

pub(crate) async fn uid_of(client: &Client) -> Result<String, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    Ok(api.get_metadata(KUBE_SYSTEM).await?.uid().unwrap_or_default())
}

/// Sends each request with the newest configuration.
#[derive(Clone)]
struct Switch {
    current: watch::Receiver<Arc<Config>>,
    /// Shared, so that one connection serves all.
    made: Arc<Mutex<(Arc<Config>, Clients)>>,
    which: fn(Clients) -> Client,
}

impl Switch {
    fn client(&self) -> Result<Client, BoxError> {
        let config = self.current.borrow().clone();
        let mut made = self.made.lock();
        if !Arc::ptr_eq(&made.0, &config) {
            *made = (config.clone(), transport::connect(&config)?);
        }
        Ok((self.which)(made.1.clone()))
    }
}

impl tower::Service<Request<Body>> for Switch {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.client();
        Box::pin(async move { Ok(client?.send(request).await?) })
    }
}
