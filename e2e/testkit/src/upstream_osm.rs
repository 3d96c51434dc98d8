//! The controller of the upstream OSM as a process, built from the Go module in `e2e/judges/upstream-osm`.
//!
//! Its webhook, which is a program of its own, doesn't run. So each MachineDeployment needs the annotation
//! `k8c.io/operating-system-profile`, which that webhook sets: the controller ignores all others.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_judges::go_module::{Flags, GoModule};
use osm_judges::upstream_osm_module;

use crate::process::{ScratchDir, Service};
use crate::{ControlPlane, wait_for};

/// Of everything that is waited for. After one that was killed, it waits for the Lease for 15 to 20 seconds.
const DEADLINE: Duration = Duration::from_secs(180);

/// Its binary, from the cache, else built.
///
/// # Errors
/// When Go is missing or the build fails.
pub async fn program(progress: impl Fn(&str)) -> Result<PathBuf> {
    let flags = Flags {
        ldflags: "-s -w".to_owned(),
        ..Flags::default()
    };
    GoModule::new(&upstream_osm_module(), "upstream-osm", flags)?
        .build(
            "osm-controller",
            "k8c.io/operating-system-manager/cmd/osm-controller",
            progress,
        )
        .await
}

/// A pod of the upstream OSM. Dropping it kills it.
#[derive(Debug)]
pub struct UpstreamOsm {
    process: Service,
    _logs: ScratchDir,
}

impl UpstreamOsm {
    /// Starts it as who may do everything, for profiles and configs in this namespace, with `more` flags. See
    /// [`Self::leads`] for when it works.
    ///
    /// # Errors
    /// When it can't be built or started.
    pub async fn start(plane: &ControlPlane, namespace: &str, more: &[&str]) -> Result<Self> {
        let program = program(|line| eprintln!("{line}")).await?;
        let logs = ScratchDir::new("osm-upstream-")?;
        let kubeconfig = plane.admin_kubeconfig_path();
        let (kubeconfig, namespace_flag) = (
            format!("-kubeconfig={}", kubeconfig.display()),
            format!("-namespace={namespace}"),
        );
        let mut arguments = vec![
            kubeconfig.as_str(),
            &namespace_flag,
            "-metrics-address=127.0.0.1:0",
            "-health-probe-address=127.0.0.1:0",
        ];
        arguments.extend(more);
        let environment: [(&str, &str); 0] = [];
        let process = Service::spawn(&program, arguments, environment, &logs.path().join("log"))?;
        Ok(Self { process, _logs: logs })
    }

    /// Waits until it holds its Lease.
    ///
    /// # Errors
    /// When it ends before that.
    pub async fn leads(&mut self) -> Result<()> {
        wait_for("the upstream OSM to hold its Lease", DEADLINE, async || {
            let log = self.process.logs()?;
            ensure!(self.process.exited()?.is_none(), "{log}");
            Ok(log.contains("Successfully acquired lease").then_some(()))
        })
        .await
    }

    /// Everything that it has written.
    ///
    /// # Errors
    /// When its log can't be read.
    pub fn logs(&self) -> Result<String> {
        self.process.logs()
    }

    /// Ends it as Kubernetes does when its Deployment is scaled to zero. Its Lease stays.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(mut self) -> Result<()> {
        self.process.terminate(DEADLINE).await.map(drop)
    }
}
