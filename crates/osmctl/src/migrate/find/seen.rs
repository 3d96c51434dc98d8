//! The lists of a cluster that [`sort`](fn@super::sort) needs.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::api::ListParams;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};

use super::super::kinds;
use super::super::restorable::{TOKEN_TYPE, as_token};
use super::marks::GETTER;
use crate::cluster::{Editor, Kind, Object};

/// Lists of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub namespace: String,
    pub deployments: Vec<Object>,
    /// DaemonSets, StatefulSets, CronJobs and Jobs, which belong to others.
    pub workloads: Vec<Object>,
    /// Of both kinds.
    pub webhooks: Vec<Object>,
    pub services: Vec<Object>,
    pub budgets: Vec<Object>,
    pub accounts: Vec<Object>,
    /// Certificates and Issuers.
    pub certificates: Vec<Object>,
    /// Of all namespaces and of the cluster.
    pub bindings: Vec<Object>,
    pub roles: Vec<Object>,
    /// Metadata of Secrets in the namespace of the installation.
    pub secrets: Vec<Object>,
    /// `cloud-init-getter`: ServiceAccount, Role and RoleBinding.
    pub getter: Vec<Object>,
    /// Metadata of Secrets with non-expiring tokens, in `cloud-init-settings` and in the namespace of the installation.
    pub tokens: Vec<Object>,
    /// Metadata of Secrets in `cloud-init-settings` that OSM does not own.
    pub user_data: Vec<Object>,
    /// MachineDeployments of all namespaces.
    pub pools: Vec<Object>,
    /// OperatingSystemConfigs in the namespace of the installation.
    pub configs: Vec<Object>,
}

/// Reads everything that [`sort`](fn@super::sort) needs.
///
/// # Errors
/// A request that fails.
pub async fn read(editor: &Editor<'_>, namespace: &str, has_cert_manager: bool) -> Result<Seen> {
    let here = Some(namespace);
    let list = async |kind: Kind, namespace: Option<&str>| editor.list(kind, namespace).await;
    let mut seen = Seen {
        namespace: namespace.to_owned(),
        deployments: list(kinds::DEPLOYMENT, here).await?,
        workloads: list(kinds::DAEMON_SET, here).await?,
        webhooks: webhooks(editor).await?,
        services: list(kinds::SERVICE, here).await?,
        budgets: list(kinds::BUDGET, here).await?,
        accounts: list(kinds::ACCOUNT, here).await?,
        bindings: list(kinds::ROLE_BINDING, None).await?,
        roles: list(kinds::ROLE, None).await?,
        pools: list(kinds::POOL, None).await?,
        configs: list(kinds::CONFIG, here).await?,
        ..Seen::default()
    };
    if has_cert_manager {
        seen.certificates = list(kinds::CERTIFICATE, here).await?;
        seen.certificates.extend(list(kinds::ISSUER, here).await?);
    }
    for kind in [kinds::STATEFUL_SET, kinds::CRON_JOB, kinds::JOB] {
        seen.workloads.extend(list(kind, here).await?);
    }
    seen.bindings
        .extend(list(kinds::CLUSTER_ROLE_BINDING, None).await?);
    seen.roles.extend(list(kinds::CLUSTER_ROLE, None).await?);
    seen.secrets = editor
        .list_metadata(kinds::SECRET, namespace, ListParams::default())
        .await?;
    for kind in [kinds::ROLE_BINDING, kinds::ROLE, kinds::ACCOUNT] {
        seen.getter
            .extend(editor.get(kind, Some(CLOUD_INIT_SETTINGS), GETTER).await?);
    }
    let of_type = ListParams::default().fields(&format!("type={TOKEN_TYPE}"));
    for namespace in BTreeSet::from([namespace, CLOUD_INIT_SETTINGS]) {
        let tokens = editor
            .list_metadata(kinds::SECRET, namespace, of_type.clone())
            .await?;
        seen.tokens.extend(tokens.into_iter().map(as_token));
    }
    let not_ours = ListParams::default().labels(&format!("!{}", names::INSTALLATION));
    seen.user_data = editor
        .list_metadata(kinds::SECRET, CLOUD_INIT_SETTINGS, not_ours)
        .await?;
    Ok(seen)
}

/// All webhook configurations.
///
/// # Errors
/// A request that fails.
pub async fn webhooks(editor: &Editor<'_>) -> Result<Vec<Object>> {
    let mut all = editor.list(kinds::VALIDATING, None).await?;
    all.extend(editor.list(kinds::MUTATING, None).await?);
    Ok(all)
}
