//! When a pool's credentials are renewed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::names;

use crate::model::gathered::Gathered;
use crate::model::tokens::{Tokens, account_of};
use crate::plan::findings::{Cause, valid_binding};
use crate::plan::steps::Publish;

/// Tokens are never renewed sooner than this after they were issued, however short their life.
const MIN_RENEWAL_INTERVAL: u64 = 60;

/// When tokens are renewed: at half of the life that was granted, which may be less than what was asked for. Up to a tenth earlier,
/// depending on the pool, so that pools that were published together do not stay in step.
pub fn renew_at(issued: Timestamp, life: Duration, pool: &str) -> Timestamp {
    let spread = pool.bytes().fold(0u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    }) % 100;
    let half = life.as_secs() / 2;
    let seconds = half
        .saturating_sub(half * spread / 1000)
        .max(MIN_RENEWAL_INTERVAL);
    let after = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    issued.saturating_add(after).unwrap_or(Timestamp::MAX)
}

/// The tokens of an earlier publish, if they serve for this one as well: they are bound to what exists now, and not due for renewal. Where a
/// renewal is due, those serve that an attempt at it has got already.
pub fn reusable<'a>(gathered: &'a Gathered, publish: &Publish) -> Option<&'a Tokens> {
    let kept = gathered.memory.tokens.as_ref()?;
    let bootstrap = gathered.existing.bootstrap.as_ref();
    let published = bootstrap.and_then(|secret| secret.meta.time(names::EXPIRES));
    let is_renewal = publish.causes().contains(&Cause::RenewalDue);
    let are_published = published == Some(kept.expires);
    let are_valid = valid_binding(gathered).as_ref() == Some(&kept.bound_to);
    let are_reusable = are_valid && gathered.now < kept.renew_at && !(is_renewal && are_published);
    are_reusable.then_some(kept)
}

/// Whether someone has made the pool's account anew, and the watch does not show that yet.
pub fn are_of_another_account(gathered: &Gathered, tokens: &Tokens) -> bool {
    let account = gathered.existing.account.as_ref();
    account.is_some_and(|shown| account_of(&tokens.bound_to) != shown.uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixtures::{edit_bootstrap, hours, published};
    use crate::plan::plan;
    use crate::plan::steps::Step;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn at_half_of_the_granted_life_or_up_to_a_tenth_earlier() {
        const DAY: u64 = 24 * 3600;
        for (life, earliest, latest) in [(DAY, 38_880, 43_200), (600, 270, 300), (60, 60, 60), (0, 60, 60)] {
            for pool in ["0123456789abcdef0123", "ffffffffffffffffffff", "a", ""] {
                let after = renew_at(at(0), Duration::from_secs(life), pool)
                    .duration_since(at(0))
                    .as_secs();
                assert!(
                    (earliest..=latest).contains(&after),
                    "life {life}, pool {pool:?}: {after}"
                );
            }
        }
        let of = |pool| renew_at(at(0), Duration::from_secs(DAY), pool);
        assert_eq!(of("a"), of("a"), "each pool has its own time");
        assert_ne!(of("a"), of("b"), "pools do not stay in step");
    }

    #[test]
    fn tokens_are_published_again_until_their_renewal() {
        const BOUND_TO: &str = "account-uid/node-account/binding-uid";
        let tokens = |renew_at, expires| Tokens {
            api: "api".into(),
            kubelet: "kubelet".into(),
            bound_to: BOUND_TO.into(),
            expires,
            renew_at,
        };
        // The bootstrap Secret has tokens that expire after 20 hours, and are renewed after 8.
        let published_ones = tokens(hours(8), hours(20));
        let newer = tokens(hours(20), hours(32));
        for (what, kept, bound_to, now, expected) in [
            ("for a repair", &published_ones, BOUND_TO, hours(1), true),
            ("of other objects", &published_ones, "other", hours(1), false),
            ("at their renewal", &published_ones, BOUND_TO, hours(8), false),
            ("of an attempt at the renewal", &newer, BOUND_TO, hours(8), true),
            ("of an attempt long ago", &newer, BOUND_TO, hours(20), false),
        ] {
            let mut gathered = published();
            gathered.existing.role = None;
            gathered.now = now;
            gathered.memory.tokens = Some(Tokens {
                bound_to: bound_to.into(),
                ..kept.clone()
            });
            let Step::Publish(publish) = plan(&gathered).1.unwrap().step else {
                panic!("{what}")
            };
            assert_eq!(reusable(&gathered, &publish).is_some(), expected, "{what}");
        }
        // Somebody has brought the renewal near.
        let mut gathered = published();
        edit_bootstrap(&mut gathered, |secret| {
            drop(secret.meta.annotations.remove(names::RENEW_AT))
        });
        gathered.memory.tokens = Some(published_ones);
        let Step::Publish(publish) = plan(&gathered).1.unwrap().step else {
            panic!()
        };
        assert!(reusable(&gathered, &publish).is_none());
    }
}
