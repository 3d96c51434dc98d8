//! Tokens of nodes, and how long the API server has granted them for.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::TokenRequest;

/// The two tokens of a pool. There is no `Debug`, so that no log shows them.
#[derive(Clone)]
pub struct Tokens {
    /// Opens the pool's own Secrets.
    pub api: String,
    /// May request a node's client certificate.
    pub kubelet: String,
    /// When the first of them expires, as the API server granted it. This and the next are by the API server's clock alone.
    pub expires: Timestamp,
    /// When they are renewed.
    pub renew_at: Timestamp,
}

/// A token and its life, by the API server's clock. There is no `Debug`, so that no log shows it.
#[derive(Clone)]
pub struct Issued {
    pub token: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
    pub life: Duration,
}

/// What the API server has granted, which may be less than `asked`. The answer's spec, its status or only the token itself shows it, so the
/// least of the three counts. `before` is the API server's clock as we know it, for tokens without times.
pub fn granted(answer: TokenRequest, before: Timestamp, asked: Duration) -> Issued {
    // No API server is known to answer without a token. Such a token would expire at once, and be requested again.
    let (token, until) = answer.status.map_or((String::new(), before), |status| {
        (status.token, status.expiration_timestamp.0)
    });
    let claims = claims(&token);
    let issued = claims.map_or(before, |claims| claims.iat);
    let said = answer
        .spec
        .expiration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    let said = said.map_or(asked, Duration::from_secs).min(asked);
    let by = |expires: Timestamp| Duration::try_from(expires.duration_since(issued)).unwrap_or_default();
    let expires = claims.map_or(until, |claims| claims.exp.min(until));
    let life = said.min(by(expires));
    let in_time = SignedDuration::try_from(life).unwrap_or_default();
    Issued {
        token,
        issued,
        expires: issued.saturating_add(in_time).unwrap_or(until),
        life,
    }
}

/// Times in a JSON Web Token.
#[derive(Clone, Copy)]
struct Claims {
    iat: Timestamp,
    exp: Timestamp,
}

fn claims(token: &str) -> Option<Claims> {
    #[derive(serde::Deserialize)]
    struct Seconds {
        iat: i64,
        exp: i64,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let Seconds { iat, exp } = serde_json::from_slice(&payload).ok()?;
    Some(Claims {
        iat: Timestamp::from_second(iat).ok()?,
        exp: Timestamp::from_second(exp).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ASKED: Duration = Duration::from_secs(24 * 3600);
    const NOW: i64 = 1_800_000_000;

    fn answer(said: Option<i64>, until: i64, claims: Option<(i64, i64)>) -> TokenRequest {
        let token = claims.map_or("opaque".to_owned(), |(iat, exp)| {
            format!(
                "e30.{}.c2ln",
                URL_SAFE_NO_PAD.encode(json!({"iat": iat, "exp": exp}).to_string())
            )
        });
        let until = Timestamp::from_second(until).unwrap().to_string();
        serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": said},
            "status": {"token": token, "expirationTimestamp": until},
        }))
        .unwrap()
    }

    #[test]
    fn the_least_that_the_api_server_says_is_what_it_grants() {
        let day = 24 * 3600;
        for (what, said, until, claims, life) in [
            ("as asked", Some(day), NOW + day, Some((NOW, NOW + day)), day),
            (
                "less, as it says",
                Some(600),
                NOW + 600,
                Some((NOW, NOW + 600)),
                600,
            ),
            ("less, in the status only", Some(day), NOW + 600, None, 600),
            (
                "less, in the status and nowhere else",
                None,
                NOW + 600,
                Some((NOW, NOW + 600)),
                600,
            ),
            (
                "less, in the token only",
                Some(day),
                NOW + day,
                Some((NOW, NOW + 600)),
                600,
            ),
            // Those of Kubernetes' own pods live a year, and are to be renewed after an hour.
            (
                "more, in the token only",
                Some(3600),
                NOW + 3600,
                Some((NOW, NOW + 365 * day)),
                3600,
            ),
            (
                "more than asked",
                Some(9 * day),
                NOW + 9 * day,
                Some((NOW, NOW + 9 * day)),
                day,
            ),
        ] {
            let issued = granted(
                answer(said, until, claims),
                Timestamp::from_second(NOW).unwrap(),
                ASKED,
            );
            assert_eq!(issued.life.as_secs(), u64::try_from(life).unwrap(), "{what}");
            assert_eq!(issued.expires.as_second(), NOW + life, "{what}");
        }
    }

    #[test]
    fn our_clock_does_not_count() {
        for hours_off in [-30, 30] {
            let ours = Timestamp::from_second(NOW + hours_off * 3600).unwrap();
            let issued = granted(answer(Some(600), NOW + 600, Some((NOW, NOW + 600))), ours, ASKED);
            assert_eq!(
                (issued.issued.as_second(), issued.expires.as_second()),
                (NOW, NOW + 600)
            );
            assert_eq!(issued.life.as_secs(), 600);
        }
    }

    #[test]
    fn an_answer_without_a_token_is_good_for_nothing() {
        let issued = granted(
            TokenRequest::default(),
            Timestamp::from_second(NOW).unwrap(),
            ASKED,
        );
        assert!(issued.life.is_zero() && issued.expires.as_second() == NOW);
    }
}
