//! Hides credentials in texts that were not rendered by OSM: those of OperatingSystemConfigs of the upstream
//! OSM, which contain tokens and passwords. Content that OSM rendered has markers in their places and does
//! not need this.
//!
//! A text is compared with the masked text of the same file that OSM renders. Its lines that fit a line there
//! get the masks of that line. In every other line, whatever looks like a credential is replaced. The rules
//! hide too much rather than too little.

use std::sync::LazyLock;

use osm_user_data::LateValues;
use regex::{Captures, Regex};

use crate::difference;
use crate::tree::Tree;

/// Where the file of the cloud provider is on a machine. Its text is part of the MachineDeployment, and may
/// contain credentials.
pub const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud-config";

/// What is shown for a text of the MachineDeployment that may contain credentials.
pub const CLOUD_CONFIG_MASK: &str = "<overwriteCloudConfig of the MachineDeployment>";

/// What is shown for something that looks like a credential.
pub const MASK: &str = "<masked>";

/// Shortest run of base64 that is hidden. Shorter runs are often names.
const MIN_BLOB: usize = 32;

/// Most lines with masks of a file that lines are compared with, each by a regular expression. A profile has
/// a few.
const MAX_PATTERNS: usize = 200;

/// Credentials that are known by their form. Each pattern replaces its last group, and keeps those before.
static FORMS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    compiled(&[
        // JSON Web Tokens.
        r"()(eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)",
        // Bootstrap tokens.
        r"(^|[^A-Za-z0-9._-])([a-z0-9]{6}\.[a-z0-9]{16})",
        // User and password of a URL.
        r"(://)([^/@\x20]+@)",
        r"((?i-u:bearer|basic)[\x20\t]+)([A-Za-z0-9+/=._~-]+)",
    ])
});

/// Values of keys and flags whose names mean a credential, in the same form.
static NAMED: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    compiled(&[
        r#"((?i-u:passw|passphrase|secret|token|auth|credential|api_?-?key|access_?-?key|private_?-?key|activation_?-?key|bearer|basic)[A-Za-z0-9_."'-]*[\x20\t]*[:=][\x20\t]*)([^\x20\t].*)"#,
        r#"(--[A-Za-z-]*(?i-u:passw|secret|token|auth|credential|key)[A-Za-z-]*[\x20\t]+)([^\x20\t].*)"#,
    ])
});

/// A test compiles each of them.
fn compiled(patterns: &[&str]) -> Vec<Regex> {
    patterns
        .iter()
        .filter_map(|pattern| Regex::new(pattern).ok())
        .collect()
}

static BLOB: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9+/=_-]{32,}").ok());

/// `theirs` without credentials. `ours` is the same file as OSM renders it, with the masks of its late-bound
/// values.
pub fn hide(theirs: &str, ours: &str, masks: &LateValues) -> String {
    let (known, patterns) = lines(ours, masks);
    let mut hidden = String::with_capacity(theirs.len());
    let mut block = Block::None;
    for line in theirs.split_inclusive('\n') {
        let (text, end) = match line.strip_suffix('\n') {
            Some(text) => (text, "\n"),
            None => (line, ""),
        };
        let fitting = || patterns.iter().find(|(pattern, _)| pattern.is_match(text));
        let (of_line, next) = block.of(text);
        block = next;
        match of_line {
            Block::PrivateKey => hidden.push_str(MASK),
            Block::Certificate => hidden.push_str(text),
            Block::None if known.contains(&text) => hidden.push_str(text),
            Block::None => match fitting() {
                Some((_, masked)) => hidden.push_str(masked),
                None => hidden.push_str(&credentials(text)),
            },
        }
        hidden.push_str(end);
    }
    hidden
}

/// Replaces the texts of the files of cloud providers. What remains visible is whether they differ.
pub fn hide_cloud_configs(old: &mut Tree, new: &mut Tree) {
    let differences = difference::between(old, new);
    let is_changed = |path: &str| differences.iter().any(|difference| difference.path == path);
    for (tree, note) in [(old, ""), (new, " (changed)")] {
        for (path, entry) in tree.0.iter_mut().filter(|(path, _)| path.ends_with(CLOUD_CONFIG)) {
            let note = if is_changed(path) { note } else { "" };
            entry.text = format!("{CLOUD_CONFIG_MASK}{note}\n");
        }
    }
}

/// Where a line is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    None,
    PrivateKey,
    Certificate,
}

impl Block {
    /// The block of this line, and of the next one.
    fn of(self, line: &str) -> (Self, Self) {
        let ends = line.contains("-----END ");
        let begins = line.split_once("-----BEGIN ").map(|(_, kind)| kind);
        let here = match begins {
            // A text that contains a whole certificate in one line may contain more.
            Some(kind) if kind.starts_with("CERTIFICATE") && ends => Self::None,
            Some(kind) if kind.starts_with("CERTIFICATE") => Self::Certificate,
            Some(_) => Self::PrivateKey,
            None => self,
        };
        (here, if ends { Self::None } else { here })
    }
}

/// The lines of `ours` without masks, and those with masks, each with what it stands for.
fn lines<'o>(ours: &'o str, masks: &LateValues) -> (Vec<&'o str>, Vec<(Regex, &'o str)>) {
    let (mut known, mut patterns) = (Vec::new(), Vec::new());
    for line in ours.lines() {
        match pattern(line, masks) {
            Some(pattern) if patterns.len() < MAX_PATTERNS => patterns.push((pattern, line)),
            Some(_) => {}
            None => known.push(line),
        }
    }
    (known, patterns)
}

/// What the values of a line with masks can be; `None` for a line without masks, and for one that has nothing
/// else.
fn pattern(line: &str, masks: &LateValues) -> Option<Regex> {
    let mut escaped = regex::escape(line);
    let (mut is_masked, mut rest) = (false, line.to_owned());
    for mask in masks.values() {
        let literal = regex::escape(mask);
        is_masked |= escaped.contains(&literal);
        escaped = escaped.replace(&literal, ".*");
        rest = rest.replace(mask, "");
    }
    let has_text = rest.chars().filter(|c| c.is_alphanumeric()).count() > 1;
    (is_masked && has_text)
        .then(|| Regex::new(&format!("^{escaped}$")).ok())
        .flatten()
}

/// A line without what looks like a credential.
fn credentials(line: &str) -> String {
    without_blobs(&without(&without(line, &FORMS), &NAMED))
}

fn without(text: &str, patterns: &[Regex]) -> String {
    let mut text = text.to_owned();
    for pattern in patterns {
        let replaced = pattern.replace_all(&text, |found: &Captures<'_>| {
            let kept = found.get(1).map_or("", |kept| kept.as_str());
            format!("{kept}{MASK}")
        });
        text = replaced.into_owned();
    }
    text
}

fn without_blobs(text: &str) -> String {
    let Some(blob) = &*BLOB else {
        return text.to_owned();
    };
    let replaced = blob.replace_all(text, |found: &Captures<'_>| {
        let run = found.get(0).map_or("", |run| run.as_str());
        if is_blob(run) {
            MASK.to_owned()
        } else {
            run.to_owned()
        }
    });
    replaced.into_owned()
}

/// Whether a run of characters may be base64 of something: it has capital and small letters and digits, and
/// is not a path.
fn is_blob(run: &str) -> bool {
    let any = |is: fn(&char) -> bool| run.chars().any(|c| is(&c));
    run.len() >= MIN_BLOB
        && !run.starts_with('/')
        // SSH public keys.
        && !run.starts_with("AAAA")
        && any(char::is_ascii_uppercase)
        && any(char::is_ascii_lowercase)
        && any(char::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";

    fn masks() -> LateValues {
        let mask = |id: &str, text: &str| (id.to_owned(), text.to_owned());
        LateValues::from([
            mask("api/token", "<API token of the pool>"),
            mask("provisioning/secret-name", "<name of the provisioning Secret>"),
        ])
    }

    #[test]
    fn every_pattern_is_valid() {
        assert_eq!((FORMS.len(), NAMED.len()), (4, 2));
        assert!(BLOB.is_some());
    }

    #[test]
    fn a_line_that_fits_gets_its_masks() {
        let ours = "#!/bin/sh\ncurl -H \"Authorization: Bearer <API token of the pool>\" /secrets/<name of the provisioning Secret>\n";
        let theirs = "#!/bin/sh\ncurl -H \"Authorization: Bearer whatever\" /secrets/pool-kube-system-provisioning-config\n";
        assert_eq!(hide(theirs, ours, &masks()), ours);
        // A line of nothing but a mask would fit everything.
        let alone = "<API token of the pool>\n";
        assert_eq!(hide("something\n", alone, &masks()), "something\n");
    }

    #[test]
    fn what_looks_like_a_credential_is_hidden() {
        let lines = [
            format!("x {JWT} y"),
            "token: abcdef.0123456789abcdef".to_owned(),
            "use abcdef.0123456789abcdef".to_owned(),
            "url = \"https://hunter:hunter2@registry.example/v2\"".to_owned(),
            "password = \"hunter2\"".to_owned(),
            "  \"identitytoken\": \"hunter2\",".to_owned(),
            "RHSM_PASSWORD='hunter2 with blanks'".to_owned(),
            "subscription-manager register --password hunter2 --force".to_owned(),
            "--activation-key=hunter2".to_owned(),
            "AWS_SECRET_ACCESS_KEY=hunter2".to_owned(),
            "Authorization: Basic aHVudGVyOmh1bnRlcjI=".to_owned(),
            "header Basic aHVudGVyOmh1bnRlcjI=".to_owned(),
            "blob QWxhZGRpbjpvcGVuIHNlc2FtZSBodW50ZXIyIGh1bnRlcjI".to_owned(),
        ];
        for line in lines {
            let hidden = hide(&line, "", &masks());
            assert!(hidden.contains(MASK), "{line} → {hidden}");
            for secret in ["hunter2", "abcdef.0123456789abcdef", "aHVud", "QWxh", JWT] {
                assert!(!hidden.contains(secret), "{line} → {hidden}");
            }
        }
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nafter\n";
        assert!(!hide(key, "", &masks()).contains("MIIB") && hide(key, "", &masks()).ends_with("after\n"));
    }

    #[test]
    fn everything_else_is_kept() {
        let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nauthentication:\n  webhook: {enabled: true}\n\
            curl https://github.com/containernetworking/plugins/releases/download/v1.5.1/cni-plugins-linux-amd64-v1.5.1.tgz\n\
            4b9b3eb66a3ee9ba36e41b7d1c1cb1e7b3d0a2a8b3a4bf10e5e5b53b5b8d1b3a  kubelet\n\
            ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOperator operator@example\n\
            -----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ0FlZGE5dW1t\n-----END CERTIFICATE-----\n";
        assert_eq!(hide(text, "", &masks()), text);
        assert_eq!(
            hide("password = \"\"\n", "password = \"\"\n", &masks()),
            "password = \"\"\n"
        );
    }

    #[test]
    fn a_key_in_one_line_hides_this_line_alone() {
        let text = "key: \"-----BEGIN PRIVATE KEY-----\\nMIIB\\n-----END PRIVATE KEY-----\"\nruncmd: [ls]\n";
        assert_eq!(hide(text, "", &masks()), "<masked>\nruncmd: [ls]\n");
    }
}
