//! Labels or annotations in a form that takes little memory. The caches hold those of every object of every pool.

use std::collections::BTreeMap;
use std::fmt;

/// Names with values, in the order of the names. All are in one text: a map of a few entries takes three times as much memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Each name is followed by its value.
    text: Box<str>,
    /// Where each name and each value ends in `text`.
    ends: Box<[u32]>,
}

impl Pairs {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        let mut until = move |end: u32| {
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            let part = self.text.get(start..end).unwrap_or_default();
            start = end;
            part
        };
        let (ends, _) = self.ends.as_chunks();
        ends.iter()
            .map(move |[name, value]| (until(*name), until(*value)))
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn to_map(&self) -> BTreeMap<String, String> {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        self.iter().map(owned).collect()
    }
}

impl From<&BTreeMap<String, String>> for Pairs {
    fn from(map: &BTreeMap<String, String>) -> Self {
        let parts = map.iter().flat_map(|(name, value)| [name.as_str(), value]);
        let parts: Vec<&str> = parts.collect();
        let ends = parts.iter().scan(0, |end, part| {
            *end += part.len();
            // All of an object are smaller than a request.
            Some(u32::try_from(*end).unwrap_or(u32::MAX))
        });
        Self {
            ends: ends.collect(),
            text: parts.concat().into(),
        }
    }
}

impl FromIterator<(String, String)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self::from(&pairs.into_iter().collect::<BTreeMap<_, _>>())
    }
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Tests change what they have.
#[cfg(test)]
impl Pairs {
    pub fn insert(&mut self, name: String, value: String) {
        self.extend([(name, value)]);
    }

    pub fn extend(&mut self, pairs: impl IntoIterator<Item = (String, String)>) {
        let mut map = self.to_map();
        map.extend(pairs);
        *self = Self::from(&map);
    }

    pub fn remove(&mut self, name: &str) -> Option<String> {
        let mut map = self.to_map();
        let removed = map.remove(name);
        *self = Self::from(&map);
        removed
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_of_the_map() {
        let map = BTreeMap::from([("b", ""), ("", "x"), ("a", "b\0c"), ("ä", "ö")])
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>();
        let pairs = Pairs::from(&map);
        assert_eq!(pairs.to_map(), map);
        let values = ["b", "", "a", "ä"].map(|name| pairs.get(name));
        assert_eq!(values, [Some(""), Some("x"), Some("b\0c"), Some("ö")]);
        assert_eq!((pairs.get("c"), pairs.get("x")), (None, None));
        assert!(Pairs::default().is_empty() && Pairs::from(&BTreeMap::new()) == Pairs::default());
        assert_eq!(
            format!("{:?}", Pairs::from_iter([("a".to_owned(), "b".to_owned())])),
            r#"{"a": "b"}"#
        );
    }
}
