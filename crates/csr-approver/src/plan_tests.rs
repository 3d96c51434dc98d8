use std::collections::BTreeMap;

use jiff::SignedDuration;
use osm_api::Reason;

use super::*;
use crate::views::Owner;

type Gathered = super::Gathered<Known>;

/// What is known of the names of nodes.
#[derive(Clone, Debug, Default)]
struct Known {
    named: BTreeMap<String, Named>,
    asked: BTreeMap<String, AskedFor>,
}

impl Names for Known {
    fn named(&self, node: &str) -> Named {
        self.named.get(node).cloned().unwrap_or_default()
    }

    fn asked(&self, node: &str) -> AskedFor {
        self.asked.get(node).cloned().unwrap_or_default()
    }
}

impl From<Named> for Known {
    fn from(named: Named) -> Self {
        Self {
            named: [(NODE.to_owned(), named)].into(),
            asked: BTreeMap::new(),
        }
    }
}

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

fn edge(name: &str) -> PoolView {
    PoolView {
        edge_node: Some(name.to_owned()),
        ..pool_view(name)
    }
}

fn machine(node: &str) -> MachineView {
    MachineView {
        namespace: "kube-system".to_owned(),
        name: node.to_owned(),
        uid: format!("uid-of-{node}"),
        created: at(80),
        node: NodeName::Known(node.to_owned()),
        may_pass_on_name: false,
        owner: Some(Owner {
            name: "set".to_owned(),
            uid: "uid-of-set".to_owned(),
        }),
        is_deleting: false,
        node_ref: None,
        addresses: Vec::new(),
    }
}

fn of_pool(machine: MachineView, name: Option<&str>) -> Bearer {
    Bearer::Machine {
        machine: Arc::new(machine),
        pool: name.map(pool),
    }
}

fn asked(node: &str) -> Result<Asked, Denial> {
    Ok(Asked {
        node: node.to_owned(),
        names: Vec::new(),
    })
}

fn request(name: &str, second: i64, asked: Result<Asked, Denial>) -> Arc<Request> {
    Arc::new(Request::for_test(name, at(second), asked))
}

/// A request of pool `a` for a Machine of that pool that has not joined: every rule is fulfilled.
fn good() -> Gathered {
    let named = Named {
        bearers: vec![of_pool(machine(NODE), Some("a"))],
        ..Named::default()
    };
    Gathered {
        now: at(100),
        requester: Requester::Pool("osm-node-a".to_owned()),
        pool: Some(Arc::new(pool_view("a"))),
        requests: vec![request("csr", 90, asked(NODE))],
        nodes: named.into(),
    }
}

/// [`good`] with another state of the node's name.
fn with(named: Named) -> Gathered {
    Gathered {
        nodes: named.into(),
        ..good()
    }
}

fn bearers(bearers: Vec<Bearer>) -> Gathered {
    with(Named {
        bearers,
        ..Named::default()
    })
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
                approval.claim.node, approval.claim.joins_as
            )
        }
        Decision::ConfirmDenial(_) => "confirm the denial".to_owned(),
        Decision::ApproveServing => "approve serving".to_owned(),
        Decision::Deny(denial) => format!("deny {}", denial.reason()),
        Decision::Wait(wait) => format!("wait {}", wait.reason()),
    }
}

fn claim(of: &Gathered, request: &str, since: Timestamp) -> Arc<ClaimView> {
    let bearer = &of.nodes.named[NODE].bearers[0];
    let lease = Claim::new(NODE, bearer, &format!("uid-of-{request}")).lease(since, None);
    Arc::new(ClaimView::of(&lease).unwrap())
}

fn claimed(by: &str, since: Timestamp) -> Gathered {
    let mut gathered = good();
    let claim = claim(&gathered, by, since);
    gathered.nodes.named.get_mut(NODE).unwrap().claims.push(claim);
    gathered
}

#[test]
fn every_rule_alone_keeps_a_machine_out() {
    let changed = |change: fn(&mut MachineView)| {
        let mut changed = machine(NODE);
        change(&mut changed);
        bearers(vec![of_pool(changed, Some("a"))])
    };
    let with_node = |bearers| Named {
        bearers,
        has_node: true,
        ..Named::default()
    };
    let own = || of_pool(machine(NODE), Some("a"));
    let foreign = || of_pool(machine(NODE), Some("b"));
    let on_aws = MachineView {
        may_pass_on_name: true,
        ..machine(NODE)
    };
    let deleting = MachineView {
        is_deleting: true,
        ..machine(NODE)
    };
    let cases = [
        (
            "all rules hold",
            good(),
            "approve pool-abc-1 as kube-system/pool-abc-1",
        ),
        (
            "a retired pool",
            Gathered { pool: None, ..good() },
            "wait PoolNotFound",
        ),
        ("no Machine", bearers(vec![]), "wait MachineNotFound"),
        (
            "two Machines",
            bearers(vec![own(), own()]),
            "wait MachineNotUnique",
        ),
        (
            "one of them of another pool",
            bearers(vec![own(), foreign()]),
            "wait MachineNotUnique",
        ),
        (
            "a Machine and an edge pool",
            bearers(vec![own(), Bearer::EdgePool(Arc::new(edge(NODE)))]),
            "wait MachineNotUnique",
        ),
        (
            "a Machine of another pool",
            bearers(vec![foreign()]),
            "confirm the denial",
        ),
        (
            "a Machine of another pool, whose address the cloud may have given to this one",
            bearers(vec![of_pool(on_aws, Some("b"))]),
            "wait ForeignMachine",
        ),
        (
            "which is being deleted",
            bearers(vec![of_pool(deleting, Some("b"))]),
            "wait MachineDeleting",
        ),
        (
            "a Machine of no pool",
            bearers(vec![of_pool(machine(NODE), None)]),
            "wait MachineNotInPool",
        ),
        (
            "a deleting Machine",
            changed(|m| m.is_deleting = true),
            "wait MachineDeleting",
        ),
        (
            "a Machine with a Node",
            changed(|m| m.node_ref = Some("other".to_owned())),
            "wait MachineHasNode",
        ),
        (
            "a Machine of the same second",
            changed(|m| m.created = at(90)),
            "approve pool-abc-1 as kube-system/pool-abc-1",
        ),
        (
            "a Machine that is younger than the request, whose name was guessed",
            changed(|m| m.created = at(91)),
            "wait RequestOlderThanMachine",
        ),
        (
            "a younger Machine of another pool",
            bearers(vec![of_pool(
                MachineView {
                    created: at(91),
                    ..machine(NODE)
                },
                Some("b"),
            )]),
            "confirm the denial",
        ),
        (
            "a cloud without a proof",
            changed(|m| m.node = NodeName::Unverified(NODE.to_owned())),
            "wait NodeNameUnverified",
        ),
        (
            "a Node of that name",
            with(with_node(vec![own()])),
            "wait NodeExists",
        ),
        (
            "a Node of another pool's Machine",
            with(with_node(vec![foreign()])),
            "confirm the denial",
        ),
        (
            "another request was approved",
            claimed("other", at(95)),
            "wait AlreadyApproved",
        ),
    ];
    for (what, gathered, expected) in cases {
        assert_eq!(brief(&only(&gathered)), expected, "{what}");
    }
}

/// The watches have shown a Machine of one of the two pools; the API server shows this.
#[test]
fn what_a_live_read_shows_decides() {
    let (own, foreign) = (good(), bearers(vec![of_pool(machine(NODE), Some("b"))]));
    let (Decision::Approve(approval), Decision::ConfirmDenial(denial)) = (only(&own), only(&foreign)) else {
        panic!("all rules hold, or all but one");
    };
    let live = |change: fn(&mut MachineView)| {
        let mut live = machine(NODE);
        change(&mut live);
        Some(of_pool(live, Some("a")))
    };
    for (what, live, expected) in [
        ("a Machine of its pool that has not joined", live(|_| ()), None),
        ("it is gone", None, Some("wait MachineNotFound")),
        (
            "another Machine has its name",
            live(|m| m.uid = "other".to_owned()),
            Some("wait MachineNotFound"),
        ),
        (
            "another address",
            live(|m| m.node = NodeName::Known("other".to_owned())),
            Some("wait MachineNotFound"),
        ),
        (
            "it is being deleted",
            live(|m| m.is_deleting = true),
            Some("wait MachineDeleting"),
        ),
        (
            "it has joined",
            live(|m| m.node_ref = Some(NODE.to_owned())),
            Some("wait MachineHasNode"),
        ),
        (
            "its pool is gone",
            Some(of_pool(machine(NODE), None)),
            Some("wait MachineNotInPool"),
        ),
        (
            "it is another pool's",
            Some(of_pool(machine(NODE), Some("b"))),
            Some("deny ForeignMachine"),
        ),
    ] {
        for (gathered, approval) in [(&own, &approval), (&foreign, &denial)] {
            let refusal = confirm(&gathered.requests[0], approval, live.as_ref()).err();
            let refusal = refusal.map(|refusal| match refusal {
                Refusal::Deny(denial) => format!("deny {}", denial.reason()),
                Refusal::Wait(wait) => format!("wait {}", wait.reason()),
            });
            assert_eq!(refusal.as_deref(), expected, "{what}");
        }
    }
}

#[test]
fn an_edge_pool_is_read_live_too() {
    let gathered = Gathered {
        pool: Some(Arc::new(edge(NODE))),
        ..bearers(vec![Bearer::EdgePool(Arc::new(edge(NODE)))])
    };
    let Decision::Approve(approval) = only(&gathered) else {
        panic!("all rules hold");
    };
    let confirmed = |live: PoolView| {
        let live = Bearer::EdgePool(Arc::new(live));
        confirm(&gathered.requests[0], &approval, Some(&live))
    };
    assert_eq!(confirmed(edge(NODE)), Ok(()));
    let other_cloud = PoolView {
        edge_node: None,
        ..edge(NODE)
    };
    let deleting = PoolView {
        is_deleting: true,
        ..edge(NODE)
    };
    for (live, expected) in [
        (other_cloud, Wait::MachineNotFound(NODE.to_owned())),
        (deleting, Wait::MachineDeleting(NODE.to_owned())),
    ] {
        assert_eq!(confirmed(live), Err(Refusal::Wait(expected)));
    }
}

#[test]
fn an_approval_that_was_interrupted_goes_on_and_one_that_came_to_nothing_is_replaced() {
    let minutes = |minutes| at(100) - SignedDuration::from_mins(minutes);
    for (by, since, approved) in [
        ("csr", minutes(0), true),
        ("csr", minutes(60), true),
        ("other", minutes(9), false),
        ("other", minutes(10), true),
    ] {
        let decision = only(&claimed(by, since));
        assert_eq!(matches!(decision, Decision::Approve(_)), approved, "{by} {since}");
    }
    // A claim of a former Machine of that name is another one.
    let mut gathered = claimed("other", at(99));
    gathered.nodes.named.get_mut(NODE).unwrap().bearers = vec![of_pool(
        MachineView {
            uid: "later".to_owned(),
            ..machine(NODE)
        },
        Some("a"),
    )];
    assert!(matches!(only(&gathered), Decision::Approve(_)));
}

#[test]
fn what_a_kubelet_never_sends_is_denied_but_only_to_pools_that_exist() {
    for (denial, reason) in [
        (Denial::Unreadable("x"), Reason::RequestUnreadable),
        (Denial::Subject("x"), Reason::SubjectNotAllowed),
        (Denial::Usages("x"), Reason::UsagesNotAllowed),
    ] {
        let bad = Gathered {
            requests: vec![request("csr", 0, Err(denial))],
            ..good()
        };
        assert_eq!(brief(&only(&bad)), format!("deny {reason}"));
        let retired = Gathered {
            pool: None,
            ..bad.clone()
        };
        assert_eq!(brief(&only(&retired)), "wait PoolNotFound");
        let any = Gathered {
            requester: Requester::AnyPool(String::new()),
            pool: None,
            ..bad
        };
        assert_eq!(brief(&only(&any)), format!("deny {reason}"));
    }
}

#[test]
fn the_identity_of_all_pools_joins_as_a_machine_of_any_pool_by_the_same_rules() {
    let any = |gathered: Gathered| Gathered {
        requester: Requester::AnyPool(String::new()),
        pool: None,
        ..gathered
    };
    let own = || of_pool(machine(NODE), Some("b"));
    let decided = plan(&any(bearers(vec![own()]))).decided;
    assert_eq!(
        brief(&decided[0].decision),
        "approve pool-abc-1 as kube-system/pool-abc-1"
    );
    assert_eq!(
        decided[0].pool,
        Some(pool("b")),
        "Events are about the Machine's pool"
    );
    let exists = Named {
        bearers: vec![own()],
        has_node: true,
        ..Named::default()
    };
    for (gathered, expected) in [
        (with(exists), "wait NodeExists"),
        (
            bearers(vec![of_pool(machine(NODE), None)]),
            "wait MachineNotInPool",
        ),
        (bearers(vec![]), "wait MachineNotFound"),
        (bearers(vec![own(), own()]), "wait MachineNotUnique"),
        (claimed("other", at(99)), "wait AlreadyApproved"),
        (
            bearers(vec![Bearer::EdgePool(Arc::new(edge(NODE)))]),
            "approve pool-abc-1 as kube-system/pool-abc-1",
        ),
    ] {
        assert_eq!(brief(&only(&any(gathered))), expected);
    }
}

#[test]
fn a_machine_of_an_edge_pool_joins_under_the_name_of_its_pool() {
    let asking = |name: &str, bearer: PoolView, has_node: bool| {
        let named = Named {
            bearers: vec![Bearer::EdgePool(Arc::new(bearer))],
            has_node,
            ..Named::default()
        };
        Gathered {
            pool: Some(Arc::new(edge("site"))),
            requests: vec![request("csr", 0, asked(name))],
            nodes: Known {
                named: [("site".to_owned(), named)].into(),
                ..Known::default()
            },
            ..good()
        }
    };
    let deleting = PoolView {
        is_deleting: true,
        ..edge("site")
    };
    let younger = PoolView {
        created: at(1),
        ..edge("site")
    };
    for (gathered, expected) in [
        (
            asking("site", edge("site"), false),
            "approve site as kube-system/site",
        ),
        (asking("site", edge("site"), true), "wait NodeExists"),
        (asking("site-2", edge("site"), false), "wait MachineNotFound"),
        (asking("site", deleting, false), "wait MachineDeleting"),
        (asking("site", younger, false), "wait RequestOlderThanMachine"),
        (
            Gathered {
                pool: Some(Arc::new(edge("other"))),
                ..asking("site", edge("site"), false)
            },
            "confirm the denial",
        ),
    ] {
        assert_eq!(brief(&only(&gathered)), expected);
    }
}

#[test]
fn of_several_requests_for_one_node_the_oldest_is_approved() {
    let gathered = Gathered {
        requests: vec![
            request("parked", 79, asked(NODE)),
            request("first", 81, asked(NODE)),
            request("second", 82, asked(NODE)),
        ],
        ..good()
    };
    let decided = plan(&gathered).decided;
    let of = |name: &str| {
        let found = decided.iter().find(|decided| decided.request.name == name);
        brief(&found.unwrap().decision)
    };
    assert_eq!(of("parked"), "wait RequestOlderThanMachine");
    assert!(of("first").starts_with("approve"));
    assert_eq!(of("second"), "wait AlreadyApproved");
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
        ..bearers(vec![of_pool(machine(NODE), Some("a"))])
    };
    let asked = AskedFor {
        pending: pending.to_vec(),
        approved,
    };
    gathered.nodes.asked.insert(NODE.to_owned(), asked);
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
    Requester::Pool(names::pool_account(&pool("a").id()))
}

/// Whoever sees a request can choose the name of its own, and send it in the same second.
#[test]
fn the_first_of_several_requests_is_approved_or_none() {
    const FIRST: [&str; 2] = ["0-second wait AlreadyApproved", "first approve"];
    const NONE: [&str; 2] = [
        "0-second wait RequestOrderUnknown",
        "first wait RequestOrderUnknown",
    ];
    for (what, first, second, expected) in [
        ("another second", (90, Some(7)), (91, Some(8)), FIRST),
        ("the same second", (90, Some(7)), (90, Some(8)), FIRST),
        ("numbers, not texts", (90, Some(9)), (90, Some(10)), FIRST),
        ("another second, and no numbers", (90, None), (91, None), FIRST),
        ("the same second, and no numbers", (90, None), (90, None), NONE),
        ("the same second, and one number", (90, Some(7)), (90, None), NONE),
        (
            "the clock of another API server",
            (91, Some(7)),
            (90, Some(8)),
            NONE,
        ),
        ("the first one was updated", (90, Some(9)), (91, Some(8)), NONE),
    ] {
        let first = (of_a(), ("first", first.0, first.1));
        let second = (of_a(), ("0-second", second.0, second.1));
        let pending = asking(&[second, first]);
        assert_eq!(outcomes(&of_a(), &pending, Vec::new()), expected, "{what}");
    }
}

/// A pool may have tokens of two accounts, and each of them is another requester.
#[test]
fn the_first_request_counts_whoever_sent_it_if_it_can_be_right() {
    let any = || Requester::AnyPool("JTI=1".to_owned());
    let pending = asking(&[(any(), ("first", 90, Some(7))), (of_a(), ("second", 90, Some(8)))]);
    assert_eq!(outcomes(&any(), &pending, Vec::new()), ["first approve"]);
    assert_eq!(
        outcomes(&of_a(), &pending, Vec::new()),
        ["second wait RequestOrderUnknown"]
    );

    let of_b = Requester::Pool(names::pool_account(&pool("b").id()));
    for (what, other) in [
        ("of another pool", (of_b, ("first", 90, Some(7)))),
        ("older than the machine", (any(), ("first", 79, Some(7)))),
        (
            "of a node",
            (Requester::Node(NODE.to_owned()), ("first", 90, Some(7))),
        ),
    ] {
        let pending = asking(&[other, (of_a(), ("second", 90, Some(8)))]);
        assert_eq!(
            outcomes(&of_a(), &pending, Vec::new()),
            ["second approve"],
            "{what}"
        );
    }
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
    for (what, approved, expected) in [
        (
            "just now",
            vec![granted("1", 90, at(99))],
            "csr wait AlreadyApproved",
        ),
        (
            "nine minutes ago",
            vec![granted("1", 90, minutes(9))],
            "csr wait AlreadyApproved",
        ),
        (
            "ten minutes ago",
            vec![granted("1", 90, minutes(10))],
            "csr approve again",
        ),
        (
            "the last one counts",
            vec![granted("1", 90, at(99)), granted("2", 90, minutes(10))],
            "csr wait AlreadyApproved",
        ),
        (
            "for a former machine of that name",
            vec![granted("1", 79, at(99))],
            "csr approve",
        ),
        (
            "in the second of the machine",
            vec![granted("1", 80, at(99))],
            "csr wait AlreadyApproved",
        ),
        ("this one", vec![granted("uid-of-csr", 95, at(99))], "csr approve"),
    ] {
        assert_eq!(outcomes(&of_a(), &pending, approved), [expected], "{what}");
    }
    // Whoever waits is decided again when the time is over.
    let mut gathered = good();
    let approved = vec![granted("1", 90, at(99))];
    let asked = AskedFor {
        approved,
        ..AskedFor::default()
    };
    gathered.nodes.asked.insert(NODE.to_owned(), asked);
    let until = at(99) + claim::VALIDITY;
    let node = NODE.to_owned();
    assert_eq!(
        only(&gathered),
        Decision::Wait(Wait::AlreadyApproved { node, until })
    );
}

#[test]
fn of_several_bearers_of_a_name_the_oldest_keeps_it() {
    let aged = |name: &str, created: i64, of: Option<&str>| {
        of_pool(
            MachineView {
                uid: format!("uid-of-{name}"),
                name: name.to_owned(),
                created: at(created),
                ..machine(NODE)
            },
            of,
        )
    };
    let on_aws = |name: &str, created: i64, of: &str| {
        let machine = MachineView {
            uid: format!("uid-of-{name}"),
            name: name.to_owned(),
            created: at(created),
            may_pass_on_name: true,
            ..machine(NODE)
        };
        of_pool(machine, Some(of))
    };
    let site = |created: i64| {
        let edge = PoolView {
            created: at(created),
            ..edge(NODE)
        };
        Bearer::EdgePool(Arc::new(edge))
    };
    let any = |gathered: Gathered| Gathered {
        requester: Requester::AnyPool(String::new()),
        pool: None,
        ..gathered
    };
    let (approved, waits) = ("approve pool-abc-1 as kube-system/own", "wait MachineNotUnique");
    for (what, bearers, expected, by_any) in [
        (
            "a younger Machine of another pool",
            vec![aged("own", 80, Some("a")), aged("other", 81, Some("b"))],
            approved,
            approved,
        ),
        (
            "in another order",
            vec![aged("other", 81, Some("b")), aged("own", 80, Some("a"))],
            approved,
            approved,
        ),
        (
            "a younger edge pool",
            vec![site(81), aged("own", 80, Some("a"))],
            approved,
            approved,
        ),
        (
            "a younger Machine of no pool",
            vec![aged("own", 80, Some("a")), aged("other", 81, None)],
            approved,
            approved,
        ),
        (
            "a younger Machine of the same pool",
            vec![aged("own", 80, Some("a")), aged("other", 81, Some("a"))],
            approved,
            approved,
        ),
        (
            "two younger ones of one second",
            vec![aged("own", 80, Some("a")), aged("other", 81, Some("b")), site(81)],
            approved,
            approved,
        ),
        (
            "an older Machine of another pool",
            vec![aged("own", 80, Some("a")), aged("other", 79, Some("b"))],
            waits,
            "approve pool-abc-1 as kube-system/other",
        ),
        (
            "an older edge pool",
            vec![aged("own", 80, Some("a")), site(79)],
            waits,
            "approve pool-abc-1 as kube-system/pool-abc-1",
        ),
        (
            "an older Machine of no pool",
            vec![aged("own", 80, Some("a")), aged("other", 79, None)],
            waits,
            "wait MachineNotInPool",
        ),
        (
            "the same second",
            vec![aged("own", 80, Some("a")), aged("other", 80, Some("b"))],
            waits,
            waits,
        ),
        (
            "a younger one that the cloud has named, where the other has chosen the name",
            vec![on_aws("own", 80, "a"), aged("other", 79, Some("b")), site(78)],
            approved,
            approved,
        ),
        (
            "an older name of the cloud",
            vec![on_aws("own", 80, "a"), on_aws("other", 79, "b")],
            waits,
            "approve pool-abc-1 as kube-system/other",
        ),
    ] {
        let gathered = self::bearers(bearers);
        assert_eq!(brief(&only(&gathered)), expected, "{what}");
        assert_eq!(brief(&only(&any(gathered))), by_any, "{what}");
    }
}

#[test]
fn a_flood_is_decided_in_portions_and_what_no_kubelet_sends_comes_last() {
    let mut gathered = good();
    let bad = |number: i64| request(&format!("bad-{number}"), number, Err(Denial::Subject("x")));
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

/// What is not written now is not even looked up.
#[test]
fn a_portion_ends_with_its_last_write() {
    struct Counted(std::cell::Cell<usize>, Known);
    impl Names for Counted {
        fn named(&self, node: &str) -> Named {
            self.0.set(self.0.get() + 1);
            self.1.named(node)
        }

        fn asked(&self, node: &str) -> AskedFor {
            self.1.asked(node)
        }
    }
    let foreign = bearers(vec![of_pool(machine(NODE), Some("b"))]);
    let gathered = super::Gathered {
        now: foreign.now,
        requester: foreign.requester,
        pool: foreign.pool,
        requests: (0..1_000)
            .map(|number| request(&format!("{number}"), 90, asked(NODE)))
            .collect(),
        nodes: Counted(std::cell::Cell::new(0), foreign.nodes),
    };
    let plan = plan(&gathered);
    assert!(plan.has_more);
    assert_eq!(
        (plan.decided.len(), gathered.nodes.0.get()),
        (MAX_DECIDED, MAX_DECIDED)
    );
}

#[test]
fn a_serving_certificate_is_for_recorded_addresses_of_the_only_machine_of_the_node() {
    let ip = |ip: &str| SubjectName::Ip(ip.parse().unwrap());
    let dns = |name: &str| SubjectName::Dns(name.to_owned());
    let joined = || {
        Arc::new(MachineView {
            node_ref: Some(NODE.to_owned()),
            addresses: vec![ip("10.0.0.1"), dns("a.example.com")],
            ..machine(NODE)
        })
    };
    let asking = |names: Vec<SubjectName>, machines: Vec<Arc<MachineView>>| {
        let asked = Asked {
            node: NODE.to_owned(),
            names,
        };
        let named = Named {
            machines,
            has_node: true,
            ..Named::default()
        };
        Gathered {
            requester: Requester::Node(NODE.to_owned()),
            pool: None,
            requests: vec![request("csr", 0, Ok(asked))],
            ..with(named)
        }
    };
    for (gathered, expected) in [
        (asking(vec![ip("10.0.0.1")], vec![joined()]), "approve serving"),
        (
            asking(
                vec![dns(NODE), dns("a.example.com"), ip("10.0.0.1")],
                vec![joined()],
            ),
            "approve serving",
        ),
        (
            asking(vec![ip("10.0.0.1"), ip("10.0.0.2")], vec![joined()]),
            "wait AddressNotRecorded",
        ),
        (
            asking(vec![dns("b.example.com")], vec![joined()]),
            "wait AddressNotRecorded",
        ),
        (asking(vec![ip("10.0.0.1")], vec![]), "wait MachineNotFound"),
        (
            asking(vec![ip("10.0.0.1")], vec![joined(), joined()]),
            "wait MachineNotUnique",
        ),
    ] {
        assert_eq!(brief(&only(&gathered)), expected);
    }
}
