//! The admission webhook: what the condition of a profile would report is refused with the same text, and
//! everything works without it.

use std::fs;
use std::net::TcpListener;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::condition::{self, ACCEPTED};
use osm_api::profile::OperatingSystemProfile;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::json;
use tempfile::TempDir;

use crate::world::{DEADLINE, NAMESPACE, World, profile};

const PAIR: &str = "admission";

/// A template that no data suits.
const BROKEN: &str = "{{nothing.here}}";

/// The services with the webhook, and the folder that the kubelet fills from the Secret.
struct Webhook {
    world: World,
    folder: TempDir,
    port: u16,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_condition_would_report_is_refused_and_all_works_without_the_webhook() -> Result<()> {
    let mut webhook = Webhook::start().await?;
    let world = &webhook.world;
    // Without the webhook, the condition reports what is wrong.
    world.apply(&profile("before", "v1.0.0", BROKEN)).await?;
    let of_profile = refusal(world, "before").await?;

    // A pool is published though no certificate is there.
    webhook.wait_for_certificate().await?;
    world.accepted_profile("early", "v1.0.0", "one\n").await?;
    world.pool("early", "early").await?;
    world.stamp("early", 1).await?;
    world.machine("early", 1).await?;

    webhook.install().await?;
    // The same text, but for the name of the object.
    let denied = until_denied(world, "after").await?;
    ensure!(
        denied.contains(&of_profile),
        "{denied}\nis not about\n{of_profile}"
    );

    // What exists already can be labeled and deleted.
    let labels = json!({"metadata": {"labels": {"team": "a"}}});
    let merge = Patch::Merge(&labels);
    world
        .profiles()
        .patch("before", &PatchParams::default(), &merge)
        .await?;
    world.delete(&world.profiles(), "before").await?;

    // A profile and its pool, created at once.
    world.apply(&profile("good", "v1.0.0", "one\n")).await?;
    world.pool("good", "good").await?;
    world.stamp("good", 1).await?;
    world.machine("good", 1).await?;

    // The webhook is dead, so everything is admitted, and the condition reports as before.
    let world = &mut webhook.world;
    world.installed.kill9(Service::OspController)?;
    world.apply(&profile("late", "v1.0.0", BROKEN)).await?;
    world.installed.arguments.clear();
    world.installed.start(Service::OspController).await?;
    ensure!(refusal(world, "late").await? == of_profile);
    Ok(())
}

impl Webhook {
    /// Starts the services without a certificate. No API server asks them yet.
    async fn start() -> Result<Self> {
        let mut world = World::start_without_services(Options::default()).await?;
        let (folder, port) = (TempDir::new()?, free_port()?);
        let flags = vec![
            format!("--admission-listen=127.0.0.1:{port}"),
            format!("--admission-certificate={}", folder.path().display()),
        ];
        let service = Service::OspController.name();
        world.installed.arguments.insert(service, flags);
        world.installed.start_all().await?;
        Ok(Self { world, folder, port })
    }

    /// Waits until osp-controller says that it waits for its certificate.
    async fn wait_for_certificate(&self) -> Result<()> {
        wait_for(
            "osp-controller to wait for its certificate",
            DEADLINE,
            async || {
                let installed = &self.world.installed;
                let (code, body) = installed.get(Service::OspController, "/readyz").await?;
                let waits =
                    body.contains("admission certificate: ") && body.contains("tls.crt: No such file");
                check(code == 503 && waits)
            },
        )
        .await
    }

    /// Stores a certificate in a Secret, as its operator does, and mounts it, as the kubelet does. Creates
    /// the configuration, which trusts it.
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
        let url = format!("https://127.0.0.1:{}/validate", self.port);
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "osm.profiles"},
            "webhooks": [{
                "name": "profiles.operatingsystemmanager.k8c.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Ignore", "timeoutSeconds": 2, "clientConfig": {"url": url, "caBundle": trusted},
                "rules": [{"apiGroups": ["operatingsystemmanager.k8c.io"], "apiVersions": ["v1alpha1"],
                    "resources": ["operatingsystemprofiles"], "operations": ["CREATE", "UPDATE"]}],
            }],
        });
        self.world.apply(&configuration).await?;
        self.world.installed.ready(DEADLINE).await
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
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
