//! The state of an execution: the output, the variables, and the place for errors.

use super::Trees;
use super::reflected::Reflected;
use crate::budget::{Budget, Exhausted};
use crate::error::Error;
use crate::parse::{Name, Part, Tree};
use crate::problem::Problem;
use crate::value::Value;

pub(super) type Executed<T> = Result<T, Box<Error>>;

/// A variable is looked up by its name in the list of all that exist. This many comparisons cost a step.
const COMPARISONS: usize = 64;

/// Names of more bytes are charged each time.
const LONG_NAME: usize = 64;

pub(super) struct State<'t> {
    /// Templates of the first take precedence, unless they are blank.
    trees: [&'t Trees; 2],
    pub(super) budget: &'t dyn Budget,
    output: String,
    /// The template that is executed.
    pub(super) frame: Frame<'t>,
    pub(super) variables: Vec<(u32, Reflected)>,
    depth: usize,
}

/// What belongs to one call of a template.
#[derive(Clone, Copy)]
pub(super) struct Frame<'t> {
    pub(super) name: &'t str,
    pub(super) tree: &'t Tree,
    /// The part that errors are about.
    pub(super) part: Option<Part<'t>>,
    /// The template's first variable.
    pub(super) first_variable: usize,
}

impl<'t> State<'t> {
    pub(super) fn new(trees: [&'t Trees; 2], name: &'t str, tree: &'t Tree, budget: &'t dyn Budget) -> Self {
        Self {
            trees,
            budget,
            output: String::new(),
            frame: Frame {
                name,
                tree,
                part: None,
                first_variable: 0,
            },
            variables: Vec::new(),
            depth: 0,
        }
    }

    pub(super) fn execute(mut self, data: &Value) -> Executed<String> {
        let dot = Reflected::concrete(data.clone());
        self.variables.push((0, dot.clone())); // `$`
        self.walk(&dot, &self.frame.tree.root)?;
        Ok(self.output)
    }

    /// The template that a name calls.
    pub(super) fn template(&self, name: &str) -> Option<(&'t str, &'t Tree)> {
        let [first, second] = self.trees.map(|trees| trees.get_key_value(name));
        let found = first.filter(|(_, tree)| !tree.is_empty).or(second).or(first);
        found.map(|(name, tree)| (&**name, tree))
    }

    pub(super) fn at(&mut self, part: Part<'t>) {
        self.frame.part = Some(part);
    }

    /// An error at the current part, see Go's `state.errorf`.
    #[cold]
    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Executed<T> {
        Err(self.error(problem.into(), false))
    }

    #[cold]
    #[inline(never)]
    fn error(&self, problem: String, exhausted: bool) -> Box<Error> {
        let source = &*self.frame.tree.source;
        let position = self.frame.part.map_or(0, Part::position);
        let (line, column) = self.frame.tree.line_and_column(position);
        Box::new(Error {
            template: self.frame.tree.source_name.to_string(),
            line,
            column: Some(column),
            printed_line: line,
            executing: Some(self.frame.name.into()),
            context: Some(
                self.frame
                    .part
                    .map_or_else(Box::default, |part| part.print(source).into()),
            ),
            problem,
            exhausted,
        })
    }

    pub(super) fn charge(&self, charged: Result<(), Exhausted>) -> Executed<()> {
        charged.map_err(|exhausted| self.error(exhausted.to_string(), true))
    }

    /// The result of a function of this crate. `context` comes before its problem.
    pub(super) fn solve<T>(&self, result: Result<T, Problem>, context: &str) -> Executed<T> {
        result.map_err(|problem| match problem {
            Problem::Failed(problem) => self.error(format!("{context}{problem}"), false),
            Problem::Exhausted(exhausted) => self.error(exhausted.to_string(), true),
        })
    }

    pub(super) fn step(&self) -> Executed<()> {
        self.charge(self.budget.step(1))
    }

    /// Charges looking for a name. Most names cost nothing besides the step of their node.
    pub(super) fn look_up(&self, name: &str) -> Executed<()> {
        if name.len() > LONG_NAME {
            self.charge(self.budget.read(name.len()))?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, text: &str) -> Executed<()> {
        self.charge(self.budget.write(text.len()))?;
        self.output.push_str(text);
        Ok(())
    }

    pub(super) fn declare(&mut self, name: &Name, value: Reflected) {
        self.variables.push((name.number, value));
    }

    /// The index of the last variable with a name.
    fn find(&self, name: &Name) -> Executed<usize> {
        let visible = self
            .variables
            .get(self.frame.first_variable..)
            .unwrap_or_default();
        let found = visible.iter().rposition(|(number, _)| *number == name.number);
        let compared = visible.len().saturating_sub(found.unwrap_or(0));
        if compared > COMPARISONS {
            let steps = u64::try_from(compared / COMPARISONS).unwrap_or(u64::MAX);
            self.charge(self.budget.step(steps))?;
        }
        match found {
            Some(index) => Ok(self.frame.first_variable.saturating_add(index)),
            None => self.fail(format!("undefined variable: {}", name.text)),
        }
    }

    pub(super) fn variable(&self, name: &Name) -> Executed<Reflected> {
        let index = self.find(name)?;
        let found = self.variables.get(index);
        Ok(found.map_or(Reflected::NONE, |(_, value)| value.clone()))
    }

    pub(super) fn set(&mut self, name: &Name, value: Reflected) -> Executed<()> {
        let index = self.find(name)?;
        if let Some((_, variable)) = self.variables.get_mut(index) {
            *variable = value;
        }
        Ok(())
    }

    /// Overwrites the variable that was declared as the nth last, from 1.
    pub(super) fn set_last(&mut self, nth: usize, value: Reflected) {
        let index = self.variables.len().checked_sub(nth);
        if let Some((_, variable)) = index.and_then(|index| self.variables.get_mut(index)) {
            *variable = value;
        }
    }

    /// Goes one level deeper. Callers go up again with [`State::leave`].
    pub(super) fn enter(&mut self) -> Executed<()> {
        if self.depth >= super::MAX_DEPTH {
            return self.fail(format!("exceeded maximum template depth ({})", super::MAX_DEPTH));
        }
        self.depth = self.depth.saturating_add(1);
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}
