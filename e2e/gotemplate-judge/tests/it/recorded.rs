//! Every recorded case gives what Go gave, and Go gives what is recorded.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use osm_gotemplate::TemplateSet;
use osm_gotemplate::budget::Limits;

use crate::case::{self, Case, Outcome};
use crate::data;

/// Generous: Go has no such limits. They only stop what would take minutes.
const STEPS: u64 = 20_000_000;
const BYTES: usize = 1 << 30;

/// Differences that are shown.
const SHOWN: usize = 20;

/// Parses the templates of a case, and executes the first.
fn render(case: &Case) -> Outcome {
    let rendered = || {
        let data = data::value(&case.data).unwrap_or_else(|error| panic!("{case:?}: {error:#}"));
        let budget = Limits::new(STEPS, BYTES);
        let templates = case.named();
        let (first, _) = *templates.first().unwrap();
        let mut set = TemplateSet::new(first);
        for (name, text) in &templates {
            set.parse(name, text, &budget)?;
        }
        set.execute(first, &data, &budget)
    };
    match rendered() {
        Ok(output) => Outcome {
            output: Some(output),
            error: None,
        },
        Err(error) => {
            assert!(!error.exhausted, "{case:?}: {error}");
            Outcome {
                output: None,
                error: Some(error.to_string()),
            }
        }
    }
}

#[test]
fn every_recorded_case_gives_what_go_gave_or_what_is_recorded_instead() {
    let (mut cases, mut different) = (0, Vec::new());
    for (path, recorded) in case::recorded() {
        cases += recorded.len();
        for case in recorded {
            assert_ne!(case.ours.as_ref(), Some(&case.go), "no difference");
            let ours = render(&case);
            if ours != *case.ours.as_ref().unwrap_or(&case.go) {
                different.push(format!("{}: {case:?}\n  gives {ours:?}", path.display()));
            }
        }
    }
    assert!(cases >= 5000, "only {cases} cases");
    let count = different.len();
    different.truncate(SHOWN);
    assert!(
        count == 0,
        "{count} of {cases} are different:\n{}",
        different.join("\n")
    );
}

/// With `OSM_BLESS`, it records what Go gives. A new case is a line without a result.
#[test]
#[ignore = "needs Go; `cargo xtask bless --go-templates` and the nightly checks run it"]
fn go_gives_what_is_recorded() {
    let is_blessed = std::env::var_os("OSM_BLESS").is_some();
    for (path, recorded) in case::recorded() {
        let now = by_go(&recorded);
        if is_blessed {
            fs::write(&path, case::written(&now)).unwrap();
        }
        for (before, now) in recorded.iter().zip(&now) {
            assert!(
                is_blessed || before.go == now.go,
                "{}: {before:?}\n  Go gives {:?}",
                path.display(),
                now.go
            );
        }
    }
}

/// The same cases with what Go gives today.
fn by_go(cases: &[Case]) -> Vec<Case> {
    let mut go = Command::new(osm_judges::gotemplate_program().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = String::new();
    for case in cases {
        let question = Case {
            go: Outcome::default(),
            ours: None,
            ..case.clone()
        };
        lines += &format!("{}\n", serde_json::to_string(&question).unwrap());
    }
    let mut stdin = go.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = go.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), cases.len());
    let answered = cases.iter().zip(answers.lines()).map(|(case, answer)| {
        let answer: Case = serde_json::from_str(answer).unwrap();
        Case {
            go: answer.go,
            ..case.clone()
        }
    });
    answered.collect()
}
