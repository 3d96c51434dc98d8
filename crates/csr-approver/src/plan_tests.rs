use jiff::SignedDuration;
use osm_api::Reason;

use super::*;
use crate::views::{MachineView, Owner};

const NODE: &str = "pool-abc-1";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pool(name: &str) -> PoolRef {
    PoolRef::machine_deployment("kube-system", name, format!("uid-of-{name}"))
}

fn pool_view(name: &str) -> PoolView {
    PoolView {
        account: format!("osm-node-{name}"),
        pool: pool(name),
        edge_node: None,
        created: at(0),
        is_deleting: false,
    }
}

/// An edge pool, changed.
fn edge(change: fn(&mut PoolView)) -> PoolView {
    let mut pool = PoolView {
        edge_node: Some(NODE.to_owned()),
        ..pool_view(NODE)
    };
    change(&mut pool);
    pool
}

fn machine(node: &str) -> MachineView {
    MachineView {
        namespace: "kube-system".to_owned(),
        name: node.to_owned(),
        uid: format!("uid-of-{node}"),
        created: at(80),
        node: NodeName::Known(node.to_owned()),
        is_node_name_reassignable: false,
        owner: Some(Owner {
            name: "set".to_owned(),
            uid: "uid-of-set".to_owned(),
        }),
        is_deleting: false,
        has_node_ref: false,
    }
}

fn of_pool(machine: MachineView, name: Option<&str>) -> NodeNameOwner {
    NodeNameOwner::of_machine(Arc::new(machine), name.map(pool))
}

fn asked(node: &str) -> Result<String, Denial> {
    Ok(node.to_owned())
}

fn request(name: &str, second: i64, asked: Result<String, Denial>) -> Arc<Request> {
    Arc::new(Request::for_test(name, at(second), asked))
}

/// A request of pool `a` for a Machine of that pool that has not joined: every rule is fulfilled.
fn good() -> Gathered {
    name_owners(vec![own()])
}

/// [`good`] with other owners of the node's name.
fn name_owners(name_owners: Vec<NodeNameOwner>) -> Gathered {
    let named = Named {
        name_owners,
        ..Named::default()
    };
    Gathered {
        now: at(100),
        requester: Requester("osm-node-a".to_owned()),
        pool: Some(Arc::new(pool_view("a"))),
        requests: vec![request("csr", 90, asked(NODE))],
        nodes: [(NODE.to_owned(), named)].into(),
    }
}

impl Gathered {
    fn node(&mut self) -> &mut Named {
        self.nodes.get_mut(NODE).unwrap()
    }
}

fn only(gathered: &Gathered) -> Decision {
    let plan = plan(gathered);
    assert_eq!(plan.decided.len(), gathered.requests.len());
    plan.decided[0].decision.clone()
}

/// `Approve`, or the reason.
fn brief(decision: &Decision) -> String {
    match decision {
        Decision::Approve(approval) => {
            let again = if approval.is_again { " again" } else { "" };
            format!(
                "approve{again} {} as {}",
                approval.claim.node, approval.claim.joining_identity
            )
        }
        Decision::ConfirmDenial(_) => "confirm the denial".to_owned(),
        Decision::Deny(denial) => format!("deny {}", denial.reason()),
        Decision::Wait(wait) => format!("wait {}", wait.reason()),
    }
}

const APPROVED: &str = "approve pool-abc-1 as kube-system/pool-abc-1";
const DENIED: &str = "confirm the denial";

/// A Machine of this pool, changed.
fn of(pool: &str, change: fn(&mut MachineView)) -> NodeNameOwner {
    let mut changed = machine(NODE);
    change(&mut changed);
    of_pool(changed, Some(pool))
}

fn own() -> NodeNameOwner {
    of("a", |_| ())
}

fn foreign() -> NodeNameOwner {
    of("b", |_| ())
}

/// The only machine of an edge pool.
fn site() -> NodeNameOwner {
    NodeNameOwner::of_edge_pool(&edge(|_| ()))
}

/// A request of an edge pool, which the watches have shown so.
fn of_edge(change: fn(&mut PoolView)) -> Gathered {
    Gathered {
        pool: Some(Arc::new(edge(|_| ()))),
        ..name_owners(vec![NodeNameOwner::of_edge_pool(&edge(change))])
    }
}

fn with_node(name_owner: NodeNameOwner) -> Gathered {
    let mut gathered = name_owners(vec![name_owner]);
    gathered.node().has_node = true;
    gathered
}

fn assert_decisions<const N: usize>(cases: [(Gathered, &str); N]) {
    for (case, (gathered, expected)) in cases.into_iter().enumerate() {
        assert_eq!(brief(&only(&gathered)), expected, "case {case}");
    }
}

#[test]
fn every_rule_alone_keeps_a_machine_out() {
    let retired = Gathered { pool: None, ..good() };
    let one = |name_owner| name_owners(vec![name_owner]);
    assert_decisions([
        (good(), APPROVED),
        (retired, "wait PoolNotFound"),
        (name_owners(vec![]), "wait MachineNotFound"),
        (name_owners(vec![own(), own()]), "wait MachineNotUnique"),
        (name_owners(vec![own(), foreign()]), "wait MachineNotUnique"),
        (name_owners(vec![own(), site()]), "wait MachineNotUnique"),
        (one(foreign()), DENIED),
        // The cloud may have given its address to a machine of this pool.
        (
            one(of("b", |m| m.is_node_name_reassignable = true)),
            "wait ForeignMachine",
        ),
        (one(of("b", |m| m.is_deleting = true)), "wait MachineDeleting"),
        (one(of_pool(machine(NODE), None)), "wait MachineNotInPool"),
        (one(of("a", |m| m.is_deleting = true)), "wait MachineDeleting"),
        (one(of("a", |m| m.has_node_ref = true)), "wait MachineHasNode"),
        // The request is of second 90. A Machine of the same second may be its own, but not a later one,
        // whose name was guessed.
        (one(of("a", |m| m.created = at(90))), APPROVED),
        (
            one(of("a", |m| m.created = at(91))),
            "wait RequestOlderThanMachine",
        ),
        (one(of("b", |m| m.created = at(91))), DENIED),
        (
            one(of("a", |m| m.node = NodeName::Unverified(NODE.to_owned()))),
            "wait NodeNameUnverified",
        ),
        (with_node(own()), "wait NodeExists"),
        (with_node(foreign()), DENIED),
        // A machine of an edge pool has the name of its pool.
        (of_edge(|_| ()), APPROVED),
        (of_edge(|pool| pool.is_deleting = true), "wait MachineDeleting"),
        (
            of_edge(|pool| pool.created = at(91)),
            "wait RequestOlderThanMachine",
        ),
        (one(site()), DENIED),
    ]);
}

/// The watches have shown the owner of the name; the API server shows this.
#[test]
fn what_a_live_read_shows_decides() {
    let (own, foreign) = (good(), name_owners(vec![foreign()]));
    let confirmed = |gathered: &Gathered, live: Option<NodeNameOwner>| {
        let (Decision::Approve(approval) | Decision::ConfirmDenial(approval)) = only(gathered) else {
            panic!("all rules hold, or all but one");
        };
        match confirm(&gathered.requests[0], &approval, live.as_ref()) {
            Ok(()) => "approve".to_owned(),
            Err(Refusal::Deny(denial)) => format!("deny {}", denial.reason()),
            Err(Refusal::Wait(wait)) => format!("wait {}", wait.reason()),
        }
    };
    for (live, expected) in [
        (Some(of("a", |_| ())), "approve"),
        (None, "wait MachineNotFound"),
        (
            Some(of("a", |m| m.uid = "other".to_owned())),
            "wait MachineNotFound",
        ),
        (
            Some(of("a", |m| m.node = NodeName::Known("other".to_owned()))),
            "wait MachineNotFound",
        ),
        (Some(of("a", |m| m.is_deleting = true)), "wait MachineDeleting"),
        (Some(of("a", |m| m.has_node_ref = true)), "wait MachineHasNode"),
        (Some(of_pool(machine(NODE), None)), "wait MachineNotInPool"),
        (Some(of("b", |_| ())), "deny ForeignMachine"),
    ] {
        for gathered in [&own, &foreign] {
            assert_eq!(confirmed(gathered, live.clone()), expected, "{live:?}");
        }
    }
    for (live, expected) in [
        (edge(|_| ()), "approve"),
        // Of another cloud.
        (edge(|pool| pool.edge_node = None), "wait MachineNotFound"),
        (edge(|pool| pool.is_deleting = true), "wait MachineDeleting"),
    ] {
        let live = Some(NodeNameOwner::of_edge_pool(&live));
        assert_eq!(confirmed(&of_edge(|_| ()), live), expected);
    }
}

#[test]
fn what_a_kubelet_never_sends_is_denied_but_only_to_pools_that_exist() {
    for (denial, reason) in [
        (Denial::Unreadable("x"), Reason::RequestUnreadable),
        (Denial::Subject, Reason::SubjectNotAllowed),
        (Denial::Usages, Reason::UsagesNotAllowed),
    ] {
        let bad = Gathered {
            requests: vec![request("csr", 0, Err(denial))],
            ..good()
        };
        assert_eq!(brief(&only(&bad)), format!("deny {reason}"));
        let retired = Gathered { pool: None, ..bad };
        assert_eq!(brief(&only(&retired)), "wait PoolNotFound");
    }
}

/// Of a request: its name, the second of its creation, and its resourceVersion.
type Created = (&'static str, i64, Option<u64>);

/// Requests for one machine, by requester, as they are kept.
fn asking(requests: &[(Requester, Created)]) -> Vec<Arc<Request>> {
    let request = |(requester, (name, created, order)): &(Requester, Created)| {
        Arc::new(Request {
            order: *order,
            requester: requester.clone(),
            ..Request::for_test(name, at(*created), asked(NODE))
        })
    };
    requests.iter().map(request).collect()
}

/// What becomes of the requests of one requester, by name.
fn outcomes(requester: &Requester, pending: &[Arc<Request>], approved: Vec<Arc<Granted>>) -> Vec<String> {
    let mut requests: Vec<_> = pending
        .iter()
        .filter(|request| request.requester == *requester)
        .cloned()
        .collect();
    requests.sort_by_key(|request| (request.created, request.order));
    let mut gathered = Gathered {
        requester: requester.clone(),
        requests,
        ..good()
    };
    let pending = pending.iter().cloned().map(RequestView::Pending);
    let asked = pending.chain(approved.into_iter().map(RequestView::Approved));
    gathered.node().requests = asked.map(Arc::new).collect();
    let mut outcomes: Vec<String> = plan(&gathered)
        .decided
        .iter()
        .map(|decided| {
            let brief = brief(&decided.decision);
            let brief = brief.split(" pool").next().unwrap_or_default();
            format!("{} {brief}", decided.request.name)
        })
        .collect();
    outcomes.sort_unstable();
    outcomes
}

fn of_a() -> Requester {
    Requester(names::pool_account(&pool("a").id()))
}

/// Someone who sees a request can choose the name of their own request, and send it in the same second.
#[test]
fn the_first_of_several_requests_is_approved_or_none() {
    const FIRST: [&str; 2] = ["0-second wait AlreadyApproved", "first approve"];
    const NONE: [&str; 2] = [
        "0-second wait RequestOrderUnknown",
        "first wait RequestOrderUnknown",
    ];
    for (first, second, expected) in [
        // Another second, or the same one. The numbers are not compared as texts.
        ((90, Some(7)), (91, Some(8)), FIRST),
        ((90, Some(7)), (90, Some(8)), FIRST),
        ((90, Some(9)), (90, Some(10)), FIRST),
        // Numbers are missing.
        ((90, None), (91, None), FIRST),
        ((90, None), (90, None), NONE),
        ((90, Some(7)), (90, None), NONE),
        // Another API server with another clock, and a first request that was updated.
        ((91, Some(7)), (90, Some(8)), NONE),
        ((90, Some(9)), (91, Some(8)), NONE),
    ] {
        let pending = asking(&[
            (of_a(), ("0-second", second.0, second.1)),
            (of_a(), ("first", first.0, first.1)),
        ]);
        let outcomes = outcomes(&of_a(), &pending, Vec::new());
        assert_eq!(outcomes, expected, "{first:?} {second:?}");
    }
}

/// The request of another pool does not compete, and neither does one that is older than the machine.
#[test]
fn the_first_request_counts_if_it_can_be_right() {
    let of_b = Requester(names::pool_account(&pool("b").id()));
    let second = (of_a(), ("second", 90, Some(8)));
    let pending = asking(&[(of_b, ("first", 90, Some(7))), second.clone()]);
    assert_eq!(outcomes(&of_a(), &pending, Vec::new()), ["second approve"]);
    let pending = asking(&[(of_a(), ("first", 79, Some(7))), second]);
    assert_eq!(
        outcomes(&of_a(), &pending, Vec::new()),
        ["first wait RequestOlderThanMachine", "second approve"]
    );
}

/// The claim may have been deleted. `good` has none.
#[test]
fn an_approved_request_counts_without_its_claim() {
    let minutes = |minutes| at(100) - SignedDuration::from_mins(minutes);
    let granted = |uid: &str, created: i64, approved: Timestamp| {
        Arc::new(Granted {
            uid: uid.to_owned(),
            node: NODE.to_owned(),
            created: at(created),
            at: approved,
        })
    };
    let pending = asking(&[(of_a(), ("csr", 95, Some(9)))]);
    let (waits, again) = ("csr wait AlreadyApproved", "csr approve again");
    for (case, (approved, expected)) in [
        (vec![granted("1", 90, at(99))], waits),
        (vec![granted("1", 90, minutes(9))], waits),
        (vec![granted("1", 90, minutes(10))], again),
        // The last one counts.
        (
            vec![granted("1", 90, at(99)), granted("2", 90, minutes(10))],
            waits,
        ),
        // The machine is of second 80, and the first request was for a former one of that name.
        (vec![granted("1", 79, at(99))], "csr approve"),
        (vec![granted("1", 80, at(99))], waits),
        // This request itself.
        (vec![granted("uid-of-csr", 95, at(99))], "csr approve"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(outcomes(&of_a(), &pending, approved), [expected], "case {case}");
    }
    // A request that waits is decided again when the time is over.
    let mut gathered = good();
    let approved = RequestView::Approved(granted("1", 90, at(99)));
    gathered.node().requests.push(Arc::new(approved));
    let until = at(99) + claim::VALIDITY;
    let node = NODE.to_owned();
    assert_eq!(
        only(&gathered),
        Decision::Wait(Wait::AlreadyApproved { node, until })
    );
}

#[test]
fn of_several_owners_of_a_name_the_oldest_keeps_it() {
    let named = |name: &str, created: i64, is_node_name_reassignable: bool| MachineView {
        uid: format!("uid-of-{name}"),
        name: name.to_owned(),
        created: at(created),
        is_node_name_reassignable,
        ..machine(NODE)
    };
    let aged = |name: &str, created, of| of_pool(named(name, created, false), of);
    let on_aws = |name: &str, created, of| of_pool(named(name, created, true), Some(of));
    let own = |created| aged("own", created, Some("a"));
    let other = |created| aged("other", created, Some("b"));
    let site = |created: i64| {
        NodeNameOwner::of_edge_pool(&PoolView {
            created: at(created),
            ..edge(|_| ())
        })
    };
    let (approved, waits) = ("approve pool-abc-1 as kube-system/own", "wait MachineNotUnique");
    for (case, (name_owners, expected)) in [
        (vec![own(80), other(81)], approved),
        (vec![other(81), own(80)], approved),
        (vec![site(81), own(80)], approved),
        (vec![own(80), aged("other", 81, None)], approved),
        (vec![own(80), aged("other", 81, Some("a"))], approved),
        (vec![own(80), other(81), site(81)], approved),
        (vec![own(80), other(79)], waits),
        (vec![own(80), site(79)], waits),
        (vec![own(80), aged("other", 79, None)], waits),
        (vec![own(80), other(80)], waits),
        // The cloud has named one of them. The owners of the other pools have chosen their names.
        (vec![on_aws("own", 80, "a"), other(79), site(78)], approved),
        (vec![on_aws("own", 80, "a"), on_aws("other", 79, "b")], waits),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            brief(&only(&self::name_owners(name_owners))),
            expected,
            "case {case}"
        );
    }
}

#[test]
fn a_flood_is_decided_in_portions_and_what_no_kubelet_sends_comes_last() {
    let mut gathered = good();
    let bad = |number: i64| request(&format!("bad-{number}"), number, Err(Denial::Subject));
    let unknown = |number: i64| request(&format!("unknown-{number}"), number, asked("unknown"));
    let flood = (0..50).map(bad).chain((0..50).map(unknown));
    gathered.requests = flood.chain([request("csr", 90, asked(NODE))]).collect();
    let plan = plan(&gathered);
    assert!(plan.has_more);
    let writes: Vec<(&str, String)> = plan
        .decided
        .iter()
        .filter(|decided| !matches!(decided.decision, Decision::Wait(_)))
        .map(|decided| (decided.request.name.as_str(), brief(&decided.decision)))
        .collect();
    assert_eq!(writes.len(), MAX_DECIDED);
    assert!(writes[0].0 == "csr" && writes[0].1.starts_with("approve"));
    assert_eq!(writes[1].0, "bad-0", "the oldest first");
    assert_eq!(plan.decided.len(), MAX_DECIDED + 50, "and all that wait");
}
