//! Rules for packages, kernel modules and kernel parameters that profiles and settings share.

/// Most characters of a name, and of the value of a kernel parameter. Packages, modules and parameters are
/// files on the node, whose names Linux limits to 255 bytes.
const MAX_CHARS: usize = 256;

/// What the name of a package may contain besides letters and digits.
pub const IN_PACKAGES: &str = "+._:=~-";
/// What the name of a kernel module may contain besides letters and digits.
pub const IN_KERNEL_MODULES: &str = "_-";
/// What the name of a kernel parameter may contain besides letters and digits.
pub const IN_SYSCTLS: &str = "._/-";

/// A name of letters, digits and these other characters, which does not look like an option.
///
/// # Errors
/// The rule, without the name.
pub fn check_name(name: &str, others: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if starts_well && name.chars().all(good) && name.len() <= MAX_CHARS {
        return Ok(());
    }
    Err(format!(
        "must consist of letters, digits and {others}, with at most {MAX_CHARS} characters"
    ))
}

/// A kernel parameter's name with dots between its parts. Where a slash comes first, slashes separate the
/// parts, and dots are part of them (sysctl.d(5)).
#[must_use]
pub fn dotted(name: &str) -> String {
    match name.find(['.', '/']).and_then(|at| name.get(at..)) {
        Some(rest) if rest.starts_with('/') => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

/// The value of a kernel parameter.
///
/// # Errors
/// The rule, without the value.
pub fn check_sysctl_value(value: &str) -> Result<(), String> {
    let is_line = !value.trim().is_empty() && !value.chars().any(char::is_control);
    if is_line && !value.contains("{{") && value.chars().count() <= MAX_CHARS {
        return Ok(());
    }
    Err(format!(
        "must be a number or a text on one line, without {{{{ and with at most {MAX_CHARS} characters"
    ))
}
