//! What a virtual machine gets from its cloud if cloud-init reads it: a disk, and perhaps documents in a
//! metadata service. A script starts the agent, and unpacks the layer of the machine, which is on the disk,
//! over its root file system. It is vendor data. EC2 has none, so there an argument of the kernel lets
//! cloud-init run it from the disk.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::machine::{DataSource, Order};
use super::network::Link;
use super::{Lab, openstack, run};
use crate::serve::metadata::Documents;

pub(super) const AGENT: &str = include_str!("agent.sh");
pub(super) const AGENT_UNIT: &str = include_str!("lab-agent.service");
pub(super) const WATCHER: &str = include_str!("watcher.py");
pub(super) const WATCHER_UNIT: &str = include_str!("lab-watcher.service");
const HOOK: &str = include_str!("hook.sh");

/// The label of the disk of a machine that has its data from a metadata service.
const LAB: &str = "LAB";

/// The hook on that disk, where it is not vendor data.
const HOOK_FILE: &str = "hook";

/// Writes the disk of an order as `seed`, and hands the rest to the lab's servers. `directory` is the
/// machine's folder.
pub(super) fn write(lab: &Lab, directory: &Path, seed: &Path, order: &Order<'_>, mac: &str) -> Result<()> {
    let Order {
        name,
        address,
        link,
        data_source,
        user_data,
        ..
    } = *order;
    let folder = directory.join("seed");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    pack_layer(directory, &folder, order)?;
    let label = match data_source {
        DataSource::NoCloud => "CIDATA",
        DataSource::Ec2 | DataSource::OpenStack => LAB,
    };
    let hook = hook(label);
    // The same at every boot: a new id would be a new machine to cloud-init.
    let id = format!("i-{name}");
    match data_source {
        DataSource::NoCloud => {
            let meta_data = format!("instance-id: {id}\nlocal-hostname: {name}\n");
            fs::write(folder.join("meta-data"), meta_data)?;
            fs::write(folder.join("user-data"), user_data)?;
            fs::write(folder.join("vendor-data"), hook)?;
            fs::write(folder.join("network-config"), link.configuration(address, mac))?;
        }
        DataSource::Ec2 => {
            fs::write(folder.join(HOOK_FILE), hook)?;
            by_http(lab, order, mac, Documents::ec2(&id, address, mac, user_data))?;
        }
        DataSource::OpenStack => {
            let files = openstack::files(&id, name, user_data, &hook, mac);
            by_http(lab, order, mac, Documents::openstack(&id, files))?;
        }
    }
    iso(label, &folder, seed)
}

/// Makes a disk with this label and the content of a folder.
pub(super) fn iso(label: &str, folder: &Path, disk: &Path) -> Result<()> {
    let [from, to] = [folder, disk].map(|path| path.display().to_string());
    let arguments = [
        "-as",
        "mkisofs",
        "-quiet",
        "-volid",
        label,
        "-joliet",
        "-rational-rock",
        "-output",
        &to,
        &from,
    ];
    run("xorriso", &arguments)
        .with_context(|| format!("the disk {label}"))
        .map(drop)
}

/// Lets the machine of an order get its address by DHCP, and these documents from the metadata service.
fn by_http(lab: &Lab, order: &Order<'_>, mac: &str, documents: Documents) -> Result<()> {
    ensure!(
        order.link == Link::IPv4,
        "machine {} has its data from a metadata service, which needs a network of IPv4",
        order.name
    );
    lab.lease(mac, order.address)?;
    lab.metadata()?.add(order.address, documents);
    Ok(())
}

/// The script that cloud-init runs at every boot, with EC2 at the first one. `label` is that of the disk with
/// the layer.
fn hook(label: &str) -> String {
    HOOK.replace("AGENT_UNIT", AGENT_UNIT.trim_end())
        .replace("WATCHER_UNIT", WATCHER_UNIT.trim_end())
        .replace("AGENT", AGENT.trim_end())
        .replace("WATCHER", WATCHER.trim_end())
        .replace("DISK", label)
}

/// The argument of a kernel with which cloud-init runs the hook from the disk [`LAB`] at the first boot. The
/// user data of our profiles would replace a `bootcmd`, and has no `random_seed`.
pub(super) fn kernel_argument() -> String {
    let command = format!("mount -r LABEL={LAB} /mnt; sh /mnt/{HOOK_FILE}; umount /mnt");
    let configuration = format!("random_seed: {{command: [sh, -c, '{command}']}}");
    format!(
        "cc:{}end_cc",
        utf8_percent_encode(&configuration, NON_ALPHANUMERIC)
    )
}

/// Writes the layer of an order into the machine's folder, and packs it into the folder of a disk.
pub(super) fn pack_layer(directory: &Path, disk: &Path, order: &Order<'_>) -> Result<()> {
    let layer = directory.join("layer");
    fs::create_dir_all(&layer).with_context(|| layer.display().to_string())?;
    (order.layer)(&layer).with_context(|| format!("changes to the image of machine {}", order.name))?;
    archive(&layer, &disk.join("layer.tar"))
}

/// Packs the files of a folder. The machine's root will own them.
fn archive(folder: &Path, to: &Path) -> Result<()> {
    let mut archive = tar::Builder::new(File::create(to)?);
    archive.follow_symlinks(false);
    archive.append_dir_all(".", folder).context("the layer")?;
    archive.finish().context("the layer")
}
