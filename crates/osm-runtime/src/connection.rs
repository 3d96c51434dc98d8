//! Connects to one cluster: clients, Events about objects of the cluster, and the cluster's identity.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config, ResourceExt};
use osm_api::names::KUBE_SYSTEM;
use osm_api::rbac::Service;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bounds::Bounds;
use crate::client::Observe;
use crate::connection_role::ConnectionRole;
use crate::events::Events;
use crate::process::Process;
use crate::server_time::ServerTime;
use crate::transport::{Transport, Transports};

/// How long [`Connection::uid`] uses an answer. No cluster replaces another within this time under the same
/// address.
const UID_TTL: Duration = Duration::from_secs(5);

/// The connection to a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    pub client: Client,
    pub events: Events,
    /// The clock of the API server.
    pub server_time: ServerTime,
    observe: Observe,
    anonymous: Transport,
    config: Arc<Config>,
    /// The uid of `kube-system`, and when it was asked for.
    uid: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Connection {
    /// The only cluster of a service, by existing clients with and without its credentials, such as those of
    /// a simulated API server.
    pub fn by(process: &Process, clients: [Client; 2]) -> Self {
        let observe = Observe::new(process, ConnectionRole::Only);
        let config = Config::new(Uri::from_static("https://kubernetes.default.svc"));
        Self::new(process.service, observe, config, Transports::by(clients))
    }

    pub(crate) fn new(service: Service, observe: Observe, config: Config, transports: Transports) -> Self {
        let client = observe.client(transports.own, &config);
        Self {
            events: Events::new(client.clone(), service),
            client,
            server_time: observe.server_time().clone(),
            observe,
            anonymous: transports.anonymous,
            config: Arc::new(config),
            uid: Arc::default(),
        }
    }

    /// A client without credentials, for requests that carry a token of their own.
    pub fn anonymous(&self) -> Client {
        self.observe.client(self.anonymous.clone(), &self.config)
    }

    pub fn role(&self) -> ConnectionRole {
        self.observe.role()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// `None`: it is no user cluster of a fleet.
    pub(crate) fn bounds(&self) -> Option<&Bounds> {
        self.observe.bounds()
    }

    /// uid of `kube-system`, which identifies the cluster, read at most `UID_TTL` ago.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn uid(&self) -> Result<String, kube::Error> {
        let at = Instant::now();
        let last = self.uid.lock().clone();
        if let Some((uid, _)) = last.filter(|(_, at)| at.elapsed() < UID_TTL) {
            return Ok(uid);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let uid = api.get_metadata(KUBE_SYSTEM).await?.uid().unwrap_or_default();
        *self.uid.lock() = Some((uid.clone(), at));
        Ok(uid)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use osm_api::rbac::ClusterKind;

    use super::*;
    use crate::bounds;

    /// The connection to a user cluster of a fleet by this client.
    pub(crate) fn of_fleet(process: &Process, client: Client) -> Connection {
        let role = ConnectionRole::Of(ClusterKind::Worker);
        let bounds = Bounds::new(crate::settings::none(), &bounds::turns());
        let observe = Observe::new(process, role).within(bounds);
        let config = Config::new(Uri::from_static("https://user.example"));
        let transports = Transports::by([client.clone(), client]);
        Connection::new(process.service, observe, config, transports)
    }
}
