//! `cargo xtask rights`: docs/rights.md, from the table of rights in crates/osm-api.

use std::fmt::Write as _;

use anyhow::Result;
use osm_api::rbac::{Cluster, Grant, Installation, Service};

use crate::generated::{self, File};

/// Write docs/rights.md, which says what each service may do, from the table in crates/osm-api
#[derive(clap::Args)]
pub struct Rights {
    /// Write nothing; fail when the file is not what the table says
    #[arg(long)]
    check: bool,
}

impl Rights {
    /// Writes or checks.
    ///
    /// # Errors
    /// A file that differs (with `--check`), or can't be written.
    pub fn run(&self) -> Result<()> {
        let bad = "not what crates/osm-api/src/rbac.rs says (run `cargo xtask rights`)";
        generated::settle(&stale()?, self.check, "docs/rights.md is up to date", bad)
    }
}

/// The page, if it is not what it should be, with what it should hold.
fn stale() -> Result<Vec<File>> {
    Ok(generated::stale([(crate::root().join("docs/rights.md"), page()?)]))
}

const INTRODUCTION: &str = "# Rights

<!-- Generated from crates/osm-api/src/rbac.rs by `cargo xtask rights`. Don't edit. -->

What each service may do, where, and what for. Nothing else is needed, and nothing of it is superfluous:
[a test](../crates/osm-testkit/tests/chain/privilege.rs) has the services do what they do, in two clusters, with exactly these rights, and compares them with
the audit logs of both API servers. It lists the few that only a coincidence calls for. A service that lacks one of them is not ready, says in
`/readyz` and in its log which and in which cluster, and goes on as soon as it is granted.

## One cluster or two

Profiles, configs and settings are in the *management cluster*; MachineDeployments and the namespace `cloud-init-settings` in the *worker cluster*. Without
`--worker-cluster-kubeconfig` one cluster is both.

| | `--kubeconfig` | `--worker-cluster-kubeconfig` |
|---|---|---|
| osp-controller | management cluster | has no such flag |
| osc-controller | management cluster | worker cluster |
| secret-syncer | management cluster | worker cluster |

osp-controller never talks to the worker cluster. Without `--kubeconfig`, a service in a pod goes by its ServiceAccount. What happens to a kubeconfig while services run
stands in [operations](operations.md#kubeconfigs-and-clusters).

In the tables, words in italics stand for values of flags.
";

const REST: &str = "
## Besides

- Whoever has an identity may ask what it may do (`selfsubjectaccessreviews`, by the ClusterRole `system:basic-user` that every cluster has). The services do.
- The ServiceAccount `cloud-init-settings/osm-node-bootstrap`, with which kubelets join, is bound in the worker cluster to the ClusterRoles `system:node-bootstrapper` and
  `system:certificates.k8s.io:certificatesigningrequests:nodeclient`, and may do nothing else.
- For credentials in a namespace other than `cloud-init-settings`, which the settings name or allow, grant secret-syncer `get`, `list` and `watch` on them there, by name,
  in the worker cluster.
- Before a release is installed or upgraded, a Job of its own may `get`, `create` and `patch` the two CustomResourceDefinitions, by name, in the management cluster; Job and
  right are gone after it.
";

/// The whole page.
fn page() -> Result<String> {
    let flag = |name: &str| format!("*{name}*");
    let installation = Installation {
        namespace: flag("--namespace"),
        settings: flag("--settings"),
        profile_namespaces: vec![flag("--profile-namespaces")],
        pool_settings_namespaces: vec![flag("--pool-settings-namespaces")],
        bootstrap_tokens: true,
        go_finalizers: true,
    };
    let mut page = INTRODUCTION.to_owned();
    for service in Service::ALL {
        write!(page, "\n## {}\n", service.name())?;
        let grants = service.grants(&installation);
        for cluster in Cluster::ALL {
            let here: Vec<&Grant> = grants.iter().filter(|grant| grant.cluster == cluster).collect();
            if here.is_empty() {
                continue;
            }
            write!(
                page,
                "\n### {}: {} cluster\n\n| Namespace | What | Verbs | For |\n|---|---|---|---|\n",
                service.name(),
                cluster.name()
            )?;
            for grant in here {
                rows(&mut page, grant)?;
            }
        }
    }
    page.push_str(REST);
    Ok(page)
}

fn rows(page: &mut String, grant: &Grant) -> Result<()> {
    let code = |text: &str| if text.starts_with('*') { text.to_owned() } else { format!("`{text}`") };
    let namespace = grant.namespace.as_deref().map_or_else(|| "all".to_owned(), code);
    for right in &grant.rights {
        let group = right.rule.api_groups.iter().flatten().next().map_or("", String::as_str);
        let named = |resource: &String| {
            let resource = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
            code(&resource)
        };
        let resources: Vec<String> = right.rule.resources.iter().flatten().map(named).collect();
        let names: Vec<String> = right.rule.resource_names.iter().flatten().map(|name| code(name)).collect();
        let names = if names.is_empty() { String::new() } else { format!(" {}", names.join(", ")) };
        let verbs = right.rule.verbs.join(", ");
        writeln!(page, "| {namespace} | {}{names} | {verbs} | {} |", resources.join(", "), right.why)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_what_the_table_says() {
        assert!(stale().unwrap().is_empty(), "run `cargo xtask rights`");
    }
}
