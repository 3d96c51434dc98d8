//! Runs the validation of profiles, which `osm_render::validate` implements.
//!
//! Rendering takes processor time and memory. So it runs in blocking threads, one profile at a time if possible, and once per content.
//! It continues when the reconcile that started it times out, and the next reconcile gets the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::AcceptedProfile;
use osm_render::Base;
use osm_render::validate::{Outcome, Refusal};
use osm_runtime::threads::Threads;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How long one validation may take before the others use spare slots. One profile at a time takes the least memory, but a slow one must
/// not delay the others.
const MAX_TIME_ALONE: Duration = Duration::from_secs(2);

/// How long a validation may take. It is then cancelled, and its result tells so.
const MAX_TIME: Duration = Duration::from_secs(60);

/// How many profiles may be validated in addition to the first.
const SPARE_SLOTS: usize = 3;

pub(crate) type DryRun = fn(&AtomicBool, &AcceptedProfile) -> Result<(), Refusal>;
pub(crate) type Pending = Shared<BoxFuture<'static, Result<(), Refusal>>>;

#[derive(Clone)]
struct Slots {
    first: Arc<Semaphore>,
    /// When the first slot was last taken.
    first_taken: Arc<Mutex<Instant>>,
    spare: Arc<Semaphore>,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            first: Arc::new(Semaphore::new(1)),
            first_taken: Arc::new(Mutex::new(Instant::now())),
            spare: Arc::new(Semaphore::new(SPARE_SLOTS)),
        }
    }
}

impl Slots {
    /// Waits for a slot. Dropping the permit frees it. The semaphores are never closed, so there always is a permit.
    async fn acquire(self) -> Option<OwnedSemaphorePermit> {
        let spare = async {
            self.first_is_held_too_long().await;
            self.spare.clone().acquire_owned().await
        };
        tokio::select! {
            biased;
            slot = self.first.clone().acquire_owned() => {
                *self.first_taken.lock() = Instant::now();
                slot.ok()
            }
            slot = spare => slot.ok(),
        }
    }

    /// Waits until one validation has held the first slot for [`MAX_TIME_ALONE`].
    async fn first_is_held_too_long(&self) {
        loop {
            let taken = *self.first_taken.lock();
            tokio::time::sleep_until(taken + MAX_TIME_ALONE).await;
            if *self.first_taken.lock() == taken {
                return;
            }
        }
    }
}

/// Validates profiles, and remembers the last result for each.
pub struct Validator {
    threads: Threads,
    dry_run: DryRun,
    slots: Slots,
    /// By name of the profile: digest of the resolved content, and the pending or finished result.
    results: Mutex<HashMap<String, (String, Pending)>>,
}

impl Validator {
    pub fn new(threads: Threads) -> Self {
        Self::with(threads, osm_render::validate::dry_run_unless)
    }

    fn with(threads: Threads, dry_run: DryRun) -> Self {
        Self {
            threads,
            dry_run,
            slots: Slots::default(),
            results: Mutex::default(),
        }
    }

    /// Validates the profile of this name, which extends `bases`, the nearest first.
    ///
    /// # Errors
    /// The first error of the profile.
    pub async fn validate(&self, name: &str, spec: &OperatingSystemProfileSpec, bases: &[Base]) -> Outcome {
        let accepted = osm_render::resolve_on(spec, bases)?;
        let known = self.result(name, &accepted.digest);
        let result = match known {
            Some(known) => known,
            None => {
                // The reconcile waits here, so that what waits for a slot is no more than what is reconciled.
                let slot = self.slots.clone().acquire().await;
                self.start(name, &accepted, slot)
            }
        };
        result.await?;
        Ok(accepted)
    }

    /// Forgets a profile that is deleted, or belongs to another replica now.
    pub fn forget(&self, name: &str) {
        self.results.lock().remove(name);
    }

    fn result(&self, name: &str, digest: &str) -> Option<Pending> {
        let results = self.results.lock();
        let (known, pending) = results.get(name)?;
        (known == digest).then(|| pending.clone())
    }

    fn start(&self, name: &str, accepted: &AcceptedProfile, slot: Option<OwnedSemaphorePermit>) -> Pending {
        let pending = start(&self.threads, self.dry_run, accepted.clone(), slot);
        let digest = accepted.digest.clone();
        self.results
            .lock()
            .insert(name.to_owned(), (digest, pending.clone()));
        pending
    }
}

/// Validates a resolved profile in a thread, which holds `slot` until the work is done, even if nothing waits for the result any longer.
pub(crate) fn start(
    threads: &Threads,
    dry_run: DryRun,
    accepted: AcceptedProfile,
    slot: Option<OwnedSemaphorePermit>,
) -> Pending {
    let (threads, what) = (
        threads.clone(),
        format!("validation of version {}", accepted.version),
    );
    let task = tokio::spawn(async move {
        let cancelled = Arc::new(AtomicBool::new(false));
        let seen = cancelled.clone();
        let work = move || {
            let _slot = slot;
            dry_run(&seen, &accepted)
        };
        tokio::time::timeout(MAX_TIME, threads.run(what, &cancelled, work)).await
    });
    task.map(|ended| match ended {
        Ok(Ok(Ok(result))) => result,
        // It panicked or took too long.
        _ => Err(Refusal::panicked()),
    })
    .boxed()
    .shared()
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
        let validator = Validator::new(Threads::of_no_service());
        let good = profile("v1.0.0");
        let accepted = validator.validate("a", &good, &[]).await.unwrap();
        assert_eq!((accepted.version.as_str(), &accepted.spec.0), ("v1.0.0", &good));

        let mut go = good.clone();
        go.template_engine = osm_api::profile::TemplateEngine::GoTemplate;
        let mut of_file = |data: &str| {
            let file = go.provisioning_config.files.first_mut().unwrap();
            file.content.inline.as_mut().unwrap().data = data.to_owned();
            go.clone()
        };
        let (right, wrong) = (of_file("{{ .KubeVersion }}"), of_file("{{ .Nothing }}"));
        assert!(validator.validate("a", &right, &[]).await.is_ok());
        let refusal = validator.validate("a", &wrong, &[]).await.unwrap_err();
        assert_eq!(refusal.reason, "TemplateFailed");
        assert!(refusal.message.contains("field Nothing"), "{refusal:?}");
        let mut extending = good.clone();
        extending.extends = Some("base".into());
        let key = osm_render::ProfileKey::default();
        let base = Base {
            key,
            spec: good.clone(),
        };
        let collision = validator.validate("a", &extending, &[base]).await.unwrap_err();
        assert_eq!(collision.reason, Reason::ExtendsInvalid);
        let mut broken = good;
        broken.provisioning_config.files[0]
            .content
            .inline
            .as_mut()
            .unwrap()
            .data = "one\ntwo {{nothing.here}}".into();
        let refusal = validator.validate("a", &broken, &[]).await.unwrap_err();
        assert!(refusal.message.contains("/etc/motd"), "{refusal:?}");
        assert!(refusal.message.contains("line 2"), "{refusal:?}");
    }

    #[tokio::test]
    async fn the_same_content_is_validated_once_and_other_content_again() {
        static DRY_RUNS: AtomicUsize = AtomicUsize::new(0);
        let validator = Validator::with(Threads::of_no_service(), |_, _| {
            DRY_RUNS.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        for _ in 0..3 {
            validator.validate("a", &profile("v1.0.0"), &[]).await.unwrap();
        }
        assert_eq!(DRY_RUNS.load(Ordering::SeqCst), 1);
        validator.validate("a", &profile("v1.0.1"), &[]).await.unwrap();
        assert_eq!(DRY_RUNS.load(Ordering::SeqCst), 2);
        validator.forget("a");
        validator.validate("a", &profile("v1.0.1"), &[]).await.unwrap();
        assert_eq!(DRY_RUNS.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_panic_refuses_its_profile_only() {
        let validator = Validator::with(Threads::of_no_service(), |_, accepted| {
            match accepted.version.as_str() {
                "v0.0.1" => panic!("on purpose"),
                _ => Ok(()),
            }
        });
        // There are more profiles than slots, so each must free its slot.
        for i in 0..SPARE_SLOTS + 2 {
            let refusal = validator
                .validate(&format!("bad-{i}"), &profile("v0.0.1"), &[])
                .await
                .unwrap_err();
            assert_eq!(refusal.reason, Reason::ValidationPanicked);
        }
        validator.validate("good", &profile("v1.0.0"), &[]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn profiles_wait_for_each_other_unless_one_is_slow() {
        let slots = Slots::default();
        let mut held = slots.clone().acquire().await;
        // Each wait is short, all of them together are not.
        for _ in 0..5 {
            let next = tokio::spawn(slots.clone().acquire());
            tokio::time::sleep(MAX_TIME_ALONE / 2).await;
            assert_eq!(slots.spare.available_permits(), SPARE_SLOTS);
            drop(held);
            held = next.await.unwrap();
        }
        let second = slots.clone().acquire().await;
        assert_eq!(slots.spare.available_permits(), SPARE_SLOTS - 1);
        drop((held, second));
    }

    #[tokio::test]
    async fn a_slow_profile_delays_no_other_and_is_not_started_twice() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static FINISH: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
        let validator = Validator::with(Threads::of_no_service(), |_, accepted| {
            if accepted.version == "v0.0.1" {
                STARTED.fetch_add(1, Ordering::SeqCst);
                drop(FINISH.1.wait_while(FINISH.0.lock().unwrap(), |finish| !*finish));
            }
            Ok(())
        });
        // The caller gives up, but the work continues.
        assert!(
            validator
                .validate("slow", &profile("v0.0.1"), &[])
                .now_or_never()
                .is_none()
        );
        tokio::time::timeout(DEADLINE, validator.validate("quick", &profile("v1.0.0"), &[]))
            .await
            .unwrap()
            .unwrap();
        *FINISH.0.lock().unwrap() = true;
        FINISH.1.notify_all();
        tokio::time::timeout(DEADLINE, validator.validate("slow", &profile("v0.0.1"), &[]))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(STARTED.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_validation_that_takes_too_long_is_refused_and_cancelled() {
        let validator = Validator::with(Threads::of_no_service(), |cancelled, _| {
            while !cancelled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(())
        });
        let slow = profile("v1.0.0");
        let mut validation = std::pin::pin!(validator.validate("slow", &slow, &[]));
        assert!(validation.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        tokio::time::advance(MAX_TIME - Duration::from_secs(1)).await;
        assert!(validation.as_mut().now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(validation.await.unwrap_err().reason, Reason::ValidationPanicked);
        // The work ends too, because it sees that it is cancelled.
        drop(validator.slots.first.acquire().await);
    }
}
