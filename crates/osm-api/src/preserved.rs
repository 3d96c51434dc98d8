//! Schemas of fields whose content the API server keeps as it is.

/// Schema of an object whose fields are kept as they are.
pub(crate) fn preserved_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    // Not `x-kubernetes-preserve-unknown-fields` on the object itself: there a rule's `==` sees the values of
    // fields, but not that a field has another name.
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"nullable": true, "x-kubernetes-preserve-unknown-fields": true}
    })
}

/// Schema of a list whose items are kept as they are.
pub(crate) fn preserved_items(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true}})
}
