//! Go's `fmt`: values as text.
//!
//! The output is byte for byte that of Go, with these exceptions, which are problems here:
//! - The address of a pointer is different in each run of a program, so it can't be printed.
//!   As in Go, a pointer to a struct, a list or a map prints as `&` and the value, if it is not part of
//!   another value.
//! - Values that are nested deeper than [`crate::value::MAX_NESTING`].
//! - Formats with other directives than the verbs `s`, `q`, `v`, `d`, `x` and `t` with a width.

mod directives;
mod floats;
mod printer;
pub(crate) mod quotes;

use crate::budget::Budget;
use crate::methods::{self, STRING};
use crate::problem::Problem;
use crate::value::Value;

pub(crate) use directives::check;
pub(crate) use quotes::quote;

use printer::Printer;

/// Go's `fmt.Sprint`: the values with `%v`, and a space between two values that are both not strings.
///
/// # Errors
/// The budget is exhausted, or a value can't be printed, see the module.
pub fn sprint(values: &[Value], budget: &dyn Budget) -> Result<String, Problem> {
    let mut printer = Printer::new(budget);
    let mut after_string = true; // There is no space before the first.
    for value in values {
        let is_string = matches!(value.underlying(), Value::String(_));
        if !is_string && !after_string {
            printer.write(" ")?;
        }
        printer.argument(value, 'v')?;
        after_string = is_string;
    }
    Ok(printer.finish())
}

/// Go's `fmt.Sprintln`: the values with `%v`, a space between all, and a line break.
///
/// # Errors
/// As [`sprint`].
pub fn sprintln(values: &[Value], budget: &dyn Budget) -> Result<String, Problem> {
    let mut printer = Printer::new(budget);
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            printer.write(" ")?;
        }
        printer.argument(value, 'v')?;
    }
    printer.write("\n")?;
    Ok(printer.finish())
}

/// Go's `fmt.Sprintf`, for the verbs `s`, `q`, `v`, `d`, `x` and `t` with a width.
///
/// # Errors
/// As [`sprint`], and a format with something else. A verb that does not fit its value is not an error, but
/// prints e.g. `%!d(string=a)`, as in Go.
pub fn sprintf(format: &str, values: &[Value], budget: &dyn Budget) -> Result<String, Problem> {
    let mut printer = Printer::new(budget);
    let (mut rest, mut values) = (format, values.iter());
    while !rest.is_empty() {
        budget.step(1)?;
        let piece = directives::split(rest).map_err(Problem::new)?;
        printer.write(piece.text)?;
        if let Some((flags, verb)) = piece.directive {
            printer.directive(flags, verb, values.next())?;
        }
        rest = piece.rest;
    }
    printer.unused(values.as_slice())?;
    Ok(printer.finish())
}

/// Sprig's `strval`: a string as it is, else `%v`.
///
/// # Errors
/// As [`sprint`], and a nil pointer to a type with the method `String`.
pub fn strval(value: &Value, budget: &dyn Budget) -> Result<String, Problem> {
    match value {
        Value::String(text) => {
            budget.copy(text.len())?;
            Ok(String::from(&**text))
        }
        Value::Pointer(pointer) if pointer.value().is_none() && pointer.to().behavior().has_text() => {
            // Unlike `%v`, it calls the method.
            Err(Problem::new(methods::of_nil_pointer(pointer.to(), STRING.name)))
        }
        _ => sprint(std::slice::from_ref(value), budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;
    use crate::value::{Named, Pointer, Struct, Type};

    fn printf(format: &str, values: &[Value]) -> String {
        sprintf(format, values, &Limits::new(1_000_000, 10_000_000)).unwrap()
    }

    #[test]
    fn values_print_as_in_go() {
        let person = Struct::new(vec![("Name".into(), "x".into()), ("Age".into(), Value::int(3))]);
        let person = Value::Named(Named::new("main.Person", Value::Struct(person)));
        let pointer = Value::Pointer(Pointer::to_value(person.clone()));
        let map = Value::map([("b".into(), Value::Nil), ("a".into(), Value::float(1e6))].into());
        let duration = Value::Named(Named::with_text("time.Duration", Value::int64(5), "5ns"));
        let cases: &[(&str, &[Value], &str)] = &[
            ("%v", std::slice::from_ref(&person), "{x 3}"),
            ("%v", std::slice::from_ref(&pointer), "&{x 3}"),
            ("%v", std::slice::from_ref(&map), "map[a:1e+06 b:<nil>]"),
            (
                "%v %d %s",
                &[duration.clone(), duration.clone(), duration.clone()],
                "5ns 5 5ns",
            ),
            ("%d", &["a".into()], "%!d(string=a)"),
            ("%s %v", &[Value::Nil, Value::Nil], "%!s(<nil>) <nil>"),
            (
                "%6v|%-6d|%06d|%06v",
                &[
                    Value::float(2.7),
                    Value::int(42),
                    Value::int(-42),
                    Value::float(-1.5),
                ],
                "   2.7|42    |-00042|-001.5",
            ),
            (
                "%5s|%-5q|%x|%x",
                &["a".into(), "b".into(), "ab".into(), Value::int(-255)],
                r#"    a|"b"  |6162|-ff"#,
            ),
            (
                "%t|%5t|%t",
                &[true.into(), false.into(), Value::int(1)],
                "true|false|%!t(int=1)",
            ),
            ("%d", &[Value::int(1), "a".into()], "1%!(EXTRA string=a)"),
            ("%d%%%d", &[Value::int(1)], "1%%!d(MISSING)"),
        ];
        for (format, values, expected) in cases {
            assert_eq!(printf(format, values), *expected, "{format}");
        }
    }

    #[test]
    fn addresses_are_problems_but_nil_is_not() {
        let limits = Limits::new(1_000_000, 1_000_000);
        let pointer = Value::Pointer(Pointer::to_value("x".into()));
        assert!(sprint(std::slice::from_ref(&pointer), &limits).is_err());
        assert_eq!(
            printf("%v", &[Value::Pointer(Pointer::nil(Type::String))]),
            "<nil>"
        );
    }

    #[test]
    fn other_directives_are_problems() {
        for (format, shown) in [
            ("%6.2f", "%6.2f"),
            ("%+v", "%+v"),
            ("a%T", "%T"),
            ("%s %[1]d", "%[1]d"),
            ("%*d", "%*d"),
            ("%1000001d", "%1000001d"),
            ("100%", "%"),
            ("% é", "% "),
        ] {
            let error = check(format).unwrap_err();
            assert!(
                error.starts_with(&format!("{shown} is not supported; use ")),
                "{error}"
            );
            let printed = sprintf(format, &[Value::int(1)], &Limits::new(100, 1000));
            assert_eq!(printed, Err(Problem::new(error)));
        }
    }

    #[test]
    fn what_is_made_is_charged_before() {
        let limits = Limits::new(1000, 1000);
        for format in ["%1000000d", "%-1000000s", "%01000000v"] {
            assert!(sprintf(format, &[Value::int(1)], &limits).is_err(), "{format}");
        }
        let mut deep = Value::Nil;
        for _ in 0..100_000 {
            deep = Value::list(vec![deep]);
        }
        assert!(sprint(&[deep], &Limits::new(u64::MAX, usize::MAX)).is_err());
    }
}
