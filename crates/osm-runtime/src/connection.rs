//! Connects to one cluster: clients, Events about objects of the cluster, and the cluster's identity.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, Config, ResourceExt};
use osm_api::names::KUBE_SYSTEM;
use osm_api::rbac::Service;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::Observe;
use crate::connection_role::ConnectionRole;
use crate::events::Events;
use crate::server_time::ServerTime;
use crate::transport::{self, Clients};
use crate::{Api, Environment, Metrics};

/// How long [`Connection::recent_uid`] uses an answer: many pools may come or go at once, and no cluster replaces another within this time
/// under the same address.
const UID_TTL: Duration = Duration::from_secs(5);

/// The connection to a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    pub client: Client,
    /// The same without credentials, for requests that carry a token of their own.
    pub anonymous: Client,
    pub events: Events,
    /// The clock of the API server.
    pub server_time: ServerTime,
    role: ConnectionRole,
    config: Arc<Config>,
    uid: Arc<OnceLock<String>>,
    last_uid: Arc<Mutex<Option<ReadUid>>>,
}

/// The uid of `kube-system`, and when the cluster returned it.
#[derive(Clone)]
struct ReadUid {
    uid: String,
    at: Instant,
}

impl Connection {
    /// Connects to the API server that the configuration names.
    ///
    /// # Errors
    /// Certificates or keys can't be read.
    pub(crate) fn open(
        role: ConnectionRole,
        service: Service,
        observe: Observe,
        config: Config,
    ) -> anyhow::Result<Self> {
        let clients = transport::connect(&config)?;
        Ok(Self::assemble(role, service, &observe, config, clients))
    }

    /// The only cluster of a service, by existing clients with and without its credentials, such as those of a simulated API
    /// server.
    pub fn by(
        service: Service,
        [own, anonymous]: [Client; 2],
        metrics: &Metrics,
        timeout: Duration,
        environment: &Environment,
    ) -> Self {
        let observe = Observe::new(metrics, timeout, ConnectionRole::Only, environment, None);
        let config = Config::new(Uri::from_static("https://kubernetes.default.svc"));
        let clients = Clients { own, anonymous };
        Self::assemble(ConnectionRole::Only, service, &observe, config, clients)
    }

    fn assemble(
        role: ConnectionRole,
        service: Service,
        observe: &Observe,
        config: Config,
        clients: Clients,
    ) -> Self {
        let client = observe.client(clients.own, &config);
        Self {
            events: Events::new(client.clone(), service),
            client,
            anonymous: observe.of_others().client(clients.anonymous, &config),
            server_time: observe.server_time().clone(),
            role,
            config: Arc::new(config),
            uid: Arc::default(),
            last_uid: Arc::default(),
        }
    }

    pub fn role(&self) -> ConnectionRole {
        self.role
    }

    pub fn config(&self) -> &Config {
        &self.config
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
        let api: Api<Namespace> = Api::all(self.client.clone());
        Ok(api.get_metadata(KUBE_SYSTEM).await?.uid().unwrap_or_default())
    }

    /// As [`Self::live_uid`], read at most `UID_TTL` ago.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn recent_uid(&self) -> Result<String, kube::Error> {
        let at = Instant::now();
        let last = self.last_uid.lock().clone();
        if let Some(last) = last.filter(|last| last.at.elapsed() < UID_TTL) {
            return Ok(last.uid);
        }
        let uid = self.live_uid().await?;
        *self.last_uid.lock() = Some(ReadUid { uid: uid.clone(), at });
        Ok(uid)
    }
}
