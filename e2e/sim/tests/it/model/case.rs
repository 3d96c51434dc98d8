//! Generates the steps of a case: what users and other programs do, and what fails.

use proptest::collection::vec;
use proptest::prelude::*;

/// So many pools there can be.
pub const POOLS: usize = 3;

/// A case is played the same way each time.
#[derive(Clone, Debug)]
pub struct Case {
    /// Decides how long requests take and watches lag, and what is random to the services.
    pub seed: u64,
    /// Replicas of each service at the beginning.
    pub replicas: [usize; 2],
    /// Number of the request → what happens to it. Those for Leases, which are many, are counted for
    /// themselves.
    pub faults: Vec<(u32, Trouble)>,
    pub lease_faults: Vec<(u32, Trouble)>,
    /// What is done, each so many milliseconds after the one before.
    pub acts: Vec<(u32, Act)>,
}

impl Case {
    /// One replica of each service, and nothing that goes wrong by itself.
    pub fn calm(seed: u64, acts: Vec<(u32, Act)>) -> Self {
        Self {
            seed,
            replicas: [1, 1],
            faults: Vec::new(),
            lease_faults: Vec::new(),
            acts,
        }
    }
}

/// What can happen to a request.
#[derive(Clone, Copy, Debug)]
pub enum Trouble {
    ResetBefore,
    ResetAfter,
    Refused(u16),
    Silence,
    SilenceAfter,
    CrashBefore,
    CrashAfter,
    /// Its sender is stopped right before it sends it, and goes on so many milliseconds later.
    Stopped(u32),
    /// It takes so many milliseconds to the server.
    SlowThere(u32),
    /// Its answer takes so many milliseconds.
    SlowBack(u32),
    /// A watch breaks off after so many events.
    Cut(u32),
    /// A watch's resourceVersion is too old.
    Gone,
}

/// What can be done.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Nothing, for so many minutes.
    Wait(u32),
    CreatePool(usize),
    DeletePool(usize),
    /// Deleted, and created under the same name.
    ReplacePool(usize),
    /// Another template, whose revision is stamped so many milliseconds later.
    Template(usize, u32),
    /// A new profile, judged so many milliseconds later.
    Profile(u32),
    /// A new profile that is refused.
    BrokenProfile(u32),
    /// Life of tokens in hours; whether there is a registry with credentials.
    Settings(u16, bool),
    BrokenSettings,
    /// The settings are deleted, until they are set again.
    NoSettings,
    /// The registry's password changes.
    Password,
    /// The Secret with the password is deleted, until the password changes.
    NoPassword,
    /// osc-controller is killed, and starts again so many minutes later.
    NoOscController(u32),
    /// From now on tokens live at most so many hours.
    ShortenTokens(u16),
    Damage(usize, Damaged, How),
    DeleteConfig(usize),
    EditConfig(usize),
    /// One of the replicas of a service is killed; it starts again so many milliseconds later: where they are
    /// odd, as another pod.
    Kill(Which, usize, u32),
    /// One of them is stopped, and goes on so many milliseconds later.
    Freeze(Which, usize, u32),
    /// From now on there are so many.
    Scale(Which, usize),
    /// secret-syncer is started with another namespace, for so many seconds.
    Lost(u32),
    /// From now on other controllers rewrite every source each minute, and change nothing in it, and the
    /// status of MachineDeployments.
    RewriteSources,
    /// machine-controller rolls the pool out, and writes the status of its MachineDeployment so many times.
    Rollout(usize, u32),
    /// Someone writes into the status of a pool that what is published for another pool is published for it.
    /// Where both are the same, that something is published which does not exist.
    Forge(usize, usize),
    /// osc-controller goes back a version and forward again. Meanwhile, that version reports that it can't
    /// render, and perhaps that an edit is refused.
    OlderVersion(bool),
    /// etcd is restored as it was before one of the latest steps. The API server is away for so many seconds.
    Restore(usize, u32),
}

/// So many replicas of a service there can be.
pub const REPLICAS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    OscController,
    SecretSyncer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    Bootstrap,
    Provisioning,
    Kubeconfig,
    Account,
    Role,
    Binding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Delete,
    /// The label by which it is found.
    Unlabel,
    /// The annotation by which it is found.
    Unannotate,
    /// What stands in it.
    Content,
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        2 => Just(Trouble::ResetBefore),
        4 => Just(Trouble::ResetAfter),
        2 => prop_oneof![Just(403), Just(409), Just(429), Just(500), Just(503)].prop_map(Trouble::Refused),
        1 => Just(Trouble::Silence),
        1 => Just(Trouble::SilenceAfter),
        2 => Just(Trouble::CrashBefore),
        4 => Just(Trouble::CrashAfter),
        3 => prop_oneof![1_000..10_000u32, 10_000..90_000u32].prop_map(Trouble::Stopped),
        2 => (1..8_000u32).prop_map(Trouble::SlowThere),
        2 => (1..8_000u32).prop_map(Trouble::SlowBack),
        3 => (0..5u32).prop_map(Trouble::Cut),
        1 => Just(Trouble::Gone),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let pool = || 0..POOLS;
    let soon = || prop_oneof![Just(0), 1..100u32, 100..20_000u32];
    prop_oneof![
        2 => prop_oneof![1..30u32, 300..900u32].prop_map(Act::Wait),
        3 => pool().prop_map(Act::CreatePool),
        1 => pool().prop_map(Act::DeletePool),
        2 => pool().prop_map(Act::ReplacePool),
        6 => (pool(), soon()).prop_map(|(pool, later)| Act::Template(pool, later)),
        3 => soon().prop_map(Act::Profile),
        1 => soon().prop_map(Act::BrokenProfile),
        2 => (1..48u16, proptest::prelude::any::<bool>()).prop_map(|(hours, registry)| Act::Settings(hours, registry)),
        1 => Just(Act::BrokenSettings),
        1 => Just(Act::NoSettings),
        1 => Just(Act::Password),
        2 => Just(Act::NoPassword),
        1 => (1..1200u32).prop_map(Act::NoOscController),
        1 => (1..48u16).prop_map(Act::ShortenTokens),
        4 => (pool(), damaged(), how()).prop_map(|(pool, what, how)| Act::Damage(pool, what, how)),
        1 => pool().prop_map(Act::DeleteConfig),
        1 => pool().prop_map(Act::EditConfig),
        3 => (which(), 0..REPLICAS, 1..30_000u32).prop_map(|(which, one, later)| Act::Kill(which, one, later)),
        3 => (which(), 0..REPLICAS, prop_oneof![3_000..10_000u32, 10_000..120_000u32])
            .prop_map(|(which, one, later)| Act::Freeze(which, one, later)),
        3 => (which(), 1..=REPLICAS).prop_map(|(which, count)| Act::Scale(which, count)),
        1 => (1..300u32).prop_map(Act::Lost),
        1 => Just(Act::RewriteSources),
        2 => (pool(), 1..30u32).prop_map(|(pool, times)| Act::Rollout(pool, times)),
        2 => (pool(), pool()).prop_map(|(pool, of)| Act::Forge(pool, of)),
        1 => proptest::prelude::any::<bool>().prop_map(Act::OlderVersion),
        // Longer than anybody is stopped: who misses the end of a watch would go on from a version that is
        // not reached yet.
        1 => (1..10usize).prop_map(|steps| Act::Restore(steps, 100)),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![Just(Which::OscController), Just(Which::SecretSyncer)]
}

fn damaged() -> impl Strategy<Value = Damaged> {
    prop_oneof![
        3 => Just(Damaged::Bootstrap),
        2 => Just(Damaged::Provisioning),
        2 => Just(Damaged::Kubeconfig),
        2 => Just(Damaged::Account),
        2 => Just(Damaged::Role),
        2 => Just(Damaged::Binding),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        Just(How::Delete),
        Just(How::Unlabel),
        Just(How::Unannotate),
        Just(How::Content)
    ]
}

/// Every case.
pub fn any() -> impl Strategy<Value = Case> {
    let gap = prop_oneof![3 => Just(0), 3 => 1..200u32, 3 => 200..10_000u32];
    let (faults, lease_faults) = (
        vec((0..600u32, trouble()), 0..40),
        vec((0..200u32, trouble()), 0..10),
    );
    let replicas = || prop_oneof![2 => Just(1), 1 => 2..=REPLICAS];
    // A case begins with a pool that is about to be published.
    let acts = vec((gap, act()), 1..14);
    let seed = proptest::prelude::any::<u64>();
    let replicas = (replicas(), replicas()).prop_map(|(one, other)| [one, other]);
    let parts = (seed, replicas, faults, lease_faults, acts);
    parts.prop_map(|(seed, replicas, faults, lease_faults, acts)| {
        let mut all = vec![(0, Act::CreatePool(0))];
        all.extend(acts);
        Case {
            seed,
            replicas,
            faults,
            lease_faults,
            acts: all,
        }
    })
}
