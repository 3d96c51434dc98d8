//! `cargo xtask rights`: generates docs/rights.md from the table of rights in crates/osm-api.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use osm_api::Joining;
use osm_api::rbac::{ClusterKind, Grant, Installation, Service};

use crate::generated::File;

/// The page.
pub fn files() -> Result<Vec<File>> {
    Ok(vec![(crate::root().join("docs/rights.md"), page()?)])
}

const INTRODUCTION: &str = "# Permissions

<!-- Generated from crates/osm-api/src/rbac/table.rs by `cargo xtask rights`. Don't edit. -->

This page lists the permissions of each service: where it needs them, and why.
The services need all of these permissions and no others.
[A test](../e2e/tests/chain/privilege.rs) runs the services in two clusters with exactly these permissions, and compares them with the audit logs of both API servers.
It lists the few permissions that are needed only in rare cases.

A service that lacks a permission is not ready. It reports the permission and the cluster on `/readyz` and in its log.
It continues as soon as the permission is granted.

## One cluster or two

Profiles, configs and settings are in the *management cluster*.
MachineDeployments and the namespace `cloud-init-settings` are in the *worker cluster*.
Without `--worker-cluster-kubeconfig`, one cluster is both.

| Service | `--kubeconfig` | `--worker-cluster-kubeconfig` |
|---|---|---|
| osp-controller | management cluster | has no such flag |
| osc-controller | management cluster | worker cluster |
| secret-syncer | management cluster | worker cluster |
| csr-approver | worker cluster | has no such flag |

With `--home-namespace`, `--kubeconfig` of each service leads to a user cluster, which is both. See [a home cluster](#a-home-cluster).

osp-controller never connects to the worker cluster, and csr-approver never to the management cluster. Without `--kubeconfig`, a service in a pod uses its ServiceAccount.
[Operations](operations.md#kubeconfigs-and-clusters) describes what happens when a kubeconfig changes while the services run.

In the tables, words in italics are the values of flags.
";

const REST: &str = "
## The right to approve

csr-approver may approve the client certificate of any node. A node reads the Secrets and the tokens of its pods, so this right is worth any node.
The API server checks two rights for an approval: `patch` on `certificatesigningrequests/approval`, and `approve` on the signer.
[Joining](joining.md) describes what csr-approver approves.

## The right to bind

secret-syncer may `bind` every Role in `cloud-init-settings`, because RBAC cannot name Roles that do not exist yet.
A Role of another owner there may permit everything in the namespace, so this right alone is worth as much, including pods on any node.
A ValidatingAdmissionPolicy of the chart limits secret-syncer to binding the Role of a pool to the ServiceAccount of the same name.

## Other permissions

- Each service asks the API server what it may do (`selfsubjectrulesreviews`, `selfsubjectaccessreviews`). The ClusterRole `system:basic-user`, which every cluster has, permits that.
- With `--joining=approved`, kubelets request certificates as the ServiceAccount of their pool.
  The group `system:serviceaccounts:cloud-init-settings` is bound to the ClusterRole `system:node-bootstrapper`, which lets it request and read certificates.
  A ValidatingAdmissionPolicy limits the requests of this group to client certificates of kubelets.
- With `--joining=static`, kubelets request certificates as the ServiceAccount `cloud-init-settings/osm-node-bootstrap`.
  It is bound to the ClusterRoles `system:node-bootstrapper` and `system:certificates.k8s.io:certificatesigningrequests:nodeclient`, and to no others.
- The settings may name or allow credentials in a namespace other than `cloud-init-settings`.
  Grant secret-syncer `get`, `list` and `watch` on them in the worker cluster, by name.
  With a home cluster, those that the settings name are in the home cluster. The chart grants secret-syncer `get`, `list` and `watch` on exactly these.
- `credentials.profileSecrets` in the settings lists Secrets of profiles. The chart grants secret-syncer `get`, `list` and `watch` on exactly these.
  With two clusters, or without the chart, grant this permission in the worker cluster yourself.
- Before a release is installed or upgraded, a Job may `get`, `create` and `patch` the two CustomResourceDefinitions in the management cluster, by name.
  The Job and this permission are deleted afterwards.
";

/// The whole page.
fn page() -> Result<String> {
    let flag = |name: &str| format!("*{name}*");
    let installation = Installation {
        namespace: flag("--namespace"),
        home: None,
        settings: flag("--settings"),
        profile_namespaces: vec![flag("--profile-namespaces")],
        pool_settings_namespaces: vec![flag("--pool-settings-namespaces")],
        machine_deployment_namespaces: Vec::new(),
        bootstrap_tokens: true,
        go_finalizers: true,
        custom_profiles: true,
        serving_certificates: true,
        joining: Joining::Approved,
    };
    let mut page = INTRODUCTION.to_owned();
    for service in Service::ALL {
        write!(page, "\n## {}\n", service.name())?;
        let grants = service.grants(&installation);
        for cluster in ClusterKind::ALL {
            let here: Vec<&Grant> = grants.iter().filter(|grant| grant.cluster == cluster).collect();
            if here.is_empty() {
                continue;
            }
            write!(
                page,
                "\n### {}: {} cluster\n\n| Namespace | Resource | Verbs | Purpose |\n|---|---|---|---|\n",
                service.name(),
                cluster.name()
            )?;
            for grant in here {
                rows(&mut page, grant)?;
            }
        }
    }
    at_home(&mut page, &installation)?;
    page.push_str(REST);
    Ok(page)
}

const HOME: &str = "
## A home cluster

With `--home-namespace`, the permissions on the settings and on the Leases of replicas move to the home cluster, where the services run.
All other permissions are in the user cluster, which is management and worker cluster.
csr-approver keeps the Leases that record its approvals in the user cluster.

| Service | Namespace | Resource | Verbs |
|---|---|---|---|
";

/// What the services may do in a home cluster.
fn at_home(page: &mut String, installation: &Installation) -> Result<()> {
    page.push_str(HOME);
    let installation = Installation {
        home: Some("*--home-namespace*".to_owned()),
        ..installation.clone()
    };
    for service in Service::ALL {
        let grants = service.grants(&installation);
        let mut table = String::new();
        for grant in grants.iter().filter(|grant| grant.cluster == ClusterKind::Home) {
            rows(&mut table, grant)?;
        }
        for row in table.lines() {
            // The purpose is the same as above.
            let (row, _) = row
                .trim_end_matches(" |")
                .rsplit_once(" | ")
                .context("a row with a purpose")?;
            writeln!(page, "| {} {row} |", service.name())?;
        }
    }
    Ok(())
}

fn rows(page: &mut String, grant: &Grant) -> Result<()> {
    let code = |text: &str| {
        if text.starts_with('*') {
            text.to_owned()
        } else {
            format!("`{text}`")
        }
    };
    let namespace = grant.namespace.as_deref().map_or_else(|| "all".to_owned(), code);
    for right in &grant.rights {
        let group = right
            .rule
            .api_groups
            .iter()
            .flatten()
            .next()
            .map_or("", String::as_str);
        let named = |resource: &String| {
            let resource = if group.is_empty() {
                resource.clone()
            } else {
                format!("{resource}.{group}")
            };
            code(&resource)
        };
        let resources: Vec<String> = right.rule.resources.iter().flatten().map(named).collect();
        let names: Vec<String> = right
            .rule
            .resource_names
            .iter()
            .flatten()
            .map(|name| code(name))
            .collect();
        let names = if names.is_empty() {
            String::new()
        } else {
            format!(" {}", names.join(", "))
        };
        let verbs = right.rule.verbs.join(", ");
        writeln!(
            page,
            "| {namespace} | {}{names} | {verbs} | {} |",
            resources.join(", "),
            right.why
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated;

    #[test]
    fn the_committed_page_is_what_the_table_says() {
        assert!(
            generated::stale(files().unwrap()).is_empty(),
            "run `cargo xtask rights`"
        );
    }
}
