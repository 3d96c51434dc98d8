//! What judging or rendering one profile may take, as `docs/limits.md` says. Only fuzzers hold it to that:
//! they do one thing at a time.

use std::alloc::System;
use std::time::Duration;

use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait as _};
use rustix::time::{ClockId, clock_gettime};

#[cfg_attr(feature = "libfuzzer", global_allocator)]
static ALLOCATOR: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// Bytes.
const MAX_MEMORY: usize = 64 * 1024 * 1024;

/// Of a processor. A build that is not optimised takes many times as long, so it is not held to this.
const MAX_TIME: Duration = Duration::from_secs(2);

/// The samples of a profile together may take as long as so many renderings.
const SAMPLES: u32 = 4;

/// Does `work`.
///
/// # Panics
/// It took more memory or time than one profile may.
pub(crate) fn within<T>(what: &str, work: impl FnOnce() -> T) -> T {
    within_time(what, MAX_TIME, work)
}

/// Does `work` with the samples of a profile.
///
/// # Panics
/// As [`within`], with the time of all samples.
pub(crate) fn within_samples<T>(what: &str, work: impl FnOnce() -> T) -> T {
    within_time(what, MAX_TIME * SAMPLES, work)
}

fn within_time<T>(what: &str, most: Duration, work: impl FnOnce() -> T) -> T {
    ALLOCATOR.reset_peak_memory();
    let (memory, started) = (ALLOCATOR.get_peak_memory(), now());
    let result = work();
    let time = now().saturating_sub(started);
    let memory = ALLOCATOR.get_peak_memory().saturating_sub(memory);
    assert!(memory <= MAX_MEMORY, "{what} took {memory} bytes");
    assert!(cfg!(debug_assertions) || time <= most, "{what} took {time:?}");
    result
}

/// Time of a processor that this thread has taken.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.try_into(), time.tv_nsec.try_into());
    Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
}
