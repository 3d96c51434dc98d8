//! Conditions: which exist, who owns them, and how one is set without needless change.
//!
//! | Kind | Condition | Owner | `True` means |
//! |---|---|---|---|
//! | OperatingSystemProfile | `Accepted` | osp-controller | the newest edit is accepted |
//! | OperatingSystemProfile | `Ready` | osp-controller | an accepted version exists |
//! | OperatingSystemConfig | `Rendered` | osc-controller | the newest content is rendered |
//! | OperatingSystemConfig | `Current` | osc-controller | never: while no edit of the settings or the profile is refused, it is absent |
//! | OperatingSystemConfig | `Published` | secret-syncer | the newest content is published |
//! | OperatingSystemConfig | `Ready` | secret-syncer | new machines can boot with what is published |
//! | WorkerCluster | `Rendering` | osc-controller | it serves the cluster |
//! | WorkerCluster | `Publishing` | secret-syncer | it serves the cluster |
//! | WorkerCluster | `Joining` | csr-approver | it serves the cluster |
//!
//! The owner of `Ready` writes it together with its other condition, and never alone.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

pub use crate::names::{ACCEPTED, CURRENT, JOINING, PUBLISHED, PUBLISHING, READY, RENDERED, RENDERING};
use crate::reason::Reason;

/// Reason of `Published=False` once everything created for a retired pool is deleted: osc-controller's signal
/// to delete the OperatingSystemConfig.
pub const REASON_DELETED: Reason = Reason::Deleted;

/// Longest message that is written. The API server takes 32,768 bytes, which is too long to read.
const MAX_MESSAGE: usize = 2048;

/// What a controller has to say about an object, before it is compared with what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Condition type, one of the constants of this module.
    pub type_: &'static str,
    /// `True` or `False`; conditions of ours are never `Unknown`.
    pub status: bool,
    pub reason: Reason,
    /// One or two sentences: what, where, how to mend it.
    pub message: String,
}

impl Verdict {
    /// The condition to write: `last_transition_time` is kept from `current` while the status stays the same.
    pub fn condition(&self, current: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
        let status = if self.status { "True" } else { "False" };
        let since = find(current, self.type_)
            .filter(|condition| condition.status == status)
            .map_or_else(|| Time(now), |condition| condition.last_transition_time.clone());
        Condition {
            type_: self.type_.to_owned(),
            status: status.to_owned(),
            reason: self.reason.to_string(),
            message: clip(&self.message, MAX_MESSAGE),
            last_transition_time: since,
            observed_generation: generation,
        }
    }

    /// The same verdict as another condition.
    #[must_use]
    pub fn of_type(&self, type_: &'static str) -> Self {
        Self {
            type_,
            ..self.clone()
        }
    }

    /// Whether a condition reports the same already, except for its times and generation.
    pub fn is_reported_by(&self, condition: &Condition) -> bool {
        self.reason == *condition.reason
            && (condition.status == "True") == self.status
            && condition.message == clip(&self.message, MAX_MESSAGE)
    }
}

/// The conditions to write for verdicts of one owner, in this order; see [`Verdict::condition`].
pub fn all<const N: usize>(
    verdicts: [&Verdict; N],
    current: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
) -> [Condition; N] {
    verdicts.map(|verdict| verdict.condition(current, generation, now))
}

/// Whether `current` has exactly these conditions. Those of other types do not matter.
pub fn has_all(current: &[Condition], wanted: &[Condition]) -> bool {
    wanted
        .iter()
        .all(|condition| find(current, &condition.type_) == Some(condition))
}

/// The condition of the given type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// `text` cut to at most `limit` bytes at a character boundary, with an ellipsis where something was cut.
pub fn clip(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub('…'.len_utf8()));
    let (start, _) = text.split_at_checked(end).unwrap_or_default();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let verdict = Verdict {
            type_: RENDERED,
            status: true,
            reason: Reason::Rendered,
            message: "ok".into(),
        };
        let first = verdict.condition(&[], Some(1), Timestamp::from_second(10).unwrap());
        let second = verdict.condition(
            std::slice::from_ref(&first),
            Some(2),
            Timestamp::from_second(20).unwrap(),
        );
        assert_eq!(second.last_transition_time, first.last_transition_time);
        let failed = Verdict {
            status: false,
            ..verdict
        };
        let third = failed.condition(&[second], Some(2), Timestamp::from_second(30).unwrap());
        assert_eq!(third.last_transition_time.0.as_second(), 30);
    }

    #[test]
    fn conditions_of_other_owners_are_neither_needed_nor_compared() {
        let verdict = |type_, status| Verdict {
            type_,
            status,
            reason: Reason::Published,
            message: "ok".into(),
        };
        let (published, ready) = (verdict(PUBLISHED, false), verdict(READY, true));
        let of = |current: &[Condition], second| {
            let now = Timestamp::from_second(second).unwrap();
            all([&published, &ready], current, Some(1), now)
        };
        let first = of(&[], 10);
        assert_eq!(first.each_ref().map(|one| one.status.as_str()), ["False", "True"]);
        let rendered = verdict(RENDERED, true).condition(&[], Some(1), Timestamp::UNIX_EPOCH);
        let stored = [vec![rendered.clone()], first.to_vec()].concat();
        assert!(has_all(&stored, &of(&stored, 20)));
        let without_ready = [rendered, first[0].clone()];
        assert!(!has_all(&without_ready, &of(&without_ready, 20)));
        assert!(has_all(&without_ready, &first[..1]));
    }

    #[test]
    fn what_is_reported_is_known_even_if_its_message_is_cut() {
        let mut verdict = Verdict {
            type_: RENDERED,
            status: false,
            reason: Reason::AnnotationInvalid,
            message: "x".repeat(MAX_MESSAGE + 1),
        };
        let condition = verdict.condition(&[], None, Timestamp::UNIX_EPOCH);
        assert!(verdict.is_reported_by(&condition));
        verdict.message.replace_range(..1, "y");
        assert!(!verdict.is_reported_by(&condition));
    }

    #[test]
    fn clip_respects_characters() {
        assert_eq!(clip("short", 10), "short");
        let clipped = clip(&"ä".repeat(20), 10);
        assert!(clipped.len() <= 10 && clipped.ends_with('…') && clipped.starts_with('ä'));
    }
}
