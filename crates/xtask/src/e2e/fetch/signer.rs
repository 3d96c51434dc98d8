//! A throw-away key that signs lists in tests.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A key pair with a home of gpg. Both end when it is dropped.
pub struct Signer {
    home: TempDir,
    /// The time of its clock, if it is not that of this computer.
    time: Option<&'static str>,
}

impl Signer {
    /// A new key. The user ID is the same for all.
    pub fn new() -> Self {
        Self::with(None, "never")
    }

    /// A key that was valid in 2020, and signs as if that were now.
    pub fn expired() -> Self {
        Self::with(Some("20200101T000000"), "1y")
    }

    fn with(time: Option<&'static str>, expires: &str) -> Self {
        let signer = Self {
            home: tempfile::tempdir().unwrap(),
            time,
        };
        let user = "Images <images@example.com>";
        signer.gpg(&["--quick-generate-key", user, "ed25519", "sign", expires]);
        signer
    }

    /// 40 digits.
    pub fn fingerprint(&self) -> String {
        let listed = self.gpg(&["--with-colons", "--list-keys"]).stdout;
        let listed = String::from_utf8(listed).unwrap();
        let line = listed.lines().find(|line| line.starts_with("fpr:")).unwrap();
        line.trim_end_matches(':').rsplit(':').next().unwrap().to_owned()
    }

    /// Armoured.
    pub fn public_key(&self) -> String {
        String::from_utf8(self.gpg(&["--armor", "--export"]).stdout).unwrap()
    }

    /// Writes a signature into a file of its own.
    pub fn detached(&self, list: &Path, signature: &Path) {
        self.sign("--detach-sign", list, signature);
    }

    /// Writes the list with the signature around it.
    pub fn clear_signed(&self, list: &Path, signed: &Path) {
        self.sign("--clear-sign", list, signed);
    }

    fn sign(&self, how: &str, list: &Path, to: &Path) {
        let [list, to] = [list, to].map(|path| path.display().to_string());
        self.gpg(&["--output", &to, how, &list]);
    }

    fn gpg(&self, arguments: &[&str]) -> Output {
        let output = Command::new("gpg")
            .arg("--homedir")
            .arg(self.home.path())
            .args([
                "--batch",
                "--no-tty",
                "--passphrase",
                "",
                "--pinentry-mode",
                "loopback",
            ])
            .args(self.time.map(|time| format!("--faked-system-time={time}")))
            .args(arguments)
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "gpg {arguments:?}: {complaint}");
        output
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // Its agent has the home open.
        let _ = Command::new("gpgconf")
            .arg("--homedir")
            .arg(self.home.path())
            .args(["--kill", "gpg-agent"])
            .output();
    }
}
