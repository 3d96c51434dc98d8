//! `osmctl status --wait`: waits until what people changed last has reached the Secrets of the pools, and the services
//! run their newest version.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use jiff::Timestamp;
use kube::ResourceExt;
use osm_api::pool;

use crate::chain::{self, Problem, State};
use crate::cluster::{Flags, Needs, Readers};
use crate::snapshot::{self, ClusterPool, Part, Snapshot};
use crate::{output, status};

/// Between two reads, and four times what a read takes, so that large clusters are not read all the time.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long everything must be well. A service that has just started may not have looked at everything yet.
const SETTLED: Duration = Duration::from_secs(5);

/// How long osc-controller or secret-syncer must report the same problem: until then, it may be about what was
/// there before the edit.
const REFUSED: Duration = Duration::from_secs(15);

/// What a read shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// What is not well yet, one line each.
    waits: Vec<String>,
    /// Edits that are refused for certain.
    refused: Vec<String>,
    /// What the services report, and that may be older than the last edit.
    reported: Vec<String>,
}

/// Waits for one pool or all of them.
///
/// # Errors
/// A cluster that can't be read, or not all of what it takes to decide.
pub async fn wait(flags: &Flags, needs: Needs, pool: Option<&str>, limit: Duration) -> Result<ExitCode> {
    let start = Instant::now();
    let readers = Readers::connect(flags).await?;
    let first = readers.read(flags, needs).await?;
    if first.services.is_empty() {
        let namespace = first.release();
        output::note(&format!(
            "osmctl: namespace {namespace} has no Deployments of the services, so only pools are waited for"
        ));
    }
    let mut read = Ok(first);
    let (mut shown, mut pause) = (Vec::new(), INTERVAL);
    let (mut well_since, mut reported) = (None, (Instant::now(), Vec::new()));
    loop {
        let lines = match read {
            Ok(snapshot) => {
                let found = look(&snapshot, pool, Timestamp::now())?;
                if reported.1 != found.reported {
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
        read = readers.read(flags, needs).await;
        pause = INTERVAL.max(began.elapsed() * 4);
    }
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// # Errors
/// Not all that it takes to decide could be read, or the pool does not exist.
fn look(snapshot: &Snapshot, pool: Option<&str>, now: Timestamp) -> Result<Found> {
    let unread = snapshot
        .unread
        .iter()
        .find(|unread| !matches!(unread.part, Part::Events));
    if let Some(unread) = unread {
        bail!("{}", unread.message);
    }
    status::installation(snapshot)?;
    let pools = snapshot.pools();
    let pools: Vec<&ClusterPool<'_>> = match pool {
        Some(name) => vec![snapshot::find(&pools, name)?],
        None => pools.iter().collect(),
    };
    let mut found = Found::default();
    for service in snapshot.services.iter().filter(|service| !service.is_rolled_out) {
        let (name, ready, wanted) = (&service.name, service.ready, service.wanted);
        found.waits.push(format!(
            "{name}: not all pods are of the newest version and ready ({ready}/{wanted})"
        ));
    }
    // Those that pools ask for are in their chains.
    for profile in snapshot.profiles.iter().filter(|_| pool.is_none()) {
        let name = format!(
            "{}/{}",
            profile.namespace().unwrap_or_default(),
            profile.name_any()
        );
        match chain::accepted(profile) {
            Err(problem) => found.add("profile", &name, &problem, true),
            Ok(_) => found
                .waits
                .extend(waits_for_parent(snapshot, profile).map(|what| format!("{name}: {what}"))),
        }
    }
    for pool in pools {
        found.look_at(snapshot, pool, now);
    }
    Ok(found)
}

impl Found {
    fn look_at(&mut self, snapshot: &Snapshot, pool: &ClusterPool<'_>, now: Timestamp) {
        let name = pool.to_string();
        let links = chain::chain(snapshot, pool, now);
        if let Some((link, problem)) = chain::first_problem(&links) {
            // osmctl finds problems of these in the newest objects itself.
            let is_certain = ["MachineDeployment", "profile", "settings"].contains(&link.name);
            self.add(
                link.name,
                &name,
                problem,
                is_certain && pool.machine_deployment.is_some(),
            );
        } else if links.iter().any(|link| link.state == State::Unknown) {
            self.waits.push(format!("{name}: not all of it could be read"));
        } else if let Some(input) = outdated(snapshot, pool) {
            self.waits.push(format!(
                "{name}: osc-controller has not rendered the newest {input} yet"
            ));
        }
    }

    fn add(&mut self, link: &str, name: &str, problem: &Problem, is_certain: bool) {
        let line = format!("{name}: {link}: {}: {}", problem.reason, problem.message);
        if problem.is_guess() {
            self.waits.push(line);
        } else if is_certain {
            self.refused.push(line);
        } else {
            self.reported.push(line);
        }
    }
}

/// What a profile extends, if it was validated with another version of it.
fn waits_for_parent(snapshot: &Snapshot, profile: &osm_api::OperatingSystemProfile) -> Option<String> {
    let accepted = profile.status.as_ref()?.accepted.as_ref()?;
    let parent = accepted.parents.iter().find(|parent| {
        let known = snapshot.profile((&parent.namespace, &parent.name));
        known.is_some_and(|known| known.spec.version != parent.version)
    })?;
    Some(format!(
        "osp-controller has not validated it with the newest version of {} yet",
        parent.name
    ))
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
        let stored = well.configs[0]
            .status
            .as_mut()
            .unwrap()
            .rendered
            .as_mut()
            .unwrap();
        stored.settings_digest = Some(osm_api::Settings::default().digest().unwrap());
        stored.template_digest = Some(template);
        let accepted = json!({"version": "v1.0.0", "digest": "p", "templateEngine": "Handlebars",
            "spec": well.profiles[0].spec, "parents": [{"namespace": "osm", "name": "osp-tiny", "version": "v1.0.0",
            "digest": "q"}]});
        let status = well.profiles[0].status.as_mut().unwrap();
        status.accepted = Some(serde_json::from_value(accepted).unwrap());
        well
    }

    fn conditions(
        snapshot: &mut Snapshot,
    ) -> &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
        &mut snapshot.configs[0].status.as_mut().unwrap().conditions
    }

    #[test]
    fn an_edit_is_waited_for_until_it_is_published_or_refused() {
        let look = |edit: Edit| {
            let mut snapshot = well();
            edit(&mut snapshot);
            look(&snapshot, None, "2026-02-01T00:00:00Z".parse().unwrap())
        };
        assert_eq!(look(|_| ()).unwrap(), Found::default());
        let waits: [(Edit, &str); 8] = [
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
                "osm/osp-tiny: osp-controller has not validated",
            ),
            (
                |s| {
                    s.profiles[0]
                        .status
                        .as_mut()
                        .unwrap()
                        .accepted
                        .as_mut()
                        .unwrap()
                        .digest = "new".to_owned()
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
                |s| {
                    s.configs[0]
                        .status
                        .as_mut()
                        .unwrap()
                        .published
                        .as_mut()
                        .unwrap()
                        .digest = "old".to_owned()
                },
                "kube-system/workers: Secrets: NotPublished",
            ),
        ];
        for (edit, line) in waits {
            let found = look(edit).unwrap();
            assert!(found.waits[0].starts_with(line), "{line}: {found:?}");
            assert!(found.refused.is_empty() && found.reported.is_empty(), "{found:?}");
        }
        let refused: [(Edit, &str); 2] = [
            (
                |s| s.settings = Some("pauseImag: x".to_owned()),
                "kube-system/workers: settings: SettingsInvalid",
            ),
            (
                |s| {
                    let refused = condition("Accepted", false, "TemplateInvalid", "no such field");
                    s.profiles[0].status.as_mut().unwrap().conditions =
                        vec![serde_json::from_value(refused).unwrap()];
                },
                "osm/osp-tiny: profile: TemplateInvalid: no such field",
            ),
        ];
        for (edit, line) in refused {
            let found = look(edit).unwrap();
            assert!(found.refused[0].starts_with(line), "{line}: {found:?}");
        }
        // It may be about the template before the edit.
        let found = look(|s| {
            let failed = condition("Rendered", false, "RenderFailed", "no such field");
            conditions(s).retain(|condition| condition.type_ != "Rendered");
            conditions(s).push(serde_json::from_value(failed).unwrap());
        });
        let found = found.unwrap();
        assert_eq!(
            found.reported,
            ["kube-system/workers: config: RenderFailed: no such field"]
        );
        let unread = look(|s| {
            let (part, message) = (Part::Services, "cannot list deployments.apps".to_owned());
            s.unread.push(Unread { part, message });
        });
        assert!(unread.unwrap_err().to_string().starts_with("cannot list"));
    }
}
