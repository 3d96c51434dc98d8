//! Machines, MachineSets, MachineDeployments and claims, reduced to what decisions need.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use osm_api::machine::cloud_of_template;
use osm_api::machine_deployment::MachineDeploymentSpec;
use osm_api::node_name::{self, NodeName};
use osm_api::{Machine, MachineDeployment, MachineSet, PoolRef, names};
use osm_runtime::object::Unreadable;

/// The object that another one belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub name: String,
    pub uid: String,
}

impl Owner {
    /// The controller of an object, if it is of this kind of machine-controller.
    fn of<K: Resource<DynamicType = ()>>(meta: &ObjectMeta) -> Option<Self> {
        let is_of_kind = |reference: &&OwnerReference| {
            let group = reference.api_version.split_once('/').map(|(group, _)| group);
            reference.controller == Some(true)
                && reference.kind == K::kind(&())
                && group == Some(&*K::group(&()))
                // The API server takes any text. Only such a name belongs to an object.
                && names::is_dns_subdomain(&reference.name)
        };
        let reference = meta.owner_references.iter().flatten().find(is_of_kind)?;
        Some(Self {
            name: reference.name.clone(),
            uid: reference.uid.clone(),
        })
    }
}

/// By the clock of the API server, in whole seconds.
fn created(meta: &ObjectMeta) -> Timestamp {
    let created = meta.creation_timestamp.as_ref();
    created.map(|time| time.0).unwrap_or_default()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineView {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub created: Timestamp,
    pub node: NodeName,
    /// Whether another machine may get this name.
    pub is_node_name_reassignable: bool,
    pub owner: Option<Owner>,
    pub is_deleting: bool,
    pub has_node_ref: bool,
}

impl From<Machine> for MachineView {
    fn from(machine: Machine) -> Self {
        let node = NodeName::of(&machine);
        let is_node_name_reassignable = node_name::is_node_name_reassignable(&machine);
        Self {
            has_node_ref: machine.status.is_some_and(|status| status.node_ref.is_some()),
            node,
            is_node_name_reassignable,
            owner: Owner::of::<MachineSet>(&machine.metadata),
            is_deleting: machine.metadata.deletion_timestamp.is_some(),
            created: created(&machine.metadata),
            namespace: machine.metadata.namespace.unwrap_or_default(),
            name: machine.metadata.name.unwrap_or_default(),
            uid: machine.metadata.uid.unwrap_or_default(),
        }
    }
}

impl MachineView {
    /// The name under which requests find it.
    pub fn node_name(&self) -> Option<&str> {
        match &self.node {
            NodeName::Known(name) | NodeName::Unverified(name) => Some(name),
            NodeName::NotRecorded => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSetView {
    pub uid: String,
    pub owner: Option<Owner>,
}

impl From<PartialObjectMeta<MachineSet>> for MachineSetView {
    fn from(set: PartialObjectMeta<MachineSet>) -> Self {
        Self {
            owner: Owner::of::<MachineDeployment>(&set.metadata),
            uid: set.metadata.uid.unwrap_or_default(),
        }
    }
}

impl MachineSetView {
    /// Its MachineDeployment, if this is the MachineSet that `owner` refers to.
    pub fn owner_of_what_belongs_to(&self, owner: &Owner) -> Option<&Owner> {
        self.owner.as_ref().filter(|_| self.uid == owner.uid)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    pub pool: PoolRef,
    /// Name of the ServiceAccount of the pool, in `cloud-init-settings`.
    pub account: String,
    /// The node name of the only machine of an edge pool; `None` for every other pool.
    pub edge_node: Option<String>,
    pub created: Timestamp,
    pub is_deleting: bool,
}

impl PoolView {
    pub fn of(md: &MachineDeployment) -> Self {
        let pool = PoolRef::from(md);
        let is_edge = node_name::is_of_machine_deployment(cloud_of_template(&md.spec.template));
        Self {
            account: names::pool_account(&pool.id()),
            edge_node: is_edge.then(|| node_name::kubelet_spelling(&pool.name)).flatten(),
            is_deleting: md.meta().deletion_timestamp.is_some(),
            created: created(md.meta()),
            pool,
        }
    }

    /// The view of a MachineDeployment that can't be decoded. Its machines join, but for those of an edge
    /// pool, whose cloud is unknown.
    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let mut md = MachineDeployment::new("", MachineDeploymentSpec::default());
        md.metadata = unreadable.metadata.clone();
        Self::of(&md)
    }

    /// The pool, if this is the MachineDeployment that `owner` refers to, and is not being deleted.
    pub fn if_it_is(&self, owner: &Owner) -> Option<PoolRef> {
        (self.pool.uid == owner.uid && !self.is_deleting).then(|| self.pool.clone())
    }
}

/// The owner of the name of a node: the Machine that a machine joins as, or the MachineDeployment of an edge
/// pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNameOwner {
    pub machine: Arc<MachineView>,
    /// The MachineDeployment that exists and that it belongs to, by the uids of owner references.
    pub pool: Option<PoolRef>,
    /// It is the MachineDeployment of an edge pool, which has no Machines.
    pub is_edge_pool: bool,
}

impl NodeNameOwner {
    pub fn of_machine(machine: Arc<MachineView>, pool: Option<PoolRef>) -> Self {
        Self {
            machine,
            pool,
            is_edge_pool: false,
        }
    }

    pub fn of_edge_pool(edge: &PoolView) -> Self {
        let machine = MachineView {
            namespace: edge.pool.namespace.clone(),
            name: edge.pool.name.clone(),
            uid: edge.pool.uid.clone(),
            created: edge.created,
            node: edge
                .edge_node
                .clone()
                .map_or(NodeName::NotRecorded, NodeName::Known),
            is_node_name_reassignable: false,
            owner: None,
            is_deleting: edge.is_deleting,
            has_node_ref: false,
        };
        Self {
            machine: Arc::new(machine),
            pool: Some(edge.pool.clone()),
            is_edge_pool: true,
        }
    }

    pub fn reference(&self) -> ObjectReference {
        match &self.pool {
            Some(pool) if self.is_edge_pool => ObjectReference::from(pool),
            _ => ObjectReference {
                api_version: Some(Machine::api_version(&()).into_owned()),
                kind: Some(Machine::kind(&()).into_owned()),
                namespace: Some(self.machine.namespace.clone()),
                name: Some(self.machine.name.clone()),
                uid: Some(self.machine.uid.clone()),
                ..ObjectReference::default()
            },
        }
    }
}

/// The Lease that records an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub node: String,
    /// `namespace/name` of the Machine, or of the MachineDeployment of an edge pool.
    pub joining_identity: String,
    pub joins_as_uid: String,
    /// uid of the approved request.
    pub request: String,
    pub since: Timestamp,
    /// How many approvals came before, and led to no Node.
    pub before: i32,
}

impl ClaimView {
    /// `None`: it has no name.
    pub fn of(lease: &Lease) -> Option<Self> {
        let annotation = |key: &str| lease.annotations().get(key).cloned().unwrap_or_default();
        let spec = lease.spec.as_ref();
        let acquired = spec
            .and_then(|spec| spec.acquire_time.as_ref())
            .map(|time| time.0);
        let created = lease.metadata.creation_timestamp.as_ref().map(|time| time.0);
        Some(Self {
            name: lease.metadata.name.clone()?,
            uid: lease.metadata.uid.clone().unwrap_or_default(),
            resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
            node: annotation(names::NODE_NAME),
            joining_identity: annotation(names::JOINS_AS),
            joins_as_uid: annotation(names::JOINS_AS_UID),
            request: spec
                .and_then(|spec| spec.holder_identity.clone())
                .unwrap_or_default(),
            since: acquired.or(created).unwrap_or(Timestamp::MAX),
            before: spec.and_then(|spec| spec.lease_transitions).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use osm_runtime::object;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_deployment_that_can_not_be_read_keeps_its_account() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = |spec: &str| {
            format!(
                r#"{{"metadata": {{"name": "p", "namespace": "n", "uid": "u"}}, "spec": {{"template": {spec}}}}}"#
            )
        };
        let unreadable_text = text(&deep);
        let unreadable = object::decode::<MachineDeployment>(&unreadable_text)
            .unwrap()
            .unwrap_err();
        let readable = serde_json::from_str(&text("{}")).unwrap();
        assert_eq!(PoolView::unreadable(&unreadable), PoolView::of(&readable));
    }

    /// The API server takes any text as the name of an owner.
    #[test]
    fn an_owner_has_a_name_that_an_object_can_have() {
        for (name, is_owner) in [
            ("set-1", true),
            ("a/../set-1", false),
            ("set-1?x", false),
            ("", false),
        ] {
            let owner = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineSet", "name": name, "uid": "u", "controller": true});
            let machine = json!({"metadata": {"name": "m", "ownerReferences": [owner]}, "spec": {}});
            let view = MachineView::from(serde_json::from_value::<Machine>(machine).unwrap());
            assert_eq!(view.owner.is_some(), is_owner, "{name}");
        }
    }

    #[test]
    fn what_is_kept_of_a_machine_is_bounded() {
        let large = "x".repeat(10_000);
        let addresses = vec![json!({"type": "InternalDNS", "address": large}); 1000];
        let machine = json!({"metadata": {"name": "m", "namespace": "n"}, "spec": {"metadata": {"name": large}},
            "status": {"addresses": addresses, "nodeRef": {"name": large}}});
        let view = MachineView::from(serde_json::from_value::<Machine>(machine).unwrap());
        assert!(view.has_node_ref);
        assert!(!format!("{view:?}").contains(&large));
    }
}
