//! `osmctl status --wait`: waits until what people changed last has reached the Secrets of the pools, and the services
//! run their newest version.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use kube::ResourceExt;
use osm_api::{OperatingSystemProfile, Reason, pool};

use crate::chain::{self, MACHINE_DEPLOYMENT_NOT_FOUND, Problem, State};
use crate::cluster::{Flags, Needs, Readers};
use crate::snapshot::{self, ClusterPool, Part, Snapshot};
use crate::{output, status};

/// Between two reads, and four times what a read takes, so that large clusters are not read all the time.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long everything must be well. A service that has just started may not have looked at everything yet.
const SETTLED: Duration = Duration::from_secs(5);

/// How long a service must report the same problem: until then, it may be about what was there before the edit.
const REFUSED: Duration = Duration::from_secs(15);

/// Reasons that something will happen.
const WAITS: [Reason; 4] = [
    Reason::WaitingForRendering,
    Reason::WaitingForRevision,
    Reason::WaitingForThread,
    Reason::Retired,
];

/// Reasons of a refused profile that go without an edit of it.
const OF_OTHERS: [Reason; 3] = [
    Reason::ParentNotAccepted,
    Reason::ParentNotFound,
    Reason::ValidationAborted,
];

/// What a read shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// What is not well yet, one line each.
    waits: Vec<String>,
    /// Edits that are refused for certain.
    refused: Vec<String>,
    /// Profiles that osp-controller refuses. A newer version of it may accept them.
    refused_profiles: Vec<String>,
    /// What the services report, and that may be older than the last edit.
    reported: Vec<String>,
    /// A service does not run its newest version.
    is_rolling: bool,
}

/// Waits for one pool or all of them.
///
/// # Errors
/// A cluster that can't be read, or not all of what it takes to decide.
pub async fn wait(flags: &Flags, needs: Needs, pool: Option<&str>, limit: Duration) -> Result<ExitCode> {
    let start = Instant::now();
    let readers = Readers::connect(flags).await?;
    let first = complete(readers.read(flags, needs).await?)?;
    if first.services.is_empty() {
        let namespace = first.release();
        output::note(&format!(
            "osmctl: namespace {namespace} has no Deployments of the services; waiting for pools alone"
        ));
    }
    let mut read = Ok(first);
    let (mut shown, mut pause) = (Vec::new(), INTERVAL);
    let (mut well_since, mut reported, mut has_rolled) = (None, (Instant::now(), Vec::new()), false);
    loop {
        let lines = match read {
            Ok(snapshot) => {
                let mut found = look(&snapshot, pool, Timestamp::now())?;
                has_rolled |= found.is_rolling;
                let of_profiles = if has_rolled {
                    &mut found.reported
                } else {
                    &mut found.refused
                };
                of_profiles.append(&mut found.refused_profiles);
                if reported.1 != found.reported || found.is_rolling {
                    reported = (Instant::now(), found.reported.clone());
                }
                let is_refused = !found.reported.is_empty() && reported.0.elapsed() >= REFUSED;
                if is_refused || !found.refused.is_empty() {
                    output::print(&text(&[found.refused, found.reported].concat()))?;
                    return Ok(ExitCode::FAILURE);
                }
                [found.reported, found.waits].concat()
            }
            Err(error) if start.elapsed() >= limit => return Err(error),
            // The API server may be back soon, such as after an upgrade.
            Err(error) => vec![format!("{error:#}")],
        };
        if !lines.is_empty() {
            well_since = None;
        } else if well_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED {
            return Ok(ExitCode::SUCCESS);
        }
        if start.elapsed() >= limit {
            let seconds = limit.as_secs();
            output::print(&format!(
                "After {seconds} s, this is not up to date:\n{}",
                text(&lines)
            ))?;
            return Ok(ExitCode::FAILURE);
        }
        if let Some(first) = lines.first().filter(|_| lines != shown) {
            let others = match lines.len() {
                1 => String::new(),
                all => format!(", and {} more", all - 1),
            };
            output::note(&format!("osmctl: waiting for {first}{others}"));
        }
        shown = lines;
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let left = limit.saturating_sub(start.elapsed()).max(INTERVAL);
        read = match tokio::time::timeout(left, readers.read(flags, needs)).await {
            Ok(read) => read.and_then(complete),
            Err(_) => Err(anyhow!("the cluster could not be read within the time limit")),
        };
        pause = INTERVAL.max(began.elapsed() * 4);
    }
}

/// # Errors
/// Not all that it takes to decide could be read.
fn complete(snapshot: Snapshot) -> Result<Snapshot> {
    let mut unread = snapshot.unread.iter();
    match unread.find(|unread| unread.part != Part::Events) {
        Some(unread) => bail!("{}", unread.message),
        None => Ok(snapshot),
    }
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// # Errors
/// A namespace without an installation, or a pool that does not exist.
fn look(snapshot: &Snapshot, pool: Option<&str>, now: Timestamp) -> Result<Found> {
    status::installation(snapshot)?;
    let pools = snapshot.pools();
    let selected: Vec<&ClusterPool<'_>> = match pool {
        Some(name) => vec![snapshot::find(&pools, name)?],
        None => pools.iter().collect(),
    };
    let mut found = Found::default();
    for service in snapshot.services.iter().filter(|service| !service.is_rolled_out) {
        let (name, ready, wanted) = (&service.name, service.ready, service.wanted);
        found.is_rolling = true;
        found.waits.push(format!(
            "{name}: not all pods are of the newest version and ready ({ready}/{wanted})"
        ));
    }
    let of_pool = selected
        .iter()
        .filter_map(|pool| snapshot.profile_name(pool.machine_deployment?));
    let of_pool: Vec<(String, String)> = of_pool.collect();
    for profile in &snapshot.profiles {
        let name = (profile.namespace().unwrap_or_default(), profile.name_any());
        if pool.is_none() || of_pool.contains(&name) {
            found.look_at_profile(snapshot, profile);
        }
    }
    for pool in selected {
        found.look_at_pool(snapshot, pool, now);
    }
    Ok(found)
}

impl Found {
    fn look_at_profile(&mut self, snapshot: &Snapshot, profile: &OperatingSystemProfile) {
        let name = format!(
            "{}/{}",
            profile.namespace().unwrap_or_default(),
            profile.name_any()
        );
        match chain::accepted(profile) {
            Err(problem) => {
                let line = line("profile", &name, &problem);
                if problem.is_guess() {
                    self.waits.push(line);
                } else if has_one_of(&problem, &OF_OTHERS) {
                    self.reported.push(line);
                } else {
                    self.refused_profiles.push(line);
                }
            }
            Ok(_) => {
                let outdated = outdated_profile(snapshot, profile);
                self.waits.extend(outdated.map(|by| {
                    format!("{name}: osp-controller has not validated it with the newest version of {by} yet")
                }));
            }
        }
    }

    fn look_at_pool(&mut self, snapshot: &Snapshot, pool: &ClusterPool<'_>, now: Timestamp) {
        let served = &snapshot.served_namespaces;
        let is_served = served.is_empty() || served.contains(&pool.namespace);
        // Nothing will happen to them.
        let is_left_alone = !is_served && pool.config.is_none()
            || pool.machine_deployment.is_none() && pool.is_of_the_upstream_osm();
        if is_left_alone {
            return;
        }
        let name = pool.to_string();
        let links = chain::chain(snapshot, pool, now);
        if let Some((link, problem)) = chain::first_problem(&links) {
            let line = line(link.name, &name, problem);
            // osmctl finds these in the newest objects itself. Profiles were looked at before.
            let is_certain = ["MachineDeployment", "settings"].contains(&link.name);
            if problem.is_guess()
                || has_one_of(problem, &WAITS)
                || problem.reason == MACHINE_DEPLOYMENT_NOT_FOUND
            {
                self.waits.push(line);
            } else if is_certain {
                self.refused.push(line);
            } else {
                self.reported.push(line);
            }
        } else if links.iter().any(|link| link.state == State::Unknown) {
            self.waits.push(format!("{name}: not all of it could be read"));
        } else if let Some(input) = outdated(snapshot, pool) {
            self.waits.push(format!(
                "{name}: osc-controller has not rendered the newest {input} yet"
            ));
        }
    }
}

fn has_one_of(problem: &Problem, reasons: &[Reason]) -> bool {
    reasons.iter().any(|reason| problem.reason == reason.as_str())
}

fn line(link: &str, name: &str, problem: &Problem) -> String {
    format!("{name}: {link}: {}: {}", problem.reason, problem.message)
}

/// What was edited since the profile was validated: the library of this version of osmctl, or a profile that it extends.
fn outdated_profile(snapshot: &Snapshot, profile: &OperatingSystemProfile) -> Option<String> {
    let accepted = profile.status.as_ref()?.accepted.as_ref()?;
    let library = accepted.library_version.as_ref();
    if library.is_some_and(|library| *library != osm_render::library_version()) {
        return Some("the library".to_owned());
    }
    let parent = accepted.parents.iter().find(|parent| {
        let known = snapshot.profile((&parent.namespace, &parent.name));
        known.is_some_and(|known| {
            known.spec.version != parent.version
                || chain::accepted(known).is_err_and(|problem| problem.is_guess())
        })
    })?;
    Some(parent.name.clone())
}

/// The first input that a pool is not rendered from in its newest form. Settings are compared as this version of osmctl
/// reads them.
fn outdated(snapshot: &Snapshot, pool: &ClusterPool<'_>) -> Option<&'static str> {
    let (md, stored) = (pool.machine_deployment?, pool.config?.stored()?);
    let template = pool::template_digest(md);
    if stored
        .template_digest
        .as_ref()
        .is_some_and(|known| pool::template_differs(&template, known))
    {
        return Some("template of the MachineDeployment, which machine-controller has to give a revision,");
    }
    let settings = chain::newest_settings(snapshot, md)?.ok()?.digest().ok();
    if settings != stored.settings_digest {
        return Some("settings");
    }
    let (namespace, name) = snapshot.profile_name(md)?;
    let accepted = snapshot
        .profile((&namespace, &name))?
        .status
        .as_ref()?
        .accepted
        .as_ref()?;
    let known = stored.profile.as_ref().map(|profile| &profile.digest);
    (known != Some(&accepted.digest)).then_some("version of the profile")
}

#[cfg(test)]
mod tests {
    use osm_api::names;
    use serde_json::json;

    use super::*;
    use crate::snapshot::fixtures::{condition, snapshot};
    use crate::snapshot::{Service, Unread};

    type Edit = fn(&mut Snapshot);

    /// A cluster in which everything is up to date.
    fn well() -> Snapshot {
        let mut well = snapshot();
        well.services.push(Service {
            name: "osm-osc-controller".to_owned(),
            ready: 1,
            wanted: 1,
            image: String::new(),
            is_rolled_out: true,
        });
        let template = pool::template_digest(&well.machine_deployments[0]);
        let stored = status(&mut well).rendered.as_mut().unwrap();
        stored.settings_digest = Some(osm_api::Settings::default().digest().unwrap());
        stored.template_digest = Some(template);
        let accepted = json!({"version": "v1.0.0", "digest": "p", "templateEngine": "Handlebars",
            "spec": well.profiles[0].spec, "parents": [{"namespace": "osm", "name": "osp-tiny", "version": "v1.0.0",
            "digest": "q"}]});
        let status = well.profiles[0].status.as_mut().unwrap();
        status.accepted = Some(serde_json::from_value(accepted).unwrap());
        well
    }

    fn status(snapshot: &mut Snapshot) -> &mut osm_api::OperatingSystemConfigStatus {
        snapshot.configs[0].status.as_mut().unwrap()
    }

    fn is_rendered(snapshot: &mut Snapshot, is_true: bool, reason: &str) {
        let rendered = condition("Rendered", is_true, reason, "no such field");
        let conditions = &mut status(snapshot).conditions;
        conditions.retain(|condition| condition.type_ != "Rendered");
        conditions.push(serde_json::from_value(rendered).unwrap());
    }

    #[test]
    fn an_edit_is_waited_for_until_it_is_published_or_refused() {
        let look = |edit: Edit| {
            let mut snapshot = well();
            edit(&mut snapshot);
            look(&snapshot, None, "2026-02-01T00:00:00Z".parse().unwrap())
        };
        assert_eq!(look(|_| ()).unwrap(), Found::default());
        let unserved = look(|s| {
            s.served_namespaces.insert("other".to_owned());
            s.configs.clear();
        });
        assert_eq!(unserved.unwrap(), Found::default());
        let waits: [(Edit, &str); 10] = [
            (
                |s| is_rendered(s, true, "WaitingForRevision"),
                "kube-system/workers: config: WaitingForRevision",
            ),
            (
                |s| {
                    let accepted = s.profiles[0].status.as_mut().unwrap().accepted.as_mut();
                    accepted.unwrap().library_version = Some("other".to_owned());
                },
                "osm/osp-tiny: osp-controller has not validated it with the newest version of the library",
            ),
            (
                |s| s.services[0].is_rolled_out = false,
                "osm-osc-controller: not all pods",
            ),
            (
                |s| s.profiles[0].metadata.generation = Some(3),
                "osm/osp-tiny: profile: WaitingForProfile",
            ),
            (
                |s| s.profiles[0].spec.version = "v1.0.1".to_owned(),
                "osm/osp-tiny: osp-controller has not validated it with the newest version of osp-tiny",
            ),
            (
                |s| {
                    let accepted = s.profiles[0].status.as_mut().unwrap().accepted.as_mut();
                    accepted.unwrap().digest = "new".to_owned();
                },
                "kube-system/workers: osc-controller has not rendered the newest version of the profile",
            ),
            (
                |s| s.settings = Some("pauseImage: example.com/pause:1".to_owned()),
                "kube-system/workers: osc-controller has not rendered the newest settings",
            ),
            (
                |s| {
                    let settings = "{pauseImage: example.com/pause:1}".to_owned();
                    let annotations = s.machine_deployments[0].metadata.annotations.as_mut().unwrap();
                    annotations.insert(names::SETTINGS.to_owned(), settings);
                },
                "kube-system/workers: osc-controller has not rendered the newest settings",
            ),
            (
                |s| s.machine_deployments[0].spec.template["spec"]["versions"]["kubelet"] = json!("1.35.0"),
                "kube-system/workers: osc-controller has not rendered the newest template",
            ),
            (
                |s| status(s).published.as_mut().unwrap().digest = "old".to_owned(),
                "kube-system/workers: Secrets: NotPublished",
            ),
        ];
        for (edit, line) in waits {
            let found = look(edit).unwrap();
            assert!(found.waits[0].starts_with(line), "{line}: {found:?}");
            assert!(found.refused.is_empty() && found.reported.is_empty(), "{found:?}");
        }
        let found = look(|s| s.settings = Some("pauseImag: x".to_owned())).unwrap();
        assert!(
            found.refused[0].starts_with("kube-system/workers: settings: SettingsInvalid"),
            "{found:?}"
        );
        let refused = |reason: &str| {
            let mut snapshot = well();
            let refused = condition("Accepted", false, reason, "no such field");
            let status = snapshot.profiles[0].status.as_mut().unwrap();
            status.conditions = vec![serde_json::from_value(refused).unwrap()];
            super::look(&snapshot, None, "2026-02-01T00:00:00Z".parse().unwrap()).unwrap()
        };
        let found = refused("TemplateInvalid");
        let line = "osm/osp-tiny: profile: TemplateInvalid: no such field";
        assert_eq!(found.refused_profiles, [line]);
        // The edit of another object decides.
        let found = refused("ParentNotAccepted");
        assert!(
            found.refused_profiles.is_empty() && found.reported.len() == 2,
            "{found:?}"
        );
        // It may be about the template before the edit.
        let found = look(|s| is_rendered(s, false, "RenderFailed")).unwrap();
        assert_eq!(
            found.reported,
            ["kube-system/workers: config: RenderFailed: no such field"]
        );
        let mut unread = well();
        let (part, message) = (Part::Services, "cannot list deployments.apps".to_owned());
        unread.unread.push(Unread { part, message });
        assert!(
            complete(unread)
                .unwrap_err()
                .to_string()
                .starts_with("cannot list")
        );
    }
}
