//! A real Prometheus scrapes the services: the alerts of the chart fire for real conditions, and the panels of its dashboard have data.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::DeleteParams;
use osm_api::Joining;
use osm_api::names;
use osm_api::rbac::{Installation, Service};
use osm_testkit::helm::{Helm, chart};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::prometheus::Prometheus;
use crate::world::{self, DEADLINE, NAMESPACE, World, machine_deployment};

/// Alerts whose condition no test can cause within a minute; promtool tests them with series. A Machine must be 15 minutes old, replicas must
/// differ about a Lease, and a service must have a bug.
const NOT_CAUSED: [&str; 3] = ["OSMMachinesDoNotJoin", "OSMReplicasDisagree", "OSMPanic"];

/// Thresholds that are shorter here. Credentials that live for a day have not been renewed for two seconds, machines have waited for one.
const THRESHOLDS: [(&str, &str); 6] = [
    ("OSMCredentialsNotRenewed", "86398"),
    ("OSMCredentialsExpireSoon", "86398"),
    ("OSMUserDataNearLimit", "0.2"),
    ("OSMApiErrors", "0.01"),
    ("OSMReconcilesFail", "1"),
    ("OSMMachinesWaitToJoin", "1"),
];

/// Panels that may be empty, because nothing of that kind happens in this test.
const MAY_BE_EMPTY: [&str; 2] = ["Failed watches and pauses", "Restarts"];

/// The alerts of a release, which fire at once.
async fn rules(helm: &Helm) -> Result<(Vec<String>, String)> {
    let render = async |values: &[String]| -> Result<(Vec<String>, String)> {
        let mut all = vec!["--set=metrics.rules.kind=ConfigMap"];
        all.extend(values.iter().map(String::as_str));
        let objects = helm.template("osm", NAMESPACE, &all).await?;
        let file = objects
            .iter()
            .find_map(|object| object["data"]["rules.yaml"].as_str());
        let file = file.context("a file of rules")?.to_owned();
        let rules: Value = serde_saphyr::from_str(&file)?;
        let rules = rules["groups"][0]["rules"].as_array().context("rules")?;
        let names = rules
            .iter()
            .filter_map(|rule| rule["alert"].as_str().map(str::to_owned));
        Ok((names.collect(), file))
    };
    let (names, _) = render(&[]).await?;
    let at_once = names
        .iter()
        .map(|name| format!("--set=metrics.rules.alerts.{name}.for=0s"));
    let thresholds = THRESHOLDS
        .iter()
        .map(|(name, value)| format!("--set=metrics.rules.alerts.{name}.threshold={value}"));
    render(&at_once.chain(thresholds).collect::<Vec<_>>()).await
}

/// A pool on AWS, whose user data is larger than a fifth of the limit also if it is compressed.
async fn publish_a_large_pool(world: &World) -> Result<()> {
    let noise: Vec<String> = (0..400u64)
        .map(|number| osm_api::digest::sha256_hex(&number.to_le_bytes()))
        .collect();
    let noise: String = noise.concat().chars().take(9000).collect();
    world
        .accepted_profile("osp-large", "v1.0.0", &format!("{noise}\n"))
        .await?;
    let mut pool = machine_deployment("large", "osp-large");
    pool["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProvider"] = json!("aws");
    world.apply(&pool).await?;
    world.stamp("large", 1).await?;
    world
        .says("large", "Published", true, "Published")
        .await
        .map(drop)
}

/// The certificate of a webhook ends in three days.
fn let_a_certificate_end_soon(folder: &Path) -> Result<()> {
    let mut params = rcgen::CertificateParams::new(["localhost".to_owned()])?;
    let end = SystemTime::now() + Duration::from_secs(3 * 24 * 60 * 60);
    params.not_after = end.into();
    let key = rcgen::KeyPair::generate()?;
    std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
    std::fs::write(folder.join("tls.crt"), params.self_signed(&key)?.pem())?;
    Ok(())
}

/// Services whose webhook has a certificate that ends late.
fn give_a_webhook(world: &mut World, folder: &Path) -> Result<()> {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(folder.join("tls.key"), pair.signing_key.serialize_pem())?;
    std::fs::write(folder.join("tls.crt"), pair.cert.pem())?;
    let flags = [
        "--admission-listen=127.0.0.1:0".to_owned(),
        format!("--admission-certificate={}", folder.display()),
    ];
    let arguments = &mut world.installed.arguments;
    arguments.insert(Service::OspController.name(), flags.to_vec());
    Ok(())
}

/// A MachineDeployment that no decoder reads.
async fn create_an_undecodable_object(world: &World) -> Result<()> {
    let mut pool = machine_deployment("deep", "osp-tiny");
    pool["spec"]["template"]["spec"]["providerSpec"]["value"]["operatingSystemSpec"] = json!({"x": "deep"});
    let lists = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let body = pool.to_string().replace("\"deep\"}", &format!("{lists}}}"));
    let request = Request::post("/apis/cluster.k8s.io/v1alpha1/namespaces/kube-system/machinedeployments")
        .header("Content-Type", "application/json")
        .body(body.into_bytes())?;
    world.client.request_text(request).await?;
    Ok(())
}

/// Everything goes wrong that affects a pool or a profile.
async fn break_pools(world: &World) -> Result<()> {
    world
        .apply(&world::profile("osp-broken", "v1.0.0", "{{#if}}\n"))
        .await?;
    world.pool("lost", "osp-nowhere").await?;
    world.stamp("lost", 1).await?;
    let taken = names::bootstrap_secret_name("taken", "kube-system");
    world
        .apply(
            &json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"mine": "not yours"},
            "metadata": {"name": taken, "namespace": names::CLOUD_INIT_SETTINGS}}),
        )
        .await?;
    world.pool("taken", "osp-tiny").await?;
    world.stamp("taken", 1).await?;
    create_an_undecodable_object(world).await?;
    world.set_settings("more: 1").await
}

/// A machine joins, another program asks for its certificate again, and others ask for what they may not have or wait.
async fn join_and_misuse_the_token(world: &World) -> Result<()> {
    let token = world.machine("p", 1).await?.kubelet_token;
    let pool = world.with_set("p", token).await?;
    let other = world.with_set("large", String::new()).await?;
    world.machine_of(&pool, "p-1").await?;
    world.machine_of(&other, "large-1").await?;
    world.ask_as(&pool.token, "p-1", "p-1").await?;
    world.approved("p-1").await?;
    world.ask_as(&pool.token, "stolen", "large-1").await?;
    world.denied("stolen", "ForeignMachine").await?;
    world.ask_as(&pool.token, "unknown", "p-9").await?;
    world.ask_as(&pool.token, "again", "p-1").await?;
    world.pending("AlreadyApproved", 1).await?;
    world.let_an_approval_expire("p-1", "p-1").await
}

impl World {
    async fn approved(&self, request: &str) -> Result<()> {
        wait_for(&format!("{request} to be approved"), DEADLINE, async || {
            let decision = self.decision(request).await?;
            check(decision.is_some_and(|(decision, _)| decision == "Approved"))
        })
        .await
    }
}

/// kube-controller-manager approves whatever a ServiceAccount asks for.
async fn open_joining(world: &World) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "generous"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts"}]}))
        .await
}

async fn close_joining(world: &World, prometheus: &Prometheus) -> Result<()> {
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.delete("generous", &DeleteParams::default()).await?;
    wait_for("joining to be closed", DEADLINE, async || {
        let closed = prometheus.query("osm_joining_open == 0").await?;
        check(!closed.is_empty())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_fire_for_real_conditions_and_the_dashboard_has_data() -> Result<()> {
    let began = Timestamp::now().as_second();
    let installation = Installation {
        joining: Joining::Approved,
        ..world::installation()
    };
    let helm = Helm::without_cluster().await?;
    let (alerts, rules) = rules(&helm).await?;
    let mut world = World::start_as_without_services(Options::default(), installation).await?;
    let certificate = TempDir::new()?;
    give_a_webhook(&mut world, certificate.path())?;
    world.installed.start_all().await?;
    let targets = Service::ALL.map(|service| world.installed.address(service));
    let targets = targets.into_iter().collect::<Result<Vec<_>>>()?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.installed.ready(DEADLINE).await?;
    let prometheus = Prometheus::start(&targets, NAMESPACE, &rules).await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;

    // While all is well, only what depends on these thresholds fires.
    wait_for("a scrape of each service", DEADLINE, async || {
        let ready = prometheus.query("sum(osm_ready)").await?;
        let published = prometheus
            .query("osm_objects{condition=\"Published\",status=\"True\"} == 1")
            .await?;
        let certificate = prometheus
            .query("osm_admission_certificate_expiry_timestamp_seconds > 0")
            .await?;
        let all_ready = ready.iter().any(|ready| ready["value"][1] == "4");
        check(all_ready && !published.is_empty() && !certificate.is_empty())
    })
    .await?;
    wait_for("no alert", DEADLINE, async || {
        let mut firing = prometheus.firing().await?;
        firing.retain(|alert| !alert["labels"]["alertname"].to_string().contains("Credentials"));
        ensure!(firing.is_empty(), "{firing:#?}");
        Ok(Some(()))
    })
    .await?;

    publish_a_large_pool(&world).await?;
    join_and_misuse_the_token(&world).await?;
    break_pools(&world).await?;
    open_joining(&world).await?;
    let_a_certificate_end_soon(certificate.path())?;
    let of_outage = ["OSMApiErrors", "OSMReconcilesFail", "OSMJoiningOpenUnknown"];
    let is_caused_here = |name: &&String| {
        let later = NOT_CAUSED.iter().chain(&of_outage).chain(&["OSMServiceDown"]);
        !later.into_iter().any(|other| *other == name.as_str())
    };
    let mut seen = Vec::new();
    for name in alerts.iter().filter(is_caused_here) {
        seen.push(prometheus.fires(name).await?);
    }
    // After a change of rights, secret-syncer asks twice. The second time, nobody answers.
    close_joining(&world, &prometheus).await?;
    world.plane.stop_apiserver().await?;
    for name in of_outage {
        seen.push(prometheus.fires(name).await?);
    }
    panels_have_data(&prometheus, began).await?;
    world.installed.kill9(Service::SecretSyncer)?;
    seen.push(prometheus.fires("OSMServiceDown").await?);

    assert_eq!(
        seen.len() + NOT_CAUSED.len(),
        alerts.len(),
        "each alert is caused, or there is a reason"
    );
    for alert in seen {
        assert_eq!(alert["labels"]["namespace"], NAMESPACE, "{alert}");
        let summary = alert["annotations"]["summary"].as_str().context("a summary")?;
        ensure!(summary.contains(NAMESPACE) && !summary.contains('<'), "{alert}");
    }
    Ok(())
}

/// `OSM_DASHBOARD=file cargo test --test chain alerts_fire` writes the panels with their data, from which `docs/images/dashboard.py` draws a picture.
async fn panels_have_data(prometheus: &Prometheus, began: i64) -> Result<()> {
    let text = std::fs::read_to_string(chart().join("files/dashboard.json"))?;
    let mut dashboard: Value = serde_json::from_str(&text)?;
    let now = Timestamp::now().as_second();
    for panel in dashboard["panels"].as_array_mut().context("panels")? {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let mut found = 0;
        let targets = panel.get_mut("targets").and_then(Value::as_array_mut);
        for target in targets.into_iter().flatten() {
            let query = target["expr"].as_str().context("a query")?;
            // As Grafana replaces them: four scrapes, and the namespace that was chosen.
            let query = query
                .replace("$__rate_interval", "4s")
                .replace("$namespace", NAMESPACE);
            let result = match target["instant"].as_bool() {
                Some(true) => prometheus.query(&query).await,
                _ => prometheus.query_range(&query, began, now).await,
            };
            let result = result.with_context(|| format!("{title}: {query}"))?;
            found += result.len();
            target["result"] = result.into();
        }
        let is_row = panel["type"] == "row";
        ensure!(
            found > 0 || is_row || MAY_BE_EMPTY.contains(&title.as_str()),
            "{title} is empty"
        );
    }
    if let Some(file) = std::env::var_os("OSM_DASHBOARD") {
        std::fs::write(file, dashboard.to_string())?;
    }
    Ok(())
}
