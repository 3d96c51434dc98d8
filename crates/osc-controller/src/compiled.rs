//! Compiled profiles. Parsing is nearly all of the cost of rendering, so each content is parsed once.

use std::sync::Arc;

use osm_api::profile::AcceptedProfile;
use osm_render::{Profile, ProfileError};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::planning::{Busy, Planning};

/// A compiled profile, or why it does not compile.
pub type Compiled = Result<Arc<Profile>, ProfileError>;

type Compile = fn(&AcceptedProfile) -> Compiled;

/// Compiled profiles are kept for contents of so many bytes together, but at least one. Compiled, they take a multiple of that.
const MAX_BYTES: usize = 4 * 1024 * 1024;

pub struct CompiledProfiles {
    compile: Compile,
    /// The one that was used last is at the end.
    profiles: Mutex<Vec<Slot>>,
}

/// A content that is compiled once.
struct Slot {
    digest: String,
    bytes: usize,
    profile: Arc<OnceCell<Compiled>>,
}

impl Default for CompiledProfiles {
    fn default() -> Self {
        Self::with(|accepted| osm_render::compile(accepted).map(Arc::new))
    }
}

impl CompiledProfiles {
    fn with(compile: Compile) -> Self {
        Self {
            compile,
            profiles: Mutex::default(),
        }
    }

    /// Compiles an accepted profile in a thread of `planning` for a config, or waits for the reconcile that does.
    ///
    /// # Errors
    /// It took too long.
    pub async fn get(
        &self,
        planning: &Planning,
        config: &str,
        accepted: &AcceptedProfile,
    ) -> Result<Compiled, Busy> {
        let profile = self.slot(accepted, MAX_BYTES);
        if let Some(known) = profile.get() {
            return Ok(known.clone());
        }
        let compile = async || {
            let (compile, accepted) = (self.compile, accepted.clone());
            let what = format!("compiling of the profile of {config}");
            planning
                .run_in_turn(&what, &Arc::default(), move || compile(&accepted))
                .await
        };
        planning
            .patiently(config, profile.get_or_init(compile))
            .await
            .cloned()
    }

    /// Drops those that were not used for the longest time where there are more than `most` bytes.
    fn slot(&self, accepted: &AcceptedProfile, most: usize) -> Arc<OnceCell<Compiled>> {
        let mut profiles = self.profiles.lock();
        let known = profiles.iter().position(|slot| slot.digest == accepted.digest);
        let slot = match known {
            Some(known) => profiles.remove(known),
            None => Slot {
                digest: accepted.digest.clone(),
                bytes: bytes(accepted),
                profile: Arc::default(),
            },
        };
        let mut left = most.saturating_sub(slot.bytes);
        let mut kept = Vec::new();
        for slot in profiles.drain(..).rev() {
            match left.checked_sub(slot.bytes) {
                Some(rest) => {
                    left = rest;
                    kept.push(slot);
                }
                None => break,
            }
        }
        kept.reverse();
        let profile = slot.profile.clone();
        kept.push(slot);
        *profiles = kept;
        profile
    }
}

fn bytes(accepted: &AcceptedProfile) -> usize {
    serde_json::to_string(accepted).map_or(usize::MAX, |text| text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::tests::planning;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    fn accepted(digest: &str) -> AcceptedProfile {
        let (_, spec) = osm_render::defaults().swap_remove(0);
        AcceptedProfile {
            digest: digest.to_owned(),
            ..osm_render::resolve(&spec).unwrap()
        }
    }

    fn refused() -> Compiled {
        Err(ProfileError::ReservedText {
            path: "osVersion".to_owned(),
        })
    }

    #[tokio::test]
    async fn each_content_is_compiled_once() {
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        let profiles = CompiledProfiles::with(|_| {
            COMPILED.fetch_add(1, Ordering::SeqCst);
            refused()
        });
        for (digest, compiled) in [("a", 1), ("a", 1), ("b", 2), ("a", 2)] {
            let _ = profiles.get(&planning(), "a", &accepted(digest)).await;
            assert_eq!(COMPILED.load(Ordering::SeqCst), compiled, "{digest}");
        }
    }

    #[test]
    fn those_that_were_used_last_are_kept_within_bytes() {
        let profiles = CompiledProfiles::default();
        let bytes = bytes(&accepted("a"));
        let kept = |used: &str, most: usize| {
            let _ = profiles.slot(&accepted(used), most);
            let all = profiles.profiles.lock();
            all.iter().map(|slot| slot.digest.clone()).collect::<String>()
        };
        for (used, most, wanted) in [
            ("a", 2, "a"),
            ("b", 2, "ab"),
            ("a", 2, "ba"),
            ("c", 2, "ac"),
            ("d", 0, "d"),
        ] {
            assert_eq!(kept(used, most * bytes), wanted, "{used}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn other_tasks_go_on_while_a_profile_is_compiled_once_for_all() {
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        static FINISH: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
        let profiles = Arc::new(CompiledProfiles::with(|_| {
            COMPILED.fetch_add(1, Ordering::SeqCst);
            drop(FINISH.1.wait_while(FINISH.0.lock().unwrap(), |finish| !*finish));
            refused()
        }));
        let get = |profiles: Arc<CompiledProfiles>| async move {
            let planning = planning();
            profiles
                .get(&planning, "a", &accepted("a"))
                .await
                .unwrap()
                .map(drop)
        };
        let reconciles = [tokio::spawn(get(profiles.clone())), tokio::spawn(get(profiles))];
        let other = tokio::spawn(async {
            while COMPILED.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            *FINISH.0.lock().unwrap() = true;
            FINISH.1.notify_all();
        });
        tokio::time::timeout(Duration::from_secs(30), other)
            .await
            .unwrap()
            .unwrap();
        for reconcile in reconciles {
            assert_eq!(reconcile.await.unwrap(), refused().map(drop));
        }
        assert_eq!(COMPILED.load(Ordering::SeqCst), 1);
    }
}
