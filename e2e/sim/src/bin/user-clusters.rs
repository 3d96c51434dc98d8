//! Serves the API servers of many user clusters, each on a port of its own, until it is killed. `cargo xtask fleet`
//! measures what they cost a fleet.
//!
//! The clusters share the objects that they begin with: pools, Machines, Nodes, and what the chart installs
//! there.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use jiff::Timestamp;
use osm_api::names;
use osm_api::rbac::{ClusterKind, Installation};
use osm_sim::hostile_server::{HostileServer, Kind};
use osm_sim::memory::{self, Backup, Server};
use osm_testkit::control_plane::{Pki, kubeconfig, private_file, random_token};
use osm_testkit::{fixtures, installation};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Serve the API servers of many user clusters from memory
#[derive(Parser)]
struct Args {
    /// Where certificates are written, and at last clusters.json with the kubeconfigs
    directory: PathBuf,
    /// Clusters that do as they should
    #[arg(long)]
    healthy: u32,
    /// MachineDeployments in each
    #[arg(long)]
    pools: u32,
    /// Machines of each MachineDeployment, each with its Node
    #[arg(long, default_value_t = 10)]
    machines: u32,
    /// Profile of the MachineDeployments
    #[arg(long)]
    profile: String,
    /// Namespace in them of what the services keep there
    #[arg(long)]
    namespace: String,
    /// Clusters that do not answer, or refuse everything
    #[arg(long, default_value_t = 0)]
    away: usize,
    /// Clusters that send too much
    #[arg(long, default_value_t = 0)]
    hostile: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    // It fails only if there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limits = getrlimit(Resource::Nofile);
    let current = limits.maximum;
    setrlimit(Resource::Nofile, Rlimit { current, ..limits })?;
    let pki = Pki::create(&args.directory, std::iter::empty())?;
    let (tls, token, backup) = (memory::tls(&args.directory)?, random_token(), template(&args)?);
    let mut healthy = Vec::new();
    for number in 0..args.healthy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let server = user_cluster(number, backup.clone(), &pki.ca_pem, &url)?;
        healthy.push(kubeconfig(&url, &pki.ca_pem, &token));
        tokio::spawn(memory::serve(server, listener, tls.clone(), token.clone()));
    }
    let (mut away, mut hostile) = (Vec::new(), Vec::new());
    for kind in Kind::AWAY.into_iter().cycle().take(args.away) {
        away.push(HostileServer::start(kind).await?.kubeconfig());
    }
    for kind in Kind::HOSTILE.into_iter().cycle().take(args.hostile) {
        hostile.push(HostileServer::start(kind).await?.kubeconfig());
    }
    let clusters = json!({"healthy": healthy, "away": away, "hostile": hostile});
    let new = args.directory.join("clusters.new");
    private_file(&new, &clusters.to_string())?;
    // Who waits for the file finds it whole.
    std::fs::rename(new, args.directory.join("clusters.json"))?;
    std::future::pending().await
}

/// What all clusters begin with.
fn template(args: &Args) -> Result<Backup> {
    let server = Server::new(Timestamp::now());
    let installation = Installation {
        namespace: args.namespace.clone(),
        fleet: true,
        ..Installation::default()
    };
    server.load(&installation::manifests_in(&installation, &[ClusterKind::Worker]))?;
    for pool in 0..args.pools {
        server.load(&pool_objects(&format!("pool-{pool}"), args))?;
    }
    Ok(server.with(|state| state.backup()))
}

/// A pool with its machines.
fn pool_objects(pool: &str, args: &Args) -> Vec<Value> {
    let of = |kind: &str, name: &str, owner: Value| {
        json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind, "spec": {},
            "metadata": {"name": name, "namespace": "kube-system", "ownerReferences": [owner]}})
    };
    let owner = |kind: &str, name: &str| json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind, "name": name, "uid": name, "controller": true});
    let mut deployment = fixtures::machine_deployment(pool, &args.profile);
    if let Some(annotations) = deployment.pointer_mut("/metadata/annotations") {
        json_patch::merge(annotations, &json!({names::REVISION: "1"}));
    }
    let mut objects = vec![
        deployment,
        of("MachineSet", pool, owner("MachineDeployment", pool)),
    ];
    for number in 0..args.machines {
        let name = format!("{pool}-{number}");
        objects.push(of("Machine", &name, owner("MachineSet", pool)));
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
    }
    objects
}

/// A cluster with a uid and an address of its own.
fn user_cluster(number: u32, backup: Backup, ca_pem: &str, url: &str) -> Result<Server> {
    let server = Server::new(Timestamp::now());
    server.restore(backup, Duration::ZERO);
    server.with(|state| {
        state.set_number(number);
        state.delete("namespaces", "", "kube-system")
    })?;
    server.load(&[
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}),
        installation::cluster_info(ca_pem, url),
    ])?;
    Ok(server)
}
