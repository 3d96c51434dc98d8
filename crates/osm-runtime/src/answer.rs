//! The body of an answer, which ends within a time, and for a user cluster of a fleet within a number of bytes.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use osm_api::Reason;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::PollSemaphore;
use tower::BoxError;
use tower_http::timeout::{DeadlineBody, TimeoutBody, TimeoutError};

use crate::bounds::{ANSWER, Bounds, LINE, SMALL, TIME_TO_BE_LARGE};
use crate::transport::AnswerBody;

/// An answer may take so many times as long as its beginning. Otherwise one of which a byte comes now and then
/// never ends.
const TIMES: u32 = 3;

pub(crate) struct Answer {
    body: Pin<Box<TimeoutBody<DeadlineBody<AnswerBody>>>>,
    is_watch: bool,
    /// With what was asked for.
    bounds: Option<(Bounds, String)>,
    /// Of the answer, or of a watch since the last end of a line: so much is kept until it is whole.
    bytes: usize,
    turn: Option<Turn>,
}

/// That of an answer, or of an event, to be large.
struct Turn {
    queue: PollSemaphore,
    permit: Option<OwnedSemaphorePermit>,
    end: Pin<Box<Sleep>>,
}

impl Answer {
    /// `timeout` is that of its beginning, and of each part; `None`: it is a watch.
    pub(crate) fn new(body: AnswerBody, timeout: Option<Duration>, bounds: Option<(Bounds, String)>) -> Self {
        // A connection that many requests share lives on while one of the answers stalls. A watch is silent as
        // long as nothing changes; kube itself gives up one that is silent for too long.
        let [of_part, of_whole] = timeout.map_or([Duration::MAX; 2], |part| [part, TIMES * part]);
        Self {
            body: Box::pin(TimeoutBody::new(of_part, DeadlineBody::new(of_whole, body))),
            is_watch: timeout.is_none(),
            bounds,
            bytes: 0,
            turn: None,
        }
    }

    fn late(&self) -> BoxError {
        const PROBLEM: &str = "the answer has begun, and does not end";
        if let Some((bounds, what)) = &self.bounds {
            bounds.late(&format_args!("{what}: {PROBLEM}"));
        }
        PROBLEM.into()
    }

    /// Ready once more may come. What is large takes turns with that of all clusters, and has a time for it, so
    /// that clusters that send it hold up only each other.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Some((bounds, _)) = self.bounds.as_ref().filter(|_| self.bytes > SMALL) else {
            self.turn = None;
            return Poll::Ready(Ok(()));
        };
        let turn = self.turn.get_or_insert_with(|| Turn {
            queue: PollSemaphore::new(bounds.large()),
            permit: None,
            end: Box::pin(sleep(TIME_TO_BE_LARGE)),
        });
        if turn.end.as_mut().poll(context).is_ready() {
            let what = format!("{} KiB, and does not end in time", SMALL >> 10);
            return Poll::Ready(Err(self.too_large(&what)));
        }
        if turn.permit.is_none() {
            turn.permit = ready!(turn.queue.poll_acquire(context));
        }
        Poll::Ready(Ok(()))
    }

    /// Counts what has come.
    fn count(&mut self, data: &[u8]) -> Result<(), BoxError> {
        let is_end = |byte: &u8| *byte == b'\n';
        let line_end = self.is_watch.then(|| data.iter().rposition(is_end)).flatten();
        self.bytes = match line_end {
            Some(end) => data.len() - end,
            None => self.bytes + data.len(),
        };
        let Some((bounds, _)) = &self.bounds else {
            return Ok(());
        };
        bounds.answered();
        let most = if self.is_watch { LINE } else { ANSWER };
        if self.bytes <= most {
            return Ok(());
        }
        Err(self.too_large(&format!("{} MiB", most >> 20)))
    }

    /// Reports that it has more than this.
    fn too_large(&self, most: &str) -> BoxError {
        let part = if self.is_watch { "an event" } else { "the answer" };
        let mut problem = format!("{part} has more than {most}");
        if let Some((bounds, what)) = &self.bounds {
            problem = format!("{what}: {problem}");
            let advice = "delete objects that are not needed, or make them smaller";
            bounds.note(Reason::TooLarge, what, format!("{problem}; {advice}"));
        }
        problem.into()
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Err(problem) = ready!(self.poll_turn(context)) {
            return Poll::Ready(Some(Err(problem)));
        }
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
