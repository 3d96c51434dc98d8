//! `cargo xtask compatibility`: generates the tables in docs/compatibility.md from those in crates/osm-render.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use osm_render::compatibility::{Table, compatibility};

use crate::generated::{self, File};

const PAGE: &str = "docs/compatibility.md";
const BEGIN: &str =
    "<!-- tables: generated from crates/osm-render/src/compatibility.rs by `cargo xtask compatibility` -->";
const END: &str = "<!-- end of tables -->";

pub fn files() -> Result<Vec<File>> {
    let path = crate::root().join(PAGE);
    let text = fs::read_to_string(&path).context(PAGE)?;
    let mut tables = String::new();
    for table in compatibility().tables() {
        write(&mut tables, &table)?;
    }
    let page = generated::between(&text, BEGIN, END, &format!("{tables}\n")).context(PAGE)?;
    Ok(vec![(path, page)])
}

fn write(page: &mut String, table: &Table) -> Result<()> {
    let row = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let head: Vec<String> = table.head.iter().map(|name| (*name).to_owned()).collect();
    let rule = "|---".repeat(table.head.len());
    write!(
        page,
        "\n## {}\n\n{}\n\n{}\n{rule}|\n",
        table.title,
        table.note,
        row(&head)
    )?;
    for cells in &table.rows {
        writeln!(page, "{}", row(cells))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use osm_judges::KUBELET_MINORS;
    use osm_render::compatibility::MANAGEMENT_CLUSTER_MINOR;

    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(crate::root().join(path)).unwrap()
    }

    #[test]
    fn the_committed_tables_are_those_of_the_code() {
        assert!(
            generated::stale(files().unwrap()).is_empty(),
            "run `cargo xtask compatibility`"
        );
    }

    #[test]
    fn there_is_a_judge_for_each_kubelet() {
        let minors: Vec<String> = compatibility()
            .kubelets
            .into_iter()
            .map(|row| row.minor)
            .collect();
        assert_eq!(minors, KUBELET_MINORS);
    }

    #[test]
    fn the_chart_refuses_the_same_versions_of_kubernetes() {
        let chart = read("charts/operating-system-manager/Chart.yaml");
        assert!(chart.contains(&format!("kubeVersion: \">=1.{MANAGEMENT_CLUSTER_MINOR}.0-0\"")));
        let checks = read("charts/operating-system-manager/templates/checks.yaml");
        let oldest = KUBELET_MINORS[0];
        assert!(checks.contains(&format!("semverCompare \"<{oldest}.0-0\"")));
    }
}
