//! The Secret of `-node-registry-credentials-secret`: the credentials of its registries in the settings, and
//! how it is converted.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use osm_api::names::CLOUD_INIT_SETTINGS;
use serde_json::{Value, json};

use super::mapped::Mapped;

/// What a Secret with credentials of registries contains, without their values.
#[derive(Clone, Debug, PartialEq)]
pub struct RegistrySecret {
    namespace: String,
    name: String,
    /// Names of the registries.
    registries: Vec<String>,
    /// Whether it is of the type `kubernetes.io/dockerconfigjson`, which OSM reads as it is.
    is_docker: bool,
}

impl From<Secret> for RegistrySecret {
    fn from(secret: Secret) -> Self {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let data = secret.data.unwrap_or_default();
        let docker = data.get(".dockerconfigjson").map(|text| {
            let config: Value = serde_json::from_slice(&text.0).unwrap_or_default();
            let auths = config.get("auths").and_then(Value::as_object);
            auths
                .map(|auths| auths.keys().cloned().collect())
                .unwrap_or_default()
        });
        Self {
            namespace,
            name,
            is_docker: docker.is_some(),
            registries: docker.unwrap_or_else(|| data.into_keys().collect()),
        }
    }
}

impl RegistrySecret {
    /// Name of the new Secret for a registry.
    fn converted(registry: &str) -> String {
        format!("osm-registry-{}", registry.to_ascii_lowercase())
    }

    /// The Secret for a registry, as settings name it.
    fn reference(&self, registry: &str) -> Value {
        if self.is_docker {
            json!({"namespace": self.namespace, "name": self.name})
        } else {
            json!({"name": Self::converted(registry)})
        }
    }

    /// The command that creates the Secret for a registry. No value is part of it: the value of the old
    /// Secret is the JSON of the fields of the new one.
    fn command(&self, registry: &str) -> String {
        let Self { namespace, name, .. } = self;
        let metadata = json!({"name": Self::converted(registry), "namespace": CLOUD_INIT_SETTINGS});
        let value = format!("{{{{index .data \"{registry}\" | base64decode}}}}");
        let object =
            format!(r#"{{"apiVersion":"v1","kind":"Secret","metadata":{metadata},"stringData":{value}}}"#);
        format!(
            "kubectl get secret {name} --namespace {namespace} --output go-template='{object}' | kubectl apply --server-side --filename -"
        )
    }
}

impl Mapped {
    /// Sets the credentials of the registries of a Secret.
    pub(super) fn credentials(&mut self, flag: &str) {
        let Some(secret) = self.registry_secret.take() else {
            return self.problems.push(format!(
                "the Secret that the flag -{flag} names does not exist in the cluster that the upstream OSM works in; create it, or \
                 select that cluster with --worker-context"
            ));
        };
        for registry in &secret.registries {
            self.credentials_of(registry, secret.reference(registry));
        }
        if !secret.is_docker {
            self.commands = secret.registries.iter().map(|one| secret.command(one)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map;
    use super::*;

    fn secret(data: Value) -> RegistrySecret {
        let metadata = json!({"namespace": "kube-system", "name": "kubeone-registry-credentials"});
        let mut secret: Secret = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let value = |value: &Value| k8s_openapi::ByteString(value.as_str().unwrap().into());
        let data = data.as_object().unwrap().iter();
        secret.data = Some(data.map(|(key, text)| (key.clone(), value(text))).collect());
        secret.into()
    }

    fn mapped(secret: Option<RegistrySecret>) -> Mapped {
        let words = [
            "-node-registry-mirrors=quay.io=mirror.example",
            "-node-registry-credentials-secret=kube-system/kubeone-registry-credentials",
        ];
        map(&words.map(str::to_owned), &[], None, secret)
    }

    #[test]
    fn a_key_for_each_registry_becomes_a_secret_for_each() {
        let credentials = r#"{"username": "u", "password": "h0t-and-secret"}"#;
        let found = mapped(Some(secret(
            json!({"quay.io": credentials, "registry.example.com": credentials}),
        )));
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!(
            found.settings["containerd"]["registries"],
            json!([
                {"host": "quay.io", "mirrors": [{"url": "https://mirror.example"}], "credentials": {"name": "osm-registry-quay.io"}},
                {"host": "registry.example.com", "credentials": {"name": "osm-registry-registry.example.com"}},
            ])
        );
        assert!(!format!("{found:?}").contains("h0t"), "{found:?}");
        assert_eq!(
            found.commands[0],
            "kubectl get secret kubeone-registry-credentials --namespace kube-system --output go-template='{\"apiVersion\":\"v1\",\
             \"kind\":\"Secret\",\"metadata\":{\"name\":\"osm-registry-quay.io\",\"namespace\":\"cloud-init-settings\"},\
             \"stringData\":{{index .data \"quay.io\" | base64decode}}}' | kubectl apply --server-side --filename -"
        );
        assert_eq!(found.commands.len(), 2);
    }

    #[test]
    fn a_secret_of_docker_stays_and_a_missing_one_is_a_problem() {
        let auths = json!({"auths": {"https://index.docker.io/v1/": {"auth": "aDB0"}}}).to_string();
        let found = mapped(Some(secret(json!({".dockerconfigjson": auths}))));
        assert_eq!(
            found.settings["containerd"]["registries"][0],
            json!({"host": "docker.io", "credentials": {"namespace": "kube-system", "name": "kubeone-registry-credentials"}})
        );
        assert_eq!((found.commands.len(), found.problems.len()), (0, 0), "{found:?}");
        let found = mapped(None);
        assert!(
            found.problems[0].contains("does not exist"),
            "{:?}",
            found.problems
        );
    }
}
