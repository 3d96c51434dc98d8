//! User clusters of a fleet whose API servers do other than they should.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::BoxError;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// Nothing is answered.
    Silent,
    /// The same after the first request.
    Mute,
    /// A list comes at a byte a second.
    Dripping,
    /// No list ends.
    Endless,
    /// The token is refused.
    Refusing,
    /// Each request fails.
    Failing,
    /// It is another cluster than before.
    Another,
}

const ALL: [Ill; 7] = [
    Ill::Silent,
    Ill::Mute,
    Ill::Dripping,
    Ill::Endless,
    Ill::Refusing,
    Ill::Failing,
    Ill::Another,
];

/// Bytes of endless answers that a process holds.
#[derive(Clone, Default)]
pub struct Read {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Read {
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// Those of one answer.
struct Held(Read, usize);

impl Held {
    /// A part comes.
    fn part(&mut self) -> Bytes {
        static PART: [u8; 64 << 10] = [b'a'; 64 << 10];
        self.1 += PART.len();
        let now = self.0.now.fetch_add(PART.len(), Ordering::Relaxed) + PART.len();
        self.0.most.fetch_max(now, Ordering::Relaxed);
        Bytes::from_static(&PART)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.now.fetch_sub(self.1, Ordering::Relaxed);
    }
}

type Answer = Response<StreamBody<BoxStream<'static, Result<Frame<Bytes>, BoxError>>>>;

impl Ill {
    /// A client of the cluster with this kubeconfig, such as `Silent-7`.
    pub fn client(kubeconfig: &str, read: &Read) -> Option<Client> {
        let kind = kubeconfig.split('-').next();
        let kind = ALL
            .into_iter()
            .find(|known| Some(format!("{known:?}").as_str()) == kind)?;
        let (uid, read) = (kubeconfig.to_owned(), read.clone());
        let server = tower::service_fn(move |request| kind.answer(request, uid.clone(), read.clone()));
        Some(Client::new(server, "default"))
    }

    async fn answer(self, request: Request<Body>, uid: String, read: Read) -> Result<Answer, BoxError> {
        sleep(Duration::from_millis(20)).await;
        let query = request.uri().query().unwrap_or_default();
        match self {
            Self::Silent => return pending().await,
            Self::Refusing => return Ok(failure(401)),
            Self::Failing => return Ok(failure(500)),
            _ if request.uri().path() == "/api/v1/namespaces/kube-system" => {
                let metadata = json!({"name": "kube-system", "uid": uid});
                return Ok(whole(
                    200,
                    &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
                ));
            }
            _ => {}
        }
        let is_list = query.contains("limit=");
        Ok(match self {
            Self::Endless if is_list => parts(stream::unfold(Held(read, 0), async |mut held| {
                sleep(Duration::from_millis(1)).await;
                Some((held.part(), held))
            })),
            Self::Dripping if is_list => parts(stream::unfold((), async |()| {
                sleep(Duration::from_secs(1)).await;
                Some((Bytes::from_static(b" "), ()))
            })),
            _ => return pending().await,
        })
    }
}

fn parts(parts: impl stream::Stream<Item = Bytes> + Send + 'static) -> Answer {
    Response::new(StreamBody::new(parts.map(|part| Ok(Frame::data(part))).boxed()))
}

fn whole(code: u16, object: &Value) -> Answer {
    let mut answer = parts(stream::iter([Bytes::from(object.to_string())]));
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
    answer
}

fn failure(code: u16) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": "Unknown", "message": "it does so"});
    whole(code, &status)
}
