//! Templates that try to exhaust the stack, the time or the memory get an error.

use osm_gotemplate::budget::Limits;
use osm_gotemplate::value::{Map, Type};
use osm_gotemplate::{Error, TemplateSet, Value, execute, parse};
use rustix::time::{ClockId, clock_gettime};

fn render_with(source: &str, data: &Value, limits: &Limits) -> Result<String, Error> {
    let mut set = TemplateSet::new("t");
    set.parse("t", source, limits)?;
    set.execute("t", data, limits)
}

fn render(source: &str) -> Result<String, Error> {
    render_with(source, &Value::Nil, &Limits::new(10_000_000, 1 << 30))
}

/// Runs a test on a small stack. An overflow aborts the tests.
fn on_a_small_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(test);
    thread.unwrap().join().unwrap();
}

/// `count` times `before`, then `middle`, then `count` times `after`.
fn nested(count: usize, before: &str, middle: &str, after: &str) -> String {
    [&before.repeat(count), middle, &after.repeat(count)].concat()
}

#[test]
fn blocks_and_parentheses_can_be_nested_up_to_a_limit() {
    on_a_small_stack(|| {
        let shapes = [
            ("{{if true}}", "x", "{{end}}"),
            ("{{if false}}{{else}}", "x", "{{end}}"),
            ("{{with 1}}", "x", "{{end}}"),
            ("{{range 1}}", "x", "{{end}}"),
        ];
        for (before, middle, after) in shapes {
            assert_eq!(
                render(&nested(parse::MAX_NESTING, before, middle, after)).unwrap(),
                "x"
            );
            let error = render(&nested(1_000_000, before, middle, after)).unwrap_err();
            assert_eq!(error.problem, "blocks are nested too deeply", "{before}");
        }
        for (before, after) in [("(", ")"), ("and 1 (", ")"), ("print (", ")"), ("(", ").x")] {
            for (count, problem) in [
                (parse::MAX_NESTING, None),
                (1_000_000, Some("max expression depth exceeded")),
            ] {
                let source = nested(count, before, "$", after);
                let rendered = render(&format!("{{{{ {source} }}}}"));
                assert_eq!(
                    rendered.err().map(|error| error.problem).as_deref(),
                    problem,
                    "{before}"
                );
            }
        }
        let blocks = render(&nested(1_000_000, r#"{{block "a" 1}}"#, "", "{{end}}")).unwrap_err();
        assert_eq!(blocks.problem, "blocks are nested too deeply");
    });
}

#[test]
fn templates_that_call_themselves_reach_a_limit() {
    on_a_small_stack(|| {
        let limit = format!("exceeded maximum template depth ({})", execute::MAX_DEPTH);
        for body in [
            r#"{{template "a" .}}"#.to_owned(),
            r#"{{if true}}{{with 1}}{{range 1}}{{template "a" (and 1 (print 1 (1)))}}{{end}}{{end}}{{end}}"#
                .to_owned(),
            nested(30, "{{if true}}", r#"{{template "a" .}}"#, "{{end}}"),
            nested(
                30,
                "{{if true}}",
                r#"{{block "b" .}}{{template "a" .}}{{end}}"#,
                "{{end}}",
            ),
            format!(r#"{{{{template "a" .}}}}{{{{ {} }}}}"#, nested(90, "(", ".", ")")),
        ] {
            let error = render(&format!(
                r#"{{{{define "a"}}}}{body}{{{{end}}}}{{{{template "a" .}}}}"#
            ))
            .unwrap_err();
            assert_eq!(error.problem, limit, "{body}");
        }
    });
}

#[test]
fn deep_values_can_be_used_deep_in_templates() {
    on_a_small_stack(|| {
        let mut data = Value::Nil;
        for level in 0..95 {
            data = match level % 2 {
                0 => Value::list(vec![data]),
                _ => Value::Map(Map::new(Type::Any, [("a".into(), data)].into())),
            };
        }
        for (name, arguments) in [
            ("print", "."),
            ("printf", r#""%v" ."#),
            ("toJson", "."),
            ("toYaml", "."),
            ("fromJson", "(print `{\"a\":` (toJson .) `}`)"),
            ("fromYaml", "(print `{\"a\":` (toJson .) `}`)"),
            ("deepEqual", ". ."),
            ("eq", "1 (len .)"),
        ] {
            // Sixty levels of calls, each with two blocks in it, and then the function.
            let source = format!(
                r#"{{{{define "a"}}}}{{{{if lt (len .depth) 60}}}}{{{{with .}}}}{{{{template "a" (dict "depth" (print .depth "x") "data" .data)}}}}{{{{end}}}}{{{{else}}}}{{{{with .data}}}}{{{{ len (print ({name} {arguments})) | lt 0 }}}}{{{{end}}}}{{{{end}}}}{{{{end}}}}{{{{template "a" (dict "depth" "" "data" .)}}}}"#
            );
            let rendered = render_with(&source, &data, &Limits::new(10_000_000, 1 << 30));
            assert_eq!(
                rendered.map_err(|error| error.to_string()).as_deref(),
                Ok("true"),
                "{name}"
            );
        }
    });
}

#[test]
fn large_sources_are_parsed_in_linear_time() {
    let mut variables = String::new();
    for number in 0..12_500 {
        variables.push_str(&format!("{{{{$v{number} := 1}}}}"));
    }
    for source in [
        &variables,
        &"{{$v := 1}}".repeat(25_000),
        &"{{1}}".repeat(50_000),
        &"{{".repeat(125_000),
        &"{{/* a */}}".repeat(25_000),
        &"{{- /* a */ -}} \n".repeat(25_000),
        &format!("{{{{ print{} }}}}", " 1".repeat(75_000)),
        &format!("{{{{ . {} }}}}", "| print ".repeat(25_000)),
        &format!("{{{{ .{} }}}}", "a.".repeat(25_000) + "a"),
        &format!("{{{{if 0}}}}{}{{{{end}}}}", "{{else if 0}}x".repeat(12_500)),
        &"{{define `a`}}{{end}}".repeat(12_500),
        &"x \n".repeat(1_000_000),
    ] {
        // Of this thread, so that other programs don't count.
        let started = clock_gettime(ClockId::ThreadCPUTime).tv_sec;
        let result = render(source);
        let seconds = clock_gettime(ClockId::ThreadCPUTime).tv_sec - started;
        assert!(seconds < 60, "{seconds} s for {}, {result:?}", &source[..20]);
    }
}

#[test]
fn everything_is_charged() {
    for source in [
        "{{range 1000000000000}}{{end}}",
        "{{range 1000000000000}}x{{end}}",
        r#"{{define "a"}}{{template "b" .}}{{template "b" .}}{{end}}{{define "b"}}{{range 1000000}}{{print .}}{{end}}{{end}}{{template "a" .}}"#,
        r#"{{printf "%900000d" 1}}{{printf "%900000d" 1}}"#,
        r#"{{$x := "aaaaaaaaaaaaaaaa"}}{{range 100}}{{$x = print $x $x}}{{end}}"#,
        r#"{{$x := "<<<<<<<<<<<<<<<<"}}{{range 100}}{{$x = html $x $x}}{{end}}"#,
    ] {
        let error = render_with(source, &Value::Nil, &Limits::new(1_000_000, 1 << 20)).unwrap_err();
        assert!(error.exhausted, "{source}: {error}");
    }
    let error = render_with(&"x".repeat(2000), &Value::Nil, &Limits::new(1000, 1000)).unwrap_err();
    assert!(error.exhausted, "{error}");
    let error = render_with(&"{{1}}".repeat(2000), &Value::Nil, &Limits::new(1000, 1 << 20)).unwrap_err();
    assert!(error.exhausted, "{error}");
}
