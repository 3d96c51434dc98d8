//! Checks that the CustomResourceDefinitions of the management cluster are not older than this program: the API server would drop what
//! they don't know, without a word.
//!
//! Once they have been mended, everything is listed anew: a watch that was opened before goes on for a while, and shows objects as the old
//! definitions cut them; taken up again afterwards, it would not show them once more.

use std::time::Duration;

use kube::CustomResourceExt;
use osm_api::rbac::Service;
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, names};
use serde_json::Value;

use crate::Context;
use crate::backoff::Backoff;
use crate::status::{brief, is_code};

/// While it is not sure what they are, and once more after they were mended: other API servers may learn of new definitions a little
/// later.
const CHECK_AGAIN: Duration = Duration::from_secs(5);

/// While they are too old, from first to last: at the very start they may just have been made.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// While all is well: somebody may bring older ones back.
const CHECK_NOW_AND_THEN: Duration = Duration::from_secs(600);

/// So many bad answers in a row count, once there was a good one: an API server that has just started has yet to publish them.
const CONFIRMED: u32 = 3;

const ADVICE: &str = "apply the CustomResourceDefinitions of this version";

/// How many fields a message names.
const NAMED: usize = 3;

/// Checks, in a task, whether they are all that this service needs; readiness waits for that. What the server publishes
/// about its kinds is for everybody who has an identity to read: no right on definitions is needed.
pub fn spawn(context: &Context) {
    let gate = context.readiness.gate("CustomResourceDefinitions");
    let (connection, service, shutdown) =
        (context.management.clone(), context.service, context.shutdown.clone());
    let (relist, surroundings) = (context.relist.clone(), context.surroundings.clone());
    tokio::spawn(async move {
        let mut changes = connection.changes();
        let cluster = connection.part().label();
        let (mut course, mut said) = (Course::default(), String::new());
        let mut backoff = Backoff::new(&surroundings, FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            changes.mark_unchanged();
            let answer = match published(&connection.client).await {
                Ok(published) => problem(service, &published).map_or(Answer::Good, Answer::Bad),
                Err(error) if is_code(&error, 404) => Answer::Bad(format!("missing: {ADVICE}")),
                Err(error) => Answer::None(format!("can't be checked yet: {}", brief(&error))),
            };
            let again = match course.judge(answer) {
                Verdict::Good => {
                    gate.open();
                    said.clear();
                    backoff.reset();
                    CHECK_NOW_AND_THEN
                }
                Verdict::Mended(again) => {
                    gate.open();
                    said.clear();
                    backoff.reset();
                    tracing::info!(
                        cluster,
                        "CustomResourceDefinitions have been mended: everything is listed anew"
                    );
                    relist.now();
                    again
                }
                Verdict::Unclear => CHECK_AGAIN,
                Verdict::Bad(problem) => {
                    if said != problem {
                        tracing::error!(cluster, "CustomResourceDefinitions: {problem}");
                    }
                    gate.close(&problem);
                    said = problem;
                    backoff.failed()
                }
            };
            let next = async {
                // Where nobody is left to tell of changes, time alone counts.
                tokio::select! {
                    Ok(()) = changes.changed() => (course.answered, course.good) = (false, false),
                    () = tokio::time::sleep(again) => {}
                }
            };
            if shutdown.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    });
}

/// What one look at the definitions has shown.
enum Answer {
    Good,
    Bad(String),
    /// There was no answer.
    None(String),
}

/// What follows from an answer, and from those before it.
#[derive(Debug, PartialEq)]
enum Verdict {
    Good,
    /// Good, after they were bad: everything is to be listed anew, and they are to be looked at again after this.
    Mended(Duration),
    /// It stays as it is, until they are looked at again.
    Unclear,
    Bad(String),
}

/// The answers so far.
#[derive(Default)]
struct Course {
    /// There was one by this kubeconfig.
    answered: bool,
    /// The last verdict on them was good.
    good: bool,
    /// Bad answers since the last good one.
    bad: u32,
    /// The last answer was good, and the one before it bad.
    mended: bool,
}

impl Course {
    fn judge(&mut self, answer: Answer) -> Verdict {
        match answer {
            Answer::Good => {
                let (was_bad, was_mended) = (std::mem::take(&mut self.bad) > 0, self.mended);
                (self.answered, self.good, self.mended) = (true, true, was_bad);
                match (was_bad, was_mended) {
                    (true, _) => Verdict::Mended(CHECK_AGAIN),
                    (false, true) => Verdict::Mended(CHECK_NOW_AND_THEN),
                    (false, false) => Verdict::Good,
                }
            }
            // An API server that is away says nothing about them; the watches tell of that.
            Answer::None(_) if self.answered => Verdict::Unclear,
            Answer::None(problem) => Verdict::Bad(problem),
            Answer::Bad(problem) => {
                self.answered = true;
                self.bad += 1;
                if self.good && self.bad < CONFIRMED {
                    return Verdict::Unclear;
                }
                self.good = false;
                Verdict::Bad(problem)
            }
        }
    }
}

/// What the server says about the kinds of our group, by their names.
async fn published(client: &kube::Client) -> Result<Value, kube::Error> {
    let url = format!("/openapi/v3/apis/{}/v1alpha1", names::GROUP);
    let request = http::Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let mut document: Value = client.request(request).await?;
    Ok(document.pointer_mut("/components/schemas").map(Value::take).unwrap_or_default())
}

/// What is missing, and what to do; `None` if nothing is.
fn problem(service: Service, published: &Value) -> Option<String> {
    let profiles = ("OperatingSystemProfile", OperatingSystemProfile::crd());
    let configs = ("OperatingSystemConfig", OperatingSystemConfig::crd());
    let needed = match service {
        Service::OspController => vec![profiles],
        Service::OscController => vec![profiles, configs],
        Service::SecretSyncer => vec![configs],
    };
    let mut missing = Vec::new();
    for (kind, crd) in needed {
        let served = published.as_object().and_then(|schemas| {
            let of_kind = |name: &&String| name.rsplit('.').next() == Some(kind);
            schemas.iter().find(|(name, _)| of_kind(name)).map(|(_, schema)| schema)
        });
        let ours = crd.spec.versions.first().and_then(|version| version.schema.as_ref());
        let ours = ours.and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok());
        match (served, ours) {
            (Some(served), Some(ours)) => lacks(kind, &ours, served, &mut missing),
            _ => missing.push(kind.to_owned()),
        }
    }
    if missing.is_empty() {
        return None;
    }
    let more = missing.len().saturating_sub(NAMED);
    missing.truncate(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("older than this version, they lack {}{more}: {ADVICE}", missing.join(", ")))
}

/// Collects the fields that `ours` has, and `served` has not and would drop.
fn lacks(path: &str, ours: &Value, served: &Value, missing: &mut Vec<String>) {
    let kept = served.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    for (name, field) in ours.get("properties").and_then(Value::as_object).into_iter().flatten() {
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

/// Fields of every object, which the server knows better.
const PUBLISHED_OTHERWISE: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published_by(
        crds: &[k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition],
    ) -> Value {
        let schema = |crd: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.clone();
            (format!("io.k8c.x.v1alpha1.{}", crd.spec.names.kind), serde_json::to_value(schema).unwrap())
        };
        crds.iter().map(schema).collect::<serde_json::Map<_, _>>().into()
    }

    fn bad() -> Answer {
        Answer::Bad("old".to_owned())
    }

    fn away() -> Answer {
        Answer::None("away".to_owned())
    }

    #[test]
    fn until_there_was_a_good_answer_each_one_counts() {
        let mut course = Course::default();
        assert_eq!(course.judge(away()), Verdict::Bad("away".to_owned()));
        assert_eq!(course.judge(bad()), Verdict::Bad("old".to_owned()));
        assert_eq!(course.judge(away()), Verdict::Unclear);
        // Again later on: another API server may still cut objects for a moment.
        assert_eq!(course.judge(Answer::Good), Verdict::Mended(CHECK_AGAIN));
        assert_eq!(course.judge(away()), Verdict::Unclear);
        assert_eq!(course.judge(Answer::Good), Verdict::Mended(CHECK_NOW_AND_THEN));
        assert_eq!(course.judge(Answer::Good), Verdict::Good);
    }

    #[test]
    fn an_api_server_that_was_away_makes_good_definitions_neither_bad_nor_new() {
        let mut course = Course::default();
        assert_eq!(course.judge(Answer::Good), Verdict::Good);
        assert_eq!(course.judge(away()), Verdict::Unclear);
        assert_eq!(course.judge(Answer::Good), Verdict::Good);
    }

    #[test]
    fn good_definitions_become_bad_by_several_answers_and_one_is_enough_to_list_anew() {
        let mut course = Course::default();
        assert_eq!(course.judge(Answer::Good), Verdict::Good);
        assert_eq!(course.judge(bad()), Verdict::Unclear);
        assert_eq!(course.judge(Answer::Good), Verdict::Mended(CHECK_AGAIN));
        assert_eq!(course.judge(Answer::Good), Verdict::Mended(CHECK_NOW_AND_THEN));
        for _ in 1..CONFIRMED {
            assert_eq!(course.judge(bad()), Verdict::Unclear);
        }
        assert_eq!(course.judge(bad()), Verdict::Bad("old".to_owned()));
        assert_eq!(course.judge(bad()), Verdict::Bad("old".to_owned()));
        assert_eq!(course.judge(Answer::Good), Verdict::Mended(CHECK_AGAIN));
    }

    #[test]
    fn those_of_this_version_lack_nothing_and_each_service_looks_at_its_own() {
        let (profiles, configs) = (OperatingSystemProfile::crd(), OperatingSystemConfig::crd());
        let all = published_by(&[profiles.clone(), configs]);
        for service in Service::ALL {
            assert_eq!(problem(service, &all), None);
        }
        let half = published_by(&[profiles]);
        assert_eq!(problem(Service::OspController, &half), None);
        for service in [Service::OscController, Service::SecretSyncer] {
            let problem = problem(service, &half).unwrap();
            assert!(problem.contains("OperatingSystemConfig") && problem.ends_with(ADVICE), "{problem}");
        }
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
