//! User clusters whose API servers do what they like harm no other one.

use anyhow::Result;
use futures::FutureExt as _;
use futures::future::{join_all, select_ok, try_join_all};
use osm_api::Reason;
use osm_api::rbac::Service;
use osm_sim::hostile_server::{HostileServer, Kind};
use osm_testkit::{installation, procfs};
use serde_json::json;

use crate::fleet::{Fleet, IN_WORKER, SERVICES, pool, release, user_cluster};

/// Memory that they may cost a service together.
const MORE_BYTES: u64 = 64 << 20;

/// What each is called, and what the message says. How [`Kind::Events`] is called depends on the machine: one that is
/// busy takes fewer events than a cluster may send.
const KINDS: [(Kind, Reason, &str); 9] = [
    (Kind::Endless, Reason::TooLarge, "the answer has more than "),
    (Kind::LongLine, Reason::TooLarge, "an event has more than "),
    (
        Kind::Dripping,
        Reason::Slow,
        "; check the load of that API server",
    ),
    (
        Kind::Events,
        Reason::TooManyEvents,
        "of machinedeployments at least, so the newest state is known late; find out",
    ),
    (
        Kind::Many,
        Reason::TooLarge,
        "objects of this kind and ignores the others; delete objects",
    ),
    (
        Kind::Failing,
        Reason::Unreachable,
        "as it likes (500); check that API server",
    ),
    (
        Kind::Refusing,
        Reason::Unauthorized,
        "refuses the token: as it likes (401); write a new kubeconfig",
    ),
    (
        Kind::Silent,
        Reason::Unreachable,
        "within 10s; check that API server and the network",
    ),
    (
        Kind::Gone,
        Reason::Unreachable,
        "Connection refused (os error 111); check that API server and the network",
    ),
];

/// Those that read what this kind is about.
fn concerned(kind: Kind) -> &'static [Service] {
    match kind {
        Kind::Events | Kind::Many => &[Service::OscController, Service::CsrApprover],
        _ => &SERVICES,
    }
}

fn namespace(kind: Kind) -> String {
    format!("cluster-{kind:?}").to_lowercase()
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_misbehave_are_named_and_no_other_notices() -> Result<()> {
    let (fleet, healthy) = tokio::try_join!(Fleet::start(), user_cluster())?;
    let document = "defaultProfiles: {enabled: false}\nlimits: {machineDeployments: 200}";
    installation::apply(&fleet.seed, &[installation::settings(&release(), document)]).await?;
    let spec = json!({"workerNamespace": IN_WORKER});
    fleet.register("healthy", &healthy, spec.clone()).await?;
    pool(&healthy, "p").await?;
    fleet.is_served("healthy").await?;
    fleet.boots("healthy", &healthy, "p").await?;
    let mut before = Vec::new();
    for service in SERVICES {
        let process = fleet.installed.process(service)?;
        procfs::reset_peak(process.pid())?;
        before.push(process.usage()?.rss);
    }

    let servers = try_join_all(KINDS.map(|(kind, ..)| HostileServer::start(kind))).await?;
    for ((kind, ..), server) in KINDS.iter().zip(&servers) {
        fleet
            .register_by(&namespace(*kind), &server.kubeconfig(), spec.clone())
            .await?;
    }
    let fleet = &fleet;
    let each = KINDS
        .iter()
        .flat_map(|case| concerned(case.0).iter().map(move |service| (case, *service)));
    let each = each.map(|((kind, reason, expected), service)| async move {
        let namespace = namespace(*kind);
        let known = (*reason, *expected);
        let also = match kind {
            Kind::Events => (Reason::Serving, ""),
            Kind::Many => (Reason::Slow, "of machinedeployments has not ended within 60s"),
            _ => known,
        };
        let said = [known, also]
            .map(|(reason, text)| fleet.says_that(&namespace, service, reason, text).boxed_local());
        let problem = select_ok(said).await.err()?;
        Some(format!("{kind:?}, {service:?}: {}", problem.root_cause()))
    });
    let meanwhile = async {
        pool(&healthy, "q").await?;
        fleet.boots("healthy", &healthy, "q").await.map(drop)
    };
    let (problems, served) = tokio::join!(join_all(each), meanwhile);
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    assert!(problems.is_empty(), "{problems:#?}\n{}", fleet.installed.logs());
    served?;
    for service in SERVICES {
        let (_, metrics) = fleet.installed.get(service, "/metrics").await?;
        let series = metrics
            .lines()
            .filter(|line| line.starts_with("osm_cluster_problem{"));
        let series: Vec<&str> = series.collect();
        let refuses = r#"osm_cluster_problem{cluster="cluster-refusing",reason="Unauthorized"} 1"#;
        assert!(series.contains(&refuses), "{series:?}");
        assert!(!series.iter().any(|line| line.contains("healthy")), "{series:?}");
    }

    pool(&healthy, "r").await?;
    fleet.boots("healthy", &healthy, "r").await?;
    fleet.is_served("healthy").await?;
    for (service, before) in SERVICES.into_iter().zip(before) {
        // It is the same process.
        let usage = fleet.installed.process(service)?.usage()?;
        let mib = |bytes: u64| bytes >> 20;
        eprintln!(
            "{service:?}: {} MiB before, {} after, {} at most",
            mib(before),
            mib(usage.rss),
            mib(usage.peak_rss)
        );
        assert!(usage.rss <= before + MORE_BYTES, "{service:?}: {usage:?}");
    }
    // What has passed is no problem any more.
    for server in &servers {
        server.calm();
    }
    fleet
        .says(&namespace(Kind::Events), Service::OscController, Reason::Serving)
        .await?;
    Ok(())
}
