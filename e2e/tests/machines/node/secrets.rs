//! Finds the credentials of user data in places where they must not be.

use std::io::Read;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::GzDecoder;

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

fn is_token(word: &str) -> bool {
    word.starts_with("eyJ") && word.split('.').count() == 3 && word.len() > 100
}

/// Whether a text shows a token: its signature, or the end of it.
pub fn shows(text: &str, token: &str) -> bool {
    let signature = token.rsplit('.').next().unwrap_or(token);
    let end = signature.len().saturating_sub(GIVEAWAY);
    signature.get(end..).is_some_and(|end| text.contains(end))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

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
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(plain.as_bytes()).unwrap();
        let packed = BASE64_STANDARD.encode(gzip.finish().unwrap());
        assert_eq!(
            tokens(&format!("{{\"source\":\"data:;base64,{packed}\"}}")),
            [token.as_str()]
        );
        assert!(tokens("nothing: here, 100 %").is_empty());
        assert!(shows(&plain, &token));
        assert!(!shows("eyJhbGciOiJFUzI1NiJ9", &token));
    }
}
