use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;

fn live(names: &[&str]) -> Live {
    names.iter().copied().collect()
}

fn fit(own: &str, now: Instant) -> Membership {
    let mut membership = Membership::new(own, now);
    membership.set_fit(true);
    membership
}

fn keys(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("pool-{number}-kube-system-config"))
        .collect()
}

#[test]
fn keys_are_spread_evenly() {
    for count in 1..=5_usize {
        let all: Live = (0..count)
            .map(|number| format!("osc-controller-{number}"))
            .collect();
        let mut owned = BTreeMap::<&str, usize>::new();
        let keys = keys(2000);
        for key in &keys {
            *owned.entry(all.owner(key).unwrap()).or_default() += 1;
        }
        let fair = keys.len() / count;
        assert_eq!(owned.len(), count);
        assert!(
            owned.values().all(|own| own.abs_diff(fair) < fair / 5),
            "{owned:?}"
        );
    }
}

proptest! {
    #[test]
    fn who_comes_or_goes_moves_only_its_own_keys(
        names in prop::collection::btree_set("[a-z]{1,8}", 1..6), other in "[A-Z]{1,8}", key in ".{0,20}",
    ) {
        let few: Live = names.iter().map(String::as_str).collect();
        let many: Live = names.iter().chain([&other]).map(String::as_str).collect();
        let (before, after) = (few.owner(&key), many.owner(&key));
        prop_assert!(after == before || after == Some(other.as_str()));
        prop_assert!(before.is_some_and(|owner| names.contains(owner)));
        // Whatever order they became known in.
        let backwards: Live = names.iter().rev().map(String::as_str).collect();
        prop_assert_eq!(backwards.owner(&key), before);
    }
}

#[test]
fn nobody_owns_what_nobody_is_there_for() {
    assert_eq!(Live::default().owner("key"), None);
    assert_eq!(live(&["a"]).owner("key"), Some("a"));
}

struct Clock(Instant);

impl Clock {
    fn after(&self, millis: u64) -> Instant {
        self.0 + Duration::from_millis(millis)
    }
}

/// Lets our own renewals be seen every ten seconds.
fn renew(membership: &mut Membership, clock: &Clock, from: u64, to: u64) {
    for millis in (from..=to).step_by(10_000) {
        membership.changed("me", true, clock.after(millis));
    }
}

#[test]
fn a_replica_lives_as_long_as_its_lease_changes() {
    let clock = Clock(Instant::now());
    let mut membership = fit("me", clock.after(0));
    membership.changed("a", true, clock.after(0));
    assert_eq!(membership.judge(clock.after(0)), Some(live(&["a", "me"])));
    membership.changed("a", true, clock.after(30_000));
    renew(&mut membership, &clock, 0, 60_000);
    assert_eq!(membership.judge(clock.after(69_995)), Some(live(&["a", "me"])));
    assert_eq!(membership.due(clock.after(69_995)), Some(clock.after(70_000)));
    assert_eq!(membership.judge(clock.after(70_000)), Some(live(&["me"])));
    assert_eq!(membership.due(clock.after(70_000)), None);
    // It was only slow.
    membership.changed("a", true, clock.after(70_500));
    assert_eq!(membership.judge(clock.after(70_500)), Some(live(&["a", "me"])));
    membership.gone("a", clock.after(71_000));
    assert_eq!(membership.judge(clock.after(71_000)), Some(live(&["me"])));
}

#[test]
fn who_hears_nothing_judges_nobody() {
    let clock = Clock(Instant::now());
    let mut membership = fit("me", clock.after(0));
    membership.changed("a", true, clock.after(0));
    assert_eq!(membership.judge(clock.after(300_000)), None);
    assert_eq!(
        membership.due(clock.after(300_000)),
        None,
        "there is nothing to wait for but news"
    );
    // Our own Lease was seen to change, and a's was not: that is news.
    membership.changed("me", true, clock.after(300_005));
    assert_eq!(membership.judge(clock.after(300_005)), Some(live(&["me"])));
}

#[test]
fn after_an_absence_everybody_has_their_time_again() {
    let clock = Clock(Instant::now());
    let mut membership = fit("me", clock.after(0));
    membership.changed("a", true, clock.after(0));
    membership.trust(clock.after(300_000));
    assert_eq!(membership.judge(clock.after(300_000)), Some(live(&["a", "me"])));
    renew(&mut membership, &clock, 300_000, 340_000);
    assert_eq!(membership.judge(clock.after(340_000)), Some(live(&["me"])));
}

fn shared(fit: &[&str], standby: &[&str]) -> Live {
    let mut live = live(fit);
    live.0
        .extend(standby.iter().map(|name| ((*name).to_owned(), false)));
    live
}

#[test]
fn who_is_not_fit_owns_keys_only_if_nobody_is() {
    for (fit, standby, owners) in [
        (vec!["a"], vec!["b"], vec!["a"]),
        (vec!["a", "b"], vec!["c"], vec!["a", "b"]),
        (vec![], vec!["a"], vec!["a"]),
        (vec![], vec!["a", "b"], vec!["a", "b"]),
    ] {
        let live = shared(&fit, &standby);
        let keys = keys(100);
        let found: BTreeSet<_> = keys.iter().filter_map(|key| live.owner(key)).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), owners, "{live:?}");
    }
}

proptest! {
    /// Whatever is believed of whom: those that see the same Leases name the same owner, and it lives.
    #[test]
    fn there_is_one_owner_while_any_replica_lives(fit in prop::collection::vec(any::<bool>(), 1..5), key in ".{0,20}") {
        let begin = Instant::now();
        let name = |number: usize| format!("replica-{number}");
        let mut owners = BTreeSet::new();
        for own in 0..fit.len() {
            let mut view = Membership::new(&name(own), begin);
            view.set_fit(fit[own]);
            for (other, fit) in fit.iter().enumerate() {
                view.changed(&name(other), *fit, begin);
            }
            owners.insert(view.judge(begin).unwrap().owner(&key).map(str::to_owned));
        }
        prop_assert_eq!(owners.len(), 1, "{:?}", owners);
        let owner = owners.pop_first().flatten();
        let is_fit = (0..fit.len()).find(|number| owner == Some(name(*number))).map(|number| fit[number]);
        prop_assert_eq!(is_fit, Some(fit.contains(&true)));
    }
}

#[test]
fn who_steps_back_gives_up_its_keys_and_gets_them_back() {
    let clock = Clock(Instant::now());
    let mut membership = Membership::new("me", clock.after(0));
    membership.changed("a", true, clock.after(0));
    assert_eq!(membership.judge(clock.after(0)), Some(shared(&["a"], &["me"])));
    assert!(membership.set_fit(true) && !membership.set_fit(true));
    assert_eq!(membership.judge(clock.after(1)), Some(live(&["a", "me"])));
    membership.changed("a", false, clock.after(2));
    assert_eq!(membership.judge(clock.after(2)), Some(shared(&["me"], &["a"])));
    assert!(membership.set_fit(false));
    assert_eq!(membership.judge(clock.after(3)), Some(shared(&[], &["a", "me"])));
    membership.gone("a", clock.after(4));
    assert_eq!(membership.judge(clock.after(4)), Some(shared(&[], &["me"])));
}
