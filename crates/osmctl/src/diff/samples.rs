//! Profiles without MachineDeployments are rendered for sample pools.
//!
//! Each cloud provider of the profile has two: one with defaults, and one with everything set. Both have the newest kubelet. Most
//! differences are the same for all of them, so that such differences are shown once.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use osm_api::OperatingSystemProfile;
use osm_api::pool::Pool;
use osm_api::settings::Settings;
use osm_render::{Stage, stand_in_cluster};

use crate::difference::Difference;
use crate::input::Item;
use crate::profiles::Chosen;
use crate::tree::{self, Tree};

/// First folder of the tree. No namespace has this name.
const FOLDER: &str = "SAMPLES";

/// Part of a path that stands for all samples.
const ALL: &str = "*";

/// What machines of the sample pools would have, at `SAMPLES/PROFILE/SAMPLE/…`.
///
/// # Errors
/// The first mistake of a profile.
pub fn tree(profiles: &[Item<OperatingSystemProfile>]) -> Result<Tree> {
    let mut tree = Tree::default();
    for item in profiles {
        let profile = Chosen::compile(item, profiles)?;
        let name = item.value.metadata.name.as_deref().unwrap_or_default();
        let name = tree::folder(name)?;
        for (sample, pool, settings) in pools(&profile) {
            let rendered = profile.render(&pool, &settings, &stand_in_cluster())?.spec;
            let values = osm_render::placeholders(&rendered);
            for stage in Stage::ALL {
                let machine = osm_render::machine_stage(&rendered, stage, &values)?;
                if !tree.add(&format!("{FOLDER}/{name}/{sample}"), stage, machine)? {
                    bail!("the inputs contain profile {name} twice; remove one of the two");
                }
            }
        }
    }
    Ok(tree)
}

fn pools(profile: &Chosen) -> Vec<(String, Pool, Settings)> {
    let spec = profile.spec();
    let mut pools = Vec::new();
    for cloud in spec.supported_cloud_providers.iter().map(|cloud| cloud.name) {
        let plain = osm_render::sample_pools(spec).into_iter().map(|(_, pool)| pool);
        let plain = plain
            .filter(|pool| pool.cloud_provider == cloud)
            .max_by_key(|pool| (pool.kubelet_version.clone(), pool.network == Default::default()));
        pools.extend(plain.map(|pool| (cloud.to_string(), pool, Settings::default())));
        let full = osm_render::full_sample(spec, cloud);
        pools.extend(full.map(|(pool, settings)| (format!("{cloud}-everything-set"), pool, settings)));
    }
    pools
}

/// Replaces differences that several samples of a profile have in common by one, whose path has `{aws,gce}` for the samples, or `*` for all
/// samples of both sides.
pub fn merge(differences: &mut Vec<Difference>, sides: [&Tree; 2]) {
    let all = samples(sides);
    let mut merged: Vec<(Difference, Vec<String>)> = Vec::new();
    for difference in differences.drain(..) {
        let Some((profile, sample, rest)) = parts(&difference.path) else {
            merged.push((difference, Vec::new()));
            continue;
        };
        let (sample, key) = (sample.to_owned(), format!("{FOLDER}/{profile}/{{}}/{rest}"));
        let same = merged.iter_mut().find(|(known, _)| {
            known.path == key && known.old == difference.old && known.new == difference.new
        });
        match same {
            Some((_, of)) => of.push(sample),
            None => {
                let difference = Difference {
                    path: key,
                    ..difference
                };
                merged.push((difference, vec![sample]));
            }
        }
    }
    let named = merged.into_iter().map(|(mut difference, mut of)| {
        of.sort_unstable();
        if !of.is_empty() {
            let profile = difference.path.split('/').nth(1).unwrap_or_default();
            let known = all.iter().filter(|(of, _)| *of == profile).count();
            let label = match of.as_slice() {
                [one] => one.clone(),
                several if several.len() == known => ALL.to_owned(),
                several => format!("{{{}}}", several.join(",")),
            };
            difference.path = difference.path.replacen("{}", &label, 1);
        }
        difference
    });
    differences.extend(named);
}

/// Profile and name of every sample.
fn samples(sides: [&Tree; 2]) -> BTreeSet<(&str, &str)> {
    let paths = sides.into_iter().flat_map(|tree| tree.0.keys());
    paths
        .filter_map(|path| parts(path))
        .map(|(profile, sample, _)| (profile, sample))
        .collect()
}

fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let mut parts = path.strip_prefix(FOLDER)?.strip_prefix('/')?.splitn(3, '/');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use osm_render::MachineStage;

    use super::*;
    use crate::difference;

    #[test]
    fn what_samples_have_in_common_is_shown_once() {
        let overview = |timezone: &str| MachineStage {
            files: Vec::new(),
            units: Vec::new(),
            other: serde_json::Map::from_iter([("timezone".to_owned(), timezone.into())]),
        };
        let side = |bootstrap: [&str; 3], provisioning: &str| {
            let mut tree = Tree::default();
            for (sample, text) in ["aws", "gce", "vsphere"].into_iter().zip(bootstrap) {
                let folder = format!("{FOLDER}/p/{sample}");
                tree.add(&folder, Stage::Bootstrap, overview(text)).unwrap();
                tree.add(&folder, Stage::Provisioning, overview(provisioning))
                    .unwrap();
            }
            tree.add("kube-system/a", Stage::Bootstrap, overview(provisioning))
                .unwrap();
            tree
        };
        for (bootstrap, expected) in [
            (
                ["x", "x", "z"],
                &[
                    "SAMPLES/p/vsphere/bootstrap.yaml",
                    "SAMPLES/p/{aws,gce}/bootstrap.yaml",
                ][..],
            ),
            (["x", "x", "old"], &["SAMPLES/p/{aws,gce}/bootstrap.yaml"]),
            (["old", "old", "old"], &[]),
        ] {
            let (old, new) = (side(["old"; 3], "old"), side(bootstrap, "new"));
            let mut differences = difference::between(&old, &new);
            merge(&mut differences, [&old, &new]);
            let mut paths: Vec<&str> = differences.iter().map(|one| one.path.as_str()).collect();
            paths.sort_unstable();
            let always = ["SAMPLES/p/*/provisioning.yaml", "kube-system/a/bootstrap.yaml"];
            let mut expected = [expected, &always].concat();
            expected.sort_unstable();
            assert_eq!(paths, expected);
        }
    }
}
