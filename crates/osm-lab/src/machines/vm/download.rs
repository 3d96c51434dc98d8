//! Downloads that are bounded in time and size, and leave room on the disk.
//!
//! curl transfers, and this module counts what it writes. Before version 8.4, `curl --max-filesize` has no effect if the server does not
//! announce the length: <https://curl.se/docs/manpage.html#--max-filesize>.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};

/// What a download may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most bytes that it may have.
    pub bytes: u64,
    /// The longest time, with all attempts.
    pub time: Duration,
    /// Bytes that stay free on the disk.
    pub reserve: u64,
}

/// Why there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The server cannot be reached, or does not have the file.
    Unreachable,
    /// The file is not what its publisher has announced.
    Unverified,
    /// Something else, such as a full disk.
    Other,
}

/// A download that failed. It displays the whole chain of its error.
#[derive(Debug)]
pub struct Failure {
    /// What kind of failure this is.
    pub cause: Cause,
    error: anyhow::Error,
}

impl Failure {
    /// The server cannot be reached, or does not have the file.
    #[must_use]
    pub fn unreachable(error: anyhow::Error) -> Self {
        let cause = Cause::Unreachable;
        Self { cause, error }
    }

    /// The file is not what its publisher has announced.
    #[must_use]
    pub fn unverified(error: anyhow::Error) -> Self {
        let cause = Cause::Unverified;
        Self { cause, error }
    }

    /// The same failure. Its message begins with what the download was for.
    #[must_use]
    pub fn about(self, what: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self {
            cause: self.cause,
            error: self.error.context(what),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let cause = Cause::Other;
        Self { cause, error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl std::error::Error for Failure {}

/// A server that sends less than a kilobyte per second for a minute is given up.
const CURL: [&str; 11] = [
    "--fail",
    "--location",
    "--silent",
    "--show-error",
    "--connect-timeout",
    "30",
    "--speed-limit",
    "1000",
    "--speed-time",
    "60",
    "--max-time",
];

/// How often a download is tried again if its failure can pass by itself.
const RETRIES: u32 = 2;

/// Before the first retry. The second waits for twice as long.
const PAUSE: Duration = Duration::from_secs(1);

/// curl's exit code for a file that is larger than `--max-filesize`.
const TOO_LARGE: i32 = 63;

/// Downloads a file. What is left of it after a failure is not complete.
///
/// # Errors
/// A server that cannot be reached, a file that exceeds the limits, or a disk without room for it.
pub fn download(url: &str, to: &Path, limits: &Limits) -> Result<(), Failure> {
    let folder = to.parent().context("a file is in a folder")?;
    let disk = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
    let room = disk
        .f_bavail
        .saturating_mul(disk.f_frsize)
        .saturating_sub(limits.reserve);
    let full = || {
        anyhow!(
            "the disk of {} is too full for {url}: make room there; {} have to stay free",
            folder.display(),
            in_units(limits.reserve)
        )
    };
    if room == 0 {
        return Err(full().into());
    }
    let most = limits.bytes.min(room);
    let started = Instant::now();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let left = limits.time.saturating_sub(started.elapsed());
        match transfer(url, to, most, left)? {
            End::Complete => return Ok(()),
            End::TooLarge if room >= limits.bytes => {
                return Err(Failure::unverified(anyhow!(
                    "{url} has more than {}, so it is not the expected file",
                    in_units(limits.bytes)
                )));
            }
            End::TooLarge | End::Full => return Err(full().into()),
            End::Failed { code, reason } => {
                let pause = PAUSE * attempt;
                let has_time = started.elapsed() + pause < limits.time;
                if attempt > RETRIES || !has_time || !can_pass(code, &reason) {
                    return Err(Failure::unreachable(anyhow!(
                        "{url} can't be downloaded: {reason}"
                    )));
                }
                thread::sleep(pause);
            }
        }
    }
}

/// A number of bytes as people read it.
fn in_units(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{bytes} bytes"),
        mebibytes => format!("{mebibytes} MiB"),
    }
}

/// How a transfer ended.
enum End {
    Complete,
    /// The disk is full.
    Full,
    TooLarge,
    /// curl's exit code, and what it printed.
    Failed {
        code: Option<i32>,
        reason: String,
    },
}

fn transfer(url: &str, to: &Path, most: u64, time: Duration) -> anyhow::Result<End> {
    let mut file = File::create(to).with_context(|| to.display().to_string())?;
    let mut curl = Command::new("curl")
        .args(CURL)
        .arg(time.as_secs().max(1).to_string())
        .args(["--max-filesize", &most.to_string(), "--", url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("curl can't be run: it is in the Debian package curl")?;
    let copied = match curl.stdout.take() {
        Some(body) => copy(body, &mut file, most),
        None => Ok(true),
    };
    if !matches!(copied, Ok(true)) {
        // It may have ended already.
        let _ = curl.kill();
    }
    let output = curl.wait_with_output().context("curl")?;
    match copied {
        Ok(true) => {}
        Ok(false) => return Ok(End::TooLarge),
        Err(error) if is_full(error.kind()) => return Ok(End::Full),
        Err(error) => return Err(error).with_context(|| to.display().to_string()),
    }
    Ok(match output.status.code() {
        Some(0) => End::Complete,
        Some(TOO_LARGE) => End::TooLarge,
        code => End::Failed {
            code,
            reason: String::from_utf8_lossy(&output.stderr).trim_end().to_owned(),
        },
    })
}

/// Copies at most `most` bytes. False if there are more.
fn copy(from: impl Read, to: &mut impl Write, most: u64) -> io::Result<bool> {
    let mut bounded = from.take(most);
    io::copy(&mut bounded, to)?;
    let mut from = bounded.into_inner();
    Ok(from.read(&mut [0])? == 0)
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether a later attempt can succeed: name servers, broken connections, timeouts, and statuses of servers that are overloaded.
fn can_pass(code: Option<i32>, reason: &str) -> bool {
    match code {
        Some(6 | 18 | 28 | 35 | 52 | 55 | 56 | 92) => true,
        Some(22) => {
            let status = reason.rsplit(' ').next().and_then(|word| word.parse().ok());
            status.is_some_and(|status: u16| matches!(status, 408 | 429 | 500..))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};
    use std::thread::JoinHandle;

    use osm_judges::packages;

    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 1000,
        time: Duration::from_secs(60),
        reserve: 0,
    };

    /// Answers one connection after the other, each by its function.
    fn serve(answers: Vec<fn(&mut TcpStream)>) -> (String, JoinHandle<()>) {
        packages::ensure(&["curl"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/file", listener.local_addr().unwrap());
        let thread = thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).find(String::is_empty).unwrap();
                answer(&mut stream);
            }
        });
        (url, thread)
    }

    /// A body that ends with the connection. The client may close it before.
    fn endless(stream: &mut TcpStream) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[b'x'; 1000]).is_ok() {}
    }

    fn unavailable(stream: &mut TcpStream) {
        let _ = stream.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    }

    fn half(stream: &mut TcpStream) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
    }

    fn whole(stream: &mut TcpStream) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef");
    }

    /// Sends no body, and waits until the client closes the connection.
    fn silent(stream: &mut TcpStream) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n");
        let _ = stream.read(&mut [0]);
    }

    fn failed(url: &str, to: &Path, limits: &Limits) -> (Cause, String) {
        let failure = download(url, to, limits).unwrap_err();
        (failure.cause, failure.to_string())
    }

    #[test]
    fn a_server_that_announces_no_length_sends_no_more_than_the_limit() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("file");
        let (url, server) = serve(vec![endless]);
        let (cause, error) = failed(&url, &to, &LIMITS);
        assert_eq!(cause, Cause::Unverified, "{error}");
        assert!(error.contains("not the expected file"), "{error}");
        assert_eq!(fs::metadata(&to).unwrap().len(), LIMITS.bytes);
        server.join().unwrap();
    }

    #[test]
    fn a_file_of_exactly_the_limit_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("file");
        for (bytes, taken) in [(6, true), (5, false)] {
            let (url, server) = serve(vec![whole]);
            let limits = Limits { bytes, ..LIMITS };
            let outcome = download(&url, &to, &limits);
            assert_eq!(outcome.is_ok(), taken, "{outcome:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_failure_that_can_pass_is_tried_again_from_the_beginning() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("file");
        let (url, server) = serve(vec![half, unavailable, whole]);
        download(&url, &to, &LIMITS).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "abcdef");
        server.join().unwrap();

        let none = format!("file://{}/none", scratch.path().display());
        let (cause, error) = failed(&none, &to, &LIMITS);
        assert_eq!(cause, Cause::Unreachable);
        assert!(error.contains("can't be downloaded"), "{error}");
    }

    #[test]
    fn a_transfer_ends_with_its_time() {
        let scratch = tempfile::tempdir().unwrap();
        let (url, server) = serve(vec![silent]);
        let limits = Limits {
            time: Duration::from_secs(1),
            ..LIMITS
        };
        let (cause, error) = failed(&url, &scratch.path().join("file"), &limits);
        assert_eq!(cause, Cause::Unreachable);
        assert!(error.contains("timed out"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn a_disk_without_room_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, to) = (scratch.path().join("some"), scratch.path().join("to"));
        fs::write(&file, "abc").unwrap();
        let url = format!("file://{}", file.display());
        let limits = Limits {
            reserve: u64::MAX,
            ..LIMITS
        };
        let (cause, error) = failed(&url, &to, &limits);
        assert_eq!(cause, Cause::Other);
        let folder = scratch.path().display();
        assert!(
            error.contains(&format!("the disk of {folder} is too full")),
            "{error}"
        );
        assert!(!to.exists());

        // The kernel refuses every byte as a full disk does.
        packages::ensure(&["curl"]).unwrap();
        let end = transfer(&url, Path::new("/dev/full"), 1000, LIMITS.time).unwrap();
        assert!(matches!(end, End::Full));
    }
}
