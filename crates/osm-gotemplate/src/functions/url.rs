//! URLs, parsed and written as Go's package `net/url` does it.

use std::fmt::Write;
use std::net::Ipv6Addr;

use crate::format::quote;

/// A URL whose parts are not escaped, except for the query.
#[derive(Debug, Default)]
pub(super) struct Url {
    pub(super) scheme: String,
    /// What follows the scheme of e.g. `mailto:a@b.c`.
    pub(super) opaque: String,
    pub(super) user: Option<User>,
    /// Host and port.
    pub(super) host: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) fragment: String,
}

#[derive(Debug)]
pub(super) struct User {
    name: String,
    password: Option<String>,
}

/// The part of a URL, which decides what is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Path,
    User,
    Host,
    Zone,
    Fragment,
}

impl Url {
    /// Parses a URL, or returns the text of Go's error.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (start, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::parse_start(start).map_err(|error| in_url(start, &error))?;
        url.fragment = unescape(fragment, Part::Fragment).map_err(|error| in_url(text, &error))?;
        Ok(url)
    }

    /// Parses what is before the fragment.
    fn parse_start(text: &str) -> Result<Self, String> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let mut url = Self::default();
        if text == "*" {
            "*".clone_into(&mut url.path);
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if rest
                .split('/')
                .next()
                .is_some_and(|segment| segment.contains(':'))
            {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let authority = rest
            .strip_prefix("//")
            .filter(|_| !url.scheme.is_empty() || !rest.starts_with("///"));
        if let Some(authority) = authority {
            let end = authority.find('/').unwrap_or(authority.len());
            let (authority, path) = authority.split_at_checked(end).unwrap_or((authority, ""));
            rest = path;
            url.parse_authority(authority)?;
        }
        url.path = unescape(rest, Part::Path)?;
        Ok(url)
    }

    fn parse_authority(&mut self, authority: &str) -> Result<(), String> {
        let Some((user, host)) = authority.rsplit_once('@') else {
            self.host = parse_host(authority)?;
            return Ok(());
        };
        self.host = parse_host(host)?;
        let is_valid =
            |character: char| character.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(character);
        if !user.chars().all(is_valid) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (user, None),
        };
        self.user = Some(User {
            name: unescape(name, Part::User)?,
            password: password
                .map(|password| unescape(password, Part::User))
                .transpose()?,
        });
        Ok(())
    }

    /// The host without its port and without brackets.
    pub(super) fn hostname(&self) -> &str {
        let host = match self
            .host
            .rfind(':')
            .and_then(|colon| self.host.split_at_checked(colon))
        {
            Some((host, port)) if is_optional_port(port) => host,
            _ => &self.host,
        };
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
    }

    /// The URL as text.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        if !self.scheme.is_empty() {
            text = format!("{}:", self.scheme);
        }
        if self.opaque.is_empty() {
            self.push_authority(&mut text);
            self.push_path(&mut text);
        } else {
            text.push_str(&self.opaque);
        }
        if !self.query.is_empty() {
            let _ = write!(text, "?{}", self.query);
        }
        if !self.fragment.is_empty() {
            let _ = write!(text, "#{}", escape(&self.fragment, Part::Fragment));
        }
        text
    }

    fn push_authority(&self, text: &mut String) {
        if !self.host.is_empty() || self.user.is_some() || !self.scheme.is_empty() && !self.path.is_empty() {
            text.push_str("//");
        }
        if let Some(user) = &self.user {
            let _ = write!(text, "{}@", user.to_text());
        }
        text.push_str(&escape(&self.host, Part::Host));
    }

    fn push_path(&self, text: &mut String) {
        let path = if self.path == "*" {
            "*".to_owned()
        } else {
            escape(&self.path, Part::Path)
        };
        if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
            text.push('/');
        }
        // A colon in the first segment would make it a scheme.
        if text.is_empty()
            && path
                .split('/')
                .next()
                .is_some_and(|segment| segment.contains(':'))
        {
            text.push_str("./");
        }
        text.push_str(&path);
    }
}

impl User {
    /// `name:password`, escaped.
    pub(super) fn to_text(&self) -> String {
        let name = escape(&self.name, Part::User);
        match &self.password {
            Some(password) => format!("{name}:{}", escape(password, Part::User)),
            None => name,
        }
    }
}

fn in_url(text: &str, error: &str) -> String {
    format!("parse {}: {error}", quote(text))
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "+-.".contains(character);
    match text.split_once(|character| !is_part(character)) {
        Some(("", _)) if text.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some((scheme, rest))
            if scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                && text.as_bytes().get(scheme.len()) == Some(&b':') =>
        {
            Ok((scheme, rest))
        }
        _ => Ok(("", text)),
    }
}

fn is_optional_port(port: &str) -> bool {
    port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn parse_host(host: &str) -> Result<String, String> {
    let check_port = |port: &str| match is_optional_port(port) {
        true => Ok(()),
        false => Err(format!("invalid port {} after host", quote(port))),
    };
    if let Some((before, address)) = host.rsplit_once('[') {
        if !before.is_empty() {
            return Err("invalid IP-literal".to_owned());
        }
        let (address, port) = address.rsplit_once(']').ok_or("missing ']' in host")?;
        check_port(port)?;
        let port = unescape(port, Part::Host)?;
        let zone_start = address.find("%25").unwrap_or(address.len());
        let (address, zone) = address.split_at_checked(zone_start).unwrap_or((address, ""));
        let address = unescape(address, Part::Host)? + &unescape(zone, Part::Zone)?;
        check_address(&address)?;
        return Ok(format!("[{address}]{port}"));
    }
    // A database's URL can have several hosts with ports. Go 1.26 and later permits that for other schemes than HTTP's only.
    check_port(
        host.rfind(':')
            .and_then(|colon| host.get(colon..))
            .unwrap_or_default(),
    )?;
    unescape(host, Part::Host)
}

/// Only an IPv6 address can be in brackets.
fn check_address(address: &str) -> Result<(), String> {
    let (number, zone) = match address.split_once('%') {
        Some((number, zone)) => (number, Some(zone)),
        None => (address, None),
    };
    if zone.is_none() && number.parse::<std::net::Ipv4Addr>().is_ok() {
        return Err("invalid IP-literal".to_owned());
    }
    if number.parse::<Ipv6Addr>().is_err() || zone == Some("") {
        return Err(format!(
            "invalid host: ParseAddr({}): unable to parse IP",
            quote(address)
        ));
    }
    Ok(())
}

fn is_escaped(byte: u8, part: Part) -> bool {
    let unescaped = match part {
        Part::Path => "$&+,/:;=@",
        Part::User => "$&+,;=",
        Part::Host | Part::Zone => "!$&'()*+,;=:[]<>\"",
        Part::Fragment => "$&+,/:;=?@!()*",
    };
    !byte.is_ascii_alphanumeric() && !b"-_.~".contains(&byte) && !unescaped.as_bytes().contains(&byte)
}

fn escape(text: &str, part: Part) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_escaped(byte, part) {
            let _ = write!(escaped, "%{byte:02X}");
        } else {
            escaped.push(char::from(byte));
        }
    }
    escaped
}

fn unescape(text: &str, part: Part) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut unescaped = Vec::with_capacity(bytes.len());
    let mut left = bytes;
    let invalid = |escape: &[u8]| format!("invalid URL escape {}", quote(&String::from_utf8_lossy(escape)));
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    while let [first, rest @ ..] = left {
        if *first != b'%' {
            let is_host = matches!(part, Part::Host | Part::Zone);
            if is_host && first.is_ascii() && is_escaped(*first, part) {
                let shown = quote(char::from(*first).encode_utf8(&mut [0; 4]));
                return Err(format!("invalid character {shown} in host name"));
            }
            unescaped.push(*first);
            left = rest;
            continue;
        }
        let shown = left.get(..3).unwrap_or(left);
        let (high, low) = match rest {
            [high, low, ..] => digit(*high).zip(digit(*low)).ok_or_else(|| invalid(shown))?,
            _ => return Err(invalid(shown)),
        };
        let byte = high << 4 | low;
        // In a host, only bytes beyond ASCII are escaped; a zone starts with an escaped percent sign.
        let is_forbidden = match part {
            Part::Host => high < 8,
            Part::Zone => byte != b' ' && is_escaped(byte, Part::Host),
            _ => false,
        };
        if is_forbidden && shown != b"%25" {
            return Err(invalid(shown));
        }
        unescaped.push(byte);
        left = left.get(3..).unwrap_or_default();
    }
    String::from_utf8(unescaped).map_err(|_| "the unescaped text would not be UTF-8".to_owned())
}
