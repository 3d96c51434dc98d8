//! The origin of figures: date, commit, machine and command. Figures without an origin can't be compared.

use std::fmt;
use std::fs;

use anyhow::Result;
use jiff::Timestamp;

use crate::revision;

/// Printed above every table of figures.
pub struct Origin {
    measured: Timestamp,
    commit: String,
    machine: Machine,
    command: String,
}

/// The machine that measured.
#[derive(Debug, PartialEq, Eq)]
struct Machine {
    cores: usize,
    /// The model of the CPU, if Linux knows it.
    model: Option<String>,
    gibibytes: u64,
}

impl Origin {
    /// This machine and this commit, for figures of `command`.
    ///
    /// # Errors
    /// An unknown commit.
    pub async fn here(command: String, measured: Timestamp) -> Result<Self> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let machine = Machine::parse(&read("/proc/cpuinfo"), &read("/proc/meminfo"));
        Ok(Self {
            measured,
            commit: revision::short(&revision::read().await?),
            machine,
            command,
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            measured,
            commit,
            machine,
            command,
        } = self;
        writeln!(f, "- Date: {}", measured.strftime("%Y-%m-%d"))?;
        writeln!(f, "- Commit: `{commit}`")?;
        writeln!(f, "- Machine: {machine}")?;
        writeln!(f, "- Command: `{command}`")
    }
}

impl Machine {
    fn parse(cpuinfo: &str, meminfo: &str) -> Self {
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let kibibytes =
            field(meminfo, "MemTotal").and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            model: field(cpuinfo, "model name"),
            gibibytes: (kibibytes.unwrap_or_default() + (1 << 19)) >> 20,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores", self.cores)?;
        if let Some(model) = &self.model {
            write!(f, " ({model})")?;
        }
        write!(f, ", {} GiB of memory", self.gibibytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_from_procfs() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.80GHz\nprocessor\t: 1\nmodel name\t: Some CPU @ 2.80GHz\n";
        let machine = Machine::parse(cpuinfo, "MemTotal:       24689764 kB\nMemFree: 1 kB\n");
        let machine = Machine { cores: 2, ..machine };
        assert_eq!(
            machine.to_string(),
            "2 cores (Some CPU @ 2.80GHz), 24 GiB of memory"
        );
        let arm = Machine {
            cores: 2,
            ..Machine::parse("processor\t: 0\n", "")
        };
        assert_eq!(arm.to_string(), "2 cores, 0 GiB of memory");
    }
}
