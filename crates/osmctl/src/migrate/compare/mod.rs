//! Predicts what OSM would do with the pools of a cluster of the upstream OSM. It follows from the snapshot
//! alone.

pub mod text;

use anyhow::Result;
use kube::ResourceExt;
use osm_api::content::Content;
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile};
use osm_user_data::{LateValues, Stage};

use crate::credentials;
use crate::diff;
use crate::difference::{self, Difference};
use crate::input::{CUSTOM_PROFILE, Item, Manifests};
use crate::pools::{self, RenderedPool};
use crate::problem::Problems;
use crate::profiles::Chosen;
use crate::snapshot::{ClusterPool, Snapshot};
use crate::tree::{self, Tree};

/// What would happen to a cluster.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every pool, in order of their names.
    pub pools: Vec<PoolReport>,
}

/// What would happen to a pool.
#[derive(Clone, Debug)]
pub struct PoolReport {
    pub namespace: String,
    pub name: String,
    /// Name of the profile that it asks for, if that is known.
    pub profile: Option<String>,
    /// The profile as people read it.
    pub shown_profile: Option<String>,
    pub outcome: Outcome,
    /// What osc-controller would report.
    pub warnings: Vec<String>,
}

/// What would become of the user data of a pool.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// OSM would refuse the pool, and leave what is published.
    Refused(Refusal),
    /// New machines would get the same.
    Equal,
    /// New machines would get something else. No difference contains a credential of the upstream OSM.
    Differs(Vec<Difference>),
    /// The upstream OSM has no config for the pool.
    NotGenerated,
    /// OSM renders the pool already.
    Migrated,
}

/// Why OSM would refuse a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// Compares. The `settings` are those of the installation, with the API server that nodes find.
pub fn report(snapshot: &Snapshot, settings: &Settings) -> Report {
    let profiles = Profiles::of(snapshot);
    let pools = snapshot.pools();
    let with_pool = pools
        .iter()
        .filter_map(|pool| Some((pool, pool.machine_deployment?)));
    let of_pool =
        |(pool, md): (&ClusterPool<'_>, &MachineDeployment)| of_pool(snapshot, &profiles, settings, pool, md);
    Report {
        pools: with_pool.map(of_pool).collect(),
    }
}

/// A profile of the cluster.
struct Known {
    is_custom: bool,
    /// Kind, name and version, and what becomes of it.
    shown: String,
    item: Item<OperatingSystemProfile>,
}

/// The profiles of a cluster. OperatingSystemProfiles come first.
struct Profiles {
    all: Vec<Known>,
    items: Vec<Item<OperatingSystemProfile>>,
}

impl Profiles {
    fn of(snapshot: &Snapshot) -> Self {
        let kinds = [
            ("OperatingSystemProfile", &snapshot.profiles),
            (CUSTOM_PROFILE, &snapshot.custom_profiles),
        ];
        let all: Vec<Known> = kinds
            .into_iter()
            .flat_map(|(kind, profiles)| profiles.iter().map(move |profile| (kind, profile)))
            .map(|(kind, profile)| Known::of(snapshot, kind, profile))
            .collect();
        let items = all.iter().map(|known| known.item.clone()).collect();
        Self { all, items }
    }

    /// The profile that a pool asks for. KKP copies CustomOperatingSystemProfiles, so that only their names
    /// count.
    fn find(&self, namespace: &str, name: &str) -> Option<&Known> {
        let named = |known: &&Known| known.item.value.name_any() == name;
        let mut found = self.all.iter().filter(named);
        let is_it =
            |known: &&Known| !known.is_custom && known.item.value.namespace().as_deref() == Some(namespace);
        found
            .clone()
            .find(is_it)
            .or_else(|| found.find(|known| known.is_custom))
    }
}

impl Known {
    fn of(snapshot: &Snapshot, kind: &'static str, profile: &OperatingSystemProfile) -> Self {
        let (namespace, name) = (profile.namespace().unwrap_or_default(), profile.name_any());
        let is_custom = kind == CUSTOM_PROFILE;
        let mut defaults = osm_render::defaults().into_iter();
        let default = defaults.find(|(default, _)| *default == name && namespace == snapshot.namespace);
        let replaced = match default.filter(|(_, default)| !is_custom && *default != profile.spec) {
            Some((_, own)) => format!("; osp-controller replaces it with its own {}", own.version),
            None => String::new(),
        };
        let item = Item {
            value: profile.clone(),
            origin: diff::of_cluster(kind, profile),
        };
        Self {
            is_custom,
            shown: format!("{kind} {namespace}/{name} {}{replaced}", profile.spec.version),
            item,
        }
    }
}

fn of_pool(
    snapshot: &Snapshot,
    profiles: &Profiles,
    settings: &Settings,
    pool: &ClusterPool<'_>,
    md: &MachineDeployment,
) -> PoolReport {
    let wanted = snapshot.profile_name(md);
    let profile = wanted
        .as_ref()
        .and_then(|(namespace, name)| profiles.find(namespace, name));
    let (outcome, warnings) = match &pool.config {
        Some(_) if !pool.is_of_the_upstream_osm() => (Outcome::Migrated, Vec::new()),
        config => match render(snapshot, profiles, settings, md, profile, wanted.as_ref()) {
            Err(error) => (Outcome::Refused(refusal(&error)), Vec::new()),
            Ok(rendered) => {
                let outcome = config.map_or(Outcome::NotGenerated, |config| compare(pool, config, &rendered));
                (outcome, rendered.warnings)
            }
        },
    };
    PoolReport {
        namespace: pool.namespace.clone(),
        name: pool.name.clone(),
        profile: profile.map(|known| known.item.value.name_any()),
        shown_profile: profile.map(|known| known.shown.clone()),
        outcome,
        warnings,
    }
}

/// Renders a pool with the profile of the cluster, in the version that the cluster has.
fn render(
    snapshot: &Snapshot,
    profiles: &Profiles,
    settings: &Settings,
    md: &MachineDeployment,
    profile: Option<&Known>,
    wanted: Option<&(String, String)>,
) -> Result<RenderedPool> {
    let item = Item {
        value: md.clone(),
        origin: diff::of_cluster("MachineDeployment", md),
    };
    let maps = diff::settings_maps(snapshot, &Manifests::default());
    let mut find = |_: &Item<MachineDeployment>, _: &osm_api::Pool| match profile {
        Some(known) => Chosen::compile(&known.item, &profiles.items).map(Into::into),
        None => {
            let (namespace, name) = wanted.cloned().unwrap_or_default();
            anyhow::bail!(
                "profile {namespace}/{name} does not exist; create it, or correct the annotation of the pool"
            )
        }
    };
    pools::select_one(&item, &maps, settings, &mut find)?.render()
}

fn refusal(error: &anyhow::Error) -> Refusal {
    match error
        .downcast_ref::<Problems>()
        .and_then(|problems| problems.0.first())
    {
        Some(problem) => Refusal {
            reason: problem.rule.to_owned(),
            message: problem.message.clone(),
        },
        None => Refusal {
            reason: osm_api::Reason::ProfileNotFound.as_str().to_owned(),
            message: error.to_string(),
        },
    }
}

/// Compares what the upstream OSM generated with what OSM renders.
fn compare(pool: &ClusterPool<'_>, config: &OperatingSystemConfig, rendered: &RenderedPool) -> Outcome {
    match differences(pool, config, rendered) {
        Ok(differences) if differences.is_empty() => Outcome::Equal,
        Ok(differences) => Outcome::Differs(differences),
        Err(error) => Outcome::Refused(Refusal {
            reason: osm_api::Reason::UserDataInvalid.as_str().to_owned(),
            message: format!("{error:#}"),
        }),
    }
}

fn differences(
    pool: &ClusterPool<'_>,
    config: &OperatingSystemConfig,
    rendered: &RenderedPool,
) -> Result<Vec<Difference>> {
    let masks = osm_user_data::masks(&rendered.config);
    let folder = tree::pool_folder(&pool.namespace, &pool.name)?;
    let (mut theirs, mut ours) = (Tree::default(), Tree::default());
    let content = Content::from(&config.spec);
    for stage in Stage::ALL {
        let machine = osm_user_data::machine_stage(&content, stage, &LateValues::new())?;
        theirs.add(&folder, stage, machine)?;
        let machine = osm_user_data::masked_machine_stage(&rendered.config, stage)?;
        ours.add(&folder, stage, machine)?;
    }
    credentials::hide_cloud_configs(&mut theirs, &mut ours);
    for (path, entry) in &mut theirs.0 {
        let own = ours.0.get(path).map_or("", |own| own.text.as_str());
        if own != entry.text {
            entry.text = credentials::hide(&entry.text, own, &masks);
        }
    }
    Ok(difference::between(&theirs, &ours))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::credentials::{CLOUD_CONFIG, CLOUD_CONFIG_MASK};
    use crate::snapshot::fixtures::machine_deployment;

    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";

    fn profile(namespace: &str, name: &str, version_file: &str) -> OperatingSystemProfile {
        from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "osName": "ubuntu", "osVersion": "24.04", "version": "v1.11.2",
                "supportedCloudProviders": [{"name": "openstack"}],
                "bootstrapConfig": {"files": [{"path": "/opt/bin/bootstrap", "permissions": 755, "content": {"inline": {
                    "encoding": "b64", "data": "#!/bin/sh\nfetch '{{ .Token }}' {{ .SecretName }}\n"}}}]},
                "provisioningConfig": {"files": [
                    {"path": "/etc/version", "content": {"inline": {"data": version_file}}},
                ]},
            },
        }))
        .unwrap()
    }

    /// What the upstream OSM generated.
    fn config(pool: &str, files: Value) -> OperatingSystemConfig {
        let bootstrap = format!("#!/bin/sh\nfetch '{TOKEN}' {pool}-kube-system-provisioning-config\n");
        from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": format!("{pool}-kube-system-config"), "namespace": "osm"},
            "spec": {
                "osName": "ubuntu", "osVersion": "24.04", "provisioningUtility": "cloud-init",
                "cloudProvider": {"name": "openstack", "spec": {"password": "hunter2"}},
                "bootstrapConfig": {"files": [{"path": "/opt/bin/bootstrap", "permissions": 755,
                    "content": {"inline": {"encoding": "b64", "data": bootstrap}}}]},
                "provisioningConfig": {"files": files},
            },
        }))
        .unwrap()
    }

    fn file(path: &str, data: &str) -> Value {
        json!({"path": path, "permissions": 644, "content": {"inline": {"data": data}}})
    }

    fn snapshot(profile_of_pool: &str, files: Value) -> Snapshot {
        let mut md = machine_deployment("kube-system", "workers");
        let annotations = md.metadata.annotations.as_mut().unwrap();
        annotations.insert(osm_api::names::PROFILE.to_owned(), profile_of_pool.to_owned());
        Snapshot {
            namespace: "osm".to_owned(),
            machine_deployments: vec![md],
            configs: vec![config("workers", files)],
            profiles: vec![
                profile("osm", "good", "{{ .KubeVersion }}\n"),
                profile("osm", "bad", "{{ env \"X\" }}\n"),
            ],
            ..Snapshot::default()
        }
    }

    fn outcome(snapshot: &Snapshot) -> Outcome {
        report(snapshot, &Settings::default()).pools.remove(0).outcome
    }

    /// Adds the files that are rendered for every pool with Go templates, so that only `/etc/version` can
    /// differ.
    fn with_standard_files(snapshot: &mut Snapshot) {
        let Outcome::Differs(differences) = outcome(snapshot) else {
            panic!("no differences")
        };
        let folder = "kube-system/workers/provisioning/";
        for one in differences {
            let (Some(path), Some(text)) = (one.path.strip_prefix(folder), one.new) else {
                continue;
            };
            let files = &mut snapshot.configs[0].spec.provisioning_config.files;
            if path != "etc/version" {
                let mut file: osm_api::profile::File = from_value(file(&format!("/{path}"), &text)).unwrap();
                file.permissions = 600;
                files.push(file);
            }
        }
    }

    #[test]
    fn a_pool_is_equal_or_differs_and_no_credential_is_shown() {
        let mut equal = snapshot("good", json!([file("/etc/version", "v1.34.2\n")]));
        with_standard_files(&mut equal);
        assert!(matches!(outcome(&equal), Outcome::Equal), "{:?}", outcome(&equal));

        let mut other = equal.clone();
        let files = &mut other.configs[0].spec.provisioning_config.files;
        files[0].content.inline.as_mut().unwrap().data = format!("v1.34.2\ntoken={TOKEN}\n");
        files.push(from_value(file(CLOUD_CONFIG, "password = hunter2\n")).unwrap());
        let Outcome::Differs(differences) = outcome(&other) else {
            panic!("{:?}", outcome(&other))
        };
        let text = format!("{differences:?}");
        assert!(
            text.contains("token=<masked>") && text.contains(CLOUD_CONFIG_MASK),
            "{text}"
        );
        for credential in [TOKEN, "hunter2"] {
            assert!(!text.contains(credential), "{text}");
        }
        let changed: Vec<&str> = differences.iter().map(Difference::kind).collect();
        assert_eq!(changed, ["changed", "removed", "changed"], "{text}");
    }

    #[test]
    fn what_cannot_be_rendered_is_refused_with_its_reason() {
        for (profile, reason) in [("bad", "TemplateInvalid"), ("missing", "ProfileNotFound")] {
            match outcome(&snapshot(profile, json!([]))) {
                Outcome::Refused(refusal) => assert_eq!(refusal.reason, reason, "{}", refusal.message),
                other => panic!("{profile}: {other:?}"),
            }
        }
        let mut broken = snapshot("good", json!([]));
        broken.machine_deployments[0].spec.template = json!({});
        match outcome(&broken) {
            Outcome::Refused(refusal) => assert_eq!(refusal.reason, "ProviderSpecInvalid"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pool_without_a_config_and_one_of_osm_have_nothing_to_compare() {
        let mut snapshot = snapshot("good", json!([]));
        let ours = crate::snapshot::fixtures::config(&snapshot.machine_deployments[0]);
        snapshot.configs.clear();
        assert!(matches!(outcome(&snapshot), Outcome::NotGenerated));
        snapshot.configs = vec![ours];
        assert!(matches!(outcome(&snapshot), Outcome::Migrated));
    }
}
