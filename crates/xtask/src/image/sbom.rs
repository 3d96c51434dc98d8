//! What a program is made of, as a CycloneDX document.

use serde_json::{Value, json};

use super::dependencies::Part;

/// CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>). The same parts give the same document: it carries no time and no serial number.
pub fn document(service: &str, revision: &str, parts: &[&Part]) -> Value {
    let components: Vec<Value> =
        parts.iter().filter(|part| part.name != service).map(|part| component(part)).collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "name": service,
                "version": env!("CARGO_PKG_VERSION"),
                "licenses": [{"expression": "Apache-2.0"}],
                "properties": [{"name": "revision", "value": revision}],
            },
        },
        "components": components,
    })
}

fn component(part: &Part) -> Value {
    let purl = format!("pkg:cargo/{}@{}", part.name, part.version);
    // Older crates write `/` for OR.
    let licence = part.license.as_deref().unwrap_or("NOASSERTION").replace('/', " OR ");
    json!({
        "type": "library",
        "bom-ref": purl,
        "name": part.name,
        "version": part.version,
        "licenses": [{"expression": licence}],
        "purl": purl,
    })
}
