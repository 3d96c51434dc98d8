//! Nothing remains of a control plane whose owner is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_testkit::{check, wait_for};

const DEADLINE: Duration = Duration::from_secs(180);

#[tokio::test]
async fn nothing_is_left_when_the_owner_is_killed() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let report = scratch.path().join("report");
    let mut owner = Command::new(env!("CARGO_BIN_EXE_control-plane-owner"))
        .arg(&report)
        .stdout(Stdio::null())
        .spawn()?;
    let directory = wait_for("the owner's control plane", DEADLINE, async || {
        let status = owner.try_wait()?;
        ensure!(status.is_none(), "the owner failed: {status:?}");
        Ok(Some(PathBuf::from(fs::read_to_string(&report)?)))
    })
    .await?;
    assert!(processes(&directory)?.len() >= 3);
    owner.kill()?; // SIGKILL: no destructor runs
    owner.wait()?;
    wait_for("the end of its processes", DEADLINE, async || {
        check(processes(&directory)?.is_empty() && !directory.exists())
    })
    .await
}

/// The command lines of running processes that mention `directory`; the watchers' do as well.
fn processes(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let command = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&directory) {
            found.push(command);
        }
    }
    Ok(found)
}
