//! The connection to one of the clusters: a client that stays while the kubeconfig behind it is replaced, Events about
//! what is there, and which cluster it is.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{self, Poll};
use std::time::Duration;

use http::Uri;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Namespace;
use kube::client::Body;
use kube::config::AuthInfo;
use kube::{Api, Client, Config, ResourceExt};
use osm_api::names::KUBE_SYSTEM;
use osm_api::rbac::{Cluster, Service};
use tokio::sync::watch;
use tower::{BoxError, ServiceBuilder};

use crate::client::{self, Observe};
use crate::events::Events;
use crate::server_time::ServerTime;
use crate::{Metrics, Surroundings};

/// What a cluster is to this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The only one: both, or all that the service needs.
    Only,
    /// One of two.
    Of(Cluster),
}

impl Part {
    /// Value of the metric label `cluster`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Of(cluster) => cluster.name(),
        }
    }

    /// `the cluster`, `the management cluster` or `the worker cluster`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Only => "the cluster",
            Self::Of(Cluster::Management) => "the management cluster",
            Self::Of(Cluster::Worker) => "the worker cluster",
        }
    }

    /// To follow the name of something that is there; nothing where there is only one cluster.
    pub fn place(self) -> &'static str {
        match self {
            Self::Only => "",
            Self::Of(Cluster::Management) => " in the management cluster",
            Self::Of(Cluster::Worker) => " in the worker cluster",
        }
    }

    /// The clusters of the table of rights whose part it plays.
    pub fn plays(self) -> &'static [Cluster] {
        match self {
            Self::Only => &Cluster::ALL,
            Self::Of(Cluster::Management) => &[Cluster::Management],
            Self::Of(Cluster::Worker) => &[Cluster::Worker],
        }
    }
}

/// A kind that is watched, and where: for logs, metrics and readiness.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The kind, or what of it.
    pub kind: &'static str,
    /// Where.
    pub part: Part,
}

/// The connection to a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    /// Always goes by the newest kubeconfig.
    pub client: Client,
    /// The same without any credentials, for requests that carry a token of their own.
    pub anonymous: Client,
    /// Events about objects of this cluster.
    pub events: Events,
    /// The clock of the API server.
    pub server_time: ServerTime,
    part: Part,
    observe: Observe,
    current: watch::Receiver<Arc<Config>>,
    uid: Arc<OnceLock<String>>,
}

impl Connection {
    /// Connects; whoever sends another configuration replaces what the connection goes by.
    ///
    /// # Errors
    /// Certificates or keys that can't be read.
    pub(crate) fn open(
        part: Part,
        service: Service,
        observe: Observe,
        current: watch::Receiver<Arc<Config>>,
    ) -> anyhow::Result<Self> {
        let client = switching(&observe, &current, Config::clone)?;
        let anonymous = switching(&observe.of_others(), &current, |config| {
            let mut nobody = config.clone();
            nobody.auth_info = AuthInfo::default();
            nobody
        })?;
        Ok(Self::assemble(part, service, observe, current, client, anonymous))
    }

    /// The only cluster of a service, by a client with its credentials and one without any that somebody else has made, such
    /// as to a model of an API server.
    pub fn by(
        service: Service,
        [client, anonymous]: [Client; 2],
        metrics: &Metrics,
        timeout: Duration,
        surroundings: &Surroundings,
    ) -> Self {
        let observe = Observe::new(metrics, timeout, Part::Only, ServerTime::new(surroundings), None);
        let config = Config::new(Uri::from_static("https://kubernetes.default.svc"));
        let (client, anonymous) = (observe.client(client, &config), observe.client(anonymous, &config));
        let (_, current) = watch::channel(Arc::new(config));
        Self::assemble(Part::Only, service, observe, current, client, anonymous)
    }

    fn assemble(
        part: Part,
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
            part,
            observe,
            current,
            uid: Arc::default(),
        }
    }

    /// What this cluster is to the service.
    pub fn part(&self) -> Part {
        self.part
    }

    /// A kind that is watched here.
    pub fn watched(&self, kind: &'static str) -> Watched {
        Watched { kind, part: self.part }
    }

    /// How the connection is made now.
    pub fn config(&self) -> Arc<Config> {
        self.current.borrow().clone()
    }

    /// Tells when it is made in another way.
    pub fn changes(&self) -> watch::Receiver<Arc<Config>> {
        self.current.clone()
    }

    /// uid of `kube-system` when this process first met the cluster.
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

    /// uid of `kube-system` as it is now.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn live_uid(&self) -> Result<String, kube::Error> {
        uid_of(&self.client).await
    }

    /// The uid that was met first, if any has been yet.
    pub(crate) fn known_uid(&self) -> Option<&String> {
        self.uid.get()
    }

    /// A client by another configuration, observed as this one is.
    pub(crate) fn candidate(&self, config: &Config) -> anyhow::Result<Client> {
        client::connect(config.clone()).map(|client| self.observe.of_others().client(client, config))
    }
}

/// uid of `kube-system`.
pub(crate) async fn uid_of(client: &Client) -> Result<String, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    Ok(api.get_metadata(KUBE_SYSTEM).await?.uid().unwrap_or_default())
}

fn switching(
    observe: &Observe,
    current: &watch::Receiver<Arc<Config>>,
    vary: fn(&Config) -> Config,
) -> anyhow::Result<Client> {
    let config = current.borrow().clone();
    let made = client::connect(vary(&config))?;
    let namespace = config.default_namespace.clone();
    let switch = Switch { current: current.clone(), vary, made: Arc::new(Mutex::new((config, made))) };
    Ok(Client::new(ServiceBuilder::new().layer(observe.clone()).service(switch), namespace))
}

/// Sends each request by the newest configuration.
#[derive(Clone)]
struct Switch {
    current: watch::Receiver<Arc<Config>>,
    vary: fn(&Config) -> Config,
    made: Arc<Mutex<(Arc<Config>, Client)>>,
}

impl Switch {
    fn client(&self) -> Result<Client, BoxError> {
        let config = self.current.borrow().clone();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&made.0, &config) {
            *made = (config.clone(), client::connect((self.vary)(&config))?);
        }
        Ok(made.1.clone())
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
