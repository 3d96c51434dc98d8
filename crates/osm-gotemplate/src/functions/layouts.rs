//! Go's layouts of times, which show the time 2006-01-02 15:04:05 -0700.

use std::fmt::Write;

use super::calendar::{Clock, MONTHS, Time, WEEKDAYS};

/// A part of a layout that shows a part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    LongMonth,
    Month,
    NumMonth,
    ZeroMonth,
    LongWeekday,
    Weekday,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    UpperPm,
    LowerPm,
    ZoneName,
    Offset {
        /// UTC is `Z`.
        is_iso: bool,
        has_colons: bool,
        has_minutes: bool,
        has_seconds: bool,
    },
    Fraction {
        /// `.999`: zeros at the end are left out.
        is_trimmed: bool,
        digits: usize,
        separator: char,
    },
}

use Element::*;

/// Elements that are a fixed text. Of two that a text starts with, the first one counts.
const ELEMENTS: &[(&str, Element)] = &[
    ("January", LongMonth),
    ("Jan", Month),
    ("Monday", LongWeekday),
    ("Mon", Weekday),
    ("MST", ZoneName),
    ("01", ZeroMonth),
    ("02", ZeroDay),
    ("03", ZeroHour12),
    ("04", ZeroMinute),
    ("05", ZeroSecond),
    ("06", Year),
    ("002", ZeroYearDay),
    ("15", Hour),
    ("1", NumMonth),
    ("2006", LongYear),
    ("2", Day),
    ("_2", UnderDay),
    ("__2", UnderYearDay),
    ("3", Hour12),
    ("4", Minute),
    ("5", Second),
    ("PM", UpperPm),
    ("pm", LowerPm),
    ("-070000", offset(false, false, true, true)),
    ("-07:00:00", offset(false, true, true, true)),
    ("-0700", offset(false, false, true, false)),
    ("-07:00", offset(false, true, true, false)),
    ("-07", offset(false, false, false, false)),
    ("Z070000", offset(true, false, true, true)),
    ("Z07:00:00", offset(true, true, true, true)),
    ("Z0700", offset(true, false, true, false)),
    ("Z07:00", offset(true, true, true, false)),
    ("Z07", offset(true, false, false, false)),
];

const fn offset(is_iso: bool, has_colons: bool, has_minutes: bool, has_seconds: bool) -> Element {
    Offset {
        is_iso,
        has_colons,
        has_minutes,
        has_seconds,
    }
}

/// Splits a layout at its first element: the text before, the element with its text, and the rest.
pub(super) fn split(layout: &str) -> (&str, Option<(Element, &str)>, &str) {
    for (index, _) in layout.char_indices() {
        let (before, rest) = layout.split_at_checked(index).unwrap_or((layout, ""));
        if let Some((element, len)) = element_at(rest) {
            let (text, rest) = rest.split_at_checked(len).unwrap_or((rest, ""));
            return (before, Some((element, text)), rest);
        }
    }
    (layout, None, "")
}

/// The element that a text starts with, and its length.
fn element_at(text: &str) -> Option<(Element, usize)> {
    // `_2006` is an underscore and a year.
    if text.starts_with("_2006") {
        return None;
    }
    let found = ELEMENTS.iter().find(|(layout, element)| {
        let is_short_name = matches!(element, Month | Weekday);
        let rest = text.strip_prefix(layout);
        rest.is_some_and(|rest| !is_short_name || !rest.starts_with(|next: char| next.is_ascii_lowercase()))
    });
    if let Some((layout, element)) = found {
        return Some((*element, layout.len()));
    }
    let separator = text.chars().next().filter(|start| matches!(start, '.' | ','))?;
    let digits = text.get(1..)?;
    let digit = digits.chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
    let rest = digits.trim_start_matches(digit);
    let element = Fraction {
        is_trimmed: digit == '9',
        digits: digits.len() - rest.len(),
        separator,
    };
    let is_end = !rest.starts_with(|next: char| next.is_ascii_digit());
    is_end.then_some((element, text.len() - rest.len()))
}

/// Formats a time.
pub(super) fn format(time: &Time, layout: &str) -> String {
    let clock = time.clock();
    let mut text = String::new();
    let mut left = layout;
    loop {
        let (before, element, rest) = split(left);
        text.push_str(before);
        let Some((element, _)) = element else { return text };
        push(&mut text, &clock, time.nanoseconds, element);
        left = rest;
    }
}

fn push(text: &mut String, clock: &Clock, nanoseconds: u32, element: Element) {
    let hour12 = (clock.hour + 11) % 12 + 1;
    let _ = match element {
        LongMonth => write!(text, "{}", name(&MONTHS, clock.month - 1)),
        Month => write!(text, "{:.3}", name(&MONTHS, clock.month - 1)),
        NumMonth => write!(text, "{}", clock.month),
        ZeroMonth => write!(text, "{:02}", clock.month),
        LongWeekday => write!(text, "{}", name(&WEEKDAYS, clock.weekday)),
        Weekday => write!(text, "{:.3}", name(&WEEKDAYS, clock.weekday)),
        Day => write!(text, "{}", clock.day),
        UnderDay => write!(text, "{:2}", clock.day),
        ZeroDay => write!(text, "{:02}", clock.day),
        UnderYearDay => write!(text, "{:3}", clock.day_of_year),
        ZeroYearDay => write!(text, "{:03}", clock.day_of_year),
        Hour => write!(text, "{:02}", clock.hour),
        Hour12 => write!(text, "{hour12}"),
        ZeroHour12 => write!(text, "{hour12:02}"),
        Minute => write!(text, "{}", clock.minute),
        ZeroMinute => write!(text, "{:02}", clock.minute),
        Second => write!(text, "{}", clock.second),
        ZeroSecond => write!(text, "{:02}", clock.second),
        LongYear if clock.year < 0 => write!(text, "-{:04}", -clock.year),
        LongYear => write!(text, "{:04}", clock.year),
        Year => write!(text, "{:02}", clock.year.abs() % 100),
        UpperPm => write!(text, "{}", if clock.hour >= 12 { "PM" } else { "AM" }),
        LowerPm => write!(text, "{}", if clock.hour >= 12 { "pm" } else { "am" }),
        ZoneName if clock.zone_name.is_empty() => {
            push_offset(text, clock.offset, false, true, false);
            Ok(())
        }
        ZoneName => write!(text, "{}", clock.zone_name),
        Offset { is_iso: true, .. } if clock.offset == 0 => write!(text, "Z"),
        Offset {
            has_colons,
            has_minutes,
            has_seconds,
            ..
        } => {
            push_offset(text, clock.offset, has_colons, has_minutes, has_seconds);
            Ok(())
        }
        Fraction {
            is_trimmed,
            digits,
            separator,
        } => {
            let all = format!("{nanoseconds:09}");
            let shown = all.get(..digits).unwrap_or(&all);
            let shown = if is_trimmed {
                shown.trim_end_matches('0')
            } else {
                shown
            };
            if is_trimmed && shown.is_empty() {
                Ok(())
            } else {
                write!(text, "{separator}{shown}")
            }
        }
    };
}

fn push_offset(text: &mut String, offset: i64, has_colons: bool, has_minutes: bool, has_seconds: bool) {
    // Go takes the sign of the offset in minutes.
    let minutes = offset / 60;
    let colon = if has_colons { ":" } else { "" };
    let _ = write!(
        text,
        "{}{:02}",
        if minutes < 0 { '-' } else { '+' },
        minutes.abs() / 60
    );
    if has_minutes {
        let _ = write!(text, "{colon}{:02}", minutes.abs() % 60);
    }
    if has_seconds {
        let seconds = if minutes < 0 { offset.abs() } else { offset };
        let _ = write!(text, "{colon}{:02}", seconds % 60);
    }
}

pub(super) fn name(names: &[&'static str], index: i64) -> &'static str {
    usize::try_from(index)
        .ok()
        .and_then(|index| names.get(index).copied())
        .unwrap_or_default()
}
