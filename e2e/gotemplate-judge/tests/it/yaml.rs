//! PyYAML and our own decoders read what `toYaml` writes. It is the reader of cloud-init, and one of YAML 1.1.

use std::io::Write as _;
use std::process::{Command, Stdio};

use osm_gotemplate::budget::Limits;
use osm_gotemplate::{TemplateSet, Value};

/// Texts that some reader takes for something else, or for the end of a text.
const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "a b",
    "/a.b-c_d",
    "yes",
    "No",
    "ON",
    "y",
    "N",
    "off",
    "null",
    "~",
    "True",
    "1",
    "-1",
    "+1",
    "1_000",
    "0x1f",
    "017",
    "0o17",
    "0b1",
    "1.5",
    ".5",
    "1e3",
    "1e+3",
    ".inf",
    "-.Inf",
    ".NaN",
    "12:30",
    "1:20:30",
    "2001-02-03",
    "2001-02-03 04:05:06",
    "=",
    "<<",
    "-",
    "- a",
    "? a",
    "a: b",
    "a:",
    ": a",
    "a #b",
    "#a",
    "a\tb",
    " a",
    "a ",
    "a\nb\n",
    "\n",
    "a\r\nb",
    "it's",
    "\"a\"",
    "\\n",
    "!x",
    "&x",
    "*x",
    "%x",
    "@x",
    "`x",
    "{x",
    "[x]",
    "|",
    ">",
    "a,b",
    "...",
    "---",
    "é",
    "\u{1}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}a",
    "🙂",
    "\0",
];

fn render(template: &str, data: &Value) -> String {
    let limits = Limits::new(1_000_000, 1 << 24);
    let mut set = TemplateSet::new("t");
    set.parse("t", template, &limits).unwrap();
    set.execute("t", data, &limits).unwrap()
}

#[test]
fn what_was_written_is_read_again() {
    osm_judges::packages::ensure(&["python3", "python3-yaml"]).unwrap();
    let texts = TEXTS.iter().map(|text| Value::from(*text));
    let keys = TEXTS.iter().map(|text| ((*text).into(), Value::from(*text)));
    let others = [
        Value::Nil,
        true.into(),
        Value::int(-3),
        Value::float(1.5),
        Value::float(2.0),
        Value::list(vec![]),
        Value::map([].into()),
        Value::list(vec![Value::list(vec![Value::map(
            [("a".into(), Value::list(vec![]))].into(),
        )])]),
    ];
    let data = [
        ("keys".into(), Value::map(keys.collect())),
        ("texts".into(), Value::list(texts.collect())),
        ("others".into(), Value::list(others.to_vec())),
    ];
    let data = Value::map(data.into());
    let (written, expected) = (render("{{ toYaml . }}", &data), render("{{ toJson . }}", &data));
    for template in [
        "{{ toYaml . | fromYaml | toJson }}",
        "{{ toJson . | fromJson | toJson }}",
    ] {
        assert_eq!(render(template, &data), expected, "{template}");
    }
    let program =
        "import json, sys, yaml\njson.dump(yaml.safe_load(sys.stdin.buffer.read().decode()), sys.stdout)";
    let mut python = Command::new("/usr/bin/python3")
        .args(["-IB", "-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python
        .stdin
        .take()
        .unwrap()
        .write_all(written.as_bytes())
        .unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{written}");
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
    assert_eq!(read, expected, "{written}");
}
