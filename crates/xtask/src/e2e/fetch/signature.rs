//! Signatures of OpenPGP, which gpg verifies with a keyring that has nothing but the distributor's key.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

/// What marks a line of gpg that is for programs.
const STATUS: &str = "[GNUPG:] ";

/// A keyring. It is removed when it is dropped.
pub struct Keyring {
    home: TempDir,
    /// The fingerprint that the signing key must have.
    fingerprint: String,
}

impl Keyring {
    /// A keyring with the keys of a file, one of which has the fingerprint.
    ///
    /// # Errors
    /// When the file has no such key.
    pub fn with(key: &Path, fingerprint: &str) -> Result<Self> {
        let keyring = Self {
            home: tempfile::tempdir()?,
            fingerprint: fingerprint.to_uppercase(),
        };
        let import = keyring.gpg(&["--import", &key.display().to_string()])?;
        ensure!(
            import.status.success(),
            "it is no public key of OpenPGP: {}",
            words(&import)
        );
        let listed = keyring.gpg(&["--with-colons", "--list-keys"])?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let found = primary_fingerprints(&listed);
        ensure!(
            found.contains(&keyring.fingerprint.as_str()),
            "it has the fingerprint {}, and e2e/images.toml names {}: compare with several other sources before you change the table",
            found.join(", "),
            keyring.fingerprint
        );
        Ok(keyring)
    }

    /// The text of a list that was signed. The signature is in a file of its own, or in the list.
    ///
    /// # Errors
    /// When the key has not signed this text, or is expired or revoked.
    pub fn signed_text(&self, list: &Path, signature: Option<&Path>) -> Result<String> {
        let text = self.home.path().join("text");
        let [list_path, text_path] = [list, &text].map(|path| path.display().to_string());
        let output = match signature {
            Some(signature) => self.gpg(&[
                "--status-fd=1",
                "--verify",
                &signature.display().to_string(),
                &list_path,
            ])?,
            None => self.gpg(&["--status-fd=1", "--output", &text_path, "--decrypt", &list_path])?,
        };
        self.judge(&output)?;
        // Only what gpg has verified counts, and not what may be around it in the file.
        let verified = if signature.is_some() { list } else { &text };
        let bytes = fs::read(verified).with_context(|| verified.display().to_string())?;
        String::from_utf8(bytes).context("the list is not UTF-8")
    }

    fn judge(&self, output: &Output) -> Result<()> {
        let status = String::from_utf8_lossy(&output.stdout).into_owned();
        let status: Vec<Vec<&str>> = status
            .lines()
            .filter_map(|line| line.strip_prefix(STATUS))
            .map(|line| line.split(' ').collect())
            .collect();
        let has = |keyword: &str| status.iter().any(|line| line.first() == Some(&keyword));
        let by_the_key = status
            .iter()
            .any(|line| line.first() == Some(&"VALIDSIG") && line.last() == Some(&self.fingerprint.as_str()));
        if output.status.success() && has("GOODSIG") && by_the_key {
            return Ok(());
        }
        let problem = if has("BADSIG") {
            "the list was changed after it was signed, or the signature is another list's; try again later, and do not use this list if it stays so"
        } else if has("EXPKEYSIG") || has("EXPSIG") {
            "the signature or its key has expired; look for a newer key at the distributor"
        } else if has("REVKEYSIG") {
            "the key was revoked; look for the new key at the distributor"
        } else if has("ERRSIG") || has("VALIDSIG") {
            "another key signed the list; if the distributor has a new key, compare its fingerprint with several sources"
        } else {
            "it has no signature that gpg can read"
        };
        bail!(
            "no valid signature by {}: {problem}\ngpg printed: {}",
            self.fingerprint,
            words(output)
        )
    }

    fn gpg(&self, arguments: &[&str]) -> Result<Output> {
        Command::new("gpg")
            .arg("--homedir")
            .arg(self.home.path())
            .args(["--batch", "--no-tty", "--no-autostart", "--no-auto-key-retrieve"])
            .args(["--trust-model", "always"])
            .args(arguments)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .context("gpg can't be run: it is in the Debian package gnupg")
    }
}

/// What gpg complained of.
fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim_end().to_owned()
}

/// From gpg's list of keys, in which subkeys have fingerprints, too.
fn primary_fingerprints(listed: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut primary = false;
    for line in listed.lines() {
        let mut fields = line.split(':');
        match fields.next() {
            Some("pub") => primary = true,
            Some("fpr") if primary => {
                found.extend(fields.nth(8));
                primary = false;
            }
            _ => {}
        }
    }
    found
}
