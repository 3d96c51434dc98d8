//! Masks the credentials in a document before it is printed.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

const MASK: &str = "***";

/// The document with `***` in place of each ServiceAccount token, also of those in base64.
pub fn credentials(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    let mut word = String::new();
    for character in document.chars() {
        if character.is_ascii_alphanumeric() || "-_.+/=".contains(character) {
            word.push(character);
        } else {
            shown.push_str(&masked(&word));
            word.clear();
            shown.push(character);
        }
    }
    shown.push_str(&masked(&word));
    shown
}

fn masked(word: &str) -> String {
    let hidden = || {
        BASE64_STANDARD
            .decode(word)
            .is_ok_and(|inside| holds_token(&String::from_utf8_lossy(&inside)))
    };
    if is_token(word) || hidden() {
        MASK.to_owned()
    } else {
        word.to_owned()
    }
}

fn holds_token(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c))
        .any(is_token)
}

/// A JSON Web Token: three parts, of which the first is a JSON object.
fn is_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    let [header, _, _] = parts.as_slice() else {
        return false;
    };
    BASE64_URL_SAFE_NO_PAD
        .decode(header)
        .is_ok_and(|header| header.starts_with(b"{"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> String {
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        format!(
            "{}.{}.{}",
            part(r#"{"alg":"ES256"}"#),
            part(r#"{"sub":"x"}"#),
            part("signature")
        )
    }

    #[test]
    fn tokens_are_masked_everywhere() {
        let token = token();
        assert_eq!(
            credentials(&format!("Authorization: Bearer {token}\nuser: \"{token}\"")),
            "Authorization: Bearer ***\nuser: \"***\""
        );
        let inside = BASE64_STANDARD.encode(format!("token: {token}\n"));
        assert_eq!(credentials(&format!("content: {inside}\n")), "content: ***\n");
    }

    #[test]
    fn everything_else_is_kept() {
        let text =
            "hostname: pool-1\nurl: https://127.0.0.1:6443/a.b.c\nversion: 1.34.2\nca: LS0tLS1CRUdJTg==\n";
        assert_eq!(credentials(text), text);
    }
}
