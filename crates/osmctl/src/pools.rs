//! Renders MachineDeployments as the controllers do, with placeholders for what only a cluster knows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result};
use osm_api::config::{OperatingSystemConfig, OperatingSystemConfigStatus, Stored};
use osm_api::content::{self, Content, RenderedFor};
use osm_api::names::{self, SETTINGS_KEY};
use osm_api::pool::{self, Pool};
use osm_api::pool_settings::PoolSettings;
use osm_api::settings::Settings;
use osm_api::settings_patch::PatchError;
use osm_api::{MachineDeployment, PoolRef, Reason};
use osm_render::ClusterEndpoint;
use osm_user_data::{LateValues, MachineStage, Stage};

use crate::input::{Item, Manifests, SettingsMap};
use crate::output;
use crate::problem::{Place, Problem, Problems};
use crate::profiles::Chosen;

/// A pool with everything that it is rendered from.
pub struct Selected {
    pub pool_ref: PoolRef,
    pub pool: Pool,
    pub profile: Rc<Chosen>,
    /// The installation's settings, with those of the pool.
    pub settings: Settings,
    revision: Option<String>,
    template_digest: String,
    /// Where the MachineDeployment was read.
    place: Place,
}

/// A rendered pool.
pub struct RenderedPool {
    pub pool_ref: PoolRef,
    /// What osc-controller writes, with markers for credentials.
    pub config: Content,
    /// What its status says about it.
    stored: Stored,
    pub warnings: Vec<String>,
    /// Where the MachineDeployment was read.
    pub place: Place,
    values: LateValues,
}

/// What was made of some pools, and all problems of the others.
pub struct Partly<T> {
    pub good: Vec<T>,
    pub problems: Vec<Problem>,
}

impl<T> Default for Partly<T> {
    fn default() -> Self {
        Self {
            good: Vec::new(),
            problems: Vec::new(),
        }
    }
}

impl<T> Partly<T> {
    /// Takes a result, or problems that are not known yet; any other error ends the command.
    fn take(&mut self, result: Result<T>) -> Result<()> {
        match result {
            Ok(result) => self.good.push(result),
            Err(error) => {
                for problem in error.downcast::<Problems>()?.0 {
                    if !self.problems.contains(&problem) {
                        self.problems.push(problem);
                    }
                }
            }
        }
        Ok(())
    }

    fn all(self) -> Result<Vec<T>> {
        if self.problems.is_empty() {
            Ok(self.good)
        } else {
            Err(Problems(self.problems).into())
        }
    }
}

/// Reads every MachineDeployment, and finds its profile and settings.
///
/// # Errors
/// All problems of all pools.
pub fn select(
    manifests: &Manifests,
    sources: &[PathBuf],
    settings: &Settings,
    profile: Option<&Path>,
) -> Result<Vec<Selected>> {
    select_all(manifests, sources, settings, profile)?.all()
}

/// As [`select`], also if there are problems.
///
/// # Errors
/// A `profile` that can't be used.
pub fn select_all(
    manifests: &Manifests,
    sources: &[PathBuf],
    settings: &Settings,
    profile: Option<&Path>,
) -> Result<Partly<Selected>> {
    let given = profile.map(|argument| Chosen::given(argument, &manifests.profiles));
    let given = given.transpose()?.map(Rc::new);
    let mut chosen: BTreeMap<[Option<String>; 3], Rc<Chosen>> = BTreeMap::new();
    let mut profile = |item: &Item<MachineDeployment>, pool: &Pool| -> Result<Rc<Chosen>> {
        let annotation = |key| pool::annotation(&item.value, key).map(str::to_owned);
        let system = format!("{} {}", pool.operating_system, pool.provisioning_utility());
        let key = [
            annotation(names::PROFILE),
            annotation(names::PROFILE_NAMESPACE),
            Some(system),
        ];
        if let Some(known) = given.as_ref().or_else(|| chosen.get(&key)) {
            return Ok(Rc::clone(known));
        }
        let found = Rc::new(Chosen::of(item, pool, &manifests.profiles, sources)?);
        chosen.insert(key, Rc::clone(&found));
        Ok(found)
    };
    let mut selected = Partly::default();
    for item in &manifests.machine_deployments {
        selected.take(select_one(item, &manifests.settings_maps, settings, &mut profile))?;
    }
    Ok(selected)
}

/// Reads one MachineDeployment, and finds its settings. `profile` finds its profile.
///
/// # Errors
/// All problems of the pool, or what `profile` fails with.
pub fn select_one(
    item: &Item<MachineDeployment>,
    maps: &[Item<SettingsMap>],
    settings: &Settings,
    profile: &mut impl FnMut(&Item<MachineDeployment>, &Pool) -> Result<Rc<Chosen>>,
) -> Result<Selected> {
    let (pool, settings) = (read(item)?, settings_of(item, maps, settings)?);
    let value = &item.value;
    Ok(Selected {
        pool_ref: PoolRef::from(value),
        profile: profile(item, &pool)?,
        pool,
        settings,
        revision: pool::revision(value).map(str::to_owned),
        template_digest: pool::template_digest(value),
        place: item.origin.place("metadata.name"),
    })
}

fn read(item: &Item<MachineDeployment>) -> Result<Pool> {
    Pool::read(&item.value).map_err(|error| {
        let name = item.value.metadata.name.as_deref().unwrap_or_default();
        let place = item.origin.place(&error.path);
        Problems::from(Problem::error(
            error.reason().as_str(),
            place,
            format!("MachineDeployment {name}: {error}"),
        ))
        .into()
    })
}

/// The settings of a pool, as osc-controller merges them.
fn settings_of(
    item: &Item<MachineDeployment>,
    maps: &[Item<SettingsMap>],
    installation: &Settings,
) -> Result<Settings> {
    let Some(text) = pool::annotation(&item.value, names::SETTINGS) else {
        return Ok(installation.clone());
    };
    let (namespace, name) = (
        item.value.metadata.namespace.as_deref().unwrap_or_default(),
        item.value.metadata.name.as_deref().unwrap_or_default(),
    );
    let failed = |reason: Reason, message: String| {
        let path = format!("metadata.annotations.{}", names::SETTINGS);
        let message = format!("MachineDeployment {name}: {message}");
        Problems::from(Problem::error(reason.as_str(), item.origin.place(&path), message))
    };
    let invalid = |error: PatchError| failed(Reason::PoolSettingsInvalid, error.to_string());
    let settings = PoolSettings::parse(text).map_err(invalid)?;
    let map = match &settings.config_map {
        None => None,
        Some(wanted) => {
            let mut maps = maps.iter().map(|item| &item.value);
            let found = maps.find(|map| map.name == *wanted && map.namespace == namespace);
            Some(found.ok_or_else(|| {
                let message = format!(
                    "annotation {}: there is no ConfigMap {namespace}/{wanted} with the key {SETTINGS_KEY}; add it",
                    names::SETTINGS
                );
                failed(Reason::PoolSettingsNotFound, message)
            })?)
        }
    };
    let merged = settings.merge(installation, map.map(|map| map.text.as_str()));
    Ok(merged.map_err(invalid)?)
}

/// Renders pools.
///
/// # Errors
/// All problems of all pools.
pub fn render(selected: &[Selected]) -> Result<Vec<RenderedPool>> {
    render_all(selected)?.all()
}

/// As [`render`], also if there are problems.
///
/// # Errors
/// A finding that is not a problem of a pool.
pub fn render_all(selected: &[Selected]) -> Result<Partly<RenderedPool>> {
    let mut rendered = Partly::default();
    for one in selected {
        rendered.take(one.render())?;
    }
    Ok(rendered)
}

impl Selected {
    /// Renders the pool.
    ///
    /// # Errors
    /// The first problem of the profile with this pool.
    pub fn render(&self) -> Result<RenderedPool> {
        let endpoint = endpoint(&self.settings).0;
        let machine_deployment = Some((self.pool_ref.name.as_str(), &self.place));
        let rendered = self
            .profile
            .render(&self.pool, machine_deployment, &self.settings, &endpoint)?;
        let rendered_for = RenderedFor {
            pool: self.pool_ref.clone(),
            revision: self.revision.clone(),
            template_digest: self.template_digest.clone(),
            template_generation: None,
        };
        let settings_digest = self
            .settings
            .digest()
            .context("the settings can't be converted to JSON")?;
        let reference = self.profile.reference();
        let stored = rendered.stored(&rendered_for, reference, settings_digest, &endpoint);
        let mut config = rendered.spec;
        rendered_for.store(&mut config);
        Ok(RenderedPool {
            pool_ref: self.pool_ref.clone(),
            values: osm_user_data::placeholders(&config),
            config,
            stored,
            warnings: rendered.warnings,
            place: self.place.clone(),
        })
    }
}

/// The API server of settings, with placeholders for the fields that they do not set, and the names of these
/// fields.
pub fn endpoint(settings: &Settings) -> (ClusterEndpoint, Vec<&'static str>) {
    let stand_in = osm_render::stand_in_cluster();
    let mut missing = Vec::new();
    let mut given = |value: &Option<String>, field, stand_in| {
        value.clone().unwrap_or_else(|| {
            missing.push(field);
            stand_in
        })
    };
    let endpoint = ClusterEndpoint {
        api_server: given(
            &settings.cluster.api_server,
            "cluster.apiServer",
            stand_in.api_server,
        ),
        ca: given(&settings.cluster.ca_bundle, "cluster.caBundle", stand_in.ca),
    };
    (endpoint, missing)
}

/// Reports on standard error what the settings of pools do not contain, and what may not be meant.
pub fn warn(selected: &[Selected], rendered: &[RenderedPool]) {
    let mut missing: Vec<&str> = selected
        .iter()
        .flat_map(|one| endpoint(&one.settings).1)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        output::note(&format!(
            "osmctl: the settings do not set {}; the output contains placeholders",
            missing.join(" and ")
        ));
    }
    for pool in rendered {
        let PoolRef { namespace, name, .. } = &pool.pool_ref;
        for warning in &pool.warnings {
            output::warnings([&match rendered {
                [_] => warning.clone(),
                _ => format!("{namespace}/{name}: {warning}"),
            }]);
        }
    }
}

impl RenderedPool {
    /// What a stored config contains.
    pub fn stored(pool_ref: PoolRef, config: Content, place: Place) -> Self {
        Self {
            pool_ref,
            values: osm_user_data::placeholders(&config),
            config,
            stored: Stored::default(),
            warnings: Vec::new(),
            place,
        }
    }

    /// The document of a stage, with placeholders for credentials.
    ///
    /// # Errors
    /// A value that can't be written where its marker is.
    pub fn document(&self, stage: Stage) -> Result<String> {
        Ok(osm_user_data::user_data(&self.config, stage, &self.values)?)
    }

    /// What the document of a stage puts on a machine.
    ///
    /// # Errors
    /// As [`Self::document`].
    pub fn machine(&self, stage: Stage) -> Result<MachineStage> {
        Ok(osm_user_data::machine_stage(&self.config, stage, &self.values)?)
    }

    /// The object that osc-controller writes, without what only a cluster knows.
    pub fn object(&self) -> OperatingSystemConfig {
        let spec = content::spec_for(self.pool_ref.clone());
        let mut object = OperatingSystemConfig::new(&self.pool_ref.config_name(), spec);
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(names::OWNER.to_owned(), self.pool_ref.to_string());
        let labels = object.metadata.labels.get_or_insert_default();
        labels.insert(names::POOL.to_owned(), self.pool_ref.id());
        object.status = Some(OperatingSystemConfigStatus {
            rendered: Some(self.stored.with_documents(&self.config)),
            ..OperatingSystemConfigStatus::default()
        });
        object
    }
}
