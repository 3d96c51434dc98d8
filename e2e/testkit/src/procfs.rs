//! What processes use, from `/proc`: processor time, memory, connections.

use std::collections::BTreeSet;
use std::fs;
use std::ops::AddAssign;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::is_watcher;

/// Resources of one process, or of several together.
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
            cpu_seconds: Stat::read(pid)?.cpu_seconds,
            rss: bytes(&status, "VmRSS:")?,
            peak_rss: bytes(&status, "VmHWM:")?,
        })
    }

    /// Resources of several processes together. A process that ends meanwhile counts as nothing.
    #[must_use]
    pub fn of_all(pids: &[u32]) -> Self {
        let mut sum = Self::default();
        pids.iter()
            .filter_map(|pid| Self::of(*pid).ok())
            .for_each(|used| sum += used);
        sum
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.cpu_seconds += other.cpu_seconds;
        self.rss += other.rss;
        self.peak_rss += other.peak_rss;
    }
}

/// Processes of a process group, without the watcher of [`crate::Service`].
///
/// # Errors
/// A `/proc` that can't be read.
pub fn group(group: u32) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process may end at any moment.
        let belongs = Stat::read(pid).is_ok_and(|stat| stat.group == group && stat.state != 'Z');
        // Before the leader becomes the program, it runs the same script as the watcher.
        if belongs && (pid == group || !is_watcher(pid)) {
            pids.push(pid);
        }
    }
    Ok(pids)
}

/// Lets [`Usage::peak_rss`] of a process begin anew with its current memory.
///
/// # Errors
/// A process that does not run, or belongs to another user.
pub fn reset_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").with_context(|| format!("process {pid}"))
}

/// Number of established connections from a process to `port` of this host over IPv4.
///
/// # Errors
/// A process that does not run, or belongs to another user.
pub fn connections(pid: u32, port: u16) -> Result<usize> {
    let folder = format!("/proc/{pid}/fd");
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.clone())? {
        // A descriptor may be closed at any moment.
        if let Some(socket) = fs::read_link(entry?.path()).ok().as_deref().and_then(inode) {
            sockets.insert(socket);
        }
    }
    Ok(established(&read(pid, "net/tcp")?, port)
        .filter(|inode| sockets.contains(inode))
        .count())
}

/// The inode of `socket:[1234]`.
fn inode(link: &Path) -> Option<u64> {
    let text = link.to_str()?.strip_prefix("socket:[")?;
    text.strip_suffix(']')?.parse().ok()
}

/// Inodes of the sockets in `/proc/<pid>/net/tcp` whose remote port is `port` and whose state is ESTABLISHED.
fn established(table: &str, port: u16) -> impl Iterator<Item = u64> {
    let remote = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(2);
        let (address, state) = (fields.next()?, fields.next()?);
        if !address.ends_with(&remote) || state != "01" {
            return None;
        }
        fields.nth(5)?.parse().ok()
    })
}

struct Stat {
    state: char,
    group: u32,
    cpu_seconds: f64,
}

impl Stat {
    fn read(pid: u32) -> Result<Self> {
        Self::parse(&read(pid, "stat")?).context("format of /proc/<pid>/stat")
    }

    /// The fields of proc_pid_stat(5).
    fn parse(stat: &str) -> Option<Self> {
        // The second field is the command in parentheses and may contain spaces.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let group = fields.nth(1)?.parse().ok()?;
        // utime, stime, cutime and cstime are fields 14 to 17.
        let ticks = fields.skip(8).take(4).map(str::parse::<u64>);
        let ticks = ticks.sum::<std::result::Result<u64, _>>().ok()?;
        #[allow(clippy::cast_precision_loss)]
        let cpu_seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            state,
            group,
            cpu_seconds,
        })
    }
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_own_process_is_measured() {
        let pid = std::process::id();
        let used = Usage::of(pid).unwrap();
        assert!(used.rss > 100_000 && used.peak_rss >= used.rss / 2, "{used:?}");
        assert!(Usage::of(u32::MAX).is_err());
        assert_eq!(Usage::of_all(&[u32::MAX]), Usage::default());
    }

    #[test]
    fn a_command_with_spaces_and_parentheses_is_no_obstacle() {
        let stat = Stat::parse("7 (a) b (c) S 1 42 42 0 -1 0 0 0 0 0 100 200 300 400 20 0").unwrap();
        assert_eq!((stat.state, stat.group), ('S', 42));
        let ticks = stat.cpu_seconds * rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(ticks.round() as u64, 1000);
    }

    #[test]
    fn connections_are_those_of_the_process_to_the_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id();
        assert_eq!(connections(own, port).unwrap(), 0);
        let streams = [0, 1].map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap());
        assert_eq!(connections(own, port).unwrap(), 2);
        drop(streams);
        assert_eq!(connections(own, port).unwrap(), 0);
    }
}
