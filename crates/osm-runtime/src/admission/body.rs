//! Bodies of reviews, within a memory that they share.
//!
//! Memory is taken for what has arrived, not for what a client announces. If it is used up, the body that has been arriving for the longest is
//! given up: a body of an API server takes milliseconds, so a slow sender loses its place to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// The largest review that is read. It holds an object before and after the change.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Memory of all reviews together, in units of [`MEMORY_UNIT`]. The objects in them take a multiple of that.
const MEMORY_UNITS: usize = 16 * 1024;
const MEMORY_UNIT: usize = 1024;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    TooLarge,
    /// The connection broke off, or its bytes are no HTTP.
    Broken,
    /// It did not arrive in time.
    Late,
    /// Its memory was needed for others.
    GivenUp,
}

/// A body with its share of the memory.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) bytes: Vec<u8>,
    pub(super) memory: OwnedSemaphorePermit,
}

/// The memory of all bodies.
#[derive(Debug)]
pub(super) struct Memory {
    free: Arc<Semaphore>,
    arriving: Mutex<Arriving>,
}

/// The bodies that have not arrived completely, by age.
#[derive(Debug, Default)]
struct Arriving {
    last: u64,
    bodies: BTreeMap<u64, Share>,
}

#[derive(Debug, Default)]
struct Share {
    units: usize,
    give_up: CancellationToken,
}

impl Default for Memory {
    fn default() -> Self {
        Self::of(MEMORY_UNITS)
    }
}

impl Memory {
    fn of(units: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(units)),
            arriving: Mutex::default(),
        }
    }

    /// Reads a body within `patience`.
    pub(super) async fn read<B>(&self, body: B, patience: Duration) -> Result<Read, Unread>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let arrival = Arrival::of(self);
        let read = arrival.read(body, Instant::now() + patience);
        let read = arrival.give_up.run_until_cancelled(read).await;
        read.unwrap_or(Err(Unread::GivenUp))
    }
}

/// A body that arrives.
struct Arrival<'a> {
    memory: &'a Memory,
    number: u64,
    give_up: CancellationToken,
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.memory.arriving.lock().bodies.remove(&self.number);
    }
}

impl<'a> Arrival<'a> {
    fn of(memory: &'a Memory) -> Self {
        let share = Share::default();
        let give_up = share.give_up.clone();
        let mut arriving = memory.arriving.lock();
        arriving.last += 1;
        let number = arriving.last;
        arriving.bodies.insert(number, share);
        Self {
            memory,
            number,
            give_up,
        }
    }

    async fn read<B>(&self, mut body: B, deadline: Instant) -> Result<Read, Unread>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if announced > MAX_BODY_BYTES {
            return Err(Unread::TooLarge);
        }
        let mut bytes = Vec::new();
        let mut memory = self.take(0, deadline).await?;
        while let Some(frame) = timeout_at(deadline, body.frame())
            .await
            .map_err(|_| Unread::Late)?
        {
            let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else {
                continue;
            };
            let length = bytes.len() + data.len();
            if length > MAX_BODY_BYTES {
                return Err(Unread::TooLarge);
            }
            let missing = length.div_ceil(MEMORY_UNIT).saturating_sub(memory.num_permits());
            memory.merge(self.take(missing, deadline).await?);
            bytes.extend_from_slice(&data);
        }
        Ok(Read { bytes, memory })
    }

    /// Takes memory for this body, if necessary from older ones.
    async fn take(&self, units: usize, deadline: Instant) -> Result<OwnedSemaphorePermit, Unread> {
        let free = &self.memory.free;
        let wanted = u32::try_from(units).unwrap_or(u32::MAX);
        let taken = match free.clone().try_acquire_many_owned(wanted) {
            Ok(taken) => taken,
            Err(_) => {
                self.free_at_least(units)?;
                let taken = timeout_at(deadline, free.clone().acquire_many_owned(wanted)).await;
                taken.ok().and_then(Result::ok).ok_or(Unread::GivenUp)?
            }
        };
        if let Some(share) = self.memory.arriving.lock().bodies.get_mut(&self.number) {
            share.units += units;
        }
        Ok(taken)
    }

    /// Gives up the oldest bodies, of which this may be one. If the memory is that of reviews that have arrived, it is free as soon as they are
    /// judged.
    fn free_at_least(&self, units: usize) -> Result<(), Unread> {
        let mut arriving = self.memory.arriving.lock();
        let mut freed = 0;
        while freed < units {
            let oldest = arriving.bodies.iter().find(|(_, share)| share.units > 0);
            let Some(number) = oldest.map(|(number, _)| *number) else {
                return Ok(());
            };
            if number == self.number {
                return Err(Unread::GivenUp);
            }
            if let Some(share) = arriving.bodies.remove(&number) {
                share.give_up.cancel();
                freed += share.units;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;

    use futures::FutureExt as _;
    use futures::stream::{self, BoxStream};
    use http_body::{Frame, SizeHint};
    use http_body_util::StreamBody;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// A body of which a part arrives, and then nothing or its end.
    struct Sent {
        body: StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>,
        announced: Option<usize>,
    }

    impl Sent {
        fn parts(units: usize) -> BoxStream<'static, Result<Frame<Bytes>, Infallible>> {
            let part = |_| Ok(Frame::data(Bytes::from(vec![b' '; MEMORY_UNIT])));
            Box::pin(stream::iter((0..units).map(part)))
        }

        fn whole(units: usize) -> Self {
            Self {
                body: StreamBody::new(Self::parts(units)),
                announced: Some(units * MEMORY_UNIT),
            }
        }

        fn slow(units: usize, announced: Option<usize>) -> Self {
            let nothing = stream::pending();
            Self {
                body: StreamBody::new(Box::pin(stream::StreamExt::chain(Self::parts(units), nothing))),
                announced,
            }
        }
    }

    impl Body for Sent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Pin::new(&mut self.body).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            self.announced
                .map_or_else(SizeHint::default, |bytes| SizeHint::with_exact(bytes as u64))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_announced_takes_no_memory() {
        let memory = Memory::of(4);
        let read = |body| memory.read(body, PATIENCE);
        let mut slow = stream::FuturesUnordered::new();
        for _ in 0..10 {
            slow.push(read(Sent::slow(0, Some(MAX_BODY_BYTES))));
        }
        assert!(stream::StreamExt::next(&mut slow).now_or_never().is_none());
        assert_eq!(
            read(Sent::whole(4)).now_or_never().unwrap().unwrap().bytes.len(),
            4 * MEMORY_UNIT
        );
        let late = stream::StreamExt::collect::<Vec<_>>(slow).await;
        assert!(late.iter().all(|result| matches!(result, Err(Unread::Late))));
        assert_eq!(memory.free.available_permits(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_sender_loses_its_place() {
        let memory = Memory::of(6);
        let read = |body| memory.read(body, PATIENCE);
        let (oldest, older, new) = (
            read(Sent::slow(3, None)),
            read(Sent::slow(3, None)),
            read(Sent::whole(2)),
        );
        let newer = async {
            tokio::task::yield_now().await;
            new.await
        };
        let (oldest, older, newer) = tokio::join!(oldest, older, newer);
        assert_eq!(oldest.unwrap_err(), Unread::GivenUp);
        assert_eq!(newer.unwrap().bytes.len(), 2 * MEMORY_UNIT);
        assert_eq!(older.unwrap_err(), Unread::Late);
        // One that needs more than there is gives itself up.
        assert_eq!(read(Sent::whole(7)).await.unwrap_err(), Unread::GivenUp);
        assert_eq!(memory.free.available_permits(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_reviews_that_are_judged_and_none_is_too_large() {
        let memory = Memory::of(6);
        let read = |body| memory.read(body, PATIENCE);
        let judged = read(Sent::whole(6)).await.unwrap();
        let judging = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(judged);
        };
        let (next, ()) = tokio::join!(read(Sent::whole(6)), judging);
        assert_eq!(next.unwrap().memory.num_permits(), 6);

        let memory = Memory::default();
        let read = |body| memory.read(body, PATIENCE);
        let announced = read(Sent::slow(0, Some(MAX_BODY_BYTES + 1)));
        assert_eq!(announced.now_or_never().unwrap().unwrap_err(), Unread::TooLarge);
        let units = MAX_BODY_BYTES / MEMORY_UNIT;
        assert_eq!(
            read(Sent::slow(units + 1, None)).await.unwrap_err(),
            Unread::TooLarge
        );
        assert_eq!(
            read(Sent::whole(units)).await.unwrap().bytes.len(),
            MAX_BODY_BYTES
        );
    }
}
