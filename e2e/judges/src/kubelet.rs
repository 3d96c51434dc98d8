//! Judges the configuration file of the kubelet, for each Kubernetes version.

use std::process::Command;

use anyhow::{Context, Result};

use crate::complaint::{Complaints, judge_once};
use crate::containerd::without_places;
use crate::program::{ask, go_program, go_source};

/// The minor versions that there are judges for.
pub const KUBELET_MINORS: [&str; 4] = ["1.33", "1.34", "1.35", "1.36"];

/// Judges `KubeletConfiguration` documents (name, text) by the types of a Kubernetes version (`1.36`, `v1.36.3`): unknown and duplicate fields, wrong types,
/// unknown feature gates and other values than a locked gate's are refused. The kubelet's own validation of values is not run.
///
/// A text may have drop-ins behind it, in their order, each after a line `---`: each is judged, and all are merged as the kubelet does it.
///
/// # Errors
/// What is wrong with them; a version that is not one of [`KUBELET_MINORS`].
pub fn kubelet_configs(documents: &[(&str, &str)], version: &str) -> Result<(), Complaints> {
    let judge = format!("kubelet configuration for {version}");
    judge_once(&judge, documents, |texts| {
        let mut parts = version.trim_start_matches('v').splitn(3, '.');
        let minor = format!(
            "{}.{}",
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default()
        );
        KUBELET_MINORS
            .contains(&minor.as_str())
            .then_some(())
            .context("no judge for this version")?;
        let gates = go_source("kubelet").join(format!("feature-gates/{minor}.txt"));
        let program = go_program("kubelet", &format!("go-{minor}.mod"))?;
        let answers: Vec<Vec<String>> = ask(Command::new(program).arg(gates), &texts)?;
        Ok(without_places(answers))
    })
}

/// The fields of `KubeletConfiguration` in one of [`KUBELET_MINORS`], and of everything in it, each as `Struct.field type`.
///
/// # Errors
/// A version that there is no judge for, or one that can't be built.
pub fn kubelet_fields(minor: &str) -> Result<Vec<String>> {
    let program = go_program("kubelet", &format!("go-{minor}.mod"))?;
    ask(Command::new(program).arg("fields"), &())
}

/// The feature gates that a kubelet of one of [`KUBELET_MINORS`] knows, each as `Name`, or `Name value` where it is locked to one.
///
/// # Errors
/// A version that there is no program for, or one that can't be built.
pub fn kubelet_feature_gates(minor: &str) -> Result<Vec<String>> {
    ask(
        &mut Command::new(go_program("feature-gates", &format!("go-{minor}.mod"))?),
        &(),
    )
}
