//! `osmctl status --watch` in a terminal, and without one.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use osm_api::names;
use osm_testkit::{Options, installation, wait_for};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::world::{DEADLINE, NAMESPACE, World};

/// A terminal with a shell.
struct Terminal {
    /// With the socket of a server of its own.
    folder: TempDir,
}

impl Terminal {
    fn start() -> Result<Self> {
        osm_judges::packages::ensure(&["tmux"])?;
        let terminal = Self {
            folder: tempfile::tempdir()?,
        };
        std::fs::write(terminal.folder.path().join("config"), "set -g status off\n")?;
        let size = ["new-session", "-d", "-x", "160", "-y", "24"];
        terminal.tmux(&[&size[..], &["env", "PS1=shell> ", "sh"]].concat())?;
        Ok(terminal)
    }

    fn run(&self, arguments: &[&str]) -> Result<Output> {
        let in_folder = |name: &str| self.folder.path().join(name);
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(in_folder("socket"));
        tmux.arg("-f").arg(in_folder("config"));
        tmux.args(arguments)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .context("tmux")
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {error}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn keys(&self, keys: &[&str]) -> Result<()> {
        self.tmux(&[&["send-keys"], keys].concat()).map(drop)
    }

    /// Waits until the screen contains each text, and returns it.
    async fn shows(&self, texts: &[&str]) -> Result<String> {
        let what = format!("a screen with {texts:?}");
        wait_for(&what, DEADLINE, async || {
            let screen = self.tmux(&["capture-pane", "-p"])?;
            ensure!(texts.iter().all(|text| screen.contains(text)), "{screen}");
            Ok(Some(screen))
        })
        .await
    }

    /// Whether the alternate screen is on, and whether there is a cursor.
    fn modes(&self) -> Result<String> {
        let modes = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"])?;
        Ok(modes.trim().to_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        _ = self.run(&["kill-server"]);
    }
}

fn line<'a>(screen: &'a str, pool: &str) -> &'a str {
    let has = |line: &&str| line.split_whitespace().any(|word| word == pool);
    screen.lines().find(has).unwrap_or_default()
}

async fn a_published_pool() -> Result<World> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("workers", "osp-tiny").await?;
    world.stamp("workers", 1).await?;
    world.says("workers", "Ready", true, "Published").await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_table_follows_changes_and_gives_the_terminal_back() -> Result<()> {
    let world = a_published_pool().await?;
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let terminal = tokio::task::spawn_blocking(Terminal::start).await??;
    terminal.shows(&["shell>"]).await?;
    let kubeconfig = world.plane.admin_kubeconfig_path();
    let command = format!(
        "{} status --watch -n {NAMESPACE} --kubeconfig {}",
        program.display(),
        kubeconfig.display()
    );
    terminal.keys(&["-l", &command])?;
    terminal.keys(&["Enter"])?;
    let screen = terminal.shows(&["1 pool, all well", "TIME LEFT"]).await?;
    let workers = line(&screen, "workers");
    ensure!(
        workers.contains("True") && workers.contains("osp-tiny"),
        "{screen}"
    );
    assert_eq!(terminal.modes()?, "1 0");
    // Time left runs out on its own.
    wait_for("another time left", DEADLINE, async || {
        let now = terminal.tmux(&["capture-pane", "-p"])?;
        Ok((line(&now, "workers") != workers).then_some(()))
    })
    .await?;
    let colours = terminal.tmux(&["capture-pane", "-p", "-e"])?;
    ensure!(colours.contains("\u{1b}[32mTrue"), "{colours}");

    world.pool("broken", "missing").await?;
    world.stamp("broken", 1).await?;
    let screen = terminal
        .shows(&["2 pools, 1 waits", "profile: ProfileNotFound", "Warning"])
        .await?;
    let broken = line(&screen, "broken");
    ensure!(broken.contains("missing"), "{screen}");
    // Keys that mean nothing leave no trace, and another size none of the old one.
    terminal.keys(&["x", "y", "z"])?;
    terminal.tmux(&["resize-window", "-x", "60", "-y", "4"])?;
    let screen = terminal.shows(&["… and 2 more pools"]).await?;
    ensure!(screen.lines().count() <= 4, "{screen}");
    terminal.tmux(&["resize-window", "-x", "160", "-y", "24"])?;
    let screen = terminal.shows(&["TIME LEFT", "workers"]).await?;
    ensure!(!screen.contains("xyz"), "{screen}");

    terminal.keys(&["C-z"])?;
    terminal.shows(&["shell>"]).await?;
    assert_eq!(terminal.modes()?, "0 1");
    terminal.keys(&["-l", "fg"])?;
    terminal.keys(&["Enter"])?;
    terminal.shows(&["2 pools, 1 waits"]).await?;

    terminal.keys(&["C-c"])?;
    terminal.shows(&["shell>"]).await?;
    // The shell echoes keys again.
    terminal.keys(&["-l", "echo ended with $?"])?;
    terminal.keys(&["Enter"])?;
    let screen = terminal.shows(&["ended with 0"]).await?;
    ensure!(!screen.contains("TIME LEFT"), "{screen}");
    assert_eq!(terminal.modes()?, "0 1");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_each_change_is_a_line() -> Result<()> {
    let world = a_published_pool().await?;
    let program = tokio::task::spawn_blocking(installation::osmctl).await??;
    let mut osmctl = tokio::process::Command::new(program)
        .args(["status", "--watch", "-n", NAMESPACE, "--kubeconfig"])
        .arg(world.plane.admin_kubeconfig_path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(osmctl.stdout.take().context("standard output")?).lines();
    let mut next = async || -> Result<String> {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await??;
        let line = line.context("the output has ended")?;
        ensure!(!line.contains('\u{1b}'), "{line:?}");
        Ok(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    ensure!(next().await?.starts_with("TIME"));
    let first = next().await?;
    ensure!(first.contains("workers True osp-tiny"), "{first}");
    let patch = json!({"metadata": {"annotations": {names::PROFILE: "missing"}}});
    world.patch_pool("workers", patch).await?;
    loop {
        let line = next().await?;
        ensure!(line.contains("workers"), "{line}");
        if line.contains("profile: ProfileNotFound") && line.contains("True missing") {
            break;
        }
    }
    // Whoever reads has seen enough.
    drop(lines);
    world.pool("more", "missing").await?;
    let status = tokio::time::timeout(DEADLINE, osmctl.wait()).await??;
    ensure!(status.success(), "{status}");
    Ok(())
}
