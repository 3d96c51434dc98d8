//! Finds the profile that a MachineDeployment is rendered with.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use osm_api::config::ProfileRef;
use osm_api::pool::{self, Pool};
use osm_api::profile::{AcceptedProfile, OperatingSystemProfileSpec};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemProfile, Reason, names};
use osm_render::{ClusterEndpoint, Profile, Rendered};

use crate::bases::Bases;
use crate::input::{self, Item};
use crate::origin::Origin;
use crate::problem::{Place, Problem, Problems};

/// A profile that can be rendered, with its name.
pub struct Chosen {
    name: String,
    namespace: String,
    accepted: AcceptedProfile,
    profile: Profile,
    origin: Origin,
}

impl Chosen {
    /// The profile of `--profile`: the built-in one of that name, or else that of a file. It may extend one
    /// of those `written` elsewhere.
    pub fn given(argument: &Path, written: &[Item<OperatingSystemProfile>]) -> Result<Self> {
        if let Some(item) = argument.to_str().and_then(built_in) {
            return Self::compile(&item, &[]);
        }
        let given = input::manifests(&[argument.to_owned()]).with_context(|| {
            format!(
                "{} is not a built-in profile ({}) and not a file",
                argument.display(),
                built_in_names()
            )
        })?;
        // A file may also contain the profiles that its profile extends.
        let is_base = |profile: &&Item<OperatingSystemProfile>| {
            let name = profile.value.metadata.name.as_deref();
            let mut others = given.profiles.iter();
            others.any(|other| name.is_some() && other.value.spec.extends.as_deref() == name)
        };
        let chosen: Vec<&Item<OperatingSystemProfile>> = given
            .profiles
            .iter()
            .filter(|profile| !is_base(profile))
            .collect();
        match chosen.as_slice() {
            [profile] => Self::compile(profile, &[given.profiles.as_slice(), written].concat()),
            profiles => {
                bail!(
                    "{} contains {} OperatingSystemProfiles that no other one extends; provide exactly one",
                    argument.display(),
                    profiles.len()
                )
            }
        }
    }

    /// The profile of a MachineDeployment: the one that it names, or else the default of its operating system
    /// and provisioning utility, of those `written`, or else built in.
    pub fn of(
        machine_deployment: &Item<MachineDeployment>,
        pool: &Pool,
        written: &[Item<OperatingSystemProfile>],
        sources: &[PathBuf],
    ) -> Result<Self> {
        let Item { value, origin } = machine_deployment;
        let annotation = |key| pool::annotation(value, key);
        let name = annotation(names::PROFILE).map(str::to_owned).unwrap_or_else(|| {
            osm_render::default_name(pool.operating_system.as_str(), pool.provisioning_utility())
        });
        let namespace = annotation(names::PROFILE_NAMESPACE);
        let is_it = |profile: &&Item<OperatingSystemProfile>| {
            let metadata = &profile.value.metadata;
            let of_namespace = namespace
                .zip(metadata.namespace.as_deref())
                .is_none_or(|(wanted, found)| wanted == found);
            metadata.name.as_deref() == Some(&name) && of_namespace
        };
        let mut found = written.iter().filter(is_it);
        let Some(item) = found.next().cloned().or_else(|| built_in(&name)) else {
            let sources: Vec<String> = sources.iter().map(|path| path.display().to_string()).collect();
            let message = format!(
                "profile {name} does not exist; provide it with --profile or in {}, or use a built-in profile: {}",
                sources.join(", "),
                built_in_names()
            );
            let place = origin.place(&format!("metadata.annotations.{}", names::PROFILE));
            let reason = Reason::ProfileNotFound.as_str();
            return Err(Problems::from(Problem::error(reason, place, message)).into());
        };
        if let Some(other) = found.next() {
            let message = format!(
                "profile {name} is in the inputs twice, here and at {}; remove one of the two",
                item.origin.start()
            );
            return Err(
                Problems::from(Problem::error("ProfileInvalid", other.origin.start(), message)).into(),
            );
        }
        Self::compile(&item, written)
    }

    /// A profile as osp-controller accepted it.
    ///
    /// # Errors
    /// A profile that this release can't compile.
    pub fn accepted(name: &str, namespace: &str, accepted: &AcceptedProfile, origin: Origin) -> Result<Self> {
        let profile = osm_render::compile(accepted)
            .map_err(|error| of_profile(name, error.reason().as_str(), origin.start(), &error.to_string()))?;
        Ok(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            accepted: accepted.clone(),
            profile,
            origin,
        })
    }

    /// Compiles a profile, which may extend those that are `written`, and built-in ones.
    ///
    /// # Errors
    /// The first mistake of the profile.
    pub fn compile(
        item: &Item<OperatingSystemProfile>,
        written: &[Item<OperatingSystemProfile>],
    ) -> Result<Self> {
        let metadata = &item.value.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let failed = |error: osm_render::ProfileError| {
            let place = error
                .position()
                .map_or_else(|| item.origin.start(), |at| item.origin.place_in_spec(&at));
            of_profile(&name, error.reason().as_str(), place, &error.to_string())
        };
        let bases = Bases::of(written);
        let accepted = bases.resolve(&name, &item.value.spec).map_err(failed)?;
        let profile = osm_render::compile(&accepted).map_err(failed)?;
        Ok(Self {
            namespace: metadata
                .namespace
                .clone()
                .unwrap_or_else(|| "kube-system".to_owned()),
            name,
            accepted,
            profile,
            origin: item.origin.clone(),
        })
    }

    /// The profile as it was written.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        self.profile.spec()
    }

    /// What an OperatingSystemConfig says about its profile.
    pub fn reference(&self) -> ProfileRef {
        ProfileRef {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            version: self.accepted.version.clone(),
            digest: self.accepted.digest.clone(),
            template_engine: self.accepted.template_engine,
        }
    }

    /// Renders it for a pool. An error that has no line in the profile is one of its MachineDeployment or of
    /// the settings for it, so it is reported about `machine_deployment`, with its name and place, if the
    /// pool has one.
    pub fn render(
        &self,
        pool: &Pool,
        machine_deployment: Option<(&str, &Place)>,
        settings: &Settings,
        cluster: &ClusterEndpoint,
    ) -> Result<Rendered> {
        self.profile.render(pool, settings, cluster).map_err(|error| {
            let (rule, message) = (error.reason().as_str(), error.to_string());
            let position = error.position().filter(|_| self.origin.node().is_some());
            if let (None, Some((name, place))) = (&position, machine_deployment) {
                let message = format!("MachineDeployment {name}: profile {}: {message}", self.name);
                return Problems::from(Problem::error(rule, place.clone(), message)).into();
            }
            let place = position.map_or_else(|| self.origin.start(), |at| self.origin.place_in_spec(&at));
            of_profile(&self.name, rule, place, &message).into()
        })
    }
}

fn of_profile(name: &str, rule: &'static str, place: Place, message: &str) -> Problems {
    Problem::error(rule, place, format!("profile {name}: {message}")).into()
}

/// The built-in profile of this name, for pools. Its origin has no lines, because who wrote the pool has no
/// such file.
pub fn built_in(name: &str) -> Option<Item<OperatingSystemProfile>> {
    let mut item = built_ins_with(|found| found == name).pop()?;
    item.origin = Origin::new(Rc::from(format!("built-in profile {name}")), None);
    Some(item)
}

/// The built-in profiles. Their origins are their files in the repository.
pub fn built_ins() -> Vec<Item<OperatingSystemProfile>> {
    built_ins_with(|_| true)
}

fn built_ins_with(is_wanted: impl Fn(&str) -> bool) -> Vec<Item<OperatingSystemProfile>> {
    let texts = osm_render::default_manifests().zip(osm_render::defaults());
    let wanted = texts.filter(|(_, (name, _))| is_wanted(name));
    let files = wanted.map(|((file, text), (name, spec))| {
        let node = crate::yaml_tree::read(text)
            .ok()
            .and_then(|nodes| nodes.into_iter().next());
        Item {
            value: OperatingSystemProfile::new(&name, spec),
            origin: Origin::new(Rc::from(format!("profiles/{file}")), node),
        }
    });
    files.collect()
}

/// Names of the built-in profiles, for messages.
pub fn built_in_names() -> String {
    let names: Vec<String> = osm_render::defaults().into_iter().map(|(name, _)| name).collect();
    names.join(", ")
}
