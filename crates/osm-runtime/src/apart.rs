//! Work in a thread of its own.

use std::panic::resume_unwind;
use std::thread::{self, Builder, ScopedJoinHandle};

/// Does this in a thread that ends with it, and waits for it. Parsing YAML takes hundreds of kilobytes of stack. A thread that goes on would
/// keep them in memory. If the system has no thread left, it happens in this one.
pub fn apart<T: Send>(work: impl Fn() -> T + Sync) -> T {
    apart_in(Builder::new(), work)
}

fn apart_in<T: Send>(builder: Builder, work: impl Fn() -> T + Sync) -> T {
    let done = thread::scope(|scope| {
        let spawned = builder.spawn_scoped(scope, &work);
        spawned.ok().map(ScopedJoinHandle::join)
    });
    match done {
        Some(Ok(done)) => done,
        Some(Err(panic)) => resume_unwind(panic),
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_happens_in_another_thread_and_panics_here() {
        let here = thread::current().id();
        assert_ne!(apart(|| thread::current().id()), here);
        let panicked = std::panic::catch_unwind(|| apart(|| panic!("no")));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"no"));
    }

    #[test]
    fn without_a_thread_it_happens_in_this_one() {
        let impossible = Builder::new().stack_size(1 << 60);
        assert_eq!(
            apart_in(impossible, || thread::current().id()),
            thread::current().id()
        );
    }
}
