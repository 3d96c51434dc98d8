//! Calls of functions that would take much time, memory or stack stop with a problem.

use osm_gotemplate::budget::Limits;
use osm_gotemplate::{TemplateSet, Value, standard};

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
        r#"{{ until 1000000000 }}"#,
        r#"{{ untilStep 0 9223372036854775807 1 }}"#,
        r#"{{ untilStep -9223372036854775808 9223372036854775807 1 }}"#,
        r#"{{ seq 1 9223372036854775806 }}"#,
        r#"{{ indent 1000000000 "a\nb" }}"#,
        r#"{{ nindent 1000000 (repeat 1000 "\n") }}"#,
        r#"{{ replace "" (repeat 100000 "x") (repeat 100000 "y") }}"#,
        r#"{{ join (repeat 100000 "x") (until 10000) }}"#,
        r#"{{ regexReplaceAll "" (repeat 10000 "x") (repeat 10000 "y") }}"#,
        r#"{{ regexMatch "((a{0,1000})|b)*" (repeat 100000 "x") }}"#,
        r#"{{ $l := list 1 }}{{ range until 64 }}{{ $l = concat $l $l }}{{ end }}"#,
        r#"{{ $l := list 1 }}{{ range until 64 }}{{ $l = list $l $l }}{{ end }}{{ $d := dict "a" 1 }}{{ set $d "b" $l }}"#,
        r#"{{ $l := list 1 }}{{ range until 64 }}{{ $l = list $l $l }}{{ end }}{{ deepCopy $l }}"#,
        r#"{{ $l := list 1 }}{{ $m := list 1 }}{{ range until 64 }}{{ $l = list $l $l }}{{ $m = list $m $m }}{{ end }}{{ deepEqual $l $m }}"#,
        r#"{{ uniq (until 100000) }}"#,
        r#"{{ chunk 1 (until 10000000) }}"#,
        r#"{{ $c := print (repeat 60 "<1||") "<1" }}{{ range until 1000000 }}{{ $x := semverCompare $c "1.0.0" }}{{ end }}"#,
        r#"{{ $x := splitList "" (repeat 9000000 "a") }}"#,
        r#"{{ $x := regexReplaceAll "(?P<a>a)(?P<b>a)(?P<c>a)" (repeat 3000 "aaa") (repeat 2000 "$x") }}"#,
    ];
    for source in sources {
        let result = render(source);
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
            r#"(semver "1.2.3").SetMetadata (repeat 257 "a")"#,
            "a part of a version has more than 256 bytes",
        ),
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
        let deep = r#"{{ $d := dict }}{{ range until 3000 }}{{ $d = dict "a" $d }}{{ end }}"#;
        for call in [
            "deepCopy $d",
            "merge $d (deepCopy $d)",
            r#"dig "a" "b" 1 $d"#,
            "deepEqual (dict 1 $d) (dict 1 (omit $d))",
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
                    error.contains("nests too deeply") || error.contains("too large"),
                    "{error}"
                );
            }
        }
    });
}

#[test]
fn a_map_is_not_put_into_itself() {
    for call in [
        r#"set $d "a" $d"#,
        r#"set $d "a" (list $d)"#,
        r#"merge $d (dict "x" (dict "y" $d))"#,
    ] {
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
        (
            r#"{{ $d := dict }}{{ $s := dict "n" (dict) }}{{ $_ := merge $d $s (dict "n" (dict "x" 1)) }}{{ $s }}"#,
            "map[n:map[x:1]]",
        ),
        (
            r#"{{ $d := dict "n" (dict) }}{{ $c := deepCopy $d }}{{ $_ := set $c.n "x" 1 }}{{ $d }}{{ $c }}"#,
            "map[n:map[]]map[n:map[x:1]]",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn methods_take_numbers_of_any_size() {
    const MOST: [i64; 3] = [i64::MAX, i64::MIN, 0];
    for number in MOST {
        let data = Value::map([("d".into(), standard::duration(number))].into());
        for call in MOST
            .iter()
            .flat_map(|unit| [format!(".d.Round {unit}"), format!(".d.Truncate {unit}")])
            .chain([".d.Abs", ".d.Seconds"].map(str::to_owned))
        {
            assert!(render_with(&format!("{{{{ {call} }}}}"), &data).is_ok(), "{call}");
        }
    }
    for part in ["IncMajor", "IncPatch"] {
        let call =
            format!(r#"(semver "18446744073709551615.18446744073709551615.18446744073709551615").{part}"#);
        assert!(render(&format!("{{{{ {call} }}}}")).is_ok(), "{call}");
    }
}

#[test]
fn methods_are_charged() {
    for source in [
        r#"{{ $v := semver "1.2.3" }}{{ range until 1000000 }}{{ $v = $v.IncPatch }}{{ end }}"#,
        r#"{{ $x := "a" | repeat 100000 }}{{ range until 1000000 }}{{ $y := (semver "1.2.3").SetPrerelease $x }}{{ end }}"#,
    ] {
        let error = render(source).unwrap_err();
        assert!(error.contains("the template takes too "), "{error}");
    }
}
