//! The MachineDeployments of the benchmark, and machine-controller's part.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::{Client, ResourceExt};
use osm_testkit::machine_controller;
use serde_json::{Value, json};

/// Number of concurrent requests.
const CONCURRENCY: usize = 32;

/// The time from which each bootstrap Secret, by name, is waited for.
pub type StartTimes = BTreeMap<String, Instant>;

/// The MachineDeployments.
pub struct Pools {
    client: Client,
    api: Api<DynamicObject>,
    objects: Vec<DynamicObject>,
}

impl Pools {
    /// Copies of the example for AWS with different names. The objects are not created yet.
    ///
    /// # Errors
    /// An example that can't be read.
    pub fn new(client: Client, count: usize) -> Result<Self> {
        let path = crate::root().join("examples/machinedeployment-ubuntu-aws.yaml");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let example: Value = serde_saphyr::from_str(&text)?;
        let mut objects = Vec::new();
        for i in 0..count {
            let mut object: DynamicObject = serde_json::from_value(example.clone())?;
            object.metadata.name = Some(format!("bench-{i:04}"));
            let labels = json!({"pool": object.name_any()});
            for path in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
                *object.data.pointer_mut(path).context(path)? = labels.clone();
            }
            objects.push(object);
        }
        let namespace = objects
            .first()
            .and_then(DynamicObject::namespace)
            .context("a namespace")?;
        let api = Api::namespaced_with(
            client.clone(),
            &namespace,
            &machine_controller::machine_deployment(),
        );
        Ok(Self { client, api, objects })
    }

    /// Creates all, and sets revision 1 of each right afterwards. Times start when the server has created an object.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn create(&mut self) -> Result<StartTimes> {
        let api = &self.api;
        let create = |object: DynamicObject| async move {
            let created = api.create(&PostParams::default(), &object).await?;
            let started = Instant::now();
            anyhow::Ok((created, started))
        };
        let client = &self.client;
        let work = stream::iter(self.objects.clone()).map(|object| async move {
            let (created, started) = create(object).await?;
            let stamped = machine_controller::stamp_revision(client, &created, 1).await?;
            anyhow::Ok((secret_name(&stamped), started))
        });
        work.buffer_unordered(CONCURRENCY).try_collect().await
    }

    /// Sets another revision of each. Times start when the server has stored it.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn rotate(&mut self, revision: u64) -> Result<StartTimes> {
        let client = &self.client;
        let work = stream::iter(&self.objects).map(|object| async move {
            let stamped = machine_controller::stamp_revision(client, object, revision).await?;
            anyhow::Ok((secret_name(&stamped), Instant::now()))
        });
        work.buffer_unordered(CONCURRENCY).try_collect().await
    }

    /// Deletes all.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn delete(&mut self) -> Result<()> {
        let api = &self.api;
        let work = stream::iter(&self.objects).map(|object| async move {
            api.delete(&object.name_any(), &DeleteParams::default()).await?;
            anyhow::Ok(())
        });
        work.buffer_unordered(CONCURRENCY).try_collect().await
    }
}

fn secret_name(pool: &DynamicObject) -> String {
    machine_controller::bootstrap_secret_name(&pool.namespace().unwrap_or_default(), &pool.name_any())
}
