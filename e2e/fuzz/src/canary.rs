//! Values that must not come back in a message.

/// Stands for a credential.
pub(crate) const WORD: &str = "hunter2";

/// A number that is as good as a credential.
const NUMBER: u64 = 7_272_772_727;

/// Whether an input itself has a canary, so that finding one proves nothing.
pub(crate) fn is_in(input: &str) -> bool {
    input.contains(WORD) || input.contains(&NUMBER.to_string())
}

/// Checks that a message repeats no canary.
pub(crate) fn check(message: &str) {
    assert!(!is_in(message), "a message repeats a value: {message}");
}
