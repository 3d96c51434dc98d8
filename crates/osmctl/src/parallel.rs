//! Work on several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Result, anyhow};

/// More threads would compete with everything else on a developer's machine.
const MAX_THREADS: usize = 8;

/// The results of `work` for each item, in the order of the items. Each thread takes the next item when it has finished one.
///
/// # Errors
/// `work` panics.
pub fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(MAX_THREADS).min(items.len());
    let (next, work) = (AtomicUsize::new(0), &work);
    let run = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            match items.get(index) {
                Some(item) => done.push((index, work(item))),
                None => return done,
            }
        }
    };
    let results = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let joined = workers.into_iter().map(|worker| {
            worker
                .join()
                .map_err(|_| anyhow!("a check failed; report this bug with the profile"))
        });
        joined.collect::<Result<Vec<_>>>()
    })?;
    let mut results: Vec<_> = results.into_iter().flatten().collect();
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        let failed = map(&[1, 2, 3], |item| assert_ne!(*item, 2));
        assert!(failed.unwrap_err().to_string().contains("report this bug"));
    }
}
