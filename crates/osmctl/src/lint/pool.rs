//! Checks pools for problems besides their rendering: what they need together, and what the settings do not
//! allow them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use osm_api::config::LateBoundKind;
use osm_api::node_name;
use osm_api::{MachineDeployment, PoolRef, Reason, Settings, pool};

use crate::input::{Item, SettingsDocument};
use crate::pools::{RenderedPool, Selected};
use crate::problem::Problem;

/// Pools that need the same name, and those beyond the limit of the settings. Which of two is older, only the
/// cluster knows.
pub fn check_together(items: &[Item<MachineDeployment>], settings: &Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut taken: BTreeMap<(Reason, String), PoolRef> = BTreeMap::new();
    for item in items {
        let pool = PoolRef::from(&item.value);
        let cloud = pool::cloud_provider(&item.value);
        let is_node =
            cloud.is_some_and(|cloud| node_name::source(cloud) == node_name::Source::MachineDeployment);
        let node = is_node.then(|| (Reason::MachineNotUnique, pool.name.clone()));
        for claim in [(Reason::NameCollision, pool.config_name())]
            .into_iter()
            .chain(node)
        {
            let reason = claim.0;
            match taken.entry(claim) {
                Entry::Vacant(free) => {
                    free.insert(pool.clone());
                }
                // Manifests may leave namespaces out. Then the two can be one.
                Entry::Occupied(other) if is_other(&pool, other.get()) => {
                    let what = match reason {
                        Reason::NameCollision => "its bootstrap Secret has the name of that",
                        _ => "its node has the name of the node",
                    };
                    let message = format!(
                        "MachineDeployment {pool}: {what} of MachineDeployment {}; create one of the two under another name",
                        other.get()
                    );
                    let place = item.origin.place("metadata.name");
                    problems.push(Problem::error(reason.as_str(), place, message));
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    let most = settings.limits.machine_deployments;
    let first_beyond = usize::try_from(most).ok().and_then(|most| items.get(most));
    problems.extend(first_beyond.map(|item| {
        let message = format!(
            "there are {} MachineDeployments, but limits.machineDeployments in the settings allows {most}; raise the limit",
            items.len()
        );
        let reason = Reason::TooManyMachineDeployments;
        Problem::error(reason.as_str(), item.origin.place("metadata.name"), message)
    }));
    problems
}

fn is_other(pool: &PoolRef, other: &PoolRef) -> bool {
    let have_namespaces = !pool.namespace.is_empty() && !other.namespace.is_empty();
    have_namespaces && (&pool.namespace, &pool.name) != (&other.namespace, &other.name)
}

/// Objects of one kind with one name: the later one replaces the earlier when both are applied.
pub fn check_twice<T: ResourceExt>(items: &[Item<T>]) -> Vec<Problem> {
    let mut first: BTreeMap<_, &Item<T>> = BTreeMap::new();
    let mut problems = Vec::new();
    for item in items {
        let (kind, name) = (item.origin.written("kind"), item.value.name_any());
        let known = *first
            .entry((kind, item.value.namespace(), name.clone()))
            .or_insert(item);
        if !std::ptr::eq(known, item) {
            let message = format!(
                "{} {name}: there is another one of this name at {}, which this one would replace; remove one, or rename it",
                kind.unwrap_or_default(),
                known.origin.place("metadata.name")
            );
            problems.push(Problem::warning(
                "same-name",
                item.origin.place("metadata.name"),
                message,
            ));
        }
    }
    problems
}

/// Checksums of kubelets that no pool has.
pub fn check_checksums(pools: &[Selected], settings: &[Item<SettingsDocument>]) -> Vec<Problem> {
    let versions: BTreeSet<String> = pools
        .iter()
        .map(|one| one.pool.kubelet_version.to_string())
        .collect();
    let mut problems = Vec::new();
    for item in settings.iter().filter(|_| !pools.is_empty()) {
        let pinned = item.value.settings.downloads.kubelet.sha256.keys();
        for version in pinned.filter(|version| !versions.contains(*version)) {
            let message = format!(
                "the settings' downloads.kubelet.sha256 pins {version}, but no MachineDeployment here has this kubelet; correct the version, or \
                 remove it"
            );
            problems.push(Problem::warning("unused-checksum", item.origin.start(), message));
        }
    }
    problems
}

/// Objects that a pool or its profile refers to although the settings of the installation do not allow it.
pub fn check_sources(pool: &RenderedPool, settings: &Settings) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for late in &pool.config.late_bound_values {
        let Some(source) = late.source.as_ref() else {
            continue;
        };
        // A MachineDeployment refers to its own fields without asking.
        let is_own = late.kind == LateBoundKind::OperatingSystemSpecField;
        if is_own || settings.allow(late.kind, source) {
            continue;
        }
        let (kind, list) = match late.kind {
            LateBoundKind::ConfigMapKey => ("ConfigMap", "credentials.allowedSources"),
            LateBoundKind::ProfileSecretKey => ("Secret", "credentials.profileSecrets"),
            _ => ("Secret", "credentials.allowedSources"),
        };
        let message = format!(
            "MachineDeployment {}: {}: {kind} {}/{} is not listed in the settings' {list}; add it there",
            pool.pool_ref.name, late.id, source.namespace, source.name
        );
        let problem = Problem::error(Reason::SourceNotAllowed.as_str(), pool.place.clone(), message);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}
