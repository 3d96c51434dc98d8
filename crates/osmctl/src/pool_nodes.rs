//! The Nodes of pools, and which of them booted with the newest content, by the label that the kubelet set when it
//! created the Node.
//!
//! A kubelet may change the labels of its own Node. So this is information, and nothing is decided by it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Resource, ResourceExt};
use osm_api::config::Stored;
use osm_api::{Machine, MachineDeployment, MachineSet, names};

use crate::output;
use crate::snapshot::ClusterPool;

const COLUMNS: [&str; 7] = [
    "NODE", "CONTENT", "PROFILE", "VERSION", "KUBELET", "RUNTIME", "AGE",
];

/// A Node of a machine of a MachineDeployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolNode {
    pub name: String,
    /// uid of the MachineDeployment.
    pub pool: String,
    /// [`Stored::content_id`] of the content that it booted with; `None` if it has no such label.
    pub content: Option<String>,
    kubelet: String,
    /// Name and version, such as `containerd://2.1.4`.
    runtime: String,
    created: Timestamp,
}

/// The Nodes that belong to a MachineDeployment, by the names in the status of its Machines.
pub fn of_machines(machines: &[Machine], sets: &[MachineSet], nodes: &[Node]) -> Vec<PoolNode> {
    let pools = sets
        .iter()
        .filter_map(|set| Some((set.uid()?, owner::<MachineDeployment>(set)?)));
    let pools: BTreeMap<String, &str> = pools.collect();
    let pool_of = |machine: &Machine| Some((*pools.get(owner::<MachineSet>(machine)?)?).to_owned());
    let named = nodes.iter().map(|node| (node.name_any(), node));
    let named: BTreeMap<String, &Node> = named.collect();
    let node_of = |machine: &Machine| {
        let name = machine.status.as_ref()?.node_ref.as_ref()?.get("name")?;
        named.get(name.as_str()?)
    };
    let found = machines.iter().filter_map(|machine| {
        let (pool, node) = (pool_of(machine)?, node_of(machine)?);
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let version = |text: Option<&String>| text.cloned().unwrap_or_default();
        Some(PoolNode {
            name: node.name_any(),
            pool,
            content: node.labels().get(names::CONTENT).cloned(),
            kubelet: version(info.map(|info| &info.kubelet_version)),
            runtime: version(info.map(|info| &info.container_runtime_version)),
            created: node.creation_timestamp().map(|time| time.0).unwrap_or_default(),
        })
    });
    let mut found: Vec<PoolNode> = found.collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|a, b| a.name == b.name);
    found
}

/// uid of the controller of an object, if it is of this kind.
fn owner<K: Resource<DynamicType = ()>>(object: &impl ResourceExt) -> Option<&str> {
    let mut owners = object.owner_references().iter();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == K::kind(&()))?;
    Some(&owner.uid)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Booted {
    Newest,
    Older,
    /// It has no label, or nothing to compare it with.
    Unknown,
}

impl Booted {
    fn with(node: &PoolNode, newest: Option<&Stored>) -> Self {
        let newest = newest.and_then(|stored| stored.content_id.as_ref());
        match (&node.content, newest) {
            (Some(content), Some(newest)) if content == newest => Self::Newest,
            (Some(_), Some(_)) => Self::Older,
            _ => Self::Unknown,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Older => "older",
            Self::Unknown => "unknown",
        }
    }
}

fn stored<'a>(pool: &ClusterPool<'a>) -> Option<&'a Stored> {
    pool.config.and_then(|config| config.stored())
}

/// How many Nodes run the newest content of their pool, of all: `3/5`.
pub fn cell(pool: &ClusterPool<'_>, nodes: &[&PoolNode]) -> String {
    let booted = nodes.iter().map(|node| Booted::with(node, stored(pool)));
    let newest = booted.filter(|booted| *booted == Booted::Newest).count();
    format!("{newest}/{}", nodes.len())
}

/// The Nodes of a pool, and how many run its newest content.
pub fn text(pool: &ClusterPool<'_>, nodes: &[&PoolNode], now: Timestamp) -> String {
    if nodes.is_empty() {
        return format!("No machine of {pool} has a Node.\n");
    }
    let stored = stored(pool);
    let booted: Vec<Booted> = nodes.iter().map(|node| Booted::with(node, stored)).collect();
    let lines = nodes.iter().zip(&booted).map(|(node, booted)| {
        let profile = stored.and_then(|stored| stored.profile.as_ref());
        // Of older contents, nothing but the id is known.
        let profile = profile.filter(|_| *booted == Booted::Newest);
        let [name, version] = match profile {
            Some(profile) => [&profile.name, &profile.version].map(|text| output::one_line(text)),
            None => ["-", "-"].map(str::to_owned),
        };
        [
            node.name.clone(),
            booted.text().to_owned(),
            name,
            version,
            output::one_line(&node.kubelet),
            output::one_line(&node.runtime),
            age(node.created, now),
        ]
    });
    let lines: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(lines).collect();
    let of = |wanted| booted.iter().filter(|booted| **booted == wanted).count();
    let (newest, unknown) = (of(Booted::Newest), of(Booted::Unknown));
    let (all, verb) = (nodes.len(), if newest == 1 { "runs" } else { "run" });
    let mut text = format!(
        "{}\n{newest} of {} {verb} the newest content",
        output::table(&lines),
        output::count(all, "node")
    );
    if unknown > 0 {
        text.push_str(&format!(
            ". {unknown} can't be compared: nodes of Go profiles, and those that booted before OSM set the label {}, have none",
            names::CONTENT
        ));
    }
    text.push_str(".\n");
    text
}

/// As kubectl prints it, such as `5d`.
fn age(created: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(created).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::snapshot::fixtures;

    fn owned(kind: &str, name: &str, uid: &str) -> Value {
        json!({"name": name, "namespace": "kube-system", "uid": name, "ownerReferences": [{"apiVersion":
            "cluster.k8s.io/v1alpha1", "kind": kind, "name": "owner", "uid": uid, "controller": true}]})
    }

    fn machine(name: &str, node: &str, set: &str) -> Machine {
        let status = json!({"nodeRef": {"kind": "Node", "name": node}});
        from_value(json!({"metadata": owned("MachineSet", name, set), "status": status, "spec": {}})).unwrap()
    }

    fn node(name: &str, labels: &Value) -> Node {
        let created = "2026-01-31T00:00:00Z";
        let info = json!({"kubeletVersion": "v1.34.2", "containerRuntimeVersion": "containerd://2.1.4",
            "architecture": "", "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
            "operatingSystem": "", "osImage": "", "systemUUID": ""});
        from_value(
            json!({"metadata": {"name": name, "labels": labels, "creationTimestamp": created},
            "status": {"nodeInfo": info}}),
        )
        .unwrap()
    }

    #[test]
    fn nodes_are_compared_with_the_newest_content_of_the_pool_that_their_machine_belongs_to() {
        let mut snapshot = fixtures::snapshot();
        let uid = snapshot.machine_deployments[0].uid().unwrap();
        let status = snapshot.configs[0].status.as_mut().unwrap();
        status.rendered.as_mut().unwrap().content_id = Some("new".to_owned());
        let set = json!({"metadata": owned("MachineDeployment", "s", &uid), "spec": {}});
        let others = json!({"metadata": owned("MachineDeployment", "o", "other"), "spec": {}});
        let sets = [set, others].map(|set| from_value(set).unwrap());
        let machines = [
            machine("a", "a", "s"),
            machine("b", "b", "s"),
            machine("c", "c", "s"),
            machine("gone", "gone", "s"),
            machine("other", "other", "o"),
        ];
        let label = |content: &str| json!({names::CONTENT: content});
        let nodes = [
            node("a", &label("new")),
            node("b", &label("old")),
            node("c", &json!({})),
            node("other", &label("new")),
            node("control-plane", &json!({})),
        ];
        snapshot.nodes = of_machines(&machines, &sets, &nodes);
        let pools = snapshot.pools();
        let found = snapshot.nodes_of(&pools[0]).unwrap();
        assert_eq!(cell(&pools[0], &found), "1/3");
        let text = text(&pools[0], &found, "2026-02-01T00:00:00Z".parse().unwrap());
        let words = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let words: Vec<String> = words.collect();
        let versions = "v1.34.2 containerd://2.1.4 24h";
        assert_eq!(words[1], format!("a newest osp-tiny v1.0.0 {versions}"));
        assert_eq!(words[2], format!("b older - - {versions}"));
        assert_eq!(words[3], format!("c unknown - - {versions}"));
        assert!(
            words[5].starts_with("1 of 3 nodes runs the newest content. 1 can't be compared"),
            "{text}"
        );

        // What was rendered before has nothing to compare with.
        let status = snapshot.configs[0].status.as_mut().unwrap();
        status.rendered.as_mut().unwrap().content_id = None;
        let pools = snapshot.pools();
        assert_eq!(cell(&pools[0], &snapshot.nodes_of(&pools[0]).unwrap()), "0/3");
    }
}
