//! Finds out what a profile is worth: resolves it, compiles its templates, renders the sample pools with it, and judges the
//! modules that come out by cloud-init's schema.
//!
//! Rendering costs processor time and memory, so it runs on threads of its own, if it can one at a time, and once for each content. It goes on
//! when the reconcile that asked for it has run out of time; the next one gets the result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::AcceptedProfile;
use osm_render::{ProfileError, RenderError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::modules;

/// So long a profile waits for the one that is being tried before it is tried beside it. One at a time takes the least memory; a slow
/// one is not to hold up the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Profiles that may be tried beside the one.
const BESIDE: usize = 3;

/// Why a profile is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From the closed sets of osm-render's errors, `ModulesInvalid`, or [`Refusal::BROKE_OFF`].
    pub reason: &'static str,
    /// What is wrong, where, and how to mend it.
    pub message: String,
}

impl Refusal {
    /// Reason where judging itself failed.
    pub const BROKE_OFF: &'static str = "JudgingBrokeOff";

    fn broke_off() -> Self {
        let message =
            "judging the profile broke off by a mistake of this program: please report it with the profile";
        Self { reason: Self::BROKE_OFF, message: message.to_owned() }
    }
}

impl From<ProfileError> for Refusal {
    fn from(error: ProfileError) -> Self {
        Self { reason: error.reason(), message: error.to_string() }
    }
}

impl From<RenderError> for Refusal {
    fn from(error: RenderError) -> Self {
        Self { reason: error.reason(), message: error.to_string() }
    }
}

/// What a profile is worth: what is to stand in `status.accepted`, or why not.
pub type Judgement = Result<AcceptedProfile, Refusal>;

type Trial = fn(&AcceptedProfile) -> Result<(), Refusal>;
type Outcome = Shared<BoxFuture<'static, Result<(), Refusal>>>;

/// Room for profiles to be tried.
#[derive(Clone)]
struct Slots {
    usual: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

impl Default for Slots {
    fn default() -> Self {
        Self { usual: Arc::new(Semaphore::new(1)), spare: Arc::new(Semaphore::new(BESIDE)) }
    }
}

impl Slots {
    /// Waits for room; it is given back when the permit is dropped. Semaphores that nobody closes give one.
    async fn take(self) -> Option<OwnedSemaphorePermit> {
        let late = async {
            tokio::time::sleep(PATIENCE).await;
            self.spare.acquire_owned().await
        };
        tokio::select! {
            biased;
            slot = self.usual.acquire_owned() => slot.ok(),
            slot = late => slot.ok(),
        }
    }
}

/// Judges profiles, and remembers the last outcome for each.
pub struct Judge {
    trial: Trial,
    slots: Slots,
    /// By name of the profile: digest of the resolved content, and what came or will come of trying it.
    tried: Mutex<HashMap<String, (String, Outcome)>>,
}

impl Default for Judge {
    fn default() -> Self {
        Self::with(try_out)
    }
}

/// Compiles every template, renders the sample pools, and judges the modules of each.
pub(crate) fn try_out(accepted: &AcceptedProfile) -> Result<(), Refusal> {
    let profile = osm_render::compile(accepted)?;
    let mut modules = modules::Judge::new(profile.spec());
    osm_render::dry_run_with(&profile, |sample, rendered| modules.judge(sample, rendered))
}

impl Judge {
    fn with(trial: Trial) -> Self {
        Self { trial, slots: Slots::default(), tried: Mutex::default() }
    }

    /// Judges the profile of this name.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub async fn judge(&self, name: &str, spec: &OperatingSystemProfileSpec) -> Judgement {
        let accepted = osm_render::resolve(spec)?;
        self.outcome(name, &accepted).await?;
        Ok(accepted)
    }

    /// The profile of this name is gone.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn outcome(&self, name: &str, accepted: &AcceptedProfile) -> Outcome {
        let mut tried = self.lock();
        match tried.get(name) {
            Some((digest, outcome)) if *digest == accepted.digest => outcome.clone(),
            _ => {
                let outcome = self.start(accepted.clone());
                tried.insert(name.to_owned(), (accepted.digest.clone(), outcome.clone()));
                outcome
            }
        }
    }

    fn start(&self, accepted: AcceptedProfile) -> Outcome {
        let (trial, slots) = (self.trial, self.slots.clone());
        let task = tokio::spawn(async move {
            let slot = slots.take().await;
            let work = move || {
                // Held until the work is done, not only until somebody stops waiting for it.
                let _slot = slot;
                trial(&accepted)
            };
            tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Refusal::broke_off()))
        });
        task.map(|ended| ended.unwrap_or_else(|_| Err(Refusal::broke_off()))).boxed().shared()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, Outcome)>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::profile;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn good_is_accepted_and_each_refusal_keeps_its_reason() {
        let judge = Judge::default();
        let good = profile("v1.0.0");
        let accepted = judge.judge("a", &good).await.unwrap();
        assert_eq!((accepted.version.as_str(), &accepted.spec.0), ("v1.0.0", &good));

        let mut go = good.clone();
        go.template_engine = osm_api::profile::TemplateEngine::GoTemplate;
        assert_eq!(judge.judge("a", &go).await.unwrap_err().reason, "TemplateEngineUnsupported");
        let mut extends = good.clone();
        extends.extends = Some("base".into());
        assert_eq!(judge.judge("a", &extends).await.unwrap_err().reason, "ExtendsUnsupported");
        let mut broken = good;
        broken.provisioning_config.files[0].content.inline.as_mut().unwrap().data =
            "one\ntwo {{nothing.here}}".into();
        let refusal = judge.judge("a", &broken).await.unwrap_err();
        assert!(refusal.message.contains("/etc/motd"), "{refusal:?}");
        assert!(refusal.message.contains("line 2"), "{refusal:?}");
    }

    #[tokio::test]
    async fn the_same_content_is_tried_once_and_other_content_again() {
        static TRIALS: AtomicUsize = AtomicUsize::new(0);
        let judge = Judge::with(|_| {
            TRIALS.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        for _ in 0..3 {
            judge.judge("a", &profile("v1.0.0")).await.unwrap();
        }
        assert_eq!(TRIALS.load(Ordering::SeqCst), 1);
        judge.judge("a", &profile("v1.0.1")).await.unwrap();
        assert_eq!(TRIALS.load(Ordering::SeqCst), 2);
        judge.forget("a");
        judge.judge("a", &profile("v1.0.1")).await.unwrap();
        assert_eq!(TRIALS.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_panic_is_a_verdict_on_its_profile_alone() {
        let judge = Judge::with(|accepted| match accepted.version.as_str() {
            "v0.0.1" => panic!("on purpose"),
            _ => Ok(()),
        });
        // More of them than there are slots: each gives its slot back.
        for i in 0..BESIDE + 2 {
            let refusal = judge.judge(&format!("bad-{i}"), &profile("v0.0.1")).await.unwrap_err();
            assert_eq!(refusal.reason, Refusal::BROKE_OFF);
        }
        judge.judge("good", &profile("v1.0.0")).await.unwrap();
    }

    #[tokio::test]
    async fn a_slow_profile_holds_up_no_other_and_is_not_started_twice() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static FINISH: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
        let judge = Judge::with(|accepted| {
            if accepted.version == "v0.0.1" {
                STARTED.fetch_add(1, Ordering::SeqCst);
                drop(FINISH.1.wait_while(FINISH.0.lock().unwrap(), |finish| !*finish));
            }
            Ok(())
        });
        // Who asks gives up; the work goes on.
        assert!(judge.judge("slow", &profile("v0.0.1")).now_or_never().is_none());
        tokio::time::timeout(SOON, judge.judge("quick", &profile("v1.0.0"))).await.unwrap().unwrap();
        *FINISH.0.lock().unwrap() = true;
        FINISH.1.notify_all();
        tokio::time::timeout(SOON, judge.judge("slow", &profile("v0.0.1"))).await.unwrap().unwrap();
        assert_eq!(STARTED.load(Ordering::SeqCst), 1);
    }
}
