//! The examples of docs/osmctl.md, and what the page lists.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{err, out, prints, run};

const PAGE: &str = include_str!("../../../../docs/osmctl.md");

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, to).unwrap();
        }
    }
}

/// Blocks of lines that are indented by four spaces.
fn blocks() -> Vec<String> {
    let mut blocks = vec![String::new()];
    // Fenced blocks are files, not commands.
    let outside = PAGE.split("```").step_by(2);
    for line in outside.flat_map(str::lines) {
        match (line.strip_prefix("    "), blocks.last_mut()) {
            (Some(command), Some(block)) => {
                block.push_str(command);
                block.push('\n');
            }
            _ => blocks.push(String::new()),
        }
    }
    let is_command = |block: &String| block.starts_with(|c: char| c.is_ascii_lowercase());
    blocks.into_iter().filter(is_command).collect()
}

#[test]
fn every_example_of_the_page_works() {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ["examples", "profiles"] {
        copy(&root.join(name), &folder.path().join(name));
    }
    let program = Path::new(env!("CARGO_BIN_EXE_osmctl"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let blocks = blocks();
    assert!(blocks.len() >= 9, "{blocks:#?}");
    for block in blocks {
        let output = Command::new("sh")
            .args(["-euc", &block])
            .current_dir(folder.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        let differs = output.status.code() == Some(1) && block.contains("osmctl diff -f");
        assert!(
            output.status.success() || differs,
            "{block}\n{}{}",
            out(&output),
            err(&output)
        );
        assert!(
            !differs || out(&output).contains("+nf_conntrack"),
            "{}",
            out(&output)
        );
    }
    assert!(folder.path().join("machines/kube-system").is_dir());
    assert!(folder.path().join("cases/aws/expected/osmctl.json").is_file());
}

#[test]
fn help_fits_on_one_screen_and_the_page_lists_every_command() {
    let help = run("--help", "");
    assert!(out(&help).lines().count() <= 40, "{}", out(&help));
    let commands = out(&help).lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.map_while(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|name| *name != "help").collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        assert!(PAGE.contains(&format!("`{command}`")), "{command}");
        prints(&run(&format!("{command} --help"), ""), "Example");
    }
}
