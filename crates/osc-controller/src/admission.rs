//! The admission webhook for MachineDeployments. It judges with what the caches hold, and sends no request.
//!
//! It refuses only what a reconcile would refuse, with the same text, and only if the client has just changed what is wrong. So an existing
//! pool with a problem can be scaled, stamped with a revision and corrected step by step. Whatever depends on other objects that may
//! follow, such as a profile that is not accepted yet, is a warning.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use osm_api::config::RequestedProfile;
use osm_api::pool_settings::PoolSettings;
use osm_api::{MachineDeployment, Settings};
use osm_runtime::admission::{Judge, Request, Verdict};
use osm_runtime::object;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::gather::sort_by_claim;
use crate::hold::{self, Hold};
use crate::plan::{conflict, no_room, too_long};
use crate::pool_settings::SettingsProblem;
use crate::view::{PoolView, ProfileView};

/// A client may create a profile, or delete another pool, just before it creates the MachineDeployment. The watch shows that a little
/// later, so nothing is refused because of another object before this time has passed.
const WATCH_LAG: Duration = Duration::from_millis(300);
const WATCH_POLL: Duration = Duration::from_millis(20);

pub struct PoolJudge {
    context: Context,
    /// Names of the default profiles.
    defaults: Arc<BTreeSet<String>>,
}

impl PoolJudge {
    /// A webhook that looks up profiles and other pools in `context`.
    pub fn new(context: &Context) -> Self {
        let defaults = osm_render::defaults().into_iter().map(|(name, _)| name);
        Self {
            context: context.clone(),
            defaults: Arc::new(defaults.collect()),
        }
    }
}

impl Judge for PoolJudge {
    const DEADLINE: Duration = Duration::from_millis(800);

    fn judge(&self, request: Request) -> impl Future<Output = Verdict> + Send {
        let (context, defaults) = (self.context.clone(), self.defaults.clone());
        async move {
            let Some(new) = Submitted::read(&request.object).filter(|new| serves(&context, &new.view)) else {
                return Verdict::allowed();
            };
            let old = request.old_object.as_deref().and_then(Submitted::read);
            let new = Arc::new(new);
            let began = Instant::now();
            loop {
                let finding = judge(&Facts::of(&context, &defaults, new.clone(), old.as_ref()));
                if !finding.may_be_outdated || began.elapsed() >= WATCH_LAG {
                    return finding.verdict;
                }
                sleep(WATCH_POLL).await;
            }
        }
    }
}

fn serves(context: &Context, pool: &PoolView) -> bool {
    context.cluster.installation.serves(&pool.pool_ref.namespace)
}

/// A MachineDeployment as a client sends it.
struct Submitted {
    view: PoolView,
}

impl Submitted {
    /// `None`: not even its metadata can be decoded.
    fn read(text: &RawValue) -> Option<Self> {
        let decoded = object::decode::<MachineDeployment>(text.get()).ok()?;
        Some(match decoded {
            Ok(md) => Self {
                view: PoolView::of(&md),
            },
            Err(unreadable) => Self {
                view: PoolView::unreadable(&unreadable),
            },
        })
    }

    /// What decides which profile it needs, and whether the profile suits it. A pool with a mistake suits no profile, and its correction is not
    /// held up by the next mistake.
    fn has_same_profile(&self, old: &Self) -> bool {
        let suited = |submitted: &Self| {
            let pool = submitted.view.pool.as_ref().ok();
            pool.map(|pool| {
                (
                    pool.operating_system,
                    pool.provisioning_utility(),
                    pool.cloud_provider,
                )
            })
        };
        self.view.wanted_profile == old.view.wanted_profile
            && suited(old).is_none_or(|old| suited(self) == Some(old))
    }
}

/// The profile that a pool asks for, as far as the caches know it.
enum KnownProfile {
    /// No profile is named, or the caches are not complete yet.
    Unknown,
    Missing,
    /// It does not exist, but osp-controller installs a default profile of this name unless the settings disable it.
    Coming,
    /// Profiles are not read in its namespace.
    Unread,
    Found(Arc<ProfileView>),
}

/// All that a verdict follows from.
struct Facts<'a> {
    new: Arc<Submitted>,
    /// As it is stored; `None`: it is being created.
    old: Option<&'a Submitted>,
    /// The pool that has the name of its config, if that is another one.
    owner_of_name: Option<Arc<PoolView>>,
    /// The largest number of configs, if there are as many.
    full_at: Option<u32>,
    /// The profile that it gets; those that it asks for, if none exists.
    requested: Vec<RequestedProfile>,
    profile: KnownProfile,
    /// Those of the installation, if they are known.
    settings: Option<Settings>,
    /// Whether ConfigMaps with settings are read in its namespace.
    reads_settings: bool,
}

impl<'a> Facts<'a> {
    fn of(
        context: &Context,
        defaults: &BTreeSet<String>,
        new: Arc<Submitted>,
        old: Option<&'a Submitted>,
    ) -> Self {
        let installation = &context.cluster.installation;
        let view = &new.view;
        let requested = view.requested_profiles(installation);
        let is_coming = |one: &RequestedProfile| {
            one.namespace == context.cluster.namespace() && defaults.contains(&one.name)
        };
        let existing =
            requested
                .iter()
                .find_map(|one| match known_profile(context, &one.namespace, &one.name) {
                    KnownProfile::Missing if is_coming(one) => Some((KnownProfile::Coming, one.clone())),
                    KnownProfile::Missing => None,
                    known => Some((known, one.clone())),
                });
        let (profile, requested) = match existing {
            Some((known, one)) => (known, vec![one]),
            None if requested.is_empty() => (KnownProfile::Unknown, requested),
            None => (KnownProfile::Missing, requested),
        };
        let owner_of_name = match old {
            None => owner_of_name(context, view),
            Some(_) => None,
        };
        let settings = context
            .cluster
            .settings
            .borrow()
            .as_ref()
            .map(|current| current.settings.clone());
        Self {
            owner_of_name,
            full_at: context.full_at().filter(|_| old.is_none()),
            requested,
            profile,
            settings: settings.filter(|_| view.settings.is_some()),
            reads_settings: installation
                .pool_settings_namespaces
                .contains(&view.pool_ref.namespace),
            new,
            old,
        }
    }

    /// Whether the client has just changed what `same` compares.
    fn has_changed(&self, same: impl Fn(&Submitted, &Submitted) -> bool) -> bool {
        self.old.is_none_or(|old| !same(&self.new, old))
    }
}

fn known_profile(context: &Context, namespace: &str, name: &str) -> KnownProfile {
    let Some(profiles) = context.caches.profiles.get(namespace) else {
        return KnownProfile::Unread;
    };
    match profiles.get(&format!("{namespace}/{name}")) {
        Some(found) => KnownProfile::Found(found),
        None if profiles.is_listed() => KnownProfile::Missing,
        None => KnownProfile::Unknown,
    }
}

/// The pool that the config of a new pool belongs to, if that is another one.
fn owner_of_name(context: &Context, new: &PoolView) -> Option<Arc<PoolView>> {
    let name = new.pool_ref.config_name();
    let is_other = |pool: &Arc<PoolView>| {
        (&pool.pool_ref.namespace, &pool.pool_ref.name) != (&new.pool_ref.namespace, &new.pool_ref.name)
    };
    let mut claimants = context.caches.pools.group(&name);
    claimants.retain(is_other);
    claimants.push(Arc::new(new.clone()));
    let config = context.caches.configs.get(&context.config_key(&name));
    sort_by_claim(&mut claimants, config.as_deref(), |pool| serves(context, pool));
    claimants.into_iter().next().filter(is_other)
}

struct Finding {
    verdict: Verdict,
    /// It follows from another object, which may have changed already.
    may_be_outdated: bool,
}

impl Finding {
    fn denied(message: impl ToString) -> Self {
        Self {
            verdict: Verdict::denied(message.to_string()),
            may_be_outdated: false,
        }
    }

    fn of_other_objects(message: impl ToString) -> Self {
        Self {
            may_be_outdated: true,
            ..Self::denied(message)
        }
    }
}

/// Judges. The order of the checks is that of a plan, so that the same one of several problems is reported.
fn judge(facts: &Facts<'_>) -> Finding {
    let checks = [name_problem, pool_problem, settings_problem, profile_problem];
    checks
        .iter()
        .find_map(|check| check(facts))
        .unwrap_or_else(|| Finding {
            verdict: Verdict {
                warnings: warnings(facts),
                ..Verdict::default()
            },
            may_be_outdated: false,
        })
}

fn name_problem(facts: &Facts<'_>) -> Option<Finding> {
    // A name never changes.
    if facts.old.is_some() {
        return None;
    }
    let view = &facts.new.view;
    if let Some(rejection) = too_long(view) {
        return Some(Finding::denied(rejection.message));
    }
    let owner = facts.owner_of_name.as_deref()?;
    Some(Finding::of_other_objects(conflict(view, owner).message))
}

fn pool_problem(facts: &Facts<'_>) -> Option<Finding> {
    let error = facts.new.view.pool.as_ref().err()?;
    // A mistake that is there already may be corrected later, and several ones after each other.
    facts
        .has_changed(|_, old| old.view.pool.is_err())
        .then(|| Finding::denied(error))
}

fn settings_problem(facts: &Facts<'_>) -> Option<Finding> {
    let text = facts.new.view.settings.as_ref()?;
    if !facts.has_changed(|new, old| new.view.settings == old.view.settings) {
        return None;
    }
    let problem = match PoolSettings::parse(text) {
        Err(error) => SettingsProblem::from(error),
        // The ConfigMap may follow, and decides about the rest.
        Ok(settings) if settings.config_map.is_some() => {
            if facts.reads_settings {
                return None;
            }
            SettingsProblem::NamespaceNotRead(facts.new.view.pool_ref.namespace.clone())
        }
        Ok(settings) => settings.merge(facts.settings.as_ref()?, None).err()?.into(),
    };
    Some(Finding::denied(problem))
}

fn profile_problem(facts: &Facts<'_>) -> Option<Finding> {
    let pool = facts.new.view.pool.as_ref().ok()?;
    if !facts.has_changed(Submitted::has_same_profile) {
        return None;
    }
    let profile = hold::listed(&facts.requested);
    match &facts.profile {
        KnownProfile::Unknown | KnownProfile::Coming => None,
        KnownProfile::Unread => {
            let namespace = facts.requested.first()?.namespace.clone();
            Some(Finding::denied(Hold::ProfileNamespaceNotRead(namespace)))
        }
        KnownProfile::Missing => Some(Finding::of_other_objects(Hold::ProfileMissing(profile))),
        KnownProfile::Found(found) => {
            let accepted = found.accepted.as_ref()?;
            let source = osm_render::suits(&accepted.spec.0, pool).err()?;
            Some(Finding::of_other_objects(Hold::Render { profile, source }))
        }
    }
}

/// What is legal, but may not be what was meant, or waits for something else.
fn warnings(facts: &Facts<'_>) -> Vec<String> {
    let view = &facts.new.view;
    let mut warnings = Vec::new();
    if let Some(most) = facts.full_at {
        warnings.push(no_room(view, most).message);
    }
    let pool = match &view.pool {
        Ok(pool) => pool,
        Err(error) => {
            if facts.has_changed(|new, old| new.view.pool.as_ref().err() == old.view.pool.as_ref().err()) {
                warnings.push(error.to_string());
            }
            return warnings;
        }
    };
    let misplaced_before = facts.old.and_then(|old| old.view.pool.as_ref().ok());
    let is_new = |warning: &&String| misplaced_before.is_none_or(|old| !old.warnings.contains(warning));
    warnings.extend(pool.warnings.iter().filter(is_new).cloned());
    let is_same = |new: &Submitted, old: &Submitted| {
        new.has_same_profile(old) && new.view.template_digest == old.view.template_digest
    };
    if !facts.has_changed(is_same) {
        return warnings;
    }
    if matches!(facts.profile, KnownProfile::Coming) {
        warnings.push(Hold::ProfileMissing(hold::listed(&facts.requested)).to_string());
    }
    if let KnownProfile::Found(found) = &facts.profile {
        warnings.extend(warnings_of_profile(facts, found));
        if let Some(accepted) = &found.accepted {
            warnings.extend(osm_render::suits(&accepted.spec.0, pool).unwrap_or_default());
        }
    }
    warnings
}

fn warnings_of_profile(facts: &Facts<'_>, found: &ProfileView) -> Option<String> {
    if found.accepted.is_some() {
        return None;
    }
    let why = found.refusal.as_deref();
    let hold = Hold::ProfileNotAccepted {
        profile: hold::listed(&facts.requested),
        why: why
            .unwrap_or("waiting for osp-controller to validate it")
            .to_owned(),
    };
    Some(hold.to_string())
}

#[cfg(test)]
mod tests {
    use osm_api::names;
    use osm_api::profile::OperatingSystemProfileSpec;
    use serde_json::{Value, json};

    use super::*;

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

    fn submitted(object: &Value) -> Submitted {
        let text = RawValue::from_string(object.to_string()).unwrap();
        Submitted::read(&text).unwrap()
    }

    fn found(clouds: &[&str]) -> KnownProfile {
        let clouds: Vec<Value> = clouds.iter().map(|cloud| json!({"name": cloud})).collect();
        let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
            "supportedCloudProviders": clouds, "bootstrapConfig": {}, "provisioningConfig": {},
        }))
        .unwrap();
        KnownProfile::Found(Arc::new(ProfileView {
            generation: 1,
            judged: 1,
            accepted: Some(osm_render::resolve(&spec).unwrap()),
            refusal: None,
        }))
    }

    fn facts<'a>(new: &Value, old: Option<&'a Submitted>, profile: KnownProfile) -> Facts<'a> {
        Facts {
            new: Arc::new(submitted(new)),
            old,
            owner_of_name: None,
            full_at: None,
            requested: vec![RequestedProfile {
                namespace: "kube-system".to_owned(),
                name: "osp-ubuntu".to_owned(),
            }],
            profile,
            settings: Some(Settings::default()),
            reads_settings: false,
        }
    }

    fn verdict(new: &Value, old: Option<&Value>, profile: KnownProfile) -> Verdict {
        let old = old.map(submitted);
        judge(&facts(new, old.as_ref(), profile)).verdict
    }

    fn set(pointer: &str, value: Value) -> Value {
        let mut object = object();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/");
        object.pointer_mut(parent).unwrap()[key] = value;
        object
    }

    fn annotated(key: &str, value: &str) -> Value {
        let mut object = object();
        object["metadata"]["annotations"][key] = json!(value);
        object
    }

    #[test]
    fn what_a_reconcile_would_refuse_is_refused_with_its_text() {
        let provider = "/spec/template/spec/providerSpec/value";
        let good = || found(&["aws"]);
        let long = "p".repeat(260);
        for (new, profile, text) in [
            (
                set(&format!("{provider}/operatingSystem"), json!("beos")),
                good(),
                "operatingSystem is unknown",
            ),
            (
                set(&format!("{provider}/cloudProvider"), json!("mars")),
                good(),
                "cloudProvider is unknown",
            ),
            (
                set("/spec/template/spec/versions/kubelet", json!("new")),
                good(),
                "is not a version",
            ),
            (
                set("/spec/template/spec/versions/kubelet", json!(1.34)),
                good(),
                "versions.kubelet",
            ),
            (set("/metadata/name", json!(long)), good(), "name too long"),
            (object(), found(&["gce"]), "but not the pool's cloud provider aws"),
            (
                object(),
                KnownProfile::Missing,
                "OperatingSystemProfile kube-system/osp-ubuntu does not exist",
            ),
            (
                object(),
                KnownProfile::Unread,
                "profiles are not read in namespace kube-system",
            ),
            (
                annotated(names::SETTINGS, "nothing: 1"),
                good(),
                "nothing: unknown field",
            ),
            (
                annotated(names::SETTINGS, "fromConfigMap: a"),
                good(),
                "does not read ConfigMaps in namespace",
            ),
            (
                annotated(&format!("{}MaxPods", names::KUBELET_CONFIG_PREFIX), "many"),
                good(),
                "MaxPods",
            ),
        ] {
            let denial = verdict(&new, None, profile).denial.unwrap();
            assert!(denial.contains(text), "{denial}");
            assert!(!denial.contains("hunter2"), "{denial}");
        }
        assert_eq!(verdict(&object(), None, found(&["aws"])), Verdict::allowed());
    }

    #[test]
    fn a_name_that_runs_together_with_another_is_refused_on_creation_only() {
        let mut other = submitted(&set("/metadata/name", json!("other"))).view;
        other.pool_ref.uid = "v".to_owned();
        let new = object();
        let mut of_creation = facts(&new, None, found(&["aws"]));
        of_creation.owner_of_name = Some(Arc::new(other));
        let finding = judge(&of_creation);
        assert!(finding.may_be_outdated);
        let denial = finding.verdict.denial.unwrap();
        assert!(
            denial.contains("belongs to the older MachineDeployment kube-system/other"),
            "{denial}"
        );
        let old = submitted(&new);
        let mut of_update = facts(&new, Some(&old), found(&["aws"]));
        of_update.owner_of_name = of_creation.owner_of_name;
        assert_eq!(judge(&of_update).verdict, Verdict::allowed());
    }

    #[test]
    fn a_pool_with_a_problem_can_be_scaled_stamped_and_corrected() {
        let provider = "/spec/template/spec/providerSpec/value";
        let broken = [
            (
                set(&format!("{provider}/operatingSystem"), json!("beos")),
                found(&["aws"]),
            ),
            (
                set("/spec/template/spec/versions/kubelet", json!("new")),
                found(&["aws"]),
            ),
            (annotated(names::SETTINGS, "nothing: 1"), found(&["aws"])),
            (
                annotated(&format!("{}MaxPods", names::KUBELET_CONFIG_PREFIX), "many"),
                found(&["aws"]),
            ),
            (object(), found(&["gce"])),
            (object(), KnownProfile::Missing),
        ];
        for (old, profile) in broken {
            let mut new = old.clone();
            new["spec"]["replicas"] = json!(3);
            new["metadata"]["annotations"][names::REVISION] = json!("7");
            new["metadata"]["labels"] = json!({"team": "a"});
            new["spec"]["template"]["metadata"]["labels"] = json!({"a": "b"});
            new.pointer_mut(provider).unwrap()["cloudProviderSpec"] = json!({"secret": "other"});
            assert_eq!(verdict(&new, Some(&old), profile).denial, None, "{new}");
        }
    }

    #[test]
    fn a_pool_with_mistakes_is_corrected_step_by_step() {
        let old = set("/spec/template/spec/versions/kubelet", json!("new"));
        let other = set(
            "/spec/template/spec/providerSpec/value/operatingSystem",
            json!("beos"),
        );
        let warned = verdict(&other, Some(&old), found(&["aws"]));
        assert_eq!(warned.denial, None);
        assert!(warned.warnings[0].contains("operatingSystem"), "{warned:?}");
        // Something else of its template changes.
        let mut new = old.clone();
        new["spec"]["template"]["spec"]["providerSpec"]["value"]["sshPublicKeys"] =
            json!(["ssh-ed25519 AAAA"]);
        assert_eq!(verdict(&new, Some(&old), found(&["aws"])), Verdict::allowed());
        // The last mistake is corrected, and the profile is missing as before.
        let corrected = verdict(&object(), Some(&old), KnownProfile::Missing);
        assert_eq!(corrected.denial, None);
        // It was good, and no longer is.
        assert!(verdict(&old, Some(&object()), found(&["aws"])).denial.is_some());
        let other = annotated(names::PROFILE, "other");
        assert!(
            verdict(&other, Some(&object()), KnownProfile::Missing)
                .denial
                .is_some()
        );
    }

    #[test]
    fn what_is_legal_but_suspicious_is_a_warning_once() {
        let mut new = object();
        new["spec"]["template"]["metadata"]["annotations"] = json!({(names::PROFILE): "a"});
        let warned = verdict(&new, None, found(&["aws"]));
        assert_eq!(warned.denial, None);
        assert!(warned.warnings[0].contains("has no effect"), "{warned:?}");
        let mut scaled = new.clone();
        scaled["spec"]["replicas"] = json!(2);
        assert_eq!(verdict(&scaled, Some(&new), found(&["aws"])), Verdict::allowed());

        let old_kubelet = set("/spec/template/spec/versions/kubelet", json!("1.20.0"));
        let warned = verdict(&old_kubelet, None, found(&["aws"]));
        assert!(
            warned.warnings[0].contains("kubelet 1.20.0 is not one of"),
            "{warned:?}"
        );

        let mut full = facts(&object(), None, found(&["aws"]));
        full.full_at = Some(5);
        let warned = judge(&full).verdict;
        assert!(
            warned.denial.is_none() && warned.warnings[0].contains("(5)"),
            "{warned:?}"
        );

        let warned = verdict(&object(), None, KnownProfile::Coming);
        assert!(
            warned.denial.is_none() && warned.warnings[0].contains("does not exist"),
            "{warned:?}"
        );

        let refused = KnownProfile::Found(Arc::new(ProfileView {
            generation: 1,
            judged: 1,
            accepted: None,
            refusal: Some("line 2".to_owned()),
        }));
        let warned = verdict(&object(), None, refused);
        assert!(
            warned.warnings[0].ends_with("is not accepted: line 2"),
            "{warned:?}"
        );
    }

    #[test]
    fn an_object_that_cannot_be_decoded_is_refused_as_its_condition_reports() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = object().to_string().replace("\"hunter2\"", &deep);
        let new = Submitted::read(&RawValue::from_string(text.clone()).unwrap()).unwrap();
        let old = Submitted::read(&RawValue::from_string(text).unwrap()).unwrap();
        let mut of_creation = facts(&object(), None, KnownProfile::Unknown);
        of_creation.new = Arc::new(new);
        let denial = judge(&of_creation).verdict.denial.unwrap();
        assert!(
            denial.starts_with("the MachineDeployment can't be read: ")
                && denial.contains("nested too deeply"),
            "{denial}"
        );
        of_creation.old = Some(&old);
        assert_eq!(judge(&of_creation).verdict.denial, None);
    }
}
