//! Flags, width and precision of a directive, and the texts, integers and padding that they change.

use super::printer::Printer;
use super::quotes;
use crate::problem::Problem;

/// Flags, width and precision of a directive, e.g. `%+8.3f`.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
    pub(super) minus: bool,
    pub(super) plus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// `%+v`
    pub(super) plus_v: bool,
    /// `%#v`
    pub(super) sharp_v: bool,
}

/// The base of an integer, with its prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Binary,
    Octal,
    Decimal,
    Hex,
    UpperHex,
}

impl Printer<'_> {
    /// Writes a text, filled up to the width.
    pub(super) fn pad(&mut self, text: &str) -> Result<(), Problem> {
        let Some(width) = self.flags.width.filter(|width| *width > 0) else {
            return self.write(text);
        };
        let missing = width.saturating_sub(text.chars().count());
        if self.flags.minus {
            self.write(text)?;
            self.fill(missing)
        } else {
            self.fill(missing)?;
            self.write(text)
        }
    }

    /// Writes spaces, or zeros if the flags say so.
    pub(super) fn fill(&mut self, count: usize) -> Result<(), Problem> {
        let with = if self.flags.zero && !self.flags.minus {
            '0'
        } else {
            ' '
        };
        self.repeat(with, count)
    }

    fn pad_with_spaces(&mut self, text: &str) -> Result<(), Problem> {
        let zero = std::mem::take(&mut self.flags.zero);
        let done = self.pad(text);
        self.flags.zero = zero;
        done
    }

    /// `text` cut to as many characters as the precision allows.
    fn truncated<'t>(&self, text: &'t str) -> &'t str {
        let end = self
            .flags
            .precision
            .and_then(|count| text.char_indices().nth(count));
        end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
    }

    /// `%s`
    pub(super) fn text(&mut self, text: &str) -> Result<(), Problem> {
        self.pad(self.truncated(text))
    }

    /// `%q`
    pub(super) fn quoted(&mut self, text: &str) -> Result<(), Problem> {
        let text = self.truncated(text);
        self.budget.copy(text.len())?;
        if self.flags.sharp && quotes::can_backquote(text) {
            self.pad(&format!("`{text}`"))
        } else {
            self.pad(&quotes::quote(text, self.flags.plus))
        }
    }

    /// `%x` of a text: its bytes.
    pub(super) fn hex(&mut self, bytes: &[u8], upper: bool) -> Result<(), Problem> {
        let bytes = self
            .flags
            .precision
            .and_then(|count| bytes.get(..count))
            .unwrap_or(bytes);
        let Flags {
            sharp, space, minus, ..
        } = self.flags;
        let mut length = bytes.len().saturating_mul(2);
        if bytes.is_empty() {
            return self.fill(self.flags.width.unwrap_or(0));
        }
        if space {
            length = length
                .saturating_mul(if sharp { 2 } else { 1 })
                .saturating_add(bytes.len())
                .saturating_sub(1);
        } else if sharp {
            length = length.saturating_add(2);
        }
        let missing = self.flags.width.unwrap_or(0).saturating_sub(length);
        if !minus {
            self.fill(missing)?;
        }
        self.budget.copy(length)?;
        let (prefix, digits) = if upper {
            ("0X", b"0123456789ABCDEF")
        } else {
            ("0x", b"0123456789abcdef")
        };
        let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().map_or('0', char::from);
        for (index, byte) in bytes.iter().enumerate() {
            if space && index > 0 {
                self.push(' ');
            }
            if sharp && (space || index == 0) {
                self.push_str(prefix);
            }
            self.push(digit(byte >> 4));
            self.push(digit(byte & 15));
        }
        if minus {
            self.fill(missing)?;
        }
        Ok(())
    }

    /// An integer of which the absolute value is given. `with_o` puts `0o` before it.
    pub(super) fn integer(
        &mut self,
        negative: bool,
        absolute: u64,
        base: Base,
        with_o: bool,
    ) -> Result<(), Problem> {
        let Flags {
            width,
            precision,
            plus,
            space,
            sharp,
            zero,
            minus,
            ..
        } = self.flags;
        let sign = if negative {
            "-"
        } else if plus {
            "+"
        } else if space {
            " "
        } else {
            ""
        };
        let least = match (precision, width) {
            (Some(0), _) if absolute == 0 => return self.repeat(' ', width.unwrap_or(0)),
            (Some(precision), _) => precision,
            (None, Some(width)) if zero && !minus => width.saturating_sub(sign.len()),
            _ => 0,
        };
        let digits = match base {
            Base::Binary => format!("{absolute:b}"),
            Base::Octal => format!("{absolute:o}"),
            Base::Decimal => absolute.to_string(),
            Base::Hex => format!("{absolute:x}"),
            Base::UpperHex => format!("{absolute:X}"),
        };
        let zeros = least.saturating_sub(digits.len());
        let prefix = match base {
            _ if !sharp => "",
            Base::Binary => "0b",
            Base::Octal if zeros > 0 || digits.starts_with('0') => "",
            Base::Octal => "0",
            Base::Decimal => "",
            Base::Hex => "0x",
            Base::UpperHex => "0X",
        };
        let with_o = if with_o { "0o" } else { "" };
        self.budget.copy(zeros)?;
        self.pad_with_spaces(&format!("{sign}{with_o}{prefix}{}{digits}", "0".repeat(zeros)))
    }

    /// `%c`
    pub(super) fn character(&mut self, code: u64) -> Result<(), Problem> {
        self.pad(character(code).encode_utf8(&mut [0; 4]))
    }

    /// `%q` of an integer.
    pub(super) fn quoted_character(&mut self, code: u64) -> Result<(), Problem> {
        self.pad(&quotes::quote_char(character(code), self.flags.plus))
    }

    /// `%U`
    pub(super) fn unicode(&mut self, code: u64) -> Result<(), Problem> {
        let least = self.flags.precision.unwrap_or(0).max(4);
        self.budget.copy(least)?;
        let digits = format!("{code:X}");
        let mut text = format!("U+{}{digits}", "0".repeat(least.saturating_sub(digits.len())));
        let printable = u32::try_from(code)
            .ok()
            .and_then(char::from_u32)
            .filter(|c| quotes::is_print(*c));
        if let Some(c) = printable.filter(|_| self.flags.sharp) {
            text.push_str(" '");
            text.push(c);
            text.push('\'');
        }
        self.pad_with_spaces(&text)
    }

    /// A float of 64 or 32 bits. `precision` is that of a directive without one; none writes as few digits as identify the number.
    pub(super) fn float(
        &mut self,
        value: f64,
        is_32: bool,
        verb: char,
        precision: Option<usize>,
    ) -> Result<(), Problem> {
        let precision = self.flags.precision.or(precision);
        self.budget.copy(precision.unwrap_or(0).saturating_add(24))?;
        let number = super::floats::format(value, is_32, verb, precision);
        let (sign, digits) = match number.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None if self.flags.space && !self.flags.plus => (" ", number.as_str()),
            None if self.flags.plus || value.is_infinite() => ("+", number.as_str()),
            None => ("", number.as_str()),
        };
        if !value.is_finite() {
            return self.pad_with_spaces(&format!("{sign}{digits}"));
        }
        let digits = if self.flags.sharp && verb != 'b' {
            self.budget.copy(precision.unwrap_or(0))?;
            with_all_digits(digits, verb, precision)
        } else {
            digits.to_owned()
        };
        let Flags {
            zero, minus, width, ..
        } = self.flags;
        let length = sign.len().saturating_add(digits.len());
        match width {
            // The sign goes before the zeros.
            Some(width) if zero && !minus && !sign.is_empty() && width > length => {
                self.write(sign)?;
                self.fill(width.saturating_sub(length))?;
                self.write(&digits)
            }
            _ => self.pad(&format!("{sign}{digits}")),
        }
    }
}

fn character(code: u64) -> char {
    u32::try_from(code)
        .ok()
        .and_then(char::from_u32)
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// What the flag `#` does to a float without its sign: it writes a decimal point, and zeros that `%g` leaves out.
fn with_all_digits(number: &str, verb: char, precision: Option<usize>) -> String {
    let mut missing = match verb {
        'g' | 'G' | 'x' => precision.unwrap_or(6),
        _ => 0,
    };
    let is_hex = matches!(verb, 'x' | 'X');
    let exponent = number.find(|c| matches!(c, 'p' | 'P') || (!is_hex && matches!(c, 'e' | 'E')));
    let (digits, tail) = number
        .split_at_checked(exponent.unwrap_or(number.len()))
        .unwrap_or((number, ""));
    let mut has_point = false;
    let mut significant = false;
    for c in digits.chars() {
        if c == '.' {
            has_point = true;
            continue;
        }
        significant |= c != '0';
        if significant {
            missing = missing.saturating_sub(1);
        }
    }
    let mut out = digits.to_owned();
    if !has_point {
        if digits == "0" {
            missing = missing.saturating_sub(1);
        }
        out.push('.');
    }
    out.extend(std::iter::repeat_n('0', missing));
    out.push_str(tail);
    out
}
