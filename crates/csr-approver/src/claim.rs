//! Claims: the Leases that record approvals, so that one Machine gets one certificate, whatever restarts and
//! however many replicas decide. Pure: no client, no clock.
//!
//! The name of a claim comes from the node and the Machine, and the API server creates only one object of a
//! name. A claim can't have the Machine as its owner, which may be in another namespace, so csr-approver
//! deletes claims that are no longer needed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use osm_api::names;

use crate::views::{ClaimView, NodeNameOwner};

/// A machine that has not joined by then may get another certificate. A machine boots again in less time only
/// by hand.
pub const VALIDITY: SignedDuration = SignedDuration::from_mins(10);

/// Value of the label [`names::ROLE`] on claims.
pub const ROLE: &str = "join-claim";

/// Who may join under which name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub node: String,
    /// `namespace/name` of the Machine, or of the MachineDeployment of an edge pool.
    pub joining_identity: String,
    pub joins_as_uid: String,
    pub request: String,
}

impl Claim {
    pub fn new(node: &str, name_owner: &NodeNameOwner, request: &str) -> Self {
        let machine = &name_owner.machine;
        Self {
            node: node.to_owned(),
            joining_identity: format!("{}/{}", machine.namespace, machine.name),
            joins_as_uid: machine.uid.clone(),
            request: request.to_owned(),
        }
    }

    pub fn name(&self) -> String {
        names::join_claim_name(&self.node, &self.joins_as_uid)
    }

    /// One for tests, of this request.
    #[cfg(test)]
    pub fn for_test(request: &str) -> Self {
        Self {
            node: "node".to_owned(),
            joining_identity: "kube-system/machine".to_owned(),
            joins_as_uid: "1".to_owned(),
            request: request.to_owned(),
        }
    }

    /// The Lease, as it is created, or as it replaces that of a request that came to nothing.
    pub fn lease(&self, now: Timestamp, replaces: Option<&ClaimView>) -> Lease {
        let annotations = [
            (names::NODE_NAME, &self.node),
            (names::JOINS_AS, &self.joining_identity),
            (names::JOINS_AS_UID, &self.joins_as_uid),
        ];
        let owned = |(key, value): (&str, &String)| (key.to_owned(), value.clone());
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name()),
                uid: replaces.map(|claim| claim.uid.clone()),
                resource_version: replaces.map(|claim| claim.resource_version.clone()),
                labels: Some([(names::ROLE.to_owned(), ROLE.to_owned())].into()),
                annotations: Some(annotations.map(owned).into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.request.clone()),
                acquire_time: Some(MicroTime(now)),
                lease_duration_seconds: i32::try_from(VALIDITY.as_secs()).ok(),
                lease_transitions: replaces.map(|claim| claim.before.saturating_add(1)),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// From then on another request for the same machine may be approved, and the claim may be replaced or
/// deleted.
pub fn expires(approved: Timestamp) -> Timestamp {
    approved.saturating_add(VALIDITY).unwrap_or(Timestamp::MAX)
}

/// Whether a claim has served its purpose: its object is gone, or has joined. A fresh one stays in any case:
/// the watches may lag behind.
pub fn is_done(claim: &ClaimView, is_awaited: bool, now: Timestamp) -> bool {
    expires(claim.since) <= now && !is_awaited
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    #[test]
    fn the_name_is_that_of_node_and_machine() {
        let name = Claim::for_test("a").name();
        assert_eq!(name, Claim::for_test("b").name());
        assert!(name.starts_with("osm-join-") && name.len() == 29, "{name}");
        for other in [
            Claim {
                node: "other".to_owned(),
                ..Claim::for_test("a")
            },
            Claim {
                joins_as_uid: "2".to_owned(),
                ..Claim::for_test("a")
            },
        ] {
            assert_ne!(name, other.name());
        }
    }

    #[test]
    fn an_old_claim_of_what_has_joined_or_is_gone_is_deleted() {
        let mut lease = Claim::for_test("a").lease(at(0), None);
        let held = ClaimView::of(&lease).unwrap();
        assert!(!is_done(&held, false, at(9)));
        assert!(is_done(&held, false, at(10)));
        assert!(!is_done(&held, true, at(10_000)));
        // Without a time, it never expires.
        lease.spec = None;
        let held = ClaimView::of(&lease).unwrap();
        assert!(!is_done(&held, false, at(10_000)));
    }
}
