//! A cluster of the upstream OSM, which serves it first, is migrated. At the end, someone starts the upstream
//! OSM again.

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, GO_LEASE};
use osm_api::rbac::Service;
use osm_testkit::upstream_osm::UpstreamOsm;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::osmctl::osmctl;
use crate::upstream_osm;
use crate::world::{self, DEADLINE, GETTER_TOKEN, NAMESPACE, World, machine_deployment};

pub const REVISION: u64 = 4;

/// A profile in Go's template language, as users have them and as its defaults are.
pub fn go_profile(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.11.2", "provisioningUtility": "cloud-init",
            "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
            "bootstrapConfig": {
                "files": [{"path": "/opt/bin/bootstrap", "permissions": 755,
                    "content": {"inline": {"encoding": "b64", "data": "#!/bin/sh\necho {{ .Token }} {{ .SecretName }}\n"}}}],
                "modules": {"runcmd": ["systemctl restart bootstrap.service"]},
            },
            "provisioningConfig": {"files": [{"path": "/etc/version", "content": {"inline": {"data": version}}}]},
        },
    })
}

/// What the upstream OSM makes of one pool, with its config in this namespace, where it can't run itself:
/// KKP's definitions are stand-ins.
pub async fn go_pool(world: &World, pool: &str, profile: &str, namespace: &str) -> Result<()> {
    let mut md = machine_deployment(pool, profile);
    md["metadata"]["finalizers"] = json!([names::GO_FINALIZER]);
    md["metadata"]["annotations"][names::REVISION] = json!(REVISION.to_string());
    world.apply(&md).await?;
    let annotations = json!({
        names::MACHINE_DEPLOYMENT_REVISION: REVISION.to_string(),
        "k8c.io/osp-version": "v1.11.2", "k8c.io/mdannotations-hash": "0".repeat(64),
    });
    let inline = |data: &str| json!({"inline": {"encoding": "b64", "data": data}});
    world
        .apply(&json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": names::config_name(pool, "kube-system"), "namespace": namespace, "annotations": annotations},
            "spec": {
                "osName": "ubuntu", "osVersion": "24.04", "provisioningUtility": "cloud-init",
                "cloudProvider": {"name": "openstack", "spec": {"region": "here"}},
                "bootstrapConfig": {"files": [{"path": "/opt/bin/bootstrap", "permissions": 755, "content": inline("#!/bin/sh\n")}]},
                "provisioningConfig": {"files": [{"path": "/etc/version", "permissions": 644, "content": inline("v1.34.2")}],
                    "userSSHKeys": ["ssh-ed25519 AAAA operator"]},
            },
        }))
        .await?;
    for (stage, name) in [
        ("provisioning", format!("{pool}-kube-system-provisioning-config")),
        ("bootstrap", names::bootstrap_secret_name(pool, "kube-system")),
    ] {
        world
            .apply(
                &json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
                "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS, "annotations": annotations},
                "stringData": {"cloud-config": format!("#cloud-config\n# {stage} of {pool}\n")}}),
            )
            .await?;
    }
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": format!("kube-system-{pool}-kubelet-bootstrap-config"), "namespace": CLOUD_INIT_SETTINGS},
            "stringData": {"kubeconfig": "apiVersion: v1\nkind: Config\n"}}))
        .await?;
    let id: String = osm_api::digest::sha256_hex(pool.as_bytes())
        .chars()
        .take(6)
        .collect();
    let in_an_hour = Timestamp::now() + SignedDuration::from_hours(1);
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system",
                "labels": {names::GO_BOOTSTRAP_TOKEN_LABEL: names::go_pool_label(pool, "kube-system")}},
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "expiration": in_an_hour.to_string(),
                "description": format!("bootstrap token for {pool}"),
                "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
                "auth-extra-groups": "system:bootstrappers:machine-controller:default-node-token"}}))
        .await
}

/// Every Secret that the upstream OSM made for these pools, by name, with its uid, resourceVersion and all;
/// of bootstrap Secrets only those in `with_bootstrap`.
async fn left(world: &World, pools: &[&str], with_bootstrap: &[&str]) -> Result<Vec<(String, Secret)>> {
    let mut all = Vec::new();
    for pool in pools {
        let mut names = vec![
            format!("{pool}-kube-system-provisioning-config"),
            format!("kube-system-{pool}-kubelet-bootstrap-config"),
        ];
        if with_bootstrap.contains(pool) {
            names.push(names::bootstrap_secret_name(pool, "kube-system"));
        }
        for name in names {
            let secret = world.secrets().get(&name).await.with_context(|| name.clone())?;
            all.push((name, secret));
        }
    }
    let tokens = ListParams::default().labels(names::GO_BOOTSTRAP_TOKEN_LABEL);
    let tokens = world.api::<Secret>("kube-system").list(&tokens).await?.items;
    assert_eq!(tokens.len(), pools.len());
    all.extend(tokens.into_iter().map(|secret| (secret.name_any(), secret)));
    all.push((GETTER_TOKEN.to_owned(), world.secrets().get(GETTER_TOKEN).await?));
    Ok(all)
}

/// Every MachineDeployment, as it was last written by whomever.
async fn pools(world: &World) -> Result<Vec<(String, Option<String>, Option<i64>)>> {
    let all = world.pools().list(&ListParams::default()).await?.items;
    Ok(all
        .into_iter()
        .map(|md| (md.name_any(), md.resource_version(), md.metadata.generation))
        .collect())
}

/// Has osmctl report on the token that never ends: whether it exists, and whether machines need it.
async fn reports_the_token(world: &World, says: &str) -> Result<()> {
    let admin = world.plane.admin_kubeconfig_path();
    let account = "ServiceAccount cloud-init-settings/cloud-init-getter of the upstream OSM still exists";
    osmctl(&admin, &["status"]).await?.expect(0, &[account])?;
    let token = format!("Secret {CLOUD_INIT_SETTINGS}/{GETTER_TOKEN} contains a non-expiring token");
    let checked = osmctl(&admin, &["migrate", "check"]).await?;
    checked.expect(1, &["already migrated", &token, says]).map(drop)
}

/// Waits until the bootstrap Secrets of these pools are those of OSM, or those of the upstream OSM.
pub async fn published(world: &World, pools: &[&str], by_osm: bool) -> Result<()> {
    for pool in pools {
        wait_for(&format!("{pool} to be published"), DEADLINE, async || {
            let secret = world.bootstrap(pool).await?;
            let revision = secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION);
            let is_by_osm = secret.labels().contains_key(names::INSTALLATION);
            check(is_by_osm == by_osm && revision.is_some())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_the_upstream_osm_is_taken_over() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    // Beside its defaults, which ours replace, two profiles that a user wrote, one of which ours refuses.
    world
        .apply(&go_profile("osp-existing", "{{ .KubeVersion }}"))
        .await?;
    world
        .apply(&go_profile("osp-custom", "{{ env \"VERSION\" }}"))
        .await?;
    world.leave_a_getter().await?;
    // kube-controller-manager, which fills the Secret, doesn't run here.
    let token = json!({"stringData": {"token": "of-the-getter"}});
    world
        .secrets()
        .patch(GETTER_TOKEN, &PatchParams::default(), &Patch::Merge(&token))
        .await?;
    let names = ["default", "tiny", "existing", "custom"];
    for (pool, profile) in [
        ("default", "osp-ubuntu"),
        ("tiny", "osp-existing"),
        ("existing", "osp-existing"),
        ("custom", "osp-custom"),
    ] {
        world.pool(pool, profile).await?;
        world.stamp(pool, REVISION).await?;
    }
    let mut go = UpstreamOsm::start(&world.plane, NAMESPACE, &[]).await?;
    go.leads().await?;
    published(&world, &names, false)
        .await
        .map_err(|error| error.context(go.logs().unwrap_or_default()))?;
    // The user has switched one pool to a profile of ours.
    world
        .apply(&world::profile("osp-tiny", "v1.0.0", "one\n"))
        .await?;

    // Nothing is started beside it, and osp-controller only validates.
    world.installed.start_all().await?;
    let renews = format!("upstream OSM: it renews the Lease {NAMESPACE}/{GO_LEASE};");
    for service in [Service::OscController, Service::SecretSyncer] {
        world
            .waits_for(service, &[&*renews, "`osmctl migrate script`"])
            .await?;
    }
    wait_for("osp-controller to be ready", DEADLINE, async || {
        check(world.installed.is_ready(Service::OspController).await)
    })
    .await?;
    let ours = ListParams::default().labels(names::DEFAULT_PROFILE);
    assert!(world.profiles().list(&ours).await?.items.is_empty());
    let made = world.made().await?;
    assert!(made.is_empty(), "{made:?}");
    let to_ours = json!({"metadata": {"annotations": {names::PROFILE: "osp-tiny"}}});
    go.stop().await?;
    world.patch_pool("tiny", to_ours.clone()).await?;
    let (secrets, before) = (left(&world, &names, &["custom"]).await?, pools(&world).await?);
    let config: OperatingSystemConfig = world.config("custom").await?;
    let observer = world.observe().await?;
    world.delete(&world.api::<Lease>(NAMESPACE), GO_LEASE).await?;

    // Pools that can be rendered are published by ours.
    let machine = world.machine("tiny", REVISION).await?;
    for pool in ["default", "existing"] {
        world.says(pool, "Published", true, "Published").await?;
    }
    for pool in ["default", "tiny", "existing"] {
        let secret = world.bootstrap(pool).await?;
        assert_eq!(secret.labels()[names::INSTALLATION], NAMESPACE);
        assert_eq!(
            secret.annotations()[names::MACHINE_DEPLOYMENT_REVISION],
            REVISION.to_string()
        );
        assert_eq!(secret.immutable, None, "the next change is one write");
        // Its cloudProvider.spec can hold credentials of the cloud.
        wait_for("the spec to be emptied", DEADLINE, async || {
            check(world.config(pool).await?.has_bare_spec())
        })
        .await?;
    }
    let mut absent = observer.absent();
    absent.sort_unstable();
    let replaced =
        ["default", "existing", "tiny"].map(|pool| names::bootstrap_secret_name(pool, "kube-system"));
    assert_eq!(absent, replaced);

    // One that can't stays as it is, and says what that means.
    let rendered = world
        .says("custom", "Rendered", false, "ProfileNotAccepted")
        .await?;
    assert!(rendered.contains("\"env\""), "{rendered}");
    assert!(
        rendered.contains("-l machinedeployment.k8s.io/name=kube-system-custom "),
        "{rendered}"
    );
    let published = world.says("custom", "Published", false, "NotAdopted").await?;
    assert!(published.contains("the Secret custom-kube-system-bootstrap-config"));
    let now = world.config("custom").await?;
    assert_eq!(
        serde_json::to_value(&now.spec)?,
        serde_json::to_value(&config.spec)?
    );
    assert_eq!(
        (
            now.metadata.annotations.as_ref(),
            now.metadata.labels.as_ref(),
            now.uid()
        ),
        (
            config.metadata.annotations.as_ref(),
            config.metadata.labels.as_ref(),
            config.uid()
        )
    );

    // Nothing else that it left has been written, and no MachineDeployment: so no machine is rotated.
    assert_eq!(left(&world, &names, &["custom"]).await?, secrets);
    assert_eq!(pools(&world).await?, before);

    // The token that never ends is not to be deleted while a pool needs it.
    reports_the_token(&world, "do not delete it yet").await?;

    // The user rewrites the profile: the last pool is ours, and the token is no longer needed.
    world.patch_pool("custom", to_ours).await?;
    world.machine("custom", REVISION).await?;
    for pool in names {
        world.says(pool, "Published", true, "Published").await?;
    }
    reports_the_token(&world, "`kubectl delete secret/cloud-init-getter-token ").await?;
    // From now on a new revision is one write, and machines that boot with the last one find what they need.
    world.stamp("tiny", REVISION + 1).await?;
    world.machine("tiny", REVISION + 1).await?;
    world.fetch(&machine).await?;
    assert_eq!(observer.absent().len(), names.len());
    Box::pin(upstream_osm::is_forgotten(&world, &observer)).await
}
