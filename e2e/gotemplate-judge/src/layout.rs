//! Compares what encoders write as data.

use serde_json::Value;

use crate::case::Case;

/// Whether both texts are the same data, in the format of the encoder that the case calls.
pub(crate) fn is_same_data(case: &Case, ours: &str, go: &str) -> bool {
    let read: fn(&str) -> Option<Value> = match case.template.as_str() {
        template if template.contains("toJson") => |text| serde_json::from_str(text).ok(),
        template if template.contains("toToml") => |text| {
            let table: toml::Table = toml::from_str(text).ok()?;
            serde_json::to_value(table).ok()
        },
        template if template.contains("toYaml") => |text| {
            let options = serde_saphyr::options! { legacy_octal_numbers: true, strict_booleans: true };
            // The last line break is left out, which can be a part of a text.
            serde_saphyr::from_str_with_options(&format!("{text}\n"), options).ok()
        },
        _ => return false,
    };
    match (read(ours), read(go)) {
        (Some(ours), Some(go)) => same(&ours, &go),
        _ => false,
    }
}

/// Whether both are equal, where a number may be written with or without a decimal point.
fn same(ours: &Value, go: &Value) -> bool {
    match (ours, go) {
        (Value::Number(ours), Value::Number(go)) => ours == go || ours.as_f64() == go.as_f64(),
        (Value::Array(ours), Value::Array(go)) => {
            ours.len() == go.len() && ours.iter().zip(go).all(|(ours, go)| same(ours, go))
        }
        (Value::Object(ours), Value::Object(go)) => {
            let has = |(key, ours)| go.get(key).is_some_and(|go| same(ours, go));
            ours.len() == go.len() && ours.iter().all(has)
        }
        _ => ours == go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_does_not_matter_but_the_data_does() {
        let case = |template: &str| Case {
            template: template.to_owned(),
            ..Case::default()
        };
        for (template, ours, go, is_same) in [
            ("{{toYaml .}}", "a: 1\nb: \"x\"", "b: x\na: 1.0\n", true),
            ("{{toYaml .}}", "a: \"1\"", "a: 1", false),
            ("{{toYaml .}}", "a: yes", "a: true", false),
            ("{{toJson .}}", "{\"a\":[1]}", "{ \"a\": [1, 2] }", false),
            ("{{toToml .}}", "[a]\nb = 1", "a = {b = 1}", true),
            ("{{print .}}", "1", "1.0", false),
        ] {
            assert_eq!(is_same_data(&case(template), ours, go), is_same, "{ours} {go}");
        }
    }
}
