//! The services take the arguments that the chart gives them.

use anyhow::{Context, Result, ensure};
use osm_testkit::helm::{Helm, ci_values};
use osm_testkit::installation;
use osm_testkit::process::ScratchDir;
use serde_json::Value;

/// Who is content with the flags looks for a kubeconfig, which is not there.
#[tokio::test]
async fn every_program_takes_the_arguments_that_are_rendered() -> Result<()> {
    let (helm, binaries) = (Helm::without_cluster().await?, installation::binaries()?);
    let folder = ScratchDir::new("osm-flags-")?;
    let missing = folder.path().join("kubeconfig");
    let mut taken = 0;
    for values in ci_values()? {
        let objects = helm.template("one", "osm", &["--values", &values.display().to_string()]).await?;
        let pods = objects.iter().map(|object| &object["spec"]["template"]["spec"]["containers"]);
        for container in pods.filter_map(Value::as_array).flatten() {
            let said = refusal(&binaries.join(program(container)?), &missing, container).await?;
            ensure!(said.contains("kubeconfig"), "{container}: {said}");
            taken += 1;
        }
    }
    assert!(taken >= 9, "{taken}");
    Ok(())
}

/// Of image `registry/of/program:tag`.
fn program(container: &Value) -> Result<&str> {
    let image = container["image"].as_str().and_then(|image| image.rsplit('/').next()).context("an image")?;
    image.split([':', '@']).next().context("a name")
}

/// What it says at its end, which is not about flags: that has a code of its own.
async fn refusal(
    program: &std::path::Path,
    kubeconfig: &std::path::Path,
    container: &Value,
) -> Result<String> {
    let mut command = tokio::process::Command::new(program);
    command.env_clear().kill_on_drop(true).arg("--kubeconfig").arg(kubeconfig);
    for argument in container["args"].as_array().into_iter().flatten() {
        command.arg(argument.as_str().context("an argument that is no text")?);
    }
    for variable in container["env"].as_array().into_iter().flatten() {
        command.env(variable["name"].as_str().context("a variable")?, "one");
    }
    let output = tokio::time::timeout(std::time::Duration::from_secs(60), command.output())
        .await
        .with_context(|| format!("{container}: it runs"))??;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{}: {said}", output.status);
    Ok(said)
}
