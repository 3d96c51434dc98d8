//! `osmctl migrate` on clusters as the three installers leave them. The webhook of the Go implementation is a stand-in that fails closed: it
//! stops answering when its Deployment is scaled to 0. Meanwhile a writer creates, patches and deletes MachineDeployments and profiles.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile, condition};
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options, check, fixtures, wait_for};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::fake_server::{Call, FakeServer};
use crate::osmctl::{Run, go_config};
use crate::takeover::go_profile;
use crate::world::{DEADLINE, GETTER_TOKEN};

const NAMESPACE: &str = "kube-system";
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
const WEBHOOK: &str = "operating-system-manager-webhook";

/// The value of the token without end.
const TOKEN: &str = "t0ken-without-end";

/// What kube-controller-manager writes on a token: which account of this name it is for.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Between two looks of those who play a part of the cluster, and between two rounds of the writer.
const INTERVAL: Duration = Duration::from_millis(50);

/// Tasks of a test, which end with it.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A cluster that an installer has set up, with those who play its parts.
struct Site {
    plane: ControlPlane,
    client: Client,
    folder: tempfile::TempDir,
    /// What the installer has created.
    installed: Vec<Value>,
    answers: Arc<AtomicBool>,
    /// Whether the webhook fails although its Deployment runs.
    broken: Arc<AtomicBool>,
    _deployments: Task,
    _tokens: Task,
}

impl Site {
    async fn start(installer: &str) -> Result<Self> {
        let plane = ControlPlane::start(Options::default()).await?;
        let client = plane.admin()?;
        plane.install_machine_deployment_crd().await?;
        let fixtures = Path::new(FIXTURES);
        plane.install_crds(&fixtures.join("cert-manager")).await?;
        let kinds = tempfile::tempdir()?;
        std::fs::copy(fixtures.join("go-shaped.yaml"), kinds.path().join("kinds.yaml"))?;
        plane.install_crds(kinds.path()).await?;
        let (answers, broken) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let webhook = webhook(answers.clone(), broken.clone()).await?;
        let text = std::fs::read_to_string(fixtures.join(format!("takeover/{installer}.yaml")))?;
        let mut installed: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        installed.iter_mut().for_each(|object| lead_to(object, &webhook));
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS}});
        installed.insert(0, namespace);
        installed.extend(getter());
        installation::apply(&plane, &installed).await?;
        installed.remove(0);
        let site = Self {
            client: client.clone(),
            folder: tempfile::tempdir()?,
            installed,
            _deployments: Task(tokio::spawn(deployments(client.clone(), answers.clone()))),
            _tokens: Task(tokio::spawn(tokens(client))),
            answers,
            broken,
            plane,
        };
        site.webhook_answers(true).await?;
        wait_for("the token to name its account", DEADLINE, async || {
            let token = site.secrets(CLOUD_INIT_SETTINGS).get(GETTER_TOKEN).await?;
            check(token.annotations().contains_key(ACCOUNT_UID))
        })
        .await?;
        wait_for("writes to be accepted", DEADLINE, async || {
            let profile = fixtures::profile(NAMESPACE, "first", "v1.0.0", "text");
            check(installation::apply(&site.plane, &[profile]).await.is_ok())
        })
        .await?;
        site.pool().await?;
        Ok(site)
    }

    async fn webhook_answers(&self, wanted: bool) -> Result<()> {
        wait_for("the webhook to follow its Deployment", DEADLINE, async || {
            check(self.answers.load(Ordering::SeqCst) == wanted)
        })
        .await
    }

    /// A pool as the Go implementation leaves it.
    async fn pool(&self) -> Result<()> {
        let mut md = fixtures::machine_deployment("workers", "existing");
        md["metadata"]["finalizers"] = json!([names::GO_FINALIZER]);
        md["metadata"]["annotations"][names::REVISION] = json!("4");
        let here = |mut object: Value| {
            object["metadata"]["namespace"] = json!(NAMESPACE);
            object
        };
        let user_data = [
            "workers-kube-system-provisioning-config",
            "kube-system-workers-kubelet-bootstrap-config",
        ];
        let mut objects = vec![
            md,
            here(go_profile("existing", "{{ .KubeVersion }}")),
            here(go_config("workers")),
        ];
        objects.extend(user_data.map(|name| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS}})
        }));
        installation::apply(&self.plane, &objects).await
    }

    /// The command line of an osmctl command, with the kubeconfig of this cluster.
    async fn command(&self, words: &[&str], kubeconfig: &Path) -> Result<tokio::process::Command> {
        let program = tokio::task::spawn_blocking(installation::osmctl).await??;
        let mut command = tokio::process::Command::new(program);
        command
            .arg("migrate")
            .args(words)
            .args(if words.first() == Some(&"check") {
                &[][..]
            } else {
                &["--settle", "200ms"]
            })
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env_remove("KUBECONFIG")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    async fn migrate(&self, words: &[&str]) -> Result<Run> {
        let mut command = self.command(words, &self.plane.admin_kubeconfig_path()).await?;
        Ok(Run::of(command.output().await?))
    }

    /// What the installer has created, as it is now, without what the API server adds.
    async fn state(&self) -> Result<Vec<Option<Value>>> {
        let mut state = Vec::new();
        for object in &self.installed {
            state.push(self.current(object).await?.map(comparable));
        }
        Ok(state)
    }

    async fn current(&self, object: &Value) -> Result<Option<DynamicObject>> {
        let api = self.api(object).await?;
        let name = object["metadata"]["name"].as_str().context("a name")?;
        Ok(api.get_opt(name).await?)
    }

    async fn api(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let kind = GroupVersionKind::gvk(group, version, &kind);
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &kind).await?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        Ok(match capabilities.scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
        })
    }

    async fn delete(&self, object: &Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        self.api(object)
            .await?
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Installs the services with the values that osmctl has written, as the chart would, and waits until they have published the pool.
    async fn install(&self) -> Result<Installed> {
        let values = std::fs::read_to_string(self.folder.path().join("osm-values.yaml"))?;
        let values: Value = serde_saphyr::from_str(&values)?;
        ensure!(values["removeGoFinalizers"] == true, "{values}");
        let installation = installation::as_by_the_chart();
        let settings = installation::settings(&installation, &values["settings"].to_string());
        let mut installed = Installed::install(&self.plane, installation, &installation::binaries()?).await?;
        installation::apply(&self.plane, &[settings]).await?;
        installed.start_all().await?;
        let configs = Api::<OperatingSystemConfig>::namespaced(self.client.clone(), NAMESPACE);
        wait_for("the pool to be published", DEADLINE, async || {
            let config = configs.get(&names::config_name("workers", NAMESPACE)).await?;
            let status = config.status.unwrap_or_default();
            let published = condition::find(&status.conditions, names::PUBLISHED);
            check(published.is_some_and(|condition| condition.status == "True"))
        })
        .await
        .map_err(|error| error.context(installed.logs()))?;
        Ok(installed)
    }
}

/// What a test compares of an object.
fn comparable(object: DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "managedFields",
    ] {
        value["metadata"].as_object_mut().unwrap().remove(field);
    }
    value.as_object_mut().unwrap().remove("status");
    value
}

/// Has the API server find the stand-in behind the Service.
fn lead_to(object: &mut Value, webhook: &FakeServer) {
    match object["kind"].as_str() {
        Some("Service") => {
            object["spec"] = json!({"type": "ExternalName", "externalName": "localhost"});
        }
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            for hook in object["webhooks"].as_array_mut().unwrap() {
                hook["clientConfig"]["caBundle"] = json!(webhook.ca_bundle());
                hook["clientConfig"]["service"]["port"] = json!(webhook.port());
                hook["timeoutSeconds"] = json!(10);
            }
        }
        _ => {}
    }
}

/// Allows everything while it answers.
async fn webhook(answers: Arc<AtomicBool>, broken: Arc<AtomicBool>) -> Result<FakeServer> {
    let name = format!("{WEBHOOK}.{NAMESPACE}.svc");
    FakeServer::start_as(&name, move |mut call: Call| {
        let (answers, broken) = (answers.clone(), broken.clone());
        async move {
            ensure!(
                answers.load(Ordering::SeqCst) && !broken.load(Ordering::SeqCst),
                "no pod"
            );
            let review: Value = serde_json::from_slice(&call.sent)?;
            let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true}});
            call.answer(http::Response::builder(), answer.to_string().as_bytes())
                .await
        }
    })
    .await
}

/// What every installer creates besides: the account whose token has no end.
fn getter() -> [Value; 4] {
    let metadata = json!({"name": "cloud-init-getter", "namespace": CLOUD_INIT_SETTINGS});
    let rbac = "rbac.authorization.k8s.io";
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": GETTER_TOKEN, "namespace": CLOUD_INIT_SETTINGS,
                "annotations": {"kubernetes.io/service-account.name": "cloud-init-getter"}},
            "stringData": {"token": TOKEN}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "cloud-init-getter"},
            "subjects": [{"kind": "ServiceAccount", "name": "cloud-init-getter", "namespace": CLOUD_INIT_SETTINGS}]}),
    ]
}

/// What the Deployments' controller and nodes do: pods come and go at once, and with them the webhook.
async fn deployments(client: Client, answers: Arc<AtomicBool>) {
    let api = Api::<Deployment>::namespaced(client, NAMESPACE);
    loop {
        if let Ok(all) = api.list(&ListParams::default()).await {
            let replicas = |one: &Deployment| one.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
            let webhook = all.items.iter().find(|one| one.name_any() == WEBHOOK);
            answers.store(webhook.is_some_and(|one| replicas(one) > 0), Ordering::SeqCst);
            for one in &all.items {
                let replicas = replicas(one);
                let status = json!({"status": {"observedGeneration": one.metadata.generation, "replicas": replicas,
                    "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
                let seen = one.status.as_ref().and_then(|status| status.observed_generation);
                if seen != one.metadata.generation {
                    // It may be gone already.
                    let params = PatchParams::default();
                    let _ = api
                        .patch_status(&one.name_any(), &params, &Patch::Merge(&status))
                        .await;
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What kube-controller-manager does: it fills the Secrets of tokens, and deletes those of accounts that do not exist.
async fn tokens(client: Client) {
    let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let accounts = Api::<ServiceAccount>::namespaced(client, CLOUD_INIT_SETTINGS);
    let of_type = ListParams::default().fields("type=kubernetes.io/service-account-token");
    loop {
        // Whatever fails is tried again.
        let _ = fill(&secrets, &accounts, &of_type).await;
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn fill(secrets: &Api<Secret>, accounts: &Api<ServiceAccount>, of_type: &ListParams) -> Result<()> {
    for secret in secrets.list(of_type).await?.items {
        let name = secret.name_any();
        let annotation = |key: &str| secret.annotations().get(key).cloned();
        let account = annotation("kubernetes.io/service-account.name").context("an account")?;
        let account = accounts
            .get_opt(&account)
            .await?
            .and_then(|account| account.uid());
        let named = annotation(ACCOUNT_UID);
        match account {
            Some(uid) if named.as_ref().is_none_or(|named| *named == uid) => {
                let has_token = secret.data.is_some_and(|data| data.contains_key("token"));
                if named.is_none() || !has_token {
                    let mut change = json!({"metadata": {"annotations": {ACCOUNT_UID: uid}}});
                    if !has_token {
                        change["stringData"] = json!({"token": format!("token-for-{uid}")});
                    }
                    secrets
                        .patch(&name, &PatchParams::default(), &Patch::Merge(&change))
                        .await?;
                }
            }
            _ => {
                secrets.delete(&name, &DeleteParams::default()).await?;
            }
        }
    }
    Ok(())
}

/// What a user does all the time.
struct Writer {
    refused: Arc<Mutex<Vec<String>>>,
    rounds: Arc<AtomicUsize>,
    _task: Task,
}

impl Writer {
    fn start(client: Client) -> Self {
        let (refused, rounds) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::<AtomicUsize>::default(),
        );
        let (writes, counter) = (refused.clone(), rounds.clone());
        let task = tokio::spawn(async move {
            let pools = Api::<MachineDeployment>::namespaced(client.clone(), NAMESPACE);
            let profiles = Api::<OperatingSystemProfile>::namespaced(client, NAMESPACE);
            for round in 0.. {
                let name = format!("written-{round}");
                let pool = fixtures::machine_deployment(&name, "existing");
                let profile = fixtures::profile(NAMESPACE, &name, "v1.0.0", "text");
                for result in [
                    write(&pools, &name, &pool).await,
                    write(&profiles, &name, &profile).await,
                ] {
                    if let Err(error) = result {
                        writes.lock().unwrap().push(format!("{error:#}"));
                    }
                }
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self {
            refused,
            rounds,
            _task: Task(task),
        }
    }

    /// Fails if a write was refused, or if nothing was written since `rounds`.
    async fn was_never_refused(&self) -> Result<()> {
        let before = self.rounds.load(Ordering::SeqCst);
        wait_for("the writer to write on", DEADLINE, async || {
            check(self.rounds.load(Ordering::SeqCst) > before + 1)
        })
        .await?;
        let refused = self.refused.lock().unwrap();
        ensure!(refused.is_empty(), "{refused:#?}");
        Ok(())
    }
}

/// Creates, patches and deletes an object.
async fn write<K>(api: &Api<K>, name: &str, object: &Value) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let params = PatchParams::apply("writer");
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .context("create")?;
    let label = json!({"metadata": {"labels": {"written": "again"}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(&label))
        .await
        .context("patch")?;
    api.delete(name, &DeleteParams::default())
        .await
        .context("delete")?;
    Ok(())
}

/// The words of a command of the page on migration, after `osmctl migrate`.
fn of_page(command: &str) -> Result<Vec<&'static str>> {
    let page = include_str!("../../../docs/migration.md");
    let lines = page
        .lines()
        .filter_map(|line| line.trim().strip_prefix("osmctl migrate "));
    let line = lines.into_iter().find(|line| line.starts_with(command));
    Ok(line
        .with_context(|| format!("the page does not show {command}"))?
        .split_whitespace()
        .collect())
}

/// Everything from the check to the end, and back.
async fn a_takeover_without_an_outage(installer: &str) -> Result<()> {
    let site = Site::start(installer).await?;
    // What would happen if the Deployment went first.
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let deployments = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    for (replicas, answers) in [(0, false), (1, true)] {
        let patch = Patch::Merge(scale(replicas));
        deployments
            .patch(WEBHOOK, &PatchParams::default(), &patch)
            .await?;
        site.webhook_answers(answers).await?;
        let profile = fixtures::profile(NAMESPACE, "probe", "v1.0.0", "text");
        let result = installation::apply(&site.plane, &[profile]).await;
        match result {
            Err(error) if !answers => {
                ensure!(
                    format!("{error:#}").contains("failed calling webhook"),
                    "{error:#}"
                );
            }
            result => ensure!(answers && result.is_ok(), "{result:?}"),
        }
    }

    let writer = Writer::start(site.client.clone());
    let before = site.state().await?;
    let checked = site.migrate(&of_page("check")?).await?;
    let checked = checked.expect(
        0,
        &[
            "The cluster can be migrated",
            &site.plane.url(),
            "context default",
            "kube-system/workers: differs",
            "scale Deployment kube-system/operating-system-manager to 0",
        ],
    )?;
    for object in &site.installed {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        ensure!(
            checked.out.contains(name),
            "{installer}: {name} is not found:\n{}",
            checked.out
        );
    }
    let document = site
        .migrate(&["check", "-o", "json"])
        .await?
        .expect(0, &[])?
        .json()?;
    ensure!(document["canBeMigrated"] == true, "{document}");
    let dns = if installer == "kubeone" {
        "169.254.20.10"
    } else {
        "10.10.10.10"
    };
    ensure!(
        document["values"]["settings"]["cluster"]["dnsIPs"] == json!([dns]),
        "{document}"
    );
    let plan = site.migrate(&["apply", "--dry-run"]).await?;
    plan.expect(0, &["Nothing was changed"])?;
    site.migrate(&["apply"])
        .await?
        .expect(1, &["confirm with --yes"])?;
    site.migrate(&["finish", "--yes"])
        .await?
        .expect(1, &["has no journal"])?;
    site.migrate(&["rollback", "--yes"])
        .await?
        .expect(0, &["nothing to restore"])?;
    ensure!(site.state().await? == before, "checking changes nothing");

    // There and back, before anything else is installed.
    let (apply, finish, rollback) = (
        [of_page("apply")?, vec!["--yes"]].concat(),
        [of_page("finish")?, vec!["--yes"]].concat(),
        [of_page("rollback")?, vec!["--yes"]].concat(),
    );
    site.migrate(&apply).await?.expect(0, &["helm install osm "])?;
    site.webhook_answers(false).await?;
    writer.was_never_refused().await?;
    site.migrate(&rollback).await?.expect(0, &["runs again"])?;
    ensure!(site.state().await? == before, "{installer}: it is not as before");
    site.webhook_answers(true).await?;
    writer.was_never_refused().await?;

    // There. Twice is the same as once.
    for _ in 0..2 {
        site.migrate(&apply).await?.expect(0, &["helm install osm "])?;
    }
    site.migrate(&["check"])
        .await?
        .expect(0, &["Next step: install the chart"])?;
    site.migrate(&finish)
        .await?
        .expect(1, &["OSM is not installed"])?;
    let machine = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "booting", "namespace": NAMESPACE}, "spec": {}});
    installation::apply(&site.plane, std::slice::from_ref(&machine)).await?;
    let mut installed = site.install().await?;
    site.migrate(&finish).await?.expect(
        1,
        &["have not joined", "Machine kube-system/booting", "--keep-tokens"],
    )?;
    let keep = [finish.clone(), vec!["--keep-tokens"]].concat();
    site.migrate(&keep)
        .await?
        .expect(0, &["The non-expiring token is kept"])?;
    ensure!(site.secrets(CLOUD_INIT_SETTINGS).get(GETTER_TOKEN).await.is_ok());
    site.delete(&machine).await?;
    for _ in 0..2 {
        site.migrate(&finish)
            .await?
            .expect(0, &["The migration is finished"])?;
    }
    let left = site.state().await?;
    ensure!(left.iter().all(Option::is_none), "{installer}: {left:#?}");
    let generated = site
        .secrets(CLOUD_INIT_SETTINGS)
        .list(&ListParams::default())
        .await?;
    let generated: Vec<String> = generated.iter().map(ResourceExt::name_any).collect();
    ensure!(
        !generated
            .iter()
            .any(|name| name.ends_with("-provisioning-config")),
        "{generated:?}"
    );
    site.migrate(&["check"]).await?.expect(1, &["already migrated"])?;
    site.migrate(&apply).await?.expect(1, &["already migrated"])?;
    writer.was_never_refused().await?;

    // And back from the end. The token is not restored by its value.
    let journal = site.secrets(NAMESPACE).get("osm-migration").await?;
    let journal = journal
        .data
        .and_then(|mut data| data.remove("journal.json"))
        .context("a journal")?;
    let journal = String::from_utf8(journal.0)?;
    ensure!(!journal.contains(TOKEN) && !journal.contains(&STANDARD.encode(TOKEN)));
    for service in Service::ALL {
        installed.terminate(service, DEADLINE).await?;
    }
    site.migrate(&rollback).await?.expect(0, &["runs again"])?;
    let after = site.state().await?;
    for (before, mut after) in before.iter().zip(after) {
        let mut before = before.clone();
        if let (Some(before), Some(after)) = (&mut before, &mut after)
            && before["type"] == "kubernetes.io/service-account-token"
        {
            ensure!(
                after["data"]["token"].is_string() && after["data"] != before["data"],
                "{after}"
            );
            for object in [before, after] {
                object.as_object_mut().context("fields")?.remove("data");
                let annotations = object["metadata"]["annotations"].as_object_mut();
                annotations
                    .context("annotations")?
                    .remove(ACCOUNT_UID)
                    .context("a uid")?;
            }
        }
        ensure!(before == after, "{installer}: {before:?}\n{after:?}");
    }
    writer.was_never_refused().await?;
    // Without a journal, and with configs of both, a person has to decide.
    site.migrate(&["check"]).await?.expect(1, &["OSM already runs"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_manifests_is_migrated_without_an_outage() -> Result<()> {
    Box::pin(a_takeover_without_an_outage("deploy")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_kubeone_is_migrated_without_an_outage() -> Result<()> {
    Box::pin(a_takeover_without_an_outage("kubeone")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_machine_controllers_example_is_migrated_without_an_outage() -> Result<()> {
    Box::pin(a_takeover_without_an_outage("machine-controller")).await
}

/// An API server that lets some writes through. Whoever sends the last of them never gets an answer.
struct Gate {
    left: Arc<AtomicUsize>,
    cut: Arc<Notify>,
    server: FakeServer,
}

impl Gate {
    async fn before(client: Client) -> Result<Self> {
        let (left, cut) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let (writes, killed) = (left.clone(), cut.clone());
        let server = FakeServer::start(move |call| {
            let (client, writes, killed) = (client.clone(), writes.clone(), killed.clone());
            pass_on(client, call, writes, killed)
        })
        .await?;
        Ok(Self { left, cut, server })
    }
}

async fn pass_on(client: Client, mut call: Call, left: Arc<AtomicUsize>, cut: Arc<Notify>) -> Result<()> {
    let is_write = call.method != "GET"
        && !call.target.contains("selfsubjectaccessreviews")
        && !call.target.contains("dryRun");
    let mut request = http::Request::builder()
        .method(call.method.as_str())
        .uri(&call.target);
    for name in [http::header::ACCEPT, http::header::CONTENT_TYPE] {
        if let Some(value) = call.headers.get(&name) {
            request = request.header(name, value);
        }
    }
    let is_last = is_write && left.fetch_sub(1, Ordering::SeqCst) == 1;
    let answer = client.send(request.body(call.sent.to_vec().into())?).await?;
    if is_last {
        cut.notify_one();
        return std::future::pending().await;
    }
    let (head, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    call.answer(http::Response::builder().status(head.status), &body)
        .await
}

/// Runs a command, and kills it after so many writes, unless it ends before that.
async fn killed(site: &Site, gate: &Gate, words: &[&str], writes: usize) -> Result<Option<Run>> {
    let kubeconfig = site.folder.path().join("gate");
    std::fs::write(&kubeconfig, gate.server.kubeconfig())?;
    gate.left.store(writes, Ordering::SeqCst);
    let mut command = site.command(words, &kubeconfig).await?;
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    tokio::select! {
        output = child.wait_with_output() => Ok(Some(Run::of(output?))),
        // Dropping it kills it.
        () = gate.cut.notified() => Ok(None),
    }
}

/// Runs a command again and again, and kills it after so many writes, until it ends. How often it was killed.
async fn killed_all_the_time(
    site: &Site,
    gate: &Gate,
    words: &[&str],
    writes: usize,
    writer: &Writer,
) -> Result<usize> {
    for times in 0..200 {
        let ended = killed(site, gate, words, writes).await?;
        writer.was_never_refused().await?;
        if let Some(run) = ended {
            run.expect(0, &[])?;
            return Ok(times);
        }
    }
    anyhow::bail!("{words:?} makes no progress")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_killed_after_any_write_is_continued() -> Result<()> {
    let site = Site::start("machine-controller").await?;
    let writer = Writer::start(site.client.clone());
    let gate = Gate::before(site.client.clone()).await?;
    let before = site.state().await?;
    // After each write: the journal, what it announces, and the journal again.
    for command in ["apply", "rollback"] {
        let killed = Box::pin(killed_all_the_time(&site, &gate, &[command, "--yes"], 1, &writer)).await?;
        ensure!(killed >= 10, "{command} was killed {killed} times only");
    }
    ensure!(site.state().await? == before, "it is not as before");

    // The plan is about objects as they were.
    let apply = ["apply", "--yes"];
    ensure!(killed(&site, &gate, &apply, 1).await?.is_none());
    let deployments = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    for (note, code) in [(json!("changed"), 1), (Value::Null, 0)] {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"note": note}}}));
        deployments
            .patch(WEBHOOK, &PatchParams::default(), &patch)
            .await?;
        let texts: &[&str] = match code {
            1 => &[
                "Deployment kube-system/operating-system-manager-webhook has changed since the plan was made",
            ],
            _ => &[],
        };
        site.migrate(&apply).await?.expect(code, texts)?;
    }
    let mut installed = site.install().await?;
    // Each step has three writes, so that every tenth one is another of the three each time.
    for command in ["finish", "rollback"] {
        let killed = Box::pin(killed_all_the_time(
            &site,
            &gate,
            &[command, "--yes"],
            10,
            &writer,
        ))
        .await?;
        ensure!(killed >= 6, "{command} was killed {killed} times only");
        if command == "finish" {
            let left = site.state().await?;
            ensure!(left.iter().all(Option::is_none), "{left:#?}");
            for service in Service::ALL {
                installed.terminate(service, DEADLINE).await?;
            }
        }
    }
    ensure!(site.state().await?.iter().all(Option::is_some));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_migrated_is_named_and_nothing_changes() -> Result<()> {
    let site = Site::start("kubeone").await?;
    let before = site.state().await?;
    let refused = async |words: &[&str], texts: &[&str]| -> Result<()> {
        site.migrate(words).await?.expect(1, texts)?;
        ensure!(site.state().await? == before, "{words:?} has changed something");
        let journal = site.secrets(NAMESPACE).get_opt("osm-migration").await?;
        ensure!(journal.is_none(), "{words:?} has begun");
        Ok(())
    };

    // Another namespace, as in another context.
    refused(
        &["apply", "--yes", "-n", "default"],
        &["namespace default has no Deployment of the Go implementation; check --context"],
    )
    .await?;
    let admin = site.plane.admin_kubeconfig_path().display().to_string();
    refused(
        &["apply", "--yes", "--worker-kubeconfig", &admin],
        &["supports one cluster"],
    )
    .await?;

    // A settings document.
    let settings = installation::settings(&installation::as_by_the_chart(), "");
    installation::apply(&site.plane, std::slice::from_ref(&settings)).await?;
    refused(&["apply", "--yes"], &["a settings document exists"]).await?;
    refused(&["check"], &["a settings document exists"]).await?;
    site.delete(&settings).await?;

    // A flag that osmctl does not know, and one that needs a person.
    let deployments = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    let with = async |flags: Value| -> Result<()> {
        let patch =
            json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": flags}]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
        deployments
            .patch("operating-system-manager", &PatchParams::default(), &patch)
            .await?;
        Ok(())
    };
    with(json!(["-node-magic=s3cret", "-host-ca-bundle=/s3cret"])).await?;
    let run = site.migrate(&["apply", "--yes"]).await?;
    let run = run.expect(
        1,
        &[
            "the flag -node-magic is not known",
            "hostCaBundle",
            "Nothing was changed",
        ],
    )?;
    ensure!(
        !run.out.contains("s3cret") && !run.err.contains("s3cret"),
        "{}",
        run.out
    );
    let handled = [
        "check",
        "--handled-flag",
        "node-magic",
        "--handled-flag",
        "host-ca-bundle",
    ];
    site.migrate(&handled).await?.expect(0, &["can be migrated"])?;
    with(json!([
        "-cluster-dns=169.254.20.10",
        "-namespace=kube-system",
        "-external-cloud-provider=true"
    ]))
    .await?;
    ensure!(site.state().await? == before);

    // A profile that OSM refuses.
    let mut profile = go_profile("custom", "{{ env \"VERSION\" }}");
    profile["metadata"]["namespace"] = json!(NAMESPACE);
    let pool = fixtures::machine_deployment("custom", "custom");
    installation::apply(&site.plane, &[profile, pool.clone()]).await?;
    refused(&["apply", "--yes"], &["OSM would refuse kube-system/custom"]).await?;
    site.migrate(&["check", "--accept-refused"])
        .await?
        .expect(0, &[])?;
    site.delete(&pool).await?;

    // All permissions that are missing, at once.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": NAMESPACE}});
    installation::apply(&site.plane, &[account]).await?;
    let nobody = site.plane.identity(NAMESPACE, "nobody").await?;
    let mut command = site.command(&["apply", "--yes"], &nobody).await?;
    Run::of(command.output().await?).expect(
        1,
        &[
            "permissions are missing",
            "delete validatingwebhookconfigurations.admissionregistration.k8s.io",
            "patch deployments.apps in namespace kube-system",
            "update secrets in namespace kube-system",
            "list machinedeployments.cluster.k8s.io",
        ],
    )?;
    ensure!(site.state().await? == before);

    // Every verb that osmctl uses, but not all that the objects permit which a rollback restores.
    let rbac = "rbac.authorization.k8s.io";
    let verbs = ["get", "list", "create", "patch", "update", "delete"];
    let most = [
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "most"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "most"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "most"},
            "subjects": [{"kind": "ServiceAccount", "name": "nobody", "namespace": NAMESPACE}]}),
    ];
    installation::apply(&site.plane, &most).await?;
    let mut command = site.command(&["apply", "--yes"], &nobody).await?;
    let run = Run::of(command.output().await?);
    let run = run.expect(
        1,
        &[
            "could not restore ClusterRole system:operating-system-manager",
            "could not restore ClusterRoleBinding system:operating-system-manager",
            "the verb escalate",
            "the verb bind",
            "Nothing was changed",
        ],
    )?;
    ensure!(!run.out.contains("could not restore Role "), "{}", run.out);
    ensure!(site.state().await? == before);

    // An installer that does not know of the migration: the first surprise ends the command.
    site.migrate(&["apply", "--yes"]).await?.expect(0, &[])?;
    let is_webhook = |object: &&Value| object["kind"] == "ValidatingWebhookConfiguration";
    let webhook = site
        .installed
        .iter()
        .find(is_webhook)
        .context("a configuration")?;
    site.plane.apply_yaml(&webhook.to_string()).await?;
    site.migrate(&["apply", "--yes"])
        .await?
        .expect(1, &["has been created again", "stop that installer"])?;
    site.delete(webhook).await?;
    site.migrate(&["apply", "--yes"]).await?.expect(0, &[])?;

    // A webhook that does not start would block writes, so its configuration does not come back before it does. That is so, too, if the
    // command was killed when it had just created the configuration.
    site.broken.store(true, Ordering::SeqCst);
    let is_configuration = |object: &&Value| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Configuration"))
    };
    let configurations = || site.installed.iter().filter(is_configuration);
    let exist = async || -> Result<bool> {
        for one in configurations() {
            if site.current(one).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let gate = Gate::before(site.client.clone()).await?;
    for times in 0.. {
        ensure!(times < 20, "no configuration was created");
        let ended = killed(&site, &gate, &["rollback", "--yes"], 1).await?;
        ensure!(ended.is_none(), "the rollback has ended: {}", ended.unwrap().err);
        if exist().await? {
            break;
        }
    }
    for _ in 0..2 {
        site.migrate(&["rollback", "--yes"]).await?.expect(
            1,
            &["is not restored, because the API server would refuse writes"],
        )?;
        ensure!(!exist().await?);
    }
    wait_for("writes to be accepted", DEADLINE, async || {
        let profile = fixtures::profile(NAMESPACE, "last", "v1.0.0", "text");
        check(installation::apply(&site.plane, &[profile]).await.is_ok())
    })
    .await?;
    site.migrate(&["apply", "--yes"])
        .await?
        .expect(1, &["`osmctl migrate rollback` has begun"])?;
    site.broken.store(false, Ordering::SeqCst);
    site.migrate(&["rollback", "--yes"])
        .await?
        .expect(0, &["runs again"])?;
    ensure!(site.state().await? == before);
    Ok(())
}
