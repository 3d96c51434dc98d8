//! The admission webhooks: what a condition would report is refused with the same text, and everything works without them.

use std::fs;
use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::condition::{self, ACCEPTED};
use osm_api::profile::OperatingSystemProfile;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{DEADLINE, NAMESPACE, World, machine_deployment, profile};

const PAIR: &str = "admission";
const SERVICES: [Service; 2] = [Service::OspController, Service::OscController];

/// A template that no data suits.
const BROKEN: &str = "{{nothing.here}}";

/// The services with their webhooks, and the folder that the kubelet fills from the Secret.
struct Webhooks {
    world: World,
    folder: TempDir,
    ports: [u16; 2],
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_condition_would_report_is_refused_and_all_works_without_the_webhooks() -> Result<()> {
    let mut webhooks = Webhooks::start().await?;
    let world = &webhooks.world;
    // Without the webhooks, conditions report what is wrong.
    world.apply(&profile("before", "v1.0.0", BROKEN)).await?;
    let of_profile = refusal(world, "before").await?;
    world.pool("broken", "nothing").await?;
    let of_pool = world.says("broken", "Rendered", false, "ProfileNotFound").await?;

    // A pool is published though no certificate is there.
    webhooks.wait_for_certificate().await?;
    world.accepted_profile("early", "v1.0.0", "one\n").await?;
    world.pool("early", "early").await?;
    world.stamp("early", 1).await?;
    world.machine("early", 1).await?;

    webhooks.install().await?;
    // The same text, but for the name of the object.
    let denied = until_denied(world, "after").await?;
    ensure!(
        denied.contains(&of_profile),
        "{denied}\nis not about\n{of_profile}"
    );
    let denied = until_pool_denied(world, &machine_deployment("new", "nothing")).await?;
    ensure!(denied.contains(&of_pool), "{denied}\nis not about\n{of_pool}");
    let mut unknown = machine_deployment("new", "nothing");
    unknown["spec"]["template"]["spec"]["providerSpec"]["value"]["operatingSystem"] = json!("beos");
    let denied = until_pool_denied(world, &unknown).await?;
    ensure!(denied.contains("operatingSystem is unknown"), "{denied}");

    // What exists already can be scaled, stamped, corrected and deleted.
    world
        .patch_pool("broken", json!({"spec": {"replicas": 3}}))
        .await?;
    world.stamp("broken", 1).await?;
    let labels = json!({"metadata": {"labels": {"team": "a"}}});
    let merge = Patch::Merge(&labels);
    world
        .profiles()
        .patch("before", &PatchParams::default(), &merge)
        .await?;
    world.delete(&world.profiles(), "before").await?;

    // A profile and its pool, created at once.
    world.apply(&profile("good", "v1.0.0", "one\n")).await?;
    create_pool(world, &machine_deployment("good", "good"), false).await?;
    world.stamp("good", 1).await?;
    world.machine("good", 1).await?;

    // The webhooks are dead, so everything is admitted, and conditions report as before.
    for service in SERVICES {
        webhooks.world.installed.kill9(service)?;
    }
    let world = &webhooks.world;
    world.apply(&profile("late", "v1.0.0", BROKEN)).await?;
    world.pool("late", "nothing").await?;
    webhooks.world.installed.arguments.clear();
    for service in SERVICES {
        webhooks.world.installed.start(service).await?;
    }
    let world = &webhooks.world;
    ensure!(refusal(world, "late").await? == of_profile);
    ensure!(world.says("late", "Rendered", false, "ProfileNotFound").await? == of_pool);
    Ok(())
}

impl Webhooks {
    /// Starts the services without a certificate. No API server asks them yet.
    async fn start() -> Result<Self> {
        let mut world = World::start_without_services(Options::default()).await?;
        let (folder, ports) = (TempDir::new()?, [free_port()?, free_port()?]);
        let path = folder.path().display().to_string();
        for (service, port) in SERVICES.into_iter().zip(ports) {
            let flags = vec![
                format!("--admission-listen=127.0.0.1:{port}"),
                format!("--admission-certificate={path}"),
            ];
            world.installed.arguments.insert(service.name(), flags);
        }
        world.installed.start_all().await?;
        Ok(Self { world, folder, ports })
    }

    /// Whether both services say that they wait for their certificate.
    async fn wait_for_certificate(&self) -> Result<()> {
        for service in SERVICES {
            wait_for("a service to wait for its certificate", DEADLINE, async || {
                let (code, body) = self.world.installed.get(service, "/readyz").await?;
                let waits =
                    body.contains("admission certificate: ") && body.contains("tls.crt: No such file");
                check(code == 503 && waits)
            })
            .await?;
        }
        Ok(())
    }

    /// Stores a certificate in a Secret, as its operator does, and mounts it, as the kubelet does. Creates the configurations, which trust it.
    async fn install(&self) -> Result<()> {
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": PAIR, "namespace": NAMESPACE},
            "stringData": {"tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem()}});
        self.world.apply(&secret).await?;
        let secret = self.world.api::<Secret>(NAMESPACE).get(PAIR).await?;
        for (file, content) in secret.data.context("data")? {
            fs::write(self.folder.path().join(file), &content.0)?;
        }
        let trusted = STANDARD.encode(pair.cert.pem());
        let [osp, osc] = self.ports;
        for (name, webhook, group, resource, port) in [
            (
                "osm.profiles",
                "profiles.operatingsystemmanager.k8c.io",
                "operatingsystemmanager.k8c.io",
                "operatingsystemprofiles",
                osp,
            ),
            (
                "osm.machine-deployments",
                "machinedeployments.operatingsystemmanager.k8c.io",
                "cluster.k8s.io",
                "machinedeployments",
                osc,
            ),
        ] {
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [{
                    "name": webhook, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
                    "timeoutSeconds": 2,
                    "clientConfig": {"url": format!("https://127.0.0.1:{port}/validate"), "caBundle": trusted},
                    "rules": [{"apiGroups": [group], "apiVersions": ["v1alpha1"], "resources": [resource],
                        "operations": ["CREATE", "UPDATE"]}],
                }],
            });
            self.world.apply(&configuration).await?;
        }
        self.world.installed.ready(DEADLINE).await
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn create_pool(world: &World, object: &Value, dry_run: bool) -> kube::Result<()> {
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let pools: Api<kube::core::DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        "kube-system",
        &kube::core::ApiResource::erase::<osm_api::MachineDeployment>(&()),
    );
    let params = PostParams {
        dry_run,
        ..PostParams::default()
    };
    pools.create(&params, &object).await.map(drop)
}

/// The message with which the API server refused something.
fn denial(result: kube::Result<()>) -> Result<String> {
    match result {
        Err(kube::Error::Api(status)) if status.message.contains("denied the request") => {
            Ok(status.message.clone())
        }
        other => anyhow::bail!("not denied: {other:?}"),
    }
}

/// Waits until the webhook refuses a MachineDeployment, which is not stored in any case.
async fn until_pool_denied(world: &World, object: &Value) -> Result<String> {
    wait_for("the webhook to refuse", DEADLINE, async || {
        Ok(denial(create_pool(world, object, true).await).ok())
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

/// Waits until the webhook refuses a broken profile, which is not stored in any case.
async fn until_denied(world: &World, name: &str) -> Result<String> {
    let object: OperatingSystemProfile = serde_json::from_value(profile(name, "v1.0.0", BROKEN))?;
    let without_storing = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait_for("the webhook to refuse", DEADLINE, async || {
        let created = world.profiles().create(&without_storing, &object).await;
        Ok(denial(created.map(drop)).ok())
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

/// Why osp-controller refuses a profile, by its condition.
async fn refusal(world: &World, name: &str) -> Result<String> {
    wait_for("the profile to be refused", DEADLINE, async || {
        let status = world.profiles().get(name).await?.status.unwrap_or_default();
        let accepted = condition::find(&status.conditions, ACCEPTED);
        let refused = accepted.filter(|accepted| accepted.status == "False");
        Ok(refused.map(|refused| refused.message.clone()))
    })
    .await
}
