//! Templates that take as much as the bounds allow delay no other profile, no Lease and no probe.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use osm_api::condition;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::replicas::replica;
use crate::world::{DEADLINE, NAMESPACE, World, profile};

/// A development build takes many times as long as an optimized one.
const RENDERED_WITHIN: Duration = Duration::from_secs(300);

/// Nearly as many nested loops as a template may have.
fn loops(inner: &str) -> String {
    "{{#each @root.downloads}}".repeat(20) + inner + &"{{/each}}".repeat(20)
}

/// A profile that exceeds the bounds.
struct Hostile {
    name: &'static str,
    engine: &'static str,
    templates: Value,
    text: String,
    /// A part of the place that is reported.
    place: &'static str,
}

impl Hostile {
    const FILE: &'static str = "provisioningConfig.files[0] (/etc/hostile), line 2";

    fn handlebars(name: &'static str, text: &str) -> Self {
        Self {
            name,
            engine: "Handlebars",
            templates: json!({}),
            text: format!("one\n{text}\n"),
            place: Self::FILE,
        }
    }

    fn go(name: &'static str, text: &str) -> Self {
        Self {
            engine: "GoTemplate",
            ..Self::handlebars(name, text)
        }
    }

    /// One of each kind.
    fn all() -> [Self; 6] {
        let includes = (0..20).map(|i| {
            let next = format!("{{{{> a{}}}}}", i + 1);
            (format!("a{i}"), format!("one\n{next}{next}\n"))
        });
        let last = [("a20".to_owned(), "{{#if pool.name}}{{/if}}".to_owned())];
        [
            Self::handlebars(
                "endless-loops",
                &loops("{{#if (semver @root.kubelet.version \">=1.0\")}}{{/if}}"),
            ),
            Self {
                templates: includes.chain(last).collect(),
                place: "provisioningConfig.templates.a",
                ..Self::handlebars("nested-partials", "{{> a0}}")
            },
            Self::go(
                "exploding-text",
                &("{{$x := \"0123456789\"}}".to_owned() + &"{{$x = cat $x $x}}".repeat(60)),
            ),
            Self::go(
                "deep-recursion",
                "{{define \"a\"}}{{template \"a\" .}}{{end}}{{template \"a\" .}}",
            ),
            Self::go(
                "huge-lists",
                "{{$x := list}}{{range until 100000}}{{$x = append $x \"x\"}}{{end}}",
            ),
            Self::go(
                "wide-numbers",
                "{{range until 100000}}{{$x := printf \"%100000d\" 1}}{{end}}",
            ),
        ]
    }

    fn object(&self) -> Value {
        let mut object = profile(self.name, "v1.0.0", "");
        let file =
            json!({"path": "/etc/hostile", "permissions": 600, "content": {"inline": {"data": self.text}}});
        object["spec"]["templateEngine"] = json!(self.engine);
        object["spec"]["bootstrapConfig"] = json!({});
        object["spec"]["provisioningConfig"] = json!({"files": [file], "templates": self.templates});
        object
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_without_an_end_are_refused_with_their_place_and_delay_no_other_one() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let hostile = Hostile::all();
    let objects = hostile.each_ref().map(Hostile::object);
    try_join_all(objects.iter().map(|object| world.apply(object))).await?;
    world.apply(&profile("good", "v1.0.0", "one\n")).await?;
    let accepted = async |name: &str| {
        let status = world.profiles().get(name).await?.status.unwrap_or_default();
        let found = condition::find(&status.conditions, condition::ACCEPTED).cloned();
        anyhow::Ok((status.accepted.is_some(), found))
    };
    wait_for("the good profile to be accepted", RENDERED_WITHIN, async || {
        check(accepted("good").await?.0)
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))?;
    for Hostile { name, place, .. } in &hostile {
        let message = wait_for(&format!("{name} to be refused"), RENDERED_WITHIN, async || {
            let (is_accepted, found) = accepted(name).await?;
            match found {
                Some(found) if found.status == "False" && !is_accepted => Ok(Some(found.message)),
                found => bail!("{found:?}"),
            }
        })
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
        println!("{name}: {message}");
        ensure!(message.contains(place), "{name}: {message}");
    }
    let peak = world.installed.process(Service::OspController)?.usage()?.peak_rss;
    println!("osp-controller had {} MiB at the most", peak >> 20);
    // It goes on with others.
    world.accepted_profile("good", "v1.0.1", "two\n").await
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed_and_probes_answered_while_templates_are_rendered() -> Result<()> {
    const POOLS: usize = 4;
    const REPLICAS: [usize; 2] = [0, 1];
    /// Of each Lease. Another replica would take over long before.
    const RENEWALS: usize = 15;
    let service = Service::OscController;
    let mut world = World::start(Options::default()).await?;
    world.installed.start((service, 1)).await?;
    world.sees(service, &REPLICAS, REPLICAS.len()).await?;
    // The samples of a validation have other names.
    let pools: Vec<String> = (0..POOLS).map(|i| format!("slow-{i}")).collect();
    let texts = pools.iter().map(|pool| {
        let slow = loops("{{#if (semver @root.kubelet.version \">=1.0\")}}{{/if}}");
        format!("{{{{#if (eq pool.name \"{pool}\")}}}}{slow}{{{{/if}}}}")
    });
    let text = texts.collect::<String>() + "\n";
    world.accepted_profile("osp-slow", "v1.0.0", &text).await?;
    for pool in &pools {
        world.pool(pool, "osp-slow").await?;
    }

    let reconciles = async || {
        let mut all = 0.0;
        for number in REPLICAS {
            all += world.metric(service, number, "osm_reconciles_total", "").await?;
        }
        anyhow::Ok(all)
    };
    let before = reconciles().await?;
    let leases = world.api::<Lease>(NAMESPACE);
    let mut versions = REPLICAS.map(|_| BTreeSet::new());
    let (mut revision, mut stamped_at, mut probes) = (0, 0, 0);
    let what = "Leases to be renewed and pools to be rendered";
    wait_for(what, RENDERED_WITHIN, async || {
        for number in REPLICAS {
            let pod = (service, number);
            let answered = tokio::time::timeout(DEADLINE, async {
                (
                    world.installed.is_alive(pod).await,
                    world.installed.is_ready(pod).await,
                )
            });
            // Nothing that comes later makes this right.
            let answered = answered.await.expect("an answer to both probes");
            assert_eq!(answered, (true, true), "{}", world.installed.logs());
            let seen = world.metric(service, number, "osm_replicas", "").await?;
            assert_eq!(seen as usize, REPLICAS.len(), "{}", world.installed.logs());
            let lease = leases.get(&replica(service, number)).await?;
            versions[number].extend(lease.metadata.resource_version);
            probes += 1;
        }
        // Each new revision is rendered again.
        let renewals = versions.iter().map(BTreeSet::len).min().unwrap_or(0);
        if renewals > stamped_at || revision == 0 {
            (stamped_at, revision) = (renewals, revision + 1);
            for pool in &pools {
                world.stamp(pool, revision).await?;
            }
        }
        let rendered = reconciles().await? - before;
        ensure!(
            renewals > RENEWALS && rendered >= 2.0 * POOLS as f64,
            "{renewals} renewals, {rendered} reconciles"
        );
        Ok(Some(()))
    })
    .await?;
    println!("{probes} probes were answered");
    for pool in &pools {
        let message = world.says(pool, "Rendered", false, "TemplateFailed").await?;
        ensure!(message.contains("(/etc/text), line 1"), "{message}");
    }
    Ok(())
}
