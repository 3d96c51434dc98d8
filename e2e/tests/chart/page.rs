//! Follows docs/install.md literally, and the Helm commands of docs/migration.md, on API servers without nodes. The tests check the commands,
//! and no pod runs. `cargo xtask e2e helm` shows that the services work afterwards.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_judges::packages;
use osm_lab::serve::identity::Identity;
use osm_lab::serve::oci;
use osm_lab::serve::programs::Registry;
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::helm::{self, chart};
use osm_testkit::process::ScratchDir;
use osm_testkit::{ControlPlane, Options, check, fixtures, installation, wait_for};
use serde_json::{Value, json};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");

/// Of all commands together.
const DEADLINE: Duration = Duration::from_secs(300);

/// The text of all fenced blocks of a kind, in order.
pub fn blocks(page: &str, kind: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if found == kind {
                blocks.push(text.join("\n"));
            }
        }
    }
    blocks
}

/// The commands of a section, which are indented by so much.
fn indented(page: &str, section: &str, by: usize) -> Result<String> {
    let (_, text) = page
        .split_once(&format!("\n## {section}"))
        .with_context(|| section.to_owned())?;
    let text = text.split("\n## ").next().unwrap_or_default();
    let commands: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix(&*" ".repeat(by)))
        .collect();
    ensure!(!commands.is_empty(), "section {section} has no commands");
    Ok(commands.join("\n"))
}

/// Somebody with kubectl and Helm, a folder, and clusters in the kubeconfig, the first of which is the current one.
pub struct Person<'a> {
    clusters: Vec<&'a ControlPlane>,
    folder: ScratchDir,
    pub environment: BTreeMap<&'static str, String>,
}

impl<'a> Person<'a> {
    pub async fn new(clusters: Vec<(&str, &'a ControlPlane)>) -> Result<Self> {
        let folder = ScratchDir::new("osm-page-")?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, contexts(&clusters)?.to_string())?;
        let helm = helm::program(|line| eprintln!("{line}")).await?;
        let assets = assets::ensure_verbosely(&[Component::Kubectl]).await?;
        let tools = [helm.as_path(), assets.path(Component::Kubectl)?].map(|path| {
            path.parent()
                .map(|path| path.display().to_string())
                .unwrap_or_default()
        });
        let environment = BTreeMap::from([
            ("PATH", format!("{}:{}", tools.join(":"), std::env::var("PATH")?)),
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("HOME", folder.path().display().to_string()),
        ]);
        let clusters = clusters.into_iter().map(|(_, plane)| plane).collect();
        Ok(Self {
            clusters,
            folder,
            environment,
        })
    }

    /// Does what a page says; gives what is printed.
    pub async fn run(&self, script: &str) -> Result<String> {
        let mut command = tokio::process::Command::new("sh");
        command
            .args(["-eu", "-c", script])
            .current_dir(self.folder.path())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::select! {
            output = tokio::time::timeout(DEADLINE, command.output()) => output.context("the page takes too long")??,
            problem = try_join_all(self.clusters.iter().map(|plane| roll_out(plane))) => bail!("no node any more: {problem:?}"),
        };
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(
            output.status.success(),
            "the page does not work ({}):\n{said}",
            output.status
        );
        Ok(said)
    }
}

/// What a Deployment's controller and a node would do: every Deployment is rolled out at once.
async fn roll_out(plane: &ControlPlane) -> Result<()> {
    let (client, every) = (plane.admin()?, ListParams::default());
    loop {
        for deployment in Api::<Deployment>::all(client.clone()).list(&every).await? {
            let seen = deployment
                .status
                .as_ref()
                .and_then(|status| status.observed_generation);
            if seen == deployment.metadata.generation {
                continue;
            }
            let replicas = deployment
                .spec
                .as_ref()
                .and_then(|spec| spec.replicas)
                .unwrap_or(1);
            let status = json!({"status": {"observedGeneration": deployment.metadata.generation, "replicas": replicas,
                "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}});
            let namespace = deployment.namespace().unwrap_or_default();
            let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
            // It may be gone already.
            let _ = api
                .patch_status(
                    &deployment.name_any(),
                    &PatchParams::default(),
                    &Patch::Merge(&status),
                )
                .await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_does_what_it_says() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let page = std::fs::read_to_string(root.join("docs/install.md"))?;
    // So that a namespace that is deleted goes.
    let options = || Options {
        controllers: vec!["namespace"],
        ..Options::default()
    };
    let (management, worker) = (
        ControlPlane::start(options()).await?,
        ControlPlane::start(options()).await?,
    );
    for cluster in [&management, &worker] {
        cluster.install_machine_deployment_crd().await?;
    }
    let mut person = Person::new(vec![("management", &management), ("worker", &worker)]).await?;
    let folder = person.folder.path().to_owned();

    tokio::task::spawn_blocking(|| packages::ensure(&["docker-registry", "skopeo"])).await??;
    let (certificate, identity) = Identity::of_hosts(&["localhost".to_owned()])?;
    let registry = Registry::start(
        &folder.join("registry"),
        (Ipv4Addr::LOCALHOST, 0).into(),
        Some(&identity),
    )?;
    let ca = folder.join("ca.crt");
    std::fs::write(&ca, certificate)?;
    let [published, inside] =
        ["published", "inside"].map(|name| format!("localhost:{}/{name}", registry.address().port()));
    person.environment.extend([
        ("SSL_CERT_FILE", ca.display().to_string()),
        ("CHART", chart().display().to_string()),
        ("IMAGES", published.clone()),
        ("REGISTRY", inside.clone()),
    ]);

    let (before, rest) = blocks(&page, "sh")
        .join("\n")
        .split_once("helm uninstall")
        .map(|(a, b)| (a.to_owned(), format!("helm uninstall{b}")))
        .context("the end")?;
    let sets_variable = |line: &&str| line.starts_with(char::is_uppercase) && line.contains("=${");
    let variables: Vec<&str> = before.lines().filter(sets_variable).collect();
    // What `cargo xtask image --push` has pushed.
    let version = env!("CARGO_PKG_VERSION");
    let program = folder.join("program");
    std::fs::write(&program, "a program")?;
    std::fs::write(folder.join("image.tar"), oci::archive("any:1", &program)?)?;
    for service in Service::ALL {
        person
            .run(&format!(
                "skopeo copy docker-archive:image.tar docker://{published}/{}:{version}",
                service.name()
            ))
            .await?;
    }
    person.run(&before).await?;
    for service in Service::ALL {
        let digest = async |place: &str| {
            let image = format!("docker://{place}/{}:{version}", service.name());
            let inspect = format!("skopeo inspect --format '{{{{.Digest}}}}' {image}");
            person.run(&inspect).await
        };
        assert_eq!(
            digest(&inside).await?,
            digest(&published).await?,
            "{}",
            service.name()
        );
    }

    // No upgrade has lost a value of another one.
    let values = person.run("helm get values osm --namespace kube-system").await?;
    for value in [&*inside, "10.96.0.10", "pause:3.10.1", "replicas: 3"] {
        ensure!(values.contains(value), "{value} is lost: {values}");
    }
    renews_kubeconfigs(&person, &management, &worker).await?;

    let client = management.admin()?;
    let deployments = |namespace: &str| Api::<Deployment>::namespaced(client.clone(), namespace);
    let replicas = deployments("kube-system")
        .get("osm-secret-syncer")
        .await?
        .spec
        .and_then(|spec| spec.replicas);
    assert_eq!(replicas, Some(3));
    // The kubeconfigs are in force.
    let mounted = deployments("cluster-a").get("osm-osc-controller").await?;
    ensure!(serde_json::to_string(&mounted.spec)?.contains("worker-osc-controller"));
    // The page shows what it prints.
    let images = std::fs::read_to_string(folder.join("images.txt"))?;
    let images = images.replace(&inside, "internal.example.com/osm");
    ensure!(
        blocks(&page, "console").contains(&images.trim_end().to_owned()),
        "the page does not show {images}"
    );
    let left: Vec<_> = std::fs::read_dir(&folder)?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    ensure!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().starts_with("kubeconfig-")),
        "{left:?}"
    );

    person.run(&[variables.join("\n"), rest].join("\n")).await?;
    for plane in [&management, &worker] {
        let namespaces = Api::<Namespace>::all(plane.admin()?);
        ensure!(
            namespaces.get_opt(CLOUD_INIT_SETTINGS).await?.is_none(),
            "it stays"
        );
    }
    let definitions = Api::<CustomResourceDefinition>::all(client)
        .list(&ListParams::default())
        .await?;
    let mut groups = definitions
        .iter()
        .map(|definition| definition.spec.group.as_str());
    ensure!(!groups.any(|group| group == names::GROUP), "definitions stay");
    Ok(())
}

/// The page on KKP: a seed and a user cluster.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_on_kkp_does_what_it_says() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let page = std::fs::read_to_string(root.join("docs/kkp.md"))?;
    let (seed, user) = tokio::try_join!(
        ControlPlane::start(Options::default()),
        ControlPlane::start(Options::default())
    )?;
    user.install_machine_deployment_crd().await?;
    let mut person = Person::new(vec![("seed", &seed), ("user", &user)]).await?;
    person.environment.insert("CHART", chart().display().to_string());
    person.run(&blocks(&page, "sh").join("\n")).await?;
    let secrets = Api::<Secret>::namespaced(seed.admin()?, "cluster-a");
    for service in Service::ALL {
        let secret = secrets.get(&format!("user-{}", service.name())).await?;
        let kubeconfig = secret.data.and_then(|mut data| data.remove("kubeconfig"));
        let kubeconfig = String::from_utf8(kubeconfig.context("a kubeconfig")?.0)?;
        ensure!(kubeconfig.contains(&user.url()), "{}", service.name());
    }
    let deployments = Api::<Deployment>::namespaced(seed.admin()?, "cluster-a");
    let rolled_out = deployments.list(&ListParams::default()).await?.items;
    assert_eq!(rolled_out.len(), Service::ALL.len());
    Ok(())
}

/// What the page's CronJob does, with the rights that the page gives it.
async fn renews_kubeconfigs(
    person: &Person<'_>,
    management: &ControlPlane,
    worker: &ControlPlane,
) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(management.admin()?, "cluster-a");
    let before = token(&secrets, "worker-secret-syncer").await?;
    let job = Api::<CronJob>::namespaced(management.admin()?, "cluster-a")
        .get("osm-renewal")
        .await?;
    let pod = job
        .spec
        .and_then(|spec| spec.job_template.spec)
        .and_then(|spec| spec.template.spec)
        .context("a pod")?;
    let script = pod
        .containers
        .first()
        .and_then(|container| container.command.as_ref()?.last())
        .context("a script")?;
    let folder = ScratchDir::new("osm-renewal-")?;
    let kubeconfig = folder.path().join("worker");
    std::fs::write(&kubeconfig, kubeconfig_of(&secrets, "worker-renewal").await?)?;
    // As the kubelet would: the account's kubeconfig, its namespace, and what is mounted.
    let script = script
        .replace("/worker/kubeconfig", &kubeconfig.display().to_string())
        .replace("cd /tmp", &format!("cd {}", folder.path().display()));
    let identity = management.identity("cluster-a", "osm-renewal").await?;
    let in_pod = format!(
        "export KUBECONFIG={}\nkubectl config set-context --current --namespace cluster-a\n{script}",
        identity.display()
    );
    person.run(&in_pod).await?;
    let after = token(&secrets, "worker-secret-syncer").await?;
    ensure!(before != after, "the token is the same");
    let config = kube::Config::from_custom_kubeconfig(
        serde_saphyr::from_str(&kubeconfig_of(&secrets, "worker-secret-syncer").await?)?,
        &Default::default(),
    )
    .await?;
    Api::<Secret>::namespaced(Client::try_from(config)?, CLOUD_INIT_SETTINGS)
        .list(&ListParams::default())
        .await?;
    // It gets no other token.
    let other = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other", "namespace": "osm"}});
    installation::apply(worker, &[other]).await?;
    let refused = person
        .run(&format!(
            "! kubectl --kubeconfig {} create token other --namespace osm",
            kubeconfig.display()
        ))
        .await?;
    ensure!(refused.contains("forbidden"), "{refused}");
    Ok(())
}

async fn kubeconfig_of(secrets: &Api<Secret>, name: &str) -> Result<String> {
    let data = secrets.get(name).await?.data.context("data")?;
    let text = &data.get("kubeconfig").context("a kubeconfig")?.0;
    Ok(String::from_utf8(text.clone())?)
}

async fn token(secrets: &Api<Secret>, name: &str) -> Result<String> {
    let config: Value = serde_saphyr::from_str(&kubeconfig_of(secrets, name).await?)?;
    let token = config["users"][0]["user"]["token"].as_str();
    Ok(token.context("a token")?.to_owned())
}

/// As in `existing_objects_of_others_are_used_and_not_taken_over`, and what the services do then is in the chain's test `takeover`.
/// What each installer leaves is in `fixtures/takeover`. Nothing answers its webhooks, which fail closed.
#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_and_given_up_as_the_page_on_migration_says() -> Result<()> {
    let page = std::fs::read_to_string(Path::new(FIXTURES).join("../../../docs/migration.md"))?;
    let published = "./charts/operating-system-manager";
    ensure!(page.contains(published));
    let page = page.replace(published, &chart().display().to_string());
    tokio::task::spawn_blocking(|| packages::ensure(&["jq"])).await??;
    let cluster = ControlPlane::start(Options::default()).await?;
    cluster.install_machine_deployment_crd().await?;
    cluster
        .install_crds(&Path::new(FIXTURES).join("cert-manager"))
        .await?;
    let fixture = |name: &str| std::fs::read_to_string(Path::new(FIXTURES).join(name));
    cluster.apply_yaml(&fixture("go-shaped.yaml")?).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS}});
    let of_a_pool = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "pool-kube-system-provisioning-config", "namespace": CLOUD_INIT_SETTINGS}});
    installation::apply(&cluster, &[namespace, of_a_pool]).await?;
    wait_for("profiles to be served", DEADLINE, async || {
        check(installation::apply(&cluster, &objects("first")).await.is_ok())
    })
    .await?;

    let person = Person::new(vec![("cluster", &cluster)]).await?;
    let client = cluster.admin()?;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "kube-system");
    for installer in ["deploy", "machine-controller", "kubeone"] {
        cluster
            .apply_yaml(&fixture(&format!("takeover/{installer}.yaml"))?)
            .await?;
        for object in objects(installer) {
            wait_for(&format!("{installer} to refuse {object}"), DEADLINE, async || {
                let refusal = installation::apply(&cluster, std::slice::from_ref(&object))
                    .await
                    .err();
                check(
                    refusal.is_some_and(|refusal| format!("{refusal:#}").contains("failed calling webhook")),
                )
            })
            .await?;
        }
        let flags = person.run(&indented(&page, "1. ", 4)?).await?;
        ensure!(flags.contains("-cluster-dns="), "{installer}: {flags}");
        let listed = person.run(&indented(&page, "2. ", 4)?).await?;
        ensure!(
            listed.contains("WebhookConfiguration/operatingsystemmanager.k8c.io"),
            "{installer}: {listed}"
        );
        installation::apply(&cluster, &objects(installer))
            .await
            .with_context(|| format!("{installer}: writes are blocked"))?;
        let left = deployments.list(&ListParams::default()).await?;
        ensure!(left.items.is_empty(), "{installer}: {left:?}");
        let listed = person.run(&indented(&page, "6. ", 4)?).await?;
        ensure!(listed.contains("nothing is left"), "{installer}: {listed}");
    }

    person.run(&indented(&page, "3. ", 4)?).await?;
    // What the chart has installed is not taken for a remnant.
    let listed = person.run(&indented(&page, "6. ", 4)?).await?;
    ensure!(listed.contains("nothing is left"), "{listed}");
    let settings = Api::<ConfigMap>::namespaced(client.clone(), "kube-system")
        .get("osm-settings")
        .await?;
    ensure!(
        format!("{:?}", settings.data).contains("10.10.10.10"),
        "{settings:?}"
    );
    person.run(&indented(&page, "Back", 7)?).await?;
    let left = deployments.list(&ListParams::default()).await?;
    ensure!(left.items.is_empty(), "services stay");
    let bindings = Api::<ClusterRoleBinding>::all(client)
        .list(&ListParams::default())
        .await?;
    let ours = bindings
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| name.starts_with("osm:"));
    ensure!(ours.is_none(), "{ours:?} stays");
    Ok(())
}

/// The script of `osmctl migrate script` on an installation of KubeOne, with Helm and the chart. The chain's test `migrate` shows the rest.
#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_installed_by_the_script_that_osmctl_prints() -> Result<()> {
    let cluster = ControlPlane::start(Options::default()).await?;
    cluster.install_machine_deployment_crd().await?;
    let fixture = |name: &str| std::fs::read_to_string(Path::new(FIXTURES).join(name));
    cluster.apply_yaml(&fixture("go-shaped.yaml")?).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS}});
    installation::apply(&cluster, &[namespace]).await?;
    cluster.apply_yaml(&fixture("takeover/kubeone.yaml")?).await?;
    let mut person = Person::new(vec![("cluster", &cluster)]).await?;
    let osmctl = tokio::task::spawn_blocking(installation::osmctl).await??;
    let folder = osmctl.parent().context("a folder")?.display().to_string();
    let path = person.environment.get("PATH").context("a path")?;
    let path = format!("{folder}:{path}");
    person.environment.insert("PATH", path);

    let part = async |part: &str| {
        let chart = chart().display().to_string();
        person
            .run(&format!(
                "CHART={chart} REGISTRY={} SETTLE=1 sh osm-migrate.sh {part}",
                helm::REGISTRY
            ))
            .await
    };
    person.run("osmctl migrate script >osm-migrate.sh").await?;
    part("stop").await?;
    part("install").await?;
    let client = cluster.admin()?;
    let settings = Api::<ConfigMap>::namespaced(client.clone(), "kube-system")
        .get("osm-settings")
        .await?;
    ensure!(
        format!("{:?}", settings.data).contains("169.254.20.10"),
        "{settings:?}"
    );
    part("clean-up").await?;
    let finished = part("delete-token").await?;
    ensure!(finished.contains("The migration is finished"), "{finished}");
    let deployments = Api::<Deployment>::namespaced(client, "kube-system");
    let all =
        async || -> Result<Vec<Deployment>> { Ok(deployments.list(&ListParams::default()).await?.items) };
    let left: Vec<String> = all().await?.iter().map(ResourceExt::name_any).collect();
    ensure!(left.len() == Service::ALL.len(), "{left:?}");

    // Both never run at the same time.
    part("back").await?;
    for deployment in all().await? {
        let name = deployment.name_any();
        let replicas = deployment.spec.and_then(|spec| spec.replicas);
        ensure!(
            (replicas == Some(0)) == left.contains(&name),
            "{name}: {replicas:?}"
        );
    }
    ensure!(all().await?.len() > left.len(), "nothing is restored");
    Ok(())
}

/// A MachineDeployment and a profile that whoever may do so writes.
fn objects(name: &str) -> [Value; 2] {
    [
        fixtures::machine_deployment(name, "osp-ubuntu"),
        fixtures::profile("kube-system", name, "v1.0.0", "text"),
    ]
}

#[test]
fn the_page_on_migration_has_every_flag_of_the_go_implementation() -> Result<()> {
    let page = std::fs::read_to_string(Path::new(FIXTURES).join("../../../docs/migration.md"))?;
    let (_, table) = page.split_once("\n## Flags").context("the flags")?;
    let table = table.split("\n## ").next().unwrap_or_default();
    let left: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .collect();
    let flags = std::fs::read_to_string(Path::new(FIXTURES).join("go-flags.txt"))?;
    let missing: Vec<&str> = flags
        .lines()
        .filter(|flag| !left.iter().any(|cell| cell.contains(&format!("`-{flag}`"))))
        .collect();
    ensure!(flags.lines().count() == 30, "30 flags, of version 1.11");
    ensure!(missing.is_empty(), "flags without a row: {missing:?}");
    Ok(())
}

/// A kubeconfig with all these clusters.
fn contexts(clusters: &[(&str, &ControlPlane)]) -> Result<Value> {
    let current = clusters.first().map(|(name, _)| name);
    let mut merged = json!({"apiVersion": "v1", "kind": "Config", "current-context": current, "contexts": [], "clusters": [], "users": []});
    for (name, plane) in clusters {
        let one: Value = serde_saphyr::from_str(&std::fs::read_to_string(plane.admin_kubeconfig_path())?)?;
        let mut add = |list: &str, key: &str, value: Value| {
            if let Some(list) = merged[list].as_array_mut() {
                list.push(json!({"name": name, key: value}));
            }
        };
        add("contexts", "context", json!({"cluster": name, "user": name}));
        add("clusters", "cluster", one["clusters"][0]["cluster"].clone());
        add("users", "user", one["users"][0]["user"].clone());
    }
    Ok(merged)
}
