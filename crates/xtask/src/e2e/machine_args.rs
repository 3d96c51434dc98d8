//! How machines are made: the flags that several commands share.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use osm_lab::machines::vm::{self, Accelerator};
use osm_lab::machines::{Kind, isolation};

/// The flags.
#[derive(clap::Args)]
pub struct MachineArgs {
    /// How machines are made [default: containers where this host can have them, else virtual]
    #[arg(long, value_enum, value_name = "KIND")]
    machines: Option<Machines>,
    /// What runs the programs of virtual machines [default: kvm if a trial machine runs with it, else emulation]
    #[arg(long, value_enum, value_name = "ACCELERATOR")]
    accelerator: Option<AcceleratorName>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Machines {
    Virtual,
    Containers,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AcceleratorName {
    Kvm,
    Emulation,
}

impl MachineArgs {
    /// What the flags and this host decide. A process and the isolated process that it starts come to the same answer, unless the trial of KVM
    /// takes too long in one of them.
    ///
    /// # Errors
    /// Flags that contradict each other, or programs that are missing.
    pub fn kind(&self) -> Result<Kind> {
        let containers = match self.machines {
            Some(machines) => machines == Machines::Containers,
            None => isolation::require_host(&Kind::Container).is_ok(),
        };
        if containers {
            ensure!(
                self.accelerator.is_none(),
                "containers have no accelerator: add --machines virtual"
            );
            return Ok(Kind::Container);
        }
        vm::require_programs()?;
        Ok(Kind::Virtual(match self.accelerator {
            None => Accelerator::find(),
            Some(AcceleratorName::Kvm) => Accelerator::Kvm,
            Some(AcceleratorName::Emulation) => Accelerator::Emulation {
                reason: "it was asked for".to_owned(),
            },
        }))
    }
}
