//! Holds what a process remembers of one OperatingSystemConfig between two reconciles. Decisions take it as
//! input.
//!
//! Losing it is harmless: after a restart documents are compared once more where an object that they take
//! values from has changed, and waits and failures are counted from zero.

use std::collections::HashMap;

use jiff::Timestamp;
use osm_api::Reason;
use osm_user_data::LateValues;
use parking_lot::Mutex;

use crate::model::token::Token;

/// By name of the OperatingSystemConfig. A reconcile stores what its plan remembers, and adds the
/// [facts](Fact) that carrying it out shows.
#[derive(Default)]
pub struct Memory(Mutex<HashMap<String, PoolMemory>>);

impl Memory {
    pub fn of(&self, config: &str) -> PoolMemory {
        self.0.lock().get(config).cloned().unwrap_or_default()
    }

    pub fn set(&self, config: &str, memory: PoolMemory) {
        self.0.lock().insert(config.to_owned(), memory);
    }

    pub fn learn(&self, config: &str, fact: Fact) {
        self.0.lock().entry(config.to_owned()).or_default().learn(fact);
    }

    pub fn forget(&self, config: &str) {
        self.0.lock().remove(config);
    }
}

#[derive(Clone, Default)]
pub struct PoolMemory {
    /// What the published documents were made from.
    pub made_from: Option<MadeFrom>,
    /// Since when there has been nothing to publish.
    pub waiting_since: Option<Timestamp>,
    pub repairs: Option<Repairs>,
    pub unfit: Option<Unfit>,
    /// The last token of the pool, until it is renewed. With the same token, repairs and lasting failures
    /// leave no further documents.
    pub token: Option<Token>,
}

/// What only the API server's answers show.
pub enum Fact {
    /// A token was issued. A reconcile that ends early has to learn it at once.
    Issued(Token),
    /// The API server does not accept the token. It may have another key to verify it with by now, so the
    /// next attempt gets a new one.
    Refused,
    /// What is published holds exactly what would be made from this. Only the content of a config is compared
    /// or published again.
    Same(MadeFrom),
    Unfit(Unfit),
}

impl PoolMemory {
    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Issued(token) => self.token = Some(token),
            Fact::Refused => self.token = None,
            Fact::Same(made_from) => {
                self.made_from = Some(made_from);
                // What is published is fit, whatever an earlier attempt showed.
                self.unfit = None;
            }
            Fact::Unfit(unfit) => self.unfit = Some(unfit),
        }
    }
}

/// There is no `Debug`, so that no log shows values.
#[derive(Clone)]
pub struct MadeFrom {
    /// As the annotation [`osm_api::names::PUBLISHED_FROM`] of the bootstrap Secret.
    pub published_from: String,
    /// Digest of the rendered content.
    pub digest: String,
    pub values: LateValues,
}

/// A content that can't be published: another client has altered it, a value does not fit, a document is too
/// large, the pool has too many documents, a Secret that it needs is someone else's, or the API server
/// refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// Generation of the config, which the write of a status does not change.
    pub generation: i64,
    /// As the annotation [`osm_api::names::PUBLISHED_FROM`]: other values may fit.
    pub published_from: String,
    pub reason: Reason,
    pub message: String,
    /// When it is tried again, unless something has changed before.
    pub until: Timestamp,
}

/// Publishes in quick succession because something was altered, missing or due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repairs {
    pub last: Timestamp,
    pub count: u32,
}
