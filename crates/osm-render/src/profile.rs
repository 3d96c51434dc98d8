//! A compiled profile, and rendering it for a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use osm_api::config::{CloudProviderRef, LateBound, ProfileRef, StageConfig, Stored, UserDataBytes};
use osm_api::content::{Content, RenderedFor};
use osm_api::pool::Pool;
use osm_api::profile::{
    AcceptedProfile, CloudProvider, File, FileContent, MAX_CONTENT_BYTES, OperatingSystem,
    OperatingSystemProfileSpec, ProfileConfig, TemplateEngine, stored_json_bytes,
};
use osm_api::settings::Settings;
use osm_api::{ClusterEndpoint, digest, node_name};
use osm_user_data::document::user_data;
use osm_user_data::error::UserDataError;
use osm_user_data::reader::Reader;
use osm_user_data::stage::Stage;
use osm_user_data::{clouds, kubeconfig_secret, late_bound, static_network};
use parking_lot::Mutex;
use semver::Version;
use serde_json::{Map, Value, json};

use crate::budget::Budget;
use crate::downloads::{Catalogue, Download};
use crate::engine::{Compiled, Engine, Failure, Inputs, Sources};
use crate::error::{ProfileError, RenderError, TemplatePosition};
use crate::go_templates::{containerd, passed_on};
use crate::model::KUBECONFIG_SECRET_NAME;
use crate::readable::{is_password, readable};
use crate::rendered_text::{Placements, RenderedText};
use crate::validate::modules::applied;
use crate::{
    containerd_version, engines, go_templates, kubelet, model, placement, profile_secrets, settings_warnings,
    subscription, template_walk,
};

/// Share of a cloud's limit, in percent, above which a warning is given: from there, a small change of the
/// settings can exceed the limit.
const WARN_ABOVE_PERCENT: usize = 90;

/// Configurations whose sizes are remembered. Pools and settings can change without end, so the memory needs
/// a bound.
const MAX_MEASURED: usize = 4096;

/// Modules of cloud-init that change the host name.
const HOST_NAME_MODULES: [&str; 4] = [
    "hostname",
    "fqdn",
    "preserve_hostname",
    "prefer_fqdn_over_hostname",
];

/// The largest number of Secrets and ConfigMaps that the content of one pool can refer to. secret-syncer
/// reads each of them to publish it.
const MAX_SOURCES: usize = 100;

/// A profile with every template parsed and checked. Cheap to share; compile once for each accepted digest.
pub struct Profile {
    spec: OperatingSystemProfileSpec,
    bootstrap: Box<dyn Compiled>,
    provisioning: Box<dyn Compiled>,
    /// Values of Secrets that the texts of the provisioning stage name, by id.
    secrets: Secrets,
    /// By the SHA-256 of the configuration and the version of the kubelet. A controller renders the same
    /// pools again and again, and writing and compressing both documents takes longer than rendering them.
    measured: Mutex<BTreeMap<(String, Version), Measured>>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("version", &self.spec.version)
            .finish_non_exhaustive()
    }
}

/// Values of Secrets that the texts of a stage name, by id.
type Secrets = BTreeMap<String, LateBound>;

/// What depends on a configuration alone: the sizes of its documents, and warnings about them.
type Measured = (UserDataBytes, Vec<String>);

#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The configuration; `machine_deployment` is left to the caller.
    pub spec: Content,
    /// Sizes with late-bound values at their largest.
    pub user_data_bytes: UserDataBytes,
    /// What its nodes download: everything whose URL a template asked for, in order.
    pub downloads: Vec<Download>,
    /// What works, but may not be what was meant.
    pub warnings: Vec<String>,
}

impl Rendered {
    /// What the status of an OperatingSystemConfig stores of it, without the documents.
    pub fn stored(
        &self,
        rendered_for: &RenderedFor,
        profile: ProfileRef,
        settings_digest: String,
        cluster: &ClusterEndpoint,
    ) -> Stored {
        let described = Stored {
            revision: rendered_for.revision.clone(),
            template_digest: Some(rendered_for.template_digest.clone()),
            template_generation: rendered_for.template_generation,
            profile: Some(profile),
            settings_digest: Some(settings_digest),
            api_server: Some(cluster.api_server.clone()),
            user_data_bytes: Some(self.user_data_bytes),
            ..Stored::default()
        };
        Stored::new(&self.spec, kubeconfig_secret::is_needed(&self.spec), described)
    }
}

/// Parses every template of a profile and checks how they include each other.
///
/// # Errors
/// The first template that is wrong, with line and column.
pub fn compile(accepted: &AcceptedProfile) -> Result<Profile, ProfileError> {
    let spec = accepted.spec.0.clone();
    let engine = engines::engine(spec.template_engine);
    let never = AtomicBool::new(false);
    let budget = Budget::new(&never);
    let (bootstrap, _) = compile_stage(engine, Stage::Bootstrap, &spec, &budget)?;
    let (provisioning, secrets) = compile_stage(engine, Stage::Provisioning, &spec, &budget)?;
    Ok(Profile {
        bootstrap,
        provisioning,
        secrets,
        measured: Mutex::default(),
        spec,
    })
}

/// The templates of a stage, and the values of Secrets that their texts name.
fn compile_stage(
    engine: &dyn Engine,
    stage: Stage,
    spec: &OperatingSystemProfileSpec,
    budget: &Budget<'_>,
) -> Result<(Box<dyn Compiled>, Secrets), ProfileError> {
    let config = stage.config(spec);
    let partials = template_walk::templates(stage.field(), config).into_iter();
    let sources = Sources {
        partials: partials.map(|(_, name, text)| (name, text)).collect(),
        texts: template_walk::texts(stage.field(), config),
    };
    let compiled = engine.compile(&sources, budget).map_err(|failure| {
        let (position, problem) = located(stage, config, failure);
        ProfileError::Template { position, problem }
    })?;
    Ok((compiled, profile_secrets::named(&sources)))
}

impl Profile {
    /// The resolved profile that this was compiled from.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// Renders the profile for a pool. The same input always gives the same result.
    ///
    /// # Errors
    /// A pool that the profile is not for, a template that fails, or a result that is too large. No message
    /// repeats what settings or pool contain.
    pub fn render(
        &self,
        pool: &Pool,
        settings: &Settings,
        cluster: &ClusterEndpoint,
    ) -> Result<Rendered, RenderError> {
        self.render_unless(&AtomicBool::new(false), pool, settings, cluster)
    }

    /// As [`Profile::render`], and fails soon after another thread sets `cancelled`.
    ///
    /// # Errors
    /// As [`Profile::render`], and that it was cancelled.
    pub fn render_unless(
        &self,
        cancelled: &AtomicBool,
        pool: &Pool,
        settings: &Settings,
        cluster: &ClusterEndpoint,
    ) -> Result<Rendered, RenderError> {
        self.render_within(Budget::new(cancelled), pool, settings, cluster)
    }

    pub(crate) fn render_within(
        &self,
        budget: Budget<'_>,
        pool: &Pool,
        settings: &Settings,
        cluster: &ClusterEndpoint,
    ) -> Result<Rendered, RenderError> {
        let mut warnings = suits(&self.spec, pool)?;
        self.check_host_name(pool, settings)?;
        warnings.extend(pool.warnings.iter().cloned());
        warnings.extend(settings_warnings::warnings(pool, settings, cluster));
        let problems = kubelet::check(pool, &settings.kubelet);
        if !problems.is_empty() {
            return Err(RenderError::KubeletSettings { problems });
        }
        let data = model::data(pool, settings, cluster);
        check_reserved(pool, &data)?;
        let downloads = Catalogue::new(&settings.downloads, &pool.kubelet_version);
        let mut late_bound = BTreeMap::new();
        let mut stage = |stage| {
            let known = self.known(stage, settings, pool);
            let inputs = Inputs {
                data: &data,
                pool,
                settings,
                cluster,
                late_bound_values: &Placements::new(&known),
                downloads: &downloads,
            };
            let (config, used) = self.render_stage(stage, &inputs, &budget, &mut warnings)?;
            late_bound.extend(known.into_iter().filter(|(id, _)| used.contains(id)));
            Ok::<_, RenderError>(config)
        };
        let (mut bootstrap, mut provisioning) = (stage(Stage::Bootstrap)?, stage(Stage::Provisioning)?);
        let reader = Reader::of(Some(self.spec.os_name), self.spec.provisioning_utility);
        bootstrap.user_ssh_keys.clone_from(&pool.ssh_public_keys);
        let documents = [&mut bootstrap, &mut provisioning];
        warnings.extend(placement::add(&self.spec, documents, pool, settings));
        if reader == Reader::CloudInit {
            let used = subscription::used(pool).into_iter();
            late_bound.extend(used.map(|late| (late.id.clone(), late)));
        }
        configure_network(reader, &mut bootstrap, pool)?;

        // Only templates in Go's language can ask for the name.
        let is_fetched = late_bound.contains_key(KUBECONFIG_SECRET_NAME);
        let kubelet_kubeconfig = is_fetched.then(|| go_templates::kubelet_kubeconfig(cluster));
        if kubelet_kubeconfig.is_some() {
            let token = model::kubelet_token();
            late_bound.entry(token.id.clone()).or_insert(token);
        }

        let found = model::sources(late_bound.values());
        if found > MAX_SOURCES {
            return Err(RenderError::TooManySources {
                found,
                limit: MAX_SOURCES,
            });
        }

        let mut spec = Content {
            os_name: Some(pool.operating_system),
            cloud_provider: Some(CloudProviderRef {
                name: pool.cloud_provider,
                spec: None,
            }),
            bootstrap_config: bootstrap,
            provisioning_config: provisioning,
            provisioning_utility: self.spec.provisioning_utility,
            late_bound_values: late_bound.into_values().collect(),
            kubelet_kubeconfig,
            ..Content::default()
        };
        let json = in_order(&mut spec);
        let bytes = stored_json_bytes(&json);
        if bytes > MAX_CONTENT_BYTES {
            return Err(RenderError::ContentTooLarge {
                bytes,
                limit: MAX_CONTENT_BYTES,
            });
        }
        let (user_data_bytes, of_documents) = self.measure(&json, &spec, pool)?;
        warnings.extend(of_documents);
        warnings.extend(readable_passwords(&spec));
        Ok(Rendered {
            spec,
            user_data_bytes,
            downloads: downloads.asked(),
            warnings,
        })
    }

    /// As [`measure`], which is remembered.
    fn measure(&self, json: &str, spec: &Content, pool: &Pool) -> Result<Measured, RenderError> {
        let key = (digest::sha256_hex(json.as_bytes()), pool.kubelet_version.clone());
        if let Some(known) = self.measured.lock().get(&key) {
            return Ok(known.clone());
        }
        let mut new = measure(spec, pool)?;
        new.1.extend(self.judge_kubelet(spec, pool)?);
        let mut measured = self.measured.lock();
        if measured.len() >= MAX_MEASURED {
            measured.clear();
        }
        measured.insert(key, new.clone());
        Ok(new)
    }

    /// Warnings about the kubelet's configuration. What a Go profile has always rendered goes on being
    /// rendered.
    fn judge_kubelet(&self, spec: &Content, pool: &Pool) -> Result<Vec<String>, RenderError> {
        let kubelet::Verdict {
            problems,
            mut warnings,
        } = kubelet::judge(pool, spec);
        let version = pool.kubelet_version.to_string();
        if self.spec.template_engine == TemplateEngine::GoTemplate {
            warnings.extend(
                problems
                    .into_iter()
                    .map(|problem| format!("kubelet {version} would not start: {problem}")),
            );
        } else if !problems.is_empty() {
            return Err(RenderError::KubeletConfiguration { version, problems });
        }
        Ok(warnings)
    }

    /// csr-approver approves only names that it can predict.
    fn check_host_name(&self, pool: &Pool, settings: &Settings) -> Result<(), RenderError> {
        if settings.kubelet.hostname_override != Some(false) {
            return Ok(());
        }
        let modules = self.spec.bootstrap_config.modules.as_ref();
        let module = HOST_NAME_MODULES
            .iter()
            .find(|module| modules.is_some_and(|modules| modules.get(module).is_some()));
        let problem = if node_name::of_host_name(pool.cloud_provider).is_none() {
            let cloud = pool.cloud_provider;
            format!("on {cloud} OSM does not set the host names of machines; remove the setting")
        } else if pool.name.contains('.') {
            "the MachineDeployment's name has a dot, and a host name ends at its first dot; use a name without dots".to_owned()
        } else if let Some(module) = module {
            format!("the profile sets bootstrapConfig.modules.{module}; remove it from the profile")
        } else {
            return Ok(());
        };
        Err(RenderError::HostnameUnpredictable { problem })
    }

    /// The late-bound values that the templates of a stage may place.
    fn known(&self, stage: Stage, settings: &Settings, pool: &Pool) -> BTreeMap<String, LateBound> {
        let mut known = model::late_bound(stage, self.spec.template_engine, settings, pool);
        // A pod can read the bootstrap document from the metadata service of many clouds.
        if stage == Stage::Provisioning {
            known.extend(self.secrets.clone());
        }
        known
    }

    /// A rendered stage, and the ids of the late-bound values that it refers to.
    fn render_stage(
        &self,
        stage: Stage,
        inputs: &Inputs<'_>,
        budget: &Budget<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(StageConfig, BTreeSet<String>), RenderError> {
        let config = stage.config(&self.spec);
        let compiled = match stage {
            Stage::Bootstrap => &self.bootstrap,
            Stage::Provisioning => &self.provisioning,
        };
        let rendered = compiled.render(inputs, budget);
        let rendered = rendered.map_err(|failure| {
            let (position, problem) = located(stage, config, failure);
            RenderError::Template { position, problem }
        })?;
        let mut texts = rendered.into_iter();
        let mut used = BTreeSet::new();
        let mut rendered = template_walk::map(stage.field(), config, &mut |place, _| {
            let unknown = || UserDataError::LateBoundValueUnknown {
                place: place.to_string(),
            };
            let RenderedText { content, markers } = texts.next().ok_or_else(unknown)?;
            used.extend(markers.into_iter().map(|marker| marker.id));
            Ok::<_, UserDataError>(content)
        })?;
        if self.spec.template_engine != TemplateEngine::GoTemplate {
            leave_out_empty_files(stage, config, &mut rendered);
            return Ok((rendered, used));
        }
        let reader = Reader::of(Some(self.spec.os_name), self.spec.provisioning_utility);
        warnings.extend(passed_on::settle(stage, reader, &mut rendered));
        if stage == Stage::Provisioning {
            warnings.extend(replace_mirrors(inputs.settings, &mut rendered));
        }
        Ok((rendered, used))
    }
}

/// Writes the mirrors of registries, as the upstream OSM does, with a warning for each file of the profile
/// that it replaces.
fn replace_mirrors(settings: &Settings, rendered: &mut StageConfig) -> Vec<String> {
    let mirrors = containerd::mirrors(settings);
    let is_replaced = |file: &mut File| mirrors.iter().any(|mirror| mirror.path == file.path);
    let warning = |File { path, .. }: File| {
        format!("the profile's {path} is replaced: the settings determine this file")
    };
    let warnings = rendered.files.extract_if(.., is_replaced).map(warning).collect();
    rendered.files.extend(mirrors);
    warnings
}

/// Whether a profile is for this pool, and what deserves a look. It renders nothing.
///
/// # Errors
/// The profile is for other machines.
pub fn suits(spec: &OperatingSystemProfileSpec, pool: &Pool) -> Result<Vec<String>, RenderError> {
    let mut warnings = Vec::new();
    let (profile_os, os) = (spec.os_name, pool.operating_system);
    if !profile_os.fits(os) {
        return Err(RenderError::UnsupportedOperatingSystem {
            profile: profile_os.to_string(),
            pool: os.to_string(),
        });
    }
    if profile_os != os {
        warnings.push(format!(
            "a profile for {profile_os} is used for machines that run {os}"
        ));
    }
    let (profile, utility) = (spec.provisioning_utility, pool.provisioning_utility());
    if profile != utility {
        return Err(RenderError::UnsupportedProvisioningUtility {
            profile,
            pool: utility,
        });
    }
    let clouds = &spec.supported_cloud_providers;
    if !clouds.iter().any(|cloud| cloud.name == pool.cloud_provider) {
        return Err(RenderError::UnsupportedCloudProvider {
            supported: clouds.iter().map(|cloud| cloud.name.to_string()).collect(),
            pool: pool.cloud_provider.to_string(),
        });
    }
    if pool.cloud_provider == CloudProvider::Edge && Reader::of(Some(os), utility) != Reader::CloudInit {
        return Err(RenderError::NoCloudInit);
    }
    let (oldest, newest) = kubelet::TESTED_MINORS;
    let version = &pool.kubelet_version;
    if version.major != 1 || version.minor < oldest || version.minor > newest {
        warnings.push(format!(
            "kubelet {version} is not one of 1.{oldest} to 1.{newest}, which this version is tested with"
        ));
    }
    if os == OperatingSystem::Flatcar && pool.os.dist_upgrade_on_boot {
        warnings.push(format!(
            "distUpgradeOnBoot has no effect on {os}, which updates itself as a whole"
        ));
    }
    Ok(warnings)
}

/// Puts a configuration in one order, since it may come from a file or from an API server, which sorts.
/// Returns it as JSON.
fn in_order(spec: &mut Content) -> String {
    let stages = [&mut spec.bootstrap_config, &mut spec.provisioning_config];
    stages
        .into_iter()
        .flat_map(|stage| &mut stage.modules)
        .for_each(Value::sort_all_objects);
    // What serialises, and a configuration does, has a JSON form.
    serde_json::to_string(spec).unwrap_or_default()
}

/// Leaves out each file whose template renders to nothing, so that a template can decide whether its file
/// exists. A file that the profile itself leaves empty stays.
fn leave_out_empty_files(stage: Stage, config: &ProfileConfig, rendered: &mut StageConfig) {
    let is_empty = |content: &FileContent| content.text().trim().is_empty();
    let mut sources = template_walk::files(stage.field(), config);
    rendered.files.retain(|file| {
        let by_itself = sources.next().is_none_or(|(_, source)| is_empty(&source.content));
        by_itself || !is_empty(&file.content)
    });
}

/// Adds the static network of the pool, if it has one, to the first document: without it there is no second.
fn configure_network(reader: Reader, bootstrap: &mut StageConfig, pool: &Pool) -> Result<(), RenderError> {
    let Some(file) =
        static_network::file(&pool.network).map_err(|problem| RenderError::UnsupportedNetwork { problem })?
    else {
        return Ok(());
    };
    let problem = if reader == Reader::CloudInit {
        "only machines with Flatcar can have a static address; remove cidr, gateway and dns"
    } else if bootstrap.files.iter().any(|other| other.path == file.path) {
        "the profile contains the file that OSM writes the static network to; remove the file from the profile"
    } else {
        bootstrap.files.push(file);
        return Ok(());
    };
    Err(RenderError::UnsupportedNetwork {
        problem: problem.to_owned(),
    })
}

/// The place of a failure inside the spec, and the problem.
fn located(stage: Stage, config: &ProfileConfig, failure: Failure) -> (TemplatePosition, String) {
    let field = stage.field();
    let text = failure
        .text
        .map(|number| template_walk::place(field, config, number));
    let place = match (failure.template, text) {
        (Some(name), Some(text)) => format!("{text}, in the template {name:?} of {field}"),
        (Some(template), None) => {
            let mut templates = template_walk::templates(field, config).into_iter();
            let found = templates.find(|(_, name, _)| *name == template);
            found.map_or(template.clone(), |(place, ..)| place)
        }
        (None, text) => text.unwrap_or_default(),
    };
    let position = TemplatePosition {
        template: place,
        line: failure.line,
        column: failure.column,
    };
    (position, failure.problem)
}

/// Warnings for files and units with a password that every user of a machine can read.
fn readable_passwords(spec: &Content) -> Vec<String> {
    let of_stage = |stage: Stage| readable(stage.of_content(spec), &spec.late_bound_values, is_password);
    let paths = Stage::ALL.into_iter().flat_map(of_stage);
    paths
        .map(|path| {
            format!(
                "{path} contains a password, and users other than root can read it; write the password to a file with permissions 600"
            )
        })
        .collect()
}

/// No input may contain text that could pass for a marker, which is replaced later.
fn check_reserved(pool: &Pool, data: &Value) -> Result<(), RenderError> {
    let texts: Map<String, Value> = subscription::plain_texts(pool)
        .map(|(field, text)| (field.to_owned(), json!(text)))
        .collect();
    let own = json!({"sshPublicKeys": pool.ssh_public_keys, "operatingSystemSpec": texts});
    let of_data = || late_bound::find_reserved(data).map(|path| format!("template data.{path}"));
    match late_bound::find_reserved(&own).or_else(of_data) {
        Some(place) => Err(RenderError::ReservedText { place }),
        None => Ok(()),
    }
}

/// Sizes of both documents at their largest, and warnings about what is in them.
fn measure(spec: &Content, pool: &Pool) -> Result<Measured, RenderError> {
    let largest = late_bound::largest(&spec.late_bound_values);
    let bootstrap = user_data(spec, Stage::Bootstrap, &largest)?;
    let provisioning = user_data(spec, Stage::Provisioning, &largest)?;
    let mut warnings = containerd_version::warnings(spec);
    warnings.extend(applied::skipped(spec));
    let mut bytes = bootstrap.len();
    let cloud = pool.cloud_provider;
    if let Some(limit) = clouds::size_limit(cloud, pool.operating_system) {
        bytes = limit.count(&bootstrap);
        let limit = limit.bytes;
        if bytes > limit {
            let cloud = cloud.to_string();
            return Err(RenderError::UserDataTooLarge { bytes, limit, cloud });
        }
        if bytes * 100 > limit * WARN_ABOVE_PERCENT {
            warnings.push(format!(
                "the bootstrap user data has {bytes} bytes of the {limit} that {cloud} takes"
            ));
        }
    }
    let count = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    let bytes = UserDataBytes {
        bootstrap: count(bytes),
        provisioning: count(provisioning.len()),
    };
    Ok((bytes, warnings))
}
