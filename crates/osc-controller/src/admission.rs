//! The admission webhook for MachineDeployments. It judges with what the caches hold, and sends no request.
//!
//! It refuses only what a reconcile would refuse, with the same text, and only of a pool that had no problem before. So an existing pool with
//! a problem can be scaled, stamped with a revision and corrected step by step; its problems are warnings. Whatever depends on other objects
//! that may follow, such as a profile that is not accepted yet, is a warning, too.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use osm_api::pool_settings::PoolSettings;
use osm_api::{MachineDeployment, Settings};
use osm_runtime::admission::{Judge, Request, Verdict};
use osm_runtime::object;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::gather::{self, ProfileLookup, sort_by_claim};
use crate::hold::{self, Hold};
use crate::plan::{conflict, no_room, too_long};
use crate::pool_settings::SettingsProblem;
use crate::view::{PoolView, is_default};

/// A client may create a profile, or delete another pool, just before it creates the MachineDeployment. The watch shows that a little
/// later, so nothing is refused because of another object before this time has passed.
const WATCH_LAG: Duration = Duration::from_millis(300);
const WATCH_POLL: Duration = Duration::from_millis(20);

/// A webhook that looks up profiles and other pools in a context.
pub struct PoolJudge(pub Context);

impl Judge for PoolJudge {
    const DEADLINE: Duration = Duration::from_millis(800);

    fn judge(&self, request: Request) -> impl Future<Output = Verdict> + Send {
        let context = self.0.clone();
        async move {
            let Some(new) = read(&request.object).filter(|new| serves(&context, new)) else {
                return Verdict::allowed();
            };
            let old = request.old_object.as_deref().and_then(read);
            let opinion = |pool: &PoolView| opinion(pool, &Known::of(&context, pool));
            let began = Instant::now();
            loop {
                let (now, before) = (opinion(&new), old.as_ref().map(opinion));
                let may_pass = now.problem.as_ref().is_some_and(|problem| problem.may_pass);
                let verdict = verdict(now, before);
                if verdict.denial.is_none() || !may_pass || began.elapsed() >= WATCH_LAG {
                    return verdict;
                }
                sleep(WATCH_POLL).await;
            }
        }
    }
}

/// `None`: not even its metadata can be decoded.
fn read(text: &RawValue) -> Option<PoolView> {
    let decoded = object::decode::<MachineDeployment>(text.get()).ok()?;
    Some(match decoded {
        Ok(md) => PoolView::of(&md),
        Err(unreadable) => PoolView::unreadable(&unreadable),
    })
}

fn serves(context: &Context, pool: &PoolView) -> bool {
    context.cluster.installation.serves(&pool.pool_ref.namespace)
}

/// What the caches know of the objects that a pool depends on.
struct Known {
    /// The pool that has the name of its config, if that is another one.
    owner_of_name: Option<Arc<PoolView>>,
    /// The largest number of configs, if there are as many.
    full_at: Option<u32>,
    /// The profile that the pool gets. `None`: not all profiles are known yet.
    profile: Option<ProfileLookup>,
    /// Whether osp-controller installs the missing profile, unless the settings disable it.
    is_coming: bool,
    /// Those of the installation, if they are known.
    settings: Option<Settings>,
    /// Whether ConfigMaps with settings are read in its namespace.
    reads_settings: bool,
}

impl Known {
    fn of(context: &Context, pool: &PoolView) -> Self {
        let requested = pool.requested_profiles(&context.cluster.installation);
        let found = requested
            .iter()
            .map(|one| gather::shown(context, one))
            .find(|found| !matches!(found, ProfileLookup::Missing(_)));
        let profiles = &context.caches.profiles;
        let are_listed = requested
            .iter()
            .filter_map(|one| profiles.get(&one.namespace))
            .all(|profiles| profiles.is_listed());
        let is_coming = requested
            .iter()
            .any(|one| one.namespace == context.cluster.namespace() && is_default(&one.name));
        let settings = context.cluster.settings.borrow();
        let namespace = &pool.pool_ref.namespace;
        Self {
            owner_of_name: owner_of_name(context, pool),
            full_at: context.full_at(),
            profile: match requested.is_empty() {
                true => Some(ProfileLookup::Unnamed),
                false => found.or_else(|| are_listed.then(|| ProfileLookup::Missing(requested))),
            },
            is_coming,
            settings: settings.as_ref().map(|current| current.settings.clone()),
            reads_settings: context.caches.pool_settings.contains_key(namespace),
        }
    }
}

/// The pool that the config of a pool belongs to, if that is another one.
fn owner_of_name(context: &Context, pool: &PoolView) -> Option<Arc<PoolView>> {
    let name = pool.pool_ref.config_name();
    let is_other = |other: &Arc<PoolView>| {
        (&other.pool_ref.namespace, &other.pool_ref.name) != (&pool.pool_ref.namespace, &pool.pool_ref.name)
    };
    let mut claimants = context.caches.pools.group(&name);
    claimants.retain(is_other);
    claimants.push(Arc::new(pool.clone()));
    let config = context.caches.configs.get(&context.config_key(&name));
    sort_by_claim(&mut claimants, config.as_deref(), |pool| serves(context, pool));
    claimants.into_iter().next().filter(is_other)
}

/// What a reconcile would say about a pool.
struct Opinion {
    /// Why the pool can't work.
    problem: Option<Problem>,
    /// What is legal, but may not be what was meant, or waits for something else.
    warnings: Vec<String>,
}

impl Opinion {
    fn messages(self) -> Vec<String> {
        let problem = self.problem.map(|problem| problem.message);
        problem.into_iter().chain(self.warnings).collect()
    }
}

struct Problem {
    message: String,
    /// It follows from another object, which may have changed already.
    may_pass: bool,
}

fn problem(message: impl ToString, may_pass: bool) -> Problem {
    Problem {
        message: message.to_string(),
        may_pass,
    }
}

/// The order of the checks is that of a plan, so that the same one of several problems is reported.
fn opinion(pool: &PoolView, known: &Known) -> Opinion {
    let full = known.full_at.map(|most| no_room(pool, most).message);
    let mut warnings: Vec<String> = full.into_iter().collect();
    let found = name_problem(pool, known)
        .or_else(|| pool.pool.as_ref().err().map(|error| problem(error, false)))
        .or_else(|| settings_problem(pool, known).map(|mistake| problem(mistake, false)))
        .or_else(|| profile_problem(pool, known, &mut warnings));
    Opinion {
        problem: found,
        warnings,
    }
}

/// Only what is new is refused, or told.
fn verdict(now: Opinion, before: Option<Opinion>) -> Verdict {
    let had_problem = before.as_ref().is_some_and(|before| before.problem.is_some());
    if let Some(problem) = &now.problem
        && !had_problem
    {
        return Verdict::denied(&problem.message);
    }
    let known = before.map(Opinion::messages).unwrap_or_default();
    let mut warnings = now.messages();
    warnings.retain(|warning| !known.contains(warning));
    Verdict {
        warnings,
        ..Verdict::default()
    }
}

fn name_problem(pool: &PoolView, known: &Known) -> Option<Problem> {
    if let Some(rejection) = too_long(pool) {
        return Some(problem(rejection.message, false));
    }
    let owner = known.owner_of_name.as_deref()?;
    Some(problem(conflict(pool, owner).message, true))
}

fn settings_problem(pool: &PoolView, known: &Known) -> Option<SettingsProblem> {
    match PoolSettings::parse(pool.settings.as_ref()?) {
        Err(error) => Some(error.into()),
        // The ConfigMap may follow, and decides about the rest.
        Ok(settings) if settings.config_map.is_some() => {
            let namespace = &pool.pool_ref.namespace;
            (!known.reads_settings).then(|| SettingsProblem::NamespaceNotRead(namespace.clone()))
        }
        Ok(settings) => Some(settings.merge(known.settings.as_ref()?, None).err()?.into()),
    }
}

fn profile_problem(pool: &PoolView, known: &Known, warnings: &mut Vec<String>) -> Option<Problem> {
    let pool = pool.pool.as_ref().ok()?;
    warnings.extend(pool.warnings.iter().cloned());
    match known.profile.as_ref()? {
        ProfileLookup::Unnamed | ProfileLookup::Forbidden(_) => None,
        ProfileLookup::Unread(namespace) => {
            Some(problem(Hold::ProfileNamespaceNotRead(namespace.clone()), false))
        }
        ProfileLookup::Missing(requested) => {
            let missing = Hold::ProfileMissing(hold::listed(requested));
            if known.is_coming {
                warnings.push(missing.to_string());
                return None;
            }
            Some(problem(missing, true))
        }
        ProfileLookup::Found(found) => {
            let Some(accepted) = &found.view.accepted else {
                warnings.push(found.not_accepted().to_string());
                return None;
            };
            match osm_render::suits(&accepted.spec.0, pool) {
                Ok(of_profile) => {
                    warnings.extend(of_profile);
                    None
                }
                Err(source) => {
                    let profile = found.key();
                    Some(problem(Hold::Render { profile, source }, true))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use osm_api::names;
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::tests::{self, profile_spec, requested, view};
    use crate::view::ProfileView;

    fn object() -> Value {
        json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "pool", "namespace": "kube-system", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {}},
            "spec": {"replicas": 1, "template": {"metadata": {"annotations": {}}, "spec": {
                "versions": {"kubelet": "1.34.2"},
                "providerSpec": {"value": {
                    "cloudProvider": "aws", "cloudProviderSpec": {"secret": "hunter2"}, "operatingSystem": "ubuntu",
                    "operatingSystemSpec": {},
                }},
            }}},
        })
    }

    fn submitted(object: &Value) -> PoolView {
        read(&RawValue::from_string(object.to_string()).unwrap()).unwrap()
    }

    fn found(cloud: &str) -> ProfileLookup {
        let mut spec = profile_spec("v1.0.0", "");
        spec.supported_cloud_providers[0].name = cloud.parse().unwrap();
        tests::found(view(&spec))
    }

    fn missing() -> ProfileLookup {
        ProfileLookup::Missing(vec![requested("osp-ubuntu")])
    }

    fn known(profile: ProfileLookup) -> Known {
        Known {
            owner_of_name: None,
            full_at: None,
            profile: Some(profile),
            is_coming: false,
            settings: Some(Settings::default()),
            reads_settings: false,
        }
    }

    /// The verdict where both have this profile.
    fn judged(new: &Value, old: Option<&Value>, profile: ProfileLookup) -> Verdict {
        let known = known(profile);
        let opinion = |object: &Value| opinion(&submitted(object), &known);
        verdict(opinion(new), old.map(opinion))
    }

    fn set(pointer: &str, value: Value) -> Value {
        let mut object = object();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/");
        object.pointer_mut(parent).unwrap()[key] = value;
        object
    }

    fn provider(field: &str, value: &str) -> Value {
        set(
            &format!("/spec/template/spec/providerSpec/value/{field}"),
            json!(value),
        )
    }

    fn kubelet(version: Value) -> Value {
        set("/spec/template/spec/versions/kubelet", version)
    }

    fn max_pods(value: &str) -> Value {
        annotated(&format!("{}MaxPods", names::KUBELET_CONFIG_PREFIX), value)
    }

    fn annotated(key: &str, value: &str) -> Value {
        let mut object = object();
        object["metadata"]["annotations"][key] = json!(value);
        object
    }

    #[test]
    fn what_a_reconcile_would_refuse_is_refused_with_its_text() {
        let good = || found("aws");
        let unread = ProfileLookup::Unread("kube-system".to_owned());
        let settings = |text| annotated(names::SETTINGS, text);
        let refused = |new: &Value, profile: ProfileLookup, text: &str| {
            let denial = judged(new, None, profile).denial.unwrap();
            assert!(denial.contains(text), "{denial}");
            assert!(!denial.contains("hunter2"), "{denial}");
        };
        for (field, value, text) in [
            ("operatingSystem", "beos", "operatingSystem is unknown"),
            ("cloudProvider", "mars", "cloudProvider is unknown"),
        ] {
            refused(&provider(field, value), good(), text);
        }
        for (new, text) in [
            (kubelet(json!("new")), "is not a version"),
            (kubelet(json!(1.34)), "versions.kubelet"),
            (settings("nothing: 1"), "nothing: unknown field"),
            (settings("fromConfigMap: a"), "does not read ConfigMaps in"),
            (max_pods("many"), "MaxPods"),
            (set("/metadata/name", json!("p".repeat(260))), "too long"),
        ] {
            refused(&new, good(), text);
        }
        for (profile, text) in [
            (found("gce"), "but not the pool's cloud provider aws"),
            (missing(), "kube-system/osp-ubuntu does not exist"),
            (unread, "profiles are not read in namespace kube-system"),
        ] {
            refused(&object(), profile, text);
        }
        assert_eq!(judged(&object(), None, good()), Verdict::allowed());
    }

    #[test]
    fn a_name_that_runs_together_with_another_is_refused_on_creation_only() {
        let mut other = submitted(&set("/metadata/name", json!("other")));
        other.pool_ref.uid = "v".to_owned();
        let mut known = known(found("aws"));
        known.owner_of_name = Some(Arc::new(other));
        let opinion = || opinion(&submitted(&object()), &known);
        assert!(opinion().problem.unwrap().may_pass);
        let denial = verdict(opinion(), None).denial.unwrap();
        assert!(
            denial.contains("belongs to the older MachineDeployment kube-system/other"),
            "{denial}"
        );
        assert_eq!(verdict(opinion(), Some(opinion())), Verdict::allowed());
    }

    #[test]
    fn a_pool_with_a_problem_can_be_scaled_stamped_and_corrected() {
        let broken = [
            (provider("operatingSystem", "beos"), found("aws")),
            (kubelet(json!("new")), found("aws")),
            (annotated(names::SETTINGS, "nothing: 1"), found("aws")),
            (max_pods("many"), found("aws")),
            (object(), found("gce")),
            (object(), missing()),
        ];
        for (old, profile) in broken {
            let mut new = old.clone();
            new["spec"]["replicas"] = json!(3);
            new["metadata"]["annotations"][names::REVISION] = json!("7");
            new["metadata"]["labels"] = json!({"team": "a"});
            new["spec"]["template"]["metadata"]["labels"] = json!({"a": "b"});
            new["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProviderSpec"] =
                json!({"secret": "other"});
            assert_eq!(judged(&new, Some(&old), profile), Verdict::allowed(), "{new}");
        }
    }

    #[test]
    fn a_pool_with_mistakes_is_corrected_step_by_step() {
        let old = kubelet(json!("new"));
        let other = provider("operatingSystem", "beos");
        let warned = judged(&other, Some(&old), found("aws"));
        assert_eq!(warned.denial, None);
        assert!(warned.warnings[0].contains("operatingSystem"), "{warned:?}");
        // The last mistake is corrected, and the profile is missing as before.
        let corrected = judged(&object(), Some(&old), missing());
        assert_eq!(corrected.denial, None);
        // It was good, and no longer is.
        assert!(judged(&old, Some(&object()), found("aws")).denial.is_some());
        let of = |profile| opinion(&submitted(&object()), &known(profile));
        assert!(verdict(of(missing()), Some(of(found("aws")))).denial.is_some());
    }

    #[test]
    fn what_is_legal_but_suspicious_is_a_warning_once() {
        let warned = |new: &Value, known: &Known, text: &str| {
            let opinion = || opinion(&submitted(new), known);
            let told = verdict(opinion(), None);
            assert!(
                told.denial.is_none() && told.warnings[0].contains(text),
                "{told:?}"
            );
            assert_eq!(verdict(opinion(), Some(opinion())), Verdict::allowed(), "{text}");
        };
        let good = || known(found("aws"));
        let mut annotated = object();
        annotated["spec"]["template"]["metadata"]["annotations"] = json!({(names::PROFILE): "a"});
        warned(&annotated, &good(), "has no effect");
        warned(&kubelet(json!("1.20.0")), &good(), "kubelet 1.20.0 is not one of");
        let full = Known {
            full_at: Some(5),
            ..good()
        };
        warned(&object(), &full, "(5)");
        let coming = Known {
            is_coming: true,
            ..known(missing())
        };
        warned(&object(), &coming, "does not exist");
        let refused = ProfileView {
            accepted: None,
            refusal: Some("line 2".to_owned()),
            ..view(&profile_spec("v1.0.0", ""))
        };
        warned(
            &object(),
            &known(tests::found(refused)),
            "is not accepted: line 2",
        );
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_refused_as_its_condition_reports() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = object().to_string().replace("\"hunter2\"", &deep);
        let pool = read(&RawValue::from_string(text).unwrap()).unwrap();
        let opinion = || opinion(&pool, &known(found("aws")));
        let denial = verdict(opinion(), None).denial.unwrap();
        assert!(
            denial.starts_with("the MachineDeployment can't be read: ")
                && denial.contains("nested too deeply"),
            "{denial}"
        );
        assert_eq!(verdict(opinion(), Some(opinion())), Verdict::allowed());
    }
}
