//! Runs the programs that judge. They read and write JSON, and some are built or downloaded once and cached
//! outside the tree.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::go_module::cache_root;

/// Gives a program one JSON document and takes one.
///
/// # Errors
/// When it can't be started, fails (with what it wrote to standard error), or answers with something else.
pub(crate) fn ask<T: DeserializeOwned>(command: &mut Command, question: &impl Serialize) -> Result<T> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{program} can't be run"))?;
    // The programs read everything before they answer, so neither waits for the other.
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(&serde_json::to_vec(question)?),
        None => Ok(()),
    };
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{program} failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    written.with_context(|| format!("{program} did not read its input"))?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("answer of {program}"))
}

/// Runs a command to its end.
///
/// # Errors
/// When it can't be started or fails, with what it wrote.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} can't be run"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program} failed ({}): {}",
        output.status,
        said.trim_end()
    );
    Ok(())
}

/// The directory `judges/<name>` of the cache; if it isn't there, `make` fills a new one, which is then put
/// in place whole. Of several processes one makes it, the others wait.
///
/// # Errors
/// Those of `make`, or of the file system.
pub(crate) fn cached(name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let judges = cache_root()?.join("judges");
    let target = judges.join(name);
    if target.is_dir() {
        return Ok(target);
    }
    fs::create_dir_all(&judges).with_context(|| judges.display().to_string())?;
    let lock = File::create(judges.join(format!(".{name}.lock")))?;
    lock.lock()?;
    if !target.is_dir() {
        let building = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(&judges)?;
        make(building.path())?;
        fs::rename(building.path(), &target)?;
    }
    Ok(target)
}

/// The program in `e2e/judges/<directory>`, built with the module file `module` (such as `go.mod`), from the
/// cache if its sources are the same.
///
/// # Errors
/// When Go is missing, or the build fails.
pub(crate) fn go_program(directory: &str, module: &str) -> Result<PathBuf> {
    go_program_in(directory, module, &["-ldflags=-s -w"], |_| {
        Ok(go_source(directory))
    })
}

/// As [`go_program`], with these flags of `go build`, in the directory that `place` returns: it is given an
/// empty one that it can fill.
///
/// # Errors
/// Those of `place`; when Go is missing, or the build fails.
pub(crate) fn go_program_in(
    directory: &str,
    module: &str,
    flags: &[&str],
    place: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<PathBuf> {
    let source = go_source(directory);
    let mut files = go_files(&source)?;
    files.extend([source.join(module), source.join(module.replace(".mod", ".sum"))]);
    let mut hash = Sha256::new();
    for path in files {
        hash.update(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    hash.update(flags.join(" "));
    let key: String = hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let variant = module.trim_start_matches("go").trim_end_matches(".mod");
    let cache = cached(&format!("{directory}{variant}-{key}"), |target| {
        eprintln!("building the {directory}{variant} judge from source, once");
        let scratch = tempfile::tempdir()?;
        run(Command::new("go")
            .args(["build", "-buildvcs=false", "-trimpath", "-modfile", module])
            .args(flags)
            .arg("-o")
            .args([&target.join("judge"), Path::new(".")])
            .current_dir(place(scratch.path())?)
            .envs([("CGO_ENABLED", "0"), ("GOWORK", "off")]))
    })?;
    Ok(cache.join("judge"))
}

/// The Go program that renders templates with `text/template` and sprig, for osm-gotemplate-judge.
///
/// # Errors
/// When Go is missing, or the build fails.
pub fn gotemplate_program() -> Result<PathBuf> {
    go_program("gotemplate", "go.mod")
}

/// All Go files, those of modules in folders below included.
fn go_files(source: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "go") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Copies a directory with all that is in it, but for tests of Go packages.
///
/// # Errors
/// Those of the file system.
pub(crate) fn copied(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copied(&path, &target)?;
        } else if !path.as_os_str().as_encoded_bytes().ends_with(b"_test.go") {
            // Not `fs::copy`: files of the module cache are read-only.
            fs::write(&target, fs::read(&path)?)?;
        }
    }
    Ok(())
}

/// A directory of `e2e/judges`.
pub(crate) fn go_source(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)
}
