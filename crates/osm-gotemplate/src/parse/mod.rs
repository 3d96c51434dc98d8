//! Parses templates, as Go's `text/template/parse` does. What it refuses, and the texts of its errors, are
//! Go's.

mod control;
mod lexer;
mod node;
mod number;
mod parser;
mod pipeline;
mod scope;
mod token;
mod unquote;
mod visit;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use node::*;

use crate::budget::Budget;
use crate::error::Error;

/// Blocks and parentheses can be nested this deeply.
pub const MAX_NESTING: usize = 100;

/// Parses a source. Returns the template and those that its `define`s and `block`s make, by name.
pub(crate) fn parse(
    name: &str,
    source: &str,
    budget: &dyn Budget,
) -> Result<BTreeMap<Arc<str>, Tree>, Box<Error>> {
    parser::Parser::new(name, source, budget)?.parse()
}
