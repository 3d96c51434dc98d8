//! A machine without a machine: a folder in which the profile's scripts find the paths they know, programs
//! that would change the real one replaced, and a server beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_user_data::MachineFile;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Long enough for the slowest machine; nothing waits for it unless it fails.
const DEADLINE: Duration = Duration::from_secs(180);

/// Where scripts write, or would.
const FOLDERS: &str = "/etc/ /opt/ /var/lib/kubelet /var/lib/osm /run/osm /dev/console /proc/sys /usr/local/share /run/systemd \
                       /run/reboot-required /proc/swaps /usr/share/oem /boot/flatcar";

/// Programs whose calls are noted instead, one a line, in the file `calls`.
const NOTED: &str = "systemctl modprobe sysctl dd dpkg fallocate mkswap swapoff swapon ufw update-ca-certificates update-ca-trust apt-get yum \
                     cloud-init setenforce restorecon nmcli";

/// What scripts may use on a machine that has no curl.
const TOOLS: &str = "awk base64 cat chmod cp cut date grep gzip head ip ln mkdir mv od python3 rm sed sh sha256sum stat sync tail \
                     tar tee timeout tr uname";

/// A shell, and whether there is curl.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub shell: &'static [&'static str],
    pub curl: bool,
}

const DASH: &[&str] = &["/usr/bin/dash"];
const BUSYBOX: &[&str] = &["/usr/bin/busybox", "sh"];

/// Every kind of machine that scripts must work on.
pub const KINDS: [Kind; 4] = [
    Kind::new(DASH, true),
    Kind::new(DASH, false),
    Kind::new(BUSYBOX, true),
    Kind::new(BUSYBOX, false),
];

impl Kind {
    const fn new(shell: &'static [&'static str], curl: bool) -> Self {
        Self { shell, curl }
    }
}

/// Installs the programs that scripts and the server use, once.
fn prepare() {
    static PREPARED: Once = Once::new();
    let packages = [
        "busybox",
        "curl",
        "dash",
        "iproute2",
        "jq",
        "python3",
        "python3-yaml",
    ];
    PREPARED.call_once(|| osm_judges::packages::ensure(&packages).unwrap());
}

/// Waits until `condition` gives a value.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub struct Machine {
    root: TempDir,
    kind: Kind,
}

impl Machine {
    /// A new machine.
    pub fn new(kind: Kind) -> Self {
        prepare();
        let machine = Self {
            root: tempfile::tempdir().unwrap(),
            kind,
        };
        for folder in ["bin", "dev", "etc", "proc", "run", "var/lib"] {
            fs::create_dir_all(machine.root.path().join(folder)).unwrap();
        }
        machine.put("/proc/swaps", "Filename\n");
        for name in NOTED.split(' ') {
            machine.noted(name, "");
        }
        // logind waits for the kubelet as long as anybody wants.
        machine.program("busctl", "echo t 86400000000");
        // Time passes quickly here, but notes how it would have.
        let sleep = r#"echo "$1" >>"$MACHINE/sleeps"; exec /usr/bin/sleep 0.01"#;
        machine.program("sleep", sleep);
        if !kind.curl {
            for tool in TOOLS.split_whitespace() {
                symlink(Path::new("/usr/bin").join(tool), machine.path("bin").join(tool)).unwrap();
            }
        }
        machine
    }

    /// Writes the files of a document.
    pub fn write(&self, files: &[MachineFile]) {
        for file in files {
            self.put(&file.path, self.moved(&file.text));
            let mode = u32::from_str_radix(&file.mode, 8).unwrap();
            fs::set_permissions(self.path(&file.path), fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    /// Writes a file, and the folders above it.
    pub fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// `text` with the paths of a real machine moved into this one.
    pub fn moved(&self, text: &str) -> String {
        let root = self.root.path().display();
        let text = text.replace("=/oem\n", &format!("={root}/oem\n"));
        FOLDERS.split(' ').fold(text, |text, folder| {
            text.replace(folder, &format!("{root}{folder}"))
        })
    }

    /// Where a path of the machine really lies.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    /// Puts a program in place of the machine's own. `$MACHINE` is the folder of the machine.
    pub fn program(&self, name: &str, script: &str) {
        let path = format!("/bin/{name}");
        // It may be a link to the real one.
        let _ = fs::remove_file(self.path(&path));
        self.put(&path, format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path(&path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts a program in place of the machine's own that notes its calls and then does what the script says.
    pub fn noted(&self, name: &str, script: &str) {
        let noted = format!("echo {name} \"$@\" >>\"$MACHINE/calls\"\n{script}");
        self.program(name, &noted);
    }

    /// A file's text; empty where there is none.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Permission bits of a file.
    pub fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.path(path)).unwrap().permissions().mode() & 0o777
    }

    pub fn start(&self, script: &str) -> Run {
        let mut options = fs::File::options();
        let log = options.create(true).append(true).open(self.path("/log")).unwrap();
        let path = self.path(script);
        let mut command = if self.read(script).starts_with("#!/bin/sh") {
            let mut command = Command::new(self.kind.shell[0]);
            command.args(&self.kind.shell[1..]);
            command
        } else {
            Command::new("/usr/bin/python3")
        };
        let mut search = self.path("bin").display().to_string();
        if self.kind.curl {
            search += ":/usr/sbin:/usr/bin";
        }
        command
            .env_clear()
            .env("PATH", search)
            .env("MACHINE", self.root.path())
            .arg(path)
            .stdin(Stdio::null());
        if let Some(argument) = self.read("/argument").lines().next() {
            command.arg(argument);
        }
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Run {
            process: command.spawn().unwrap(),
            log: self.path("/log"),
        }
    }

    /// Runs a script, which must succeed.
    pub fn runs(&self, script: &str) {
        assert!(self.start(script).succeeds(), "{:?}: {}", self.kind, self.log());
    }

    /// Runs a script, which must not succeed.
    pub fn fails(&self, script: &str) {
        assert!(!self.start(script).succeeds(), "{:?}: {}", self.kind, self.log());
    }

    pub fn log(&self) -> String {
        self.read("/log")
    }

    /// The log has this text.
    pub fn said(&self, text: &str) {
        let log = self.log();
        assert!(log.contains(text), "{:?}: {text:?} not in {log}", self.kind);
    }

    /// The log does not have this text.
    pub fn never_said(&self, text: &str) {
        let log = self.log();
        assert!(!log.contains(text), "{:?}: {text:?} in {log}", self.kind);
    }

    /// What programs that only note their calls were called with, one call a line.
    pub fn calls(&self) -> String {
        self.read("/calls")
    }

    /// Texts that are among the calls, each behind the one before.
    pub fn called(&self, texts: &[&str]) {
        let calls = self.calls();
        let mut rest = calls.as_str();
        for text in texts {
            let at = rest.find(text);
            let at =
                at.unwrap_or_else(|| panic!("{:?}: {text:?} is not, or not here, in {calls}", self.kind));
            rest = &rest[at + text.len()..];
        }
    }

    /// A text is so often among the calls.
    pub fn called_times(&self, text: &str, times: usize) {
        let calls = self.calls();
        let found = calls.matches(text).count();
        assert_eq!(found, times, "{:?}: {text:?} in {calls}", self.kind);
    }

    /// Texts that are in no call.
    pub fn never_called(&self, texts: &[&str]) {
        let calls = self.calls();
        for text in texts {
            assert!(!calls.contains(text), "{:?}: {text:?} in {calls}", self.kind);
        }
    }

    /// Waits until the machine's log has a line with `text`, among those after the first `from` bytes; gives
    /// its length then.
    pub fn wait_for_log(&self, from: usize, text: &str) -> usize {
        let started = Instant::now();
        while !self.log()[from..].contains(text) {
            let is_late = started.elapsed() > DEADLINE;
            assert!(!is_late, "{:?}: {text:?} not in:\n{}", self.kind, self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.log().len()
    }

    /// Waits until the console shows this text.
    pub fn wait_for_console(&self, text: &str) {
        wait_for("the console", || {
            self.read("/dev/console").contains(text).then_some(())
        });
    }
}

/// A running script; it ends with its owner.
pub struct Run {
    process: Child,
    log: PathBuf,
}

impl Run {
    /// Waits for the end; whether it was a success.
    pub fn succeeds(mut self) -> bool {
        wait_for("a script to end", || self.process.try_wait().unwrap()).success()
    }

    /// Waits for the end, which must be a success.
    pub fn ends_well(self) {
        let log = self.log.clone();
        assert!(self.succeeds(), "{}", fs::read_to_string(log).unwrap());
    }

    /// Ends it as a power cut would.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A certificate that is its own authority.
pub struct Authority {
    pub ca: String,
    key: String,
}

impl Authority {
    /// A new authority, whose server goes by `host`.
    pub fn new(host: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        Self {
            ca: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }
}

/// A server on loopback.
pub struct Server {
    folder: TempDir,
    process: Child,
    pub port: u16,
}

impl Server {
    /// Starts it, with TLS where there is an authority.
    pub fn start(authority: Option<&Authority>) -> Self {
        prepare();
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/osp_ubuntu/server.py");
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg(script)
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(authority) = authority {
            for (name, pem) in [("certificate", &authority.ca), ("key", &authority.key)] {
                let path = folder.path().join(name);
                fs::write(&path, pem).unwrap();
                command.arg(path);
            }
        }
        fs::write(folder.path().join("answers.json"), "{}").unwrap();
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        Self {
            folder,
            process,
            port: line.trim().parse().unwrap(),
        }
    }

    /// Sets all answers.
    pub fn answer(&self, answers: &BTreeMap<String, Answer>) {
        let written = |(path, Answer { status, body, cut }): (&String, &Answer)| {
            let answer = json!({"status": status, "body": STANDARD.encode(body), "cut": cut});
            (path.clone(), answer)
        };
        let answers: Map<String, Value> = answers.iter().map(written).collect();
        let new = self.folder.path().join("answers.new");
        fs::write(&new, json!(answers).to_string()).unwrap();
        fs::rename(new, self.folder.path().join("answers.json")).unwrap();
    }

    /// Answers everything with `answer`.
    pub fn always(&self, answer: Answer) {
        self.answer(&BTreeMap::from([("*".to_owned(), answer)]));
    }

    /// Its address, for a client that uses TLS.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Requests so far: path and Authorization.
    pub fn requests(&self) -> Vec<(String, String)> {
        let log = fs::read_to_string(self.folder.path().join("requests")).unwrap_or_default();
        log.lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
    /// Whether the connection breaks off before the end that was announced.
    pub cut: bool,
}

impl Answer {
    /// 200.
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            body: body.into(),
            cut: false,
        }
    }

    /// An error.
    pub fn status(status: u16) -> Self {
        let body = "{\"kind\":\"Status\"}";
        Self {
            status,
            ..Self::ok(body)
        }
    }
}
