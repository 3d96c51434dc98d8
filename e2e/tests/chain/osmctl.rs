//! `osmctl` as people run it, with the cluster of a running installation. Its own tests have what it prints
//! for each state of a cluster.

use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_testkit::installation;
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{NAMESPACE, World, profile};

pub const PASSWORD: &str = "h0t-and-secret-password";

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

/// The commands in fenced blocks of docs/osmctl.md, but for the block that installs osmctl.
fn commands_of_the_page() -> Vec<&'static str> {
    let page = include_str!("../../../docs/osmctl.md");
    let blocks = page.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let blocks = blocks.filter(|block| block.starts_with("osmctl "));
    blocks.flat_map(str::lines).collect()
}

#[test]
fn osmctl_reads_a_cluster_and_prints_no_credential() -> Result<()> {
    in_shared_world(async |world| {
        let auth = json!({"username": "operator", "password": PASSWORD});
        let auth = json!({"auths": {"docker.io": auth}}).to_string();
        world
            .apply(
                &json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
                "metadata": {"name": "hub", "namespace": CLOUD_INIT_SETTINGS},
                "stringData": {".dockerconfigjson": auth}}),
            )
            .await?;
        let settings = json!({
            "cluster": {"apiServer": world.plane.url(), "caBundle": world.plane.ca_pem()},
            "containerd": {"registries": [{"host": "docker.io", "credentials": {"name": "hub"}}]},
        });
        world.set_settings(&settings.to_string()).await?;
        world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
        world.pool("workers", "osp-tiny").await?;
        world.stamp("workers", 1).await?;
        world.says("workers", "Published", true, "Published").await?;
        every_command_of_the_page_runs(world).await?;
        no_credential_is_printed(world).await?;
        says_what_is_wrong(world).await
    })
}

async fn every_command_of_the_page_runs(world: &World) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let changed = profile("osp-tiny", "v1.0.1", "two\n").to_string();
    std::fs::write(folder.path().join("new.yaml"), changed)?;
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let commands = commands_of_the_page();
    assert!(commands.len() >= 7, "{commands:?}");
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

async fn no_credential_is_printed(world: &World) -> Result<()> {
    let machine = world.machine("workers", 1).await?;
    let admin = world.plane.admin_kubeconfig_path();
    let mut printed = String::new();
    for arguments in [
        &["show", "workers"][..],
        &["show", "workers", "/etc/registries"],
        &["show", "workers", "/etc/token"],
        &["show", "workers", "/etc/kubelet-token"],
        &["show", "workers", "/etc/secret"],
        &["status", "workers"],
        &["diff", "--cluster"],
    ] {
        let run = osmctl(&admin, arguments).await?.expect(0, &[])?;
        printed.push_str(&run.out);
        printed.push_str(&run.err);
    }
    for mask in [
        "<api/token>",
        "<kubelet/token>",
        "password = \"<registry/docker.io/password>\"",
        "<provisioning/secret-name>",
    ] {
        assert!(printed.contains(mask), "{mask}: {printed}");
    }
    let mut credentials = vec![
        machine.api_token.clone(),
        machine.kubelet_token.clone(),
        PASSWORD.to_owned(),
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

async fn says_what_is_wrong(world: &World) -> Result<()> {
    let admin = world.plane.admin_kubeconfig_path();
    world.pool("broken", "missing").await?;
    world.stamp("broken", 1).await?;
    world.says("broken", "Rendered", false, "ProfileNotFound").await?;
    let broken = ["ProfileNotFound", "osm/missing does not exist", "Next step: "];
    osmctl(&admin, &["status", "broken"]).await?.expect(1, &broken)?;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": NAMESPACE}});
    world.apply(&account).await?;
    let nobody = world.plane.identity(NAMESPACE, "nobody").await?;
    osmctl(&nobody, &["status"]).await?.expect(
        2,
        &["cannot list machinedeployments.cluster.k8s.io in all namespaces: forbidden; ask the administrator of the cluster for this permission"],
    )?;
    Ok(())
}
