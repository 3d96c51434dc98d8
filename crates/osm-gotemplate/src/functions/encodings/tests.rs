//! Data that is encoded and decoded, and hostile input.

use super::*;
use crate::budget::Limits;
use crate::format::sprint;
use crate::standard;
use crate::value::{Pointer, Struct};

fn call(name: &str, argument: Value) -> Result<Value, Problem> {
    let budget = Limits::new(1_000_000, 100_000_000);
    let function = FUNCTIONS.iter().find(|function| function.name == name).unwrap();
    (function.run)(&Call::new(&[argument], &budget)?)
}

fn text(name: &str, argument: impl Into<Value>) -> String {
    match call(name, argument.into()) {
        Ok(Value::String(text)) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

/// What a decoder returns, as JSON.
fn decoded(name: &str, source: &str) -> String {
    text("toJson", call(name, source.into()).unwrap())
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    let entries = entries.into_iter().map(|(key, value)| (key.into(), value));
    Value::map(entries.collect())
}

#[test]
fn values_are_encoded_as_what_they_stand_for() {
    let address = standard::ip("10.0.0.1".parse().ok());
    let fields = vec![
        ("Address".into(), Value::Pointer(Pointer::to_value(address))),
        (
            "Age".into(),
            standard::embedding_duration("v1.Duration", 60_000_000_000),
        ),
        ("None".into(), Value::Pointer(Pointer::nil(Type::String))),
        ("Whole".into(), Value::float(2.0)),
        ("hidden".into(), Value::int(1)),
    ];
    let value = Value::Pointer(Pointer::to_value(Value::Struct(Struct::new(fields))));
    assert_eq!(
        text("toJson", value.clone()),
        r#"{"Address":"10.0.0.1","Age":"1m0s","None":null,"Whole":2}"#
    );
    assert_eq!(
        text("toYaml", value.clone()),
        "address: \"10.0.0.1\"\nage:\n  duration: \"1m0s\"\nnone: null\nwhole: 2"
    );
    assert_eq!(
        text("toToml", value),
        "Address = \"10.0.0.1\"\nWhole = 2.0\n\n[Age]\nDuration = \"1m0s\"\n"
    );
    for (name, argument) in [
        ("toJson", Value::float(f64::NAN)),
        ("toToml", Value::int(1)),
        ("toToml", map([("a", Value::list(vec![Value::Nil]))])),
    ] {
        assert!(matches!(call(name, argument), Err(Problem::Failed(_))), "{name}");
    }
}

#[test]
fn decoders_give_the_types_of_go() {
    for (name, source, expected) in [
        (
            "fromJson",
            r#"{"a": 1, "a": [null, true, 1.5, "x"]}"#,
            r#"{"a":[null,true,1.5,"x"]}"#,
        ),
        ("fromJson", "null", "null"),
        ("fromYaml", "", "{}"),
        (
            "fromYaml",
            "a: 0x1F\nb: 017\nc: 1_000\nd: .5\ne: 0o17",
            r#"{"a":31,"b":15,"c":1000,"d":0.5,"e":15}"#,
        ),
        (
            "fromYaml",
            "a: yes\nb: True\nc: ~\nd: '1'",
            r#"{"a":"yes","b":true,"c":null,"d":"1"}"#,
        ),
        (
            "fromYaml",
            "a: 2001-02-03\nb: 12:30",
            r#"{"a":"2001-02-03","b":"12:30"}"#,
        ),
        ("fromYaml", "1: a\ntrue: b", r#"{"1":"a","true":"b"}"#),
        (
            "fromYaml",
            "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3",
            r#"{"x":{"a":1,"b":2},"y":{"a":1,"b":3}}"#,
        ),
    ] {
        assert_eq!(decoded(name, source), expected, "{source}");
    }
    let types = call("fromJson", r#"{"a":1}"#.into()).unwrap();
    let Value::Map(types) = types else { panic!() };
    assert!(matches!(types.get("a"), Some(Value::Float(..))));
    for (name, source) in [
        ("fromJson", "{"),
        ("fromJson", "[1]"),
        ("fromJson", "{} x"),
        ("fromJson", r#"{"a":1e999}"#),
        ("fromYaml", "- a"),
        ("fromYaml", "a: 1\na: 2"),
        ("fromYaml", "a: *x"),
        ("fromYaml", "a: &a [*a]"),
        ("fromYaml", "a: [1"),
    ] {
        let Value::Map(found) = call(name, source.into()).unwrap() else {
            panic!()
        };
        assert!(found.get("Error").is_some() && found.len() == 1, "{source}");
    }
}

#[test]
fn base64_is_padded() {
    assert_eq!(text("b64dec", "aGVs\nbG8="), "hello");
    for (bytes, digits) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
        assert_eq!(text("b64enc", bytes), digits);
        assert_eq!(text("b64dec", digits), bytes);
    }
    for wrong in ["aGVsbG8", "aG=s", "!", "/w=="] {
        assert!(call("b64dec", wrong.into()).is_err(), "{wrong}");
    }
}

#[test]
fn hostile_input_is_refused_or_reported() {
    let run = || {
        let many = 50_000;
        let anchors = (0..30).map(|level| {
            let before = format!("*b{},", level - 1).repeat(9);
            format!("b{level}: &b{level} [{before}]\n")
        });
        let bomb: String = anchors.collect::<String>().replace("*b-1,", "1,");
        let sources = [
            "[".repeat(many),
            "{\"a\":".repeat(many),
            "- ".repeat(many),
            "? ".repeat(many),
            (0..1_000).map(|depth| " ".repeat(depth) + "a:\n").collect(),
            bomb,
        ];
        for source in &sources {
            for name in ["fromJson", "fromYaml"] {
                let is_refused = match call(name, source.as_str().into()) {
                    Ok(Value::Map(map)) if map.get("Error").is_some() => true,
                    // What aliases share is charged as often as it is printed.
                    Ok(value) => sprint(&[value], &Limits::new(1_000_000, 1 << 30)).is_err(),
                    Err(_) => true,
                };
                assert!(is_refused, "{name}: {source:.20}");
            }
        }
        let deep = (0..many).fold(map([]), |inner, _| map([("a", inner)]));
        for name in ["toJson", "toYaml", "toToml"] {
            assert!(call(name, deep.clone()).is_err(), "{name}");
        }
    };
    // As deep as a stack of 1 MiB allows.
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run);
    thread.unwrap().join().unwrap();
}
