//! docs/reasons.md explains every reason, and docs/runbooks every alert.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use osm_api::Reason;

fn path(below: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(below)
}

#[test]
fn the_page_has_one_row_for_each_reason_in_alphabetical_order() {
    let page = fs::read_to_string(path("docs/reasons.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| [`"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut names = Vec::new();
    for row in &rows {
        let [link, severity, meaning, remedy] = row[..] else {
            panic!("{row:?}")
        };
        let (name, page) = link.strip_prefix("[`").unwrap().split_once("`](").unwrap();
        let page = page.strip_suffix(')').unwrap();
        assert!(path("docs").join(page).exists(), "{name}: {page}");
        assert!(["info", "warning", "critical"].contains(&severity), "{name}");
        assert!(meaning.ends_with('.'), "{name}");
        assert!(remedy == "–" || remedy.ends_with('.'), "{name}");
        names.push(name);
    }
    assert!(names.is_sorted());
    let all: Vec<&str> = Reason::all().map(Reason::as_str).collect();
    assert_eq!(names, all);
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() {
    let chart = path("charts/operating-system-manager/files/alerts.yaml");
    let alerts = fs::read_to_string(chart).unwrap();
    let alerts: BTreeSet<String> = alerts
        .lines()
        .filter_map(|line| Some(line.split_once("alert: ")?.1.to_owned()))
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let mut titles = BTreeSet::new();
    for entry in fs::read_dir(path("docs/runbooks")).unwrap() {
        let file = entry.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        let title = text.strip_prefix("# ").unwrap().lines().next().unwrap();
        // The file of OSMAPIErrors is api-errors.md.
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert_eq!(title.to_lowercase(), format!("osm{}", name.replace('-', "")));
        titles.insert(title.to_owned());
    }
    assert_eq!(titles, alerts);
}
