//! Values of templates, with Go's types.
//!
//! Values are shared by reference counts. Only maps can change, by sprig's `set`, `unset`, `merge` and
//! `mergeOverwrite`; as in Go, everybody who holds the map sees the change. A map can't be put into itself,
//! so that values have no cycles. Values can be nested deeply all the same: dropping them takes no stack, and
//! everything else that walks them counts the depth against [`MAX_NESTING`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use crate::budget::{Budget, Exhausted};
use crate::methods::{Behavior, PLAIN, WITH_TEXT};

/// Deepest value that is printed, encoded, compared or copied.
pub const MAX_NESTING: usize = 100;

#[derive(Clone, Debug)]
pub enum Value {
    /// No value: a nil interface, or the key that a map does not have.
    Nil,
    Bool(bool),
    Int(i64, IntKind),
    Uint(u64, UintKind),
    /// A `float32` holds the value that it has as `f64`.
    Float(f64, FloatKind),
    /// Go's strings can hold any bytes. Here, a function whose result would not be UTF-8 fails.
    String(Rc<str>),
    List(List),
    Map(Map),
    Struct(Struct),
    Pointer(Pointer),
    Named(Named),
}

/// Which of Go's signed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntKind {
    Int,
    Int8,
    Int16,
    Int32,
    Int64,
}

/// Which of Go's unsigned integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UintKind {
    Uint,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
}

/// Which of Go's floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatKind {
    Float32,
    Float64,
}

/// A slice. It never changes.
#[derive(Clone)]
pub struct List(Rc<Items>);

struct Items {
    element: Type,
    /// `None` is a nil slice.
    items: Option<Vec<Value>>,
}

/// A map with strings as keys.
#[derive(Clone)]
pub struct Map(Rc<Entries>);

struct Entries {
    element: Type,
    /// `None` is a nil map.
    entries: RefCell<Option<BTreeMap<Rc<str>, Value>>>,
}

/// The fields of a struct, in the order of their declaration. Its name stands in the [`Named`] around it.
#[derive(Clone)]
pub struct Struct(Rc<Fields>);

struct Fields(Vec<(Rc<str>, Value)>);

/// A pointer, which is nil or points to a value.
#[derive(Clone)]
pub struct Pointer(Rc<Target>);

struct Target {
    to: Type,
    value: Option<Value>,
}

/// A value of a type that has a name: a struct, or e.g. `type CloudProvider string`.
#[derive(Clone)]
pub struct Named(Rc<NamedValue>);

struct NamedValue {
    /// As `%T` prints it, e.g. `resources.filesData`.
    name: Rc<str>,
    value: Value,
    /// What the method `String` returns.
    text: Option<Rc<str>>,
    behavior: &'static Behavior,
}

/// Bytes that a shared part takes in addition: the counts of its references.
pub(crate) const COUNTS: usize = 2 * size_of::<usize>();

/// A type of Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `interface {}`
    Any,
    Bool,
    Int(IntKind),
    Uint(UintKind),
    Float(FloatKind),
    String,
    /// A slice of the element's type.
    List(Rc<Type>),
    /// A map from strings to the element's type.
    Map(Rc<Type>),
    Struct,
    Pointer(Rc<Type>),
    /// The name, what the type is made of, and what it has besides.
    Named(Rc<str>, Rc<Type>, &'static Behavior),
}

impl Value {
    /// A Go `int`.
    #[must_use]
    pub fn int(value: i64) -> Self {
        Self::Int(value, IntKind::Int)
    }

    /// A Go `int64`, which is what the arithmetic of sprig returns.
    #[must_use]
    pub fn int64(value: i64) -> Self {
        Self::Int(value, IntKind::Int64)
    }

    /// A Go `float64`.
    #[must_use]
    pub fn float(value: f64) -> Self {
        Self::Float(value, FloatKind::Float64)
    }

    /// A Go `string`.
    #[must_use]
    pub fn string(value: impl Into<Rc<str>>) -> Self {
        Self::String(value.into())
    }

    /// A Go `[]interface {}`.
    #[must_use]
    pub fn list(items: Vec<Value>) -> Self {
        Self::List(List::new(Type::Any, items))
    }

    /// A Go `[]string`.
    #[must_use]
    pub fn strings(items: impl IntoIterator<Item = impl Into<Rc<str>>>) -> Self {
        let items = items.into_iter().map(|item| Self::string(item)).collect();
        Self::List(List::new(Type::String, items))
    }

    /// A Go `map[string]interface {}`.
    #[must_use]
    pub fn map(entries: BTreeMap<Rc<str>, Value>) -> Self {
        Self::Map(Map::new(Type::Any, entries))
    }

    /// The value's type; none for [`Value::Nil`].
    #[must_use]
    pub fn type_of(&self) -> Option<Type> {
        Some(match self {
            Self::Nil => return None,
            Self::Bool(_) => Type::Bool,
            Self::Int(_, kind) => Type::Int(*kind),
            Self::Uint(_, kind) => Type::Uint(*kind),
            Self::Float(_, kind) => Type::Float(*kind),
            Self::String(_) => Type::String,
            Self::List(list) => Type::List(Rc::new(list.element().clone())),
            Self::Map(map) => Type::Map(Rc::new(map.element().clone())),
            Self::Struct(_) => Type::Struct,
            Self::Pointer(pointer) => Type::Pointer(Rc::new(pointer.to().clone())),
            Self::Named(named) => {
                let made_of = named.value().type_of().unwrap_or(Type::Any);
                Type::Named(named.name().clone(), Rc::new(made_of), named.behavior())
            }
        })
    }

    /// The value without its type's name: what Go's `reflect.Value.Kind` decides on.
    #[must_use]
    pub fn underlying(&self) -> &Self {
        let mut value = self;
        while let Self::Named(named) = value {
            value = named.value();
        }
        value
    }

    /// Whether an `if` takes this value as true, see Go's `template.IsTrue`. A pointer is true if it is not
    /// nil, whatever it points to.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match self.underlying() {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value, _) => *value != 0,
            Self::Uint(value, _) => *value != 0,
            Self::Float(value, _) => *value != 0.0,
            Self::String(text) => !text.is_empty(),
            Self::List(list) => !list.items().is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Struct(_) => true,
            Self::Pointer(pointer) => pointer.value().is_some(),
            Self::Named(_) => false, // `underlying` removes all names.
        }
    }
}

impl List {
    /// Bytes that a list takes, without what its items refer to.
    pub(crate) fn bytes(items: usize) -> usize {
        (size_of::<Items>() + COUNTS).saturating_add(items.saturating_mul(size_of::<Value>()))
    }

    #[must_use]
    pub fn new(element: Type, items: Vec<Value>) -> Self {
        Self(Rc::new(Items {
            element,
            items: Some(items),
        }))
    }

    /// A nil slice.
    #[must_use]
    pub fn nil(element: Type) -> Self {
        Self(Rc::new(Items { element, items: None }))
    }

    #[must_use]
    pub fn element(&self) -> &Type {
        &self.0.element
    }

    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.0.items.is_none()
    }

    /// The elements; none for a nil slice.
    #[must_use]
    pub fn items(&self) -> &[Value] {
        self.0.items.as_deref().unwrap_or_default()
    }
}

/// Putting the value into the map would make the map contain itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a map can't be put into itself")]
pub struct Cycle;

impl Map {
    /// Most bytes that one more entry takes, without what it refers to. A node of a `BTreeMap` has room for
    /// eleven entries, and the nodes of a map that is filled in order hold only five.
    pub(crate) const ENTRY_BYTES: usize = Self::NODE_BYTES / 5;

    const NODE_BYTES: usize = 12 * (size_of::<(Rc<str>, Value)>() + size_of::<usize>());

    /// Most bytes that a map takes, without what its entries refer to.
    pub(crate) fn bytes(entries: usize) -> usize {
        (size_of::<Entries>() + COUNTS + Self::NODE_BYTES)
            .saturating_add(entries.saturating_mul(Self::ENTRY_BYTES))
    }

    #[must_use]
    pub fn new(element: Type, entries: BTreeMap<Rc<str>, Value>) -> Self {
        Self(Rc::new(Entries {
            element,
            entries: RefCell::new(Some(entries)),
        }))
    }

    /// A nil map.
    #[must_use]
    pub fn nil(element: Type) -> Self {
        Self(Rc::new(Entries {
            element,
            entries: RefCell::new(None),
        }))
    }

    #[must_use]
    pub fn element(&self) -> &Type {
        &self.0.element
    }

    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.0.entries.borrow().is_none()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.entries.borrow().as_ref().map_or(0, BTreeMap::len)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        self.0.entries.borrow().as_ref()?.get(key).cloned()
    }

    /// The entries as they are now, sorted by key as Go sorts strings: by bytes. Charges a step for each, the
    /// bytes of its key, and the list of all.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub fn entries(&self, budget: &dyn Budget) -> Result<Vec<(Rc<str>, Value)>, Exhausted> {
        let entries = self.0.entries.borrow();
        let pairs = || entries.iter().flatten();
        budget.step(self.len() as u64)?;
        budget.copy(self.len().saturating_mul(size_of::<(Rc<str>, Value)>()))?;
        budget.read(pairs().map(|(key, _)| key.len()).fold(0, usize::saturating_add))?;
        Ok(pairs().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Sets a key, for everybody who holds the map. Walks `value` to find cycles, so charge its size before.
    ///
    /// # Errors
    /// The map is part of `value`.
    pub fn insert(&self, key: Rc<str>, value: Value) -> Result<(), Cycle> {
        if self.is_within(&value) {
            return Err(Cycle);
        }
        self.0
            .entries
            .borrow_mut()
            .get_or_insert_default()
            .insert(key, value);
        Ok(())
    }

    /// Removes a key, for everybody who holds the map.
    pub fn remove(&self, key: &str) {
        let removed = self
            .0
            .entries
            .borrow_mut()
            .as_mut()
            .and_then(|entries| entries.remove(key));
        drop(removed); // After the borrow has ended.
    }

    fn is_within(&self, value: &Value) -> bool {
        let mut seen: std::collections::BTreeSet<*const ()> = std::collections::BTreeSet::new();
        let mut to_visit = vec![value.clone()];
        while let Some(value) = to_visit.pop() {
            match value.underlying() {
                Value::Map(map) => {
                    if Rc::ptr_eq(&map.0, &self.0) {
                        return true;
                    }
                    if seen.insert(Rc::as_ptr(&map.0).cast()) {
                        to_visit.extend(
                            map.0
                                .entries
                                .borrow()
                                .iter()
                                .flatten()
                                .map(|(_, value)| value.clone()),
                        );
                    }
                }
                Value::List(list) if seen.insert(Rc::as_ptr(&list.0).cast()) => {
                    to_visit.extend_from_slice(list.items());
                }
                Value::Pointer(pointer) => to_visit.extend(pointer.value().cloned()),
                Value::Struct(fields) => {
                    to_visit.extend(fields.fields().iter().map(|(_, value)| value.clone()))
                }
                _ => {}
            }
        }
        false
    }

    /// Whether both are the same map, not only equal.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Struct {
    #[must_use]
    pub fn new(fields: Vec<(Rc<str>, Value)>) -> Self {
        Self(Rc::new(Fields(fields)))
    }

    #[must_use]
    pub fn fields(&self) -> &[(Rc<str>, Value)] {
        &self.0.0
    }

    /// Whether templates and encoders see a field with this name.
    pub(crate) fn is_exported(name: &str) -> bool {
        name.chars().next().is_some_and(char::is_uppercase)
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        let found = self.fields().iter().find(|(known, _)| &**known == name);
        found.map(|(_, value)| value)
    }
}

impl Pointer {
    /// A pointer to a value. What points to [`Value::Nil`] is a pointer to an interface.
    #[must_use]
    pub fn to_value(value: Value) -> Self {
        let to = value.type_of().unwrap_or(Type::Any);
        Self(Rc::new(Target {
            to,
            value: Some(value),
        }))
    }

    /// A nil pointer to values of a type.
    #[must_use]
    pub fn nil(to: Type) -> Self {
        Self(Rc::new(Target { to, value: None }))
    }

    #[must_use]
    pub fn to(&self) -> &Type {
        &self.0.to
    }

    /// What it points to; none for a nil pointer.
    #[must_use]
    pub fn value(&self) -> Option<&Value> {
        self.0.value.as_ref()
    }

    /// Whether both point to the same place, or are nil.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0) || (self.0.value.is_none() && other.0.value.is_none())
    }
}

impl Type {
    /// The value of a variable of the type that nothing was assigned to. The fields of structs are not known,
    /// so theirs has none.
    #[must_use]
    pub fn zero(&self) -> Value {
        match self {
            Self::Any => Value::Nil,
            Self::Bool => Value::Bool(false),
            Self::Int(kind) => Value::Int(0, *kind),
            Self::Uint(kind) => Value::Uint(0, *kind),
            Self::Float(kind) => Value::Float(0.0, *kind),
            Self::String => Value::string(""),
            Self::List(element) => Value::List(List::nil((**element).clone())),
            Self::Map(element) => Value::Map(Map::nil((**element).clone())),
            Self::Struct => Value::Struct(Struct::new(Vec::new())),
            Self::Pointer(to) => Value::Pointer(Pointer::nil((**to).clone())),
            Self::Named(name, made_of, behavior) => {
                let text = behavior.has_text().then(|| "".into());
                Value::Named(Named::with_behavior(name.clone(), made_of.zero(), text, behavior))
            }
        }
    }

    /// A type with a name and without methods.
    #[must_use]
    pub fn named(name: impl Into<Rc<str>>, made_of: Type) -> Self {
        Self::Named(name.into(), Rc::new(made_of), &PLAIN)
    }

    /// What the type has besides what it is made of.
    pub(crate) fn behavior(&self) -> &'static Behavior {
        match self {
            Self::Named(_, _, behavior) => behavior,
            _ => &PLAIN,
        }
    }
}

impl Named {
    #[must_use]
    pub fn new(name: impl Into<Rc<str>>, value: Value) -> Self {
        Self::with_behavior(name, value, None, &PLAIN)
    }

    /// A value whose type has the method `String`.
    #[must_use]
    pub fn with_text(name: impl Into<Rc<str>>, value: Value, text: impl Into<Rc<str>>) -> Self {
        Self::with_behavior(name, value, Some(text.into()), &WITH_TEXT)
    }

    /// A value whose type has a behavior. `text` is what its method `String` returns, if it has that.
    #[must_use]
    pub fn with_behavior(
        name: impl Into<Rc<str>>,
        value: Value,
        text: Option<Rc<str>>,
        behavior: &'static Behavior,
    ) -> Self {
        Self(Rc::new(NamedValue {
            name: name.into(),
            value,
            text,
            behavior,
        }))
    }

    #[must_use]
    pub fn behavior(&self) -> &'static Behavior {
        self.0.behavior
    }

    #[must_use]
    pub fn name(&self) -> &Rc<str> {
        &self.0.name
    }

    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    #[must_use]
    pub fn text(&self) -> Option<&Rc<str>> {
        self.0.text.as_ref()
    }
}

impl fmt::Display for Type {
    /// As `%T` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("interface {}"),
            Self::Bool => f.write_str("bool"),
            Self::Int(IntKind::Int) => f.write_str("int"),
            Self::Int(IntKind::Int8) => f.write_str("int8"),
            Self::Int(IntKind::Int16) => f.write_str("int16"),
            Self::Int(IntKind::Int32) => f.write_str("int32"),
            Self::Int(IntKind::Int64) => f.write_str("int64"),
            Self::Uint(UintKind::Uint) => f.write_str("uint"),
            Self::Uint(UintKind::Uint8) => f.write_str("uint8"),
            Self::Uint(UintKind::Uint16) => f.write_str("uint16"),
            Self::Uint(UintKind::Uint32) => f.write_str("uint32"),
            Self::Uint(UintKind::Uint64) => f.write_str("uint64"),
            Self::Float(FloatKind::Float32) => f.write_str("float32"),
            Self::Float(FloatKind::Float64) => f.write_str("float64"),
            Self::String => f.write_str("string"),
            Self::List(element) => write!(f, "[]{element}"),
            Self::Map(element) => write!(f, "map[string]{element}"),
            Self::Struct => f.write_str("struct {}"),
            Self::Pointer(to) => write!(f, "*{to}"),
            Self::Named(name, ..) => f.write_str(name),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::string(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::string(value)
    }
}

// Containers are dropped without recursion: the code that drops the last reference takes the container's
// values out and drops them in turn.

fn drop_all(mut to_drop: Vec<Value>) {
    while let Some(value) = to_drop.pop() {
        match value {
            Value::List(list) => {
                if let Some(mut items) = Rc::into_inner(list.0) {
                    to_drop.append(&mut items.items.take().unwrap_or_default());
                }
            }
            Value::Map(map) => {
                if let Some(entries) = Rc::into_inner(map.0) {
                    to_drop.extend(entries.entries.take().unwrap_or_default().into_values());
                }
            }
            Value::Struct(fields) => {
                if let Some(mut fields) = Rc::into_inner(fields.0) {
                    to_drop.extend(std::mem::take(&mut fields.0).into_iter().map(|(_, value)| value));
                }
            }
            Value::Pointer(pointer) => {
                if let Some(mut target) = Rc::into_inner(pointer.0) {
                    to_drop.extend(target.value.take());
                }
            }
            Value::Named(named) => {
                if let Some(mut named) = Rc::into_inner(named.0) {
                    to_drop.push(std::mem::replace(&mut named.value, Value::Nil));
                }
            }
            _ => {}
        }
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        if let Some(items) = self.items.take() {
            drop_all(items);
        }
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        if let Some(entries) = self.entries.take() {
            drop_all(entries.into_values().collect());
        }
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        drop_all(
            std::mem::take(&mut self.0)
                .into_iter()
                .map(|(_, value)| value)
                .collect(),
        );
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop_all(self.value.take().into_iter().collect());
    }
}

impl Drop for NamedValue {
    fn drop(&mut self) {
        drop_all(vec![std::mem::replace(&mut self.value, Value::Nil)]);
    }
}

// A derived Debug would overflow the stack for values that are nested deeply.
macro_rules! opaque_debug {
    ($($name:ident),*) => {
        $(impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        })*
    };
}
opaque_debug!(List, Map, Struct, Pointer, Named);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_value_that_is_nested_a_million_times_takes_no_stack() {
        let mut value = Value::Nil;
        for level in 0..1_000_000 {
            value = match level % 4 {
                0 => Value::list(vec![value]),
                1 => Value::map([("a".into(), value)].into()),
                2 => Value::Pointer(Pointer::to_value(value)),
                _ => Value::Struct(Struct::new(vec![("A".into(), value)])),
            };
        }
        drop(value);
    }

    #[test]
    fn a_map_is_never_put_into_itself() {
        let map = Map::new(Type::Any, BTreeMap::new());
        let around = Value::list(vec![Value::Map(map.clone())]);
        assert_eq!(map.insert("a".into(), Value::Map(map.clone())), Err(Cycle));
        assert_eq!(map.insert("a".into(), around), Err(Cycle));
        assert_eq!(map.insert("a".into(), Value::int(1)), Ok(()));
    }

    #[test]
    fn a_pointer_is_true_whatever_it_points_to() {
        assert!(Value::Pointer(Pointer::to_value("".into())).is_true());
        assert!(!Value::Pointer(Pointer::nil(Type::String)).is_true());
    }
}
