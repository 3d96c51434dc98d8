//! The text of a unit or drop-in, as Ignition takes it: less than systemd does, which skips what it can't
//! read.

/// Longest line in bytes that Ignition's parser takes.
const LONGEST_LINE: usize = 2047;

/// What Ignition would object to, with the line.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if text.contains('\r') {
        return Err("the text has carriage returns: end lines with a newline alone".to_owned());
    }
    if let Some(line) = text.split('\n').position(|line| line.len() > LONGEST_LINE) {
        return Err(format!(
            "line {} has more than {LONGEST_LINE} bytes: break it with \\",
            line + 1
        ));
    }
    for (number, line) in logical_lines(text) {
        let problem = match line {
            Line::Section(_) | Line::Setting => continue,
            Line::Stray => "is before any [Section]",
            Line::Broken => "isn't a [Section], Key=value or comment",
        };
        return Err(format!("line {number} {problem}"));
    }
    Ok(())
}

/// Whether there is a section of this name.
pub(crate) fn has_section(text: &str, name: &str) -> bool {
    logical_lines(text)
        .iter()
        .any(|(_, line)| matches!(line, Line::Section(section) if *section == name))
}

enum Line<'a> {
    Section(&'a str),
    Setting,
    Stray,
    Broken,
}

/// Lines with their numbers, from 1, without comments, empty lines and continuations.
fn logical_lines(text: &str) -> Vec<(usize, Line<'_>)> {
    let mut lines = text.split('\n').enumerate();
    let mut found = Vec::new();
    let mut inside = false;
    while let Some((i, whole)) = lines.next() {
        let line = whole.trim();
        if line.starts_with(['#', ';']) {
            // To Ignition's parser comments go on behind a backslash, too.
            let mut last = whole;
            while last.strip_suffix(' ').unwrap_or(last).ends_with('\\') {
                let Some((_, next)) = lines.next() else { break };
                last = next;
            }
        } else if line.starts_with('[') {
            let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            inside = true;
            found.push((
                i + 1,
                name.filter(|name| !name.contains(']'))
                    .map_or(Line::Broken, Line::Section),
            ));
        } else if !line.is_empty() {
            let kind = match (inside, whole.contains('=')) {
                (false, _) => Line::Stray,
                (true, true) => Line::Setting,
                (true, false) => Line::Broken,
            };
            found.push((i + 1, kind));
            let mut last = whole;
            while last.ends_with('\\') {
                let Some((_, next)) = lines.next() else { break };
                last = next;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ignition_refuses_is_found_with_its_line() {
        let good = "# c\n; c \\\n still c\n[Unit]\n\nA=b \\\n [Install]\\\n\n [Service] \nB=\n";
        check(good).unwrap();
        assert!(has_section(good, "Service") && !has_section(good, "Install"));
        check("").unwrap();
        let long = format!("[Unit]\nA={}\n", "x".repeat(2046));
        for (text, problem) in [
            ("A=b\n[Unit]\n", "line 1 is before"),
            ("[Unit]\nA\n", "line 2 isn't a"),
            ("[Unit\n", "line 1 isn't a"),
            ("[Unit] x\n", "line 1 isn't a"),
            ("[Unit]\r\n", "carriage"),
            (long.as_str(), "line 2 has more than 2047"),
        ] {
            assert!(check(text).unwrap_err().contains(problem), "{text}");
        }
    }
}
