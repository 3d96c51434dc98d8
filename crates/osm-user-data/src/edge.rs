//! The script that makes a node of a machine of provider `edge`: one that its owner has set up, and no cloud
//! knows.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::content::{self, Content};
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::CloudProvider;

use crate::cloud_init;
use crate::error::UserDataError;
use crate::filled::Filled;
use crate::late_bound::{Filling, LateValues};
use crate::scripts::{OSM_APPLY, without_comments};
use crate::stage::Stage;

const SCRIPT: &str = include_str!("edge.sh");

/// Most characters of base64 in a line, as of MIME and the program `base64`.
const LINE: usize = 76;

/// The script, a POSIX shell script that holds the bootstrap document with `values` in it; `None` for a pool
/// of any other provider. The machine keeps its host name, its users and their keys.
///
/// # Errors
/// As [`user_data`](crate::user_data()).
pub fn edge_script(spec: &Content, values: &LateValues) -> Result<Option<String>, UserDataError> {
    let cloud = spec.cloud_provider.as_ref();
    if cloud.is_none_or(|cloud| cloud.name != CloudProvider::Edge) {
        return Ok(None);
    }
    // The script fills it in: a pool may have more than one machine.
    let name = Some(MACHINE_NAME_PLACEHOLDER.to_owned());
    let filled = Filled::new(spec, Stage::Bootstrap, Filling::Values(values), name)?;
    let document = cloud_init::write_for_owned(filled)?;
    let script = SCRIPT
        .replace("@POOL@", content::pool_name(spec).unwrap_or_default())
        .replace("@APPLIER@", &lines(&without_comments(OSM_APPLY)))
        .replace("@DOCUMENT@", &lines(&document));
    Ok(Some(script))
}

fn lines(text: &str) -> String {
    let encoded = STANDARD.encode(text);
    let lines = encoded.as_bytes().chunks(LINE);
    let lines: Vec<_> = lines.map(String::from_utf8_lossy).collect();
    lines.join("\n")
}
