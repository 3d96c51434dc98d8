//! Texts of files, folders and standard input, within bounds.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::problem::{Place, Problem};

/// Largest file. A profile of this size is refused later, by what can be stored.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Ends of names that are read in a folder.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Name of standard input in messages.
pub const STDIN: &str = "<stdin>";

/// A text with its name.
#[derive(Debug)]
pub struct Source {
    /// Path as it was given, or [`STDIN`].
    pub name: String,
    /// Text without a byte order mark.
    pub text: String,
    /// Whether it was found in a folder, where files of other programs may be.
    pub is_found: bool,
}

/// Reads files, folders with everything below them, and standard input, whose path is `-`.
///
/// Folders contribute files that end in .yaml, .yml or .json, in the order of their names. Hidden files, and
/// folders behind symbolic links, are left out.
///
/// # Errors
/// Everything that can't be read. The rest is returned as well.
pub fn read(paths: &[PathBuf]) -> (Vec<Source>, Vec<Problem>) {
    let mut reader = Reader::default();
    for path in paths {
        if path == Path::new("-") {
            reader.take(STDIN.to_owned(), std::io::stdin().lock(), false);
        } else if path.is_dir() {
            reader.folder(path);
        } else {
            reader.file(path, false);
        }
    }
    (reader.sources, reader.problems)
}

#[derive(Default)]
struct Reader {
    sources: Vec<Source>,
    problems: Vec<Problem>,
}

impl Reader {
    fn fail(&mut self, name: &str, message: String, hint: &str) {
        let problem = Problem::error("unreadable", Place::file(name), message);
        self.problems.push(problem.hint(hint));
    }

    fn folder(&mut self, path: &Path) {
        let name = path.display().to_string();
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.fail(&name, format!("cannot read it: {error}"), "check the path"),
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.folder(&path);
            } else if is_manifest(&path) && path.is_file() {
                self.file(&path, true);
            }
        }
    }

    fn file(&mut self, path: &Path, is_found: bool) {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => self.take(name, file, is_found),
            Err(error) => self.fail(&name, format!("cannot read it: {error}"), "check the path"),
        }
    }

    fn take(&mut self, name: String, from: impl Read, is_found: bool) {
        let mut bytes = Vec::new();
        if let Err(error) = from.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes) {
            return self.fail(&name, format!("cannot read it: {error}"), "check the path");
        }
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let message = format!("the file has more than {MAX_FILE_BYTES} bytes");
            return self.fail(&name, message, "split it; etcd stores no object above 1.5 MiB");
        }
        match String::from_utf8(bytes) {
            Ok(text) => {
                let text = match text.strip_prefix('\u{feff}') {
                    Some(rest) => rest.to_owned(),
                    None => text,
                };
                self.sources.push(Source { name, text, is_found });
            }
            Err(error) => {
                let valid = error.as_bytes().get(..error.utf8_error().valid_up_to());
                let valid = String::from_utf8_lossy(valid.unwrap_or_default()).into_owned();
                let last = valid.rsplit('\n').next().unwrap_or_default();
                let place = Place {
                    file: name,
                    line: Some(valid.matches('\n').count() + 1),
                    column: Some(last.chars().count() + 1),
                };
                let problem = Problem::error("unreadable", place, "the text is not UTF-8");
                self.problems.push(problem.hint("save the file as UTF-8"));
            }
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    path.extension()
        .and_then(|extension| extension.to_str())
        .is_some_and(|extension| EXTENSIONS.contains(&extension))
}
