//! A cluster as it is, and as it would be with new inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context as _, Result, anyhow, bail};
use futures::{StreamExt, stream};
use kube::ResourceExt;
use osm_api::pool::Pool;
use osm_api::{MachineDeployment, OperatingSystemProfile, PoolRef, Reason, Settings};
use osm_user_data::Stage;

use super::Sides;
use crate::cluster::{self, AT_ONCE, Flags, Needs, Seed};
use crate::credentials;
use crate::difference::{self, Difference};
use crate::input::{self, Item, Manifests, SettingsMap};
use crate::origin::Origin;
use crate::output;
use crate::pools::{self, RenderedPool};
use crate::problem::{Place, Problem, Problems};
use crate::profiles::Chosen;
use crate::snapshot::{self, Part, Snapshot};
use crate::tree::Tree;

const NEEDS: Needs = Needs {
    profiles: true,
    custom_profiles: false,
    settings: true,
    endpoint: true,
    events: false,
    identity: false,
    nodes: false,
    services: false,
};

/// Reads a cluster, and renders its pools with what the `paths` contain.
///
/// # Errors
/// A cluster or inputs that can't be read. Pools that can't be rendered are reported on standard error.
pub fn sides(flags: &Flags, paths: &[PathBuf], settings: Option<&Path>, only: &[String]) -> Result<Sides> {
    let new = input::manifests(paths)?;
    let snapshot = cluster::read(flags, NEEDS)?;
    snapshot.warn();
    let settings = installation_settings(&snapshot, &new, settings)?;
    let comparison = compare(&snapshot, &new, &settings, only)?;
    for problem in &comparison.problems {
        output::note(&format!("{problem:#}"));
    }
    Ok(Sides {
        is_incomplete: !comparison.problems.is_empty() || !snapshot.unread.is_empty(),
        old: comparison.old,
        new: comparison.new,
    })
}

const COLUMNS: [&str; 4] = ["NAMESPACE", "POOLS", "CHANGED", "PROBLEMS"];

/// Reads the user clusters of a seed, and prints how many pools of each the `paths` change.
///
/// # Errors
/// A seed or inputs that can't be read. What is wrong with a user cluster is reported on standard error.
pub fn of_fleet(flags: &Flags, paths: &[PathBuf]) -> Result<ExitCode> {
    let new = input::manifests(paths)?;
    cluster::run(async {
        let seed = Seed::connect(flags).await?;
        let (clusters, unreadable) = seed.worker_clusters(None).await?;
        output::warnings(&unreadable);
        let reads = clusters.iter().map(async |cluster| {
            let flags = flags.within(&cluster.namespace().unwrap_or_default());
            (flags.namespace().to_owned(), seed.read(&flags, NEEDS).await)
        });
        let mut snapshots = pin!(stream::iter(reads).buffer_unordered(AT_ONCE));
        let (mut lines, mut changed, mut is_incomplete) = (Vec::new(), 0, !unreadable.is_empty());
        while let Some((namespace, snapshot)) = snapshots.next().await {
            let comparison = snapshot.and_then(|snapshot| {
                snapshot.warn();
                is_incomplete |= !snapshot.unread.is_empty();
                let settings = installation_settings(&snapshot, &new, None)?;
                Ok((compare(&snapshot, &new, &settings, &[])?, snapshot.pools().len()))
            });
            let (pools, differ, problems) = match comparison {
                Ok((Comparison { old, new, problems }, pools)) => {
                    let differences = difference::between(&old, &new);
                    let differ: BTreeSet<&str> = differences.iter().map(Difference::pool).collect();
                    (pools, differ.len(), problems)
                }
                Err(problem) => (0, 0, vec![problem]),
            };
            for problem in &problems {
                output::note(&format!("{namespace}: {problem:#}"));
            }
            changed += differ;
            is_incomplete |= !problems.is_empty();
            let numbers = [pools, differ, problems.len()].map(|number| number.to_string());
            lines.push([vec![namespace], numbers.to_vec()].concat());
        }
        lines.sort();
        lines.insert(0, COLUMNS.map(str::to_owned).to_vec());
        output::print(&output::table(&lines))?;
        Ok(super::code(changed > 0, is_incomplete))
    })
}

/// The settings of the new side, with the API server that nodes of the cluster find.
fn installation_settings(snapshot: &Snapshot, new: &Manifests, path: Option<&Path>) -> Result<Settings> {
    let settings = match (snapshot.installation_settings(), path) {
        _ if path.is_some() || !new.settings.is_empty() => {
            let settings = input::settings(new, path)?.settings;
            snapshot.settings_of_cluster(settings).map_err(anyhow::Error::msg)?
        }
        (Some(settings), _) => settings.map_err(|mistakes| {
            anyhow!(
                "the settings of the cluster are invalid: {mistakes}; correct them, or provide others with --settings"
            )
        })?,
        (None, _) if snapshot.lacks(Part::Settings) => {
            bail!("the settings of the cluster could not be read; provide settings with --settings")
        }
        (None, _) => bail!(
            "ConfigMap {} does not exist, or has no settings document; set -n or --settings-config-map, or provide settings with --settings",
            snapshot.settings_place()
        ),
    };
    Ok(with_endpoint(snapshot, settings))
}

/// `settings` with the API server that nodes of the cluster find, where they don't set it.
pub fn with_endpoint(snapshot: &Snapshot, mut settings: Settings) -> Settings {
    if let Some(endpoint) = snapshot.endpoint(&settings) {
        settings.cluster.api_server = Some(endpoint.api_server);
        settings.cluster.ca_bundle = Some(endpoint.ca);
    }
    settings
}

/// Both sides of the pools of a cluster.
#[derive(Default)]
pub struct Comparison {
    old: Tree,
    new: Tree,
    /// Why pools could not be compared.
    problems: Vec<anyhow::Error>,
}

/// Compares the configs of a cluster with what its pools render to with new inputs. MachineDeployments and
/// profiles of the inputs replace those of the cluster of the same name.
///
/// # Errors
/// A pool of `only` that does not exist.
fn compare(snapshot: &Snapshot, new: &Manifests, settings: &Settings, only: &[String]) -> Result<Comparison> {
    let pools = snapshot.pools();
    let wanted = only
        .iter()
        .map(|name| Ok(snapshot::find(&pools, name)?.to_string()))
        .collect::<Result<Vec<String>>>()?;
    let is_wanted = |pool: &PoolRef| wanted.is_empty() || wanted.contains(&pool.to_string());
    let maps = settings_maps(snapshot, new);
    let mut profiles = Profiles {
        snapshot,
        new: &new.profiles,
        known: BTreeMap::new(),
    };
    let mut comparison = Comparison::default();
    let items = machine_deployments(snapshot, new);
    for item in &items {
        let pool = PoolRef::from(&item.value);
        if !is_wanted(&pool) {
            continue;
        }
        let mut profile = |item: &Item<MachineDeployment>, _: &Pool| profiles.of(&item.value);
        let rendered = pools::select_one(item, &maps, settings, &mut profile).and_then(|one| one.render());
        let old = stored(snapshot, &pool, &item.origin);
        match (old, rendered) {
            (Ok(old), Ok(rendered)) => {
                comparison.old.0.extend(Tree::of(&old, &Stage::ALL)?.0);
                comparison.new.0.extend(Tree::of(&[rendered], &Stage::ALL)?.0);
            }
            (old, rendered) => comparison
                .problems
                .extend(old.err().into_iter().chain(rendered.err())),
        }
    }
    credentials::hide_cloud_configs(&mut comparison.old, &mut comparison.new);
    Ok(comparison)
}

/// Those of the cluster and of the inputs.
fn machine_deployments(snapshot: &Snapshot, new: &Manifests) -> Vec<Item<MachineDeployment>> {
    let is_new = |md: &MachineDeployment| {
        let same = |item: &Item<MachineDeployment>| {
            item.value.name_any() == md.name_any() && item.value.namespace() == md.namespace()
        };
        new.machine_deployments.iter().any(same)
    };
    let of_cluster = snapshot
        .machine_deployments
        .iter()
        .filter(|md| !is_new(md))
        .map(|md| Item {
            value: md.clone(),
            origin: of_cluster("MachineDeployment", md),
        });
    new.machine_deployments
        .iter()
        .cloned()
        .chain(of_cluster)
        .collect()
}

/// Those of the inputs and of the cluster.
pub fn settings_maps(snapshot: &Snapshot, new: &Manifests) -> Vec<Item<SettingsMap>> {
    let of_cluster = snapshot.settings_maps.iter().map(|map| Item {
        value: map.clone(),
        origin: Origin::new(format!("ConfigMap {}/{}", map.namespace, map.name).into(), None),
    });
    new.settings_maps.iter().cloned().chain(of_cluster).collect()
}

/// Where messages place an object of the cluster.
pub fn of_cluster(kind: &str, object: &impl ResourceExt) -> Origin {
    let namespace = object.namespace().unwrap_or_default();
    Origin::new(format!("{kind} {namespace}/{}", object.name_any()).into(), None)
}

/// What machines of a pool get now; nothing if the pool is new or was never rendered.
fn stored(snapshot: &Snapshot, pool: &PoolRef, origin: &Origin) -> Result<Vec<RenderedPool>> {
    let pools = snapshot.pools();
    let known = pools
        .iter()
        .find(|known| known.namespace == pool.namespace && known.name == pool.name);
    let Some((known, config)) = known.and_then(|known| Some((known, known.config?))) else {
        return Ok(Vec::new());
    };
    if known.is_of_the_upstream_osm() {
        let message = "the upstream OSM created the OperatingSystemConfig of this pool; compare it with `osmctl migrate check`";
        let problem = Problem::error(Reason::NotAdopted.as_str(), origin.start(), message);
        return Err(Problems::from(problem).into());
    }
    if config.stored().is_none() {
        return Ok(Vec::new());
    }
    let place = Place::file(config.name_any());
    Ok(vec![RenderedPool::stored(pool.clone(), config.content()?, place)])
}

/// Finds profiles: in the inputs, or else those that the cluster has accepted.
struct Profiles<'a> {
    snapshot: &'a Snapshot,
    new: &'a [Item<OperatingSystemProfile>],
    known: BTreeMap<(String, String), Rc<Chosen>>,
}

impl Profiles<'_> {
    fn of(&mut self, md: &MachineDeployment) -> Result<Rc<Chosen>> {
        let key = self.snapshot.profile_name(md);
        let key = key.context("the MachineDeployment names no operating system")?;
        if let Some(known) = self.known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let found = Rc::new(self.find(&key.0, &key.1)?);
        self.known.insert(key, Rc::clone(&found));
        Ok(found)
    }

    fn find(&self, namespace: &str, name: &str) -> Result<Chosen> {
        let is_it = |item: &&Item<OperatingSystemProfile>| {
            let of_namespace = item.value.namespace().is_none_or(|found| found == namespace);
            item.value.name_any() == name && of_namespace
        };
        if let Some(item) = self.new.iter().find(is_it) {
            return Chosen::compile(item, &self.written(namespace));
        }
        let stored = self.snapshot.profile((namespace, name));
        let accepted = stored.and_then(|stored| Some((stored, stored.status.as_ref()?.accepted.as_ref()?)));
        match accepted {
            // Its base, or one of the bases of that, may be new.
            Some((stored, _)) if stored.spec.extends.is_some() && !self.new.is_empty() => {
                let item = Item {
                    value: stored.clone(),
                    origin: of_cluster("OperatingSystemProfile", stored),
                };
                Chosen::compile(&item, &self.written(namespace))
            }
            Some((stored, accepted)) => {
                let origin = of_cluster("OperatingSystemProfile", stored);
                Chosen::accepted(name, namespace, accepted, origin)
            }
            None if stored.is_some() => {
                bail!(
                    "profile {namespace}/{name} is not accepted; correct it, or provide a new version of it"
                )
            }
            None => bail!("profile {namespace}/{name} does not exist; provide it"),
        }
    }

    /// What profiles of a namespace can extend: those of the inputs, then those of the cluster, in this
    /// namespace first.
    fn written(&self, namespace: &str) -> Vec<Item<OperatingSystemProfile>> {
        let mut written: Vec<Item<OperatingSystemProfile>> = Vec::new();
        let stored = self.snapshot.profiles.iter();
        let mut stored: Vec<&OperatingSystemProfile> = stored.collect();
        stored.sort_by_key(|profile| profile.namespace().as_deref() != Some(namespace));
        let stored = stored.into_iter().map(|profile| Item {
            value: profile.clone(),
            origin: of_cluster("OperatingSystemProfile", profile),
        });
        for item in self.new.iter().cloned().chain(stored) {
            let is_known = written
                .iter()
                .any(|known| known.value.name_any() == item.value.name_any());
            if !is_known {
                written.push(item);
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use osm_api::names;

    use super::*;
    use crate::credentials::CLOUD_CONFIG;
    use crate::snapshot::fixtures;
    use osm_api::config::Stored;
    use osm_api::content::Content;

    /// A cluster whose config is what its profile renders to.
    fn cluster() -> (Snapshot, Settings) {
        cluster_with(|_| {})
    }

    /// As [`cluster`], with a change of what was rendered.
    fn cluster_with(change: impl FnOnce(&mut Content)) -> (Snapshot, Settings) {
        let mut snapshot = fixtures::snapshot();
        let profile = &mut snapshot.profiles[0];
        let accepted = osm_render::resolve(&profile.spec).unwrap();
        profile.status.as_mut().unwrap().accepted = Some(accepted);
        let settings = Settings::default();
        let item = machine_deployments(&snapshot, &Manifests::default()).remove(0);
        let mut profiles = Profiles {
            snapshot: &snapshot,
            new: &[],
            known: BTreeMap::new(),
        };
        let mut find = |item: &Item<MachineDeployment>, _: &Pool| profiles.of(&item.value);
        let mut rendered = pools::select_one(&item, &[], &settings, &mut find)
            .unwrap()
            .render()
            .unwrap();
        change(&mut rendered.config);
        let content = rendered.config;
        let status = snapshot.configs[0].status.as_mut().unwrap();
        let stored = Stored::new(&content, false, Stored::default());
        status.rendered = Some(stored.with_documents(&content));
        (snapshot, settings)
    }

    fn item<T>(value: T) -> Item<T> {
        let origin = Origin::new("new.yaml".into(), None);
        Item { value, origin }
    }

    fn of_profile(profile: OperatingSystemProfile) -> Manifests {
        Manifests {
            profiles: vec![item(profile)],
            ..Manifests::default()
        }
    }

    fn names(snapshot: &Snapshot, new: &Manifests, settings: &Settings) -> Vec<String> {
        let comparison = compare(snapshot, new, settings, &[]).unwrap();
        assert!(comparison.problems.is_empty(), "{:?}", comparison.problems);
        difference::between(&comparison.old, &comparison.new)
            .into_iter()
            .map(|one| one.path)
            .collect()
    }

    #[test]
    fn only_what_the_inputs_change_differs() {
        let (snapshot, settings) = cluster();
        let file = "kube-system/workers/provisioning/etc/kubelet-version";
        assert!(names(&snapshot, &Manifests::default(), &settings).is_empty());

        let mut profile = snapshot.profiles[0].clone();
        profile.metadata.namespace = None;
        profile.spec.provisioning_config.files[0]
            .content
            .inline
            .as_mut()
            .unwrap()
            .data = "other\n".to_owned();
        assert_eq!(names(&snapshot, &of_profile(profile.clone()), &settings), [file]);

        profile.metadata.namespace = Some("another".to_owned());
        assert!(names(&snapshot, &of_profile(profile), &settings).is_empty());

        let mut md = snapshot.machine_deployments[0].clone();
        *md.spec.template.pointer_mut("/spec/versions/kubelet").unwrap() = "1.35.0".into();
        let new = Manifests {
            machine_deployments: vec![item(md)],
            ..Manifests::default()
        };
        assert_eq!(names(&snapshot, &new, &settings), [file]);
    }

    #[test]
    fn the_file_of_the_cloud_provider_is_not_shown() {
        let (snapshot, settings) = cluster_with(|content| {
            let mut file = content.provisioning_config.files[0].clone();
            file.path = CLOUD_CONFIG.to_owned();
            file.content.inline.as_mut().unwrap().data = "password = hunter2".to_owned();
            content.provisioning_config.files.push(file);
        });
        let comparison = compare(&snapshot, &Manifests::default(), &settings, &[]).unwrap();
        let differences = difference::between(&comparison.old, &comparison.new);
        assert!(differences.iter().any(|one| one.path.ends_with(CLOUD_CONFIG)));
        assert!(!format!("{differences:?}").contains("hunter2"));
    }

    #[test]
    fn a_profile_of_the_cluster_follows_a_new_base() {
        let (mut snapshot, settings) = cluster();
        let mut upper = snapshot.profiles[0].clone();
        let base = upper.clone();
        upper.metadata.name = Some("osp-upper".to_owned());
        upper.spec.extends = Some("osp-tiny".to_owned());
        upper.spec.provisioning_config = Default::default();
        snapshot.profiles.push(upper);
        let annotations = snapshot.machine_deployments[0]
            .metadata
            .annotations
            .as_mut()
            .unwrap();
        annotations.insert(names::PROFILE.to_owned(), "osp-upper".to_owned());
        let mut changed = base;
        changed.spec.provisioning_config.files[0].path = "/etc/moved".to_owned();
        let found = names(&snapshot, &of_profile(changed), &settings);
        assert!(found.iter().any(|path| path.ends_with("/etc/moved")), "{found:?}");
    }

    #[test]
    fn a_pool_that_cannot_be_compared_does_not_hide_the_others() {
        let (mut snapshot, settings) = cluster();
        let mut broken = fixtures::machine_deployment("team", "broken");
        broken.spec.template = serde_json::json!({});
        snapshot.machine_deployments.push(broken);
        snapshot
            .machine_deployments
            .push(fixtures::machine_deployment("team", "new"));
        let comparison = compare(&snapshot, &Manifests::default(), &settings, &[]).unwrap();
        assert_eq!(comparison.problems.len(), 1);
        let differences = difference::between(&comparison.old, &comparison.new);
        assert!(
            differences
                .iter()
                .all(|one| one.path.starts_with("team/new/") && one.kind() == "added")
        );
        let only = compare(
            &snapshot,
            &Manifests::default(),
            &settings,
            &["workers".to_owned()],
        )
        .unwrap();
        assert!(only.problems.is_empty());
        assert!(compare(&snapshot, &Manifests::default(), &settings, &["none".to_owned()]).is_err());
    }

    #[test]
    fn a_config_of_the_upstream_osm_is_left_to_migrate_check() {
        let (mut snapshot, settings) = cluster();
        snapshot.configs[0].spec.pool_ref = None;
        let comparison = compare(&snapshot, &Manifests::default(), &settings, &[]).unwrap();
        assert!(
            comparison.problems[0]
                .to_string()
                .contains("osmctl migrate check"),
            "{:?}",
            comparison.problems
        );
    }
}
