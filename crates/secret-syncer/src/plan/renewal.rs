//! When a pool's credentials are renewed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::names;

use crate::model::gathered::Gathered;
use crate::model::token::Token;
use crate::plan::findings::Cause;
use crate::plan::steps::Publish;

/// Tokens are never renewed sooner than this after they were issued, in seconds: a very short life would
/// otherwise cause a constant stream of requests.
const MIN_RENEWAL_INTERVAL: u64 = 60;

/// When tokens are renewed: at half of the life that was granted, which may be less than what was asked for.
/// Up to a tenth earlier, depending on the pool, so that pools that were published together do not stay in
/// step.
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

/// The token of an earlier publish, if it serves for this one as well: it is of the account that exists now,
/// and not due for renewal. Where a renewal is due, one serves that an attempt at it has got already.
pub fn reusable<'a>(gathered: &'a Gathered, publish: &Publish) -> Option<&'a Token> {
    let kept = gathered.memory.token.as_ref()?;
    let bootstrap = gathered.existing.bootstrap.as_ref();
    let published = bootstrap.and_then(|secret| secret.meta.time(names::EXPIRES));
    let is_renewal = publish.causes().contains(&Cause::RenewalDue);
    let is_published = published == Some(kept.expires);
    let is_reusable =
        is_of_account(gathered, kept) && gathered.now < kept.renew_at && !(is_renewal && is_published);
    is_reusable.then_some(kept)
}

/// Whether the watch shows its account.
fn is_of_account(gathered: &Gathered, token: &Token) -> bool {
    let account = gathered.existing.account.as_ref();
    account.is_some_and(|shown| token.account == shown.uid)
}

/// Whether someone has recreated the pool's account, and the watch does not show that yet.
pub fn is_of_another_account(gathered: &Gathered, token: &Token) -> bool {
    gathered.existing.account.is_some() && !is_of_account(gathered, token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::fixtures::{edit_bootstrap, hours, published, published_now};

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
        const ACCOUNT: &str = "account-uid";
        let token = |renew_at, expires| Token {
            text: "token".into(),
            account: ACCOUNT.into(),
            expires,
            renew_at,
        };
        // The bootstrap Secret has tokens that expire after 20 hours, and are renewed after 8.
        let published_ones = token(hours(8), hours(20));
        let newer = token(hours(20), hours(32));
        for (what, kept, account, now, expected) in [
            ("for a repair", &published_ones, ACCOUNT, hours(1), true),
            ("of another account", &published_ones, "other", hours(1), false),
            ("at their renewal", &published_ones, ACCOUNT, hours(8), false),
            ("of an attempt at the renewal", &newer, ACCOUNT, hours(8), true),
            ("of an attempt long ago", &newer, ACCOUNT, hours(20), false),
        ] {
            let mut gathered = published();
            gathered.existing.role = None;
            gathered.now = now;
            gathered.memory.token = Some(Token {
                account: account.into(),
                ..kept.clone()
            });
            let publish = published_now(&gathered);
            assert_eq!(reusable(&gathered, &publish).is_some(), expected, "{what}");
        }
        // Someone has edited the bootstrap Secret, so that the renewal is near.
        let mut gathered = published();
        edit_bootstrap(&mut gathered, |secret| {
            drop(secret.meta.annotations.remove(names::RENEW_AT))
        });
        gathered.memory.token = Some(published_ones);
        assert!(reusable(&gathered, &published_now(&gathered)).is_none());
    }
}
