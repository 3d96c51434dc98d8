//! Parses a request: verb, target and selectors.

use std::collections::BTreeMap;

use http::{Method, Uri};
use percent_encoding::percent_decode_str;

use super::kinds::{self, Kind};

/// A request, taken apart.
pub(super) struct Request {
    pub verb: Verb,
    pub target: Target,
    pub query: BTreeMap<String, String>,
    /// Only the metadata is asked for.
    pub metadata_only: bool,
    /// Of the body of a patch.
    pub content_type: String,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    pub fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete)
    }
}

/// What it is about.
pub(super) enum Target {
    /// Objects of a kind.
    Objects {
        kind: &'static Kind,
        namespace: String,
        name: String,
        subresource: String,
    },
    /// A SelfSubjectAccessReview, or a SubjectAccessReview.
    Review,
}

impl Target {
    /// `secrets`, `serviceaccounts/token`.
    pub fn resource(&self) -> String {
        match self {
            Self::Review => "selfsubjectaccessreviews".to_owned(),
            Self::Objects {
                kind, subresource, ..
            } if subresource.is_empty() => kind.plural.to_owned(),
            Self::Objects {
                kind, subresource, ..
            } => format!("{}/{subresource}", kind.plural),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Review => "",
            Self::Objects { name, .. } => name,
        }
    }
}

impl Request {
    /// `None`: nothing that is known here.
    pub fn parse(
        method: &Method,
        uri: &Uri,
        accept: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Option<Self> {
        let decode = |text: &str| {
            percent_decode_str(&text.replace('+', " "))
                .decode_utf8_lossy()
                .into_owned()
        };
        let pairs = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let query: BTreeMap<String, String> =
            pairs.map(|(key, value)| (decode(key), decode(value))).collect();
        let segments: Vec<&str> = uri
            .path()
            .split('/')
            .filter(|segment| !segment.is_empty())
            .collect();
        let (group, rest) = match segments.as_slice() {
            ["api", "v1", rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => return None,
        };
        let reviews = [["selfsubjectaccessreviews"], ["subjectaccessreviews"]];
        let target = if group == "authorization.k8s.io" && reviews.iter().any(|of| of == rest) {
            Target::Review
        } else {
            let (namespace, rest) = match rest {
                ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
                rest => ("", rest),
            };
            let (plural, name, subresource) = match rest {
                [plural] => (plural, "", ""),
                [plural, name] => (plural, *name, ""),
                [plural, name, subresource] => (plural, *name, *subresource),
                _ => return None,
            };
            let kind = kinds::by_plural(group, plural)?;
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            Target::Objects {
                kind,
                namespace,
                name,
                subresource: subresource.to_owned(),
            }
        };
        let watch = query
            .get("watch")
            .is_some_and(|value| value == "true" || value == "1");
        let verb = match (method.as_str(), target.name().is_empty()) {
            ("GET", _) if watch => Verb::Watch,
            ("GET", true) => Verb::List,
            ("GET", false) => Verb::Get,
            ("POST", _) => Verb::Create,
            ("PUT", false) => Verb::Update,
            ("PATCH", false) => Verb::Patch,
            ("DELETE", false) => Verb::Delete,
            _ => return None,
        };
        let metadata_only = accept.contains("as=PartialObjectMetadata;");
        Some(Self {
            verb,
            target,
            query,
            metadata_only,
            content_type: content_type.to_owned(),
            body,
        })
    }

    pub fn query(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }
}

/// A label or field selector of the forms `key=value`, `key!=value` and `key`.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector(Vec<Term>);

#[derive(Clone, Debug)]
enum Term {
    Is(String, String),
    IsNot(String, String),
    Exists(String),
}

impl Selector {
    /// `None`: of another form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains([' ', '(', ')']) {
            return None;
        }
        let term = |term: &str| {
            let owned = |key: &str, value: &str| (key.to_owned(), value.trim_start_matches('=').to_owned());
            if let Some((key, value)) = term.split_once("!=") {
                let (key, value) = owned(key, value);
                Some(Term::IsNot(key, value))
            } else if let Some((key, value)) = term.split_once('=') {
                let (key, value) = owned(key, value);
                Some(Term::Is(key, value))
            } else if term.starts_with('!') {
                None
            } else {
                Some(Term::Exists(term.to_owned()))
            }
        };
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(term)
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }

    /// Whether something with these values fits.
    pub fn fits<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|term| match term {
            Term::Is(key, value) => value_of(key) == Some(value),
            Term::IsNot(key, value) => value_of(key) != Some(value),
            Term::Exists(key) => value_of(key).is_some(),
        })
    }

    /// Whether every key is one of these.
    pub fn only_about(&self, known: &[&str]) -> bool {
        self.0.iter().all(|term| match term {
            Term::Is(key, _) | Term::IsNot(key, _) | Term::Exists(key) => known.contains(&key.as_str()),
        })
    }
}
