//! A worker cluster whose API server answers with what no API server should. The services stay within the memory that the chart grants, the
//! management cluster's work goes on, and `/readyz` and a metric name the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use http::Response;
use http::header::LOCATION;
use osm_api::Reason;
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::{Options, check, wait_for};

use crate::fake_server::{Call, FakeServer};
use crate::world::{DEADLINE, World};

/// Those that have a kubeconfig of the worker cluster.
const ATTACKED: [Service; 3] = [
    Service::OscController,
    Service::SecretSyncer,
    Service::CsrApprover,
];

/// The limit of the chart.
pub const MEMORY: u64 = 256 * 1024 * 1024;

/// Of size or time: which of them comes first depends on the machine.
const EXCEEDED: &str = "check that server";

/// Of a watch: nothing was wrong with the list before it.
const BROKEN: &str = "broken for more than a minute";

/// An answer is read for up to 30 seconds, and a page that is too large is asked for three times.
const NOTICED_WITHIN: Duration = Duration::from_secs(180);

/// How the server answers.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// A list that never ends.
    Endless,
    /// One object of a GiB.
    LargeObject,
    /// A list, one byte after the other.
    ByteByByte,
    /// More objects than are kept, in pages as they are asked for.
    ManyObjects,
    /// More objects than are kept, in one page whatever is asked for.
    OneLargePage,
    /// No JSON.
    Garbage,
    /// An error with a message that never ends.
    EndlessError,
    /// A redirect to another server.
    Redirect,
    /// A list without objects, and then a watch with a line that never ends.
    EndlessLine,
    /// Objects that take many times their size once they are decoded.
    DenseObjects,
    /// Objects with large annotations, in pages as they are asked for, without an end.
    LargeMetadata,
}

/// Pages of large metadata: 15 MiB each.
const PAGES: usize = 150;

async fn respond(mut to: Call, answer: Answer) -> Result<()> {
    to.head(match answer {
        Answer::EndlessError => Response::builder().status(500),
        Answer::Redirect => Response::builder().status(302).header(LOCATION, "/elsewhere"),
        _ => Response::builder(),
    })
    .await?;
    let list = |token: &str, items: &str| {
        let token = format!(r#"{{"resourceVersion": "1", "continue": "{token}"}}"#);
        format!(r#"{{"kind": "List", "metadata": {token}, "items": [{items}]}}"#)
    };
    let objects = |from: usize, to: usize| {
        let object = |i| {
            format!(
                r#"{{"metadata": {{"name": "n{i}", "namespace": "a", "uid": "u{i}", "resourceVersion": "1"}}}}"#
            )
        };
        (from..to).map(object).collect::<Vec<_>>().join(",")
    };
    let endless = vec![b'x'; 64 * 1024];
    match answer {
        Answer::Endless => {
            to.send(br#"{"kind": "List", "metadata": {"resourceVersion": "1"}, "items": ["#)
                .await?;
            let page = objects(0, 1000) + ",";
            loop {
                to.send(page.as_bytes()).await?;
            }
        }
        Answer::LargeObject => {
            to.send(br#"{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": ""#)
                .await?;
            for _ in 0..16 * 1024 {
                to.send(&endless).await?;
            }
            to.send(br#""}}]}"#).await?;
        }
        Answer::ByteByByte => loop {
            to.send(b" ").await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        },
        Answer::ManyObjects => {
            let (from, limit) = (to.number("continue"), to.number("limit"));
            let page = list(&(from + limit).to_string(), &objects(from, from + limit));
            to.send(page.as_bytes()).await?;
        }
        Answer::LargeMetadata => {
            let (from, text) = (to.number("continue"), "x".repeat(300 * 1024));
            let object = |i: usize| {
                format!(
                    r#"{{"metadata": {{"name": "n{i}", "namespace": "a", "uid": "u{i}", "resourceVersion": "1", "annotations": {{"k8c.io/a": "{text}", "b": "{text}"}}}}}}"#
                )
            };
            let next = from + to.number("limit").min(25);
            let objects: Vec<String> = (from..next).map(object).collect();
            to.send(list(&next.to_string(), &objects.join(",")).as_bytes())
                .await?;
        }
        Answer::OneLargePage => {
            to.send(br#"{"metadata": {"resourceVersion": "1"}, "items": ["#)
                .await?;
            let objects = objects(0, 1000) + ",";
            for _ in 0..1000 {
                to.send(objects.as_bytes()).await?;
            }
            to.send(b"null]}").await?;
        }
        Answer::Garbage => to.send(b"<html></html>").await?,
        Answer::EndlessError => loop {
            to.send(&endless).await?;
        },
        Answer::Redirect => {}
        Answer::EndlessLine if to.is_watch() => loop {
            to.send(&endless).await?;
        },
        Answer::EndlessLine => to.send(list("", "").as_bytes()).await?,
        Answer::DenseObjects => {
            let numbers = "0,".repeat(1024 * 1024);
            let object = |i: usize| {
                format!(
                    r#"{{"metadata": {{"name": "n{i}", "uid": "u{i}", "resourceVersion": "1"}}, "spec": {{"template": [{numbers}0]}}}}"#
                )
            };
            to.send(list("", &[object(0), object(1), object(2)].join(",")).as_bytes())
                .await?;
        }
    }
    Ok(())
}

/// Waits until a service has noticed.
async fn noticed(
    world: &World,
    service: Service,
    answer: Answer,
    told: &str,
    requests: &AtomicUsize,
) -> Result<()> {
    let name = service.name();
    let what = format!("{name} to name the worker cluster, whose answer is {answer:?}");
    wait_for(&what, NOTICED_WITHIN, async || {
        let (_, ready) = world.installed.get(service, "/readyz").await?;
        let (_, metrics) = world.installed.get(service, "/metrics").await?;
        // csr-approver has one cluster, which needs no name.
        let (place, label) = match service {
            Service::CsrApprover => ("", ""),
            _ => ("in the worker cluster", "cluster=\"worker\""),
        };
        let problem = match told {
            BROKEN => BROKEN,
            _ => "not yet",
        };
        let named = |line: &str| line.contains(&format!("{place}: {problem}")) && line.contains(told);
        let counts = |metrics_of: &[&str]| {
            let counted = |line: &str| {
                let is_of = |name: &&str| line.starts_with(&format!("{name}{{{label}"));
                metrics_of.iter().any(is_of) && !line.ends_with(" 0")
            };
            metrics.lines().any(counted)
        };
        let noticed = match answer {
            // Nothing is wrong with these. They are too many.
            Answer::ManyObjects => counts(&["osm_ignored_objects_total"]),
            Answer::LargeMetadata => requests.load(Ordering::SeqCst) >= PAGES,
            _ => counts(&["osm_api_answers_refused_total", "osm_watch_errors_total"]),
        };
        ensure!(noticed && ready.lines().any(named), "{ready}");
        Ok(Some(()))
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

/// Checks that nothing else suffers.
async fn withstood(world: &World, service: Service, answer: Answer) -> Result<()> {
    let name = service.name();
    // The watches of the management cluster go on.
    let documents = if service.reads_settings() {
        &[("more: 1", 0), ("", 1)][..]
    } else {
        &[]
    };
    for (document, valid) in documents {
        world.set_settings(document).await?;
        let line = format!("osm_settings_valid {valid}");
        wait_for(&format!("{name}: {line}"), DEADLINE, async || {
            let (_, metrics) = world.installed.get(service, "/metrics").await?;
            check(metrics.lines().any(|found| found == line))
        })
        .await?;
    }
    let peak = world.installed.process(service)?.usage()?.peak_rss;
    println!("{name}, {answer:?}: at most {} MiB", peak >> 20);
    ensure!(peak < MEMORY, "{name}, {answer:?}: {} MiB", peak >> 20);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_worker_cluster_answers_memory_is_bounded_and_the_other_cluster_is_served() -> Result<()> {
    withstand(&[
        (Answer::Garbage, "is not a list of the Kubernetes API"),
        (Answer::Redirect, "is not a list of the Kubernetes API"),
        (Answer::DenseObjects, BROKEN),
        (Answer::EndlessError, EXCEEDED),
        (Answer::LargeObject, EXCEEDED),
        (Answer::Endless, EXCEEDED),
        (Answer::OneLargePage, EXCEEDED),
        (Answer::ManyObjects, "not yet"),
        (Answer::LargeMetadata, "not yet"),
    ])
    .await
}

/// A test of its own, because it waits most of its time.
#[tokio::test(flavor = "multi_thread")]
async fn slow_answers_end_and_the_other_cluster_is_served() -> Result<()> {
    withstand(&[
        (Answer::EndlessLine, BROKEN),
        (Answer::ByteByByte, "took longer than"),
    ])
    .await
}

/// Starts the services with a worker cluster that gives each of these answers, and checks what they say of it.
async fn withstand(answers: &[(Answer, &str)]) -> Result<()> {
    let mut world = World::start_in_two_without_services(Options::default()).await?;
    for &(answer, told) in answers {
        // Requests that follow a redirect.
        let followed = Arc::new(AtomicUsize::new(0));
        let counter = followed.clone();
        let requests = Arc::new(AtomicUsize::new(0));
        let pages = requests.clone();
        // Events about MachineDeployments that were ignored.
        let ignored = Arc::new(AtomicUsize::new(0));
        let events = ignored.clone();
        let hostile = FakeServer::start(move |call| {
            let text = String::from_utf8_lossy(&call.sent);
            let is_ignored = text.contains(Reason::TooManyMachineDeployments.as_str());
            events.fetch_add(usize::from(is_ignored), Ordering::SeqCst);
            counter.fetch_add(usize::from(call.target.contains("/elsewhere")), Ordering::SeqCst);
            pages.fetch_add(1, Ordering::SeqCst);
            respond(call, answer)
        })
        .await?;
        for service in ATTACKED {
            world
                .installed
                .replace_kubeconfig(service, ClusterKind::Worker, &hostile.kubeconfig())?;
            world.installed.start(service).await?;
        }
        // A watch that is broken is listed again, so that each service says so only at times.
        try_join_all(ATTACKED.map(|service| noticed(&world, service, answer, told, &requests))).await?;
        if let Answer::ManyObjects = answer {
            wait_for("Events about ignored objects", DEADLINE, async || {
                check(ignored.load(Ordering::SeqCst) > 0)
            })
            .await?;
        }
        for service in ATTACKED {
            withstood(&world, service, answer).await?;
            world.installed.kill9(service)?;
        }
        assert!(
            ignored.load(Ordering::SeqCst) <= 20,
            "few of these Events are emitted"
        );
        assert_eq!(followed.load(Ordering::SeqCst), 0, "redirects are not followed");
    }
    Ok(())
}
