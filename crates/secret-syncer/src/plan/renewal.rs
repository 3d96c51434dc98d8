//! When a pool's credentials are renewed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
