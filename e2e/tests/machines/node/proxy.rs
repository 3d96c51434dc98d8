//! Machines behind a proxy that wants a password.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_lab::machines;
use osm_lab::serve::programs::Proxy;
use serde_json::{Value, json};

use super::join::run_pod;
use super::scenario_run::{READY, ScenarioRun};

/// Where it is.
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(machines::HOST), 3128);

/// The Secret with its user name and password.
const SECRET: &str = "login";
const USERNAME: &str = "node";
const PASSWORD: &str = "don-t_keep.9fJ2mQx7LrT4vWc8ZpK1sBdH";

/// Everything but the API server is behind a proxy that wants a password.
pub fn proxy(settings: &mut Value) -> Result<()> {
    let settings = settings.as_object_mut().context("settings")?;
    let proxy = json!({"http": format!("http://{PROXY}"), "noProxy": machines::API.to_string(), "credentials": {"name": SECRET}});
    settings.insert("proxy".to_owned(), proxy);
    Ok(())
}

/// Downloads and images come by the proxy alone. Its password is in one file of root, and in the environment
/// of what reads that file.
pub async fn proxy_password(run: &ScenarioRun<'_>) -> Result<()> {
    let encoded = |text: &str| BASE64_STANDARD.encode(text).trim_end_matches('=').to_owned();
    // The password, and how HTTP's basic authentication spells it.
    let login = format!("{USERNAME}:{PASSWORD}");
    for secret in [PASSWORD.to_owned(), encoded(PASSWORD), encoded(&login)] {
        run.conceal_outside_environments(&secret);
    }
    let proxy = Proxy::start(run.environment.lab.directory(), PROXY, USERNAME, PASSWORD)?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": CLOUD_INIT_SETTINGS},
        "stringData": {"username": USERNAME, "password": PASSWORD},
    });
    let control_plane = &run.environment.control_plane;
    control_plane.apply_yaml(&secret.to_string()).await?;
    run.boot().await?;
    run.ready(READY).await?;
    run_pod(run).await?;
    let (mut around, registry) = (run.downloads(), run.environment.registry.requests()?);
    let pulls = registry.iter().filter(|request| request.client == run.address());
    around.extend(pulls.map(|request| request.path.clone()));
    ensure!(
        around.is_empty(),
        "these were fetched without the proxy: {around:?}"
    );
    let proxied = proxy.requests()?;
    for part in [
        "/kubelet",
        "/containerd-static",
        "/runc.",
        "/cni-plugins",
        "/v2/osm/node-test/",
    ] {
        ensure!(
            proxied.iter().any(|request| request.contains(part)),
            "{part} did not come by the proxy: {proxied:?}"
        );
    }
    let mode = run.shell("stat --format=%a:%U /etc/osm/proxy.env")?;
    ensure!(mode.trim() == "600:root", "the file with the password is {mode}");
    let for_everybody = run.shell("cat /etc/environment 2>/dev/null || true")?;
    ensure!(
        !for_everybody.contains("proxy"),
        "/etc/environment has a proxy: {for_everybody}"
    );
    Ok(())
}
