//! Runs the commands of tasks in docs/cookbook.md and docs/upgrade-and-patch.md, with the services.

use anyhow::{Context, Result, ensure};
use osm_api::names;
use osm_api::rbac::Installation;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options, fixtures};
use serde_json::json;

use crate::page::{Person, read, section_blocks};

/// In tests, there is no machine-controller that would give a template its revision.
const STAMP: &str = "kubectl annotate --overwrite machinedeployments.cluster.k8s.io workers -n kube-system";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_a_task_does_what_it_says() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let installation = Installation {
        namespace: "osm".to_owned(),
        ..Installation::default()
    };
    let mut installed = Installed::install(&plane, installation.clone(), &installation::binaries()?).await?;
    let mut pool = fixtures::machine_deployment("workers", "osp-ubuntu");
    pool["metadata"]["annotations"][names::REVISION] = json!("1");
    let settings = "defaultProfiles: {disabled: [amzn2, centos, flatcar, rhel, rockylinux]}";
    let settings = installation::settings(&installation, settings);
    installation::apply(&plane, &[settings, pool]).await?;
    installed.start_all().await?;

    let person = Person::new(vec![("cluster", &plane)]).await?;
    let (cookbook, upgrade) = (read("cookbook.md")?, read("upgrade-and-patch.md")?);
    let commands = |page: &str, heading: &str| -> Result<Vec<String>> {
        let named = |block: String| {
            block
                .replace("NAMESPACE", "kube-system")
                .replace("POOL", "workers")
        };
        Ok(section_blocks(page, heading, "bash")?
            .into_iter()
            .map(named)
            .collect())
    };

    let profile = section_blocks(&cookbook, "A file on all Ubuntu nodes", "yaml")?;
    std::fs::write(person.folder.path().join("osp-mine.yaml"), &profile[0])?;
    let file = commands(&cookbook, "A file on all Ubuntu nodes")?;
    // The page waits a minute for the profile, and the first validation takes long on a busy machine.
    person
        .run("until kubectl get osp osp-ubuntu -n osm; do sleep 1; done\nkubectl wait --for condition=Accepted osp/osp-ubuntu -n osm --timeout 4m")
        .await?;
    person.run(&file[0]).await?;
    let one = commands(&cookbook, "One pool only")?;
    let printed = person.run(&one[0]).await?;
    ensure!(printed.contains("vm.max_map_count = 262144"), "{printed}");
    let mirror = "osmctl show workers /opt/bin/osm-setup -n osm";
    let printed = person.run(mirror).await?;
    ensure!(printed.contains("https://mirror.site.example"), "{printed}");
    let shown = "osmctl status workers -n osm --wait\nosmctl show workers /etc/motd -n osm";
    for select in [&one[1], &file[1]] {
        person
            .run("kubectl annotate machinedeployments.cluster.k8s.io workers -n kube-system k8c.io/operating-system-profile-")
            .await?;
        let printed = person.run(&format!("{select}\n{shown}")).await?;
        ensure!(printed.contains("This machine runs kubelet 1.34.2"), "{printed}");
    }

    let kubelet = commands(&upgrade, "The kubelet of a pool")?;
    let stamp = format!("{STAMP} {}=2", names::REVISION);
    let printed = person.run(&format!("{}\n{stamp}\n{shown}", kubelet[0])).await?;
    ensure!(printed.contains("This machine runs kubelet 1.35.1"), "{printed}");
    let patch = section_blocks(&upgrade, "A vulnerability", "yml")?;
    let settings: serde_json::Value = serde_saphyr::from_str(&patch[0])?;
    let version = settings["settings"]["downloads"]["runc"]["version"]
        .as_str()
        .context("a version")?;
    let settings = installation::settings(&installation, &settings["settings"].to_string());
    installation::apply(&plane, &[settings]).await?;
    person.run("osmctl status workers -n osm --wait").await?;
    let check = commands(&upgrade, "A vulnerability")?;
    let printed = person.run(&check[0]).await?;
    ensure!(printed.contains(version), "{printed}");
    Ok(())
}
