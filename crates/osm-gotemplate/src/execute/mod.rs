//! Executes templates, as Go's `text/template` does.

mod arguments;
mod calls;
mod evaluate;
mod fields;
mod reflected;
mod state;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::budget::Budget;
use crate::error::Error;
use crate::format;
use crate::parse::{self, Tree};
use crate::value::Value;

/// Template calls, blocks and parentheses can be nested this deeply in each other while templates are
/// executed.
pub const MAX_DEPTH: usize = 200;

/// Templates that can call each other. It can be executed any number of times, by any thread.
#[derive(Clone, Debug)]
pub struct TemplateSet {
    name: Arc<str>,
    trees: Trees,
}

type Trees = BTreeMap<Arc<str>, Tree>;

impl TemplateSet {
    /// An empty set. Go's errors name it.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            trees: BTreeMap::new(),
        }
    }

    /// Parses a template and those that it defines, and adds them. As in Go, they replace templates with the
    /// same name, unless they are empty.
    ///
    /// # Errors
    /// The source is no template, or the budget is exhausted. The set does not change then.
    pub fn parse(&mut self, name: &str, source: &str, budget: &dyn Budget) -> Result<(), Error> {
        for (name, tree) in parse::parse(name, source, budget).map_err(|error| *error)? {
            self.add(name, tree);
        }
        Ok(())
    }

    /// Adds a template that is a text, which is written as it stands, whatever it contains. It replaces a
    /// template with the same name, unless it is blank.
    pub fn define_text(&mut self, name: &str, text: &str) {
        self.add(name.into(), Tree::of_text(name, text));
    }

    fn add(&mut self, name: Arc<str>, tree: Tree) {
        if !self.trees.contains_key(&name) || !tree.is_empty {
            self.trees.insert(name, tree);
        }
    }

    /// Executes a template and returns its output.
    ///
    /// # Errors
    /// There is no such template, it fails, or the budget is exhausted.
    pub fn execute(&self, name: &str, data: &Value, budget: &dyn Budget) -> Result<String, Error> {
        self.execute_with(&Self::new(""), name, data, budget)
    }

    /// Executes a template, which can call those of `others`, too. As if they were added to this set, they
    /// replace templates with the same name, unless they are blank.
    ///
    /// # Errors
    /// As [`TemplateSet::execute`].
    pub fn execute_with(
        &self,
        others: &Self,
        name: &str,
        data: &Value,
        budget: &dyn Budget,
    ) -> Result<String, Error> {
        let Some((name, tree)) = self.trees.get_key_value(name) else {
            let (name, set) = (format::quote(name), format::quote(&self.name));
            return Err(Error {
                problem: format!("no template {name} associated with template {set}"),
                ..Error::default()
            });
        };
        let state = state::State::new([&others.trees, &self.trees], name, tree, budget);
        state.execute(data).map_err(|error| *error)
    }

    /// The templates' names.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.trees.keys().map(|name| &**name)
    }

    /// The names of the functions that the templates call.
    #[must_use]
    pub fn functions(&self) -> BTreeSet<&'static str> {
        let mut functions = BTreeSet::new();
        for tree in self.trees.values() {
            tree.visit(&mut |operand, _| {
                if let parse::OperandKind::Function(function) = &operand.kind {
                    functions.insert(function.name);
                }
            });
        }
        functions
    }

    /// The chains of fields of the data that a template reads, in order, those in branches that no data
    /// takes, too: fields of `$`, and fields of the cursor where no `with` or `range` has moved it. Templates
    /// that it calls are left out, because they get other data.
    #[must_use]
    pub fn fields(&self, name: &str) -> Vec<DataField> {
        let mut fields = Vec::new();
        let Some(tree) = self.trees.get(name) else {
            return fields;
        };
        tree.visit(&mut |operand, of_data| {
            let names = match &operand.kind {
                parse::OperandKind::Field(names) if of_data => names,
                parse::OperandKind::Variable(name, names) if &*name.text == "$" && !names.is_empty() => names,
                _ => return,
            };
            let (line, column) = tree.line_and_column(operand.position);
            let names = names.iter().map(ToString::to_string).collect();
            fields.push(DataField { names, line, column });
        });
        fields
    }
}

/// A chain of fields of the data, see [`TemplateSet::fields`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataField {
    /// `A` and `B` for `.A.B`.
    pub names: Vec<String>,
    /// The line in the source, from 1.
    pub line: usize,
    /// Bytes before it in its line.
    pub column: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Limits;
    use crate::functions;

    fn render(source: &str, data: &Value) -> Result<String, String> {
        let limits = Limits::new(1_000_000, 100_000_000);
        let mut set = TemplateSet::new("t");
        let parsed = set.parse("t", source, &limits);
        let rendered = parsed.and_then(|()| set.execute("t", data, &limits));
        rendered.map_err(|error| error.to_string())
    }

    #[test]
    fn every_function_has_an_example_that_renders_as_it_says() {
        for function in functions::all() {
            let (source, output) = function.example;
            assert_eq!(render(source, &Value::Nil).as_deref(), Ok(output), "{source}");
            assert!(source.contains(function.name), "{source} calls {}", function.name);
        }
    }

    #[test]
    fn a_text_is_written_as_it_stands_and_replaces_a_template_unless_it_is_blank() {
        let limits = Limits::new(1_000, 10_000);
        let mut set = TemplateSet::new("t");
        let source = r#"{{define "a"}}old{{end}}{{define "b"}}old{{end}}{{template "a"}},{{template "b"}},{{template "c"}}"#;
        set.parse("t", source, &limits).unwrap();
        for (name, text) in [("a", "{{ .Token }}"), ("b", " \n"), ("c", "")] {
            set.define_text(name, text);
        }
        let output = set.execute("t", &Value::Nil, &limits);
        assert_eq!(output.as_deref(), Ok("{{ .Token }},old,"));
    }

    #[test]
    fn templates_of_another_set_are_called_as_if_they_were_added() {
        let limits = Limits::new(1_000, 10_000);
        let (mut set, mut others) = (TemplateSet::new("t"), TemplateSet::new("others"));
        let source = r#"{{define "a"}}old{{end}}{{define "b"}}old{{end}}{{template "a"}},{{template "b"}},{{template "c"}}"#;
        set.parse("t", source, &limits).unwrap();
        for (name, text) in [("a", "new"), ("b", " \n"), ("c", "")] {
            others.define_text(name, text);
        }
        let output = set.execute_with(&others, "t", &Value::Nil, &limits);
        assert_eq!(output.as_deref(), Ok("new,old,"));
        assert!(
            set.execute("t", &Value::Nil, &limits).is_err(),
            "the set itself does not change"
        );
    }

    #[test]
    fn a_set_can_be_shared_by_threads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<TemplateSet>();
    }
}
