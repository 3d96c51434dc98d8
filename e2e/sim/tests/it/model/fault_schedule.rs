//! Decides which requests of a case fail and how, and how long each takes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use osm_sim::memory::{Call, Fault, Network, Passage};
use tokio::sync::watch;

use super::case::{Case, Trouble};

/// Decides each request by its number, so that a case always runs the same way.
pub struct FaultSchedule {
    seed: u64,
    faults: BTreeMap<u32, Trouble>,
    requests: watch::Sender<u32>,
    /// The same of requests for Leases.
    lease_faults: BTreeMap<u32, Trouble>,
    lease_requests: AtomicU32,
    calm: AtomicBool,
    /// Verb and name, or resource, of the request before which its sender is stopped, and for how long.
    stop: Mutex<Option<(&'static str, String, Duration)>>,
    /// Verb and resource of the requests that a policy refuses.
    refused: Mutex<Option<(&'static str, &'static str)>>,
    /// The watch that lags this much; see [`Place::lag`].
    slow_watch: Mutex<Option<(u64, Duration)>>,
}

impl FaultSchedule {
    pub fn new(case: &Case) -> Self {
        Self {
            seed: case.seed,
            faults: case.faults.iter().copied().collect(),
            requests: watch::Sender::new(0),
            lease_faults: case.lease_faults.iter().copied().collect(),
            lease_requests: AtomicU32::new(0),
            calm: AtomicBool::new(false),
            stop: Mutex::default(),
            refused: Mutex::default(),
            slow_watch: Mutex::default(),
        }
    }

    /// Stops the sender of the next request of this verb for this, the name of an object or a resource, right
    /// before it sends the request.
    pub fn stop_before(&self, verb: &'static str, what: &str, time: Duration) {
        *self.stop.lock().unwrap() = Some((verb, what.to_owned(), time));
    }

    /// From now on a policy refuses these requests: verb and resource.
    pub fn refuse(&self, requests: Option<(&'static str, &'static str)>) {
        *self.refused.lock().unwrap() = requests;
    }

    /// From now on the watch of a resource in this pod shows each change so much later.
    pub fn slow_down(&self, pod: &str, resource: &str, lag: Duration) {
        *self.slow_watch.lock().unwrap() = Some((watch_of(number(pod), resource), lag));
    }

    /// From now on nothing goes wrong.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> u32 {
        *self.requests.borrow()
    }

    /// Returns once there were more requests than this.
    pub async fn more_than(&self, requests: u32) {
        // The sender lives as long as `self`, so that this can't fail.
        let _ = self.requests.subscribe().wait_for(|sent| *sent > requests).await;
    }
}

/// A number that looks random, of numbers.
pub fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, part| {
        let mut z = (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// The network as a process of this name has it: each hears of changes in its own time.
pub struct Place {
    schedule: Arc<FaultSchedule>,
    name: u64,
}

impl Place {
    pub fn new(schedule: &Arc<FaultSchedule>, name: &str) -> Self {
        Self {
            schedule: schedule.clone(),
            name: number(name),
        }
    }
}

fn number(name: &str) -> u64 {
    name.bytes()
        .fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

impl Network for Place {
    fn passage(&self, call: &Call) -> Passage {
        self.schedule.passage(call)
    }

    fn lag(&self, resource: &str, version: u64) -> Duration {
        self.schedule.lag(watch_of(self.name, resource), version)
    }
}

fn watch_of(pod: u64, resource: &str) -> u64 {
    mix(&[pod, number(resource)])
}

impl FaultSchedule {
    fn passage(&self, call: &Call) -> Passage {
        let of_leases = call.resource == "leases";
        let (number, faults) = if of_leases {
            (
                self.lease_requests.fetch_add(1, Ordering::SeqCst),
                &self.lease_faults,
            )
        } else {
            let number = self.requests();
            self.requests.send_modify(|sent| *sent += 1);
            (number, &self.faults)
        };
        let random = mix(&[self.seed, u64::from(number), u64::from(of_leases)]);
        let ms = Duration::from_millis;
        let mut passage = Passage {
            there: ms(random % 8),
            back: ms((random >> 8) % 8),
            fault: None,
        };
        if self.is_calm() {
            return passage;
        }
        let is_it = |(verb, what, _): &mut (&str, String, Duration)| {
            call.verb == *verb && (call.name == *what || call.resource == *what)
        };
        if let Some((.., time)) = self.stop.lock().unwrap().take_if(is_it) {
            passage.fault = Some(Fault::StopBefore(time));
            return passage;
        }
        if *self.refused.lock().unwrap() == Some((call.verb, &call.resource)) {
            passage.fault = Some(Fault::Refused(422));
            return passage;
        }
        let Some(trouble) = faults.get(&number) else {
            return passage;
        };
        let is_watch = call.verb == "watch";
        passage.fault = match *trouble {
            Trouble::SlowThere(millis) => {
                passage.there = ms(millis.into());
                None
            }
            Trouble::SlowBack(millis) => {
                passage.back = ms(millis.into());
                None
            }
            Trouble::Stopped(millis) => Some(Fault::StopBefore(ms(millis.into()))),
            Trouble::ResetBefore => Some(Fault::ResetBefore),
            Trouble::ResetAfter => Some(Fault::ResetAfter),
            // A precondition fails only where there is one.
            Trouble::Refused(409) if !call.writes => Some(Fault::Refused(500)),
            Trouble::Refused(code) => Some(Fault::Refused(code)),
            Trouble::Silence => Some(Fault::Silence),
            Trouble::SilenceAfter => Some(Fault::SilenceAfter),
            Trouble::CrashBefore => Some(Fault::CrashBefore),
            Trouble::CrashAfter => Some(Fault::CrashAfter),
            Trouble::Cut(_) | Trouble::Gone if !is_watch => Some(Fault::ResetBefore),
            Trouble::Cut(after) => Some(Fault::Cut(after)),
            Trouble::Gone => Some(Fault::Gone),
        };
        passage
    }

    /// Mostly at once, at times by seconds; each watch for itself.
    fn lag(&self, watch: u64, version: u64) -> Duration {
        if let Some((_, lag)) = self.slow_watch.lock().unwrap().filter(|(slow, _)| *slow == watch) {
            return lag;
        }
        let random = mix(&[self.seed, watch, version]);
        let longest = match random % 32 {
            _ if self.is_calm() => 8,
            0 => 12_000,
            1..=5 => 1_500,
            _ => 20,
        };
        Duration::from_millis((random >> 8) % longest)
    }
}
