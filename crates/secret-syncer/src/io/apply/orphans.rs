//! Deletes orphans, each once a live read has shown that its MachineDeployment is gone.

use osm_api::{MachineDeployment, names};
use osm_runtime::request::failed;
use osm_runtime::{Api, read};

use crate::io::apply::teardown;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::plan::orphans;
use crate::plan::steps::{Orphan, Owner};

/// Deletes this orphan of the config of this name, or logs why not. A failure concerns this orphan only.
pub async fn apply(context: &Context, config: &str, orphan: &Orphan) {
    if let Err(error) = collect(context, config, orphan).await {
        tracing::warn!(config, %error, "an orphaned pool can't be handled yet; it will be retried");
    }
}

async fn collect(context: &Context, config: &str, orphan: &Orphan) -> Result<(), ApplyError> {
    let pool = &orphan.pool;
    let Some(owner) = &orphan.owner else {
        tracing::warn!(
            config,
            pool,
            "the OperatingSystemConfig is gone, and its Secrets do not all name the same MachineDeployment; nothing is deleted. Delete what \
             has the label {}={pool} if no machines are created from it",
            names::POOL
        );
        return Ok(());
    };
    // In the cluster that the Secrets are in, since configs are also missing where they are looked for in the
    // wrong place.
    let client = context.cluster.worker.client.clone();
    if !is_gone(&Api::namespaced(client, &owner.namespace), owner, pool).await? {
        tracing::warn!(
            config,
            machine_deployment = format!("{}/{}", owner.namespace, owner.name),
            "the OperatingSystemConfig is gone, but its MachineDeployment exists; nothing is deleted. Check that osc-controller runs, and \
             that --namespace is the same for both"
        );
        return Ok(());
    }
    // Before the deletion: a request that fails later must not hide what was deleted.
    tracing::warn!(config, pool, "deleting what was published for an orphaned pool");
    // Only what names the MachineDeployment: a label alone proves nothing.
    teardown::delete_all(context, &orphan.objects).await
}

/// Whether the MachineDeployment that a pool's objects were made for does not exist.
async fn is_gone(api: &Api<MachineDeployment>, owner: &Owner, pool: &str) -> Result<bool, ApplyError> {
    let uid = read::get(
        api,
        &owner.name,
        |md| md.metadata.uid,
        |md| md.metadata.uid.clone(),
    )
    .await;
    Ok(match uid.map_err(failed("reading the MachineDeployment"))? {
        None => true,
        Some(uid) => uid.is_some_and(|uid| orphans::is_another(owner, pool, &uid)),
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_404_about_the_machine_deployment_or_another_uid_shows_that_it_is_gone() {
        let owner = Owner {
            namespace: "kube-system".into(),
            name: "pool".into(),
        };
        let pool = names::pool_id("kube-system", "pool", "uid");
        let status = |code: u16, details: Value| {
            let status = json!({"kind": "Status", "status": "Failure", "reason": "", "message": "", "code": code, "details": details});
            (code, status.to_string())
        };
        let about = |code, kind: &str, name: &str| status(code, json!({"kind": kind, "name": name}));
        let of_it = |code| about(code, "machinedeployments", "pool");
        let found = |metadata: Value, spec: Value| {
            let found = json!({"metadata": metadata, "spec": spec});
            (200, found.to_string())
        };
        let own = json!({"name": "pool", "uid": "uid"});
        let other = json!({"name": "pool", "uid": "other"});
        for ((code, body), expected) in [
            (found(own.clone(), json!({})), Some(false)),
            // One that can't be decoded, and one that no API server returns.
            (found(own, json!(1)), Some(false)),
            (found(json!({"name": "pool"}), json!({})), Some(false)),
            (found(other, json!({})), Some(true)),
            (of_it(404), Some(true)),
            (about(404, "machinedeployments", "p"), None),
            (about(404, "namespaces", "pool"), None),
            // Without the API group, and of a proxy.
            (status(404, json!({})), None),
            ((404, "404 page not found".to_owned()), None),
            (of_it(403), None),
            (of_it(500), None),
            (of_it(504), None),
            ((200, "{}".to_owned()), None),
        ] {
            let answer = body.clone();
            let server = tower::service_fn(move |_: Request<Body>| {
                let body = Body::from(answer.clone().into_bytes());
                let answer = Response::builder().status(code).body(body);
                async move { answer }
            });
            let api = Api::namespaced(Client::new(server, "default"), &owner.namespace);
            let judged = is_gone(&api, &owner, &pool).await;
            assert_eq!(
                judged.as_ref().ok(),
                expected.as_ref(),
                "{code} {body}: {judged:?}"
            );
        }
    }
}
