//! What a value takes in memory, by its JSON or its `Debug`.

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;

/// A value in a tree takes more than its text: `0` in a list is two bytes of JSON, and one value of `serde_json`.
const BYTES_OF_VALUE: usize = 72;

/// About how many bytes a value takes: its JSON, and `BYTES_OF_VALUE` for each value in it.
pub fn of_json(value: &impl Serialize) -> usize {
    let mut weight = Weight::default();
    // What has no JSON is not kept.
    match serde_json::to_writer(&mut weight, value) {
        Ok(()) => weight.bytes + (weight.separators + 1) * BYTES_OF_VALUE,
        Err(_) => usize::MAX,
    }
}

/// About how many bytes the texts of a value take, by what its `Debug` shows.
pub fn of_debug(value: &impl fmt::Debug) -> usize {
    struct Length(usize);
    impl fmt::Write for Length {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0 += text.len();
            Ok(())
        }
    }
    let mut length = Length(0);
    match fmt::Write::write_fmt(&mut length, format_args!("{value:?}")) {
        Ok(()) => length.0,
        Err(_) => usize::MAX,
    }
}

#[derive(Default)]
struct Weight {
    bytes: usize,
    /// Each list, map, item and field begins with one.
    separators: usize,
    in_string: bool,
    escaped: bool,
}

impl Write for Weight {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.bytes += text.len();
        for byte in text {
            match (byte, self.in_string) {
                _ if self.escaped => self.escaped = false,
                (b'\\', true) => self.escaped = true,
                (b'"', _) => self.in_string = !self.in_string,
                (b',' | b'[' | b'{', false) => self.separators += 1,
                _ => {}
            }
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn values_count_and_texts_do_not_look_like_values() {
        for (value, separators) in [
            (Value::Null, 0),
            (json!([0, 0, 0]), 3),
            (json!({"a": {"b": 1}, "c": "x"}), 3),
            (json!("[[[,,,{{{ \" \\"), 0),
        ] {
            let text = value.to_string();
            assert_eq!(
                of_json(&value),
                text.len() + BYTES_OF_VALUE * (separators + 1),
                "{text}"
            );
        }
        assert_eq!(of_debug(&["a", "bc"]), r#"["a", "bc"]"#.len());
        let dense = json!(vec![0; 1000]);
        assert!(of_json(&dense) > 1000 * size_of::<Value>());
    }
}
