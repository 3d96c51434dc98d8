//! Writes the document that a machine reads: fills late-bound values into a rendered configuration, and
//! writes the result in the language of the machine's provisioning utility.

use osm_api::content::Content;

use crate::error::UserDataError;
use crate::filled::{Filled, Packing, machine_name};
use crate::late_bound::{Filling, LateValues};
use crate::reader::Reader;
use crate::stage::Stage;
use crate::{cloud_init, coreos_cloudinit, ignition};

/// The document of a stage, a cloud-config or an Ignition config, with `values` for its late-bound values.
///
/// The bootstrap document also sets the host name and writes `/etc/machine-name` (on every cloud but `aws`,
/// where the node is named by the cloud), sets the users' SSH keys and turns password logins off.
///
/// # Errors
/// A late-bound value that is missing, that can't be written where its marker is, or that the configuration
/// does not declare; content that the provisioning utility can't take.
pub fn user_data(spec: &Content, stage: Stage, values: &LateValues) -> Result<String, UserDataError> {
    write(spec, stage, values, Packing::Packed)
}

/// As [`user_data`], but no file in it is compressed. It is for comparisons, and costs less.
///
/// # Errors
/// As [`user_data`].
pub fn plain_user_data(spec: &Content, stage: Stage, values: &LateValues) -> Result<String, UserDataError> {
    write(spec, stage, values, Packing::Plain)
}

fn write(
    spec: &Content,
    stage: Stage,
    values: &LateValues,
    packing: Packing,
) -> Result<String, UserDataError> {
    let filled = Filled::new(spec, stage, Filling::Values(values), machine_name(spec, stage))?;
    match Reader::of(spec.os_name, spec.provisioning_utility) {
        Reader::CloudInit => cloud_init::write(stage, filled, packing),
        Reader::CoreosCloudinit => coreos_cloudinit::write(stage, &filled, packing),
        Reader::Ignition => ignition::write(filled),
    }
}
