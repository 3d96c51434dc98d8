//! docs/air-gap.md, done to the letter: an internet of files, and the mirror that the page starts.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use osm_api::Settings;
use osm_judges::packages;
use osm_testkit::{check, wait_for};

use super::upstream::publish;
use super::{err, out};

/// A fenced block of the page.
struct Block {
    info: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/air-gap.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = None;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        match (inside, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => {
                inside = Some(indent);
                blocks.push(Block {
                    info: info.to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some("")) => inside = None,
            (Some(indent), _) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line.get(indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(inside.is_none(), "a block is never closed");
    blocks
}

/// The texts of a kind of block.
fn of(kind: &str) -> Vec<String> {
    blocks()
        .into_iter()
        .filter(|block| block.info == kind)
        .map(|block| block.text)
        .collect()
}

#[test]
fn every_block_is_what_it_says() {
    packages::ensure(&["busybox", "dash"]).unwrap();
    for block in blocks() {
        match block.info.as_str() {
            "sh" | "sh background" | "sh cluster" => {
                for shell in [&["dash"][..], &["busybox", "sh"]] {
                    let mut command = Command::new(shell[0]);
                    let checked = command
                        .args(&shell[1..])
                        .args(["-n", "-c", &block.text])
                        .output()
                        .unwrap();
                    assert!(
                        checked.status.success(),
                        "{shell:?}: {}{}",
                        err(&checked),
                        block.text
                    );
                }
            }
            "yaml" => {
                _ = Settings::parse(&block.text).unwrap_or_else(|error| panic!("{error}\n{}", block.text))
            }
            "console" => assert!(block.text.starts_with("$ "), "{}", block.text),
            other => panic!("the page says nothing of blocks {other:?}"),
        }
    }
    assert_eq!((of("sh background").len(), of("sh cluster").len()), (1, 1));
}

/// A process that ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A folder with a `curl` in `bin` that finds the internet, but not the mirror, in the folder `internet`.
fn internet(folder: &Path) {
    publish(
        &folder.join("internet"),
        &["--profile", "osp-ubuntu", "--kubelet-version", "1.34.4"],
    );
    let curl = folder.join("bin/curl");
    std::fs::create_dir_all(curl.parent().unwrap()).unwrap();
    let script = format!(
        "#!/bin/sh
for argument; do
  shift
  case $argument in https://*) argument='file://{}/internet/'${{argument#https://}} ;; esac
  set -- \"$@\" \"$argument\"
done
exec /usr/bin/curl \"$@\"
",
        folder.display()
    );
    std::fs::write(&curl, script).unwrap();
    std::fs::set_permissions(&curl, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn the_page_makes_a_mirror_that_nodes_can_use() {
    packages::ensure(&["curl", "dash", "python3"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    internet(folder.path());
    let mirror = folder.path().join("mirror");
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}");
    let osmctl = Path::new(env!("CARGO_BIN_EXE_osmctl")).parent().unwrap();
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        folder.path().join("bin").display(),
        osmctl.display()
    );
    let port_text = port.to_string();
    let sh = |script: &str| {
        let mut command = Command::new("dash");
        command
            .args(["-eu", "-c", script])
            .current_dir(folder.path())
            .stdin(Stdio::null());
        command.env_clear().envs([
            ("PATH", path.as_str()),
            ("MIRROR_DIR", mirror.to_str().unwrap()),
            ("MIRROR_URL", &url),
            ("MIRROR_PORT", &port_text),
            ("REGISTRY_URL", "http://10.0.0.1:5000"),
        ]);
        command
    };
    let scripts = of("sh");
    // `exec`, so that the server is the process that is ended.
    let server = of("sh background")[0].replace("python3", "exec python3");
    let server = format!("{}\n{server}", scripts[0]);
    let _server = Running(
        sh(&server)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    wait_for("the mirror", Duration::from_secs(30), async || {
        check(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
    })
    .await
    .unwrap();

    let done = sh(&scripts.join("\n")).output().unwrap();
    assert!(done.status.success(), "{}{}", out(&done), err(&done));
    assert_eq!((out(&done), err(&done)), ("", ""));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let settings = Settings::parse(&read("settings.yaml")).unwrap();
    let (fetched, mirrored) = (read("urls.txt"), read("mirrored.txt"));
    assert_eq!(fetched.lines().count(), 10);
    assert_eq!(mirrored, fetched.replace("https://", &format!("{url}/")));
    assert_eq!(settings.downloads.kubelet.base_url, format!("{url}/dl.k8s.io"));
    assert_eq!(
        settings.downloads.kubelet.sha256["1.34.4"]
            .keys()
            .collect::<Vec<_>>(),
        ["amd64"]
    );
    assert_eq!(
        settings.pause_image.as_deref(),
        Some("registry.k8s.io/pause:3.10.1")
    );
    let registry = &settings.containerd.registries[0];
    assert_eq!(
        (registry.host.as_str(), registry.mirrors[0].url.as_str()),
        ("_default", "http://10.0.0.1:5000")
    );

    // Step 6 notices what is missing, and what is elsewhere.
    let see = format!("{}\n{}", scripts[0], scripts.last().unwrap());
    let runc = mirrored.lines().find(|url| url.ends_with("runc.amd64")).unwrap();
    std::fs::remove_file(mirror.join(runc.strip_prefix(&format!("{url}/")).unwrap())).unwrap();
    let noticed = sh(&see).output().unwrap();
    assert!(
        !noticed.status.success() && err(&noticed).contains("404"),
        "{}",
        err(&noticed)
    );
    std::fs::write(folder.path().join("settings.yaml"), "{}").unwrap();
    let noticed = sh(&see).output().unwrap();
    assert!(
        err(&noticed).starts_with("not on the mirror: https://dl.k8s.io/"),
        "{}",
        err(&noticed)
    );
    assert_eq!(noticed.status.code(), Some(1));
}
