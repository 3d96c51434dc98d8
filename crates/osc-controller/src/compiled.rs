//! Compiled profiles. Parsing is nearly all of the cost of rendering, so each content is parsed once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use osm_api::profile::AcceptedProfile;
use osm_render::{Profile, ProfileError};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::planning::Planning;

/// A compiled profile, or why it does not compile.
pub type Compiled = Result<Arc<Profile>, ProfileError>;

type Compile = fn(&AcceptedProfile) -> Compiled;

/// Shared by all reconciles.
pub struct CompiledProfiles {
    compile: Compile,
    /// By digest of the content.
    profiles: Mutex<HashMap<String, Arc<OnceCell<Compiled>>>>,
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

    /// Compiles an accepted profile in a thread of `planning`, or waits for the reconcile that does. A new content drops the profiles
    /// that are not among those `in_use` (by digest).
    pub async fn get(
        &self,
        planning: &Planning,
        accepted: &AcceptedProfile,
        in_use: impl FnOnce() -> HashSet<String>,
    ) -> Compiled {
        let profile = self.slot(&accepted.digest, in_use);
        let compile = async || {
            let (compile, accepted) = (self.compile, accepted.clone());
            planning.run(&Arc::default(), move || compile(&accepted)).await
        };
        profile.get_or_init(compile).await.clone()
    }

    fn slot(&self, digest: &str, in_use: impl FnOnce() -> HashSet<String>) -> Arc<OnceCell<Compiled>> {
        if let Some(profile) = self.profiles.lock().get(digest) {
            return profile.clone();
        }
        let in_use = in_use();
        let mut profiles = self.profiles.lock();
        profiles.retain(|digest, _| in_use.contains(digest));
        profiles.entry(digest.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    async fn each_content_is_compiled_once_and_again_after_it_was_dropped() {
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        let profiles = CompiledProfiles::with(|_| {
            COMPILED.fetch_add(1, Ordering::SeqCst);
            refused()
        });
        for (digest, in_use, compiled) in [
            ("a", "a", 1),
            ("a", "a", 1),
            ("b", "a", 2),
            ("a", "b", 2),
            ("c", "b", 3),
            ("a", "c", 4),
        ] {
            let _ = profiles
                .get(&Planning::default(), &accepted(digest), || {
                    HashSet::from([in_use.to_owned()])
                })
                .await;
            assert_eq!(COMPILED.load(Ordering::SeqCst), compiled, "{digest}");
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
            let planning = Planning::default();
            profiles
                .get(&planning, &accepted("a"), HashSet::new)
                .await
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
