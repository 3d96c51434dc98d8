//! `--admission`: how long the admission webhooks take for a review, called over HTTPS at a steady rate.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::{Api, Client, Config};
use osm_api::condition;
use osm_api::profile::OperatingSystemProfile;
use osm_api::rbac::Service;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options, check, control_plane, fixtures, wait_for};
use serde_json::{Value, json};

use crate::progress::Progress;

/// Reviews a second, and for how long.
const RATE: u32 = 100;
const SECONDS: u32 = 20;

/// The profile of the reviews. It renders for most clouds.
const PROFILE: &str = "osp-ubuntu";

/// The services start, install the default profiles, and accept them within this time.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A webhook under test, and its name in the table.
struct Webhook {
    client: Client,
    resource: &'static str,
}

/// Measures both webhooks, and returns a Markdown table.
///
/// # Errors
/// Services that don't start, and reviews that are not answered, or refused.
pub async fn table(progress: Progress, binaries: &Path) -> Result<String> {
    progress.step("starting etcd, kube-apiserver and the services");
    let plane = ControlPlane::start(Options::default()).await?;
    let installation = installation::as_by_the_chart();
    let namespace = installation.namespace.clone();
    let mut installed = Installed::install(&plane, installation.clone(), binaries).await?;
    installation::apply(&plane, &[installation::settings(&installation, "{}")]).await?;
    let folder = tempfile::tempdir()?;
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    std::fs::write(folder.path().join("tls.crt"), pair.cert.pem())?;
    std::fs::write(folder.path().join("tls.key"), pair.signing_key.serialize_pem())?;
    let mut webhooks = Vec::new();
    for (service, resource) in [
        (Service::OscController, "machinedeployments"),
        (Service::OspController, "operatingsystemprofiles"),
    ] {
        let address = format!(
            "127.0.0.1:{}",
            control_plane::free_port(std::net::Ipv4Addr::LOCALHOST)?
        );
        let flags = [
            format!("--admission-listen={address}"),
            format!("--admission-certificate={}", folder.path().display()),
        ];
        installed.arguments.insert(service.name(), flags.to_vec());
        let mut config = Config::new(format!("https://{address}").parse()?);
        config.root_cert = Some(vec![pair.cert.der().to_vec()]);
        let client = Client::try_from(config)?;
        webhooks.push(Webhook { client, resource });
    }
    let [pools, profiles] = webhooks.as_slice() else {
        anyhow::bail!("two webhooks")
    };
    installed.start_all().await?;
    let stored = accepted(&plane, &namespace)
        .await
        .with_context(|| installed.logs())?;

    let mut text =
        "| Reviews | answered | median | 99 % within | slowest | unchecked |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let pool = fixtures::example("pool", PROFILE, 1)?;
    let profile = OperatingSystemProfile {
        metadata: ObjectMeta {
            name: Some("profile".to_owned()),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        spec: stored.spec,
        status: None,
    };
    let profile = serde_json::to_value(&profile)?;
    // Only another content is validated anew.
    let version = |number| ("/spec/version", format!("v1.0.{number}"));
    let renamed = |number| ("/metadata/name", format!("a-{number}"));
    for (webhook, what, object, change) in [
        (
            pools,
            "MachineDeployments",
            &pool,
            &renamed as &dyn Fn(u32) -> (&'static str, String),
        ),
        (profiles, "profiles with the same content", &profile, &renamed),
        (profiles, "profiles that all differ", &profile, &version),
    ] {
        progress.step(&format!("{what}, {RATE} a second for {SECONDS} s"));
        let bodies = (0..RATE * SECONDS).map(|number| {
            let mut object = object.clone();
            let (pointer, value) = change(number);
            *object.pointer_mut(pointer).context(pointer)? = json!(value);
            Ok(review(&object).to_string().into_bytes())
        });
        let mut answers = webhook.at_a_steady_rate(bodies.collect::<Result<_>>()?).await?;
        answers.sort_unstable();
        let unchecked = answers.iter().filter(|(_, unchecked)| *unchecked).count();
        let within = |hundredths: usize| {
            let at = (answers.len() * hundredths / 100).min(answers.len() - 1);
            answers
                .get(at)
                .map_or(0.0, |(took, _)| took.as_secs_f64() * 1000.0)
        };
        text += &format!(
            "| {what} | {} | {:.1} ms | {:.1} ms | {:.1} ms | {unchecked} |\n",
            answers.len(),
            within(50),
            within(99),
            within(100),
        );
    }
    Ok(text)
}

/// The profile, once osp-controller has accepted it and osc-controller can have seen it.
async fn accepted(plane: &ControlPlane, namespace: &str) -> Result<OperatingSystemProfile> {
    let profiles = Api::<OperatingSystemProfile>::namespaced(plane.admin()?, namespace);
    wait_for("the profile to be accepted", READY_WITHIN, async || {
        let found = profiles.get_opt(PROFILE).await?;
        let is_accepted = found.as_ref().is_some_and(|profile| {
            let status = profile.status.as_ref();
            let conditions = status
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            condition::find(conditions, condition::ACCEPTED).is_some_and(|found| found.status == "True")
        });
        Ok(found.filter(|_| is_accepted))
    })
    .await
}

fn review(object: &Value) -> Value {
    let (namespace, name) = (
        object.pointer("/metadata/namespace"),
        object.pointer("/metadata/name"),
    );
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "operation": "CREATE", "namespace": namespace, "name": name, "object": object},
    })
}

impl Webhook {
    /// Sends each body at its time, however long earlier ones take. Returns for each how long the answer took, and whether the object was
    /// admitted unchecked.
    async fn at_a_steady_rate(&self, bodies: Vec<Vec<u8>>) -> Result<Vec<(Duration, bool)>> {
        // The first one opens a connection, and the certificate may have been read just now.
        wait_for("the webhook to answer", READY_WITHIN, async || {
            let body = bodies.first().context("a body")?;
            check(self.send(body.clone()).await.is_ok())
        })
        .await?;
        let start = Instant::now();
        let sent = (0_u32..).zip(bodies).map(async |(number, body)| {
            let due = Duration::from_secs(number.into()) / RATE;
            tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
            let began = Instant::now();
            let unchecked = self.send(body).await?;
            anyhow::Ok((began.elapsed(), unchecked))
        });
        try_join_all(sent).await
    }

    /// Whether the object was admitted unchecked.
    async fn send(&self, body: Vec<u8>) -> Result<bool> {
        let request = Request::post("/validate")
            .header("Content-Type", "application/json")
            .body(Body::from(body))?;
        let answer = self.client.send(request).await?;
        let (status, body) = (answer.status(), answer.into_body().collect_bytes().await?);
        ensure!(
            status.is_success(),
            "{status}: {}",
            String::from_utf8_lossy(&body)
        );
        let answer: Value = serde_json::from_slice(&body)?;
        let response = answer.get("response").context("a response")?;
        let is_allowed = response.get("allowed").and_then(Value::as_bool);
        ensure!(
            is_allowed == Some(true),
            "{} are refused: {response}",
            self.resource
        );
        let warnings = response.get("warnings").map(Value::to_string);
        Ok(warnings.is_some_and(|warnings| warnings.contains("unchecked")))
    }
}
