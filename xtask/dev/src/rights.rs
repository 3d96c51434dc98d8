//! `cargo xtask rights`: generates docs/rights.md from the table of rights in crates/osm-api.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use osm_api::Joining;
use osm_api::rbac::{ClusterKind, Grant, Installation, Right, Service};

use crate::generated::File;

pub fn files() -> Result<Vec<File>> {
    Ok(vec![(crate::root().join("docs/rights.md"), page()?)])
}

const INTRODUCTION: &str = "# Permissions

<!-- Generated from crates/osm-api/src/rbac/table.rs by `cargo xtask rights`. Don't edit. -->

For operators and security reviewers: the permissions that each service needs, where and why. It needs no others, and the chart grants them.
A service that lacks a permission isn't ready. It reports the permission and the cluster on `/readyz`, and continues as soon as it is granted.

Profiles, configs and settings are in the *management cluster*. MachineDeployments and the namespace `cloud-init-settings` are in the *worker cluster*.
Without `--worker-cluster-kubeconfig`, one cluster is both. Words in italics are the values of [flags](services.md).
";

const REST: &str = "
## Approve and bind

- csr-approver may approve the client certificate of any node. A node reads the Secrets of its pods, so treat this permission as access to every node's credentials.
- secret-syncer may `bind` every Role in `cloud-init-settings`, because RBAC can't name Roles that don't exist yet.
  A ValidatingAdmissionPolicy of the chart limits that to the Roles of pools and their own ServiceAccounts. Without it, the permission is worth everything in the namespace.

## Other permissions

- Each service asks the API server what it may do. The ClusterRole `system:basic-user`, which every cluster has, permits that.
- With `--joining=approved`, the group `system:serviceaccounts:cloud-init-settings` is bound to the ClusterRole `system:node-bootstrapper`.
  A ValidatingAdmissionPolicy of the chart limits its requests to client certificates of kubelets.
- With `--joining=static`, the ServiceAccount `cloud-init-settings/osm-node-bootstrap` is bound to the ClusterRoles
  `system:node-bootstrapper` and `system:certificates.k8s.io:certificatesigningrequests:nodeclient`.
- Grant secret-syncer `get`, `list` and `watch`, by name, on Secrets outside of `cloud-init-settings` and on ConfigMaps that the [settings](settings.md#credentials-profiles-and-limits) name or allow.
  In one cluster, the chart does that for `credentials.profileSecrets`.
";

fn page() -> Result<String> {
    let flag = |name: &str| format!("*{name}*");
    let installation = Installation {
        namespace: flag("--namespace"),
        settings: flag("--settings"),
        profile_namespaces: vec![flag("--profile-namespaces")],
        fallback_profile_namespace: Some(flag("--fallback-profile-namespace")),
        pool_settings_namespaces: vec![flag("--pool-settings-namespaces")],
        machine_deployment_namespaces: Vec::new(),
        bootstrap_tokens: true,
        go_finalizers: true,
        custom_profiles: true,
        serving_certificates: true,
        joining: Joining::Approved,
    };
    let mut tables = Vec::new();
    for service in Service::ALL {
        let grants = service.grants(&installation);
        for cluster in ClusterKind::ALL {
            let here = grants.iter().filter(|grant| grant.cluster == cluster);
            // What is needed in several namespaces is one row.
            let mut places: Vec<(String, Vec<String>)> = Vec::new();
            for (right, namespace) in here.flat_map(rows) {
                match places.iter_mut().find(|(known, _)| *known == right) {
                    Some((_, namespaces)) => namespaces.push(namespace),
                    None => places.push((right, vec![namespace])),
                }
            }
            let row = |(right, namespaces): &(String, Vec<String>)| {
                format!("| {} | {right}", namespaces.join(", "))
            };
            let here: Vec<String> = places.iter().map(row).collect();
            if !here.is_empty() {
                tables.push((service, cluster, here));
            }
        }
    }
    // What several services need is listed once.
    let is_common = |row: &String| tables.iter().filter(|(_, _, rows)| rows.contains(row)).count() > 2;
    let common: BTreeSet<&String> = tables
        .iter()
        .flat_map(|(_, _, rows)| rows)
        .filter(|row| is_common(row))
        .collect();
    let mut page = INTRODUCTION.to_owned();
    let mut section = |title: &str, rows: &[&String]| {
        write!(
            page,
            "\n## {title}\n\n| Namespace | Resource | Verbs | Purpose |\n|---|---|---|---|\n"
        )?;
        rows.iter().try_for_each(|row| writeln!(page, "{row}"))
    };
    section("Several services", &common.iter().copied().collect::<Vec<_>>())?;
    for (service, cluster, rows) in &tables {
        let own: Vec<&String> = rows.iter().filter(|row| !common.contains(row)).collect();
        section(&format!("{}: {} cluster", service.name(), cluster.name()), &own)?;
    }
    page.push_str(REST);
    Ok(page)
}

/// Each right, as the cells of its row, and its namespace.
fn rows(grant: &Grant) -> Vec<(String, String)> {
    let code = |text: &str| {
        if text.starts_with('*') {
            text.to_owned()
        } else {
            format!("`{text}`")
        }
    };
    let namespace = grant.namespace.as_deref().map_or_else(|| "all".to_owned(), code);
    let row = |right: &Right| {
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
        let right = format!("{}{names} | {verbs} | {} |", resources.join(", "), right.why);
        (right, namespace.clone())
    };
    grant.rights.iter().map(row).collect()
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

    #[test]
    fn the_page_of_flags_lists_the_variables_of_the_services_and_no_others() {
        let read = |path: &str| std::fs::read_to_string(crate::root().join(path)).unwrap();
        let variables = |text: &str, start: &str| -> BTreeSet<String> {
            let rest = text
                .split(start)
                .skip(1)
                .filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            rest.map(|rest| {
                rest.chars()
                    .take_while(|c| c.is_ascii_uppercase() || *c == '_')
                    .collect()
            })
            .collect()
        };
        let mut known = BTreeSet::new();
        for path in [
            "osm-runtime/src/args.rs",
            "osm-runtime/src/admission/mod.rs",
            "osp-controller/src/main.rs",
            "osc-controller/src/main.rs",
            "secret-syncer/src/main.rs",
            "csr-approver/src/main.rs",
        ] {
            known.append(&mut variables(&read(&format!("crates/{path}")), "env = \""));
        }
        assert!(known.len() > 20, "{known:?}");
        assert_eq!(variables(&read("docs/services.md"), "` | `"), known);
    }
}
