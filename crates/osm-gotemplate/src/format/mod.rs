//! Go's `fmt`: values as text.
//!
//! The output is byte for byte that of Go, with three exceptions, which are problems here:
//! - The address of a pointer, a map or a list is different in each run of a program, so it can't be printed.
//!   As in Go, a pointer to a struct, a list or a map prints as `&` and the value, if it is not part of another value.
//! - Bytes that are not UTF-8 can't be printed as text.
//! - Values that are nested deeper than [`crate::value::MAX_NESTING`].

mod directives;
mod flags;
pub(crate) mod floats;
mod printer;
pub(crate) mod quotes;

use crate::budget::Budget;
use crate::methods::{self, STRING};
use crate::problem::Problem;
use crate::value::{Type, UintKind, Value};

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

/// Go's `fmt.Sprintf`.
///
/// # Errors
/// As [`sprint`]. A format that does not fit the values is not an error, but prints e.g. `%!d(string=a)`, as in Go.
pub fn sprintf(format: &str, values: &[Value], budget: &dyn Budget) -> Result<String, Problem> {
    let mut printer = Printer::new(budget);
    printer.directives(format, values)?;
    Ok(printer.finish())
}

/// Sprig's `strval`: a string as it is, bytes as text, else `%v`.
///
/// # Errors
/// As [`sprint`], and a nil pointer to a type with the method `String`.
pub fn strval(value: &Value, budget: &dyn Budget) -> Result<String, Problem> {
    match value {
        Value::String(text) => {
            budget.copy(text.len())?;
            Ok(String::from(&**text))
        }
        Value::List(list) if *list.element() == Type::Uint(UintKind::Uint8) => {
            sprintf("%s", std::slice::from_ref(value), budget)
        }
        Value::Pointer(pointer) if pointer.value().is_none() && pointer.to().behavior().has_text() => {
            // Unlike `%v`, it calls the method.
            Err(Problem::new(methods::of_nil_pointer(pointer.to(), STRING.name)))
        }
        _ => sprint(std::slice::from_ref(value), budget),
    }
}

/// Go's `strconv.Quote`.
#[must_use]
pub fn quote(text: &str) -> String {
    quotes::quote(text, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;
    use crate::value::{Map, Named, Pointer, Struct};

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
            (
                "%v %+v %T",
                &[person.clone(), person.clone(), person.clone()],
                "{x 3} {Name:x Age:3} main.Person",
            ),
            (
                "%#v",
                std::slice::from_ref(&person),
                r#"main.Person{Name:"x", Age:3}"#,
            ),
            ("%v", std::slice::from_ref(&pointer), "&{x 3}"),
            ("%v", std::slice::from_ref(&map), "map[a:1e+06 b:<nil>]"),
            (
                "%#v",
                std::slice::from_ref(&map),
                r#"map[string]interface {}{"a":1e+06, "b":interface {}(nil)}"#,
            ),
            (
                "%v %d %s",
                &[duration.clone(), duration.clone(), duration.clone()],
                "5ns 5 5ns",
            ),
            ("%d", &["a".into()], "%!d(string=a)"),
            ("%s %v", &[Value::Nil, Value::Nil], "%!s(<nil>) <nil>"),
            ("%[2]d %[1]d %d", &[Value::int(1), Value::int(2)], "2 1 2"),
            (
                "%6.2f|%-6d|%06d",
                &[Value::float(2.71), Value::int(42), Value::int(-42)],
                "  2.71|42    |-00042",
            ),
            ("%d", &[Value::int(1), "a".into()], "1%!(EXTRA string=a)"),
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
        assert!(
            sprintf(
                "%p",
                &[Value::Map(Map::new(Type::Any, Default::default()))],
                &limits
            )
            .is_err()
        );
        assert_eq!(
            printf("%v", &[Value::Pointer(Pointer::nil(Type::String))]),
            "<nil>"
        );
    }

    #[test]
    fn what_is_made_is_charged_before() {
        let limits = Limits::new(1000, 1000);
        for format in [
            "%1000000d",
            "%.1000000d",
            "%.1000000f",
            "%#.1000000g",
            "%.1000000x",
            "%.1000000U",
        ] {
            let failed = sprintf(format, &[Value::int(1)], &limits).is_err();
            let failed_float = sprintf(format, &[Value::float(1.0)], &limits).is_err();
            assert!(failed || failed_float, "{format}");
        }
        let mut deep = Value::Nil;
        for _ in 0..100_000 {
            deep = Value::list(vec![deep]);
        }
        assert!(sprint(&[deep], &Limits::new(u64::MAX, usize::MAX)).is_err());
    }
}
