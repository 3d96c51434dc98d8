//! Finds the names that somebody may have meant.

/// Most names that a message lists.
const MAX_NAMED: usize = 3;

/// Most names that are compared, and most characters of each: comparing takes time.
const MAX_COMPARED: usize = 1000;
const MAX_CHARS: usize = 128;

/// What a message says about the names that there are: the nearest to `wanted`.
pub(super) fn hint<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let cut = |name: &str| name.chars().take(MAX_CHARS).collect::<Vec<char>>();
    let wanted = cut(wanted);
    let mut ranked: Vec<(usize, &str)> = names
        .take(MAX_COMPARED)
        .map(|name| (distance(&wanted, &cut(name)), name))
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

/// Levenshtein's distance: the fewest characters to insert, delete or replace.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b) {
            let above = *cell;
            left = (above + 1).min(left + 1).min(diagonal + usize::from(x != y));
            diagonal = above;
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_come_first() {
        let distance = |a: &str, b: &str| {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            distance(&chars(a), &chars(b))
        };
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
        let names = [
            "/etc/motd",
            "/opt/bin/osm-setup",
            "/opt/bin/osm-extras",
            "/etc/issue",
        ];
        assert_eq!(
            hint("/opt/bin/osm-setpu", names.into_iter()),
            "the nearest are /opt/bin/osm-setup, /opt/bin/osm-extras, /etc/issue"
        );
        assert_eq!(hint("a", ["b"].into_iter()), "the nearest is b");
        assert_eq!(hint("a", [].into_iter()), "it has none");
    }
}
