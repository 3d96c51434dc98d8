//! Lists the objects of a kind in pages, and watches what changes from then on.
//!
//! `kube::runtime::watcher` does the same. It decodes a page as a whole, so that one object which can't be decoded hides all others, and it has
//! no bounds.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::answer::{is_exceeded, is_too_large};
use crate::api;
use crate::object::{self, Unreadable};

/// The largest number of objects that are read from one page.
const MAX_PAGE: usize = 50_000;

/// The longest name of an object and of a namespace, and the longest uid and resourceVersion. An API server has no longer ones.
const LONGEST_NAME: usize = 253;
const LONGEST_UID: usize = 128;

/// Objects in a page of a list. Most are smaller than 40 KiB, so that a page is smaller than 2 MiB.
pub const PAGE: u32 = 50;

/// The API server ends a watch after this time.
const WATCH_SECONDS: u32 = 590;

/// A watch without a line for this long is started again.
const MAX_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// A watch that ends sooner, and has shown nothing, has failed: it would be started again without a pause.
const SHORTEST_WATCH: Duration = Duration::from_secs(5);

/// The shortest time between two starts of a watch.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// An object, or its metadata if it can't be decoded.
pub(crate) type Item<'a, K> = Result<K, Unreadable<'a>>;

/// What the API server shows.
pub(crate) enum Event<'a, K> {
    /// A new list begins. An object that it does not show is deleted.
    ListBegins,
    Listed(Item<'a, K>),
    ListEnded,
    Applied(Item<'a, K>),
    Deleted(Item<'a, K>),
    /// Nothing has changed.
    Bookmark,
}

/// In [`Error::Malformed`].
const EVENT: &str = "an event";

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the list failed: {0}")]
    List(#[source] kube::Error),
    #[error("the watch did not start: {0}")]
    Start(#[source] kube::Error),
    #[error("reading the answer failed: {0}")]
    Read(#[source] std::io::Error),
    #[error("reading a line of the watch failed: {0}")]
    Line(#[source] std::io::Error),
    #[error("the API server ended the watch: {} ({})", .0.message, .0.code)]
    Ended(Box<Status>),
    #[error("the API server ended the watch at once")]
    EndedAtOnce,
    #[error("the answer is not {0} of the Kubernetes API")]
    Malformed(&'static str),
}

impl Error {
    /// Whether the watch began, and then sent a line that can't be used.
    pub(crate) fn is_of_line(&self) -> bool {
        matches!(self, Self::Line(_) | Self::Malformed(EVENT))
    }
}

/// Where the objects are, and which of them are wanted.
#[derive(Clone)]
pub(crate) struct Selection {
    pub(crate) client: Client,
    /// Bounds the lists that are read from this cluster at the same time.
    pub(crate) lists: Arc<Semaphore>,
    /// `None`: the name of the namespace can't be in a path.
    pub(crate) path: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
    /// The API server sends nothing but metadata.
    pub(crate) metadata_only: bool,
}

/// A list, and the watch that follows it.
pub(crate) struct ListWatch<K> {
    selection: Selection,
    page: u32,
    state: State,
    kind: PhantomData<fn() -> K>,
}

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;

#[derive(Default)]
enum State {
    #[default]
    Start,
    /// The next page is to be read.
    List { token: Option<String> },
    /// Everything up to this resourceVersion is known.
    Known(String),
    Watching {
        version: String,
        lines: Lines,
        since: Instant,
        /// It has shown something: the version is no longer that of its start.
        has_shown: bool,
    },
}

impl<K> ListWatch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    pub(crate) fn new(selection: Selection) -> Self {
        Self {
            selection,
            page: PAGE,
            state: State::Start,
            kind: PhantomData,
        }
    }

    /// The next step lists everything again.
    pub(crate) fn list_again(&mut self) {
        self.state = State::Start;
    }

    /// Goes on by one page or one line, and passes on what that shows. After an error, the next step lists everything again or starts the
    /// watch again, as the error requires.
    ///
    /// # Errors
    /// Requests that failed, and answers that can't be used.
    pub(crate) async fn step(&mut self, show: &mut (impl FnMut(Event<'_, K>) + Send)) -> Result<(), Error> {
        // Where an error returns, the state is `Start`, unless it is set before.
        match std::mem::take(&mut self.state) {
            State::Start => {
                self.page = PAGE;
                show(Event::ListBegins);
                self.list(None, show).await
            }
            State::List { token } => self.list(token, show).await,
            State::Known(version) => self.watch(version).await,
            State::Watching {
                version,
                lines,
                since,
                has_shown,
            } => self.line(version, lines, (since, has_shown), show).await,
        }
    }

    async fn list(
        &mut self,
        token: Option<String>,
        show: &mut (impl FnMut(Event<'_, K>) + Send),
    ) -> Result<(), Error> {
        // The semaphore is never closed. The permit is held until the page is decoded.
        let _permit = self.selection.lists.clone().acquire_owned().await;
        let text = match self.selection.page(self.page, token.clone()).await {
            Ok(text) => text,
            Err(error) if self.page > 1 && is_too_large(&error) => {
                self.page = (self.page / 10).max(1);
                self.state = State::List { token };
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let Page { metadata, items } = serde_json::from_str(&text).map_err(|_| Error::Malformed("a list"))?;
        for item in items.0 {
            let item = decode(item.get()).ok_or(Error::Malformed("an object"))?;
            show(Event::Listed(item));
            tokio::task::consume_budget().await;
        }
        let token = metadata.continue_.filter(|token| !token.is_empty());
        self.state = match token {
            Some(token) => State::List { token: Some(token) },
            None => {
                let version = metadata.resource_version.filter(|version| !version.is_empty());
                let version = version.ok_or(Error::Malformed("a list with a resourceVersion"))?;
                show(Event::ListEnded);
                State::Known(version)
            }
        };
        Ok(())
    }

    async fn watch(&mut self, version: String) -> Result<(), Error> {
        let lines = self.selection.lines(&version).await;
        self.state = State::Known(version.clone());
        self.state = State::Watching {
            version,
            lines: lines?,
            since: Instant::now(),
            has_shown: false,
        };
        Ok(())
    }

    async fn line(
        &mut self,
        version: String,
        mut lines: Lines,
        (since, has_shown): (Instant, bool),
        show: &mut (impl FnMut(Event<'_, K>) + Send),
    ) -> Result<(), Error> {
        let mut line = Vec::new();
        let read = tokio::time::timeout(MAX_SILENCE, lines.read_until(b'\n', &mut line)).await;
        if !line.ends_with(b"\n") {
            if let Ok(Err(error)) = read
                && is_exceeded(&error)
            {
                // A watch from the same version would begin with the same line. A list shows the object as one that can't be read.
                return Err(Error::Line(error));
            }
            self.state = State::Known(version);
            let lasted = since.elapsed();
            if !has_shown && lasted < SHORTEST_WATCH {
                return Err(Error::EndedAtOnce);
            }
            // The connection ended, or many changes came faster than they were read, after which the API server ends a watch. The next one
            // starts at once. An API server that restarts refuses it, and everything is listed again.
            tokio::time::sleep(SHORTEST_INTERVAL.saturating_sub(lasted)).await;
            return Ok(());
        }
        let malformed = || Error::Malformed(EVENT);
        let text = std::str::from_utf8(&line).map_err(|_| malformed())?;
        let Line { type_, object } = serde_json::from_str(text).map_err(|_| malformed())?;
        let next = match type_ {
            EventType::Bookmark => {
                let Bookmark { metadata } = serde_json::from_str(object.get()).map_err(|_| malformed())?;
                show(Event::Bookmark);
                metadata.resource_version
            }
            EventType::Error => {
                let status: Status = serde_json::from_str(object.get()).map_err(|_| malformed())?;
                if status.code != 410 {
                    self.state = State::Known(version);
                }
                return Err(Error::Ended(Box::new(status)));
            }
            EventType::Added | EventType::Modified | EventType::Deleted => {
                let item = decode::<K>(object.get()).ok_or_else(malformed)?;
                let version = meta(&item).resource_version.clone();
                show(match type_ {
                    EventType::Deleted => Event::Deleted(item),
                    _ => Event::Applied(item),
                });
                version
            }
        };
        let next = next.filter(|next| !next.is_empty()).ok_or_else(malformed)?;
        self.state = State::Watching {
            has_shown: has_shown || next != version,
            version: next,
            lines,
            since,
        };
        Ok(())
    }
}

pub(crate) fn meta<'a, K: Resource>(item: &'a Item<'_, K>) -> &'a ObjectMeta {
    match item {
        Ok(object) => object.meta(),
        Err(unreadable) => &unreadable.metadata,
    }
}

/// Decodes an object; `None`: it is no object of the Kubernetes API.
fn decode<K: Resource + DeserializeOwned>(text: &str) -> Option<Item<'_, K>> {
    let item = object::decode(text).ok()?;
    let meta = meta(&item);
    let is_within = |text: &Option<String>, longest| text.as_ref().is_none_or(|text| text.len() <= longest);
    let names = [&meta.name, &meta.namespace].map(|name| is_within(name, LONGEST_NAME));
    let versions = [&meta.uid, &meta.resource_version].map(|version| is_within(version, LONGEST_UID));
    (names == [true; 2] && versions == [true; 2]).then_some(item)
}

impl Selection {
    fn request(&self) -> Result<Request, kube::Error> {
        let path = self
            .path
            .as_ref()
            .ok_or_else(|| api::refused("namespace", "list"))?;
        Ok(Request::new(path.as_str()))
    }

    async fn page(&self, limit: u32, token: Option<String>) -> Result<String, Error> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: Some(limit),
            continue_token: token,
            ..ListParams::default()
        };
        let request = self.request().map_err(Error::List)?;
        let request = match self.metadata_only {
            true => request.list_metadata(&params),
            false => request.list(&params),
        };
        let request = request.map_err(|error| Error::List(kube::Error::BuildRequest(error)))?;
        let body = self.client.request_stream(request).await.map_err(Error::List)?;
        let mut text = String::new();
        std::pin::pin!(body)
            .read_to_string(&mut text)
            .await
            .map_err(Error::Read)?;
        Ok(text)
    }

    async fn lines(&self, version: &str) -> Result<Lines, Error> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = self.request().map_err(Error::Start)?;
        let request = match self.metadata_only {
            true => request.watch_metadata(&params, version),
            false => request.watch(&params, version),
        };
        let mut request = request.map_err(|error| Error::Start(kube::Error::BuildRequest(error)))?;
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, identity);
        let body = self.client.request_stream(request).await.map_err(Error::Start)?;
        Ok(Box::pin(body))
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow)]
    items: Items<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_: Option<String>,
}

/// At most one more than [`MAX_PAGE`]. An API server may ignore the limit of a page.
#[derive(Default)]
struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for List<'a> {
            type Value = Items<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_unit<E>(self) -> Result<Items<'a>, E> {
                Ok(Items::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<'a>, A::Error> {
                let mut items = Vec::new();
                while items.len() <= MAX_PAGE {
                    let Some(item) = list.next_element()? else {
                        return Ok(Items(items));
                    };
                    items.push(item);
                }
                while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                Ok(Items(items))
            }
        }
        deserializer.deserialize_any(List(PhantomData))
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    type_: EventType,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The texts of the objects in a page of a list, or in a line of a watch; none where the text is neither.
pub fn object_texts(answer: &str) -> Vec<&str> {
    let page = serde_json::from_str::<Page<'_>>(answer).map(|page| page.items.0);
    let line = || serde_json::from_str::<Line<'_>>(answer).map(|line| vec![line.object]);
    let objects = page.or_else(|_| line()).unwrap_or_default();
    objects.into_iter().map(RawValue::get).collect()
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: PageMeta,
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::Response;
    use http_body::Frame;
    use http_body_util::combinators::UnsyncBoxBody;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;

    use super::*;

    const LINE: &str =
        "{\"type\": \"ADDED\", \"object\": {\"metadata\": {\"name\": \"it\", \"resourceVersion\": \"2\"}}}\n";

    type Answer = UnsyncBoxBody<Bytes, Infallible>;

    /// What a watch with this query is answered.
    type Watched = fn(&str) -> Answer;

    fn text(text: &'static str) -> Answer {
        Full::from(text).boxed_unsync()
    }

    /// A watch on an API server that answers a list with version 1, and a watch with what `watched` gives for its query.
    fn list_watch(watched: Watched) -> ListWatch<ConfigMap> {
        let server = tower::service_fn(move |request: http::Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default();
            let body = if query.contains("watch=true") {
                watched(query)
            } else {
                text(r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#)
            };
            Ok::<_, Infallible>(Response::new(body))
        });
        let selection = Selection {
            client: Client::new(server, "default"),
            lists: Arc::new(Semaphore::new(1)),
            path: Some("/api/v1/configmaps".to_owned()),
            labels: None,
            fields: None,
            metadata_only: false,
        };
        ListWatch::new(selection)
    }

    #[tokio::test]
    async fn nothing_is_sent_for_a_namespace_that_can_not_be_in_a_path() {
        let mut watch = list_watch(|_| text(""));
        watch.selection.path = None;
        let failed = watch.step(&mut |_: Event<'_, ConfigMap>| ()).await.unwrap_err();
        assert!(
            failed.to_string().contains("the namespace can't be in the path"),
            "{failed}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_has_shown_something_goes_on_after_its_end_and_one_that_has_not_fails() {
        // From version 1, both show version 2 and end. From version 2, one shows the same again, and the other one ends at once.
        let once = |query: &str| {
            text(if query.contains("resourceVersion=1") {
                LINE
            } else {
                ""
            })
        };
        let answers: [(bool, Watched); 2] = [(false, once), (true, |_| text(LINE))];
        for (repeats, watched) in answers {
            let mut list_watch = list_watch(watched);
            let began = Instant::now();
            let mut lists = 0;
            let mut shown = Vec::new();
            let mut show = |event: Event<'_, ConfigMap>| match event {
                Event::ListBegins => lists += 1,
                Event::Applied(object) => shown.push(meta(&object).resource_version.clone().unwrap()),
                _ => {}
            };
            // The list, the start of the watch, its line, its end, the start of the next one, and its line.
            for step in 0..5 + usize::from(repeats) {
                let stepped = list_watch.step(&mut show).await;
                assert!(stepped.is_ok(), "{step}: {stepped:?}");
            }
            assert_eq!(began.elapsed(), SHORTEST_INTERVAL);
            let end = list_watch.step(&mut show).await;
            assert!(matches!(end, Err(Error::EndedAtOnce)), "{end:?}");
            assert_eq!((lists, shown.len()), (1, 1 + usize::from(repeats)));
        }
    }

    /// As after a firewall has forgotten the connection.
    #[tokio::test(start_paused = true)]
    async fn a_silent_watch_is_given_up_and_goes_on_where_it_was() {
        let mut list_watch = list_watch(|_| {
            let nothing = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
            StreamBody::new(nothing).boxed_unsync()
        });
        for _ in 0..2 {
            list_watch.step(&mut |_: Event<'_, ConfigMap>| ()).await.unwrap();
        }
        let began = Instant::now();
        list_watch.step(&mut |_: Event<'_, ConfigMap>| ()).await.unwrap();
        let took = began.elapsed();
        assert!(
            took >= MAX_SILENCE && took < MAX_SILENCE + SHORTEST_INTERVAL,
            "{took:?}"
        );
        assert!(matches!(&list_watch.state, State::Known(version) if version == "1"));
    }
}
