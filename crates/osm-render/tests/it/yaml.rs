//! What is written must be read back as it was, by every reader.
use std::process::Command;

use osm_user_data::yaml;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Texts that some YAML reader takes for something else, or does not accept.
const TRICKY: [&[&str]; 6] = [
    &[
        "", "yes", "no", "on", "off", "y", "n", "true", "False", "null", "Null", "~",
    ],
    &[
        "12:30:45", "1_000", "0777", "0o7", "0x1f", "0b1", "1e3", ".5", "-1", "+1", ".inf", ".nan",
    ],
    &[
        "=", "<<", "!", "!!str x", "&a", "*a", "-", "- a", "?", "? a", ":", "a: b", "a #b", "#a", "%a", "@a",
        "`a", "{a}", "[a]", "{{a}}", "a,b", "'", "\"", "\\", "\\n", "|", ">",
    ],
    &[
        " lead", "trail ", "\ttab", "tab\t", "a\tb", "\n", "\n\n", "a\n", "a\nb", "a\nb\n", "a\nb\n\n",
        "\na\nb", " a\nb", "a\n b\n", "a\n\tb\n", "a\n\nb\n", "a \nb\n", "a\rb", "---", "...", "---\na\n",
        "a\n# b\n",
    ],
    &[
        "\u{85}", "a\u{85}b", "\u{2028}", "\u{feff}", "\u{0}", "\u{7}", "\u{1b}", "\u{7f}", "\u{9f}",
        "\u{a0}", "é", "日本", "🙂", "\u{fffe}", "\u{ffff}",
    ],
    &[
        "a\n🙂\n",
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        "a\n  \nb\n",
        "a\n\t\nb\n",
        "a\r\nb\r\n",
        "a\n---\nb\n",
        "a\n\u{85}b\n",
        "a\n\u{2029}b\n",
        "a\n\u{feff}b\n",
        "<MACHINE_NAME>",
        "a\n<MACHINE_NAME>\n",
        "#!/bin/sh\nset -e\nif a; then\n\tb\nfi\n",
    ],
];

/// A tree with every text as value, list item and key.
fn tree(texts: &[String]) -> Value {
    let keyed: serde_json::Map<String, Value> = texts
        .iter()
        .map(|text| (text.clone(), json!({"k": text})))
        .collect();
    json!({"values": texts, "nested": [[texts]], "keyed": keyed, "scalars": [1, 1.5, true, null, {}, []]})
}

#[test]
fn multi_line_text_stays_readable() {
    let written =
        yaml::write(&json!({"content": "#!/bin/sh\n\nif a; then\n  b\nfi\n", "path": "/a"})).unwrap();
    assert!(written.contains("content: |\n"), "{written}");
    assert!(written.contains("\n    b\n"), "{written}");
    assert!(written.contains("path: \"/a\""), "{written}");
}

/// Reads texts with PyYAML, which is what cloud-init reads with.
fn pyyaml(texts: &[String]) -> Vec<Value> {
    osm_judges::packages::ensure(&["python3", "python3-yaml"]).unwrap();
    let script =
        "import sys, json, yaml\njson.dump([yaml.safe_load(text) for text in sys.argv[1:]], sys.stdout)";
    let output = Command::new("python3")
        .args(["-c", script])
        .args(texts)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn cloud_inits_reader_agrees() {
    let texts = TRICKY.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let tree = tree(&texts);
    let written = [yaml::write(&tree).unwrap(), yaml::json(&tree)];
    assert_eq!(serde_json::from_str::<Value>(&written[1]).unwrap(), tree);
    let expected = [tree.clone(), tree];
    assert_eq!(pyyaml(&written), expected);
    assert_eq!(written.map(|text| yaml::read(&text).unwrap().remove(0)), expected);
}

#[test]
fn manifests_are_read_as_kubectl_reads_them() {
    let read = |text| yaml::read(text).unwrap();
    let expected = [json!({"a": true, "b": 511, "c": "12:30", "d": 15})];
    assert_eq!(read("a: yes\nb: 0777\nc: 12:30\nd: 0o17"), expected);
    assert_eq!(
        read("---\na: 1\n---\n---\n# nothing\n---\nb: &x [2]\nc: *x\n"),
        [json!({"a": 1}), json!({"b": [2], "c": [2]})]
    );
    assert_eq!(read(""), Vec::<Value>::new());
    for bad in ["a: 1\na: 2", "a: [", "\t: x", "a: *b"] {
        let error = yaml::read(bad).unwrap_err();
        assert!(!error.contains('\n') && error.contains("line"), "{error}");
    }
    let anchors = (1..30).map(|i| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
    let bomb = "a0: &a0 [x]\n".to_owned() + &anchors.collect::<String>();
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
