//! Checks one profile: by the code of osp-controller, and by what a reviewer would comment on about the
//! rendered samples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::{Result, anyhow};
use osm_api::OperatingSystemProfile;
use osm_api::config::StageConfig;
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::{CloudProvider, FileContent, OperatingSystemProfileSpec, ProfileConfig};
use osm_render::validate::Refusal;
use osm_render::{Profile, Rendered, TemplatePosition};
use osm_user_data::Stage;

use super::{hints, scripts, spec, yaml_traps};
use crate::bases::Bases;
use crate::chain;
use crate::input::Item;
use crate::problem::Problem;
use crate::tree::stage_name;

/// Share of a cloud's limit, in percent, above which a warning is given: from there, a small change can
/// exceed the limit.
const WARN_ABOVE_PERCENT: usize = 90;

/// How a template includes a part of the library.
const LIBRARY_PART: &str = "{{> lib/";

/// Most profiles that are checked at a time. They take different times, so these are more than most machines
/// have processors.
const AT_A_TIME: usize = 16;

/// Most different texts of one script that are checked. They differ only in the values of sample pools.
const MAX_VARIANTS: usize = 64;

/// Checks profiles, several at a time.
///
/// # Errors
/// A check that panics.
pub fn check_all(profiles: &[Item<OperatingSystemProfile>]) -> Result<Vec<Problem>> {
    let (bases, defaults) = (&Bases::of(profiles), osm_render::defaults());
    let mut problems = Vec::new();
    for some in profiles.chunks(AT_A_TIME) {
        // Origins are not shared among threads.
        let work: Vec<_> = some
            .iter()
            .map(|item| {
                (
                    item.value.metadata.name.as_deref().unwrap_or_default(),
                    &item.value.spec,
                )
            })
            .collect();
        let results: Vec<_> = thread::scope(|scope| {
            let start = |(name, spec)| scope.spawn(move || attempt(name, spec, bases));
            let running: Vec<_> = work.into_iter().map(start).collect();
            running.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for (item, result) in some.iter().zip(results) {
            let result = result.map_err(|_| anyhow!("a check failed; report this bug with the profile"))?;
            problems.extend(yaml_traps::check(&item.origin, "spec"));
            problems.extend(check(item, result, &defaults));
        }
    }
    Ok(problems)
}

/// As osp-controller does, rendering stops at the first error.
fn check(
    item: &Item<OperatingSystemProfile>,
    result: Result<Reviewed, Box<Refusal>>,
    defaults: &[(String, OperatingSystemProfileSpec)],
) -> Vec<Problem> {
    let mut problems = spec::check(item, defaults);
    problems.extend(match result {
        Ok(reviewed) => reviewed.problems(item),
        Err(refusal) => vec![problem_of(item, &refusal)],
    });
    problems
}

fn problem_of(item: &Item<OperatingSystemProfile>, refusal: &Refusal) -> Problem {
    let place = match &refusal.position {
        Some(position) => item.origin.place_in_spec(position),
        None => item.origin.place("spec"),
    };
    let problem = Problem::error(refusal.reason.as_str(), place, &refusal.message);
    let message = &refusal.message;
    if let Some(hint) = hints::of(message) {
        return problem.hint(hint);
    }
    // That the profile must be corrected adds nothing to the message.
    match chain::remedy(refusal.reason.as_str()).filter(|remedy| !remedy.starts_with("Correct the profile")) {
        Some(remedy) => problem.hint(remedy),
        None => problem,
    }
}

/// What the samples of a valid profile show.
#[derive(Default)]
struct Reviewed {
    /// Largest user data in percent of the limit, with the bytes and the limit.
    sizes: BTreeMap<CloudProvider, (usize, usize)>,
    /// By stage, and path on the machine: different texts, and the mode.
    scripts: BTreeMap<(&'static str, String), (BTreeSet<String>, i32)>,
    /// Places of credentials that others than root can read: stage and path.
    readable: BTreeSet<(&'static str, String)>,
    /// Files in which machine-controller can't replace its placeholder.
    hidden_names: BTreeSet<String>,
    /// Warnings about modules without an effect.
    skipped: BTreeSet<String>,
}

fn attempt(name: &str, spec: &OperatingSystemProfileSpec, bases: &Bases) -> Result<Reviewed, Box<Refusal>> {
    let accepted = bases.resolve(name, spec).map_err(Refusal::from)?;
    let profile = osm_render::compile(&accepted).map_err(Refusal::from)?;
    let mut reviewed = Reviewed::default();
    osm_render::validate::dry_run_with(&AtomicBool::new(false), &profile, |_, rendered| {
        reviewed.look(rendered)
    })?;
    if let Some(rendered) = with_proxy_password(&profile) {
        reviewed.look_at_modes(&rendered);
    }
    Ok(reviewed)
}

/// A pool whose proxy demands a password, if the profile renders for it. The samples of a profile in Go's
/// language have no such proxy, because a profile that takes the URL of the proxy apart is valid for all
/// other pools.
fn with_proxy_password(profile: &Profile) -> Option<Rendered> {
    let cloud = profile.spec().supported_cloud_providers.first()?.name;
    let (pool, mut settings) = osm_render::full_sample(profile.spec(), cloud)?;
    let registries = &settings.containerd.registries;
    settings.proxy.credentials = registries
        .iter()
        .find_map(|registry| registry.credentials.clone());
    profile
        .render(&pool, &settings, &osm_render::stand_in_cluster())
        .ok()
}

impl Reviewed {
    fn look(&mut self, rendered: &Rendered) {
        let config = &rendered.spec;
        self.look_at_size(rendered);
        self.look_at_modes(rendered);
        self.skipped.extend(osm_render::validate::skipped_modules(config));
        for (stage, content) in [
            (Stage::Bootstrap, &config.bootstrap_config),
            (Stage::Provisioning, &config.provisioning_config),
        ] {
            self.look_at_scripts(stage, content);
        }
        for file in &config.bootstrap_config.files {
            let inline = file.content.inline.as_ref();
            let is_hidden = inline.is_some_and(|inline| {
                inline.encoding.as_deref() == Some("b64") && inline.data.contains(MACHINE_NAME_PLACEHOLDER)
            });
            if is_hidden {
                self.hidden_names.insert(file.path.clone());
            }
        }
    }

    fn look_at_size(&mut self, rendered: &Rendered) {
        let config = &rendered.spec;
        let Some((cloud, os)) = config
            .cloud_provider
            .as_ref()
            .map(|cloud| cloud.name)
            .zip(config.os_name)
        else {
            return;
        };
        let Some(limit) = osm_user_data::size_limit(cloud, os) else {
            return;
        };
        let bytes = usize::try_from(rendered.user_data_bytes.bootstrap).unwrap_or(usize::MAX);
        let largest = self.sizes.entry(cloud).or_insert((0, limit.bytes));
        largest.0 = largest.0.max(bytes);
    }

    fn look_at_modes(&mut self, rendered: &Rendered) {
        let config = &rendered.spec;
        for (stage, content) in [
            (Stage::Bootstrap, &config.bootstrap_config),
            (Stage::Provisioning, &config.provisioning_config),
        ] {
            let readable =
                osm_render::readable(content, &config.late_bound_values, osm_render::is_credential);
            let stage = stage_name(stage);
            self.readable
                .extend(readable.into_iter().map(|path| (stage, path)));
        }
    }

    fn look_at_scripts(&mut self, stage: Stage, content: &StageConfig) {
        for file in &content.files {
            let text = text_of(&file.content);
            if text.starts_with("#!") {
                let key = (stage_name(stage), file.path.clone());
                let (texts, _) = self
                    .scripts
                    .entry(key)
                    .or_insert_with(|| (BTreeSet::new(), file.permissions));
                if texts.len() < MAX_VARIANTS && !texts.contains(text) {
                    texts.insert(text.to_owned());
                }
            }
        }
    }

    fn problems(&self, item: &Item<OperatingSystemProfile>) -> Vec<Problem> {
        let origin = &item.origin;
        let at = |stage: &str, path: &str| origin.place_in_spec(&position(item, stage, path));
        let mut problems = Vec::new();
        for (cloud, (bytes, limit)) in &self.sizes {
            if bytes * 100 > limit * WARN_ABOVE_PERCENT {
                let message = format!(
                    "with everything set, the bootstrap user data has {bytes} bytes of the {limit} that {cloud} takes"
                );
                let problem = Problem::warning("size", origin.place("spec.bootstrapConfig"), message);
                problems.push(problem.hint("move what the first boot does not need to provisioningConfig"));
            }
        }
        let is_own = |stage: &str, path: &str| is_own(item, stage, path);
        for (stage, path) in self.readable.iter().filter(|(stage, path)| is_own(stage, path)) {
            let message =
                format!("{path}: the file contains a credential, and users other than root can read it");
            let problem = Problem::warning("readable-credential", at(stage, path), message);
            problems
                .push(problem.hint("set permissions to 600; move a credential out of a unit into a file"));
        }
        for path in self.hidden_names.iter().filter(|path| is_own("bootstrap", path)) {
            let message = format!(
                "{path}: machine-controller does not replace {MACHINE_NAME_PLACEHOLDER} in a file with encoding b64"
            );
            let problem = Problem::warning("machine-name", at("bootstrap", path), message);
            problems.push(problem.hint("remove encoding: b64"));
        }
        problems.extend(self.skipped.iter().map(|warning| {
            let (field, _) = warning.split_once(' ').unwrap_or_default();
            let place = origin.place(&format!("spec.{field}"));
            Problem::warning("module-skipped", place, warning)
        }));
        let scripts = self.scripts.iter();
        for ((stage, path), (texts, mode)) in scripts.filter(|((stage, path), _)| is_own(stage, path)) {
            let place = at(stage, path);
            let source = source_of(item, stage, path);
            // Scripts of the library handle each error.
            problems.extend(scripts::check(
                path,
                texts,
                *mode,
                source.contains(LIBRARY_PART),
                &place,
            ));
        }
        problems
    }
}

fn text_of(content: &FileContent) -> &str {
    content.inline.as_ref().map_or("", |inline| &inline.data)
}

/// What comes from a profile that this one extends is for its author to correct.
fn is_own(item: &Item<OperatingSystemProfile>, stage: &str, path: &str) -> bool {
    item.value.spec.extends.is_none() || writes(item, stage, path)
}

/// Whether a profile itself writes a file or unit.
fn writes(item: &Item<OperatingSystemProfile>, stage: &str, path: &str) -> bool {
    let config = config_of(item, stage);
    config.files.iter().any(|file| file.path == path)
        || config
            .units
            .iter()
            .any(|unit| path.strip_prefix("/etc/systemd/system/") == Some(&unit.name))
}

/// The template of a file.
fn source_of<'i>(item: &'i Item<OperatingSystemProfile>, stage: &str, path: &str) -> &'i str {
    // A profile in Go's language may list a file twice, and the last one is used.
    let mut files = config_of(item, stage).files.iter();
    files
        .rfind(|file| file.path == path)
        .map_or("", |file| text_of(&file.content))
}

fn config_of<'i>(item: &'i Item<OperatingSystemProfile>, stage: &str) -> &'i ProfileConfig {
    let spec = &item.value.spec;
    match stage {
        "bootstrap" => &spec.bootstrap_config,
        _ => &spec.provisioning_config,
    }
}

/// The place of a file or unit of a stage inside the spec.
fn position(item: &Item<OperatingSystemProfile>, stage: &str, path: &str) -> TemplatePosition {
    let index = config_of(item, stage)
        .files
        .iter()
        .position(|file| file.path == path);
    TemplatePosition {
        // Another file or unit is found by its path.
        template: index.map_or(path.to_owned(), |index| {
            format!("{stage}Config.files[{index}] ({path})")
        }),
        line: None,
        column: None,
    }
}
