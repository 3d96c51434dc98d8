//! What is written must be read back as it was, by every reader.
use std::process::{Command, Stdio};

use osm_render::yaml;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Texts that some YAML reader takes for something else.
fn tricky() -> Vec<String> {
    [
        "",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "true",
        "False",
        "null",
        "Null",
        "~",
        "12:30:45",
        "1_000",
        "0777",
        "0o7",
        "0x1f",
        "0b1",
        "1e3",
        ".5",
        "-1",
        "+1",
        ".inf",
        ".nan",
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "=",
        "<<",
        "!",
        "!!str x",
        "&a",
        "*a",
        "-",
        "- a",
        "?",
        "? a",
        ":",
        "a: b",
        "a #b",
        "#a",
        "%a",
        "@a",
        "`a",
        "{a}",
        "[a]",
        "{{a}}",
        "a,b",
        "'",
        "\"",
        "\\",
        "\\n",
        "|",
        ">",
        " lead",
        "trail ",
        "\ttab",
        "tab\t",
        "a\tb",
        "\n",
        "\n\n",
        "a\n",
        "a\nb",
        "a\nb\n",
        "a\nb\n\n",
        "\na\nb",
        " a\nb",
        "a\n b\n",
        "a\n  \nb\n",
        "a\n\t\nb\n",
        "a\n\tb\n",
        "a\n\nb\n",
        "a \nb\n",
        "a\r\nb\r\n",
        "a\rb",
        "---",
        "...",
        "---\na\n",
        "a\n---\nb\n",
        "a\n# b\n",
        "\u{85}",
        "a\u{85}b",
        "a\n\u{85}b\n",
        "\u{2028}",
        "a\n\u{2029}b\n",
        "\u{feff}",
        "a\n\u{feff}b\n",
        "\u{0}",
        "\u{7}",
        "\u{1b}",
        "\u{7f}",
        "\u{9f}",
        "\u{a0}",
        "é",
        "日本",
        "🙂",
        "a\n🙂\n",
        "\u{fffe}",
        "\u{ffff}",
        "<MACHINE_NAME>",
        "a\n<MACHINE_NAME>\n",
        "#!/bin/sh\nset -e\nif a; then\n\tb\nfi\n",
    ]
    .map(str::to_owned)
    .into()
}

/// A tree with every text as value, list item and key.
fn tree(texts: &[String]) -> Value {
    let keyed: serde_json::Map<String, Value> = texts
        .iter()
        .map(|text| (text.clone(), json!({"k": text})))
        .collect();
    json!({"values": texts, "nested": [[texts]], "keyed": keyed, "scalars": [1, 1.5, true, null, {}, []]})
}

#[test]
fn tricky_texts_come_back() {
    let tree = tree(&tricky());
    let written = yaml::write(&tree).unwrap();
    assert_eq!(yaml::read(&written).unwrap(), [tree]);
}

#[test]
fn multi_line_text_stays_readable() {
    let written =
        yaml::write(&json!({"content": "#!/bin/sh\n\nif a; then\n  b\nfi\n", "path": "/a"})).unwrap();
    assert!(written.contains("content: |\n"), "{written}");
    assert!(written.contains("\n    b\n"), "{written}");
    assert!(
        !written
            .lines()
            .any(|line| !line.is_empty() && line.trim().is_empty()),
        "{written}"
    );
    assert!(written.contains("path: \"/a\""), "{written}");
}

/// Reads `text` with PyYAML, which is what cloud-init reads with; `None` where it is not installed.
fn pyyaml(text: &str) -> Option<Value> {
    use std::io::Write;
    let script =
        "import sys, json, yaml\njson.dump(yaml.safe_load(sys.stdin.buffer.read().decode()), sys.stdout)";
    let found = Command::new("python3")
        .args(["-c", "import yaml"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        return None;
    }
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "PyYAML refuses:\n{text}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn cloud_inits_reader_agrees() {
    let tree = tree(&tricky());
    if let Some(read) = pyyaml(&yaml::write(&tree).unwrap()) {
        assert_eq!(read, tree);
    }
    let texts = tricky();
    let flow = format!(
        "[{}]",
        texts
            .iter()
            .map(|text| yaml::quote(text))
            .collect::<Vec<_>>()
            .join(", ")
    );
    assert_eq!(yaml::read(&flow).unwrap(), [json!(texts)]);
    if let Some(read) = pyyaml(&flow) {
        assert_eq!(read, json!(texts));
    }
    let flow = yaml::flow(&tree);
    assert_eq!(yaml::read(&flow).unwrap(), [tree]);
}

#[test]
fn manifests_are_read_as_kubectl_reads_them() {
    let read = |text| yaml::read(text).unwrap();
    assert_eq!(
        read("a: yes\nb: 0777\nc: 12:30\nd: 0o17"),
        [json!({"a": true, "b": 511, "c": "12:30", "d": 15})]
    );
    assert_eq!(
        read("---\na: 1\n---\n---\n# nothing\n---\nb: &x [2]\nc: *x\n"),
        [json!({"a": 1}), json!({"b": [2], "c": [2]})]
    );
    assert_eq!(read(""), Vec::<Value>::new());
    for bad in ["a: 1\na: 2", "a: [", "\t: x", "a: *b"] {
        let error = yaml::read(bad).unwrap_err();
        assert!(!error.contains('\n') && error.contains("line"), "{error}");
    }
    let bomb: String = (0..30)
        .map(|i| {
            format!(
                "a{i}: &a{i} [{}]\n",
                if i == 0 {
                    "x".to_owned()
                } else {
                    vec![format!("*a{}", i - 1); 10].join(",")
                }
            )
        })
        .collect();
    assert!(yaml::read(&bomb).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_comes_back(texts in prop::collection::vec(prop_oneof![
        "\\PC{0,20}", "[ \t\n\r:#'\"a|>-]{0,12}", prop::collection::vec(any::<char>(), 0..8).prop_map(|chars| chars.into_iter().collect::<String>()),
    ], 1..6)) {
        let tree = json!({"texts": texts, "map": {"k": texts}});
        let written = yaml::write(&tree).unwrap();
        prop_assert_eq!(&yaml::read(&written).unwrap(), &[tree]);
        // What machine-controller empties is not there.
        for line in written.lines() {
            prop_assert!(line.is_empty() || !line.trim_matches([' ', '\t']).is_empty(), "{}", written);
        }
    }
}
