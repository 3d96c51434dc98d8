//! The next steps for what templates do wrong.

pub const FIELDS: &str =
    "docs/templates.md lists all fields; inside each and with, ../ leads to those outside";
pub const VARIABLES: &str = "docs/go-templates.md lists all variables";

/// Parts of messages, and the next step where the message itself does not have it.
const HINTS: [(&str, &str); 19] = [
    ("there is no field", FIELDS),
    ("in type *resources.filesData", VARIABLES),
    (
        "there is no such value in this stage",
        "docs/templates.md lists the values of each stage",
    ),
    (
        "exceeded maximum template depth",
        "a template calls itself without an end; put the call into a condition that ends, or remove it",
    ),
    (
        "with all that it includes",
        "include fewer templates, or shorten the one that is included most often",
    ),
    (
        "nested more than",
        "move inner blocks into a named template, or join conditions with and; a template must not include itself without an end",
    ),
    (
        "unclosed action",
        "close the action with }}; write {{ \"{{\" }} where the text has two literal braces",
    ),
    ("unclosed comment", "close the comment with */}}"),
    (
        "unexpected EOF",
        "close each if, range, with, block and define with {{ end }}",
    ),
    (
        "unexpected {{end}}",
        "remove this {{ end }}, or open the block that it closes",
    ),
    (
        "unexpected {{else}}",
        "remove this {{ else }}, or open the block that it belongs to",
    ),
    (
        "missing value for",
        "write the value that the block depends on, such as {{ if .HTTPProxy }}",
    ),
    (
        "undefined variable",
        "assign the variable with := in this block or in one around it, before it is used",
    ),
    ("not defined", "docs/go-templates.md lists all functions"),
    (
        "takes more than",
        "shorten the loops, or those in the templates that are called in a loop",
    ),
    (
        "helpers or functions",
        "shorten the loops, and the texts that helpers and functions work on in them",
    ),
    (
        "write more than",
        "shorten the loops that write text, or split the file",
    ),
    (
        "writes more than",
        "shorten the loops that write text, or split the file",
    ),
    (
        "texts, tags and values together",
        "shorten the templates, or include common parts from one named template",
    ),
];

/// The next step for what a message reports, if the message itself does not have it.
pub fn of(message: &str) -> Option<&'static str> {
    let found = HINTS.iter().find(|(part, _)| message.contains(part));
    found.map(|(_, hint)| *hint)
}
