//! The objects that a stage puts on a machine: files and systemd units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A systemd unit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Unit {
    /// Name with suffix, such as `kubelet.service`.
    pub name: String,
    /// Whether the unit is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// Whether the unit is masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<bool>,
    /// Text of the unit. It is absent if only drop-ins are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Drop-ins of the unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_ins: Vec<DropIn>,
}

/// A drop-in of a systemd unit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct DropIn {
    /// File name, such as `10-limits.conf`.
    pub name: String,
    /// Text of the drop-in.
    pub content: String,
}

/// A file on the machine.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct File {
    /// Absolute path.
    pub path: String,
    /// Mode, written as its octal digits without a leading zero: 644, 755. 0 means 644.
    #[serde(default = "default_permissions")]
    pub permissions: i32,
    /// Content of the file.
    pub content: FileContent,
}

impl File {
    /// A file with this text. `permissions` are octal digits as a decimal number.
    pub fn of_text(path: impl Into<String>, permissions: i32, data: String) -> Self {
        Self {
            path: path.into(),
            permissions,
            content: FileContent::of_text(data),
        }
    }
}

pub(crate) fn default_permissions() -> i32 {
    644
}

/// Content of a file.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct FileContent {
    /// The content as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<InlineContent>,
}

impl FileContent {
    /// Content that is this text.
    pub fn of_text(data: String) -> Self {
        let encoding = None;
        Self {
            inline: Some(InlineContent { encoding, data }),
        }
    }

    /// The text; empty if no content is set.
    pub fn text(&self) -> &str {
        self.inline.as_ref().map_or("", |inline| &inline.data)
    }

    /// Whether no content is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.inline.is_none()
    }
}

/// Text of a file.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct InlineContent {
    /// `b64` means that the user data contains the text in base64. With GoTemplate, the text of another
    /// encoding is encoded already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The text.
    pub data: String,
}
