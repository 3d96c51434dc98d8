//! Bounds of what an API server answers, in bytes and in time. They hold before anything is decoded, whatever the server sends.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tower::BoxError;

use crate::Metrics;
use crate::object::MAX_OBJECT_BYTES;

/// The largest page of a list. A larger one is asked for again with fewer objects, see [`crate::list_watch`]. Two lists of a cluster are read
/// at the same time, so that their pages take at most twice as much.
pub const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;

/// The largest answer that is one object, and the largest line of a watch: an object and its envelope.
pub const MAX_ANSWER_BYTES: usize = MAX_OBJECT_BYTES + 1024;

/// The largest answer that is an error. Its message becomes part of a log line.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// The time for the body of an answer after its headers, and for each line of a watch after its first byte. An API server sends an answer at
/// once; half a minute is for large ones over slow networks.
pub const MAX_DURATION: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Answer,
    Line,
}

/// The bounds of one answer.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    unit: Unit,
    bytes: usize,
    metrics: Metrics,
    /// Value of the label `cluster`.
    label: &'static str,
    /// As messages name the cluster.
    cluster: &'static str,
    verb: &'static str,
    resource: String,
}

impl Bounds {
    /// `verb` and `resource` as RBAC names them.
    pub(crate) fn new(
        metrics: &Metrics,
        (label, cluster): (&'static str, &'static str),
        (verb, resource): (&'static str, String),
        is_success: bool,
    ) -> Self {
        let (unit, bytes) = match verb {
            _ if !is_success => (Unit::Answer, MAX_ERROR_BYTES),
            "watch" => (Unit::Line, MAX_ANSWER_BYTES),
            "list" | "other" => (Unit::Answer, MAX_LIST_BYTES),
            _ => (Unit::Answer, MAX_ANSWER_BYTES),
        };
        Self {
            unit,
            bytes,
            metrics: metrics.clone(),
            label,
            cluster,
            verb,
            resource,
        }
    }

    fn exceeded(&self, limit: Limit) -> BoxError {
        self.metrics
            .answer_refused(self.label, &self.resource, limit.label());
        Box::new(Exceeded {
            cluster: self.cluster,
            verb: self.verb,
            resource: self.resource.clone(),
            limit,
        })
    }
}

/// An answer that exceeds its bounds.
#[derive(Debug, thiserror::Error)]
#[error("the API server of {cluster} {limit} for {verb} {resource}; check that server")]
pub(crate) struct Exceeded {
    cluster: &'static str,
    verb: &'static str,
    resource: String,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Limit {
    #[error("sent more than {0} bytes")]
    Bytes(usize),
    #[error("took longer than {0:?} to send the answer")]
    Time(Duration),
}

impl Limit {
    fn label(self) -> &'static str {
        match self {
            Self::Bytes(_) => "bytes",
            Self::Time(_) => "time",
        }
    }
}

/// Whether an answer was refused because of its size or its time.
pub(crate) fn is_exceeded(error: &(dyn Error + 'static)) -> bool {
    limit_of(error).is_some()
}

/// Whether an answer was refused because of its size.
pub(crate) fn is_too_large(error: &(dyn Error + 'static)) -> bool {
    matches!(limit_of(error), Some(Limit::Bytes(_)))
}

fn limit_of(error: &(dyn Error + 'static)) -> Option<Limit> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
            return Some(exceeded.limit);
        }
        next = error.source();
    }
    None
}

/// The body of an answer within its bounds.
pub(crate) struct Bounded<B> {
    body: Pin<Box<B>>,
    bounds: Bounds,
    /// Bytes of the answer, or of its current line.
    read: usize,
    /// Runs while an answer or a line is incomplete.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> Bounded<B> {
    pub(crate) fn new(body: B, bounds: Bounds) -> Self {
        let deadline = (bounds.unit == Unit::Answer).then(|| Box::pin(tokio::time::sleep(MAX_DURATION)));
        Self {
            body: Box::pin(body),
            bounds,
            read: 0,
            deadline,
        }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), BoxError> {
        let last_line = match self.bounds.unit {
            Unit::Answer => None,
            Unit::Line => data.iter().rposition(|byte| *byte == b'\n'),
        };
        let at_end = match last_line {
            None => {
                self.read += data.len();
                self.read
            }
            Some(end) => {
                let complete = self.read + end;
                self.read = data.len() - end - 1;
                self.deadline = None;
                complete.max(self.read)
            }
        };
        if at_end > self.bounds.bytes {
            return Err(self.bounds.exceeded(Limit::Bytes(self.bounds.bytes)));
        }
        if self.read > 0 && self.deadline.is_none() {
            self.deadline = Some(Box::pin(tokio::time::sleep(MAX_DURATION)));
        }
        Ok(())
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(self.bounds.exceeded(Limit::Time(MAX_DURATION)))));
        }
        let frame = ready!(self.body.as_mut().poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(Into::into)?;
            if let Some(data) = frame.data_ref() {
                self.count(data)?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use futures::stream::{self, Stream, StreamExt};

    use super::*;

    /// A body of these pieces, with a pause before each.
    struct Pieces(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

    impl Pieces {
        fn new(pieces: Vec<Vec<u8>>, pause: Duration) -> Self {
            Self(
                stream::iter(pieces)
                    .then(move |piece| async move {
                        tokio::time::sleep(pause).await;
                        Bytes::from(piece)
                    })
                    .boxed(),
            )
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0
                .as_mut()
                .poll_next(context)
                .map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
        }
    }

    /// How many bytes come through, and the error at the end.
    async fn read(verb: &'static str, pieces: Vec<Vec<u8>>, pause: Duration) -> (usize, Option<String>) {
        let metrics = Metrics::new().unwrap();
        let bounds = Bounds::new(
            &metrics,
            ("worker", "the worker cluster"),
            (verb, "secrets".to_owned()),
            true,
        );
        let mut body = Bounded::new(Pieces::new(pieces, pause), bounds);
        let mut bytes = 0;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame {
                Ok(frame) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Err(error) => {
                    let counted = String::from_utf8(metrics.encode()).unwrap();
                    assert!(
                        counted.contains(r#"osm_api_responses_refused_total{cluster="worker""#),
                        "{counted}"
                    );
                    return (bytes, Some(error.to_string()));
                }
            }
        }
        (bytes, None)
    }

    const MIB: usize = 1024 * 1024;

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_at_its_bound() {
        let piece = || vec![b'x'; MIB];
        for (verb, mib) in [("get", 4), ("list", 16), ("update", 4)] {
            let fits = read(verb, vec![piece(); mib], Duration::ZERO).await;
            assert_eq!(fits, (mib * MIB, None), "{verb}");
            let (bytes, error) = read(verb, vec![piece(); mib + 9], Duration::ZERO).await;
            assert_eq!(bytes, mib * MIB, "{verb}");
            let error = error.unwrap();
            assert!(
                error.starts_with("the API server of the worker cluster sent more than")
                    && error.ends_with(&format!("bytes for {verb} secrets; check that server")),
                "{error}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_bounded_by_the_line() {
        let mut line = vec![b'x'; MIB];
        line.push(b'\n');
        let lines = vec![line; 40];
        let all = 40 * (MIB + 1);
        assert_eq!(read("watch", lines, Duration::from_secs(100)).await, (all, None));
        let (bytes, error) = read("watch", vec![vec![b'x'; MIB]; 40], Duration::ZERO).await;
        assert_eq!(bytes, 4 * MIB);
        assert!(error.is_some());
        // Also where its end comes in the same piece.
        let mut large = vec![b'x'; 5 * MIB];
        large.push(b'\n');
        assert!(read("watch", vec![large], Duration::ZERO).await.1.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_comes_byte_by_byte_ends_in_time() {
        for verb in ["list", "get", "watch"] {
            let (bytes, error) = read(verb, vec![b"x".to_vec(); 1000], Duration::from_secs(1)).await;
            assert!((28..=31).contains(&bytes), "{verb}: {bytes}");
            assert!(error.unwrap().contains("took longer than 30s"), "{verb}");
        }
    }
}
