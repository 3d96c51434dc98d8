//! Flags of a service that has a webhook.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
pub struct AdmissionArgs {
    /// Address that serves the admission webhook under /validate, over HTTPS. Without this flag there is no
    /// webhook, and conditions report the same problems a little later.
    #[arg(
        long,
        env = "OSM_ADMISSION_LISTEN",
        value_name = "ADDRESS",
        requires = "admission_certificate"
    )]
    pub admission_listen: Option<SocketAddr>,
    /// Folder with tls.crt and tls.key of the admission webhook. The files may be created and replaced while
    /// the service runs.
    #[arg(
        long,
        env = "OSM_ADMISSION_CERTIFICATE",
        value_name = "FOLDER",
        requires = "admission_listen"
    )]
    pub admission_certificate: Option<PathBuf>,
}
