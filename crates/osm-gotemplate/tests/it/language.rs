//! What templates render, and the texts of errors, as Go 1.26 prints them.
//!
//! Each case is a template and its output, or its error without the prefix `template: `. The data is
//! `{"I": 42, "L": [1, "a", nil], "M": {"a": 1, "n": nil}, "S": "text"}`.

use osm_gotemplate::budget::Limits;
use osm_gotemplate::{TemplateSet, Value};

type Case = (&'static str, Result<&'static str, &'static str>);

#[rustfmt::skip]
const PARSING: &[Case] = &[
    (r#"{{"#, Err(r#"t:1: unclosed action"#)),
    (r#"{{1"#, Err(r#"t:1: unclosed action"#)),
    (r#"{{ "a"#, Err(r#"t:1: unterminated quoted string"#)),
    (r#"{{ 'a"#, Err(r#"t:1: unterminated character constant"#)),
    (r#"{{ (1 }}"#, Err(r#"t:1: unclosed left paren"#)),
    (r#"{{ 1) }}"#, Err(r#"t:1: unexpected right paren"#)),
    (r#"{{/* a"#, Err(r#"t:1: unclosed comment"#)),
    (r#"{{/* a */ }}"#, Err(r#"t:1: comment ends before closing delimiter"#)),
    (r#"{{ a:b }}"#, Err(r#"t:1: function "a" not defined"#)),
    (r#"{{ .a@ }}"#, Err(r#"t:1: bad character U+0040 '@'"#)),
    (r#"{{ é! }}"#, Err(r#"t:1: bad character U+0021 '!'"#)),
    (r#"{{ @ }}"#, Err(r#"t:1: unexpected "@" in command"#)),
    (r#"{{ 1a }}"#, Err(r#"t:1: bad number syntax: "1a""#)),
    (r#"{{ 1+2 }}"#, Err(r#"t:1: bad number syntax: "1+2""#)),
    (r#"{{ 1+2i }}"#, Err(r#"t:1: 1+2i is not supported; use an integer or a decimal number"#)),
    (r#"{{ 0x1p-2 }}"#, Err(r#"t:1: 0x1p-2 is not supported; use an integer or a decimal number"#)),
    (r#"{{ printf "%5.1f" 1.0 }}"#, Err(r#"t:1: %5.1f is not supported; use %s, %q, %v, %d, %x or %t, which can have a width, such as %-8s or %03d"#)),
    (r#"{{ 99999999999999999999 }}"#, Err(r#"t:1: integer overflow: "99999999999999999999""#)),
    (r#"{{ 0b2 }}"#, Err(r#"t:1: bad number syntax: "0b2""#)),
    (r#"{{ 'ab' }}"#, Err(r#"t:1: malformed character constant: 'ab'"#)),
    (r#"{{ "\q" }}"#, Err(r#"t:1: invalid syntax"#)),
    (r#"{{ }}"#, Err(r#"t:1: missing value for command"#)),
    (r#"{{ 1 | }}"#, Ok(r#"1"#)),
    (r#"{{ 1 | 2 }}"#, Err(r#"t:1: non executable command in pipeline stage 2"#)),
    (r#"{{ 1.X }}"#, Err(r#"t:1: bad number syntax: "1.X""#)),
    (r#"{{ $x }}"#, Err(r#"t:1: undefined variable "$x""#)),
    (r#"{{ $x, $y := 1 }}"#, Err(r#"t:1: too many declarations in command"#)),
    (r#"{{ range $x, 1 := . }}{{ end }}"#, Err(r#"t:1: range can only initialize variables"#)),
    (r#"{{ range $x, $y, $z := . }}{{ end }}"#, Err(r#"t:1: too many declarations in range"#)),
    (r#"{{ missing }}"#, Err(r#"t:1: function "missing" not defined"#)),
    (r#"{{ end }}"#, Err(r#"t:1: unexpected {{end}}"#)),
    (r#"{{ else }}"#, Err(r#"t:1: unexpected {{else}}"#)),
    (r#"{{ if 1 }}"#, Err(r#"t:1: unexpected EOF"#)),
    (r#"{{ if 1 }}{{ else }}{{ else }}{{ end }}"#, Err(r#"t:1: expected end; found {{else}}"#)),
    (r#"{{ with 1 }}{{ else if 1 }}{{ end }}"#, Err(r#"t:1: unexpected <if> in input"#)),
    (r#"{{ if }}{{ end }}"#, Err(r#"t:1: missing value for if"#)),
    (r#"{{ break }}"#, Err(r#"t:1: {{break}} outside {{range}}"#)),
    (r#"{{ range . }}{{ break 1 }}{{ end }}"#, Err(r#"t:1: unexpected "1" in {{break}}"#)),
    (r#"{{ template a }}"#, Err(r#"t:1: unexpected "a" in template clause"#)),
    (r#"{{ define a }}{{ end }}"#, Err(r#"t:1: unexpected "a" in define clause"#)),
    (r#"{{ if 1 }}{{ define `a` }}{{ end }}{{ end }}"#, Err(r#"t:1: unexpected <define> in command"#)),
    (r#"{{ define `a` }}x{{ end }}{{ define `a` }}y{{ end }}"#, Err(r#"t:1: template: multiple definition of template "a""#)),
    (r#"{{ block `a` . }}
{{ else }}{{ end }}"#, Err(r#"t:1: unexpected {{else}} in block clause"#)),
    (r#"x
{{ 1
}}
{{ ( }}"#, Err(r#"t:4: unclosed left paren"#)),
];

#[rustfmt::skip]
const EXECUTING: &[Case] = &[
    (r#"{{ .I.X }}"#, Err(r#"t:1:5: executing "t" at <.I.X>: can't evaluate field X in type interface {}"#)),
    (r#"{{ .L.X }}"#, Err(r#"t:1:5: executing "t" at <.L.X>: can't evaluate field X in type interface {}"#)),
    (r#"{{ .M.a.b.c }}"#, Err(r#"t:1:5: executing "t" at <.M.a.b.c>: can't evaluate field b in type interface {}"#)),
    (r#"{{ .M.z.b }}|{{ .M.n }}|{{ .M.n.b }}"#, Err(r#"t:1:29: executing "t" at <.M.n.b>: nil pointer evaluating interface {}.b"#)),
    (r#"{{ .I 1 }}"#, Err(r#"t:1:3: executing "t" at <.I>: I is not a method but has arguments"#)),
    (r#"{{ $.I 1 }}"#, Err(r#"t:1:4: executing "t" at <$.I>: I is not a method but has arguments"#)),
    (r#"{{ 1 | .I }}"#, Err(r#"t:1:7: executing "t" at <.I>: I is not a method but has arguments"#)),
    (r#"{{ (1) 2 }}"#, Err(r#"t:1:3: executing "t" at <(1) 2>: can't give argument to non-function 1"#)),
    (r#"{{ nil }}"#, Err(r#"t:1:3: executing "t" at <nil>: nil is not a command"#)),
    (r#"{{ range .I }}{{ . }}{{ .X }}{{ end }}"#, Err(r#"t:1:24: executing "t" at <.X>: can't evaluate field X in type int"#)),
    (r#"{{ range $i, $e := .I }}{{ end }}"#, Err(r#"t:1:19: executing "t" at <.I>: can't use 42 to iterate over more than one variable"#)),
    (r#"{{ range .S }}{{ end }}"#, Err(r#"t:1:9: executing "t" at <.S>: range can't iterate over text"#)),
    (r#"{{ range .L }}{{ .X }}{{ end }}"#, Err(r#"t:1:17: executing "t" at <.X>: can't evaluate field X in type interface {}"#)),
    (r#"{{ template "x" }}"#, Err(r#"t:1:12: executing "t" at <{{template "x"}}>: template "x" not defined"#)),
    (r#"{{ define "a" }}{{ .X }}{{ end }}{{ template "a" .I }}"#, Err(r#"t:1:19: executing "a" at <.X>: can't evaluate field X in type int"#)),
    (r#"{{ $x = 1 }}"#, Err(r#"t:1:8: executing "t" at <1>: undefined variable: $x"#)),
    (r#"{{ if false }}{{ $x := 1 }}{{ else }}{{ $x }}{{ end }}"#, Err(r#"t:1:40: executing "t" at <$x>: undefined variable: $x"#)),
    (r#"{{ len .I }}|"#, Err(r#"t:1:3: executing "t" at <len .I>: error calling len: len of type int"#)),
    (r#"{{ len .M.z }}"#, Err(r#"t:1:3: executing "t" at <len .M.z>: error calling len: reflect: call of reflect.Value.Type on zero Value"#)),
    (r#"{{ len .M.n }}"#, Err(r#"t:1:3: executing "t" at <len .M.n>: error calling len: len of nil pointer"#)),
    (r#"{{ len nil }}"#, Err(r#"t:1:3: executing "t" at <len nil>: error calling len: reflect: call of reflect.Value.Type on zero Value"#)),
    (r#"{{ len }}"#, Err(r#"t:1:3: executing "t" at <len>: wrong number of args for len: want 1 got 0"#)),
    (r#"{{ len 1 2 }}"#, Err(r#"t:1:3: executing "t" at <len>: wrong number of args for len: want 1 got 2"#)),
    (r#"{{ eq }}"#, Err(r#"t:1:3: executing "t" at <eq>: wrong number of args for eq: want at least 1 got 0"#)),
    (r#"{{ eq 1 }}"#, Err(r#"t:1:3: executing "t" at <eq 1>: error calling eq: missing argument for comparison"#)),
    (r#"{{ eq 1 "a" }}"#, Err(r#"t:1:3: executing "t" at <eq 1 "a">: error calling eq: incompatible types for comparison: int and string"#)),
    (r#"{{ eq .L .L }}"#, Err(r#"t:1:3: executing "t" at <eq .L .L>: error calling eq: non-comparable type [%!s(int=1) a <nil>]: []interface {}"#)),
    (r#"{{ eq .L .M }}"#, Err(r#"t:1:3: executing "t" at <eq .L .M>: error calling eq: non-comparable types [%!s(int=1) a <nil>]: []interface {}, map[string]interface {}: map[a:1 n:<nil>]"#)),
    (r#"{{ eq .M nil }}|{{ eq .M.z nil }}|{{ eq .M.n nil }}"#, Ok(r#"false|true|true"#)),
    (r#"{{ lt 1 1.5 }}"#, Err(r#"t:1:3: executing "t" at <lt 1 1.5>: error calling lt: incompatible types for comparison: int and float64"#)),
    (r#"{{ lt .L 1 }}"#, Err(r#"t:1:3: executing "t" at <lt .L 1>: error calling lt: invalid type for comparison"#)),
    (r#"{{ index .L 3 }}"#, Err(r#"t:1:3: executing "t" at <index .L 3>: error calling index: reflect: slice index out of range"#)),
    (r#"{{ index .L 4 }}"#, Err(r#"t:1:3: executing "t" at <index .L 4>: error calling index: index out of range: 4"#)),
    (r#"{{ index .L "a" }}"#, Err(r#"t:1:3: executing "t" at <index .L "a">: error calling index: cannot index slice/array with type string"#)),
    (r#"{{ index .M 1 }}"#, Err(r#"t:1:3: executing "t" at <index .M 1>: error calling index: value has type int; should be string"#)),
    (r#"{{ index .M nil }}"#, Err(r#"t:1:3: executing "t" at <index .M nil>: error calling index: value is nil; should be of type string"#)),
    (r#"{{ index .I 0 }}"#, Err(r#"t:1:3: executing "t" at <index .I 0>: error calling index: can't index item of type int"#)),
    (r#"{{ index nil 0 }}"#, Err(r#"t:1:3: executing "t" at <index nil 0>: error calling index: index of untyped nil"#)),
    (r#"{{ index .M "a" "b" }}"#, Err(r#"t:1:3: executing "t" at <index .M "a" "b">: error calling index: can't index item of type int"#)),
    (r#"{{ index .M "z" }}|{{ index .S 1 }}"#, Ok(r#"<no value>|101"#)),
    (r#"{{ call .I 1 }}"#, Err(r#"t:1:3: executing "t" at <call .I 1>: error calling call: non-function .I of type int"#)),
    (r#"{{ call nil }}"#, Err(r#"t:1:3: executing "t" at <call nil>: error calling call: call of nil"#)),
    (r#"{{ upper 1 }}"#, Err(r#"t:1:9: executing "t" at <1>: expected string; found 1"#)),
    (r#"{{ upper .I }}"#, Err(r#"t:1:9: executing "t" at <.I>: wrong type for value; expected string; got int"#)),
    (r#"{{ upper (len .S) }}"#, Err(r#"t:1:14: executing "t" at <.S>: wrong type for value; expected string; got int"#)),
    (r#"{{ upper .M.z }}"#, Err(r#"t:1:11: executing "t" at <.M.z>: invalid value; expected string"#)),
    (r#"{{ upper .M.n }}"#, Err(r#"t:1:11: executing "t" at <.M.n>: wrong type for value; expected string; got interface {}"#)),
    (r#"{{ upper nil }}"#, Err(r#"t:1:9: executing "t" at <nil>: cannot assign nil to string"#)),
    (r#"{{ .I | upper }}"#, Err(r#"t:1:8: executing "t" at <upper>: wrong type for value; expected string; got int"#)),
    (r#"{{ repeat 1.5 "a" }}"#, Err(r#"t:1:10: executing "t" at <1.5>: expected integer; found 1.5"#)),
    (r#"{{ repeat "a" "b" }}"#, Err(r#"t:1:10: executing "t" at <"a">: expected integer; found "a""#)),
    (r#"{{ hasKey .S "a" }}"#, Err(r#"t:1:10: executing "t" at <.S>: wrong type for value; expected map[string]interface {}; got string"#)),
    (r#"{{ hasKey nil "a" }}"#, Ok(r#"false"#)),
    (r#"{{ first 1 }}"#, Err(r#"t:1:3: executing "t" at <first 1>: error calling first: Cannot find first on type int"#)),
    (r#"{{ first "a" | upper | len | index .L 1 }}"#, Err(r#"t:1:3: executing "t" at <first "a">: error calling first: Cannot find first on type string"#)),
    (r#"{{ 9223372036854775808 }}"#, Err(r#"t:1:3: executing "t" at <9223372036854775808>: 9223372036854775808 overflows int"#)),
    (r#"{{ printf 1 }}"#, Err(r#"t:1:10: executing "t" at <1>: expected string; found 1"#)),
    (r#"{{ and 0 .I.X }}|{{ or 1 .I.X }}|{{ and 1 (or 0 "x") }}"#, Ok(r#"0|1|x"#)),
    (r#"{{ or 0 .I.X }}"#, Err(r#"t:1:10: executing "t" at <.I.X>: can't evaluate field X in type interface {}"#)),
    (r#"x
 {{ fail "no" }}"#, Err(r#"t:2:4: executing "t" at <fail "no">: error calling fail: no"#)),
    (r#"x {{- /* c */ -}}
 y {{ 1 }} {{- " z" }}"#, Ok(r#"xy 1 z"#)),
    (r#"{{ range $k, $v := .M }}{{ $k }}={{ $v }};{{ end }}"#, Ok(r#"a=1;n=<no value>;"#)),
    (r#"{{ range $i, $e := .L }}{{ if $i }}{{ break }}{{ end }}{{ $e }}{{ end }}"#, Ok(r#"1"#)),
    (r#"{{ range .M.z }}{{ else with .S }}{{ end }}"#, Err(r#"t:1: unexpected <with> in input"#)),
    (r#"{{ with .M.z }}{{ else with .S }}{{ . }}{{ end }}"#, Ok(r#"text"#)),
    (r#"{{ if .M.z }}{{ else if .S }}{{ .I }}{{ else }}x{{ end }}"#, Ok(r#"42"#)),
    (r#"{{ block "a" .S }}{{ . }}{{ end }}{{ template "a" 1 }}{{ template "a" }}"#, Ok(r#"text1<no value>"#)),
    (r#"{{ 1e3 }} {{ 1.0 }} {{ 'a' }} {{ 0x1F }} {{ 1_000 }} {{ -0x1E }}"#, Ok(r#"1000 1 97 31 1000 -30"#)),
    (r#"{{ .L }} {{ .M }} {{ . | len }}"#, Ok(r#"[1 a <nil>] map[a:1 n:<nil>] 4"#)),
    (r#"{{ (index .L 0).X }}"#, Err(r#"t:1:13: executing "t" at <0>: can't evaluate field X in type int"#)),
    (r#"{{ (.M).a }} {{ (dict "k" .M).k.a }} {{ ($x := 5) }}{{ $x }}"#, Ok(r#"1 1 55"#)),
];

fn data() -> Value {
    let list = Value::list(vec![Value::int(1), "a".into(), Value::Nil]);
    let map = Value::map([("a".into(), Value::int(1)), ("n".into(), Value::Nil)].into());
    Value::map(
        [
            ("I".into(), Value::int(42)),
            ("L".into(), list),
            ("M".into(), map),
            ("S".into(), "text".into()),
        ]
        .into(),
    )
}

fn render(source: &str, data: &Value) -> Result<String, String> {
    let limits = Limits::new(1_000_000, 1 << 24);
    let mut set = TemplateSet::new("t");
    let parsed = set.parse("t", source, &limits);
    let rendered = parsed.and_then(|()| set.execute("t", data, &limits));
    rendered.map_err(|error| error.to_string().replacen("template: ", "", 1))
}

#[test]
fn templates_render_as_in_go() {
    for (source, expected) in PARSING.iter().chain(EXECUTING) {
        let rendered = render(source, &data());
        assert_eq!(rendered.as_deref().map_err(String::as_str), *expected, "{source}");
    }
}

#[test]
fn an_error_has_its_place() {
    let limits = Limits::new(1_000_000, 1 << 24);
    let mut set = TemplateSet::new("set");
    set.parse(
        "file",
        "{{ define `inner` }}\n é{{ .X.Y }}{{ end }}{{ template `inner` 1 }}",
        &limits,
    )
    .unwrap();
    let error = set.execute("file", &Value::Nil, &limits).unwrap_err();
    assert_eq!(
        (error.template.as_str(), error.line, error.column),
        ("file", 2, Some(8))
    );
    assert_eq!(
        (error.executing.as_deref(), error.context.as_deref()),
        (Some("inner"), Some(".X.Y"))
    );
    assert_eq!(error.problem, "can't evaluate field X in type int");
    let error = set.execute("other", &Value::Nil, &limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"template: no template "other" associated with template "set""#
    );
}

#[test]
fn a_set_keeps_templates_unless_they_are_redefined() {
    let limits = Limits::new(1_000_000, 1 << 24);
    let mut set = TemplateSet::new("set");
    set.parse("a", "{{ define `b` }}1{{ end }}{{ template `b` }}", &limits)
        .unwrap();
    set.parse("b", " {{/* empty */}} ", &limits).unwrap();
    assert_eq!(set.execute("a", &Value::Nil, &limits).unwrap(), "1");
    assert!(set.parse("b", "{{", &limits).is_err());
    set.parse("b", "2", &limits).unwrap();
    assert_eq!(set.execute("a", &Value::Nil, &limits).unwrap(), "2");
    assert_eq!(set.templates().collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_set_knows_what_its_templates_use() {
    let limits = Limits::new(1_000_000, 1 << 24);
    let mut set = TemplateSet::new("set");
    let source = "{{ if .A.B }}{{ $x := (len $.C) | print (.D).E }}{{ $x }}{{ else }}{{ range .F }}{{ upper .G }}{{ end }}{{ end }}";
    set.parse("a", source, &limits).unwrap();
    assert_eq!(
        set.functions().into_iter().collect::<Vec<_>>(),
        ["len", "print", "upper"]
    );
}

#[test]
fn a_set_knows_which_fields_of_the_data_a_template_reads() {
    let limits = Limits::new(1_000_000, 1 << 24);
    let mut set = TemplateSet::new("set");
    let source = "{{ if .A.B }}{{ $x := len $.C | print (.D).E }}{{ $x }}{{ else }}
 {{ range .F }}{{ .No }}{{ $.G }}{{ else }}{{ .H }}{{ end }}{{ with $y := .I }}{{ .No }}{{ $y.No }}{{ else with .J }}{{ .No }}{{ else }}{{ .K }}{{ end }}{{ end }}
{{ define `other` }}{{ .No }}{{ $.No }}{{ end }}";
    set.parse("a", source, &limits).unwrap();
    let fields = set.fields("a");
    let names: Vec<String> = fields.iter().map(|field| field.names.join(".")).collect();
    assert_eq!(names, ["A.B", "C", "D", "F", "G", "H", "I", "J", "K"]);
    let place = |name: &str| {
        let field = fields.iter().find(|field| field.names[0] == name).unwrap();
        (field.line, field.column)
    };
    // As Go reports it: the last part of a chain.
    assert_eq!((place("A"), place("F")), ((1, 8), (2, 10)));
    assert!(set.fields("missing").is_empty());
}
