//! Committed files that are generated: writing and checking them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// A file and the text that it should have.
pub type File = (PathBuf, String);

/// The files whose text differs or that do not exist.
pub fn stale(files: impl IntoIterator<Item = File>) -> Vec<File> {
    let differs = |(path, text): &File| fs::read_to_string(path).ok().as_deref() != Some(text);
    files.into_iter().filter(differs).collect()
}

/// Writes the stale files and prints their names, or prints `good` if there are none.
///
/// # Errors
/// With `check`, which writes nothing: `bad` and the names of the stale files. A file that can't be written.
pub fn settle(stale: &[File], check: bool, good: &str, bad: &str) -> Result<()> {
    if stale.is_empty() {
        println!("{good}");
        return Ok(());
    }
    if check {
        let names: Vec<_> = stale.iter().map(|(path, _)| path.display().to_string()).collect();
        bail!("{bad}: {}", names.join(", "));
    }
    for (path, text) in stale {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text).with_context(|| path.display().to_string())?;
        println!("written: {}", path.display());
    }
    Ok(())
}

/// `text` with `body` in place of everything between the two markers.
///
/// # Errors
/// A text that has not both markers, in this order.
pub fn between(text: &str, begin: &str, end: &str, body: &str) -> Result<String> {
    let (before, rest) = text
        .split_once(begin)
        .with_context(|| format!("the marker {begin} is missing"))?;
    let (_, after) = rest
        .split_once(end)
        .with_context(|| format!("the marker {end} is missing"))?;
    Ok(format!("{before}{begin}\n{body}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let text = "before\n<a>\nold\n<b>\nafter\n";
        assert_eq!(
            between(text, "<a>", "<b>", "new\n").unwrap(),
            "before\n<a>\nnew\n<b>\nafter\n"
        );
        assert_eq!(
            between(text, "<c>", "<b>", "").unwrap_err().to_string(),
            "the marker <c> is missing"
        );
        assert_eq!(
            between("<b><a>", "<a>", "<b>", "").unwrap_err().to_string(),
            "the marker <b> is missing"
        );
    }
}
