//! A validating admission webhook: an HTTPS server for AdmissionReviews of the API server.
//!
//! A webhook only reports earlier what a reconcile would report later, so that everything works without it. This module owns the
//! server, its certificate and the protocol. A [`Judge`] of the service decides about objects, and must send no request.
//!
//! The server runs in one thread with a runtime of its own. However much is sent to it, the threads that reconcile, renew Leases and
//! answer probes stay free. It shares the memory of the process, and connections aren't limited, so the port needs a NetworkPolicy.
//! Whatever can't be judged in time is allowed with a warning, and deletion is never judged.

mod certificate;
mod metrics;
mod review;
mod server;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use metrics::AdmissionMetrics;
pub use review::Request;
pub use server::{Webhook, spawn};

/// Flags of a service that has a webhook.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct AdmissionArgs {
    /// Address that serves the admission webhook under /validate, over HTTPS. Without this flag there is no webhook, and conditions
    /// report the same problems a little later.
    #[arg(
        long,
        env = "OSM_ADMISSION_LISTEN",
        value_name = "ADDRESS",
        requires = "admission_certificate"
    )]
    pub admission_listen: Option<SocketAddr>,
    /// Folder with tls.crt and tls.key of the admission webhook. The files may be created and replaced while the service runs.
    #[arg(
        long,
        env = "OSM_ADMISSION_CERTIFICATE",
        value_name = "FOLDER",
        requires = "admission_listen"
    )]
    pub admission_certificate: Option<PathBuf>,
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
    fn result(&self) -> &'static str {
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
