//! Paths with slashes, as Go's packages `path` and, on Unix, `filepath` handle them. No file is looked at.

use super::table::table;
use super::{Call, Problem};
use crate::value::Value;

table! {
    "base" "osBase": (String) -> "string", "Returns the last element of the path.", r#""a/b.txt""# => "b.txt", |call| changed(call, base);
    "dir" "osDir": (String) -> "string", "Returns the path without its last element.", r#""/a/b/c""# => "/a/b", |call| changed(call, dir);
    "clean" "osClean": (String) -> "string", "Returns the shortest path that leads to the same place.", r#""a//./b/../c""# => "a/c", |call| changed(call, clean);
    "ext" "osExt": (String) -> "string", "Returns the path's extension with its dot.", r#""a.tar.gz""# => ".gz", |call| changed(call, ext);
    "isAbs" "osIsAbs": (String) -> "bool", "Returns whether the path starts at the root.", r#""/a""# => "true",
        |call| Ok(call.text(0).starts_with('/').into());
}

fn changed(call: &Call<'_>, change: fn(&str) -> String) -> Result<Value, Problem> {
    call.budget.read(call.text(0).len())?;
    call.made(change(call.text(0)))
}

fn base(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    match trimmed.rsplit('/').next().unwrap_or(trimmed) {
        "" if path.is_empty() => ".".to_owned(),
        "" => "/".to_owned(),
        last => last.to_owned(),
    }
}

fn dir(path: &str) -> String {
    let end = path.rfind('/').map_or(0, |slash| slash + 1);
    clean(path.get(..end).unwrap_or_default())
}

fn ext(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.rfind('.')
        .and_then(|dot| last.get(dot..))
        .unwrap_or_default()
        .to_owned()
}

fn clean(path: &str) -> String {
    let is_rooted = path.starts_with('/');
    let mut elements: Vec<&str> = Vec::new();
    for element in path.split('/') {
        match element {
            "" | "." => {}
            ".." => match elements.last() {
                Some(&last) if last != ".." => drop(elements.pop()),
                None if is_rooted => {}
                _ => elements.push(element),
            },
            _ => elements.push(element),
        }
    }
    let cleaned = elements.join("/");
    match (is_rooted, cleaned.as_str()) {
        (true, _) => format!("/{cleaned}"),
        (false, "") => ".".to_owned(),
        _ => cleaned,
    }
}
