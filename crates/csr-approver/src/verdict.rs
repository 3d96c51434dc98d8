//! Why a request is denied, or waits. The messages stand in conditions that the requester can read, so they name nothing of other pools.

use jiff::Timestamp;
use osm_api::Reason;

/// Why a request can never become right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("the request is not one of a kubelet: {0}; send the request that a kubelet generates")]
    Unreadable(&'static str),
    #[error("the subject {0}; request O=system:nodes, CN=system:node:NAME and nothing else")]
    Subject(&'static str),
    #[error(
        "the usages are not those of a kubelet; request digital signature, {0}, and key encipherment only for RSA keys"
    )]
    Usages(&'static str),
    #[error("{0} is a machine of another pool; a token permits only machines of its own pool")]
    ForeignMachine(String),
}

impl Denial {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unreadable(_) => Reason::RequestUnreadable,
            Self::Subject(_) => Reason::SubjectNotAllowed,
            Self::Usages(_) => Reason::UsagesNotAllowed,
            Self::ForeignMachine(_) => Reason::ForeignMachine,
        }
    }
}

/// Why a request is not approved now. It may become right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    #[error(
        "the ServiceAccount belongs to no MachineDeployment that exists; nothing is to be done if that was deleted"
    )]
    PoolNotFound,
    #[error(
        "no Machine has the node name {0}; wait until machine-controller has recorded it, or compare it with kubectl get machines -A"
    )]
    MachineNotFound(String),
    #[error("several Machines or edge pools have the node name {0}; delete all but one of them")]
    MachineNotUnique(String),
    #[error(
        "the Machine of node {0} does not belong to a MachineDeployment that exists; check its owner references"
    )]
    MachineNotOfPool(String),
    #[error(
        "{0} is the recorded address of a machine of another pool; if that machine is gone, delete its Machine"
    )]
    ForeignMachine(String),
    #[error("the Machine of node {0} is being deleted; nothing is to be done if that is intended")]
    MachineDeleting(String),
    #[error("the Machine of node {0} has a Node; if the machine was reinstalled, delete its Machine")]
    MachineHasNode(String),
    #[error(
        "nothing proves that {0} is the name of a node of this cloud provider; run kubectl certificate approve, or set joining to static"
    )]
    NodeNameUnproven(String),
    #[error("Node {0} exists; delete the Node if its machine is gone")]
    NodeExists(String),
    #[error("another request for node {node} was approved; the next one can be approved at {until}")]
    AlreadyApproved { node: String, until: Timestamp },
    #[error(
        "the Machine of node {0} does not have all addresses of the request; compare the request with the Machine's status.addresses"
    )]
    AddressNotRecorded(String),
}

impl Wait {
    pub fn reason(&self) -> Reason {
        match self {
            Self::PoolNotFound => Reason::PoolNotFound,
            Self::MachineNotFound(_) => Reason::MachineNotFound,
            Self::MachineNotUnique(_) => Reason::MachineNotUnique,
            Self::MachineNotOfPool(_) => Reason::MachineNotOfPool,
            Self::ForeignMachine(_) => Reason::ForeignMachine,
            Self::MachineDeleting(_) => Reason::MachineDeleting,
            Self::MachineHasNode(_) => Reason::MachineHasNode,
            Self::NodeNameUnproven(_) => Reason::NodeNameUnproven,
            Self::NodeExists(_) => Reason::NodeExists,
            Self::AlreadyApproved { .. } => Reason::AlreadyApproved,
            Self::AddressNotRecorded(_) => Reason::AddressNotRecorded,
        }
    }
}
