//! Decides about tokens: whether that of an earlier publish serves again, what the API server has granted,
//! when credentials are renewed, and when the API server has to be asked what a token may do.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::TokenRequest;
use osm_api::names;
use serde::Deserialize;

use crate::model::gathered::Gathered;
use crate::model::token::Token;
use crate::plan::findings::Cause;
use crate::plan::steps::Publish;

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

/// What the API server has granted, which may be less than `asked`. The answer's spec, its status or only the
/// token itself shows it, so the least of the three counts. `None`: the token is not one of a ServiceAccount
/// as Kubernetes issues them.
pub fn granted(answer: TokenRequest, asked: Duration, pool: &str) -> Option<Token> {
    let status = answer.status?;
    let claims = claims(&status.token)?;
    let issued = Timestamp::from_second(claims.iat).ok()?;
    let until = Timestamp::from_second(claims.exp).ok()?;
    let until = until.min(status.expiration_timestamp.0);
    let said = answer
        .spec
        .expiration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let said = said.map_or(asked, Duration::from_secs).min(asked);
    let life = said.min(Duration::try_from(until.duration_since(issued)).unwrap_or_default());
    let in_time = SignedDuration::try_from(life).unwrap_or_default();
    Some(Token {
        text: status.token,
        account: claims.objects.serviceaccount.uid,
        expires: issued.saturating_add(in_time).unwrap_or(until),
        renew_at: renew_at(issued, life, pool),
    })
}

/// What is read of a JSON Web Token of a ServiceAccount.
#[derive(Deserialize)]
struct Claims {
    iat: i64,
    exp: i64,
    #[serde(rename = "kubernetes.io")]
    objects: Objects,
}

#[derive(Deserialize)]
struct Objects {
    serviceaccount: Object,
}

#[derive(Deserialize)]
struct Object {
    uid: String,
}

fn claims(token: &str) -> Option<Claims> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok()
}

/// Tokens are never renewed sooner than this after they were issued, in seconds: a very short life would
/// otherwise cause a constant stream of requests.
const MIN_RENEWAL_INTERVAL: u64 = 60;

/// When tokens are renewed: at half of the life that was granted, which may be less than what was asked for.
/// Up to a tenth earlier, depending on the pool, so that pools that were published together do not stay in
/// step.
fn renew_at(issued: Timestamp, life: Duration, pool: &str) -> Timestamp {
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

/// How long an answer about one token is used for all pools. Their tokens have the same rights, unless
/// another program has bound a single one, and their Roles have the same form.
const ANSWER_TTL: Duration = Duration::from_secs(300);

/// `yes`: how long ago the answer was that tokens may; `None` also after another answer.
pub fn is_known(yes: Option<Duration>) -> bool {
    yes.is_some_and(|ago| ago < ANSWER_TTL)
}

/// Whether it is known that a pool's token opens what its Role names, because that [is known](is_known) of
/// another pool. `is_as_written`: the API server has stored the pool's Role and RoleBinding as they were
/// sent.
pub fn is_readable(yes: Option<Duration>, causes: &[Cause], is_as_written: bool) -> bool {
    let is_repaired = |cause: &Cause| {
        matches!(
            cause,
            Cause::Modified | Cause::TokensInvalid | Cause::RoleModified
        )
    };
    is_as_written && !causes.iter().any(is_repaired) && is_known(yes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::plan::fixtures::{POOL, edit_bootstrap, hours, published, published_now};

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

    const ASKED: Duration = Duration::from_secs(24 * 3600);
    const NOW: i64 = 1_800_000_000;

    fn answer(said: Option<i64>, until: i64, exp: i64, objects: &Value) -> TokenRequest {
        let claims = json!({"iat": NOW, "exp": exp, "kubernetes.io": objects});
        let token = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let until = Timestamp::from_second(until).unwrap().to_string();
        serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": said},
            "status": {"token": token, "expirationTimestamp": until},
        }))
        .unwrap()
    }

    fn account() -> Value {
        json!({"namespace": "n", "serviceaccount": {"name": "a", "uid": "account"}})
    }

    #[test]
    fn the_least_that_the_api_server_says_is_what_it_grants() {
        let day = 24 * 3600;
        for (what, said, until, exp, life) in [
            ("as asked", Some(day), NOW + day, NOW + day, day),
            ("less, as it says", Some(600), NOW + 600, NOW + 600, 600),
            ("less, in the status only", Some(day), NOW + 600, NOW + day, 600),
            ("less, but not in the spec", None, NOW + 600, NOW + 600, 600),
            ("less, in the token only", Some(day), NOW + day, NOW + 600, 600),
            // Those of Kubernetes' own pods live a year, and are to be renewed after an hour.
            (
                "more, in the token only",
                Some(3600),
                NOW + 3600,
                NOW + 365 * day,
                3600,
            ),
            (
                "more than asked",
                Some(9 * day),
                NOW + 9 * day,
                NOW + 9 * day,
                day,
            ),
        ] {
            let token = granted(answer(said, until, exp, &account()), ASKED, POOL).unwrap();
            assert_eq!(token.expires.as_second(), NOW + life, "{what}");
            let renewed = renew_at(at(0), Duration::from_secs(life.unsigned_abs()), POOL);
            assert_eq!(token.renew_at, renewed, "{what}");
        }
    }

    #[test]
    fn a_token_says_which_account_it_is_of() {
        let of = |objects: &Value| granted(answer(None, NOW + 600, NOW + 600, objects), ASKED, POOL);
        assert_eq!(of(&account()).unwrap().account, "account");
        assert!(of(&Value::Null).is_none());
        assert!(granted(TokenRequest::default(), ASKED, POOL).is_none());
    }

    #[test]
    fn a_yes_is_good_for_five_minutes_for_identities_that_are_as_written_and_that_nobody_else_changed() {
        for (yes, cause, is_as_written, expected) in [
            (None, Cause::NewRevision, true, false),
            (Some(0), Cause::NewRevision, true, true),
            (Some(299), Cause::Missing, true, true),
            (Some(300), Cause::Missing, true, false),
            (Some(0), Cause::RenewalDue, false, false),
            (Some(0), Cause::RenewalDue, true, true),
            (Some(0), Cause::RoleModified, true, false),
            (Some(0), Cause::Modified, true, false),
            (Some(0), Cause::TokensInvalid, true, false),
        ] {
            let known = is_readable(yes.map(Duration::from_secs), &[cause], is_as_written);
            assert_eq!(known, expected, "{yes:?} {cause:?} {is_as_written}");
        }
    }
}
