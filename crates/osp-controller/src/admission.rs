//! The admission webhook for profiles. It judges with the code of a reconcile, and sends no request.
//!
//! It validates one profile at a time, apart from those that are reconciled, so that no number of submitted
//! profiles delays a reconcile. A validation that takes too long continues, and its result serves the next
//! attempt.

use std::future::Future;
use std::time::Duration;

use osm_api::profile::AcceptedProfile;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec, Reason};
use osm_render::ProfileKey;
use osm_render::validate::{Outcome, Refusal};
use osm_runtime::admission::{Judge, Request, Verdict};
use osm_runtime::object;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::bases::Bases;
use crate::context::Context;
use crate::gather::find_bases;
use crate::plan;
use crate::stored_profile::StoredProfile;
use crate::validate::Validator;

/// A client may create a profile just before the one that extends it, and the watch shows it a little later.
/// It is part of `DEADLINE`.
const WATCH_LAG: Duration = Duration::from_millis(150);
/// How often to check whether the watch has shown it, which only reads memory.
const WATCH_POLL: Duration = Duration::from_millis(15);

const BROKE_OFF: &str = "the profile was admitted unchecked, because its validation failed; its condition Accepted reports the result";

pub struct ProfileJudge {
    context: Context,
    validator: Validator,
}

impl ProfileJudge {
    /// A webhook that looks up other profiles in `context`.
    pub fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            validator: Validator::new(1),
        }
    }
}

impl Judge for ProfileJudge {
    /// A client waits for the answer. A profile that takes longer is admitted with a warning, and its
    /// condition has the result.
    const DEADLINE: Duration = Duration::from_millis(500);

    fn judge(&self, request: Request) -> impl Future<Output = Verdict> + Send {
        let (context, validator) = (self.context.clone(), &self.validator);
        async move {
            let Some(new) = read(&request.object).filter(|_| is_served(&context, &request.namespace)) else {
                return Verdict::allowed();
            };
            let old = request.old_object.as_deref().and_then(read);
            if old.as_ref().is_some_and(|old| has_same_content(&new, old)) {
                return Verdict::allowed();
            }
            if let Some(default) = default_of(&context, &request) {
                return if default == new.spec {
                    Verdict::allowed()
                } else {
                    Verdict::warned(osm_render::validate::default_name(&request.name))
                };
            }
            let outcome = match new.refusal() {
                Some(refusal) => Err(refusal),
                None => match bases(&context, &request, &new.spec).await {
                    Ok(Bases::Ready(bases)) => validator.validate(&new.spec, &bases).await,
                    Ok(Bases::Awaited(base)) => {
                        return Verdict::unchecked(format!(
                            "the profile was admitted unchecked, because the profile {base}, which it extends, is not validated yet; its \
                             condition Accepted reports the result"
                        ));
                    }
                    Err(refusal) => Err(refusal),
                },
            };
            if outcome.as_ref().is_err_and(Refusal::is_unfinished) {
                return Verdict::unchecked(BROKE_OFF);
            }
            let stored = old.as_ref().and_then(|old| old.status.as_ref());
            verdict(
                &new.spec,
                &outcome,
                stored.and_then(|status| status.accepted.as_ref()),
            )
        }
    }
}

/// `None`: not even its metadata can be decoded.
fn read(text: &RawValue) -> Option<StoredProfile> {
    let decoded = object::decode::<OperatingSystemProfile>(text.get()).ok()?;
    Some(match decoded {
        Ok(profile) => profile.into(),
        Err(unreadable) => StoredProfile::unreadable(&unreadable),
    })
}

/// Whether profiles of this namespace are reconciled.
fn is_served(context: &Context, namespace: &str) -> bool {
    context.profiles.contains_key(namespace)
}

/// Labels of a profile that is refused can be changed, and whatever else does not decide about it.
fn has_same_content(new: &StoredProfile, old: &StoredProfile) -> bool {
    new.spec == old.spec && new.refusal() == old.refusal()
}

/// The default profile by which osp-controller replaces this one.
fn default_of(context: &Context, request: &Request) -> Option<OperatingSystemProfileSpec> {
    let is_installation = request.namespace == context.cluster.installation.namespace;
    is_installation
        .then(|| context.default_profile(&request.name))
        .flatten()
}

/// The profiles that this one extends.
async fn bases(
    context: &Context,
    request: &Request,
    spec: &OperatingSystemProfileSpec,
) -> Result<Bases, Refusal> {
    let key = ProfileKey {
        namespace: request.namespace.clone(),
        name: request.name.clone(),
    };
    let began = Instant::now();
    loop {
        match find_bases(context, &key, spec) {
            Err(refusal) if may_be_outdated(&refusal) && began.elapsed() < WATCH_LAG => {
                sleep(WATCH_POLL).await;
            }
            found => return found,
        }
    }
}

fn may_be_outdated(refusal: &Refusal) -> bool {
    matches!(refusal.reason, Reason::ParentNotFound | Reason::ParentNotAccepted)
}

/// The text of a denial is that of the condition `Accepted`.
fn verdict(
    spec: &OperatingSystemProfileSpec,
    outcome: &Outcome,
    accepted_before: Option<&AcceptedProfile>,
) -> Verdict {
    let condition = plan::verdict(spec, outcome, accepted_before);
    if condition.status {
        Verdict {
            warnings: osm_render::validate::decimal_modes(spec)
                .into_iter()
                .map(|(_, warning)| warning)
                .collect(),
            ..Verdict::default()
        }
    } else {
        Verdict::denied(condition.message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::tests::profile;

    fn stored(change: impl FnOnce(&mut serde_json::Value)) -> StoredProfile {
        let mut object = serde_json::to_value(OperatingSystemProfile::new("a", profile("v1.0.0"))).unwrap();
        change(&mut object);
        read(&RawValue::from_string(object.to_string()).unwrap()).unwrap()
    }

    #[test]
    fn only_a_change_of_the_content_is_judged() {
        let old = stored(|_| {});
        assert!(has_same_content(
            &stored(|new| new["metadata"]["labels"] = json!({"a": "b"})),
            &old
        ));
        assert!(!has_same_content(
            &stored(|new| new["spec"]["version"] = json!("v2.0.0")),
            &old
        ));
        let unreadable = || stored(|new| new["spec"]["bootstrapConfig"]["files"] = json!(7));
        assert!(unreadable().refusal().is_some());
        assert!(!has_same_content(&unreadable(), &old) && has_same_content(&unreadable(), &unreadable()));
    }

    #[tokio::test]
    async fn a_denial_has_the_text_of_the_condition_and_lint_warns() {
        let validator = Validator::new(1);
        let good = profile("v1.0.0");
        let outcome = validator.validate(&good, &[]).await;
        assert_eq!(verdict(&good, &outcome, None), Verdict::allowed());
        let accepted = outcome.unwrap();

        let mut broken = good.clone();
        let text = &mut broken.provisioning_config.files[0].content;
        text.inline.as_mut().unwrap().data = "one\ntwo {{nothing.here}}".to_owned();
        let outcome = validator.validate(&broken, &[]).await;
        let new = verdict(&broken, &outcome, None).denial.unwrap();
        assert!(new.contains("/etc/motd") && new.contains("line 2"), "{new}");
        let edited = verdict(&broken, &outcome, Some(&accepted)).denial.unwrap();
        assert_eq!(edited, format!("{new}; until then version v1.0.0 stays in use"));

        let mut suspicious = good;
        suspicious.provisioning_config.files[0].permissions = 420;
        let outcome = validator.validate(&suspicious, &[]).await;
        let warned = verdict(&suspicious, &outcome, None);
        assert!(
            warned.denial.is_none() && warned.warnings[0].contains("0644"),
            "{warned:?}"
        );
    }
}
