//! Calls of functions that would take much time, memory or stack stop with a problem.

use osm_gotemplate::budget::Limits;
use osm_gotemplate::{TemplateSet, Value};

fn render(source: &str) -> Result<String, String> {
    render_with(source, &Value::Nil)
}

fn render_with(source: &str, data: &Value) -> Result<String, String> {
    // Searching takes long without optimization, so expressions get less.
    let limits = Limits::new(
        1_000_000,
        if source.contains("regex") {
            2 << 20
        } else {
            64 << 20
        },
    );
    let mut templates = TemplateSet::new("t");
    templates
        .parse("t", source, &limits)
        .map_err(|error| error.to_string())?;
    templates
        .execute("t", data, &limits)
        .map_err(|error| error.to_string())
}

/// Runs with the stack that rendering may take.
fn on_small_stack(test: fn()) {
    std::thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(test)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn sizes_are_charged_before_anything_is_made() {
    let sources = [
        r#"{{ repeat 1000000000 "x" }}"#,
        r#"{{ repeat 9223372036854775807 "xx" }}"#,
        r#"{{ indent 1000000000 "a\nb" }}"#,
        r#"{{ nindent 1000000 (repeat 1000 "\n") }}"#,
        r#"{{ replace "" (repeat 100000 "x") (repeat 100000 "y") }}"#,
        r#"{{ join (repeat 100000 "x") (splitList "" (repeat 10000 "x")) }}"#,
        r#"{{ regexReplaceAll "" (repeat 10000 "x") (repeat 10000 "y") }}"#,
        r#"{{ regexMatch "((a{0,1000})|b)*" (repeat 100000 "x") }}"#,
        "{{ range 1000000 }}{{ $x := regexMatch `\\pL{4}` `` }}{{ end }}",
        r#"{{ $x := repeat 55 `[\x00-\x{10FFFF}]` | print `(?i)` }}{{ range 100 }}{{ $y := regexMatch $x `` }}{{ end }}"#,
        r#"{{ toYaml . }}{{ range 100 }}{{ $x := toYaml $ }}{{ end }}"#,
        r#"{{ $x := fromJson (print "{\"a\":[" (repeat 1000000 "[],") "1]}") }}"#,
        r#"{{ $x := fromYaml (print "a: [" (repeat 1000000 "1,") "1]") }}"#,
        r#"{{ $l := list 1 }}{{ range 64 }}{{ $l = concat $l $l }}{{ end }}"#,
        r#"{{ $l := list 1 }}{{ range 64 }}{{ $l = list $l $l }}{{ end }}{{ $d := dict "a" 1 }}{{ set $d "b" $l }}"#,
        r#"{{ $l := list 1 }}{{ $m := list 1 }}{{ range 64 }}{{ $l = list $l $l }}{{ $m = list $m $m }}{{ end }}{{ deepEqual $l $m }}"#,
        r#"{{ uniq . }}"#,
        r#"{{ $c := print (repeat 60 "<1||") "<1" }}{{ range 1000000 }}{{ $x := semverCompare $c "1.0.0" }}{{ end }}"#,
        r#"{{ $x := splitList "" (repeat 9000000 "a") }}"#,
        r#"{{ $x := regexReplaceAll "(?P<a>a)(?P<b>a)(?P<c>a)" (repeat 3000 "aaa") (repeat 2000 "$x") }}"#,
    ];
    let numbers = Value::list((0..100_000).map(Value::int).collect());
    for source in sources {
        let result = render_with(source, &numbers);
        let is_stopped = result
            .as_ref()
            .is_err_and(|error| error.contains("the template takes too "));
        assert!(
            is_stopped,
            "{source}: {:.200}",
            result.unwrap_or_else(|error| error)
        );
    }
}

#[test]
fn texts_that_are_parsed_have_a_length() {
    let sources = [
        (
            r#"semverCompare (print (repeat 40000 "1 - 2||") "1") "3""#,
            "a constraint on versions has more than 256 bytes",
        ),
        (
            r#"semverCompare (print (repeat 64 "<1||") "<1") "3""#,
            "a constraint on versions has more than 256 bytes",
        ),
        (
            r#"semverCompare "<1" (print "1.0.0-" (repeat 251 "a"))"#,
            "a version has more than 256 bytes",
        ),
        (r#"semver (repeat 257 "1")"#, "a version has more than 256 bytes"),
        (
            r#"regexMatch (repeat 1025 "a") "a""#,
            "a regular expression has more than 1024 bytes",
        ),
    ];
    for (call, expected) in sources {
        let error = render(&format!("{{{{ $x := {call} }}}}")).unwrap_err();
        assert!(error.contains(expected), "{call}: {error:.300}");
    }
    let longest = [
        (r#"semverCompare (print (repeat 63 "<1||") " 3 ") "3""#, "true"),
        (r#"semverCompare (print (repeat 28 "1 - 2 || ") "3") "3""#, "true"),
        (r#"semverCompare ">1" (print "1.0.0+" (repeat 250 "a"))"#, "false"),
        (r#"regexMatch (repeat 1024 "a") "a""#, "false"),
    ];
    for (call, expected) in longest {
        assert_eq!(
            render(&format!("{{{{ {call} }}}}")).as_deref(),
            Ok(expected),
            "{call}"
        );
    }
}

#[test]
fn values_and_expressions_that_are_nested_deeply_take_little_stack() {
    on_small_stack(|| {
        let deep = r#"{{ $d := dict }}{{ range 3000 }}{{ $d = dict "a" $d }}{{ end }}"#;
        for call in [
            "deepEqual (dict 1 $d) (dict 1 (omit $d))",
            "toYaml $d",
            "toJson $d",
            "toToml $d",
        ] {
            let result = render(&format!("{deep}{{{{ {call} }}}}"));
            if let Err(error) = result {
                assert!(
                    error.contains("nested") || error.contains("too deep"),
                    "{call}: {error}"
                );
            }
        }
        for (open, close, levels) in [
            ("(", ")", 30),
            ("(?:", ")*", 30),
            ("(?i:x", "|y){1}", 30),
            ("(", ")", 500),
        ] {
            let expression = format!("{}a{}", open.repeat(levels), close.repeat(levels));
            let result = render(&format!("{{{{ regexFind `{expression}` `a` }}}}"));
            if let Err(error) = result {
                assert!(
                    error.contains("is not valid") || error.contains("too large"),
                    "{error}"
                );
            }
        }
    });
}

#[test]
fn a_map_is_not_put_into_itself() {
    for call in [r#"set $d "a" $d"#, r#"set $d "a" (list $d)"#] {
        let error = render(&format!(r#"{{{{ $d := dict "b" 1 }}}}{{{{ {call} }}}}"#)).unwrap_err();
        assert!(error.contains("a map can't be put into itself"), "{error}");
    }
}

#[test]
fn maps_are_changed_in_place() {
    let cases = [
        (
            r#"{{ $d := dict "a" 1 }}{{ $e := $d }}{{ $_ := set $e "b" 2 }}{{ $d }}"#,
            "map[a:1 b:2]",
        ),
        (
            r#"{{ $d := dict "a" 1 }}{{ $_ := unset $d "a" }}{{ $d }}"#,
            "map[]",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn methods_are_charged() {
    let compare = |times: usize| {
        let source = format!(
            r#"{{{{ $v := semver (print "1.2.3-" (repeat 200 "a")) }}}}{{{{ range {times} }}}}{{{{ $x := $v.Compare $v }}}}{{{{ end }}}}"#
        );
        let limits = Limits::new(1_000_000, 20_000);
        let mut templates = TemplateSet::new("t");
        templates.parse("t", &source, &limits).unwrap();
        templates
            .execute("t", &Value::Nil, &limits)
            .map_err(|error| error.exhausted)
    };
    assert_eq!(compare(1), Ok(String::new()));
    assert_eq!(compare(100), Err(true));
}

#[test]
fn formats_are_refused_before_rendering() {
    for (source, error) in [
        (
            "{{ if false }}{{ printf `%6.2f` 1.5 }}{{ end }}",
            "template: t:1: %6.2f is not supported; use ",
        ),
        (
            "{{ $f := `%T` }}{{ printf $f 1 }}",
            "error calling printf: %T is not supported; use ",
        ),
        (
            "{{ merge (dict) }}",
            r#"function "merge" is not supported; use set"#,
        ),
        ("{{ 1 | print 2i }}", "template: t:1: 2i is not supported; use "),
    ] {
        let found = render(source).unwrap_err();
        assert!(found.contains(error), "{found}");
    }
}
