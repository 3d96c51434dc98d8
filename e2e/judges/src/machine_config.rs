//! What a machine makes of a document, as Ignition and coreos-cloudinit tell it. Our programs around both
//! answer in the same form.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::complaint::Complaints;
use crate::program::ask;
use crate::user_data::File;

/// What a machine makes of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineConfig {
    /// Host name; empty: none is set.
    pub hostname: String,
    /// SSH keys of the user `core`, besides those of users.
    pub keys: Vec<String>,
    /// Files, in order.
    pub files: Vec<File>,
    /// Units, in order.
    pub units: Vec<MachineUnit>,
    /// Users, in order.
    pub users: Vec<MachineUser>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineUnit {
    /// Its name, with suffix.
    pub name: String,
    /// Whether it is enabled.
    #[serde(alias = "enable")]
    pub enabled: bool,
    /// Whether it is masked.
    #[serde(alias = "mask")]
    pub masked: bool,
    /// What is done to it at once, such as `start`; empty: nothing.
    pub command: String,
    /// Its text; none or empty: it is there already.
    #[serde(alias = "contents")]
    pub content: Option<String>,
    /// Texts of its drop-ins by name.
    pub dropins: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct MachineUser {
    pub name: String,
    /// Hash of its password; none or empty: it has none.
    #[serde(alias = "passwordHash")]
    pub password: Option<String>,
    /// SSH keys.
    pub keys: Vec<String>,
    /// Groups that it is in.
    pub groups: Vec<String>,
}

impl MachineConfig {
    /// All files on the machine: its own, and those that units become.
    pub fn into_files(self) -> Vec<File> {
        let units = self.units.into_iter().flat_map(MachineUnit::into_files);
        self.files.into_iter().chain(units).collect()
    }
}

impl MachineUnit {
    fn into_files(self) -> Vec<File> {
        let of_network = [".network", ".netdev", ".link"];
        let folder = if of_network.iter().any(|suffix| self.name.ends_with(suffix)) {
            "/etc/systemd/network"
        } else {
            "/etc/systemd/system"
        };
        let path = format!("{folder}/{}", self.name);
        let dropins: Vec<(String, String)> = self
            .dropins
            .into_iter()
            .map(|(name, text)| (format!("{path}.d/{name}"), text))
            .collect();
        let own = self.content.filter(|text| !text.is_empty());
        let own = own.map(|text| (path, text));
        let file = |(path, content)| File {
            path,
            mode: 0o644,
            content,
        };
        own.into_iter().chain(dropins).map(file).collect()
    }
}

/// What a program says about a document.
#[derive(Deserialize)]
pub(crate) struct Answer {
    pub(crate) complaints: Vec<String>,
    #[serde(default)]
    hostname: String,
    #[serde(default)]
    keys: Vec<String>,
    pub(crate) files: Vec<AnswerFile>,
    units: Vec<MachineUnit>,
    users: Vec<MachineUser>,
}

#[derive(Deserialize)]
pub(crate) struct AnswerFile {
    pub(crate) path: String,
    mode: u32,
    #[serde(default)]
    pub(crate) overwrite: bool,
    content: Option<String>,
}

/// What a program says about each of these texts.
pub(crate) fn answers(mut command: Command, texts: &[&str]) -> Result<Vec<Answer>> {
    let answers: Vec<Answer> = ask(&mut command, &texts)?;
    let (count, all) = (answers.len(), texts.len());
    ensure!(count == all, "{count} answers for {all} documents");
    Ok(answers)
}

/// What machines make of documents (name, text), in order, as a program reads them.
pub(crate) fn read(
    command: Command,
    documents: &[(&str, &str)],
) -> Result<Vec<Result<MachineConfig, Complaints>>> {
    let texts: Vec<&str> = documents.iter().map(|(_, text)| *text).collect();
    let answers = answers(command, &texts)?;
    Ok(documents
        .iter()
        .zip(answers)
        .map(|((name, _), answer)| understood(name, answer))
        .collect())
}

fn understood(name: &str, answer: Answer) -> Result<MachineConfig, Complaints> {
    if !answer.complaints.is_empty() {
        return Err(Complaints::one(name, &answer.complaints.join("\n")));
    }
    let file = |file: AnswerFile| {
        let bytes = STANDARD
            .decode(file.content.unwrap_or_default())
            .context("content is not base64");
        let content = bytes.and_then(|bytes| String::from_utf8(bytes).context("content is no text"));
        let content = content
            .map_err(|error| Complaints::one(&format!("{name}: {}", file.path), &format!("{error:#}")))?;
        Ok(File {
            path: file.path,
            mode: file.mode,
            content,
        })
    };
    let files = answer.files.into_iter().map(file);
    Ok(MachineConfig {
        hostname: answer.hostname,
        keys: answer.keys,
        files: files.collect::<Result<_, Complaints>>()?,
        units: answer.units,
        users: answer.users,
    })
}
