//! Dates and durations. Times are shown in UTC unless a zone is given; nothing reads the clock.

use super::calendar::{Time, Zone};
use super::comparison::type_name;
use super::layouts::format;
use super::numbers::parse_or_nearest;
use super::table::table;
use super::time_methods::BEHAVIOR;
use super::{Call, Problem};
use super::{durations, time_parsing};
use crate::value::{IntKind, Named, Struct, UintKind, Value};

table! {
    "date": (String, Any) -> "string", "Returns the time, or seconds since 1970, in UTC by a layout of Go.", r#""2006-01-02" 86400"# => "1970-01-02",
        |call| in_zone(call, call.text(0), 1, "Local");
    "dateInZone" "date_in_zone": (String, Any, String) -> "string", "Returns the time, or seconds since 1970, in a zone by a layout of Go.",
        r#""15:04" 0 "Asia/Tokyo""# => "09:00", |call| in_zone(call, call.text(0), 1, call.text(2));
    "htmlDate": (Any) -> "string", "Returns the date of the time in UTC, as year, month and day.", "86400" => "1970-01-02",
        |call| in_zone(call, "2006-01-02", 0, "Local");
    "htmlDateInZone": (Any, String) -> "string", "Returns the date of the time in a zone, as year, month and day.", r#"0 "America/New_York""# => "1969-12-31",
        |call| in_zone(call, "2006-01-02", 0, call.text(1));
    "toDate": (String, String) -> "time.Time", "Returns the time that a text has by a layout of Go, or the first instant of the year 1.",
        r#""2006-01-02" "2024-02-29" | unixEpoch"# => "1709164800", |call| Ok(to_value(&parse(call)?.unwrap_or(Time::ZERO)));
    "mustToDate": (String, String) -> "time.Time", "Returns the time that a text has by a layout of Go.",
        r#""2006-01-02" "2024-02-29" | unixEpoch"# => "1709164800", |call| Ok(to_value(&parse(call)?.map_err(Problem::new)?));
    "dateModify" "date_modify": (String, Time) -> "time.Time", "Returns the time plus a duration, or the time as it is if the duration is invalid.",
        r#""-1.5h" (toDate "2006-01-02" "2024-01-01") | date "15:04""# => "22:30", |call| modify(call).map(|modified| modified.unwrap_or_else(|_| call.any(1).clone()));
    "mustDateModify" "must_date_modify": (String, Time) -> "time.Time", "Returns the time plus a duration.",
        r#""-1.5h" (toDate "2006-01-02" "2024-01-01") | date "15:04""# => "22:30", |call| modify(call)?.map_err(Problem::new);
    "unixEpoch": (Time) -> "string", "Returns the seconds from 1970 to the time.", r#"(toDate "2006-01-02" "1970-01-02")"# => "86400",
        |call| call.made(time_argument(call, 0).seconds.to_string());
    "duration": (Any) -> "string", "Returns a number of seconds, which is a text or an `int64`, as hours, minutes and seconds.", r#""95""# => "1m35s", duration;
    "durationRound": (Any) -> "string", "Returns the largest unit of the duration, which is a text or nanoseconds.", r#""2h10m5s""# => "2h", duration_round;
}

/// The name of Go's type.
pub(crate) const TIME: &str = "time.Time";

/// The value with Go's type. Its fields can't be read by templates, as in Go.
pub(super) fn to_value(time: &Time) -> Value {
    let fields = vec![
        (
            "wall".into(),
            Value::Uint(time.nanoseconds.into(), UintKind::Uint64),
        ),
        ("ext".into(), Value::int64(time.seconds)),
        ("loc".into(), time.zone.encode().into()),
    ];
    Value::Named(Named::with_behavior(
        TIME,
        Value::Struct(Struct::new(fields)),
        Some(format(time, "2006-01-02 15:04:05.999999999 -0700 MST").into()),
        &BEHAVIOR,
    ))
}

/// The time that a value is, directly or by a pointer.
pub(super) fn from_value(value: &Value) -> Option<Time> {
    let named = match value {
        Value::Named(named) if &**named.name() == TIME => named,
        Value::Pointer(pointer) => {
            return from_value(pointer.value().filter(|to| !matches!(to, Value::Pointer(_)))?);
        }
        _ => return None,
    };
    let Value::Struct(fields) = named.value() else {
        return None;
    };
    match (fields.field("wall")?, fields.field("ext")?, fields.field("loc")?) {
        (Value::Uint(nanoseconds, _), Value::Int(seconds, _), Value::String(zone)) => Some(Time {
            seconds: *seconds,
            nanoseconds: u32::try_from(*nanoseconds).ok()?,
            zone: Zone::decode(zone),
        }),
        _ => None,
    }
}

/// The time at an index: of a parameter of type `time.Time`.
pub(super) fn time_argument(call: &Call<'_>, index: usize) -> Time {
    from_value(call.any(index)).unwrap_or(Time::ZERO)
}

fn in_zone(call: &Call<'_>, layout: &str, index: usize, zone: &str) -> Result<Value, Problem> {
    let time = match call.any(index) {
        Value::Int(seconds, IntKind::Int | IntKind::Int64 | IntKind::Int32) => Time {
            seconds: *seconds,
            nanoseconds: 0,
            zone: Zone::Utc,
        },
        value => from_value(value).ok_or_else(|| {
            Problem::new(format!(
                "the date is of type {}, for which sprig takes the time of rendering; pass a time or a number of seconds",
                type_name(value)
            ))
        })?,
    };
    let time = Time {
        zone: Zone::load(zone),
        ..time
    };
    // No element of a layout is more than nine times as long as its text.
    call.budget.copy(layout.len().saturating_mul(10))?;
    call.budget.step(1)?;
    call.made(format(&time, layout))
}

fn parse(call: &Call<'_>) -> Result<Result<Time, String>, Problem> {
    call.budget
        .read(call.text(0).len().saturating_add(call.text(1).len()))?;
    call.budget.copy(1024)?;
    Ok(time_parsing::parse(call.text(0), call.text(1)))
}

fn modify(call: &Call<'_>) -> Result<Result<Value, String>, Problem> {
    call.budget.read(call.text(0).len())?;
    call.budget.copy(1024)?;
    let time = time_argument(call, 1);
    Ok(durations::parse(call.text(0)).map(|duration| to_value(&time.add(duration))))
}

fn duration(call: &Call<'_>) -> Result<Value, Problem> {
    let seconds = match call.any(0) {
        Value::String(text) => parse_or_nearest(text),
        Value::Int(seconds, IntKind::Int64) => *seconds,
        _ => 0,
    };
    call.made(durations::format(seconds.wrapping_mul(1_000_000_000)))
}

fn duration_round(call: &Call<'_>) -> Result<Value, Problem> {
    let duration = match call.any(0) {
        Value::String(text) => durations::parse(text).unwrap_or(0),
        Value::Int(nanoseconds, IntKind::Int64) => *nanoseconds,
        Value::Named(named) if &**named.name() == TIME => {
            return Err(Problem::new(
                "the duration from a time to the time of rendering differs with each rendering; pass a duration",
            ));
        }
        _ => 0,
    };
    call.made(durations::round(duration))
}
