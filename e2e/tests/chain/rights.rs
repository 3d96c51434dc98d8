//! What the tokens of a pool permit, and that no other object in their namespace permits as much.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{check, wait_for};
use serde_json::{Value, json};

use crate::joining::rights;
use crate::shared::in_shared_world;
use crate::world::{DEADLINE, GETTER_TOKEN, NAMESPACE, UserData, World};

pub fn is_forbidden<T>(outcome: Result<T, kube::Error>) -> bool {
    matches!(outcome, Err(kube::Error::Api(status)) if status.code == 403)
}

/// What a token may do beyond what every ServiceAccount of its namespace may.
pub async fn more_than_anybody(world: &World, token: &str, namespace: &str) -> Result<BTreeSet<String>> {
    let anybody = world.plane.client_as(CLOUD_INIT_SETTINGS, "anybody").await?;
    let anybody = rights(anybody, namespace).await?;
    assert!(
        anybody.contains("create authorization.k8s.io/selfsubjectrulesreviews (any)"),
        "{anybody:?}"
    );
    let own = rights(world.plane.client(token)?, namespace).await?;
    Ok(own.difference(&anybody).cloned().collect())
}

#[test]
fn a_pools_token_may_do_what_it_is_for_and_nothing_else() -> Result<()> {
    in_shared_world(async |world| {
        world
            .apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "anybody", "namespace": CLOUD_INIT_SETTINGS}}))
            .await?;
        world
            .accepted_profile("osp-tiny", "v1.0.0", "kubelet {{kubelet.version}}\n")
            .await?;
        for pool in ["p", "other"] {
            world.pool(pool, "osp-tiny").await?;
            world.stamp(pool, 1).await?;
            world.machine(pool, 1).await?;
        }
        let first = world.machine("p", 1).await?;
        world
            .patch_pool(
                "p",
                json!({"spec": {"template": {"spec": {"versions": {"kubelet": "1.35.0"}}}}}),
            )
            .await?;
        world.stamp("p", 2).await?;
        let second = world.machine("p", 2).await?;

        // Its documents: those that a machine may still be on its way to, and no others.
        let get = |machine: &UserData| format!("get /secrets {}", machine.provisioning_secret);
        let documents = BTreeSet::from([get(&first), get(&second)]);
        assert_eq!(documents.len(), 2);
        for namespace in [CLOUD_INIT_SETTINGS, "kube-system", "default"] {
            let of_api = more_than_anybody(world, &second.api_token, namespace).await?;
            let own = if namespace == CLOUD_INIT_SETTINGS {
                documents.clone()
            } else {
                BTreeSet::new()
            };
            assert_eq!(of_api, own, "in {namespace}");
        }
        Ok(())
    })
}

/// The token of what [`World::leave_a_getter`] leaves.
pub async fn getter_token(world: &World) -> Result<String> {
    world.leave_a_getter().await?;
    let token = wait_for("the token without end", DEADLINE, async || {
        let secret = world.secrets().get(GETTER_TOKEN).await?;
        Ok(secret.data.and_then(|mut data| data.remove("token")))
    });
    Ok(String::from_utf8(token.await?.0)?)
}

/// Whether the API server takes a token for nobody's.
pub async fn is_dead(client: Client) -> Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(client, CLOUD_INIT_SETTINGS);
    let answer = secrets.get("any").await;
    Ok(matches!(answer, Err(kube::Error::Api(status)) if status.code == 401))
}

pub async fn token_dies(world: &World, machine: &UserData) -> Result<()> {
    let client = world.plane.client(&machine.api_token)?;
    wait_for("the token to die", DEADLINE, async || {
        check(is_dead(client.clone()).await?)
    })
    .await
}

#[test]
fn tokens_die_with_their_account_and_with_the_pool() -> Result<()> {
    in_shared_world(async |world| {
        world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
        for pool in ["p", "gone"] {
            world.pool(pool, "osp-tiny").await?;
            world.stamp(pool, 1).await?;
        }
        let (machine, gone) = (world.machine("p", 1).await?, world.machine("gone", 1).await?);
        for token in [&machine.api_token, &gone.api_token] {
            assert!(!is_dead(world.plane.client(token)?).await?);
        }
        // Nobody has to do anything for it: the service is away.
        world.installed.kill9(Service::SecretSyncer)?;
        let pool = world.bootstrap("p").await?.labels()[names::POOL].clone();
        let accounts = world.api::<ServiceAccount>(CLOUD_INIT_SETTINGS);
        world.delete(&accounts, &names::pool_account(&pool)).await?;
        token_dies(world, &machine).await?;
        world.installed.start(Service::SecretSyncer).await?;
        let new = world.machine("p", 1).await?;
        assert_ne!(new.api_token, machine.api_token);

        world.delete(&world.pools(), "gone").await?;
        wait_for("the pool to be undone", DEADLINE, async || {
            check(
                world
                    .configs()
                    .get_opt("gone-kube-system-config")
                    .await?
                    .is_none(),
            )
        })
        .await?;
        token_dies(world, &gone).await?;
        let live = world.plane.client(&new.api_token)?;
        assert!(!is_dead(live).await?, "that of the other pool lives");
        Ok(())
    })
}

/// RBAC lets it bind every Role of the namespace, also one of another owner. A policy of the chart leaves
/// those of pools.
#[test]
fn secret_syncer_binds_the_roles_of_pools_to_their_accounts_and_nothing_else() -> Result<()> {
    in_shared_world(async |world| {
        const POOL: &str = "osm-node-0123456789abcdef0123";
        let rbac = "rbac.authorization.k8s.io";
        for name in ["everything", POOL] {
            let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
            let metadata = json!({"name": name, "namespace": CLOUD_INIT_SETTINGS});
            world
            .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}))
            .await?;
        }
        let account = |name: &str, namespace: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let own = Service::SecretSyncer.name();
        let (of_pool, itself) = (account(POOL, CLOUD_INIT_SETTINGS), account(own, IDENTITIES));
        let user = json!({"kind": "User", "apiGroup": rbac, "name": POOL});
        let binding = |name: &str, kind: &str, role: &str, subjects: &[&Value]| {
            serde_json::from_value::<RoleBinding>(
                json!({"metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS},
            "roleRef": {"apiGroup": rbac, "kind": kind, "name": role}, "subjects": subjects}),
            )
        };
        let bindings = |client: Client| Api::<RoleBinding>::namespaced(client, CLOUD_INIT_SETTINGS);
        let syncer = bindings(world.plane.client_as(IDENTITIES, own).await?);
        let admin = bindings(world.client.clone());
        let new = PostParams::default();

        let foreign = binding("foreign", "Role", "everything", &[&itself])?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        // A policy takes effect a moment after it was created.
        wait_for("the policy", DEADLINE, async || {
            check(is_forbidden(syncer.create(&dry_run, &foreign).await))
        })
        .await?;
        for (name, kind, role, subjects, allowed) in [
            ("own", "Role", POOL, vec![&of_pool], true),
            ("to-itself", "Role", "everything", vec![&itself], false),
            ("to-a-pool", "Role", "everything", vec![&of_pool], false),
            ("pool-to-itself", "Role", POOL, vec![&itself], false),
            ("pool-to-two", "Role", POOL, vec![&of_pool, &itself], false),
            ("pool-to-a-user", "Role", POOL, vec![&user], false),
            (
                "pool-elsewhere",
                "Role",
                POOL,
                vec![&account(POOL, IDENTITIES)],
                false,
            ),
            ("pool-to-nobody", "Role", POOL, vec![], false),
            (
                "similar",
                "Role",
                "osm-node-bootstrap",
                vec![&account("osm-node-bootstrap", CLOUD_INIT_SETTINGS)],
                false,
            ),
            (
                "cluster-role",
                "ClusterRole",
                "cluster-admin",
                vec![&of_pool],
                false,
            ),
        ] {
            let created = syncer.create(&new, &binding(name, kind, role, &subjects)?).await;
            match created {
                Ok(_) => assert!(allowed, "{name}"),
                Err(kube::Error::Api(status)) => {
                    assert!(!allowed && status.code == 403, "{name}: {status:?}");
                    assert!(
                        kind != "Role" || status.message.contains("secret-syncer may only bind"),
                        "{name}: {status:?}"
                    );
                }
                Err(other) => return Err(other.into()),
            }
        }
        // An existing binding gets no further subject, and lost labels are restored.
        // With a Role that permits everything, secret-syncer would be an administrator.
        let of_user = binding("foreign", "Role", "everything", &[&user])?;
        admin.create(&new, &of_user).await?;
        let (label, subjects) = (
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"subjects": [of_pool, itself]}),
        );
        for (name, change, allowed) in [
            ("own", &label, true),
            ("own", &subjects, false),
            ("foreign", &label, false),
            ("foreign", &subjects, false),
        ] {
            let changed = syncer
                .patch(name, &PatchParams::default(), &Patch::Merge(change))
                .await;
            match changed {
                Ok(_) => assert!(allowed, "{name} {change}"),
                Err(error) => assert!(
                    !allowed && error.to_string().contains("may only bind"),
                    "{name} {change}: {error}"
                ),
            }
        }
        Ok(())
    })
}

/// RBAC lets each service write every Lease of the namespace, also that of a replica of another service, or
/// of kube-scheduler.
#[test]
fn a_service_writes_leases_of_its_own_name_and_no_other() -> Result<()> {
    in_shared_world(async |world| {
        let lease = |name: &str| Lease {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        let admin = world.api::<Lease>(NAMESPACE);
        let mut leases = Vec::new();
        for service in Service::ALL {
            let client = world.plane.client_as(IDENTITIES, service.name()).await?;
            leases.push((service.name(), Api::<Lease>::namespaced(client, NAMESPACE)));
        }
        let (create, change) = (
            PostParams {
                dry_run: true,
                ..PostParams::default()
            },
            PatchParams {
                dry_run: true,
                ..PatchParams::default()
            },
        );
        let delete = DeleteParams {
            dry_run: true,
            ..DeleteParams::default()
        };
        // A policy takes effect a moment after it was created.
        wait_for("the policy", DEADLINE, async || {
            check(is_forbidden(
                leases[0].1.create(&create, &lease("kube-scheduler")).await,
            ))
        })
        .await?;
        let own = Service::ALL.map(|service| format!("{}-pod", service.name()));
        let others = [
            "osm-join-0123",
            "operating-system-manager",
            "kube-scheduler",
            "secret-syncer",
        ];
        let names: Vec<&str> = own.iter().map(String::as_str).chain(others).collect();
        for name in names {
            let refused: Vec<bool> = futures::future::join_all(
                leases
                    .iter()
                    .map(|(_, leases)| async { is_forbidden(leases.create(&create, &lease(name)).await) }),
            )
            .await;
            admin.create(&PostParams::default(), &lease(name)).await?;
            for ((service, leases), refused) in leases.iter().zip(refused) {
                let prefix = format!("{service}-");
                let is_own =
                    name.starts_with(&prefix) || (*service == "csr-approver" && name == "osm-join-0123");
                let patch = json!({"spec": {"holderIdentity": service}});
                let changed = leases.patch(name, &change, &Patch::Merge(&patch)).await;
                let deleted = leases.delete(name, &delete).await;
                assert_eq!(
                    [refused, is_forbidden(changed), is_forbidden(deleted)],
                    [!is_own; 3],
                    "{service} {name}"
                );
            }
            admin.delete(name, &DeleteParams::default()).await?;
        }
        // Without a name, the API server would choose one.
        let mut nameless = lease("");
        (nameless.metadata.name, nameless.metadata.generate_name) = (None, Some("secret-syncer-".to_owned()));
        assert!(is_forbidden(leases[0].1.create(&create, &nameless).await));
        Ok(())
    })
}
