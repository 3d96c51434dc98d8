//! Where errors are, in the source: what editors and `osmctl lint` point to. Texts of errors have the lines
//! of Go, which are elsewhere for what is not closed.

use osm_gotemplate::budget::Limits;
use osm_gotemplate::{TemplateSet, Value};

/// A source, the line and column of its error, both from 1, and the error's text.
type Case = (&'static str, (usize, usize), &'static str);

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("a\n  {{ .b", (2, 3), "template: t:2: unclosed action"),
    ("a\n{{ if .b\n .c\n", (2, 1), "template: t:4: unclosed action started at t:2"),
    ("{{ .a }}\n{{", (2, 1), "template: t:2: unclosed action"),
    ("{{ .a }}\n x {{- .b }\n", (2, 11), "template: t:2: unexpected \"}\" in operand"),
    ("a\n {{/* b\nc", (2, 2), "template: t:2: unclosed comment"),
    ("a\n {{- /* b */ c}}", (2, 6), "template: t:2: comment ends before closing delimiter"),
    ("a\n{{ \"b }}\n", (2, 4), "template: t:2: unterminated quoted string"),
    ("a {{ \"b\n", (1, 6), "template: t:1: unterminated quoted string"),
    ("a {{ `b\nc", (1, 6), "template: t:1: unterminated raw quoted string"),
    ("{{ print 'b }}", (1, 10), "template: t:1: unterminated character constant"),
    ("a\n  {{ end }}\n", (2, 3), "template: t:2: unexpected {{end}}"),
    ("a\n{{ if .b }}{{ end }}{{ else }}\n", (2, 21), "template: t:2: unexpected {{else}}"),
    ("{{ if .b }}\n{{ else }}\n{{ else }}\n{{ end }}", (3, 1), "template: t:3: expected end; found {{else}}"),
    ("a\n{{ if .b }}\n", (3, 1), "template: t:3: unexpected EOF"),
    ("{{ define \"a\" }}\nb", (2, 2), "template: t:2: unexpected EOF"),
    ("a\n {{ break }}", (2, 2), "template: t:2: {{break}} outside {{range}}"),
    ("a\n{{ nope .b }}", (2, 4), "template: t:2: function \"nope\" not defined"),
    ("a\n{{ .b | nope }}", (2, 9), "template: t:2: function \"nope\" not defined"),
    ("{{ .a }} {{ $b }}", (1, 13), "template: t:1: undefined variable \"$b\""),
    ("{{ if (.a }}{{ end }}", (1, 11), "template: t:1: unclosed left paren"),
    ("{{ .a) }}", (1, 6), "template: t:1: unexpected right paren"),
    ("a\n{{ 1x }}", (2, 4), "template: t:2: bad number syntax: \"1x\""),
    ("{{ 99999999999999999999 }}", (1, 4), "template: t:1: integer overflow: \"99999999999999999999\""),
    ("{{ \"\\q\" }}", (1, 4), "template: t:1: invalid syntax"),
    ("a\n{{ }}", (2, 4), "template: t:2: missing value for command"),
    ("{{ template .a }}", (1, 13), "template: t:1: unexpected \".a\" in template clause"),
    ("{{ if\n.a | 1 }}{{ end }}", (2, 8), "template: t:2: non executable command in pipeline stage 2"),
    // Line breaks of Windows count as one, and a byte order mark is a part of the first line.
    ("a\r\n  {{ .b\r\n", (2, 3), "template: t:3: unclosed action started at t:2"),
    ("a\r\n{{ .b }}\r\n{{ end }}\r\n", (3, 1), "template: t:3: unexpected {{end}}"),
    ("\u{feff}{{ end }}", (1, 4), "template: t:1: unexpected {{end}}"),
    // Columns count bytes, as those of Go do.
    ("äö {{ nope }}", (1, 9), "template: t:1: function \"nope\" not defined"),
    // Errors while executing have the place in their text.
    ("a\n{{ len 1 }}", (2, 4), "template: t:2:3: executing \"t\" at <len 1>: error calling len: len of type int"),
    ("a\r\n{{ .b.c }}", (2, 6), "template: t:2:5: executing \"t\" at <.b.c>: nil pointer evaluating interface {}.c"),
    ("\u{feff}{{ index 1 2 }}", (1, 7), "template: t:1:6: executing \"t\" at <index 1 2>: error calling index: can't index item of type int"),
];

#[test]
fn errors_have_a_line_and_a_column() {
    let data = Value::map([("b".into(), Value::Nil)].into());
    let mut failed = Vec::new();
    for (source, place, text) in CASES {
        let limits = Limits::new(10_000, 100_000);
        let mut set = TemplateSet::new("t");
        let parsed = set.parse("t", source, &limits);
        let error = parsed
            .and_then(|()| set.execute("t", &data, &limits))
            .unwrap_err();
        let got = (error.line, error.column.unwrap() + 1);
        if (got, error.to_string().as_str()) != (*place, *text) {
            failed.push(format!("{source:?}: {got:?} {error}, not {place:?} {text}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
