//! The binary, as itself, against a real API server: what becomes of default profiles and of people's own.

use anyhow::{Context, Result};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{CustomResourceExt, ResourceExt};
use osm_api::names::DEFAULT_PROFILE;
use osm_api::profile::TemplateEngine;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_testkit::{ControlPlane, Options};
use serde_json::json;

use crate::support::{SOON, Site, accepted, profile, verdict, version};

/// The default profile that these tests look at.
#[allow(clippy::unwrap_used)]
fn ubuntu() -> OperatingSystemProfileSpec {
    let mut defaults = osm_render::defaults().into_iter();
    defaults
        .find_map(|(name, spec)| (name == "osp-ubuntu").then_some(spec))
        .unwrap()
}

fn is_default(stored: &OperatingSystemProfile) -> bool {
    stored.spec == ubuntu()
        && stored
            .labels()
            .get(DEFAULT_PROFILE)
            .is_some_and(|value| value == "true")
}

#[tokio::test]
async fn defaults_are_installed_accepted_and_put_back() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-defaults").await?;
    let ours = ubuntu().version;
    let installed = site
        .judged("osp-ubuntu", "True", |stored| {
            is_default(stored) && accepted(stored) == Some(&ours)
        })
        .await?;
    assert!(
        site.events("osp-ubuntu").await?.is_empty(),
        "an installation is nothing to tell of"
    );
    site.ready().await?;

    // Another version with other content.
    site.edit("osp-ubuntu", json!({"version": "v99.0.0", "osVersion": "mine"}))
        .await?;
    site.becomes("osp-ubuntu", is_default).await?;
    let note = site
        .event("osp-ubuntu", "Warning", "DefaultProfileRestored")
        .await?;
    assert!(
        note.contains("v99.0.0") && note.contains("another name"),
        "{note}"
    );
    let back = site.judged("osp-ubuntu", "True", is_default).await?;
    assert_eq!(
        (back.uid(), accepted(&back)),
        (installed.uid(), Some(ours.as_str())),
        "never missing, always accepted"
    );

    // Labels: ours comes back, others stay.
    let labels = json!({"metadata": {"labels": {DEFAULT_PROFILE: null, "team": "a"}}});
    site.profiles
        .patch("osp-ubuntu", &PatchParams::default(), &Patch::Merge(&labels))
        .await?;
    site.becomes("osp-ubuntu", |stored| {
        is_default(stored) && stored.labels().get("team").is_some()
    })
    .await?;

    site.profiles
        .delete("osp-ubuntu", &DeleteParams::default())
        .await?;
    let again = site
        .judged("osp-ubuntu", "True", |stored| stored.uid() != installed.uid())
        .await?;
    assert!(is_default(&again) && accepted(&again) == Some(&ours));
    Ok(())
}

#[tokio::test]
async fn other_content_under_a_default_s_very_version_is_put_back() -> Result<()> {
    let mut site = Site::prepare(ControlPlane::shared().await?, "osp-same-version").await?;
    site.create("osp-ubuntu", profile(&ubuntu().version, "mine"))
        .await?;
    let before = site.profiles.get("osp-ubuntu").await?;
    let refused = site
        .edit("osp-ubuntu", json!({"osVersion": "26.04"}))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("new version"),
        "what makes the detour necessary: {refused}"
    );
    site.run()?;
    let back = site.judged("osp-ubuntu", "True", is_default).await?;
    assert_eq!(back.uid(), before.uid(), "it was never missing");
    site.event("osp-ubuntu", "Warning", "DefaultProfileRestored")
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_bad_edit_is_explained_and_leaves_the_last_good_one() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-edit").await?;
    site.create("mine", profile("v1.0.0", "kubelet {{kubelet.version}}"))
        .await?;
    let good = site
        .judged("mine", "True", |stored| accepted(stored) == Some("v1.0.0"))
        .await?;
    let accepted_before = good.status.clone().context("status")?.accepted;
    assert_eq!(accepted_before.clone().context("accepted")?.spec.0, good.spec);

    // One that does not parse, and one that fails when it is rendered.
    for (broken, text, reason) in [
        ("v1.1.0", "fine\n  {{#if proxy.http}}\nno end", "TemplateInvalid"),
        ("v1.2.0", "fine\n  {{no.such.field}}\n", "TemplateFailed"),
    ] {
        site.edit("mine", profile(broken, text)).await?;
        let refused = site
            .judged("mine", "False", |stored| stored.spec.version == broken)
            .await?;
        let (found, message) = verdict(&refused);
        assert_eq!(found, reason, "{message}");
        let place = "provisioningConfig.files[0] (/etc/motd), line ";
        assert!(
            message.contains(place) && message.contains(", column "),
            "{message}"
        );
        assert!(
            message.ends_with("until then version v1.0.0 stays in use"),
            "{message}"
        );
        assert_eq!(refused.status.context("status")?.accepted, accepted_before);
        assert_eq!(site.event("mine", "Warning", reason).await?, message);
    }

    site.edit("mine", profile("v1.3.0", "kubelet {{kubelet.version}}, mended"))
        .await?;
    site.judged("mine", "True", |stored| accepted(stored) == Some("v1.3.0"))
        .await?;
    assert!(site.event("mine", "Normal", "Accepted").await?.contains("v1.3.0"));
    Ok(())
}

#[tokio::test]
async fn what_can_t_be_rendered_is_refused_with_what_to_do() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-refused").await?;
    let mut go = profile("v1.0.0", "{{ .KubeVersion }}\n{{ .KubletVersion }}");
    go.as_object_mut().context("object")?.remove("templateEngine");
    site.create("go", go).await?;
    let (reason, message) = verdict(
        &site
            .judged("go", "False", |stored| accepted(stored).is_none())
            .await?,
    );
    assert_eq!(reason, "TemplateFailed");
    assert!(
        message.contains("line 2, column 4: at <.KubletVersion>: can't evaluate field"),
        "{message}"
    );
    assert_eq!(site.event("go", "Warning", "TemplateFailed").await?, message);

    let mut extending = profile("v1.0.0", "text");
    extending["extends"] = json!("nothing");
    site.create("extending", extending).await?;
    let refused = site.judged("extending", "False", |_| true).await?;
    assert_eq!(verdict(&refused).0, "ParentNotFound");

    let mut large = profile("v1.0.0", "");
    large["provisioningConfig"]["files"][0]["content"]["inline"]["data"] = json!("x".repeat(600 * 1024));
    site.create("large", large).await?;
    assert_eq!(
        verdict(&site.judged("large", "False", |_| true).await?).0,
        "ContentTooLarge"
    );

    // Small enough as text, but the API server stores this character as six.
    let mut swelling = profile("v1.0.0", "");
    swelling["provisioningConfig"]["files"] = ["/a", "/b"]
        .map(|path| json!({"path": path, "content": {"inline": {"data": "<".repeat(100 * 1024)}}}))
        .into();
    site.create("swelling", swelling).await?;
    assert_eq!(
        verdict(&site.judged("swelling", "False", |_| true).await?).0,
        "ContentTooLarge"
    );

    // They are counted after the status is written.
    let lines = [
        ("TemplateFailed", 1),
        ("ParentNotFound", 1),
        ("ContentTooLarge", 2),
    ]
    .map(|(reason, count)| {
        format!(r#"osm_objects{{condition="Accepted",reason="{reason}",status="False"}} {count}"#)
    });
    let metrics = site
        .wait("the refused profiles to be counted", async || {
            let (_, metrics) = site.get("/metrics").await?;
            Ok(lines.iter().all(|line| metrics.contains(line)).then_some(metrics))
        })
        .await?;
    assert!(!metrics.contains("extending"), "no names in metrics");
    site.profiles.delete("large", &DeleteParams::default()).await?;
    let gone = r#"osm_objects{condition="Accepted",reason="ContentTooLarge",status="False"} 1"#;
    site.wait("large to be counted no longer", async || {
        Ok(site.get("/metrics").await?.1.contains(gone).then_some(()))
    })
    .await
}

#[tokio::test]
async fn modules_that_cloud_init_would_not_understand_are_refused() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-modules").await?;
    let with = |version: &str, bootstrap, provisioning| {
        let mut spec = profile(version, "text");
        spec["bootstrapConfig"]["modules"] = bootstrap;
        spec["provisioningConfig"]["modules"] = provisioning;
        spec
    };
    let good = with(
        "v1.0.0",
        json!({"runcmd": ["true"]}),
        json!({"ntp": {"servers": ["{{cluster.dnsDomain}}"]}}),
    );
    site.create("mine", good).await?;
    let before = site
        .judged("mine", "True", |stored| accepted(stored) == Some("v1.0.0"))
        .await?;

    let bad = with(
        "v1.1.0",
        json!({"runcdm": ["true"]}),
        json!({"ntp": {"servers": [1, 2]}}),
    );
    site.edit("mine", bad).await?;
    let refused = site
        .judged("mine", "False", |stored| stored.spec.version == "v1.1.0")
        .await?;
    let (reason, message) = verdict(&refused);
    assert_eq!(reason, "ModulesInvalid");
    for problem in [
        "bootstrapConfig.modules.runcdm: is not known to cloud-init",
        "provisioningConfig.modules.ntp.servers[0]: is not of type string",
        "provisioningConfig.modules.ntp.servers[1]: is not of type string",
        "until then version v1.0.0 stays in use",
    ] {
        assert!(message.contains(problem), "{problem} is not in {message}");
    }
    assert_eq!(
        refused.status.context("status")?.accepted,
        before.status.context("status")?.accepted
    );
    assert_eq!(site.event("mine", "Warning", "ModulesInvalid").await?, message);
    Ok(())
}

#[tokio::test]
async fn an_endless_template_holds_up_no_other_profile() -> Result<()> {
    let site = Site::start(ControlPlane::shared().await?, "osp-endless").await?;
    // Each of these would render for years.
    let mut exploding = profile("v1.0.0", "{{> t0}}");
    for i in 0..40 {
        let next = i + 1;
        exploding["provisioningConfig"]["templates"][format!("t{i}")] =
            json!(format!("{{{{> t{next}}}}}{{{{> t{next}}}}}"));
    }
    exploding["provisioningConfig"]["templates"]["t40"] = json!("x");
    let looping = format!(
        "{}x{}",
        "{{#each @root.downloads}}".repeat(20),
        "{{/each}}".repeat(20)
    );
    let looping = profile("v1.0.0", &looping);
    // Each of these takes a while, because it is rendered for every sample pool, and is good.
    let (open, close) = ("{{#each @root.downloads}}".repeat(4), "{{/each}}".repeat(4));
    let mut slow = profile("v1.0.0", &format!("{open}{close}").repeat(2));
    slow["supportedCloudProviders"] = [
        "alibaba",
        "anexia",
        "aws",
        "azure",
        "gce",
        "hetzner",
        "openstack",
        "vsphere",
    ]
    .map(|name| json!({"name": name}))
    .into();
    for name in ["slow-0", "slow-1", "slow-2"] {
        site.create(name, slow.clone()).await?;
    }
    site.create("exploding", exploding).await?;
    site.create("looping", looping).await?;
    site.create("quick", profile("v1.0.0", "text")).await?;
    site.judged("quick", "True", |_| true).await?;
    for (name, reason, problem) in [
        ("exploding", "TemplateFailed", "includes too much"),
        ("looping", "TemplateFailed", "too many loops"),
    ] {
        let refused = site
            .judged(name, "False", |stored| accepted(stored).is_none())
            .await?;
        let (found, message) = verdict(&refused);
        assert!(found == reason && message.contains(problem), "{found}: {message}");
    }
    for name in ["slow-0", "slow-1", "slow-2"] {
        site.judged(name, "True", |_| true).await?;
    }
    Ok(())
}

#[tokio::test]
async fn kill_9_in_the_middle_loses_nothing() -> Result<()> {
    let mut site = Site::start(ControlPlane::shared().await?, "osp-kill").await?;
    for i in 0..20 {
        let text = if i % 2 == 0 { "good" } else { "{{broken" };
        site.create(&format!("p{i}"), profile("v1.0.0", text)).await?;
    }
    site.wait("the first verdict", async || {
        let judged = site.profiles.list(&Default::default()).await?;
        Ok(judged
            .items
            .iter()
            .any(|stored| {
                stored
                    .status
                    .as_ref()
                    .is_some_and(|status| !status.conditions.is_empty())
            })
            .then_some(()))
    })
    .await?;
    site.kill9()?;
    // What happens meanwhile is not missed either.
    let there = site.profiles.get_opt("osp-ubuntu").await?.is_some();
    if there {
        site.profiles
            .delete("osp-ubuntu", &DeleteParams::default())
            .await?;
    }
    site.edit("p0", profile("v2.0.0", "{{broken")).await?;
    site.edit("p1", profile("v2.0.0", "good")).await?;
    site.run()?;
    for i in 0..20 {
        let good = if i < 2 { i == 1 } else { i % 2 == 0 };
        let expected = if good { "True" } else { "False" };
        let stored = site.judged(&format!("p{i}"), expected, |_| true).await?;
        if good {
            assert_eq!(accepted(&stored), Some(stored.spec.version.as_str()), "p{i}");
        }
    }
    site.judged("osp-ubuntu", "True", is_default).await?;
    Ok(())
}

#[tokio::test]
async fn nothing_is_written_when_nothing_changes() -> Result<()> {
    let mut site = Site::start(ControlPlane::shared().await?, "osp-quiet").await?;
    site.create("good", profile("v1.0.0", "text")).await?;
    site.create("bad", profile("v1.0.0", "{{broken")).await?;
    let settled = [
        site.judged("osp-ubuntu", "True", |_| true).await?,
        site.judged("good", "True", |_| true).await?,
        site.judged("bad", "False", |_| true).await?,
    ];
    let told = site.event("bad", "Warning", "TemplateInvalid").await?;
    site.settings("cluster: {dnsDomain: other.local}").await?;
    site.create("later", profile("v1.0.0", "text")).await?;
    site.judged("later", "True", |_| true).await?;
    site.terminate().await?;
    site.run()?;
    site.create("after-restart", profile("v1.0.0", "text")).await?;
    site.judged("after-restart", "True", |_| true).await?;
    let counted = r#"osm_objects{condition="Accepted",reason="TemplateInvalid",status="False"} 1"#;
    // Three of these tests', and every default one.
    let all = 3 + osm_render::defaults().len();
    let good = format!(r#"osm_objects{{condition="Accepted",reason="Accepted",status="True"}} {all}"#);
    site.wait("every profile to be looked at again", async || {
        let metrics = site.get("/metrics").await?.1;
        Ok(metrics
            .lines()
            .any(|line| line == good)
            .then_some(())
            .filter(|()| metrics.contains(counted)))
    })
    .await?;
    for before in settled {
        let now = site.profiles.get(&before.name_any()).await?;
        assert_eq!(
            version(&now),
            version(&before),
            "{} was written",
            before.name_any()
        );
    }
    let events = site.events("bad").await?;
    assert_eq!(events.len(), 1, "{told} was told again: {events:#?}");
    assert!(events.iter().all(|event| event.series.is_none()));
    Ok(())
}

#[tokio::test]
async fn settings_switch_defaults_off_and_on() -> Result<()> {
    let mut site = Site::prepare(ControlPlane::shared().await?, "osp-off").await?;
    site.settings("defaultProfiles: {enabled: false}").await?;
    site.run()?;
    site.create("marker", profile("v1.0.0", "text")).await?;
    site.judged("marker", "True", |_| true).await?;
    site.ready().await?;
    assert!(site.profiles.get_opt("osp-ubuntu").await?.is_none());

    site.settings("defaultProfiles: {enabled: true}").await?;
    site.judged("osp-ubuntu", "True", is_default).await?;

    // By operating system: what is there stays, and is judged as anybody's.
    site.settings("defaultProfiles: {disabled: [ubuntu]}").await?;
    site.wait("the edit to be left alone", async || {
        // Until the settings are known, the first edits are still undone.
        site.edit("osp-ubuntu", profile("v99.0.0", "mine")).await?;
        let stored = site.profiles.get("osp-ubuntu").await?;
        Ok((accepted(&stored) == Some("v99.0.0")).then_some(()))
    })
    .await?;
    site.profiles
        .delete("osp-ubuntu", &DeleteParams::default())
        .await?;
    site.edit("marker", profile("v1.1.0", "{{broken")).await?;
    site.judged("marker", "False", |_| true).await?;
    assert!(site.profiles.get_opt("osp-ubuntu").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn without_the_right_to_tell_it_still_judges_and_says_what_is_missing() -> Result<()> {
    let control_plane = ControlPlane::shared().await?;
    let mut site = Site::prepare_with(control_plane, "osp-mute", |resource| resource != "events").await?;
    site.run()?;
    for (name, text) in [("a", "{{broken"), ("b", "text")] {
        site.create(name, profile("v1.0.0", text)).await?;
    }
    site.judged("a", "False", |_| true).await?;
    site.judged("b", "True", |_| true).await?;
    site.wait("the missing right to be named", async || {
        let (code, body) = site.get("/readyz").await?;
        Ok((code == 503 && body.contains("create events in osp-mute")).then_some(()))
    })
    .await
}

#[tokio::test]
async fn it_starts_without_an_api_server_and_goes_on_after_an_outage() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let mut site = Site::prepare(&control_plane, "osp-outage").await?;
    control_plane.stop_apiserver().await?;
    site.run()?;
    site.wait("it to say that it waits", async || {
        let (code, body) = site.get("/readyz").await?;
        let (live, _) = site.get("/livez").await?;
        Ok((code == 503 && live == 200 && body.contains("watch of operatingsystemprofiles")).then_some(()))
    })
    .await?;
    control_plane.start_apiserver().await?;
    site.ready().await?;
    site.judged("osp-ubuntu", "True", is_default).await?;

    // An outage in the middle.
    control_plane.stop_apiserver().await?;
    control_plane.start_apiserver().await?;
    site.create("mine", profile("v1.0.0", "text")).await?;
    site.judged("mine", "True", |_| true).await?;
    tokio::time::timeout(SOON, site.terminate()).await??;
    Ok(())
}

#[tokio::test]
async fn with_the_definitions_of_another_version_it_complains_and_creates_nothing() -> Result<()> {
    let control_plane = ControlPlane::start(Options::default()).await?;
    let mut site = Site::prepare(&control_plane, "osp-old-crd").await?;
    let mut old = serde_json::to_value(OperatingSystemProfile::crd())?;
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = old
        .pointer_mut(properties)
        .and_then(serde_json::Value::as_object_mut)
        .context("schema")?;
    fields
        .remove("templateEngine")
        .context("a field that the Go implementation does not know")?;
    control_plane.apply_yaml(&old.to_string()).await?;
    site.wait("the field to be dropped", async || {
        site.create("probe", profile("v1.0.0", "text")).await?;
        let stored = site.profiles.get("probe").await?;
        site.profiles.delete("probe", &DeleteParams::default()).await?;
        Ok((stored.spec.template_engine == TemplateEngine::GoTemplate).then_some(()))
    })
    .await?;
    site.run()?;
    let attempts = async |wanted: u32| {
        site.wait("attempts", async || {
            let metrics = site.get("/metrics").await?.1;
            // Until the check of the definitions has ended, a dry run finds it out.
            let count = ["DefinitionsOutdated", "FieldsDropped"].map(|reason| {
                let counted = format!("osm_reconciles_total{{outcome=\"failure\",reason=\"{reason}\"}} ");
                let found = metrics
                    .lines()
                    .find_map(|line| line.strip_prefix(&counted)?.parse::<u32>().ok());
                found.unwrap_or(0)
            });
            Ok((count.iter().sum::<u32>() >= wanted).then_some(()))
        })
        .await
    };
    // There are more default profiles than one, and each is tried again.
    attempts(40).await?;
    let stored = site.profiles.list(&ListParams::default()).await?;
    assert!(
        stored.items.is_empty(),
        "a profile was created with dropped fields"
    );
    control_plane
        .apply_yaml(&serde_json::to_string(&OperatingSystemProfile::crd())?)
        .await?;
    site.judged("osp-ubuntu", "True", is_default).await?;
    Ok(())
}
