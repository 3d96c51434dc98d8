//! The admission webhooks: what a condition would report is refused with the same text, and everything works without them.

use std::fs;
use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::condition::{self, ACCEPTED};
use osm_api::profile::OperatingSystemProfile;
use osm_api::rbac::{AdmissionObjects, Installation, Service};
use osm_testkit::{Options, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{self, DEADLINE, NAMESPACE, World, machine_deployment, profile};

const PAIR: &str = "admission";
const OF_PROFILES: &str = "osm.profiles";
const OF_POOLS: &str = "osm.machine-deployments";

/// A template that no data suits.
const BROKEN: &str = "{{nothing.here}}";

/// The services with their webhooks, and the folder that the kubelet would fill from the Secret.
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

    webhooks.install().await?;
    let world = &webhooks.world;
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
    for service in [Service::OspController, Service::OscController] {
        webhooks.world.installed.kill9(service)?;
    }
    let world = &webhooks.world;
    world.apply(&profile("late", "v1.0.0", BROKEN)).await?;
    world.pool("late", "nothing").await?;
    webhooks.world.installed.arguments.clear();
    for service in [Service::OspController, Service::OscController] {
        webhooks.world.installed.start(service).await?;
    }
    let world = &webhooks.world;
    ensure!(refusal(world, "late").await? == of_profile);
    ensure!(world.says("late", "Rendered", false, "ProfileNotFound").await? == of_pool);
    Ok(())
}

impl Webhooks {
    /// Starts the services. No API server asks them yet.
    async fn start() -> Result<Self> {
        let installation = Installation {
            admission: Some(AdmissionObjects {
                secret: PAIR.to_owned(),
                profiles: Some(OF_PROFILES.to_owned()),
                machine_deployments: Some(OF_POOLS.to_owned()),
            }),
            ..world::installation()
        };
        let mut world = World::start_as_without_services(Options::default(), installation).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": PAIR, "namespace": NAMESPACE}});
        world.apply(&secret).await?;
        let (folder, ports) = (TempDir::new()?, [free_port()?, free_port()?]);
        let path = folder.path().display().to_string();
        let serve = |port: u16| {
            vec![
                format!("--admission-listen=127.0.0.1:{port}"),
                format!("--admission-certificate={path}"),
            ]
        };
        let [osp, osc] = ports.map(serve);
        let keep = [
            format!("--admission-secret={PAIR}"),
            "--admission-hosts=127.0.0.1".to_owned(),
            format!("--admission-profiles-webhook={OF_PROFILES}"),
            format!("--admission-machine-deployments-webhook={OF_POOLS}"),
        ];
        let arguments = &mut world.installed.arguments;
        arguments.insert(Service::OspController.name(), osp);
        arguments.insert(Service::OscController.name(), osc);
        arguments.insert(Service::SecretSyncer.name(), keep.to_vec());
        world.installed.start_all().await?;
        Ok(Self { world, folder, ports })
    }

    /// Creates the configurations, and waits until the API server trusts the pair of secret-syncer.
    async fn install(&mut self) -> Result<()> {
        let [osp, osc] = self.ports;
        for (name, webhook, group, resource, port) in [
            (
                OF_PROFILES,
                "profiles.operatingsystemmanager.k8c.io",
                "operatingsystemmanager.k8c.io",
                "operatingsystemprofiles",
                osp,
            ),
            (
                OF_POOLS,
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
                    "timeoutSeconds": 2, "clientConfig": {"url": format!("https://127.0.0.1:{port}/validate")},
                    "rules": [{"apiGroups": [group], "apiVersions": ["v1alpha1"], "resources": [resource],
                        "operations": ["CREATE", "UPDATE"]}],
                }],
            });
            self.world.apply(&configuration).await?;
        }
        // It would look again after a minute.
        self.world.installed.kill9(Service::SecretSyncer)?;
        self.world.installed.start(Service::SecretSyncer).await?;
        wait_for("the API server to trust the pair", DEADLINE, async || {
            let pair = self.pair().await?;
            for name in [OF_PROFILES, OF_POOLS] {
                let all = Api::<ValidatingWebhookConfiguration>::all(self.world.client.clone());
                let found = all.get(name).await?;
                let webhook = found.webhooks.iter().flatten().next().context("a webhook")?;
                let trusted = webhook.client_config.ca_bundle.as_ref();
                if trusted.is_none() || trusted != pair.data.as_ref().and_then(|data| data.get("ca.crt")) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await?;
        self.copy_pair().await
    }

    async fn pair(&self) -> Result<Secret> {
        Ok(self.world.api::<Secret>(NAMESPACE).get(PAIR).await?)
    }

    /// As the kubelet does.
    async fn copy_pair(&self) -> Result<()> {
        let data = self.pair().await?.data.context("data")?;
        for file in ["tls.crt", "tls.key"] {
            let content = data.get(file).context("a file")?;
            fs::write(self.folder.path().join(file), &content.0)?;
        }
        Ok(())
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
