//! `osmctl` as people run it, with the cluster of a running installation. Its own tests have what it prints
//! for each state of a cluster.

use std::io::Read;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use osm_api::Machine;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::{installation, wait_for};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, NAMESPACE, World, profile};

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
        says_which_content_nodes_run(world).await?;
        waits_for_an_edit(world).await?;
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
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("bundle.tar.gz");
    let path = archive.to_str().context("a path")?;
    let files = [
        "about.txt",
        "status.txt",
        "configs.json",
        "machinedeployments.json",
        "events.json",
    ];
    osmctl(&admin, &["support-bundle", "--output", path])
        .await?
        .expect(0, &files)?;
    let mut unpacked = String::new();
    GzDecoder::new(std::fs::File::open(&archive)?).read_to_string(&mut unpacked)?;
    assert!(unpacked.contains("\"contentID\""), "{unpacked}");
    assert!(
        !unpacked.contains("/etc/registries") && !unpacked.contains("caBundle"),
        "{unpacked}"
    );
    printed.push_str(&unpacked);
    let again = ["bundle.tar.gz; name another file with --output"];
    osmctl(&admin, &["support-bundle", "--output", path])
        .await?
        .expect(1, &again)?;
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

/// Each wait begins right after an edit, when the status still says that everything is up to date.
async fn waits_for_an_edit(world: &World) -> Result<()> {
    let admin = world.plane.admin_kubeconfig_path();
    let wait = async |pool: &str| osmctl(&admin, &["status", pool, "--wait", "--timeout", "2m"]).await;
    let rendered = async || {
        let config = world.config("workers").await?;
        ensure!(config.is_published("1"), "it is not published");
        config.stored().cloned().context("what is rendered")
    };
    let before = rendered().await?;
    world.apply(&profile("osp-tiny", "v1.0.2", "three\n")).await?;
    wait("workers").await?.expect(0, &[])?;
    let after = rendered().await?;
    let version = after.profile.context("its profile")?.version;
    ensure!(before.digest != after.digest && version == "v1.0.2", "{version}");

    let patch = json!({"metadata": {"annotations": {names::SETTINGS: "{pauseImage: example.com/pause:9}"}}});
    world.patch_pool("workers", patch).await?;
    wait("workers").await?.expect(0, &[])?;
    ensure!(
        rendered().await?.settings_digest != after.settings_digest,
        "the settings of the pool are old"
    );

    world
        .apply(&profile("osp-tiny", "v1.0.3", "{{nothing.of.the.kind}}\n"))
        .await?;
    wait("workers")
        .await?
        .expect(1, &["kube-system/workers: profile: ", "nothing.of.the.kind"])?;
    world.accepted_profile("osp-tiny", "v1.0.4", "three\n").await?;
    wait("workers").await?.expect(0, &[])?;

    // There is no machine-controller that would give the template a revision.
    let template = json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.33.9"}}}}});
    world.patch_pool("workers", template).await?;
    let waits = osmctl(&admin, &["status", "workers", "--wait", "--timeout", "20s"]).await?;
    waits.expect(1, &["After 20 s, this is not up to date:\nkube-system/workers: "])?;
    world.stamp("workers", 2).await?;
    wait("workers").await?.expect(0, &[])?;
    Ok(())
}

async fn says_which_content_nodes_run(world: &World) -> Result<()> {
    let set = world.with_set("workers", String::new()).await?;
    let newest = world.config("workers").await?;
    let newest = newest.stored().and_then(|stored| stored.content_id.clone());
    let newest = newest.context("the id of the content")?;
    for (name, labels) in [
        ("a", json!({names::CONTENT: newest})),
        ("b", json!({names::CONTENT: "0123456789abcdef"})),
        ("c", json!({})),
    ] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        world.apply(&node).await?;
        world.machine_of(&set, name).await?;
        let status = Patch::Merge(json!({"status": {"nodeRef": {"kind": "Node", "name": name}}}));
        let machines: Api<Machine> = world.api("kube-system");
        machines
            .patch_status(name, &PatchParams::default(), &status)
            .await?;
    }
    let admin = world.plane.admin_kubeconfig_path();
    let one = osmctl(&admin, &["status", "workers"]).await?;
    one.expect(0, &["1 of 3 nodes runs the newest content. 1 can't be compared"])?;
    osmctl(&admin, &["status"]).await?.expect(0, &["NODES", "1/3"])?;
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
    let rule = json!({"apiGroups": ["cluster.k8s.io", names::GROUP], "resources": ["*"], "verbs": ["list"]});
    let kind = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "nobody"}});
    let [mut role, mut binding] = [kind("ClusterRole"), kind("ClusterRoleBinding")];
    role["rules"] = json!([rule]);
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "nobody"});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "nobody", "namespace": NAMESPACE}]);
    world.apply(&role).await?;
    world.apply(&binding).await?;
    wait_for("osmctl to do without the nodes", DEADLINE, async || {
        let run = osmctl(&nobody, &["status"]).await?;
        run.expect(0, &["cannot list nodes in all namespaces: forbidden", "workers"])
            .map(Some)
    })
    .await?;
    Ok(())
}
