//! Tokens of nodes, how long the API server has granted them for, and which account they are of.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::TokenRequest;
use serde::Deserialize;

/// The token of a pool. With it, a machine reads the pool's Secrets and requests its client certificate.
/// There is no `Debug`, so that no log shows it.
#[derive(Clone)]
pub struct Token {
    pub text: String,
    /// uid of its ServiceAccount, as the annotation [`osm_api::names::BOUND_TO`]. The token itself says so:
    /// another client may have recreated the account since a watch showed it.
    pub account: String,
    /// When it expires, as the API server granted it. This and the next are by the API server's clock alone.
    pub expires: Timestamp,
    /// When it is renewed.
    pub renew_at: Timestamp,
}

/// The uid of the ServiceAccount in an annotation [`osm_api::names::BOUND_TO`]; empty where there is none.
/// Before 0.1.0, other uids could follow after a slash.
pub fn account_of(bound_to: &str) -> &str {
    bound_to.split('/').next().unwrap_or_default()
}

/// What the API server has granted, which may be less than `asked`. The answer's spec, its status or only the
/// token itself shows it, so the least of the three counts. `renew_at`: given when it was issued and its
/// life. `None`: the token is not one of a ServiceAccount as Kubernetes issues them.
pub fn granted(
    answer: TokenRequest,
    asked: Duration,
    renew_at: impl FnOnce(Timestamp, Duration) -> Timestamp,
) -> Option<Token> {
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
        renew_at: renew_at(issued, life),
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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

    /// At the end of its life.
    fn renewed(issued: Timestamp, life: Duration) -> Timestamp {
        issued + life
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
            let token = granted(answer(said, until, exp, &account()), ASKED, renewed).unwrap();
            assert_eq!(token.expires.as_second(), NOW + life, "{what}");
            assert_eq!(token.renew_at, token.expires, "{what}");
        }
    }

    #[test]
    fn a_token_says_which_account_it_is_of() {
        let of = |objects: &Value| granted(answer(None, NOW + 600, NOW + 600, objects), ASKED, renewed);
        assert_eq!(of(&account()).unwrap().account, "account");
        assert!(of(&Value::Null).is_none());
        assert!(granted(TokenRequest::default(), ASKED, renewed).is_none());
    }
}
