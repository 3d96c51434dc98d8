//! Go's `text/template`, with the functions of Go and those of sprig that a profile has a use for.
//!
//! ```
//! use osm_gotemplate::{TemplateSet, Value, budget::Limits};
//!
//! let limits = Limits::new(10_000, 1 << 20);
//! let mut templates = TemplateSet::new("example");
//! templates.parse("hello", "Hello {{ .Name | upper }}!", &limits)?;
//! let data = Value::map([("Name".into(), "world".into())].into());
//! assert_eq!(templates.execute("hello", &data, &limits)?, "Hello WORLD!");
//! # Ok::<(), osm_gotemplate::Error>(())
//! ```
//!
//! A [`TemplateSet`] holds parsed templates. [`TemplateSet::execute`] renders one of them with a [`Value`],
//! which keeps Go's types: pointers that are nil or not, named types, and structs, whose unknown fields are
//! errors.
//!
//! Templates may be hostile. Parsing and rendering never panic, and never overflow a stack of 1 MiB.
//! Everything that takes time or memory is charged to a [`Budget`]. Functions that read the environment, the
//! network, the clock or random numbers are refused when a template is parsed, see [`functions::Refused`].
//!
//! The modules only use the ones before: `budget` ← `value` ← `problem` ← `format` ← `error` ← `strconv` ←
//! `standard` ← `functions` ← `parse` ← `execute`. There is one exception: types have [`methods`], which get
//! their arguments as functions do and may return values of other types.

#![allow(missing_docs)] // The names are Go's.

pub mod budget;
pub mod error;
pub mod execute;
pub mod format;
pub mod functions;
pub mod methods;
pub mod parse;
pub mod problem;
pub mod standard;
mod strconv;
pub mod value;

pub use budget::Budget;
pub use error::Error;
pub use execute::{DataField, TemplateSet};
pub use problem::Problem;
pub use value::Value;
