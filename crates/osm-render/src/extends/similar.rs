//! Finds the names that an author may have meant.

use strsim::levenshtein;

/// Most names that a message lists.
const MAX_NAMED: usize = 3;

/// Most names that are compared, and most bytes of each: comparing takes time.
const MAX_COMPARED: usize = 1000;
const MAX_BYTES: usize = 128;

/// What a message says about the names that there are: the nearest to `wanted`.
pub(super) fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let wanted = wanted
        .get(..wanted.floor_char_boundary(MAX_BYTES))
        .unwrap_or_default();
    let cut = |name: &'a str| {
        name.get(..name.floor_char_boundary(MAX_BYTES))
            .unwrap_or_default()
    };
    let mut ranked: Vec<(usize, &str)> = names
        .take(MAX_COMPARED)
        .map(|name| (levenshtein(wanted, cut(name)), name))
        .collect();
    ranked.sort_unstable();
    ranked.dedup();
    let nearest: Vec<&str> = ranked.into_iter().take(MAX_NAMED).map(|(_, name)| name).collect();
    match nearest.as_slice() {
        [] => "it has none".to_owned(),
        [only] => format!("the nearest is {only}"),
        several => format!("the nearest are {}", several.join(", ")),
    }
}
