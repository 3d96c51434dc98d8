//! What processes use, from `/proc`: processor time, memory.

use std::fs;

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time, user and system, in seconds since the start, including children that have ended.
    pub cpu_seconds: f64,
    /// Resident set in bytes.
    pub rss: u64,
    /// Largest resident set in bytes since the start or since [`reset_peak`].
    pub peak_rss: u64,
}

impl Usage {
    /// Resources of the process `pid`.
    ///
    /// # Errors
    /// A process that does not run.
    pub fn of(pid: u32) -> Result<Self> {
        let status = read(pid, "status")?;
        Ok(Self {
            cpu_seconds: cpu_seconds(&read(pid, "stat")?).context("format of /proc/<pid>/stat")?,
            rss: bytes(&status, "VmRSS:")?,
            peak_rss: bytes(&status, "VmHWM:")?,
        })
    }
}

/// Lets [`Usage::peak_rss`] of a process restart at its current memory.
///
/// # Errors
/// A process that does not run, or belongs to another user.
pub fn reset_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").with_context(|| format!("process {pid}"))
}

/// Processor time in `/proc/<pid>/stat`, see proc_pid_stat(5).
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The second field is the command in parentheses and may contain spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime are fields 14 to 17.
    let ticks = fields.split_whitespace().skip(11).take(4).map(str::parse::<u64>);
    let ticks = ticks.sum::<std::result::Result<u64, _>>().ok()?;
    #[allow(clippy::cast_precision_loss)]
    let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Some(seconds)
}

/// A size in `/proc/<pid>/status`, which is in KiB.
fn bytes(status: &str, field: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{field} in /proc/<pid>/status"))? * 1024)
}

fn read(pid: u32, file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("process {pid} does not run"))
}
