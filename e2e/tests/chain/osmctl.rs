//! `osmctl` as people run it, with the cluster of a running installation, and with few rights.

use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::ListParams;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::{ControlPlane, Options, installation, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, NAMESPACE, World, machine_deployment, profile};

pub const PASSWORD: &str = "h0t-and-secret-password";

/// A token as the Go implementation writes it into a config.
pub const GO_TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJnZXR0ZXIifQ.c2lnbmF0dXJlLW9mLWdldHRlcg";

/// What a run of osmctl printed.
pub struct Run {
    code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("{}\n{}", self.out, self.err))
    }

    /// Fails unless the exit code is this one and the output contains each text.
    pub fn expect(self, code: i32, texts: &[&str]) -> Result<Self> {
        ensure!(
            self.code == Some(code),
            "{:?}\n{}\n{}",
            self.code,
            self.out,
            self.err
        );
        for text in texts {
            ensure!(
                self.out.contains(text) || self.err.contains(text),
                "no {text}:\n{}\n{}",
                self.out,
                self.err
            );
        }
        Ok(self)
    }
}

/// Runs osmctl with a kubeconfig and no other of the user's.
pub async fn osmctl(kubeconfig: &Path, arguments: &[&str]) -> Result<Run> {
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .args(["-n", NAMESPACE, "--kubeconfig"])
        .arg(kubeconfig)
        .env_remove("KUBECONFIG")
        .output()
        .await?;
    Ok(Run::of(output))
}

/// A pool that is published, with credentials of a registry, and one whose profile does not exist.
async fn a_published_and_a_broken_pool() -> Result<World> {
    let world = World::start(Options::default()).await?;
    let auth = json!({"auths": {"docker.io": {"username": "operator", "password": PASSWORD}}}).to_string();
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "hub", "namespace": CLOUD_INIT_SETTINGS}, "stringData": {".dockerconfigjson": auth}}))
        .await?;
    let settings =
        json!({"containerd": {"registries": [{"host": "docker.io", "credentials": {"name": "hub"}}]}});
    world.set_settings(&settings.to_string()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for (pool, profile) in [("workers", "osp-tiny"), ("broken", "missing")] {
        world.pool(pool, profile).await?;
        world.stamp(pool, 1).await?;
    }
    world.machine("workers", 1).await?;
    world.says("workers", "Published", true, "Published").await?;
    world.says("broken", "Rendered", false, "ProfileNotFound").await?;
    world.event("kube-system", "broken", "ProfileNotFound").await?;
    Ok(world)
}

/// The commands in fenced blocks of docs/osmctl.md, but for the block that installs osmctl.
fn commands_of_the_page() -> Vec<&'static str> {
    let page = include_str!("../../../docs/osmctl.md");
    let blocks = page.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let blocks = blocks.filter(|block| block.starts_with("osmctl "));
    blocks.flat_map(str::lines).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_runs_every_command_of_its_page() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("workers", "osp-tiny").await?;
    world.stamp("workers", 1).await?;
    world.says("workers", "Published", true, "Published").await?;
    let folder = tempfile::tempdir()?;
    std::fs::write(
        folder.path().join("new.yaml"),
        profile("osp-tiny", "v1.0.1", "two\n").to_string(),
    )?;
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let commands = commands_of_the_page();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let words = command.strip_prefix("osmctl ").context("a command of osmctl")?;
        let output = tokio::process::Command::new(&program)
            .args(words.split_whitespace())
            .args(["-n", NAMESPACE])
            .env("KUBECONFIG", world.plane.admin_kubeconfig_path())
            .current_dir(folder.path())
            .output()
            .await?;
        // The new profile is a difference.
        let expected = if words.contains("new.yaml") { 1 } else { 0 };
        Run::of(output)
            .expect(expected, &[])
            .with_context(|| command.to_owned())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_renders_what_the_controllers_wrote() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let auth = json!({"auths": {"docker.io": {"username": "operator", "password": PASSWORD}}}).to_string();
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "hub", "namespace": CLOUD_INIT_SETTINGS}, "stringData": {".dockerconfigjson": auth}}))
        .await?;
    let ca = world.plane.ca_pem();
    let settings = json!({
        "cluster": {"apiServer": world.plane.url(), "caBundle": ca},
        "containerd": {"registries": [{"host": "docker.io", "credentials": {"name": "hub"}}]},
    });
    world.set_settings(&settings.to_string()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("workers", "osp-tiny").await?;
    world.stamp("workers", 1).await?;
    let machine = world.machine("workers", 1).await?;

    let folder = tempfile::tempdir()?;
    let file = |name: &str, text: String| -> Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let pool = serde_json::to_string(&world.pools().get("workers").await?)?;
    let inputs = [
        file("settings.yaml", settings.to_string())?,
        file("profile.yaml", profile("osp-tiny", "v1.0.0", "one\n").to_string())?,
        file("pool.yaml", pool)?,
    ];
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let render = async |arguments: &[&str]| -> Result<Run> {
        let [settings, profile, pool] = &inputs;
        let mut command = tokio::process::Command::new(&program);
        command.args(["render", profile, pool, "--settings", settings]);
        let run = Run::of(command.args(arguments).output().await?);
        run.expect(0, &[])
    };

    let stored = world.config("workers").await?;
    let object = &render(&["-o", "json"]).await?.json()?["items"][0];
    assert_eq!(object["spec"], serde_json::to_value(&stored.spec)?);
    let status = stored.status.clone().context("a status")?;
    assert_eq!(
        object["status"]["rendered"],
        serde_json::to_value(&status.rendered)?
    );
    let labels = serde_json::to_value(&stored.metadata.labels)?;
    assert_eq!(object["metadata"]["labels"], labels);
    assert_eq!(
        object["metadata"]["annotations"][names::OWNER],
        stored.annotations()[names::OWNER]
    );

    let secret = world.bootstrap("workers").await?.data.unwrap_or_default();
    let secret = secret.get("cloud-config").context("a document")?;
    let documents = [
        ("bootstrap", String::from_utf8(secret.0.clone())?),
        ("provisioning", world.fetch(&machine).await?),
    ];
    for (stage, mut document) in documents {
        for (value, placeholder) in [
            (machine.api_token.as_str(), "api/token"),
            (&machine.kubelet_token, "kubelet/token"),
            (&machine.provisioning_secret, "provisioning/secret-name"),
            (&machine.provisioning_digest, "provisioning/sha256"),
            (PASSWORD, "registry/docker.io/password"),
        ] {
            document = document.replace(value, placeholder);
        }
        assert_eq!(render(&["--stage", stage]).await?.out, document, "{stage}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_shows_what_pools_wait_for_and_what_machines_get() -> Result<()> {
    let world = a_published_and_a_broken_pool().await?;
    let admin = world.plane.admin_kubeconfig_path();
    let run = async |arguments: &[&str]| osmctl(&admin, arguments).await;

    let status = run(&["status"]).await?.expect(0, &["profile: ProfileNotFound"])?;
    let words = |pool: &str| -> Vec<&str> {
        let line = status.out.lines().find(|line| line.contains(pool));
        line.unwrap_or_default().split_whitespace().collect()
    };
    let expires = world
        .config("workers")
        .await?
        .status
        .and_then(|status| status.published);
    let expires = expires.context("published")?.credential_expires;
    assert_eq!(
        words("workers"),
        [
            "kube-system",
            "workers",
            "True",
            "osp-tiny",
            "v1.0.0",
            "1",
            "Rendered",
            "Published",
            &expires,
            "-"
        ]
    );
    run(&["status", "kube-system/workers"])
        .await?
        .expect(0, &["workers is well", &expires])?;
    let json = run(&["status", "-o", "json"]).await?.json()?;
    assert_eq!(json["pools"][0]["waitsFor"]["reason"], "ProfileNotFound");
    assert_eq!(json["unread"], json!([]));

    let broken = ["ProfileNotFound", "osm/missing does not exist", "Next step: "];
    run(&["status", "broken"]).await?.expect(1, &broken)?;
    let json = run(&["status", "broken", "-o", "json"])
        .await?
        .expect(1, &[])?
        .json()?;
    assert_eq!(json["links"][1]["problem"]["reason"], "ProfileNotFound");
    let unknown = run(&["status", "workrs"]).await?;
    unknown.expect(
        2,
        &["MachineDeployment workrs does not exist; the nearest names are kube-system/workers"],
    )?;

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_show_prints_no_credential() -> Result<()> {
    let world = a_published_and_a_broken_pool().await?;
    let machine = world.machine("workers", 1).await?;
    let admin = world.plane.admin_kubeconfig_path();
    let folder = tempfile::tempdir()?;
    let to_folder = format!("dir={}", folder.path().join("machine").display());
    let mut printed = String::new();
    for arguments in [
        &["show", "workers"][..],
        &["show", "workers", "/etc/registries"],
        &["show", "workers", "/etc/token"],
        &["status", "workers", "-o", "json"],
        &["diff", "--cluster"],
    ] {
        let run = osmctl(&admin, arguments)
            .await?
            .expect(if arguments[0] == "diff" { 2 } else { 0 }, &[])?;
        printed.push_str(&run.out);
        printed.push_str(&run.err);
    }
    osmctl(&admin, &["show", "workers", "-o", &to_folder])
        .await?
        .expect(0, &[])?;
    let pool = folder.path().join("machine/kube-system/workers");
    for file in [
        "bootstrap/etc/token",
        "bootstrap/etc/kubelet-token",
        "provisioning/etc/registries",
    ] {
        printed.push_str(&std::fs::read_to_string(pool.join(file))?);
    }
    for mask in [
        "<API token of the pool>",
        "<bootstrap token of the kubelet>",
        "password = \"<registry password of docker.io>\"",
        "<name of the provisioning Secret>",
    ] {
        assert!(printed.contains(mask), "{mask}: {printed}");
    }
    let mut credentials = vec![
        machine.api_token.clone(),
        machine.kubelet_token.clone(),
        PASSWORD.to_owned(),
        world.plane.ca_key_pem()?,
    ];
    for namespace in [CLOUD_INIT_SETTINGS, "kube-system"] {
        let secrets = world
            .api::<Secret>(namespace)
            .list(&ListParams::default())
            .await?;
        let values = secrets
            .into_iter()
            .flat_map(|secret| secret.data.unwrap_or_default());
        credentials.extend(values.map(|(_, value)| String::from_utf8_lossy(&value.0).into_owned()));
    }
    assert!(credentials.len() > 6);
    for credential in credentials.iter().filter(|credential| credential.len() > 8) {
        assert!(!printed.contains(credential.as_str()), "{credential}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_compares_new_inputs_with_what_machines_get() -> Result<()> {
    let world = a_published_and_a_broken_pool().await?;
    let admin = world.plane.admin_kubeconfig_path();
    let folder = tempfile::tempdir()?;
    let file = |name: &str, value: &Value| -> Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, value.to_string())?;
        Ok(path.display().to_string())
    };
    let diff = async |arguments: &[&str]| {
        let arguments = [&["diff", "--cluster"], arguments].concat();
        osmctl(&admin, &arguments).await
    };
    let same = diff(&["--pool", "workers"]).await?.expect(0, &[])?;
    assert_eq!(same.out, "");
    // The other pool has no profile, so that it can't be compared.
    diff(&[])
        .await?
        .expect(2, &["profile osm/missing does not exist; provide it"])?;

    let new = file("profile.yaml", &profile("osp-tiny", "v1.0.1", "two\n"))?;
    let lines = [
        "--- old/kube-system/workers/bootstrap/etc/text",
        "\n-one\n",
        "\n+two\n",
    ];
    diff(&[&new, "--pool", "workers"]).await?.expect(1, &lines)?;
    let mut pool = machine_deployment("workers", "osp-tiny");
    pool["spec"]["template"]["spec"]["versions"]["kubelet"] = json!("1.35.0");
    let new = file("pool.yaml", &pool)?;
    diff(&[&new, "--pool", "workers"])
        .await?
        .expect(1, &["+workers 1.35.0"])?;
    let missing = file("missing.yaml", &profile("missing", "v1.0.0", "new\n"))?;
    let names = diff(&[&missing, "-o", "names"]).await?.expect(1, &[])?;
    assert!(
        names
            .out
            .lines()
            .all(|line| line.starts_with("added kube-system/broken/")),
        "{}",
        names.out
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_names_the_right_that_is_missing_and_goes_on() -> Result<()> {
    let world = a_published_and_a_broken_pool().await?;
    let account = |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}});
    for name in ["nobody", "reader"] {
        world.apply(&account(name)).await?;
    }
    let subjects = json!([{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}]);
    for (namespace, group, resource) in [
        ("kube-system", "cluster.k8s.io", "machinedeployments"),
        (NAMESPACE, names::GROUP, "operatingsystemconfigs"),
    ] {
        let metadata = json!({"name": "reader", "namespace": namespace});
        let rbac = "rbac.authorization.k8s.io";
        for object in [
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
                "rules": [{"apiGroups": [group], "resources": [resource], "verbs": ["list"]}]}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"}, "subjects": subjects}),
        ] {
            world.apply(&object).await?;
        }
    }
    let nobody = world.plane.identity(NAMESPACE, "nobody").await?;
    osmctl(&nobody, &["status"]).await?.expect(
        2,
        &["cannot list machinedeployments.cluster.k8s.io in all namespaces: forbidden; ask the administrator of the cluster for this permission"],
    )?;
    let reader = world.plane.identity(NAMESPACE, "reader").await?;
    wait_for("the rights to be in force", DEADLINE, async || {
        let run = osmctl(&reader, &["show", "workers"]).await?;
        run.expect(0, &["/etc/token"]).map(Some)
    })
    .await?;
    let what = [
        "list machinedeployments.cluster.k8s.io in all namespaces",
        "list operatingsystemprofiles.operatingsystemmanager.k8c.io in namespace osm",
        "get configmaps osm-settings in namespace osm",
        "list events in namespace kube-system",
        "list deployments.apps in namespace osm",
    ];
    let status = osmctl(&reader, &["status"]).await?.expect(0, &what)?;
    assert!(
        status.out.contains("workers") && !status.out.contains("Forbidden"),
        "{}",
        status.out
    );
    let why = osmctl(&reader, &["status", "workers"]).await?;
    why.expect(
        0,
        &[
            "unknown    profile",
            "unknown    settings",
            "is well, as far as it could be read",
        ],
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_reads_a_management_and_a_worker_cluster() -> Result<()> {
    let world = World::start_in_two(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("pool", "osp-tiny").await?;
    world.stamp("pool", 1).await?;
    world.says("pool", "Published", true, "Published").await?;
    let management = world.management.as_ref().context("two clusters")?;
    let (management, worker) = (
        management.admin_kubeconfig_path(),
        world.plane.admin_kubeconfig_path(),
    );
    let worker = worker.display().to_string();
    let both = ["--worker-kubeconfig", &worker];
    osmctl(&management, &[&["status", "pool"][..], &both].concat())
        .await?
        .expect(0, &["pool is well"])?;
    osmctl(&management, &[&["diff", "--cluster"][..], &both].concat())
        .await?
        .expect(0, &[])?;
    // The management cluster alone has no MachineDeployments, not even their definition.
    let alone = osmctl(&management, &["status"]).await?;
    alone.expect(2, &["the cluster does not have this kind", "--worker-context"])?;
    Ok(())
}

pub fn go_config(pool: &str) -> Value {
    let inline = |data: &str| json!({"inline": {"encoding": "b64", "data": data}});
    let bootstrap = format!("#!/bin/sh\necho {GO_TOKEN} {pool}-kube-system-provisioning-config\n");
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
        "metadata": {"name": names::config_name(pool, "kube-system"), "namespace": NAMESPACE,
            "annotations": {names::MACHINE_DEPLOYMENT_REVISION: "4", "k8c.io/osp-version": "v1.11.2"}},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "provisioningUtility": "cloud-init",
            "cloudProvider": {"name": "openstack", "spec": {"password": PASSWORD}},
            "bootstrapConfig": {"files": [{"path": "/opt/bin/bootstrap", "permissions": 755, "content": inline(&bootstrap)}],
                "modules": {"runcmd": ["systemctl restart bootstrap.service"]},
                "userSSHKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOperator operator@example"]},
            "provisioningConfig": {"files": [
                {"path": "/etc/version", "permissions": 644, "content": inline("v1.34.1")},
                {"path": "/etc/registry", "permissions": 600, "content": inline(&format!("password = \"{PASSWORD}\"\n"))},
            ]},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn osmctl_names_definitions_that_are_missing() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    plane.install_machine_deployment_crd().await?;
    let admin = plane.admin_kubeconfig_path();
    let none = osmctl(&admin, &["status"]).await?;
    none.expect(
        2,
        &[
            "cannot list operatingsystemconfigs.operatingsystemmanager.k8c.io in namespace osm: the cluster does not have this kind",
            "install the CustomResourceDefinitions",
        ],
    )?;
    Ok(())
}
