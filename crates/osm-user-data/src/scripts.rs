//! Scripts as machines get them.

/// Applies a cloud-config on a machine that has booted. It is a part of the library of templates, too.
pub const OSM_APPLY: &str = include_str!("osm-apply.py");

/// A script or a configuration file without the lines that are comments. Here documents stay as they are, and
/// so does a line that names an interpreter.
pub fn without_comments(text: &str) -> String {
    let mut here_document: Option<&str> = None;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let words = line.trim();
        let is_comment = words.starts_with("# ") && !words.contains("{{");
        match here_document {
            Some(end) if words == end => here_document = None,
            Some(_) => {}
            None if is_comment => continue,
            None => {
                let end = words.split_once("<<'").and_then(|(_, end)| end.split_once('\''));
                here_document = end.map(|(end, _)| end);
            }
        }
        kept.push_str(line);
    }
    kept
}
