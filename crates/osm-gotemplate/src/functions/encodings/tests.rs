//! Results that Go's encoders and decoders give, and hostile input.

use super::*;
use crate::budget::Limits;
use crate::format::sprintf;
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

/// What a decoder returns, in Go's syntax.
fn decoded(name: &str, source: &str) -> String {
    let value = call(name, source.into()).unwrap();
    sprintf("%#v", &[value], &Limits::new(1_000_000, 100_000_000)).unwrap()
}

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::map(
        entries
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect(),
    )
}

#[test]
fn json_is_that_of_go() {
    let floats = Value::list(
        [1e20, 1e21, 1e-6, 1e-7, 0.1, -0.0, 100.0]
            .map(Value::float)
            .to_vec(),
    );
    assert_eq!(
        text("toJson", floats),
        "[100000000000000000000,1e+21,0.000001,1e-7,0.1,-0,100]"
    );
    assert_eq!(
        text("toJson", "<\u{2028}\u{1}é\"\\\n"),
        r#""\u003c\u2028\u0001é\"\\\n""#
    );
    assert_eq!(text("toJson", Value::float(f64::NAN)), "");
    let address = standard::ip("10.0.0.1".parse().ok());
    let fields = vec![
        ("A".into(), Value::Pointer(Pointer::to_value(address))),
        ("b".into(), Value::int(1)),
    ];
    assert_eq!(
        text("toJson", Value::Struct(Struct::new(fields))),
        r#"{"A":"10.0.0.1"}"#
    );
}

#[test]
fn json_errors_are_those_of_go() {
    let cases = [
        (
            "{\"a\": 1, \"a\": [null]}",
            r#"map[string]interface {}{"a":[]interface {}{interface {}(nil)}}"#,
        ),
        ("null", "map[string]interface {}(nil)"),
        (
            "{",
            r#"map[string]interface {}{"Error":"unexpected end of JSON input"}"#,
        ),
        (
            "{\"a\"}",
            r#"map[string]interface {}{"Error":"invalid character '}' after object key"}"#,
        ),
        (
            "tru",
            r#"map[string]interface {}{"Error":"invalid character ' ' in literal true (expecting 'e')"}"#,
        ),
        (
            "[1]",
            r#"map[string]interface {}{"Error":"json: cannot unmarshal array into Go value of type map[string]interface {}"}"#,
        ),
        (
            r#"{"a":"\ud83d\ude00\ud800"}"#,
            "map[string]interface {}{\"a\":\"\u{1f600}\u{fffd}\"}",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(decoded("fromJson", source), expected, "{source}");
    }
}

#[test]
fn yaml_is_that_of_yaml_v3() {
    let keys = map(["a10", "a2", "B1", "_x", "1", "true", "a: b"].map(|key| (key, Value::Nil)));
    assert_eq!(
        text("toYaml", keys),
        "_x: null\n\"1\": null\nB1: null\n'a: b': null\na2: null\na10: null\n\"true\": null"
    );
    let nested = Value::list(vec![
        map([
            ("a", Value::list(vec![Value::int(1), map([])])),
            ("b", Value::list(Vec::new())),
        ]),
        Value::list(vec!["x".into(), "y\nz\n".into()]),
    ]);
    let expected = "- a:\n    - 1\n    - {}\n  b: []\n- - x\n  - |\n    y\n    z";
    assert_eq!(text("toYaml", nested), expected);
    let scalars = [
        ("", "\"\""),
        ("yes", "\"yes\""),
        ("0o7", "\"0o7\""),
        ("1:20", "\"1:20\""),
        ("2001-01-02", "\"2001-01-02\""),
        ("- a", "'- a'"),
        ("it's: x", "'it''s: x'"),
        ("a\tb", "\"a\\tb\""),
        ("\u{1f600}", "\"\\U0001F600\""),
        (" a\nb", "|4-\n     a\n    b"),
        ("a \nb", "\"a \\nb\""),
        ("a\n\n", "|+\n    a\n"),
    ];
    for (source, expected) in scalars {
        assert_eq!(text("toYaml", source), expected, "{source:?}");
    }
}

#[test]
fn yaml_scalars_have_the_types_of_yaml_v3() {
    let cases = [
        ("a: 0x1F", r#"map[string]interface {}{"a":31}"#),
        (
            "a: 017\nb: 08\nc: 1_000\nd: .5",
            r#"map[string]interface {}{"a":15, "b":8, "c":1000, "d":0.5}"#,
        ),
        (
            "a: yes\nb: True\nc: ~",
            r#"map[string]interface {}{"a":"yes", "b":true, "c":interface {}(nil)}"#,
        ),
        (
            "a: 18446744073709551615",
            r#"map[string]interface {}{"a":0xffffffffffffffff}"#,
        ),
        (
            "a: !!float 1\nb: !!str 1",
            r#"map[string]interface {}{"a":1, "b":"1"}"#,
        ),
        ("1: a", r#"map[string]interface {}{"1":"a"}"#),
        (
            "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3",
            r#"map[string]interface {}{"x":map[string]interface {}{"a":1, "b":2}, "y":map[string]interface {}{"a":1, "b":3}}"#,
        ),
        (
            "a: 2001-02-03T04:05:06.5+01:30",
            r#"map[string]interface {}{"a":"2001-02-03T04:05:06.5+01:30"}"#,
        ),
        ("", "map[string]interface {}{}"),
        (
            "- a",
            r#"map[string]interface {}{"Error":"yaml: unmarshal errors:\n  line 1: cannot unmarshal !!seq into map[string]interface {}"}"#,
        ),
        (
            "a: 1\na: 2",
            r#"map[string]interface {}{"Error":"yaml: unmarshal errors:\n  line 2: mapping key \"a\" already defined at line 1"}"#,
        ),
        (
            "b: 1\na: *x",
            r#"map[string]interface {}{"Error":"yaml: unknown anchor 'x' referenced"}"#,
        ),
        (
            "a: &a [*a]",
            r#"map[string]interface {}{"Error":"yaml: anchor 'a' value contains itself"}"#,
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(decoded("fromYaml", source), expected, "{source}");
    }
}

#[test]
fn toml_is_that_of_burntsushi() {
    let tables = Value::list(vec![
        map([("x", Value::int(1))]),
        map([("y", map([("z", Value::float(2.0))]))]),
    ]);
    let mixed = Value::list(vec![Value::int(1), map([("k", "v".into()), ("n", Value::Nil)])]);
    let value = map([
        ("a b", "q\"\n\u{1}".into()),
        ("l", mixed),
        ("n", Value::Nil),
        ("t", tables),
    ]);
    let expected = "\"a b\" = \"q\\\"\\n\\u0001\"\nl = [1, {k = \"v\", }]\n\n[[t]]\n  x = 1\n\n[[t]]\n  [t.y]\n    z = 2.0\n";
    assert_eq!(text("toToml", value), expected);
    assert_eq!(
        text("toToml", map([("a", Value::list(vec![Value::Nil]))])),
        "toml: cannot encode array with nil element"
    );
}

#[test]
fn base64_is_padded_and_names_the_byte_that_is_wrong() {
    assert_eq!(text("b64dec", "aGVs\nbG8="), "hello");
    assert_eq!(text("b64dec", "aGVsbG8"), "illegal base64 data at input byte 4");
    assert_eq!(text("b64dec", "aG=s"), "illegal base64 data at input byte 2");
    for (bytes, digits) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
        assert_eq!(text("b64enc", bytes), digits);
        assert_eq!(text("b64dec", digits), bytes);
    }
    assert!(call("b64dec", "/w==".into()).is_err());
}

#[test]
fn hostile_input_is_refused_or_reported() {
    let run = || {
        let many = 50_000;
        let anchors = (0..30).map(|level| {
            format!(
                "b{level}: &b{level} [{}]\n",
                format!("*b{},", level - 1).repeat(9)
            )
        });
        let bomb: String = anchors.collect::<String>().replace("*b-1,", "1,");
        let sources = [
            "[".repeat(many),
            "{\"a\":".repeat(many),
            "- ".repeat(many),
            "? ".repeat(many),
            bomb,
        ];
        for source in &sources {
            for name in ["fromJson", "fromYaml"] {
                let shown = call(name, source.as_str().into()).map(|value| {
                    let limits = Limits::new(1_000_000, 100_000_000);
                    sprintf("%v", &[value], &limits).unwrap()
                });
                let is_error = |shown: &String| shown.contains("Error:") || shown.starts_with('[');
                assert!(
                    shown.as_ref().is_ok_and(is_error) || shown.is_err(),
                    "{name}: {source:.20}"
                );
            }
        }
        let mut deep = map([]);
        for _ in 0..many {
            deep = map([("a", deep)]);
        }
        for name in ["toJson", "toYaml", "toToml"] {
            assert!(call(name, deep.clone()).is_err(), "{name}");
        }
    };
    // As deep as a stack of 1 MiB allows.
    std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}
