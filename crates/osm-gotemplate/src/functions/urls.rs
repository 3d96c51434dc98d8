//! URLs as maps of their parts.

use std::collections::BTreeMap;

use super::comparison::{kind, nil_dereference};
use super::table::table;
use super::url::{Url, User};
use super::{Call, Problem};
use crate::value::{Map, Value};

table! {
    "urlParse": (String) -> "map[string]interface {}", "Returns the parts of a URL: `scheme`, `userinfo`, `host`, `hostname`, `path`, `query`, `opaque` and `fragment`.",
        (r#"{{ (urlParse "http://example.com:80/a?b=c").hostname }}"#) => "example.com", url_parse;
    "urlJoin": (Map) -> "string", "Returns the URL that has the parts which `urlParse` returns.",
        r#"(dict "scheme" "https" "host" "example.com" "path" "/a b")"# => "https://example.com/a%20b", url_join;
}

/// What the names of eight parts, and eight parts without a character, take.
const BYTES_OF_SMALL_TEXTS: usize = 16 * 4 * size_of::<usize>();

fn url_parse(call: &Call<'_>) -> Result<Value, Problem> {
    call.budget.read(call.text(0).len())?;
    call.budget.copy(
        call.text(0)
            .len()
            .saturating_mul(4)
            .saturating_add(Map::bytes(8) + BYTES_OF_SMALL_TEXTS),
    )?;
    let url =
        Url::parse(call.text(0)).map_err(|error| Problem::new(format!("unable to parse url: {error}")))?;
    let parts = [
        ("scheme", url.scheme.as_str()),
        ("host", &url.host),
        ("hostname", url.hostname()),
        ("path", &url.path),
        ("query", &url.query),
        ("opaque", &url.opaque),
        ("fragment", &url.fragment),
        (
            "userinfo",
            &url.user.as_ref().map(User::to_text).unwrap_or_default(),
        ),
    ];
    let entries = parts.into_iter().map(|(key, part)| (key.into(), part.into()));
    Ok(Value::map(entries.collect::<BTreeMap<_, _>>()))
}

fn url_join(call: &Call<'_>) -> Result<Value, Problem> {
    let part = |key| part(call, call.map(0), key);
    let mut url = Url {
        scheme: part("scheme")?,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        opaque: part("opaque")?,
        fragment: part("fragment")?,
        user: None,
    };
    let user = part("userinfo")?;
    if !user.is_empty() {
        let with_user = Url::parse(&format!("proto://{user}@host"));
        url.user = with_user
            .map_err(|error| Problem::new(format!("unable to parse userinfo in dict: {error}")))?
            .user;
    }
    call.made(url.to_text())
}

fn part(call: &Call<'_>, map: Option<&Map>, key: &str) -> Result<String, Problem> {
    let Some(value) = map.and_then(|map| map.get(key)) else {
        return Ok(String::new());
    };
    match value.underlying() {
        Value::String(part) => {
            call.budget.copy(part.len().saturating_mul(3))?;
            Ok(part.to_string())
        }
        Value::Nil => Err(nil_dereference()),
        other => Err(Problem::new(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            kind(other)
        ))),
    }
}
