//! The reasons why a request is denied or waits. The requester can read these messages, so they don't mention
//! other pools.

use jiff::Timestamp;
use osm_api::Reason;

/// Why a request can never become right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("a kubelet sends no such request: {0}; let the kubelet of the machine generate it")]
    Unreadable(&'static str),
    #[error(
        "the subject of the request is not exactly O=system:nodes, CN=system:node:NAME; let the kubelet of the machine generate it"
    )]
    Subject,
    #[error(
        "the usages differ from those of a kubelet; use digital signature and client auth; RSA keys may add key encipherment"
    )]
    Usages,
    #[error("{0} is a machine of another pool; a token permits only machines of its own pool")]
    ForeignMachine(String),
}

impl Denial {
    /// Every reason of a denial.
    pub const REASONS: [Reason; 4] = [
        Reason::RequestUnreadable,
        Reason::SubjectNotAllowed,
        Reason::UsagesNotAllowed,
        Reason::ForeignMachine,
    ];

    pub fn reason(&self) -> Reason {
        match self {
            Self::Unreadable(_) => Reason::RequestUnreadable,
            Self::Subject => Reason::SubjectNotAllowed,
            Self::Usages => Reason::UsagesNotAllowed,
            Self::ForeignMachine(_) => Reason::ForeignMachine,
        }
    }
}

/// Why a request is not approved now. It may become right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    #[error(
        "the ServiceAccount belongs to no MachineDeployment that exists; no action is required if the MachineDeployment was deleted"
    )]
    PoolNotFound,
    #[error(
        "no Machine has the node name {0}; wait until machine-controller has recorded it, or compare it with kubectl get machines -A"
    )]
    MachineNotFound(String),
    #[error(
        "several Machines or edge pools have the node name {0}, and only one that is older than the others may join; delete the others"
    )]
    MachineNotUnique(String),
    #[error(
        "the Machine of node {0} does not belong to a MachineDeployment that exists; check its owner references"
    )]
    MachineNotInPool(String),
    #[error(
        "{0} is the recorded address of a machine of another pool; if that machine is gone, delete its Machine"
    )]
    ForeignMachine(String),
    #[error("the Machine of node {0} is being deleted; no action is required if the deletion is intended")]
    MachineDeleting(String),
    #[error(
        "the request is older than the Machine of node {0}, so it is never approved; a kubelet that still waits sends a new request within 15 minutes"
    )]
    OlderThanMachine(String),
    #[error("the Machine of node {0} has a Node; if the machine was reinstalled, delete its Machine")]
    MachineHasNode(String),
    #[error(
        "cannot verify the node name {0} with this cloud provider; check it, then run kubectl certificate approve"
    )]
    NodeNameUnverified(String),
    #[error("Node {0} exists; delete the Node if its machine is gone")]
    NodeExists(String),
    #[error(
        "another request for node {node} was approved; this one is checked again after {until}. If the first request was not yours, delete the Machine"
    )]
    AlreadyApproved { node: String, until: Timestamp },
    #[error(
        "it is not certain that this request for node {0} came first, so it is not approved; delete the requests for this node that no machine of \
         yours has sent, or all of them: a kubelet sends a new one within 15 minutes"
    )]
    OrderUnknown(String),
}

/// Why a request is not approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Deny(Denial),
    Wait(Wait),
}

impl Wait {
    pub fn reason(&self) -> Reason {
        match self {
            Self::PoolNotFound => Reason::PoolNotFound,
            Self::MachineNotFound(_) => Reason::MachineNotFound,
            Self::MachineNotUnique(_) => Reason::MachineNotUnique,
            Self::MachineNotInPool(_) => Reason::MachineNotInPool,
            Self::ForeignMachine(_) => Reason::ForeignMachine,
            Self::MachineDeleting(_) => Reason::MachineDeleting,
            Self::OlderThanMachine(_) => Reason::RequestOlderThanMachine,
            Self::MachineHasNode(_) => Reason::MachineHasNode,
            Self::NodeNameUnverified(_) => Reason::NodeNameUnverified,
            Self::NodeExists(_) => Reason::NodeExists,
            Self::AlreadyApproved { .. } => Reason::AlreadyApproved,
            Self::OrderUnknown(_) => Reason::RequestOrderUnknown,
        }
    }
}
