//! Nodes: text, actions, branches, loops and calls of templates.

use super::reflected::{Reflected, indirect};
use super::state::{Executed, Frame, State};
use crate::format;
use crate::parse::{Branches, Include, Loop, Node, Part, Pipeline};
use crate::problem::Problem;
use crate::standard;
use crate::value::{Map, Named, Value};

/// How a list of nodes ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> State<'t> {
    /// Executes nodes, one level deeper.
    pub(super) fn walk(&mut self, dot: &Reflected, nodes: &'t [Node]) -> Executed<Flow> {
        self.enter()?;
        let flow = self.walk_nodes(dot, nodes)?;
        self.leave();
        Ok(flow)
    }

    fn walk_nodes(&mut self, dot: &Reflected, nodes: &'t [Node]) -> Executed<Flow> {
        for node in nodes {
            self.step()?;
            let flow = match node {
                Node::Text(range) => {
                    let source: &'t str = &self.frame.tree.source;
                    self.write(source.get(range.clone()).unwrap_or_default())?;
                    Flow::Next
                }
                Node::Action(pipeline) => self.walk_action(dot, pipeline)?,
                Node::If(branches) => self.walk_branches(dot, branches, false)?,
                Node::With(branches) => self.walk_branches(dot, branches, true)?,
                Node::Range(range) => self.walk_range(dot, range)?,
                Node::Template(include) => self.walk_template(dot, include)?,
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
            };
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn walk_action(&mut self, dot: &Reflected, pipeline: &'t Pipeline) -> Executed<Flow> {
        let value = self.pipeline(dot, pipeline)?;
        if pipeline.variables.is_empty() {
            self.print(&value.value)?;
        }
        Ok(Flow::Next)
    }

    /// Writes a value, see Go's `printValue`.
    fn print(&mut self, value: &Value) -> Executed<()> {
        match value {
            Value::String(text) => self.write(text),
            Value::Nil => self.write("<no value>"),
            value => {
                let text = self.text_of(indirect(value))?;
                self.write(&text)
            }
        }
    }

    fn text_of(&self, value: &Value) -> Executed<String> {
        self.solve(format::sprint(std::slice::from_ref(value), self.budget), "")
    }

    /// An `if` or `with`. Variables of a condition are visible in all that comes after it.
    fn walk_branches(&mut self, dot: &Reflected, branches: &'t Branches, sets_dot: bool) -> Executed<Flow> {
        let mark = self.variables.len();
        let mut chosen = None;
        for (condition, nodes) in &branches.arms {
            let value = self.pipeline(dot, condition)?;
            if value.value.is_true() {
                chosen = Some((value, nodes));
                break;
            }
        }
        let flow = match chosen {
            Some((value, nodes)) if sets_dot => self.walk(&value, nodes)?,
            Some((_, nodes)) => self.walk(dot, nodes)?,
            None => self.walk(dot, &branches.otherwise)?,
        };
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn walk_range(&mut self, dot: &Reflected, range: &'t Loop) -> Executed<Flow> {
        let start = self.variables.len();
        let over = self.pipeline(dot, &range.over)?;
        let ran = self.iterate(&over, range)?;
        let flow = if ran {
            Flow::Next
        } else {
            self.walk(dot, &range.otherwise)?
        };
        self.variables.truncate(start);
        Ok(flow)
    }

    /// Runs a loop's body for each element. Returns whether there was one.
    fn iterate(&mut self, over: &Reflected, range: &'t Loop) -> Executed<bool> {
        let value = indirect(&over.value);
        match value.underlying() {
            Value::Int(..) | Value::Uint(..) => self.iterate_numbers(value, range),
            Value::List(list) => {
                for (index, item) in (0..).zip(list.items()) {
                    let item = Reflected::element(item.clone(), list.element());
                    if !self.iteration(range, || Value::int(index), &item)? {
                        break;
                    }
                }
                Ok(!list.items().is_empty())
            }
            Value::Map(map) => self.iterate_map(map, range),
            Value::Nil if matches!(over.value, Value::Nil) => Ok(false),
            _ => {
                let text = self.text_of(value)?;
                self.fail(format!("range can't iterate over {text}"))
            }
        }
    }

    fn iterate_numbers(&mut self, end: &Value, range: &'t Loop) -> Executed<bool> {
        if range.over.variables.len() > 1 {
            let text = self.text_of(end)?;
            return self.fail(format!("can't use {text} to iterate over more than one variable"));
        }
        let count = match end.underlying() {
            Value::Int(end, _) => u64::try_from(*end).unwrap_or(0),
            Value::Uint(end, _) => *end,
            _ => 0,
        };
        for number in 0..count {
            let value = match end.underlying() {
                Value::Int(_, kind) => Value::Int(i64::try_from(number).unwrap_or(i64::MAX), *kind),
                Value::Uint(_, kind) => Value::Uint(number, *kind),
                _ => Value::Nil,
            };
            let value = match end {
                Value::Named(named) => match &**named.name() {
                    standard::DURATION => standard::duration(i64::try_from(number).unwrap_or(i64::MAX)),
                    name => Value::Named(Named::new(name, value)),
                },
                _ => value,
            };
            if !self.iteration(range, || Value::Nil, &Reflected::concrete(value))? {
                break;
            }
        }
        Ok(count > 0)
    }

    fn iterate_map(&mut self, map: &Map, range: &'t Loop) -> Executed<bool> {
        let entries = self.solve(map.entries(self.budget).map_err(Problem::from), "")?;
        let ran = !entries.is_empty();
        for (key, value) in entries {
            let value = Reflected::element(value, map.element());
            if !self.iteration(range, || Value::String(key), &value)? {
                break;
            }
        }
        Ok(ran)
    }

    /// Runs a loop's body once. Returns false after a `break`.
    fn iteration(
        &mut self,
        range: &'t Loop,
        index: impl FnOnce() -> Value,
        element: &Reflected,
    ) -> Executed<bool> {
        self.step()?;
        let mark = self.variables.len();
        match (range.over.variables.as_slice(), range.over.assigns) {
            ([], _) => {}
            ([only], true) => self.set(only, element.clone())?,
            ([first, second, ..], true) => {
                self.set(first, Reflected::concrete(index()))?;
                self.set(second, element.clone())?;
            }
            ([_], false) => self.set_last(1, element.clone()),
            ([_, _, ..], false) => {
                self.set_last(1, element.clone());
                self.set_last(2, Reflected::concrete(index()));
            }
        }
        let flow = self.walk(element, &range.body)?;
        self.variables.truncate(mark);
        Ok(flow != Flow::Break)
    }

    fn walk_template(&mut self, dot: &Reflected, include: &'t Include) -> Executed<Flow> {
        self.at(Part::Include(include));
        self.look_up(&include.name)?;
        let Some((name, tree)) = self.template(&include.name) else {
            return self.fail(format!("template {} not defined", format::quote(&include.name)));
        };
        self.enter()?; // Fails here, where the position is that of the call.
        let data = match &include.data {
            Some(data) => self.pipeline(dot, data)?,
            None => Reflected::NONE,
        };
        let first_variable = self.variables.len();
        let callee = Frame {
            name,
            tree,
            part: None,
            first_variable,
        };
        let caller = std::mem::replace(&mut self.frame, callee);
        self.variables.push((0, data.clone())); // `$`
        self.walk_nodes(&data, &tree.root)?;
        self.variables.truncate(first_variable);
        self.frame = caller;
        self.leave();
        Ok(Flow::Next)
    }
}
