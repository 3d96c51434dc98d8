//! The script of `osmctl migrate script` on a cluster with all that installers create, forwards and back. The
//! upstream OSM runs while its Deployment has replicas. Its webhook is a stand-in that fails closed: it
//! answers while its own has. Meanwhile a writer creates, patches and deletes MachineDeployments and
//! profiles, and is never refused. Helm installs the chart, as whose ServiceAccounts the services run.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS, GO_LEASE};
use osm_api::rbac::{Installation, Service};
use osm_api::{MachineDeployment, OperatingSystemProfile};
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::helm::{Helm, REGISTRY, chart};
use osm_testkit::installation::{self, Installed};
use osm_testkit::rollout::roll_out;
use osm_testkit::upstream_osm::UpstreamOsm;
use osm_testkit::{ControlPlane, Options, check, fixtures, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::osmctl::{PASSWORD, Run};
use crate::takeover::go_profile;
use crate::webhook_server::WebhookServer;
use crate::world::{DEADLINE, GETTER_TOKEN, getter};

const NAMESPACE: &str = "kube-system";
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
const BOOTSTRAP: &str = "workers-kube-system-bootstrap-config";
const CONTROLLER: &str = "operating-system-manager";
const WEBHOOK: &str = "operating-system-manager-webhook";

/// KubeOne's Secret with a key for each registry.
const REGISTRIES: &str = "kubeone-registry-credentials";

/// What kube-controller-manager writes on a token: which account of this name it is for.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Between two rounds of the writer.
const INTERVAL: Duration = Duration::from_millis(300);

/// A cluster that an installer has set up.
struct Site {
    plane: ControlPlane,
    client: Client,
    helm: Helm,
    folder: tempfile::TempDir,
    /// What the installer has created.
    installed: Vec<Value>,
    /// The value of the token without end.
    token: String,
    /// Whether the webhook fails although its Deployment runs.
    broken: Arc<AtomicBool>,
    /// The flag of the upstream OSM that the installer sets.
    flag: String,
    go: tokio::sync::Mutex<Option<UpstreamOsm>>,
    _nodes: JoinSet<Result<Infallible>>,
}

impl Site {
    /// With all that installers create: what machine-controller's example has, and the budgets and the flag
    /// of KubeOne.
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(Options {
            controllers: vec!["serviceaccount-token"],
            ..Options::default()
        })
        .await?;
        let client = plane.admin()?;
        plane.install_machine_deployment_crd().await?;
        let fixtures = Path::new(FIXTURES);
        plane.install_crds(&fixtures.join("cert-manager")).await?;
        let kinds = tempfile::tempdir()?;
        std::fs::copy(fixtures.join("go-shaped.yaml"), kinds.path().join("kinds.yaml"))?;
        plane.install_crds(kinds.path()).await?;
        let broken = Arc::<AtomicBool>::default();
        let webhook = webhook(client.clone(), broken.clone()).await?;
        let objects = |installer: &str| -> Result<Vec<Value>> {
            let text = std::fs::read_to_string(fixtures.join(format!("takeover/{installer}.yaml")))?;
            Ok(serde_saphyr::from_multiple(&text)?)
        };
        let mut installed = objects("machine-controller")?;
        let budgets = objects("kubeone")?.into_iter();
        installed.extend(budgets.filter(|object| object["kind"] == "PodDisruptionBudget"));
        installed.iter_mut().for_each(|object| lead_to(object, &webhook));
        let flag = format!("-node-registry-credentials-secret={NAMESPACE}/{REGISTRIES}");
        let command = &mut installed[0]["spec"]["template"]["spec"]["containers"][0]["command"];
        command.as_array_mut().context("a command")?.push(json!(&flag));
        let credentials = json!({"username": "operator", "password": PASSWORD}).to_string();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": REGISTRIES, "namespace": NAMESPACE},
            "stringData": {"quay.io": credentials}});
        installation::apply(&plane, &[secret]).await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS}});
        let info = installation::cluster_info(plane.ca_pem(), &plane.url());
        installed.extend(getter());
        installation::apply(&plane, &[namespace, info]).await?;
        installation::apply(&plane, &installed).await?;
        let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        let token = wait_for("the token without end", DEADLINE, async || {
            let secret = secrets.get(GETTER_TOKEN).await?;
            Ok(secret.data.and_then(|mut data| data.remove("token")))
        })
        .await?;
        let mut nodes = JoinSet::new();
        nodes.spawn(roll_out(client.clone()));
        let site = Self {
            client,
            helm: Helm::new(&plane).await?,
            folder: tempfile::tempdir()?,
            installed,
            token: String::from_utf8(token.0)?,
            broken,
            flag,
            go: tokio::sync::Mutex::default(),
            _nodes: nodes,
            plane,
        };
        wait_for("writes to be accepted", DEADLINE, async || {
            let profile = fixtures::profile(NAMESPACE, "first", "v1.0.0", "text");
            check(installation::apply(&site.plane, &[profile]).await.is_ok())
        })
        .await?;
        site.pool().await?;
        Ok(site)
    }

    /// A pool, which the upstream OSM serves.
    async fn pool(&self) -> Result<()> {
        let mut md = fixtures::machine_deployment("workers", "existing");
        md["metadata"]["annotations"][names::REVISION] = json!("4");
        md["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProviderSpec"] =
            json!({"password": PASSWORD});
        let mut profile = go_profile("existing", "{{ .KubeVersion }}");
        profile["metadata"]["namespace"] = json!(NAMESPACE);
        installation::apply(&self.plane, &[md, profile]).await?;
        self.follow().await?;
        self.is_published(false).await
    }

    /// Waits until the bootstrap Secret is that of OSM, or that of the upstream OSM.
    async fn is_published(&self, by_osm: bool) -> Result<()> {
        wait_for("user data", DEADLINE, async || {
            let secret = self.secrets(CLOUD_INIT_SETTINGS).get(BOOTSTRAP).await?;
            check(secret.labels().contains_key(names::INSTALLATION) == by_osm)
        })
        .await
        .context(match &*self.go.lock().await {
            Some(go) => go.logs()?,
            None => String::new(),
        })
    }

    /// Does once what a kubelet does all the time: the upstream OSM runs while its Deployment has replicas.
    async fn follow(&self) -> Result<()> {
        let is_wanted = has_replicas(self.client.clone(), CONTROLLER).await?;
        let mut go = self.go.lock().await;
        match (is_wanted, go.take()) {
            (true, None) => *go = Some(UpstreamOsm::start(&self.plane, NAMESPACE, &[&self.flag]).await?),
            (false, Some(running)) => running.stop().await?,
            (_, same) => *go = same,
        }
        Ok(())
    }

    async fn follow_on(&self) -> Result<Infallible> {
        loop {
            self.follow().await?;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn migrate(&self, words: &[&str]) -> Result<Run> {
        let program = tokio::task::spawn_blocking(installation::osmctl).await??;
        let mut command = tokio::process::Command::new(program);
        command
            .arg("migrate")
            .args(words)
            .arg("--kubeconfig")
            .arg(self.plane.admin_kubeconfig_path())
            .env_remove("KUBECONFIG")
            .kill_on_drop(true);
        Ok(Run::of(command.output().await?))
    }

    /// Has osmctl print the script.
    async fn print_script(&self) -> Result<()> {
        let printed = self.migrate(&["script"]).await?.expect(0, &["\nstop_go() {\n"])?;
        std::fs::write(self.folder.path().join("osm-migrate.sh"), printed.out)?;
        Ok(())
    }

    /// Runs a part of the script.
    async fn part(&self, part: &str) -> Result<Run> {
        let assets = assets::ensure_verbosely(&[Component::Kubectl]).await?;
        let kubectl = assets.path(Component::Kubectl)?.parent().context("a folder")?;
        let script = format!(
            "export PATH='{}':$PATH\nsh osm-migrate.sh {part}",
            kubectl.display()
        );
        let output = self
            .helm
            .shell(&script)
            .envs([("SETTLE", "1"), ("TIMEOUT", "180"), ("REGISTRY", REGISTRY)])
            .env("CHART", chart())
            .current_dir(self.folder.path())
            .output();
        let output = tokio::select! {
            output = output => output?,
            end = self.follow_on() => match end? {},
        };
        self.follow().await?;
        Ok(Run::of(output))
    }

    /// Runs the part that installs the chart, and starts the services with the rights that the chart gives
    /// them.
    async fn install(&self) -> Result<Installed> {
        let start = async {
            let deployments = Api::<Deployment>::namespaced(self.client.clone(), NAMESPACE);
            wait_for("the chart to be installed", DEADLINE, async || {
                check(deployments.get_opt("osm-secret-syncer").await?.is_some())
            })
            .await?;
            let installation = Installation {
                go_finalizers: true,
                ..Installation::default()
            };
            let binaries = installation::binaries()?;
            let mut installed = Installed::by_chart(&self.plane, installation, "osm", &binaries).await?;
            installed.start_all().await?;
            Ok(installed)
        };
        let run = async { self.part("install").await?.expect(0, &["OSM serves every pool"]) };
        let (_, installed) = tokio::try_join!(run, start)?;
        Ok(installed)
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
        let api = self.api(object)?;
        let name = object["metadata"]["name"].as_str().context("a name")?;
        Ok(api.get_opt(name).await?)
    }

    fn api(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let kind = object.types.as_ref().context("a kind")?.try_into()?;
        let resource = ApiResource::from_gvk(&kind);
        Ok(match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        })
    }

    async fn delete(&self, object: &Value) -> Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        self.api(object)?.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The uid of the bootstrap Secret.
    async fn bootstrap(&self) -> Result<Option<String>> {
        Ok(self.secrets(CLOUD_INIT_SETTINGS).get(BOOTSTRAP).await?.uid())
    }

    fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
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
fn lead_to(object: &mut Value, webhook: &WebhookServer) {
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

/// Allows everything while its Deployment has replicas.
async fn webhook(client: Client, broken: Arc<AtomicBool>) -> Result<WebhookServer> {
    let name = format!("{WEBHOOK}.{NAMESPACE}.svc");
    WebhookServer::start(&name, move || {
        let (client, is_broken) = (client.clone(), broken.load(Ordering::SeqCst));
        async move { !is_broken && has_replicas(client, WEBHOOK).await.unwrap_or(false) }
    })
    .await
}

/// Whether a Deployment exists and has replicas.
async fn has_replicas(client: Client, name: &str) -> Result<bool> {
    let deployments = Api::<Deployment>::namespaced(client, NAMESPACE);
    let spec = deployments.get_opt(name).await?.and_then(|found| found.spec);
    Ok(spec.and_then(|spec| spec.replicas) > Some(0))
}

/// What a user does all the time.
struct Writer {
    refused: Arc<Mutex<Vec<String>>>,
    rounds: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Writer {
    fn start(client: Client) -> Self {
        let (refused, rounds) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::<AtomicUsize>::default(),
        );
        let (writes, counter) = (refused.clone(), rounds.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
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
            _task: task,
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

/// Everything from the check to the end, and back.
async fn a_takeover_without_an_outage() -> Result<()> {
    let site = Site::start().await?;
    // What would happen if the Deployment went first.
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let deployments = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    for (replicas, answers) in [(0, false), (1, true)] {
        let patch = Patch::Merge(scale(replicas));
        deployments
            .patch(WEBHOOK, &PatchParams::default(), &patch)
            .await?;
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
    let bootstrap = site.bootstrap().await?;
    let before = site.state().await?;
    let checked = site.migrate(&["check", "--diff"]).await?;
    let checked = checked.expect(
        0,
        &[
            "The cluster can be migrated",
            &site.plane.url(),
            "context default",
            "kube-system/workers: differs",
            "do not delete it yet: the upstream OSM runs",
        ],
    )?;
    for credential in [PASSWORD, &site.token] {
        ensure!(!checked.out.contains(credential));
    }
    site.print_script().await?;
    ensure!(site.state().await? == before, "checking changes nothing");

    // There and back, before anything else is installed. Twice is the same as once.
    for _ in 0..2 {
        site.part("stop").await?.expect(0, &["Next part: install"])?;
    }
    ensure!(
        !has_replicas(site.client.clone(), WEBHOOK).await?,
        "the webhook runs"
    );
    writer.was_never_refused().await?;
    site.part("back").await?.expect(0, &["runs again"])?;
    ensure!(site.state().await? == before, "it is not as before");
    writer.was_never_refused().await?;
    site.part("install")
        .await?
        .expect(1, &["runs. Both implementations"])?;

    // There. The services need not wait for the Lease of the upstream OSM, which would take longer than this
    // test.
    site.part("stop").await?.expect(0, &["Next part: install"])?;
    let leases = Api::<Lease>::namespaced(site.client.clone(), NAMESPACE);
    ensure!(leases.get_opt(GO_LEASE).await?.is_none(), "its Lease is left");
    site.part("clean-up")
        .await?
        .expect(1, &["OSM is not installed"])?;
    ensure!(
        site.bootstrap().await? == bootstrap,
        "the bootstrap Secret was replaced"
    );
    let mut installed = site.install().await?;
    let secret = site
        .secrets(CLOUD_INIT_SETTINGS)
        .get("osm-registry-quay.io")
        .await?;
    let data = secret.data.context("data")?;
    ensure!(data["username"].0 == b"operator" && data["password"].0 == PASSWORD.as_bytes());
    site.is_published(true).await?;
    site.migrate(&["check"])
        .await?
        .expect(1, &["continue with the script"])?;
    for _ in 0..2 {
        site.part("clean-up").await?.expect(0, &["delete-token"])?;
    }
    let machine = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "booting", "namespace": NAMESPACE}, "spec": {}});
    installation::apply(&site.plane, std::slice::from_ref(&machine)).await?;
    site.part("delete-token")
        .await?
        .expect(1, &["have not joined", "kube-system/booting"])?;
    ensure!(site.secrets(CLOUD_INIT_SETTINGS).get(GETTER_TOKEN).await.is_ok());
    site.delete(&machine).await?;
    site.part("delete-token")
        .await?
        .expect(0, &["The migration is finished"])?;
    let left = site.state().await?;
    ensure!(left.iter().all(Option::is_none), "{left:#?}");
    for name in [
        "workers-kube-system-provisioning-config",
        "kube-system-workers-kubelet-bootstrap-config",
    ] {
        let secret = site.secrets(CLOUD_INIT_SETTINGS).get_opt(name).await?;
        ensure!(secret.is_none(), "{name} is left");
    }
    site.migrate(&["script"])
        .await?
        .expect(1, &["already migrated"])?;
    writer.was_never_refused().await?;

    // And back from the end. The token is not restored by its value, and no copy has it.
    for copy in std::fs::read_dir(site.folder.path().join("osm-migration"))? {
        let text = std::fs::read_to_string(copy?.path())?;
        ensure!(
            !text.contains(&site.token) && !text.contains(&STANDARD.encode(&site.token)),
            "{text}"
        );
    }
    // The upstream OSM could read neither a profile of the user, nor one that another version of OSM has
    // installed.
    let with_list = |name: &str| {
        let mut profile = fixtures::profile(NAMESPACE, name, "v1.0.0", "text");
        profile["spec"]["bootstrapConfig"]["modules"] = json!({"runcmd": ["true", ["echo", "a b"]]});
        profile
    };
    let (of_user, mut default) = (with_list("with-list"), with_list("osp-former"));
    default["metadata"]["labels"] = json!({names::DEFAULT_PROFILE: "true"});
    installation::apply(&site.plane, &[of_user.clone(), default]).await?;
    site.part("back")
        .await?
        .expect(1, &["kube-system/with-list. Write", "Nothing was changed"])?;
    ensure!(site.state().await? == left, "the part back has changed something");
    site.delete(&of_user).await?;
    for service in Service::ALL {
        installed.terminate(service, DEADLINE).await?;
    }
    site.part("back").await?.expect(0, &["runs again"])?;
    site.is_published(false).await?;
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
        ensure!(before == after, "{before:?}\n{after:?}");
    }
    writer.was_never_refused().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_migrated_without_an_outage() -> Result<()> {
    Box::pin(a_takeover_without_an_outage()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_comes_back_or_does_not_start_stops_the_script_and_blocks_no_writes() -> Result<()> {
    let site = Site::start().await?;
    let before = site.state().await?;
    // An installer that does not know of the migration. The upstream OSM runs on.
    site.print_script().await?;
    let is_webhook = |object: &&Value| object["kind"] == "ValidatingWebhookConfiguration";
    let webhook = site
        .installed
        .iter()
        .find(is_webhook)
        .context("a configuration")?;
    let mut another = webhook.clone();
    another["metadata"]["name"] = json!("another");
    installation::apply(&site.plane, std::slice::from_ref(&another)).await?;
    site.part("stop")
        .await?
        .expect(1, &["has created a webhook configuration again", "another"])?;
    ensure!(
        has_replicas(site.client.clone(), WEBHOOK).await?,
        "the webhook was stopped"
    );
    site.delete(&another).await?;
    site.part("stop").await?.expect(0, &["Next part: install"])?;

    // A webhook that does not start would block writes, so its configuration does not stay.
    site.broken.store(true, Ordering::SeqCst);
    site.part("back").await?.expect(
        1,
        &["is not restored, because the API server would refuse writes"],
    )?;
    let is_configuration = |object: &&Value| {
        object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("Configuration"))
    };
    for one in site.installed.iter().filter(is_configuration) {
        ensure!(site.current(one).await?.is_none(), "{one} blocks writes");
    }
    site.broken.store(false, Ordering::SeqCst);
    site.part("back").await?.expect(0, &["runs again"])?;
    ensure!(site.state().await? == before);
    Ok(())
}
