//! Another cluster than the one whose node runs the pods.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use osm_api::rbac::Service;
use osm_lab::machines;
use osm_lab::serve::relay::Relay;
use osm_testkit::{ControlPlane, Options, installation};
use serde_json::{Map, Value, json};

use super::lifecycle::{Lifecycle, NAME};

/// A control plane. Nobody needs a node of it here.
pub struct OtherCluster {
    pub plane: ControlPlane,
    /// Where pods reach its API server.
    address: Relay,
}

impl OtherCluster {
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start(Options::default()).await?;
        plane.install_machine_deployment_crd().await?;
        let server = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), plane.port());
        // It listens on loopback only.
        let address = Relay::start(&[SocketAddr::new(machines::HOST.into(), 0)], server)?;
        Ok(Self { plane, address })
    }

    /// Puts a kubeconfig for each service into a namespace of the cluster that has the pods. The ServiceAccounts are those of the release in
    /// `accounts`, a namespace of this cluster. Returns the value `workerCluster.kubeconfigs` of the chart.
    pub async fn kubeconfigs(
        &self,
        services: impl Iterator<Item = Service>,
        accounts: &str,
        lifecycle: &Lifecycle<'_>,
        namespace: &str,
    ) -> Result<Map<String, Value>> {
        let mut objects =
            vec![json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})];
        let mut kubeconfigs = Map::new();
        for service in services {
            let secret = format!("kubeconfig-{}", service.name());
            let kubeconfig = self
                .kubeconfig(accounts, &format!("{NAME}-{}", service.name()))
                .await?;
            objects.push(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": namespace},
                "stringData": {"kubeconfig": kubeconfig}}));
            kubeconfigs.insert(service.values_key().to_owned(), json!({"secret": secret}));
        }
        installation::apply(&lifecycle.cluster.control_plane, &objects).await?;
        Ok(kubeconfigs)
    }

    /// With which a pod comes as a ServiceAccount of this cluster.
    async fn kubeconfig(&self, namespace: &str, account: &str) -> Result<String> {
        let path = self.plane.identity(namespace, account).await?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let cluster = kubeconfig
            .pointer_mut("/clusters/0/cluster")
            .and_then(Value::as_object_mut);
        let cluster = cluster.context("a cluster in the kubeconfig")?;
        cluster.insert(
            "server".to_owned(),
            json!(format!("https://{}", self.address.address())),
        );
        // Of the names in its certificate.
        cluster.insert("tls-server-name".to_owned(), json!("localhost"));
        Ok(kubeconfig.to_string())
    }
}
