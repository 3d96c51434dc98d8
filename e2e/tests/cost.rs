//! What a pool costs the API server, compared with the recorded table `cost.toml`: requests by verb and
//! resource, and bytes written.
//!
//! One pool changes at a time, and the next change waits until the services send nothing, so that the numbers
//! do not depend on time. `cargo xtask bless --cost` runs this test with `OSM_BLESS=1`, which writes the
//! table instead of comparing it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile};
use osm_testkit::control_plane::AuditLog;
use osm_testkit::cost::{Cost, until_quiet};
use osm_testkit::installation::{self, Installed};
use osm_testkit::machine_controller::machine_deployment;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(120);

const NAMESPACE: &str = "kube-system";

/// Pools that go through all changes.
const POOLS: [&str; 3] = ["pool-a", "pool-b", "pool-c"];

/// Requests that services send for a pool, and not for a list.
const PER_POOL: [&str; 4] = [
    "get operatingsystemconfigs",
    "get secrets",
    "patch operatingsystemconfigs/status",
    "update secrets",
];

/// The first pool of an installation. secret-syncer asks only for it what tokens of all pools may do. It has
/// a profile of its own.
const FIRST: &str = "pool-0";

/// A copy of the default profile that the other pools have, because the default profile is restored if it is
/// changed.
const PROFILE: &str = "osp-cost";

/// A service reads the uid of `kube-system` at most once every few seconds, however many pools change.
const CLUSTER_IDENTITY: &str = "get namespaces";

/// Objects hold tokens, times and compressed text, whose lengths differ by a few bytes.
const TOLERANCE_PERCENT: u64 = 2;

/// By change.
type Table = BTreeMap<String, Cost>;

struct World {
    plane: ControlPlane,
    log: AuditLog,
    installed: Installed,
}

impl World {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(Options {
            audit_bodies: true,
            ..Options::default()
        })
        .await?;
        let binaries = tokio::task::spawn_blocking(installation::binaries).await??;
        let mut installed = Installed::install(&plane, Installation::default(), &binaries).await?;
        installed.start_all().await?;
        installed.ready(DEADLINE).await?;
        let profiles = Api::<OperatingSystemProfile>::namespaced(plane.admin()?, NAMESPACE);
        let default = wait_for("the default profile", DEADLINE, async || {
            let profile = profiles.get("osp-ubuntu").await?;
            let status = profile.status.as_ref();
            let is_accepted = status.is_some_and(|status| status.accepted.is_some());
            Ok(is_accepted.then_some(profile))
        })
        .await?;
        let copy = OperatingSystemProfile::new(PROFILE, default.spec);
        profiles.create(&PostParams::default(), &copy).await?;
        let mut world = Self {
            log: plane.audit_log()?,
            plane,
            installed,
        };
        world.create(FIRST, PROFILE).await?;
        world.cost().await?;
        Ok(world)
    }

    fn pools(&self) -> Result<Api<DynamicObject>> {
        Ok(Api::namespaced_with(
            self.plane.admin()?,
            NAMESPACE,
            &machine_deployment(),
        ))
    }

    async fn create(&self, pool: &str, profile: &str) -> Result<()> {
        let object = serde_json::from_value(example(pool, profile, 1)?)?;
        self.pools()?.create(&PostParams::default(), &object).await?;
        self.published(pool, 1).await
    }

    async fn patch(&self, pool: &str, revision: u64, mut patch: Value) -> Result<()> {
        patch["metadata"] = json!({"annotations": {names::REVISION: revision.to_string()}});
        let pools = self.pools()?;
        pools
            .patch(pool, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.published(pool, revision).await
    }

    /// Gives the profile of the first pool another version and another file.
    async fn change_profile(&self, version: u32) -> Result<()> {
        let before = self.bootstrap_version().await?;
        let profiles = Api::<OperatingSystemProfile>::namespaced(self.plane.admin()?, NAMESPACE);
        let mut profile = profiles.get(PROFILE).await?;
        profile.spec.version = format!("v99.0.{version}");
        let file = json!({"path": "/etc/cost", "content": {"inline": {"data": format!("{version}\n")}}});
        let files = &mut profile.spec.provisioning_config.files;
        files.retain(|file| file.path != "/etc/cost");
        files.push(serde_json::from_value(file)?);
        profiles
            .replace(PROFILE, &PostParams::default(), &profile)
            .await?;
        self.published_after(&before).await
    }

    /// Changes the settings of the installation while there is only the first pool.
    async fn change_settings(&self, number: u32) -> Result<()> {
        let before = self.bootstrap_version().await?;
        let document = format!("cluster: {{dnsIPs: [10.96.0.{number}]}}\n");
        let settings = installation::settings(self.installed.installation(), &document);
        installation::apply(&self.plane, &[settings]).await?;
        self.published_after(&before).await
    }

    /// resourceVersion of the bootstrap Secret of the first pool.
    async fn bootstrap_version(&self) -> Result<String> {
        let secrets = Api::<Secret>::namespaced(self.plane.admin()?, CLOUD_INIT_SETTINGS);
        let secret = secrets
            .get(&names::bootstrap_secret_name(FIRST, NAMESPACE))
            .await?;
        Ok(secret.resource_version().unwrap_or_default())
    }

    async fn published_after(&self, version: &str) -> Result<()> {
        wait_for("the first pool to be published again", DEADLINE, async || {
            check(self.bootstrap_version().await? != version)
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }

    async fn delete(&self, pool: &str) -> Result<()> {
        self.pools()?.delete(pool, &DeleteParams::default()).await?;
        let configs = Api::<OperatingSystemConfig>::namespaced(self.plane.admin()?, NAMESPACE);
        let name = names::config_name(pool, NAMESPACE);
        wait_for("the config to be deleted", DEADLINE, async || {
            check(configs.get_metadata_opt(&name).await?.is_none())
        })
        .await
    }

    /// Waits until the bootstrap Secret has a revision.
    async fn published(&self, pool: &str, revision: u64) -> Result<()> {
        let secrets = Api::<Secret>::namespaced(self.plane.admin()?, CLOUD_INIT_SETTINGS);
        let name = names::bootstrap_secret_name(pool, NAMESPACE);
        wait_for(&format!("{name} at revision {revision}"), DEADLINE, async || {
            let secret = secrets.get(&name).await?;
            check(secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) == Some(&revision.to_string()))
        })
        .await
        .map_err(|error| error.context(self.installed.logs()))
    }

    /// Kills all services and starts them again. Returns what that costs.
    async fn restart(&mut self) -> Result<Cost> {
        for service in Service::ALL {
            self.installed.kill9(service)?;
        }
        self.installed.start_all().await?;
        self.installed.ready(DEADLINE).await?;
        self.cost().await
    }

    /// What the services sent since the last call.
    async fn cost(&mut self) -> Result<Cost> {
        Ok(Cost::of(&until_quiet(&mut self.log, DEADLINE).await?))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_costs_no_more_than_recorded() -> Result<()> {
    let mut world = World::start().await?;
    let mut now = Table::new();
    for number in 1..=2 {
        world.change_profile(number).await?;
        add(&mut now, "profile", world.cost().await?);
        world.change_settings(number + 10).await?;
        add(&mut now, "settings", world.cost().await?);
    }
    for pool in POOLS {
        world.create(pool, "osp-ubuntu").await?;
        add(&mut now, "created", world.cost().await?);
        let template = json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.34.3"}}}}});
        world.patch(pool, 2, template).await?;
        add(&mut now, "rotated", world.cost().await?);
        world.patch(pool, 3, json!({})).await?;
        add(&mut now, "revision", world.cost().await?);
    }
    let restarted = world.restart().await?;
    let reads: Vec<_> = restarted
        .requests
        .iter()
        .filter(|(kind, _)| PER_POOL.contains(&kind.as_str()))
        .collect();
    ensure!(reads.is_empty(), "a restart without any change sends {reads:?}");
    for pool in POOLS {
        world.delete(pool).await?;
        add(&mut now, "deleted", world.cost().await?);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cost.toml");
    if std::env::var_os("OSM_BLESS").is_some() {
        std::fs::write(&path, record(&now)?)?;
        return Ok(());
    }
    let recorded: Table = toml::from_str(&std::fs::read_to_string(&path)?)?;
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for (change, cost) in &now {
        compare(
            change,
            cost,
            &recorded.get(change).cloned().unwrap_or_default(),
            &mut worse,
            &mut better,
        );
    }
    if !better.is_empty() {
        println!(
            "better than recorded: run `cargo xtask bless --cost`\n{}",
            better.join("\n")
        );
    }
    ensure!(
        worse.is_empty(),
        "a pool costs more than recorded; if that is meant, run `cargo xtask bless --cost` and read the diff:\n{}",
        worse.join("\n")
    );
    Ok(())
}

/// Adds the cost of one pool. Chance only adds requests: one that is sent again after a conflict, or a
/// question whose answer is remembered for some minutes. So the smallest numbers of all pools count, and the
/// largest size.
fn add(table: &mut Table, change: &str, mut cost: Cost) {
    cost.requests.remove(CLUSTER_IDENTITY);
    let Some(known) = table.get_mut(change) else {
        table.insert(change.to_owned(), cost);
        return;
    };
    known.requests.retain(|kind, count| {
        *count = (*count).min(cost.requests.get(kind).copied().unwrap_or_default());
        *count > 0
    });
    known.bytes_written = known.bytes_written.max(cost.bytes_written);
}

fn compare(change: &str, now: &Cost, then: &Cost, worse: &mut Vec<String>, better: &mut Vec<String>) {
    let kinds = now.requests.keys().chain(then.requests.keys());
    for kind in kinds.collect::<std::collections::BTreeSet<_>>() {
        let of = |cost: &Cost| cost.requests.get(kind).copied().unwrap_or_default();
        let line = format!("{change}: {kind}: {}, recorded {}", of(now), of(then));
        match of(now).cmp(&of(then)) {
            std::cmp::Ordering::Greater => worse.push(line),
            std::cmp::Ordering::Less => better.push(line),
            std::cmp::Ordering::Equal => {}
        }
    }
    let line = format!(
        "{change}: {} bytes written, recorded {}",
        now.bytes_written, then.bytes_written
    );
    if now.bytes_written * 100 > then.bytes_written * (100 + TOLERANCE_PERCENT) {
        worse.push(line);
    } else if now.bytes_written * (100 + TOLERANCE_PERCENT) < then.bytes_written * 100 {
        better.push(line);
    }
}

fn record(table: &Table) -> Result<String> {
    Ok(format!(
        "# Written by `cargo xtask bless --cost`: what one pool (Ubuntu on AWS) costs the API server.\n\
         # Leases, Events and watches do not count. Bytes are those of the stored objects as JSON, each time that one is stored.\n\n{}",
        toml::to_string(table)?
    ))
}

#[test]
fn more_requests_and_more_bytes_are_worse() {
    let cost = |creates: u64, bytes_written: u64| Cost {
        requests: BTreeMap::from([("create secrets".to_owned(), creates)]),
        bytes_written,
    };
    let found = |now: Cost, then: Cost| {
        let (mut worse, mut better) = (Vec::new(), Vec::new());
        compare("created", &now, &then, &mut worse, &mut better);
        (worse.len(), better.len())
    };
    assert_eq!(found(cost(2, 1000), cost(2, 1000)), (0, 0));
    assert_eq!(
        found(cost(2, 1020), cost(2, 1000)),
        (0, 0),
        "within the tolerance"
    );
    assert_eq!(found(cost(2, 1021), cost(2, 1000)), (1, 0));
    assert_eq!(found(cost(3, 900), cost(2, 1000)), (1, 1));
    assert_eq!(found(cost(1, 0), Cost::default()), (1, 0), "not recorded");
    assert_eq!(found(Cost::default(), cost(1, 0)), (0, 1));
}

/// The MachineDeployment of `examples/machinedeployment-ubuntu-aws.yaml` with another name and profile, at a
/// revision.
fn example(name: &str, profile: &str, revision: u64) -> Result<Value> {
    const PATH: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/machinedeployment-ubuntu-aws.yaml"
    );
    let text = std::fs::read_to_string(PATH).context(PATH)?;
    let mut example: Value = serde_saphyr::from_str(&text).context(PATH)?;
    let labels = json!({"pool": name});
    for (path, value) in [
        ("/metadata/name", json!(name)),
        ("/spec/selector/matchLabels", labels.clone()),
        ("/spec/template/metadata/labels", labels),
    ] {
        *example.pointer_mut(path).context(path)? = value;
    }
    let annotations = example
        .pointer_mut("/metadata/annotations")
        .context("annotations")?;
    annotations[names::PROFILE] = json!(profile);
    annotations[names::REVISION] = json!(revision.to_string());
    Ok(example)
}
