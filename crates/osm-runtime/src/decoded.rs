//! Lets kube decode a list or a watch in which some objects can't be decoded. kube decodes a page as a whole,
//! so that one such object would hide all others.

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

impl<K: Resource> Decoded<K> {
    pub(crate) fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object, _) => object.meta(),
            Self::Unreadable(unreadable) => &unreadable.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::{ObjectList, WatchEvent};

    use super::*;

    const BAD: &str = r#"{"metadata": {"name": "bad", "resourceVersion": "2"}, "data": {"token": ["text"]}}"#;
    const GOOD: &str = r#"{"metadata": {"name": "good", "resourceVersion": "3"}}"#;

    #[test]
    fn an_object_that_can_not_be_decoded_hides_no_other() {
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
            panic!("one of each");
        };
        assert_eq!(
            (bad.metadata.name.as_deref(), good.metadata.name.as_deref()),
            (Some("bad"), Some("good"))
        );

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
