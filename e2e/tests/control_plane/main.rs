//! Tests of the control plane itself: rights, kinds, interruptions, and that nothing remains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use osm_testkit::{ControlPlane, Options, check, wait_for};

const DEADLINE: Duration = Duration::from_secs(180);

fn status_code<T>(result: Result<T, kube::Error>) -> Option<u16> {
    match result {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
async fn the_api_server_comes_back_with_its_data_and_nothing_is_left_after_the_end() -> Result<()> {
    let longest = Duration::from_secs(3600);
    let options = Options {
        service_account_max_token_expiration: Some(longest),
        audit: true,
        ..Default::default()
    };
    let control_plane = ControlPlane::start(options).await?;
    let directory = directory(&control_plane)?;
    assert!(
        processes(&directory)?.len() >= 3,
        "etcd, kube-apiserver, their watchers"
    );

    control_plane
        .apply_yaml("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: short, namespace: default}\n")
        .await?;
    let token = control_plane.token("default", "short").await?;
    assert!(
        life(&token)? <= longest,
        "the server's maximum, not the 24 h asked for"
    );

    let url = control_plane.url();
    let namespaces = Api::<Namespace>::all(control_plane.admin()?);
    control_plane.stop_apiserver().await?;
    control_plane.stop_apiserver().await?;
    assert!(
        namespaces.list(&ListParams::default()).await.is_err(),
        "nobody answers"
    );
    control_plane.start_apiserver().await?;
    assert_eq!(control_plane.url(), url);
    wait_for("the old client to work again", DEADLINE, async || {
        Ok(Some(namespaces.get("kube-system").await?))
    })
    .await?;
    let own = Api::<Namespace>::all(control_plane.client(&token)?);
    assert_eq!(
        status_code(own.list(&ListParams::default()).await),
        Some(403),
        "the token is still known"
    );

    let events = control_plane.audit_events()?;
    let of = |user: &str, verb: &str| {
        let mut events = events
            .iter()
            .filter(|event| event.user == user && event.verb == verb);
        events.next().map(|event| {
            (
                event.resource.clone(),
                event.name.clone(),
                event.code,
                event.is_write(),
            )
        })
    };
    let short = "system:serviceaccount:default:short";
    assert_eq!(
        of(short, "list"),
        Some(("namespaces".to_owned(), String::new(), 403, false))
    );
    assert_eq!(
        of("admin", "create"),
        Some(("serviceaccounts/token".to_owned(), "short".to_owned(), 201, true))
    );

    drop(control_plane);
    assert!(!directory.exists());
    assert_eq!(processes(&directory)?, Vec::<String>::new());
    Ok(())
}

/// Starts the program `owner.rs`, and returns the process with the directory of its control plane.
async fn start_owner(mode: &str, scratch: &Path) -> Result<(Child, PathBuf)> {
    let report = scratch.join(mode);
    let mut child = Command::new(env!("CARGO_BIN_EXE_control-plane-owner"))
        .args([report.as_os_str(), mode.as_ref()])
        .stdout(Stdio::null())
        .spawn()?;
    let directory = wait_for("the owner's control plane", Duration::from_secs(90), async || {
        if let Some(status) = child.try_wait()?.filter(|status| !status.success()) {
            return Ok(Some(Err(status)));
        }
        Ok(report
            .exists()
            .then(|| fs::read_to_string(&report))
            .transpose()?
            .map(Ok))
    });
    match directory.await? {
        Ok(directory) => Ok((child, directory.into())),
        Err(status) => bail!("the owner failed ({status})"),
    }
}

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_killed() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let (mut owner, directory) = start_owner("stays", scratch.path()).await?;
    assert!(processes(&directory)?.len() >= 3);
    owner.kill()?; // SIGKILL: no destructor runs
    owner.wait()?;
    wait_for("the end of its processes", DEADLINE, async || {
        check(processes(&directory)?.is_empty())
    })
    .await?;
    assert!(!directory.exists());
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_when_a_process_with_a_shared_control_plane_ends() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let (mut owner, directory) = start_owner("ends", scratch.path()).await?;
    assert!(owner.wait()?.success());
    wait_for("the end of its processes", DEADLINE, async || {
        check(processes(&directory)?.is_empty())
    })
    .await?;
    assert!(!directory.exists());
    Ok(())
}

fn directory(control_plane: &ControlPlane) -> Result<PathBuf> {
    Ok(control_plane
        .admin_kubeconfig_path()
        .parent()
        .context("directory")?
        .to_owned())
}

/// The command lines of running processes that mention `directory`; the watchers' do as well.
fn processes(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let command = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&directory) {
            found.push(command);
        }
    }
    Ok(found)
}

/// From "issued at" to "expires" in a ServiceAccount token.
fn life(token: &str) -> Result<Duration> {
    use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
    let payload = token.split('.').nth(1).context("a JWT")?;
    let claims: serde_json::Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload)?)?;
    let time = |name| {
        claims
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .context("a time")
    };
    Ok(Duration::from_secs(time("exp")? - time("iat")?))
}
