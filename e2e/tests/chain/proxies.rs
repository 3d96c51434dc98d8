//! API servers behind squid: one proxy that demands a password, and what it refuses.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::process::{self, ScratchDir};
use osm_testkit::{Options, check, wait_for};

use crate::world::{DEADLINE, World};

const PASSWORD: &str = "hunter2";

/// `openssl passwd -apr1 -salt abcdefgh hunter2`
const USERS: &str = "osm:$apr1$abcdefgh$ckT15POyCRlen.h6XtGAZ1\n";

struct Squid {
    port: u16,
    folder: ScratchDir,
    process: process::Service,
}

impl Squid {
    /// Only the user `osm` with [`PASSWORD`] gets a tunnel, and only to these ports.
    async fn start(allowed: &[u16]) -> Result<Self> {
        osm_judges::packages::ensure(&["squid"])?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let folder = ScratchDir::new("osm-squid-")?;
        // Squid gives up root.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        fs::write(folder.path().join("users"), USERS)?;
        let ports: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let configuration = format!(
            "http_port 127.0.0.1:{port}
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/users
acl known proxy_auth REQUIRED
acl allowed port {ports}
http_access deny !known
http_access allow CONNECT allowed
http_access deny all
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename none
cache deny all
shutdown_lifetime 1 seconds
",
            folder = folder.path().display(),
            ports = ports.join(" "),
        );
        let file = folder.path().join("squid.conf");
        fs::write(&file, configuration)?;
        let file = file.display().to_string();
        let log = folder.path().join("output.log");
        let environment: [(&str, &str); 0] = [];
        let mut process = process::Service::spawn(
            Path::new("/usr/sbin/squid"),
            ["-N", "-f", &file],
            environment,
            &log,
        )?;
        wait_for("squid to listen", DEADLINE, async || {
            if let Some(status) = process.exited()? {
                anyhow::bail!("squid has ended: {status}\n{}", process.log_tail(10));
            }
            let connected = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
            check(connected.is_ok())
        })
        .await?;
        Ok(Self {
            port,
            folder,
            process,
        })
    }

    fn url(&self, user: &str, password: &str) -> String {
        format!("http://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// Waits until its log has a question for this port with this result, such as `TCP_TUNNEL/200`. A tunnel is logged when it ends.
    async fn answered(&self, port: u16, result: &str) -> Result<()> {
        let log = self.folder.path().join("access.log");
        let target = format!("CONNECT 127.0.0.1:{port} ");
        wait_for(&format!("{result} for {target}"), DEADLINE, async || {
            let log = fs::read_to_string(&log)?;
            let mut lines = log.lines();
            check(lines.any(|line| line.contains(&target) && line.contains(result)))
                .with_context(|| log.clone())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_servers_are_reached_through_a_proxy_that_demands_a_password() -> Result<()> {
    let mut world = World::start_in_two_without_services(Options::default()).await?;
    let (management, worker) = (world.management().port(), world.plane.port());
    let mut squid = Squid::start(&[management, worker]).await?;
    let refusing = Squid::start(&[1]).await?;

    // By the environment, for both clusters.
    let right = squid.url("osm", PASSWORD);
    world
        .installed
        .environment
        .insert("HTTPS_PROXY".into(), right.clone());
    world.installed.start_all().await?;
    world.all_ready().await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;

    // By a kubeconfig, which comes before the environment. What does not work is not used.
    let (syncer, kubeconfig) = (Service::SecretSyncer, ClusterKind::Worker);
    let before = fs::read_to_string(world.installed.kubeconfig(syncer, kubeconfig)?)?;
    let server = before
        .lines()
        .find(|line| line.trim_start().starts_with("server: "))
        .context("a server")?;
    let indent = &server[..server.len() - server.trim_start().len()];
    let with = |proxy: &str| before.replace(server, &format!("{server}\n{indent}proxy-url: {proxy}"));
    for (proxy, why) in [
        (
            squid.url("osm", "secret-of-another"),
            "proxy authorization required",
        ),
        (
            refusing.url("osm", PASSWORD),
            "opens no tunnel to the API server (tunnel error: unsuccessful)",
        ),
        ("http://127.0.0.1:1".to_owned(), "the proxy 127.0.0.1:1 "),
        (
            format!("socks5://osm:{PASSWORD}@127.0.0.1:{}", squid.port),
            "only proxies with the scheme http can be used",
        ),
    ] {
        world
            .installed
            .replace_kubeconfig(syncer, kubeconfig, &with(&proxy))?;
        let said = world
            .readiness(syncer, 503, &[why, "The previous kubeconfig stays in use"])
            .await?;
        assert!(
            !said.contains(PASSWORD) && !said.contains("secret-of-another"),
            "{said}"
        );
    }
    refusing.answered(worker, "TCP_DENIED/403").await?;
    squid.answered(worker, "TCP_DENIED/407").await?;
    world
        .installed
        .replace_kubeconfig(syncer, kubeconfig, &with(&right))?;
    world.readiness(syncer, 200, &[]).await?;
    world.stamp("p", 2).await?;
    world.machine("p", 2).await?;

    // Around the proxy, which is gone.
    for service in Service::ALL {
        world.installed.kill9(service)?;
    }
    for port in [management, worker] {
        squid.answered(port, "TCP_TUNNEL/200").await?;
    }
    squid.process.terminate(DEADLINE).await?;
    world.installed.replace_kubeconfig(syncer, kubeconfig, &before)?;
    world
        .installed
        .environment
        .insert("NO_PROXY".into(), "localhost,127.0.0.0/8".into());
    world.installed.start_all().await?;
    world.all_ready().await?;
    world.stamp("p", 3).await?;
    world.machine("p", 3).await?;
    assert!(!world.installed.logs().contains(PASSWORD));
    Ok(())
}
