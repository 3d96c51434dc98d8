//! Environments whose settings differ from those of docs/air-gap.md.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_lab::machines;
use osm_lab::serve::files::Fault;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::join::{run_pod, run_pod_of};
use super::scenario_run::{READY, SAID, SET_UP, ScenarioRun};
use crate::e2e::environment::{PASSWORD, PRIVATE_IMAGE, PRIVATE_REGISTRY, PROXY, USERNAME};

/// No checksum is pinned.
pub fn no_checksums(settings: &mut Value) -> Result<()> {
    let downloads = settings
        .get_mut("downloads")
        .and_then(Value::as_object_mut)
        .context("downloads")?;
    for (name, program) in downloads {
        let removed = program
            .as_object_mut()
            .and_then(|program| program.remove("sha256"));
        ensure!(removed.is_some(), "no checksum of {name} was pinned");
    }
    Ok(())
}

/// All kubelets come with the crictl that the mirror has.
pub fn one_crictl(settings: &mut Value) -> Result<()> {
    let crictl = settings
        .pointer_mut("/downloads/crictl")
        .and_then(Value::as_object_mut)
        .context("downloads.crictl")?;
    let pinned = crictl
        .get("sha256")
        .and_then(Value::as_object)
        .and_then(|versions| versions.keys().next());
    let version = pinned.context("the mirror has no crictl")?.clone();
    crictl.insert("version".to_owned(), version.into());
    Ok(())
}

/// The machine believes the checksum files of the mirror, and each of its own format. One is damaged at first.
pub async fn checksum_files(run: &ScenarioRun<'_>) -> Result<()> {
    let damaged = "/kubelet.sha256";
    run.environment
        .mirror
        .fault(run.address(), damaged, Fault::FlippedBit);
    run.boot().await?;
    let line = run.console_says("osm-setup: no kubelet yet", SAID).await?;
    ensure!(line.contains("checksum"), "the console does not say why: {line}");
    run.has_not_joined(SET_UP).await?;
    run.environment.mirror.mend_path(run.address(), damaged);
    run.ready(READY).await?;
    let downloads = run.downloads()?;
    let fetched: BTreeSet<&str> = downloads
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .collect();
    for (archive, file) in [
        ("kubelet", "kubelet.sha256"),
        ("containerd-static-", ".sha256sum"),
        ("runc.", "runc.sha256sum"),
        ("cni-plugins-", ".sha256"),
    ] {
        let of_archive = fetched.iter().filter(|name| name.starts_with(archive));
        let (sums, archives): (Vec<&str>, Vec<&str>) = of_archive.partition(|name| name.ends_with(file));
        ensure!(
            (sums.len(), archives.len()) == (1, 1),
            "of {archive} are downloaded {sums:?}, {archives:?}"
        );
    }
    Ok(())
}

/// Holds the login of the private registry, and of the proxy.
const SECRET: &str = "login";

/// A registry that wants a password.
pub fn private_registry(settings: &mut Value) -> Result<()> {
    let registries = settings
        .pointer_mut("/containerd/registries")
        .and_then(Value::as_array_mut);
    let registries = registries.context("registries")?;
    let host = PRIVATE_IMAGE.split('/').next();
    registries.push(json!({"host": host, "mirrors": [{"url": format!("http://{PRIVATE_REGISTRY}")}]}));
    registries.push(json!({"host": PRIVATE_REGISTRY.to_string(), "credentials": {"name": SECRET}}));
    Ok(())
}

/// The password is given to the registry, and seen by nobody else.
pub async fn registry_password(run: &ScenarioRun<'_>) -> Result<()> {
    for secret in spellings_of_the_password() {
        run.conceal(&secret);
    }
    create_login(run).await?;
    run.boot().await?;
    run.ready(READY).await?;
    run_pod_of(run, PRIVATE_IMAGE).await?;
    let requests = run.environment.private_registry.requests();
    let statuses: BTreeSet<u16> = requests
        .iter()
        .filter(|request| request.client == run.address())
        .map(|request| request.status)
        .collect();
    ensure!(
        statuses == [200, 401].into(),
        "the registry has not asked for the password: {statuses:?}"
    );
    let mode = run.shell("stat --format=%a /etc/containerd/config.toml")?;
    ensure!(mode.trim() == "600", "the file with the password has mode {mode}");
    is_nowhere_in_the_cluster(run).await
}

/// The password, and how HTTP's basic authentication and a URL spell it.
fn spellings_of_the_password() -> [String; 4] {
    let encoded = |text: &str| BASE64_STANDARD.encode(text).trim_end_matches('=').to_owned();
    [
        PASSWORD.to_owned(),
        encoded(PASSWORD),
        encoded(&format!("{USERNAME}:{PASSWORD}")),
        utf8_percent_encode(PASSWORD, NON_ALPHANUMERIC).to_string(),
    ]
}

async fn create_login(run: &ScenarioRun<'_>) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": CLOUD_INIT_SETTINGS},
        "stringData": {"username": USERNAME, "password": PASSWORD},
    });
    run.environment
        .control_plane
        .apply_yaml(&secret.to_string())
        .await
        .map(drop)
}

/// Everything but the API server is behind a proxy that wants a password.
pub fn proxy(settings: &mut Value) -> Result<()> {
    let settings = settings.as_object_mut().context("settings")?;
    let proxy = json!({"http": format!("http://{PROXY}"), "noProxy": machines::API.to_string(), "credentials": {"name": SECRET}});
    settings.insert("proxy".to_owned(), proxy);
    Ok(())
}

/// Downloads and images come by the proxy alone. Its password is in one file of root, and in the environment of what reads that file.
pub async fn proxy_password(run: &ScenarioRun<'_>) -> Result<()> {
    for secret in spellings_of_the_password() {
        run.conceal_outside_environments(&secret);
    }
    create_login(run).await?;
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    let [mirror, registry] = [
        run.environment.mirror.requests(),
        run.environment.registry.requests(),
    ];
    let around: Vec<&str> = mirror
        .iter()
        .chain(&registry)
        .filter(|request| request.client == run.address())
        .map(|request| request.path.as_str())
        .collect();
    ensure!(
        around.is_empty(),
        "these were fetched without the proxy: {around:?}"
    );
    let proxied = run.environment.proxy.requests();
    for part in [
        "/kubelet",
        "/containerd-static",
        "/runc.",
        "/cni-plugins",
        "/v2/osm/node-test/",
    ] {
        let came = proxied.iter().any(|request| {
            request.client == run.address() && request.path.contains(part) && request.status == 200
        });
        ensure!(came, "{part} did not come by the proxy: {proxied:?}");
    }
    let mode = run.shell("stat --format=%a:%U /etc/osm/proxy.env")?;
    ensure!(mode.trim() == "600:root", "the file with the password is {mode}");
    let for_everybody = run.shell("cat /etc/environment 2>/dev/null || true")?;
    ensure!(
        !for_everybody.contains("proxy"),
        "/etc/environment has a proxy: {for_everybody}"
    );
    is_nowhere_in_the_cluster(run).await
}

/// In no object but Secrets, and in no log of a service or of the control plane.
async fn is_nowhere_in_the_cluster(run: &ScenarioRun<'_>) -> Result<()> {
    let secrets = run
        .environment
        .kubectl(&["get", "secrets", "--all-namespaces", "--output=yaml"])
        .await?;
    ensure!(
        !run.leaks("", &secrets).is_empty(),
        "not even Secrets show the password: this looks for another"
    );
    let kinds = run
        .environment
        .kubectl(&["api-resources", "--verbs=list", "--output=name"])
        .await?;
    let kinds: Vec<&str> = kinds.lines().filter(|kind| *kind != "secrets").collect();
    ensure!(
        kinds
            .iter()
            .any(|kind| kind.starts_with("operatingsystemconfigs."))
            && kinds.contains(&"events"),
        "these are not all kinds: {kinds:?}"
    );
    let objects = run
        .environment
        .kubectl(&["get", &kinds.join(","), "--all-namespaces", "--output=yaml"])
        .await?;
    let mut found = run.leaks("objects", &objects);
    for (log, text) in run.environment.logs()? {
        found.extend(run.leaks(&log, &text));
    }
    ensure!(
        found.is_empty(),
        "the password can be read in:\n    {}",
        found.join("\n    ")
    );
    Ok(())
}
