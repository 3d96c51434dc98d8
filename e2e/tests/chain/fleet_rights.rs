//! What RBAC by name permits in all namespaces of a seed: a service of a fleet follows the Secrets of one name,
//! and no other.

use anyhow::{Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use osm_api::names::worker_kubeconfig;
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::{ControlPlane, Options};
use serde_json::json;

use crate::rights::is_forbidden;

const CLUSTERS: [&str; 2] = ["cluster-a", "cluster-b"];

/// Namespaces of the Secrets that a list with this selector has.
async fn listed(secrets: &Api<Secret>, selector: &str) -> Result<Vec<String>, kube::Error> {
    let secrets = secrets.list(&ListParams::default().fields(selector)).await?;
    Ok(secrets.iter().filter_map(ResourceExt::namespace).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_a_fleet_follows_its_kubeconfigs_and_no_other_secret() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let installation = Installation {
        namespace: "osm".to_owned(),
        fleet: true,
        ..Installation::default()
    };
    let mut objects = installation::manifests_in(&installation, &[ClusterKind::Management]);
    for namespace in CLUSTERS {
        objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        let names = Service::ALL.map(|service| worker_kubeconfig(service.name()));
        objects.extend(names.iter().map(String::as_str).chain(["other"]).map(
            |name| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}}),
        ));
    }
    installation::apply(&control_plane, &objects).await?;
    let admin: Api<Secret> = Api::namespaced(control_plane.admin()?, "cluster-b");
    for service in Service::ALL {
        let client = control_plane.client_as(IDENTITIES, service.name()).await?;
        let secrets: Api<Secret> = Api::all(client.clone());
        let name = worker_kubeconfig(service.name());
        let own = format!("metadata.name={name}");
        if service == Service::OspController {
            assert!(is_forbidden(listed(&secrets, &own).await));
            continue;
        }
        assert_eq!(listed(&secrets, &own).await?, CLUSTERS, "{service:?}");
        let others = [
            "",
            "metadata.name=other",
            "metadata.namespace=cluster-a",
            "metadata.name!=a",
        ];
        for selector in others
            .into_iter()
            .map(str::to_owned)
            .chain([format!("{own},metadata.name=other")])
        {
            assert!(
                is_forbidden(listed(&secrets, &selector).await),
                "{service:?} {selector}"
            );
            let watch = secrets
                .watch(&WatchParams::default().fields(&selector), "0")
                .await;
            assert!(is_forbidden(watch), "{service:?} {selector}");
        }
        let in_one: Api<Secret> = Api::namespaced(client.clone(), "cluster-a");
        assert!(is_forbidden(listed(&in_one, "").await), "{service:?}");
        for name in [&name, "other"] {
            assert!(is_forbidden(in_one.get(name).await), "{service:?} {name}");
        }

        let from = secrets.list(&ListParams::default().fields(&own)).await?;
        let version = from.metadata.resource_version.unwrap_or_default();
        let mut events = Box::pin(
            secrets
                .watch(&WatchParams::default().fields(&own), &version)
                .await?,
        );
        let change = Patch::Merge(json!({"stringData": {"kubeconfig": "new"}}));
        for name in ["other", &name] {
            admin.patch(name, &PatchParams::default(), &change).await?;
        }
        match events.try_next().await? {
            Some(WatchEvent::Modified(secret)) => {
                let place = (secret.namespace().unwrap_or_default(), secret.name_any());
                assert_eq!(place, ("cluster-b".to_owned(), name));
            }
            other => bail!("{service:?}: {other:?}"),
        }

        let leases: Api<Lease> = Api::all(client);
        let upstream = ListParams::default().fields("metadata.name=operating-system-manager");
        let is_granted = service != Service::CsrApprover;
        assert_eq!(leases.list(&upstream).await.is_ok(), is_granted, "{service:?}");
        assert!(
            is_forbidden(leases.list(&ListParams::default()).await),
            "{service:?}"
        );
    }
    Ok(())
}
