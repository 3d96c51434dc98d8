//! Typed data: JSON that becomes a value with Go's types. The Go program reads the same.
//!
//! Null, booleans, strings, arrays and objects are what Go's decoder makes of them: nil, `bool`, `string`,
//! `[]interface {}` and `map[string]interface {}`. A number is an `int`, or a `float64` if it has a point or
//! an exponent. An object with one key that starts with `$` is a value of another type: `{"$uint8": 3}`,
//! `{"$[]string": ["a"]}`, `{"$*int32": 0}`, `{"$resources.filesData": {…}}`. Null in it is the type's zero
//! value, such as a nil pointer.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use osm_gotemplate::Value;
use osm_gotemplate::methods::Behavior;
use osm_gotemplate::value::{FloatKind, IntKind, List, Map, Named, Pointer, Struct, Type};
use serde_json::Value as Json;

use crate::{named, types};

/// Makes a value of typed data.
///
/// # Errors
/// An unknown type, or a value that is none of its type.
pub fn value(json: &Json) -> Result<Value> {
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(*value),
        Json::String(text) => Value::string(text.as_str()),
        Json::Number(number) if number.is_f64() => of_type(&Type::Float(FloatKind::Float64), json)?,
        Json::Number(_) => of_type(&Type::Int(IntKind::Int), json)?,
        Json::Array(_) => of_type(&Type::List(Rc::new(Type::Any)), json)?,
        Json::Object(fields) => {
            if let Some((key, described)) = fields.iter().next()
                && let Some(name) = key.strip_prefix('$')
                && fields.len() == 1
            {
                return of_type(&types::parse(name)?, described);
            }
            of_type(&Type::Map(Rc::new(Type::Any)), json)?
        }
    })
}

fn of_type(wanted: &Type, json: &Json) -> Result<Value> {
    if json.is_null() {
        return zero(wanted);
    }
    let wrong = || format!("{json} is no {wanted}");
    Ok(match wanted {
        Type::Any => value(json)?,
        Type::Bool => Value::Bool(json.as_bool().with_context(wrong)?),
        Type::String => Value::string(json.as_str().with_context(wrong)?),
        Type::Int(kind) => Value::Int(json.as_i64().with_context(wrong)?, *kind),
        Type::Uint(kind) => Value::Uint(json.as_u64().with_context(wrong)?, *kind),
        Type::Float(FloatKind::Float64) => Value::float(json.as_f64().with_context(wrong)?),
        Type::Float(FloatKind::Float32) => {
            let single: f32 = json.to_string().parse()?;
            Value::Float(single.into(), FloatKind::Float32)
        }
        Type::Pointer(to) => Value::Pointer(Pointer::to_value(of_type(to, json)?)),
        Type::List(element) => {
            let items = json.as_array().with_context(wrong)?.iter();
            let items = items.map(|item| of_type(element, item)).collect::<Result<_>>()?;
            Value::List(List::new(Type::clone(element), items))
        }
        Type::Map(element) => {
            let entries = json.as_object().with_context(wrong)?.iter();
            let entries = entries
                .map(|(key, entry)| Ok((Rc::from(key.as_str()), of_type(element, entry)?)))
                .collect::<Result<BTreeMap<_, _>>>()?;
            Value::Map(Map::new(Type::clone(element), entries))
        }
        Type::Named(name, made_of, behavior) => of_named(name, made_of, behavior, json)?,
        Type::Struct => bail!(wrong()),
    })
}

fn of_named(name: &Rc<str>, made_of: &Type, behavior: &'static Behavior, json: &Json) -> Result<Value> {
    let text = json.as_str().unwrap_or_default();
    Ok(match &**name {
        "net.IP" => named::ip(text)?,
        "time.Duration" => named::duration(text)?,
        "v1.Duration" => named::kubernetes_duration(text)?,
        _ => match types::fields(name) {
            Some(fields) => of_struct(name, fields, behavior, json)?,
            None => Value::Named(Named::new(Rc::clone(name), of_type(made_of, json)?)),
        },
    })
}

fn of_struct(
    name: &Rc<str>,
    fields: &[(&str, &str)],
    behavior: &'static Behavior,
    json: &Json,
) -> Result<Value> {
    let described = json.as_object().with_context(|| format!("{json} is no {name}"))?;
    if let Some(unknown) = described
        .keys()
        .find(|key| !fields.iter().any(|(field, _)| field == key))
    {
        bail!("{name} has no field {unknown}");
    }
    let mut values = Vec::new();
    for (field, wanted) in fields {
        let value = of_type(
            &types::parse(wanted)?,
            described.get(*field).unwrap_or(&Json::Null),
        )?;
        values.push((Rc::from(*field), value));
    }
    let value = Struct::new(values);
    Ok(Value::Named(Named::with_behavior(
        Rc::clone(name),
        Value::Struct(value),
        None,
        behavior,
    )))
}

/// What a variable of the type has before something is assigned to it.
fn zero(wanted: &Type) -> Result<Value> {
    Ok(match wanted {
        Type::Any => Value::Nil,
        Type::Bool => Value::Bool(false),
        Type::String => Value::string(""),
        Type::Int(kind) => Value::Int(0, *kind),
        Type::Uint(kind) => Value::Uint(0, *kind),
        Type::Float(kind) => Value::Float(0.0, *kind),
        Type::Pointer(to) => Value::Pointer(Pointer::nil(Type::clone(to))),
        Type::List(element) => Value::List(List::nil(Type::clone(element))),
        Type::Map(element) => Value::Map(Map::nil(Type::clone(element))),
        Type::Struct => Value::Struct(Struct::new(Vec::new())),
        Type::Named(name, made_of, behavior) => {
            let none = if types::fields(name).is_some() && &**name != "v1.Duration" {
                Json::Object(serde_json::Map::new())
            } else {
                match **made_of {
                    Type::String | Type::List(_) => Json::String(String::new()),
                    _ => Json::String("0s".to_owned()),
                }
            };
            of_named(name, made_of, behavior, &none)?
        }
    })
}
