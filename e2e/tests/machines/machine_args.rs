//! What runs machines: the flag that several commands share.

use anyhow::Result;
use osm_lab::machines::{self, Accelerator};

/// With which a command tells the isolated process that it starts what it has decided.
const ACCELERATOR: &str = "OSM_ACCELERATOR";

const KVM: &str = "kvm";
const EMULATION: &str = "emulation";

/// The flag.
#[derive(clap::Args)]
pub struct MachineArgs {
    /// What runs the programs of machines [default: kvm if a trial machine runs with it, else emulation]
    #[arg(long, value_parser = [KVM, EMULATION], value_name = "ACCELERATOR", env = ACCELERATOR)]
    accelerator: Option<String>,
}

impl MachineArgs {
    /// What the flag and this host decide.
    ///
    /// # Errors
    /// Programs that are missing.
    pub fn accelerator(&self) -> Result<Accelerator> {
        machines::require_programs()?;
        match self.accelerator.as_deref() {
            None => Accelerator::find(),
            Some(KVM) => Ok(Accelerator::Kvm),
            Some(_) => Ok(Accelerator::Emulation),
        }
    }
}

/// The environment variable by which the isolated process decides the same.
pub fn variable(accelerator: Accelerator) -> (&'static str, &'static str) {
    let name = match accelerator {
        Accelerator::Kvm => KVM,
        Accelerator::Emulation => EMULATION,
    };
    (ACCELERATOR, name)
}
