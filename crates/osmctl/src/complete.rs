//! Completion for kubectl, which asks the program `kubectl_complete-osm` for the words after `kubectl osm`.
//!
//! kubectl passes the words, the last of which is not complete, and reads one candidate per line. The last line is a number of cobra's:
//! <https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/>.

use clap::{Arg, Command};

/// Name of the program that kubectl asks.
pub const PROGRAM: &str = "kubectl_complete-osm";

/// The shell completes names of files.
const FILES: &str = ":0";

/// There is nothing else to complete.
const NO_FILES: &str = ":4";

/// What kubectl reads.
pub fn answer(definition: &Command, words: &[String]) -> String {
    let (current, before) = match words.split_last() {
        Some((current, before)) => (current.as_str(), before),
        None => ("", words),
    };
    let candidates = candidates(definition, before, current);
    let rest = if candidates.is_empty() { FILES } else { NO_FILES };
    let lines = candidates.iter().map(|candidate| format!("{candidate}\n"));
    format!("{}{rest}\n", lines.collect::<String>())
}

fn candidates(definition: &Command, before: &[String], current: &str) -> Vec<String> {
    let mut command = definition;
    for word in before {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let all = match before.last().and_then(|last| valued(command, last)) {
        Some(flag) => values(flag),
        None if current.starts_with('-') => {
            let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
            let flags = flags.filter_map(Arg::get_long);
            flags.chain(["help"]).map(|flag| format!("--{flag}")).collect()
        }
        None => {
            let subcommands = command.get_subcommands().filter(|sub| !sub.is_hide_set());
            let subcommands = subcommands.map(|sub| sub.get_name().to_owned());
            subcommands
                .chain(command.get_positionals().flat_map(values))
                .collect()
        }
    };
    all.into_iter()
        .filter(|candidate| candidate.starts_with(current))
        .collect()
}

/// The flag that this word is, if the next word is its value.
fn valued<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_it = |arg: &&Arg| {
        let long = arg
            .get_long()
            .zip(word.strip_prefix("--"))
            .is_some_and(|(flag, word)| flag == word);
        let short = arg.get_short().is_some_and(|flag| word == format!("-{flag}"));
        (long || short) && arg.get_action().takes_values()
    };
    command.get_arguments().find(is_it)
}

fn values(arg: &Arg) -> Vec<String> {
    let values = arg
        .get_possible_values()
        .into_iter()
        .filter(|value| !value.is_hide_set());
    values.map(|value| value.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed_from_the_definition() {
        let definition = crate::definition();
        for (words, expected) in [
            (&["li"][..], "lint\n:4\n"),
            (&["sch"], "schema\n:4\n"),
            (&["schema", "prof"], "profile\n:4\n"),
            (&["lint", "--no"], "--no-shellcheck\n:4\n"),
            (&["lint", "-o", "sa"], "sarif\n:4\n"),
            (&["lint", "--output", "js"], "json\n:4\n"),
            // A path, and the value of a flag that has any value.
            (&["lint", "pro"], ":0\n"),
            (&["render", "--settings", ""], ":0\n"),
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(answer(&definition, &words), expected, "{words:?}");
        }
        let all = answer(&definition, &[String::new()]);
        assert!(all.contains("status\n") && all.contains("show\n"), "{all}");
    }
}
