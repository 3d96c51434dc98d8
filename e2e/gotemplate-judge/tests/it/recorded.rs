//! Every recorded case gives what Go gave.

use osm_gotemplate_judge::{Verdict, case, compare};

/// Differences that are printed.
const SHOWN: usize = 20;

#[test]
fn every_recorded_case_gives_what_go_gave() {
    let (mut cases, mut meant, mut shown) = (0, 0, 0);
    let mut failed = Vec::new();
    for (topic, recorded) in case::recorded().unwrap() {
        let mut different = 0;
        for case in &recorded {
            match compare(case) {
                Verdict::Equal => {}
                Verdict::Meant(_) => meant += 1,
                Verdict::Different(difference) => {
                    different += 1;
                    if shown < SHOWN {
                        shown += 1;
                        println!("{topic}\n{difference}\n");
                    }
                }
            }
        }
        cases += recorded.len();
        if different > 0 {
            failed.push(format!("{topic}: {different} of {}", recorded.len()));
        }
    }
    println!("{cases} cases, {meant} differ as they are meant to");
    assert!(cases >= 5000, "only {cases} cases");
    assert!(failed.is_empty(), "different from Go: {}", failed.join(", "));
}
