//! Starts the program of `cargo xtask <command>`. It has no dependencies, so that the demo, the first command that people run, compiles
//! nothing but its own.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let package = match arguments.peek().and_then(|first| first.to_str()) {
        Some("demo") => "osm-demo",
        Some("e2e") => "osm-tests",
        _ => "osm-dev",
    };
    if package != "osm-dev" {
        arguments.next();
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--package", package, "--"]).args(arguments);
    // What cargo has told this program about itself would make build scripts run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    eprintln!("xtask: cargo can't be run: {}", cargo.exec());
    ExitCode::FAILURE
}
