//! Serves one cluster: connects, makes sure that it is the right one, and runs the controller until the end or
//! until the cluster can't be served; then waits, and begins again.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use osm_api::Reason;
use osm_api::rbac::ClusterKind;
use tokio::sync::watch;
use tokio::time::Instant;

use super::registration::{Registration, State};
use super::seed::Seed;
use super::status;
use crate::bounds::{self, Bounds};
use crate::client::Observe;
use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::connection_role::ConnectionRole;
use crate::controller::Controller;
use crate::error::{brief, is_code};
use crate::readiness::{NOT_YET, RIGHTS, Readiness};
use crate::scope::Scope;
use crate::startup_check::UNCHECKED;
use crate::watch::GATE;
use crate::{foreign_cluster, rights, settings, upstream_osm};

/// Pauses between two attempts; they grow with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The same for a cluster that answers with more than can be listed in time: each attempt takes processor time.
const LONGEST_PAUSE_OF_LARGE: Duration = bounds::LONGEST_PAUSE;

/// A cluster of which nothing is listed within this time is given up, as one none of whose watches works: what is
/// kept of it is freed, and one request after the other finds out whether it is back.
const TIME_TO_LIST: Duration = Duration::from_secs(60);

/// Time of the first request, which opens the connection.
const TIME_TO_OPEN: Duration = Duration::from_secs(10);

/// How often, and after which pause, it is looked whether the watch shows what another service has written.
const LOOKS: u32 = 100;
const PAUSE_OF_LOOKS: Duration = Duration::from_millis(50);

/// What a task is given.
pub struct Serving {
    pub registration: Registration,
    pub scope: Scope,
    pub settings: settings::Receiver,
    pub state: watch::Sender<State>,
}

/// Serves until the end of the scope.
pub async fn serve<C: Controller>(seed: &Seed<C>, serving: Serving) {
    let end = serving.scope.shutdown.clone();
    let (environment, mut failures) = (seed.cluster.process.environment.clone(), 0);
    let mut is_away = false;
    loop {
        let began = Instant::now();
        let attempt = AssertUnwindSafe(Box::pin(attempt(seed, &serving, is_away))).catch_unwind();
        let why = attempt.await.unwrap_or_else(|_| Some(restarting()));
        let Some(why) = why.filter(|_| !end.is_cancelled()) else {
            return;
        };
        is_away = why.reason == Reason::Unreachable;
        let is_new = serving.state.send_if_modified(|state| {
            let differs = *state != why;
            *state = why.clone();
            differs
        });
        if is_new {
            tracing::warn!(reason = %why.reason, "not served: {}", why.message);
        }
        // It had listed everything.
        if began.elapsed() > TIME_TO_LIST + LONGEST_PAUSE {
            failures = 0;
        }
        failures += 1;
        let longest = match why.reason {
            Reason::Slow | Reason::TooLarge => LONGEST_PAUSE_OF_LARGE,
            _ => LONGEST_PAUSE,
        };
        let pause = tokio::time::sleep(environment.delay(failures, FIRST_PAUSE, longest));
        if end.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Serves as long as that is possible, and returns why it is not; `None` at the end of the scope.
async fn attempt<C: Controller>(seed: &Seed<C>, serving: &Serving, is_away: bool) -> Option<State> {
    let bounds = Bounds::new(serving.settings.clone(), &seed.large);
    // In a box, which goes before the cluster is served.
    let connected = Box::pin(connect(seed, &serving.registration, &bounds, is_away));
    let worker = match serving.scope.shutdown.run_until_cancelled(connected).await? {
        Ok(worker) => worker,
        Err(state) => return Some(state),
    };
    let installation = &serving.registration.installation;
    // It ends with the scope, or when the cluster is given up.
    let scope = serving.scope.part();
    rights::spawn(&scope, &worker, installation);
    let mut cluster = Cluster::new(
        scope.clone(),
        installation.clone(),
        [seed.cluster.management.clone(), worker],
        serving.settings.clone(),
        seed.cluster.replicas.of_whole(&installation.namespace),
    );
    cluster.go_leases.clone_from(&seed.cluster.go_leases);
    let _ends = scope.shutdown.clone().drop_guard();
    let served = seed.controller.serve(cluster);
    tokio::pin!(served);
    tokio::select! {
        biased;
        why = watched(&scope, &bounds, &serving.state) => {
            scope.shutdown.cancel();
            // What runs is finished, within the time limit of a reconcile.
            served.await;
            Some(why)
        }
        () = &mut served => Some(state_of(&scope.gates, &bounds).unwrap_or_else(restarting)),
    }
}

/// The connection to the cluster of a WorkerCluster.
async fn connect<C: Controller>(
    seed: &Seed<C>,
    registration: &Registration,
    bounds: &Bounds,
    is_away: bool,
) -> Result<Connection, State> {
    let process = &seed.cluster.process;
    let (config, transports) = (seed.connect)(registration.kubeconfig.clone())
        .await
        .map_err(|problem| State::new(Reason::KubeconfigInvalid, format!("{problem:#}")))?;
    let role = ConnectionRole::Of(ClusterKind::Worker);
    let observe = Observe::new(process, role).within(bounds.clone());
    let worker = Connection::new(process.service, observe, config, transports);
    let uid = open(seed, &worker, is_away).await?;
    is_the_same(seed, registration, &uid).await?;
    Ok(worker)
}

/// Opens the connection with its first request, and returns the uid of the cluster.
async fn open<C>(seed: &Seed<C>, worker: &Connection, is_away: bool) -> Result<String, State> {
    let _again = if is_away {
        seed.opening_again.acquire().await.ok()
    } else {
        None
    };
    let _permit = seed.opening.acquire().await;
    match tokio::time::timeout(TIME_TO_OPEN, worker.uid()).await {
        Ok(uid) => uid.map_err(|error| unreachable(&error)),
        Err(_) => Err(away(&format!("it did not answer within {TIME_TO_OPEN:?}"))),
    }
}

fn restarting() -> State {
    State::new(Reason::Restarting, "it ended, and begins again")
}

fn unreachable(error: &kube::Error) -> State {
    const ADVICE: &str = "write a new kubeconfig with `osmctl kubeconfigs`";
    let text = brief(error);
    if is_code(error, 401) {
        State::new(
            Reason::Unauthorized,
            format!("the API server refuses the token: {text}; {ADVICE}"),
        )
    } else if is_code(error, 403) {
        State::new(
            Reason::PermissionsMissing,
            format!("{text}; install this version's chart with topology=worker there"),
        )
    } else {
        away(&text)
    }
}

fn away(why: &str) -> State {
    let advice = "check that API server and the network; it is tried again within a minute";
    State::new(Reason::Unreachable, format!("{why}; {advice}"))
}

/// Whether the kubeconfig leads to the cluster that this WorkerCluster has always meant, and no older one means
/// it as well.
async fn is_the_same<C>(seed: &Seed<C>, registration: &Registration, uid: &str) -> Result<(), State> {
    let namespace = &registration.installation.namespace;
    let mut refused = None;
    for _ in 0..LOOKS {
        let Some(view) = seed.view(namespace).filter(|view| view.uid == registration.uid) else {
            return Err(State::new(Reason::Connecting, "the WorkerCluster has changed"));
        };
        match view.cluster_uid.as_deref() {
            Some(known) if known != uid => {
                return Err(State::new(
                    Reason::ClusterChanged,
                    format!(
                        "the kubeconfig leads to the cluster with the uid {uid}, and this WorkerCluster is of {known}; write the \
                         kubeconfig of that one, or delete the WorkerCluster and create it again"
                    ),
                ));
            }
            Some(_) => return seed.duplicate(&view, uid).map_or(Ok(()), Err),
            None => {}
        }
        if refused.as_ref() != Some(&view.resource_version) {
            match status::pin(&seed.api(namespace), &view, uid).await {
                Ok(pinned) => {
                    seed.saw(pinned);
                    continue;
                }
                // All services connect at the same time, and another one was first.
                Err(error) if is_code(&error, 409) => refused = Some(view.resource_version.clone()),
                Err(error) => {
                    let message = format!("status.clusterUID can't be written: {}", brief(&error));
                    return Err(State::new(Reason::Connecting, message));
                }
            }
        }
        tokio::time::sleep(PAUSE_OF_LOOKS).await;
    }
    let message = "status.clusterUID can't be written: the WorkerCluster changes all the time";
    Err(State::new(Reason::Connecting, message))
}

/// Reports what the gates of a cluster that is served say, until none of its watches works.
async fn watched(scope: &Scope, bounds: &Bounds, state: &watch::Sender<State>) -> State {
    let (began, mut was_in_step) = (Instant::now(), false);
    let reason = |state: &State| state.reason;
    loop {
        let (closed, changed) = (scope.gates.closed(), bounds.changed());
        let found = state_of(&scope.gates, bounds);
        let before = found.as_ref().map(reason);
        let mut now = found.unwrap_or_else(|| State::new(Reason::Serving, ""));
        if was_in_step && now.reason == Reason::Connecting {
            // A gate that has been open closes when its watch has failed for a minute.
            now.reason = Reason::Unreachable;
        }
        let is_away = scope.gates.are_all_closed(GATE);
        was_in_step |= now.reason == Reason::Serving;
        state.send_if_modified(|state| {
            // Until everything is listed for the first time, what was wrong before is still true.
            let is_news = *state != now && (was_in_step || now.reason != Reason::Connecting);
            if is_news {
                *state = now;
            }
            is_news
        });
        let gives_up = if was_in_step {
            // Each has failed for a minute.
            Instant::now()
        } else {
            began + TIME_TO_LIST
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(gives_up), if is_away => {
                let why = scope.gates.waiting().join("; ");
                let away = away(&format!("no watch works: {why}"));
                return beyond(bounds).unwrap_or(away);
            }
            () = changed => {}
            // A gate that is closed from the start has its reason only later.
            () = scope.gates.until(|now| *now != closed || state_of(&scope.gates, bounds).as_ref().map(reason) != before) => {}
        }
    }
}

/// What the cluster does beyond its bounds.
fn beyond(bounds: &Bounds) -> Option<State> {
    let (reason, message) = bounds.problem()?;
    Some(State::new(reason, message))
}

/// What the closed gates of a cluster mean, and what it does beyond its bounds; `None`: nothing is wrong.
fn state_of(gates: &Readiness, bounds: &Bounds) -> Option<State> {
    let lines = gates.waiting();
    let reasons = [
        ("task ", Reason::Restarting),
        (foreign_cluster::GATE, Reason::ClusterChanged),
        (RIGHTS, Reason::PermissionsMissing),
        (upstream_osm::GATE, Reason::UpstreamOSMRunning),
    ];
    let found = reasons.into_iter().find_map(|(gate, reason)| {
        // A check without an answer has found nothing missing.
        let has_answer = |line: &&String| !line.ends_with(NOT_YET) && !line.contains(UNCHECKED);
        let mut closed = lines.iter().filter(has_answer);
        let line = closed.find(|line| line.starts_with(gate))?;
        Some(State::new(reason, line.clone()))
    });
    let is_watch = |line: &&String| line.starts_with(GATE);
    found.or_else(|| beyond(bounds)).or_else(|| {
        let line = lines.iter().find(is_watch).or(lines.first())?;
        Some(State::new(Reason::Connecting, line.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gravest_of_what_is_known_is_reported() {
        let watch = ("watch of pools", "503");
        let unchecked = ("permissions in the worker cluster", "can't be checked yet: 503");
        let missing = ("permissions in the worker cluster", "missing: get namespaces");
        let other = ("another cluster", "a: it is of b");
        let upstream = ("upstream OSM", "it renews the Lease");
        let unlisted = ("upstream OSM", "the Lease a/b can't be checked yet");
        let task = ("task worker 1", "the task panicked");
        for (closed, slow, expected) in [
            (&[][..], false, None),
            (&[], true, Some(Reason::Slow)),
            (&[watch], false, Some(Reason::Connecting)),
            (
                &[watch, ("permissions", "not yet")],
                false,
                Some(Reason::Connecting),
            ),
            (&[watch, unchecked], false, Some(Reason::Connecting)),
            (&[watch, unchecked], true, Some(Reason::Slow)),
            (&[watch, missing], true, Some(Reason::PermissionsMissing)),
            (&[upstream], true, Some(Reason::UpstreamOSMRunning)),
            (&[watch, unlisted], false, Some(Reason::Connecting)),
            (&[watch, unlisted], true, Some(Reason::Slow)),
            (&[upstream, missing], false, Some(Reason::PermissionsMissing)),
            (&[missing, other], false, Some(Reason::ClusterChanged)),
            (&[other, task], false, Some(Reason::Restarting)),
        ] {
            let (gates, bounds) = (
                Readiness::default(),
                Bounds::new(settings::none(), &bounds::turns()),
            );
            for (gate, why) in closed {
                gates.gate(*gate).close(*why);
            }
            if slow {
                bounds.note(Reason::Slow, "", "late".to_owned());
            }
            let found = state_of(&gates, &bounds).map(|state| state.reason);
            assert_eq!(found, expected, "{closed:?} {slow}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_gate_says_that_was_closed_from_the_start_is_reported() {
        let scope = crate::scope::tests::process();
        let bounds = Bounds::new(settings::none(), &bounds::turns());
        let (state, mut reported) = watch::channel(State::new(Reason::Connecting, ""));
        let gate = scope.gates.gate(upstream_osm::GATE);
        let is_reported = async {
            tokio::task::yield_now().await;
            gate.close("it renews the Lease");
            let is_it = |state: &State| state.reason == Reason::UpstreamOSMRunning;
            reported.wait_for(is_it).await.map(drop)
        };
        tokio::select! {
            biased;
            why = watched(&scope, &bounds, &state) => panic!("{why:?}"),
            said = tokio::time::timeout(Duration::from_secs(1), is_reported) => said.unwrap().unwrap(),
        }
    }
}
