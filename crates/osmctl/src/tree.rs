//! The tree of files that the machines of pools would have, in memory and in a folder.
//!
//! ```text
//! FOLDER/osmctl.json                          what osmctl wrote, so that it replaces nothing else
//! FOLDER/NAMESPACE/POOL/bootstrap.yaml        modes, units, and everything of the document that is no file
//! FOLDER/NAMESPACE/POOL/bootstrap/etc/…       files at their paths on the machine
//! FOLDER/NAMESPACE/POOL/provisioning…         the same for the second document
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use osm_user_data::{MachineStage, Stage, yaml};
use serde_json::{Map, Value, json};

use crate::pools::RenderedPool;

/// Name of the file that lists what osmctl wrote.
const MARKER: &str = "osmctl.json";

/// Version of the layout. A folder with another one is left alone.
const FORMAT: u64 = 1;

/// A file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub text: String,
    /// Mode bits. They are not read back, because version control keeps few of them; the overviews list them.
    mode: u32,
}

/// Files by their paths inside the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, Entry>);

/// One of the two documents of a pool, as flags name it.
#[derive(Clone, Copy, ValueEnum)]
pub enum StageName {
    /// The user data that the cloud provides to a new machine
    Bootstrap,
    /// The document that the machine then fetches and applies
    Provisioning,
}

impl From<StageName> for Stage {
    fn from(stage: StageName) -> Self {
        match stage {
            StageName::Bootstrap => Self::Bootstrap,
            StageName::Provisioning => Self::Provisioning,
        }
    }
}

/// Name of a stage in paths.
pub fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Bootstrap => "bootstrap",
        Stage::Provisioning => "provisioning",
    }
}

impl Tree {
    /// What the machines of pools would have.
    ///
    /// # Errors
    /// A pool whose name is not a valid object name, or that occurs twice; a document that can't be written.
    pub fn of(pools: &[RenderedPool], stages: &[Stage]) -> Result<Self> {
        let mut tree = Self::default();
        for pool in pools {
            for stage in stages {
                let pool_folder = pool_folder(&pool.pool_ref.namespace, &pool.pool_ref.name)?;
                if !tree.add(&pool_folder, *stage, pool.machine(*stage)?)? {
                    bail!("the inputs contain MachineDeployment {pool_folder} twice; remove one of the two");
                }
            }
        }
        Ok(tree)
    }

    /// Adds what a stage puts on the machines of a pool, below `folder`. Returns whether the stage is new.
    ///
    /// # Errors
    /// A document that can't be written.
    pub fn add(&mut self, folder: &str, stage: Stage, machine: MachineStage) -> Result<bool> {
        let top = format!("{folder}/{}", stage_name(stage));
        let overview = Entry {
            text: yaml::write(&overview(&machine)).map_err(anyhow::Error::msg)?,
            mode: 0o644,
        };
        let is_new = self.0.insert(format!("{top}.yaml"), overview).is_none();
        for file in machine.files {
            // The owner can always read it, or the folder could not be compared.
            let mode = u32::from_str_radix(&file.mode, 8).unwrap_or(0o644) & 0o777 | 0o400;
            let entry = Entry {
                text: file.text,
                mode,
            };
            self.0.insert(format!("{top}{}", file.path), entry);
        }
        Ok(is_new)
    }

    /// Writes the tree. It replaces what osmctl wrote to the folder before, and nothing else.
    ///
    /// # Errors
    /// A folder with files that osmctl did not write, and whatever the file system refuses.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let shown = folder.display();
        fs::create_dir_all(folder).with_context(|| format!("cannot create {shown}; check the path"))?;
        let folder = &folder
            .canonicalize()
            .with_context(|| format!("cannot open {shown}"))?;
        let found = found_in(folder)?;
        let known = marker(folder)?;
        let foreign = found
            .iter()
            .find(|path| *path != MARKER && !known.contains(*path));
        if let Some(path) = foreign {
            bail!("{shown} contains {path}, which osmctl did not write; name an empty or new folder");
        }
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                // The old list stays until the new one replaces it.
                false if path.ends_with(MARKER) => Ok(()),
                false => fs::remove_file(&path),
            };
            removed.with_context(|| format!("cannot remove {}", path.display()))?;
        }
        // The list comes first, so that what is interrupted can be repeated.
        let files: Vec<&String> = self.0.keys().collect();
        let marker = format!("{:#}\n", json!({"format": FORMAT, "files": files}));
        fs::write(folder.join(MARKER), marker).with_context(|| format!("cannot write to {shown}"))?;
        for (path, entry) in &self.0 {
            let target = below(folder, path)?;
            let failed = || format!("cannot write {}", target.display());
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).with_context(failed)?;
            }
            // A new file, so that no symbolic link is followed.
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&target)
                .with_context(failed)?;
            file.write_all(entry.text.as_bytes()).with_context(failed)?;
            file.set_permissions(fs::Permissions::from_mode(entry.mode))
                .with_context(failed)?;
        }
        Ok(())
    }

    /// Reads a folder that [`Self::write`] wrote; `None` if it did not.
    ///
    /// # Errors
    /// A folder that can't be read, or holds what osmctl does not write.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        if !folder.join(MARKER).is_file() {
            return Ok(None);
        }
        let mut tree = Self::default();
        for path in found_in(folder)?.into_iter().filter(|path| path != MARKER) {
            let source = folder.join(&path);
            let failed = || format!("cannot read {}", source.display());
            let text = fs::read(&source).with_context(failed)?;
            let entry = Entry {
                text: String::from_utf8_lossy(&text).into_owned(),
                mode: 0o644,
            };
            tree.0.insert(path, entry);
        }
        Ok(Some(tree))
    }
}

/// The folder of a pool. The API server, and what reads inputs, accept no names that lead out of it.
///
/// # Errors
/// A pool without a name or a namespace.
pub fn pool_folder(namespace: &str, name: &str) -> Result<String> {
    if namespace.is_empty() || name.is_empty() {
        bail!("a MachineDeployment needs a metadata.name and a metadata.namespace; add them");
    }
    Ok(format!("{namespace}/{name}"))
}

/// What a document contains besides the texts of files.
pub fn overview(machine: &MachineStage) -> Value {
    let modes: Map<String, Value> = machine
        .files
        .iter()
        .map(|file| (file.path.clone(), json!(file.mode)))
        .collect();
    let units: Map<String, Value> = machine
        .units
        .iter()
        .map(|unit| {
            let is_masked = unit.mask == Some(true);
            let state = if is_masked { "masked" } else { "enabled" };
            (unit.name.clone(), json!(state))
        })
        .collect();
    json!({"modes": modes, "units": units, "other": machine.other})
}

/// `path` below `folder`, if it does not lead out of it.
fn below(folder: &Path, path: &str) -> Result<PathBuf> {
    let relative = Path::new(path);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        bail!("{path} leads out of the folder; correct the path of the file in the profile");
    }
    Ok(folder.join(relative))
}

/// Paths of all files in a folder. Symbolic links are refused, because what is behind them is not in the
/// folder.
fn found_in(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut left = vec![folder.to_owned()];
    while let Some(current) = left.pop() {
        let failed = || format!("cannot read {}", current.display());
        for entry in fs::read_dir(&current).with_context(failed)? {
            let path = entry.with_context(failed)?.path();
            let kind = fs::symlink_metadata(&path).with_context(failed)?.file_type();
            if kind.is_dir() {
                left.push(path);
                continue;
            }
            let relative = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
            if !kind.is_file() {
                bail!(
                    "{} contains {relative}, which isn't a regular file; remove it",
                    folder.display()
                );
            }
            found.insert(relative);
        }
    }
    Ok(found)
}

/// The files that osmctl wrote to a folder.
fn marker(folder: &Path) -> Result<BTreeSet<String>> {
    let path = folder.join(MARKER);
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(BTreeSet::new());
    };
    let wrong = || {
        format!(
            "{} is not the list that osmctl wrote; remove the folder",
            path.display()
        )
    };
    let marker: Value = serde_json::from_str(&text).with_context(wrong)?;
    if marker.get("format").and_then(Value::as_u64) != Some(FORMAT) {
        bail!(
            "{} was written by another version of osmctl; remove the folder",
            folder.display()
        );
    }
    let files = marker
        .get("files")
        .and_then(Value::as_array)
        .with_context(wrong)?;
    Ok(files
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect())
}
