//! Makes the [`claim`](mod@crate::claim) of an approval, or finds out who has it or whether the machine has
//! joined already. The API server decides between replicas: it creates one Lease of a name, and replaces only
//! the one that was judged.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use osm_runtime::error::already_exists;
use osm_runtime::request::failed;
use osm_runtime::{Api, Error, read};

use crate::claim::{self, Claim};
use crate::views::ClaimView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    Held {
        /// How many approvals came before.
        before: i32,
    },
    /// Another request, until then.
    Taken { until: Timestamp },
    /// Nobody needs it any more: the Node exists.
    Joined,
}

/// Returns who has the claim now.
///
/// # Errors
/// A request that failed, also because another replica was faster.
pub async fn acquire_unless_joined(
    leases: &Api<Lease>,
    nodes: &Api<Node>,
    claim: &Claim,
    now: Timestamp,
) -> Result<Acquired, Error> {
    let acquired = acquire(leases, claim, now).await?;
    if let Acquired::Held { .. } = acquired {
        // Only now, because a machine may have joined while the claim was replaced.
        let node = read::get(nodes, &claim.node, drop, |_| ()).await;
        if node.map_err(failed("reading the Node"))?.is_some() {
            return Ok(Acquired::Joined);
        }
    }
    Ok(acquired)
}

async fn acquire(leases: &Api<Lease>, claim: &Claim, now: Timestamp) -> Result<Acquired, Error> {
    let params = PostParams::default();
    match leases.create(&params, &claim.lease(now, None)).await {
        Ok(_) => return Ok(Acquired::Held { before: 0 }),
        Err(error) if already_exists(&error) => {}
        Err(error) => return Err(failed("creating the claim")(error)),
    }
    let name = claim.name();
    let lease = leases.get(&name).await.map_err(failed("reading the claim"))?;
    let Some(held) = ClaimView::of(&lease) else {
        return Err(Error::Conflict { what: "the claim" });
    };
    // The approval of this very request was interrupted.
    if held.request == claim.request {
        return Ok(Acquired::Held { before: held.before });
    }
    let until = claim::expires(held.since);
    if now < until {
        return Ok(Acquired::Taken { until });
    }
    // The other request came to nothing.
    let lease = claim.lease(now, Some(&held));
    let replaced = leases.replace(&name, &params, &lease).await;
    replaced.map_err(failed("replacing the claim"))?;
    Ok(Acquired::Held {
        before: held.before.saturating_add(1),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::SignedDuration;
    use osm_sim::memory::{Call, Link, Network, Passage, Server, User};
    use serde_json::json;

    use super::*;

    const NAMESPACE: &str = "kube-system";

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    /// Requests with this verb arrive a second later.
    struct Late(&'static str);

    impl Network for Late {
        fn passage(&self, call: &Call) -> Passage {
            let is_late = call.verb == self.0;
            Passage {
                there: Duration::from_secs(is_late.into()),
                ..Passage::default()
            }
        }

        fn lag(&self, _: &str, _: u64) -> Duration {
            Duration::ZERO
        }
    }

    /// The Leases as a replica on this network reaches them.
    fn replica(server: &Server, network: impl Network + 'static) -> Api<Lease> {
        let client = server.client(User::Admin, &Link::new(Arc::new(network)));
        Api::namespaced(client, NAMESPACE)
    }

    async fn holder(leases: &Api<Lease>) -> (String, i32) {
        let lease = leases.get(&Claim::for_test("").name()).await.unwrap();
        let claim = ClaimView::of(&lease).unwrap();
        (claim.request, claim.before)
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_replicas_that_make_one_claim_the_later_waits() {
        let server = Server::new(now());
        let (first, second) = (replica(&server, Late("")), replica(&server, Late("create")));
        let (one, other) = (Claim::for_test("one"), Claim::for_test("other"));
        let (one, other) = tokio::join!(acquire(&first, &one, now()), acquire(&second, &other, now()));
        assert_eq!(one.unwrap(), Acquired::Held { before: 0 });
        let until = now() + claim::VALIDITY;
        assert_eq!(other.unwrap(), Acquired::Taken { until });
        assert_eq!(holder(&first).await, ("one".to_owned(), 0));
    }

    /// Both have read the claim that expired, and both replace it. The resourceVersion lets one through.
    #[tokio::test(start_paused = true)]
    async fn of_two_replicas_that_replace_one_claim_the_later_has_a_conflict_and_then_waits() {
        let server = Server::new(now());
        let (first, second) = (replica(&server, Late("")), replica(&server, Late("update")));
        let past = now() - claim::VALIDITY;
        acquire(&first, &Claim::for_test("expired"), past).await.unwrap();
        let (one, other) = (Claim::for_test("one"), Claim::for_test("other"));
        let (held, lost) = tokio::join!(acquire(&first, &one, now()), acquire(&second, &other, now()));
        assert_eq!(held.unwrap(), Acquired::Held { before: 1 });
        assert!(matches!(lost, Err(Error::Conflict { .. })), "{lost:?}");
        assert_eq!(holder(&first).await, ("one".to_owned(), 1));
        let again = acquire(&second, &other, now()).await.unwrap();
        let until = now() + claim::VALIDITY;
        assert_eq!(again, Acquired::Taken { until });
    }

    /// The watch of Nodes may lag behind.
    #[tokio::test(start_paused = true)]
    async fn what_has_joined_is_seen_by_a_live_read() {
        let server = Server::new(now());
        let (leases, nodes) = (replica(&server, Late("")), Api::all(server.admin()));
        let claim = Claim::for_test("one");
        let acquire = async || {
            let found = acquire_unless_joined(&leases, &nodes, &claim, now()).await;
            found.unwrap()
        };
        assert_eq!(acquire().await, Acquired::Held { before: 0 });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": claim.node}});
        server.load(&[node]).unwrap();
        assert_eq!(acquire().await, Acquired::Joined);
    }

    /// The replica that made the claim has ended before it approved the request.
    #[tokio::test(start_paused = true)]
    async fn another_replica_goes_on_with_the_claim_of_the_same_request() {
        let server = Server::new(now());
        let leases = replica(&server, Late(""));
        let lease = async || leases.get(&Claim::for_test("").name()).await.unwrap();
        acquire(&leases, &Claim::for_test("one"), now()).await.unwrap();
        let made = lease().await;
        let later = now() + SignedDuration::from_hours(1);
        let found = acquire(&leases, &Claim::for_test("one"), later).await.unwrap();
        assert_eq!(found, Acquired::Held { before: 0 });
        assert_eq!(lease().await, made, "the claim is not written again");
    }
}
