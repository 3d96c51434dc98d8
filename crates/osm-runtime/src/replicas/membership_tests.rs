use super::*;
use proptest::prelude::*;

fn live(names: &[&str]) -> Live {
    names.iter().copied().collect()
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

    /// Two that have seen each other's Leases late, and taken each other for dead, agree once they see each other.
    #[test]
    fn views_agree_once_everybody_is_heard(lags in prop::collection::vec((0..9000_u64, 0..9000_u64), 1..30)) {
        let begin = Instant::now();
        let mut views = ["a", "b"].map(|own| Membership::new(own, begin));
        let mut now = begin;
        for (first, second) in lags {
            for (view, lag) in views.iter_mut().zip([first, second]) {
                view.judge(now + Duration::from_millis(lag));
                view.changed(if view.own == "a" { "b" } else { "a" }, now + Duration::from_millis(lag));
            }
            now += Duration::from_millis(first.max(second));
        }
        let [a, b] = views.each_mut().map(|view| {
            view.changed(if view.own == "a" { "b" } else { "a" }, now);
            view.judge(now).clone()
        });
        prop_assert_eq!(&a, &b);
        prop_assert_eq!(a, live(&["a", "b"]));
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

/// Lets our own renewals be seen each second.
fn renew(membership: &mut Membership, clock: &Clock, from: u64, to: u64) {
    for millis in (from..=to).step_by(1000) {
        membership.changed("me", clock.after(millis));
    }
}

#[test]
fn a_replica_lives_as_long_as_its_lease_changes() {
    let clock = Clock(Instant::now());
    let mut membership = Membership::new("me", clock.after(0));
    membership.changed("a", clock.after(0));
    assert_eq!(*membership.judge(clock.after(0)), live(&["a", "me"]));
    membership.changed("a", clock.after(3000));
    renew(&mut membership, &clock, 0, 6000);
    assert_eq!(*membership.judge(clock.after(6999)), live(&["a", "me"]));
    assert_eq!(membership.due(clock.after(6999)), Some(clock.after(7000)));
    assert_eq!(*membership.judge(clock.after(7000)), live(&["me"]));
    assert_eq!(membership.due(clock.after(7000)), None);
    // It was only slow.
    membership.changed("a", clock.after(7100));
    assert_eq!(*membership.judge(clock.after(7100)), live(&["a", "me"]));
    membership.gone("a", clock.after(7200));
    assert_eq!(*membership.judge(clock.after(7200)), live(&["me"]));
}

#[test]
fn who_hears_nothing_takes_nobody_for_dead() {
    let clock = Clock(Instant::now());
    let mut membership = Membership::new("me", clock.after(0));
    membership.changed("a", clock.after(0));
    membership.judge(clock.after(0));
    assert_eq!(*membership.judge(clock.after(60_000)), live(&["a", "me"]));
    assert_eq!(
        membership.due(clock.after(60_000)),
        None,
        "there is nothing to wait for but news"
    );
    // Our own Lease was seen to change, and a's was not: that is news.
    membership.changed("me", clock.after(60_001));
    assert_eq!(*membership.judge(clock.after(60_001)), live(&["me"]));
}

#[test]
fn after_an_absence_the_living_have_their_time_again_and_the_dead_have_not() {
    let clock = Clock(Instant::now());
    let mut membership = Membership::new("me", clock.after(0));
    membership.changed("dead", clock.after(0));
    membership.changed("a", clock.after(3000));
    membership.trust(clock.after(5000));
    assert_eq!(
        *membership.judge(clock.after(5000)),
        live(&["a", "dead", "me"]),
        "nobody was judged before"
    );
    for millis in (6000..10_000).step_by(1000) {
        membership.changed("a", clock.after(millis));
    }
    assert_eq!(*membership.judge(clock.after(9100)), live(&["a", "me"]));
    membership.trust(clock.after(100_000));
    assert_eq!(*membership.judge(clock.after(100_000)), live(&["a", "me"]));
    renew(&mut membership, &clock, 100_000, 104_000);
    assert_eq!(*membership.judge(clock.after(104_000)), live(&["me"]));
}

#[test]
fn leases_of_the_long_dead_are_named_and_no_others() {
    let clock = Clock(Instant::now());
    let mut membership = Membership::new("me", clock.after(0));
    membership.changed("a", clock.after(0));
    membership.changed("b", clock.after(60_000));
    assert!(membership.forgotten(clock.after(899_000)).is_empty());
    assert_eq!(membership.forgotten(clock.after(901_000)), ["a"]);
}
