//! A compiled profile, and rendering it for a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use osm_api::config::{CloudProviderRef, LateBound, OperatingSystemConfigSpec, StageConfig, UserDataBytes};
use osm_api::digest;
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::pool::Pool;
use osm_api::profile::{
    AcceptedProfile, File, MAX_CONTENT_BYTES, OperatingSystem, OperatingSystemProfileSpec, ProfileConfig,
    TemplateEngine, stored_json_bytes,
};
use osm_api::settings::Settings;
use serde_json::Value;

use crate::downloads::Download;
use crate::error::{ProfileError, RenderError, TemplatePosition, UserDataError};
use crate::handlebars::{self, Budget, Located, Templates};
use crate::late::{self, Marker};
use crate::text::{Inputs, Text};
use crate::texts::Place;
use crate::user_data::{self, Reader};
use crate::{Stage, kubelet, model, packages, size, static_network, subscription, texts};

/// Oldest and newest minor version of Kubernetes 1 that templates are tried with.
pub(crate) const KUBELET_MINORS: (u64, u64) = (33, 36);

/// Share of a cloud's limit, in percent, from which on a warning is given.
const NEAR_LIMIT: usize = 90;

/// Most results whose sizes are remembered.
const MAX_REMEMBERED: usize = 4096;

/// How the nodes of a pool reach their API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEndpoint {
    /// `https://host:port`.
    pub api_server: String,
    /// PEM bundle that verifies it.
    pub ca: String,
}

/// A profile with every template parsed and checked. Cheap to share; compile once for each accepted digest.
pub struct Profile {
    spec: OperatingSystemProfileSpec,
    bootstrap: Engine,
    provisioning: Engine,
    /// Sizes by the digest of what was measured: writing and compressing both documents takes longer than rendering,
    /// and a controller renders the same again and again.
    measured: Mutex<BTreeMap<String, Sizes>>,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile").field("version", &self.spec.version).finish_non_exhaustive()
    }
}

/// Sizes of both documents, and a warning when the first is near its limit.
type Sizes = (UserDataBytes, Option<String>);

/// The template language of one stage.
enum Engine {
    Verbatim,
    Handlebars {
        templates: Box<Templates>,
        /// The templates of the texts, in the order of [`texts::map`].
        texts: Vec<String>,
    },
}

/// The texts of a rendered stage. Its configuration has their digests in their place: what is hashed for every pool is
/// small so, and most texts are those of other pools.
#[derive(Default)]
struct Texts {
    files: Vec<Arc<Text>>,
    units: Vec<Arc<Text>>,
}

impl Texts {
    fn stored_bytes(&self) -> usize {
        self.files.iter().chain(&self.units).map(|text| text.stored_bytes).sum()
    }

    fn fill(&self, config: &mut StageConfig) {
        let contents = |text: &'_ Arc<Text>| text.content.clone();
        texts::fill(config, self.files.iter().map(contents), self.units.iter().map(contents));
    }
}

/// What rendering both stages uses and leaves behind.
struct Rendering<'a> {
    inputs: Inputs<'a>,
    budget: Budget,
    late_bound: BTreeMap<String, LateBound>,
    downloads: BTreeSet<Download>,
}

/// A rendered profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The configuration, with `digest` set; `machineDeployment` and `profile` are left to the caller.
    pub spec: OperatingSystemConfigSpec,
    /// Sizes with late-bound values at their largest.
    pub user_data_bytes: UserDataBytes,
    /// What its nodes download: everything whose URL a template asked for, in order.
    pub downloads: Vec<Download>,
    /// What works, but deserves a look.
    pub warnings: Vec<String>,
}

/// Parses every template of a profile and checks how they include each other.
///
/// # Errors
/// The first template that is wrong, with line and column.
pub fn compile(accepted: &AcceptedProfile) -> Result<Profile, ProfileError> {
    let spec = accepted.spec.0.clone();
    let engine = |stage: Stage| match spec.template_engine {
        TemplateEngine::GoTemplate => Err(ProfileError::TemplateEngineUnsupported),
        TemplateEngine::None => Ok(Engine::Verbatim),
        TemplateEngine::Handlebars => compile_stage(stage, &spec),
    };
    Ok(Profile {
        bootstrap: engine(Stage::Bootstrap)?,
        provisioning: engine(Stage::Provisioning)?,
        measured: Mutex::default(),
        spec,
    })
}

fn compile_stage(stage: Stage, spec: &OperatingSystemProfileSpec) -> Result<Engine, ProfileError> {
    let config = stage.config(spec);
    let mut templates = Templates::new();
    let mut places = BTreeMap::new();
    let error = |template: &str, at: Located| ProfileError::Template {
        position: TemplatePosition { template: template.to_owned(), line: at.line, column: at.column },
        problem: at.problem,
    };
    for (place, name, text) in texts::templates(stage.field(), config) {
        templates.add(name, text).map_err(|at| error(&place, at))?;
        places.insert(name.to_owned(), place);
    }
    let mut texts = Vec::new();
    texts::map(stage.field(), config, &mut |place, text| {
        let place = place.to_string();
        templates.add(&place, text).map_err(|at| error(&place, at))?;
        texts.push(place);
        Ok(String::new())
    })?;
    templates.link(&texts).map_err(|include| {
        let template = places.get(&include.template).unwrap_or(&include.template);
        error(template, Located { line: None, column: None, problem: include.problem })
    })?;
    Ok(Engine::Handlebars { templates: Box::new(templates), texts })
}

impl Profile {
    /// The resolved profile that this was compiled from.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// Renders the profile for a pool. The same input always gives the same result.
    ///
    /// # Errors
    /// A pool that the profile is not for, a template that fails, or a result that is too large. No message repeats
    /// what settings or pool contain.
    pub fn render(
        &self,
        pool: &Pool,
        settings: &Settings,
        cluster: &ClusterEndpoint,
    ) -> Result<Rendered, RenderError> {
        let mut warnings = self.suits(pool)?;
        warnings.extend(pool.warnings.iter().cloned());
        let kubelet = kubelet::check(pool, &settings.kubelet);
        if !kubelet.mistakes.is_empty() {
            return Err(RenderError::KubeletSettings { problems: kubelet.mistakes });
        }
        warnings.extend(kubelet.warnings.iter().map(|warning| format!("the settings' {warning}")));
        let data = model::data(pool, settings, cluster);
        check_reserved(pool, &data)?;
        let mut rendering = Rendering {
            inputs: Inputs {
                context: handlebars::context(data),
                downloads: &settings.downloads,
                kubelet: &pool.kubelet_version,
            },
            budget: Budget::default(),
            late_bound: BTreeMap::new(),
            downloads: BTreeSet::new(),
        };
        let mut stage =
            |stage: Stage| self.render_stage(stage, &late::known(stage, settings, pool), &mut rendering);
        let (mut bootstrap, first) = stage(Stage::Bootstrap)?;
        let (mut provisioning, second) = stage(Stage::Provisioning)?;
        let Rendering { mut late_bound, downloads, .. } = rendering;
        let reader = Reader::of(Some(self.spec.os_name), self.spec.provisioning_utility);
        bootstrap.user_ssh_keys.clone_from(&pool.ssh_public_keys);
        if reader == Reader::CloudInit {
            warnings.extend(packages::configure(&mut bootstrap, pool, &settings.packages));
            warnings.extend(subscription::configure(&mut provisioning, pool));
            late_bound.extend(subscription::used(pool).into_iter().map(|late| (late.id.clone(), late)));
            // Packages come from the subscription, where there is one.
            let subscribed = subscription::is_wanted(pool);
            let earliest = if subscribed { &mut provisioning } else { &mut bootstrap };
            warnings.extend(packages::upgrade_on_boot(earliest, pool, &settings.packages));
            warnings.extend(hidden_machine_names(&bootstrap, &first));
        }
        configure_network(reader, &mut bootstrap, pool)?;

        let mut spec = OperatingSystemConfigSpec {
            os_name: Some(pool.operating_system),
            os_version: self.spec.os_version.clone(),
            cloud_provider: Some(CloudProviderRef { name: pool.cloud_provider, spec: None }),
            bootstrap_config: bootstrap,
            provisioning_config: provisioning,
            provisioning_utility: self.spec.provisioning_utility,
            late_bound: late_bound.into_values().collect(),
            ..OperatingSystemConfigSpec::default()
        };
        let (digest, bytes) = digest_of_outline(&mut spec);
        let bytes = bytes + first.stored_bytes() + second.stored_bytes();
        if bytes > MAX_CONTENT_BYTES {
            return Err(RenderError::ContentTooLarge { bytes, limit: MAX_CONTENT_BYTES });
        }
        first.fill(&mut spec.bootstrap_config);
        second.fill(&mut spec.provisioning_config);
        let (user_data_bytes, near) = self.sizes(&digest, &spec, pool)?;
        warnings.extend(near);
        spec.digest = Some(digest);
        Ok(Rendered { spec, user_data_bytes, downloads: downloads.into_iter().collect(), warnings })
    }

    /// [`sizes`], which depend on the configuration alone, and so on its digest.
    fn sizes(
        &self,
        digest: &str,
        spec: &OperatingSystemConfigSpec,
        pool: &Pool,
    ) -> Result<Sizes, RenderError> {
        let measured = || self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = measured().get(digest) {
            return Ok(known.clone());
        }
        let sizes = sizes(spec, pool)?;
        let mut measured = measured();
        if measured.len() >= MAX_REMEMBERED {
            measured.clear();
        }
        measured.insert(digest.to_owned(), sizes.clone());
        Ok(sizes)
    }

    /// Whether the profile is for this pool, and what deserves a look.
    fn suits(&self, pool: &Pool) -> Result<Vec<String>, RenderError> {
        let mut warnings = Vec::new();
        let (profile_os, os) = (self.spec.os_name, pool.operating_system);
        if !profile_os.fits(os) {
            return Err(RenderError::UnsupportedOperatingSystem {
                profile: profile_os.to_string(),
                pool: os.to_string(),
            });
        }
        if profile_os != os {
            warnings.push(format!("a profile for {profile_os} is used for machines that run {os}"));
        }
        let (profile, utility) = (self.spec.provisioning_utility, pool.provisioning_utility());
        if profile != utility {
            return Err(RenderError::UnsupportedProvisioningUtility { profile, pool: utility });
        }
        let clouds = &self.spec.supported_cloud_providers;
        if !clouds.iter().any(|cloud| cloud.name == pool.cloud_provider) {
            return Err(RenderError::UnsupportedCloudProvider {
                supported: clouds.iter().map(|cloud| cloud.name.to_string()).collect(),
                pool: pool.cloud_provider.to_string(),
            });
        }
        let (oldest, newest) = KUBELET_MINORS;
        let version = &pool.kubelet_version;
        if version.major != 1 || version.minor < oldest || version.minor > newest {
            warnings.push(format!(
                "kubelet {version} is outside 1.{oldest} to 1.{newest}, which this version was tried with"
            ));
        }
        if os == OperatingSystem::Flatcar && pool.os.dist_upgrade_on_boot {
            warnings.push(format!("distUpgradeOnBoot does nothing on {os}, which updates itself as a whole"));
        }
        Ok(warnings)
    }

    fn render_stage(
        &self,
        stage: Stage,
        known: &BTreeMap<String, LateBound>,
        rendering: &mut Rendering<'_>,
    ) -> Result<(StageConfig, Texts), RenderError> {
        let config = stage.config(&self.spec);
        let engine = match stage {
            Stage::Bootstrap => &self.bootstrap,
            Stage::Provisioning => &self.provisioning,
        };
        let mut texts_of_stage = Texts::default();
        let mut next = 0;
        let mut rendered = texts::map(stage.field(), config, &mut |place, text| {
            let text = match engine {
                Engine::Verbatim => {
                    let damaged = |_| UserDataError::UnknownMarker { place: place.to_string() };
                    Arc::new(Text::verbatim(text).map_err(damaged)?)
                }
                Engine::Handlebars { templates, texts } => {
                    let name = texts.get(next).map_or("", String::as_str);
                    next += 1;
                    templates.render(name, &rendering.inputs, known, &rendering.budget).map_err(
                        |failure| RenderError::Template {
                            position: position(stage, name, &failure),
                            problem: failure.at.problem,
                        },
                    )?
                }
            };
            for Marker { id, .. } in &text.markers {
                let unknown = || UserDataError::UnknownMarker { place: place.to_string() };
                let late = known.get(id).ok_or_else(unknown)?;
                if !rendering.late_bound.contains_key(id) {
                    rendering.late_bound.insert(id.clone(), late.clone());
                }
            }
            rendering.downloads.extend(text.downloads.iter().cloned());
            let texts = match place {
                Place::File { .. } => &mut texts_of_stage.files,
                Place::Unit { .. } => &mut texts_of_stage.units,
                Place::Value { .. } => return Ok(text.content.clone()),
            };
            texts.push(text.clone());
            Ok::<_, RenderError>(text.digest.clone())
        })?;
        if let Engine::Handlebars { .. } = engine {
            leave_out_empty_files(stage, config, &mut rendered, &mut texts_of_stage.files);
        }
        Ok((rendered, texts_of_stage))
    }
}

/// Digest of a configuration that has digests for texts, and the bytes that it takes itself.
fn digest_of_outline(spec: &mut OperatingSystemConfigSpec) -> (String, usize) {
    // In one order: it may come from a file or from an API server, which sorts.
    let stages = [&mut spec.bootstrap_config, &mut spec.provisioning_config];
    stages.into_iter().flat_map(|stage| &mut stage.modules).for_each(Value::sort_all_objects);
    // What serialises, and a configuration does, has a JSON form.
    let json = serde_json::to_string(spec).unwrap_or_default();
    (digest::sha256_hex(json.as_bytes()), stored_json_bytes(&json))
}

/// A file whose template has nothing to say is not written, so that a template can decide it.
fn leave_out_empty_files(
    stage: Stage,
    config: &ProfileConfig,
    rendered: &mut StageConfig,
    texts: &mut Vec<Arc<Text>>,
) {
    let empty_by_itself = |(_, file): (_, &File)| {
        file.content.inline.as_ref().is_none_or(|inline| inline.data.trim().is_empty())
    };
    let stays: Vec<bool> = texts::files(stage.field(), config)
        .zip(texts.iter())
        .map(|(file, text)| empty_by_itself(file) || !text.content.trim().is_empty())
        .collect();
    let mut of_file = stays.iter();
    rendered.files.retain(|_| of_file.next().is_none_or(|stays| *stays));
    let mut of_text = stays.iter();
    texts.retain(|_| of_text.next().is_none_or(|stays| *stays));
}

/// Adds the static network of the pool, if it has one, to the first document: without it there is no second.
fn configure_network(reader: Reader, bootstrap: &mut StageConfig, pool: &Pool) -> Result<(), RenderError> {
    let Some(file) =
        static_network::file(&pool.network).map_err(|problem| RenderError::UnsupportedNetwork { problem })?
    else {
        return Ok(());
    };
    let problem = if reader == Reader::CloudInit {
        "a static address can be configured on flatcar only: remove cidr, gateway and dns"
    } else if bootstrap.files.iter().any(|other| other.path == file.path) {
        "the profile writes the file that the static network would be written to"
    } else {
        bootstrap.files.push(file);
        return Ok(());
    };
    Err(RenderError::UnsupportedNetwork { problem: problem.to_owned() })
}

fn position(stage: Stage, place: &str, failure: &handlebars::Failure) -> TemplatePosition {
    let template = if failure.template == place {
        place.to_owned()
    } else {
        format!("{place}, in the template {:?} of {}", failure.template, stage.field())
    };
    TemplatePosition { template, line: failure.at.line, column: failure.at.column }
}

/// machine-controller fills names in, but can't see into base64.
fn hidden_machine_names(bootstrap: &StageConfig, texts: &Texts) -> Vec<String> {
    let files = bootstrap.files.iter().zip(&texts.files);
    let hidden = files.filter(|(file, text)| {
        let inline = file.content.inline.as_ref();
        inline.is_some_and(|inline| inline.encoding.as_deref() == Some("b64"))
            && text.content.contains(MACHINE_NAME_PLACEHOLDER)
    });
    hidden
        .map(|(file, _)| {
            format!("{}: {MACHINE_NAME_PLACEHOLDER} is not replaced in a file with encoding b64", file.path)
        })
        .collect()
}

/// No input may contain what someone else replaces: markers, and what stands for a machine's name.
fn check_reserved(pool: &Pool, data: &Value) -> Result<(), RenderError> {
    let find = |is: &dyn Fn(&str) -> bool| {
        let key = pool.ssh_public_keys.iter().position(|key| is(key));
        let key = key.map(|i| format!("sshPublicKeys[{i}]"));
        key.or_else(|| late::find(data, &is).map(|path| format!("template data.{path}")))
    };
    // Once in almost all cases, and first for what all of them have, in pieces that are searched all at once.
    let reserved = |text: &str| text.contains(late::PREFIX);
    let has_sign = |piece: &[u8]| piece.iter().fold(false, |found, byte| found | matches!(byte, b'%' | b'<'));
    let suspicious = |text: &str| text.as_bytes().chunks(64).any(has_sign);
    if find(&|text| suspicious(text) && (reserved(text) || user_data::has_machine_name(text))).is_none() {
        return Ok(());
    }
    if let Some(place) = find(&reserved) {
        return Err(RenderError::ReservedText { place });
    }
    // The cloud provider's file stands in the second document, which machine-controller does not see.
    let own = |text: &str| pool.overwrite_cloud_config.as_deref() == Some(text);
    match find(&|text| user_data::has_machine_name(text) && !own(text)) {
        Some(place) => Err(RenderError::MachineName { place }),
        None => Ok(()),
    }
}

/// Sizes of both documents at their largest, and a warning when the first is near its limit.
fn sizes(spec: &OperatingSystemConfigSpec, pool: &Pool) -> Result<Sizes, RenderError> {
    let largest = late::largest(&spec.late_bound);
    let bootstrap = user_data::user_data(spec, Stage::Bootstrap, &largest)?;
    let provisioning = user_data::user_data(spec, Stage::Provisioning, &largest)?;
    let limit = size::size_limit(pool.cloud_provider, pool.operating_system);
    let bytes = limit.map_or(bootstrap.len(), |limit| limit.count(&bootstrap));
    let cloud = pool.cloud_provider;
    let near = match limit {
        Some(limit) if bytes > limit.bytes => {
            return Err(RenderError::UserDataTooLarge {
                bytes,
                limit: limit.bytes,
                cloud: cloud.to_string(),
            });
        }
        Some(limit) if bytes * 100 > limit.bytes * NEAR_LIMIT => Some(format!(
            "the bootstrap user data has {bytes} bytes of the {} that {cloud} takes",
            limit.bytes
        )),
        _ => None,
    };
    let count = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
    Ok((UserDataBytes { bootstrap: count(bytes), provisioning: count(provisioning.len()) }, near))
}
