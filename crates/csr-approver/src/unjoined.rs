//! Counts the Machines whose machines should have joined by now.

use jiff::{SignedDuration, Timestamp};

use crate::context::Context;
use crate::gather;
use crate::views::MachineView;

/// A machine is created, boots and joins within this time. With less, `osm_machines_without_node` would count
/// machines that still boot.
const TIME_TO_JOIN: SignedDuration = SignedDuration::from_mins(15);

pub fn count(context: &Context) {
    let now = context.cluster.worker.server_time.now();
    let late = context.machines.select(|machine| is_late(machine, now));
    let of_pools = late
        .iter()
        .filter(|machine| gather::pool_of(context, machine).is_some());
    context.reporting.machines_without_node.count(of_pools.count());
}

fn is_late(machine: &MachineView, now: Timestamp) -> bool {
    let age = now.duration_since(machine.created);
    !machine.has_node_ref && !machine.is_deleting && age > TIME_TO_JOIN
}

#[cfg(test)]
mod tests {
    use osm_api::Machine;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_machine_is_late_after_15_minutes_without_a_node() {
        let now: Timestamp = "2026-01-01T00:15:01Z".parse().unwrap();
        let is_late = |created: &str, deleted: Option<&str>, status: Value| {
            let metadata = json!({"name": "m", "namespace": "n", "creationTimestamp": created, "deletionTimestamp": deleted});
            let machine = json!({"metadata": metadata, "spec": {}, "status": status});
            is_late(&serde_json::from_value::<Machine>(machine).unwrap().into(), now)
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        assert!(is_late(early, None, json!({})));
        assert!(!is_late(late, None, json!({})), "it has time");
        assert!(
            !is_late(early, None, json!({"nodeRef": {"name": "m"}})),
            "it has joined"
        );
        assert!(!is_late(early, Some(early), json!({})), "it need not join");
    }
}
