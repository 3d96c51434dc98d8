//! Runs the validation of profiles, which `osm_render::validate` implements.
//!
//! Rendering takes processor time and memory. So it runs in blocking threads, a few profiles at a time, and
//! once per content. It continues when the reconcile that started it times out, and the next reconcile gets
//! the result.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::AcceptedProfile;
use osm_render::Base;
use osm_render::validate::{Outcome, Refusal};
use osm_runtime::threads;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a validation may take. It is then cancelled with a result that says so, and gives its slot to
/// others.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Results that are kept, because profiles change without end. A profile without a result is validated again
/// when it or its status changes.
const MAX_RESULTS: usize = 512;

type DryRun = fn(&AtomicBool, &AcceptedProfile) -> Result<(), Refusal>;
type Pending = Shared<BoxFuture<'static, Result<(), Refusal>>>;

/// Validates profiles, and remembers the latest results.
pub struct Validator {
    dry_run: DryRun,
    slots: Arc<Semaphore>,
    /// Pending and finished results by digest of the resolved content, the latest last.
    results: Mutex<VecDeque<(String, Pending)>>,
}

impl Validator {
    /// Validates so many profiles at a time. Each can take as much memory as a profile may take, but a slow
    /// one must not delay the others.
    pub fn new(slots: usize) -> Self {
        Self::with(slots, |cancelled, accepted| {
            osm_render::validate::dry_run_with(cancelled, &osm_render::compile(accepted)?, |_, _| ())
        })
    }

    fn with(slots: usize, dry_run: DryRun) -> Self {
        Self {
            dry_run,
            slots: Arc::new(Semaphore::new(slots)),
            results: Mutex::default(),
        }
    }

    /// Validates a profile that extends `bases`, the nearest first.
    ///
    /// # Errors
    /// The first error of the profile.
    pub async fn validate(&self, spec: &OperatingSystemProfileSpec, bases: &[Base]) -> Outcome {
        let accepted = osm_render::resolve_on(spec, bases)?;
        let result = match self.result(&accepted.digest) {
            Some(known) => known,
            None => {
                // The caller waits here, so that what waits for a slot is no more than what is reconciled.
                // The semaphore is never closed.
                let slot = self.slots.clone().acquire_owned().await.ok();
                // Another profile may have had the same content, and a slot.
                let known = self.result(&accepted.digest);
                known.unwrap_or_else(|| self.start(&accepted, slot))
            }
        };
        let result = result.await;
        if result.as_ref().is_err_and(Refusal::is_unfinished) {
            // The machine may have been too busy, so the next reconcile validates it again.
            self.results.lock().retain(|(known, _)| *known != accepted.digest);
        }
        result.map(|()| accepted)
    }

    fn result(&self, digest: &str) -> Option<Pending> {
        let results = self.results.lock();
        let found = results.iter().find(|(known, _)| known == digest);
        found.map(|(_, pending)| pending.clone())
    }

    /// Validates a resolved profile in a thread, which holds `slot` until the work is done, even if nothing
    /// waits for the result any longer.
    fn start(&self, accepted: &AcceptedProfile, slot: Option<OwnedSemaphorePermit>) -> Pending {
        let (dry_run, accepted) = (self.dry_run, accepted.clone());
        let digest = accepted.digest.clone();
        let work = move |cancelled: &AtomicBool| {
            let _slot = slot;
            dry_run(cancelled, &accepted)
        };
        let task = tokio::spawn(tokio::time::timeout(MAX_TIME, threads::run(work)));
        let result = task.map(|ended| match ended {
            Ok(Ok(Ok(result))) => result,
            // It panicked or took too long.
            _ => Err(Refusal::aborted()),
        });
        let pending = result.boxed().shared();
        let mut results = self.results.lock();
        if results.len() >= MAX_RESULTS {
            results.pop_front();
        }
        results.push_back((digest, pending.clone()));
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::profile;
    use osm_api::Reason;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};

    const DEADLINE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn good_is_accepted_and_each_refusal_keeps_its_reason() {
        let validator = Validator::new(1);
        let good = profile("v1.0.0");
        let accepted = validator.validate(&good, &[]).await.unwrap();
        assert_eq!((accepted.version.as_str(), &accepted.spec.0), ("v1.0.0", &good));
        let mut extending = good.clone();
        extending.extends = Some("base".into());
        let key = osm_render::ProfileKey::default();
        let base = Base {
            key,
            spec: good.clone(),
        };
        let collision = validator.validate(&extending, &[base]).await.unwrap_err();
        assert_eq!(collision.reason, Reason::ExtendsInvalid);
        let mut broken = good;
        broken.provisioning_config.files[0]
            .content
            .inline
            .as_mut()
            .unwrap()
            .data = "one\ntwo {{nothing.here}}".into();
        let refusal = validator.validate(&broken, &[]).await.unwrap_err();
        assert_eq!(refusal.reason, Reason::TemplateFailed);
        let message = refusal.message;
        assert!(
            message.contains("/etc/motd") && message.contains("line 2"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn a_content_is_validated_once_and_the_latest_results_are_kept() {
        static DRY_RUNS: AtomicUsize = AtomicUsize::new(0);
        let validator = Validator::with(1, |_, _| {
            DRY_RUNS.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        let validated = async |version: usize| {
            let spec = profile(&format!("v1.0.{version}"));
            validator.validate(&spec, &[]).await.unwrap();
            DRY_RUNS.load(Ordering::SeqCst)
        };
        for version in 0..=MAX_RESULTS {
            validated(version).await;
            assert_eq!(validated(version).await, version + 1);
        }
        assert_eq!(validator.results.lock().len(), MAX_RESULTS);
        assert_eq!(validated(0).await, MAX_RESULTS + 2);
    }

    #[tokio::test]
    async fn a_panic_refuses_its_profile_only_and_frees_its_slot() {
        let validator = Validator::with(1, |_, accepted| match accepted.version.as_str() {
            "v1.0.0" => Ok(()),
            _ => panic!("on purpose"),
        });
        for version in ["v0.0.1", "v0.0.2"] {
            let refusal = validator.validate(&profile(version), &[]).await.unwrap_err();
            assert_eq!(refusal.reason, Reason::ValidationAborted);
            assert!(validator.results.lock().is_empty(), "it is not validated again");
        }
        validator.validate(&profile("v1.0.0"), &[]).await.unwrap();
    }

    #[tokio::test]
    async fn a_slow_profile_delays_no_other_and_is_not_started_twice() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static FINISH: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
        let validator = Validator::with(2, |_, accepted| {
            if accepted.version == "v0.0.1" {
                STARTED.fetch_add(1, Ordering::SeqCst);
                drop(FINISH.1.wait_while(FINISH.0.lock().unwrap(), |finish| !*finish));
            }
            Ok(())
        });
        // The caller gives up, but the work continues.
        assert!(
            validator
                .validate(&profile("v0.0.1"), &[])
                .now_or_never()
                .is_none()
        );
        tokio::time::timeout(DEADLINE, validator.validate(&profile("v1.0.0"), &[]))
            .await
            .unwrap()
            .unwrap();
        *FINISH.0.lock().unwrap() = true;
        FINISH.1.notify_all();
        tokio::time::timeout(DEADLINE, validator.validate(&profile("v0.0.1"), &[]))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(STARTED.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_validation_that_takes_too_long_is_refused_and_cancelled() {
        let validator = Validator::with(1, |cancelled, _| {
            while !cancelled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(())
        });
        let slow = profile("v1.0.0");
        let mut validation = std::pin::pin!(validator.validate(&slow, &[]));
        assert!(validation.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        tokio::time::advance(MAX_TIME - Duration::from_secs(1)).await;
        assert!(validation.as_mut().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(validation.await.unwrap_err().reason, Reason::ValidationAborted);
        // The work ends too, because it sees that it is cancelled.
        drop(validator.slots.acquire().await);
    }
}
