//! Starts the program of `cargo xtask <command>`, or runs the tests. It has no dependencies, so that the first commands that people run
//! compile nothing but what they need.

mod test;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let package = match arguments.first().map(String::as_str) {
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
        Some("demo") => "osm-demo",
        Some("e2e") => "osm-tests",
        _ => "osm-dev",
    };
    if package != "osm-dev" {
        arguments.remove(0);
    }
    let error = cargo()
        .args(["run", "--package", package, "--"])
        .args(arguments)
        .exec();
    eprintln!("xtask: cargo can't be run: {error}");
    ExitCode::FAILURE
}

/// `cargo`, as it is called from a shell. What it told this program about itself would make build scripts run again.
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
