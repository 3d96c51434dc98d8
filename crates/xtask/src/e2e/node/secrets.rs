//! Finds the credentials of user data in places where they must not be.

use std::io::{Read, Write as _};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::Value;

/// The shortest run of characters that gives a credential away.
const GIVEAWAY: usize = 24;

/// Every JSON web token in a text: plain, in base64, compressed in base64, or in the data URL of an Ignition
/// config.
pub fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // Nothing that is escaped in a data URL is part of a token.
    let text: String = text
        .split('%')
        .enumerate()
        .map(|(index, part)| match (index, part.get(..2)) {
            (1.., Some(escaped)) if escaped.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                format!(" {}", part.get(2..).unwrap_or_default())
            }
            _ => format!(" {part}"),
        })
        .collect();
    for word in words(&text) {
        if is_token(word) {
            found.push(word.to_owned());
        } else if word.len() > GIVEAWAY
            && let Ok(inner) = BASE64_STANDARD.decode(word)
            && let Ok(inner) = String::from_utf8(unpacked(&inner).unwrap_or(inner))
        {
            found.extend(tokens(&inner));
        }
    }
    found
}

/// A text with another token: plain, in base64, or compressed in base64, also one in the other.
///
/// # Errors
/// When the text does not have the token, or has it in another form.
pub fn with_other_token(text: &str, token: &str, other: &str) -> Result<String> {
    let changed = replaced(text, token, other)?;
    let left = tokens(&changed);
    ensure!(
        left.iter().any(|left| left == other) && left.iter().all(|left| left != token),
        "the user data has its token in a form that the test can't change"
    );
    Ok(changed)
}

fn replaced(text: &str, token: &str, other: &str) -> Result<String> {
    let mut changed = text.replace(token, other);
    for word in words(text).filter(|word| word.len() > GIVEAWAY) {
        let Ok(inner) = BASE64_STANDARD.decode(word) else {
            continue;
        };
        let content = unpacked(&inner);
        let was_packed = content.is_some();
        let Ok(content) = String::from_utf8(content.unwrap_or(inner)) else {
            continue;
        };
        let new = replaced(&content, token, other)?;
        if new != content {
            let inner = if was_packed {
                packed(new.as_bytes())?
            } else {
                new.into_bytes()
            };
            changed = changed.replace(word, &BASE64_STANDARD.encode(inner));
        }
    }
    Ok(changed)
}

/// What could be a token or base64.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.+/=".contains(c)))
}

/// What was compressed. None if nothing was.
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut content).ok()?;
    Some(content)
}

fn packed(content: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(content)?;
    Ok(packed.finish()?)
}

fn is_token(word: &str) -> bool {
    word.starts_with("eyJ") && word.split('.').count() == 3 && word.len() > 100
}

/// Whether a text shows a token: its signature, or the end of it.
pub fn shows(text: &str, token: &str) -> bool {
    let signature = token.rsplit('.').next().unwrap_or(token);
    let end = signature.len().saturating_sub(GIVEAWAY);
    signature.get(end..).is_some_and(|end| text.contains(end))
}

/// The same token as if it had been issued so many seconds earlier, signed anew.
///
/// # Errors
/// When it is no token, or the key is not ECDSA P-256.
pub fn aged(token: &str, seconds: i64, key_pem: &str) -> Result<String> {
    let mut parts = token.split('.');
    let (Some(head), Some(claims)) = (parts.next(), parts.next()) else {
        bail!("this is no token")
    };
    let mut claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    for time in ["iat", "nbf", "exp"] {
        if let Some(value) = claims.get_mut(time) {
            *value = (value.as_i64().context("a time in a token")? - seconds).into();
        }
    }
    let claims = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&claims)?);
    let text = format!("{head}.{claims}");
    let key: String = key_pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::from_pkcs8(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &BASE64_STANDARD.decode(key)?,
        &random,
    )
    .map_err(|error| anyhow!("the key of ServiceAccounts: {error}"))?;
    let signature = key
        .sign(&random, text.as_bytes())
        .map_err(|_| anyhow!("a token can't be signed"))?;
    Ok(format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token like those of ServiceAccounts.
    fn token(name: char) -> String {
        format!(
            "eyJhbGciOiJFUzI1NiJ9.{}.{}",
            name.to_string().repeat(60),
            "Zz09_-".repeat(10)
        )
    }

    #[test]
    fn tokens_are_found_plain_and_encoded() {
        let token = token('a');
        let plain = format!("header: Bearer {token}\n");
        assert_eq!(tokens(&plain), [token.as_str()]);
        let encoded = BASE64_STANDARD.encode(&plain);
        assert_eq!(tokens(&format!("content: {encoded}\n")), [token.as_str()]);
        let url = format!("{{\"source\":\"data:,header:%20Bearer%20{token}%0A\"}}");
        assert_eq!(tokens(&url), [token.as_str()]);
        let packed = BASE64_STANDARD.encode(packed(plain.as_bytes()).unwrap());
        assert_eq!(
            tokens(&format!("{{\"source\":\"data:;base64,{packed}\"}}")),
            [token.as_str()]
        );
        assert!(tokens("nothing: here, 100 %").is_empty());
        assert!(shows(&plain, &token));
        assert!(!shows("eyJhbGciOiJFUzI1NiJ9", &token));
    }

    #[test]
    fn a_token_is_replaced_in_every_form() {
        let (old, new) = (token('a'), token('b'));
        let file = format!("Authorization: Bearer {old}\n");
        let encoded = BASE64_STANDARD.encode(&file);
        let compressed = BASE64_STANDARD.encode(packed(file.as_bytes()).unwrap());
        let nested = BASE64_STANDARD.encode(packed(format!("e: {encoded}\n").as_bytes()).unwrap());
        let text = format!(
            "a: {file}b: {encoded}\nc: {compressed}\nn: {nested}\nd: {}\n",
            "A".repeat(40)
        );
        let changed = with_other_token(&text, &old, &new).unwrap();
        assert_eq!(tokens(&changed), [new.as_str(), &new, &new, &new]);
        assert!(changed.ends_with(&format!("d: {}\n", "A".repeat(40))));
        let error = with_other_token("nothing", &old, &new).unwrap_err().to_string();
        assert!(error.contains("can't change"), "{error}");
    }
}
