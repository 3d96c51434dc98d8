//! A pool's Red Hat subscription, as cloud-init's module `rh_subscription`.
//!
//! It is part of the provisioning document, which only the node can read. A cloud's metadata service returns
//! the bootstrap document to every process on the machine. Profiles of the upstream OSM have it there anyway,
//! see [`crate::placement`]. The configuration contains no credential, not even one that the
//! MachineDeployment contains.

use osm_api::config::{LateBound, LateBoundKind, StageConfig};
use osm_api::pool::Pool;
use osm_api::profile::OperatingSystem;
use osm_api::provider_spec::ConfigVar;
use osm_user_data::late_bound::{self, Encoding, Marker};
use serde_json::{Map, Value, json};

use crate::additions;

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
    /// Its name in the module.
    key: &'static str,
    value: &'p ConfigVar,
}

/// The two ways to register, each complete or not there at all: user and password, and organization and
/// activation key.
fn fields(pool: &Pool) -> [[Field<'_>; 2]; 2] {
    let os = &pool.os;
    let user = &os.rhel_subscription_manager_user;
    let password = &os.rhel_subscription_manager_password;
    let (organization, key) = (&os.rhel_organization_name, &os.rhel_activation_key);
    let field = |id, name, key, value| Field { id, name, key, value };
    [
        [
            field(USER, "rhelSubscriptionManagerUser", "username", user),
            field(PASSWORD, "rhelSubscriptionManagerPassword", "password", password),
        ],
        [
            field(ORGANIZATION, "rhelOrganizationName", "org", organization),
            field(ACTIVATION_KEY, "rhelActivationKey", "activation-key", key),
        ],
    ]
}

/// Other systems don't register.
fn fields_of_rhel(pool: &Pool) -> Option<[[Field<'_>; 2]; 2]> {
    (pool.operating_system == OperatingSystem::Rhel).then(|| fields(pool))
}

/// The values by which machines of the pool register; `None` if they don't.
fn chosen(pool: &Pool) -> Option<[Field<'_>; 2]> {
    let [user, key] = fields_of_rhel(pool)?;
    let is_complete = |pair: &[Field<'_>; 2]| pair.iter().all(|field| !field.value.is_empty());
    if is_complete(&key) {
        Some(key).filter(|_| !pool.os.rhel_use_satellite_server || !pool.os.rhel_satellite_server.is_empty())
    } else {
        Some(user).filter(|user| is_complete(user) && !pool.os.rhel_use_satellite_server)
    }
}

/// What the pool's subscription needs filled in, whether or not it is complete.
pub(crate) fn late_bound(pool: &Pool) -> Vec<LateBound> {
    let fields = fields_of_rhel(pool).into_iter().flatten().flatten();
    fields.filter_map(|field| field.late_bound(pool)).collect()
}

/// What has to be filled in for the module that [`configure`] adds.
pub(crate) fn used(pool: &Pool) -> Vec<LateBound> {
    let fields = chosen(pool).into_iter().flatten();
    fields.filter_map(|field| field.late_bound(pool)).collect()
}

impl Field<'_> {
    fn late_bound(&self, pool: &Pool) -> Option<LateBound> {
        let of = |kind, source| Some(late_bound::of_object(self.id, kind, source));
        match self.value {
            ConfigVar::Text(_) if is_secret(self.id) => {
                let source = [pool.namespace.as_str(), &pool.name, self.name];
                of(LateBoundKind::OperatingSystemSpecField, source)
            }
            ConfigVar::Empty | ConfigVar::Text(_) => None,
            ConfigVar::SecretKey(source) => of(LateBoundKind::SecretKey, source.path()),
            ConfigVar::ConfigMapKey(source) => of(LateBoundKind::ConfigMapKey, source.path()),
        }
    }

    /// The value, or the marker in whose place it comes.
    fn text(&self) -> String {
        match self.value {
            ConfigVar::Text(text) if !is_secret(self.id) => text.clone(),
            _ => {
                let (id, encoding) = (self.id.to_owned(), Encoding::Text);
                Marker { id, encoding }.to_string()
            }
        }
    }
}

/// The texts that the module contains as the MachineDeployment gives them, with the names of their fields.
pub(crate) fn plain_texts(pool: &Pool) -> impl Iterator<Item = (&'static str, &str)> {
    let fields = fields(pool).into_iter().flatten();
    let plain = fields.filter_map(|field| match field.value {
        ConfigVar::Text(text) if !is_secret(field.id) => Some((field.name, text.as_str())),
        _ => None,
    });
    plain.chain([("rhelSatelliteServer", pool.os.rhel_satellite_server.as_str())])
}

/// Adds the module. Returns what keeps the pool from registering, if it says that it wants to but not how.
pub(crate) fn configure(stage: &mut StageConfig, pool: &Pool) -> Option<String> {
    let Some(fields) = chosen(pool) else {
        return incomplete(pool);
    };
    let values = fields
        .iter()
        .map(|field| (field.key.to_owned(), json!(field.text())));
    let mut module: Map<String, Value> = values.collect();
    if pool.os.attach_subscription && module.contains_key("username") {
        module.insert("auto-attach".to_owned(), json!(true));
    }
    if pool.os.rhel_use_satellite_server {
        let server = &pool.os.rhel_satellite_server;
        let url = format!("https://{server}/pulp/repos");
        module.insert("server-hostname".to_owned(), json!(server));
        module.insert("rhsm-baseurl".to_owned(), json!(url));
    }
    let modules = additions::modules(stage)?;
    let own = modules.entry(MODULE).or_insert_with(|| json!({}));
    // The profile's own fields of the module, such as repositories, stay.
    match own.as_object_mut() {
        Some(own) => own.extend(module),
        None => *own = Value::Object(module),
    }
    None
}

fn incomplete(pool: &Pool) -> Option<String> {
    let mut values = fields_of_rhel(pool)?.into_iter().flatten();
    let is_given = values.any(|field| !field.value.is_empty()) || pool.os.rhel_use_satellite_server;
    let needed = if pool.os.rhel_use_satellite_server {
        "rhelSatelliteServer, rhelOrganizationName and rhelActivationKey"
    } else {
        "rhelOrganizationName and rhelActivationKey, or rhelSubscriptionManagerUser and rhelSubscriptionManagerPassword"
    };
    is_given.then(|| format!("machines do not register with Red Hat; set {needed} in operatingSystemSpec"))
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
        let modules = |os: &str, spec: &Value, own: Value| configured(&pool(os, spec.clone()), Some(own)).0;
        let late = |id: &str| format!("%%osm-late{{rhel/{id},text}}%%");
        let user = json!({"rhelSubscriptionManagerUser": "me", "rhelSubscriptionManagerPassword": "hunter2"});
        let of_user = json!({"username": "me", "password": late("password")});
        assert_eq!(modules("rhel", &user, json!({})), Some(json!({MODULE: of_user})));
        let mut key = json!({"rhelOrganizationName": "12", "rhelActivationKey": {"secretKeyRef": {"namespace": "n", "name": "s", "key": "k"}}});
        let of_key = json!({"org": "12", "activation-key": late("activation-key")});
        let expected = json!({MODULE: of_key, "packages": ["x"]});
        assert_eq!(modules("rhel", &key, json!({"packages": ["x"]})), Some(expected));
        key["rhelUseSatelliteServer"] = json!(true);
        key["rhelSatelliteServer"] = json!("sat.example");
        let module = modules("rhel", &key, json!({MODULE: {"enable-repo": ["a"]}})).unwrap()[MODULE].take();
        assert_eq!(module["rhsm-baseurl"], "https://sat.example/pulp/repos");
        assert_eq!(module["enable-repo"], json!(["a"]));
        let empty =
            json!({"rhelSubscriptionManagerUser": "", "rhelSubscriptionManagerPassword": {"value": ""}});
        let satellite = json!({"rhelUseSatelliteServer": true});
        for (os, spec) in [("rhel", empty), ("rockylinux", user), ("rockylinux", satellite)] {
            assert_eq!(configured(&pool(os, spec), None), (None, None));
        }
    }

    #[test]
    fn an_incomplete_subscription_is_a_warning() {
        let user = json!({"rhelSubscriptionManagerUser": "me"});
        let mut satellite = user.clone();
        satellite["rhelSubscriptionManagerPassword"] = json!("x");
        satellite["rhelUseSatelliteServer"] = json!(true);
        for (spec, part) in [
            (user, "rhelSubscriptionManagerPassword"),
            (json!({"rhelActivationKey": "hunter2"}), "rhelOrganizationName"),
            (satellite, "rhelSatelliteServer"),
        ] {
            let (modules, warning) = configured(&pool("rhel", spec), None);
            let warning = warning.unwrap();
            assert_eq!(modules, None);
            let is_good = warning.contains(part) && !warning.contains("hunter2");
            assert!(is_good, "{warning}");
        }
    }

    #[test]
    fn a_password_is_read_where_it_stands() {
        let spec = json!({"rhelSubscriptionManagerUser": {"configMapKeyRef": {"namespace": "n", "name": "m", "key": "u"}},
            "rhelSubscriptionManagerPassword": "hunter2"});
        let late = late_bound(&pool("rhel", spec));
        let [user, password] = late.as_slice() else {
            panic!("{late:?}")
        };
        let named = |late: &LateBound| {
            let source = late.source.clone().unwrap();
            [late.id.clone(), source.namespace, source.name, source.key]
        };
        assert_eq!(user.kind, LateBoundKind::ConfigMapKey);
        assert_eq!(named(user), ["rhel/username", "n", "m", "u"]);
        assert_eq!(password.kind, LateBoundKind::OperatingSystemSpecField);
        let field = "rhelSubscriptionManagerPassword";
        assert_eq!(named(password), ["rhel/password", "machines", "pool", field]);
        assert!(!format!("{late:?}").contains("hunter2"));
    }
}
