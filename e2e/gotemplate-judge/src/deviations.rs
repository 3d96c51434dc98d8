//! Where `osm-gotemplate` differs from Go on purpose.

use crate::case::Case;
use crate::compare::Outcome;
use crate::layout;

/// A difference that is meant.
pub struct Deviation {
    /// What differs, and why.
    pub reason: &'static str,
    /// How the line of `docs/go-templates.md` starts that describes it.
    pub documented: &'static str,
    /// Whether the difference between the case's result and ours is this one.
    pub matches: fn(&Case, &Outcome) -> bool,
}

/// All differences that are meant.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        reason: "A value of a named string type fits a string parameter: what Go refuses renders as its author meant.",
        documented: "A value of a named string type",
        matches: |case, _| {
            ["v1alpha1.CloudProvider", "providerconfig.IPFamily"]
                .iter()
                .any(|name| {
                    go_error(case).ends_with(&format!("wrong type for value; expected string; got {name}"))
                })
        },
    },
    Deviation {
        reason: "Go prints the address of a pointer, which is different in each run; here, that is an error.",
        documented: "Printing a pointer inside a list",
        matches: |_, ours| our_error(ours).contains("can't print the address of a "),
    },
    Deviation {
        reason: "Go's strings hold any bytes; here, a text that is not UTF-8 is an error.",
        documented: "A text that is not valid UTF-8 is an error",
        matches: |_, ours| our_error(ours).contains("UTF-8"),
    },
    Deviation {
        reason: "Templates call each other at most 200 deep, not 100000: the stack is bounded.",
        documented: "Templates call each other at most 200 deep.",
        matches: |case, ours| {
            let depth = "exceeded maximum template depth (";
            go_error(case).contains(depth) && our_error(ours).contains(depth)
        },
    },
    Deviation {
        reason: "Go uses the name of a template as a format, so that a % in it spoils the message.",
        documented: "A `%` in the name of a template",
        matches: |case, ours| {
            let spoilt = |text: &str| text.contains("%!");
            case.named().iter().any(|(name, _)| name.contains('%'))
                && spoilt(go_error(case))
                && matches!(ours, Outcome::Error(text) if !spoilt(text))
        },
    },
    Deviation {
        reason: "A nil pointer does not know the fields of its struct: both fail, with other words.",
        documented: "A field that a struct does not have",
        matches: |case, ours| {
            let evaluating = our_error(ours).split_once(": nil pointer evaluating ");
            evaluating.is_some_and(|(place, _)| {
                go_error(case)
                    .strip_prefix(place)
                    .is_some_and(|text| text.starts_with(": can't evaluate field "))
            })
        },
    },
    Deviation {
        reason: "Encoders have another layout than Go's, but write the same data.",
        documented: "`toJson`, `toYaml` and `toToml` write",
        matches: |case, ours| match (ours, &case.output) {
            (Outcome::Output(ours), Some(go)) => layout::is_same_data(case, ours, go),
            _ => false,
        },
    },
    Deviation {
        reason: "A value that can't be encoded or decoded is an error. Go returns no text, or the error as text.",
        documented: "A value that `toJson`",
        matches: |_, ours| {
            ["toJson", "toYaml", "toToml", "b64dec"]
                .iter()
                .any(|name| our_error(ours).contains(&format!("error calling {name}: ")))
        },
    },
    Deviation {
        reason: "What can't be decoded is reported in the words of another parser, and nothing of it is used.",
        documented: "`fromJson` and `fromYaml` describe",
        matches: |case, ours| {
            let Outcome::Output(ours) = ours else { return false };
            // A template may change the text, such as by `upper`.
            let is_reported = |text: &str| text.to_lowercase().contains("error");
            case.output.as_deref().is_some_and(is_reported) && is_reported(ours)
        },
    },
    Deviation {
        reason: "Regular expressions are those of the crate `regex`.",
        documented: "Regular expressions have",
        matches: |case, ours| {
            our_error(ours).contains("the regular expression is ")
                || go_error(case).contains("error parsing regexp: ")
        },
    },
    Deviation {
        reason: "What no profile has a use for is refused with what to use instead.",
        documented: "Numbers such as",
        matches: |_, ours| our_error(ours).contains(" is not supported"),
    },
    Deviation {
        reason: "The bytes of an address are not shown in parts.",
        documented: "`slice` of an address",
        matches: |_, ours| our_error(ours).contains("an address can't be sliced"),
    },
    Deviation {
        reason: "Go's keys and values of a map come in another order each time; here, in the order of the keys.",
        documented: "The results of `keys` and `values`",
        matches: |case, ours| {
            let sorted = |text: &str| {
                let mut characters: Vec<char> = text.chars().collect();
                characters.sort_unstable();
                characters
            };
            let (Outcome::Output(ours), Some(go)) = (ours, &case.output) else {
                return false;
            };
            let listed = ["keys", "values"]
                .iter()
                .any(|name| case.named().iter().any(|(_, text)| text.contains(name)));
            listed && sorted(ours) == sorted(go)
        },
    },
];

fn go_error(case: &Case) -> &str {
    case.error.as_deref().unwrap_or_default()
}

fn our_error(ours: &Outcome) -> &str {
    match ours {
        Outcome::Error(text) => text,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_line_for_every_deviation() {
        let page = include_str!("../../../docs/go-templates.md");
        let (_, section) = page
            .split_once("\n## Differences from the Go implementation\n")
            .unwrap();
        for Deviation {
            reason, documented, ..
        } in DEVIATIONS
        {
            let start = format!("- {documented}");
            let lines = section.lines().filter(|line| line.starts_with(&start));
            assert_eq!(lines.count(), 1, "{reason}");
        }
    }
}
