//! Requests of clients, over TLS.

use std::net::Ipv4Addr;

use http::Request;
use kube::api::{DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use osm_testkit::control_plane::{Pki, kubeconfig};
use osm_testkit::installation;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

const NAMESPACE: &str = "kube-system";

/// A served API server with the definitions of the custom kinds.
struct Served {
    server: Server,
    url: String,
    pki: Pki,
    _directory: TempDir,
}

impl Served {
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let pki = Pki::create(directory.path(), std::iter::empty()).unwrap();
        let tls = tls(directory.path()).unwrap();
        let server = Server::new(jiff::Timestamp::now());
        server.load(&definitions()).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(server.clone(), listener, tls, "admin".to_owned()));
        Self {
            server,
            url,
            pki,
            _directory: directory,
        }
    }

    async fn client(&self, token: &str) -> Client {
        let text = kubeconfig(&self.url, &self.pki.ca_pem, token);
        let read = Kubeconfig::from_yaml(&text).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(read, &options).await.unwrap();
        Client::try_from(config).unwrap()
    }
}

fn definitions() -> Vec<Value> {
    let mut all = [osm_api::definitions::PROFILES, osm_api::definitions::CONFIGS]
        .map(osm_api::definitions::parse)
        .to_vec();
    all.extend(serde_saphyr::from_multiple::<Value>(installation::MACHINE_CONTROLLER_CRDS).unwrap());
    all
}

async fn get(client: &Client, path: &str, accept: &str) -> Value {
    let request = Request::get(path)
        .header(ACCEPT, accept)
        .body(Vec::new())
        .unwrap();
    client.request(request).await.unwrap()
}

fn refusal<T>(result: Result<T, kube::Error>) -> (u16, Vec<String>) {
    match result {
        Err(kube::Error::Api(status)) => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            (status.code, causes.into_iter().map(|cause| cause.field).collect())
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is accepted"),
    }
}

#[tokio::test]
async fn only_the_administrator_and_service_accounts_are_served() {
    let served = Served::start().await;
    let list = async |token: &str| {
        let api = Api::<DynamicObject>::all_with(
            served.client(token).await,
            &osm_testkit::machine_controller::machine_deployment(),
        );
        api.list(&ListParams::default()).await
    };
    assert!(list("admin").await.is_ok());
    assert_eq!(refusal(list("wrong").await).0, 401);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": NAMESPACE}});
    let request = json!({"spec": {"audiences": []}});
    let token = served.server.with(|state| {
        state.salt_tokens("salt".to_owned());
        state.create(account).unwrap();
        crate::memory::authorizer::issue(state, NAMESPACE, "a", &request).unwrap()
    });
    let token = token["status"]["token"].as_str().unwrap();
    assert!(token.ends_with("salt"));
    assert_eq!(refusal(list(token).await).0, 403);
}

#[tokio::test]
async fn kinds_are_discovered_with_their_short_names_and_schemas() {
    let served = Served::start().await;
    let client = served.client("admin").await;
    let group = "operatingsystemmanager.k8c.io/v1alpha1";
    let resources = client.list_api_group_resources(group).await.unwrap().resources;
    let of = |name: &str| resources.iter().find(|resource| resource.name == name).unwrap();
    assert_eq!(
        of("operatingsystemprofiles").short_names,
        Some(vec!["osp".to_owned()])
    );
    assert_eq!(
        of("operatingsystemconfigs").categories,
        Some(vec!["osm".to_owned()])
    );
    let groups = client.list_api_groups().await.unwrap().groups;
    assert!(groups.iter().any(|group| group.name == "cluster.k8s.io"));
    // Where a patch has this parameter, kubectl leaves the validation to the server.
    let index = get(&client, "/openapi/v3", "application/json").await;
    let url = index["paths"]["apis/cluster.k8s.io/v1alpha1"]["serverRelativeURL"]
        .as_str()
        .unwrap();
    let document = get(&client, url, "application/json").await;
    let path = "/apis/cluster.k8s.io/v1alpha1/namespaces/{namespace}/machinedeployments/{name}";
    let patch = &document["paths"][path]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "MachineDeployment"
    );
    assert_eq!(patch["parameters"][1]["name"], "fieldValidation");
}
