//! Times with their zones, and the calendar. `Local` is UTC, so that results do not depend on the machine that renders.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

pub(super) const SECONDS_OF_DAY: i64 = 86_400;
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Go's `time.Time`, without the reading of the monotonic clock.
#[derive(Clone, Debug)]
pub(super) struct Time {
    /// Seconds since 1970 in UTC.
    pub(super) seconds: i64,
    pub(super) nanoseconds: u32,
    pub(super) zone: Zone,
}

#[derive(Clone, Debug)]
pub(super) enum Zone {
    Utc,
    /// A name, and seconds east of UTC.
    Fixed(String, i64),
    /// A zone of the time zone database.
    Named(TimeZone),
}

/// A time as clocks and calendars of its zone show it.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) year: i64,
    pub(super) month: i64,
    pub(super) day: i64,
    /// From 1.
    pub(super) day_of_year: i64,
    /// From Sunday, which is 0.
    pub(super) weekday: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) zone_name: String,
    /// Seconds east of UTC.
    pub(super) offset: i64,
}

impl Zone {
    /// The zone with a name of the time zone database. As in sprig, a zone that does not exist is UTC.
    pub(super) fn load(name: &str) -> Self {
        static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
        if matches!(name, "" | "UTC" | "Local") {
            return Self::Utc;
        }
        // Unlike Go, the database ignores case.
        let zone = DATABASE
            .get(name)
            .ok()
            .filter(|zone| zone.iana_name() == Some(name));
        zone.map_or(Self::Utc, Self::Named)
    }

    /// A text that `decode` reads again.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Utc => "UTC".to_owned(),
            Self::Fixed(name, offset) => format!("{offset} {name}"),
            Self::Named(zone) => zone.iana_name().unwrap_or("UTC").to_owned(),
        }
    }

    pub(super) fn decode(text: &str) -> Self {
        let fixed = text
            .split_once(' ')
            .and_then(|(offset, name)| Some((name, offset.parse().ok()?)));
        fixed.map_or_else(
            || Self::load(text),
            |(name, offset)| Self::Fixed(name.to_owned(), offset),
        )
    }

    /// Name and offset at a time.
    fn at(&self, seconds: i64) -> (String, i64) {
        match self {
            Self::Utc => ("UTC".to_owned(), 0),
            Self::Fixed(name, offset) => (name.clone(), *offset),
            Self::Named(zone) => {
                let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
                let time = Timestamp::from_second(seconds.clamp(first, last)).unwrap_or_default();
                let info = zone.to_offset_info(time);
                (info.abbreviation().to_owned(), info.offset().seconds().into())
            }
        }
    }
}

impl Time {
    /// The first instant of the year 1, which is Go's zero value.
    pub(super) const ZERO: Self = Self {
        seconds: -62_135_596_800,
        nanoseconds: 0,
        zone: Zone::Utc,
    };

    /// Adds nanoseconds.
    pub(super) fn add(&self, duration: i64) -> Self {
        let total = i64::from(self.nanoseconds) + duration.rem_euclid(1_000_000_000);
        let seconds = duration.div_euclid(1_000_000_000) + total / 1_000_000_000;
        Self {
            seconds: self.seconds.wrapping_add(seconds),
            nanoseconds: u32::try_from(total % 1_000_000_000).unwrap_or(0),
            zone: self.zone.clone(),
        }
    }

    /// Adds years, months and days to the date, of which months and days can be out of range.
    pub(super) fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let clock = self.clock();
        let month = clock.month.wrapping_add(months).wrapping_sub(1);
        let year = clock.year.wrapping_add(years).wrapping_add(month.div_euclid(12));
        let day = days_until(in_range(year), month.rem_euclid(12) + 1, 1)
            .wrapping_add(clock.day - 1)
            .wrapping_add(days);
        let second_of_day = clock.hour * 3600 + clock.minute * 60 + clock.second;
        let local = day.wrapping_mul(SECONDS_OF_DAY).wrapping_add(second_of_day);
        // The offset at that time in UTC may be the one of the other side of a change.
        let (_, offset) = self.zone.at(local);
        let (_, offset) = self.zone.at(local.wrapping_sub(offset));
        Self {
            seconds: local.wrapping_sub(offset),
            ..self.clone()
        }
    }

    /// Nanoseconds since [`Time::ZERO`].
    pub(super) fn since_year_1(&self) -> i128 {
        let seconds = i128::from(self.seconds) - i128::from(Self::ZERO.seconds);
        seconds * 1_000_000_000 + i128::from(self.nanoseconds)
    }

    /// The last multiple of a duration since [`Time::ZERO`].
    pub(super) fn truncate(&self, to: i64) -> Self {
        if to <= 0 {
            return self.clone();
        }
        self.add(-self.beyond(to))
    }

    /// The nearest multiple of a duration since [`Time::ZERO`].
    pub(super) fn round(&self, to: i64) -> Self {
        if to <= 0 {
            return self.clone();
        }
        let beyond = self.beyond(to);
        if beyond < to - beyond {
            self.add(-beyond)
        } else {
            self.add(to - beyond)
        }
    }

    /// How much later than a multiple of a duration it is.
    fn beyond(&self, of: i64) -> i64 {
        i64::try_from(self.since_year_1().rem_euclid(of.into())).unwrap_or(0)
    }

    pub(super) fn clock(&self) -> Clock {
        let (zone_name, offset) = self.zone.at(self.seconds);
        let seconds = self.seconds.saturating_add(offset);
        let days = seconds.div_euclid(SECONDS_OF_DAY);
        let second_of_day = seconds.rem_euclid(SECONDS_OF_DAY);
        let (year, month, day) = date_of(days);
        Clock {
            year,
            month,
            day,
            day_of_year: days - days_until(year, 1, 1) + 1,
            weekday: (days + 4).rem_euclid(7),
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            zone_name,
            offset,
        }
    }
}

/// The date that is so many days after 1970-01-01, by the Gregorian calendar. Years are counted from March, so that leap days are last.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date.
pub(super) fn days_until(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// A year that [`days_until`] can compute with. Go's results for others are of no use.
fn in_range(year: i64) -> i64 {
    const MOST: i64 = 10_000_000_000;
    year.clamp(-MOST, MOST)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
