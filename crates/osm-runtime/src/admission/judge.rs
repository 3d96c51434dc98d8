//! The trait of a service that decides about an object that someone creates or updates.

use std::future::Future;
use std::time::Duration;

use serde_json::value::RawValue;

/// A creation or an update.
#[derive(Debug)]
pub struct Request {
    pub namespace: String,
    pub name: String,
    /// The object as it would be stored, JSON.
    pub object: Box<RawValue>,
    /// The object as it is stored, JSON; `None` for a creation.
    pub old_object: Option<Box<RawValue>>,
}

/// Decides about the objects of a webhook.
pub trait Judge: Send + Sync + 'static {
    /// How long one object may be judged. Later it is allowed with a warning.
    const DEADLINE: Duration;

    /// Judges a creation or an update of an object that is not being deleted.
    fn judge(&self, request: Request) -> impl Future<Output = Verdict> + Send;
}

/// Whether an object is admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the object is refused; `None`: it is admitted.
    pub denial: Option<String>,
    /// What the client prints in any case.
    pub warnings: Vec<String>,
    /// Whether the object is admitted because it could not be judged.
    pub is_unchecked: bool,
}

impl Verdict {
    /// The object is admitted without a warning.
    pub fn allowed() -> Self {
        Self::default()
    }

    /// Value of the metric label `result`.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self { denial: Some(_), .. } => "denied",
            Self {
                is_unchecked: true, ..
            } => "unchecked",
            Self { .. } => "allowed",
        }
    }

    /// The object is refused with this message.
    pub fn denied(message: impl Into<String>) -> Self {
        Self {
            denial: Some(message.into()),
            ..Self::default()
        }
    }

    /// The object is admitted with a warning.
    pub fn warned(warning: impl Into<String>) -> Self {
        Self {
            warnings: vec![warning.into()],
            ..Self::default()
        }
    }

    /// The object is admitted, because it could not be judged. The warning gives the reason.
    pub fn unchecked(warning: impl Into<String>) -> Self {
        Self {
            is_unchecked: true,
            ..Self::warned(warning)
        }
    }
}
