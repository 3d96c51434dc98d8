//! machine-controller itself makes machines from what the services publish, with its provider for KubeVirt.
//! No machine boots here: it is a VirtualMachine, and a Secret with the user data that KubeVirt would hand to
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use osm_api::names::{CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS, GROUP, KUBE_SYSTEM, MACHINE_NAME_PLACEHOLDER};
use osm_judges::go_module::{Flags, GoModule};
use osm_testkit::{Options, Service, machine_controller, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, NAMESPACE, World, machine_deployment, profile};

/// Pools, each with the operating system of its name and the default profile for that.
const SYSTEMS: [&str; 5] = ["centos", "flatcar", "rhel", "rockylinux", "ubuntu"];

/// A pool whose profile the test edits.
const EDITED: &str = "edited";

#[tokio::test]
#[ignore = "builds machine-controller, which takes long; .ci/nightly runs it"]
async fn machine_controller_makes_machines_from_what_is_published() -> Result<()> {
    let mut world = World::start_without_services(Options {
        controllers: vec!["garbage-collector-controller"],
        ..Options::default()
    })
    .await?;
    world
        .set_settings("defaultProfiles: {disabled: [amzn2]}\n")
        .await?;
    world.installed.start_all().await?;
    for kind in ["VirtualMachine", "VirtualMachineInstance"] {
        world.apply(&kubevirt(kind)).await?;
    }
    let storage_class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "standard"}, "provisioner": "example.com/none"});
    world.apply(&storage_class).await?;
    let folder = tempfile::tempdir()?;
    let program = start(&world, &folder.path().join("log")).await?;
    let played = play(&world).await;
    played.map_err(|error| error.context(format!("{}\n{}", world.installed.logs(), program.log_tail(40))))
}

async fn play(world: &World) -> Result<()> {
    let nothing = everything(world).await?;
    apply_profile(world, "v1.0.0", "one\n").await?;
    world.apply(&pool(EDITED, "ubuntu", "osp-tiny")).await?;
    for os in SYSTEMS {
        world.apply(&pool(os, os, &format!("osp-{os}"))).await?;
    }
    let mut first = BTreeMap::new();
    for pool in SYSTEMS.into_iter().chain([EDITED]) {
        first.insert(
            pool,
            new_machines(world, pool, "1", 1, &Machines::new(), true).await?,
        );
    }

    // An edited profile is for the next machine.
    apply_profile(world, "v1.1.0", "two\n").await?;
    world
        .machine_with(EDITED, 1, |machine| machine.text.contains("two"))
        .await?;
    world.patch_pool(EDITED, json!({"spec": {"replicas": 2}})).await?;
    new_machines(world, EDITED, "1", 1, &first[EDITED], true).await?;
    for pool in SYSTEMS {
        ensure!(machines(world, pool).await? == first[pool], "{pool}");
    }

    // An edited template replaces all.
    let newer = json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.34.3"}}}}});
    for pool in first.keys() {
        world.patch_pool(pool, newer.clone()).await?;
    }
    for (pool, old) in &first {
        let replicas = if *pool == EDITED { 2 } else { 1 };
        new_machines(world, pool, "2", replicas, old, false).await?;
    }

    for pool in first.keys() {
        world.delete(&world.pools(), pool).await?;
    }
    wait_for("everything to go", DEADLINE, async || {
        let left = everything(world).await?;
        ensure!(left == nothing, "{:?}", left.difference(&nothing));
        Ok(Some(()))
    })
    .await
}

/// Starts machine-controller as KubeOne does, apart from ports:
/// addons/machinecontroller/deployment-controller.yaml and pkg/credentials/credentials.go in
/// kubermatic/kubeone v1.13.7.
async fn start(world: &World, log: &Path) -> Result<Service> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../judges/machine-controller");
    let package = "k8c.io/machine-controller/cmd/machine-controller";
    let binary = GoModule::new(&directory, "machine-controller", Flags::default())?
        .build("machine-controller", package, |line| eprintln!("{line}"))
        .await?;
    let kubeconfig = world.plane.admin_kubeconfig_path();
    let arguments = [
        format!("-kubeconfig={}", kubeconfig.display()),
        "-health-probe-address=127.0.0.1:0".to_owned(),
        "-metrics-address=127.0.0.1:0".to_owned(),
        "-node-csr-approver".to_owned(),
        "-join-cluster-timeout=15m".to_owned(),
    ];
    let environment = [("KUBEVIRT_KUBECONFIG", std::fs::read_to_string(kubeconfig)?)];
    Service::spawn(&binary, arguments, environment, log)
}

/// The definition of a kind of KubeVirt, with any fields.
fn kubevirt(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.kubevirt.io")},
        "spec": {"group": "kubevirt.io", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

async fn apply_profile(world: &World, version: &str, text: &str) -> Result<()> {
    let mut tiny = profile("osp-tiny", version, text);
    tiny["spec"]["supportedCloudProviders"] = json!([{"name": "kubevirt"}]);
    world.apply(&tiny).await
}

fn pool(name: &str, os: &str, profile: &str) -> Value {
    let mut pool = machine_deployment(name, profile);
    // Its webhook would set these: PopulateDefaultsMachineDeployment in
    // sdk/apis/cluster/v1alpha1/defaults.go. No node joins here, so a rollout must not wait for one.
    pool["spec"]["minReadySeconds"] = 0.into();
    pool["spec"]["revisionHistoryLimit"] = 1.into();
    pool["spec"]["progressDeadlineSeconds"] = 600.into();
    pool["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 2}});
    let machine = &mut pool["spec"]["template"]["spec"]["providerSpec"]["value"];
    machine["operatingSystem"] = os.into();
    machine["operatingSystemSpec"] = json!({});
    machine["cloudProvider"] = "kubevirt".into();
    machine["cloudProviderSpec"] = json!({"virtualMachine": {"template": {"cpus": "1", "memory": "2Gi",
        "primaryDisk": {"osImage": "http://images.example.com/image", "size": "10Gi", "storageClassName": "standard",
            "storageAccessType": "ReadWriteOnce"}}}});
    pool
}

/// VirtualMachines by name, each with the user data that KubeVirt would take from the Secret of its volume.
type Machines = BTreeMap<String, (DynamicObject, String)>;

/// The machines of a pool: label, volume and Secret are those of
/// pkg/cloudprovider/provider/kubevirt/provider.go.
async fn machines(world: &World, pool: &str) -> Result<Machines> {
    let secrets = world.api::<Secret>(KUBE_SYSTEM);
    let label = ListParams::default().labels(&format!("md={pool}"));
    let mut machines = BTreeMap::new();
    for object in list(world, "kubevirt.io/v1/VirtualMachine", KUBE_SYSTEM, &label).await? {
        let volumes = object.data.pointer("/spec/template/spec/volumes");
        let mut volumes = volumes.and_then(Value::as_array).into_iter().flatten();
        let secret = volumes.find_map(|volume| volume.pointer("/cloudInitNoCloud/secretRef/name")?.as_str());
        let secret = secrets.get(secret.context("a Secret")?).await?;
        let user_data = secret.data.unwrap_or_default().remove("userdata");
        let user_data = String::from_utf8(user_data.context("user data")?.0)?;
        machines.insert(object.name_any(), (object, user_data));
    }
    Ok(machines)
}

/// Waits until a pool has this many machines besides the old ones, which all stay as they are or are all
/// gone. Each new one has what is published for this revision, with its name filled in and nothing else
/// changed.
async fn new_machines(
    world: &World,
    pool: &str,
    revision: &str,
    count: usize,
    old: &Machines,
    stay: bool,
) -> Result<Machines> {
    let what = format!("{count} machines of {pool} at revision {revision}");
    wait_for(&what, DEADLINE, async || {
        let mut made = machines(world, pool).await?;
        for (name, machine) in old {
            ensure!(made.remove(name).as_ref() == stay.then_some(machine), "{name}");
        }
        let secret = world.bootstrap(pool).await?;
        let data = secret.data.clone().unwrap_or_default().remove(CLOUD_CONFIG_KEY);
        let published = String::from_utf8(data.context(CLOUD_CONFIG_KEY)?.0)?;
        for (name, (machine, user_data)) in &made {
            let named = published.replace(MACHINE_NAME_PLACEHOLDER, name);
            let named = named.replace("%3CMACHINE_NAME%3E", name);
            ensure!(
                user_data.contains(name) && *user_data == named,
                "{name}: user data"
            );
            // The stand-in of other tests gives the same.
            ensure!(
                user_data == &machine_controller::user_data(&secret, revision, name)?,
                "{name}: stand-in"
            );
            let ignition = "/spec/template/metadata/annotations/kubevirt.io~1ignitiondata";
            let ignition = machine.data.pointer(ignition).and_then(Value::as_str);
            ensure!(
                ignition == (pool == "flatcar").then_some(named.as_str()),
                "{name}: annotation"
            );
        }
        Ok((made.len() == count).then_some(made))
    })
    .await
}

/// All that the services, machine-controller and its provider make for pools.
async fn everything(world: &World) -> Result<BTreeSet<String>> {
    let config = format!("{GROUP}/v1alpha1/OperatingSystemConfig");
    let kinds = [
        ("cluster.k8s.io/v1alpha1/MachineSet", KUBE_SYSTEM),
        ("cluster.k8s.io/v1alpha1/Machine", KUBE_SYSTEM),
        ("kubevirt.io/v1/VirtualMachine", KUBE_SYSTEM),
        ("/v1/Secret", KUBE_SYSTEM),
        (&config, NAMESPACE),
        ("/v1/Secret", CLOUD_INIT_SETTINGS),
        ("/v1/ServiceAccount", CLOUD_INIT_SETTINGS),
        ("rbac.authorization.k8s.io/v1/Role", CLOUD_INIT_SETTINGS),
        ("rbac.authorization.k8s.io/v1/RoleBinding", CLOUD_INIT_SETTINGS),
    ];
    let mut names = BTreeSet::new();
    for (kind, namespace) in kinds {
        let found = list(world, kind, namespace, &ListParams::default()).await?;
        names.extend(found.iter().map(|object| format!("{kind} {}", object.name_any())));
    }
    Ok(names)
}

async fn list(world: &World, kind: &str, namespace: &str, which: &ListParams) -> Result<Vec<DynamicObject>> {
    let (group, rest) = kind.split_once('/').context("a group")?;
    let (version, kind) = rest.split_once('/').context("a version")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api = Api::<DynamicObject>::namespaced_with(world.client.clone(), namespace, &resource);
    Ok(api.list(which).await?.items)
}
