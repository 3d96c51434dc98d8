//! The host's end of the channel to the agent in a virtual machine, which runs scripts there.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// How long the agent gets to kill a script that takes too long, and to report that.
const GRACE: Duration = Duration::from_secs(30);

/// How a script ended.
#[derive(Debug, PartialEq)]
pub(super) struct Output {
    /// 0 if it succeeded; 124 or 137 if it did not end in time.
    pub(super) status: i32,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// A connection to QEMU's end of the channel. It lasts as long as QEMU runs.
#[derive(Debug)]
pub(super) struct Agent {
    stream: BufReader<UnixStream>,
    received: Vec<u8>,
    ready: bool,
    number: u64,
}

impl Agent {
    /// Connects to QEMU, which must run. The agent need not run yet.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        Ok(Self {
            stream: BufReader::new(
                UnixStream::connect(socket).context("the channel to the machine's agent")?,
            ),
            received: Vec::new(),
            ready: false,
            number: 0,
        })
    }

    /// Whether the agent has announced itself since QEMU started.
    pub(super) fn ready(&mut self) -> Result<bool> {
        // Also when it has: after a reboot that the machine itself has made, the agent announces itself
        // again.
        while let Some(line) = self.line(Duration::from_millis(1))? {
            self.ready |= line == "ready";
        }
        Ok(self.ready)
    }

    /// Runs a script in the machine with this standard input, for at most `deadline`.
    pub(super) fn run(&mut self, script: &str, input: &[u8], deadline: Duration) -> Result<Output> {
        ensure!(
            self.ready()?,
            "the agent has not announced itself yet: it starts as the machine boots"
        );
        self.number += 1;
        let request = format!(
            "{} {} {} {}\n{script}",
            self.number,
            deadline.as_secs().max(1),
            script.len(),
            input.len()
        );
        let stream = self.stream.get_mut();
        stream.set_write_timeout(Some(GRACE))?;
        stream.write_all(request.as_bytes())?;
        stream.write_all(input)?;
        let started = Instant::now();
        loop {
            let left = (deadline + GRACE).saturating_sub(started.elapsed());
            let line = self
                .line(left)?
                .with_context(|| format!("the agent does not answer after {:?}", started.elapsed()))?;
            // What is not the answer belongs to a script that was given up, or to a reboot.
            if let Some(output) = answer(&line, self.number)? {
                return Ok(output);
            }
            if line == "ready" {
                bail!("the machine has rebooted while the script ran");
            }
        }
    }

    /// The next line; none if it does not come within `deadline`.
    fn line(&mut self, deadline: Duration) -> Result<Option<String>> {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(deadline.max(Duration::from_millis(1))))?;
        // What has arrived of a line stays in `received` for the next call.
        match self.stream.read_until(b'\n', &mut self.received) {
            Ok(_) if self.received.ends_with(b"\n") => {
                let line = std::mem::take(&mut self.received);
                // Blanks at the end mean something: no errors.
                let line = String::from_utf8_lossy(&line);
                Ok(Some(line.trim_end_matches('\n').to_owned()))
            }
            Ok(_) => bail!("the machine has been switched off"),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            Err(error) => Err(error).context("the channel to the machine's agent"),
        }
    }
}

/// The answer to the script of that number; none if the line is something else.
fn answer(line: &str, number: u64) -> Result<Option<Output>> {
    let mut words = line.split(' ');
    if words.next() != Some(number.to_string().as_str()) {
        return Ok(None);
    }
    let mut word = || words.next().context("an answer of the agent has four words");
    Ok(Some(Output {
        status: word()?.parse().context("a script's status")?,
        stdout: BASE64_STANDARD.decode(word()?)?,
        stderr: BASE64_STANDARD.decode(word()?)?,
    }))
}
