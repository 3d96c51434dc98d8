//! Checks that the CustomResourceDefinitions of the management cluster are not older than this program. The API server
//! drops fields that they do not have, without any error.
//!
//! Once they are upgraded, every watch lists its objects again. A watch that was opened before shows objects as the old
//! definitions pruned them, and restarting it would not show them again.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Resource;
use osm_api::rbac::Service;
use osm_api::{CustomOperatingSystemProfile, definitions, names};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Cluster;
use crate::apart::apart;
use crate::backoff::Backoff;
use crate::error::{brief, is_code};
use crate::readiness::{DEFINITIONS, ProblemGate};

/// Delay until the next check while the result is unclear, and once more after an upgrade: other API servers may serve new
/// definitions a little later.
const RECHECK_DELAY: Duration = Duration::from_secs(5);

/// Pauses while they are too old, from first to last: at the very start they may just have been created.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Interval of checks while all is well: older definitions may be applied again.
const HEALTHY_INTERVAL: Duration = Duration::from_secs(600);

/// After a good answer, this many bad ones in a row are needed: an API server that has just started has yet to publish them.
const BAD_ANSWERS_NEEDED: u32 = 3;

const ADVICE: &str = "apply the CustomResourceDefinitions of this version";

const MAX_NAMED_FIELDS: usize = 3;

/// Starts the checks; readiness waits for the first good one. The published OpenAPI document is readable to every
/// authenticated client, so the checks need no permission on CustomResourceDefinitions.
pub fn spawn(cluster: &Cluster) {
    let role = cluster.management.role();
    let mut gate = ProblemGate::new(cluster.gates.gate(DEFINITIONS), role.label());
    let (connection, needs, shutdown) = (
        cluster.management.clone(),
        Needs::of(cluster),
        cluster.shutdown.clone(),
    );
    let outdated = cluster.outdated_definitions.clone();
    let (relist, environment) = (cluster.relist.clone(), cluster.process.environment.clone());
    let end = shutdown.clone();
    cluster.supervisor().spawn("CustomResourceDefinitions", &end, async move {
        let mut changes = connection.changes();
        let mut history = CheckHistory::default();
        let mut backoff = Backoff::new(&environment, FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            changes.mark_unchanged();
            let answer = match published(&connection.client).await {
                Ok(published) => problem(&needs, &published).map_or(Answer::Good, Answer::Bad),
                Err(error) if is_code(&error, 404) => {
                    Answer::Bad(Problem::outdated(format!("missing; {ADVICE}")))
                }
                Err(error) => Answer::None(format!("can't be checked yet: {}", brief(&error))),
            };
            let again = match history.judge(answer) {
                Conclusion::Good => {
                    outdated.note(None);
                    gate.resolve();
                    backoff.reset();
                    HEALTHY_INTERVAL
                }
                Conclusion::Repaired(again) => {
                    outdated.note(None);
                    gate.resolve();
                    backoff.reset();
                    tracing::info!(
                        cluster = role.label(),
                        "the CustomResourceDefinitions are up to date again; every watch lists its objects again"
                    );
                    relist.now();
                    again
                }
                Conclusion::Unclear => RECHECK_DELAY,
                Conclusion::Bad(Problem { text, is_outdated }) => {
                    outdated.note(is_outdated.then(|| text.clone()));
                    gate.report(text);
                    backoff.failed()
                }
            };
            let next = async {
                // If the sender of changes is gone, only the timer counts.
                tokio::select! {
                    Ok(()) = changes.changed() => (history.answered, history.good) = (false, false),
                    () = tokio::time::sleep(again) => {}
                }
            };
            if shutdown.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    });
}

/// The definitions that a service needs.
struct Needs {
    service: Service,
    /// KKP's kind of profile. KKP installs its definition, so that its version does not matter here.
    custom_profiles: bool,
}

impl Needs {
    fn of(cluster: &Cluster) -> Self {
        let service = cluster.process.service;
        let custom_profiles = service == Service::OspController && cluster.installation.custom_profiles;
        Self {
            service,
            custom_profiles,
        }
    }
}

/// What is missing and what to do.
#[derive(Clone, Debug, PartialEq)]
struct Problem {
    text: String,
    /// The API server drops fields of our kinds. Without the definition of KKP, it drops none.
    is_outdated: bool,
}

impl Problem {
    fn outdated(text: String) -> Self {
        Self {
            text,
            is_outdated: true,
        }
    }
}

/// The result of one look at the definitions.
enum Answer {
    Good,
    Bad(Problem),
    None(String),
}

/// The conclusion from an answer and those before it.
#[derive(Debug, PartialEq)]
enum Conclusion {
    Good,
    /// Good, after they were bad: everything is listed again, and the next check is due after this delay.
    Repaired(Duration),
    /// The previous conclusion holds until the next check.
    Unclear,
    Bad(Problem),
}

#[derive(Default)]
struct CheckHistory {
    /// There was an answer since the kubeconfig last changed.
    answered: bool,
    /// The last conclusion was good.
    good: bool,
    /// Bad answers since the last good one.
    bad: u32,
    /// The last answer that was not good found outdated definitions.
    is_outdated: bool,
    /// The last answer was good, and the one before it bad.
    repaired: bool,
}

impl CheckHistory {
    fn judge(&mut self, answer: Answer) -> Conclusion {
        match answer {
            Answer::Good => {
                let (was_bad, was_repaired) = (std::mem::take(&mut self.bad) > 0, self.repaired);
                (self.answered, self.good, self.repaired) = (true, true, was_bad);
                self.is_outdated = false;
                match (was_bad, was_repaired) {
                    (true, _) => Conclusion::Repaired(RECHECK_DELAY),
                    (false, true) => Conclusion::Repaired(HEALTHY_INTERVAL),
                    (false, false) => Conclusion::Good,
                }
            }
            // An unavailable API server proves nothing about them, and the watches report it.
            Answer::None(_) if self.answered => Conclusion::Unclear,
            Answer::None(text) => Conclusion::Bad(Problem {
                text,
                is_outdated: self.is_outdated,
            }),
            Answer::Bad(problem) => {
                (self.answered, self.is_outdated) = (true, problem.is_outdated);
                self.bad += 1;
                if self.good && self.bad < BAD_ANSWERS_NEEDED {
                    return Conclusion::Unclear;
                }
                self.good = false;
                Conclusion::Bad(problem)
            }
        }
    }
}

/// The schemas of our API group as the server publishes them, by name. A schema takes several times as much memory once it is parsed, so
/// each is parsed only while it is compared.
type Schemas = BTreeMap<String, Box<RawValue>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    components: Components,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Components {
    schemas: Schemas,
}

async fn published(client: &kube::Client) -> Result<Schemas, kube::Error> {
    let url = format!("/openapi/v3/apis/{}/v1alpha1", names::GROUP);
    let request = http::Request::get(url)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let document: Document = client.request(request).await?;
    Ok(document.components.schemas)
}

/// The problem of the definitions that a service needs; `None` if nothing is missing.
fn problem(needs: &Needs, published: &Schemas) -> Option<Problem> {
    outdated_for(needs.service, published)
        .map(Problem::outdated)
        .or_else(|| {
            let custom = CustomOperatingSystemProfile::kind(&());
            let is_missing = needs.custom_profiles && schema(published, &custom).is_none();
            is_missing.then(|| Problem {
                text: format!(
                    "{custom} is missing; install the definition of KKP, or remove --custom-profiles"
                ),
                is_outdated: false,
            })
        })
}

/// The published schema of a kind.
fn schema<'a>(published: &'a Schemas, kind: &str) -> Option<&'a RawValue> {
    let of_kind = |name: &str| name.rsplit('.').next() == Some(kind);
    let mut schemas = published.iter();
    schemas
        .find(|(name, _)| of_kind(name))
        .map(|(_, schema)| &**schema)
}

/// A kind and its definition.
type Definition = (&'static str, &'static str);

const PROFILES: Definition = ("OperatingSystemProfile", definitions::PROFILES);
const CONFIGS: Definition = ("OperatingSystemConfig", definitions::CONFIGS);

/// The schema of a definition.
fn schema_of(definition: &mut Value) -> Option<Value> {
    let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema")?;
    Some(schema.take())
}

fn outdated_for(service: Service, published: &Schemas) -> Option<String> {
    let needed: &[Definition] = match service {
        Service::OspController => &[PROFILES],
        Service::OscController => &[PROFILES, CONFIGS],
        Service::SecretSyncer => &[CONFIGS],
        Service::CsrApprover => &[],
    };
    let mut missing = Vec::new();
    for (kind, definition) in needed {
        let ours = schema_of(&mut apart(|| definitions::parse(definition)));
        let served = schema(published, kind).and_then(|schema| serde_json::from_str(schema.get()).ok());
        match (served, ours) {
            (Some(served), Some(ours)) => lacks(kind, &ours, &served, &mut missing),
            _ => missing.push((*kind).to_owned()),
        }
    }
    if missing.is_empty() {
        return None;
    }
    let more = missing.len().saturating_sub(MAX_NAMED_FIELDS);
    missing.truncate(MAX_NAMED_FIELDS);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    Some(format!(
        "older than this version, they lack {}{more}; {ADVICE}",
        missing.join(", ")
    ))
}

/// Collects the fields that `ours` has and `served` would drop.
fn lacks(path: &str, ours: &Value, served: &Value, missing: &mut Vec<String>) {
    let kept = served.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    for (name, field) in ours
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let path = format!("{path}.{name}");
        match served.get("properties").and_then(|fields| fields.get(name)) {
            Some(served) => lacks(&path, field, served, missing),
            None if kept || PUBLISHED_OTHERWISE.contains(&name.as_str()) => {}
            None => missing.push(path),
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let (Some(ours), Some(served)) = (ours.get(inner), served.get(inner)) {
            lacks(path, ours, served, missing);
        }
    }
}

/// Fields of every object, which the server publishes in its own way.
const PUBLISHED_OTHERWISE: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn published_by(crds: &[Definition]) -> Schemas {
        let schema = |(kind, definition): &Definition| {
            let schema = schema_of(&mut definitions::parse(definition)).unwrap();
            (
                format!("io.k8c.x.v1alpha1.{kind}"),
                to_raw_value(&schema).unwrap(),
            )
        };
        crds.iter().map(schema).collect()
    }

    fn old() -> Problem {
        Problem::outdated("old".to_owned())
    }

    fn bad() -> Answer {
        Answer::Bad(old())
    }

    fn missing_custom() -> Answer {
        Answer::Bad(Problem {
            text: "custom".to_owned(),
            is_outdated: false,
        })
    }

    fn unchecked(is_outdated: bool) -> Conclusion {
        let text = "away".to_owned();
        Conclusion::Bad(Problem { text, is_outdated })
    }

    fn away() -> Answer {
        Answer::None("away".to_owned())
    }

    #[test]
    fn until_there_was_a_good_answer_each_one_counts() {
        let mut history = CheckHistory::default();
        assert_eq!(history.judge(away()), unchecked(false));
        assert_eq!(history.judge(bad()), Conclusion::Bad(old()));
        assert_eq!(history.judge(away()), Conclusion::Unclear);
        // Once more later: another API server may still prune objects for a moment.
        assert_eq!(history.judge(Answer::Good), Conclusion::Repaired(RECHECK_DELAY));
        assert_eq!(history.judge(away()), Conclusion::Unclear);
        assert_eq!(
            history.judge(Answer::Good),
            Conclusion::Repaired(HEALTHY_INTERVAL)
        );
        assert_eq!(history.judge(Answer::Good), Conclusion::Good);
    }

    #[test]
    fn an_api_server_that_was_away_makes_good_definitions_neither_bad_nor_new() {
        let mut history = CheckHistory::default();
        assert_eq!(history.judge(Answer::Good), Conclusion::Good);
        assert_eq!(history.judge(away()), Conclusion::Unclear);
        assert_eq!(history.judge(Answer::Good), Conclusion::Good);
    }

    #[test]
    fn good_definitions_become_bad_by_several_answers_and_one_is_enough_to_list_again() {
        let mut history = CheckHistory::default();
        assert_eq!(history.judge(Answer::Good), Conclusion::Good);
        assert_eq!(history.judge(bad()), Conclusion::Unclear);
        assert_eq!(history.judge(Answer::Good), Conclusion::Repaired(RECHECK_DELAY));
        assert_eq!(
            history.judge(Answer::Good),
            Conclusion::Repaired(HEALTHY_INTERVAL)
        );
        for _ in 1..BAD_ANSWERS_NEEDED {
            assert_eq!(history.judge(bad()), Conclusion::Unclear);
        }
        assert_eq!(history.judge(bad()), Conclusion::Bad(old()));
        assert_eq!(history.judge(bad()), Conclusion::Bad(old()));
        assert_eq!(history.judge(Answer::Good), Conclusion::Repaired(RECHECK_DELAY));
    }

    #[test]
    fn those_of_this_version_lack_nothing_and_each_service_looks_at_its_own() {
        let all = published_by(&[PROFILES, CONFIGS]);
        for service in Service::ALL {
            assert_eq!(outdated_for(service, &all), None);
        }
        let half = published_by(&[PROFILES]);
        assert_eq!(outdated_for(Service::OspController, &half), None);
        for service in [Service::OscController, Service::SecretSyncer] {
            let problem = outdated_for(service, &half).unwrap();
            assert!(
                problem.contains("OperatingSystemConfig") && problem.ends_with(ADVICE),
                "{problem}"
            );
        }
    }

    #[test]
    fn the_definition_of_custom_profiles_is_missed_by_those_who_copy_them() {
        let custom = ("CustomOperatingSystemProfile", definitions::PROFILES);
        let (without, with) = (published_by(&[PROFILES]), published_by(&[PROFILES, custom]));
        let needs = |custom_profiles| Needs {
            service: Service::OspController,
            custom_profiles,
        };
        assert_eq!(problem(&needs(false), &without), None);
        assert_eq!(problem(&needs(true), &with), None);
        let Problem { text, is_outdated } = problem(&needs(true), &without).unwrap();
        assert!(
            text.contains("CustomOperatingSystemProfile is missing") && text.contains("--custom-profiles"),
            "{text}"
        );
        assert!(!is_outdated, "no field of ours is dropped");
        assert!(problem(&needs(true), &Schemas::new()).unwrap().is_outdated);
    }

    #[test]
    fn definitions_that_cannot_be_checked_are_outdated_if_they_were() {
        for (found, is_outdated) in [(bad(), true), (missing_custom(), false)] {
            let mut history = CheckHistory::default();
            history.judge(found);
            // The kubeconfig has changed.
            history.answered = false;
            assert_eq!(history.judge(away()), unchecked(is_outdated));
        }
        let mut history = CheckHistory::default();
        history.judge(bad());
        history.judge(Answer::Good);
        (history.answered, history.good) = (false, false);
        assert_eq!(history.judge(away()), unchecked(false));
    }

    #[test]
    fn a_field_that_would_be_dropped_is_named() {
        let ours = json!({"properties": {
            "metadata": {}, "spec": {"properties": {"list": {"items": {"properties": {"new": {}}}}}},
            "status": {"properties": {"accepted": {}}}}});
        let mut missing = Vec::new();
        let old = json!({"properties": {"spec": {"properties": {"list": {"items": {"properties": {}}}}}}});
        lacks("Kind", &ours, &old, &mut missing);
        assert_eq!(missing, ["Kind.spec.list.new", "Kind.status"]);
        missing.clear();
        let open = json!({"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true}, "status": {"properties": {"accepted": {}}}}});
        lacks("Kind", &ours, &open, &mut missing);
        assert!(missing.is_empty(), "{missing:?}");
    }
}
