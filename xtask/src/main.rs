//! Starts the program of `cargo xtask <command>`, or runs the tests. It has no dependencies, so that the
//! first commands that people run compile nothing but what they need. Where `OSM_BIN_DIR` names a folder of
//! programs, they are taken from there.

mod test;

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let (package, program) = match arguments.first().map(String::as_str) {
        Some("test") => {
            return match test::run(arguments.get(1..).unwrap_or_default()) {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => {
                    eprintln!("xtask: {error}");
                    ExitCode::FAILURE
                }
            };
        }
        Some("demo") => ("osm-demo", "demo"),
        Some("e2e") => ("osm-tests", "machines"),
        _ => ("osm-dev", "osm-dev"),
    };
    if package != "osm-dev" {
        arguments.remove(0);
    }
    let mut command = match std::env::var_os("OSM_BIN_DIR") {
        Some(folder) => Command::new(PathBuf::from(folder).join(program)),
        None => {
            let mut cargo = cargo();
            cargo.args(["run", "--package", package, "--"]);
            cargo
        }
    };
    let error = command.args(arguments).exec();
    eprintln!("xtask: {} can't be run: {error}", command.get_program().display());
    ExitCode::FAILURE
}

/// `cargo`, as it is called from a shell. What it told this program about itself would make build scripts run
/// again.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    cargo
}
