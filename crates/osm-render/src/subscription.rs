//! A pool's Red Hat subscription, as cloud-init's module `rh_subscription`.
//!
//! It is part of the provisioning document, which only the node can read. A cloud's metadata service returns the bootstrap document to
//! every process on the machine. Profiles of the Go implementation have it there all the same, see [`crate::placement`]. The configuration
//! contains no credential, not even one that the MachineDeployment contains.

use osm_api::config::{LateBound, LateBoundKind, LateBoundSource, StageConfig};
use osm_api::pool::Pool;
use osm_api::profile::OperatingSystem;
use osm_api::provider_spec::{ConfigVar, KeyReference};
use serde_json::{Map, Value, json};

use crate::late_bound::{Encoding, Marker};

const MODULE: &str = "rh_subscription";

/// Ids of late-bound values.
pub(crate) const USER: &str = "rhel/username";
pub(crate) const PASSWORD: &str = "rhel/password";
pub(crate) const ORGANIZATION: &str = "rhel/organization";
pub(crate) const ACTIVATION_KEY: &str = "rhel/activation-key";

/// Whether a value opens anything, so that it is late-bound even if the MachineDeployment contains it.
pub(crate) fn is_secret(id: &str) -> bool {
    matches!(id, PASSWORD | ACTIVATION_KEY)
}

/// A value of the module.
struct Field<'p> {
    /// Id as a late-bound value.
    id: &'static str,
    /// Its name in `operatingSystemSpec`.
    name: &'static str,
    value: &'p ConfigVar,
}

/// The ways to register, each complete or not there at all.
struct Fields<'p> {
    user: Field<'p>,
    password: Field<'p>,
    organization: Field<'p>,
    key: Field<'p>,
}

impl<'p> Fields<'p> {
    fn of(pool: &'p Pool) -> Self {
        let os = &pool.os;
        let field = |id, name, value| Field { id, name, value };
        Self {
            user: field(
                USER,
                "rhelSubscriptionManagerUser",
                &os.rhel_subscription_manager_user,
            ),
            password: field(
                PASSWORD,
                "rhelSubscriptionManagerPassword",
                &os.rhel_subscription_manager_password,
            ),
            organization: field(ORGANIZATION, "rhelOrganizationName", &os.rhel_organization_name),
            key: field(ACTIVATION_KEY, "rhelActivationKey", &os.rhel_activation_key),
        }
    }

    fn has_user(&self) -> bool {
        !self.user.value.is_empty() && !self.password.value.is_empty()
    }

    fn has_key(&self) -> bool {
        !self.organization.value.is_empty() && !self.key.value.is_empty()
    }

    fn all(self) -> [Field<'p>; 4] {
        [self.user, self.password, self.organization, self.key]
    }
}

/// What the pool's subscription needs filled in, whether or not it is complete.
pub(crate) fn late_bound(pool: &Pool) -> Vec<LateBound> {
    if pool.operating_system != OperatingSystem::Rhel {
        return Vec::new();
    }
    let fields = Fields::of(pool).all().into_iter();
    fields.filter_map(|field| field.late_bound(pool)).collect()
}

/// What has to be filled in for the module that [`configure`] adds.
pub(crate) fn used(pool: &Pool) -> Vec<LateBound> {
    if !is_wanted(pool) {
        return Vec::new();
    }
    let fields = Fields::of(pool);
    let used = if fields.has_key() {
        [fields.organization, fields.key]
    } else {
        [fields.user, fields.password]
    };
    used.iter().filter_map(|field| field.late_bound(pool)).collect()
}

impl Field<'_> {
    fn late_bound(&self, pool: &Pool) -> Option<LateBound> {
        let of = |kind, KeyReference { namespace, name, key }: &KeyReference| {
            let source = LateBoundSource {
                namespace: namespace.clone(),
                name: name.clone(),
                key: key.clone(),
            };
            Some(LateBound {
                id: self.id.to_owned(),
                kind,
                source: Some(source),
            })
        };
        match self.value {
            ConfigVar::Empty => None,
            ConfigVar::Text(_) if !is_secret(self.id) => None,
            ConfigVar::Text(_) => of(
                LateBoundKind::OperatingSystemSpecField,
                &KeyReference {
                    namespace: pool.namespace.clone(),
                    name: pool.name.clone(),
                    key: self.name.to_owned(),
                },
            ),
            ConfigVar::SecretKey(key) => of(LateBoundKind::SecretKey, key),
            ConfigVar::ConfigMapKey(key) => of(LateBoundKind::ConfigMapKey, key),
        }
    }

    /// The value, or the marker in whose place it comes.
    fn text(&self) -> String {
        match self.value {
            ConfigVar::Text(text) if !is_secret(self.id) => text.clone(),
            _ => Marker {
                id: self.id.to_owned(),
                encoding: Encoding::Text,
            }
            .to_string(),
        }
    }
}

/// The texts that the module contains as the MachineDeployment gives them, with the names of their fields.
pub(crate) fn plain_texts(pool: &Pool) -> impl Iterator<Item = (&'static str, &str)> {
    let fields = Fields::of(pool).all().into_iter();
    let plain = fields.filter_map(|field| match field.value {
        ConfigVar::Text(text) if !is_secret(field.id) => Some((field.name, text.as_str())),
        _ => None,
    });
    plain.chain([("rhelSatelliteServer", pool.os.rhel_satellite_server.as_str())])
}

/// Whether machines of the pool register.
pub(crate) fn is_wanted(pool: &Pool) -> bool {
    let fields = Fields::of(pool);
    pool.operating_system == OperatingSystem::Rhel
        && if pool.os.rhel_use_satellite_server {
            fields.has_key() && !pool.os.rhel_satellite_server.is_empty()
        } else {
            fields.has_key() || fields.has_user()
        }
}

/// Adds the module, before all others, which may need its packages. Returns what keeps the pool from registering, if
/// it says that it wants to but not how.
pub(crate) fn configure(stage: &mut StageConfig, pool: &Pool) -> Option<String> {
    if pool.operating_system != OperatingSystem::Rhel {
        return None;
    }
    if !is_wanted(pool) {
        return incomplete(pool);
    }
    let fields = Fields::of(pool);
    let mut module = Map::new();
    if fields.has_key() {
        module.insert("org".to_owned(), json!(fields.organization.text()));
        module.insert("activation-key".to_owned(), json!(fields.key.text()));
    } else {
        module.insert("username".to_owned(), json!(fields.user.text()));
        module.insert("password".to_owned(), json!(fields.password.text()));
        if pool.os.attach_subscription {
            module.insert("auto-attach".to_owned(), json!(true));
        }
    }
    if pool.os.rhel_use_satellite_server {
        let server = &pool.os.rhel_satellite_server;
        module.insert("server-hostname".to_owned(), json!(server));
        module.insert(
            "rhsm-baseurl".to_owned(),
            json!(format!("https://{server}/pulp/repos")),
        );
    }
    let own = stage.modules.take();
    let mut modules = Map::from_iter([(MODULE.to_owned(), Value::Null)]);
    modules.extend(
        own.as_ref()
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default(),
    );
    // The profile's own fields of the module, such as repositories, stay.
    let mut merged = modules
        .get(MODULE)
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    merged.extend(module);
    modules.insert(MODULE.to_owned(), Value::Object(merged));
    stage.modules = Some(Value::Object(modules));
    None
}

fn incomplete(pool: &Pool) -> Option<String> {
    let fields = Fields::of(pool);
    let all = [&fields.user, &fields.password, &fields.organization, &fields.key];
    let given = all.iter().any(|field| !field.value.is_empty()) || pool.os.rhel_use_satellite_server;
    let needed = if pool.os.rhel_use_satellite_server {
        "rhelSatelliteServer, rhelOrganizationName and rhelActivationKey"
    } else {
        "rhelOrganizationName and rhelActivationKey, or rhelSubscriptionManagerUser and rhelSubscriptionManagerPassword"
    };
    given.then(|| format!("machines do not register with Red Hat; set {needed} in operatingSystemSpec"))
}

#[cfg(test)]
mod tests {
    use osm_api::MachineDeployment;
    use osm_api::Pool;

    use super::*;

    fn pool(os: &str, spec: Value) -> Pool {
        let md: MachineDeployment = serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "pool", "namespace": "machines"},
            "spec": {"template": {"spec": {"versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": {
                "cloudProvider": "aws", "operatingSystem": os, "operatingSystemSpec": spec}}}}},
        }))
        .unwrap();
        Pool::read(&md).unwrap()
    }

    fn configured(pool: &Pool, modules: Option<Value>) -> (Option<Value>, Option<String>) {
        let mut config = StageConfig {
            modules,
            ..StageConfig::default()
        };
        let warning = configure(&mut config, pool);
        (config.modules, warning)
    }

    #[test]
    fn each_way_to_register_and_none() {
        let user = json!({"rhelSubscriptionManagerUser": "me", "rhelSubscriptionManagerPassword": "hunter2"});
        let password = "%%osm-late{rhel/password,text}%%";
        let (modules, _) = configured(&pool("rhel", user.clone()), None);
        assert_eq!(
            modules,
            Some(json!({MODULE: {"username": "me", "password": password}}))
        );
        let key = json!({"rhelOrganizationName": "12", "rhelActivationKey": {"secretKeyRef": {"namespace": "n", "name": "s", "key": "k"}}});
        let (modules, _) = configured(&pool("rhel", key.clone()), Some(json!({"packages": ["x"]})));
        let modules = modules.unwrap();
        assert_eq!(
            modules[MODULE],
            json!({"org": "12", "activation-key": "%%osm-late{rhel/activation-key,text}%%"})
        );
        assert_eq!(
            modules.as_object().unwrap().keys().collect::<Vec<_>>(),
            [MODULE, "packages"]
        );
        let mut satellite = key;
        satellite["rhelUseSatelliteServer"] = json!(true);
        satellite["rhelSatelliteServer"] = json!("sat.example");
        let (modules, _) = configured(
            &pool("rhel", satellite),
            Some(json!({MODULE: {"enable-repo": ["a"]}})),
        );
        let module = &modules.unwrap()[MODULE];
        assert_eq!(module["rhsm-baseurl"], "https://sat.example/pulp/repos");
        assert_eq!(module["enable-repo"], json!(["a"]));
        let empty =
            json!({"rhelSubscriptionManagerUser": "", "rhelSubscriptionManagerPassword": {"value": ""}});
        assert_eq!(configured(&pool("rhel", empty), None), (None, None));
        assert_eq!(configured(&pool("rockylinux", user), None), (None, None));
    }

    #[test]
    fn an_incomplete_subscription_is_a_warning() {
        for (spec, part) in [
            (
                json!({"rhelSubscriptionManagerUser": "me"}),
                "rhelSubscriptionManagerPassword",
            ),
            (json!({"rhelActivationKey": "hunter2"}), "rhelOrganizationName"),
            (
                json!({"rhelUseSatelliteServer": true, "rhelSubscriptionManagerUser": "me", "rhelSubscriptionManagerPassword": "x"}),
                "rhelSatelliteServer",
            ),
        ] {
            let (modules, warning) = configured(&pool("rhel", spec), None);
            let warning = warning.unwrap();
            assert_eq!(modules, None);
            assert!(
                warning.contains(part) && !warning.contains("hunter2"),
                "{warning}"
            );
        }
    }

    #[test]
    fn a_password_is_read_where_it_stands() {
        let spec = json!({"rhelSubscriptionManagerUser": {"configMapKeyRef": {"namespace": "n", "name": "m", "key": "u"}},
            "rhelSubscriptionManagerPassword": "hunter2"});
        let late = late_bound(&pool("rhel", spec));
        let found: Vec<_> = late
            .iter()
            .map(|late| {
                (
                    late.id.as_str(),
                    late.kind,
                    late.source.as_ref().unwrap().key.as_str(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("rhel/username", LateBoundKind::ConfigMapKey, "u"),
                (
                    "rhel/password",
                    LateBoundKind::OperatingSystemSpecField,
                    "rhelSubscriptionManagerPassword"
                ),
            ]
        );
        let source = late[1].source.as_ref().unwrap();
        assert_eq!(
            (source.namespace.as_str(), source.name.as_str()),
            ("machines", "pool")
        );
        assert!(!format!("{late:?}").contains("hunter2"));
    }
}
