//! Follows docs/air-gap.md literally, with stand-ins for Internet hosts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use osm_api::Settings;
use osm_api::names::KUBE_SYSTEM;
use osm_lab::machines;
use osm_lab::release;
use osm_lab::serve::files::FileServer;
use osm_lab::serve::identity::Identity;
use serde_json::Value;
use tokio::process::Command;

use super::environment::Environment;

/// Where the stand-in for all Internet hosts is.
const INTERNET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1)), 443);

/// Waits for the server that was started in the background, three minutes at most.
const LISTENING: &str = r#"
left=1800
until curl -s -o /dev/null "$MIRROR_URL" || [ "$left" -eq 0 ]; do
  left=$((left - 1))
  sleep 0.1
done
"#;

/// The state after following the page.
pub struct AirGap {
    blocks: Blocks,
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl AirGap {
    /// Follows the page up to where the cluster comes in. `releases` holds a folder for each host of the
    /// internet, `binaries` has osmctl, `kubectl` is that program.
    pub async fn follow(
        folder: &Path,
        releases: &Path,
        binaries: &Path,
        kubectl: &Path,
        mirror: SocketAddr,
        registry: SocketAddr,
    ) -> Result<Self> {
        let page = crate::root().join("docs/air-gap.md");
        let blocks =
            Blocks::read(&std::fs::read_to_string(&page).with_context(|| page.display().to_string())?)?;
        let folder = folder.join("air-gap");
        std::fs::create_dir(&folder)?;
        let names = std::fs::read_dir(releases)
            .with_context(|| releases.display().to_string())?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>>>()?;
        let (certificate, identity) = Identity::of_hosts(&names)?;
        let _internet = FileServer::start_hosts(INTERNET, releases, &identity)?;
        let (hosts, ca) = (folder.join("hosts"), folder.join("internet.crt"));
        let lines = format!("127.0.0.1 localhost\n{} {}\n", INTERNET.ip(), names.join(" "));
        std::fs::write(&hosts, lines)?;
        std::fs::write(&ca, certificate)?;
        machines::isolation::replace(Path::new("/etc/hosts"), &hosts)?;
        let tools = kubectl.parent().context("the folder of kubectl")?;
        let path = format!(
            "{}:{}:{}",
            binaries.display(),
            tools.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let environment = vec![
            ("PATH", path),
            ("CURL_CA_BUNDLE", ca.display().to_string()),
            ("MIRROR_DIR", folder.join("mirror").display().to_string()),
            ("MIRROR_PORT", mirror.port().to_string()),
            ("MIRROR_URL", format!("http://{}", mirror.ip())),
            ("REGISTRY_URL", format!("http://{registry}")),
            ("KUBELET_VERSION", Environment::KUBELET_VERSION.to_owned()),
            ("NAMESPACE", KUBE_SYSTEM.to_owned()),
            ("ARCH", release::architecture()?.to_owned()),
        ];
        let air_gap = Self {
            blocks,
            folder,
            environment,
        };
        air_gap.run(&air_gap.blocks.offline, &[]).await?;
        Ok(air_gap)
    }

    /// What the mirror serves.
    pub fn mirror(&self) -> PathBuf {
        self.folder.join("mirror")
    }

    /// What `osmctl urls` says that a node fetches from the mirror.
    pub fn urls(&self) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(self.folder.join("mirrored.txt"))?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The settings document that the page makes.
    pub fn settings(&self) -> Result<Value> {
        let text = std::fs::read_to_string(self.folder.join("settings.yaml"))?;
        Ok(Settings::document(&text)?)
    }

    /// Puts the settings in force, as the page says.
    pub async fn put_in_force(&self, kubeconfig: &Path) -> Result<()> {
        let kubeconfig = kubeconfig.display().to_string();
        self.run(&self.blocks.cluster, &[("KUBECONFIG", &kubeconfig)])
            .await
    }

    async fn run(&self, script: &str, more: &[(&str, &str)]) -> Result<()> {
        let output = Command::new("sh")
            .args(["-eu", "-c", script])
            .current_dir(&self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "docs/air-gap.md does not work ({}):\n{}",
            output.status,
            said.trim_end()
        );
        Ok(())
    }
}

/// The page's commands.
struct Blocks {
    /// All that needs no cluster, as one script.
    offline: String,
    /// What needs one.
    cluster: String,
}

impl Blocks {
    fn read(page: &str) -> Result<Self> {
        let (mut offline, mut cluster, mut server) = (String::new(), String::new(), false);
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            // Indented blocks belong to a list of alternatives.
            let Some(kind) = line.strip_prefix("```").filter(|kind| kind.starts_with("sh")) else {
                continue;
            };
            let block: String = lines
                .by_ref()
                .take_while(|line| !line.starts_with("```"))
                .map(|line| format!("{line}\n"))
                .collect();
            match kind {
                "sh" => offline += &block,
                "sh background" => {
                    ensure!(!server, "docs/air-gap.md starts more than one server");
                    server = true;
                    // Its output is a pipe that would stay open.
                    offline += &format!(
                        "{{\n{block}}} >server.log 2>&1 &\ntrap \"kill $!; wait $! || :\" EXIT\n{LISTENING}"
                    );
                }
                "sh cluster" => cluster += &block,
                _ => bail!("docs/air-gap.md has a block of unknown kind: {kind}"),
            }
        }
        ensure!(
            server && !cluster.is_empty(),
            "docs/air-gap.md serves no files, or puts no settings in force"
        );
        Ok(Self { offline, cluster })
    }
}
