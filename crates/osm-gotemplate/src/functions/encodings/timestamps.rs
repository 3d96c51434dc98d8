//! Timestamps of YAML and TOML as values of Go's type `time.Time`.

use std::sync::OnceLock;

use regex::Regex;

use super::super::calendar::{SECONDS_OF_DAY, Time, Zone, days_until};
use super::super::{dates, layouts};
use crate::value::Value;

/// The parts of a timestamp that is valid.
struct Timestamp<'t> {
    date: (u32, u32, u32),
    time: (u32, u32, u32),
    fraction: &'t str,
    zone: &'t str,
}

/// The formats of timestamps that `gopkg.in/yaml.v3` knows.
fn parse(text: &str) -> Option<Timestamp<'_>> {
    static TIMESTAMP: OnceLock<Option<Regex>> = OnceLock::new();
    static PATTERN: &str = concat!(
        r"^([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})",
        r"(?:[Tt]([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,]([0-9]+))?(Z|[-+][0-9]{2}:[0-9]{2})",
        r"| ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,]([0-9]+))?)?$"
    );
    if text.as_bytes().get(4) != Some(&b'-') {
        return None;
    }
    let regex = TIMESTAMP.get_or_init(|| Regex::new(PATTERN).ok());
    let found = regex.as_ref()?.captures(text)?;
    let group = |index| found.get(index).map(|group| group.as_str());
    let either = |first, second| group(first).or_else(|| group(second));
    let number = |text: Option<&str>| text.map_or(Some(0), |text| text.parse::<u32>().ok());
    let date = (number(group(1))?, number(group(2))?, number(group(3))?);
    let time = (
        number(either(4, 9))?,
        number(either(5, 10))?,
        number(either(6, 11))?,
    );
    let zone = group(8).unwrap_or("Z");
    let in_zone = |from: usize, to: usize, most: u32| {
        zone == "Z" || number(zone.get(from..to)).is_some_and(|n| n <= most)
    };
    let is_valid = (1..=days(date.0, date.1)).contains(&date.2)
        && time.0 < 24
        && time.1 < 60
        && time.2 < 60
        && in_zone(1, 3, 24)
        && in_zone(4, 6, 59);
    let fraction = either(7, 12).unwrap_or_default();
    is_valid.then_some(Timestamp {
        date,
        time,
        fraction: fraction.get(..9).unwrap_or(fraction).trim_end_matches('0'),
        zone,
    })
}

fn days(year: u32, month: u32) -> u32 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => 0,
    }
}

pub(super) fn is_timestamp(text: &str) -> bool {
    parse(text).is_some()
}

/// The timestamp as a `time.Time`; none if the text is not one.
pub(super) fn time(text: &str) -> Option<Value> {
    let Timestamp {
        date: (year, month, day),
        time: (hour, minute, second),
        fraction,
        zone,
    } = parse(text)?;
    let offset = offset(zone);
    let of_day = i64::from(hour)
        .saturating_mul(3600)
        .saturating_add(i64::from(minute).saturating_mul(60));
    let days = days_until(year.into(), month.into(), day.into());
    let seconds = days
        .saturating_mul(SECONDS_OF_DAY)
        .saturating_add(of_day)
        .saturating_add(second.into());
    Some(dates::to_value(&Time {
        seconds: seconds.saturating_sub(offset),
        nanoseconds: format!("{fraction:0<9}").parse().unwrap_or(0),
        zone: if offset == 0 {
            Zone::Utc
        } else {
            Zone::Fixed(String::new(), offset)
        },
    }))
}

/// Seconds east of UTC.
fn offset(zone: &str) -> i64 {
    let part = |from, to| {
        zone.get(from..to)
            .and_then(|part| part.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let absolute = part(1, 3)
        .saturating_mul(3600)
        .saturating_add(part(4, 6).saturating_mul(60));
    if zone.starts_with('-') {
        absolute.saturating_neg()
    } else {
        absolute
    }
}

/// A `time.Time` as encoders write it.
pub(super) fn encoded(value: &Value) -> Option<String> {
    dates::from_value(value).map(|time| layouts::format(&time, "2006-01-02T15:04:05.999999999Z07:00"))
}
