//! Compiled profiles. Parsing is nearly all of the cost of rendering, so each content is parsed once.

use std::sync::{Arc, OnceLock};

use osm_api::profile::AcceptedProfile;
use osm_render::{Profile, ProfileError};
use parking_lot::Mutex;

/// A compiled profile, or why it does not compile.
pub type Compiled = Result<Arc<Profile>, ProfileError>;

/// Compiled profiles are kept for this many bytes of contents together, and at least one. Compiled, they take
/// a multiple of that in memory.
const MAX_BYTES: usize = 4 * 1024 * 1024;

#[derive(Default)]
pub struct CompiledProfiles {
    /// The one that was used last is at the end.
    profiles: Mutex<Vec<Slot>>,
}

/// A content that is compiled once.
struct Slot {
    digest: String,
    bytes: usize,
    profile: Arc<OnceLock<Compiled>>,
}

impl CompiledProfiles {
    /// Compiles an accepted profile, or waits for the thread that does.
    pub fn get(&self, accepted: &AcceptedProfile) -> Compiled {
        let profile = self.slot(accepted, MAX_BYTES);
        let compile = || osm_render::compile(accepted).map(Arc::new);
        profile.get_or_init(compile).clone()
    }

    /// Drops those that were not used for the longest time where there are more than `most` bytes.
    fn slot(&self, accepted: &AcceptedProfile, most: usize) -> Arc<OnceLock<Compiled>> {
        let mut profiles = self.profiles.lock();
        let known = profiles.iter().position(|slot| slot.digest == accepted.digest);
        let slot = match known {
            Some(known) => profiles.remove(known),
            None => Slot {
                digest: accepted.digest.clone(),
                bytes: serde_json::to_string(accepted).map_or(MAX_BYTES, |text| text.len()),
                profile: Arc::default(),
            },
        };
        let profile = slot.profile.clone();
        profiles.push(slot);
        while profiles.len() > 1 && profiles.iter().map(|slot| slot.bytes).sum::<usize>() > most {
            profiles.remove(0);
        }
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(digest: &str) -> AcceptedProfile {
        let (_, spec) = osm_render::defaults().swap_remove(0);
        AcceptedProfile {
            digest: digest.to_owned(),
            ..osm_render::resolve(&spec).unwrap()
        }
    }

    #[test]
    fn each_content_is_compiled_once() {
        let profiles = CompiledProfiles::default();
        let [first, again, other] = ["a", "a", "b"].map(|digest| profiles.get(&accepted(digest)).unwrap());
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
    }

    #[test]
    fn those_that_were_used_last_are_kept_within_bytes() {
        let profiles = CompiledProfiles::default();
        let bytes = serde_json::to_string(&accepted("a")).unwrap().len();
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
}
