//! The control groups of a machine, one in each hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// Groups below those of this process. Removed when dropped.
#[derive(Debug)]
pub(super) struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    /// Makes the groups `name`.
    pub(super) fn create(name: &str) -> Result<Self> {
        let mut groups = Self(Vec::new());
        for (controllers, parent) in own_groups()? {
            let group = parent.join(name);
            fs::create_dir_all(&group).with_context(|| group.display().to_string())?;
            groups.0.push(group.clone());
            if controllers == "cpuset" {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(group.join(file), fs::read(parent.join(file))?)?;
                }
            }
        }
        Ok(groups)
    }

    /// The files to which a process writes its id in order to move in.
    pub(super) fn entrances(&self) -> impl Iterator<Item = String> {
        self.0
            .iter()
            .map(|group| group.join("cgroup.procs").display().to_string())
    }
}

/// The groups of this process, with their controllers. Read as a whole, because the list changes with every move.
fn own_groups() -> Result<Vec<(String, PathBuf)>> {
    let text = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
    let groups = text.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        Some((
            controllers.to_owned(),
            mount_point(controllers).join(path.trim_start_matches('/')),
        ))
    });
    // Not every hierarchy is mounted.
    Ok(groups.filter(|(_, path)| path.is_dir()).collect())
}

fn mount_point(controllers: &str) -> PathBuf {
    let root = Path::new(ROOT);
    match controllers {
        "" if root.join("unified").is_dir() => root.join("unified"),
        "" => root.to_owned(),
        _ => root.join(controllers.trim_start_matches("name=")),
    }
}

/// Removes a group with all below it, as far as no process is in them. From the leaves up, without their files, which can't be removed.
pub(super) fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// Groups whose names begin so, in every hierarchy.
pub(super) fn starting_with(prefix: &str) -> Vec<(String, PathBuf)> {
    let parents = own_groups().unwrap_or_default();
    let children = parents
        .iter()
        .flat_map(|(_, parent)| fs::read_dir(parent))
        .flatten()
        .flatten();
    let named = children.map(|child| (child.file_name().to_string_lossy().into_owned(), child.path()));
    named.filter(|(name, _)| name.starts_with(prefix)).collect()
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for group in &self.0 {
            remove(group);
        }
    }
}
