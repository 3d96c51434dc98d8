//! Cases written by hand: proptest found each of them, or they take longer than its cases.

use std::time::Duration;

use osm_api::condition::{PUBLISHED, RENDERED, find};
use osm_api::config::OperatingSystemConfigStatus;
use osm_api::{OperatingSystemConfig, names};
use osm_testkit::fixtures;
use serde_json::{Value, json};

use super::case::{Act, Case, Damaged, How, POOLS, Trouble, Which};
use super::fault_schedule::FaultSchedule;
use super::world::{NAMESPACE, World, alone, judge, live_through, play, pool};

const HOUR: u64 = 3600;

async fn good(world: &World) {
    let judged = world.verdict().await.and_then(|()| world.wanted());
    judged.unwrap_or_else(|broken| panic!("{broken}\n\n{}", world.story()));
}

fn calm() -> World {
    let world = World::new(1, FaultSchedule::new(&Case::calm(1, Vec::new())));
    world.start([1, 1]);
    world
}

async fn hours(world: &World, hours: u64) {
    world.pass(Duration::from_secs(hours * HOUR)).await;
}

/// The status of the config of pool 0.
fn status(world: &World) -> OperatingSystemConfigStatus {
    let name = names::config_name(&pool(0), "kube-system");
    let config = world.server.with(|state| {
        let config = state.object("operatingsystemconfigs", NAMESPACE, &name);
        config.unwrap().clone()
    });
    let config: OperatingSystemConfig = serde_json::from_value(config).unwrap();
    config.status.unwrap()
}

/// Status and reason of a condition of pool 0.
fn condition(world: &World, type_: &str) -> String {
    let conditions = status(world).conditions;
    let condition = find(&conditions, type_).unwrap();
    format!("{} {}", condition.status, condition.reason)
}

fn published(world: &World) -> String {
    condition(world, PUBLISHED)
}

/// Two replicas hold the pool for a moment, and the watch of one of them still shows the retired config.
#[test]
fn a_replica_that_lags_behind_deletes_nothing_of_a_new_pool_of_the_same_name() {
    let case = Case {
        replicas: [1, 3],
        faults: vec![(116, Trouble::Cut(0)), (117, Trouble::CrashBefore)],
        lease_faults: vec![(32, Trouble::Cut(0))],
        ..Case::calm(
            1_593_690_462_569_664_541,
            vec![
                (0, Act::CreatePool(0)),
                (0, Act::CreatePool(2)),
                (5401, Act::ReplacePool(0)),
            ],
        )
    };
    live_through(&case).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Its pool is gone, and a new one of its name waits for it to be deleted.
#[test]
fn a_config_that_cannot_be_read_is_undone() {
    alone(async {
        let world = calm();
        world.set_settings(2);
        world.create_pool(1);
        hours(&world, 1).await;
        world.scale([0, 1]);
        world.edit_config(1);
        world.server.with(|state| {
            let name = names::config_name(&pool(1), "kube-system");
            let unreadable = json!({"status": {"rendered": {"digest": null}}});
            state
                .patch("operatingsystemconfigs", NAMESPACE, &name, &unreadable)
                .unwrap();
        });
        // Tokens are renewed meanwhile.
        hours(&world, 3).await;
        world.broken().unwrap();
        world.delete_pool(1);
        world.create_pool(1);
        world.scale([1, 1]);
        world.end_of_faults().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        good(&world).await;
    });
}

/// Tokens are issued before it is known what they may do.
#[test]
fn a_right_that_nodes_lack_is_reported_without_a_token_until_it_is_granted() {
    const BINDING: &str = "osm:node-bootstrapper";
    alone(async {
        let world = calm();
        let mut binding = world.server.with(|state| {
            let binding = state.object("clusterrolebindings", "", BINDING).unwrap().clone();
            state.delete("clusterrolebindings", "", BINDING).unwrap();
            binding
        });
        world.create_pool(0);
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(published(&world), "False NodePermissionMissing");
        world.server.with(|state| {
            let events: Vec<&Value> = state.all("events").collect();
            assert!(!events.is_empty());
            let shown = state.all("operatingsystemconfigs").chain(events);
            // How the server's tokens begin.
            let with_token: Vec<&Value> = shown
                .filter(|object| object.to_string().contains("e30."))
                .collect();
            assert!(with_token.is_empty(), "{with_token:#?}");
        });
        binding["metadata"] = json!({"name": BINDING});
        world.server.with(|state| state.create(binding).unwrap());
        hours(&world, 1).await;
        assert_eq!(published(&world), "True Published");
        world.end_of_faults().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        good(&world).await;
    });
}

/// The provisioning Secrets that exist.
fn documents(world: &World) -> usize {
    world.server.with(|state| {
        let secrets = state.all("secrets");
        let name = |secret: &serde_json::Value| secret["metadata"]["name"].to_string();
        secrets
            .filter(|secret| name(secret).contains("osm-provisioning-"))
            .count()
    })
}

/// Each edit of the profile is new content of the same revision, and leaves a document that a valid token may
/// fetch.
#[test]
fn new_content_waits_until_a_document_has_expired() {
    alone(async {
        let world = calm();
        world.set_settings(4);
        world.create_pool(0);
        world.pass(Duration::from_secs(60)).await;
        let mut most = 0;
        for _ in 0..60 {
            world.edit_profile();
            world.server.with(judge);
            world.edit_template(0, 0);
            world.pass(Duration::from_secs(20)).await;
            most = most.max(documents(&world));
        }
        assert_eq!(most, 50, "{}", world.story());
        assert!(world.wanted().is_err(), "the last ones wait");
        // What is published is renewed all the time, and the first documents go.
        hours(&world, 7).await;
        world.broken().unwrap();
        assert!(documents(&world) < 50, "{}", documents(&world));
        world.wanted().unwrap();
        world.end_of_faults().await;
        world.pass(Duration::from_secs(60)).await;
        good(&world).await;
    });
}

/// The new content needs a document of its own, and a renewal does not.
#[test]
fn while_a_policy_refuses_new_content_what_is_published_is_renewed_and_restored() {
    alone(async {
        let world = calm();
        let life = jiff::SignedDuration::from_hours(2);
        world.server.with(|state| state.shorten_tokens(life));
        world.create_pool(0);
        hours(&world, 1).await;
        world.schedule.refuse(Some(("create", "secrets")));
        world.edit_profile();
        world.server.with(judge);
        for _ in 0..2 {
            hours(&world, 2).await;
            world.damage(0, Damaged::Role, How::Content);
            world.pass(Duration::from_secs(60)).await;
            let broken = world.broken();
            broken.unwrap_or_else(|broken| panic!("{broken}\n\n{}", world.story()));
            assert_eq!(published(&world), "False RequestFailed");
        }
        world.schedule.refuse(None);
        hours(&world, 1).await;
        world.wanted().unwrap();
        world.end_of_faults().await;
        world.pass(Duration::from_secs(60)).await;
        good(&world).await;
    });
}

/// A failure that only a change of something else ends is retried every ten minutes, and at once after that
/// change.
#[test]
fn a_source_that_is_missing_is_asked_for_every_ten_minutes() {
    alone(async {
        let world = calm();
        (0..POOLS).for_each(|number| world.create_pool(number));
        hours(&world, 1).await;
        let of_two_hours = async || {
            let before = world.schedule.requests();
            hours(&world, 2).await;
            world.schedule.requests() - before
        };
        let usual = of_two_hours().await;
        world.delete_password();
        world.kill(Which::SecretSyncer, 0, Duration::from_secs(1));
        hours(&world, 1).await;
        let more = of_two_hours().await.saturating_sub(usual);
        // A retry asks for the Secret, and for little else.
        let retries = u32::try_from(POOLS * 120 * 4 / 30).unwrap();
        assert!(more <= 4 * retries, "{more} requests: {}", world.story());
        assert!(more >= retries / 2, "{more} requests: {}", world.story());
        world.set_password();
        world.pass(Duration::from_secs(60)).await;
        world.end_of_faults().await;
        good(&world).await;
    });
}

/// A server-side apply of the status removes what it leaves out.
#[test]
fn what_was_rendered_stays_while_nothing_can_be_rendered() {
    alone(async {
        let world = calm();
        world.create_pool(0);
        hours(&world, 1).await;
        let before = status(&world).rendered;
        assert!(before.is_some());
        world.server.with(|state| {
            let edit = json!({"metadata": {"annotations": {names::PROFILE: "missing"}}});
            state
                .patch("machinedeployments", "kube-system", &pool(0), &edit)
                .unwrap();
        });
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(condition(&world, RENDERED), "False ProfileNotFound");
        assert_eq!(status(&world).rendered, before);
    });
}

#[test]
fn the_last_valid_settings_serve_a_new_pool_while_there_are_no_others() {
    alone(async {
        let world = calm();
        world.pass(Duration::from_secs(60)).await;
        world.delete_settings();
        world.pass(Duration::from_secs(60)).await;
        world.create_pool(0);
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(published(&world), "True Published");
    });
}

/// It has no OperatingSystemConfig, so only an Event can say so.
#[test]
fn a_pool_that_needs_the_names_of_another_one_is_told_so() {
    alone(async {
        let world = calm();
        world.create_pool(0);
        hours(&world, 1).await;
        let mut other = fixtures::machine_deployment("pool-0-kube", "osp-tiny");
        other["metadata"]["namespace"] = json!("system");
        world.server.with(|state| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "system"}});
            state.create(namespace).unwrap();
            state.create(other).unwrap();
        });
        world.pass(Duration::from_secs(60)).await;
        let events: Vec<Value> = world.server.with(|state| state.all("events").cloned().collect());
        let is_told = |event: &&Value| {
            event["reason"] == "NameCollision" && event["regarding"]["namespace"] == "system"
        };
        assert_eq!(events.iter().filter(is_told).count(), 1, "{events:#?}");
    });
}

/// Without the values, the config and the settings: tokens live as long as they are renewed.
#[test]
fn what_is_published_is_renewed_and_restored_without_sources_settings_and_osc_controller() {
    type Loss = fn(&World);
    let losses: [(&str, Loss); 4] = [
        ("no password", |world| world.delete_password()),
        ("no settings", |world| world.delete_settings()),
        ("an edited config", |world| {
            world.kill(Which::OscController, 0, Duration::from_secs(100 * HOUR));
            (0..POOLS).for_each(|number| world.edit_config(number));
        }),
        ("no password and a new template", |world| {
            world.delete_password();
            world.kill(Which::SecretSyncer, 0, Duration::from_secs(1));
            (0..POOLS).for_each(|number| world.edit_template(number, 0));
        }),
    ];
    for (what, lose) in losses {
        alone(async move {
            let world = calm();
            world.set_settings(2);
            (0..POOLS).for_each(|number| world.create_pool(number));
            hours(&world, 1).await;
            lose(&world);
            // More than twice as long as a token lives.
            for round in 0..3 {
                // Another pod that remembers nothing, and then two of them.
                world.kill(Which::SecretSyncer, 0, Duration::from_millis(501));
                world.kill(Which::SecretSyncer, 1, Duration::from_secs(60));
                world.pass(Duration::from_secs(60)).await;
                world.pass(Duration::from_secs(20)).await;
                world.scale_one(Which::SecretSyncer, 1);
                let damaged = [
                    Damaged::Role,
                    Damaged::Bootstrap,
                    Damaged::Account,
                    Damaged::Binding,
                ];
                for number in 0..POOLS {
                    // One of the old revision is not put back while a new one is waited for: the status may
                    // lag behind it.
                    let damaged = match damaged[(round + number) % 4] {
                        Damaged::Bootstrap if what.ends_with("template") => Damaged::Role,
                        other => other,
                    };
                    world.damage(number, damaged, How::Delete);
                }
                world.pass(Duration::from_secs(90 * 60)).await;
                for number in 0..POOLS {
                    let name = names::bootstrap_secret_name(&pool(number), "kube-system");
                    assert!(world.secret(&name).is_some(), "{what}: {name}: {}", world.story());
                }
                let broken = world.broken();
                broken.unwrap_or_else(|broken| panic!("{what}: {broken}\n\n{}", world.story()));
            }
            world.end_of_faults().await;
            world.pass(Duration::from_secs(300)).await;
            good(&world).await;
        });
    }
}

/// Plays cases without faults, after pools of every kind were created.
fn play_calmly(cases: impl IntoIterator<Item = Vec<(u32, Act)>>) {
    for acts in cases {
        let created = (0..POOLS).map(|number| (0, Act::CreatePool(number)));
        let case = Case::calm(1, created.chain(acts).collect());
        live_through(&case).unwrap_or_else(|broken| panic!("{case:?}: {broken}"));
    }
}

/// Labels are restored, tokens live on, and what lost its label is undone with its pool.
#[test]
fn what_was_damaged_is_put_right() {
    let of_identity = [Damaged::Account, Damaged::Role, Damaged::Binding];
    let of_documents = [Damaged::Bootstrap, Damaged::Provisioning, Damaged::Kubeconfig];
    let mut cases = Vec::new();
    for how in [How::Unlabel, How::Unannotate] {
        // Each of another pool.
        let damage =
            |all: [Damaged; POOLS]| (0..POOLS).map(move |pool| (0, Act::Damage(pool, all[pool], how)));
        let delete = || (0..POOLS).map(|pool| (0, Act::DeletePool(pool)));
        let wait = [(5_000, Act::Wait(1))];
        cases.push(wait.into_iter().chain(damage(of_identity)).collect());
        for all in [of_identity, of_documents] {
            cases.push(wait.into_iter().chain(delete()).chain(damage(all)).collect());
        }
        // secret-syncer sees it together with a new revision, whose document is another one.
        cases.push(vec![
            (5_000, Act::Kill(Which::SecretSyncer, 0, 30_000)),
            (0, Act::Damage(0, Damaged::Provisioning, how)),
            (0, Act::Template(0, 0)),
            (5_000, Act::Wait(1)),
        ]);
    }
    // What its tokens are bound to is lost as well.
    for how in [How::Delete, How::Unlabel] {
        cases.push(vec![
            (5_000, Act::Kill(Which::SecretSyncer, 0, 1)),
            (0, Act::Damage(0, Damaged::Bootstrap, How::Unlabel)),
            (0, Act::Damage(0, Damaged::Account, how)),
        ]);
    }
    // Who marks it as an orphan does not answer for the damage.
    cases.push(vec![
        (5_000, Act::Damage(0, Damaged::Bootstrap, How::Content)),
        (0, Act::Lost(1)),
    ]);
    // osc-controller misses the end of a pool, whose config is deleted by someone else.
    cases.push(vec![
        (5_000, Act::NoOscController(60)),
        (0, Act::DeletePool(0)),
        (0, Act::DeleteConfig(0)),
    ]);
    // The record is of another pool, or of what does not exist, when the Secret itself is lost as well, and a
    // source.
    cases.push(vec![
        (5_000, Act::Forge(0, 1)),
        (0, Act::Forge(1, 1)),
        (5_000, Act::NoPassword),
        (0, Act::Kill(Which::SecretSyncer, 0, 5_000)),
        (0, Act::Damage(0, Damaged::Bootstrap, How::Delete)),
        (0, Act::Damage(1, Damaged::Bootstrap, How::Delete)),
        (0, Act::Forge(0, 1)),
        (0, Act::Forge(1, 1)),
        (0, Act::Wait(10)),
    ]);
    // A backup from before a rollout, and from before a pool was deleted and another one replaced.
    cases.push(vec![
        (5_000, Act::Wait(1)),
        (0, Act::Template(0, 0)),
        (0, Act::DeletePool(1)),
        (0, Act::ReplacePool(2)),
        (5_000, Act::Template(0, 0)),
        (0, Act::Wait(5)),
        (0, Act::Restore(5, 3)),
        (0, Act::Template(0, 0)),
    ]);
    play_calmly(cases);
}

#[test]
fn what_others_write_all_the_time_is_no_reason_to_write() {
    play_calmly([vec![
        (5_000, Act::RewriteSources),
        (0, Act::Template(0, 3_000)),
        (0, Act::Rollout(0, 30)),
        (0, Act::Wait(5)),
    ]]);
}

/// Five hours each, and more than a day.
#[test]
fn other_profiles_and_the_wrong_namespace_cost_nothing_however_long() {
    // Most of the life of a token.
    let (short, long) = ((0, Act::Settings(3, true)), (0, Act::Wait(150)));
    // The tokens of pool 1 are bound to a kubeconfig Secret, those of pool 2 with every other profile.
    let profiles = [(5_000, Act::Profile(0)), long].repeat(2);
    // For longer than an orphan is left alone. Tokens outlive it.
    let lost = vec![(0, Act::Settings(720, true)), (5_000, Act::Lost(30 * 3600))];
    play_calmly([[vec![short], profiles].concat(), lost]);
}

#[test]
fn a_case_is_played_the_same_way_each_time() {
    let troubles = [
        Trouble::ResetAfter,
        Trouble::CrashAfter,
        Trouble::Silence,
        Trouble::Cut(1),
        Trouble::Refused(500),
    ];
    let faults = (20..120).step_by(9).zip(troubles.into_iter().cycle()).collect();
    let acts = vec![
        (0, Act::CreatePool(0)),
        (10, Act::CreatePool(1)),
        (900, Act::Template(0, 300)),
        (5_000, Act::Kill(Which::OscController, 1, 700)),
        (100, Act::Profile(90)),
        (0, Act::ReplacePool(1)),
        (50, Act::Freeze(Which::SecretSyncer, 2, 9_000)),
        (300, Act::Template(0, 10)),
        (9_000, Act::Scale(Which::OscController, 3)),
        (500, Act::Scale(Which::SecretSyncer, 1)),
    ];
    let lease_faults = (10..200).step_by(23).zip(troubles).collect();
    let case = Case {
        seed: 7,
        replicas: [2, 3],
        faults,
        lease_faults,
        acts,
    };
    let (first, second) = (play(&case), play(&case));
    for (at, (one, two)) in first.1.lines().zip(second.1.lines()).enumerate() {
        assert_eq!(one, two, "line {at} of {}", first.1);
    }
    assert_eq!(first, second);
    assert!(first.0.is_ok_and(|requests| requests > 150), "{}", first.1);
}

/// Whatever a replica was about to write when it was stopped for longer than its Lease is good, the other one
/// does, and it is refused.
#[test]
fn a_write_of_one_that_was_stopped_is_refused_and_breaks_nothing() {
    let bootstrap = names::bootstrap_secret_name(&pool(0), "kube-system");
    let config = names::config_name(&pool(0), "kube-system");
    type Edit = fn(&World);
    let template: Edit = |world| world.edit_template(0, 0);
    let profile: Edit = |world| {
        world.edit_profile();
        world.server.with(judge);
    };
    // Only a condition follows, and then it goes again.
    let broken: Edit = |world| {
        world.break_profile();
        world.server.with(judge);
    };
    let of_config = "osc-controller patch operatingsystemconfigs/status";
    for (request, name, before, edit) in [
        ("secret-syncer update secrets", bootstrap, profile, template),
        (of_config, config.clone(), profile, template),
        (of_config, config.clone(), profile, broken),
        (of_config, config, broken, profile),
    ] {
        let verb = if request == of_config { "patch" } else { "update" };
        alone(async move {
            let world = World::new(1, FaultSchedule::new(&Case::calm(1, Vec::new())));
            world.start([2, 2]);
            world.create_pool(0);
            before(&world);
            world.pass(Duration::from_secs(60)).await;
            world.schedule.stop_before(verb, &name, Duration::from_secs(45));
            for _ in 0..2 {
                edit(&world);
                world.pass(Duration::from_secs(2)).await;
            }
            world.pass(Duration::from_secs(60)).await;
            let story = world.story();
            assert!(
                story.contains(&format!("{request} {name}: 409 Conflict")),
                "{story}"
            );
            world.end_of_faults().await;
            good(&world).await;
        });
    }
}

/// The replica that takes over sees its config, and its watch shows the pool only a minute later.
#[test]
fn a_pool_that_the_watch_does_not_show_is_not_retired() {
    alone(async {
        let world = calm();
        world
            .schedule
            .slow_down("1", "machinedeployments", Duration::from_secs(60));
        world.scale_one(Which::OscController, 2);
        world.pass(Duration::from_secs(20)).await;
        (0..POOLS).for_each(|number| world.create_pool(number));
        world.pass(Duration::from_secs(20)).await;
        let configs = world
            .server
            .with(|state| state.all("operatingsystemconfigs").count());
        assert!(configs > 0, "the first replica owns none of the pools");
        world.kill(Which::OscController, 0, Duration::from_secs(100));
        world.pass(Duration::from_secs(30)).await;
        world
            .broken()
            .unwrap_or_else(|broken| panic!("{broken}\n\n{}", world.story()));
        world.end_of_faults().await;
        good(&world).await;
    });
}

/// A replica has opened the kubeconfig Secret in the Role, and has yet to create the Secret. Another one
/// takes over, whose watch does not show the content that needs it: if that one narrowed the Role, and the
/// first one went on, a published token would be refused.
#[test]
fn a_role_opens_the_kubeconfig_secret_that_another_replica_creates() {
    alone(async {
        let world = World::new(1, FaultSchedule::new(&Case::calm(1, Vec::new())));
        world.start([1, 2]);
        world.create_pool(2);
        world.pass(Duration::from_secs(60)).await;
        let lag = Duration::from_secs(90);
        world.schedule.slow_down("1", "operatingsystemconfigs", lag);
        // The next request after the one that writes the Role.
        let stop = Duration::from_secs(60);
        world
            .schedule
            .stop_before("create", "selfsubjectaccessreviews", stop);
        world.edit_profile();
        world.server.with(judge);
        // At first while the other replica waits for the Lease to expire, and then while it owns the pool.
        for seconds in [5, 50] {
            world.pass(Duration::from_secs(seconds)).await;
            let opens = world.server.with(|state| {
                let mut roles = state.all("roles");
                roles.any(|role| role["rules"].to_string().contains("osm-kubeconfig-"))
            });
            assert!(opens, "after {seconds} s\n{}", world.story());
        }
        world
            .schedule
            .slow_down("1", "operatingsystemconfigs", Duration::ZERO);
        world.end_of_faults().await;
        good(&world).await;
    });
}

/// Otherwise, a second replica that works on the pool for a moment takes the name of the document out of the
/// Role.
#[test]
fn a_role_opens_no_document_before_it_exists() {
    for seed in 0..8 {
        let case = Case::calm(seed, vec![(0, Act::CreatePool(0))]);
        let (judged, story) = play(&case);
        judged.unwrap_or_else(|broken| panic!("{broken}\n\n{story}"));
        let first = |what: &str| story.lines().position(|line| line.contains(what));
        let (document, role) = (first("create secrets").unwrap(), first("create roles").unwrap());
        assert!(document < role, "{story}");
    }
}

/// Each request of a publish may come last, be refused, or be the last thing that its sender did.
#[test]
fn whatever_happens_to_one_of_the_writes_of_a_publish_nothing_is_lost() {
    let troubles = [
        Trouble::SlowThere(3_000),
        Trouble::Refused(409),
        Trouble::ResetAfter,
        Trouble::CrashBefore,
        Trouble::CrashAfter,
    ];
    let acts = vec![(0, Act::CreatePool(0)), (20_000, Act::Template(0, 0))];
    let of_pools = |story: &str| {
        let of_group = ["serviceaccounts", "secrets", "roles", "rolebindings"];
        let is_write =
            |line: &&str| !line.contains(" GET ") && of_group.iter().any(|plural| line.contains(plural));
        story.lines().filter(is_write).count()
    };
    let (judged, story) = play(&Case::calm(1, acts.clone()));
    let requests = judged.unwrap_or_else(|broken| panic!("{broken}\n\n{story}"));
    assert!(of_pools(&story) > 10, "{story}");
    for (number, trouble) in (0..requests).step_by(2).zip(troubles.into_iter().cycle()) {
        let case = Case {
            faults: vec![(number, trouble)],
            ..Case::calm(1, acts.clone())
        };
        live_through(&case).unwrap_or_else(|broken| panic!("{case:?}: {broken}"));
    }
}

/// The objects of a version with a single field manager, each request of whose successor may be the last
/// thing that it did. It goes back and forward again while an edit is refused, and after that.
#[test]
fn an_older_version_and_back_loses_no_documents() {
    let acts = vec![
        (0, Act::CreatePool(0)),
        (20_000, Act::OlderVersion(true)),
        (20_000, Act::NoSettings),
        (20_000, Act::OlderVersion(true)),
        (20_000, Act::Settings(24, true)),
        (20_000, Act::OlderVersion(false)),
        (20_000, Act::Template(0, 0)),
        (20_000, Act::BrokenProfile(0)),
        (20_000, Act::OlderVersion(true)),
        // Before the newer version has started again.
        (0, Act::Profile(0)),
    ];
    let (judged, story) = play(&Case::calm(1, acts.clone()));
    let requests = judged.unwrap_or_else(|broken| panic!("{broken}\n\n{story}"));
    let troubles = [Trouble::CrashBefore, Trouble::CrashAfter].into_iter().cycle();
    for (number, trouble) in (0..requests).step_by(7).zip(troubles) {
        let case = Case {
            faults: vec![(number, trouble)],
            ..Case::calm(1, acts.clone())
        };
        live_through(&case).unwrap_or_else(|broken| panic!("{case:?}: {broken}"));
    }
}

/// When the Lease of a dead replica has expired, and its pools are published.
const EXPIRED: Duration = Duration::from_secs(42);

/// How long it takes until all pools are published at the newest revision of their templates, after all were
/// edited.
async fn rotated(world: &World) -> Duration {
    let began = tokio::time::Instant::now();
    for number in 0..POOLS {
        world.edit_template(number, 0);
    }
    while world.wanted().is_err() {
        assert!(began.elapsed() < Duration::from_secs(90), "{}", world.story());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let took = began.elapsed();
    // The conditions follow the Secrets.
    world.pass(Duration::from_secs(1)).await;
    took
}

/// Three replicas of each, three pools, and watches that hardly lag.
async fn together() -> World {
    let world = World::new(3, FaultSchedule::new(&Case::calm(3, Vec::new())));
    world.schedule.calm_down();
    world.start([3, 3]);
    for number in 0..POOLS {
        world.create_pool(number);
    }
    world.pass(Duration::from_secs(30)).await;
    world.wanted().unwrap();
    world.server.with(|state| {
        let now = state.now();
        for lease in state.all("leases") {
            let renewed: jiff::Timestamp = lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
            assert!(
                now.duration_since(renewed).as_secs() < 15,
                "nobody renews {lease}"
            );
        }
    });
    world
}

#[test]
fn the_work_of_one_that_dies_is_taken_over_when_its_lease_has_expired() {
    for (one, which) in [Which::OscController, Which::SecretSyncer]
        .into_iter()
        .flat_map(|w| [(0, w), (1, w), (2, w)])
    {
        alone(async move {
            let world = together().await;
            assert!(rotated(&world).await < Duration::from_secs(1));
            // It comes back as another pod: nobody knows that its Lease is out of use.
            world.kill(which, one, Duration::from_millis(90_001));
            let took = rotated(&world).await;
            println!("{which:?} {one} died: {took:?}");
            assert!(took < EXPIRED, "{took:?}\n{}", world.story());
        });
    }
}

#[test]
fn the_only_one_that_comes_back_as_another_waits_until_the_lease_of_the_dead_one_has_expired() {
    alone(async {
        let world = together().await;
        world.scale([1, 1]);
        world.pass(Duration::from_secs(60)).await;
        // In the same pod it finds its own Lease, and no other.
        world.kill(Which::SecretSyncer, 0, Duration::from_millis(2));
        let took = rotated(&world).await;
        assert!(took < Duration::from_millis(1500), "{took:?}\n{}", world.story());
        world.kill(Which::SecretSyncer, 0, Duration::from_millis(1));
        let took = rotated(&world).await;
        assert!(took < EXPIRED, "{took:?}\n{}", world.story());
        good(&world).await;
    });
}
