//! The body of an answer, which ends within a time, and for a user cluster of a fleet within a number of bytes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use kube::client::Body;
use osm_api::Reason;
use tokio::sync::OwnedSemaphorePermit;
use tower::BoxError;
use tower_http::timeout::{DeadlineBody, TimeoutBody, TimeoutError};

use crate::bounds::{ANSWER, Bounds, LINE};

/// An answer may take so many times as long as its beginning. Otherwise one of which a byte comes now and then
/// never ends.
const TIMES: u32 = 3;

pub(crate) struct Answer {
    body: Pin<Box<TimeoutBody<DeadlineBody<Body>>>>,
    is_watch: bool,
    /// With what was asked for.
    bounds: Option<(Bounds, String)>,
    /// Of the answer, or of a watch since the last end of a line: so much is kept until it is whole.
    bytes: usize,
    _list: Option<OwnedSemaphorePermit>,
}

impl Answer {
    /// `timeout` is that of its beginning, and of each part; `None`: it is a watch. `list` is held until its end.
    pub(crate) fn new(
        body: Body,
        timeout: Option<Duration>,
        bounds: Option<(Bounds, String)>,
        list: Option<OwnedSemaphorePermit>,
    ) -> Self {
        // A connection that many requests share lives on while one of the answers stalls. A watch is silent as
        // long as nothing changes; kube itself gives up one that is silent for too long.
        let [of_part, of_whole] = timeout.map_or([Duration::MAX; 2], |part| [part, TIMES * part]);
        Self {
            body: Box::pin(TimeoutBody::new(of_part, DeadlineBody::new(of_whole, body))),
            is_watch: timeout.is_none(),
            bounds,
            bytes: 0,
            _list: list,
        }
    }

    fn late(&self) -> BoxError {
        const PROBLEM: &str = "the answer has begun, and does not end";
        if let Some((bounds, what)) = &self.bounds {
            bounds.late(&format_args!("{what}: {PROBLEM}"));
        }
        PROBLEM.into()
    }

    /// Counts what has come.
    fn count(&mut self, data: &[u8]) -> Result<(), BoxError> {
        let line_end = data.iter().rposition(|byte| self.is_watch && *byte == b'\n');
        self.bytes = match line_end {
            Some(end) => data.len() - end,
            None => self.bytes + data.len(),
        };
        let (most, part) = if self.is_watch {
            (LINE, "an event")
        } else {
            (ANSWER, "the answer")
        };
        let Some((bounds, what)) = &self.bounds else {
            return Ok(());
        };
        bounds.answered();
        if self.bytes <= most {
            return Ok(());
        }
        let problem = format!("{what}: {part} has more than {} MiB", most >> 20);
        let advice = "delete objects that are not needed, or make them smaller";
        bounds.note(Reason::TooLarge, what, format!("{problem}; {advice}"));
        Err(problem.into())
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(self.body.as_mut().poll_frame(context)).map(|frame| {
            let frame = frame.map_err(|problem| {
                if problem.is::<TimeoutError>() {
                    self.late()
                } else {
                    problem
                }
            })?;
            frame.data_ref().map_or(Ok(()), |data| self.count(data))?;
            Ok(frame)
        });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
