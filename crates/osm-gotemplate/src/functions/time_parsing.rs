//! Parsing of times by a layout. This follows `parse` of Go's `time/format.go`, whose leniency and errors it keeps.

use super::calendar::{MONTHS, SECONDS_OF_DAY, Time, WEEKDAYS, Zone, days_in_month, days_until};
use super::durations::{quote, quote_bytes};
use super::layouts::{Element, split};

/// What has been read so far. Parts that are not given are none.
#[derive(Default)]
struct Parts {
    year: i64,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanoseconds: i64,
    is_am: bool,
    is_pm: bool,
    is_utc: bool,
    offset: Option<i64>,
    zone_name: Option<String>,
}

/// Why a part can't be read.
enum Bad {
    Syntax,
    /// The part with this name is out of range.
    Range(&'static str),
}

/// `time.ParseInLocation(layout, value, time.Local)`
pub(super) fn parse(layout: &str, value: &str) -> Result<Time, String> {
    let mut parts = Parts::default();
    let (mut layout_left, mut left) = (layout, value);
    let cannot_parse = |value_part: &[u8], layout_part: &str| {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quote(value),
            quote(layout),
            quote_bytes(value_part),
            quote(layout_part)
        )
    };
    loop {
        let (before, element, rest) = split(layout_left);
        left = skip(left, before).map_err(|left| cannot_parse(left, before))?;
        let Some((element, text)) = element else { break };
        layout_left = rest;
        let start = left;
        match parts.read(element, &mut left, layout_left) {
            Ok(()) => {}
            Err(Bad::Range(part)) => {
                return Err(format!("parsing time {}: {part} out of range", quote(value)));
            }
            Err(Bad::Syntax) => return Err(cannot_parse(start.as_bytes(), text)),
        }
    }
    if !left.is_empty() {
        return Err(format!(
            "parsing time {}: extra text: {}",
            quote(value),
            quote(left)
        ));
    }
    parts
        .time()
        .map_err(|problem| format!("parsing time {}: {problem}", quote(value)))
}

/// Leaves out the layout's fixed text. A space matches any number of spaces. The error is what is left where both differ, which Go finds
/// byte by byte.
fn skip<'a>(value: &'a str, fixed: &str) -> Result<&'a str, &'a [u8]> {
    let (mut value, mut fixed) = (value, fixed);
    while let Some(next) = fixed.chars().next() {
        if next == ' ' {
            if !value.is_empty() && !value.starts_with(' ') {
                return Err(value.as_bytes());
            }
            fixed = fixed.trim_start_matches(' ');
            value = value.trim_start_matches(' ');
            continue;
        }
        value = value.strip_prefix(next).ok_or_else(|| {
            let (bytes, wanted) = (value.as_bytes(), fixed.as_bytes());
            let same = bytes.iter().zip(wanted).take_while(|(one, other)| one == other);
            bytes.get(same.count()..).unwrap_or_default()
        })?;
        fixed = fixed.get(next.len_utf8()..).unwrap_or_default();
    }
    Ok(value)
}

/// Takes so many bytes.
fn take<'a>(left: &mut &'a str, len: usize) -> Result<&'a str, Bad> {
    let (taken, rest) = left.split_at_checked(len).ok_or(Bad::Syntax)?;
    *left = rest;
    Ok(taken)
}

fn leading_digits(text: &str, max: usize) -> usize {
    text.bytes().take(max).take_while(u8::is_ascii_digit).count()
}

/// Takes a number with up to `max` digits, or with exactly as many.
fn take_number(left: &mut &str, max: usize, is_fixed: bool) -> Result<i64, Bad> {
    let digits = leading_digits(left, max);
    if digits == 0 || is_fixed && digits < max {
        return Err(Bad::Syntax);
    }
    take(left, digits)?.parse().map_err(|_| Bad::Syntax)
}

/// A number that can have a sign.
fn signed(text: &str) -> Result<i64, Bad> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Bad::Syntax);
    }
    let number: i64 = if digits.is_empty() {
        0
    } else {
        digits.parse().map_err(|_| Bad::Syntax)?
    };
    Ok(if text.starts_with('-') { -number } else { number })
}

/// Takes one of the names, of which only the first `len` letters count, and returns its index.
fn take_name(left: &mut &str, names: &[&str], len: usize) -> Result<i64, Bad> {
    for (index, name) in (0..).zip(names) {
        let name = name.get(..len).unwrap_or(name);
        if left
            .get(..name.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(name))
        {
            take(left, name.len())?;
            return Ok(index);
        }
    }
    Err(Bad::Syntax)
}

fn in_range(number: i64, range: std::ops::RangeInclusive<i64>, part: &'static str) -> Result<i64, Bad> {
    if range.contains(&number) {
        Ok(number)
    } else {
        Err(Bad::Range(part))
    }
}

/// Nanoseconds of `.123`. Digits after the ninth do not count.
fn nanoseconds(text: &str) -> Result<i64, Bad> {
    let digits = text.strip_prefix(['.', ',']).ok_or(Bad::Syntax)?;
    let digits = digits.get(..9).unwrap_or(digits);
    let number = in_range(signed(digits)?, 0..=i64::MAX, "fractional second")?;
    let missing = u32::try_from(9_usize.saturating_sub(digits.len())).unwrap_or(0);
    Ok(number * 10_i64.pow(missing))
}

fn starts_with_fraction(text: &str) -> bool {
    matches!(text.as_bytes(), [b'.' | b',', digit, ..] if digit.is_ascii_digit())
}

impl Parts {
    fn read(&mut self, element: Element, left: &mut &str, layout_left: &str) -> Result<(), Bad> {
        match element {
            Element::Year => {
                let year = signed(take(left, 2)?)?;
                self.year = year + if year >= 69 { 1900 } else { 2000 };
            }
            Element::LongYear => {
                if leading_digits(left, 1) == 0 {
                    return Err(Bad::Syntax);
                }
                self.year = signed(take(left, 4)?)?;
            }
            Element::Month => self.month = Some(take_name(left, &MONTHS, 3)? + 1),
            Element::LongMonth => self.month = Some(take_name(left, &MONTHS, usize::MAX)? + 1),
            Element::NumMonth | Element::ZeroMonth => {
                let month = take_number(left, 2, element == Element::ZeroMonth)?;
                self.month = Some(in_range(month, 1..=12, "month")?);
            }
            Element::Weekday => drop(take_name(left, &WEEKDAYS, 3)?),
            Element::LongWeekday => drop(take_name(left, &WEEKDAYS, usize::MAX)?),
            Element::Day | Element::UnderDay | Element::ZeroDay => {
                if element == Element::UnderDay {
                    *left = left.strip_prefix(' ').unwrap_or(left);
                }
                self.day = Some(take_number(left, 2, element == Element::ZeroDay)?);
            }
            Element::UnderYearDay | Element::ZeroYearDay => {
                if element == Element::UnderYearDay {
                    *left = left
                        .strip_prefix("  ")
                        .or_else(|| left.strip_prefix(' '))
                        .unwrap_or(left);
                }
                self.day_of_year = Some(take_number(left, 3, element == Element::ZeroYearDay)?);
            }
            Element::Hour => self.hour = in_range(take_number(left, 2, false)?, 0..=23, "hour")?,
            Element::Hour12 | Element::ZeroHour12 => {
                let hour = take_number(left, 2, element == Element::ZeroHour12)?;
                self.hour = in_range(hour, 0..=12, "hour")?;
            }
            Element::Minute | Element::ZeroMinute => {
                let minute = take_number(left, 2, element == Element::ZeroMinute)?;
                self.minute = in_range(minute, 0..=59, "minute")?;
            }
            Element::Second | Element::ZeroSecond => {
                let second = take_number(left, 2, element == Element::ZeroSecond)?;
                self.second = in_range(second, 0..=59, "second")?;
                // A fraction is read even if the layout has none.
                let has_own = matches!(split(layout_left).1, Some((Element::Fraction { .. }, _)));
                if !has_own && starts_with_fraction(left) {
                    self.take_fraction(left)?;
                }
            }
            Element::UpperPm | Element::LowerPm => {
                let names = if element == Element::UpperPm {
                    ["AM", "PM"]
                } else {
                    ["am", "pm"]
                };
                let given = take(left, 2)?;
                if !names.contains(&given) {
                    return Err(Bad::Syntax);
                }
                self.is_am |= given.eq_ignore_ascii_case("am");
                self.is_pm |= given.eq_ignore_ascii_case("pm");
            }
            Element::Fraction { is_trimmed: true, .. } => {
                if starts_with_fraction(left) {
                    self.take_fraction(left)?;
                }
            }
            Element::Fraction { digits, .. } => self.nanoseconds = nanoseconds(take(left, digits + 1)?)?,
            Element::ZoneName => {
                if let Some(rest) = left.strip_prefix("UTC") {
                    self.is_utc = true;
                    *left = rest;
                } else {
                    let name = take(left, zone_name_length(left).ok_or(Bad::Syntax)?)?;
                    self.zone_name = Some(name.to_owned());
                }
            }
            Element::Offset { is_iso: true, .. } if left.starts_with('Z') => {
                take(left, 1)?;
                self.is_utc = true;
            }
            Element::Offset {
                has_colons,
                has_minutes,
                has_seconds,
                ..
            } => self.take_offset(left, has_colons, has_minutes, has_seconds)?,
        }
        Ok(())
    }

    fn take_fraction(&mut self, left: &mut &str) -> Result<(), Bad> {
        let digits = leading_digits(left.get(1..).unwrap_or_default(), usize::MAX);
        self.nanoseconds = nanoseconds(take(left, digits + 1)?)?;
        Ok(())
    }

    fn take_offset(
        &mut self,
        left: &mut &str,
        has_colons: bool,
        has_minutes: bool,
        has_seconds: bool,
    ) -> Result<(), Bad> {
        let parts = 1 + usize::from(has_minutes) + usize::from(has_seconds);
        let text = take(left, 1 + 2 * parts + if has_colons { parts - 1 } else { 0 })?;
        let (sign, mut numbers) = text.split_at_checked(1).ok_or(Bad::Syntax)?;
        let mut values = [0; 3];
        for (index, value) in values.iter_mut().take(parts).enumerate() {
            if index > 0 && has_colons {
                numbers = numbers.strip_prefix(':').ok_or(Bad::Syntax)?;
            }
            *value = take_number(&mut numbers, 2, true)?;
        }
        let [hours, minutes, seconds] = values;
        in_range(hours, 0..=24, "time zone offset hour")?;
        in_range(minutes, 0..=60, "time zone offset minute")?;
        in_range(seconds, 0..=60, "time zone offset second")?;
        let offset = (hours * 60 + minutes) * 60 + seconds;
        self.offset = Some(match sign {
            "+" => offset,
            "-" => -offset,
            _ => return Err(Bad::Syntax),
        });
        Ok(())
    }

    fn time(mut self) -> Result<Time, &'static str> {
        if self.is_pm && self.hour < 12 {
            self.hour += 12;
        } else if self.is_am && !self.is_pm && self.hour == 12 {
            self.hour = 0;
        }
        if let Some(day_of_year) = self.day_of_year {
            let (month, day) = date_in_year(self.year, day_of_year).ok_or("day-of-year out of range")?;
            if self.month.is_some_and(|given| given != month) {
                return Err("day-of-year does not match month");
            }
            if self.day.is_some_and(|given| given != day) {
                return Err("day-of-year does not match day");
            }
            (self.month, self.day) = (Some(month), Some(day));
        }
        let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if day < 1 || day > days_in_month(self.year, month) {
            return Err("day out of range");
        }
        let (offset, zone) = self.zone();
        let second_of_day = (self.hour * 60 + self.minute) * 60 + self.second;
        Ok(Time {
            seconds: days_until(self.year, month, day) * SECONDS_OF_DAY + second_of_day - offset,
            nanoseconds: u32::try_from(self.nanoseconds).unwrap_or(0),
            zone,
        })
    }

    /// What was given is east of UTC by so many seconds, and the zone of the result.
    fn zone(&mut self) -> (i64, Zone) {
        // Go has -1 for an offset that is not given.
        let offset = self.offset.filter(|&offset| offset != -1);
        match (offset, self.zone_name.take()) {
            _ if self.is_utc => (0, Zone::Utc),
            (Some(0), None) | (None, None) => (0, Zone::Utc),
            (Some(offset), name) => (offset, Zone::Fixed(name.unwrap_or_default(), offset)),
            (None, Some(name)) => {
                // An abbreviation does not give the offset, but `GMT+3` does.
                let hours = name.strip_prefix("GMT").and_then(|hours| signed(hours).ok());
                // Go has the time of day in a zone that it does not know as if it were in UTC.
                (0, Zone::Fixed(name, hours.unwrap_or(0) * 3600))
            }
        }
    }
}

/// Month and day of the day with a number in a year.
fn date_in_year(year: i64, day_of_year: i64) -> Option<(i64, i64)> {
    let mut day = day_of_year;
    for month in 1..=12 {
        let days = days_in_month(year, month);
        if (1..=days).contains(&day) {
            return Some((month, day));
        }
        day -= days;
    }
    None
}

/// How many bytes of a text look like an abbreviation of a zone.
fn zone_name_length(text: &str) -> Option<usize> {
    if text.starts_with("ChST") || text.starts_with("MeST") {
        return Some(4);
    }
    if text.len() < 3 {
        return None;
    }
    if let Some(offset) = text.strip_prefix("GMT") {
        return Some(3 + signed_offset_length(offset));
    }
    if text.starts_with(['+', '-']) {
        return Some(signed_offset_length(text)).filter(|&length| length > 0);
    }
    let capitals = text.bytes().take(6).take_while(u8::is_ascii_uppercase).count();
    let ends_in_t = text.as_bytes().get(capitals.saturating_sub(1)) == Some(&b'T');
    match capitals {
        3 => Some(3),
        4 if ends_in_t || text.starts_with("WITA") => Some(4),
        5 if ends_in_t => Some(5),
        _ => None,
    }
}

/// The length of `+3` or `-12`, or 0.
fn signed_offset_length(text: &str) -> usize {
    let Some(digits) = text.strip_prefix(['+', '-']) else {
        return 0;
    };
    let length = leading_digits(digits, usize::MAX);
    let is_offset = digits
        .get(..length)
        .and_then(|hours| hours.parse::<u64>().ok())
        .is_some_and(|hours| hours <= 23);
    if is_offset { length + 1 } else { 0 }
}
