//! Lets kube decode a list or a watch in which some objects can't be decoded. kube decodes a page as a whole,
//! so that one such object would hide all others.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::object::{self, Unreadable};

/// An object, or its metadata if the rest can't be decoded. Decoding fails only where an API server sends no
/// object at all.
#[derive(Clone)]
pub(crate) enum Decoded<K> {
    /// With the bytes of its JSON.
    Object(K, usize),
    Unreadable(Box<Unreadable>),
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Ok(match object::decode(text.get()).map_err(D::Error::custom)? {
            Ok(object) => Self::Object(object, text.get().len()),
            Err(unreadable) => Self::Unreadable(Box::new(unreadable)),
        })
    }
}

/// Only the name: an object may hold a credential, and kube logs what it decodes.
impl<K: Resource> fmt::Debug for Decoded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.meta().name)
    }
}

impl<K: Resource> Resource for Decoded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object, _) => object.meta(),
            Self::Unreadable(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Object(object, _) => object.meta_mut(),
            Self::Unreadable(unreadable) => &mut unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const BAD: &str =
        r#"{"metadata": {"name": "bad", "resourceVersion": "2"}, "data": {"token": ["hunter2"]}}"#;
    const GOOD: &str = r#"{"metadata": {"name": "good", "resourceVersion": "3"}}"#;

    #[test]
    fn an_object_that_can_not_be_decoded_hides_no_other_and_debug_shows_only_names() {
        let deep = format!(
            r#"{{"metadata": {{"name": "deep"}}, "data": {}{}}}"#,
            "[".repeat(9000),
            "]".repeat(9000)
        );
        let list = format!(
            r#"{{"kind": "ConfigMapList", "metadata": {{"resourceVersion": "9"}}, "items": [{BAD}, {GOOD}, {deep}]}}"#
        );
        let list: ObjectList<Decoded<ConfigMap>> = serde_json::from_str(&list).unwrap();
        let [
            Decoded::Unreadable(bad),
            Decoded::Object(good, _),
            Decoded::Unreadable(_),
        ] = &*list.items
        else {
            panic!("{list:?}");
        };
        assert_eq!(
            (bad.metadata.name.as_deref(), good.metadata.name.as_deref()),
            (Some("bad"), Some("good"))
        );
        assert!(!format!("{list:?}").contains("hunter2"));

        let line = format!(r#"{{"type": "MODIFIED", "object": {BAD}}}"#);
        let event: WatchEvent<Decoded<ConfigMap>> = serde_json::from_str(&line).unwrap();
        assert!(
            matches!(&event, WatchEvent::Modified(Decoded::Unreadable(_))),
            "{event:?}"
        );
        let bookmark = r#"{"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "4"}}}"#;
        let bookmark: WatchEvent<Decoded<ConfigMap>> = serde_json::from_str(bookmark).unwrap();
        assert!(matches!(bookmark, WatchEvent::Bookmark(_)), "{bookmark:?}");
    }
}
