//! The output of the demo.

use std::io::{self, IsTerminal, Write};

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_testkit::machine_controller::{self, NotReady};
use osm_testkit::progress;

use crate::api_server::ApiServer;
use crate::pools::{Pools, revision};
use crate::services::Services;

/// Prints the user data of each pool, of the first in full.
///
/// # Errors
/// An error of the server.
pub async fn user_data(pools: &Pools, client: &Client) -> Result<()> {
    for (index, pool) in pools.machine_deployments().await?.iter().enumerate() {
        of_machine(client, pool, index == 0).await?;
    }
    Ok(())
}

/// Prints the user data that machine-controller would pass to the cloud provider, or why there is none.
async fn of_machine(client: &Client, pool: &DynamicObject, in_full: bool) -> Result<()> {
    let name = pool.name_any();
    let machine = format!("{name}-5b4f8d7c9-x2v7q");
    let found = machine_controller::fetch_user_data(client, pool, revision(pool), &machine).await;
    match found {
        Ok(text) => {
            heading(&format!(
                "user data of machine {machine} ({} bytes; its credentials end with the demo)",
                text.len()
            ))?;
            if in_full {
                return print(text.trim_end());
            }
            let lines: Vec<&str> = text.lines().collect();
            let beginning = lines.get(..6).unwrap_or(&lines);
            let more = lines.len() - beginning.len();
            print(&format!("{}\n… {more} more lines", beginning.join("\n")))
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
/// Standard output is closed.
pub fn next_steps(api_server: &ApiServer, services: &Services) -> Result<()> {
    heading("Commands to try in another terminal")?;
    let example = crate::root().join("examples/machinedeployment-ubuntu-aws.yaml");
    print(&format!(
        "export KUBECONFIG={}
kubectl get osp,osc -A
sed s/ubuntu-aws/another-pool/ {} | kubectl apply -f -
kubectl edit machinedeployment another-pool -n kube-system
kubectl get secrets -n {CLOUD_INIT_SETTINGS}
cargo run -p osmctl -- status",
        api_server.kubeconfig().display(),
        example.display(),
    ))?;
    for (service, address) in services.addresses() {
        print(&format!("curl http://{address}/metrics   # {}", service.name()))?;
    }
    print(&format!(
        "less {}   # what the services log",
        services.log().display()
    ))?;
    if api_server.is_in_memory() {
        print(
            "\nThis API server is for trying only: it simulates a part of a real one and keeps nothing. --etcd starts a real one.",
        )?;
    }
    print("\nCtrl-C stops everything and deletes its files.")
}

/// Prints a heading; bold on a terminal.
fn heading(text: &str) -> Result<()> {
    print(&format!(
        "\n{}",
        progress::paint(text, "1", io::stdout().is_terminal())
    ))
}

/// Prints to standard output, which may be a pipe without a reader.
fn print(text: &str) -> Result<()> {
    writeln!(io::stdout(), "{text}").context("standard output")
}
