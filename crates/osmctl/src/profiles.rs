//! Which profile a MachineDeployment is rendered with.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use osm_api::pool::{self, Pool};
use osm_api::profile::OperatingSystemProfileSpec;
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemProfile, names};
use osm_render::{ClusterEndpoint, Profile, Rendered};

use crate::{bases, input};

/// A profile that can be rendered, with its name.
pub struct Chosen {
    name: String,
    profile: Profile,
}

impl Chosen {
    /// The profile of `--profile`: the built-in one of that name, or else that of a file.
    pub fn given(argument: &Path) -> Result<Self> {
        Self::given_beside(argument, &[])
    }

    /// [`given`](Self::given), where the profile may extend one of those `written` elsewhere.
    fn given_beside(argument: &Path, written: &[OperatingSystemProfile]) -> Result<Self> {
        if let Some(spec) = argument.to_str().and_then(built_in) {
            return Self::compile(argument.display().to_string(), &spec, &[]);
        }
        let given = input::manifests(argument).with_context(|| {
            format!(
                "{} is not a built-in profile ({}) and not a file",
                argument.display(),
                built_in_names()
            )
        })?;
        // A file may also contain the profiles that its profile extends.
        let is_base = |profile: &&OperatingSystemProfile| {
            let name = profile.metadata.name.as_deref();
            given
                .profiles
                .iter()
                .any(|other| other.spec.extends.as_deref() == name)
        };
        let chosen: Vec<&OperatingSystemProfile> = given
            .profiles
            .iter()
            .filter(|profile| !is_base(profile))
            .collect();
        match chosen.as_slice() {
            [profile] => {
                let name = profile.metadata.name.clone().unwrap_or_default();
                Self::compile(
                    name,
                    &profile.spec,
                    &[given.profiles.as_slice(), written].concat(),
                )
            }
            profiles => {
                bail!(
                    "{} contains {} OperatingSystemProfiles that no other one extends; provide exactly one",
                    argument.display(),
                    profiles.len()
                )
            }
        }
    }

    /// The profile of a MachineDeployment: the one of `--profile`; the one that it names, or else the default of its operating
    /// system and provisioning utility, of those `written` in `source`, or else built in.
    pub fn of(
        machine_deployment: &MachineDeployment,
        pool: &Pool,
        argument: Option<&Path>,
        written: &[OperatingSystemProfile],
        source: &Path,
    ) -> Result<Self> {
        if let Some(argument) = argument {
            return Self::given_beside(argument, written);
        }
        let named = pool::annotation(machine_deployment, names::PROFILE).map(str::to_owned);
        let name = named.unwrap_or_else(|| {
            osm_render::default_name(pool.operating_system.as_str(), pool.provisioning_utility())
        });
        match find(written, &name) {
            Some(spec) => Self::compile(name, &spec, written),
            None => Err(anyhow!(
                "profile {name} does not exist; provide it with --profile or in {}, or use a built-in profile: {}",
                source.display(),
                built_in_names()
            )),
        }
    }

    /// Compiles a profile, which may extend those that are `written`, and built-in ones.
    fn compile(
        name: String,
        spec: &OperatingSystemProfileSpec,
        written: &[OperatingSystemProfile],
    ) -> Result<Self> {
        let of_profile = || format!("profile {name}");
        let accepted = bases::resolve(&name, spec, |base| find(written, base)).with_context(of_profile)?;
        let profile = osm_render::compile(&accepted).with_context(of_profile)?;
        Ok(Self { name, profile })
    }

    /// The profile as it was written.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        self.profile.spec()
    }

    /// Renders it for a pool.
    pub fn render(&self, pool: &Pool, settings: &Settings, cluster: &ClusterEndpoint) -> Result<Rendered> {
        self.profile
            .render(pool, settings, cluster)
            .with_context(|| format!("profile {}", self.name))
    }
}

/// The profile of this name: the one that is `written`, or else the built-in one.
fn find(written: &[OperatingSystemProfile], name: &str) -> Option<OperatingSystemProfileSpec> {
    let mut written = written.iter();
    let written = written.find(|profile| profile.metadata.name.as_deref() == Some(name));
    written
        .map(|profile| profile.spec.clone())
        .or_else(|| built_in(name))
}

fn built_in(name: &str) -> Option<OperatingSystemProfileSpec> {
    osm_render::defaults()
        .into_iter()
        .find(|(known, _)| known == name)
        .map(|(_, spec)| spec)
}

fn built_in_names() -> String {
    osm_render::defaults()
        .into_iter()
        .map(|(name, _)| name)
        .collect::<Vec<_>>()
        .join(", ")
}
