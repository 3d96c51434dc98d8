//! Judges the configuration of the kubelet, for each Kubernetes version, with Kubernetes' own code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::complaint::{Complaints, judge_once};
use crate::containerd::without_places;
use crate::program::{ask, copied, go_program_in, go_source, run};

/// The minor versions that there are judges for.
pub const KUBELET_MINORS: [&str; 5] = ["1.33", "1.34", "1.35", "1.36", "1.37"];

const KUBERNETES: &str = "k8s.io/kubernetes";

/// The package with `ValidateKubeletConfiguration`.
const VALIDATION: &str = "k8s.io/kubernetes/pkg/kubelet/apis/config/validation";

/// The judge itself.
const MAIN: &str = "example.com/operating-system-manager/e2e/judges/kubelet";

/// Packages of which the judge needs one file, without what the others import: four fifths of the code that
/// would be compiled.
const ONE_FILE: [(&str, &str); 2] = [
    ("pkg/kubelet/images/pullmanager", "image_pull_policies.go"),
    ("pkg/kubelet/types", "constants.go"),
];

/// Files of which it needs one constant.
const ONE_CONSTANT: [(&str, &str); 2] = [
    ("pkg/cluster/ports/ports.go", "KubeletPort"),
    ("pkg/kubelet/qos/policy.go", "KubeletOOMScoreAdj"),
];

/// Judges `KubeletConfiguration` documents (name, text) by a Kubernetes version (`1.36`, `v1.36.3`): unknown
/// and duplicate fields, wrong types, unknown feature gates, other values than a locked gate's, and what the
/// kubelet's own validation refuses.
///
/// A text may have drop-ins behind it, in their order, each after a line `---`: each is judged, and all are
/// merged as the kubelet does it.
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
        let answers: Vec<Vec<String>> = ask(&mut Command::new(program(&minor)?), &texts)?;
        Ok(without_places(answers))
    })
}

/// What the kubelet of one of [`KUBELET_MINORS`] complains of in each of these texts, and how often each
/// statement of its validation ran, by the file and the lines of the statement (`validation.go:65-67`), with
/// its source.
///
/// # Errors
/// A version that there is no judge for, or one that can't be built.
pub fn kubelet_validation(minor: &str, texts: &[String]) -> Result<(Vec<Vec<String>>, Vec<Statement>)> {
    let counters = tempfile::tempdir()?;
    let program = program(minor)?;
    let answers = ask(Command::new(program).env("GOCOVERDIR", counters.path()), &texts)?;
    let profile = counters.path().join("profile");
    run(Command::new("go").args(["tool", "covdata", "textfmt"]).args([
        format!("-i={}", counters.path().display()),
        format!("-o={}", profile.display()),
    ]))?;
    let source = kubernetes(minor)?.join(VALIDATION.trim_start_matches(KUBERNETES).trim_start_matches('/'));
    let mut files = BTreeMap::new();
    let mut statements = Vec::new();
    let lines = fs::read_to_string(&profile)?;
    for line in lines.lines().filter(|line| line.starts_with(VALIDATION)) {
        // k8s.io/…/validation.go:65.41,67.3 1 23
        let statement = line.strip_prefix(VALIDATION).and_then(|line| {
            let (file, rest) = line.trim_start_matches('/').split_once(':')?;
            let (range, counts) = rest.split_once(' ')?;
            let number = |place: &str| place.split('.').next()?.parse::<usize>().ok();
            let (first, last) = range.split_once(',')?;
            Some((
                file,
                number(first)?,
                number(last)?,
                counts.rsplit(' ').next()?.parse().ok()?,
            ))
        });
        let (file, first, last, count) = statement.with_context(|| line.to_owned())?;
        let text = match files.get(file) {
            Some(text) => text,
            None => files
                .entry(file)
                .or_insert(fs::read_to_string(source.join(file))?),
        };
        let lines = text.lines().skip(first - 1).take(last + 1 - first);
        statements.push(Statement {
            place: format!("{file}:{first}-{last}"),
            source: lines.collect::<Vec<_>>().join("\n"),
            count,
        });
    }
    Ok((answers, statements))
}

/// A statement of Kubernetes' validation.
#[derive(Debug)]
pub struct Statement {
    pub place: String,
    pub source: String,
    /// How often it ran.
    pub count: usize,
}

/// The fields of `KubeletConfiguration` in one of [`KUBELET_MINORS`], and of everything in it, each as
/// `Struct.field type`.
///
/// # Errors
/// A version that there is no judge for, or one that can't be built.
pub fn kubelet_fields(minor: &str) -> Result<Vec<String>> {
    ask(Command::new(program(minor)?).arg("fields"), &())
}

/// The feature gates that a kubelet of one of [`KUBELET_MINORS`] knows, each as `Name stage on` or `Name
/// stage off`, with `locked` and `needs=Name` behind it where that is so.
///
/// # Errors
/// A version that there is no judge for, or one that can't be built.
pub fn kubelet_feature_gates(minor: &str) -> Result<Vec<String>> {
    ask(Command::new(program(minor)?).arg("gates"), &())
}

fn program(minor: &str) -> Result<PathBuf> {
    ensure!(KUBELET_MINORS.contains(&minor), "no judge for this version");
    let module = format!("go-{minor}.mod");
    let (major, number) = minor.split_once('.').unwrap_or_default();
    // Some rules are about the version that the kubelet has.
    let version = "k8s.io/component-base/version";
    let linker = format!(
        "-ldflags=-s -w -X {version}.gitVersion=v{minor}.0 -X {version}.gitMajor={major} -X {version}.gitMinor={number}"
    );
    // Nothing is counted where the program itself is not.
    let counted = format!("-coverpkg={VALIDATION},{MAIN}");
    go_program_in(
        "kubelet",
        &module,
        &[&linker, "-cover", "-covermode=count", &counted],
        |place| {
            copied(&go_source("kubelet"), place)?;
            cut(&kubernetes(minor)?, &place.join("kubernetes"))?;
            let path = place.join(&module);
            let text = fs::read_to_string(&path)?;
            fs::write(&path, format!("{text}\nreplace {KUBERNETES} => ./kubernetes\n"))?;
            Ok(place.to_owned())
        },
    )
}

/// The source of Kubernetes in Go's module cache.
fn kubernetes(minor: &str) -> Result<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Module {
        dir: PathBuf,
    }
    let module = format!("go-{minor}.mod");
    let mut download = Command::new("go");
    download
        .args(["mod", "download", "-json", "-modfile", &module, KUBERNETES])
        .current_dir(go_source("kubelet"))
        .env("GOWORK", "off");
    let Module { dir } = ask(&mut download, &())?;
    Ok(dir)
}

/// Copies what the judge needs of Kubernetes.
fn cut(kubernetes: &Path, to: &Path) -> Result<()> {
    copied(&kubernetes.join("pkg"), &to.join("pkg"))?;
    fs::write(to.join("go.mod"), fs::read(kubernetes.join("go.mod"))?)?;
    for (package, kept) in ONE_FILE {
        for entry in fs::read_dir(to.join(package))? {
            let path = entry?.path();
            if path.is_file() && !path.ends_with(kept) {
                fs::remove_file(path)?;
            }
        }
    }
    for (file, constant) in ONE_CONSTANT {
        let path = to.join(file);
        let text = fs::read_to_string(&path)?;
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{constant} ")));
        let line = line.with_context(|| format!("no {constant} in {file}"))?;
        let package = text
            .lines()
            .find(|line| line.starts_with("package "))
            .unwrap_or_default();
        for entry in fs::read_dir(path.parent().unwrap_or(to))? {
            let other = entry?.path();
            if other.is_file() {
                fs::remove_file(other)?;
            }
        }
        fs::write(&path, format!("{package}\n\nconst {}\n", line.trim()))?;
    }
    Ok(())
}
