//! What the other two layers speak of: views of watched objects, documents, seals, ownership. No client, no clock, no decision.

pub mod documents;
pub mod existing;
pub mod found;
pub mod gathered;
pub mod hmac_key;
pub mod key;
pub mod legacy_token;
pub mod memory;
pub mod ownership;
pub mod pairs;
pub mod published_content;
#[cfg(test)]
mod published_content_tests;
pub mod rbac;
pub mod seal;
pub mod source;
pub mod token_binding;
pub mod tokens;
pub mod view;
