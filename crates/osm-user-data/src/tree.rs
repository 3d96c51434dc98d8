//! Texts in a JSON tree, with the place of each, which is formatted only where it is printed.

use std::fmt;

use serde_json::Value;

/// A JSON tree with every string, keys left alone, replaced. `place` is that of the tree.
pub fn map<'v, E>(
    place: fmt::Arguments<'_>,
    value: &'v Value,
    render: &mut impl FnMut(fmt::Arguments<'_>, &'v str) -> Result<String, E>,
) -> Result<Value, E> {
    Ok(match value {
        Value::String(text) => Value::String(render(place, text)?),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(i, item)| self::map(format_args!("{place}[{i}]"), item, render))
                .collect::<Result<_, E>>()?,
        ),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| {
                    Ok((
                        key.clone(),
                        self::map(format_args!("{place}.{key}"), item, render)?,
                    ))
                })
                .collect::<Result<_, E>>()?,
        ),
        scalar => scalar.clone(),
    })
}
