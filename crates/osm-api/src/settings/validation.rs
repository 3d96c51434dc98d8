//! Shared by the validations of all sections: the list of problems, and rules for texts.

use std::fmt::Display;

use crate::names::is_dns_subdomain;

/// What a schema can say of a URL before [`is_url`] judges it.
pub(super) const URL: &str = "^https?://[^/@]+(/|$)";

pub(super) const URL_RULE: &str = "must be http(s)://host[:port][/path]";

pub(super) const HTTP: &[&str] = &["http", "https"];
pub(super) const HTTPS: &[&str] = &["https"];

/// Every problem of a document, one line each: `path: rule`. No line repeats a value, which may be a
/// credential.
#[derive(Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    /// Adds the rule to the problems of this path unless it is kept.
    pub(super) fn check(&mut self, path: impl Display, ok: bool, rule: &str) {
        if !ok {
            self.0.push(format!("{path}: {rule}"));
        }
    }

    /// Adds the rule that a value breaks.
    pub(super) fn add(&mut self, path: impl Display, checked: Result<(), String>) {
        if let Err(rule) = checked {
            self.0.push(format!("{path}: {rule}"));
        }
    }

    /// Checks the names of a Secret and of its namespace.
    pub(super) fn check_object(&mut self, path: &str, namespace: &str, name: &str) {
        for (field, text, rule) in [
            ("namespace", namespace, "must be the name of a namespace"),
            ("name", name, "must be the name of a Secret"),
        ] {
            self.check(format!("{path}.{field}"), is_dns_subdomain(text), rule);
        }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.0
    }
}

pub(super) const PEM: &str = "must be one or more PEM certificates";

/// The certificates of a bundle, and nothing of what people and programs write around them: the text stands
/// in files that are read line by line. `None` where there is none, one is damaged, or something else is
/// among them, such as a key.
pub(super) fn certificates(text: &str) -> Option<String> {
    let (mut inside, mut found) = (false, String::new());
    for line in text.lines().map(str::trim_end) {
        match line {
            "-----BEGIN CERTIFICATE-----" if !inside => inside = true,
            "-----END CERTIFICATE-----" if inside => inside = false,
            _ if line.starts_with("-----") => return None,
            _ if !inside => continue,
            _ if line
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)) => {}
            _ => return None,
        }
        found.push_str(line);
        found.push('\n');
    }
    (!inside && !found.is_empty()).then_some(found)
}

pub(super) const IMAGE_RULE: &str =
    "must be an image, such as registry.example/pause:3.10 or registry.example/pause@sha256:…";

/// Whether a text consists of the parts of an image's reference, `[host[:port]/]path[:tag][@digest]`
/// (<https://github.com/distribution/reference>). It ends no string in a configuration, and is no URL.
pub(super) fn is_image(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_part = |part: &str| part.starts_with(first) && part.chars().all(inner);
    text.len() <= 512 && text.split(['/', ':', '@']).all(is_part)
}

/// A URL of one of the schemes: a host and perhaps a path, without user information, query or fragment, and
/// without anything that a shell expands in double quotes or curl in a URL.
pub(super) fn is_url(text: &str, schemes: &[&str]) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    schemes.contains(&scheme)
        && is_host(authority)
        && path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/-._~%!&()*+,;=:@".contains(c))
}

/// `host`, `host:port`, `1.2.3.4:5` or `[::1]:5`.
pub(super) fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("v6", port.strip_prefix(':'))
        }
        Some(_) => return false,
        None => text
            .split_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let digits = |port: &str| port.chars().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_host_name(host) && port.is_none_or(digits)
}

/// A host's name or IPv4 address: parts that are not empty, between dots.
pub(super) fn is_host_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    text.strip_suffix('.').unwrap_or(text).split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_nothing_else() {
        let one = "-----BEGIN CERTIFICATE-----\nTWFu+/==\n-----END CERTIFICATE-----\n";
        let two = [one, one].concat();
        for (text, kept) in [
            (one.to_owned(), one),
            (one.replace('\n', "\r\n"), one),
            (
                format!("##\n## Bundle\n\nOne Root\n========\n{one}\nOther Root\n==\n{one}\n"),
                &two,
            ),
            (format!("{one}END-OF-BUNDLE\nreboot\n{one}# \u{1b}\n"), &two),
        ] {
            assert_eq!(certificates(&text).as_deref(), Some(kept), "{text}");
        }
        let begin = "-----BEGIN CERTIFICATE-----\n";
        for bad in [
            String::new(),
            "One Root\n".to_owned(),
            begin.to_owned(),
            format!("{begin}{one}"),
            format!("{one}-----END CERTIFICATE-----\n"),
            format!("{one}-----BEGIN PRIVATE KEY-----\nTWFu\n-----END PRIVATE KEY-----\n"),
            one.replace("TWFu", "TW Fu"),
            one.replace("TWFu", "TWFu\r-"),
            one.replace("TWFu", "\0"),
            one.replace("CERTIFICATE", "PRIVATE KEY"),
        ] {
            assert_eq!(certificates(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn hosts_and_urls() {
        let good = "https://a https://a:6443 https://[fd00::1]:6443 https://10.0.0.1:6443/ https://a/v2/docker.io \
            https://a/~me/%20/x_y-z.1,2;3=4:5@6+7";
        for good in good.split_whitespace() {
            assert!(is_url(good, HTTPS), "{good}");
        }
        for bad in "http://a https:// https://a:port https://u@a https://a/\" a https://[zz]:1".split(' ') {
            assert!(!is_url(bad, HTTPS), "{bad}");
        }
        // Nothing that ends or expands a text in double quotes, and nothing that curl expands.
        for bad in "\"'\\`$<>[]{}?#|^ \t\n\0é".chars() {
            for url in [
                format!("https://a/x{bad}y"),
                format!("https://a{bad}b/"),
                format!("https://a:1{bad}/"),
            ] {
                assert!(!is_url(&url, HTTPS), "{url:?}");
            }
        }
    }
}
