//! The services accept the arguments that the chart gives them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use osm_testkit::helm::{Helm, ci_values};
use osm_testkit::installation;
use osm_testkit::process::ScratchDir;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

const DEADLINE: Duration = Duration::from_secs(180);

/// Who is content with the flags looks for a kubeconfig, which is not there, and says so.
#[tokio::test]
async fn every_program_takes_the_arguments_that_are_rendered() -> Result<()> {
    let (helm, binaries) = (Helm::without_cluster().await?, installation::binaries()?);
    let folder = ScratchDir::new("osm-flags-")?;
    let missing = folder.path().join("kubeconfig");
    let mut taken = 0;
    for values in ci_values()? {
        let objects = helm
            .template("one", "osm", &["--values", &values.display().to_string()])
            .await?;
        let pods = objects
            .iter()
            .map(|object| &object["spec"]["template"]["spec"]["containers"]);
        for container in pods.filter_map(Value::as_array).flatten() {
            let program = binaries.join(program(container)?);
            let found = tokio::time::timeout(DEADLINE, misses(&program, &missing, container));
            found
                .await
                .with_context(|| format!("{container} says nothing"))??;
            taken += 1;
        }
    }
    assert!(taken >= 8, "{taken}");
    Ok(())
}

/// Of image `registry/of/program:tag`.
fn program(container: &Value) -> Result<&str> {
    let image = container["image"]
        .as_str()
        .and_then(|image| image.rsplit('/').next())
        .context("an image")?;
    image.split([':', '@']).next().context("a name")
}

/// Waits until it misses its kubeconfig.
async fn misses(program: &Path, kubeconfig: &Path, container: &Value) -> Result<()> {
    let mut command = tokio::process::Command::new(program);
    command
        .env_clear()
        .kill_on_drop(true)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["--listen", "127.0.0.1:0"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // A service of the worker cluster alone has its kubeconfig as an argument.
    let arguments = container["args"].as_array().into_iter().flatten();
    for argument in arguments.filter(|argument| {
        !argument
            .as_str()
            .is_some_and(|text| text.starts_with("--kubeconfig="))
    }) {
        command.arg(argument.as_str().context("an argument that is no text")?);
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        command.env(variable["name"].as_str().context("a variable")?, "one");
    }
    let mut child = command.spawn()?;
    let mut lines = BufReader::new(child.stderr.take().context("stderr")?).lines();
    let (mut said, wanted) = (String::new(), format!("--kubeconfig {}", kubeconfig.display()));
    while let Some(line) = lines.next_line().await? {
        if line.contains(&wanted) {
            return Ok(());
        }
        said += &line;
    }
    bail!("{container} ends ({}): {said}", child.wait().await?)
}
