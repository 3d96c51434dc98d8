//! The output of the demo.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::DynamicObject;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_api::rbac::Service;
use osm_testkit::ControlPlane;
use osm_testkit::installation::Installed;
use osm_testkit::machine_controller::{self, NotReady};

use super::pools::{Pools, REVISION};
use super::{mask, table};
use crate::progress::heading;

/// Prints the user data first, because it is long, and then the tables.
///
/// # Errors
/// An error of the server.
pub async fn everything(control_plane: &ControlPlane, installed: &Installed, pools: &Pools) -> Result<()> {
    for (index, pool) in pools.machine_deployments.iter().enumerate() {
        user_data(pools, pool, index == 0).await;
    }
    let namespace = &installed.installation().namespace;
    let ours = format!("/apis/operatingsystemmanager.k8c.io/v1alpha1/namespaces/{namespace}");
    let tables = [
        (
            format!("kubectl -n {namespace} get osp"),
            format!("{ours}/operatingsystemprofiles"),
        ),
        (
            format!("kubectl -n {namespace} get osc"),
            format!("{ours}/operatingsystemconfigs"),
        ),
        (
            format!("kubectl -n {CLOUD_INIT_SETTINGS} get secrets"),
            format!("/api/v1/namespaces/{CLOUD_INIT_SETTINGS}/secrets"),
        ),
    ];
    let client = control_plane.admin()?;
    for (command, path) in tables {
        heading(&command);
        print!("{}", table::get(&client, &path).await?);
    }
    Ok(())
}

/// Prints the user data that machine-controller would pass to the cloud provider, or why there is none.
async fn user_data(pools: &Pools, pool: &DynamicObject, in_full: bool) {
    let name = pool.name_any();
    let machine = format!("{name}-5b4f8d7c9-x2v7q");
    let found =
        machine_controller::fetch_user_data(pools.client(), pool, &REVISION.to_string(), &machine).await;
    match found {
        Ok(text) => {
            heading(&format!(
                "user data of machine {machine} ({} bytes, credentials masked)",
                text.len()
            ));
            let shown = mask::credentials(&text);
            if in_full {
                println!("{}", shown.trim_end());
            } else {
                let lines: Vec<&str> = shown.lines().collect();
                let beginning = lines.get(..6).unwrap_or(&lines);
                println!(
                    "{}\n… {} more lines",
                    beginning.join("\n"),
                    lines.len() - beginning.len()
                );
            }
        }
        Err(error) => heading(&format!("user data of machine {machine}: {}", reason(&error))),
    }
}

/// The error without the API server's whole response.
fn reason(error: &NotReady) -> String {
    match error {
        NotReady::Unreadable { source, .. } => match source.as_ref() {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// Prints commands to try while the demo runs.
///
/// # Errors
/// A service that has exited.
pub fn next_steps(control_plane: &ControlPlane, installed: &Installed) -> Result<()> {
    heading("Commands to try");
    println!(
        "export KUBECONFIG={}",
        control_plane.admin_kubeconfig_path().display()
    );
    println!("kubectl get osm,machinedeployments,secrets --all-namespaces");
    for service in Service::ALL {
        println!(
            "curl http://{}/metrics   # {}, log: {}",
            installed.address(service)?,
            service.name(),
            installed.log_file(service).display()
        );
    }
    println!("\nCtrl-C stops all processes and deletes their files.");
    Ok(())
}

/// Prints the last lines of each service's log to standard error.
pub fn logs(installed: &Installed, lines: usize) {
    for service in Service::ALL {
        let tail = installed.process(service).map(|process| process.log_tail(lines));
        eprintln!(
            "\nlast log lines of {}:\n{}",
            service.name(),
            tail.unwrap_or_else(|error| error.to_string())
        );
    }
}
