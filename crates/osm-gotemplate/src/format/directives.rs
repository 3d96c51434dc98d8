//! Formats of `printf`: flags, widths, precisions and argument indexes. It follows `doPrintf` of Go's `fmt/print.go`, since what
//! Go prints for malformed directives depends on the order of its checks.

use super::flags::Flags;
use super::printer::Printer;
use crate::problem::Problem;
use crate::value::Value;

/// Largest width and precision.
const LARGEST: i64 = 1_000_000;

struct Scanner<'f, 'v> {
    format: &'f str,
    at: usize,
    values: &'v [Value],
    /// The argument that the next directive prints.
    next: usize,
    /// Some directive had an argument index.
    reordered: bool,
    /// The directive has no argument index that is wrong.
    good_index: bool,
    /// The last that was read is an argument index.
    after_index: bool,
}

impl Printer<'_> {
    /// Go's `Sprintf`.
    pub(super) fn directives(&mut self, format: &str, values: &[Value]) -> Result<(), Problem> {
        let mut scanner = Scanner {
            format,
            at: 0,
            values,
            next: 0,
            reordered: false,
            good_index: true,
            after_index: false,
        };
        while let Some(rest) = format.get(scanner.at..).filter(|rest| !rest.is_empty()) {
            self.budget.step(1)?;
            let (text, _) = rest.split_once('%').unwrap_or((rest, ""));
            self.write(text)?;
            if text.len() == rest.len() {
                break;
            }
            scanner.at = scanner.at.saturating_add(text.len()).saturating_add(1);
            self.directive(&mut scanner)?;
        }
        let unused = values.get(scanner.next..).unwrap_or_default();
        if !scanner.reordered && !unused.is_empty() {
            self.flags = Flags::default();
            self.write("%!(EXTRA ")?;
            for (index, value) in unused.iter().enumerate() {
                if index > 0 {
                    self.write(", ")?;
                }
                if let Some(of) = value.type_of() {
                    self.write(&format!("{of}="))?;
                }
                self.argument(value, 'v')?;
            }
            self.write(")")?;
        }
        Ok(())
    }

    fn directive(&mut self, scanner: &mut Scanner<'_, '_>) -> Result<(), Problem> {
        scanner.good_index = true;
        self.flags = scanner.flags();
        if !scanner.is_simple() {
            scanner.after_index = scanner.index();
            self.width(scanner)?;
            self.precision(scanner)?;
            if !scanner.after_index {
                scanner.after_index = scanner.index();
            }
        }
        let Some(verb) = scanner.rest().chars().next() else {
            return self.write("%!(NOVERB)");
        };
        scanner.at = scanner.at.saturating_add(verb.len_utf8());
        if verb == '%' {
            return self.write("%");
        }
        if !scanner.good_index {
            return self.write(&format!("%!{verb}(BADINDEX)"));
        }
        let Some(value) = scanner.values.get(scanner.next) else {
            return self.write(&format!("%!{verb}(MISSING)"));
        };
        if matches!(verb, 'v' | 'w') {
            self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
            self.flags.plus_v = std::mem::take(&mut self.flags.plus);
        }
        scanner.next = scanner.next.saturating_add(1);
        self.argument(value, verb)
    }

    fn width(&mut self, scanner: &mut Scanner<'_, '_>) -> Result<(), Problem> {
        if !scanner.eat('*') {
            self.flags.width = scanner.number();
            if scanner.after_index && self.flags.width.is_some() {
                scanner.good_index = false; // `%[3]2d`
            }
            return Ok(());
        }
        let width = scanner.number_argument();
        if width.is_none() {
            self.write("%!(BADWIDTH)")?;
        }
        if width.is_some_and(i64::is_negative) {
            self.flags.minus = true;
            self.flags.zero = false;
        }
        self.flags.width = width.and_then(|width| usize::try_from(width.unsigned_abs()).ok());
        scanner.after_index = false;
        Ok(())
    }

    fn precision(&mut self, scanner: &mut Scanner<'_, '_>) -> Result<(), Problem> {
        if scanner.rest().len() < 2 || !scanner.eat('.') {
            return Ok(());
        }
        if scanner.after_index {
            scanner.good_index = false; // `%[3].2d`
        }
        scanner.after_index = scanner.index();
        if !scanner.eat('*') {
            self.flags.precision = Some(scanner.number().unwrap_or(0));
            return Ok(());
        }
        let precision = scanner.number_argument();
        self.flags.precision = precision.and_then(|precision| usize::try_from(precision).ok());
        if self.flags.precision.is_none() {
            self.write("%!(BADPREC)")?;
        }
        scanner.after_index = false;
        Ok(())
    }
}

impl<'f> Scanner<'f, '_> {
    fn rest(&self) -> &'f str {
        self.format.get(self.at..).unwrap_or_default()
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        if found {
            self.at = self.at.saturating_add(c.len_utf8());
        }
        found
    }

    fn flags(&mut self) -> Flags {
        let mut flags = Flags::default();
        while let Some(c) = self.rest().chars().next() {
            match c {
                '#' => flags.sharp = true,
                '0' => flags.zero = true,
                '+' => flags.plus = true,
                '-' => flags.minus = true,
                ' ' => flags.space = true,
                _ => break,
            }
            self.at = self.at.saturating_add(1);
        }
        flags
    }

    /// Whether a verb follows at once, and an argument for it.
    fn is_simple(&self) -> bool {
        self.rest().starts_with(|c: char| c.is_ascii_lowercase()) && self.next < self.values.len()
    }

    /// A number. If it is too large, the rest of the format is skipped.
    fn number(&mut self) -> Option<usize> {
        let rest = self.rest();
        let (number, length) = number(rest, rest.len());
        self.at = self.at.saturating_add(length);
        number
    }

    /// An argument index, e.g. `[3]`. Returns whether there is one that is well-formed.
    fn index(&mut self) -> bool {
        let rest = self.rest();
        if !rest.starts_with('[') {
            return false;
        }
        self.reordered = true;
        let close = if rest.len() < 3 { None } else { rest.find(']') };
        let Some(close) = close else {
            self.at = self.at.saturating_add(1);
            self.good_index = false;
            return false;
        };
        self.at = self.at.saturating_add(close).saturating_add(1);
        let inside = rest.get(1..close).unwrap_or_default();
        let (index, length) = number(inside, inside.len());
        let Some(index) = index.filter(|_| length == inside.len()) else {
            self.good_index = false;
            return false;
        };
        match index.checked_sub(1).filter(|index| *index < self.values.len()) {
            Some(index) => self.next = index,
            None => self.good_index = false,
        }
        true
    }

    /// The argument of `*`.
    fn number_argument(&mut self) -> Option<i64> {
        let value = self.values.get(self.next)?;
        self.next = self.next.saturating_add(1);
        let number = match value.underlying() {
            Value::Int(number, _) => *number,
            Value::Uint(number, _) => i64::try_from(*number).ok()?,
            _ => return None,
        };
        (-LARGEST..=LARGEST).contains(&number).then_some(number)
    }
}

/// The number at the start of a text, and how many bytes it takes: all, if the number is too large.
fn number(text: &str, end: usize) -> (Option<usize>, usize) {
    let mut number: Option<usize> = None;
    for (at, byte) in text.bytes().enumerate() {
        if !byte.is_ascii_digit() {
            return (number, at);
        }
        let before = number.unwrap_or(0);
        if i64::try_from(before).unwrap_or(i64::MAX) > LARGEST {
            return (None, end);
        }
        let digit = usize::from(byte.saturating_sub(b'0'));
        number = Some(before.saturating_mul(10).saturating_add(digit));
    }
    (number, text.len())
}
