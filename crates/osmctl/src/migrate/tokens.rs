//! Non-expiring tokens in `cloud-init-settings`, and whether they may be deleted: Secrets of the type
//! `kubernetes.io/service-account-token`.
//!
//! All user data of the upstream OSM contains that of `cloud-init-getter-token`, which can read every Secret
//! in the namespace. Such Secrets belong to other programs, so no service of OSM deletes or watches them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::{MachineDeployment, PoolRef};
use serde_json::Value;

use super::listed;
use super::script::quoted;
use crate::cluster::{Failure, Object, Reader};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";

/// A Secret with a non-expiring token, which is never read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub secret: String,
    /// The ServiceAccount that it belongs to.
    pub account: String,
}

impl Token {
    fn of(secret: &PartialObjectMeta<Secret>) -> Self {
        Self {
            secret: secret.name_any(),
            account: secret.annotations().get(ACCOUNT).cloned().unwrap_or_default(),
        }
    }

    /// `needed`: why machines may still need it.
    pub fn note(&self, needed: Option<&str>) -> String {
        let Self { secret, account } = self;
        let found = format!(
            "Secret {CLOUD_INIT_SETTINGS}/{secret} contains a non-expiring token of ServiceAccount {account}"
        );
        match needed {
            Some(why) => format!("{found}; do not delete it yet: {why}"),
            None => {
                let of_account = ["serviceaccount", "role", "rolebinding"].map(|kind| (kind, account));
                let objects = [("secret", secret)].into_iter().chain(of_account);
                let objects: Vec<String> = objects
                    .map(|(kind, name)| quoted(&format!("{kind}/{name}")))
                    .collect();
                format!(
                    "{found}, which new machines no longer need; once all booting machines have joined, delete it with its ServiceAccount, \
                     Role and RoleBinding: `kubectl delete {} -n {CLOUD_INIT_SETTINGS}`",
                    objects.join(" ")
                )
            }
        }
    }
}

/// # Errors
/// A request that failed.
pub async fn read(reader: &Reader) -> Result<Vec<Token>, Failure> {
    let secrets = reader.secrets_of_type(CLOUD_INIT_SETTINGS, TYPE).await?;
    Ok(secrets.iter().map(Token::of).collect())
}

/// Why machines need the tokens although the upstream OSM is stopped: machines of these pools boot with its
/// user data.
pub fn why_needed(unpublished: &[String]) -> Option<String> {
    (!unpublished.is_empty()).then(|| {
        format!(
            "machines of OperatingSystemConfigs that OSM has not published may still need it: {}",
            listed(unpublished)
        )
    })
}

/// Names of the configs, existing or not, of pools for which OSM has published nothing.
pub fn unpublished(configs: &[Object], pools: &[MachineDeployment]) -> Vec<String> {
    let is_published = |config: &&Object| {
        config
            .value
            .pointer("/status/published")
            .is_some_and(Value::is_object)
    };
    // Its pool is deleted.
    let is_retired = |config: &&Object| {
        let retired = config.value.pointer("/status/retired/uid");
        retired.is_some() && retired == config.value.pointer("/spec/poolRef/uid")
    };
    let published: BTreeSet<&str> = configs.iter().filter(is_published).map(Object::name).collect();
    let of_configs = configs.iter().filter(|config| !is_retired(config));
    let of_configs = of_configs.map(|config| config.name().to_owned());
    // Before a migration, the configs of KKP are in another cluster or namespace.
    let of_pools = pools.iter().map(|md| PoolRef::from(md).config_name());
    let names: BTreeSet<String> = of_configs.chain(of_pools).collect();
    names
        .into_iter()
        .filter(|name| !published.contains(name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use osm_api::OperatingSystemConfig;
    use serde_json::json;

    use super::*;
    use crate::snapshot::fixtures;

    #[test]
    fn a_token_is_needed_until_every_pool_is_published() {
        let config = |name: &str, status: Value| {
            let spec = json!({"poolRef": {"uid": "u"}});
            let value = json!({"metadata": {"name": name}, "spec": spec, "status": status});
            Object::new::<OperatingSystemConfig>(value)
        };
        let configs = [
            config("workers-kube-system-config", json!({"published": {}})),
            config("of-go-kube-system-config", json!({})),
            config("deleted-kube-system-config", json!({"retired": {"uid": "u"}})),
            config(
                "created-again-kube-system-config",
                json!({"retired": {"uid": "v"}}),
            ),
        ];
        let pools = ["workers", "new"].map(|name| fixtures::machine_deployment("kube-system", name));
        let found = unpublished(&configs, &pools);
        let expected = ["created-again", "new", "of-go"].map(|pool| format!("{pool}-kube-system-config"));
        assert_eq!(found, expected);
        assert!(why_needed(&found).unwrap().ends_with(&expected.join(", ")));
        assert_eq!(why_needed(&unpublished(&configs[..1], &pools[..1])), None);
    }

    #[test]
    fn the_command_deletes_the_token_and_what_belongs_to_it() {
        let token = |account: &str| Token {
            secret: "cloud-init-getter-token".to_owned(),
            account: account.to_owned(),
        };
        let note = token("cloud-init-getter").note(None);
        let page = include_str!("../../../../docs/migration.md");
        let (_, command) = note.split_once('`').unwrap();
        let (command, _) = command.split_once('`').unwrap();
        assert!(page.contains(&format!("\n{command}\n")), "{command}");

        let needed = token("cloud-init-getter").note(Some("the upstream OSM runs"));
        assert!(needed.ends_with("do not delete it yet: the upstream OSM runs"));
        assert!(!needed.contains("kubectl"), "{needed}");
        // Another program may write the annotation.
        let note = token("a; reboot").note(None);
        assert!(note.contains(" 'role/a; reboot' "), "{note}");
    }
}
