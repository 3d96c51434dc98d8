//! The methods of Go's type `time.Time`.

use super::calendar::{MONTHS, Time, WEEKDAYS, Zone};
use super::dates::{time_argument, to_value};
use super::layouts::{format, name};
use super::{Call, Parameter, Problem};
use crate::methods::{Behavior, Encoded, Method, STRING};
use crate::standard;
use crate::value::{Named, Value};

type Outcome = Result<Value, Problem>;

pub(super) static BEHAVIOR: Behavior = Behavior::new(
    &[
        STRING,
        Method::new("Add", &[Parameter::Duration], |call| {
            made(call, &receiver(call).add(call.int(1)))
        }),
        Method::new(
            "AddDate",
            &[Parameter::Int, Parameter::Int, Parameter::Int],
            |call| {
                made(
                    call,
                    &receiver(call).add_date(call.int(1), call.int(2), call.int(3)),
                )
            },
        ),
        Method::new("After", &[Parameter::Time], |call| {
            Ok(compare(call).is_gt().into())
        }),
        Method::new("Before", &[Parameter::Time], |call| {
            Ok(compare(call).is_lt().into())
        }),
        Method::new("Compare", &[Parameter::Time], |call| {
            Ok(Value::int(compare(call) as i64))
        }),
        Method::new("Equal", &[Parameter::Time], |call| {
            Ok(compare(call).is_eq().into())
        }),
        Method::new("Sub", &[Parameter::Time], |call| {
            let nanoseconds = receiver(call).since_year_1() - time_argument(call, 1).since_year_1();
            Ok(standard::duration(clamped(nanoseconds)))
        }),
        Method::new("Truncate", &[Parameter::Duration], |call| {
            made(call, &receiver(call).truncate(call.int(1)))
        }),
        Method::new("Round", &[Parameter::Duration], |call| {
            made(call, &receiver(call).round(call.int(1)))
        }),
        // The machine's zone is UTC wherever it renders.
        Method::new("Local", &[], in_utc),
        Method::new("UTC", &[], in_utc),
        Method::new("Format", &[Parameter::String], |call| {
            let layout = call.text(1);
            // No element of a layout is more than nine times as long as its text.
            call.budget.copy(layout.len().saturating_mul(10))?;
            call.made(format(&receiver(call), layout))
        }),
        Method::new("Unix", &[], |call| Ok(Value::int64(receiver(call).seconds))),
        Method::new("UnixMilli", &[], |call| Ok(since_1970(call, 1_000))),
        Method::new("UnixMicro", &[], |call| Ok(since_1970(call, 1_000_000))),
        Method::new("UnixNano", &[], |call| Ok(since_1970(call, 1_000_000_000))),
        Method::new("Year", &[], |call| Ok(Value::int(receiver(call).clock().year))),
        Method::new("Month", &[], |call| {
            let month = receiver(call).clock().month;
            Ok(named("time.Month", month, name(&MONTHS, month - 1)))
        }),
        Method::new("Day", &[], |call| Ok(Value::int(receiver(call).clock().day))),
        Method::new("YearDay", &[], |call| {
            Ok(Value::int(receiver(call).clock().day_of_year))
        }),
        Method::new("Weekday", &[], |call| {
            let weekday = receiver(call).clock().weekday;
            Ok(named("time.Weekday", weekday, name(&WEEKDAYS, weekday)))
        }),
        Method::new("Hour", &[], |call| Ok(Value::int(receiver(call).clock().hour))),
        Method::new("Minute", &[], |call| {
            Ok(Value::int(receiver(call).clock().minute))
        }),
        Method::new("Second", &[], |call| {
            Ok(Value::int(receiver(call).clock().second))
        }),
        Method::new("Nanosecond", &[], |call| {
            Ok(Value::int(receiver(call).nanoseconds.into()))
        }),
        Method::new("IsZero", &[], |call| {
            Ok((receiver(call).since_year_1() == 0).into())
        }),
        // Times have no zone of the database, only offsets.
        Method::new("IsDST", &[], |_| Ok(false.into())),
        Method::unusable("Date", "function Date has 3 return values; should be 1 or 2"),
        Method::unusable("Clock", "function Clock has 3 return values; should be 1 or 2"),
        Method::unusable(
            "ISOWeek",
            "invalid function signature for ISOWeek: second return value should be error; is int",
        ),
        Method::unusable(
            "Zone",
            "invalid function signature for Zone: second return value should be error; is int",
        ),
        Method::unusable(
            "ZoneBounds",
            "invalid function signature for ZoneBounds: second return value should be error; is time.Time",
        ),
    ],
    Encoded::AsTime,
);

/// What a time takes: three fields with their names, and its text.
const BYTES_OF_TIME: usize = 1024;

fn receiver(call: &Call<'_>) -> Time {
    time_argument(call, 0)
}

fn made(call: &Call<'_>, time: &Time) -> Outcome {
    call.budget.copy(BYTES_OF_TIME)?;
    Ok(to_value(time))
}

fn compare(call: &Call<'_>) -> std::cmp::Ordering {
    receiver(call)
        .since_year_1()
        .cmp(&time_argument(call, 1).since_year_1())
}

fn in_utc(call: &Call<'_>) -> Outcome {
    made(
        call,
        &Time {
            zone: Zone::Utc,
            ..receiver(call)
        },
    )
}

fn since_1970(call: &Call<'_>, per_second: i64) -> Value {
    let time = receiver(call);
    let part = i64::from(time.nanoseconds) / (1_000_000_000 / per_second);
    Value::int64(time.seconds.wrapping_mul(per_second).wrapping_add(part))
}

fn named(type_name: &str, number: i64, name: &'static str) -> Value {
    Value::Named(Named::with_text(type_name, Value::int(number), name))
}

/// The nearest duration.
fn clamped(nanoseconds: i128) -> i64 {
    let nearest = nanoseconds.clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(nearest).unwrap_or(i64::MAX)
}
