//! Tables as `kubectl get` prints them. The server renders them with the columns of the CustomResourceDefinition.

use anyhow::{Context, Result};
use kube::Client;
use serde_json::Value;

const GAP: &str = "   ";

/// The table that `kubectl get` prints for a path such as `/api/v1/namespaces/cloud-init-settings/secrets`.
///
/// # Errors
/// An error of the server.
pub async fn get(client: &Client, path: &str) -> Result<String> {
    let request = http::Request::get(path)
        .header(
            http::header::ACCEPT,
            "application/json;as=Table;v=v1;g=meta.k8s.io",
        )
        .body(Vec::new())?;
    let table: Value = client.request(request).await?;
    text(&table).with_context(|| format!("no table: {path}"))
}

fn text(table: &Value) -> Option<String> {
    let columns = table.get("columnDefinitions")?.as_array()?;
    // Columns with a priority above 0 are for `kubectl get --output wide`.
    let usual = |index: usize| {
        columns
            .get(index)
            .and_then(|column| column.get("priority")?.as_i64())
            == Some(0)
    };
    let names = columns
        .iter()
        .filter_map(|column| column.get("name")?.as_str())
        .map(str::to_uppercase);
    let mut lines: Vec<Vec<String>> = vec![names.collect()];
    for row in table.get("rows")?.as_array()? {
        lines.push(row.get("cells")?.as_array()?.iter().map(cell).collect());
    }
    for line in &mut lines {
        let mut index = 0..;
        line.retain(|_| index.next().is_some_and(usual));
    }
    Some(align(&lines))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_is_aligned_and_leaves_wide_columns_out() {
        let table = json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "Expires", "priority": 1}, {"name": "Age", "priority": 0},
            ],
            "rows": [{"cells": ["a-long-name", "never", "3s"]}, {"cells": ["b", null, 5]}],
        });
        assert_eq!(
            text(&table).unwrap(),
            "NAME          AGE\na-long-name   3s\nb             5\n"
        );
    }
}
