//! A profile in Go's template language, as clusters of the upstream OSM have them, from its manifest to user
//! data.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::fixtures;
use osm_testkit::machine_controller;
use serde_json::json;

use crate::joining::{join, rights};
use crate::shared::in_shared_world;
use crate::world::NAMESPACE;

/// What stands between two texts.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Result<&'a str> {
    let found = text
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(after));
    found
        .map(|(found, _)| found)
        .with_context(|| format!("no {before}"))
}

#[test]
fn an_existing_profile_works_as_it_is() -> Result<()> {
    in_shared_world(async |world| {
        let fetch = "TOKEN='{{ .Token }}' SECRET='{{ .SecretName }}' SERVER='{{ .ServerURL }}'\n";
        let setup = "{{- template \"version\" }} on {{ .CloudProviderName }}{{ if .MaxPods }} with {{ .MaxPods }}{{ end }}\n\
        SETUP_TOKEN='{{ .Token }}' KUBECONFIG='{{ .BootstrapKubeconfigSecretName }}'\n";
        world
        .apply(&json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
            "metadata": {"name": "existing", "namespace": NAMESPACE},
            "spec": {
                "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0",
                "supportedCloudProviders": [{"name": "openstack"}],
                "bootstrapConfig": {
                    "files": [{"path": "/opt/bin/bootstrap", "permissions": 755, "content": {"inline": {"data": fetch}}}],
                    "modules": {"runcmd": ["systemctl restart bootstrap.service"]},
                },
                "provisioningConfig": {
                    "templates": {"version": "kubelet {{ .KubeVersion }}\n"},
                    "files": [{"path": "/opt/bin/setup", "permissions": 755, "content": {"inline": {"data": setup}}}],
                },
            },
        }))
        .await?;
        world.pool("pool", "existing").await?;
        world.stamp("pool", 1).await?;
        world.says("pool", "Published", true, "Published").await?;

        let bootstrap = machine_controller::user_data(&world.bootstrap("pool").await?, "1", "machine")?;
        let (token, secret) = (
            between(&bootstrap, "TOKEN='", "'")?,
            between(&bootstrap, "SECRET='", "'")?,
        );
        assert!(between(&bootstrap, "SERVER='", "'")?.starts_with("https://"));
        let node = Api::<Secret>::namespaced(world.plane.client(token)?, CLOUD_INIT_SETTINGS);
        let document = node.get(secret).await?.data.unwrap_or_default();
        let document = document.get(names::CLOUD_CONFIG_KEY).context("no document")?;
        let document = std::str::from_utf8(&document.0)?;
        assert!(document.contains("kubelet v1.34.2 on openstack"), "{document}");
        assert!(
            document.contains("/etc/containerd/certs.d/docker.io/hosts.toml"),
            "{document}"
        );

        // What its setup script then does: it fetches the kubeconfig with which the kubelet asks for a
        // certificate.
        let setup_token = between(document, "SETUP_TOKEN='", "'")?;
        let node = Api::<Secret>::namespaced(world.plane.client(setup_token)?, CLOUD_INIT_SETTINGS);
        let kubeconfig = node.get(between(document, "KUBECONFIG='", "'")?).await?;
        let kubeconfig = kubeconfig.data.unwrap_or_default();
        let kubeconfig = kubeconfig.get("kubeconfig").context("no kubeconfig")?;
        let kubeconfig = std::str::from_utf8(&kubeconfig.0)?;
        let kubelet_token = kubeconfig.split_once("token: ").context("a token")?.1.trim();
        assert_eq!(
            join(world, kubelet_token, "go-1").await?,
            "system:node:go-1 of system:nodes"
        );
        // It opens these Secrets and no others.
        let own = rights(world.plane.client(setup_token)?, CLOUD_INIT_SETTINGS).await?;
        let own: BTreeSet<&str> = own
            .iter()
            .filter_map(|right| right.strip_prefix("get /secrets "))
            .collect();
        let kubeconfig_secret = between(document, "KUBECONFIG='", "'")?;
        assert_eq!(own, BTreeSet::from([secret, kubeconfig_secret]));
        let config = fixtures::with_documents(&world.config("pool").await?)?;
        for token in [token, setup_token, kubelet_token] {
            assert!(!config.contains(token), "a token stands in the custom resource");
        }
        Ok(())
    })
}
