//! Work in a thread of its own.

use std::panic::resume_unwind;
use std::thread;

/// Does this in a thread that ends with it, and waits for it. Parsing YAML takes hundreds of kilobytes of stack. A thread that goes on would
/// keep them in memory.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| resume_unwind(panic))
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
}
