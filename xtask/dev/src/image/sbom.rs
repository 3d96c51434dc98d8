//! The SBOM of a program, as a CycloneDX document.

use serde_json::{Value, json};

use super::dependencies::Package;

/// CycloneDX 1.5 (<https://cyclonedx.org/docs/1.5/json/>). The document has no time and no serial number, so that it is reproducible.
pub fn document(service: &str, revision: &str, packages: &[&Package]) -> Value {
    let components: Vec<Value> = packages
        .iter()
        .filter(|package| package.name != service)
        .map(|package| component(package))
        .collect();
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

fn component(package: &Package) -> Value {
    let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
    // Older crates write `/` instead of OR.
    let licence = package
        .license
        .as_deref()
        .unwrap_or("NOASSERTION")
        .replace('/', " OR ");
    json!({
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "licenses": [{"expression": licence}],
        "purl": purl,
    })
}
