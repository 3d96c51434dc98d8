//! The examples of docs/osmctl.md, and what the page lists.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{err, out};

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
fn the_commands_of_the_example_workflow_work() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workflow = fs::read_to_string(root.join("examples/profiles-ci.yaml")).unwrap();
    let workflow = osm_render::yaml::read(&workflow).unwrap().remove(0);
    let steps = workflow["jobs"]["profiles"]["steps"].as_array().unwrap();
    let commands: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .filter(|command| command.starts_with("osmctl "))
        .collect();
    assert_eq!(commands.len(), 2, "{commands:?}");

    let folder = tempfile::tempdir().unwrap();
    copy(&root.join("profiles"), &folder.path().join("profiles"));
    let case = folder.path().join("cases/aws/case.yaml");
    fs::create_dir_all(case.parent().unwrap()).unwrap();
    fs::copy(root.join("examples/machinedeployment-ubuntu-aws.yaml"), case).unwrap();
    let run = |command: &str| {
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("osmctl"));
        let mut osmctl = Command::new(env!("CARGO_BIN_EXE_osmctl"));
        osmctl.args(words).current_dir(folder.path()).output().unwrap()
    };
    let recorded = run(&format!("{} --bless", commands[1]));
    assert!(recorded.status.success(), "{}", err(&recorded));
    for command in &commands {
        let output = run(command);
        assert!(
            output.status.success(),
            "{command}\n{}{}",
            out(&output),
            err(&output)
        );
    }
    // The workflow ends at a mistake, and at a result that was not recorded.
    let profile = folder.path().join("profiles/osp-ubuntu.yaml");
    let text = fs::read_to_string(&profile).unwrap();
    for (from, to, failing) in [
        ("br_netfilter", "br_netfilter\n              nf_conntrack", 1),
        ("osName: ubuntu", "osName: debian", 0),
    ] {
        fs::write(&profile, text.replace(from, to)).unwrap();
        assert_eq!(
            run(commands[failing]).status.code(),
            Some(1),
            "{}",
            commands[failing]
        );
    }
}

#[test]
fn the_page_lists_every_command_and_rule() {
    let help = super::osmctl(&["--help"], "");
    let commands = out(&help).lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        assert!(
            PAGE.contains(&format!("`{command}`")) || PAGE.contains(&format!(", `{command}`")),
            "{command}"
        );
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lint: String = [
        "lint/profile.rs",
        "lint/scripts.rs",
        "lint/spec.rs",
        "lint/yaml_traps.rs",
        "input.rs",
    ]
    .iter()
    .map(|file| fs::read_to_string(sources.join(file)).unwrap())
    .collect();
    let mut rules: Vec<&str> = lint
        .split("Problem::warning(")
        .skip(1)
        .filter_map(|call| call.split('"').nth(1))
        .collect();
    rules.sort_unstable();
    rules.dedup();
    assert!(rules.len() >= 8, "{rules:?}");
    for rule in rules {
        assert!(PAGE.contains(&format!("| `{rule}` |")), "{rule}");
    }
}
