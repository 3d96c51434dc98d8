//! A new revision, a new profile, an edited template: what machines boot with, and from when.

use anyhow::{Result, ensure};
use futures::TryStreamExt as _;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Resource as _, ResourceExt as _};
use osm_api::OperatingSystemConfig;
use osm_api::condition::{self, CURRENT, RENDERED};
use osm_api::names;
use osm_api::rbac::Service;
use osm_testkit::{check, wait_for};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world;

#[test]
fn a_new_revision_swaps_the_bootstrap_secret_without_a_moment_of_absence() -> Result<()> {
    in_shared_world(async |world| {
        // A new revision waits ten seconds for an edit of its profile, and osp-controller validates the
        // default profiles first.
        wait_for("profiles to be validated", world::DEADLINE, async || {
            let profiles = world.profiles().list(&ListParams::default()).await?;
            check(profiles.iter().all(|profile| {
                let status = profile.status.as_ref();
                status.and_then(|status| status.observed_generation) == profile.metadata.generation
            }))
        })
        .await?;
        world
            .accepted_profile("osp-tiny", "v1.0.0", "kubelet {{kubelet.version}}\n")
            .await?;
        world.pool("p", "osp-tiny").await?;
        world.stamp("p", 1).await?;
        let first = world.machine("p", 1).await?;
        let observer = world.observe().await?;

        // A template edited before its revision is stamped changes nothing yet.
        world
            .patch_pool(
                "p",
                json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.35.1"}}}}}),
            )
            .await?;
        world.says("p", "Rendered", true, "WaitingForRevision").await?;
        assert_eq!(world.machine("p", 1).await?.text, first.text);

        world.stamp("p", 2).await?;
        let second = world.machine("p", 2).await?;
        assert!(second.text.contains("1.35.1"));
        // A machine that booted with the first document still finds exactly that.
        world.fetch(&first).await?;
        assert_ne!(first.provisioning_secret, second.provisioning_secret);

        // OSP and MachineDeployment together: the revision rolls the new profile out, never the old one.
        for round in 3..6u64 {
            let text = format!("profile of {round}.");
            world
                .apply(&world::profile("osp-tiny", &format!("v{round}.0.0"), &text))
                .await?;
            world.stamp("p", round).await?;
            let machine = world.machine("p", round).await?;
            assert!(machine.text.contains(&text), "{round}: {}", machine.text);
        }
        for (revision, text) in observer.history("p-kube-system-bootstrap-config") {
            let round: u64 = revision.parse()?;
            assert!(
                round < 3
                    || text.contains(&format!("profile of {round}."))
                    || text.contains(&format!("profile of {}.", round + 1)),
                "revision {revision} was rolled out with an old profile:\n{text}"
            );
        }
        assert_eq!(observer.absent(), Vec::<String>::new());
        Ok(())
    })
}

#[test]
fn a_broken_profile_edit_costs_nothing_and_its_repair_takes_effect() -> Result<()> {
    in_shared_world(async |world| {
        world.accepted_profile("osp-tiny", "v1.0.0", "good\n").await?;
        world.pool("p", "osp-tiny").await?;
        world.stamp("p", 1).await?;
        world.machine("p", 1).await?;
        let observer = world.observe().await?;
        world
            .apply(&world::profile("osp-tiny", "v2.0.0", "{{#if}}\n"))
            .await?;
        wait_for("the edit to be refused", world::DEADLINE, async || {
            let status = world.profiles().get("osp-tiny").await?.status.unwrap_or_default();
            let refused = osm_api::condition::find(&status.conditions, "Accepted")
                .filter(|c| c.status == "False")
                .cloned();
            let kept = status
                .accepted
                .is_some_and(|accepted| accepted.version == "v1.0.0");
            Ok(refused
                .filter(|_| kept)
                .map(|condition| assert!(condition.message.contains("line 1"), "{}", condition.message)))
        })
        .await?;
        // A new revision is not held up by it.
        world.stamp("p", 2).await?;
        assert!(world.machine("p", 2).await?.text.contains("good"));
        assert!(
            world
                .says("p", "Current", false, "ProfileNotAccepted")
                .await?
                .contains("line 1")
        );
        world.accepted_profile("osp-tiny", "v3.0.0", "repaired\n").await?;
        world
            .machine_with("p", 2, |machine| machine.text.contains("repaired"))
            .await?;
        assert!(observer.absent().is_empty());
        Ok(())
    })
}

/// The status of commit ce96c02c, one manager of which sends conditions and documents, and which reports a
/// refused edit in its own words. The edit is corrected while neither version runs.
#[test]
fn what_an_older_version_reported_is_removed_without_its_documents() -> Result<()> {
    in_shared_world(async |world| {
        world.accepted_profile("osp-tiny", "v1.0.0", "good\n").await?;
        world.pool("p", "osp-tiny").await?;
        world.stamp("p", 1).await?;
        world.machine("p", 1).await?;
        let first = world.config("p").await?.resource_version().unwrap_or_default();
        let history = world.configs().watch(&WatchParams::default(), &first).await?;
        world
            .apply(&world::profile("osp-tiny", "v2.0.0", "{{#if}}\n"))
            .await?;
        world.says("p", CURRENT, false, "ProfileNotAccepted").await?;
        world
            .installed
            .terminate(Service::OscController, world::DEADLINE)
            .await?;

        let mut status = world.config("p").await?.status.unwrap_or_default();
        let conditions = &mut status.conditions;
        conditions.retain(|condition| [RENDERED, CURRENT].contains(&condition.type_.as_str()));
        conditions
            .iter_mut()
            .for_each(|condition| condition.message = "as an older version says it".to_owned());
        status.published = None;
        let name = names::config_name("p", "kube-system");
        let patch = json!({"apiVersion": OperatingSystemConfig::api_version(&()), "status": status,
            "kind": OperatingSystemConfig::kind(&())});
        let params = PatchParams::apply("osc-controller").force();
        world
            .configs()
            .patch_status(&name, &params, &Patch::Apply(patch))
            .await?;

        world.accepted_profile("osp-tiny", "v3.0.0", "repaired\n").await?;
        world.installed.start(Service::OscController).await?;
        world
            .machine_with("p", 1, |machine| machine.text.contains("repaired"))
            .await?;
        let last = wait_for("the refusal to be removed", world::DEADLINE, async || {
            let config = world.config("p").await?;
            let conditions = config.status.map(|status| status.conditions).unwrap_or_default();
            let is_done = condition::find(&conditions, CURRENT).is_none()
                && condition::find(&conditions, RENDERED).is_some_and(|rendered| rendered.status == "True");
            Ok(is_done.then_some(config.metadata.resource_version))
        })
        .await?;
        let mut history = std::pin::pin!(history);
        while let Some(event) = history.try_next().await? {
            let (WatchEvent::Added(config) | WatchEvent::Modified(config)) = event else {
                anyhow::bail!("{event:?}");
            };
            let (name, version) = (config.name_any(), config.metadata.resource_version);
            let rendered = config.status.and_then(|status| status.rendered);
            ensure!(rendered.is_some(), "{name} without documents at {version:?}");
            if version == last {
                break;
            }
        }
        Ok(())
    })
}
