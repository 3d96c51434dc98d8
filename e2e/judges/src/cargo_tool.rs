//! Runs cargo from a program that cargo has started.

/// `cargo`, as it is called from a shell. What it told this program about itself would make build scripts
/// look as if their surroundings had changed, and half the workspace be built again, with every change from
/// one to the other.
#[must_use]
pub fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
