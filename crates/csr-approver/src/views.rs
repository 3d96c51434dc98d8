//! Machines, MachineSets, MachineDeployments and claims, reduced to what decisions need.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use osm_api::machine::cloud_of_template;
use osm_api::node_name::{self, NodeName};
use osm_api::{Machine, MachineDeployment, MachineSet, PoolRef, names};

use crate::pkcs10::SubjectName;

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
        };
        let reference = meta.owner_references.iter().flatten().find(is_of_kind)?;
        Some(Self {
            name: reference.name.clone(),
            uid: reference.uid.clone(),
        })
    }
}

/// A Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineView {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub node: NodeName,
    /// Whether another machine may get this name.
    pub may_pass_on_name: bool,
    /// Its MachineSet.
    pub owner: Option<Owner>,
    pub is_deleting: bool,
    /// Name of its Node.
    pub node_ref: Option<String>,
    /// The addresses that its cloud reports.
    pub addresses: Vec<SubjectName>,
}

impl From<Machine> for MachineView {
    fn from(machine: Machine) -> Self {
        let node = NodeName::of(&machine);
        let may_pass_on_name = node_name::may_pass_on(&machine);
        let status = machine.status.unwrap_or_default();
        let addresses = status
            .addresses
            .into_iter()
            .map(|address| match address.address.parse::<IpAddr>() {
                Ok(ip) => SubjectName::Ip(ip),
                Err(_) => SubjectName::Dns(address.address),
            });
        Self {
            addresses: addresses.collect(),
            node_ref: status.node_ref.map(|node| node.name),
            node,
            may_pass_on_name,
            owner: Owner::of::<MachineSet>(&machine.metadata),
            is_deleting: machine.metadata.deletion_timestamp.is_some(),
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
            NodeName::Known(name) | NodeName::Unproven(name) => Some(name),
            NodeName::NotRecorded => None,
        }
    }
}

/// A MachineSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSetView {
    pub uid: String,
    /// Its MachineDeployment.
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

/// A MachineDeployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    pub pool: PoolRef,
    /// Name of the ServiceAccount of the pool, in `cloud-init-settings`.
    pub account: String,
    /// The node name of the only machine of an edge pool; `None` for every other pool.
    pub edge_node: Option<String>,
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
            pool,
        }
    }
}

/// What bears the name of a node: the object that a machine joins as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    Machine {
        machine: Arc<MachineView>,
        /// The MachineDeployment that exists and that the Machine belongs to, by the uids of owner references.
        pool: Option<PoolRef>,
    },
    EdgePool(Arc<PoolView>),
}

/// The Lease that records an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimView {
    /// Name of the Lease.
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// Name of the node.
    pub node: String,
    /// `namespace/name` of the Machine, or of the MachineDeployment of an edge pool.
    pub joins_as: String,
    /// Its uid.
    pub joins_as_uid: String,
    /// uid of the approved request.
    pub request: String,
    /// When it was approved.
    pub since: Timestamp,
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
            joins_as: annotation(names::JOINS_AS),
            joins_as_uid: annotation(names::JOINS_AS_UID),
            request: spec
                .and_then(|spec| spec.holder_identity.clone())
                .unwrap_or_default(),
            since: acquired.or(created).unwrap_or(Timestamp::MAX),
        })
    }
}
