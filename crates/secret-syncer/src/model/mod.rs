//! The types of the other two layers: views of watched objects, documents, ownership. No client, no clock, no
//! decision.

pub mod documents;
pub mod existing;
pub mod gathered;
pub mod memory;
pub mod published_content;
#[cfg(test)]
mod published_content_tests;
pub mod record;
pub mod source;
pub mod token;
pub mod view;
